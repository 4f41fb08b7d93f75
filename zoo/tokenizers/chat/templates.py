"""From a chat template of Hugging Face to a `ChatFormat`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from zoo.tokenizers.chat.chat_format import ChatFormat
from zoo.tokenizers.chat.inference import BLANK, END_OF_THOUGHTS, THOUGHTS, infer
from zoo.tokenizers.chat.pieces import render
from zoo.tokenizers.chat.rendering import DATE_BEGINS, DATE_ENDS, render_template
from zoo.tokenizers.chat.tool_detection import with_tools_of
from zoo.tokenizers.chat.turn import DATE

_ROLES = {"s": "system", "u": "user", "a": "assistant"}
# Conversations as letters, upper case for messages with white space around them; + asks for a reply.
_READ = ("u+", "u", "uu+", "ua", "uau+", "su+", "suau+", "U+", "sU+", "uaU+", "uAu+", "uA", "Su+")
_COMPARED = (
    *("u+", "ua", "uau+", "uaua", "uauau+", "U+", "UA", "UAU+", "UAUA", "uA"),
    *("su+", "sua", "suau+", "suaua", "suauau+", "SU+", "SUA", "SUAU+", "SUAUA"),
)
_MIXED = ("uu+", "uuau+", "uaau+", "au+", "uuaa", "suu+", "sau+")
_ODD = ("{{ 7 * 7 }} {% if %} {# a #}", "\u4f60\u597d <b>&amp;'\"\n\\", "a\n\n b  c\r\nd", "")


def chat_format_of(template: str, variables: Mapping[str, Any], tokens: Sequence[str]) -> ChatFormat:
    """Returns the format that writes conversations in the same way as a chat template.

    There is no list of known templates, because those of one model differ from upload to upload. The template renders
    conversations of marked messages, which shows the texts before and after each message. The format made from them is
    then tested on further conversations: with and without a system message, with one and several turns, with white
    space around messages, with thoughts, and with text that looks like Jinja. So a template is either read exactly, or
    refused if a `ChatFormat` cannot express it. Documents, options and special words in messages are not tested.

    The format has the style of tools in `TOOL_STYLES` that writes tools, calls and results as the template does, if
    there is one.

    The template runs once, and once more if it names tools, in Jinja's sandbox in a separate process with limited time,
    memory and output.

    Args:
        template: The template.
        variables: Variables besides the messages: `bos_token` and other special tokens.
        tokens: Tokens of the tokenizer that may be control tokens.

    Raises:
        ValueError: If the template is invalid, exceeds the limits, or cannot be expressed by a `ChatFormat`. The
            message says why.

    Example:

    >>> template = "{% for message in messages %}[{{ message.role }}] {{ message.content }}</s>{% endfor %}"
    >>> chat_format_of(template, {}, ["</s>"]).turns["user"]
    Turn(before='[user] ', after='</s>', ...)
    """
    seen = Renderings(template, variables)
    chat_format = infer(seen, tokens)
    differing = seen.differing(chat_format)
    if differing & set(_MIXED):
        # a conversation that is written in another way is none of the format
        chat_format = dataclasses.replace(chat_format, alternates=True)
    for name in sorted(differing - set(_MIXED), key=len):
        raise ValueError(f"no ChatFormat writes a conversation as it does: {seen[name]!r:.300}")
    return with_tools_of(chat_format, template, variables, tokens)


class Renderings:
    """Renderings of the conversations with which a template is tested.

    Args:
        template: The template.
        variables: Its variables besides the messages.

    Attributes:
        date: How it writes today's date, as for `strftime`; None for a template that does not.

    Raises:
        ValueError: If the template is invalid, exceeds the limits, or writes dates in several ways.
    """

    def __init__(self, template: str, variables: Mapping[str, Any]) -> None:
        names = dict.fromkeys((*_READ, *_COMPARED, *_MIXED))
        self._talks = {name: _messages(name.rstrip("+")) for name in names}
        user, reply, later = _messages("uau")
        thought = THOUGHTS + END_OF_THOUGHTS
        changed = {**reply, "content": thought + reply["content"].join(BLANK)}
        self._talks["Thoughtless+"] = [user, changed, later]
        self._talks["thoughts"] = [user, {**reply, "content": f"{thought}\n\n{reply['content']}"}]
        self._talks |= {f"odd {number}+": [{"role": "user", "content": text}] for number, text in enumerate(_ODD)}
        self._odd = [name for name in self._talks if name not in names]
        probes = [(talk, name.endswith("+")) for name, talk in self._talks.items()]
        self._texts = dict(zip(self._talks, render_template(template, dict(variables), probes), strict=True))
        written = [text for text in self._texts.values() if text is not None]
        forms = {part.split(DATE_ENDS)[0] for text in written for part in text.split(DATE_BEGINS)[1:]}
        if len(forms) > 1 or (forms and any(DATE in text for text in written)):
            raise ValueError(f"it writes dates in several forms, {sorted(forms)[:5]}")
        self.date: str | None = next(iter(forms), None)
        if self.date is not None:
            marked = f"{DATE_BEGINS}{self.date}{DATE_ENDS}"
            self._texts = {name: text and text.replace(marked, DATE) for name, text in self._texts.items()}

    def __getitem__(self, name: str) -> str:
        text = self._texts[name]
        if text is None:
            raise ValueError(f"it cannot write {', '.join(message['role'] for message in self._talks[name])}")
        return text

    def has(self, name: str) -> bool:
        """Whether the template renders a conversation with all its messages."""
        text = self._texts[name]
        return text is not None and all(message["content"].strip() in text for message in self._talks[name])

    @property
    def drops_thoughts(self) -> bool:
        """Whether earlier replies lose their thoughts."""
        text = self._texts["Thoughtless+"]
        return text is not None and THOUGHTS.strip() not in text and END_OF_THOUGHTS not in text

    def places(self, name: str) -> list[int]:
        """Returns where the messages of a conversation stand, in their order."""
        return [self[name].find(mark) for mark in _marks(name)]

    def parts(self, name: str) -> list[str]:
        """Returns the texts before, between and behind the marks of the messages of a conversation."""
        text, result = self[name], []
        for mark in _marks(name):
            before, found, text = text.partition(mark)
            if not found:
                raise ValueError(f"it leaves out or moves messages of {', '.join(map(_role, name.rstrip('+')))}")
            result.append(before)
        return [*result, text]

    def differing(self, chat_format: ChatFormat) -> set[str]:
        """Returns the names of the conversations that a format writes in another way.

        Some templates leave a system message that the last turn of the user takes up out of conversations that do not
        ask for a reply; a format has it there, as it was when it was asked for.
        """
        undated = dataclasses.replace(chat_format, date=None, alternates=False)
        names = [*_COMPARED, *_MIXED, *self._odd]
        if "system" not in chat_format.turns:
            names = [name for name in names if name[0] not in "sS"]
        found = set()
        for asked in (True, False):
            chosen = [name for name in names if name.endswith("+") == asked]
            written = render(undated, [self._talks[name] for name in chosen], asked)
            for name, text in zip(chosen, written, strict=True):
                left_out = not asked and chat_format.system_place == "last_user" and name[0] in "sS"
                if text != self._texts[name] and not (left_out and self._texts[name] == self._texts[name[1:]]):
                    found.add(name)
        return found


def _role(letter: str) -> str:
    return _ROLES[letter.lower()]


def _marks(name: str) -> list[str]:
    """The marks of the messages of a conversation."""
    letters = "uau" if name.lower().startswith("thoughtless") else name.rstrip("+").lower()
    return [f"Zq{_role(letter)}{letters[:place].count(letter)}qZ" for place, letter in enumerate(letters)]


def _messages(letters: str) -> list[dict[str, str]]:
    pairs = zip(letters, _marks(letters), strict=True)
    return [
        {"role": _role(letter), "content": mark if letter.islower() else mark.join(BLANK)} for letter, mark in pairs
    ]
