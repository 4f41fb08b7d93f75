"""Beginnings of prompts whose state is kept: what was fed once need not be fed again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

from zoo.serving.row_states import State, StateFormat, size_of

# Most states that are kept, however small they are: each of them is compared with each new prompt.
MOST_STATES = 512


class Prefixes:
    """States of token sequences, of which those that were used last are kept.

    Args:
        state_format: What states look like.
        most_bytes: Most bytes of all states together; 0 keeps none.

    Example:

    >>> prefixes.keep([5, 6, 7, 8], state)
    >>> prefixes.find([5, 6, 7, 9])[0]  # three of its tokens need not be fed
    3
    """

    def __init__(self, state_format: StateFormat, most_bytes: int) -> None:
        self._format, self._most = state_format, most_bytes
        self._kept: OrderedDict[tuple[int, ...], State] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    @property
    def bytes(self) -> int:
        """Bytes of the states that are kept."""
        return self._bytes

    def find(self, tokens: Sequence[int]) -> tuple[int, State | None]:
        """Returns how many of the first tokens a kept state has been fed, and the state; 0 and None without one.

        Args:
            tokens: The tokens that are to be fed.
        """
        with self._lock:
            best, found = 0, None
            for known in self._kept:
                common = _common(known, tokens)
                # what came after them may have pushed out the tokens that stood before
                if common > best and (common == len(known) or not self._format.forgets_by(len(known))):
                    best, found = common, known
            if found is None:
                return 0, None
            self._kept.move_to_end(found)
            return best, self._kept[found]

    def keep(self, tokens: Sequence[int], state: State) -> None:
        """Keeps a state, and lets others go where there is no room.

        Args:
            tokens: What the state has been fed.
            state: A state of one row.
        """
        key, size = tuple(tokens), size_of(state)
        if not key or size > self._most:
            return
        with self._lock:
            # its beginnings are of no use any more, unless it has lost some of what stood there
            forgets = self._format.forgets_by(len(key))
            for known in [known for known in self._kept if known == key[: None if forgets else len(known)]]:
                self._drop(known)
            self._kept[key] = state
            self._bytes += size
            while self._bytes > self._most or len(self._kept) > MOST_STATES:
                self._drop(next(iter(self._kept)))

    def _drop(self, key: tuple[int, ...]) -> None:
        self._bytes -= size_of(self._kept.pop(key))


def _common(known: Sequence[int], tokens: Sequence[int]) -> int:
    """Number of first tokens that two sequences share."""
    count = 0
    for one, other in zip(known, tokens, strict=False):
        if one != other:
            break
        count += 1
    return count
