"""Decoding step by step is the full pass."""

import keras
import numpy as np
import pytest
from small_transformers import POSITIONS, TOLERANCE, array, below, made, pair, token_ids

from zoo import (
    AttentionConfig,
    PositionConfig,
)


@pytest.mark.parametrize("position", POSITIONS)
def test_decoding_an_encoder_decoder_is_the_full_pass(position):
    backbone, inputs = made("encoder_decoder", position), pair([5, 7], [6, 6])
    expected = array(backbone.logits(backbone(inputs)["decoder_sequence_output"]))
    state, constants = backbone.start_decoding(inputs, capacity=8)
    for index in range(6):
        logits, state = backbone.decode_step(inputs["decoder_token_ids"][:, index], index, state, constants)
        np.testing.assert_allclose(array(logits), expected[:, index], **TOLERANCE)
        assert "float32" in str(logits.dtype)
    assert all(tensor.shape[0] == 2 for tensor in keras.tree.flatten((state, constants)))


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("window", [None, (2, 0)])
def test_decoding_ragged_prompts_is_the_full_pass_of_each(position, window):
    attention = AttentionConfig(
        num_heads=4,
        num_key_value_heads=1,
        window=window,
        window_layers=None if window is None else (True, False),
    )
    backbone, lengths = made("decoder", position, attention=attention), [4, 2, 5]
    texts = token_ids(3, 9)  # of which the first tokens are the prompts, to be padded on the left
    prompts = np.zeros((3, 5), "int32")
    for row, length in enumerate(lengths):
        prompts[row, 5 - length :] = texts[row, :length]
    mask = below(lengths, 5)[:, ::-1]
    state, constants = backbone.start_decoding({"padding_mask": mask}, capacity=9)
    held = [cache["key"].shape[2] for cache in state["caches"]]
    assert held == ([9, 9] if window is None else [3, 9])
    # the prompt but for its last token in one go, longer than the window, then token by token
    _, state = backbone.advance(prompts[:, :4], 0, state, constants)
    token, steps = prompts[:, 4], []
    for index in range(4, 8):
        logits, state = backbone.decode_step(token, index, state, constants)
        steps.append(array(logits))
        token = np.array([texts[row, length + index - 4] for row, length in enumerate(lengths)])
    for row, length in enumerate(lengths):
        total = length + 3
        hidden = backbone({"token_ids": texts[row : row + 1, :total], "padding_mask": np.ones((1, total), "bool")})
        expected = array(backbone.logits(hidden))[0, length - 1 :]
        np.testing.assert_allclose(np.stack(steps)[:, row], expected, **TOLERANCE)


def test_decoding_with_a_rotary_scaling_that_depends_on_the_length():
    scaling = {"kind": "dynamic_ntk", "factor": 4.0, "original_max_position_embeddings": 4}
    position = PositionConfig("rotary", scaling=scaling)
    backbone = made("decoder", position, attention=AttentionConfig(num_heads=4, window=(2, 0)))
    ids, mask = token_ids(2, 9), np.ones((2, 9), "bool")
    expected = array(backbone({"token_ids": ids, "padding_mask": mask}))
    # whatever the capacity, the padding and the packing, it is computed for `max_length`
    for capacity in (9, 20):
        state, constants = backbone.start_decoding({"padding_mask": mask}, capacity=capacity)
        for index in range(9):
            hidden, state = backbone.advance(ids[:, index : index + 1], index, state, constants)
            np.testing.assert_allclose(array(hidden)[:, 0], expected[:, index], **TOLERANCE)
    padded = {"token_ids": np.pad(ids, ((0, 0), (0, 7))), "padding_mask": np.pad(mask, ((0, 0), (0, 7)))}
    np.testing.assert_allclose(array(backbone(padded))[:, :9], expected, **TOLERANCE)
    shorter = made("decoder", position, attention=AttentionConfig(num_heads=4, window=(2, 0)), max_length=4)
    shorter.set_weights(backbone.get_weights())
    assert np.abs(array(shorter({"token_ids": ids, "padding_mask": mask})) - expected).max() > 1e-3


def test_decoding_with_xla_and_unknown_sizes():
    tf = pytest.importorskip("tensorflow")
    backbone = made("decoder", "rotary", attention=AttentionConfig(num_heads=4, window=(2, 0)))
    ids = token_ids(2, 6)
    expected = array(backbone.logits(backbone({"token_ids": ids, "padding_mask": np.ones((2, 6), "bool")})))

    @tf.function(jit_compile=True, autograph=False)
    def decode(prompts, token):
        state, constants = backbone.start_decoding({"padding_mask": tf.ones_like(prompts, tf.bool)}, capacity=6)
        hidden, state = backbone.advance(prompts, 0, state, constants)
        logits, _ = backbone.decode_step(token, tf.shape(prompts)[1], state, constants)
        return backbone.logits(hidden), logits

    decode = decode.get_concrete_function(tf.TensorSpec((None, None), tf.int32), tf.TensorSpec((None,), tf.int32))
    prompt_logits, logits = decode(tf.constant(ids[:, :5]), tf.constant(ids[:, 5]))
    np.testing.assert_allclose(array(prompt_logits), expected[:, :5], **TOLERANCE)
    np.testing.assert_allclose(array(logits), expected[:, 5], **TOLERANCE)


def test_encoder_does_not_decode():
    with pytest.raises(
        ValueError, match="architecture must be 'decoder' or 'encoder_decoder' to decode, got 'encoder'"
    ):
        made("encoder").start_decoding({"padding_mask": np.ones((1, 3), "bool")}, 4)
