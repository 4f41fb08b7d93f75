"""How a family of models is told of tools, calls them, and is given their results, as plain data."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from typing import Any, Literal

from zoo.storage import to_dataclass
from zoo.tokenizers.chat.turn import Turn, turn_values

# Roles of messages that a style makes of others: tools in a turn of their own, calls, and a system turn with tools.
ANNOUNCED, CALLED, SYSTEM_WITH_TOOLS = "user.tools", "assistant.calls", "system.tools"


@dataclasses.dataclass(frozen=True)
class ToolStyle:
    r"""How tools, calls and results are written in a conversation.

    A style makes messages of words alone of messages with calls and results, so a `ChatFormat` writes them like others.

    Args:
        announcement: The text that names the tools, with `"{tools}"` in their place.
        place: Where it stands: behind the "system" message, before the words of the "first_user" message, or in a turn
            of its own before the "last_user" message; that turn has the role "user.tools" in `turns`.
        indent: Spaces by which the JSON of a tool is indented; None for one line.
        tools_separator: Text between two tools.
        arguments: Name of the arguments in the JSON of a call.
        call_begin, call_end: Text around each call.
        calls_begin, calls_separator, calls_end: Text before, between and behind the calls of a message.
        has_ids: Whether a call states its id.
        result: Text of a result, with `"{content}"` or `"{json}"` in the place of its words, and `"{id}"` in the place
            of the id of the call.
        environment: Text at the beginning of the system message of a conversation with tools.
        turns: Further turns: "tool" for results, which otherwise are words of the user; "assistant.calls" for calls,
            which otherwise follow the words of a reply; "user.tools".
        special_tokens: The control tokens of these turns.

    Raises:
        ValueError: If `announcement` or `result` has no place for what it is to say.

    Example:

    >>> TOOL_STYLES["hermes"].call("weather", '{"city": "Paris"}')
    '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'
    """

    announcement: str
    place: Literal["system", "first_user", "last_user"] = "system"
    indent: int | None = None
    tools_separator: str = "\n"
    arguments: str = "arguments"
    call_begin: str = ""
    call_end: str = ""
    calls_begin: str = ""
    calls_separator: str = "\n"
    calls_end: str = ""
    has_ids: bool = False
    result: str = "{content}"
    environment: str = ""
    turns: dict[str, Turn] = dataclasses.field(default_factory=dict)
    special_tokens: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if "{tools}" not in self.announcement:
            raise ValueError(f"announcement must hold '{{tools}}', got {self.announcement!r:.200}.")
        if not re.search(r"\{(content|json)\}", self.result):
            raise ValueError(f"result must hold '{{content}}' or '{{json}}', got {self.result!r:.200}.")
        if self.place not in ("system", "first_user", "last_user"):
            raise ValueError(f"place must be 'system', 'first_user' or 'last_user', got {self.place!r}.")
        known = {"tool", ANNOUNCED, CALLED}
        for role in self.turns:
            if role not in known:
                raise ValueError(f"turns must have roles of {sorted(known)}, got {role!r}.")
        if self.place == "last_user" and ANNOUNCED not in self.turns:
            raise ValueError(
                f"turns must have the role {ANNOUNCED!r} with place='last_user', got {sorted(self.turns)}."
            )
        object.__setattr__(self, "special_tokens", tuple(self.special_tokens))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], name: str = "tools") -> ToolStyle:
        """Returns the style that `to_dict` described.

        Raises:
            ValueError: If a key is missing, unknown, or has a value of another type.
        """
        return to_dataclass(cls, dict(values), name)

    def to_dict(self) -> dict[str, Any]:
        """Returns the choices that differ from their defaults, as values for JSON."""
        fields = [field for field in dataclasses.fields(self) if getattr(self, field.name) != field.default]
        values = {field.name: getattr(self, field.name) for field in fields}
        values["turns"] = {role: turn_values(turn) for role, turn in self.turns.items()}
        values["special_tokens"] = list(self.special_tokens)
        return {name: value for name, value in values.items() if value not in ({}, [])}

    def announce(self, tools: list[Any] | tuple[Any, ...]) -> str:
        """Returns the text that names tools.

        Args:
            tools: The tools, in OpenAI's form.

        Raises:
            ValueError: If they are nested too deep.
        """
        try:
            written = [json.dumps(tool, ensure_ascii=False, indent=self.indent) for tool in tools]
        except RecursionError:
            raise ValueError("tools must be nested less deep.") from None
        listed = self.tools_separator.join(written)
        return self.announcement.replace("{tools}", listed)

    def call(self, name: str, arguments: str, number: str = "") -> str:
        """Returns the text of a call.

        Args:
            name: The name of the tool.
            arguments: Its arguments, an object in JSON.
            number: The id of the call.
        """
        stated = f', "id": {_json(number)}' if self.has_ids else ""
        body = f'{{"name": {_json(name)}, "{self.arguments}": {arguments}{stated}}}'
        return f"{self.call_begin}{body}{self.call_end}"

    def calls(self, calls: list[str]) -> str:
        """Returns the texts of the calls of a message as one."""
        return f"{self.calls_begin}{self.calls_separator.join(calls)}{self.calls_end}"

    def answer(self, content: str, number: str = "") -> str:
        """Returns the text of a result.

        Args:
            content: What the tool answered.
            number: The id of the call.
        """
        parts = {"{content}": content, "{json}": _json(content), "{id}": number}
        return re.sub(r"\{(content|json|id)\}", lambda found: parts[found[0]], self.result)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


TOOL_STYLES: dict[str, ToolStyle] = {
    # of Hermes 2 Pro, in the words of Qwen 2.5 and 3
    "hermes": ToolStyle(
        "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
        "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n{tools}\n</tools>\n\n"
        "For each function call, return a json object with function name and arguments within <tool_call></tool_call> "
        'XML tags:\n<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>',
        call_begin="<tool_call>\n",
        call_end="\n</tool_call>",
        result="<tool_response>\n{content}\n</tool_response>",
    ),
    # of Llama 3.1 and 3.2, for tools of one's own
    "llama3": ToolStyle(
        "Given the following functions, please respond with a JSON for a function call with its proper arguments that "
        'best answers the given prompt.\n\nRespond in the format {"name": function name, "parameters": dictionary of '
        "argument name and its value}.Do not use variables.\n\n{tools}\n\n",
        place="first_user",
        indent=4,
        tools_separator="\n\n",
        arguments="parameters",
        calls_separator="; ",
        result="{json}",
        environment="Environment: ipython\n",
        turns={
            CALLED: Turn("<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>"),
            "tool": Turn("<|start_header_id|>ipython<|end_header_id|>\n\n", "<|eot_id|>"),
        },
        special_tokens=("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
    ),
    # of Mistral's third tokenizer
    "mistral": ToolStyle(
        "[{tools}]",
        place="last_user",
        tools_separator=", ",
        calls_begin="[",
        calls_separator=", ",
        calls_end="]",
        has_ids=True,
        result='{"content": {content}, "call_id": "{id}"}',
        turns={
            ANNOUNCED: Turn("[AVAILABLE_TOOLS] ", "[/AVAILABLE_TOOLS]"),
            CALLED: Turn("[TOOL_CALLS] ", "</s>"),
            "tool": Turn("[TOOL_RESULTS] ", "[/TOOL_RESULTS]"),
        },
        special_tokens=(
            *("[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
            "</s>",
        ),
    ),
}


def get_tool_style(value: Any) -> ToolStyle:
    """Returns the style that a value describes.

    Args:
        value: A `ToolStyle`, or a name in `TOOL_STYLES`.

    Raises:
        ValueError: If it is neither.
    """
    if isinstance(value, ToolStyle):
        return value
    if not isinstance(value, str) or value not in TOOL_STYLES:
        raise ValueError(f"style must be one of {sorted(TOOL_STYLES)}, or a ToolStyle, got {value!r:.80}.")
    return TOOL_STYLES[value]
