"""A server over HTTP whose models load slowly, fail, or are asked on too many connections; the models are pretended."""

import asyncio
import contextlib
import json
import threading
import time

import pytest

for name in ("msgpack", "starlette", "uvicorn", "httpx", "prometheus_client", "pydantic"):
    pytest.importorskip(name, reason="the extra serve is not installed")

import httpx  # noqa: E402

import zoo.serving  # noqa: E402
from zoo.serving import served_models  # noqa: E402
from zoo.serving.options import Limits  # noqa: E402
from zoo.serving.worker_client import WorkerError  # noqa: E402

ASKED = {"model": "dates", "prompt": "hello", "stream": True}


class Process:
    """A process of a model that writes two words, each after a while."""

    may_load = threading.Event()
    clients = []
    pause = 0.0

    def __init__(self, folder):
        self.is_gone, self.over = False, asyncio.Event()
        self.about = {"default": "serve", "endpoints": {"serve": {"outputs": []}, "generate": {}}}

    @classmethod
    async def start(cls, folder, options):
        while not cls.may_load.is_set():
            await asyncio.sleep(0.01)
        if (folder / "broken").exists():
            raise WorkerError("failed", "The model could not be loaded: ValueError.")
        return cls(folder)

    async def ended(self):
        await self.over.wait()

    async def close(self, seconds):
        self.over.set()

    async def write(self, request):
        self.clients.append(request["client"])
        for text, reason in (("one", {}), (" two", {"reason": "stop"})):
            await asyncio.sleep(self.pause)
            yield {"text": text, "tokens": 1, "prompt_tokens": 1, **reason}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(served_models, "WorkerClient", Process)
    monkeypatch.setattr(Process, "may_load", threading.Event())
    for name in ("dates", "titles"):
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "1" / "saved_model.pb").write_bytes(b"")
    return tmp_path


def asking(folder, check, *, before=lambda: None, **limits):
    """Lets a coroutine ask an application that has begun."""

    async def within():
        app = zoo.serving.app(folder, limits=Limits(**limits), interval=0.02)
        before()
        async with app.router.lifespan_context(app):
            transport = httpx.ASGITransport(app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                await check(client)

    asyncio.run(within())


async def state(client, wanted, models):
    """Waits for a state; an answer says the same of the models, and when to come again."""
    for _ in range(500):
        answer = await client.get("/ready")
        if (answer.json()["status"], answer.json()["models"]) == (wanted, models):
            break
        await asyncio.sleep(0.01)
    else:
        raise AssertionError(answer.text)
    assert answer.status_code == (200 if wanted == "ready" else 503)
    assert answer.headers.get("Retry-After") == (None if wanted == "ready" else "1")
    assert (await client.get("/health")).status_code == 200
    return answer.json()


def test_loading_then_ready_when_the_first_model_is(folder):
    async def check(client):
        await state(client, "loading", {"dates": "loading", "titles": "loading"})
        refused = await client.post("/v1/completions", json={**ASKED, "stream": False})
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
        (folder / "titles" / "1" / "broken").touch()
        Process.may_load.set()
        reason = "The model could not be loaded: ValueError."
        await state(client, "ready", {"dates": "available", "titles": reason})
        refused = await client.post("/v1/completions", json={**ASKED, "model": "titles"})
        assert refused.status_code == 503 and reason in refused.json()["error"]["message"]

    asking(folder, check, load_seconds=0.05)


def test_requests_wait_for_their_model(folder):
    async def check(client):
        waiting = asyncio.create_task(client.post("/v1/completions", json={**ASKED, "stream": False}))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        Process.may_load.set()
        assert (await waiting).json()["choices"][0]["text"] == "one two"

    asking(folder, check)


def test_broken_with_the_reason(folder):
    for name in ("dates", "titles"):
        (folder / name / "1" / "broken").touch()

    async def check(client):
        Process.may_load.set()
        reason = "The model could not be loaded: ValueError."
        said = await state(client, "broken", {"dates": reason, "titles": reason})
        assert said["error"] == "No model can answer."

    asking(folder, check)


def test_a_folder_that_cannot_be_looked_at(tmp_path):
    async def check(client):
        said = await state(client, "broken", {})
        assert said["error"] == "The folder of models cannot be looked at: NotADirectoryError."

    (tmp_path / "away").mkdir()
    asking(tmp_path / "away", check, before=(tmp_path / "away").rmdir)


def test_a_stream_that_waits_gets_comments(folder, run_server, monkeypatch):
    openai = pytest.importorskip("openai", reason="the extra test is not installed")
    Process.may_load.set()
    monkeypatch.setattr(Process, "pause", 0.35)
    monkeypatch.setattr(Process, "clients", [])
    proxied = {"X-Forwarded-For": "203.0.113.7"}
    with run_server(folder, limits=Limits(heartbeat_seconds=0.1)) as address:
        with httpx.stream("POST", f"{address}/v1/completions", json=ASKED, timeout=60, headers=proxied) as answer:
            lines = [line for line in answer.iter_lines() if line]
        texts = [
            json.loads(line.removeprefix("data: "))["choices"][0]["text"] for line in lines if line[:7] == "data: {"
        ]
        assert lines.count(": waiting") >= 4 and lines[0] == ": waiting" and lines[-1] == "data: [DONE]"
        assert "".join(texts) == "one two"
        client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)
        events = client.completions.create(**ASKED)
        assert "".join(event.choices[0].text for event in events) == "one two"
    assert Process.clients == ["127.0.0.1", "127.0.0.1"]  # there is no proxy


def test_a_connection_that_is_one_too_many(folder, run_server):
    Process.may_load.set()
    with run_server(folder, limits=Limits(connections=3)) as address, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(httpx.Client(base_url=address)) for _ in range(5)]
        assert clients[0].get("/health").status_code == 200  # behind the end of what asked before
        answers = [client.get("/v1/models") for client in clients]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 503, 503]
        assert answers[3].headers["Retry-After"] == "1" and answers[3].headers["Connection"] == "close"
        assert answers[3].json()["error"]["message"] == "Too many connections are open already."
        # whoever looks after the process is answered; those that were there go on; others find room when one leaves
        assert clients[3].get("/health").status_code == clients[4].get("/ready").status_code == 200
        clients[3].close(), clients[4].close()
        assert clients[0].get("/v1/models").status_code == 200
        clients[1].close()
        end = time.monotonic() + 60
        while httpx.get(f"{address}/v1/models").status_code != 200:
            assert time.monotonic() < end
