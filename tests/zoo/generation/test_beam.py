import dataclasses
import itertools

import numpy as np
import pytest
from keras import ops

from zoo.generation import Beam, Greedy, decode

END, PAD = 1, 0


def run(model, rows, sampler, limits, max_new_tokens, end_ids=END):
    state, constants, first_tokens = model.inputs_of(rows)
    limits = ops.convert_to_tensor(limits, dtype="int32")
    result = decode(
        model.step, state, constants, first_tokens, 0, max_new_tokens, sampler, end_ids, PAD, length_limit=limits
    )
    beams = {name: ops.convert_to_numpy(tensor) for name, tensor in result.pop("beams").items()}
    best = {name: ops.convert_to_numpy(tensor) for name, tensor in result.items()}
    for name, values in best.items():
        np.testing.assert_array_equal(values, beams[name][:, 0])
    return beams


def hypotheses(beams, row):
    """(score, log-probability, tokens, finished) of the places that hold a hypothesis; the rest must be empty."""
    result = []
    for place, length in enumerate(beams["lengths"][row]):
        tokens = beams["token_ids"][row, place].tolist()
        assert tokens[length:] == [PAD] * (len(tokens) - length)
        if np.isneginf(beams["scores"][row, place]):
            assert length == 0 and not beams["finished"][row, place]
            continue
        result.append(
            (
                beams["scores"][row, place],
                beams["log_probabilities"][row, place],
                tokens[:length],
                bool(beams["finished"][row, place]),
            )
        )
    return result


def normalised(log_probability, length, alpha, offset=5):
    return log_probability / ((offset + length) / (offset + 1)) ** alpha


def every_hypothesis(model, row, limit, alpha, end_ids):
    """All texts that end with an end token, and all without one that have the full length, by score."""
    pending, complete = [(0.0, [])], []
    while pending:
        total, tokens = pending.pop()
        for token, gained in enumerate(model.log_probabilities(row, tokens)):
            text, value = [*tokens, token], total + gained
            if token in end_ids or len(text) == limit:
                complete.append((normalised(value, len(text), alpha), value, text, token in end_ids))
            else:
                pending.append((value, text))
    return sorted(complete, reverse=True)


def plain_beam_search(model, row, num_beams, limit, alpha, end_ids, offset=5, early_stopping="never"):
    """Textbook beam search of one row on Python lists; every finished hypothesis is kept."""
    alive, complete = [(0.0, [])], []
    for length in range(1, limit + 1):
        extensions = []
        for total, tokens in alive:
            for token, gained in enumerate(model.log_probabilities(row, tokens)):
                extensions.append((total + gained, [*tokens, token]))
        extensions.sort(key=lambda extension: -extension[0])
        for value, text in extensions[:num_beams]:
            if text[-1] in end_ids or length == limit:
                complete.append((normalised(value, length, alpha, offset), value, text, text[-1] in end_ids))
        alive = [extension for extension in extensions if extension[1][-1] not in end_ids][:num_beams]
        if early_stopping == "never" or len(complete) < num_beams:
            continue
        worst, best = sorted(complete, reverse=True)[num_beams - 1][0], normalised(alive[0][0], length, alpha, offset)
        assert early_stopping or abs(worst - best) > 1e-3, "rounding of float32 would decide when the search ends"
        if early_stopping or worst >= best:
            break
    return sorted(complete, reverse=True)


def assert_equal_hypotheses(actual, expected):
    assert [text for _, _, text, _ in actual] == [text for _, _, text, _ in expected]
    assert [ended for *_, ended in actual] == [ended for *_, ended in expected]
    for place in (0, 1):  # the toy model takes sines of arguments up to 300 in float32
        np.testing.assert_allclose([h[place] for h in actual], [h[place] for h in expected], atol=1e-3)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed, alpha", itertools.product(range(4), [0.0, 0.6, 1.0, 2.0]))
def test_enough_beams_find_the_exact_optimum(prefix_model, seed, alpha):
    model = prefix_model(3, capacity=5, seed=seed)
    num_beams = 3**4  # as many as there are prefixes: nothing is ever dropped
    limits = [4, 4, 3, 4]
    beams = run(model, range(4), Beam(num_beams, alpha), limits, 4)
    for row, limit in enumerate(limits):
        expected = every_hypothesis(model, row, limit, alpha, (END,))
        assert_equal_hypotheses(hypotheses(beams, row), expected[:num_beams])


def test_length_penalty_changes_the_optimum(prefix_model):
    """The cases above tell the penalties apart: in some row the best text differs."""
    differing = 0
    for seed, row in itertools.product(range(4), range(4)):
        model = prefix_model(3, capacity=5, seed=seed)
        best = [every_hypothesis(model, row, 4, alpha, (END,))[0][2] for alpha in (0.0, 1.0)]
        differing += best[0] != best[1]
    assert differing >= 2


@pytest.mark.sampled(8)
@pytest.mark.parametrize("num_beams", [1, 2, 4, 5])
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.5])
@pytest.mark.parametrize("end_ids", [(1,), (1, 5, 6)], ids=str)
def test_against_a_plain_beam_search(prefix_model, num_beams, alpha, end_ids):
    model = prefix_model(11, capacity=13, seed=num_beams)
    limits = [12, 1, 12, 7, 12, 0]
    beams = run(model, range(6), Beam(num_beams, alpha), limits, 12, end_ids)
    for row, limit in enumerate(limits[:5]):
        expected = plain_beam_search(model, row, num_beams, limit, alpha, end_ids)
        assert_equal_hypotheses(hypotheses(beams, row), expected[:num_beams])
    assert hypotheses(beams, 5) == [(0.0, 0.0, [], False)]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("alpha, offset", [(0.7, 0), (1.5, 2.5), (-0.7, 0)])
