"""Prints the named architectures: `python -m recipes.presets`, or those whose names hold a word given after it."""

import sys
from collections.abc import Sequence

from zoo import list_presets
from zoo.presets import PresetTable


def main(arguments: Sequence[str]) -> None:
    """Prints a table of presets.

    Args:
        arguments: Words; presets whose names hold any of them are shown, without words all.

    Raises:
        SystemExit: With code 2 if no preset is left.

    Example:

    >>> main(["bert"])
    """
    presets = list_presets()
    chosen = {
        name: preset for name, preset in presets.items() if not arguments or any(word in name for word in arguments)
    }
    if not chosen:
        print(f"recipes.presets: error: no preset has {' or '.join(arguments)} in its name", file=sys.stderr)
        raise SystemExit(2)
    print(PresetTable(chosen))


if __name__ == "__main__":
    main(sys.argv[1:])
