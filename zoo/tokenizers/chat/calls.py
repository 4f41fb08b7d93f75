"""The tools that a model calls, read from what it writes: of a whole reply, or piece by piece."""

from __future__ import annotations

import dataclasses
import json
import re
import secrets
import string
from collections.abc import Collection
from typing import Any

from zoo.tokenizers.chat.tool_style import ToolStyle

_THOUGHTS, _END_OF_THOUGHTS = "<think>", "</think>"
_CHARACTERS = string.ascii_letters + string.digits
# Mistral's models know ids of this length alone
_ID_LENGTH = 9


@dataclasses.dataclass(frozen=True)
class ToolCall:
    """A call of a tool.

    Args:
        name: The name of the tool.
        arguments: Its arguments: an object, as a text in JSON.
        number: The id of the call, which its result names.
    """

    name: str
    arguments: str
    number: str

    def to_dict(self) -> dict[str, Any]:
        """Returns the call as messages have it."""
        return {
            "id": self.number,
            "type": "function",
            "function": {"name": self.name, "arguments": self.arguments},
        }


class ReplyReader:
    """Tells words and calls of a reply from each other, as far as they are certain.

    A call is an object in JSON with the name of a tool and its arguments. What looks like a call and is none stays
    text. Where a style has texts around calls, they may stand anywhere behind the thoughts; otherwise the whole reply
    behind the thoughts is calls, of known tools, or words.

    Args:
        style: The style of the model.
        names: Names of the tools that the model may call.
        most: Most calls that are read; further ones are dropped. None for all.

    Example:

    >>> reader = ReplyReader(TOOL_STYLES["hermes"], ["now"])
    >>> reader.add("One moment.\\n<tool_"), reader.add('call>{"name": "now", "arguments": {}}</tool_call>')
    (('One moment.', []), ('', [ToolCall(name='now', arguments='{}', number='...')]))
    """

    def __init__(self, style: ToolStyle, names: Collection[str], most: int | None = None) -> None:
        self._style, self._names, self._most = style, set(names), most
        self._begin, self._end = style.call_begin.strip(), style.call_end.strip()
        self._rest, self._count = "", 0
        # whether thoughts may still begin, and whether they are going on
        self._may_think, self._thinks = True, False
        # whether all that stands behind the thoughts may be calls
        self._may_call = True

    def read(self, text: str) -> tuple[str, list[ToolCall]]:
        """Returns the words and the calls of a whole reply."""
        words, calls = self.add(text)
        more_words, more_calls = self.finish()
        return words + more_words, calls + more_calls

    def add(self, piece: str) -> tuple[str, list[ToolCall]]:
        """Takes what is new of the reply.

        Args:
            piece: The text.

        Returns:
            Words and calls beyond those told before. What may become a call is held back.
        """
        self._rest += piece
        words = self._pass_thoughts()
        if self._may_think or self._thinks or not self._begin:
            return words, []
        calls: list[ToolCall] = []
        while True:
            before, found, behind = self._rest.partition(self._begin)
            if not found:
                break
            said = before.rstrip()
            size = _whole_body(behind, self._end)
            if size is None:
                self._rest = self._rest[len(said) :]
                return words + said, calls
            call = _call(behind[:size], self._style.arguments)
            ended = len(before) + len(found) + size + len(self._end)
            if call is None:
                words += self._rest[:ended]
            else:
                words += said
                calls += self._counted(call)
            self._rest = self._rest[ended:]
        kept = _held_back(self._rest, self._begin)
        words += self._rest[: len(self._rest) - kept]
        self._rest = self._rest[len(self._rest) - kept :]
        return words, calls

    def finish(self) -> tuple[str, list[ToolCall]]:
        """Returns words and calls that were held back; the reply has ended."""
        rest, self._rest = self._rest, ""
        if self._begin:
            before, found, behind = rest.partition(self._begin)
            # a stop string, or an end token in its place, may have cut the end off
            call = _call(behind, self._style.arguments) if found else None
            if call is None:
                return ("" if self._count and not rest.strip() else rest), []
            return before.rstrip(), self._counted(call)
        if self._thinks:
            return rest, []
        calls = _bare_calls(rest, self._style)
        if not calls or not all(call.name in self._names for call in calls):
            return rest, []
        return "", [each for call in calls for each in self._counted(call)]

    def _pass_thoughts(self) -> str:
        """The thoughts, and in a style without texts around calls the words, as far as they are certain."""
        words = ""
        if self._may_think:
            start = self._rest.lstrip()
            if not start or (_THOUGHTS.startswith(start) and start != _THOUGHTS):
                return ""
            self._may_think, self._thinks = False, start.startswith(_THOUGHTS)
        if self._thinks:
            before, found, behind = self._rest.partition(_END_OF_THOUGHTS)
            if not found:
                kept = _overlap(self._rest, _END_OF_THOUGHTS)
                words, self._rest = self._rest[: len(self._rest) - kept], self._rest[len(self._rest) - kept :]
                return words
            words, self._rest, self._thinks = before + found, behind, False
        if not self._begin:
            start = self._rest.lstrip()
            self._may_call &= not start or start.startswith(self._style.calls_begin or "{")
            if not self._may_call:
                words, self._rest = words + self._rest, ""
        return words

    def _counted(self, call: ToolCall) -> list[ToolCall]:
        self._count += 1
        return [call] if self._most is None or self._count <= self._most else []


def _held_back(text: str, begin: str) -> int:
    """Characters at the end of a text that may belong to a call, or to the white space before one."""
    kept = _overlap(text, begin)
    before = text[: len(text) - kept]
    return kept + len(before) - len(before.rstrip())


def _overlap(text: str, sign: str) -> int:
    """Characters at the end of a text with which a sign may begin."""
    return next((size for size in range(min(len(sign) - 1, len(text)), 0, -1) if text.endswith(sign[:size])), 0)


def _whole_body(text: str, end: str) -> int | None:
    """Characters before the end of a call; None if it is not there yet. A text within the call may spell the end."""
    place = text.find(end)
    while place >= 0:
        try:
            json.loads(text[:place])
        except json.JSONDecodeError as error:
            if not error.msg.startswith("Unterminated string"):
                return place
        except RecursionError:
            return place
        else:
            return place
        place = text.find(end, place + 1)
    return None


def _call(text: str, arguments: str) -> ToolCall | None:
    """The call that a text in JSON is, if it is one."""
    try:
        return _call_of(json.loads(text), arguments)
    except (ValueError, RecursionError):
        return None


def _call_of(value: Any, arguments: str) -> ToolCall | None:
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    given = value.get(arguments, {})
    if not isinstance(given, dict):
        return None
    number = value.get("id")
    if not isinstance(number, str) or not re.fullmatch(f"[A-Za-z0-9]{{{_ID_LENGTH}}}", number):
        number = "".join(secrets.choice(_CHARACTERS) for _ in range(_ID_LENGTH))
    return ToolCall(value["name"], json.dumps(given, ensure_ascii=False), number)


def _bare_calls(text: str, style: ToolStyle) -> list[ToolCall]:
    """The calls that a text is as a whole, none if something else is in it."""
    text, decoder, values = text.strip(), json.JSONDecoder(), []
    try:
        while text:
            value, end = decoder.raw_decode(text)
            values += value if style.calls_begin and isinstance(value, list) else [value]
            text = text[end:].lstrip().removeprefix(style.calls_separator.strip()).lstrip()
    except (ValueError, RecursionError):
        return []
    calls = [_call_of(value, style.arguments) for value in values]
    found = [call for call in calls if call is not None]
    return found if len(found) == len(values) else []