@pytest.mark.parametrize("early_stopping", [True, False, "never"])
def test_early_stopping_and_offset(prefix_model, alpha, offset, early_stopping):
    model, limit, num_beams, ends = prefix_model(11, capacity=13, seed=8), 12, 3, (1, 5)
    sampler = Beam(num_beams, alpha, length_offset=offset, early_stopping=early_stopping)
    beams = run(model, range(6), sampler, [limit] * 6, limit, ends)
    fewer = run(model, range(6), dataclasses.replace(sampler, num_results=1), [limit] * 6, limit, ends)
    for row in range(6):
        expected = plain_beam_search(model, row, num_beams, limit, alpha, ends, offset, early_stopping)
        assert_equal_hypotheses(hypotheses(beams, row), expected[:num_beams])
        assert_equal_hypotheses(hypotheses(fewer, row), expected[:1])


@pytest.mark.parametrize("num_results", [1, 2, 3])
def test_fewer_results_are_the_first_of_all(prefix_model, num_results):
    model = prefix_model(11, capacity=13, seed=9)
    everything = run(model, range(6), Beam(4, 0.6), [12] * 6, 12)
    some = run(model, range(6), Beam(4, 0.6, num_results), [12] * 6, 12)
    for name, values in some.items():
        np.testing.assert_array_equal(values, everything[name][:, :num_results])


def test_finished_hypotheses_are_kept():
    """A text that ends at once beats everything later, although the beam is full of unfinished ones by then."""

    def step(token_ids, index, state, constants):
        first = ops.convert_to_tensor([0.0, 0.1, 0.05, 0.02, 0.01], dtype="float32")  # the end token is the best, just
        later = ops.convert_to_tensor([0.0, -9.0, 0.0, 0.0, 0.0], dtype="float32")
        logits = ops.where(index == 0, first, later)
        return ops.broadcast_to(logits, (ops.shape(token_ids)[0], 5)), state

    result = decode(step, (), (), [0], 0, 8, Beam(2, 0.0), END, PAD)
    assert ops.convert_to_numpy(result["token_ids"]).tolist() == [[END] + [PAD] * 7]
    assert ops.convert_to_numpy(result["finished"]).tolist() == [True]


def test_an_unfinished_hypothesis_can_win_at_the_limit():
    def step(token_ids, index, state, constants):
        logits = ops.convert_to_tensor([0.0, -3.0, 2.0], dtype="float32")  # the end token is unlikely everywhere
        return ops.broadcast_to(logits, (ops.shape(token_ids)[0], 3)), state

    result = decode(step, (), (), [0], 0, 4, Beam(3, 0.6), END, PAD)
    assert ops.convert_to_numpy(result["token_ids"]).tolist() == [[2, 2, 2, 2]]
    assert ops.convert_to_numpy(result["lengths"]).tolist() == [4]
    assert ops.convert_to_numpy(result["finished"]).tolist() == [False]


def test_several_end_ids_crowd_nothing_out():
    """Three end tokens lead in the first step; the second best token that goes on must be pursued all the same."""

    def step(token_ids, index, state, constants):
        first = ops.convert_to_tensor([-9.0, 3.0, 3.0, 3.0, 2.0, 1.9], dtype="float32")
        undecided = ops.zeros((6,), dtype="float32")
        certain = ops.convert_to_tensor([0.0, 20.0, 0.0, 0.0, 0.0, 0.0], dtype="float32")
        later = ops.where(ops.expand_dims(token_ids == 5, -1), certain, undecided)
        return ops.where(index == 0, first, later), state

    # A long text is so much preferred that 5 followed by the certain end beats the three ends.
    result = decode(step, (), (), [0], 0, 2, Beam(2, 6.0), (1, 2, 3), PAD)
    assert ops.convert_to_numpy(result["token_ids"]).tolist() == [[5, 1]]


def test_more_beams_than_texts(prefix_model):
    model = prefix_model(3, capacity=5, seed=0)
    beams = run(model, range(2), Beam(9, 0.6), [1, 2], 3)
    assert len(hypotheses(beams, 0)) == 3
    assert_equal_hypotheses(hypotheses(beams, 1), every_hypothesis(model, 1, 2, 0.6, (END,))[:9])


@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_more_beams_never_lose_when_exact(prefix_model, alpha):
    """One beam is greedy search, and the exact search is at least as good in every row."""
    model = prefix_model(3, capacity=5, seed=5)
    state, constants, first_tokens = model.inputs_of(range(8))
    greedy = decode(model.step, state, constants, first_tokens, 0, 4, Greedy(), END, PAD)
    one = run(model, range(8), Beam(1, alpha), [4] * 8, 4)
    np.testing.assert_array_equal(one["token_ids"][:, 0], ops.convert_to_numpy(greedy["token_ids"]))
    exact = run(model, range(8), Beam(81, alpha), [4] * 8, 4)
    assert (exact["scores"][:, 0] >= one["scores"][:, 0] - 1e-6).all()
    assert (exact["scores"][:, 0] > one["scores"][:, 0] + 1e-3).any(), "greedy search must miss the best text somewhere"
