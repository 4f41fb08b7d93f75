"""Rows whose real tokens a stack moves to the front, for kernels that take lengths."""

import dataclasses

import keras
import numpy as np
import pytest
from keras import ops
from small_transformers import TOLERANCE, made

import zoo
from zoo import AttentionConfig, NormConfig
from zoo.backbones.left_aligned import LeftAligned

pytestmark = pytest.mark.backends
REAL = np.array([[1] * 6, [1, 1, 1, 0, 0, 0], [0, 0, 1, 1, 1, 1], [0, 1, 0, 1, 1, 0], [0] * 6], "bool")
IDS = np.random.default_rng(0).integers(1, 20, REAL.shape)


def test_the_order():
    rows = LeftAligned(REAL)
    order = ops.convert_to_numpy(rows.order)
    np.testing.assert_array_equal(order, np.argsort(~REAL, axis=1, kind="stable"))
    np.testing.assert_array_equal(ops.convert_to_numpy(rows.lengths), REAL.sum(axis=1))
    x = np.arange(REAL.size * 3.0).reshape(*REAL.shape, 3).astype("float32")
    aligned = ops.convert_to_numpy(rows.align(x))
    np.testing.assert_array_equal(aligned, np.take_along_axis(x, order[..., None], axis=1))
    np.testing.assert_array_equal(ops.convert_to_numpy(rows.restore(aligned)), x)
    np.testing.assert_array_equal(ops.convert_to_numpy(rows.padding_mask), np.take_along_axis(REAL, order, axis=1))
    np.testing.assert_array_equal(ops.convert_to_numpy(rows.positions(np.arange(6) + 3)), order + 3)
    np.testing.assert_array_equal(ops.convert_to_numpy(rows.positions()), order)


if keras.backend.backend() == "jax":
    import jax
    from without_gpu import believe_in_cudnn, compute_by_xla, squares_in

on_jax = pytest.mark.skipif(keras.backend.backend() != "jax", reason="kernels that take lengths are called by JAX")


HEADS = AttentionConfig(num_heads=2)
# architecture, position and other choices
KINDS = {
    "decoder": ("decoder", "sinusoidal", {}),
    "decoder rotary": ("decoder", "rotary", {"attention": AttentionConfig(num_heads=2, num_key_value_heads=1)}),
    "encoder": ("encoder", "sinusoidal", {}),
    "encoder rotary": ("encoder", "rotary", {}),
    "encoder learned": ("encoder", "learned", {}),
    "encoder batch": ("encoder", "sinusoidal", {"norm": NormConfig("batch")}),
    "encoder_decoder": ("encoder_decoder", "sinusoidal", {}),
}
NOT = {
    "encoder relative": ("encoder", "relative_bias", {}),
    "decoder window": ("decoder", "rotary", {"attention": AttentionConfig(num_heads=2, window=(3, 0))}),
}


def inputs_of(kind):
    if kind.startswith("encoder_decoder"):
        right = np.arange(6) < REAL.sum(axis=1, keepdims=True)
        names = {"encoder_token_ids": IDS, "encoder_padding_mask": REAL}
        return {**names, "decoder_token_ids": IDS[::-1].copy(), "decoder_padding_mask": right}
    return {"token_ids": IDS, "padding_mask": REAL}


def real_outputs(kind, backbone, values=None, training=False):
    """The hidden states of real tokens, zero elsewhere."""
    inputs = inputs_of(kind)
    if values is None:
        outputs = backbone(inputs, training=training)
    else:
        state = [each.value for each in backbone.non_trainable_variables]
        outputs, _ = backbone.stateless_call(values, state, inputs, training=training)
    outputs = outputs["decoder_sequence_output"] if isinstance(outputs, dict) else outputs
    real = inputs.get("decoder_padding_mask", REAL) & REAL.any(axis=1, keepdims=True)
    return ops.where(real[..., None], ops.cast(outputs, "float32"), 0.0)


