"""The model card of an export: its endpoints, and its outputs for examples."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from zoo.export.endpoint import Endpoint, Field
from zoo.export.requests import Request

# entries of a list that are shown
_SHOWN = 8


def model_card(
    title: str,
    endpoints: Mapping[str, Endpoint],
    examples: Sequence[tuple[Request, Mapping[str, np.ndarray]]],
    oldest_server: str | None,
) -> str:
    """Returns a model card in Markdown.

    Args:
        title: Title of the model card.
        endpoints: The endpoints by name. The first is the default one.
        examples: Requests, and what the model answered: arrays by the names of the outputs.
        oldest_server: Oldest version of TensorFlow Serving that has all operations. None if an operation is not known.
    """
    default, first = next(iter(endpoints.items()))
    rows = "\n".join(
        f"| `{name}` | {_fields(endpoint.inputs)} | {_fields(endpoint.outputs)} | {endpoint.description} |"
        for name, endpoint in endpoints.items()
    )
    returned = "\n".join(f"* `{field.name}`: {field.description or field.dtype}" for field in first.outputs)
    given = ", ".join(f"{field.name}=..." for field in first.inputs)
    server = (
        f"TensorFlow Serving {oldest_server} and later have all operations of this model."
        if oldest_server
        else "It is not known which TensorFlow Serving has all operations of this model; see `signature.json`."
    )
    shown = "\n".join(_example(request, outputs) for request, outputs in examples)
    return f"""---
library_name: keras
tags:
- keras-transformer-zoo
---

# {title}

A SavedModel with these endpoints, `{default}` by default. Each is a signature of its name. `signature.json` describes
inputs and outputs.

| endpoint | inputs | outputs | |
| --- | --- | --- | --- |
{rows}

What `{default}` returns:

{returned}

{server}

```python
import tensorflow as tf
import tensorflow_text

served = tf.saved_model.load(".")
served.{default}({given})
```
{_examples(shown)}"""


def _fields(fields: Sequence[Field]) -> str:
    return ", ".join(f"`{field.name}` {field.dtype} ({', '.join(map(str, field.shape))})" for field in fields)


def _examples(shown: str) -> str:
    return (
        f"""
## Examples

Bodies of `POST /v1/models/NAME:predict`, and the answers of this model.

{shown}"""
        if shown
        else ""
    )


def _example(request: Request, outputs: Mapping[str, np.ndarray]) -> str:
    asked = {"signature_name": request.endpoint, "inputs": _plain(dict(request.inputs))}
    values = {name: _plain(array.tolist()) for name, array in outputs.items()}
    answer = {"outputs": next(iter(values.values())) if len(values) == 1 else values}
    return "\n".join(f"```json\n{json.dumps(part, ensure_ascii=False)}\n```\n" for part in (asked, answer))


def _plain(value: Any) -> Any:
    """Values for JSON, of long lists the first ones."""
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value[:_SHOWN]] + ["..."] * (len(value) > _SHOWN)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return float(f"{value:.5g}") if isinstance(value, float) else value
