"""Labels and vectors over all interfaces: those of the tasks themselves."""

import numpy as np
import pytest

for name in ("msgpack", "starlette", "uvicorn", "httpx", "prometheus_client", "pydantic", "tensorflow_serving"):
    pytest.importorskip(name, reason="the extra serve is not installed")

import grpc  # noqa: E402
import httpx  # noqa: E402
from served_tasks import make_tasks  # noqa: E402
from tensorflow_serving.apis import classification_pb2, prediction_service_pb2_grpc  # noqa: E402

from recipes.serving.limits import LimitsConfig  # noqa: E402
from recipes.serving.metrics import Metrics  # noqa: E402
from recipes.serving.served_models import ServedModels  # noqa: E402
from recipes.serving.server_state import ServerState  # noqa: E402
from recipes.serving.tensorflow_grpc import start_grpc  # noqa: E402

TEXTS = ["who are you today?", "Ada Lovelace lives in London, wörld of 你好", ""]
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


@pytest.fixture(scope="module")
def tasks():
    tasks = make_tasks()
    return {name: tasks[name] for name in ("labels", "vectors")}


@pytest.fixture(scope="module")
def folder(tasks, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for name, task in tasks.items():
        task.export(folder / name / "1")
    return folder


@pytest.fixture(scope="module")
def address(folder, run_server):
    with run_server(folder) as address:
        yield address


@pytest.fixture
def client(address):
    with httpx.Client(base_url=address, timeout=60) as client:
        yield client


def test_classify_over_http(client, tasks):
    expected = np.asarray(tasks["labels"].predict(TEXTS))
    body = {"examples": [{"texts": text} for text in TEXTS]}
    answer = client.post("/v1/models/labels/versions/1:classify", json=body).json()["result"]
    assert [[label for label, _ in row] for row in answer] == [tasks["labels"].labels.strings] * len(TEXTS)
    np.testing.assert_allclose([[score for _, score in row] for row in answer], expected, **CLOSE)
    shared = {"context": {"texts": TEXTS[0]}, "examples": [{}, {"texts": TEXTS[1]}]}
    again = client.post("/v1/models/labels:classify", json=shared).json()["result"]
    np.testing.assert_allclose([[score for _, score in row] for row in again], expected[:2], **CLOSE)


def test_classify_over_grpc(loop, folder, tasks):
    async def start():
        models = await ServedModels(folder / "labels", {}).__aenter__()
        await models.loaded()
        return models, *await start_grpc(ServerState(models, LimitsConfig(), Metrics()), "127.0.0.1", 0)

    models, server, port = loop.run(start())
    request = classification_pb2.ClassificationRequest()
    request.model_spec.name = "labels"
    for text in TEXTS:
        features = request.input.example_list.examples.add().features.feature
        features["texts"].bytes_list.value.append(text.encode())
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        answer = prediction_service_pb2_grpc.PredictionServiceStub(channel).Classify(request, timeout=60)
    rows = [row.classes for row in answer.result.classifications]
    assert [[each.label for each in row] for row in rows] == [tasks["labels"].labels.strings] * len(TEXTS)
    np.testing.assert_allclose([[each.score for each in row] for row in rows], tasks["labels"].predict(TEXTS), **CLOSE)
    assert answer.model_spec.version.value == 1
    loop.run(server.stop(1))
    loop.run(models.close())


def test_embeddings(address, client, tasks):
    openai = pytest.importorskip("openai", reason="the extra test is not installed")
    expected = np.asarray(tasks["vectors"].embed(TEXTS))
    asking = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)
    # the client asks for base64 unless told otherwise
    for options in ({}, {"encoding_format": "float"}, {"dimensions": expected.shape[1]}):
        answer = asking.embeddings.create(model="vectors", input=TEXTS, **options)
        assert [each.index for each in answer.data] == [0, 1, 2]
        np.testing.assert_allclose([each.embedding for each in answer.data], expected, **CLOSE)
    one = client.post("/v1/embeddings", json={"model": "vectors", "input": TEXTS[1]}).json()
    np.testing.assert_allclose(one["data"][0]["embedding"], expected[1], **CLOSE)
    for change, reason in (
        ({"model": "labels"}, "makes no embeddings"),
        ({"dimensions": 3}, f"dimensions must be {expected.shape[1]}"),
        ({"input": []}, "input must have at least 1 item"),
        ({"input": [5, 6]}, "take no tokens"),
        ({"input": [[5, 6]]}, "take no tokens"),
        ({"encoding_format": "hex"}, "encoding_format must be 'float' or 'base64'"),
    ):
        answer = client.post("/v1/embeddings", json={"model": "vectors", "input": "who", **change})
        assert answer.status_code == 422 and reason in answer.json()["error"]["message"]


def test_no_rows_at_all(client):
    """Nothing is asked for: nothing comes, or the reason why; and others are not harmed."""
    for model in ("labels", "vectors"):
        answer = client.post(f"/v1/models/{model}:predict", json={"inputs": {"texts": []}})
        assert answer.status_code in (200, 400, 422), answer.text
        assert client.post(f"/v1/models/{model}:predict", json={"instances": ["who"]}).status_code == 200
