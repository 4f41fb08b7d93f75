"""A batch without rows has results without rows."""

import keras
import numpy as np
from keras import ops

import layers
from layers.attention.kernels import attend

NOTHING = np.zeros((0, 8, 16), "float32")
POSITIONS = np.zeros((0, 8), "int32")
DYNAMIC = {"kind": "dynamic_ntk", "factor": 2.0, "original_max_position_embeddings": 8}
LAYERS = {
    "grouped": lambda: layers.MultiHeadAttention(4, 8, num_key_value_heads=2, causal=True),
    "sinks": lambda: layers.MultiHeadAttention(4, 8, num_key_value_heads=2, causal=True, sinks=True),
    "scaled": lambda: layers.MultiHeadAttention(2, 8, causal=True, position=layers.RotaryEmbedding(8, scaling=DYNAMIC)),
    "xpos": lambda: layers.MultiHeadAttention(2, 8, causal=True, position=layers.XPos(8)),
    "shaw": lambda: layers.MultiHeadAttention(2, 8, causal=True, position=layers.ShawRelativePositions(8, 4)),
    "short_convolution": layers.ShortConvolution,
    "gated_delta_rule": lambda: layers.GatedDeltaRule(2, 4),
    "state_space": lambda: layers.StateSpace(2, 4),
    "experts": lambda: layers.MixtureOfExperts(4, 8),
}


def shape_of(function):
    """The shape of a result: of TensorFlow computed, of JAX traced, which is where each looks at shapes."""
    if keras.backend.backend() != "jax":
        return function().shape
    import jax

    return jax.eval_shape(function).shape


def test_layers():
    for name, make in LAYERS.items():
        layer = make()
        layer.build(NOTHING.shape)
        facts = {} if name == "experts" else {"positions": POSITIONS, "padding_mask": POSITIONS == 0}
        assert shape_of(lambda layer=layer, facts=facts: layer(NOTHING, **facts)) == (0, 8, 16), name


def test_steps_with_a_cache():
    for name in ("grouped", "state_space"):
        layer = LAYERS[name]()
        layer.build(NOTHING.shape)

        def step(layer=layer):
            return layer(NOTHING[:, :1], cache=layer.make_cache(0, 8), cache_index=0)[0]

        assert shape_of(step) == (0, 1, 16), name


def test_global_tokens():
    attention = layers.MultiHeadAttention(2, 8, window=(2, 2), global_projections=True)
    attention.build(NOTHING.shape)
    assert shape_of(lambda: attention(NOTHING, global_mask=POSITIONS > 0)) == (0, 8, 16)


def test_kernels():
    query, key = ops.zeros((0, 4, 8, 6)), ops.zeros((0, 2, 8, 6))
    facts = {"mask": layers.AttentionMask(causal=True, window=(3, 0)), "sinks": np.zeros(4, "float32"), "scale": 1.0}
    for path in ("plain", "banded"):
        assert shape_of(lambda path=path: attend(query, key, key, path=path, **facts)) == (0, 4, 8, 6)
