"""The fields of requests for completions, chat and embeddings: what they may be, and what this server refuses."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

import pydantic
from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, ValidationInfo

from zoo.serving.conversation_fields import Message, NamedTool, Tool
from zoo.serving.grammar_fields import GrammarFields
from zoo.serving.request_fields import Fields, as_list, few
from zoo.serving.whole_texts import ADJUSTMENTS

# Fields of this interface that models here do not have.
_IDLE: dict[str, tuple[Any, ...]] = {
    "suffix": ("",),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "functions": ([],),
    "function_call": ("none",),
    "modalities": (["text"],),
    "audio": (),
    "store": (False,),
    "service_tier": ("auto", "default"),
}
# those of them that a conversation has
_OF_CHAT = ("tools", "tool_choice", "parallel_tool_calls")
# Most probable tokens of a place that exports tell, see `zoo.generation.alternatives`.
MOST_ALTERNATIVES = 20
_NOTES = ("user", "metadata", "safety_identifier", "prompt_cache_key")


def _new_tokens(value: int, info: ValidationInfo, least: int = 1) -> int:
    if not least <= value <= info.context.new_tokens:
        raise ValueError(f"must be from {least} to {info.context.new_tokens}")
    return value


def _none_or_more(value: int, info: ValidationInfo) -> int:
    return _new_tokens(value, info, 0)


def _prompts(value: Any) -> list[str | list[int]]:
    prompts = [value] if isinstance(value, str) or _is_tokens(value) else value
    if not isinstance(prompts, list) or not prompts or not all(isinstance(p, str) or _is_tokens(p) for p in prompts):
        raise ValueError("must be a text, a list of texts, or tokens: a list of their numbers, or a list of such lists")
    return prompts


def _is_tokens(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(token) is int and 0 <= token < 2**31 for token in value)


def _inputs(value: Any, info: ValidationInfo) -> list[str] | list[list[int]]:
    """Texts, or the token ids of texts."""
    inputs = [value] if isinstance(value, str) or _is_tokens(value) else value
    if isinstance(inputs, list) and not inputs:
        raise ValueError("must have at least 1 item")
    kinds = isinstance(inputs, list) and (all(isinstance(each, str) for each in inputs) or all(map(_is_tokens, inputs)))
    if not kinds:
        raise ValueError("must be a text, a list of texts, or token ids: a list of numbers, or a list of such lists")
    return few(inputs, info)


def _choice(value: Any) -> Any:
    if isinstance(value, str) and value not in ("none", "auto", "required"):
        raise ValueError('must be "none", "auto", "required", or a function of tools by its name')
    return value


def _biases(value: Any) -> Any:
    """The bias of each token; names of fields in JSON are texts."""
    if not isinstance(value, dict) or not all(re.fullmatch("0|[1-9][0-9]{0,9}", key) for key in value):
        raise ValueError('must be an object of token ids and numbers, such as {"50": -1.5}')
    return {int(key): bias for key, bias in value.items()}


class StreamOptions(Fields):
    """How events are answered."""

    notes = ("include_obfuscation",)
    include_usage: bool = False


NewTokens = Annotated[int, AfterValidator(_new_tokens)]
Bias = Annotated[float, Field(ge=-100, le=100)]
Prompts = str | list[int] | list[str | list[int]]
Inputs = str | list[int] | list[str] | list[list[int]]
_MOST_RESULTS = 16
Stop = Annotated[str, Field(min_length=1, max_length=256)]


class WritingBody(GrammarFields):
    """What requests for texts have in common."""

    idle, notes = _IDLE, _NOTES
    model: str
    # None for as many as the export writes, and for the settings of the export
    max_tokens: NewTokens | None = None
    max_completion_tokens: NewTokens | None = None
    temperature: float | None = Field(None, ge=0, le=100)
    top_k: int | None = Field(None, ge=0, le=2**31 - 1)
    top_p: float | None = Field(None, ge=1e-6, le=1)
    min_p: float | None = Field(None, ge=0, le=1)
    presence_penalty: float = Field(0, ge=-2, le=2)
    frequency_penalty: float = Field(0, ge=-2, le=2)
    logit_bias: Annotated[dict[int, Bias], Field(max_length=1024), BeforeValidator(_biases)] = {}
    min_tokens: int = Field(0, ge=0, le=2**31 - 1)
    ignore_eos: bool = False
    seed: int | None = Field(None, ge=0, le=2**32 - 1)
    n: int = Field(1, ge=1, le=_MOST_RESULTS)
    stop: Annotated[
        list[Stop], Field(max_length=16), BeforeValidator(as_list, json_schema_input_type=Stop | list[Stop])
    ] = []
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()

    @pydantic.model_validator(mode="after")
    def _can_be_long_enough(self) -> Self:
        most = self._most()
        if most is not None and self.min_tokens > most:
            raise ValueError(f"min_tokens must be at most the most tokens of a text, {most}")
        return self

    @property
    def written(self) -> int:
        """Number of texts that are written for each prompt; `n` of them are returned."""
        return self.n

    def _most(self) -> int | None:
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    def request(self) -> dict[str, Any]:
        """Returns the fields of a request to a worker, but for the prompt."""
        settings = self.model_dump(include={"temperature", "top_k", "top_p", "min_p", "seed", "stop"})
        changes = self.model_dump(include=set(ADJUSTMENTS), exclude_defaults=True)
        if "logit_bias" in changes:
            changes["logit_bias"] = list(changes["logit_bias"].items())
        told = {} if self.alternatives is None else {"tells_tokens": True, "alternatives": self.alternatives}
        return {"max_new_tokens": self._most(), **settings, **changes, **told}

    @property
    def alternatives(self) -> int | None:
        """Number of most probable tokens that are told with each token; None if no tokens are."""
        raise NotImplementedError


class CompletionBody(WritingBody):
    """A request for texts that continue prompts; prompts are texts or token ids."""

    prompt: Annotated[list[str | list[int]], PlainValidator(_prompts, json_schema_input_type=Prompts)]
    # none to score a prompt alone
    max_tokens: Annotated[int, AfterValidator(_none_or_more)] | None = None
    echo: bool = False
    logprobs: int | None = Field(None, ge=0, le=MOST_ALTERNATIVES)
    best_of: int | None = Field(None, ge=1, le=_MOST_RESULTS)

    @pydantic.model_validator(mode="after")
    def _returns_the_best(self) -> Self:
        if self.written < self.n:
            raise ValueError(f"best_of must be at least n, {self.n}")
        if self.stream and self.written > self.n:
            raise ValueError("best_of must be n in a stream: which texts are the best is known at their ends")
        return self

    @property
    def written(self) -> int:
        return self.n if self.best_of is None else self.best_of

    @pydantic.model_validator(mode="after")
    def _answers_something(self) -> Self:
        if self._most() == 0 and not self.echo:
            raise ValueError("max_tokens must be at least 1 without echo")
        return self

    @property
    def alternatives(self) -> int | None:
        return self.logprobs

    def request(self) -> dict[str, Any]:
        return {**super().request(), "echo": self.echo}


class ChatBody(WritingBody):
    """A request for answers to a conversation."""

    idle = {**{name: values for name, values in _IDLE.items() if name not in _OF_CHAT}, "best_of": (1,)}
    messages: Annotated[list[Message], Field(min_length=1), AfterValidator(few)]
    tools: Annotated[list[Tool], Field(max_length=256)] = []
    tool_choice: Annotated[Literal["none", "auto", "required"] | NamedTool, BeforeValidator(_choice)] = "auto"
    parallel_tool_calls: bool = True
    logprobs: bool = False
    top_logprobs: int = Field(0, ge=0, le=MOST_ALTERNATIVES)

    @pydantic.model_validator(mode="after")
    def _chooses_a_tool(self) -> Self:
        names = [tool.function.name for tool in self.tools]
        if len({*names}) < len(names):
            raise ValueError("tools must have different names")
        if isinstance(self.tool_choice, NamedTool) and self.tool_choice.function.name not in names:
            raise ValueError("tool_choice must name one of tools")
        if self.tool_choice == "required" and not names:
            raise ValueError("tool_choice must be auto or none without tools")
        return self

    @pydantic.model_validator(mode="after")
    def _tells_tokens(self) -> Self:
        if self.top_logprobs and not self.logprobs:
            raise ValueError("top_logprobs must be 0 without logprobs")
        return self

    @property
    def alternatives(self) -> int | None:
        return self.top_logprobs if self.logprobs else None

    @property
    def has_strict_tools(self) -> bool:
        """Whether calls of a tool must fit its schema whatever is chosen."""
        return any(tool.function.strict for tool in self.tools)

    @property
    def held_functions(self) -> list[dict[str, Any]]:
        """The functions that an answer may call; with schemas that it is held to, if it is held to anything."""
        functions, is_free = [tool.function for tool in self.tools], self.tool_choice == "auto"
        if isinstance(self.tool_choice, NamedTool):
            functions = [each for each in functions if each.name == self.tool_choice.function.name]
        return [
            {"name": each.name, "parameters": None if is_free and not each.strict else each.parameters}
            for each in functions
        ]

    @property
    def most_calls(self) -> int | None:
        """Most calls of an answer; None for any number."""
        return None if self.parallel_tool_calls and not isinstance(self.tool_choice, NamedTool) else 1

    def request(self) -> dict[str, Any]:
        talk = {"messages": [message.request() for message in self.messages]}
        if self.tools and self.tool_choice != "none":
            talk["tools"] = [tool.request() for tool in self.tools]
            talk["most_calls"] = self.most_calls
        return {**talk, **super().request()}


class EmbeddingBody(Fields):
    """A request for the vectors of texts, which are texts or token ids."""

    idle = {**_IDLE, "frequency_penalty": (0,), "presence_penalty": (0,), "logit_bias": ({},)}
    notes = _NOTES
    model: str
    input: Annotated[list[str] | list[list[int]], PlainValidator(_inputs, json_schema_input_type=Inputs)]
    encoding_format: Literal["float", "base64"] = "float"
    # None for the width of the model
    dimensions: int | None = None
