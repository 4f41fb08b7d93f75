"""Leaves out the lines that TensorFlow's C++ code logs, where the standard error is kept in a file."""

import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Iterator

from recipes.command import lazy_imports

_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
_NOTHING = "3"
# `I0000 00:00:1795830620.299023 19458 port.cc:153] ...`, and what surrounds such lines
_LOGGED = re.compile(
    rb"[IWE]\d{4} \d\d:\d\d:\d+\.\d+ +\d+ [\w./]+:\d+\] |WARNING: All log messages before absl::|"
    rb"To enable the following instructions: "
)


def leave_out_native_log() -> None:
    """Makes TensorFlow log nothing from its C++ code, unless the standard error is a terminal.

    The environment variable `TF_CPP_MIN_LOG_LEVEL` does that for all lines but those that are written while TensorFlow
    is imported; these are filtered. Another level in the environment is kept, and then nothing is filtered.

    Example:

    >>> leave_out_native_log()
    """
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    if not is_terminal and os.environ.setdefault(_LEVEL, _NOTHING) == _NOTHING:
        lazy_imports.around_imports = filtered_errors


@contextlib.contextmanager
def filtered_errors() -> Iterator[None]:
    """A context at whose end the standard error gets what was written to it, without the lines of such a log.

    Example:

    >>> with filtered_errors():
    ...     import tensorflow
    """
    try:
        kept = os.dup(2)
    except OSError:  # a program may have closed it
        yield
        return
    with tempfile.TemporaryFile() as written:
        if sys.stderr is not None:
            sys.stderr.flush()
        os.dup2(written.fileno(), 2)
        try:
            yield
        finally:
            if sys.stderr is not None:
                sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
            written.seek(0)
            rest = b"".join(line for line in written if not _LOGGED.match(line))
            with contextlib.suppress(OSError):
                os.write(2, rest)
