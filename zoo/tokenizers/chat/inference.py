"""Finds the texts of a chat format in what a template renders for conversations of marked messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zoo.tokenizers.chat.chat_format import ChatFormat
from zoo.tokenizers.chat.turn import Strip, Turn, common_prefix, units

# White space around a message, and which of it stays by the kind of stripping.
BLANK = ("\n \t", "\t \n")
_STRIPPED: dict[tuple[str, str], Strip] = {
    BLANK: "",
    ("", ""): "both",
    ("", BLANK[1]): "left",
    (BLANK[0], ""): "right",
    (" \t", "\t "): "newlines",
    (" \t", BLANK[1]): "left_newlines",
    (BLANK[0], "\t "): "right_newlines",
}
THOUGHTS, END_OF_THOUGHTS = "<think>\nZqhmqZ\n", "</think>"
# tokens around thoughts are a part of the words, which users see
_THINKING = ("<think>", END_OF_THOUGHTS)


def infer(seen: Any, tokens: Sequence[str]) -> ChatFormat:
    """Returns the format that may explain renderings; it remains to be compared.

    Args:
        seen: The renderings, see `zoo.tokenizers.chat.templates`.
        tokens: Tokens that may be control tokens.

    Raises:
        ValueError: If there is none.
    """
    tokens = [token for token in tokens if token and token not in _THINKING]
    opening, asked = seen.parts("u+")
    user_end = seen.parts("u")[1]
    before_last, last_end = seen.parts("ua")[1:]
    asks, between, asked_again = seen.parts("uau+")[1:]
    if asked_again != asked:
        raise ValueError("what asks for a reply depends on the turn")
    around_system = seen.parts("su+")[:2] if seen.has("su+") else None
    before_user = _before_user(opening, between, last_end, around_system, tokens)
    after_assistant = between[: len(between) - len(before_user)]
    after_user = _after_user(seen, asks, asked, user_end, before_user, tokens)
    reply, before_assistant = asked[len(after_user) :], asks[len(after_user) :]

    turns: dict[str, Turn] = {}
    start, default, place = opening[: len(opening) - len(before_user)], None, "turn"
    if around_system is not None:
        start, default, place, turn = _system(seen, opening, around_system, before_user, tokens)
        turns["system"] = turn
    # a default system message may stand in the first turn, too
    strips = _strips(seen, "U+", 0) if place == "turn" else _strips(seen, "uaU+", 2)
    turns["user"] = Turn(before_user, after_user, strips)
    turns["assistant"] = Turn(before_assistant, after_assistant, _strips(seen, "uAu+", 1), *_thoughts(seen))
    last = Turn(before_last[len(after_user) :], last_end, _strips(seen, "uA", 1))
    plain = Turn(before_assistant, after_assistant, turns["assistant"].strips)
    texts = [start, reply, *(text for turn in (*turns.values(), last) for text in (turn.before, turn.after))]
    found = {unit for text in texts for unit in units(text, tokens) if unit in tokens}
    left = place != "turn" and _blank(seen, "sU+", 1)[0] == BLANK[0]
    return ChatFormat(
        turns,
        start=start,
        reply=reply,
        special_tokens=tuple(token for token in tokens if token in found),
        default_system=default,
        system_place=place,
        strips_whole_turn=left and turns["user"].strips in ("both", "left"),
        last_reply=None if last == plain else last,
        date=seen.date,
    )


def _before_user(
    opening: str, between: str, last_end: str, around_system: list[str] | None, tokens: Sequence[str]
) -> str:
    """What stands before the words of a user, in a conversation's beginning and between two turns."""
    texts = [opening, between]
    if around_system is not None and not around_system[0].startswith(opening):
        texts.append(around_system[1])
    # a turn ends with its first control token at least
    pieces = units(between, tokens)
    first = next((place for place, unit in enumerate(pieces) if unit.strip()), 0)
    cut = len("".join(pieces[: first + 1])) if last_end.strip() and pieces and pieces[first] in tokens else 0
    if between.startswith(last_end):
        cut = max(cut, len(last_end))
    for chosen in (texts, texts[:2]):
        shared = "".join(common_prefix(*(units(text, tokens)[::-1] for text in chosen))[::-1])
        if shared:
            return shared[-min(len(shared), len(between) - cut) :] if cut < len(between) else ""
    return between[cut:]


