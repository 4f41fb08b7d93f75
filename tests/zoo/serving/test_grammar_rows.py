"""Rows of a batch that follow grammars, beside others: each text is the one that `generate` writes alone."""

import re
import threading
import time

import pytest

pytest.importorskip("llguidance", reason="the extra structured is not installed")

from zoo.generation import Choice, Grammar, JSONSchema, Regex  # noqa: E402
from zoo.serving.continuous_batch import ContinuousBatch, GrammarError  # noqa: E402
from zoo.serving.options import Batching  # noqa: E402
from zoo.serving.writing import CANCELLED, FAILED, LENGTH, STOP, WritingRequest  # noqa: E402

GRAMMARS = [
    None,
    Regex("[a-z]{9,30}[.]"),
    JSONSchema({"type": "array", "items": {"enum": ["你", 1.5, None]}, "maxItems": 4}),
    Choice(["wörld", "नमस्ते", "hello friend"]),
    None,
    Grammar('start: "(" /[^()]{0,5}/ start? ")"'),
]
WORDS = "hello who are you today friend of mine"


class Listener:
    def __init__(self):
        self.pieces, self.last, self.done, self.begun = [], None, threading.Event(), threading.Event()

    def __call__(self, written):
        self.pieces.append(written.text)
        self.begun.set()
        if written.reason is not None:
            self.last = written
            self.done.set()

    @property
    def text(self):
        assert self.done.wait(300), "The text did not end."
        return "".join(self.pieces)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("options", [Batching(rows=3, steps=4, prefill=5), Batching(rows=8, prefix_bytes=0)])
def test_texts_are_those_of_generate(chat_model, exported, options):
    told, expected = [], []
    with ContinuousBatch(exported, options) as batch:
        for number in range(12):
            grammar, count = GRAMMARS[number % len(GRAMMARS)], 20 + 7 * (number % 5)
            prompt = WORDS[: 3 + 3 * number]
            lark, python = (None, {}) if grammar is None else (grammar.lark, {"grammar": grammar})
            row, sampler = ({}, "greedy") if number % 2 else ({"temperature": 1.1, "top_k": 50}, None)
            sampler = sampler or {"name": "sample", "temperature": 1.1, "top_k": 50}
            told.append(Listener())
            request = WritingRequest(
                batch.texts.tokens([prompt])[0], count, **row, seed=number, grammar=lark, streams_text=number % 3 == 0
            )
            batch.write(request, told[-1])
            expected.append((prompt, {"max_new_tokens": count, "sampler": sampler, "seed": number, **python}))
        texts = [listener.text for listener in told]
    for text, listener, (prompt, python) in zip(texts, told, expected, strict=True):
        alone, score = chat_model.generate(prompt, strip_prompt=True, return_scores=True, jit_compile=False, **python)
        assert text == alone
        assert listener.last.log_probability == pytest.approx(score, rel=1e-3)
    assert {listener.last.reason for listener in told} == {STOP, LENGTH}


def test_texts_that_are_put_aside_go_on_in_their_grammar(chat_model, exported):
    """Two long texts have the rows, when short ones come."""
    with ContinuousBatch(exported, Batching(rows=2, steps=2)) as batch:
        [prompt] = batch.texts.tokens(["hello"])
        long = [Listener(), Listener()]
        for number, listener in enumerate(long):
            lark = Regex("([a-z]{3} ){25}[.]").lark
            batch.write(
                WritingRequest(prompt, 140, temperature=1.0, seed=number, grammar=lark, streams_text=True), listener
            )
        assert all(listener.begun.wait(300) for listener in long)
        short = [Listener() for _ in range(3)]
        for number, listener in enumerate(short):
            batch.write(WritingRequest(prompt, 4, seed=number, grammar=Choice(["a", "b"]).lark), listener)
        assert all(listener.text in ("a", "b") for listener in short)
        for number, listener in enumerate(long):
            python = {"sampler": "sample", "seed": number, "max_new_tokens": 140, "strip_prompt": True}
            alone = chat_model.generate("hello", grammar=Regex("([a-z]{3} ){25}[.]"), **python)
            assert listener.text == alone and re.fullmatch("([a-z]{3} ){25}[.]|[a-z .]*", alone)


