"""Texts that are written together are those that `generate` writes for each alone."""

import json
import queue
import threading
import time

import numpy as np
import pytest

from zoo.serving import continuous_batch
from zoo.serving.continuous_batch import ContinuousBatch, OldExportError, QueueFullError
from zoo.serving.options import Batching
from zoo.serving.writing import WritingRequest

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
        assert self.done.wait(300), "The text did not end."
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


@pytest.mark.sampled(1)
@pytest.mark.parametrize("options", [Batching(rows=5, steps=3, prefill=7), Batching(prefix_bytes=0)])
def test_texts_are_those_of_generate(chat_model, exported, prompts, options):
    listeners, expected = [], []
    with ContinuousBatch(exported, options) as batch:
        for number, (prompt, ids) in enumerate(zip(prompts, batch.texts.tokens(prompts), strict=True)):
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
    with ContinuousBatch(exported, Batching(rows=5, steps=3)) as batch:
        for number, ids in enumerate(batch.texts.tokens(prompts[:10])):
            row, python = settings_of(number)
            own, processors = ADJUSTMENTS[number % len(ADJUSTMENTS)]
            listeners.append(Listener())
            batch.write(WritingRequest(ids, 30, **row, **own), listeners[-1])
            python |= {"max_new_tokens": 30, "strip_prompt": True, "jit_compile": False}
            expected.append(chat_model.generate(prompts[number], processors=processors, **python))
            plain.append(chat_model.generate(prompts[number], **python))
        assert [listener.text for listener in listeners] == expected
    assert sum(text != other for text, other in zip(expected, plain, strict=True)) > 4


@pytest.mark.parametrize(("streams_text", "most"), [(True, 2), (False, 8)])
def test_turns_of_texts_that_stream_are_short(exported, monkeypatch, streams_text, most):
    """With a model that takes 40 milliseconds for a token, a tenth of a second has two."""
    seen, run = [], exported.run

    def slow_run(endpoint, tensors):
        if endpoint == "advance":
            steps = int(tensors["steps"])
            time.sleep(0.04 * steps)
            seen.append(steps)
        return run(endpoint, tensors)

    monkeypatch.setattr(exported, "run", slow_run)
    with ContinuousBatch(exported, Batching(rows=8, steps=8)) as batch:
        prompt = batch.texts.tokens(["hello"])[0]
        listeners = [Listener() for _ in range(6)]
        for listener in listeners:
            batch.write(WritingRequest(prompt, 24, ignore_eos=True, streams_text=streams_text), listener)
        assert all(listener.done.wait(120) for listener in listeners)
    assert max(seen) <= most and (streams_text or most in seen)


@pytest.mark.parametrize(("count", "streams_text", "steps"), [(1, True, {1}), (2, True, {1}), (1, False, {8})])
def test_few_texts_that_stream_are_written_token_by_token(exported, monkeypatch, count, streams_text, steps):
    seen, tensors = [], exported.tensors

    def noted(endpoint, inputs):
        seen.extend([int(inputs["steps"])] if endpoint == "advance" else [])
        return tensors(endpoint, inputs)

    monkeypatch.setattr(exported, "tensors", noted)
    # however busy this machine is
    monkeypatch.setattr(continuous_batch, "TURN_SECONDS", 1e9)
    with ContinuousBatch(exported, Batching(rows=4, steps=8)) as batch:
        prompt = batch.texts.tokens(["hello"])[0]
        listeners = [Listener() for _ in range(count)]
        for listener in listeners:
            batch.write(WritingRequest(prompt, 17, ignore_eos=True, streams_text=streams_text), listener)
        assert len({listener.text for listener in listeners}) == 1
        assert set(seen) == steps
        # many texts take turns of several tokens
        listeners = [Listener() for _ in range(4)]
        for listener in listeners:
            batch.write(WritingRequest(prompt, 60, ignore_eos=True, streams_text=streams_text), listener)
        assert len({listener.text for listener in listeners}) == 1 and 8 in seen


@pytest.mark.sampled(2)
@pytest.mark.parametrize("is_chat", [False, True])
@pytest.mark.parametrize("streams_text", [False, True])
def test_ends_that_are_ignored_are_not_the_end_of_the_words(chat_model, exported, is_chat, streams_text):
    with ContinuousBatch(exported, Batching(steps=3)) as batch:
        about = batch.properties["chat" if is_chat else "texts"]
        prompt = (
            batch.texts.chat_tokens([{"role": "user", "content": "hello"}])
            if is_chat
            else batch.texts.tokens(["hello"])[0]
        )
        word = batch.texts.tokens(["you"])[0][-1]
        # an end, then a word, then the same anew: what has been written once is less probable
        biases = dict.fromkeys(about["end_ids"], 100.0) | {word: 99.0}
        listener = Listener()
        own = {"logit_bias": biases, "presence_penalty": 2.0, "frequency_penalty": 2.0, "ignore_eos": True}
        writing = batch.write(WritingRequest(prompt, 20, is_chat=is_chat, streams_text=streams_text, **own), listener)
        text = listener.text
    words = [token for token in writing.tokens if token not in about["end_ids"]]
    first_end = next(place for place, token in enumerate(writing.tokens) if token in about["end_ids"])
    assert set(words) == {word} and word in writing.tokens[first_end:]
    assert text.strip() == chat_model.tokenizer.detokenize([words])[0].numpy().decode().strip()
    assert (listener.last.reason, listener.last.tokens) == ("length", 20)


