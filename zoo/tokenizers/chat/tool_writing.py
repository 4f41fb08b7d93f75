"""The part of a chat template of Hugging Face that writes tools, calls and results as a style does."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from zoo.tokenizers.chat.tool_messages import in_json
from zoo.tokenizers.chat.tool_style import ANNOUNCED, CALLED, SYSTEM_WITH_TOOLS
from zoo.tokenizers.chat.turn import Turn

# From a text of a format to a value of Jinja.
Text = Callable[[str], str]


def announcement_lines(chat_format: Any, text: Text) -> list[str]:
    """Returns lines that set `announced`, the text that names the tools, and put it behind the system message.

    Args:
        chat_format: The `ChatFormat`, which has a style of tools.
        text: From a text to a value of Jinja.
    """
    style = chat_format.tools
    indent = "" if style.indent is None else f"(indent={style.indent})"
    listed = "' ~ listed.text ~ '".join(_bare(part, text) for part in style.announcement.split("{tools}"))
    lines = [
        "{%- set listed = namespace(text='') -%}{%- for tool in tools or [] -%}",
        f"{{%- set listed.text = listed.text ~ ('' if loop.first else {text(style.tools_separator)})"
        f" ~ (tool | tojson{indent}) -%}}{{%- endfor -%}}",
        f"{{%- set announced = '{listed}' -%}}",
    ]
    if style.place == "system":
        joined = f"(announced if system is none else system ~ {text(chr(10) * 2)} ~ announced)"
        lines.append(f"{{%- if tools -%}}{{%- set system = {joined} -%}}{{%- endif -%}}")
    elif style.environment:
        lines.append("{%- if tools and system is none -%}{%- set system = '' -%}{%- endif -%}")
    return lines


def system_before(chat_format: Any, text: Text) -> str:
    """Returns the value of Jinja that stands before the words of the system."""
    before = text(chat_format.turns["system"].before)
    if chat_format.tools is None or not chat_format.tools.environment:
        return before
    return f"({text(chat_format.written_turns[SYSTEM_WITH_TOOLS].before)} if tools else {before})"


def word_lines(chat_format: Any, text: Text) -> list[str]:
    """Returns lines that change the `words` of a message in the loop: calls, results, and tools before those of a user.

    Args:
        chat_format, text: As for `announcement_lines`.
    """
    style = chat_format.tools
    number = f" ~ ', \"id\": ' ~ (call['id'] | tojson) ~ {text('}')}" if style.has_ids else f" ~ {text('}')}"
    end = style.turns.get(CALLED, chat_format.turns["assistant"]).thoughts_end
    kept = f" | replace({text(end)}, {text(in_json(end))})" if end else ""
    call = (
        f"{text(style.call_begin)} ~ '{{\"name\": ' ~ (call['function']['name'] | tojson) ~ "
        f"{text(f', {chr(34)}{style.arguments}{chr(34)}: ')} ~ ((call['function']['arguments'] if "
        f"call['function']['arguments'] is string else call['function']['arguments'] | tojson){kept})"
        f"{number} ~ {text(style.call_end)}"
    )
    before = "''" if CALLED in style.turns else f"(words ~ {text(chr(10))} if words else '')"
    lines = [
        "{%- set calls = namespace(text='') -%}{%- for call in message['tool_calls'] or [] -%}",
        f"{{%- set calls.text = calls.text ~ ('' if loop.first else {text(style.calls_separator)}) ~ {call} -%}}",
        "{%- endfor -%}",
        f"{{%- if calls.text -%}}{{%- set words = {before} ~ {text(style.calls_begin)} ~ calls.text ~ "
        f"{text(style.calls_end)} -%}}{{%- endif -%}}",
    ]
    lines.append(f"{{%- if message['role'] == 'tool' -%}}{{%- set words = {_result(style, text)} -%}}{{%- endif -%}}")
    if style.place != "system":
        lines.append("{%- if tools and message['role'] == 'user' and loop.index0 == places." + style.place + " -%}")
        if style.place == "last_user":
            turn = style.turns[ANNOUNCED]
            lines.append(f"{{{{- {text(turn.before)} ~ announced ~ {text(turn.after)} -}}}}")
        else:
            kept = ".lstrip()" if chat_format.turns["user"].strips in ("both", "left") else ""
            lines.append(f"{{%- set words = announced ~ words{kept} -%}}")
        lines.append("{%- endif -%}")
    return lines


def turn_lines(chat_format: Any, text: Text, write: Callable[[Turn], str]) -> list[str]:
    """Returns the branches for calls in a turn of their own and for results.

    Args:
        chat_format, text: As for `announcement_lines`.
        write: From a turn to the line that writes it.
    """
    style, user = chat_format.tools, chat_format.turns["user"]
    lines = []
    if CALLED in style.turns:
        lines += ["{%- elif calls.text -%}", write(style.turns[CALLED])]
    lines.append("{%- elif message['role'] == 'tool' -%}")
    if "tool" in style.turns:
        return [*lines, write(style.turns["tool"])]
    begins = "loop.first or turns[loop.index0 - 1]['role'] != 'tool'"
    ends = "loop.last or turns[loop.index0 + 1]['role'] != 'tool'"
    return [
        *lines,
        f"{{%- if {begins} -%}}{{{{- {text(user.before)} -}}}}{{%- else -%}}{{{{- {text(chr(10))} -}}}}{{%- endif -%}}",
        f"{{{{- words -}}}}{{%- if {ends} -%}}{{{{- {text(user.after)} -}}}}{{%- endif -%}}",
    ]


def counts_as_turn(chat_format: Any) -> str:
    """Returns the condition of Jinja that a message is one of those of user and assistant, which take turns."""
    if chat_format.tools is None or "tool" not in chat_format.tools.turns:
        return "message['role'] != 'tool' or loop.first or turns[loop.index0 - 1]['role'] != 'tool'"
    # calls have a turn of their own, too
    return "message['role'] != 'tool' and not message['tool_calls']"


def _result(style: Any, text: Text) -> str:
    values = {"{content}": "words", "{json}": "(words | tojson)", "{id}": "message['tool_call_id']"}
    parts = re.split(r"(\{(?:content|json|id)\})", style.result)
    return " ~ ".join(values.get(part) or text(part) for part in parts if part)


def _bare(part: str, text: Text) -> str:
    """The value of a text without its quotation marks."""
    return text(part)[1:-1]
