"""Endpoints as a SavedModel, for TensorFlow Serving and for processes that know only TensorFlow."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import keras

from zoo.export.card import model_card
from zoo.export.endpoint import Endpoint, describe
from zoo.export.folder import ASSETS_FOLDER, export_folder, write_description
from zoo.export.formats import require_format
from zoo.export.graphs import graph_function, named_outputs, specs_of
from zoo.export.requests import WARMUP_FILE, Request, write_warmup
from zoo.export.serving_versions import describe_operations, operations_of
from zoo.storage import check_path

CARD_FILE = "model_card.md"


def write_saved_model(
    directory: str | os.PathLike[str],
    endpoints: Mapping[str, Endpoint],
    *,
    variables: Iterable[keras.Variable],
    resources: Any = (),
    save_assets: Callable[[str], None] | None = None,
    title: str = "SavedModel",
    requests: Sequence[Request] = (),
) -> None:
    """Writes a SavedModel whose functions are the endpoints, whole or not at all.

    The loaded model has a function and a signature for each endpoint, with its name. The signature of the first
    endpoint is also "serving_default". A signature returns a dictionary with the names of the outputs. The folder also
    holds:

    * `signature.json`, which describes all inputs and outputs, and names the operations and the oldest TensorFlow
      Serving that supports them, see `zoo.export.serving_versions`.
    * `model_card.md`, which shows the answers to the requests.
    * `assets.extra`, with the assets, and the requests in `tf_serving_warmup_requests`, which a server runs before it
      reports that it is ready.

    Args:
        directory: The directory to write. An export that it holds is replaced.
        endpoints: The endpoints by name.
        variables: The variables that the endpoints read.
        resources: Tables and other TensorFlow objects that the endpoints read.
        save_assets: Writes further files, such as those of the tokenizer, to a folder.
        title: Title of the model card.
        requests: Requests with real inputs.

    Raises:
        ValueError: If the backend is not TensorFlow, an endpoint does not return the tensors that it names, or
            TensorFlow cannot load a SavedModel from the path (`zoo.storage.check_path`).
        FileExistsError: If the directory exists and does not hold an export.

    Example:

    >>> write_saved_model("exported", model.endpoints(), variables=model.variables)
    """
    require_format("tf_saved_model")
    check_path(directory, "directory", saved_model=True)
    import tensorflow as tf

    module = tf.Module()
    module.model_variables = [variable.value for variable in variables]
    module.resources = resources
    signatures: dict[str, Any] = {}
    written: dict[str, Any] = {}
    for name, endpoint in endpoints.items():
        function, signatures[name] = _functions(name, endpoint, written)
        setattr(module, name, function)
    signatures["serving_default"] = signatures[next(iter(endpoints))]
    with export_folder(directory, endpoints, save_assets=save_assets) as folder:
        tf.saved_model.save(module, str(folder), signatures=signatures)
        operations = describe_operations(operations_of(folder))
        write_description(folder, {**describe(endpoints), **operations})
        answers = [(each, _answer(written[each.endpoint], endpoints[each.endpoint], each)) for each in requests]
        card = model_card(title, endpoints, answers, operations["tf_serving"])
        (folder / CARD_FILE).write_text(card, encoding="utf-8")
        if requests:
            (folder / ASSETS_FOLDER).mkdir()
            write_warmup(folder / ASSETS_FOLDER / WARMUP_FILE, endpoints, requests)


def _answer(written: Any, endpoint: Endpoint, request: Request) -> dict[str, Any]:
    """The outputs for a request, as arrays, by the function that was just written."""
    tensors = request.tensors(endpoint)
    outputs = written(*(tensors[field.name] for field in endpoint.inputs))
    return {name: tensor.numpy() for name, tensor in named_outputs(endpoint, outputs).items()}


def _functions(name: str, endpoint: Endpoint, written: dict[str, Any]) -> tuple[Any, Any]:
    """The endpoint as a function and as a signature, and by its name in `written` as soon as it is traced.

    Both are traced when they are saved, not before: tracing takes most of the time of an export, and TensorFlow traces
    again for the file whatever was traced outside of it. It would do so a third time for a call of the function after
    saving, so that what it traced for the file is kept for that.
    """
    import tensorflow as tf

    specs = specs_of(endpoint)
    function = tf.function(graph_function(name, endpoint), input_signature=specs, autograph=False)

    def named(*inputs: Any) -> dict[str, Any]:
        written[name] = function.get_concrete_function()
        return named_outputs(endpoint, function(*inputs))

    return function, tf.function(named, input_signature=specs, autograph=False)
