"""The REST interface of TensorFlow Serving, so that its clients need no change."""

from __future__ import annotations

import asyncio
import base64
import binascii
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from zoo.serving import openai_rest
from zoo.serving.bodies import read_json
from zoo.serving.disconnects import unless_gone
from zoo.serving.problems import Problem
from zoo.serving.server_state import ServerState
from zoo.serving.whole_texts import DEFAULT_SIGNATURE, OF_THE_WRITER

# Numbers and texts of an answer that takes a while to be written.
_LARGE = 10_000
# Most of them in an answer: as JSON each takes some fifty bytes of memory.
MOST_ENTRIES = 2**22
_TYPES = {"string": "DT_STRING", "bool": "DT_BOOL", "int32": "DT_INT32", "int64": "DT_INT64", "float32": "DT_FLOAT"}
_STATES = {"LOADING": "LOADING", "AVAILABLE": "AVAILABLE", "UNLOADING": "UNLOADING", "FAILED": "END"}


def routes() -> list[Route]:
    """Returns the routes `/v1/models/NAME[/versions/N][:predict|:classify|/metadata]`."""
    found = []
    for path in ("/v1/models/{name}", "/v1/models/{name}/versions/{version}"):
        found += [
            Route(path + ":predict", predict, methods=["POST"]),
            Route(path + ":classify", classify, methods=["POST"]),
            Route(path + "/metadata", metadata, methods=["GET"]),
            Route(path, status, methods=["GET"]),
        ]
    return found


async def predict(request: Request) -> JSONResponse:
    """Answers `{"instances": [...]}`, row by row, or `{"inputs": ...}`, tensor by tensor."""
    state: ServerState = request.app.state.server
    body = await read_json(request, state.limits)
    _require_keys(body, {"signature_name", "instances", "inputs"})
    if ("instances" in body) == ("inputs" in body):
        raise Problem(400, "The body must have either instances or inputs.")
    async with state.models.worker(*place_of(request)) as worker:
        name, endpoint = find_endpoint(worker.about, body.get("signature_name", DEFAULT_SIGNATURE))
        fields = {field["name"]: field for field in endpoint["inputs"]}
        by_row = "instances" in body
        inputs = _from_instances(body["instances"], fields) if by_row else _from_inputs(body["inputs"], fields)
        state.require_rows(inputs.values())
        outputs = await unless_gone(request, worker.call(name, inputs, state.limits.seconds, state.client_of(request)))
    entries = sum(value.size for value in outputs.values())
    if entries > MOST_ENTRIES:
        raise Problem(422, f"An answer over HTTP must have at most {MOST_ENTRIES} entries, not {entries}: use gRPC.")
    if entries < _LARGE:
        return _predictions(outputs, by_row)
    # others are answered while it is written
    return await asyncio.to_thread(_predictions, outputs, by_row)


def _predictions(outputs: dict[str, np.ndarray], by_row: bool) -> JSONResponse:
    """The answer with outputs, row by row or tensor by tensor."""
    if not by_row:
        values = {key: _to_json(value, key) for key, value in outputs.items()}
        return JSONResponse({"outputs": values if len(values) > 1 else next(iter(values.values()))})
    counts = {len(value) if value.ndim else None for value in outputs.values()}
    if len(counts) > 1 or None in counts:
        raise Problem(422, "The outputs of this endpoint have no common rows: send inputs instead of instances.")
    columns = {key: _to_json(value, key) for key, value in outputs.items()}
    if len(columns) == 1:
        return JSONResponse({"predictions": next(iter(columns.values()))})
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return JSONResponse({"predictions": rows})


async def classify(request: Request) -> JSONResponse:
    """Answers `{"examples": [{"texts": ...}]}` with pairs of label and probability, all labels of each text."""
    state: ServerState = request.app.state.server
    body = await read_json(request, state.limits)
    _require_keys(body, {"signature_name", "examples", "context"})
    examples, context = body.get("examples"), body.get("context", {})
    if not isinstance(examples, list) or not all(isinstance(each, dict) for each in [*examples, context]):
        raise Problem(400, "examples must be a list of objects, and context an object.")
    async with state.models.worker(*place_of(request)) as worker:
        name, endpoint = find_endpoint(worker.about, body.get("signature_name", DEFAULT_SIGNATURE))
        outputs = {field["name"] for field in endpoint["outputs"]}
        if "label_names" not in worker.about["endpoints"] or "probabilities" not in outputs:
            raise Problem(422, "This model does not classify: use :predict.")
        fields = {field["name"]: field for field in endpoint["inputs"]}
        inputs = _from_instances([{**context, **example} for example in examples], fields)
        state.require_rows(inputs.values())
        answer = await unless_gone(request, worker.call(name, inputs, state.limits.seconds, state.client_of(request)))
        names = await worker.call("label_names", {}, state.limits.seconds, state.client_of(request))
    labels = _to_json(next(iter(names.values())), "labels")
    rows = answer["probabilities"].tolist()
    return JSONResponse({"result": [[list(pair) for pair in zip(labels, row, strict=True)] for row in rows]})


async def status(request: Request) -> JSONResponse:
    """Answers which versions of a model there are."""
    state: ServerState = request.app.state.server
    if request.scope["path"].endswith((":predict", ":classify")):  # a GET, as a request without a body often is
        raise Problem(405, "Send this request with POST and a body of JSON.")
    name, number = place_of(request)
    versions = [each for each in state.models.versions(name) if number in (None, each.number)]
    if not versions:
        raise Problem(404, f"There is no version {number} of the model {name!r}.")
    answers = [
        {
            "version": str(version.number),
            "state": _STATES[version.state],
            "status": {
                "error_code": "UNKNOWN" if version.state == "FAILED" else "OK",
                "error_message": "The version could not be loaded." if version.state == "FAILED" else "",
            },
        }
        for version in versions
    ]
    # the same address describes a model to clients of the other interface
    return JSONResponse({"model_version_status": answers, **openai_rest.describe(name)})


