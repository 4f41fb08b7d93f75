"""Shells that complete the keys and values of a recipe's command line."""

import argparse
from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn

from recipes.command.lists import configs


def complete(
    keys: Mapping[str, Sequence[str] | None], first: str | None = None, switches: Iterable[str] = ()
) -> NoReturn:
    """Prints the possible next words for a shell that uses the variables of argcomplete, and ends the process.

    Args:
        keys: Dotted key to the words that are offered for its values; None for paths.
        first: The key that the words before all keys belong to; None where there may be none.
        switches: Words that begin with dashes and take no value.

    Example:

    >>> complete({"tokenizer.kind": ["bpe", "unigram"], "data.train": None, "training.epochs": []})

    Reference:
        https://kislyuk.github.io/argcomplete/
    """
    import argcomplete
    from argcomplete.completers import ChoicesCompleter, FilesCompleter

    parser = argparse.ArgumentParser(allow_abbrev=False)
    files = FilesCompleter(("yaml", "yml"))
    config = parser.add_argument("--config", action="append")
    config.completer = lambda prefix, **context: [*configs(), *files(prefix, **context)]
    for switch in switches:
        parser.add_argument(switch, action="store_true")
    for key, words in keys.items():
        arguments = [parser.add_argument(f"--{key}", nargs="+")]
        if key == first:
            arguments.append(parser.add_argument(key, nargs="*"))
        for argument in arguments:
            argument.completer = FilesCompleter() if words is None else ChoicesCompleter(words)
    argcomplete.autocomplete(parser)
    raise SystemExit(0)


def complete_name(names: Iterable[str]) -> NoReturn:
    """Prints those of some names that may be the next word, for the shells of `complete`, and ends the process.

    Args:
        names: The names.

    Example:

    >>> complete_name(["memory", "start"])
    """
    import argcomplete
    from argcomplete.completers import ChoicesCompleter

    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("name").completer = ChoicesCompleter(list(names))
    argcomplete.autocomplete(parser)
    raise SystemExit(0)
