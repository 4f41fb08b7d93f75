"""What a user of a recipe can put right: errors, warnings, bad lines of data, and how they are written."""

from __future__ import annotations

import contextlib
import difflib
import sys
import types
import typing
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

from recipes.command.printing import is_quiet

OnError = Literal["raise", "skip"]

# origins of bad lines that are listed, and characters of a value that are shown
_LISTED, _SHOWN = 10, 60


class RecipeError(Exception):
    """An input, a config or a folder that a recipe cannot work with; the message says what to change.

    `recipes.common.config.run_recipe` prints it as one message without a traceback. Any other error is a bug and keeps
    its traceback.

    Attributes:
        status: The exit status of the command.
    """

    status = 2


class ConfigError(RecipeError, ValueError):
    """An unknown key, a value of the wrong type or an unreadable config file."""


class DataError(RecipeError, ValueError):
    """A data file that is missing, damaged or not in the format asked for."""


class RunFolderError(RecipeError):
    """A run folder that belongs to another config, to another program or to a running process."""


@contextlib.contextmanager
def errors_of(key: str) -> Iterator[None]:
    """Turns what a library says to the value of a key into a `ConfigError` of one line that begins with the key.

    Args:
        key: The key.

    Example:

    >>> with errors_of("sampler"):
    ...     sampler = get_sampler({"name": "bean"})
    """
    try:
        yield
    except RecipeError:
        raise
    except (OSError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
        text = " ".join(str(error).split()) or type(error).__name__
        raise ConfigError(f"{key}: {text if len(text) <= 600 else text[:600] + '...'}") from error


@contextlib.contextmanager
def warnings_of(key: str) -> Iterator[None]:
    """Writes what a library warns of to stderr, one line each that begins with a key in place of a line of code.

    Args:
        key: The key whose value is looked at.

    Example:

    >>> with warnings_of("model.start_from"):
    ...     task = kind.from_preset(config.model.start_from)
    """
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", UserWarning)
        yield
    for each in found:
        if issubclass(each.category, UserWarning):
            if is_quiet():
                continue
            print(f"{key}: {' '.join(str(each.message).split())}", file=sys.stderr)
        else:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)


def require_options(**options: int | None) -> None:
    """Checks options of batches: `seed` must be at least 0, all others at least 1; None passes.

    Args:
        **options: Keys of `training` and their values.

    Raises:
        ConfigError: If one is out of range, naming it.

    Example:

    >>> require_options(batch_size=32, seed=0)
    """
    for name, value in options.items():
        least = 0 if name == "seed" else 1
        if value is not None and value < least:
            raise ConfigError(f"training.{name} must be at least {least}, got {value}")


def shown(value: Any, most: int = _SHOWN) -> str:
    """A value as error messages show it: as YAML writes null, true and false, otherwise its `repr`, cut when long.

    Args:
        value: Any value.
        most: Characters to show.
    """
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = repr(value)
    return text if len(text) <= most else f"{text[:most]}... ({len(text)} characters)"


def type_in_words(annotation: Any) -> str:
    """Returns a type as error messages name it: `int`, `'raise' or 'skip'`, `float or null`.

    Args:
        annotation: The type.
    """
    origin, members = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return " or ".join(repr(member) for member in members)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(type_in_words(member) for member in members)
    if annotation is type(None):
        return "null"
    if annotation is bool:
        return "true or false"
    if origin in (list, tuple) and members:
        return "a list of " + type_in_words(members[0])
    return getattr(annotation, "__name__", str(annotation)) if origin is None else str(annotation)


def looks_like_header(cells: Sequence[str], origin: str) -> DataError:
    """Returns the error for a first row that is taken as data but names the columns.

    Args:
        cells: What was read from the row.
        origin: Its place.
    """
    return DataError(
        f"{origin}: the first row looks like the names of the columns: {shown(list(cells))}; header true takes it as "
        "names, header false as a row of data"
    )


def nearest(name: str, known: Iterable[str], least: float = 0.6) -> str | None:
    """Returns the known name that a misspelt one is most like; None where none is like it.

    Names are compared by their letters, or by their words in any order (`batch_tokens`, `tokens_per_batch`); of dotted
    ones the last part counts most.

    Args:
        name: The misspelt name.
        known: What it may have been.
        least: From 0 to 1: how alike they must be.

    Example:

    >>> nearest("data.max_lenght", ["data.max_length", "seed"])
    'data.max_length'
    """

    def letters(first: str, second: str) -> float:
        return difflib.SequenceMatcher(None, first, second).ratio()

    def likeness(other: str) -> float:
        group, _, last = name.lower().rpartition(".")
        other_group, _, other_last = other.lower().rpartition(".")
        words, other_words = set(last.replace("-", "_").split("_")), set(other_last.split("_"))
        shared = len(words & other_words) / min(len(words), len(other_words)) - 0.05 * len(words ^ other_words)
        return max(letters(last, other_last), shared) + 0.1 * letters(group, other_group)

    best = max(known, key=likeness, default=None)
    return best if best is not None and likeness(best) >= least else None


class BadLines:
    """The policy for bad lines: raise at the first, or skip them, and report them by cause and line.

    Args:
        on_error: "raise" or "skip".

    Attributes:
        counts: Number of skipped lines by cause.
        origins: Origins `FILE:line` of the first ten lines by cause.

    Raises:
        ValueError: `on_error` is neither.

    Example:

    >>> bad = BadLines("skip")
    >>> bad.add("empty line", "a.txt:3")
    >>> bad.report()
    'skipped 1: empty line 1 (a.txt:3)'
    """

    def __init__(self, on_error: OnError) -> None:
        if on_error not in ("raise", "skip"):
            raise ValueError(f"on_error must be 'raise' or 'skip', got {on_error!r}")
        self.on_error = on_error
        self.counts: Counter[str] = Counter()
        self.origins: dict[str, list[str]] = {}

    def add(self, cause: str, origin: str, detail: str = "") -> None:
        """Records a bad line.

        Args:
            cause: What is wrong; lines are counted by it.
            origin: `FILE:line`.
            detail: More about this line, for the error.

        Raises:
            DataError: With `on_error` "raise".
        """
        if self.on_error == "raise":
            raise DataError(f"{origin}: {cause}{': ' if detail else ''}{detail}; on_error 'skip' leaves such lines out")
        self.counts[cause] += 1
        known = self.origins.setdefault(cause, [])
        if len(known) < _LISTED:
            known.append(origin)

    def is_shown(self, cause: str) -> bool:
        """Whether the place of the next bad line of this cause is told.

        Args:
            cause: What is wrong.
        """
        return self.on_error == "raise" or len(self.origins.get(cause, [])) < _LISTED

    @property
    def total(self) -> int:
        """The number of lines skipped."""
        return self.counts.total()

    def report(self) -> str:
        """The account in one line: the number of lines by cause, with the first ten origins of each."""
        if not self.total:
            return "skipped 0"
        causes = []
        for cause, count in self.counts.most_common():
            listed = ", ".join(self.origins[cause]) + (", ..." if count > _LISTED else "")
            causes.append(f"{cause} {count} ({listed})")
        return f"skipped {self.total}: {'; '.join(causes)}"
