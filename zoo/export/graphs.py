"""Endpoints as functions of TensorFlow, from which every writer starts."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from layers.fusion import portable_operations
from zoo.export.endpoint import Endpoint


def specs_of(endpoint: Endpoint) -> list[Any]:
    """Returns a `tf.TensorSpec` for each input.

    Args:
        endpoint: The endpoint.
    """
    import tensorflow as tf

    return [tf.TensorSpec(field.sizes, field.dtype, field.name) for field in endpoint.inputs]


def graph_function(
    name: str, endpoint: Endpoint, keras_forms: bool = False, converted: bool = False
) -> Callable[..., Any]:
    """Returns a function of tensors for tracing. It has plain operations, and also takes arguments by name.

    Args:
        name: Name of the endpoint, for errors.
        endpoint: The endpoint.
        keras_forms, converted: See `layers.fusion.portable_operations`.

    Raises:
        ValueError: In tracing, if the endpoint does not return the tensors that it names.
    """
    import tensorflow as tf

    def as_tensor(value: Any) -> Any:
        return value if tf.is_tensor(value) else tf.convert_to_tensor(value)

    def call(*inputs: Any) -> Any:
        with portable_operations(keras_forms=keras_forms, converted=converted):
            outputs = endpoint.function(*inputs)
        is_named = isinstance(outputs, dict)
        outputs = {key: as_tensor(value) for key, value in outputs.items()} if is_named else as_tensor(outputs)
        _require_outputs(name, endpoint, named_outputs(endpoint, outputs))
        return outputs

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    call.__signature__ = inspect.Signature([inspect.Parameter(field.name, kind) for field in endpoint.inputs])
    return call


def named_function(name: str, endpoint: Endpoint, keras_forms: bool = False) -> Any:
    """Returns the endpoint as a `tf.function` with a dictionary of the named outputs, for other runtimes.

    Args:
        name: Name of the endpoint, for errors.
        endpoint: The endpoint.
        keras_forms: See `layers.fusion.portable_operations`.
    """
    import tensorflow as tf

    call = graph_function(name, endpoint, keras_forms, converted=True)

    def named(*inputs: Any) -> dict[str, Any]:
        # an output that is an input needs a tensor of its own
        return {key: tf.identity(value) for key, value in named_outputs(endpoint, call(*inputs)).items()}

    return tf.function(named, input_signature=specs_of(endpoint), autograph=False)


def named_outputs(endpoint: Endpoint, outputs: Any) -> dict[str, Any]:
    """Returns outputs by name, also if the function returns its only output without a dictionary.

    Args:
        endpoint: The endpoint.
        outputs: The value that its function returned.
    """
    return outputs if isinstance(outputs, dict) else {endpoint.outputs[0].name: outputs}


def _require_outputs(name: str, endpoint: Endpoint, outputs: Mapping[str, Any]) -> None:
    found = {key: (output.dtype.name, output.shape) for key, output in outputs.items()}
    for field in endpoint.outputs:
        dtype, shape = found.get(field.name, (None, None))
        is_complete = sorted(found) == sorted(field.name for field in endpoint.outputs)
        if not is_complete or dtype != field.dtype or not shape.is_compatible_with(field.sizes):
            raise ValueError(f"The endpoint {name!r} must return {endpoint.outputs}, it returns {found}.")
