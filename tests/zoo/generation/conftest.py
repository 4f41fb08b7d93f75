import keras
import numpy as np
import pytest
from keras import ops


class PrefixModel:
    """A model whose next-token distribution depends on the whole prefix and on a constant of the row.

    `step` keeps the prefix in a nested state (as a cache would) and reads the row's number from the constants.
    `log_probabilities` is the same distribution for one row and one prefix, in NumPy and float64.
    """

    def __init__(self, vocabulary_size, capacity, seed=0, sharpness=2.0):
        generator = np.random.default_rng(seed)
        self.vocabulary_size = vocabulary_size
        self.capacity = capacity
        self.sharpness = sharpness
        self.position_weights = generator.uniform(0.3, 1.7, capacity)
        self.frequencies = generator.uniform(0.5, 3.0, vocabulary_size)
        self.calls = 0

    def inputs(self, batch):
        """State and constants of rows 0 ... batch - 1, first tokens 0."""
        return self.inputs_of(range(batch))

    def inputs_of(self, row_numbers):
        batch = len(row_numbers)
        state = {"layers": [{"tokens": ops.zeros((batch, self.capacity), dtype="int32")}]}
        constants = {"row": ops.convert_to_tensor(list(row_numbers), dtype="float32")}
        return state, constants, ops.zeros((batch,), dtype="int32")

    def step(self, token_ids, index, state, constants):
        self.calls += 1
        tokens = state["layers"][0]["tokens"]
        positions = ops.arange(self.capacity, dtype="int32")
        tokens = ops.where(positions == index, ops.expand_dims(token_ids, -1), tokens)
        weights = ops.where(positions <= index, ops.convert_to_tensor(self.position_weights, dtype="float32"), 0.0)
        summary = ops.sum(weights * ops.cast(tokens + 1, "float32"), axis=-1, keepdims=True)
        frequencies = ops.convert_to_tensor(self.frequencies, dtype="float32")
        logits = self.sharpness * ops.sin(summary * frequencies + ops.expand_dims(constants["row"], -1))
        return logits, {"layers": [{"tokens": tokens}]}

    def log_probabilities(self, row, prefix):
        """`prefix` are the tokens after the first one, which is 0."""
        tokens = np.array([0, *prefix])
        summary = np.sum(self.position_weights[: len(tokens)] * (tokens + 1))
        logits = self.sharpness * np.sin(summary * self.frequencies + row)
        return logits - np.log(np.sum(np.exp(logits)))


@pytest.fixture
def prefix_model():
    return PrefixModel


@pytest.fixture
def assert_same():
    """Compare nested structures of tensors: integers exactly, floats to the rounding of float32 sums."""

    def check(actual, expected, atol=1e-5):
        keras.tree.assert_same_structure(actual, expected)
        for left, right in zip(keras.tree.flatten(actual), keras.tree.flatten(expected), strict=True):
            left, right = ops.convert_to_numpy(left), ops.convert_to_numpy(right)
            if left.dtype.kind == "f":
                # scores are sums in float32, each with a rounding in the order of 1e-7 of its own size
                np.testing.assert_allclose(left, right, atol=atol, rtol=2e-6)
            else:
                np.testing.assert_array_equal(left, right)

    return check
