"""Named architectures: their published sizes, counted without allocating a single weight."""

import keras
import pytest

import zoo
from zoo import (
    AttentionConfig,
    EmbeddingConfig,
    FeedForwardConfig,
    NormConfig,
    PositionConfig,
    TransformerConfig,
    list_presets,
    preset_config,
    register_preset,
)
from zoo.presets import Preset, get_preset


def original_transformer_size(vocabulary, width, inner, layers):
    """Weights of Vaswani et al. 2017 with biases in all projections and one embedding for three uses."""
    attention = 4 * (width * width + width)
    feed_forward = width * inner + inner + inner * width + width
    norm = 2 * width
    encoder_layer = attention + feed_forward + 2 * norm
    decoder_layer = 2 * attention + feed_forward + 3 * norm
    return vocabulary * width + layers * (encoder_layer + decoder_layer)


@pytest.mark.parametrize(
    ("name", "sizes", "heads", "dropout"),
    [
        ("transformer_base", (37000, 512, 2048, 6), 8, 0.1),
        ("transformer_big", (37000, 1024, 4096, 6), 16, 0.3),
        ("transformer_tiny", (10000, 128, 256, 4), 4, 0.3),
    ],
)
def test_original_transformers(name, sizes, heads, dropout):
    preset = get_preset(name)
    assert preset.parameter_count() == original_transformer_size(*sizes)
    config = preset.config
    assert (config.attention.num_heads, config.dropout) == (heads, dropout)
    assert config.architecture == "encoder_decoder" and config.embedding.scale and config.embedding.tie_output
    assert config.position == PositionConfig("sinusoidal") and config.norm == NormConfig("layer", "post")
    assert config.feed_forward.activation == "relu"


PUBLISHED = {
    # Radford et al. 2019; the sizes of the released weights
    "gpt2": (
        TransformerConfig(
            "decoder",
            50257,
            hidden_dim=768,
            num_layers=12,
            max_length=1024,
            attention=AttentionConfig(12),
            position=PositionConfig("learned"),
            norm=NormConfig(placement="pre"),
            feed_forward=FeedForwardConfig(3072, "gelu_tanh"),
        ),
        124_439_808,
    ),
    # Devlin et al. 2019; 109,482,240 with the pooler, a projection of 768 by 768 with a bias
    "bert_base_uncased": (
        TransformerConfig(
            "encoder",
            30522,
            hidden_dim=768,
            num_layers=12,
            attention=AttentionConfig(12),
            position=PositionConfig("learned"),
            norm=NormConfig(embedding=True),
            feed_forward=FeedForwardConfig(3072, "gelu"),
            embedding=EmbeddingConfig(num_segments=2),
        ),
        109_482_240 - (768 * 768 + 768),
    ),
    # Llama team 2024
    "llama_3_8b": (
        TransformerConfig(
            "decoder",
            128256,
            hidden_dim=4096,
            num_layers=32,
            max_length=8192,
            attention=AttentionConfig(32, num_key_value_heads=8, use_bias=False),
            position=PositionConfig("rotary", base=500000.0),
            norm=NormConfig("rms", "pre"),
            feed_forward=FeedForwardConfig(14336, "silu", gated=True, use_bias=False),
            embedding=EmbeddingConfig(tie_output=False),
        ),
        8_030_261_248,
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_sizes_of_other_configurations(name):
    config, size = PUBLISHED[name]
    assert Preset(name, config, "", "").parameter_count() == size


def test_nothing_is_allocated():
    # five terabytes in float32
    config = TransformerConfig(
        "decoder",
        1_000_000,
        hidden_dim=32768,
        num_layers=100,
        attention=AttentionConfig(64, use_bias=False),
        norm=NormConfig("rms", "pre"),
        feed_forward=FeedForwardConfig(131072, use_bias=False),
    )
    layer = 4 * 32768**2 + 2 * 32768 * 131072 + 2 * 32768
    assert Preset("huge", config, "", "").parameter_count() == 1_000_000 * 32768 + 100 * layer + 32768


def test_counting_leaves_no_variables_to_be_allocated_later(monkeypatch):
    get_preset("transformer_tiny").parameter_count()

    def fail(*args, **kwargs):
        raise AssertionError("the weights of the counted model are made")

    monkeypatch.setattr(keras.initializers.RandomNormal, "__call__", fail)
    # Keras makes what waits to be made when any layer is called symbolically
    keras.layers.Lambda(lambda x: x + 1)(keras.Input((1,)))


def test_every_preset_is_listed_and_makes_a_model():
    presets = list_presets()
    assert {"transformer_base", "transformer_big", "transformer_tiny"} <= set(presets)
    for name, preset in presets.items():
        assert preset.name == name and preset.description.endswith(".") and preset.paper
        assert "\n" not in preset.description
        assert preset.parameter_count() > 0
        assert TransformerConfig.from_json(preset.config.to_json()) == preset.config
    presets.clear()
    assert list_presets()  # what is returned is a copy


def test_overrides():
    config = preset_config("transformer_tiny", vocabulary_size=500, dropout=0.0)
    assert (config.vocabulary_size, config.dropout, config.hidden_dim) == (500, 0.0, 128)
    assert preset_config("transformer_tiny").vocabulary_size == 10000
    with pytest.raises(ValueError, match="no 'vocab_size' to override. Did you mean 'vocabulary_size'.*hidden_dim"):
        preset_config("transformer_tiny", vocab_size=500)
    with pytest.raises(ValueError, match="vocabulary_size must be above 0, got -1"):
        preset_config("transformer_tiny", vocabulary_size=-1)


def test_unknown_preset():
    with pytest.raises(ValueError, match="no preset 'transformer_tyni'.*mean 'transformer_tiny'.*transformer_big"):
        get_preset("transformer_tyni")


def test_register(monkeypatch):
    from zoo.presets import registry

    monkeypatch.setattr(registry, "_PRESETS", dict(registry._PRESETS))
    config = TransformerConfig("encoder", 10, hidden_dim=8)
    register_preset("mine", config, "A small one.", "None 2024")
    assert zoo.preset_config("mine") == config
    with pytest.raises(ValueError, match="'mine' exists already"):
        register_preset("mine", config, "Another.", "None 2024")
