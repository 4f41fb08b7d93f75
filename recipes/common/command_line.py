"""Running a recipe from the command line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

from recipes.common.config import parse
from recipes.common.errors import RecipeError

Config = TypeVar("Config")


def run(
    main: Callable[[Config], object], config_class: type[Config], name: str, arguments: Sequence[str] | None = None
) -> None:
    """Parse the command line, call the recipe, and print a user's mistake as one message.

    Args:
        main: Takes the config and does the job.
        config_class: See `recipes.common.config.parse`.
        name: Name of the recipe, as in `python -m recipes.<name>`.
        arguments: Words of the command line; None means those of this process.

    Raises:
        SystemExit: With code 2 after a `RecipeError`, whose message goes to stderr, and with 0 after `--help`.

    Example:

    >>> if __name__ == "__main__":
    ...     run(main, TranslateConfig, "translate")
    """
    try:
        main(parse(config_class, sys.argv[1:] if arguments is None else arguments, prog=f"python -m recipes.{name}"))
    except RecipeError as error:
        print(f"recipes.{name}: error: {error}", file=sys.stderr)
        raise SystemExit(2) from error
