"""The description of the server for programs: requests that the server takes are those that it describes."""

import asyncio

import pytest

for name in ("msgpack", "starlette", "uvicorn", "httpx", "prometheus_client", "pydantic", "jsonschema"):
    pytest.importorskip(name, reason="the extras serve and test are not installed")

import httpx  # noqa: E402
import jsonschema  # noqa: E402

import zoo.serving  # noqa: E402
from zoo.serving import tensorflow_rest  # noqa: E402
from zoo.serving.api_description import BODIES, describe_api  # noqa: E402
from zoo.serving.options import Limits  # noqa: E402

TALK = [{"role": "user", "content": [{"type": "text", "text": "你好"}]}]
REQUESTS = [
    ("/v1/completions", {"model": "a", "prompt": "สวัสดี", "stop": "e", "logit_bias": {"50": -1.5}, "user": "me"}),
    ("/v1/completions", {"model": "a", "prompt": [[1, 2], "b"], "stop": ["e"], "seed": None, "logprobs": None}),
    ("/v1/chat/completions", {"model": "a", "messages": TALK, "stream_options": {"include_usage": True}}),
    ("/v1/embeddings", {"model": "a", "input": ["नमस्ते"], "encoding_format": "base64"}),
    ("/embed", {"inputs": "مرحبا", "truncate": True}),
    ("/similarity", {"inputs": {"source_sentence": "a", "sentences": ["b"]}}),
    ("/predict", {"inputs": [["a", "b"], ["c", "d"]]}),
    ("/rerank", {"query": "a", "texts": ["b"]}),
    ("/v2/rerank", {"query": "a", "documents": [{"text": "b"}], "max_tokens_per_doc": 4096}),
    ("/v1/score", {"text_1": "a", "text_2": ["b", "c"]}),
    ("/tokenize", {"prompt": "a"}),
    ("/tokenize", {"messages": TALK}),
    ("/detokenize", {"tokens": [1, 2]}),
    (
        "/v2/models/{name}/infer",
        {"inputs": [{"name": "texts", "shape": [1], "datatype": "BYTES", "data": ["a"]}], "outputs": None},
    ),
]


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """What a server with a key answers to those who have none."""

    async def ask():
        app = zoo.serving.app(tmp_path_factory.mktemp("models"), api_key="secret")
        async with app.router.lifespan_context(app):
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                return app, await client.get("/openapi.json"), await client.get("/docs")

    return asyncio.run(ask())


@pytest.fixture(scope="module")
def document(answers):
    return answers[1].json()


def schema_of(document, path):
    schema = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    return {**schema, "components": document["components"]}


def test_all_routes_are_described(answers, document):
    app = answers[0]
    pages = {"/"} | {route.path for route in app.routes if route.path.startswith("/page/")}
    for route in app.routes:
        for method in route.methods - {"HEAD"}:
            if route.path in pages - {"/"}:
                continue
            said = document["paths"][route.path][method.lower()]
            assert said["summary"].endswith(".")
            names = [each["name"] for each in said["parameters"]]
            assert names == [name for name in ("name", "version") if f"{{{name}}}" in route.path]
            # those of TensorFlow Serving depend on the model
            by_model = {tensorflow_rest.predict, tensorflow_rest.classify}
            assert (method == "POST") == (route.endpoint in by_model or route.endpoint in BODIES)
    assert document["openapi"] == "3.1.0" and document["security"] == [{"key": []}]
    assert "security" not in describe_api(app.routes, False)


@pytest.mark.parametrize(("path", "body"), REQUESTS)
def test_requests_are_as_described(answers, document, path, body):
    validator = jsonschema.Draft202012Validator(schema_of(document, path))
    validator.check_schema(schema_of(document, path))
    (route,) = [each for each in answers[0].routes if each.path == path]
    # what the server takes, it describes
    assert any(_takes(kind, body) for kind in BODIES[route.endpoint])
    present = {name: value for name, value in body.items() if value is not None or name == "seed"}
    validator.validate(present)
    assert not validator.is_valid({**present, "temprature": 1})
    for name in set(present) & {"prompt", "messages", "input", "inputs", "tokens", "query", "text_1"}:
        assert not validator.is_valid({**present, name: {"a": 1.5}})


def _takes(kind, body):
    try:
        kind.model_validate(body, context=Limits())
    except ValueError:
        return False
    return True


def test_the_page_names_routes_and_fields(answers):
    page = answers[2]
    assert (
        page.headers["content-type"].startswith("text/html") and "script-src" in page.headers["content-security-policy"]
    )
    for said in ("POST /v1/chat/completions", "<code>messages</code>: array, required", "GET /v2/models/{name}/ready"):
        assert said in page.text
