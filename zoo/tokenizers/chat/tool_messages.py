"""From conversations with tools, calls and results to messages of words alone, which a chat format writes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from zoo.tokenizers.chat.tool_style import ANNOUNCED, CALLED, SYSTEM_WITH_TOOLS
from zoo.tokenizers.chat.turn import Message


def without_tools(chat_format: Any, messages: Sequence[Any], tools: Sequence[Any] | None) -> list[Message]:
    """Returns a checked conversation as messages with `role` and `content` alone, which say the same.

    Args:
        chat_format: The `ChatFormat`, with a style of tools where tools, calls or results are given.
        messages: The conversation.
        tools: The tools that the model may call.

    Raises:
        ValueError: If there is no message of the user that takes up the tools.
    """
    style = chat_format.tools
    written: list[dict[str, str]] = []
    was_result = False
    for message in messages:
        role, content = message["role"], message.get("content") or ""
        is_result = style is not None and role == "tool"
        if is_result:
            text = style.answer(content, message.get("tool_call_id") or "")
            if "tool" in style.turns:
                written.append({"role": role, "content": text})
            elif was_result:
                written[-1]["content"] += f"\n{text}"
            else:
                written.append({"role": "user", "content": text})
        elif message.get("tool_calls"):
            written.append(_of_calls(chat_format, content, message["tool_calls"]))
        else:
            written.append({"role": role, "content": content})
        was_result = is_result
    return _with_announcement(chat_format, written, tools) if tools else written


def _of_calls(chat_format: Any, content: str, calls: Sequence[Any]) -> dict[str, str]:
    style = chat_format.tools
    end = style.turns.get(CALLED, chat_format.turns["assistant"]).thoughts_end
    parts = []
    for call in calls:
        arguments = arguments_text(call["function"]["arguments"])
        if end:
            # the turn would drop the call up to there
            arguments = arguments.replace(end, in_json(end))
        parts.append(style.call(call["function"]["name"], arguments, call.get("id") or ""))
    text = style.calls(parts)
    if CALLED in style.turns:
        # such formats have no place for words beside calls
        return {"role": CALLED, "content": text}
    return {"role": "assistant", "content": f"{content}\n{text}" if content else text}


def in_json(sign: str) -> str:
    """Returns how a text within JSON spells a sign such as `"</think>"` without being it."""
    return sign.replace("<", "\\u003c")


def arguments_text(arguments: Any) -> str:
    """Returns the arguments of a call as a text; one that is a text already stays as the model wrote it.

    Args:
        arguments: An object of JSON, or its text.

    Raises:
        ValueError, TypeError: If it is neither, or nested too deep.
    """
    try:
        text = json.dumps(arguments, ensure_ascii=False) if isinstance(arguments, Mapping) else arguments
        is_object = isinstance(json.loads(text), dict)
    except RecursionError:
        raise ValueError("arguments of a call must be nested less deep.") from None
    if not is_object:
        raise ValueError("arguments of a call must be an object of JSON.")
    return text


def _with_announcement(chat_format: Any, messages: list[dict[str, str]], tools: Sequence[Any]) -> list[Message]:
    style = chat_format.tools
    text = style.announce(tools)
    users = [place for place, message in enumerate(messages) if message["role"] == "user"]
    if style.place != "system" and not users:
        raise ValueError("messages must hold a message of 'user', which takes up the tools, got none.")
    if style.place == "last_user":
        messages.insert(users[-1], {"role": ANNOUNCED, "content": text})
    elif style.place == "first_user":
        words = messages[users[0]]["content"]
        kept = words.lstrip() if chat_format.turns["user"].strips in ("both", "left") else words
        messages[users[0]] = {"role": "user", "content": f"{text}{kept}"}
    if style.place != "system" and not style.environment:
        return messages
    system = None if chat_format.default_system is None else chat_format.today(chat_format.default_system)
    if messages[0]["role"] == "system":
        system = messages.pop(0)["content"]
    if style.place == "system":
        system = text if system is None else f"{system}\n\n{text}"
    role = SYSTEM_WITH_TOOLS if style.environment else "system"
    return [{"role": role, "content": system or ""}, *messages]
