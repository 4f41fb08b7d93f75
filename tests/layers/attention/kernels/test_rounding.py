"""Attention where matrix products round their inputs, as GPUs do (TF32, bfloat16), and in half precision."""

import keras
import numpy as np
import pytest
from keras import ops

from layers.attention import AttentionMask, attend
from layers.attention.kernels.blocked import blocked_attention


@pytest.fixture
def rounded_products(monkeypatch):
    """Rounds the inputs of every matrix product to bfloat16; sums stay in float32."""

    def rounded(x):
        return ops.cast(ops.cast(x, "bfloat16"), x.dtype)

    einsum, matmul = ops.einsum, ops.matmul
    monkeypatch.setattr(ops, "einsum", lambda equation, *tensors: einsum(equation, *map(rounded, tensors)))
    monkeypatch.setattr(ops, "matmul", lambda x, y: matmul(rounded(x), rounded(y)))


@pytest.mark.parametrize("path", ["plain", "blocked", "banded"])
@pytest.mark.parametrize("option", [{}, {"soft_cap": 30.0}], ids=["plain", "soft_cap"])
@pytest.mark.parametrize("padding", [False, True])
def test_weights_of_a_row_sum_to_one(kernels, rounded_products, gradients, path, option, padding):
    """Values of one give the sum of a row, and their gradients the sum of the weights of the backward pass."""
    query, key = (kernels.normal(1, 2, 96, 8, seed=seed) for seed in range(2))
    query[..., 0] += 8  # scores of 22 and their deviations, of about 3
    key[..., 0] += 8
    padding_mask = np.arange(96)[None] >= 10 if padding else None
    mask = AttentionMask(window=(90, 90), key_padding_mask=padding_mask)
    value = np.ones((1, 2, 96, 2), "float32")

    def output(value):
        if path == "blocked":
            return blocked_attention(query, key, value, mask, scale=0.35, block_length=32, **option)
        return attend(query, key, value, mask, scale=0.35, path=path, **option)

    # each weight is rounded by itself to 8 bits, which is 0.4 % at most and less in the sum
    np.testing.assert_allclose(ops.convert_to_numpy(output(ops.convert_to_tensor(value))), 1, atol=3e-3)
    if path != "blocked":
        return  # the gradient of a rounding is rounded, too; the backward pass of this path is written out
    (gradient,) = gradients(lambda value: ops.sum(output(value)), value)
    np.testing.assert_allclose(gradient.sum(axis=2), 96, rtol=5e-4)


@pytest.mark.parametrize("path", ["plain", "blocked", "banded"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_scores_are_not_rounded_to_half(kernels, path, dtype):
    """Scores of 20 would be off by 0.06 in bfloat16; inputs that are exact in half leave the rounding of the output."""
    query, key = np.full((1, 1, 8, 4), 1.5, "float32"), np.full((1, 1, 8, 4), 3.0, "float32")
    key[..., 0] += np.arange(8) / 64  # scores from 18 on, 3/128 apart
    value = np.eye(8, dtype="float32")[None, None] * 4
    mask = AttentionMask(window=(7, 7))
    visible = kernels.visible_pairs(1, 1, 8, 8, {"window": (7, 7)})
    expected, _ = kernels.formula(query, key, value, visible, scale=1.0)
    output = kernels.run(path, *(ops.cast(x, dtype) for x in (query, key, value)), mask, scale=1.0)
    assert keras.backend.standardize_dtype(output.dtype) == dtype
    output = ops.convert_to_numpy(ops.cast(output, "float32"))
    np.testing.assert_allclose(output, expected, rtol=0.006 if dtype == "bfloat16" else 0.001)
