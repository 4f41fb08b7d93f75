import keras
import numpy as np
import pytest
from keras import ops

from zoo.generation import Beam, Greedy, Sample, decode, score

SAMPLERS = [Greedy(), Sample(0.8, top_k=4, top_p=0.9), Sample(1.2, top_p=0.8), Beam(3), Beam(4, 1.0, 2)]
END, PAD = 1, 7


def run(model, rows, sampler, limits=None, max_new_tokens=10, **options):
    state, constants, first_tokens = model.inputs_of(rows)
    options = {"end_ids": END, "pad_id": PAD, **options}
    if limits is not None:
        limits = ops.convert_to_tensor(limits, dtype="int32")
    return decode(
        model.step, state, constants, first_tokens, 0, max_new_tokens, sampler, length_limit=limits, **options
    )


def greedy_in_python(model, row, limit, end_ids=(END,)):
    tokens, total = [], 0.0
    while len(tokens) < limit and not (tokens and tokens[-1] in end_ids):
        log_probabilities = model.log_probabilities(row, tokens)
        tokens.append(int(np.argmax(log_probabilities)))
        total += log_probabilities[tokens[-1]]
    return tokens, total


@pytest.mark.parametrize("sampler", [Greedy(), Sample(top_k=1), Beam(1, length_penalty=0.0)], ids=repr)
@pytest.mark.parametrize("end_ids", [END, (1, 4), ()], ids=str)
def test_greedy_against_a_python_loop(prefix_model, sampler, end_ids):
    model = prefix_model(7, capacity=11, seed=1)
    limits = [10, 10, 3, 10, 0, 1, 99, -2, 10]
    result = run(model, range(9), sampler, limits, end_ids=end_ids)
    result.pop("beams", None)
    result = {name: ops.convert_to_numpy(tensor) for name, tensor in result.items()}
    assert result["token_ids"].shape == (9, 10) and result["token_ids"].dtype == np.int32
    end_ids = (end_ids,) if isinstance(end_ids, int) else end_ids
    ended = 0
    for row, limit in enumerate(limits):
        tokens, total = greedy_in_python(model, row, min(limit, 10), end_ids)
        assert result["lengths"][row] == len(tokens)
        assert result["token_ids"][row].tolist() == tokens + [PAD] * (10 - len(tokens))
        assert result["finished"][row] == bool(tokens and tokens[-1] in end_ids)
        np.testing.assert_allclose(result["log_probabilities"][row], total, atol=1e-3)  # sines of arguments up to 300
        ended += result["finished"][row]
    assert bool(ended) == bool(end_ids), "the cases must contain rows that end"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_a_row_does_not_depend_on_its_neighbours(prefix_model, assert_same, sampler):
    model = prefix_model(7, capacity=11, seed=2)
    limits = np.array([10, 4, 0, 10, 9, 10, 1, 10])
    streams = np.array([5, 0, 1, 2, 3, 900, 4, 6])
    together = run(model, range(8), sampler, limits, seed=3, streams=streams)
    for rows in ([3], [7, 1], [1, 0, 2, 3, 4, 5, 6, 7, 0, 0, 0]):
        alone = run(model, rows, sampler, limits[rows], seed=3, streams=streams[rows])
        assert_same(alone, keras.tree.map_structure(lambda tensor, rows=rows: ops.take(tensor, rows, axis=0), together))


def test_streams_of_samples(prefix_model):
    model = prefix_model(7, capacity=11, seed=2)

    def tokens(rows, **options):
        return ops.convert_to_numpy(run(model, rows, Sample(), **options)["token_ids"]).tolist()

    batch = tokens([4] * 6, seed=1)
    assert batch == tokens([4] * 6, seed=1), "same seed, same text"
    assert batch != tokens([4] * 6, seed=2)
    assert len({tuple(row) for row in batch}) > 3, "equal prompts in one batch get different texts"
    assert tokens([4], seed=1, streams=[3]) == [batch[3]]
    assert tokens([4, 4], seed=1, streams=[5, 5]) == [batch[5]] * 2
    # A longer output begins with the shorter one.
    assert [row[:4] for row in batch] == tokens([4] * 6, seed=1, max_new_tokens=4)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="counts the steps of TensorFlow's eager loop")
