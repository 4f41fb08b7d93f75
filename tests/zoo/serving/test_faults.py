"""The server as a process, with what goes wrong around it: clients, workers, disks, signals."""

import asyncio
import contextlib
import json
import os
import random
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
from fork_server import process_of

for name in ("msgpack", "starlette", "uvicorn", "httpx", "prometheus_client", "pydantic", "tensorflow_serving"):
    pytest.importorskip(name, reason="the extra serve is not installed")

import httpx  # noqa: E402

from recipes import serve  # noqa: E402
from recipes.common.errors import ConfigError  # noqa: E402

SECRET = "wörld of secrets"
BODY = {"model": "chat", "prompt": "hello", "max_tokens": 20}


class Server:
    """A server in a process of its own, and its log."""

    def __init__(self, folder, log, *options, most_bytes=None):
        self.log = log
        ports = []
        for _ in range(2):
            with socket.create_server(("127.0.0.1", 0)) as free:
                ports.append(free.getsockname()[1])
        self.port, self.grpc_port = ports
        self.address = f"http://127.0.0.1:{self.port}"

        def limit():
            if most_bytes is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))

        options = [*options, "--port", str(self.port), "--grpc_port", str(self.grpc_port)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "recipes.serve", str(folder), *options],
            stdout=open(log, "ab"),
            stderr=subprocess.STDOUT,
            preexec_fn=limit,
        )
        for _ in range(1200):
            assert self.process.poll() is None, log.read_text()
            with contextlib.suppress(httpx.HTTPError):
                ready = httpx.get(f"{self.address}/ready")
                if ready.status_code == 200 and "loading" not in ready.text:
                    return
            time.sleep(0.1)
        raise AssertionError("The server did not become ready.")

    @property
    def pid(self):
        return process_of(self.process.pid)

    @property
    def workers(self):
        """Process numbers of the workers by model."""
        children = open(f"/proc/{self.pid}/task/{self.pid}/children").read().split()
        found = {}
        for pid in children:
            command = open(f"/proc/{pid}/cmdline").read().split("\0")
            if "zoo.serving.worker" in command:
                found[re.search(r"models\d*/(\w+)/", " ".join(command))[1]] = int(pid)
        return found

    def loads(self):
        """Texts that are waiting, being fed or being written, and requests that are being answered."""
        page = httpx.get(f"{self.address}/metrics", timeout=30).text
        texts = [float(line.split()[-1]) for line in page.splitlines() if line.startswith("zoo_texts{")]
        [open_requests] = [
            line.split()[-1] for line in page.splitlines() if line.startswith("http_server_active_requests ")
        ]
        return sum(texts), float(open_requests)

    def becomes_idle(self, seconds=20):
        for _ in range(int(seconds * 10)):
            if self.loads() == (0, 1):  # the request for the loads itself
                return True
            time.sleep(0.1)
        return False

    def stop(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module")
def folder(chat_export, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for model in ("chat", "other"):
        (folder / model).mkdir()
        (folder / model / "1").symlink_to(chat_export)
    return folder


@pytest.fixture(scope="module")
def server(folder, tmp_path_factory):
    log = tmp_path_factory.mktemp("log") / "log"
    options = ["--limits.read_seconds", "3", "--limits.write_seconds", "1", "--limits.body_bytes", "30000"]
    server = Server(folder, log, *options, "--batching.rows", "4")
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def nothing_is_shown(request, tmp_path):
    """Whatever happens, neither log nor answers show code, files or texts."""
    yield
    if "server" in request.fixturenames:
        shows_nothing(request.getfixturevalue("server").log.read_text())


def shows_nothing(text):
    for word in ("Traceback", "hello", "secrets", ".py", "/tmp", "models0"):
        assert word not in text, text


def connect(server, head, body=b"", size=None):
    """A connection that has sent the head of a request, and a part of its body."""
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=30)
    length = len(body) if size is None else size
    connection.sendall(f"{head}\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n".encode() + body)
    return connection


def closes(connection):
    """What comes before the other side closes."""
    content = b""
    with contextlib.suppress(ConnectionError):
        while part := connection.recv(65536):
            content += part
    connection.close()
    return content


VALID = [
    ("/v1/models/chat:predict", {"instances": ["hello"]}),
    ("/v1/models/chat:predict", {"signature_name": "score", "inputs": {"prompts": ["hello"], "texts": ["who"]}}),
    (
        "/v1/models/chat:predict",
        {"signature_name": "forward", "inputs": {"token_ids": [[5]], "padding_mask": [[True]]}},
    ),
    ("/v1/models/chat/versions/1:predict", {"instances": [{"b64": "aGVsbG8="}]}),
    ("/v1/models/chat:classify", {"examples": [{"texts": "hello"}]}),
    ("/v1/completions", {**BODY, "max_tokens": 2, "stop": ["a"], "temperature": 0.5, "seed": 3, "n": 2}),
    ("/v1/completions", {**BODY, "max_tokens": 2, "stream": True, "stream_options": {"include_usage": True}}),
    ("/v1/chat/completions", {"model": "chat", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 2}),
    ("/v1/embeddings", {"model": "chat", "input": ["hello"], "encoding_format": "base64"}),
]
STRANGE = [
    *(
        None,
        True,
        0,
        -1,
        1e308,
        -1e308,
        2**63,
        10**30,
        10**400,
        "",
        "\x00",
        SECRET,
        "x" * 5000,
        [],
        {},
        [[]],
        [None],
        {"b64": "?"},
    ),
    *([[1, [2]]], {"a": {"b": []}}, "1" * 4400, 0.5, [SECRET] * 130, "\U0010ffff", "../../etc/passwd"),
]


def fuzzed(generator, value):
    """A value with something in it that is none of it."""
    if generator.random() < 0.25 or not isinstance(value, dict | list) or not value:
        return generator.choice(STRANGE)
    if isinstance(value, list):
        place = generator.randrange(len(value))
        return [fuzzed(generator, each) if index == place else each for index, each in enumerate(value)]
    key = generator.choice(list(value))
    if generator.random() < 0.2:
        return {**value, generator.choice([key + "s", "\x00", SECRET, "model"]): value[key]}
    return {**value, key: fuzzed(generator, value[key])}


def rubbish(generator):
    """Path and body of a request that somebody may send."""
    path, body = generator.choice(VALID)
    content = json.dumps(fuzzed(generator, body)).encode()
    kind = generator.random()
    if kind < 0.15:
        content = content[: generator.randrange(len(content) + 1)]
    elif kind < 0.3:
        content = bytes(generator.randrange(256) if generator.random() < 0.05 else byte for byte in content)
    elif kind < 0.35:
        content = content.replace(b"2", b"9" * 5000)
    elif kind < 0.4:
        path = generator.choice(
            ["/v1/models/chat/versions/" + "9" * 5000 + ":predict", "/v1/models/%00", "/v1//", "/%ff"]
        )
    return path, content


@pytest.mark.slow
@pytest.mark.parametrize("count", [250, pytest.param(1600, marks=pytest.mark.slow)])
def test_malformed_requests(server, count):
    generator = random.Random(count)
    workers, codes = server.workers, set()
    with httpx.Client(base_url=server.address, timeout=300) as client:
        for _ in range(count):
            path, content = rubbish(generator)
            method = "POST" if generator.random() < 0.95 else generator.choice(["GET", "PUT", "DELETE", "HEAD"])
            answer = client.request(method, path, content=content)
            codes.add(answer.status_code)
            assert answer.status_code in (200, 400, 404, 405, 413, 422), (answer.status_code, path, content[:300])
            if answer.status_code >= 400:
                shows_nothing(re.sub(r"There is no (model|field) '[\w.-]+'", "", answer.text))
        assert {200, 400, 404, 422} <= codes
        assert client.post("/v1/completions", json=BODY).status_code == 200
    assert server.workers == workers and server.becomes_idle()


@pytest.mark.slow
@pytest.mark.parametrize("count", [100, pytest.param(400, marks=pytest.mark.slow)])
def test_malformed_messages(server, count):
    import grpc
    from tensorflow_serving.apis import classification_pb2, get_model_metadata_pb2, predict_pb2

    generator = random.Random(count)
    message = predict_pb2.PredictRequest()
    message.model_spec.name, message.model_spec.signature_name = "chat", "score"
    for key in ("prompts", "texts"):
        message.inputs[key].dtype = 7
        message.inputs[key].tensor_shape.dim.add(size=1)
        message.inputs[key].string_val.append(SECRET.encode())
    classification = classification_pb2.ClassificationRequest()
    classification.model_spec.name = "chat"
    classification.input.example_list.examples.add()
    metadata = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    metadata.model_spec.name = "chat"
    known = {"Predict": message, "Classify": classification, "GetModelMetadata": metadata}
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        for _ in range(count):
            name = generator.choice(list(known))
            content = bytearray(known[name].SerializeToString())
            for _ in range(generator.randrange(1, 8)):
                content[generator.randrange(len(content))] = generator.randrange(256)
            call = channel.unary_unary(f"/tensorflow.serving.PredictionService/{name}")
            try:
                call(bytes(content[: generator.randrange(1, len(content) + 1)]), timeout=300)
            except grpc.RpcError as error:
                assert error.code().name in ("INVALID_ARGUMENT", "NOT_FOUND"), (error.code(), error.details())
                shows_nothing(error.details())
        answer = channel.unary_unary("/tensorflow.serving.PredictionService/Predict")(message.SerializeToString())
        assert predict_pb2.PredictResponse.FromString(answer).outputs


@pytest.mark.slow
def test_requests_that_arrive_byte_by_byte(server):
    """Neither a head nor a body may take for ever; others are answered in the meantime."""
    head = socket.create_connection(("127.0.0.1", server.port), timeout=30)
    body = connect(server, "POST /v1/completions HTTP/1.1", b"{", size=500)
    idle = socket.create_connection(("127.0.0.1", server.port), timeout=30)
    began = time.monotonic()
    with contextlib.suppress(ConnectionError):
        for byte in b"POST /v1/completions HTTP/1.1" + b" " * 100:
            head.sendall(bytes([byte]))
            body.sendall(b" ")
            time.sleep(0.1)
            assert time.monotonic() - began < 10, "The server waits for ever."
    assert b" 408 " in closes(body)
    assert closes(idle) == b""
    head.close()
    assert httpx.post(f"{server.address}/v1/completions", json=BODY, timeout=300).status_code == 200


@pytest.mark.slow
def test_clients_that_do_not_read(server):
    """A row of logits is megabytes of JSON: nobody reads them, and they are not kept."""
    inputs = {"token_ids": [[5] * 150] * 20, "padding_mask": [[True] * 150] * 20}
    body = json.dumps({"signature_name": "forward", "inputs": inputs}, separators=(",", ":")).encode()
    streams = json.dumps({**BODY, "max_tokens": 150, "n": 4, "stream": True}).encode()
    before = resident(server.pid)
    stuck = [connect(server, "POST /v1/models/chat:predict HTTP/1.1", body) for _ in range(4)]
    stuck += [connect(server, "POST /v1/completions HTTP/1.1", streams) for _ in range(4)]
    for _ in range(5):
        assert httpx.post(f"{server.address}/v1/completions", json=BODY, timeout=300).status_code == 200
    assert server.becomes_idle(60)
    for connection in stuck:
        connection.close()
    assert resident(server.pid) < before + 200 * 2**20


def resident(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", open(f"/proc/{pid}/status").read())[1]) * 1024


@pytest.mark.slow
def test_clients_that_vanish_leave_nothing(server):
    generator = random.Random(0)
    bodies = [
        ("/v1/completions", {**BODY, "max_tokens": 150, "n": 4}),
        ("/v1/completions", {**BODY, "max_tokens": 150, "n": 4, "stream": True}),
        ("/v1/models/chat:predict", {"instances": ["hello"] * 8}),
    ]
    for number in range(30):
        path, body = bodies[number % 3]
        content = json.dumps(body).encode()
        cut = content if number % 5 else content[:10]
        connection = connect(server, f"POST {path} HTTP/1.1", cut, size=len(content))
        time.sleep(generator.random() * 0.05)
        if number % 2:  # at once, with what is under way lost
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        connection.close()
    began = time.monotonic()
    assert httpx.post(f"{server.address}/v1/completions", json=BODY, timeout=300).status_code == 200
    assert server.becomes_idle(15), server.loads()
    assert time.monotonic() - began < 20


@pytest.mark.slow
def test_a_result_that_is_refused_ends_the_others(server):
    body = {**BODY, "prompt": ["hello"] * 8 + ["hello " * 400], "max_tokens": 150}
    for stream in (False, True):
        answer = httpx.post(f"{server.address}/v1/completions", json={**body, "stream": stream}, timeout=300)
        # a stream may have begun with another result
        assert answer.status_code == 422 or (stream and '"code": 422' in answer.text)
    assert server.becomes_idle(5)


@pytest.mark.slow
def test_thousands_that_wait(server):
    """More than may wait are told so at once, and those that may are answered."""
    codes = []

    async def ask_all():
        limits = httpx.Limits(max_connections=1000)
        async with httpx.AsyncClient(base_url=server.address, timeout=120, limits=limits) as client:
            answers = await asyncio.gather(
                *(client.post("/v1/completions", json=BODY) for _ in range(1000)), return_exceptions=True
            )
            codes.extend(getattr(answer, "status_code", answer) for answer in answers)

    asyncio.run(ask_all())
    assert set(codes) == {200, 429} and codes.count(200) > 200, codes[:5]
    assert server.becomes_idle()


@pytest.mark.slow
def test_a_worker_is_killed_under_load(server):
    over, codes, failures = threading.Event(), {"chat": [], "other": []}, []

    def ask(model):
        with httpx.Client(base_url=server.address, timeout=300) as client:
            while not over.is_set():
                try:
                    codes[model].append(client.post("/v1/completions", json={**BODY, "model": model}).status_code)
                except httpx.HTTPError as error:
                    failures.append(error)

    threads = [threading.Thread(target=ask, args=(model,)) for model in ("chat", "other") for _ in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(1)
    old = server.workers
    os.kill(old["chat"], signal.SIGKILL)
    client, again = httpx.Client(base_url=server.address, timeout=300), None
    for _ in range(600):
        # A new process is there before it has loaded the model; an answer of the old one may be read after its end.
        if server.workers.get("chat") not in (None, old["chat"]):
            again = client.post("/v1/completions", json=BODY).status_code
            if again == 200:
                break
        time.sleep(0.1)
    over.set()
    for thread in threads:
        thread.join()
    assert again == 200
    assert set(codes["other"]) == {200} and not failures
    assert set(codes["chat"]) == {200, 503}
    assert client.post("/v1/completions", json=BODY).status_code == 200
    assert server.workers["other"] == old["other"]


@pytest.mark.slow
def test_a_full_disk_and_the_end(folder, tmp_path):
    """The log cannot be written, and nothing else; then the server ends as one that is told to."""
    log = tmp_path / "log"
    log.write_bytes(b" " * 4096)
    server = Server(folder, log, "--batching.steps", "1", "--batching.rows", "1", most_bytes=4096)
    try:
        os.kill(server.workers["other"], signal.SIGKILL)  # which is something to be logged
        stream = {**BODY, "max_tokens": 140, "n": 4, "stream": True}
        assert log.stat().st_size <= 4096
        workers = server.workers
        with httpx.stream("POST", f"{server.address}/v1/completions", json=stream, timeout=300) as answer:
            lines = answer.iter_lines()
            next(lines)
            server.process.send_signal(signal.SIGTERM)
            time.sleep(0.2)
            server.process.send_signal(signal.SIGTERM)  # once more: it does not hurry
            with pytest.raises(httpx.ConnectError):
                for _ in range(100):
                    httpx.get(f"{server.address}/health")
                    time.sleep(0.05)
            rest = [line for line in lines if line]
        assert rest[-1] == "data: [DONE]" and sum('"length"' in line for line in rest) == 4
        assert server.process.wait(20) == 0
        for pid in workers.values():
            assert not os.path.exists(f"/proc/{pid}")
    finally:
        server.stop()


@pytest.mark.parametrize("key", ["secret\n", " secret", "se cret", "schl\u00fcssel"])
def test_a_key_that_no_header_can_have_is_refused(folder, monkeypatch, key):
    monkeypatch.setenv("ZOO_API_KEY", key)
    with pytest.raises(ConfigError, match="ZOO_API_KEY must be printable ASCII") as caught:
        serve.main(serve.ServeConfig(str(folder), host="0.0.0.0"))
    assert "secret" not in str(caught.value)


def test_what_cannot_be_served_is_said_at_once(folder, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for key in ("port", "grpc_port"):
            config = serve.ServeConfig(str(folder), **{"port": 0, key: port})
            with pytest.raises(ConfigError, match=f"must be free to listen at, got 127.0.0.1:{port}: Address already"):
                serve.main(config)
    file = tmp_path / "file"
    file.write_text("")
    for models, reason in ((tmp_path, "which holds none"), (tmp_path / "no", "which is none")):
        with pytest.raises(ConfigError, match=f"models must be a folder .* got '{models}', {reason}"):
            serve.main(serve.ServeConfig(str(models)))
    for task, models in (("CausalML", file), ("CausalLM", folder)):
        with pytest.raises(ConfigError, match=f"task must be .*, got '{task}'"):
            serve.main(serve.ServeConfig(str(models), task=task))
    with pytest.raises(ConfigError, match="without a key"):
        serve.main(serve.ServeConfig(str(folder), host="0.0.0.0"))
