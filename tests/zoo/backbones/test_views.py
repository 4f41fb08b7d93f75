"""What a stack makes once for many layers is what each layer makes of the facts alone."""

import keras
import numpy as np
import pytest
from keras import ops
from small_transformers import array, below, made, token_ids

from layers.capture import Capture
from zoo import AttentionConfig, PositionConfig

IDS, MASK = token_ids(2, 9), below([9, 6], 9)
WINDOWS = AttentionConfig(4, window=(2, 0), window_layers=(True, False, False))
KINDS = {
    "local and global": {"num_layers": 6, "attention": WINDOWS, "position": "rotary"},
    "bases by layer": {"num_layers": 4, "attention": WINDOWS, "position": PositionConfig("rotary", local_base=100.0)},
    "shared bias": {"num_layers": 3, "position": "relative_bias"},
    "a bias of each layer": {"num_layers": 3, "position": "shaw"},
}


@pytest.mark.backends
@pytest.mark.parametrize("kind", KINDS)
def test_layers_that_look_alike_share_a_view(kind):
    decoder = made("decoder", **KINDS[kind]).decoder
    x = ops.convert_to_tensor(np.random.default_rng(0).normal(size=(2, 9, decoder.config.hidden_dim)), "float32")
    with Capture(["decoder.hidden"]) as found:
        decoder(x, padding_mask=MASK)
    hidden = found["decoder.hidden"]
    for block, inputs, expected in zip(decoder.layers_in_order(), hidden, hidden[1:], strict=False):
        alone = block(inputs, padding_mask=MASK)
        np.testing.assert_allclose(array(alone)[MASK], array(expected)[MASK], atol=1e-5, rtol=1e-5)


@pytest.mark.backends
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("by_row", [False, True])
def test_caches_that_are_alike_are_written_at_the_same_places(kind, by_row):
    decoder = made("decoder", **KINDS[kind]).decoder
    x = np.random.default_rng(0).normal(size=(2, 9, decoder.config.hidden_dim)).astype("float32")
    caches, index, hidden = decoder.make_caches(2, 12), 0, []
    alone = decoder.make_caches(2, 12)
    for count in (4, 1, 1, 3):
        part, at = ops.convert_to_tensor(x[:, index : index + count]), np.full(2, index, "int32") if by_row else index
        result, caches = decoder(part, caches=caches, cache_index=at)
        for number, block in enumerate(decoder.layers_in_order()):
            part, alone[number] = block(part, cache=alone[number], cache_index=at)
        np.testing.assert_allclose(array(result), array(decoder.finish(part)), atol=1e-5, rtol=1e-5)
        for found, expected in zip(keras.tree.flatten(caches), keras.tree.flatten(alone), strict=True):
            np.testing.assert_allclose(array(found), array(expected), atol=1e-5, rtol=1e-5)
        hidden.append(array(result))
        index += count
    np.testing.assert_allclose(np.concatenate(hidden, axis=1), array(decoder(x)), atol=2e-5, rtol=2e-5)
