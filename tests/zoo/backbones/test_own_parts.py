"""Parts from outside of the package in a model and its configuration: positions, weightings, norms, initializers."""

import keras
import numpy as np
import pytest
from small_transformers import TOLERANCE, array, made, token_ids
from small_transformers import config as small

from layers import PositionEncoding, register_position
from layers.attention import AttentionWeighting
from zoo import AttentionConfig, Backbone, NormConfig, PositionConfig, TransformerConfig


@register_position("test_recency")
class Recency(PositionEncoding):
    """A penalty per step of distance, and a constant per place that is added to the embedding."""

    def __init__(self, num_heads, slope=0.5, **kwargs):
        super().__init__(**kwargs)
        self.num_heads, self.slope = num_heads, slope

    def on_embeddings(self, x, positions):
        return x + 0.1 * keras.ops.cast(keras.ops.expand_dims(positions % 3, -1), x.dtype)

    def score_bias(self, query, key, query_positions, key_positions, scale, projections):
        distance = keras.ops.expand_dims(query_positions, -1) - keras.ops.expand_dims(key_positions, -2)
        distance = keras.ops.expand_dims(distance, -3)
        distance = distance if len(distance.shape) == 4 else keras.ops.expand_dims(distance, 0)
        return -self.slope * keras.ops.cast(distance, "float32")

    def get_config(self):
        return {**super().get_config(), "num_heads": self.num_heads, "slope": self.slope}


def test_in_a_decoder():
    position = PositionConfig("test_recency", options={"slope": 0.75})
    backbone = made("decoder", position)
    assert backbone.config == TransformerConfig.from_json(backbone.config.to_json())
    assert {block.attention.position.slope for block in backbone.decoder.blocks} == {0.75}
    # what acts on the embeddings is one for the stack, though each block has its own
    positions = {id(backbone.decoder.position), *(id(block.attention.position) for block in backbone.decoder.blocks)}
    assert len(positions) == 3
    ids, mask = token_ids(2, 6), np.ones((2, 6), "bool")
    expected = array(backbone.logits(backbone({"token_ids": ids, "padding_mask": mask})))
    other = made("decoder", PositionConfig("test_recency", options={"slope": 0.1}))
    assert np.abs(array(other.logits(other({"token_ids": ids, "padding_mask": mask}))) - expected).max() > 1e-3
    state, constants = backbone.start_decoding({"padding_mask": mask}, capacity=8)
    for index in range(6):
        logits, state = backbone.decode_step(ids[:, index], index, state, constants)
        np.testing.assert_allclose(array(logits), expected[:, index], **TOLERANCE)


def test_in_a_keras_file(tmp_path):
    backbone = made("encoder", PositionConfig("test_recency"))
    ids, mask = token_ids(2, 6), np.ones((2, 6), "bool")
    backbone.save(tmp_path / "model.keras")
    reloaded = keras.models.load_model(tmp_path / "model.keras")
    inputs = {"token_ids": ids, "padding_mask": mask}
    np.testing.assert_array_equal(array(reloaded(inputs)), array(backbone(inputs)))


@keras.saving.register_keras_serializable("test_parts")
def relu_attention(scores, visible):
    return keras.ops.relu(scores) / 4


@keras.saving.register_keras_serializable("test_parts")
class ReLUAttention(AttentionWeighting):
    def normalize(self, scores, visible):
        return relu_attention(scores, visible)


@pytest.mark.parametrize("name", ["test_parts>relu_attention", "test_parts>ReLUAttention"])
def test_weighting(tmp_path, name):
    attention = AttentionConfig(num_heads=4, weighting=name)
    backbone = made("encoder", attention=attention)
    assert backbone.config == TransformerConfig.from_json(backbone.config.to_json())
    inputs = {"token_ids": token_ids(2, 6), "padding_mask": np.ones((2, 6), "bool")}
    softmax = made("encoder", attention=AttentionConfig(num_heads=4))
    assert np.abs(array(backbone(inputs)) - array(softmax(inputs))).max() > 1e-2
    backbone.save(tmp_path / "model.keras")
    np.testing.assert_array_equal(
        array(keras.models.load_model(tmp_path / "model.keras")(inputs)), array(backbone(inputs))
    )
    with pytest.raises(ValueError, match="attention.weighting must be a name that is registered .* got 'relu'"):
        AttentionConfig(weighting="relu")


def test_wrong_name():
    with pytest.raises(ValueError, match="position.kind must be one of .*'test_recency'.* got 'nowhere'"):
        PositionConfig("nowhere")


@keras.saving.register_keras_serializable("test_parts")
class PowerNorm(keras.layers.Layer):
    """`x / mean(|x|^p)^(1/p)`, a norm with an epsilon and an option of its own."""

    def __init__(self, power=2.0, epsilon=1e-3, **kwargs):
        super().__init__(**kwargs)
        self.power, self.epsilon = power, epsilon

    def call(self, inputs):
        powers = keras.ops.mean(keras.ops.abs(inputs) ** self.power, axis=-1, keepdims=True)
        return inputs / (powers + self.epsilon) ** (1 / self.power)

    def get_config(self):
        return {**super().get_config(), "power": self.power, "epsilon": self.epsilon}


def test_norm():
    config = NormConfig("test_parts>PowerNorm", "pre", epsilon=1e-4, options={"power": 1.0})
    backbone = made("encoder", norm=config, attention=AttentionConfig(num_heads=4, query_key_norm=config.kind))
    assert backbone.config == TransformerConfig.from_json(backbone.config.to_json())
    norm = backbone.encoder.final_norm
    assert (norm.power, norm.epsilon) == (1.0, 1e-4)
    assert isinstance(backbone.encoder.blocks[0].attention.query_norm, PowerNorm)
    hidden = array(backbone({"token_ids": token_ids(2, 6), "padding_mask": np.ones((2, 6), "bool")}))
    np.testing.assert_allclose(np.abs(hidden).mean(axis=-1), 1, atol=1e-3)  # the final norm has no weights
    with pytest.raises(ValueError, match=r"norm.options\['alpha'\] must be left out .* options \['power'\], got 1"):
        NormConfig("test_parts>PowerNorm", options={"alpha": 1})
    for make in (NormConfig, lambda kind: AttentionConfig(query_key_norm=kind)):
        with pytest.raises(ValueError, match="norm(.kind)? must be one of 'layer', .* 'package>name', got 'group'"):
            make("group")


def test_bias_initializer():
    config = {"class_name": "Constant", "config": {"value": 0.25}}

    def make(initializer):
        return Backbone.from_config(small("encoder", bias_initializer=initializer))

    backbone = make(config)
    assert backbone.config == TransformerConfig.from_json(backbone.config.to_json())
    block = backbone.encoder.blocks[0]
    for dense in (block.attention.query_projection, block.attention.output_projection, block.feed_forward.up):
        np.testing.assert_array_equal(array(dense.bias), 0.25)
    ones = make("ones").encoder.blocks[0].feed_forward.down
    np.testing.assert_array_equal(array(ones.bias), 1)
    for wrong in ("zeroes", {"class_name": "Nothing"}):
        with pytest.raises(ValueError, match="bias_initializer must be the name of an initializer of Keras, .* got"):
            make(wrong)
