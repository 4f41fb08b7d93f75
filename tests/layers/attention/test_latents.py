"""Attention whose heads are made of latents, against its formula in NumPy."""

import numpy as np
import pytest
from keras import ops

from layers import ALiBi, MultiHeadAttention, RMSNorm, RotaryEmbedding
from layers.attention import Latents

HEADS, OWN, SHARED, VALUE, LATENT, WIDTH, LENGTH = 3, 6, 4, 5, 7, 12, 9


def make(query_dim, **options):
    layer = MultiHeadAttention(
        HEADS,
        OWN + SHARED,
        value_head_dim=VALUE,
        causal=True,
        position=RotaryEmbedding(OWN + SHARED, rotary_dim=SHARED, rotary_start=OWN, layout="interleaved"),
        latents=Latents(LATENT, SHARED, query_dim, use_bias=True),
        **{"use_bias": ("output",), **options},
    )
    layer.build((None, LENGTH, WIDTH))
    rng = np.random.default_rng(0)
    for weight in layer.weights:
        weight.assign(rng.normal(size=weight.shape))
    return layer


@pytest.fixture(scope="module", params=[None, 8])
def layer(request):
    return make(request.param)


@pytest.fixture(scope="module")
def inputs():
    return np.random.default_rng(1).normal(size=(2, LENGTH, WIDTH)).astype("float32")


def formula(layer, x):
    """DeepSeek-AI 2024, "DeepSeek-V2", equations 9 to 19, head by head and token by token."""
    weights = {weight.path.split("/", 1)[1]: ops.convert_to_numpy(weight).astype("float64") for weight in layer.weights}

    def latent(name):
        narrow = x @ weights[f"{name}/kernel"] + weights[f"{name}/bias"]
        narrow = narrow / np.sqrt((narrow**2).mean(-1, keepdims=True) + 1e-6)
        return narrow * weights[f"{name}_norm/scale"]

    def turned(vector, position):
        pairs = vector[..., 0::2] + 1j * vector[..., 1::2]
        pairs = pairs * np.exp(1j * position * 10000.0 ** (-np.arange(SHARED // 2) * 2 / SHARED))
        return np.stack([pairs.real, pairs.imag], -1).reshape(vector.shape)

    query_of = x if layer.latents.query_latent is None else latent("query_latent")
    queries = (query_of @ weights["query/kernel"]).reshape(*x.shape[:2], HEADS, OWN + SHARED)
    keys = (latent("latent") @ weights["key/kernel"]).reshape(*x.shape[:2], HEADS, OWN)
    values = (latent("latent") @ weights["value/kernel"]).reshape(*x.shape[:2], HEADS, VALUE)
    shared = x @ weights["shared_key/kernel"] + weights["shared_key/bias"]
    results = np.zeros((*x.shape[:2], HEADS, VALUE))
    for row, t, head in np.ndindex(len(x), LENGTH, HEADS):
        query = queries[row, t, head]
        scores = [
            query[:OWN] @ keys[row, j, head] + turned(query[OWN:], t) @ turned(shared[row, j], j) for j in range(t + 1)
        ]
        share = np.exp(np.array(scores) * (OWN + SHARED) ** -0.5)
        results[row, t, head] = (share / share.sum()) @ values[row, : t + 1, head]
    return results.reshape(*x.shape[:2], -1) @ weights["output/kernel"] + weights["output/bias"]


def test_formula(layer, inputs):
    np.testing.assert_allclose(ops.convert_to_numpy(layer(inputs)), formula(layer, inputs), rtol=1e-4, atol=1e-4)


def test_the_cache_holds_latents(layer, inputs):
    cache = layer.make_cache(2, LENGTH)
    assert {name: tuple(entry.shape) for name, entry in cache.items()} == {
        "key": (2, 1, LENGTH, LATENT),
        "value": (2, 1, LENGTH, SHARED),
    }
    outputs, index = [], 0
    for count in (4, 1, 1, 3):
        part = inputs[:, index : index + count]
        output, cache = layer(part, cache=cache, cache_index=index)
        outputs.append(ops.convert_to_numpy(output))
        index += count
    np.testing.assert_allclose(np.concatenate(outputs, 1), formula(layer, inputs), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("quantized", [False, True])
def test_biases_of_what_makes_keys_and_values(inputs, quantized):
    layer = make(None, use_bias=True, sinks=True)
    if quantized:
        layer.value_projection.quantize("int8")
    output, _ = layer(inputs, cache=layer.make_cache(2, LENGTH), cache_index=0)
    tolerance = 0.15 if quantized else 1e-4  # latents are rounded in a full pass alone
    np.testing.assert_allclose(ops.convert_to_numpy(output), ops.convert_to_numpy(layer(inputs)), atol=tolerance)


def test_config(layer, inputs):
    again = MultiHeadAttention.from_config(layer.get_config())
    again.build(inputs.shape)
    for theirs, ours in zip(again.weights, layer.weights, strict=True):
        theirs.assign(ours)
    np.testing.assert_array_equal(ops.convert_to_numpy(again(inputs)), ops.convert_to_numpy(layer(inputs)))


def test_adapted_and_quantized(inputs):
    layer = make(None)
    layer.key_projection.add_update("default", 2)
    layer.key_projection.updates["default"].lora_b.assign(np.ones((2, HEADS * OWN)))
    layer.value_projection.quantize("int8")
    output, _ = layer(inputs, cache=layer.make_cache(2, LENGTH), cache_index=0)
    # latents are rounded in a full pass alone
    np.testing.assert_allclose(ops.convert_to_numpy(output), ops.convert_to_numpy(layer(inputs)), atol=0.15)
    output_before, _ = make(None)(inputs, cache=layer.make_cache(2, LENGTH), cache_index=0)
    assert np.abs(ops.convert_to_numpy(output) - ops.convert_to_numpy(output_before)).max() > 0.5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"head_dim": SHARED}, "latents must have a shared_key_dim below head_dim=4, got 4"),
        ({"num_key_value_heads": 1}, "num_key_value_heads must be 2 with latents, got 1"),
        ({"key_norm": RMSNorm()}, "key_norm must be None with latents"),
        ({"projection_limit": 8.0}, "projection_limit must be None with latents, got 8.0"),
        ({"position": ALiBi(2)}, "position must act on queries and keys alone with latents"),
    ],
)
def test_errors(options, message):
    with pytest.raises(ValueError, match=message):
        MultiHeadAttention(**{"num_heads": 2, "head_dim": 8, "latents": Latents(4, SHARED), **options})
    with pytest.raises(ValueError, match="shared_key_dim must be an integer of at least 1, got 0"):
        Latents(4, 0)
