"""Speculative decoding gives what the target model gives alone: the same greedy text, the same distribution."""

import itertools

import numpy as np
import pytest
from keras import ops

from zoo.generation import (
    GenerationOptions,
    Greedy,
    MinimumLength,
    NoRepeatNGram,
    RepetitionPenalty,
    Sample,
    SpeculativeDecoding,
    decode,
)

END, PAD = 1, 7


def run(target, draft, rows, sampler, lookahead, limits, length=10, seed=0, streams=None, processors=(), stops=()):
    """Both toy models keep their prefix; feeding at an index again overwrites it."""
    batch = len(rows)
    state, constants, first_tokens = target.inputs_of(rows)
    draft_state, draft_constants, _ = draft.inputs_of(rows)

    def feed(token_ids, index, state, constants):
        logits = []
        for place in range(lookahead):
            one, state = target.step(token_ids[:, place], index + place, state, constants)
            logits.append(one)
        return ops.stack(logits, axis=1), state

    settings = GenerationOptions(length, sampler, processors, stops, END, PAD, lookahead)
    streams = np.arange(batch) if streams is None else np.asarray(streams)
    loop = SpeculativeDecoding(feed, draft.step, settings)
    inputs = loop.inputs(
        state=state,
        constants=constants,
        first_tokens=first_tokens,
        first_index=0,
        length_limit=np.asarray(limits),
        seed=seed,
        streams=streams,
        prompt=ops.zeros((batch, 0), "int32"),
        draft_state=draft_state,
        draft_constants=draft_constants,
    )
    return loop.result(loop.advance(loop.start(inputs)))


@pytest.fixture
def models(prefix_model):
    """A target, and a draft that often agrees with it."""
    target = prefix_model(7, capacity=16, seed=1)
    draft = prefix_model(7, capacity=16, seed=1)
    draft.frequencies = draft.frequencies * 1.004
    return target, draft


@pytest.mark.sampled(2)
@pytest.mark.parametrize("lookahead", [1, 2, 4])
@pytest.mark.parametrize("processors", [(), (RepetitionPenalty(1.5), NoRepeatNGram(2), MinimumLength(3))], ids=str)
def test_greedy_is_the_target_alone(models, assert_same, lookahead, processors):
    target, draft = models
    limits, stops = [10, 10, 3, 10, 0, 1, 10, 10], ((3, 5),)
    result = run(target, draft, range(8), Greedy(), lookahead, limits, processors=processors, stops=stops)
    state, constants, first_tokens = target.inputs(8)
    expected = decode(
        target.step,
        state,
        constants,
        first_tokens,
        0,
        10,
        Greedy(),
        END,
        PAD,
        length_limit=np.array(limits),
        processors=processors,
        stop_sequences=stops,
    )
    rounds, steps = int(result.pop("rounds")), int(np.max(ops.convert_to_numpy(expected["lengths"])))
    assert_same(result, expected, atol=1e-4)
    assert rounds <= steps and (lookahead > 1 or rounds == steps)


def test_good_drafts_save_passes(prefix_model):
    target = prefix_model(7, capacity=16, seed=3)
    long = [10] * 3
    perfect = run(target, target, range(3), Greedy(), 4, long)
    steps = int(np.max(ops.convert_to_numpy(perfect["lengths"])))
    assert int(perfect["rounds"]) == -(-steps // 4)
    sampled = run(target, target, range(3), Sample(1.3), 5, long)
    steps = int(np.max(ops.convert_to_numpy(sampled["lengths"])))
    assert int(sampled["rounds"]) == -(-steps // 5), "the own distribution is always kept"


@pytest.mark.slow
def test_samples_depend_on_nothing_but_seed_and_stream(models, assert_same):
    target, draft = models
    limits, streams = np.array([10, 4, 0, 10, 9, 10, 1, 10]), np.array([5, 0, 1, 2, 3, 900, 4, 6])
    sampler = Sample(0.9, top_k=5, top_p=0.95)
    together = run(target, draft, range(8), sampler, 3, limits, seed=3, streams=streams)
    together.pop("rounds")
    for rows, lookahead in (([3], 3), ([7, 1], 2), ([5, 0, 4], 5), ([0], 1)):
        alone = run(target, draft, rows, sampler, lookahead, limits[rows], seed=3, streams=streams[rows])
        alone.pop("rounds")
        assert_same(alone, {name: ops.take(tensor, rows, axis=0) for name, tensor in together.items()}, atol=1e-4)
    other = run(target, draft, range(8), sampler, 3, limits, seed=4, streams=streams)
    assert (ops.convert_to_numpy(other["token_ids"]) != ops.convert_to_numpy(together["token_ids"])).any()


@pytest.mark.parametrize(
    "sampler",
    [Sample(0.8, top_k=3), *(pytest.param(s, marks=pytest.mark.slow) for s in (Sample(), Sample(top_p=0.8)))],
    ids=repr,
)
def test_distribution_is_that_of_the_target(prefix_model, sampler):
    """20,000 texts of three tokens, of a target and a draft that have nothing in common."""
    target, draft = prefix_model(4, capacity=8, seed=1, sharpness=1.0), prefix_model(4, capacity=8, seed=2)
    count = 20_000
    difference = np.abs(np.exp(target.log_probabilities(0, [])) - np.exp(draft.log_probabilities(0, [])))
    assert difference.sum() / 2 > 0.1, "texts of the draft would be noticed"
    result = run(target, draft, [0] * count, sampler, 2, [3] * count, length=3, seed=11)
    texts = ops.convert_to_numpy(result["token_ids"])

    def probabilities(prefix):
        weights = sampler.weights(ops.convert_to_tensor(target.log_probabilities(0, prefix)[None], dtype="float32"))
        weights = ops.convert_to_numpy(weights)[0].astype("float64")
        return weights / weights.sum()

    statistic, degrees = 0.0, -1
    for text in itertools.product(range(4), repeat=3):
        if END in text[:2] and any(token != 0 for token in text[text.index(END) + 1 :]):
            continue  # one spelling for each text that ends early
        expected, spelled, ended = 1.0, [], False
        for token in text:
            if not ended:
                expected *= probabilities(spelled)[token]
                spelled.append(token)
                ended = token == END
        written = spelled + [PAD] * (3 - len(spelled))
        seen = np.sum((texts == np.array(written)).all(-1))
        if expected == 0:
            assert seen == 0
        elif expected * count >= 5:
            statistic += (seen - expected * count) ** 2 / (expected * count)
            degrees += 1
    # Pearson's statistic has mean `degrees` and variance 2 * degrees
    assert degrees >= 5 and statistic < degrees + 4 * np.sqrt(2 * degrees)
    accepted_all = int(result["rounds"]) <= 2
    assert not accepted_all, "some proposals must have been refused"
