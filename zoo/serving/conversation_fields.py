"""The fields of conversations: messages, the tools that a model may call, its calls, and their results."""

from __future__ import annotations

import json
from typing import Annotated, Any, ClassVar, Literal, Self

import pydantic
from pydantic import AfterValidator, BeforeValidator, Field

from zoo.serving.request_fields import Fields


def _content(value: Any) -> Any:
    """The text of a message; parts of texts are joined."""
    if not isinstance(value, list):
        return value
    if not all(isinstance(part, dict) and part.get("type") == "text" for part in value):
        raise ValueError("must have parts of the type text alone")
    return "".join(TextPart.model_validate(part).text for part in value)


def _arguments(text: str) -> str:
    try:
        arguments = json.loads(text)
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        raise ValueError("must be a text in JSON that describes an object")
    return text


class TextPart(Fields):
    """A part of the content of a message."""

    type: Literal["text"]
    text: str


class CalledFunction(Fields):
    """The function that a call calls."""

    name: Annotated[str, Field(min_length=1)]
    arguments: Annotated[str, AfterValidator(_arguments)]


class Call(Fields):
    """A call of a tool."""

    # some clients number the calls of a message
    notes = ("index",)
    id: Annotated[str, Field(min_length=1)]
    type: Literal["function"] = "function"
    function: CalledFunction


class Message(Fields):
    """A message of a conversation, with all fields that the interface gives to answers, empty where it has nothing."""

    idle: ClassVar = {"annotations": ([],), "function_call": (), "audio": ()}
    notes = ("name", "refusal")
    # newer models of OpenAI call the system "developer"
    role: Annotated[str, Field(min_length=1), AfterValidator(lambda role: "system" if role == "developer" else role)]
    content: Annotated[str, BeforeValidator(_content, json_schema_input_type=str | list[TextPart])] | None = None
    tool_calls: list[Call] = []
    tool_call_id: str | None = None

    @pydantic.model_validator(mode="after")
    def _fits_its_role(self) -> Self:
        if self.content is None and not self.tool_calls:
            raise ValueError("must have content")
        if self.tool_calls and self.role != "assistant":
            raise ValueError("must have no tool_calls but with the role assistant")
        if (self.tool_call_id is None) is (self.role == "tool"):
            raise ValueError("must have tool_call_id with the role tool, and with no other")
        return self

    def request(self) -> dict[str, Any]:
        """Returns the message as a request to a worker has it."""
        return self.model_dump(exclude_defaults=True)


class Function(Fields):
    """A function that a model may call."""

    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_.-]{1,128}$")]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool = False


class Tool(Fields):
    """A tool that a model may call."""

    type: Literal["function"]
    function: Function

    def request(self) -> dict[str, Any]:
        """Returns the tool as a conversation names it."""
        function = self.function.model_dump(exclude_defaults=True, exclude={"strict"})
        return {"type": "function", "function": function}


class NamedFunction(Fields):
    """The name of a function."""

    name: str


class NamedTool(Fields):
    """The tool that is to be called."""

    type: Literal["function"]
    function: NamedFunction
