import numpy as np
import pytest
from keras import ops

from zoo.generation import score


def test_against_numpy():
    generator = np.random.default_rng(0)
    logits = generator.normal(0, 3, (3, 5, 7))
    labels = generator.integers(0, 7, (3, 5))
    mask = np.array([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [0, 0, 0, 0, 0]], bool)
    expected = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    expected = np.take_along_axis(expected, labels[..., None], -1)[..., 0] * mask
    labels[~mask] = -100  # no token, as other libraries mark padding
    logits[2] = np.nan  # what is masked out must not matter
    result = score(ops.convert_to_tensor(logits, dtype="float32"), labels, mask)
    result = {name: ops.convert_to_numpy(tensor) for name, tensor in result.items()}
    # float32 logits of magnitude 10
    np.testing.assert_allclose(result["token_log_probabilities"], expected, atol=2e-6)
    np.testing.assert_allclose(result["log_probabilities"], expected.sum(-1), atol=1e-5)
    np.testing.assert_array_equal(result["lengths"], [5, 2, 0])


def test_half_precision_logits_are_summed_in_float32():
    logits = ops.cast(np.zeros((1, 1, 5000)), "float16")
    result = score(logits, [[3]], [[True]])["log_probabilities"]
    # float16 cannot even hold the sum of 5,000 exponentials of larger logits, nor log 5000 to better than 0.004
    np.testing.assert_allclose(ops.convert_to_numpy(result), [-np.log(5000)], atol=1e-5)


def test_wrong_ranks():
    with pytest.raises(ValueError, match=r"got \(2, 7\), \(2, 1\) and \(2, 1\)"):
        score(np.zeros((2, 7)), np.zeros((2, 1), int), np.ones((2, 1), bool))
