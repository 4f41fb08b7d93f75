"""A small language model that chats, with a window of attention, and what it is as an export."""

import asyncio
import contextlib
import threading
import time
import urllib.error
import urllib.request

import keras
import pytest


@pytest.fixture(scope="session")
def chat_model():
    import zoo
    from zoo.tokenizers import ByteLevelBPETokenizer

    keras.utils.set_random_seed(0)
    tokens = ["<|im_start|>", "<|im_end|>"]
    words = "hello who are you today friend of mine, wörld and 你好"
    tokenizer = ByteLevelBPETokenizer.train([words] * 9, 290, end_token="<|endoftext|>", special_tokens=tokens)
    config = zoo.TransformerConfig(
        "decoder",
        tokenizer.vocabulary_size,
        hidden_dim=16,
        num_layers=2,
        max_length=160,
        attention=zoo.AttentionConfig(num_heads=2, window=(40, 0), window_layers=(True, False)),
        position=zoo.PositionConfig("rotary"),
        feed_forward=zoo.FeedForwardConfig(16),
        norm=zoo.NormConfig(placement="pre"),
        dropout=0.0,
        initializer_range=0.7,
    )
    return zoo.CausalLM(zoo.Backbone.from_config(config), tokenizer.with_chat_format("chatml"))


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

    def run(self, coroutine, seconds=120):
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
