"""Processes that hold models: they answer as the model does, refuse what is wrong, and are missed when they end."""

import asyncio
import contextlib
import os
import queue
import signal
import threading
import time

import numpy as np
import pytest
from fork_server import process_of

pytest.importorskip("msgpack", reason="the extra serve is not installed")

from zoo.serving.messages import pack, unpack  # noqa: E402
from zoo.serving.worker_client import WorkerClient, WorkerError  # noqa: E402


def test_messages_are_what_they_were():
    message = {
        "id": 2**40,
        "texts": np.array([[b"a", "wörld".encode()]], "object"),
        "ids": np.arange(6, dtype="int32").reshape(2, 3),
        "mask": np.array([True, False]),
        "nothing": np.zeros((0, 4), "float32"),
        "more": [None, 1.5, "x", b"\xff", {"y": []}],
    }
    got = unpack(pack(message)[8:])
    assert got.keys() == message.keys()
    for name, value in message.items():
        if isinstance(value, np.ndarray):
            assert got[name].dtype == value.dtype
            np.testing.assert_array_equal(got[name], value)
        else:
            assert got[name] == value
    with pytest.raises(TypeError, match="plain values and arrays, got a set"):
        pack({"x": {1}})


@pytest.fixture(scope="module")
def worker(loop, chat_export):
    worker = loop.run(WorkerClient.start(chat_export, {"rows": 4, "steps": 2}))
    yield worker
    loop.run(worker.close())


async def whole(worker, request):
    pieces = [answer async for answer in worker.write(request)]
    return "".join(piece["text"] for piece in pieces), pieces


def test_calls_of_endpoints(loop, worker, chat_model):
    texts = ["hello", "who are you", "wörld " * 9, ""]

    async def ask():
        calls = [worker.call("score", {"prompts": ["hello "], "texts": [text]}) for text in texts]
        return await asyncio.gather(*calls)

    answers = [answer["log_likelihoods"][0] for answer in loop.run(ask())]
    np.testing.assert_allclose(answers, chat_model.score(texts, ["hello "] * 4), rtol=1e-4, atol=1e-4)


def test_texts_and_conversations(loop, worker, chat_model):
    talk = [{"role": "user", "content": "who are you"}]

    async def ask():
        requests = [{"text": "hello", "max_new_tokens": count, "streams_text": True} for count in (3, 9, 30)]
        requests.append({"messages": talk, "max_new_tokens": 12, "temperature": 0.8, "seed": 4})
        return await asyncio.gather(*(whole(worker, request) for request in requests))

    results = loop.run(ask())
    options = {"strip_prompt": True, "jit_compile": False}
    for (text, pieces), count in zip(results, (3, 9, 30), strict=False):
        assert text == chat_model.generate("hello", max_new_tokens=count, **options)
        assert pieces[-1]["reason"] == "length" and pieces[-1]["tokens"] == count
    sampler = {"name": "sample", "temperature": 0.8}
    assert results[3][0] == chat_model.generate(talk, max_new_tokens=12, seed=4, sampler=sampler, jit_compile=False)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"text": "hello " * 400}, "The prompt must have from 1 to 159 tokens, it has"),
        ({"messages": [{"role": "nobody", "content": "x"}]}, "conversation"),
    ],
)
def test_requests_that_are_refused(loop, worker, request_, message):
    with pytest.raises(WorkerError, match=message) as caught:
        loop.run(whole(worker, request_))
    assert caught.value.kind == "invalid" and "hello" not in str(caught.value)


@pytest.mark.parametrize(
    ("endpoint", "inputs", "message"),
    [
        ("nothing", {}, "endpoint must be one of"),
        ("advance", {"steps": 2**31 - 1}, "endpoint must be one of"),
        ("score", {"texts": ["a"]}, "The inputs must be"),
        ("score", {"texts": [1], "prompts": ["a"]}, "must hold texts"),
        ("score", {"texts": [["a"]], "prompts": ["a"]}, "must have the shape"),
        ("score", {"texts": ["a", "b"], "prompts": ["a"]}, "as many rows"),
        (
            "score",
            {"texts": ["hello " * 400], "prompts": ["a"]},
            r"A text has more tokens than the model takes \(\d+\)\.$",
        ),
    ],
)
def test_calls_that_are_refused(loop, worker, endpoint, inputs, message):
    with pytest.raises(WorkerError, match=message) as caught:
        loop.run(worker.call(endpoint, inputs))
    assert caught.value.kind == "invalid"


def test_leaving_a_text_frees_its_row(loop, worker):
    async def leave():
        pieces = worker.write({"text": "hello", "max_new_tokens": 150, "streams_text": True})
        async for _ in pieces:
            break
        await pieces.aclose()
        for _ in range(200):
            state = await worker.state()
            if not state["writing"]:
                return state
            await asyncio.sleep(0.01)
        return state

    state = loop.run(leave())
    assert state["writing"] == state["waiting"] == 0