class Ends(Listener):
    """Also notes in which order texts end."""

    order: list = []

    def __call__(self, written):
        super().__call__(written)
        if written.reason is not None:
            Ends.order.append(self)


# kept states, and none
@pytest.mark.sampled(1)
@pytest.mark.parametrize("prefix_bytes", [2**28, 0])
def test_a_long_text_gives_way_and_goes_on(chat_model, exported, prompts, prefix_bytes, monkeypatch):
    """Greedy and drawn texts, in the middle of a character or not, are what they are without others."""
    options = Batching(rows=2, steps=4, prefill=7, prefix_bytes=prefix_bytes)
    lengths = [90, 90, 3, 90, 5]
    Ends.order = []
    begun, all_wait, run = threading.Event(), threading.Event(), exported.run

    def held(endpoint, tensors):
        """Writes no further than to the first token before all texts wait: else a busy machine says who is first."""
        if begun.is_set():
            assert all_wait.wait(300)
        return run(endpoint, tensors)

    monkeypatch.setattr(exported, "run", held)
    with ContinuousBatch(exported, options) as batch:
        ids = batch.texts.tokens(prompts[:5])
        listeners = [Ends() for _ in lengths]

        def begins(written):
            begun.set()
            listeners[0](written)

        expected = []
        for number, (row, length) in enumerate(zip(ids, lengths, strict=True)):
            # none of them ends by itself
            own, processors = {"logit_bias": {0: -100.0}}, [{"name": "logit_bias", "biases": {0: -100.0}}]
            python = {"sampler": "greedy", "seed": number, "max_new_tokens": length, "jit_compile": False}
            if number % 2:
                own |= {"temperature": 1.1, "presence_penalty": 0.8}
                processors = [{"name": "presence_penalty", "penalty": 0.8}, *processors]
                python["sampler"] = {"name": "sample", "temperature": 1.1}
            request = WritingRequest(row, length, seed=number, streams_text=number == 0, **own)
            batch.write(request, begins if number == 0 else listeners[number])
            if number == 1:
                assert begun.wait(300)  # both rows are taken, or about to be
            expected.append((prompts[number], {**python, "processors": processors, "strip_prompt": True}))
        all_wait.set()
        texts = [listener.text for listener in listeners]
        fed = batch.tokens_fed
    assert texts == [chat_model.generate(prompt, **python) for prompt, python in expected]
    # the short ones first; of those of one length also the seconds count that they have waited
    assert set(Ends.order[:2]) == {listeners[2], listeners[4]}
    # a kept state is not fed again
    assert (fed <= sum(len(row) - 1 for row in ids)) == bool(prefix_bytes)


def test_texts_of_about_one_length_do_not_give_way(exported):
    Ends.order = []
    with ContinuousBatch(exported, Batching(rows=1, steps=2)) as batch:
        prompt = batch.texts.tokens(["hello"])[0]
        listeners = [Ends() for _ in range(3)]
        for length, listener in zip((60, 40, 60), listeners, strict=True):
            batch.write(WritingRequest(prompt, length, ignore_eos=True), listener)
        assert all(listener.done.wait(300) for listener in listeners)
    assert Ends.order[0] is listeners[0] or Ends.order == [listeners[1], listeners[0], listeners[2]]
    assert Ends.order[-1] is listeners[2]


@pytest.mark.parametrize("seconds", [0, 100])
def test_a_text_that_has_been_put_aside_for_long_stays(exported, monkeypatch, seconds):
    Ends.order = []
    with ContinuousBatch(exported, Batching(rows=1, steps=2)) as batch:
        prompt = batch.texts.tokens(["hello"])[0]
        long, short, begun = Ends(), Ends(), threading.Event()

        def begins(written):
            begun.set()
            long(written)

        writing = batch.write(WritingRequest(prompt, 150, ignore_eos=True, streams_text=True), begins)
        writing.seconds_aside = seconds
        assert begun.wait(300)
        batch.write(WritingRequest(prompt, 2, ignore_eos=True), short)
        assert long.done.wait(300) and short.done.wait(300)
    assert Ends.order == ([long, short] if seconds else [short, long])


