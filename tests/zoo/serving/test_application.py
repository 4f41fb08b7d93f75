"""The server as an application within another one."""

import asyncio
import contextlib

import pytest

for name in ("msgpack", "starlette", "uvicorn", "httpx", "prometheus_client", "pydantic", "tensorflow_serving"):
    pytest.importorskip(name, reason="the extras serve and test are not installed")

import httpx  # noqa: E402
from starlette.applications import Starlette  # noqa: E402
from starlette.routing import Mount  # noqa: E402

import zoo.serving  # noqa: E402

MOST_TOKENS = 7


async def ready(client):
    while (await client.get("/models/ready")).status_code != 200:
        await asyncio.sleep(0.05)


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
            httpx.AsyncClient(transport=transport, base_url="http://elsewhere.example", timeout=120) as client,
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
            pages = [(await client.get(f"/models{path}")).status_code for path in ("/", "/openapi.json", "/metrics")]
            return without_key, answers, too_many, pages

    without_key, answers, too_many, pages = asyncio.run(ask())
    assert without_key.status_code == 401 and without_key.json()["error"]["code"] == "401"
    expected = chat_model.generate("hello", max_new_tokens=MOST_TOKENS, return_prompt=False, jit_compile=False)
    assert [answer.json()["choices"][0]["text"] for answer in answers] == [expected] * 3
    assert too_many.status_code == 422 and "max_tokens" in too_many.json()["error"]["message"]
    assert pages == [200] * 3


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