def test_a_text_is_cancelled(exported):
    with ContinuousBatch(exported, Batching(rows=2, steps=2)) as batch:
        listener = Listener()
        request = WritingRequest(
            batch.texts.tokens(["hello"])[0],
            150,
            temperature=1.0,
            grammar=Regex("[a-z]+[.]{150}").lark,
            streams_text=True,
        )
        writing = batch.write(request, listener)
        assert listener.begun.wait(300)
        writing.cancel()
        assert listener.done.wait(300) and listener.last.reason == CANCELLED
        assert batch.load["writing"] == 0


def test_ends_that_are_written_end_no_text(exported):
    """Without an end token, a text ends where no token can go on with it."""
    with ContinuousBatch(exported) as batch:
        listener = Listener()
        request = WritingRequest(batch.texts.tokens(["hello"])[0], 40, ignore_eos=True, grammar=Regex("[a-z]{3}").lark)
        batch.write(request, listener)
        assert re.fullmatch("[a-z]{3}", listener.text) and listener.last.reason == STOP


def test_least_lengths(exported):
    """A text that may end is longer where it can be, and ends where it must."""
    with ContinuousBatch(exported) as batch:
        [prompt] = batch.texts.tokens(["hello"])
        for pattern, least in (("[a-z]{1,200}", 12), ("[a-z]", 12)):
            listener = Listener()
            batch.write(WritingRequest(prompt, 40, min_tokens=least, grammar=Regex(pattern).lark), listener)
            assert re.fullmatch(pattern, listener.text)
            assert listener.last.tokens >= (least if "200" in pattern else 1)


def test_empty_texts_and_grammars_without_a_text(exported):
    with ContinuousBatch(exported) as batch:
        [prompt] = batch.texts.tokens(["hello"])
        listener = Listener()
        batch.write(WritingRequest(prompt, 40, grammar=Choice([""]).lark), listener)
        assert (listener.text, listener.last.reason, listener.last.tokens) == ("", STOP, 0)
        with pytest.raises(GrammarError) as caught:
            batch.write(WritingRequest(prompt, 40, grammar='start: secret\nsecret: secret "x"'), listener)
        assert "secret" not in str(caught.value)


def test_a_grammar_that_cannot_be_followed_any_further_fails_its_text_alone(chat_model, exported, monkeypatch):
    monkeypatch.setattr("zoo.generation.token_masks._MOST_STATES", 200)
    with ContinuousBatch(exported) as batch:
        [prompt] = batch.texts.tokens(["hello"])
        large, plain, small = Listener(), Listener(), Listener()
        options = {"temperature": 1.0, "seed": 1, "streams_text": True}
        batch.write(WritingRequest(prompt, 90, **options, grammar=Regex("#[a-z ]*[a-m][a-z ]{18}").lark), large)
        batch.write(WritingRequest(prompt, 90, **options), plain)
        batch.write(WritingRequest(prompt, 90, **options, grammar=Regex("[a-z]{60}").lark), small)
        assert re.fullmatch("#[a-z ]*", large.text) and large.last.reason == FAILED
        assert large.last.error == "GrammarError" and 1 < large.last.tokens < 90
        python = {"sampler": "sample", "seed": 1, "max_new_tokens": 90, "strip_prompt": True, "jit_compile": False}
        assert plain.text == chat_model.generate("hello", **python)
        assert re.fullmatch("[a-z]{60}", small.text) and small.last.reason == STOP


def test_a_grammar_is_read_once(exported):
    """The vocabulary and a grammar take much longer to be read than a text to be begun."""
    lark = JSONSchema({"type": "object"}).lark
    with ContinuousBatch(exported) as batch:
        [prompt] = batch.texts.tokens(["hello"])
        times = []
        for _ in range(4):
            listener = Listener()
            began = time.monotonic()
            batch.write(WritingRequest(prompt, 1, grammar=lark), listener)
            times.append(time.monotonic() - began)
            assert listener.done.wait(300)
    assert min(times[1:]) < times[0]