@pytest.mark.parametrize("client", ["other", "many"])
def test_no_client_takes_all_rows(exported, client):
    """Twelve texts of one client and a shorter one of another, in four rows: counted in tokens of each row."""
    with ContinuousBatch(exported, Batching(rows=4, steps=4)) as batch:
        prompt = batch.texts.tokens(["hello"])[0]

        def request(length, client):
            return WritingRequest(prompt, length, ignore_eos=True, streams_text=True, client=client)

        begun, steps = threading.Event(), []

        def begins(written):
            if batch.load["writing"] == 4:
                begun.set()

        def ends(written):
            if written.reason is not None:
                steps.append(batch.steps_done)

        alone = Ends()
        batch.write(request(60, client), alone)
        assert alone.done.wait(300) and batch.steps_done == 60
        long = [Ends() for _ in range(12)]
        for listener in long:
            batch.write(request(120, "many"), lambda written, listener=listener: (begins(written), listener(written)))
        assert begun.wait(300)
        before = batch.steps_done
        batch.write(request(60, client), ends)
        assert all(listener.done.wait(300) for listener in long)
    beside = steps[0] - before
    # a turn that is under way, and one until the prompt has been read; or a text of the own client that ends first
    assert 60 <= beside <= 60 + 3 * 4 if client == "other" else beside > 90


@pytest.mark.slow
def test_benchmark_of_waiting(chat_export, tmp_path, capsys):
    from recipes.benchmark import waiting

    sizes = {"beside": [0, 3], "long": 60, "short": 2, "prompt": 4, "rounds": 2, "rows": 2}
    rows = waiting.main(waiting.Config(str(chat_export), **sizes, output=str(tmp_path / "figures.json")))
    assert json.loads((tmp_path / "figures.json").read_text()) == rows
    assert [row["beside"] for row in rows] == [0, 3]
    printed = capsys.readouterr().out
    for row in rows:
        assert len(row["all"]) == 2 and 0 < min(row["all"]) <= row["seconds"] <= max(row["all"])
        assert f"| {row['beside']} | {row['seconds']:.3f} |" in printed


def test_exports_of_other_versions(exported, monkeypatch):
    advance = exported.endpoints["advance"]
    inputs = [field for field in advance["inputs"] if field["name"] != "bias_ids"]
    monkeypatch.setitem(exported.endpoints, "advance", {**advance, "inputs": inputs})
    with pytest.raises(OldExportError, match="advance must take bias_ids: export the model again"):
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
    with ContinuousBatch(exported, Batching(rows=2)) as batch:
        assert batch.texts.is_chat
        for talk, listener in zip(talks, listeners, strict=True):
            request = WritingRequest(batch.texts.chat_tokens(talk), 30, is_chat=True, streams_text=True)
            batch.write(request, listener)
        texts = [listener.text for listener in listeners]
    assert texts == chat_model.generate(talks, max_new_tokens=30, jit_compile=False)


def test_prompts_with_the_same_beginning_are_fed_once(chat_model, exported):
    beginning = "who are you today friend of mine and "
    prompts = [beginning + word for word in ("hello", "wörld", "you", "hello who are you")]
    texts = []
    with ContinuousBatch(exported) as batch:
        ids = batch.texts.tokens(prompts)
        for row in ids:
            listener = Listener()
            batch.write(WritingRequest(row, 12), listener)
            texts.append(listener.text)
        common = len(batch.texts.tokens([beginning.strip()])[0])
        # the window of 41 tokens has not been left: caches still hold all of a prompt
        assert batch.tokens_shared >= 3 * (common - 1)
        assert batch.tokens_fed + batch.tokens_shared == sum(len(row) - 1 for row in ids)
    assert texts == chat_model.generate(prompts, max_new_tokens=12, strip_prompt=True, jit_compile=False)


def test_a_prefix_longer_than_a_window_is_not_taken_back(chat_model, exported):
    beginning = "hello who are you today " * 4
    prompts = [beginning + "friend of mine and you", beginning + "wörld"]
    with ContinuousBatch(exported) as batch:
        texts = []
        for row in batch.texts.tokens(prompts):
            assert len(row) - 1 > 41  # entries of the window
            listener = Listener()
            batch.write(WritingRequest(row, 12), listener)
            texts.append(listener.text)
        assert batch.tokens_shared == 0
    assert texts == chat_model.generate(prompts, max_new_tokens=12, strip_prompt=True, jit_compile=False)


