"""A server as a process of its own, what is asked of it, and the requests that go on while it is attacked."""

import collections
import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import tqdm

KEY = "a-key-of-many-letters"
SECONDS = 120


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


class Server:
    """A server with its workers.

    Args:
        folder: Folder of models.
        log: File for its log.
        key: The key that requests must bring; None for none.
        options: Further words of its command.
    """

    def __init__(self, folder, log, *options, key=None):
        self.folder, self.key, self.port, self.grpc_port = Path(folder), key, free_port(), free_port()
        given = [*options, "--port", str(self.port), "--grpc_port", str(self.grpc_port)]
        environment = {**os.environ, **({} if key is None else {"ZOO_API_KEY": key})}
        with open(log, "ab") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "recipes.serve", str(folder), *given],
                stdout=file,
                stderr=file,
                env=environment,
            )
        ends = time.monotonic() + 600
        while True:
            with contextlib.suppress(OSError):
                status, content = Client(self).ask("/ready")
                if status == 200 and b"loading" not in content:
                    return
            if self.process.poll() is not None or time.monotonic() > ends:
                raise SystemExit(f"the server did not start, see {log}")
            time.sleep(0.2)

    def workers(self):
        """Process numbers of the workers by model and version, of those that still load, too."""
        found = {}
        for pid in self._children():
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
                if "zoo.serving.worker" in words:
                    [export] = [path for path in map(Path, words) if path.parent.parent == self.folder]
                    found[export.parent.name, export.name] = pid
        return found

    def _children(self):
        pid = self.process.pid
        place = Path(f"/proc/{pid}/task/{pid}/children")
        return [int(each) for each in place.read_text().split()] if place.exists() else []

    def size(self):
        """MiB of memory and number of open files of all processes; shared pages count once for each."""
        memory = files = 0
        for pid in (self.process.pid, *self._children()):
            with contextlib.suppress(OSError):
                # one that has just ended has none
                lines = [line for line in open(f"/proc/{pid}/status") if line.startswith("VmRSS")]
                memory += sum(int(line.split()[1]) for line in lines) / 1024
                files += len(os.listdir(f"/proc/{pid}/fd"))
        return memory, files

    def texts(self):
        """Number of texts that wait or are being written."""
        page = Client(self).ask("/metrics")[1].decode()
        return sum(float(line.split()[-1]) for line in page.splitlines() if line.startswith("zoo_texts{"))

    def stop(self):
        self.process.kill()
        self.process.wait()

    def connect(self, content=b""):
        """A connection that has sent some bytes."""
        connection = socket.create_connection(("127.0.0.1", self.port), SECONDS)
        connection.sendall(content)
        return connection


class Client:
    """A connection that is kept; a new one where the server has closed it.

    Args:
        server: The server.
        key: The key that requests bring; the server's where none is given.
    """

    def __init__(self, server, key=...):
        self.server, self.key = server, server.key if key is ... else key
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=SECONDS)

    def headers(self):
        """What brings the key."""
        return {} if self.key is None else {"Authorization": f"Bearer {self.key}"}

    def ask(self, path, body=None, headers=()):
        """Status and content of an answer; a body that is no bytes is sent as JSON."""
        headers = {**self.headers(), **dict(headers)}
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        was_open = self.connection.sock is not None
        try:
            return self._answer("GET" if body is None else "POST", path, content, headers)
        except (http.client.RemoteDisconnected, ConnectionError):
            self.connection.close()
            if not was_open:
                raise
            return self._answer("GET" if body is None else "POST", path, content, headers)

    def _answer(self, method, path, content, headers):
        self.connection.request(method, path, content, headers)
        answer = self.connection.getresponse()
        return answer.status, answer.read()


def texts_of(content, stream):
    """The texts of a completion, by their numbers; of a stream None where it ends without all of them."""
    if not stream:
        return [choice["text"] for choice in json.loads(content)["choices"]]
    lines = [line[6:] for line in content.decode().split("\n") if line.startswith("data: ")]
    if not lines or lines[-1] != "[DONE]" or any("error" in json.loads(line) for line in lines[:-1]):
        return None
    texts = collections.defaultdict(str)
    for line in lines[:-1]:
        for choice in json.loads(line)["choices"]:
            texts[choice["index"]] += choice["text"]
    return [texts[index] for index in sorted(texts)]


class Question:
    """A request, and what the server says to it when it is asked nothing else.

    Args:
        server: The server, idle.
        path: Path of the request.
        body: Its body.
    """

    def __init__(self, server, path, body):
        self.path, self.body = path, body
        status, content = Client(server).ask(path, body)
        if status != 200:
            raise SystemExit(f"{path} answered {status} when it was asked alone: {content[:300]!r}")
        self.expected = self.read(content)

    def read(self, content):
        if "completions" in self.path:
            return texts_of(content, self.body.get("stream", False))
        return json.loads(content)["predictions"]

    def fault(self, status, content):
        """What is wrong with an answer of status 200; None for nothing."""
        if status != 200:
            return None
        found = self.read(content)
        return None if is_same(found, self.expected) else f"{self.body}: {found}, alone {self.expected}"


def is_same(found, expected):
    """Numbers may differ by the order in which a batch is added up."""
    if isinstance(expected, float) and isinstance(found, float):
        return abs(found - expected) < 1e-3
    if isinstance(expected, list):
        return isinstance(found, list) and len(found) == len(expected) and all(map(is_same, found, expected))
    if isinstance(expected, dict):
        return isinstance(found, dict) and list(map(is_same, found.values(), expected.values())) == [True] * len(found)
    return found == expected


class Others:
    """Clients that ask one question after the other all the time, while somebody else attacks.

    Args:
        server: The server.
        questions: A question for each client, by what the table calls it.
    """

    def __init__(self, server, questions):
        self.server, self.over = server, threading.Event()
        self.statuses = {name: collections.Counter() for name in questions}
        self.slowest, self.faults = dict.fromkeys(questions, 0.0), []
        self._threads = [threading.Thread(target=self._ask, args=item) for item in questions.items()]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, name, question):
        client = Client(self.server)
        while not self.over.is_set():
            began = time.monotonic()
            try:
                status, content = client.ask(question.path, question.body)
            except (OSError, http.client.HTTPException) as error:
                status, content = type(error).__name__, b""
                client = Client(self.server)
            self.slowest[name] = max(self.slowest[name], time.monotonic() - began)
            self.statuses[name][status] += 1
            if (fault := question.fault(status, content)) is not None:
                self.faults.append(fault)
            self.over.wait(0.05)


def ask_all(server, questions, clients, name):
    """Asks all questions, many at a time; returns the statuses, counted, and what was wrong."""
    statuses, faults, local = collections.Counter(), [], threading.local()

    def ask(question):
        if not hasattr(local, "client"):
            local.client = Client(server)
        try:
            status, content = local.client.ask(question.path, question.body)
        except (OSError, http.client.HTTPException) as error:
            local.client = Client(server)
            return type(error).__name__, None
        return status, question.fault(status, content)

    with ThreadPoolExecutor(clients) as pool:
        for status, fault in tqdm.tqdm(pool.map(ask, questions), name, total=len(questions), leave=False):
            statuses[status] += 1
            if fault is not None:
                faults.append(fault)
    return statuses, faults
