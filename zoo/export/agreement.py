"""What an export gives in its own runtime beside what Python gives."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from zoo.export.endpoint import Endpoint
from zoo.export.graphs import named_function
from zoo.export.run_model import ExportedModel

# Float32 has 24 bits; sums over some thousand terms in another order lose about ten of them.
TOLERANCE = 1e-3


def measured_agreement(folder: Path, endpoints: Mapping[str, Endpoint], *, exact: bool) -> dict[str, Any]:
    """Returns for each endpoint with an example the largest difference of its outputs from those of Python.

    Args:
        folder: The export.
        endpoints: By name.
        exact: Whether the outputs must be equal, but for the order of sums.

    Returns:
        By endpoint and output `largest_difference` and `largest_value` (in Python), and for logits and probabilities
        `same_choice`, the share of the rows whose largest entry is the same one.

    Raises:
        ValueError: If outputs differ that must not.
    """
    model, found = ExportedModel(folder), {}
    for name, endpoint in endpoints.items():
        if endpoint.example is None:
            continue
        outputs = model(name, **endpoint.example)
        expected = _of_python(name, endpoint)
        found[name] = {key: _compared(outputs[key], value) for key, value in expected.items()}
        for key in found[name].keys() & {"logits", "probabilities"}:
            same = outputs[key].argmax(axis=-1) == expected[key].argmax(axis=-1)
            found[name][key]["same_choice"] = float(np.mean(same))
        for key, values in found[name].items():
            allowed = TOLERANCE * max(1.0, values["largest_value"])
            if exact and not values["largest_difference"] <= allowed:
                raise ValueError(
                    f"The output {key!r} of the endpoint {name!r} differs from Python's by "
                    f"{values['largest_difference']:.2g} where {allowed:.2g} is allowed: the converter does not write "
                    "what this model computes. A SavedModel (format='tf_saved_model') holds every model."
                )
    return found


def _of_python(name: str, endpoint: Endpoint) -> dict[str, np.ndarray]:
    import tensorflow as tf

    inputs = [tf.constant(endpoint.example[field.name], field.dtype) for field in endpoint.inputs]
    return {key: value.numpy() for key, value in named_function(name, endpoint)(*inputs).items()}


def _compared(found: np.ndarray, expected: np.ndarray) -> dict[str, float]:
    if found.shape != expected.shape:
        return {"largest_difference": float("inf"), "largest_value": 0.0}
    first, second = found.astype("float64"), expected.astype("float64")
    return {
        "largest_difference": float(np.abs(first - second).max(initial=0.0)),
        "largest_value": float(np.abs(second).max(initial=0.0)),
    }
