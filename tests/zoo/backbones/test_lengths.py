"""Positions that depend on the length of each text: alone, in batches, packed, and while it is decoded."""

import numpy as np
import pytest
from keras import ops

import zoo
from zoo.backbones.lengths import text_lengths
from zoo.config import AttentionConfig, PositionConfig, TransformerConfig

TRAINED = 6
SCALING = {
    "kind": "longrope",
    "short_factor": [1.0, 1.3],
    "long_factor": [2.0, 3.0],
    "original_max_position_embeddings": TRAINED,
    "factor": 4.0,
}


def make(window=None):
    config = TransformerConfig(
        "decoder",
        vocabulary_size=20,
        hidden_dim=8,
        num_layers=2,
        max_length=16,
        attention=AttentionConfig(2, window=window),
        position=PositionConfig("rotary", scaling=SCALING),
    )
    backbone, rng = zoo.Backbone.from_config(config), np.random.default_rng(0)
    for weight in backbone.weights:
        weight.assign(weight + 0.5 * rng.normal(size=weight.shape))
    return backbone


@pytest.fixture(scope="module")
def backbone():
    return make()


def logits_of(backbone, ids, **more):
    mask = more.pop("padding_mask", np.ones_like(ids, "bool"))
    return ops.convert_to_numpy(backbone.logits(backbone({"token_ids": ids, "padding_mask": mask, **more})))


def test_lengths_of_texts():
    assert text_lengths(5) == 5
    mask = np.array([[True, True, False], [False, True, False]])
    np.testing.assert_array_equal(text_lengths(3, mask), [2, 1])
    packed = text_lengths(5, mask, np.array([[1, 1, 1, 2, 2], [0, 0, 3, 0, 0]]))
    np.testing.assert_array_equal(packed, [[3, 3, 3, 2, 2], [2, 2, 1, 2, 2]])


def test_rows_take_what_they_take_alone(backbone):
    ids = np.random.default_rng(1).integers(1, 20, (3, 9))
    mask = np.arange(9) < np.array([9, TRAINED, 0])[:, None]
    mask[2, 2:] = True  # seven tokens, padded on the left
    batch = logits_of(backbone, ids, padding_mask=mask)
    for row in range(3):
        alone = logits_of(backbone, ids[row : row + 1, mask[row]])[0]
        np.testing.assert_allclose(batch[row, mask[row]], alone, atol=1e-5)
    packed = logits_of(
        backbone,
        ids[:1],
        sequence_ids=np.array([[0] * 7 + [1] * 2]),
        positions=np.array([[*range(7), 0, 1]]),
    )[0]
    np.testing.assert_allclose(packed[:7], logits_of(backbone, ids[:1, :7])[0], atol=1e-5)
    np.testing.assert_allclose(packed[7:], logits_of(backbone, ids[:1, 7:])[0], atol=1e-5)


@pytest.mark.parametrize("window", [None, (2, 0)])
def test_a_text_that_outgrows_the_trained_length(window):
    backbone = make(window)
    ids = np.random.default_rng(2).integers(1, 20, (2, 10))
    first = np.array([0, 2])
    mask = np.arange(10) >= first[:, None]
    state, constants = backbone.start_decoding({"padding_mask": mask}, capacity=10)
    hidden, state = backbone.advance(ids[:, :3], 0, state, constants)
    for index in range(3, 10):
        logits, state = backbone.decode_step(ids[:, index], index, state, constants)
        for row in range(2):
            alone = logits_of(backbone, ids[row : row + 1, first[row] : index + 1])[0, -1]
            np.testing.assert_allclose(ops.convert_to_numpy(logits)[row], alone, atol=1e-5)


def test_growing_and_moving(backbone):
    state, constants = backbone.start_decoding({"padding_mask": np.ones((1, 8), "bool")}, capacity=8)
    ids = np.random.default_rng(3).integers(1, 20, (1, 9))
    _, state = backbone.advance(ids[:, :5], 0, state, constants)
    assert backbone.resize_state(state, 12, np.array([1])) is None
    assert not backbone.can_rewind(8)
    state = backbone.resize_state(state, 12)
    hidden, _ = backbone.advance(ids[:, 5:], 5, state, constants)
    logits = ops.convert_to_numpy(backbone.logits(hidden))[0]
    np.testing.assert_allclose(logits, logits_of(backbone, ids)[0, 5:], atol=1e-5)
