"""Which conversations, calls, results and tools a chat format can write."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from zoo.tokenizers.chat.tool_messages import arguments_text
from zoo.tokenizers.chat.tool_style import CALLED
from zoo.tokenizers.chat.turn import Message

NO_TOOLS = (
    "this chat format has no style of tools. If the model has learnt one, choose it: "
    'chat_format.with_tools("hermes"), or another name in zoo.tokenizers.TOOL_STYLES'
)


def check_conversation(
    chat_format: Any, messages: Any, name: str, add_reply: bool, tools: Sequence[Any] | None
) -> None:
    """Checks a conversation, see `ChatFormat.check`.

    Args:
        chat_format: The `ChatFormat`.
        messages, name, add_reply, tools: As for `ChatFormat.check`.

    Raises:
        ValueError: As for `ChatFormat.check`.
    """
    if not isinstance(messages, Sequence) or isinstance(messages, (str, bytes)):
        raise ValueError(f"{name} must be a list of messages, got {messages!r:.80}.")
    if not messages:
        raise ValueError(f"{name} must hold at least one message, got {messages!r}.")
    check_tools(chat_format, tools)
    for place, message in enumerate(messages):
        _check_message(chat_format, message, f"{name}[{place}]")
        if message["role"] == "system" and place > 0:
            raise ValueError(f"{name}[{place}]['role'] must not be 'system' behind the first message, got 'system'.")
    turns = _turns_of(chat_format, messages)
    for turn, (place, role) in enumerate(turns) if chat_format.alternates else ():
        expected = ("user", "assistant")[turn % 2]
        if role != expected:
            raise ValueError(
                f"{name}[{place}]['role'] must be {expected!r}, got {role!r}: user and assistant must take turns."
            )
    roles = [message["role"] for message in messages]
    if add_reply and chat_format.alternates and roles[-1] not in ("user", "tool"):
        raise ValueError(f"{name}[{len(roles) - 1}]['role'] must be 'user' where a reply is asked for.")
    has_system = roles[0] == "system" or chat_format.default_system is not None
    if has_system and chat_format.system_place != "turn" and "user" not in roles:
        raise ValueError(f"{name} must hold a message of 'user', which takes up the system message, got none.")
    if tools and chat_format.tools is not None and chat_format.tools.place != "system" and "user" not in roles:
        raise ValueError(f"{name} must hold a message of 'user', which takes up the tools, got none.")


def _check_message(chat_format: Any, message: Any, name: str) -> None:
    role = message.get("role") if isinstance(message, Mapping) else None
    # fields of tools, and whether there must be words beside them
    more, needs_content = set(), True
    if chat_format.tools is not None and role == "tool":
        more = {"tool_call_id", "name"}
    elif chat_format.tools is not None and role == "assistant":
        more, needs_content = {"tool_calls"}, not message.get("tool_calls")
    keys = set() if not isinstance(message, Mapping) else message.keys() - more
    if keys != {"role", "content"} and (needs_content or keys != {"role"}):
        raise ValueError(f"{name} must have the keys 'role' and 'content', got {message!r:.200}.")
    content = message.get("content")
    if not isinstance(content, str) and (needs_content or content is not None):
        raise ValueError(f"{name}['content'] must be a str, got {content!r:.200}.")
    try:
        (content or "").encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{name}['content'] must be a text that UTF-8 can hold: {error}.") from error
    roles = {*chat_format.turns, *(() if chat_format.tools is None else ("tool",))}
    if not isinstance(role, str) or role not in roles:
        raise ValueError(f"{name}['role'] must be one of {sorted(roles)}, got {role!r:.80}.")
    if chat_format.tools is not None and (role == "tool" or message.get("tool_calls")):
        _check_tool_fields(chat_format, message, name)


def _turns_of(chat_format: Any, messages: Sequence[Message]) -> list[tuple[int, str]]:
    """Places and roles of the messages that take turns: what tools have turns of their own for does not count."""
    own = () if chat_format.tools is None else chat_format.tools.turns
    turns: list[tuple[int, str]] = []
    for place, message in enumerate(messages):
        role = message["role"]
        if role == "tool":
            is_first = place == 0 or messages[place - 1]["role"] != "tool"
            turns += [(place, "user")] if "tool" not in own and is_first else []
        elif role != "system" and not (message.get("tool_calls") and CALLED in own):
            turns.append((place, role))
    return turns


def check_tools(chat_format: Any, tools: Any) -> None:
    """Checks descriptions of tools.

    Args:
        chat_format: The `ChatFormat`.
        tools: The tools; None for none.

    Raises:
        ValueError: If they are no list of functions in OpenAI's form, or the format has no style of tools.
    """
    if tools is None:
        return
    if not isinstance(tools, Sequence) or isinstance(tools, (str, bytes)):
        raise ValueError(f"tools must be a list of tools, got {tools!r:.80}.")
    for place, tool in enumerate(tools):
        function = tool.get("function") if isinstance(tool, Mapping) and tool.get("type") == "function" else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str) or not function["name"]:
            raise ValueError(
                f'tools[{place}] must be {{"type": "function", "function": {{"name": ..., "parameters": ...}}}}, got '
                f"{tool!r:.200}."
            )
        try:
            json.dumps(tool, ensure_ascii=False, allow_nan=False).encode()
            if chat_format.tools is not None:
                chat_format.tools.announce([tool])
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"tools[{place}] must hold values of JSON: {error}.") from error
    if tools and chat_format.tools is None:
        raise ValueError(f"tools must be None: {NO_TOOLS}.")


def _check_tool_fields(chat_format: Any, message: Any, name: str) -> None:
    """Checks the calls of a message of the assistant, or a result."""
    if message["role"] == "tool":
        if chat_format.tools.has_ids and not isinstance(message.get("tool_call_id"), str):
            raise ValueError(f"{name}['tool_call_id'] must be a str, got {message.get('tool_call_id')!r:.80}.")
        return
    calls = message["tool_calls"]
    if not isinstance(calls, Sequence) or isinstance(calls, (str, bytes)):
        raise ValueError(f"{name}['tool_calls'] must be a list of calls, got {calls!r:.80}.")
    for place, call in enumerate(calls):
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise ValueError(
                f'{name}[\'tool_calls\'][{place}] must be {{"id": ..., "function": {{"name": ..., "arguments": ...}}}},'
                f" got {call!r:.200}."
            )
        if chat_format.tools.has_ids and not isinstance(call.get("id"), str):
            raise ValueError(f"{name}['tool_calls'][{place}]['id'] must be a str, got {call.get('id')!r:.80}.")
        try:
            arguments_text(function.get("arguments")).encode()
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{name}['tool_calls'][{place}]['function']['arguments'] must be an object of JSON, or its text, got "
                f"{_shown(function.get('arguments'))}."
            ) from error


def _shown(value: Any) -> str:
    try:
        return f"{value!r:.200}"
    except RecursionError:
        return "one that is nested too deep"
