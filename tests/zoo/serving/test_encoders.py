"""Labels and vectors over all interfaces: those of the tasks themselves."""

import json
import shutil

import numpy as np
import pytest

for name in ("msgpack", "starlette", "uvicorn", "httpx", "prometheus_client", "pydantic", "tensorflow_serving"):
    pytest.importorskip(name, reason="the extra serve is not installed")

import grpc  # noqa: E402
import httpx  # noqa: E402
from served_tasks import make_rerankers, make_tasks  # noqa: E402
from tensorflow_serving.apis import classification_pb2, prediction_service_pb2_grpc  # noqa: E402

from zoo.serving.metrics import Metrics  # noqa: E402
from zoo.serving.options import Limits  # noqa: E402
from zoo.serving.served_models import ServedModels  # noqa: E402
from zoo.serving.server_state import ServerState  # noqa: E402
from zoo.serving.tensorflow_grpc import start_grpc  # noqa: E402

QUERY, DOCUMENTS = "who are you", ["Ada Lovelace lives in London", "you", "wörld of 你好", "one two three"]
TEXTS = ["who are you today?", "Ada Lovelace lives in London, wörld of 你好", ""]
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


@pytest.fixture(scope="module")
def tasks():
    tasks = make_tasks()
    return {name: tasks[name] for name in ("labels", "vectors")} | make_rerankers()


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
    with httpx.Client(base_url=address, timeout=300) as client:
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
        return models, *await start_grpc(ServerState(models, Limits(), Metrics()), "127.0.0.1", 0)

    models, server, port = loop.run(start())
    request = classification_pb2.ClassificationRequest()
    request.model_spec.name = "labels"
    for text in TEXTS:
        features = request.input.example_list.examples.add().features.feature
        features["texts"].bytes_list.value.append(text.encode())
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        answer = prediction_service_pb2_grpc.PredictionServiceStub(channel).Classify(request, timeout=300)
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
        ({"input": [5, "who"]}, "input must be a text, a list of texts, or token ids"),
        ({"input": [[5], []]}, "input must be a text, a list of texts, or token ids"),
        ({"input": [5, 64]}, "Tokens must be numbers from 0 to 63 with this model."),
        ({"input": [[5] * 97]}, "A text has more tokens than the model takes (96)."),
        ({"encoding_format": "hex"}, "encoding_format must be 'float' or 'base64'"),
    ):
        answer = client.post("/v1/embeddings", json={"model": "vectors", "input": "who", **change})
        assert answer.status_code == 422 and reason in answer.json()["error"]["message"]


def token_count(tasks, *texts):
    """Of one text, or of a pair, as the model reads them, by the tokenizer alone."""
    tokenizer = tasks["vectors"].tokenizer
    return 1 + sum(len(tokenizer.tokenize(text)) + 1 for text in texts)


def test_embeddings_of_token_ids(client, tasks):
    """As a client sends them that cuts texts by their tokens; special tokens may stand around them."""
    tokenizer, count = tasks["vectors"].tokenizer, sum(token_count(tasks, text) for text in TEXTS[:2])
    ids = [tokenizer.tokenize(text).numpy().tolist() for text in TEXTS[:2]]
    special = [[tokenizer.start_id, *row, tokenizer.end_id] for row in ids]
    expected = tasks["vectors"].embed(TEXTS[:2])
    for rows in (ids, special, [special[0], ids[1]]):
        answer = client.post("/v1/embeddings", json={"model": "vectors", "input": rows}).json()
        np.testing.assert_allclose([each["embedding"] for each in answer["data"]], expected, **CLOSE)
        assert answer["usage"] == {"prompt_tokens": count, "total_tokens": count}
    one = client.post("/v1/embeddings", json={"model": "vectors", "input": ids[1]}).json()
    np.testing.assert_allclose([each["embedding"] for each in one["data"]], expected[1:], **CLOSE)


