"""Texts that are written together are those that `generate` writes for each alone."""

import json
import queue
import threading
import time

import numpy as np
import pytest

from recipes.serving.continuous_batch import BatchOptions, ContinuousBatch, QueueFullError
from recipes.serving.writing import WritingRequest

WORDS = "hello who are you today friend of mine, wörld and 你好".split(" ")


class Listener:
    """Collects what is told of a text."""

    def __init__(self):
        self.pieces, self.last, self.done = [], None, threading.Event()

    def __call__(self, written):
        self.pieces.append(written.text)
        if written.reason is not None:
            self.last = written
            self.done.set()

    @property
    def text(self):
        assert self.done.wait(60), "The text did not end."
        return "".join(self.pieces)


@pytest.fixture
def prompts():
    generator = np.random.default_rng(0)
    return [" ".join(generator.choice(WORDS, generator.integers(1, 9))) for _ in range(24)]


def settings_of(number):
    """Arguments of a request, and of `generate`, for one kind of text after the other."""
    kinds = [
        ({}, {}),
        ({"temperature": 0.9}, {"name": "sample", "temperature": 0.9}),
        ({"temperature": 1.2, "top_k": 20}, {"name": "sample", "temperature": 1.2, "top_k": 20}),
        ({"temperature": 1.0, "top_p": 0.8}, {"name": "sample", "top_p": 0.8}),
    ]
    row, sampler = kinds[number % len(kinds)]
    return {**row, "seed": 100 + number}, {"sampler": sampler or "greedy", "seed": 100 + number}


@pytest.mark.parametrize("options", [BatchOptions(rows=5, steps=3, prefill=7), BatchOptions(prefix_bytes=0)])
def test_texts_are_those_of_generate(chat_model, exported, prompts, options):
    listeners, expected = [], []
    with ContinuousBatch(exported, options) as batch:
        for number, (prompt, ids) in enumerate(zip(prompts, batch.tokens(prompts), strict=True)):
            row, python = settings_of(number)
            count = 3 + 5 * (number % 7)
            stop = ["e", "o"] if number % 3 == 0 else []
            listeners.append(Listener())
            request = WritingRequest(ids, count, **row, stop=stop, streams_text=number % 2 == 0)
            batch.write(request, listeners[-1])
            python |= {"max_new_tokens": count, "stop": stop or None, "strip_prompt": True, "return_scores": True}
            expected.append(chat_model.generate(prompt, jit_compile=False, **python))
            if number % 5 == 0:
                time.sleep(0.05)  # some come while others are being written
        texts, scores = zip(*expected, strict=True)
        assert tuple(listener.text for listener in listeners) == texts
        np.testing.assert_allclose([listener.last.log_probability for listener in listeners], scores, rtol=1e-3)
        assert max(len(listener.pieces) for listener in listeners) > 2
        assert batch.load == {"waiting": 0, "filling": 0, "writing": 0}
    assert {listener.last.reason for listener in listeners} == {"stop", "length"}
    assert len(set(texts)) > 12


ADJUSTMENTS = [
    ({"presence_penalty": 1.5}, [{"name": "presence_penalty", "penalty": 1.5}]),
    ({"frequency_penalty": 0.9}, [{"name": "frequency_penalty", "penalty": 0.9}]),
    ({"logit_bias": {40: 3.0, 41: -100.0}}, [{"name": "logit_bias", "biases": {40: 3.0, 41: -100.0}}]),
    ({"min_tokens": 25}, [{"name": "minimum_length", "length": 25}]),
    ({}, []),
]


def test_adjustments_are_those_of_processors(chat_model, exported, prompts):
    listeners, expected, plain = [], [], []
    with ContinuousBatch(exported, BatchOptions(rows=5, steps=3)) as batch:
        for number, ids in enumerate(batch.tokens(prompts[:10])):
            row, python = settings_of(number)
            own, processors = ADJUSTMENTS[number % len(ADJUSTMENTS)]
            listeners.append(Listener())
            batch.write(WritingRequest(ids, 30, **row, **own), listeners[-1])
            python |= {"max_new_tokens": 30, "strip_prompt": True, "jit_compile": False}
            expected.append(chat_model.generate(prompts[number], processors=processors, **python))
            plain.append(chat_model.generate(prompts[number], **python))
        endless = Listener()
        batch.write(WritingRequest(ids, 30, ignore_eos=True), endless)
        assert [listener.text for listener in listeners] == expected
        assert endless.text is not None and (endless.last.reason, endless.last.tokens) == ("length", 30)
    assert sum(text != other for text, other in zip(expected, plain, strict=True)) > 4


