"""Calls that are answered together get what each gets alone, and what one of them does wrong harms no other."""

import queue
import threading
import time

import numpy as np
import pytest

from zoo.serving.continuous_batch import QueueFullError
from zoo.serving.dynamic_batch import DynamicBatch, LateError


class Model:
    """Endpoints that answer when they are let."""

    def __init__(self):
        texts = {"name": "texts", "shape": ["batch"], "dtype": "string"}
        ids = {"name": "ids", "shape": ["batch", "length"], "dtype": "int32"}
        logits = {"name": "logits", "shape": ["batch", "length", 50_000], "dtype": "float32"}
        pairs = {"name": "pairs", "shape": ["batch", 2**24], "dtype": "float32"}
        lengths = {"name": "lengths", "shape": ["batch"], "dtype": "int32"}
        self.endpoints = {
            "lengths": {"inputs": [texts], "outputs": [lengths]},
            "large": {"inputs": [texts], "outputs": [lengths, pairs]},
            "forward": {"inputs": [ids], "outputs": [logits]},
        }
        self.calls, self.may_go = [], threading.Event()
        self.may_go.set()

    def call(self, endpoint, texts):
        self.may_go.wait(100)
        self.calls.append(list(texts))
        if b"wrong" in list(texts):
            raise ValueError("wrong")
        if b"strange" in list(texts):
            return {"other": np.zeros(len(texts))}
        outputs = {"lengths": np.array([len(text) for text in texts])}
        # stands for what no test should hold
        return outputs | ({"pairs": np.zeros(len(texts))} if endpoint == "large" else {})


@pytest.fixture
def model():
    return Model()


def ask(batch, texts, **options):
    told = queue.Queue()
    cancel = batch.call({"texts": np.array(texts, "object")}, told.put, **options)
    return told, cancel


def block(batch, model):
    """Lets one call begin, which ends when it is let."""
    model.may_go.clear()
    told, _ = ask(batch, [b"first"])
    while batch.load:
        time.sleep(0.001)
    return told


def test_calls_that_wait_are_answered_together(model):
    with DynamicBatch(model, "lengths", rows=4) as batch:
        block(batch, model)
        asked = [ask(batch, texts)[0] for texts in ([b"one"], [b"two", b"at"], [b"a" * 50], [b"ten"])]
        model.may_go.set()
        answers = [told.get(timeout=100)["lengths"].tolist() for told in asked]
    assert answers == [[3], [3, 2], [50], [3]]
    assert model.calls[1:] == [[b"one", b"two", b"at", b"ten"], [b"a" * 50]]


@pytest.mark.parametrize("wrong", [b"wrong", b"strange"])
def test_a_call_that_fails_fails_alone(model, wrong):
    with DynamicBatch(model, "lengths") as batch:
        block(batch, model)
        asked = [ask(batch, [text])[0] for text in (b"seven", wrong, b"eight")]
        model.may_go.set()
        answers = [told.get(timeout=100) for told in asked]
        assert [answer["lengths"].tolist() for answer in (answers[0], answers[2])] == [[5], [5]]
        assert isinstance(answers[1], Exception)
        assert ask(batch, [b"after"])[0].get(timeout=100)["lengths"].tolist() == [5]


def test_calls_that_draw_are_not_put_together(model):
    with DynamicBatch(model, "lengths", shares=lambda inputs: False) as batch:
        block(batch, model)
        asked = [ask(batch, [text])[0] for text in (b"one", b"two")]
        model.may_go.set()
        assert [told.get(timeout=100)["lengths"].tolist() for told in asked] == [[3], [3]]
    assert model.calls[1:] == [[b"one"], [b"two"]]


def test_cancelled_calls_take_no_place(model):
    with DynamicBatch(model, "lengths", waiting=2) as batch:
        block(batch, model)
        cancels = [ask(batch, [b"one"])[1] for _ in range(2)]
        with pytest.raises(QueueFullError, match="2 calls wait already"):
            ask(batch, [b"two"])
        for cancel in cancels:
            cancel()
        late, _ = ask(batch, [b"two"], deadline=time.monotonic() - 1)
        told, _ = ask(batch, [b"three"])
        model.may_go.set()
        assert told.get(timeout=100)["lengths"].tolist() == [5]
        assert isinstance(late.get(timeout=100), LateError)
    assert model.calls == [[b"first"], [b"three"]]


def test_outputs_that_no_memory_holds_are_refused(model):
    with DynamicBatch(model, "forward") as batch:
        with pytest.raises(ValueError, match="'logits' must have at most 67108864 entries, not 500000000"):
            batch.call({"ids": np.zeros((10, 1000), "int32")}, print)
        with pytest.raises(ValueError, match="'ids' must have rows of at most 8192, got 10000"):
            batch.call({"ids": np.zeros((1, 10_000), "int32")}, print)


def test_outputs_of_a_batch_are_no_more_than_those_of_a_call(model):
    """Ten calls of 2**24 numbers each, of which four are as many as one call may ask for."""
    with DynamicBatch(model, "large") as batch:
        block(batch, model)
        asked = [ask(batch, [b"one"])[0] for _ in range(10)]
        model.may_go.set()
        assert [told.get(timeout=100)["lengths"].tolist() for told in asked] == [[3]] * 10
    assert [len(call) for call in model.calls] == [1, 4, 4, 2]


def test_clients_share_the_places_to_wait(model):
    with DynamicBatch(model, "lengths", waiting=3) as batch:
        block(batch, model)
        greedy = [ask(batch, [text], client="greedy")[0] for text in (b"1", b"22", b"333")]
        with pytest.raises(QueueFullError, match="3 calls wait already"):
            ask(batch, [b"4444"], client="greedy")
        other, _ = ask(batch, [b"55555"], client="other")
        # the newest of the client with the most is refused at once
        assert isinstance(greedy[2].get(timeout=100), QueueFullError)
        third, _ = ask(batch, [b"666666"], client="third")
        assert isinstance(greedy[1].get(timeout=100), QueueFullError)
        with pytest.raises(QueueFullError, match="3 calls wait already"):
            ask(batch, [b"7777777"], client="other")
        model.may_go.set()
        assert [told.get(timeout=100)["lengths"].tolist() for told in (greedy[0], other, third)] == [[1], [5], [6]]