@on_jax
@pytest.mark.parametrize("kind", [*KINDS, *NOT])
def test_outputs_and_gradients_are_those_of_masks(kind, monkeypatch):
    architecture, position, options = (KINDS | NOT)[kind]
    backbone = made(architecture, position, **{"attention": HEADS, "dropout": 0.0, **options})
    real_outputs(kind, backbone)

    def loss(values):
        outputs = real_outputs(kind, backbone, values, training=True)
        return (outputs * jax.numpy.cos(jax.numpy.arange(outputs.size)).reshape(outputs.shape)).sum()

    values = [each.value for each in backbone.trainable_variables]
    expected = real_outputs(kind, backbone), jax.grad(loss)(values)
    asked = compute_by_xla(monkeypatch)
    aligned = real_outputs(kind, backbone), jax.grad(loss)(values)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, **TOLERANCE), aligned, expected)
    if kind in KINDS:
        assert asked and not any("mask" in each for each in asked)
        assert kind == "encoder_decoder" or all(
            ("is_causal" in each) != ("key_value_seq_lengths" in each) for each in asked
        )


@on_jax
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_no_tensor_of_all_pairs_in_a_step(kind, dropout, monkeypatch):
    believe_in_cudnn(monkeypatch)
    monkeypatch.setattr("layers.attention.kernels.dispatch._MOST_DROPPED_SCORES", 1)
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        architecture, position, options = KINDS[kind]
        attention = dataclasses.replace(options.get("attention", HEADS), dropout=dropout)
        backbone = made(architecture, position, **{**options, "attention": attention, "max_length": 3000})
    finally:
        keras.config.set_dtype_policy("float32")
    length = 2200
    inputs = {name: np.ones((2, length), "int32" if "ids" in name else "bool") for name in inputs_of(kind)}
    state = [each.value for each in backbone.non_trainable_variables]

    def loss(values, inputs):
        outputs, _ = backbone.stateless_call(values, state, inputs, training=True)
        return sum(ops.cast(each, "float32").sum() for each in jax.tree.leaves(outputs))

    values = [each.value for each in backbone.trainable_variables]
    program = jax.make_jaxpr(jax.grad(loss))(values, inputs)
    assert squares_in(program, length) == []
    assert ("dot_product_attention_bwd" in str(program)) == (dropout == 0)


@on_jax
def test_what_is_captured_stands_where_it_was(monkeypatch):
    backbone = made("encoder")
    with zoo.inspect.Capture(["encoder.hidden"]) as expected:
        backbone(inputs_of("encoder"))
    compute_by_xla(monkeypatch)
    with zoo.inspect.Capture(["encoder.hidden"]) as found:
        backbone(inputs_of("encoder"))
    for x, y in zip(found["encoder.hidden"], expected["encoder.hidden"], strict=True):
        np.testing.assert_allclose(np.asarray(x)[REAL], np.asarray(y)[REAL], atol=1e-5)


@on_jax
@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_given_positions_and_lengths_of_tokens(kind, monkeypatch):
    """Positions that begin anew within a row, and lengths that differ between its tokens."""
    factors = {"short_factor": [1.0] * 4, "long_factor": [4.0, 3.0, 2.0, 5.0], "factor": 6.0}
    scaling = {"kind": "longrope", "original_max_position_embeddings": 4, **factors}
    backbone = made(kind, zoo.PositionConfig("rotary", scaling=scaling), attention=HEADS, dropout=0.0)
    stack = backbone.encoder if kind == "encoder" else backbone.decoder
    hidden = np.random.default_rng(2).normal(size=(*REAL.shape, 16)).astype("float32")
    rows = {"positions": np.array([0, 1, 2, 0, 1, 2]), "sequence_length": np.array([[3, 3, 20, 9, 9, 9]] * len(REAL))}
    real = REAL & REAL.any(axis=1, keepdims=True)

    def outputs(**given):
        return np.asarray(stack(hidden, padding_mask=REAL, **given))[real]

    expected, plain = outputs(**rows), outputs(positions=rows["positions"])
    assert np.abs(expected - plain).max() > 1e-2
    asked = compute_by_xla(monkeypatch)
    np.testing.assert_allclose(outputs(**rows), expected, **TOLERANCE)
    assert any("key_value_seq_lengths" in each for each in asked) == (kind == "encoder")