async def metadata(request: Request) -> JSONResponse:
    """Answers what the signatures of a model take and return."""
    state: ServerState = request.app.state.server
    name, number = place_of(request)
    version = state.models.served(name, number)
    signatures = signature_infos(version.worker.about)
    spec = {"name": name, "signature_name": "", "version": str(version.number)}
    return JSONResponse({"model_spec": spec, "metadata": {"signature_def": {"signature_def": signatures}}})


def place_of(request: Request) -> tuple[str, int | None]:
    """Returns name and version of the model in the path of a request; None for the version that is served.

    Raises:
        Problem: If the version is no number.
    """
    number = request.path_params.get("version")
    if number is not None and not (number.isascii() and number.isdigit() and len(number) < 19):
        raise Problem(404, "A version must be a number.")
    return request.path_params["name"], None if number is None else int(number)


def _require_keys(body: dict[str, Any], allowed: set[str]) -> None:
    unknown = sorted(set(body) - allowed)
    if unknown:
        raise Problem(400, f"The body may only have the keys {', '.join(sorted(allowed))}.")


def find_endpoint(about: dict[str, Any], name: Any) -> tuple[str, dict[str, Any]]:
    """Returns name and description of an endpoint.

    Args:
        about: What the worker said of the model.
        name: Name of a signature.

    Raises:
        Problem: If there is none of the name.
    """
    endpoints = {key: value for key, value in about["endpoints"].items() if key not in OF_THE_WRITER}
    name = about["default"] if name == DEFAULT_SIGNATURE else name
    if not isinstance(name, str) or name not in endpoints:
        raise Problem(400, f"signature_name must be one of {', '.join([DEFAULT_SIGNATURE, *endpoints])}.")
    return name, endpoints[name]


def signature_infos(about: dict[str, Any]) -> dict[str, Any]:
    """Returns the signatures of a model as TensorFlow describes them, by name."""
    signatures = {name: _signature(endpoint) for name, endpoint in about["endpoints"].items()}
    return {**signatures, DEFAULT_SIGNATURE: signatures[about["default"]]}


def _from_instances(instances: Any, fields: dict[str, Any]) -> dict[str, Any]:
    """Inputs of rows, each an object, or a value alone where there is one input."""
    if not isinstance(instances, list) or not instances:
        raise Problem(400, "instances must be a list with at least one entry.")
    if any(not field["shape"] or field["shape"][0] != "batch" for field in fields.values()):
        raise Problem(422, "This endpoint has inputs that all rows share: send inputs instead of instances.")
    rows = []
    for instance in instances:
        is_named = isinstance(instance, dict) and set(instance) != {"b64"}
        if not is_named and len(fields) != 1:
            raise Problem(400, f"Each instance must be an object with the keys {', '.join(fields)}.")
        row = instance if is_named else {next(iter(fields)): instance}
        if set(row) != set(fields):
            raise Problem(400, f"Each instance must have the keys {', '.join(fields)}.")
        rows.append(row)
    return {name: [_from_json(row[name]) for row in rows] for name in fields}


def _from_inputs(inputs: Any, fields: dict[str, Any]) -> dict[str, Any]:
    """Inputs by name, or one alone."""
    if len(fields) == 1 and not (isinstance(inputs, dict) and set(inputs) == set(fields)):
        inputs = {next(iter(fields)): inputs}
    if not isinstance(inputs, dict) or set(inputs) != set(fields):
        raise Problem(400, f"inputs must have the keys {', '.join(fields) or 'of no input'}.")
    return {name: _from_json(value) for name, value in inputs.items()}


def _from_json(value: Any) -> Any:
    """A value with `{"b64": ...}` as bytes."""
    if isinstance(value, list):
        return [_from_json(each) for each in value]
    if isinstance(value, dict):
        if set(value) != {"b64"} or not isinstance(value["b64"], str):
            raise Problem(400, 'A value must be a number, a text, a list of these, or {"b64": ...}.')
        try:
            return base64.b64decode(value["b64"], validate=True)
        except (binascii.Error, ValueError) as error:
            raise Problem(400, "b64 must be in base64.") from error
    if value is None:
        raise Problem(400, "A value must be a number, a text, or a list of these, got null.")
    return value


def _to_json(value: np.ndarray, name: str) -> Any:
    """A tensor as lists; texts in UTF-8, those whose name ends with _bytes in base64."""
    if value.dtype != object:
        return value.tolist()

    def text(content: bytes) -> Any:
        if name.endswith("_bytes"):
            return {"b64": base64.b64encode(content).decode()}
        return content.decode("utf-8", "replace")

    def walk(nested: Any) -> Any:
        return [walk(each) for each in nested] if isinstance(nested, list) else text(nested)

    return walk(value.tolist())


def _signature(endpoint: dict[str, Any]) -> dict[str, Any]:
    sides = {side: {field["name"]: _tensor_info(field) for field in endpoint[side]} for side in ("inputs", "outputs")}
    return {**sides, "method_name": "tensorflow/serving/predict", "defaults": {}}


def _tensor_info(field: dict[str, Any]) -> dict[str, Any]:
    sizes = [{"size": "-1" if isinstance(size, str) else str(size), "name": ""} for size in field["shape"]]
    dtype = _TYPES.get(field["dtype"], f"DT_{field['dtype'].upper()}")
    return {"dtype": dtype, "tensor_shape": {"dim": sizes, "unknown_rank": False}, "name": ""}
