"""Finds the style of tools with which a chat template of Hugging Face writes tools, calls and results."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from zoo.tokenizers.chat.pieces import render
from zoo.tokenizers.chat.rendering import DATE_BEGINS, DATE_ENDS, render_template
from zoo.tokenizers.chat.tool_style import TOOL_STYLES
from zoo.tokenizers.chat.turn import DATE

_PLACE = {"type": "object", "properties": {"city": {"type": "string", "enum": ["Z\u00fcrich", "\u4eac\u90fd"]}}}
_TOOLS = [
    {"type": "function", "function": {"name": "zqWeather", "description": "Of a <city> & day.", "parameters": _PLACE}},
    {"type": "function", "function": {"name": "zqTime", "description": "", "parameters": {"type": "object"}}},
]
_USER, _LATER = {"role": "user", "content": "Zq first"}, {"role": "user", "content": "Zq later"}
_REPLY = {"role": "assistant", "content": "Zq reply"}


def _calls(*names: str, content: str = "") -> dict[str, Any]:
    calls = [
        {
            "id": f"zqCall00{place}",
            "type": "function",
            "function": {"name": name, "arguments": {"city": "\u4eac\u90fd", "days": 2}},
        }
        for place, name in enumerate(names)
    ]
    return {"role": "assistant", "content": content, "tool_calls": calls}


def _result(place: int) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": f"zqCall00{place}", "content": '{"degrees": "21 \u2103"}'}


# All styles must write these as the template does; of the others those that it writes at all.
_NEEDED = ([_USER], [_USER, _calls("zqWeather"), _result(0)])
_OTHERS = (
    [{"role": "system", "content": "Zq system"}, _USER],
    [_USER, _calls("zqWeather", "zqTime"), _result(0), _result(1)],
    [_USER, _calls("zqTime", content="Zq words"), _result(0), _REPLY, _LATER],
)


def with_tools_of(chat_format: Any, template: str, variables: Mapping[str, Any], tokens: Sequence[str]) -> Any:
    """Returns a chat format with the style of tools that writes as a template does; as it is if there is none.

    Args:
        chat_format: The `ChatFormat` that was read from the template.
        template: The template.
        variables: Its variables besides the messages.
        tokens: Tokens of the tokenizer that may be control tokens.
    """
    if "tools" not in template:
        return chat_format
    probes = [(talk, True) for talk in (*_NEEDED, *_OTHERS)]
    try:
        written = render_template(template, dict(variables), probes, _TOOLS)
    except ValueError:
        # it takes too much time, or names tools as this Jinja does not: its conversations are read even so
        return chat_format
    marked = f"{DATE_BEGINS}{chat_format.date}{DATE_ENDS}"
    texts = [text and text.replace(marked, DATE) for text in written]
    if None in texts[: len(_NEEDED)]:
        return chat_format
    talks = [talk for (talk, _), text in zip(probes, texts, strict=True) if text is not None]
    expected = [text for text in texts if text is not None]
    for style in TOOL_STYLES.values():
        if not set(style.special_tokens) <= set(tokens):
            continue
        has_system = "system" in chat_format.turns
        pairs = [pair for pair in zip(talks, expected, strict=True) if has_system or pair[0][0]["role"] != "system"]
        try:
            found = dataclasses.replace(chat_format.with_tools(style), date=None)
            plain = [found.plain_messages(talk, tools=_TOOLS) for talk, _ in pairs]
        except ValueError:
            # the format cannot have the style, or cannot write a conversation that the template writes
            continue
        if render(found, plain) == [text for _, text in pairs]:
            return chat_format.with_tools(style)
    return chat_format
