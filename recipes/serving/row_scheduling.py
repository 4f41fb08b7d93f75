"""Which text is written next: those with the fewest tokens left come first, and long ones give way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from recipes.serving.writing import Writing

# A text that gives its row to another one has at least so many times as many tokens left.
SHORTER = 4
# A text that waits a second is like one that is so many tokens shorter: it is chosen earlier, and does not give way any
# more when it has waited for long.
TOKENS_OF_A_SECOND = 50

# Most tokens that a text still has to write.
Left = Callable[[Writing], int]


def by_urgency(waiting: Iterable[Writing], left: Left, now: float) -> list[Writing]:
    """Returns texts that wait, the one first that is to be written first.

    Args:
        waiting: The texts.
        left: Most tokens that a text still has to write.
        now: Time of `time.monotonic()`, in seconds.
    """
    return sorted(
        waiting,
        key=lambda text: left(text) - TOKENS_OF_A_SECOND * (text.seconds_aside + now - text.waits_since),
    )


def text_that_gives_way(written: Sequence[Writing], text: Writing, left: Left, steps: int) -> Writing | None:
    """Returns the text that is to give its row to another one: the longest, if it is much longer; None if none is.

    Args:
        written: The texts that are being written.
        text: The other one.
        left: Most tokens that a text still has to write.
        steps: Tokens of a turn: what is shorter takes as long.

    Reference:
        Schrage 1968, "A proof of the optimality of the shortest remaining processing time discipline".
    """

    def length(each: Writing) -> float:
        return left(each) - TOKENS_OF_A_SECOND * each.seconds_aside

    longest = max(written, key=length, default=None)
    if longest is None or length(longest) < SHORTER * max(left(text), steps):
        return None
    return longest
