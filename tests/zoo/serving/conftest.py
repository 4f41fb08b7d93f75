"""A small language model that chats, with a window of attention, and what it is as an export."""

import asyncio
import contextlib
import threading
import time
import urllib.error
import urllib.request

import pytest


@pytest.fixture(scope="session")
def chat_model():
    from small_chat_model import make_chat_model

    return make_chat_model()


@pytest.fixture(scope="session")
def chat_export(chat_model, made_once):
    return made_once("chat_export", lambda folder: chat_model.export(folder, jit_compile=False))


@pytest.fixture(scope="session")
def exported(chat_export):
    from zoo.serving.exported_model import ExportedModel

    return ExportedModel(chat_export)


class Loop:
    """An event loop in a thread, for tests that are no coroutines."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def run(self, coroutine, seconds=600):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(seconds)

    def stop(self):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


@pytest.fixture(scope="module")
def loop():
    loop = Loop()
    yield loop
    loop.stop()


@contextlib.contextmanager
def running(folder, *, api_key=None, limits=None, options=None, **others):
    """A server in a thread; its address."""
    from zoo.serving.application import app
    from zoo.serving.http_server import HttpServer, listen
    from zoo.serving.options import Batching, Limits

    limits = limits or Limits()
    others = {"api_key": api_key, "interval": 0.2, **others}
    application = app(folder, limits=limits, batching=Batching(**(options or {})), **others)
    server, listener = HttpServer(application, limits, 20, application.state.begin_end), listen("127.0.0.1", 0)
    port = listener.getsockname()[1]
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    end = time.monotonic() + 600
    while True:
        # what is asked before is answered when the server has started
        with contextlib.suppress(urllib.error.HTTPError):  # the models are being loaded
            if b"loading" not in urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=60).read():
                break
        assert thread.is_alive() and time.monotonic() < end, "The server did not start."
        time.sleep(0.02)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(60)


@pytest.fixture(scope="session")
def run_server():
    return running


@pytest.fixture(scope="session")
def chat_folder(chat_export, tmp_path_factory):
    """Version 3 of the model `chat`."""
    folder = tmp_path_factory.mktemp("models")
    (folder / "chat").mkdir()
    (folder / "chat" / "3").symlink_to(chat_export)
    return folder


@pytest.fixture(scope="session")
def chat_address(chat_folder):
    """Where the server is that the tests of many files ask: to start one and warm it takes most of their time."""
    from zoo.serving.options import Limits

    limits = Limits(body_bytes=1_000_000, text_characters=80_000, rows=20, new_tokens=150)
    with running(chat_folder, limits=limits, options={"rows": 4, "steps": 4}) as address:
        yield address
