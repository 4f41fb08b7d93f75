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

THOUGHTS, END_OF_THOUGHTS = "<think>", "</think>"
_CHARACTERS = string.ascii_letters + string.digits
# Mistral's models know ids of this length alone
_ID_LENGTH = 9
# what ends a text of JSON, or begins an escape of two characters at least
_WITHIN = re.compile(r'["\\]')


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
    text, and so does a call of a tool that the model was not offered: whoever runs calls has no such tool. Where a
    style has texts around calls, they may stand anywhere behind the thoughts; otherwise the whole reply behind the
    thoughts is calls, of known tools, or words.

    Args:
        style: The style of the model.
        names: Names of the tools that the model was offered. None if they are not known: all calls that stand between
            texts of the style count.
        most: Most calls that are read; further ones are dropped. None for all.
        thinks: Whether the prompt ends within thoughts, which the reply goes on with.

    Example:

    >>> reader = ReplyReader(TOOL_STYLES["hermes"], ["now"])
    >>> reader.add("One moment.\\n<tool_"), reader.add('call>{"name": "now", "arguments": {}}</tool_call>')
    (('One moment.', []), ('', [ToolCall(name='now', arguments='{}', number='...')]))
    """

    def __init__(
        self, style: ToolStyle, names: Collection[str] | None, most: int | None = None, thinks: bool = False
    ) -> None:
        self._style, self._names, self._most = style, names, most
        self._begin, self._end = style.call_begin.strip(), style.call_end.strip()
        self._rest, self._count = "", 0
        # where the call ends with which the rest begins
        self._call_end = _CallEnd(self._end)
        # whether thoughts may still begin, and whether they are going on
        self._may_think, self._thinks = not thinks, thinks
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
            size = self._call_end.find(behind)
            if size is None:
                self._rest = self._rest[len(said) :]
                return words + said, calls
            call = _call(behind[:size], self._style.arguments)
            if call is None:
                words += self._pass_broken()
            elif not self._is_offered(call):
                words += self._pass(len(before) + len(found) + size + len(self._end))
            else:
                words += said
                calls += self._counted(call)
                self._pass(len(before) + len(found) + size + len(self._end))
        kept = _held_back(self._rest, self._begin)
        words += self._rest[: len(self._rest) - kept]
        self._rest = self._rest[len(self._rest) - kept :]
        return words, calls

    def finish(self) -> tuple[str, list[ToolCall]]:
        """Returns words and calls that were held back; the reply has ended."""
        if self._begin:
            return self._finish_around()
        rest, self._rest = self._rest, ""
        if self._thinks:
            return rest, []
        calls = _bare_calls(rest, self._style)
        if not calls or not all(call.name in (self._names or ()) for call in calls):
            return rest, []
        return "", [each for call in calls for each in self._counted(call)]

    def _finish_around(self) -> tuple[str, list[ToolCall]]:
        """The same in a style with texts around calls."""
        words = ""
        calls: list[ToolCall] = []
        while True:
            before, found, behind = self._rest.partition(self._begin)
            # a stop string, or an end token in its place, may have cut the end off
            call = _call(behind, self._style.arguments) if found else None
            if call is not None and not self._is_offered(call):
                return words + self._pass(len(self._rest)), calls
            if call is not None:
                return words + before.rstrip(), [*calls, *self._counted(call)]
            if not found or self._end not in behind:
                rest, self._rest = self._rest, ""
                return words + ("" if self._count and not rest.strip() else rest), calls
            words += self._pass_broken()
            more_words, more_calls = self.add("")
            words, calls = words + more_words, calls + more_calls

    def _pass_broken(self) -> str:
        """Passes what only looks like a call, to its first end: what begins behind that may be one."""
        begin = self._rest.find(self._begin) + len(self._begin)
        return self._pass(self._rest.find(self._end, begin) + len(self._end))

    def _pass(self, size: int) -> str:
        passed, self._rest = self._rest[:size], self._rest[size:]
        self._call_end = _CallEnd(self._end)
        return passed

    def _pass_thoughts(self) -> str:
        """The thoughts, and in a style without texts around calls the words, as far as they are certain."""
        words = ""
        if self._may_think:
            start = self._rest.lstrip()
            if not start or (THOUGHTS.startswith(start) and start != THOUGHTS):
                return ""
            self._may_think, self._thinks = False, start.startswith(THOUGHTS)
        if self._thinks:
            before, found, behind = self._rest.partition(END_OF_THOUGHTS)
            if not found:
                kept = _overlap(self._rest, END_OF_THOUGHTS)
                words, self._rest = self._rest[: len(self._rest) - kept], self._rest[len(self._rest) - kept :]
                return words
            words, self._rest, self._thinks = before + found, behind, False
        if not self._begin:
            start = self._rest.lstrip()
            self._may_call &= not start or start.startswith(self._style.calls_begin or "{")
            if not self._may_call:
                words, self._rest = words + self._rest, ""
        return words

    def _is_offered(self, call: ToolCall) -> bool:
        return self._names is None or call.name in self._names

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


class _CallEnd:
    """Finds the end of a call, in JSON that grows. What spells the end within a text of the JSON is none.

    Args:
        end: The text behind a call.
    """

    def __init__(self, end: str) -> None:
        self._end = end
        # what changes where a place is, outside of the texts of the JSON
        self._outside = re.compile(f'{re.escape(end)}|["\\\\]')
        self._mark, self._place = self._outside, 0

    def find(self, behind: str) -> int | None:
        """Returns the place of the end; None if it is not there yet.

        Args:
            behind: All that stands behind the beginning of the call, of which the last time may have seen less.
        """
        while found := self._mark.search(behind, self._place):
            if found[0] == self._end:
                return found.start()
            self._place = found.end()
            if found[0] == '"':
                self._mark = self._outside if self._mark is _WITHIN else _WITHIN
            elif self._mark is _WITHIN:
                self._place += 1
            else:
                # no JSON has a backslash outside of its texts: this is none, so its first end counts
                self._mark, self._place = re.compile(re.escape(self._end)), 0
        cut = 0 if self._mark is _WITHIN else len(self._end) - 1
        self._place = max(self._place, len(behind) - cut)
        return None


def _call(text: str, arguments: str) -> ToolCall | None:
    """The call that a text in JSON is, if it is one. Models write line breaks within texts as they are, too."""
    try:
        return _call_of(json.loads(text, strict=False), arguments)
    except (ValueError, RecursionError):
        return None


def _call_of(value: Any, arguments: str) -> ToolCall | None:
    """The same of a value; a ValueError or RecursionError if it cannot be written."""
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    given = value.get(arguments, {})
    if not isinstance(given, dict):
        return None
    number = value.get("id")
    if not isinstance(number, str) or not re.fullmatch(f"[A-Za-z0-9]{{{_ID_LENGTH}}}", number):
        number = "".join(secrets.choice(_CHARACTERS) for _ in range(_ID_LENGTH))
    # Python reads numbers and characters that neither JSON nor UTF-8 have
    text = json.dumps(given, ensure_ascii=False, allow_nan=False)
    f"{value['name']}{text}".encode()
    return ToolCall(value["name"], text, number)


def _bare_calls(text: str, style: ToolStyle) -> list[ToolCall]:
    """The calls that a text is as a whole, none if something else is in it."""
    decoder, separator, calls, place = json.JSONDecoder(strict=False), style.calls_separator.strip(), [], 0
    text = text.strip()
    try:
        while place < len(text):
            value, place = decoder.raw_decode(text, place)
            for each in value if style.calls_begin and isinstance(value, list) else [value]:
                call = _call_of(each, style.arguments)
                if call is None:
                    return []
                calls.append(call)
            place = _behind_space(text, place)
            if separator and text.startswith(separator, place):
                place = _behind_space(text, place + len(separator))
    except (ValueError, RecursionError):
        return []
    return calls


def _behind_space(text: str, place: int) -> int:
    while place < len(text) and text[place].isspace():
        place += 1
    return place
