"""Other weights than those of the softmax of scaled dot products."""

import keras
import numpy as np
import pytest
from keras import ops
from numpy_attention import TOLERANCE, array, made, normal, order

from layers import ALiBi, MultiHeadAttention
from layers.attention import AttentionWeighting, attend, dot_products, hide
from layers.attention.latents import Latents
from layers.attention.masks import AttentionMask


@keras.saving.register_keras_serializable("test_weighting")
def softpick(scores, visible):
    """Zuhri et al. 2025, "Softpick: No Attention Sink, No Massive Activations with Rectified Softmax", equation 4."""
    highest = ops.maximum(ops.max(scores, axis=-1, keepdims=True), 0.0)
    excess = ops.exp(scores - highest) - ops.exp(-highest)
    excess = excess if visible is None else ops.where(visible, excess, 0.0)
    return ops.relu(excess) / (ops.sum(ops.abs(excess), axis=-1, keepdims=True) + 1e-6)


@keras.saving.register_keras_serializable("test_weighting")
class Differential(AttentionWeighting):
    """Ye et al. 2024, "Differential Transformer", equation 1, with one learned lambda per head."""

    def build(self, query_shape):
        self.factor = self.add_weight(shape=(query_shape[1], 1, 1), initializer=keras.initializers.Constant(0.3))
        self.built = True

    def weigh(self, query, key, *, scale, bias=None, visible=None):
        halves = zip(ops.split(query, 2, axis=-1), ops.split(key, 2, axis=-1), strict=True)
        first, second = (ops.softmax(hide(dot_products(q, k, scale), visible)) for q, k in halves)
        return first - self.factor * second


