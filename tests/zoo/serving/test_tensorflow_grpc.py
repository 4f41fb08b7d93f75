"""The server over gRPC, with the messages of TensorFlow Serving."""

import time

import numpy as np
import pytest

for name in ("msgpack", "starlette", "uvicorn", "grpc", "tensorflow_serving"):
    pytest.importorskip(name, reason="the extra serve is not installed")

import grpc  # noqa: E402
import tensorflow as tf  # noqa: E402
from tensorflow_serving.apis import (  # noqa: E402
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from zoo.serving.metrics import Metrics  # noqa: E402
from zoo.serving.options import Limits  # noqa: E402
from zoo.serving.served_models import ServedModels  # noqa: E402
from zoo.serving.server_state import ServerState  # noqa: E402
from zoo.serving.tensorflow_grpc import start_grpc  # noqa: E402

LIMITS = Limits(body_bytes=50_000, rows=8, text_characters=1000)


@pytest.fixture(scope="module")
def metrics():
    return Metrics()


@pytest.fixture(scope="module")
def channel(loop, chat_export, tmp_path_factory, metrics):
    folder = tmp_path_factory.mktemp("models")
    (folder / "chat").mkdir()
    (folder / "chat" / "3").symlink_to(chat_export)

    async def start():
        models = await ServedModels(folder, {}).__aenter__()
        await models.loaded()
        return models, *await start_grpc(ServerState(models, LIMITS, metrics, "secret"), "127.0.0.1", 0)

    models, server, port = loop.run(start())
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield channel
    loop.run(server.stop(1))
    loop.run(models.close())


KEY = [("authorization", "Bearer secret")]


@pytest.fixture
def service(channel):
    return prediction_service_pb2_grpc.PredictionServiceStub(channel)


def request_of(signature="score", name="chat", **inputs):
    request = predict_pb2.PredictRequest()
    request.model_spec.name, request.model_spec.signature_name = name, signature
    for key, value in inputs.items():
        request.inputs[key].CopyFrom(tf.make_tensor_proto(value))
    return request


def test_predict(service, chat_model):
    request = request_of(prompts=["hello ", ""], texts=["friend", "wörld"])
    request.model_spec.version.value = 3
    answer = service.Predict(request, metadata=KEY, timeout=300)
    expected = chat_model.score(["friend", "wörld"], ["hello ", ""])
    np.testing.assert_allclose(tf.make_ndarray(answer.outputs["log_likelihoods"]), expected, rtol=1e-4)
    assert answer.model_spec.version.value == 3
    texts = service.Predict(request_of("", texts=["hello"]), metadata=KEY, timeout=300).outputs["texts"]
    assert tf.make_ndarray(texts)[0].decode() == chat_model.generate("hello", jit_compile=False)


def test_status_and_metadata(channel, service):
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = "chat"
    status = model_service_pb2_grpc.ModelServiceStub(channel).GetModelStatus(request, metadata=KEY, timeout=300)
    [version] = status.model_version_status
    assert (version.version, version.state) == (3, get_model_status_pb2.ModelVersionStatus.AVAILABLE)
    request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    request.model_spec.name = "chat"
    answer = service.GetModelMetadata(request, metadata=KEY, timeout=300)
    signatures = get_model_metadata_pb2.SignatureDefMap()
    assert answer.metadata["signature_def"].Unpack(signatures)
    score = signatures.signature_def["score"]
    assert score.inputs["prompts"].dtype == tf.string.as_datatype_enum
    assert [dim.size for dim in score.outputs["log_likelihoods"].tensor_shape.dim] == [-1]


def huge():
    """A tensor of one text that says it is a thousand million of them."""
    request = request_of(prompts=["a"], texts=["b"])
    request.inputs["texts"].tensor_shape.dim[0].size = 10**9
    return request


WRONG = [
    (lambda: request_of(name="other", texts=["a"]), "NOT_FOUND", "no model 'other'"),
    (lambda: request_of(texts=["a"]), "INVALID_ARGUMENT", "inputs must have the keys prompts, texts"),
    (lambda: request_of("no", texts=["a"]), "INVALID_ARGUMENT", "signature_name must be one of"),
    (lambda: request_of(prompts=[1], texts=["a"]), "INVALID_ARGUMENT", "must hold texts"),
    (lambda: request_of(prompts=["a"] * 9, texts=["a"] * 9), "INVALID_ARGUMENT", "at most 8 rows"),
    (lambda: request_of(prompts=["a"], texts=["x" * 5000]), "INVALID_ARGUMENT", "at most 1000 characters"),
    (huge, "INVALID_ARGUMENT", "entries"),
    (lambda: request_of(prompts=["a"], texts=["x" * 60_000]), "RESOURCE_EXHAUSTED", "larger than max"),
]


@pytest.mark.parametrize(("make", "code", "reason"), WRONG)
def test_wrong_requests(service, make, code, reason):
    with pytest.raises(grpc.RpcError) as caught:
        service.Predict(make(), metadata=KEY, timeout=300)
    assert caught.value.code().name == code and reason in caught.value.details()


def test_what_there_is_not(service):
    with pytest.raises(grpc.RpcError) as caught:
        service.Predict(request_of(prompts=["a"], texts=["b"]), timeout=300)
    assert caught.value.code().name == "UNAUTHENTICATED"
    request = classification_pb2.ClassificationRequest()
    request.model_spec.name = "chat"
    with pytest.raises(grpc.RpcError) as caught:
        service.Classify(request, metadata=KEY, timeout=300)
    assert caught.value.code().name == "INVALID_ARGUMENT" and "does not classify" in caught.value.details()


def test_requests_are_counted(service, metrics):
    def count(status):
        labels = {
            "http_request_method": "POST",
            "http_route": "/tensorflow.serving.PredictionService/Predict",
            "http_response_status_code": status,
        }
        return metrics.registry.get_sample_value("http_server_request_duration_seconds_count", labels) or 0

    def counts():
        return (
            count("200"),
            count("404"),
            count("401"),
            metrics.registry.get_sample_value("http_server_active_requests"),
        )

    before = counts()
    service.Predict(request_of(prompts=["hello "], texts=["friend"]), metadata=KEY, timeout=300)
    for name, metadata in (("other", KEY), ("chat", ())):
        with pytest.raises(grpc.RpcError):
            service.Predict(request_of(name=name, texts=["a"]), metadata=metadata, timeout=300)
    # the client is told before the server has counted
    expected, ends = (*(number + 1 for number in before[:3]), 0), time.monotonic() + 300
    while counts() != expected and time.monotonic() < ends:
        time.sleep(0.01)
    assert counts() == expected


def test_texts_of_examples_are_limited():
    from zoo.serving.problems import Problem
    from zoo.serving.tensorflow_grpc import _Service

    request = classification_pb2.ClassificationRequest()
    features = request.input.example_list.examples.add().features.feature
    features["texts"].bytes_list.value.append(b"x" * 4000)
    service = _Service(ServerState(None, LIMITS, None))
    assert service._examples(request.input, ["texts"]) == {"texts": [b"x" * 4000]}
    features["texts"].bytes_list.value[0] += b"x"
    with pytest.raises(Problem, match="at most 1000 characters"):
        service._examples(request.input, ["texts"])


def test_bytes_that_are_no_message(channel):
    """Anything may come: it is answered with an error, and the server goes on."""
    generator = np.random.default_rng(0)
    whole = request_of(prompts=["a"], texts=["b"]).SerializeToString()
    call = channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
    for number in range(300):
        content = bytearray(whole)
        for place in generator.integers(0, len(content), 1 + number % 5):
            content[place] = generator.integers(256)
        try:
            call(bytes(content[: generator.integers(1, len(content) + 1)]), metadata=KEY, timeout=300)
        except grpc.RpcError as error:
            assert error.code().name in ("INVALID_ARGUMENT", "NOT_FOUND", "INTERNAL"), error.code()
            assert "Traceback" not in error.details()
    answer = call(whole, metadata=KEY, timeout=300)
    assert predict_pb2.PredictResponse.FromString(answer).outputs