def test_exports_of_other_versions(exported, monkeypatch):
    advance = exported.endpoints["advance"]
    inputs = [field for field in advance["inputs"] if field["name"] != "bias_ids"]
    monkeypatch.setitem(exported.endpoints, "advance", {**advance, "inputs": inputs})
    with pytest.raises(ValueError, match="advance must take bias_ids: export the model again"):
        ContinuousBatch(exported)


def test_servers_have_its_operations(chat_export):
    described = json.loads((chat_export / "signature.json").read_text(encoding="utf-8"))
    assert described["unknown_operations"] == []
    assert "ScatterNdNonAliasingAdd" in described["operations"], "rows of their own write to caches in place"


def test_conversations(chat_model, exported):
    talks = [
        [{"role": "user", "content": "hello"}],
        [
            {"role": "system", "content": "You are a friend."},
            {"role": "user", "content": "who <|im_end|> are you"},
        ],
        [
            {"role": "user", "content": "hello"},
            {"role": "assistant", "content": "today"},
            {"role": "user", "content": "you"},
        ],
    ]
    listeners = [Listener() for _ in talks]
    with ContinuousBatch(exported, BatchOptions(rows=2)) as batch:
        assert batch.is_chat
        for talk, listener in zip(talks, listeners, strict=True):
            request = WritingRequest(batch.chat_tokens(talk), 30, is_chat=True, streams_text=True)
            batch.write(request, listener)
        texts = [listener.text for listener in listeners]
    assert texts == chat_model.generate(talks, max_new_tokens=30, jit_compile=False)


def test_prompts_with_the_same_beginning_are_fed_once(chat_model, exported):
    beginning = "who are you today friend of mine and "
    prompts = [beginning + word for word in ("hello", "wörld", "you", "hello who are you")]
    texts = []
    with ContinuousBatch(exported) as batch:
        ids = batch.tokens(prompts)
        for row in ids:
            listener = Listener()
            batch.write(WritingRequest(row, 12), listener)
            texts.append(listener.text)
        common = len(batch.tokens([beginning.strip()])[0])
        # the window of 41 tokens has not been left: caches still hold all of a prompt
        assert batch.tokens_shared >= 3 * (common - 1)
        assert batch.tokens_fed + batch.tokens_shared == sum(len(row) - 1 for row in ids)
    assert texts == chat_model.generate(prompts, max_new_tokens=12, strip_prompt=True, jit_compile=False)


def test_a_prefix_longer_than_a_window_is_not_taken_back(chat_model, exported):
    beginning = "hello who are you today " * 4
    prompts = [beginning + "friend of mine and you", beginning + "wörld"]
    with ContinuousBatch(exported) as batch:
        texts = []
        for row in batch.tokens(prompts):
            assert len(row) - 1 > 41  # entries of the window
            listener = Listener()
            batch.write(WritingRequest(row, 12), listener)
            texts.append(listener.text)
        assert batch.tokens_shared == 0
    assert texts == chat_model.generate(prompts, max_new_tokens=12, strip_prompt=True, jit_compile=False)


def test_cancelled_and_late_texts_free_their_rows(exported):
    with ContinuousBatch(exported, BatchOptions(rows=1, steps=1)) as batch:
        prompt = batch.tokens(["hello"])[0]
        first, second, third = Listener(), Listener(), Listener()
        told = queue.Queue()

        def listen(written):
            told.put(written)
            first(written)

        # greedy texts of this model do not end by themselves
        writing = batch.write(WritingRequest(prompt, 150, streams_text=True), listen)
        batch.write(WritingRequest(prompt, 150, deadline=time.monotonic() + 0.01), second)
        batch.write(WritingRequest(prompt, 2), third)
        told.get(timeout=60)
        writing.cancel()
        assert third.done.wait(60)
        assert (first.last.reason, second.last.reason, third.last.reason) == ("cancelled", "deadline", "length")
        assert first.last.tokens < 150
        assert batch.load == {"waiting": 0, "filling": 0, "writing": 0}


