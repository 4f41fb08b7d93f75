"""From a `ChatFormat` to a chat template of Hugging Face, which writes the same."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from zoo.tokenizers.chat.chat_format import ChatFormat
from zoo.tokenizers.chat.tool_writing import announcement_lines, counts_as_turn, system_before, turn_lines, word_lines
from zoo.tokenizers.chat.turn import DATE, Strip, Turn

_METHODS: dict[Strip, str] = {
    "": "",
    "both": ".strip()",
    "left": ".lstrip()",
    "right": ".rstrip()",
    "newlines": ".strip('\\n')",
    "left_newlines": ".lstrip('\\n')",
    "right_newlines": ".rstrip('\\n')",
}

# sets the places of the first and the last turn of the user
_PLACES = [
    "{%- set places = namespace(first_user=-1, last_user=-1) -%}{%- for message in turns -%}",
    "{%- if message['role'] == 'user' -%}{%- set places.last_user = loop.index0 -%}",
    "{%- if places.first_user < 0 -%}{%- set places.first_user = loop.index0 -%}{%- endif -%}",
    "{%- endif -%}{%- endfor -%}",
]


def write_template(chat_format: ChatFormat) -> str:
    """Returns a template in Jinja that writes conversations as a format does.

    Args:
        chat_format: The format.

    Example:

    >>> write_template(CHAT_FORMATS["zephyr"])
    "{%- set system = none -%}..."
    """
    return "\n".join(line for line in _lines(chat_format) if line) + "\n"


def _lines(chat_format: ChatFormat) -> list[str]:
    turns, default = chat_format.turns, chat_format.default_system

    def text(value: str) -> str:
        return _text(value, chat_format.date)

    others = [role for role in turns if role not in ("system", "assistant", "user")]
    lines = [f"{{%- set system = {'none' if default is None else text(default)} -%}}", "{%- set turns = messages -%}"]
    if "system" in turns:
        lines += [
            "{%- if messages[0]['role'] == 'system' -%}",
            "{%- set system = messages[0]['content'] -%}{%- set turns = messages[1:] -%}",
            "{%- endif -%}",
        ]
    if chat_format.tools is not None:
        lines += announcement_lines(chat_format, text)
    lines.append(f"{{{{- {text(chat_format.start)} -}}}}")
    takes = "false"
    if "system" in turns:
        system = turns["system"]
        whole = f"{system_before(chat_format, text)} ~ {_words(system, 'system')} ~ {text(system.after)}"
        if chat_format.system_place == "turn":
            lines.append(f"{{%- if system is not none -%}}{{{{- {whole} -}}}}{{%- endif -%}}")
        else:
            takes = f"system is not none and loop.index0 == places.{chat_format.system_place}"
    if takes != "false" or (chat_format.tools is not None and chat_format.tools.place != "system"):
        lines += _PLACES
    if chat_format.alternates:
        lines.append("{%- set count = namespace(turns=0) -%}")
    lines.append("{%- for message in turns -%}{%- set words = message['content'] or '' -%}")
    if chat_format.alternates:
        lines.append(
            f"{{%- if {counts_as_turn(chat_format)} -%}}"
            "{%- if (message['role'] != 'assistant') != (count.turns % 2 == 0) -%}"
            "{{- raise_exception('user and assistant must take turns') -}}{%- endif -%}"
            "{%- set count.turns = count.turns + 1 -%}{%- endif -%}"
        )
    if chat_format.tools is not None:
        lines += word_lines(chat_format, text)
    lines += [f"{{%- if {takes} -%}}", *_taking(chat_format, text)] if takes != "false" else ["{%- if false -%}"]
    if chat_format.tools is not None:
        lines += turn_lines(chat_format, text, lambda turn: _turn(turn, text))
    if chat_format.last_reply is not None:
        lines += [
            "{%- elif message['role'] == 'assistant' and loop.last and not add_generation_prompt -%}",
            *_last_reply(chat_format.last_reply, turns["assistant"], text),
        ]
    for role in ("user", "assistant", *others):
        lines += [f"{{%- elif message['role'] == {text(role)} -%}}", _turn(turns[role], text)]
    lines += [
        "{%- else -%}{{- raise_exception('messages must have the roles ' ~ "
        + text(", ".join(turns))
        + " ~ ', system at the beginning') -}}{%- endif -%}",
        "{%- endfor -%}",
        f"{{%- if add_generation_prompt -%}}{{{{- {text(chat_format.reply)} -}}}}{{%- endif -%}}",
    ]
    return lines


def _turn(turn: Turn, text: Callable[[str], str]) -> str:
    return f"{{{{- {text(turn.before)} ~ {_words(turn)} ~ {text(turn.after)} -}}}}"


def _taking(chat_format: ChatFormat, text: Callable[[str], str]) -> list[str]:
    """A turn of the user with the system message in it."""
    user, system = chat_format.turns["user"], chat_format.turns["system"]
    whole = f"{text(system.before)} ~ {_words(system, 'system')} ~ {text(system.after)}"
    if chat_format.strips_whole_turn:
        words = f"({whole} ~ words){_METHODS[user.strips]}"
    else:
        words = f"{whole} ~ {_words(user)}"
    return [f"{{{{- {text(user.before)} ~ {words} ~ {text(user.after)} -}}}}"]


def _last_reply(last: Turn, turn: Turn, text: Callable[[str], str]) -> list[str]:
    lines = [_turn(dataclasses.replace(last, thoughts_end=""), text)]
    if not turn.thoughts_end:
        return lines
    as_it_is = _turn(Turn(turn.before, last.after), text)
    return [f"{{%- if {text(turn.thoughts_end)} in words -%}}", as_it_is, "{%- else -%}", *lines, "{%- endif -%}"]


def _words(turn: Turn, name: str = "words") -> str:
    """What a turn writes of words."""
    words = name
    if turn.thoughts_end:
        end = _text(turn.thoughts_end, None)
        behind = f"{name}.split({end})[-1]{_METHODS[turn.thoughts_strips]}"
        words = f"({behind} if {end} in {name} else {name})"
    return f"{words}{_METHODS[turn.strips]}"


def _text(value: str, date: str | None) -> str:
    """A text as a value of Jinja."""
    if date is not None and DATE in value:
        today = f"strftime_now({_text(date, None)})"
        return "(" + f" ~ {today} ~ ".join(_text(part, None) for part in value.split(DATE)) + ")"
    escaped = value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\r", "\\r")
    return f"'{escaped}'"
