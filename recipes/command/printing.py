"""Output that ends no command: what a console cannot show is escaped, and what nobody takes is dropped."""

import codecs
import contextlib
import errno
import io
import json
import os
import sys
import time
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

# seconds between two attempts
_PAUSE = 0.01


@contextlib.contextmanager
def lasting_output() -> Iterator[None]:
    r"""A context, or a decorator, in which printing raises no error, whatever library prints.

    A character that the encoding of the output lacks is written as `\u2603`. If it was for the standard output, one
    sentence on the standard error says so at the end. If the reader has left, or the disk under a log is full, or the
    program was started without an output, the work goes on, and what could not be written is dropped.

    Raises:
        SystemExit: With 1 at the end, if something was dropped from the standard output and nothing else went wrong.
            The standard error says why, unless a reader has just left, as `head` does.

    Example:

    >>> with lasting_output():
    ...     print("snow: \u2603")
    """
    before = sys.stdout, sys.stderr
    made = [_lasting(stream, number) for number, stream in enumerate(before, 1)]
    sys.stdout, sys.stderr = made
    stop = None
    try:
        yield
    except SystemExit as ended:
        if ended.code:
            raise
        stop = ended
    finally:
        for stream in (sys.stdout, sys.stderr, *made):
            # a program may have none, or have closed it
            with contextlib.suppress(AttributeError, OSError, ValueError):
                stream.flush()
        sys.stdout, sys.stderr = before
    # not to `before`: what cannot be written there would stay in its buffer, and Python would end with 120
    errors = made[1] or sys.stderr
    if made[0] is not before[0] and _escaping.pop("stdout", False):
        with contextlib.suppress(AttributeError, OSError, ValueError):
            print(
                f"Characters that the encoding of the output, {made[0].encoding}, lacks are written as escapes such as "
                "\\u2603; with the environment variable PYTHONUTF8=1 they are written in UTF-8.",
                file=errors,
                flush=True,
            )
    error = None if made[0] is before[0] else _raw(made[0]).error
    if stop is not None and error is None:
        raise stop
    if error is not None:
        if error.errno != errno.EPIPE:
            with contextlib.suppress(OSError):
                print(f"The output could not be written as a whole: {error.strerror}", file=errors, flush=True)
        raise SystemExit(1)


@contextlib.contextmanager
def quiet_output() -> Iterator[None]:
    """A context in which printing drops all but what `print_result` prints.

    Example:

    >>> with quiet_output():
    ...     print("epoch 1 of 3")
    ...     print_result("accuracy 0.9")
    accuracy 0.9
    """
    quiet = _Quiet(sys.stdout)
    sys.stdout = quiet
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        # a process that is not the first of several has another one
        if sys.stdout is quiet:
            sys.stdout = quiet.results


def print_result(*values: object) -> None:
    """Prints a result of a recipe, also where `quiet_output` drops all else.

    Args:
        *values: As for `print`.

    Example:

    >>> print_result("accuracy", 0.9)
    accuracy 0.9
    """
    print(*values, file=getattr(sys.stdout, "results", sys.stdout))


def print_lines_of_json(rows: Iterable[Any]) -> None:
    """Prints values as lines of JSON. If the output lacks some of the characters, those beyond ASCII are escaped.

    Args:
        rows: Values of which JSON can be made.

    Example:

    >>> print_lines_of_json([{"text": "snow"}])
    {"text": "snow"}
    """
    rows = list(rows)
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    try:
        "\n".join(lines).encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        # Python's own escapes are not those of JSON
        lines = [json.dumps(row) for row in rows]
        _escaping["stdout"] = True
    for line in lines:
        print_result(line)


def is_quiet() -> bool:
    """Returns whether `quiet_output` drops what is printed."""
    return isinstance(sys.stdout, _Quiet)


def has_bars() -> bool:
    """Returns whether bars are drawn again and again: on the standard error, where that is a terminal.

    Not if the variable `NO_COLOR` is set, nor within `quiet_output`.

    Reference:
        https://no-color.org
    """
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    return is_terminal and not is_quiet() and not os.environ.get("NO_COLOR")


# whether characters have been escaped
_escaping: dict[str, bool] = {}


def _escape(error: UnicodeError) -> tuple[str | bytes, int]:
    _escaping["stdout"] = True
    return codecs.backslashreplace_errors(error)


codecs.register_error("recipes.escape", _escape)


class _Quiet(io.TextIOBase):
    """Takes what is printed and drops it; `results` is the stream in whose place it is."""

    def __init__(self, results: Any) -> None:
        self.results = results

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self.results.fileno()

    def write(self, text: str) -> int:
        return len(text)


class _Lasting(io.RawIOBase):
    """Writes to another stream all that it takes.

    Attributes:
        error: The first error; None without one.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.error: OSError | None = None

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._stream.fileno()

    def isatty(self) -> bool:
        return self._stream.isatty()

    def write(self, data: Any) -> int:
        rest = memoryview(data)
        try:
            while rest:
                count = self._stream.write(rest)
                if count is None:  # a pipe that is full, and that another program told not to block
                    time.sleep(_PAUSE)
                rest = rest[count or 0 :]
        except OSError as error:
            self.error = self.error or error
        return len(data)


def _raw(stream: Any) -> Any:
    """The file below a stream of text; None for that of a notebook or a test, which is none."""
    buffer = getattr(stream, "buffer", None)
    raw = getattr(buffer, "raw", buffer)
    return raw if isinstance(raw, io.RawIOBase) else None


class _Closed(io.RawIOBase):
    """What a program has that was started without a standard stream, as by `>&-`: nothing can be written to it."""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))


def _lasting(stream: Any, number: int) -> Any:
    """The stream, where printing to it raises no error; else such a one to the same file.

    Args:
        stream: The stream; None if the program was started without it.
        number: Number of its file.
    """
    if stream is None:
        # or the next file that is opened gets the number, and what libraries print with it
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)
        return io.TextIOWrapper(_Lasting(_Closed()), encoding="utf-8", errors="backslashreplace", write_through=True)
    raw = _raw(stream)
    if raw is None or isinstance(raw, _Lasting):
        return stream
    lasting = _Lasting(raw)
    # what was printed before comes first
    with contextlib.suppress(OSError):
        stream.flush()
    return io.TextIOWrapper(
        lasting if stream.write_through else io.BufferedWriter(lasting),
        encoding=stream.encoding,
        errors="recipes.escape" if number == 1 else "backslashreplace",
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
