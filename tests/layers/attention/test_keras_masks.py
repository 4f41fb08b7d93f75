"""Keras's own masks: `Embedding(mask_zero=True)` and `Masking`."""

import warnings

import keras
import numpy as np
import pytest
from keras import ops
from numpy_attention import TOLERANCE, array, formula, made, normal

IDS = np.array([[3, 5, 2, 0, 0], [1, 4, 2, 2, 6]], "int32")
MEMORY_IDS = np.array([[3, 5, 0], [1, 4, 2]], "int32")


def embedding(width=12, seed=0):
    layer = keras.layers.Embedding(8, width, mask_zero=True)
    layer.build((None, None))
    layer.embeddings.assign(normal(8, width, seed=seed))
    return layer


def theirs_like(ours, inputs=12, memory=12):
    """`keras.layers.MultiHeadAttention` with the weights of ours."""
    theirs = keras.layers.MultiHeadAttention(ours.num_heads, ours.head_dim)
    theirs.build((None, None, inputs), (None, None, memory))
    for name in ("query", "key", "value"):
        dense, projection = getattr(theirs, f"_{name}_dense"), getattr(ours, f"{name}_projection")
        dense.kernel.assign(ops.reshape(projection.kernel, dense.kernel.shape))
        dense.bias.assign(ops.reshape(projection.bias, dense.bias.shape))
    theirs._output_dense.kernel.assign(ops.reshape(ours.output_projection.kernel, theirs._output_dense.kernel.shape))
    theirs._output_dense.bias.assign(ours.output_projection.bias)
    return theirs


@pytest.mark.parametrize("causal", [False, True])
def test_self_attention(causal):
    ours, embed = made(4, 6, causal=causal), embedding()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x = embed(IDS)
        output = ours(x)
        weights = ours(x, return_weights=True)[1]
    expected = theirs_like(ours)(x, x, use_causal_mask=causal)
    real = IDS != 0
    np.testing.assert_allclose(array(output)[real], array(expected)[real], **TOLERANCE)
    np.testing.assert_array_equal(ops.convert_to_numpy(output._keras_mask), real)
    # nobody looks at padding, and padding looks at nothing
    np.testing.assert_array_equal(array(weights)[0, :, :, 3:], 0)
    np.testing.assert_array_equal(array(weights)[0, :, 3:], 0)
    bias = array(ours.output_projection.bias)
    np.testing.assert_array_equal(array(output)[0, 3:], np.broadcast_to(bias, (2, 12)))


def test_other_arguments_do_not_switch_masks_off():
    ours, embed = made(4, 6), embedding()
    x, positions = embed(IDS), np.arange(5)
    np.testing.assert_allclose(array(ours(x, positions=positions)), array(ours(x)), **TOLERANCE)
    # both masks hold
    both = ours(x, padding_mask=np.array([[0, 1, 1, 1, 1], [1, 1, 0, 1, 1]]))
    visible = np.array([[0, 1, 1, 0, 0], [1, 1, 0, 1, 1]], "bool")
    expected, _ = formula(ours, ops.convert_to_numpy(x), visible=visible[:, None, None])
    np.testing.assert_allclose(array(both)[IDS != 0], expected[IDS != 0], **TOLERANCE)


def test_cross_attention():
    ours, (embed, embed_memory) = made(4, 6, memory=12), (embedding(), embedding(seed=1))
    theirs, real = theirs_like(ours), IDS != 0
    # both masked, the memory alone, the queries alone; theirs takes the masks off its inputs
    for mask_queries, mask_memory in ((True, True), (False, True), (True, False)):

        def inputs(queries=mask_queries, memory=mask_memory):
            x, y = embed(IDS), embed_memory(MEMORY_IDS)
            return x if queries else x + 0, y if memory else y + 0

        output = ours(*inputs())
        np.testing.assert_allclose(array(output)[real], array(theirs(*inputs()))[real], **TOLERANCE)
        mask = getattr(output, "_keras_mask", None)
        assert (mask is None) != mask_queries
        if mask_queries:
            np.testing.assert_array_equal(ops.convert_to_numpy(mask), real)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_in_a_functional_model(tmp_path, jit_compile):
    ids, memory_ids = keras.Input((None,), dtype="int32"), keras.Input((None,), dtype="int32")
    embed, attention, cross = embedding(), made(4, 6, name="self"), made(4, 6, memory=12, name="cross")
    hidden = attention(embed(ids))
    output = cross(hidden, embed(memory_ids))
    pooled = keras.layers.GlobalAveragePooling1D()(output)
    model = keras.Model([ids, memory_ids], [output, pooled])
    model.compile(jit_compile=jit_compile)
    expected = array(cross(attention(embed(IDS[:1, :3])), embed(MEMORY_IDS[:1, :2])))
    model.save(tmp_path / "model.keras")
    for one in (model, keras.models.load_model(tmp_path / "model.keras")):
        outputs, means = one.predict([IDS, MEMORY_IDS], verbose=0)
        np.testing.assert_allclose(outputs[:1, :3], expected, **TOLERANCE)
        np.testing.assert_allclose(means[:1], expected.mean(1), **TOLERANCE)


def test_masking_layer():
    x = normal(2, 5, 12)
    x[0, 3:] = 0
    ours = made(4, 6)
    output = ours(keras.layers.Masking()(x))
    np.testing.assert_allclose(array(output)[:1, :3], array(ours(x[:1, :3])), **TOLERANCE)
