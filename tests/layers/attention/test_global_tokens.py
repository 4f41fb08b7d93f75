"""Attention in a window with global tokens (Beltagy et al. 2020, section 3.1), against a formula in NumPy."""

import types

import numpy as np
import pytest
from keras import ops
from numpy_attention import array, formula, made, normal, order

from layers import MultiHeadAttention, RotaryEmbedding

LENGTH = 80
REAL = np.arange(LENGTH) < np.array([[LENGTH], [70]])
SEGMENTS = np.tile(np.arange(LENGTH) // 30, (2, 1))


def layer_of(**options):
    return made(2, 4, window=(5, 3), global_projections=True, **options)


def global_tokens(count):
    """So many tokens of the first row, one less of the second, the last of which is padding."""
    first, second = np.arange(LENGTH) < count, (np.arange(LENGTH) >= 71 - count) & (np.arange(LENGTH) <= 70)
    return np.stack([first, second if count > 1 else np.zeros(LENGTH, "bool")])


def expected(layer, x, is_global, segments=None):
    is_global = is_global & REAL
    distance = order(LENGTH)
    near = (distance <= 5) & (distance >= -3)
    same = True if segments is None else segments[:, :, None] == segments[:, None, :]
    seen = REAL[:, None, :] & same
    local, local_weights = formula(layer, x, visible=(seen & (near | is_global[:, None, :]))[:, None])
    names = ("query", "key", "value")
    own = {f"{name}_projection": getattr(layer, f"{name}_global_projection") for name in names}
    others = {name: getattr(layer, name) for name in ("num_heads", "num_key_value_heads", "head_dim", "value_head_dim")}
    others |= {name: getattr(layer, name) for name in ("output_projection", "gate_projection", "sinks")}
    of_all, all_weights = formula(types.SimpleNamespace(**own, **others), x, visible=seen[:, None])
    outputs = np.where(is_global[..., None], of_all, local)
    return outputs, np.where(is_global[:, None, :, None], all_weights, local_weights)


@pytest.mark.parametrize(
    ("path", "count", "is_packed", "heads"),
    [
        ("auto", 3, False, 2),
        ("banded", 3, True, 1),
        ("banded", 0, False, 2),
        ("banded", 70, False, 1),  # more than are gathered
        ("plain", 3, False, 1),
        ("blocked", 3, True, 2),
    ],
)
def test_outputs(path, count, is_packed, heads, with_xla):
    segments = SEGMENTS if is_packed else None
    layer, x = layer_of(path=path, num_key_value_heads=heads), normal(2, LENGTH, 12)
    facts = {"global_mask": global_tokens(count), "padding_mask": REAL, "segment_ids": segments}
    wanted, wanted_weights = expected(layer, x, global_tokens(count), segments)
    compiled = with_xla(lambda x: layer(x, **facts))(x)
    output, weights = layer(x, **facts, return_weights=True)
    for found in (layer(x, **facts), compiled, output):
        np.testing.assert_allclose(array(ops.convert_to_tensor(found))[REAL], wanted[REAL], atol=2e-5, rtol=2e-5)
    np.testing.assert_allclose(
        np.moveaxis(array(weights), 1, 2)[REAL], np.moveaxis(wanted_weights, 1, 2)[REAL], atol=2e-5
    )


def test_without_global_tokens_it_is_a_window():
    layer, x = layer_of(), normal(2, 9, 12)
    wanted = formula(layer, x, visible=(order(9) <= 5) & (order(9) >= -3))[0]
    np.testing.assert_allclose(array(layer(x)), wanted, atol=2e-5, rtol=2e-5)


def test_gradients(gradients):
    def gradient(path):
        layer = layer_of(path=path)
        return gradients(lambda x: ops.sum(layer(x, global_mask=global_tokens(3)) ** 2), normal(2, LENGTH, 12))[0]

    np.testing.assert_allclose(gradient("banded"), gradient("plain"), atol=1e-3, rtol=1e-3)


def test_dropout():
    layer, x = layer_of(dropout=0.5, path="banded"), np.repeat(normal(1, LENGTH, 12), 200, axis=0)
    facts = {"global_mask": np.repeat(global_tokens(3)[:1], 200, axis=0)}
    plain, dropped = array(layer(x[:1], global_mask=facts["global_mask"][:1])), array(layer(x, **facts, training=True))
    assert np.abs(dropped - plain).mean() > 0.1 * np.abs(plain).mean()
    # the mean of 200 rows with decisions of their own
    assert np.abs(dropped.mean(0) - plain).mean() < 0.1 * np.abs(plain).mean()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: MultiHeadAttention(2, 4, global_projections=True),
            "global_projections must be False without a window",
        ),
        (
            lambda: MultiHeadAttention(2, 4, global_projections=True, window=2, causal=True),
            "global_projections must be False .* causal=True",
        ),
        (
            lambda: MultiHeadAttention(2, 4, global_projections=True, window=2, position=RotaryEmbedding(4)),
            "position must be left out with global_projections",
        ),
        (
            lambda: MultiHeadAttention(2, 4, window=2)(normal(1, 3, 8), global_mask=np.ones((1, 3), "bool")),
            "global_mask must be None without global_projections",
        ),
        (
            lambda: layer_of()(normal(1, 3, 12), global_mask=np.ones((1, 4), "bool")),
            r"global_mask must have shape \(1, 3\), got \(1, 4\)",
        ),
    ],
)
def test_errors(make, message):
    with pytest.raises(ValueError, match=message):
        make()
