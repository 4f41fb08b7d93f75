"""Texts of models that do not write token by token for a server: their endpoints `generate` and `chat`, as a whole."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

# Fields of requests that these endpoints have no inputs for, and the values that ask for nothing.
_IDLE = {"temperature": (None,), "top_k": (None,), "top_p": (None,), "min_p": (None,), "stop": (None, [])}


class UnknownSettingError(ValueError):
    """A request asks for what an endpoint does not take."""


def call_of(endpoints: Mapping[str, Any], request: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Returns the endpoint that writes a text, and its inputs.

    Args:
        endpoints: What `signature.json` says of each, by name.
        request: A request to a worker, as for `recipes.serving.worker.Worker`.

    Raises:
        UnknownSettingError: If the model writes no texts, or a setting is none of its endpoint's.

    Example:

    >>> call_of(endpoints, {"text": "1st of May 1999", "max_new_tokens": 8, "seed": None})
    ('generate', {'texts': ['1st of May 1999'], 'seed': 0, 'max_new_tokens': 8})
    """
    name = "chat" if "messages" in request else "generate"
    endpoint = endpoints.get(name)
    if endpoint is None:
        raise UnknownSettingError(f"This model has no endpoint {name}.")
    fields = {field["name"] for field in endpoint["inputs"]}
    draws = endpoint.get("properties", {}).get("draws", False)
    [shape] = [field["shape"] for field in endpoint["outputs"] if field["name"] == "texts"] or [None]
    if shape != ["batch"]:
        raise UnknownSettingError("This model writes several texts for each: use its endpoints.")
    for key, idle in _IDLE.items():
        if request.get(key) not in idle:
            raise UnknownSettingError(f"{key} is not taken by this model, whose export has settings of its own.")
    if request.get("stream"):
        raise UnknownSettingError("n must be 1 with this model.")
    inputs: dict[str, Any] = {}
    given = {"seed": request.get("seed"), "max_new_tokens": request.get("max_new_tokens")}
    # where nothing is drawn, texts with the same seed are written together
    defaults = {"seed": secrets.randbits(32) if draws else 0, "max_new_tokens": 0}
    for key, value in given.items():
        if key in fields:
            inputs[key] = defaults[key] if value is None else value
        elif value is not None and (draws or key != "seed"):
            raise UnknownSettingError(f"{key} is not taken by this model for conversations.")
    if not draws and "seed" in inputs:
        inputs["seed"] = 0
    if name == "chat":
        roles, contents = ([[message[key] for message in request["messages"]]] for key in ("role", "content"))
        return name, {"roles": roles, "contents": contents, **inputs}
    return name, {"texts": [request["text"]], **inputs}


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