def test_a_worker_that_ends_is_missed(loop, chat_export):
    async def kill():
        worker = await WorkerClient.start(chat_export, {})
        os.kill(worker.pid, signal.SIGSTOP)  # it does not answer before it is killed
        texts = asyncio.ensure_future(whole(worker, {"text": "hello", "max_new_tokens": 150}))
        await asyncio.sleep(0.05)
        os.kill(worker.pid, signal.SIGKILL)
        with pytest.raises(WorkerError) as caught:
            await texts
        assert caught.value.kind == "gone"
        with pytest.raises(WorkerError):
            await worker.state()
        assert worker.is_gone
        await worker.close()

    loop.run(kill())


def test_a_folder_that_is_no_model(loop, tmp_path):
    with pytest.raises(WorkerError, match="could not be loaded: FileNotFoundError"):
        loop.run(WorkerClient.start(tmp_path, {}))


@pytest.fixture
def inside(exported):
    """A worker in this process, and its answers."""
    from zoo.serving.worker import Worker

    answers = queue.Queue()
    return Worker(exported, {"rows": 2, "steps": 2, "waiting": 8}, answers.put), answers


def test_answered_requests_are_forgotten(inside):
    worker, answers = inside
    inputs = {"prompts": ["hello "], "texts": ["friend"]}
    for number in range(300):
        worker.handle({"id": number, "operation": "call", "endpoint": "score", "inputs": inputs})
        assert "outputs" in answers.get(timeout=300)
    worker.handle({"id": 301, "operation": "write", "text": "hello", "max_new_tokens": 2})
    assert answers.get(timeout=300)["reason"] == "length"
    for _ in range(100):
        if not worker._asked:
            break
        time.sleep(0.01)
    assert not worker._asked


def test_what_requests_call_has_been_called_once_when_a_worker_is_ready(inside, exported, monkeypatch):
    worker, answers = inside
    called, run = set(), exported.run

    def noted(endpoint, tensors):
        called.add(endpoint)
        return run(endpoint, tensors)

    monkeypatch.setattr(exported, "run", noted)
    worker.warm_up()
    assert called >= {"generate", "score", "tokens", "begin", "advance", "continuation", "chat_tokens"}
    assert "serve" not in called  # it writes as many tokens as there is room for: minutes of a real model
    assert "chat_continuation" in called and answers.empty()
    assert {name: worker.state()[name] for name in ("waiting", "filling", "writing")} == dict.fromkeys(
        ("waiting", "filling", "writing"), 0
    )


def test_only_texts_that_are_drawn_are_written_alone(inside, exported, monkeypatch):
    worker, answers = inside
    may_go, call, batch = threading.Event(), exported.call, worker._batches["generate"]

    def when_it_may(endpoint, **inputs):
        may_go.wait(30)
        return call(endpoint, **inputs)

    monkeypatch.setattr(exported, "call", when_it_may)
    fields = exported.endpoints["generate"]["inputs"]
    chosen = {field["name"]: field["default"] for field in fields if "default" in field} | {"max_new_tokens": 4}
    for number, temperature in enumerate([-1.0, -1.0, 0.0, -1.0, 0.9, 0.9]):
        inputs = {**chosen, "texts": ["hello"], "temperature": temperature}
        worker.handle({"id": number, "operation": "call", "endpoint": "generate", "inputs": inputs})
        while number == 0 and batch.load:
            time.sleep(0.001)
    may_go.set()
    texts = {answer["id"]: answer["outputs"]["texts"][0] for answer in (answers.get(timeout=300) for _ in range(6))}
    assert len({texts[number] for number in range(4)}) == 1 and texts[4] == texts[5]
    # one that found it idle, two alike, one with a setting of its own, and two that are drawn
    assert (batch.batches, batch.rows) == (5, 6)


def test_a_text_that_is_cancelled_while_it_begins_ends(inside, monkeypatch):
    worker, answers = inside
    write = worker._writer.write

    def cancelled_meanwhile(*arguments):
        writing = write(*arguments)
        worker.handle({"id": 7, "operation": "cancel"})
        return writing

    monkeypatch.setattr(worker._writer, "write", cancelled_meanwhile)
    worker.handle({"id": 7, "operation": "write", "text": "hello", "max_new_tokens": 150})
    last = answers.get(timeout=300)
    assert last["reason"] == "cancelled" and last["tokens"] < 150


def test_a_request_that_fails_before_it_waits_takes_no_place(inside):
    worker, answers = inside
    for number in range(20):  # 8 may wait
        worker.handle({"id": number, "operation": "write", "text": "hello", "max_new_tokens": 2, "seconds": "soon"})
    assert {answers.get(timeout=100)["error"] for _ in range(20)} == {"failed"}
    worker.handle({"id": 20, "operation": "write", "text": "hello", "max_new_tokens": 2})
    assert "error" not in answers.get(timeout=300)