def projections(layer, x):
    """Queries, keys and values of one row, `(heads, length, width)`."""
    results = []
    for name, heads in (
        ("query", layer.num_heads),
        ("key", layer.num_key_value_heads),
        ("value", layer.num_key_value_heads),
    ):
        dense = getattr(layer, f"{name}_projection")
        y = (x @ array(dense.kernel) + array(dense.bias)).reshape(len(x), heads, -1).swapaxes(0, 1)
        results.append(y.repeat(layer.num_heads // heads, axis=0))
    return results


def joined(layer, heads):
    output = layer.output_projection
    return heads.swapaxes(0, 1).reshape(heads.shape[1], -1) @ array(output.kernel) + array(output.bias)


def softmax(x):
    exponentials = np.exp(x - x.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


def softpick_formula(scores, visible):
    positive = np.maximum(np.exp(scores) - 1, 0) * visible
    return positive / ((np.abs(np.exp(scores) - 1) * visible).sum(-1, keepdims=True) + 1e-6)


def test_a_function():
    layer, x = made(4, 6, num_key_value_heads=2, causal=True, weighting=softpick, position=ALiBi(4)), normal(1, 7, 12)
    query, key, value = projections(layer, x[0])
    slopes = 2.0 ** (-2 * np.arange(1, 5))
    scores = query @ key.swapaxes(1, 2) / np.sqrt(6) - slopes[:, None, None] * abs(order(7))
    weights = softpick_formula(scores, order(7) >= 0)
    output, actual = layer(x, return_weights=True)
    np.testing.assert_allclose(array(actual)[0], weights, atol=1e-4)
    np.testing.assert_allclose(array(output)[0], joined(layer, weights @ value), atol=1e-4)


def test_differential_attention_learns(tmp_path):
    layer, x = MultiHeadAttention(2, 8, causal=True, weighting=Differential()), normal(1, 6, 12)
    model = keras.Sequential([keras.Input((None, 12)), layer])
    query, key, value = projections(layer, x[0])
    maps = []
    for half in (slice(0, 4), slice(4, 8)):
        scores = query[..., half] @ key[..., half].swapaxes(1, 2) / np.sqrt(8)
        maps.append(softmax(np.where(order(6) >= 0, scores, -np.inf)))
    expected = joined(layer, (maps[0] - 0.3 * maps[1]) @ value)
    np.testing.assert_allclose(array(layer(x))[0], expected, **TOLERANCE)
    model.save(tmp_path / "model.keras")
    np.testing.assert_array_equal(array(keras.models.load_model(tmp_path / "model.keras")(x)), array(layer(x)))
    before = array(layer.weighting.factor)
    model.compile("sgd", "mse")
    model.fit(x, x, verbose=0)
    assert np.abs(array(layer.weighting.factor) - before).max() > 0


@pytest.mark.parametrize("window", [None, (3, 0)])
def test_cached_padded_and_in_half_precision(window):
    layer, x = made(4, 6, causal=True, window=window, weighting=softpick), normal(2, 7, 12)
    expected, cache, steps = array(layer(x)), layer.make_cache(2, 7), []
    for index in range(7):
        output, cache = layer(x[:, index : index + 1], cache=cache, cache_index=index)
        steps.append(array(output))
    np.testing.assert_allclose(np.concatenate(steps, axis=1), expected, atol=1e-4)
    padded = layer(np.pad(x, ((0, 0), (0, 3), (0, 0))), padding_mask=np.arange(10) < np.array([[7], [7]]))
    np.testing.assert_allclose(array(padded)[:, :7], expected, atol=1e-4)
    half = MultiHeadAttention.from_config({**layer.get_config(), "dtype": "mixed_bfloat16"})
    half.build((None, None, 12))
    half.set_weights(layer.get_weights())
    np.testing.assert_allclose(array(half(x)), expected, atol=0.1, rtol=0.1)


def test_paths():
    x = normal(1, 2, 300, 16)
    layer = MultiHeadAttention(2, 16, window=(20, 5), weighting=softpick, path="banded")
    assert layer.weighting.paths == ("plain", "banded")
    options = {"mask": AttentionMask(window=(20, 5)), "scale": 0.25, "weighting": layer.weighting}
    outputs = [array(attend(x, x, x, path=path, **options)) for path in ("plain", "banded")]
    np.testing.assert_allclose(outputs[1], outputs[0], atol=1e-4)
    with pytest.raises(
        ValueError, match="path must be 'auto' or 'plain' where weighting=.* 'plain' and 'banded' only, got 'blocked'"
    ):
        attend(x, x, x, path="blocked", **options)
    with pytest.raises(ValueError, match="must be None with weighting"):
        attend(x, x, x, sinks=np.zeros(2), **options)


def test_weights_of_a_weighting_have_a_role_on_several_devices():
    """The base class says it, so that classes of one's own need not."""
    from layers.roles import WHOLE

    assert Differential().weight_role == WHOLE


def sigmoid(scores, visible):
    """Ramapuram et al. 2025, "Theory, Analysis, and Best Practices for Sigmoid Self-Attention", equation 3."""
    return ops.sigmoid(scores - 1.0)


@pytest.mark.parametrize("weighting", [softpick, sigmoid])
def test_one_contract_for_all_ways(weighting):
    """All paths, and latents with a cache longer than the text, give what the formula gives."""
    expected_of = {softpick: softpick_formula, sigmoid: lambda scores, visible: visible / (1 + np.exp(1 - scores))}
    layer, x = made(4, 6, causal=True, window=(40, 0), weighting=weighting), normal(1, 150, 12)
    query, key, value = projections(layer, x[0])
    visible = (order(150) >= 0) & (order(150) <= 40)
    weights = expected_of[weighting](query @ key.swapaxes(1, 2) / np.sqrt(6), visible)
    expected = joined(layer, weights @ value)
    for path in ("plain", "banded"):
        layer.preferred_path = path
        np.testing.assert_allclose(array(layer(x))[0], expected, atol=1e-3)
    latent = made(2, 6, causal=True, weighting=weighting, latents=Latents(4, shared_key_dim=2))
    x = normal(1, 5, 12)
    output, _ = latent(x, cache=latent.make_cache(1, 9), cache_index=0)
    np.testing.assert_allclose(array(output), array(latent(x)), atol=1e-4)


def test_other_scores_with_latents_and_a_cache():
    """A weighting of whole queries and keys, which the cache of latents does not hold."""
    layer, x = made(2, 8, causal=True, weighting=Differential(), latents=Latents(4, shared_key_dim=2)), normal(1, 5, 12)
    output, _ = layer(x, cache=layer.make_cache(1, 9), cache_index=0)
    np.testing.assert_allclose(array(output), array(layer(x)), **TOLERANCE)


@pytest.mark.parametrize(
    "function, what",
    [
        (lambda scores, visible: ops.relu(scores) / scores.shape[-1], "the number of hidden keys"),
        (lambda scores, visible: ops.softmax(ops.maximum(scores, -5.0)), "the number of hidden keys"),
        (lambda scores, visible: ops.softmax(scores) / ops.shape(scores)[-2], "other queries"),
        (lambda scores, visible: ops.softmax(scores) * (1.0 if visible is None else 0.5), "visible is None"),
        (lambda scores, visible: ops.softmax(scores) * ops.reshape(ops.arange(4.0), (4, 1, 1)), "axes before"),
        (lambda scores, visible: ops.cumsum(ops.sigmoid(scores), axis=-1), "the order of the keys"),
    ],
)
@pytest.mark.parametrize("in_graph", [False, True])
def test_a_function_that_would_differ_by_path_is_refused(function, what, in_graph):
    layer = MultiHeadAttention(4, 6, causal=True, window=(3, 0), weighting=function)
    with pytest.raises(ValueError, match=f"weighting .*{what}"):
        if in_graph:
            layer(keras.Input((5, 12)))
        else:
            layer.build((None, None, 12))
