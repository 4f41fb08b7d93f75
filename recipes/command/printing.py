"""What commands print for readers that may leave before its end, such as `head`."""

import os
import sys


def show(text: str) -> None:
    """Prints a text. If its reader has left, the process ends without a message, as other commands do.

    Args:
        text: The text, without a line break at its end.

    Raises:
        SystemExit: With 1 if the reader has left.

    Example:

    >>> show("translate")
    translate
    """
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # Python flushes the output once more at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