def test_tokens_are_counted(client, tasks):
    counts = [token_count(tasks, text) for text in TEXTS]
    usage = {"prompt_tokens": sum(counts), "total_tokens": sum(counts)}
    assert client.post("/v1/embeddings", json={"model": "vectors", "input": TEXTS}).json()["usage"] == usage
    assert "gen_ai_client_token_usage" in client.get("/metrics").text
    pairs = sum(token_count(tasks, QUERY, each) for each in DOCUMENTS)
    for model, expected in (
        ("relevant", pairs),
        ("vectors", sum(token_count(tasks, each) for each in (QUERY, *DOCUMENTS))),
    ):
        ranked = client.post("/v1/rerank", json={"model": model, "query": QUERY, "documents": DOCUMENTS}).json()
        scored = client.post("/v1/score", json={"model": model, "text_1": QUERY, "text_2": DOCUMENTS}).json()
        assert ranked["usage"] == scored["usage"] == {"prompt_tokens": expected, "total_tokens": expected}
        assert ranked["meta"]["tokens"] == {"input_tokens": expected, "output_tokens": 0}
    prompted = sum(token_count(tasks, f"query: {text}") for text in TEXTS)
    for path, body, expected in (
        ("/embed", {"inputs": TEXTS}, sum(counts)),
        ("/embed", {"inputs": TEXTS, "prompt_name": "query"}, prompted),
        ("/similarity", {"inputs": {"source_sentence": TEXTS[0], "sentences": TEXTS[1:]}}, sum(counts)),
        ("/predict", {"inputs": [[text] for text in TEXTS], "model": "labels"}, sum(counts)),
        ("/rerank", {"query": QUERY, "texts": DOCUMENTS, "model": "relevance"}, pairs),
    ):
        answer = client.post(path, json=body)
        assert answer.headers["X-Compute-Tokens"] == f"{expected}", path


def test_tokens_of_encoders(client, tasks):
    tokenizer = tasks["vectors"].tokenizer
    for text in TEXTS:
        ids = tokenizer.tokenize(text).numpy().tolist()
        assert client.post("/tokenize", json={"model": "vectors", "content": text}).json() == {"tokens": ids}
        whole = client.post("/tokenize", json={"model": "labels", "prompt": text}).json()
        count = token_count(tasks, text)
        assert (whole["count"], whole["max_model_len"], len(whole["tokens"])) == (count, 96, count)
        assert str(ids)[1:-1] in str(whole["tokens"])


@pytest.mark.slow
def test_an_export_that_says_no_tokens(folder, run_server, tmp_path, tasks):
    """As earlier versions made them."""
    shutil.copytree(folder / "vectors", tmp_path / "vectors")
    path = tmp_path / "vectors" / "1" / "signature.json"
    description = json.loads(path.read_text())
    for name in ("tokens", "tokens_query", "embed_tokens"):
        del description["endpoints"][name]
    path.write_text(json.dumps(description))
    with run_server(tmp_path) as address, httpx.Client(base_url=address, timeout=300) as client:
        answer = client.post("/v1/embeddings", json={"model": "vectors", "input": TEXTS}).json()
        np.testing.assert_allclose(
            [each["embedding"] for each in answer["data"]], tasks["vectors"].embed(TEXTS), **CLOSE
        )
        assert answer["usage"] == {"prompt_tokens": 0, "total_tokens": 0}
        answer = client.post("/v1/embeddings", json={"model": "vectors", "input": [5]})
        assert answer.status_code == 422 and "this model takes no token ids" in answer.json()["error"]["message"]
        assert client.post("/tokenize", json={"content": "a"}).status_code == 404


def cosines(first, second):
    first, second = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in (first, second))
    return (first * second).sum(axis=1)


