"""Endpoints as a SavedModel, for TensorFlow Serving and for processes that know only TensorFlow."""

import inspect
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import keras

from layers.fusion import portable_operations
from zoo.export.card import model_card
from zoo.export.endpoint import Endpoint, describe
from zoo.export.requests import WARMUP_FILE, Request, write_warmup
from zoo.export.serving_versions import describe_operations, operations_of
from zoo.storage import replace_folder

# What else the folder of a SavedModel holds; servers leave it alone.
DESCRIPTION_FILE = "signature.json"
CARD_FILE = "model_card.md"
ASSETS_FOLDER = "assets.extra"


def require_format(format: Any) -> None:
    """Raises a ValueError if a format is not one that can be written, or not with this backend.

    Args:
        format: What the user passed as `format` of `export`.
    """
    if format != "tf_saved_model":
        raise ValueError(f"format must be 'tf_saved_model', got {format!r}.")
    if keras.backend.backend() != "tensorflow":
        raise ValueError(
            f"A SavedModel can be written with the TensorFlow backend only, this is {keras.backend.backend()!r}: save "
            "the model with save_to_preset() and load it with KERAS_BACKEND=tensorflow."
        )


def write_saved_model(
    directory: str | os.PathLike,
    endpoints: Mapping[str, Endpoint],
    *,
    variables: Iterable[keras.Variable],
    resources: Any = (),
    save_assets: Callable[[str], None] | None = None,
    title: str = "SavedModel",
    requests: Sequence[Request] = (),
) -> None:
    """Writes a SavedModel whose functions are the endpoints, whole or not at all.

    The loaded model has a function and a signature per endpoint, of its name; the signature of the first is also
    "serving_default". A signature returns a dictionary with the names of the outputs. The folder also holds

    * `signature.json`, which describes all inputs and outputs, and names the operations and the oldest TensorFlow
      Serving that has them, see `zoo.export.serving_versions`;
    * `model_card.md`, which shows the answers to the requests;
    * `assets.extra`, with the assets, and the requests in `tf_serving_warmup_requests`: a server answers them before it
      says that it is ready.

    Args:
        directory: Where to; replaced if it holds a SavedModel.
        endpoints: By name.
        variables: The variables that the endpoints read.
        resources: Tables and other objects of TensorFlow that the endpoints read.
        save_assets: Writes further files, such as those of the tokenizer, to a folder.
        title: What the model is, for the card.
        requests: Requests with real inputs.

    Raises:
        ValueError: If the backend is not TensorFlow, or an endpoint returns other tensors than it names.
        FileExistsError: If the directory exists and holds no SavedModel.

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
    with replace_folder(directory, lambda old: (old / "saved_model.pb").exists(), "SavedModel") as folder:
        tf.saved_model.save(module, str(folder), signatures=signatures)
        operations = describe_operations(operations_of(folder))
        content = json.dumps({**describe(endpoints), **operations}, indent=2, ensure_ascii=False)
        (folder / DESCRIPTION_FILE).write_text(content + "\n", encoding="utf-8")
        answers = [(request, _answer(module, endpoints[request.endpoint], request)) for request in requests]
        card = model_card(title, endpoints, answers, operations["tf_serving"])
        (folder / CARD_FILE).write_text(card, encoding="utf-8")
        if save_assets is None and not requests:
            return
        (folder / ASSETS_FOLDER).mkdir()
        if save_assets is not None:
            save_assets(str(folder / ASSETS_FOLDER))
        if requests:
            write_warmup(folder / ASSETS_FOLDER / WARMUP_FILE, endpoints, requests)


def _answer(module: Any, endpoint: Endpoint, request: Request) -> dict[str, Any]:
    """The outputs for a request, as arrays, by the functions that were just written."""
    outputs = getattr(module, request.endpoint)(**request.tensors(endpoint))
    return {name: tensor.numpy() for name, tensor in _named(endpoint, outputs).items()}


def _functions(name: str, endpoint: Endpoint) -> tuple[Any, Any]:
    """The endpoint as a function and as a signature. Both are traced when they are saved, not before: tracing takes
    most of the time of an export, and TensorFlow traces again for the file whatever was traced outside of it."""
    import tensorflow as tf

    specs = [tf.TensorSpec(field.sizes, field.dtype, field.name) for field in endpoint.inputs]

    def as_tensor(value: Any) -> Any:
        return value if tf.is_tensor(value) else tf.convert_to_tensor(value)

    def call(*inputs: Any) -> Any:
        with portable_operations():
            outputs = endpoint.function(*inputs)
        is_named = isinstance(outputs, dict)
        outputs = {key: as_tensor(value) for key, value in outputs.items()} if is_named else as_tensor(outputs)
        _require_outputs(name, endpoint, _named(endpoint, outputs))
        return outputs

    # arguments by name, too
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    call.__signature__ = inspect.Signature([inspect.Parameter(field.name, kind) for field in endpoint.inputs])
    function = tf.function(call, input_signature=specs, autograph=False)
    signature = tf.function(lambda *inputs: _named(endpoint, function(*inputs)), input_signature=specs, autograph=False)
    return function, signature


def _named(endpoint: Endpoint, outputs: Any) -> dict[str, Any]:
    return outputs if isinstance(outputs, dict) else {endpoint.outputs[0].name: outputs}


def _require_outputs(name: str, endpoint: Endpoint, outputs: Mapping[str, Any]) -> None:
    found = {key: (output.dtype.name, output.shape) for key, output in outputs.items()}
    for field in endpoint.outputs:
        dtype, shape = found.get(field.name, (None, None))
        is_complete = sorted(found) == sorted(field.name for field in endpoint.outputs)
        if not is_complete or dtype != field.dtype or not shape.is_compatible_with(field.sizes):
            raise ValueError(f"The endpoint {name!r} must return {endpoint.outputs}, it returns {found}.")