@pytest.fixture
def may_go(inside, monkeypatch):
    """An event before which no prompt is read."""
    texts, event = inside[0]._writer.texts, threading.Event()
    tokens = texts.tokens

    def slow(prompts):
        event.wait(30)
        return tokens(prompts)

    monkeypatch.setattr(texts, "tokens", slow)
    return event


def test_texts_that_were_cancelled_hold_no_places(inside, may_go):
    worker, answers = inside
    asked = {"operation": "write", "text": "hello", "max_new_tokens": 2}
    for number in range(8):
        worker.handle({"id": number, **asked})
    for number in range(2, 8):  # two are being read
        worker.handle({"id": number, "operation": "cancel"})
    worker.handle({"id": 8, **asked})
    may_go.set()
    ended = [answers.get(timeout=300) for _ in range(3)]
    assert {answer["id"] for answer in ended} == {0, 1, 8} and not any("error" in answer for answer in ended)


def test_deadlines_and_queues_count_from_the_arrival(inside, may_go):
    worker, answers = inside
    for number in range(1000):
        request = {"id": number, "operation": "write", "text": "hello", "max_new_tokens": 2, "seconds": 0.2}
        worker.handle(request)
    busy = [answers.get(timeout=100) for _ in range(992)]  # 8 may wait
    assert {answer.get("error") for answer in busy} == {"busy"}
    time.sleep(0.3)
    may_go.set()
    late = [answers.get(timeout=100) for _ in range(8)]
    assert {answer.get("error", answer.get("reason")) for answer in late} <= {"late", "deadline"}


@pytest.fixture
def fresh(loop, chat_export):
    worker = loop.run(WorkerClient.start(chat_export, {"rows": 4, "steps": 2}))
    yield worker
    with contextlib.suppress(ProcessLookupError):
        os.kill(worker.pid, signal.SIGKILL)


@pytest.mark.slow
def test_a_worker_that_is_stuck_is_given_up(loop, fresh, monkeypatch):
    from zoo.serving import worker_client

    monkeypatch.setattr(worker_client, "LOOK_SECONDS", 0.2)
    monkeypatch.setattr(worker_client, "STUCK_SECONDS", 1.0)
    os.kill(fresh.pid, signal.SIGTERM)  # told to a whole group by mistake: the server ends its workers itself

    async def ask():
        await asyncio.sleep(0.2)
        await fresh.call("score", {"prompts": ["hello "], "texts": ["friend"]}, 10)
        os.kill(process_of(fresh.pid), signal.SIGSTOP)
        with pytest.raises(WorkerError) as caught:
            await asyncio.wait_for(fresh.call("score", {"prompts": ["a"], "texts": ["b"]}, 0.2), 200)
        await asyncio.wait_for(fresh.ended(), 200)
        return caught.value.kind

    assert loop.run(ask()) == "late"


@pytest.mark.slow
def test_what_is_being_written_may_be_left_while_a_worker_is_closed(loop, fresh):
    async def leave():
        pieces = fresh.write({"text": "hello", "max_new_tokens": 150, "streams_text": True})
        async for _ in pieces:
            break
        closing = asyncio.create_task(fresh.close(30))
        await asyncio.sleep(0.01)
        with pytest.raises(WorkerError) as caught:
            await fresh.state()
        assert caught.value.kind == "gone"
        await pieces.aclose()
        await asyncio.wait_for(closing, 100)

    loop.run(leave())


@pytest.mark.slow
def test_nothing_is_left_of_a_worker(loop, chat_export):
    async def start_and_kill():
        worker = await WorkerClient.start(chat_export, {})
        os.kill(worker.pid, signal.SIGKILL)
        await asyncio.wait_for(worker.ended(), 200)
        return worker

    before = len(os.listdir("/proc/self/fd"))
    worker = loop.run(start_and_kill())
    assert not os.path.exists(f"/proc/{worker.pid}")
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.slow
def test_a_worker_ends_with_its_server(loop, fresh, monkeypatch):
    async def vanish():
        pieces = fresh.write({"text": "hello", "max_new_tokens": 150})
        asking = asyncio.ensure_future(anext(pieces))
        asking.add_done_callback(lambda task: task.exception())
        await asyncio.sleep(0.01)
        monkeypatch.setattr(fresh._process, "kill", lambda: None)
        fresh._writer.transport.abort()  # as when the server is killed

    loop.run(vanish())
    for _ in range(100):
        if not os.path.exists(f"/proc/{fresh.pid}") or open(f"/proc/{fresh.pid}/stat").read().split()[2] == "Z":
            break
        time.sleep(0.05)
    else:
        raise AssertionError("The worker goes on.")