def test_clients_of_text_embeddings_inference(address, client, tasks):
    """The client of the Hugging Face Hub, which asks one model at each address."""
    from huggingface_hub import InferenceClient

    hub = InferenceClient(token="none")
    vectors, queries = tasks["vectors"].embed(TEXTS), tasks["vectors"].embed(TEXTS, prompt="query")
    got = hub.feature_extraction(TEXTS, model=f"{address}/embed", normalize=True, truncate=True)
    np.testing.assert_allclose(got, vectors, **CLOSE)
    got = hub.feature_extraction(TEXTS[0], model=f"{address}/embed", prompt_name="query", truncation_direction="right")
    np.testing.assert_allclose(got, queries[:1], **CLOSE)
    similar = hub.sentence_similarity(TEXTS[0], TEXTS[1:], model=f"{address}/similarity")
    np.testing.assert_allclose(similar, cosines(vectors[:1], vectors[1:]), **CLOSE)
    body = {"inputs": {"source_sentence": TEXTS[0], "sentences": TEXTS[1:]}, "parameters": {"prompt_name": "query"}}
    similar = client.post("/similarity", json=body).json()
    np.testing.assert_allclose(similar, cosines(queries[:1], queries[1:]), **CLOSE)
    names, rows = tasks["labels"].labels.strings, np.asarray(tasks["labels"].predict(TEXTS))
    answers = client.post("/predict", json={"inputs": [[text] for text in TEXTS], "model": "labels"}).json()
    for answer, row in zip(answers, rows, strict=True):
        assert [each["label"] for each in answer] == [names[index] for index in np.argsort(-row)]
        np.testing.assert_allclose([each["score"] for each in answer], np.sort(row)[::-1], **CLOSE)
    alone = client.post("/predict", json={"inputs": TEXTS[0], "model": "labels"}).json()
    assert [each["label"] for each in alone] == [each["label"] for each in answers[0]]
    np.testing.assert_allclose(*([each["score"] for each in answer] for answer in (alone, answers[0])), **CLOSE)
    [one] = client.post("/predict", json={"inputs": TEXTS[:2], "model": "relevance", "raw_scores": True}).json()
    np.testing.assert_allclose(one["score"], tasks["relevance"].predict(([TEXTS[0]], [TEXTS[1]]))[0, 0], **CLOSE)


def test_ranks(client, tasks):
    """Of Text Embeddings Inference, and of Cohere, Jina, vLLM and llama-server."""
    for model, squash in (("relevant", float), ("relevance", lambda value: 1 / (1 + np.exp(-value)))):
        expected = tasks[model].rank(QUERY, DOCUMENTS)
        body = {"query": QUERY, "texts": DOCUMENTS, "return_text": True, "model": model, "truncate": True}
        answer = client.post("/rerank", json=body).json()
        assert [(each["index"], each["text"]) for each in answer] == [(each.index, each.text) for each in expected]
        np.testing.assert_allclose([each["score"] for each in answer], [squash(e.score) for e in expected], **CLOSE)
        body = {"model": model, "query": QUERY, "documents": [*DOCUMENTS[:3], {"text": DOCUMENTS[3]}], "top_n": 3}
        for path in ("/rerank", "/v1/rerank", "/v2/rerank"):
            answer = client.post(path, json=body).json()
            results = answer["results"]
            assert answer["model"] == model and [each["index"] for each in results] == [e.index for e in expected[:3]]
            np.testing.assert_allclose(
                [e["relevance_score"] for e in results], [e.score for e in expected[:3]], **CLOSE
            )
            shown = [each.get("document") for each in results]
            assert shown == [None if path == "/v2/rerank" else {"text": each.text} for each in expected[:3]]
        pairs = {"model": model, "text_1": QUERY, "text_2": DOCUMENTS}
        scores = [each["score"] for each in client.post("/v1/score", json=pairs).json()["data"]]
        np.testing.assert_allclose(scores, tasks[model].predict(([QUERY] * 4, DOCUMENTS))[:, 0], **CLOSE)
    raw = client.post("/rerank", json={"query": QUERY, "texts": DOCUMENTS, "raw_scores": True, "model": model}).json()
    np.testing.assert_allclose([each["score"] for each in raw], [each.score for each in expected], **CLOSE)
    # vectors rank by their cosines
    vectors = tasks["vectors"].embed(DOCUMENTS)
    pairs = {"model": "vectors", "queries": DOCUMENTS[:2], "documents": DOCUMENTS[2:]}
    answer = client.post("/v1/score", json=pairs).json()
    assert [(each["index"], each["object"]) for each in answer["data"]] == [(0, "score"), (1, "score")]
    np.testing.assert_allclose([each["score"] for each in answer["data"]], cosines(vectors[:2], vectors[2:]), **CLOSE)
    body = {"model": "vectors", "query": DOCUMENTS[0], "documents": DOCUMENTS, "return_documents": False}
    best = client.post("/v1/rerank", json=body).json()["results"][0]
    assert best == {"index": 0, "relevance_score": pytest.approx(1, abs=1e-5)}