def test_what_fails_ends_its_texts_and_others_go_on(exported, monkeypatch):
    with ContinuousBatch(exported) as batch:
        prompt = batch.tokens(["hello"])[0]
        run, failures = exported.run, iter([True])

        def fails(endpoint, tensors):
            if endpoint == "advance" and next(failures, False):
                raise MemoryError("none left")
            return run(endpoint, tensors)

        monkeypatch.setattr(exported, "run", fails)
        lost, fine = Listener(), Listener()
        batch.write(WritingRequest(prompt, 4), lost)
        assert lost.done.wait(60)
        assert (lost.last.reason, lost.last.error) == ("failed", "MemoryError")
        batch.write(WritingRequest(prompt, 4), fine)
        assert fine.text and fine.last.reason == "length"


def test_a_listener_that_raises_harms_nobody(exported):
    with ContinuousBatch(exported, BatchOptions(steps=1)) as batch:
        prompt = batch.tokens(["hello"])[0]

        def raises(written):
            raise OSError("gone")

        fine = Listener()
        batch.write(WritingRequest(prompt, 100, streams_text=True), raises)
        batch.write(WritingRequest(prompt, 5), fine)
        assert fine.text and fine.last.reason == "length"


def test_wrong_requests(exported):
    with ContinuousBatch(exported, BatchOptions(rows=1, waiting=1)) as batch:
        for prompt in ([], [5] * 160):
            with pytest.raises(ValueError, match="A prompt must have from 1 to 159 tokens"):
                batch.write(WritingRequest(prompt, 4), print)
        listeners = [Listener() for _ in range(8)]
        with pytest.raises(QueueFullError, match="1 texts wait already"):
            for listener in listeners:
                batch.write(WritingRequest(batch.tokens(["hello"])[0], 100), listener)
    with pytest.raises(QueueFullError, match="being closed"):
        batch.write(WritingRequest([5], 4), print)
    with pytest.raises(ValueError, match="rows must be an integer of at least 1, got 0"):
        BatchOptions(rows=0)


@pytest.mark.parametrize("where", ["begin", "arrange", "advance"])
def test_what_fails_at_any_step_ends_each_text_once(exported, monkeypatch, where):
    from recipes.serving.row_states import StateFormat

    with ContinuousBatch(exported, BatchOptions(rows=4, prefill=3)) as batch:
        prompts = batch.tokens(["hello who are you", "you are who", "friend of mine"])
        run, arrange, failures = exported.run, StateFormat.arrange, iter([True])

        def fails(endpoint, tensors):
            if endpoint == where and next(failures, False):
                raise MemoryError("none left for hello")
            return run(endpoint, tensors)

        def fails_to_arrange(self, *arguments):
            if where == "arrange" and next(failures, False):
                raise MemoryError("none left for hello")
            return arrange(self, *arguments)

        monkeypatch.setattr(exported, "run", fails)
        monkeypatch.setattr(StateFormat, "arrange", fails_to_arrange)
        ends, listeners = [], [Listener() for _ in prompts]
        for prompt, listener in zip(prompts, listeners, strict=True):

            def tell(written, listener=listener):
                ends.append(written)
                listener(written)

            batch.write(WritingRequest(prompt, 4), tell)
        assert all(listener.done.wait(20) for listener in listeners), "A text was lost."
        assert len(ends) == 3 and "failed" in {written.reason for written in ends}
        assert all("hello" not in written.error for written in ends)
        fine = Listener()
        batch.write(WritingRequest(prompts[0], 4), fine)
        assert fine.text and fine.last.reason == "length"


def test_few_prefixes_are_kept_however_small(exported, monkeypatch):
    from recipes.serving import prefixes

    monkeypatch.setattr(prefixes, "MOST_STATES", 3)
    with ContinuousBatch(exported) as batch:
        for ids in batch.tokens(["hello you", "who are", "friend of", "mine today", "today you are"]):
            listener = Listener()
            batch.write(WritingRequest(ids, 1), listener)
            assert listener.done.wait(60)
        assert len(batch._prefixes._kept) == 3
