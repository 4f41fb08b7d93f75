"""Logs of the server and its workers: lines that show neither code nor what users sent."""

from __future__ import annotations

import logging
import sys
import threading
from typing import Any


class PlainFormatter(logging.Formatter):
    """Writes the kind of an exception instead of its traceback, which shows files, and values in its message."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def formatException(self, ei: Any) -> str:  # noqa: N802, the name of the base class
        """Returns the name of the class of an exception."""
        return ei[0].__name__ if ei and ei[0] is not None else ""

    def formatStack(self, stack_info: str) -> str:  # noqa: N802
        """Returns nothing of a stack."""
        return ""


def set_up_logs() -> None:
    """Lets all logs of this process, and what ends it, go to stderr as plain lines.

    What cannot be written, as on a full disk, is lost; it stops nothing.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(PlainFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.raiseExceptions = False
    log = logging.getLogger(__name__)
    sys.excepthook = lambda kind, error, traceback: log.critical("The process ends: %s", kind.__name__)
    threading.excepthook = lambda what: log.critical("A thread ends: %s", what.exc_type.__name__)
