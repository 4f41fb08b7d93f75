"""The rows of a batch do not see each other: padding and packing."""

import keras
import numpy as np
import pytest
from small_transformers import POSITIONS, TOLERANCE, array, below, made, pair, token_ids

from zoo import NormConfig
from zoo.backbones.backbone import require_right_padding


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("architecture", ["encoder", "decoder"])
def test_padded_batch_is_each_alone(architecture, position):
    backbone, lengths = made(architecture, position), [7, 3, 5]
    ids = token_ids(3, 7)
    together = array(backbone({"token_ids": ids, "padding_mask": below(lengths, 7)}))
    for row, length in enumerate(lengths):
        inputs = {"token_ids": ids[row : row + 1, :length], "padding_mask": below([length], length)}
        np.testing.assert_allclose(together[row, :length], array(backbone(inputs))[0], **TOLERANCE)


def test_padded_pairs_are_each_alone():
    backbone, lengths = made("encoder_decoder", "relative_bias"), [(7, 2), (3, 6), (5, 5)]
    inputs = pair(*map(list, zip(*lengths, strict=True)))
    together = backbone(inputs)
    for row, (source, target) in enumerate(lengths):
        alone = backbone(
            {name: value[row : row + 1, : source if "encoder" in name else target] for name, value in inputs.items()}
        )
        for name, length in (("encoder_sequence_output", source), ("decoder_sequence_output", target)):
            np.testing.assert_allclose(array(together[name])[row, :length], array(alone[name])[0], **TOLERANCE)


def test_targets_padded_on_the_left_are_refused():
    """The decoder has no mask: its tokens would see the padding before them."""
    backbone, inputs = made("encoder_decoder", "relative_bias"), pair([4, 7], [6, 3])
    inputs["decoder_padding_mask"] = inputs["decoder_padding_mask"][:, ::-1]
    for call in (backbone, backbone.attention_weights):
        with pytest.raises(ValueError, match="decoder_padding_mask must .*on the right, got a token behind .* row 1"):
            call(inputs)
    mask = inputs["decoder_padding_mask"]
    # training with numbers at hand does not wait for them, a graph has the check in it
    require_right_padding("mask", mask, training=True)
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        graph = tf.function(lambda given: require_right_padding("mask", given, training=True))
        graph(mask[:, ::-1])
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"padding on the right[^1]*row.*\n?.*1"):
            graph(mask)
    with pytest.raises(ValueError, match=r"mask must have the shape \(batch, length\), got \(6,\)"):
        require_right_padding("mask", mask[0])
    # rows of several texts say themselves which tokens belong together
    backbone({**inputs, "encoder_sequence_ids": token_ids(2, 7), "decoder_sequence_ids": token_ids(2, 6)})


def test_batch_norm_ignores_padding():
    # all norms see only what is real: those of the blocks, the embedding norm and the final norm, on both sides
    options = {"norm": NormConfig("batch", "pre", embedding=True), "dropout": 0.0}
    backbone, lengths = made("encoder_decoder", **options), ([4, 7], [6, 3])
    inputs, outputs = pair(*lengths), []
    for garbage in (1, 2):
        for side, mask in zip(("encoder", "decoder"), (below(lengths[0], 7), below(lengths[1], 6)), strict=True):
            inputs[f"{side}_token_ids"] = np.where(mask, inputs[f"{side}_token_ids"], garbage)
        output = backbone(inputs, training=True)
        outputs.append(
            [
                array(output[f"{side}_sequence_output"])[inputs[f"{side}_padding_mask"]]
                for side in ("encoder", "decoder")
            ]
        )
    for first, second in zip(*outputs, strict=True):
        np.testing.assert_allclose(first, second, **TOLERANCE)


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("architecture", ["encoder", "decoder"])
def test_packed_is_separate(architecture, position):
    backbone, ids = made(architecture, position), token_ids(1, 9)
    sequence_ids = np.array([[1, 1, 1, 1, 2, 2, 2, 3, 3]])
    positions = np.array([[0, 1, 2, 3, 0, 1, 2, 0, 1]])
    given = {"token_ids": ids, "padding_mask": np.ones((1, 9), "bool"), "sequence_ids": sequence_ids}
    packed = array(backbone({**given, "positions": positions}))
    # without positions they start anew in each sequence
    np.testing.assert_allclose(array(backbone(given)), packed, **TOLERANCE)
    for number in (1, 2, 3):
        part = sequence_ids[0] == number
        alone = backbone({"token_ids": ids[:, part], "padding_mask": np.ones((1, part.sum()), "bool")})
        np.testing.assert_allclose(packed[0, part], array(alone)[0], **TOLERANCE)


@pytest.mark.parametrize("position", POSITIONS)
def test_packed_pairs_are_each_pair_alone(position):
    backbone, sources, targets = made("encoder_decoder", position), [4, 3], [3, 5]
    separate = pair(sources, targets)
    expected = array(backbone(separate)["decoder_sequence_output"])
    packed = {}
    for side, lengths in (("encoder", sources), ("decoder", targets)):
        ids = np.concatenate([separate[f"{side}_token_ids"][row, :n] for row, n in enumerate(lengths)])[None]
        packed |= {
            f"{side}_token_ids": ids,
            f"{side}_padding_mask": np.ones(ids.shape, "bool"),
            f"{side}_sequence_ids": np.repeat([1, 2], lengths)[None],
            f"{side}_positions": np.concatenate([np.arange(n) for n in lengths])[None],
        }
    output = array(backbone(packed)["decoder_sequence_output"])[0]
    without = {name: value for name, value in packed.items() if not name.endswith("positions")}
    np.testing.assert_allclose(array(backbone(without)["decoder_sequence_output"])[0], output, **TOLERANCE)
    start = 0
    for row, length in enumerate(targets):
        np.testing.assert_allclose(output[start : start + length], expected[row, :length], **TOLERANCE)
        start += length
    with pytest.raises(ValueError, match="encoder_sequence_ids and decoder_sequence_ids together"):
        backbone({name: value for name, value in packed.items() if name != "decoder_sequence_ids"})
