"""The fields of requests for completions, chat and embeddings: what they may be, and what this server refuses."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from recipes.serving.limits import LimitsConfig
from recipes.serving.problems import Problem

# Fields that ask for what models here do not do: allowed with the value that asks for nothing.
_IDLE: dict[str, tuple[Any, ...]] = {
    "best_of": (1,),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "logit_bias": ({},),
    "logprobs": (False, 0),
    "top_logprobs": (0,),
    "suffix": ("",),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "functions": ([],),
    "function_call": ("none",),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "audio": (),
    "store": (False,),
    "service_tier": ("auto", "default"),
}
# Fields that describe the request to somebody else and change no answer.
_NOTES = ("user", "metadata", "safety_identifier", "prompt_cache_key")
_MOST_STOPS, _MOST_STOP_CHARACTERS, _MOST_RESULTS = 16, 256, 16


@dataclasses.dataclass(frozen=True)
class WritingBody:
    """What requests for texts have in common.

    Args:
        model: Name of the model.
        max_tokens: Most tokens of a text; None for as many as the export writes.
        temperature, top_k, top_p, min_p: Settings; None for those of the export.
        n: Number of results.
        seed: Seed; None for one by chance.
        stop: Stop strings.
        stream: Whether events are answered.
        include_usage: Whether the last event has the number of tokens.
    """

    model: str
    max_tokens: int | None
    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    n: int
    seed: int | None
    stop: tuple[str, ...]
    stream: bool
    include_usage: bool

    @property
    def results_per_prompt(self) -> int:
        return self.n

    def request(self) -> dict[str, Any]:
        """Returns the fields of a request to a worker, but for the prompt."""
        settings = {name: getattr(self, name) for name in ("temperature", "top_k", "top_p", "min_p")}
        return {"max_new_tokens": self.max_tokens, "seed": self.seed, "stop": list(self.stop), **settings}


@dataclasses.dataclass(frozen=True)
class CompletionBody(WritingBody):
    """A request for texts that continue prompts.

    Args:
        prompts: The prompts.
        echo: Whether texts begin with their prompts.
    """

    prompts: tuple[str, ...]
    echo: bool

    @classmethod
    def read(cls, body: dict[str, Any], limits: LimitsConfig) -> CompletionBody:
        """Returns the checked fields of a body.

        Raises:
            Problem: If a field is missing, unknown, wrong, or asks for what models here do not do.
        """
        fields = _Fields(body)
        prompt = fields.take("prompt", (str, list))
        prompts = (prompt,) if isinstance(prompt, str) else tuple(prompt)
        if not prompts or not all(isinstance(each, str) for each in prompts):
            raise Problem(422, "prompt must be a text or a list of texts; tokens are not taken.")
        return cls(**_writing(fields, limits), prompts=prompts, echo=fields.take("echo", bool, False), **fields.end())


@dataclasses.dataclass(frozen=True)
class ChatBody(WritingBody):
    """A request for answers to a conversation.

    Args:
        messages: Its messages, with `role` and `content`.
    """

    messages: tuple[dict[str, str], ...]

    @classmethod
    def read(cls, body: dict[str, Any], limits: LimitsConfig) -> ChatBody:
        """Returns the checked fields of a body.

        Raises:
            Problem: As for `CompletionBody.read`.
        """
        fields = _Fields(body)
        messages = fields.take("messages", list)
        if not messages or len(messages) > limits.rows:
            raise Problem(422, f"messages must be a list of 1 to {limits.rows} messages.")
        read = tuple(_message(message, place) for place, message in enumerate(messages))
        return cls(**_writing(fields, limits), messages=read, **fields.end())


@dataclasses.dataclass(frozen=True)
class EmbeddingBody:
    """A request for vectors.

    Args:
        model: Name of the model.
        texts: The texts.
        encoding_format: "float" or "base64".
        dimensions: Width of the vectors; None for that of the model.
    """

    model: str
    texts: list[str]
    encoding_format: str
    dimensions: int | None

    @classmethod
    def read(cls, body: dict[str, Any], limits: LimitsConfig) -> EmbeddingBody:
        """Returns the checked fields of a body.

        Raises:
            Problem: As for `CompletionBody.read`.
        """
        fields = _Fields(body)
        given = fields.take("input", (str, list))
        texts = [given] if isinstance(given, str) else given
        if not texts or not all(isinstance(text, str) for text in texts):
            raise Problem(422, "input must be a text or a list of texts; tokens are not taken.")
        if len(texts) > limits.rows:
            raise Problem(413, f"A request must have at most {limits.rows} texts.")
        model, form = fields.take("model", str), fields.take("encoding_format", str, "float")
        if form not in ("float", "base64"):
            raise Problem(422, "encoding_format must be float or base64.")
        return cls(model, texts, form, fields.number("dimensions", int, None, 1, 2**20), **fields.end())


class _Fields:
    """The fields of a body, taken one by one; what is left is unknown. A field that is null counts as absent."""

    def __init__(self, body: dict[str, Any]) -> None:
        self._left = _without_nulls(body)

    def take(self, name: str, kinds: Any, default: Any = ...) -> Any:
        value = self._left.pop(name, None)
        if value is None:
            if default is ...:
                raise Problem(422, f"{name} is missing.")
            return default
        if not isinstance(value, kinds) or (isinstance(value, bool) and kinds is not bool):
            names = [kind.__name__ for kind in (kinds if isinstance(kinds, tuple) else (kinds,))]
            raise Problem(422, f"{name} must be of the type {' or '.join(names)}.")
        return value

    def number(self, name: str, kind: type, default: Any, least: float, most: float) -> Any:
        value = self.take(name, int if kind is int else (int, float), default)
        if value is default:
            return default
        if not least <= value <= most:
            raise Problem(422, f"{name} must be from {least:g} to {most:g}.")
        return kind(value)

    def end(self) -> dict[str, Any]:
        """Raises a `Problem` if a field is left that means something."""
        for name in _NOTES:
            self._left.pop(name, None)
        for name, value in self._left.items():
            if name not in _IDLE:
                # a mistyped name is shown; what else stands there may be a text
                shown = f" {name!r}" if re.fullmatch(r"[A-Za-z_]{1,40}", name) else " of one of the names given"
                raise Problem(422, f"There is no field{shown}.")
            if not any(isinstance(value, bool) is isinstance(idle, bool) and value == idle for idle in _IDLE[name]):
                raise Problem(422, f"{name} is not supported.")
        return {}


def _writing(fields: _Fields, limits: LimitsConfig) -> dict[str, Any]:
    stop = fields.take("stop", (str, list), [])
    stops = (stop,) if isinstance(stop, str) else tuple(stop)
    if len(stops) > _MOST_STOPS or not all(isinstance(each, str) and each for each in stops):
        raise Problem(422, f"stop must be a text or a list of at most {_MOST_STOPS} texts, none of them empty.")
    if any(len(each) > _MOST_STOP_CHARACTERS for each in stops):
        raise Problem(422, f"A stop must have at most {_MOST_STOP_CHARACTERS} characters.")
    options = fields.take("stream_options", dict, {})
    if set(options) - {"include_usage", "include_obfuscation"}:
        raise Problem(422, "stream_options must have the key include_usage alone.")
    counts = [fields.number(name, int, None, 1, limits.new_tokens) for name in ("max_tokens", "max_completion_tokens")]
    return {
        "model": fields.take("model", str),
        "max_tokens": counts[0] if counts[1] is None else counts[1],
        "temperature": fields.number("temperature", float, None, 0, 100),
        "top_k": fields.number("top_k", int, None, 0, 2**31 - 1),
        "top_p": fields.number("top_p", float, None, 1e-6, 1),
        "min_p": fields.number("min_p", float, None, 0, 1),
        "n": fields.number("n", int, 1, 1, _MOST_RESULTS),
        "seed": fields.number("seed", int, None, 0, 2**32 - 1),
        "stop": stops,
        "stream": fields.take("stream", bool, False),
        "include_usage": bool(options.get("include_usage", False)),
    }


def _without_nulls(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _message(message: Any, place: int) -> dict[str, str]:
    """A message with a role and a text; parts of texts are joined.

    Clients send answers back with all fields that OpenAI's API has, null where there is nothing.
    """
    if not isinstance(message, dict) or not isinstance(message.get("role"), str) or not message["role"]:
        raise Problem(422, f"messages[{place}] must be an object with a role and a content.")
    message = _without_nulls(message)
    others = {name for name in set(message) - {"role", "content", "name", "refusal"} if message[name] != []}
    if others:
        raise Problem(422, f"messages[{place}] must have a role and a content alone.")
    content = message.get("content")
    if isinstance(content, list):
        kinds = [isinstance(part, dict) and part.get("type") == "text" for part in content]
        if not all(kinds) or not all(isinstance(part.get("text"), str) for part in content):
            raise Problem(422, f"messages[{place}].content must have parts of the type text alone.")
        content = "".join(part["text"] for part in content)
    if not isinstance(content, str):
        raise Problem(422, f"messages[{place}].content must be a text.")
    # newer models of OpenAI call the system "developer"
    return {"role": "system" if message["role"] == "developer" else message["role"], "content": content}
