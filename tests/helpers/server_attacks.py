"""What is done to a server: each attack returns the answers that it got, counted, and what was wrong.

An answer of status 200 is compared with that of the same request alone, wherever there is one.
"""

import collections
import contextlib
import http.client
import json
import os
import resource
import shutil
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import tensorflow as tf
from attacked_server import KEY, SECONDS, Client, ask_all, texts_of
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

COMPLETIONS, PREDICT = "/v1/completions", "/v1/models/classify:predict"
# the worker of the texts
WRITER = ("complete", "1")
# what may be said to requests whose worker is gone, slow or full
REFUSED = {429, 503, 504}


def bytes_of(path, body, *headers, host="localhost"):
    content = json.dumps(body).encode() if not isinstance(body, bytes) else body
    lines = [f"POST {path} HTTP/1.1", f"Host: {host}", f"Content-Length: {len(content)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + content


def read_to_end(connection):
    """What comes until the other side closes."""
    content = b""
    with contextlib.suppress(ConnectionError):
        while part := connection.recv(65536):
            content += part
    connection.close()
    return content


def status_of(content):
    """The status of an answer; "closed" where there is none."""
    return int(content.split()[1]) if content.startswith(b"HTTP/1.1 ") else "closed"


def send_all(server, requests):
    """Sends each on a connection of its own that the server closes; returns the statuses."""
    return [status_of(read_to_end(server.connect(request))) for request in requests]


def counted(statuses, allowed):
    """The statuses, counted, and those that there should not be."""
    counts = collections.Counter(statuses)
    return counts, [f"{count} times {status}" for status, count in counts.items() if status not in allowed]


def sampled_texts(server, questions):
    """Sampled texts, each with a seed, `n` from 1 to 3 and half of them as streams, from 64 clients"""
    return ask_all(server, questions.sampled * 3, 64, "sampled")


def grpc_under_load(server, questions):
    """gRPC: classifications and scores from 16 clients"""
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        service = prediction_service_pb2_grpc.PredictionServiceStub(channel)

        def ask(name, signature, inputs, output):
            request = predict_pb2.PredictRequest()
            request.model_spec.name, request.model_spec.signature_name = name, signature
            for key, value in inputs.items():
                request.inputs[key].CopyFrom(tf.make_tensor_proto([value]))
            answer = service.Predict(request, timeout=SECONDS)
            return tf.make_ndarray(answer.outputs[output])[0]

        asked = [("classify", "", {"texts": text}, "probabilities") for text in questions.texts]
        asked += [("complete", "score", {"prompts": "", "texts": text}, "log_likelihoods") for text in questions.texts]
        alone = [ask(*each) for each in asked]
        statuses, faults = collections.Counter(), []

        def check(place):
            try:
                found = ask(*asked[place])
            except grpc.RpcError as error:
                return error.code().name, None
            return "OK", None if abs(found - alone[place]).max() < 1e-3 else f"{asked[place]}: {found}, {alone[place]}"

        with ThreadPoolExecutor(16) as pool:
            for status, fault in pool.map(check, list(range(len(asked))) * 10):
                statuses[status] += 1
                faults += [fault] if fault else []
    return statuses, faults + [f"{count} times {name}" for name, count in statuses.items() if name != "OK"]


def slow_clients(server, questions):
    """200 clients send a byte each 0.1 s: half of them the head of a request, half a body; 20 more read nothing"""
    request = bytes_of(COMPLETIONS, questions.streams[0].body)
    head, body = request.split(b"\r\n\r\n")
    large = {"signature_name": "forward", "inputs": {"token_ids": [[5] * 60] * 8, "padding_mask": [[True] * 60] * 8}}
    deaf = [server.connect(bytes_of("/v1/models/complete:predict", large)) for _ in range(20)]
    slow = [(server.connect(), head) for _ in range(100)]
    slow += [(server.connect(head + b"\r\n\r\n"), body) for _ in range(100)]
    for place in range(150):
        for connection, content in slow:
            with contextlib.suppress(OSError):
                connection.sendall(content[place % len(content) :][:1])
        time.sleep(0.1)
    statuses = [status_of(read_to_end(connection)) for connection, _ in slow]
    for connection in deaf:
        connection.close()
    return counted(statuses, {408, "closed"})


def half_closed(server, questions):
    """100 clients end their half of the connection behind the request"""
    connections = []
    for question in (questions.streams * 100)[:100]:
        connections.append(server.connect(bytes_of(question.path, question.body)))
        connections[-1].shutdown(socket.SHUT_WR)
    return counted([status_of(read_to_end(each)) for each in connections], {200, "closed"})


def idle_connections(server, questions):
    """2,000 connections on which nothing comes; 1,000 may be open; 100 requests beside them"""
    idle = [server.connect() for _ in range(2000)]
    request = bytes_of(PREDICT, questions.predictions[0].body, "Connection: close")
    statuses = send_all(server, [request] * 100)
    health = send_all(server, [b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"] * 10)
    left = [read_to_end(connection) for connection in idle]
    counts, faults = counted(statuses, {200, 503})
    faults += [f"/health answered {status}" for status in health if status != 200]
    faults += [f"an idle connection got {content[:80]!r}" for content in left if content]
    return counts, faults if 503 in counts else [*faults, "no request was refused"]


def bodies(server, questions):
    """Bodies of every kind: none, no JSON, cut off, in other encodings, compressed, too large, of odd values"""
    whole = json.dumps(questions.streams[0].body).encode()
    odd = [
        None,
        True,
        -1,
        1e308,
        2**63,
        10**400,
        "",
        "\x00",
        [],
        {},
        [[]],
        [None],
        {"b64": "?"},
        "\U0010ffff",
        "x" * 9000,
    ]
    contents = [
        b"",
        b"[]",
        b"null",
        b"1" * 5000,
        b"{",
        whole[:-1],
        whole[: len(whole) // 2],
        whole + b"}",
        b"\xff" * 99,
    ]
    contents += [whole.decode().encode("utf-16"), b"\x1f\x8b" + whole, b" " * 2**21, b'{"model": NaN}', b"\x00" * 500]
    contents += [b'{"model": "\\ud800"}', b'{"a": 1, ' * 50, json.dumps({str(n): n for n in range(50_000)}).encode()]
    for question in (questions.streams[0], questions.predictions[0]):
        contents += [json.dumps({**question.body, key: value}).encode() for key in question.body for value in odd]
        contents += [json.dumps({**question.body, "more": value}).encode() for value in odd]
    requests = [bytes_of(path, each, "Connection: close") for path in (COMPLETIONS, PREDICT) for each in contents]
    for lines in ("Content-Length: 9\r\nContent-Length: 10", "Content-Length: -1", "Transfer-Encoding: gzip, chunked"):
        requests.append(f"POST {PREDICT} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{lines}\r\n\r\n".encode())
    chunks = (
        f"POST {PREDICT} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\nXYZ\r\n"
    )
    return counted(send_all(server, [*requests, chunks.encode()]), {200, 400, 404, 413, 415, 422, 501, "closed"})


def deep_json(server, questions):
    """Lists and objects in each other, 33 to 300,000 deep"""
    requests = []
    for depth in (33, 1000, 100_000, 300_000):
        for opening, closing in ((b"[", b"]"), (b'{"a":', b"}")):
            inner = opening * depth + b"1" + closing * depth
            for content in (inner, b'{"instances": ' + inner + b"}", b'{"model": ' + opening * depth):
                requests.append(bytes_of(PREDICT, content, "Connection: close"))
    return counted(send_all(server, requests), {400, 413})


def huge_headers(server, questions):
    """Heads of up to 10 MB, 5,000 headers, a path of 100 kB, headers that are none, other protocols"""
    odd = ["A" * size + ": b" for size in (70_000, 10**6)] + [f"A: {'b' * size}" for size in (70_000, 10**7)]
    odd += [
        "\r\n".join(f"A{n}: b" for n in range(5000)),
        "no colon",
        ": b",
        "A\x00: b",
        "A: b\x00",
        "A : b",
        "\u00e4: b",
    ]
    requests = [bytes_of(PREDICT, questions.predictions[0].body, header, "Connection: close") for header in odd]
    requests.append(bytes_of("/" + "a" * 100_000, {}, "Connection: close"))
    requests += [
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00" * 50 + b"\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ]
    statuses = []
    for request in requests:
        connection = server.connect()
        with contextlib.suppress(ConnectionError):
            connection.sendall(request)
        statuses.append(status_of(read_to_end(connection)))
    # a head that comes whole in one read is taken, of whatever version it says that it is
    return counted(statuses, {200, 400, 404, 431, 505, "closed"})


def pipelining(server, questions):
    """10 connections with 40 requests each, sent at once"""
    faults, statuses = [], collections.Counter()
    asked = (questions.predictions * 40)[:40]
    for _ in range(10):
        connection = server.connect(b"".join(bytes_of(each.path, each.body) for each in asked))
        file = connection.makefile("rb")
        for question in asked:
            status = int(file.readline().split()[1])
            headers = http.client.parse_headers(file)
            fault = question.fault(status, file.read(int(headers["Content-Length"])))
            statuses[status] += 1
            faults += [fault] if fault else []
        file.close()
        connection.close()
    return statuses, faults + counted(statuses, {200})[1]


def aborted_streams(server, questions):
    """200 streams of which clients read the beginning and vanish, half of them with a reset; then none is left"""
    counts = collections.Counter()
    for number in range(200):
        body = {**questions.streams[0].body, "n": 4, "max_tokens": 60}
        connection = server.connect(bytes_of(COMPLETIONS, body))
        counts[status_of(connection.recv(100))] += 1
        if number % 2:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        connection.close()
    # those who go on asking one by one are there, too
    left = len(questions.others)
    ends = time.monotonic() + 30
    while (texts := server.texts()) > left and time.monotonic() < ends:
        time.sleep(0.1)
    faults = [f"{texts} texts are still written"] if texts > left else []
    return counts, faults + counted(counts, {200, 429})[1]


def other_sites(server, questions):
    """Pages of other sites (Origin), and names that have been bound to 127.0.0.1 (Host)"""
    body, requests = questions.predictions[0].body, []
    for origin in (
        "http://evil.example",
        "null",
        "http://localhost.evil.example",
        f"http://localhost:{server.port + 1}",
    ):
        requests.append(bytes_of(PREDICT, body, f"Origin: {origin}", "Connection: close"))
    for host in ("evil.example", f"evil.example:{server.port}", "localhost.evil.example", "127.0.0.1@evil.example", ""):
        requests.append(bytes_of(PREDICT, body, "Connection: close", host=host))
        requests.append(bytes_of(PREDICT, body, f"Origin: http://{host}", "Connection: close", host=host))
    return counted(send_all(server, requests), {403})


def names_with_dots(server, questions):
    """Names of models, versions and pages with `..`, also encoded"""
    names = [
        "..",
        "../..",
        "../classify",
        "..%2f..%2fetc%2fpasswd",
        "%2e%2e",
        "classify/../../..",
        "..\\..",
        "classify%00",
    ]
    names += ["/etc/passwd", ".", "classify/1", "\u2025"]
    client, statuses = Client(server), []
    for name in names:
        quoted = name.encode().decode("latin-1") if name.isascii() else "%E2%80%A5"
        statuses += [
            client.ask(f"/v1/models/{quoted}")[0],
            client.ask(f"/v1/models/{quoted}:predict", {"instances": ["a"]})[0],
        ]
        statuses += [client.ask(f"/v2/models/{quoted}")[0], client.ask(f"/{quoted}")[0]]
        statuses.append(client.ask(COMPLETIONS, {"model": name, "prompt": "a", "max_tokens": 2})[0])
    return counted(statuses, {400, 404, 405})


def corrupt_versions(server, questions):
    """Versions 2 to 5 that are damaged are dropped in: empty, of random bytes, cut off, a loop of links"""
    place = server.folder / "complete"
    for number in (2, 3, 4):
        (place / str(number)).mkdir()
    (place / "3" / "saved_model.pb").write_bytes(os.urandom(10_000))
    for path in (place / "1").rglob("*"):
        if path.is_file():
            copy = place / "4" / path.relative_to(place / "1")
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    (place / "5").symlink_to(place / "5")
    statuses, faults = collections.Counter(), []
    ends = time.monotonic() + 30
    while time.monotonic() < ends:
        more, wrong = ask_all(server, questions.sampled[:16], 8, "corrupt versions")
        statuses += more
        faults += wrong
    for number in (2, 3, 4):
        shutil.rmtree(place / str(number))
    (place / "5").unlink()
    # what was found before it was taken away is still tried, one after the other
    ends, quiet = time.monotonic() + 120, 0
    while quiet < 10 and time.monotonic() < ends:
        quiet = quiet + 1 if len(server.workers()) == 2 else 0
        time.sleep(0.5)
    faults += [f"workers are left: {server.workers()}"] if quiet < 10 else []
    return statuses, faults + counted(statuses, {200})[1]


def streams_while(server, questions, happens):
    """64 streams, in whose middle something happens; afterwards all questions are answered again."""
    begun, statuses, faults = threading.Semaphore(0), collections.Counter(), []

    def ask(question):
        client, content = Client(server), b""
        client.connection.request("POST", question.path, json.dumps(question.body).encode(), client.headers())
        answer = client.connection.getresponse()
        if answer.status != 200:
            begun.release()
            return answer.status, None
        with contextlib.suppress(http.client.HTTPException, ConnectionError):
            content = answer.readline()
            begun.release()
            content += answer.read()
        texts = texts_of(content, stream=True)
        if texts is None:
            return ("told" if b'"error"' in content else "cut off"), None
        return 200, None if texts == question.expected else f"{question.body}: {texts}, alone {question.expected}"

    with ThreadPoolExecutor(64) as pool:
        answers = [pool.submit(ask, question) for question in (questions.streams * 64)[:64]]
        for _ in range(8):  # those that are written at the same time
            begun.acquire()
        happens()
        for status, fault in (answer.result() for answer in answers):
            statuses[status] += 1
            faults += [fault] if fault else []
    ends = time.monotonic() + 180
    client = Client(server)
    # a stream has begun, with status 200, before its first token is known
    while client.ask(COMPLETIONS, questions.short[0].body)[0] != 200 and time.monotonic() < ends:
        time.sleep(0.5)
    again, wrong = ask_all(server, questions.sampled, 16, "afterwards")
    return statuses, faults + wrong + counted(statuses, {200, "told", *REFUSED})[1] + counted(again, {200})[1]


def worker_killed(server, questions):
    """SIGKILL of the worker in the middle of 64 streams"""
    return streams_while(server, questions, lambda: os.kill(server.workers()[WRITER], signal.SIGKILL))


def worker_out_of_memory(server, questions):
    """The worker gets no more memory in the middle of 64 streams, for 10 seconds, and is asked for 30 MB of logits"""
    worker = server.workers()[WRITER]
    inputs = {"token_ids": [[5] * 60] * 128, "padding_mask": [[True] * 60] * 128}
    large, statuses = {"signature_name": "forward", "inputs": inputs}, []

    def take():
        [line] = [line for line in open(f"/proc/{worker}/status") if line.startswith("VmSize")]
        before = resource.prlimit(worker, resource.RLIMIT_AS)
        resource.prlimit(worker, resource.RLIMIT_AS, (int(line.split()[1]) * 1024, before[1]))
        ends = time.monotonic() + 10
        statuses.append(Client(server).ask("/v1/models/complete:predict", large)[0])
        time.sleep(max(0, ends - time.monotonic()))
        with contextlib.suppress(ProcessLookupError):  # it may have ended
            resource.prlimit(worker, resource.RLIMIT_AS, before)

    counts, faults = streams_while(server, questions, take)
    counts[f"logits {statuses[0]}"] += 1
    return counts, faults


def worker_stopped_shortly(server, questions):
    """SIGSTOP of the worker in the middle of 64 streams, and SIGCONT 5 seconds later"""
    worker = server.workers()[WRITER]

    def stop():
        os.kill(worker, signal.SIGSTOP)
        time.sleep(5)
        os.kill(worker, signal.SIGCONT)

    statuses, faults = streams_while(server, questions, stop)
    return statuses, faults + counted(statuses, {200})[1]


def worker_stopped(server, questions):
    """SIGSTOP of the worker in the middle of 64 streams, for good: it is ended and started again"""
    worker = server.workers()[WRITER]
    statuses, faults = streams_while(server, questions, lambda: os.kill(worker, signal.SIGSTOP))
    if server.workers()[WRITER] == worker:
        faults.append("the worker was not started again")
    return statuses, faults


def full_disk(server, questions):
    """A log on a full disk (/dev/full): a worker is killed, which is something to be logged"""
    return worker_killed(server, questions)


def wrong_keys(server, questions):
    """Requests without the key or with another, over HTTP and gRPC; the right one between them"""
    statuses, question = [], questions.predictions[0]
    for key in (
        None,
        "",
        "Bearer",
        KEY[:-1],
        KEY + "a",
        KEY.upper(),
        "\u00e4".encode().decode("latin-1"),
        "x" * 50_000,
    ):
        client = Client(server, key=key)
        for path, body in (
            (PREDICT, question.body),
            (COMPLETIONS, questions.streams[0].body),
            ("/v1/models", None),
            ("/metrics", None),
        ):
            statuses.append(client.ask(path, body)[0])
    basic = Client(server, key=None).ask(PREDICT, question.body, {"Authorization": f"Basic {KEY}"})[0]
    right = Client(server).ask(question.path, question.body)
    counts, faults = counted([*statuses, basic], {401})
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        for key in (None, KEY[:-1], KEY):
            metadata = [] if key is None else [("authorization", f"Bearer {key}")]
            request = predict_pb2.PredictRequest()
            request.model_spec.name = "classify"
            request.inputs["texts"].CopyFrom(tf.make_tensor_proto(["a"]))
            call = prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict.with_call
            try:
                call(request, metadata=metadata, timeout=SECONDS)
                code = "OK"
            except grpc.RpcError as error:
                code = error.code().name
            counts[code] += 1
            faults += [] if code == ("OK" if key == KEY else "UNAUTHENTICATED") else [f"gRPC said {code}"]
    counts[right[0]] += 1
    return counts, faults + ([] if right[0] == 200 and question.fault(*right) is None else ["the right key"])


def terminated(server, questions):
    """SIGTERM in the middle of 16 streams: they are written to the end, and the server ends with status 0"""
    faults, begun = [], threading.Semaphore(0)

    def ask(question):
        client = Client(server)
        client.connection.request("POST", question.path, json.dumps(question.body).encode(), client.headers())
        answer = client.connection.getresponse()
        content = answer.readline()
        begun.release()
        return answer.status, texts_of(content + answer.read(), stream=True)

    asked = (questions.streams * 16)[:16]
    with ThreadPoolExecutor(16) as pool:
        answers = [pool.submit(ask, question) for question in asked]
        for _ in asked:
            begun.acquire()
        server.process.send_signal(signal.SIGTERM)
        found = [answer.result() for answer in answers]
    faults += [
        f"{question.body}: {each}"
        for question, each in zip(asked, found, strict=True)
        if each != (200, question.expected)
    ]
    ended = server.process.wait(60)
    faults += [f"it ended with {ended}"] if ended else []
    return collections.Counter(status for status, _ in found), faults


def many_requests(server, questions, count):
    """Requests from 64 clients: 19 of 20 classifications, 1 of 20 a sampled text of 4 tokens"""
    asked = [questions.short[n // 20 % len(questions.short)] if n % 20 == 0 else None for n in range(count)]
    asked = [each or questions.predictions[n % len(questions.predictions)] for n, each in enumerate(asked)]
    statuses, faults = ask_all(server, asked, 64, "many requests")
    return statuses, faults + counted(statuses, {200})[1]


ATTACKS = (sampled_texts, grpc_under_load, slow_clients, half_closed, idle_connections, bodies, deep_json, huge_headers)
ATTACKS += (pipelining, aborted_streams, other_sites, names_with_dots, corrupt_versions, worker_stopped_shortly)
ATTACKS += (worker_killed, worker_out_of_memory, worker_stopped)
# of a server with a key whose log is on a full disk; the last one ends it
WITH_KEY = (wrong_keys, full_disk, terminated)