@pytest.mark.parametrize(
    ("path", "body", "status", "reason"),
    [
        ("/embed", {"inputs": []}, 422, "inputs must have at least 1 item"),
        ("/embed", {"inputs": ["a"] * 129}, 413, "at most 128 rows"),
        ("/embed", {"inputs": "a", "truncation_direction": "left"}, 422, "truncation_direction is not supported."),
        ("/embed", {"inputs": "a", "prompt_name": "no"}, 422, "prompt_name must be one of query."),
        ("/embed", {"inputs": "a", "dimensions": 3}, 422, "dimensions must be 16"),
        ("/embed", {"inputs": "a", "inptus": "a"}, 422, "There is no field 'inptus'."),
        ("/embed", {"inputs": "a", "model": "labels"}, 404, "The model 'labels' is none for this route."),
        ("/similarity", {"inputs": {"source_sentence": "a"}}, 422, "inputs.sentences is missing."),
        ("/predict", {"inputs": "a"}, 404, "model must be one of labels, relevance, relevant."),
        ("/predict", {"inputs": "a", "model": "relevant"}, 422, "rows of 2 texts"),
        ("/predict", {"inputs": [["a", "b", "c"]]}, 422, "inputs must be a text, a pair of texts"),
        ("/predict", {"inputs": "a", "model": "labels", "raw_scores": True}, 422, "exported with probabilities"),
        ("/rerank", {"query": "a", "texts": ["a"]}, 404, "model must be one of relevance, relevant."),
        ("/v1/rerank", {"query": "a", "documents": ["a"], "rank_fields": ["b"]}, 422, "rank_fields is not supported."),
        ("/v1/rerank", {"query": "a", "documents": ["a"], "model": "labels"}, 404, "none for this route"),
        ("/v1/score", {"text_1": ["a", "b"], "text_2": ["a"]}, 422, "as many as text_2"),
        ("/tokenize", {"content": "a"}, 404, "model must be one of labels, vectors."),
        ("/tokenize", {"content": "a", "model": "relevant"}, 404, "none for this route"),
        ("/tokenize", {"content": "a", "model": "labels", "with_pieces": True}, 422, "with_pieces must be false"),
        ("/detokenize", {"tokens": [5]}, 404, "There is no model for this route."),
    ],
)
def test_what_these_routes_refuse(client, path, body, status, reason):
    answer = client.post(path, json=body)
    error = answer.json()["error"]
    assert answer.status_code == status and reason in (error if isinstance(error, str) else error["message"])
    assert answer.json().get("error_type") == (
        "Validation" if path in ("/embed", "/similarity", "/predict", "/rerank") else None
    )


def test_no_rows_at_all(client):
    """Nothing is asked for: nothing comes, or the reason why; and others are not harmed."""
    for model in ("labels", "vectors"):
        answer = client.post(f"/v1/models/{model}:predict", json={"inputs": {"texts": []}})
        assert answer.status_code in (200, 400, 422), answer.text
        assert client.post(f"/v1/models/{model}:predict", json={"instances": ["who"]}).status_code == 200
