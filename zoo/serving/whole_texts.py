"""Texts of models that do not write token by token for a server: `generate` and `chat_generate`, as a whole."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

# The signature that is meant when none is named.
DEFAULT_SIGNATURE = "serving_default"
# Endpoints for the server alone: what they are fed says how much memory and time they take.
OF_THE_WRITER = ("begin", "advance")
# Fields of requests that change the probabilities of tokens; those that change nothing are not sent to a worker.
ADJUSTMENTS = ("presence_penalty", "frequency_penalty", "logit_bias", "min_tokens", "ignore_eos")


class UnknownSettingError(ValueError):
    """A request asks for what an endpoint does not take."""


def call_of(endpoints: Mapping[str, Any], request: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Returns the endpoint that writes a text, and its inputs.

    Args:
        endpoints: What `signature.json` says of each, by name.
        request: A request to a worker, as for `zoo.serving.worker.Worker`.

    Raises:
        UnknownSettingError: If the model writes no texts, or a setting is none of its endpoint's.

    Example:

    >>> call_of(endpoints, {"text": "1st of May 1999", "max_new_tokens": 8, "seed": None})
    ('generate', {'texts': ['1st of May 1999'], 'seed': 0, 'max_new_tokens': 8, 'temperature': -1.0, ...})
    """
    name = "chat_generate" if "messages" in request else "generate"
    endpoint = endpoints.get(name)
    if endpoint is None:
        raise UnknownSettingError(f"This model has no endpoint {name}.")
    [shape] = [field["shape"] for field in endpoint["outputs"] if field["name"] == "texts"] or [None]
    if shape != ["batch"]:
        raise UnknownSettingError("This model writes several texts for each: use its endpoints.")
    if request.get("stream"):
        raise UnknownSettingError("n and best_of must be 1 with this model.")
    if "token_ids" in request:
        raise UnknownSettingError("This model takes prompts as texts alone.")
    if any(message.keys() - {"role", "content"} for message in request.get("messages", ())):
        raise UnknownSettingError("tool_calls and tool_call_id are not taken by this model.")
    for key in ("min_p", "tools", *ADJUSTMENTS):
        if request.get(key) is not None:
            raise UnknownSettingError(f"{key} is not taken by this model.")
    if request.get("grammar") is not None:
        raise UnknownSettingError("This model writes no texts that follow a schema, an expression or a grammar.")
    if request.get("tells_tokens"):
        raise UnknownSettingError("logprobs are not known of the texts of this model.")
    if request.get("max_new_tokens") == 0:
        raise UnknownSettingError("max_tokens must be at least 1 with this model.")
    # what is not asked for is as the export has it, which a default of the field says
    inputs = {field["name"]: field["default"] for field in endpoint["inputs"] if field.get("default") is not None}
    inputs["stop"] = list(request.get("stop") or ())
    for key in ("temperature", "top_k", "top_p", "max_new_tokens"):
        if request.get(key) is not None:
            inputs[key] = request[key]
    draws = request["temperature"] > 0 if request.get("temperature") is not None else _draws(endpoint)
    # where nothing is drawn, the seed is of no account
    seed = request.get("seed")
    inputs["seed"] = (secrets.randbits(32) if seed is None else seed) if draws else 0
    if "messages" in request:
        roles, contents = ([[message[key] for message in request["messages"]]] for key in ("role", "content"))
        return name, {"roles": roles, "contents": contents, **inputs}
    return name, {"texts": [request["text"]], **inputs}


def _draws(endpoint: Mapping[str, Any]) -> bool:
    return bool(endpoint.get("properties", {}).get("draws", False))


def text_of(endpoint: Mapping[str, Any], request: Mapping[str, Any], outputs: Mapping[str, Any]) -> str:
    """Returns the text that a call has written, without its prompt.

    Args:
        endpoint: What `signature.json` says of it.
        request: As for `call_of`.
        outputs: Its outputs.
    """
    text = outputs["texts"][0]
    if endpoint.get("properties", {}).get("begins_with_prompt", False):
        text = text[len(request["text"].encode()) :]
    return text.decode("utf-8", "replace")