def _after_user(seen: Any, asks: str, asked: str, user_end: str, before_user: str, tokens: Sequence[str]) -> str:
    """What ends the turn of a user: what is left of what stands behind it, without what begins a reply."""
    candidates = [user_end]
    if seen.has("uu+"):
        middle = seen.parts("uu+")[1]
        if middle.endswith(before_user):
            candidates.append(middle[: len(middle) - len(before_user)])
    for text in candidates:
        if asks.startswith(text) and asked.startswith(text):
            return text
    return "".join(common_prefix(*(units(text, tokens) for text in (asks, asked, user_end))))


def _system(
    seen: Any, opening: str, around: list[str], before_user: str, tokens: Sequence[str]
) -> tuple[str, str | None, Any, Turn]:
    """Start of a conversation, default system message, place of the system message, and its turn."""
    (before, after), strips = around, _strips(seen, "Su+", 0)
    own_turn = after.endswith(before_user) and not (before.startswith(opening) and after != before_user)
    ending = after[: len(after) - len(before_user)] if own_turn else after
    start = opening[: len(opening) - len(before_user)]
    if own_turn and before.startswith(start) and opening != before + after:
        return start, None, "turn", Turn(before[len(start) :], ending, strips)
    if own_turn and opening == before + before_user and not ending:
        return before, None, "turn", Turn("", "", strips)
    if len(opening) >= len(before) + len(after) and opening.startswith(before) and opening.endswith(after):
        default = opening[len(before) : len(opening) - len(after)]
        if own_turn:
            # a control token that begins each conversation is no part of the turn
            pieces = units(before, tokens)
            start = pieces[0] if len(pieces) > 1 and pieces[0] in tokens and pieces[1] in tokens else ""
            return start, default, "turn", Turn(before[len(start) :], ending, strips)
        start, found, before = before.partition(before_user)
        if found or not before_user:
            return start, default, _place(seen), Turn(before, after, strips)
    if before.startswith(opening):
        return start, None, _place(seen), Turn(before[len(opening) :], after, strips)
    raise ValueError("a system message changes what stands elsewhere")


def _place(seen: Any) -> str:
    places = seen.places("suau+")
    return "first_user" if places[0] < places[2] else "last_user"


def _blank(seen: Any, name: str, index: int) -> tuple[str, str]:
    """What is left of the white space around one message of a conversation."""
    plain, blank = seen.parts(name.lower()), seen.parts(name)
    left, right = blank[index], blank[index + 1]
    if not left.startswith(plain[index]) or not right.endswith(plain[index + 1]):
        raise ValueError("white space around a message changes what stands elsewhere")
    return left[len(plain[index]) :], right[: len(right) - len(plain[index + 1])]


def _strips(seen: Any, name: str, index: int) -> Strip:
    """What is stripped of one message of a conversation."""
    left = _blank(seen, name, index)
    if left not in _STRIPPED:
        raise ValueError(f"white space around a message becomes {left}")
    return _STRIPPED[left]


def _thoughts(seen: Any) -> tuple[str, Strip]:
    """What ends thoughts that replies lose, and what is stripped behind it."""
    if not seen.drops_thoughts:
        return "", ""
    plain, blank = seen.parts("uau+"), seen.parts("Thoughtless+")
    left = blank[1][len(plain[1]) :], blank[2][: len(blank[2]) - len(plain[2])]
    return END_OF_THOUGHTS, _STRIPPED.get(left, "")
