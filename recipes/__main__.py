"""The command `zoo`, also `python -m recipes`: runs recipes, and lists them, their configs and presets.

PYTHON_ARGCOMPLETE_OK
"""

import argparse
import difflib
import os
import runpy
import shlex
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from recipes.command.lists import ConfigFile, configs, presets, recipes
from recipes.command.printing import lasting_output
from zoo.extras import MissingExtraError
from zoo.version import __version__

# words before those of a recipe: `zoo NAME`
_WORDS_BEFORE = 2


class CommandError(Exception):
    """A mistake in a command line that its parser cannot see; the message names the command and what is allowed."""


@lasting_output()
def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command.

    Args:
        arguments: Words of the command line; None means those of this process.

    Raises:
        SystemExit: With 2 after a mistake, 0 after `--help`, 1 if not all of the output could be written, and with the
            status of a recipe that was run.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    parser, names = make_parser()
    if "_ARGCOMPLETE" in os.environ:
        _complete(parser)
    try:
        if words and words[0] in recipes():
            _run(*words)
            return
        if words and not words[0].startswith("-") and words[0] not in names:
            raise CommandError(f"zoo: error: {_unknown(words[0], names)}")
        given = parser.parse_args(words)
        given.action(given)
    except MissingExtraError as error:
        parser.exit(2, f"zoo: error: {error}\n")
    except CommandError as error:
        parser.exit(2, f"{error}\n")


def make_parser() -> tuple[argparse.ArgumentParser, list[str]]:
    """Returns the parser of the command line, and the names of its commands."""
    parser = argparse.ArgumentParser(
        prog="zoo", description="Sequence models for Keras: presets, recipes and their configs.", allow_abbrev=False
    )
    parser.set_defaults(action=lambda given: parser.print_help())
    parser.add_argument("--version", action="version", version=f"zoo {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")

    def command(within: Any, name: str, summary: str, action: Callable[[argparse.Namespace], None]) -> Any:
        made = within.add_parser(name, help=summary, description=summary, allow_abbrev=False)
        made.set_defaults(action=action)
        return made

    command(commands, "recipes", "List the recipes.", lambda given: _print(recipes()))
    command(commands, "configs", "List the configs that come with the recipes.", lambda given: _print_configs())
    words = command(commands, "presets", "List the named architectures with their numbers of weights.", _print_presets)
    named = words.add_argument("words", nargs="*", help="words, of which a name holds any; none for all names")
    named.completer = lambda **context: list(presets())
    config = commands.add_parser("config", help="Copy a config.", description="Copy a config.", allow_abbrev=False)
    config.set_defaults(action=lambda given: config.print_help())
    parts = config.add_subparsers(title="commands", metavar="COMMAND")
    copy = command(parts, "copy", "Copy a config to a file of your own, to be changed.", _copy_config)
    _with_choices(copy.add_argument("name", metavar="NAME", help="name of a config, see `zoo configs`"), configs)
    copy.add_argument("file", metavar="FILE.yaml", type=Path, help="file to write; it must not exist")
    # here for their names alone: the words behind one are the recipe's, see `main`
    for name, summary in recipes().items():
        commands.add_parser(name, help=summary.replace("%", "%%"), add_help=False)
    return parser, list(commands.choices)


def _with_choices(argument: Any, names: Callable[[], dict[str, Any]]) -> None:
    """Lets an argument be one of some names, which are looked for when they are needed."""

    def known(name: str) -> str:
        if name not in names():
            raise argparse.ArgumentTypeError(_unknown(name, names()))
        return name

    argument.type = known
    argument.completer = lambda **context: list(names())


def _unknown(name: str, names: Iterable[str]) -> str:
    if name == "benchmark":
        return (
            "the benchmarks are no part of the installed package; in a checkout of the repository it is "
            "`python -m recipes.benchmark`"
        )
    similar = difflib.get_close_matches(name, names, n=1)
    hint = f", did you mean {similar[0]!r}?" if similar else ";"
    return f"there is no {name!r}{hint} known: {', '.join(names)}"


def _print(lines: dict[str, str]) -> None:
    width = max(map(len, lines))
    rows = [f"{name:{width}s}  {line}" for name, line in lines.items()]
    # a line each for other programs, the width of the screen for people
    if sys.stdout.isatty():
        options = {"width": shutil.get_terminal_size().columns, "subsequent_indent": " " * (width + 2)}
        rows = [textwrap.fill(row, break_on_hyphens=False, **options) for row in rows]
    print("\n".join(rows))


def _print_configs() -> None:
    _print({f"{name} ({config.recipe})": config.summary for name, config in configs().items()})


def _print_presets(given: argparse.Namespace) -> None:
    chosen = {
        name: preset
        for name, preset in presets().items()
        if not given.words or any(word in name for word in given.words)
    }
    if not chosen:
        words = " or ".join(given.words)
        raise CommandError(f"zoo presets: error: no preset has {words} in its name; `zoo presets` lists all")
    _print({name: f"{kind:15s}  {size:13,d}  {summary}" for name, (kind, size, summary) in chosen.items()})


def _copy_config(given: argparse.Namespace) -> None:
    config: ConfigFile = configs()[given.name]
    text = config.path.read_text(encoding="utf-8")
    quoted = shlex.quote(str(given.file))
    try:
        # the comment says how this file is run
        with open(given.file, "x", encoding="utf-8") as file:
            file.write(text.replace(f"recipes/configs/{config.path.name}", quoted))
    except FileExistsError as error:
        raise CommandError(
            f"zoo config copy: error: FILE.yaml must not exist, got '{given.file}', which does"
        ) from error
    except FileNotFoundError as error:
        raise CommandError(f"zoo config copy: error: FILE.yaml: there is no folder '{given.file.parent}'") from error
    except OSError as error:
        raise CommandError(f"zoo config copy: error: {error}") from error
    print(f"{given.file}: run it with: zoo {config.recipe} --config {quoted}")


def _run(recipe: str, *arguments: str) -> None:
    from recipes.common import config

    config.PROGRAM.set("zoo {}")
    sys.argv = [recipe, *arguments]
    runpy.run_module(f"recipes.{recipe}", run_name="__main__", alter_sys=True)


def _complete(parser: argparse.ArgumentParser) -> None:
    """Answers the shell, which asks for the words that may come next; those after `zoo NAME` are the recipe's."""
    import argcomplete

    words = argcomplete.split_line(os.environ["COMP_LINE"], int(os.environ["COMP_POINT"]))[3]
    if len(words) < _WORDS_BEFORE or words[1] not in recipes():
        argcomplete.autocomplete(parser)
        return
    # the recipe completes, to which its own name is that of the program
    os.environ["_ARGCOMPLETE"] = str(_WORDS_BEFORE)
    # a benchmark is named by a word of its own; no other recipe may see words, which it might act upon
    _run(words[1], *(words[_WORDS_BEFORE:] if words[1] == "benchmark" else ()))


if __name__ == "__main__":
    main()