@pytest.mark.parametrize("sampler", [Greedy(), Beam(2)], ids=repr)
def test_the_loop_ends_when_all_rows_are_finished(prefix_model, sampler):
    model = prefix_model(7, capacity=11, seed=1)
    result = run(model, range(6), sampler, [2, 0, 5, 3, 0, 0])
    assert model.calls <= 5
    if isinstance(sampler, Greedy):
        assert model.calls == np.max(ops.convert_to_numpy(result["lengths"]))
    model.calls = 0
    result = run(model, range(3), sampler, [0, 0, 0])
    assert model.calls == 0
    assert not ops.convert_to_numpy(result["lengths"]).any()
    assert (ops.convert_to_numpy(result["token_ids"]) == PAD).all()


@pytest.mark.parametrize("sampler", [Greedy(), Sample(), Beam(3)], ids=repr)
def test_log_probabilities_are_those_of_a_teacher_forced_pass(prefix_model, sampler):
    model = prefix_model(7, capacity=11, seed=4)
    result = run(model, range(5), sampler, seed=8)
    tokens, lengths = ops.convert_to_numpy(result["token_ids"]), ops.convert_to_numpy(result["lengths"])
    logits = [[model.log_probabilities(row, tokens[row, :place]) for place in range(10)] for row in range(5)]
    mask = np.arange(10) < lengths[:, None]
    expected = score(ops.convert_to_tensor(np.array(logits), dtype="float32"), tokens, mask)["log_probabilities"]
    np.testing.assert_allclose(
        ops.convert_to_numpy(result["log_probabilities"]), ops.convert_to_numpy(expected), atol=1e-3
    )


@pytest.mark.parametrize("sampler", [Greedy(), Beam(2)], ids=repr)
def test_position_index_and_pad_are_fed(sampler):
    """The step after the first one gets the index `first_index + 1` and the tokens chosen before."""

    def step(token_ids, index, state, constants):
        # Predicts 10 * index + token before modulo 50, with certainty.
        following = (10 * index + token_ids) % 50
        return 100.0 * ops.one_hot(following, 50), state

    result = decode(step, (), (), [3, 4], 2, 3, sampler, end_ids=44, pad_id=0)
    assert ops.convert_to_numpy(result["token_ids"]).tolist() == [[23, 3, 43], [24, 4, 44]]
    assert ops.convert_to_numpy(result["finished"]).tolist() == [False, True]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_step(prefix_model, dtype):
    model = prefix_model(7, capacity=11, seed=4)

    class Half:
        inputs_of = model.inputs_of

        @staticmethod
        def step(*arguments):
            logits, state = model.step(*arguments)
            return ops.cast(logits, dtype), state

    for sampler in (Greedy(), Sample(top_p=0.9), Beam(2)):
        result = run(Half, range(3), sampler)
        assert keras.backend.standardize_dtype(result["log_probabilities"].dtype) == "float32"
        assert np.isfinite(ops.convert_to_numpy(result["log_probabilities"])).all()


@pytest.mark.parametrize(
    "change, error, message",
    [
        ({"max_new_tokens": 0}, ValueError, "max_new_tokens must be .*got 0"),
        ({"max_new_tokens": 2.0}, ValueError, "max_new_tokens must be .*got 2.0"),
        ({"end_ids": -1}, ValueError, r"end_ids must be .*got \(-1,\)"),
        ({"pad_id": -1}, ValueError, "pad_id must be"),
        ({"sampler": 3}, TypeError, "sampler must be .*got 3"),
        ({"first_tokens": [[1]]}, ValueError, r"first_tokens must have the shape \(batch,\), got \(1, 1\)"),
        ({"length_limit": [1, 2, 3]}, ValueError, r"length_limit must have the batch \(2 rows"),
        ({"streams": [1], "sampler": Sample()}, ValueError, r"streams must have the batch \(2 rows"),
        ({"state": {"a": [np.zeros((3, 1))]}}, ValueError, r"state\['a'\]\[0\] must have the batch \(2 rows"),
        ({"constants": [np.zeros(())]}, ValueError, r"constants\[0\] must have the batch"),
        ({"seed": -3, "sampler": Sample()}, ValueError, "seed must be"),
    ],
)
def test_bad_arguments(change, error, message):
    arguments = {
        "step": lambda token_ids, index, state, constants: (ops.one_hot(token_ids, 5), state),
        "state": (),
        "constants": (),
        "first_tokens": [0, 0],
        "first_index": 0,
        "max_new_tokens": 2,
        "sampler": Greedy(),
        "end_ids": 1,
        "pad_id": 0,
    }
    assert ops.convert_to_numpy(decode(**arguments)["lengths"]).tolist() == [2, 2]
    with pytest.raises(error, match=message):
        decode(**{**arguments, **change})
