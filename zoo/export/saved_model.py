"""Writing a task as a SavedModel: endpoints that take and return strings and numbers."""

import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from zoo.storage import replace_folder


class Endpoint(NamedTuple):
    """A function of a SavedModel.

    Args:
        function: From tensors to a tensor, or to a dictionary of tensors.
        inputs: Name, shape and type of each argument, `(("texts", (None,), "string"), ...)`.
        output: Name of the output in the signature, where the function returns one tensor.
    """

    function: Callable
    inputs: tuple[tuple[str, tuple, str], ...]
    output: str | None = None


def require_tensorflow() -> Any:
    """Returns the tensorflow module.

    Raises:
        ValueError: If Keras runs on another backend.
    """
    import keras

    if keras.backend.backend() != "tensorflow":
        raise ValueError(
            f"A SavedModel can be written with the TensorFlow backend only, this is {keras.backend.backend()!r}: save "
            "the model with save_to_preset() and load it with KERAS_BACKEND=tensorflow."
        )
    import tensorflow as tf

    return tf


def save_endpoints(task: Any, directory: str | os.PathLike, endpoints: Mapping[str, Endpoint]) -> None:
    """Writes a SavedModel whose functions are the endpoints; the signatures have their names.

    The first endpoint is also "serving_default".

    Args:
        task: The task, for its weights and its tokenizer.
        directory: Where to; replaced if it holds a SavedModel.
        endpoints: By name.

    Raises:
        FileExistsError: If the directory exists and holds no SavedModel.
    """
    tf = require_tensorflow()
    module = tf.Module()
    module.weights = [variable.value for variable in task.variables]
    module.resources = task.tokenizer.trackables
    signatures = {}
    # an endpoint with two names is traced once
    made: dict[Endpoint, tuple[Any, Any]] = {}
    for name, endpoint in endpoints.items():
        if endpoint not in made:
            specs = [tf.TensorSpec(shape, dtype, argument) for argument, shape, dtype in endpoint.inputs]
            function = tf.function(endpoint.function, input_signature=specs, autograph=False)
            signature = function if endpoint.output is None else _named(function, specs, endpoint.output)
            made[endpoint] = function, signature
        function, signatures[name] = made[endpoint]
        setattr(module, name, function)
    signatures["serving_default"] = signatures[next(iter(endpoints))]
    with replace_folder(directory, lambda old: (old / "saved_model.pb").exists(), "SavedModel") as folder:
        tf.saved_model.save(module, str(folder), signatures=signatures)


def _named(function: Any, specs: list[Any], name: str) -> Any:
    import tensorflow as tf

    return tf.function(lambda *inputs: {name: function(*inputs)}, input_signature=specs, autograph=False)
