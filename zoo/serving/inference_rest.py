"""The Open Inference Protocol (version 2 of KServe's), so that clients of KServe, Triton and MLServer need no change.

Reference:
    https://kserve.github.io/website/docs/concepts/architecture/data-plane/v2-protocol
    https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_binary_data.md
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from zoo.serving.bodies import parse_json, read_body
from zoo.serving.disconnects import unless_gone
from zoo.serving.inference_tensors import InputTensor, as_json, read_tensors, split_body, type_of, write_tensors
from zoo.serving.problems import Problem
from zoo.serving.request_fields import Fields
from zoo.serving.served_models import AVAILABLE, NotReadyError
from zoo.serving.server_state import ServerState
from zoo.serving.tensorflow_rest import MOST_ENTRIES, find_endpoint, place_of
from zoo.serving.whole_texts import DEFAULT_SIGNATURE
from zoo.version import __version__

HEADER = "Inference-Header-Content-Length"
HEALTH_PATHS = ("/v2/health/live", "/v2/health/ready")


class InferParameters(Fields):
    """What is asked for beyond the protocol: one of the endpoints, and outputs as bytes."""

    signature_name: str = DEFAULT_SIGNATURE
    binary_data_output: bool = False


class OutputParameters(Fields):
    """Whether an output is wanted as bytes."""

    binary_data: bool | None = None


class OutputTensor(Fields):
    """An output that is asked for."""

    name: str
    parameters: OutputParameters = OutputParameters()


class InferBody(Fields):
    """A request to a model."""

    id: str | None = None
    parameters: InferParameters = InferParameters()
    inputs: list[InputTensor]
    outputs: Annotated[list[OutputTensor], Field(min_length=1)] | None = None


def routes() -> list[Route]:
    """Returns the routes `/v2`, `/v2/health/...` and `/v2/models/NAME[/versions/N][/ready|/infer]`."""
    found = [
        Route("/v2", server, methods=["GET"]),
        Route(HEALTH_PATHS[0], live, methods=["GET"]),
        Route(HEALTH_PATHS[1], ready, methods=["GET"]),
    ]
    for path in ("/v2/models/{name}", "/v2/models/{name}/versions/{version}"):
        found += [
            Route(path, model, methods=["GET"]),
            Route(path + "/ready", model_ready, methods=["GET"]),
            Route(path + "/infer", infer, methods=["POST"]),
        ]
    return found


async def server(request: Request) -> JSONResponse:
    """Answers what the server is."""
    return JSONResponse({"name": "keras-transformer-zoo", "version": __version__, "extensions": ["binary_tensor_data"]})


async def live(request: Request) -> JSONResponse:
    """Answers that the server is alive."""
    return JSONResponse({"live": True})


async def ready(request: Request) -> JSONResponse:
    """Answers whether all models can answer."""
    states = request.app.state.server.models.states.values()
    is_ready = bool(states) and all(state == AVAILABLE.lower() for state in states)
    return JSONResponse({"ready": is_ready}, 200 if is_ready else 503)


async def model_ready(request: Request) -> JSONResponse:
    """Answers whether a model can answer."""
    name, number = place_of(request)
    try:
        request.app.state.server.models.served(name, number)
        is_ready = True
    except NotReadyError:
        is_ready = False
    return JSONResponse({"name": name, "ready": is_ready}, 200 if is_ready else 503)


async def model(request: Request) -> JSONResponse:
    """Answers what a model takes and returns."""
    models, (name, number) = request.app.state.server.models, place_of(request)
    served = models.served(name, number)
    _, endpoint = find_endpoint(served.worker.about, DEFAULT_SIGNATURE)
    numbers = sorted(version.number for version in models.versions(name))
    tensors = {side: [_describe(field) for field in endpoint[side]] for side in ("inputs", "outputs")}
    answer = {"name": name, "versions": [str(each) for each in numbers], "platform": "tensorflow_savedmodel"}
    return JSONResponse(answer | tensors)


def _describe(field: dict[str, Any]) -> dict[str, Any]:
    shape = [-1 if isinstance(size, str) else size for size in field["shape"]]
    return {"name": field["name"], "datatype": type_of(field["dtype"]), "shape": shape}


async def infer(request: Request) -> Response:
    """Answers the outputs of an endpoint for tensors."""
    state: ServerState = request.app.state.server
    content, behind = split_body(await read_body(request, state.limits), request.headers.get(HEADER))
    body = InferBody.read(parse_json(content, state.limits), state.limits)
    inputs = read_tensors(body.inputs, behind)
    state.require_rows(inputs.values())
    for value in inputs.values():
        if value.dtype == object:
            state.require_short(value.ravel())
    name, number = place_of(request)
    async with state.models.version(name, number) as version:
        key, endpoint = find_endpoint(version.worker.about, body.parameters.signature_name)
        expected = {field["name"] for field in endpoint["inputs"]}
        if set(inputs) != expected:
            raise Problem(422, f"inputs must have the names {', '.join(sorted(expected)) or 'of no input'}.")
        known = [field["name"] for field in endpoint["outputs"]]
        binary = body.parameters.binary_data_output
        wanted = dict.fromkeys(known, binary)
        if body.outputs is not None:
            asked = {each.name: each.parameters.binary_data for each in body.outputs}
            if not set(asked) <= set(known):
                raise Problem(422, f"outputs must have names of {', '.join(known)} alone.")
            wanted = {each: binary if own is None else own for each, own in asked.items()}
        answer = await unless_gone(
            request, version.worker.call(key, inputs, state.limits.seconds, state.client_of(request))
        )
        served = {"model_name": name, "model_version": str(version.number)}
    outputs = {each: answer[each] for each in wanted}
    entries = sum(value.size for each, value in outputs.items() if not wanted[each])
    if entries > MOST_ENTRIES:
        raise Problem(422, f"An answer in JSON must have at most {MOST_ENTRIES} entries, not {entries}.")
    said = served if body.id is None else {**served, "id": body.id}
    # others are answered while it is written
    return await asyncio.to_thread(_answer, said, outputs, wanted)


def _answer(said: dict[str, Any], outputs: dict[str, Any], is_binary: dict[str, bool]) -> Response:
    described, behind = write_tensors(outputs, is_binary)
    content = as_json({**said, "outputs": described})
    if not any(is_binary.values()):
        return Response(content, media_type="application/json")
    headers = {HEADER: str(len(content))}
    return Response(content + behind, media_type="application/octet-stream", headers=headers)
