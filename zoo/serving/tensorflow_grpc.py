"""The gRPC interface of TensorFlow Serving: `PredictionService` and the status of models."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import unquote

import grpc
import numpy as np
import tensorflow as tf
from google.protobuf import any_pb2
from google.protobuf.message import DecodeError
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    predict_pb2,
)

from zoo.serving.problems import Problem, problem_of
from zoo.serving.server_state import ServerState
from zoo.serving.tensorflow_rest import find_endpoint, signature_infos
from zoo.serving.whole_texts import DEFAULT_SIGNATURE

# Most numbers or texts of a tensor of a request: a small message can describe a large one.
MOST_ENTRIES = 2**22
_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    404: grpc.StatusCode.NOT_FOUND,
    413: grpc.StatusCode.INVALID_ARGUMENT,
    422: grpc.StatusCode.INVALID_ARGUMENT,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}
_STATES = {"LOADING": "LOADING", "AVAILABLE": "AVAILABLE", "UNLOADING": "UNLOADING", "FAILED": "END"}
_log = logging.getLogger(__name__)


async def start_grpc(state: ServerState, host: str, port: int) -> tuple[grpc.aio.Server, int]:
    """Returns a running server, and the port that it listens at.

    Args:
        state: Models, limits and counters, shared with HTTP.
        host: Address to listen at.
        port: Port; 0 for a free one.
    """
    server = grpc.aio.server(
        options=[
            ("grpc.max_receive_message_length", state.limits.body_bytes),
            ("grpc.so_reuseport", 0),
        ]
    )
    service = _Service(state)
    for package, methods in {
        "tensorflow.serving.PredictionService": {
            "Predict": (service.predict, predict_pb2.PredictRequest),
            "Classify": (service.classify, classification_pb2.ClassificationRequest),
            "GetModelMetadata": (service.metadata, get_model_metadata_pb2.GetModelMetadataRequest),
        },
        "tensorflow.serving.ModelService": {
            "GetModelStatus": (service.status, get_model_status_pb2.GetModelStatusRequest)
        },
    }.items():
        handlers = {name: service.handler(f"/{package}/{name}", *method) for name, method in methods.items()}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(package, handlers),))
    port = server.add_insecure_port(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
    await server.start()
    return server, port


class _Service:
    """The methods; others of the interface are answered UNIMPLEMENTED."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    def handler(self, path: str, method: Callable[[Any, Any], Awaitable[Any]], kind: Any) -> grpc.RpcMethodHandler:
        """Returns how gRPC calls a method.

        Args:
            path: Its path, for the counters.
            method: From a message and the context of the call to a message.
            kind: The class of the messages that it takes.
        """

        async def call(content: bytes, context: Any) -> bytes:
            async def answer() -> Any:
                # parsed here: what is no message is a mistake of the client, and nothing for the log
                try:
                    request = kind.FromString(content)
                except DecodeError as error:
                    raise Problem(400, "The request is no message of this method.") from error
                return (await method(request, context)).SerializeToString()

            # counted with the statuses of HTTP; 499 stands for clients that have gone
            began, status, metrics = time.monotonic(), 499, self._state.metrics
            with metrics.open_requests.track_inprogress():
                try:
                    answered = await self._answer(context, answer)
                    status = 200
                    return answered
                except Exception as error:  # whatever a method raises has a status
                    problem = problem_of(error)
                    status = problem.status
                    if status not in _CODES:
                        _log.error("A request failed: %s", type(error).__name__)
                    await context.abort(_CODES.get(status, grpc.StatusCode.INTERNAL), problem.reason)
                    raise  # never: `abort` raises
                finally:
                    seconds, headers = time.monotonic() - began, dict(context.invocation_metadata() or ())
                    metrics.answered("POST", path, status, seconds)
                    self._state.trace("POST", path, status, seconds, headers)

        return grpc.unary_unary_rpc_method_handler(call)

    def _client(self, context: Any) -> str:
        """Who asks, as over HTTP: a peer is such as `ipv4:127.0.0.1:4242` or `ipv6:%5B::1%5D:4242`."""
        address = unquote(context.peer()).partition(":")[2].rpartition(":")[0].strip("[]")
        header = (self._state.client_header or "").lower()
        named = [value for name, value in context.invocation_metadata() or () if name == header]
        return self._state.client_named(named, address)

    async def _answer(self, context: Any, function: Callable[[], Awaitable[Any]]) -> Any:
        headers = {key: value for key, value in context.invocation_metadata() or ()}
        self._state.require_key(headers.get("authorization"))
        return await function()

    async def predict(self, request: Any, context: Any) -> Any:
        spec = request.model_spec
        async with self._state.models.version(*_place(spec)) as version:
            worker = version.worker
            name, endpoint = find_endpoint(worker.about, spec.signature_name or DEFAULT_SIGNATURE)
            expected = {field["name"] for field in endpoint["inputs"]}
            if set(request.inputs) != expected:
                raise Problem(422, f"inputs must have the keys {', '.join(sorted(expected)) or 'of no input'}.")
            inputs = {key: self._array(key, request.inputs[key]) for key in expected}
            outputs = await worker.call(name, inputs, self._seconds(context), self._client(context))
        wanted = list(request.output_filter) or list(outputs)
        unknown = [key for key in wanted if key not in outputs]
        if unknown:
            raise Problem(422, f"output_filter must hold {', '.join(outputs)} alone.")
        response = predict_pb2.PredictResponse()
        _fill(response.model_spec, spec.name, version.number, spec.signature_name or DEFAULT_SIGNATURE)
        for key in wanted:
            response.outputs[key].CopyFrom(tf.make_tensor_proto(outputs[key]))
        return response

    async def classify(self, request: Any, context: Any) -> Any:
        spec = request.model_spec
        async with self._state.models.version(*_place(spec)) as version:
            worker = version.worker
            name, endpoint = find_endpoint(worker.about, spec.signature_name or DEFAULT_SIGNATURE)
            if "label_names" not in worker.about["endpoints"] or "probabilities" not in {
                field["name"] for field in endpoint["outputs"]
            }:
                raise Problem(422, "This model does not classify: use Predict.")
            inputs = self._examples(request.input, [field["name"] for field in endpoint["inputs"]])
            answer = await worker.call(name, inputs, self._seconds(context), self._client(context))
            labels = next(
                iter((await worker.call("label_names", {}, self._seconds(context), self._client(context))).values())
            )
        response = classification_pb2.ClassificationResponse()
        _fill(response.model_spec, spec.name, version.number, spec.signature_name or DEFAULT_SIGNATURE)
        for row in answer["probabilities"].tolist():
            classes = response.result.classifications.add().classes
            for label, score in zip(labels, row, strict=True):
                classes.add(label=label.decode("utf-8", "replace"), score=score)
        return response

    async def metadata(self, request: Any, context: Any) -> Any:
        if list(request.metadata_field) != ["signature_def"]:
            raise Problem(422, "metadata_field must be signature_def.")
        version = self._state.models.served(*_place(request.model_spec))
        response = get_model_metadata_pb2.GetModelMetadataResponse()
        _fill(response.model_spec, request.model_spec.name, version.number, "")
        signatures = get_model_metadata_pb2.SignatureDefMap()
        for name, infos in signature_infos(version.worker.about).items():
            signature = signatures.signature_def[name]
            signature.method_name = infos["method_name"]
            for side in ("inputs", "outputs"):
                for key, info in infos[side].items():
                    tensor = getattr(signature, side)[key]
                    kinds = tensor.DESCRIPTOR.fields_by_name["dtype"].enum_type.values_by_name
                    tensor.dtype = kinds[info["dtype"]].number
                    for size in info["tensor_shape"]["dim"]:
                        tensor.tensor_shape.dim.add(size=int(size["size"]))
        packed = any_pb2.Any()
        packed.Pack(signatures)
        response.metadata["signature_def"].CopyFrom(packed)
        return response

    async def status(self, request: Any, context: Any) -> Any:
        name, number = _place(request.model_spec)
        response = get_model_status_pb2.GetModelStatusResponse()
        for version in self._state.models.versions(name):
            if number in (None, version.number):
                status = response.model_version_status.add(version=version.number)
                status.state = get_model_status_pb2.ModelVersionStatus.State.Value(_STATES[version.state])
                if version.state == "FAILED":
                    status.status.error_code = tf.errors.UNKNOWN
                    status.status.error_message = "The version could not be loaded."
        if not response.model_version_status:
            raise Problem(404, f"There is no version {number} of the model {name!r}.")
        return response

    def _seconds(self, context: Any) -> float:
        left = context.time_remaining()
        return self._state.limits.seconds if left is None else min(left, self._state.limits.seconds)

    def _array(self, name: str, proto: Any) -> np.ndarray:
        """A tensor of a request, as large as it says it is, within the limits."""
        sizes = [dim.size for dim in proto.tensor_shape.dim]
        if proto.tensor_shape.unknown_rank or any(size < 0 for size in sizes) or math.prod(sizes) > MOST_ENTRIES:
            raise Problem(413, f"The input {name!r} must have a known shape with at most {MOST_ENTRIES} entries.")
        if sizes and sizes[0] > self._state.limits.rows:
            raise Problem(413, f"A request must have at most {self._state.limits.rows} rows.")
        try:
            array = tf.make_ndarray(proto)
        except (TypeError, ValueError, KeyError) as error:
            raise Problem(422, f"The input {name!r} must be a tensor.") from error
        if array.dtype == object:
            self._state.require_short(array.ravel())
        return array

    def _examples(self, given: Any, names: list[str]) -> dict[str, Any]:
        """The texts of a list of `tf.Example`."""
        kind = given.WhichOneof("kind")
        examples = list(getattr(given, kind).examples) if kind else []
        shared = given.example_list_with_context.context if kind == "example_list_with_context" else None
        if not 0 < len(examples) <= self._state.limits.rows:
            raise Problem(413, f"A request must have from 1 to {self._state.limits.rows} examples.")
        rows: dict[str, list[bytes]] = {name: [] for name in names}
        for example in examples:
            features = {**(shared.features.feature if shared is not None else {}), **example.features.feature}
            for name in names:
                values = features[name].bytes_list.value if name in features else []
                if len(values) != 1:
                    raise Problem(422, f"Each example must have one text as the feature {name!r}.")
                rows[name].append(values[0])
        for texts in rows.values():
            self._state.require_short(texts)
        return rows


def _place(spec: Any) -> tuple[str, int | None]:
    """Name and version of a model; a version label is none of ours."""
    if spec.version_label:
        raise Problem(422, "version_label must be empty: versions have numbers.")
    return spec.name, spec.version.value if spec.HasField("version") else None


def _fill(spec: Any, name: str, version: int, signature: str) -> None:
    spec.name, spec.signature_name = name, signature
    spec.version.value = version