def test_cancelled_and_late_texts_free_their_rows(exported):
    with ContinuousBatch(exported, Batching(rows=1, steps=1)) as batch:
        prompt = batch.texts.tokens(["hello"])[0]
        first, second, third = Listener(), Listener(), Listener()
        told = queue.Queue()

        def listen(written):
            told.put(written)
            first(written)

        # greedy texts of this model do not end by themselves
        writing = batch.write(WritingRequest(prompt, 150, streams_text=True), listen)
        told.get(timeout=300)
        batch.write(WritingRequest(prompt, 150, deadline=time.monotonic() + 0.01), second)
        # not so short that the first would give way
        batch.write(WritingRequest(prompt, 100), third)
        writing.cancel()
        assert third.done.wait(300)
        assert (first.last.reason, second.last.reason, third.last.reason) == ("cancelled", "deadline", "length")
        assert first.last.tokens < 150
        assert batch.load == {"waiting": 0, "filling": 0, "writing": 0}


def test_what_fails_ends_its_texts_and_others_go_on(exported, monkeypatch):
    with ContinuousBatch(exported) as batch:
        prompt = batch.texts.tokens(["hello"])[0]
        run, failures = exported.run, iter([True])

        def fails(endpoint, tensors):
            if endpoint == "advance" and next(failures, False):
                raise MemoryError("none left")
            return run(endpoint, tensors)

        monkeypatch.setattr(exported, "run", fails)
        lost, fine = Listener(), Listener()
        batch.write(WritingRequest(prompt, 4), lost)
        assert lost.done.wait(300)
        assert (lost.last.reason, lost.last.error) == ("failed", "MemoryError")
        batch.write(WritingRequest(prompt, 4), fine)
        assert fine.text and fine.last.reason == "length"


def test_a_listener_that_raises_harms_nobody(exported):
    with ContinuousBatch(exported, Batching(steps=1)) as batch:
        prompt = batch.texts.tokens(["hello"])[0]

        def raises(written):
            raise OSError("gone")

        fine = Listener()
        batch.write(WritingRequest(prompt, 100, streams_text=True), raises)
        batch.write(WritingRequest(prompt, 5), fine)
        assert fine.text and fine.last.reason == "length"


def test_clients_share_the_places_to_wait(exported, monkeypatch):
    """A text that was put aside is no newest one: some of it may have been told."""
    with ContinuousBatch(exported, Batching(rows=1), waiting=2) as batch:
        monkeypatch.setattr(batch, "_turn", lambda: time.sleep(0.001))
        prompt = batch.texts.tokens(["hello"])[0]
        listeners = {name: Listener() for name in ("first", "second", "other", "more")}

        def write(name, client):
            return batch.write(WritingRequest(prompt, 3, client=client), listeners[name])

        first = write("first", "greedy")
        write("second", "greedy")
        with pytest.raises(QueueFullError, match="2 texts wait already"):
            write("more", "greedy")
        write("other", "other")
        assert listeners["second"].last.reason == "refused"
        first.tokens.append(5)
        with pytest.raises(QueueFullError, match="2 texts wait already"):
            write("more", "other")
        first.tokens.clear()
        monkeypatch.undo()
    assert listeners["first"].last.reason == listeners["other"].last.reason == "length"


def test_wrong_requests(exported):
    with ContinuousBatch(exported, Batching(rows=1), waiting=1) as batch:
        for prompt in ([], [5] * 160):
            with pytest.raises(ValueError, match="A prompt must have from 1 to 159 tokens"):
                batch.write(WritingRequest(prompt, 4), print)
        listeners = [Listener() for _ in range(8)]
        with pytest.raises(QueueFullError, match="1 texts wait already"):
            for listener in listeners:
                batch.write(WritingRequest(batch.texts.tokens(["hello"])[0], 100), listener)
    with pytest.raises(QueueFullError, match="being closed"):
        batch.write(WritingRequest([5], 4), print)
    with pytest.raises(ValueError, match="rows must be an integer of at least 1, got 0"):
        Batching(rows=0)


@pytest.mark.parametrize("where", ["begin", "arrange", "advance"])
def test_what_fails_at_any_step_ends_each_text_once(exported, monkeypatch, where):
    from zoo.serving.row_states import StateFormat

    with ContinuousBatch(exported, Batching(rows=4, prefill=3)) as batch:
        prompts = batch.texts.tokens(["hello who are you", "you are who", "friend of mine"])
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
        assert all(listener.done.wait(200) for listener in listeners), "A text was lost."
        assert len(ends) == 3 and "failed" in {written.reason for written in ends}
        assert all("hello" not in written.error for written in ends)
        fine = Listener()
        batch.write(WritingRequest(prompts[0], 4), fine)
        assert fine.text and fine.last.reason == "length"


def test_few_prefixes_are_kept_however_small(exported, monkeypatch):
    from zoo.serving import prefixes

    monkeypatch.setattr(prefixes, "MOST_STATES", 3)
    with ContinuousBatch(exported) as batch:
        for ids in batch.texts.tokens(["hello you", "who are", "friend of", "mine today", "today you are"]):
            listener = Listener()
            batch.write(WritingRequest(ids, 1), listener)
            assert listener.done.wait(300)
        assert len(batch._prefixes._kept) == 3
