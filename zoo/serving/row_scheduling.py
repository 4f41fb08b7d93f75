"""Which text is written next: clients share the rows; of a client's, those with the fewest tokens left come first."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from zoo.serving.writing import Writing

# A text that gives its row to another one has at least so many times as many tokens left.
SHORTER = 4
# A text that waits a second is like one that is so many tokens shorter: it is chosen earlier, and does not give way any
# more when it has waited for long.
TOKENS_OF_A_SECOND = 50

# What waits has the attribute `client`.
Waiting = TypeVar("Waiting", bound=Any)
# Most tokens that a text still has to write.
Left = Callable[[Writing], int]


def that_gives_place(waiting: Sequence[Waiting], client: str) -> Waiting | None:
    """Returns what loses its place to something new when there is no other one: the newest of the client with the most.

    None if the new one is to be refused: its client has as many.

    Args:
        waiting: What waits, the newest last.
        client: Who asks for the new one.

    Example:

    >>> that_gives_place([call_of("a"), call_of("a"), call_of("b")], "c").client
    'a'
    """
    counts = collections.Counter(each.client for each in waiting)
    most = max(counts.values(), default=0)
    if counts[client] >= most:
        return None
    return next(each for each in reversed(waiting) if counts[each.client] == most)


def by_urgency(waiting: Iterable[Writing], left: Left, now: float, rows: Mapping[str, int]) -> list[Writing]:
    """Returns texts that wait, the one first that is to be written first: one of the client with the fewest rows.

    Args:
        waiting: The texts.
        left: Most tokens that a text still has to write.
        now: Time of `time.monotonic()`, in seconds.
        rows: Number of rows of each client that has one.
    """

    def urgency(text: Writing) -> tuple[int, float]:
        return rows.get(text.client, 0), left(text) - TOKENS_OF_A_SECOND * (text.seconds_aside + now - text.waits_since)

    return sorted(waiting, key=urgency)


def text_that_gives_way(
    written: Sequence[Writing], text: Writing, left: Left, steps: int, rows: Mapping[str, int]
) -> Writing | None:
    """Returns the text that is to give its row to another one; None if none is.

    It is the longest one of the client with the most rows, if that has at least two more than the client of the other
    text. Or else the longest one, if it is much longer; not one of another client that has no more rows.

    Args:
        written: The texts that are being written.
        text: The other one.
        left: Most tokens that a text still has to write.
        steps: Tokens of a turn: what is shorter takes as long.
        rows: Number of rows of each client that has one.

    Reference:
        Schrage 1968, "A proof of the optimality of the shortest remaining processing time discipline"; Sheng et al.
        2024, "Fairness in serving large language models", section 3 (clients that share a server).
    """
    own = rows.get(text.client, 0)
    most = max((rows[each.client] for each in written), default=0)

    def length(each: Writing) -> float:
        return left(each) - TOKENS_OF_A_SECOND * each.seconds_aside

    if most > own + 1:
        return max((each for each in written if rows[each.client] == most), key=length)
    candidates = (each for each in written if each.client == text.client or rows[each.client] > own)
    longest = max(candidates, key=length, default=None)
    if longest is None or length(longest) < SHORTER * max(left(text), steps):
        return None
    return longest
