"""The requests that an export brings: those that this project writes, and those of TensorFlow's own messages."""

import numpy as np
import pytest
import tensorflow as tf

for name in ("msgpack", "tensorflow_serving"):
    pytest.importorskip(name, reason="the extra serve is not installed")

from tensorflow_serving.apis import prediction_log_pb2  # noqa: E402

import zoo  # noqa: E402
from zoo.serving.recorded_requests import RECORDED_FILE, replay  # noqa: E402

TEXTS = ["hello", "你好", "مرحبا", "สวัสดี", "नमस्ते"]


class Model:
    """A model that keeps what it is asked; it knows one endpoint, and no text that is "bad"."""

    default = "serve"
    endpoints = {"serve": {}, "advance": {}}

    def __init__(self):
        self.asked = []

    def call(self, endpoint, **inputs):
        if b"bad" in inputs["texts"]:
            raise tf.errors.InvalidArgumentError(None, None, "No such text.")
        self.asked.append((endpoint, inputs["texts"].tolist()))


@pytest.fixture
def file(tmp_path):
    (tmp_path / RECORDED_FILE).parent.mkdir()
    return tmp_path / RECORDED_FILE


def recorded(texts, signature=""):
    log = prediction_log_pb2.PredictionLog()
    request = log.predict_log.request
    request.model_spec.signature_name = signature
    request.inputs["texts"].CopyFrom(tf.make_tensor_proto(texts))
    return log.SerializeToString()


def write(file, records):
    with tf.io.TFRecordWriter(str(file)) as writer:
        for record in records:
            writer.write(record)


def test_what_this_project_writes(chat_model, file, tmp_path):
    endpoints = chat_model.endpoints()
    requests = zoo.export.requests.requests_of(endpoints, TEXTS)
    zoo.export.requests.write_warmup(file, endpoints, requests)
    model = Model()
    model.endpoints = endpoints
    assert replay(model, tmp_path) == len(requests) >= 2
    texts = [text.encode() for text in TEXTS]
    assert model.asked[:2] == [("serve", texts[:1]), ("serve", texts)]


def test_what_others_write(file, tmp_path, caplog):
    other = prediction_log_pb2.PredictionLog()
    other.classify_log.request.model_spec.name = "dates"
    records = [
        recorded(["one"]),
        recorded(["bad"]),
        recorded(["two"], "serving_default"),
        recorded(["three"], "serve"),
        recorded(["four"], "advance"),
        recorded(["five"], "unknown"),
        b"\xff no message",
        other.SerializeToString(),
    ]
    write(file, records)
    model = Model()
    assert replay(model, tmp_path) == 3
    assert model.asked == [("serve", [text]) for text in (b"one", b"two", b"three")]
    assert caplog.messages == ["5 of 8 recorded requests failed."]


def test_files_that_end_in_the_middle(file, tmp_path, caplog):
    write(file, [recorded(["one"]), recorded(["two"])])
    file.write_bytes(file.read_bytes()[:-3])
    model = Model()
    assert replay(model, tmp_path) == 1 and model.asked == [("serve", [b"one"])]
    assert caplog.messages == ["The recorded requests could not be read to their end: DataLossError"]


def test_exports_without_requests_and_with_many(file, tmp_path, monkeypatch):
    assert replay(Model(), tmp_path) == 0
    monkeypatch.setattr("zoo.serving.recorded_requests.MOST_RECORDED", 2)
    write(file, [recorded(np.array([text], "object")) for text in TEXTS])
    assert replay(Model(), tmp_path) == 2
