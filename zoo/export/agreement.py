"""Comparison of the outputs of an export in its own runtime with those of Python."""

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
    """Returns, for each endpoint with an example, how much its outputs differ from those of Python.

    Args:
        folder: Folder of the export.
        endpoints: The endpoints by name.
        exact: Whether the outputs must be equal, up to the order of sums.

    Returns:
        By endpoint and output `largest_difference` and `largest_value` (in Python), and for logits and probabilities
        `same_choice`, the share of the rows whose largest entry is the same one.

    Raises:
        ValueError: If outputs differ that must be equal.
    """
    model, found = ExportedModel(folder), {}
    for name, endpoint in endpoints.items():
        if endpoint.example is None:
            continue
        outputs, expected = model(name, **endpoint.example), _of_python(name, endpoint)
        if exact:
            for key, value in expected.items():
                _require_close(name, key, outputs[key], value)
        found[name] = {key: _compared(key, outputs[key], value) for key, value in expected.items()}
    return found


def _of_python(name: str, endpoint: Endpoint) -> dict[str, np.ndarray]:
    import tensorflow as tf

    inputs = [tf.constant(endpoint.example[field.name], field.dtype) for field in endpoint.inputs]
    return {key: value.numpy() for key, value in named_function(name, endpoint)(*inputs).items()}


def _require_close(name: str, key: str, found: np.ndarray, expected: np.ndarray) -> None:
    is_close = found.shape == expected.shape and np.allclose(found, expected, rtol=TOLERANCE, atol=TOLERANCE)
    if not is_close:
        difference = _difference(found, expected) if found.shape == expected.shape else f"shapes, {found.shape}"
        raise ValueError(
            f"The output {key!r} of the endpoint {name!r} differs from Python's by {difference}: the converter does "
            "not write what this model computes. A SavedModel (format='tf_saved_model') holds every model."
        )


def _difference(found: np.ndarray, expected: np.ndarray) -> float:
    return float(f"{np.abs(found.astype('float64') - expected.astype('float64')).max(initial=0.0):.3g}")


def _compared(key: str, found: np.ndarray, expected: np.ndarray) -> dict[str, float]:
    largest = float(f"{np.abs(expected.astype('float64')).max(initial=0.0):.3g}")
    values = {"largest_difference": _difference(found, expected), "largest_value": largest}
    if key in ("logits", "probabilities"):
        values["same_choice"] = float(np.mean(found.argmax(axis=-1) == expected.argmax(axis=-1)))
    return values
