"""Endpoints as a SavedModel, for TensorFlow Serving and for processes that know only TensorFlow."""

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import keras

from zoo.export.endpoint import Endpoint
from zoo.export.folder import export_folder
from zoo.export.formats import require_format
from zoo.export.graphs import graph_function, named_outputs, specs_of


def write_saved_model(
    directory: str | os.PathLike,
    endpoints: Mapping[str, Endpoint],
    *,
    variables: Iterable[keras.Variable],
    resources: Any = (),
    save_assets: Callable[[str], None] | None = None,
) -> None:
    """Writes a SavedModel whose functions are the endpoints, whole or not at all.

    The loaded model has a function and a signature per endpoint, of its name; the signature of the first is also
    "serving_default". A signature returns a dictionary with the names of the outputs. The folder also holds
    `signature.json`, which describes all inputs and outputs, and the assets in `assets.extra`.

    Args:
        directory: Where to; replaced if it holds an export.
        endpoints: By name.
        variables: The variables that the endpoints read.
        resources: Tables and other objects of TensorFlow that the endpoints read.
        save_assets: Writes further files, such as those of the tokenizer, to a folder.

    Raises:
        ValueError: If the backend is not TensorFlow, or an endpoint returns other tensors than it names.
        FileExistsError: If the directory exists and holds no export.

    Example:

    >>> write_saved_model("exported", model.endpoints(), variables=model.variables)
    """
    require_format("tf_saved_model")
    import tensorflow as tf

    module = tf.Module()
    module.model_variables = [variable.value for variable in variables]
    module.resources = resources
    signatures = {}
    for name, endpoint in endpoints.items():
        function, signatures[name] = _functions(name, endpoint)
        setattr(module, name, function)
    signatures["serving_default"] = signatures[next(iter(endpoints))]
    with export_folder(directory, endpoints, save_assets=save_assets) as folder:
        tf.saved_model.save(module, str(folder), signatures=signatures)


def _functions(name: str, endpoint: Endpoint) -> tuple[Any, Any]:
    """The endpoint as a function and as a signature. Both are traced when they are saved, not before: tracing takes
    most of the time of an export, and TensorFlow traces again for the file whatever was traced outside of it."""
    import tensorflow as tf

    specs = specs_of(endpoint)
    function = tf.function(graph_function(name, endpoint), input_signature=specs, autograph=False)

    def named(*inputs: Any) -> dict[str, Any]:
        return named_outputs(endpoint, function(*inputs))

    return function, tf.function(named, input_signature=specs, autograph=False)
