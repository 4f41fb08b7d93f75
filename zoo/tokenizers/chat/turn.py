"""A turn of a conversation: how the words of one role are written."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

Message = Mapping[str, Any]
# What stands for today's date in the texts of a format with a `date`.
DATE = "{date}"
# White space as `str.strip` sees it, as RE2 and Python's re write it.
SPACE = "\\t-\\r\\x1c-\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
# Kinds of stripping: the characters that go at the left and at the right of a text, as classes of RE2.
STRIPS: dict[str, tuple[str, str]] = {
    "": ("", ""),
    "both": (SPACE, SPACE),
    "left": (SPACE, ""),
    "right": ("", SPACE),
    "newlines": ("\\n", "\\n"),
    "left_newlines": ("\\n", ""),
    "right_newlines": ("", "\\n"),
}
Strip = Literal["", "both", "left", "right", "newlines", "left_newlines", "right_newlines"]


@dataclasses.dataclass(frozen=True)
class Turn:
    """The format of the messages of a role.

    Args:
        before: Text before the content.
        after: Text after the content. That of the assistant begins with the end of a turn.
        strips: White space around the content that is removed: "both", "left" or "right" for any, "newlines",
            "left_newlines" or "right_newlines" for line breaks; "" for none.
        thoughts_end: The end of thoughts, such as `"</think>"`. The content up to its last occurrence is dropped.
        thoughts_strips: White space that is removed from the content after the thoughts, with the values of `strips`.
    """

    before: str = ""
    after: str = ""
    strips: Strip = ""
    thoughts_end: str = ""
    thoughts_strips: Strip = ""

    def __post_init__(self) -> None:
        for name in ("strips", "thoughts_strips"):
            if getattr(self, name) not in STRIPS:
                raise ValueError(f"{name} must be one of {list(STRIPS)}, got {getattr(self, name)!r}.")


def turn_values(turn: Turn) -> dict[str, str]:
    """Returns the choices of a turn that differ from their defaults, as values for JSON."""
    return {name: value for name, value in vars(turn).items() if value}


def units(text: str, special_tokens: Sequence[str]) -> list[str]:
    """Returns the control tokens and characters of a text.

    Args:
        text: A text of a format.
        special_tokens: The control tokens; of those that begin at one place the longest counts.
    """
    if not special_tokens:
        return list(text)
    pattern = "|".join(re.escape(token) for token in sorted(special_tokens, key=len, reverse=True))
    parts = re.split(f"({pattern})", text)
    return [unit for place, part in enumerate(parts) for unit in ([part] if place % 2 else part)]


def common_prefix(*lists: list[str]) -> list[str]:
    """Returns the units with which all lists begin."""
    return [each[0] for each in itertools.takewhile(lambda each: len(set(each)) == 1, zip(*lists, strict=False))]
