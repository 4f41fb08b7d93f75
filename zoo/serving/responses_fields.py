"""The fields of requests for responses, OpenAI's newer interface for chats, as far as these are texts and calls."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

import pydantic
from pydantic import BeforeValidator, Field

from zoo.serving.openai_fields import MOST_ALTERNATIVES, ChatBody, NewTokens
from zoo.serving.options import Limits
from zoo.serving.request_fields import Fields

# What `include` may have: the log-probabilities of the tokens.
LOGPROBS = "message.output_text.logprobs"


def _text(value: Any) -> Any:
    """The text of an item; parts of texts are joined."""
    if not isinstance(value, list):
        return value
    kinds = ("input_text", "output_text")
    if not all(isinstance(part, dict) and part.get("type") in kinds for part in value):
        raise ValueError("must have parts of the types input_text and output_text alone")
    return "".join(Part.model_validate(part).text for part in value)


def _items(value: Any) -> Any:
    value = [{"role": "user", "content": value}] if isinstance(value, str) else value
    if isinstance(value, list) and all(isinstance(item, dict) for item in value):
        # a message need not say that it is one
        return [item if item.get("type") else {**item, "type": "message"} for item in value]
    return value


class Part(Fields):
    """A part of the content of a message."""

    notes = ("annotations", "logprobs")
    type: Literal["input_text", "output_text"]
    text: str


class MessageItem(Fields):
    """A message."""

    notes = ("id", "status")
    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: Annotated[str, BeforeValidator(_text, json_schema_input_type=str | list[Part])]

    def messages(self) -> list[dict[str, Any]]:
        """Returns the messages of a chat that this is."""
        return [{"role": self.role, "content": self.content}]


class CallItem(Fields):
    """A call of a function by the model."""

    notes = ("id", "status")
    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str

    def messages(self) -> list[dict[str, Any]]:
        """Returns the messages of a chat that this is."""
        function = {"name": self.name, "arguments": self.arguments}
        return [{"role": "assistant", "tool_calls": [{"id": self.call_id, "type": "function", "function": function}]}]


class ResultItem(Fields):
    """What a called function returned."""

    notes = ("id", "status")
    type: Literal["function_call_output"]
    call_id: str
    output: Annotated[str, BeforeValidator(_text, json_schema_input_type=str | list[Part])]

    def messages(self) -> list[dict[str, Any]]:
        """Returns the messages of a chat that this is."""
        return [{"role": "tool", "tool_call_id": self.call_id, "content": self.output}]


class TextFormat(Fields):
    """What the text is: anything, an object, or what a schema says, of which the other fields are."""

    notes = ("description",)
    type: Literal["text", "json_object", "json_schema"] = "text"
    name: str | None = None
    schema_: dict[str, Any] | None = Field(None, alias="schema")
    strict: bool = False

    @pydantic.model_validator(mode="after")
    def _has_schema(self) -> Self:
        for field, value in (("name", self.name), ("schema", self.schema_)):
            if (self.type == "json_schema") is (value is None):
                raise ValueError(f"{field} must be given with the type json_schema, and with no other")
        return self

    def response_format(self) -> dict[str, Any]:
        """Returns the field of a chat that says the same."""
        if self.type != "json_schema":
            return {"type": self.type}
        return {"type": self.type, "json_schema": {"name": self.name, "schema": self.schema_, "strict": self.strict}}


class TextOptions(Fields):
    """How the text is written."""

    idle: ClassVar = {"verbosity": ("medium",)}
    format: TextFormat = TextFormat()


class FunctionTool(Fields):
    """A function that the model may call."""

    type: Literal["function"]
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool = False

    def tool(self) -> dict[str, Any]:
        """Returns the tool of a chat that this is."""
        return {"type": "function", "function": self.model_dump(exclude={"type"}, exclude_none=True)}


class NamedFunctionTool(Fields):
    """The function that is to be called."""

    type: Literal["function"]
    name: str


Item = Annotated[MessageItem | CallItem | ResultItem, Field(discriminator="type")]


class ResponseBody(Fields):
    """A request for a response. Nothing of it is kept: the client sends the whole conversation."""

    idle: ClassVar = {
        "store": (False,),
        "background": (False,),
        "previous_response_id": (),
        "conversation": (),
        "prompt": (),
        "reasoning": ({},),
        "max_tool_calls": (),
        "service_tier": ("auto", "default"),
        "truncation": ("disabled",),
        "stream_options": ({}, {"include_obfuscation": False}, {"include_obfuscation": True}),
    }
    notes = ("user", "metadata", "safety_identifier", "prompt_cache_key", "prompt_cache_retention")
    model: str
    input: Annotated[list[Item], Field(min_length=1), BeforeValidator(_items, json_schema_input_type=str | list[Item])]
    instructions: str | None = None
    max_output_tokens: NewTokens | None = None
    temperature: float | None = Field(None, ge=0, le=100)
    top_p: float | None = Field(None, ge=1e-6, le=1)
    top_logprobs: int = Field(0, ge=0, le=MOST_ALTERNATIVES)
    include: list[Literal["message.output_text.logprobs", "reasoning.encrypted_content"]] = []
    text: TextOptions = TextOptions()
    tools: list[FunctionTool] = []
    tool_choice: Literal["none", "auto", "required"] | NamedFunctionTool = "auto"
    parallel_tool_calls: bool = True
    stream: bool = False

    def chat(self, limits: Limits) -> ChatBody:
        """Returns the request for a chat that says the same.

        Args:
            limits: The limits of the server.

        Raises:
            Problem: If a chat may not be so.
        """
        messages = [] if self.instructions is None else [{"role": "system", "content": self.instructions}]
        for item in self.input:
            for message in item.messages():
                if message.get("tool_calls") and messages and messages[-1]["role"] == "assistant":
                    # words and calls of one answer are items of their own, and one message
                    calls = [*messages[-1].get("tool_calls", []), *message["tool_calls"]]
                    messages[-1] = {**messages[-1], "tool_calls": calls}
                else:
                    messages.append(message)
        choice: Any = self.tool_choice
        if isinstance(choice, NamedFunctionTool):
            choice = {"type": "function", "function": {"name": choice.name}}
        told = {"logprobs": True, "top_logprobs": self.top_logprobs} if LOGPROBS in self.include else {}
        fields = {
            "model": self.model,
            "messages": messages,
            "max_tokens": self.max_output_tokens,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "stream": self.stream,
            "response_format": self.text.format.response_format(),
            "tools": [tool.tool() for tool in self.tools],
            "tool_choice": choice,
            "parallel_tool_calls": self.parallel_tool_calls,
            **told,
        }
        return ChatBody.read(fields, limits)
