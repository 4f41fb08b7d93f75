"""Named architectures: their published sizes, counted without allocating a single weight."""

import dataclasses
import json
import re
from pathlib import Path

import keras
import pytest

import zoo
from zoo import (
    AttentionConfig,
    FeedForwardConfig,
    NormConfig,
    PositionConfig,
    TransformerConfig,
    list_presets,
    preset_config,
    register_preset,
)
from zoo.config import config_from_dict
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


# what the papers and the Transformers library say; the others are in parameter_counts.json
PUBLISHED = {
    "bert_base_uncased": 109_482_240,
    "gpt2_small": 124_439_808,
    "t5_small": 60_506_624,
    "bart_base": 139_420_416,
    "llama_3_8b": 8_030_261_248,
}
REFERENCE = Path(__file__).parents[2] / "reference"


@pytest.fixture(scope="module")
def reference_counts():
    return json.loads((REFERENCE / "parameter_counts.json").read_text())


@pytest.mark.parametrize("name", list_presets())
def test_parameters_are_those_that_are_said(name, reference_counts):
    preset = get_preset(name)
    if preset.parameters is not None:
        assert preset.parameter_count() == preset.parameters
    assert reference_counts.get(name, preset.parameters) == preset.parameters
    assert PUBLISHED.get(name, preset.parameters) == preset.parameters


def test_every_published_preset_is_compared(reference_counts):
    compared = set(reference_counts)
    published = {
        name
        for name, preset in list_presets().items()
        if isinstance(preset.config, TransformerConfig) and not name.endswith(("_tiny", "_shakespeare"))
    }
    assert published - {"transformer_base", "transformer_big"} == compared and set(PUBLISHED) < compared


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
        assert config_from_dict(json.loads(preset.config.to_json())) == preset.config
    presets.clear()
    assert list_presets()  # what is returned is a copy


def test_the_page_lists_published_weights():
    page = (REFERENCE.parents[1] / "docs" / "guides" / "checkpoints.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `([\w.]+)` \| `(hf://.+)` \|$", page, re.MULTILINE)
    assert dict(listed) == {name: preset.weights for name, preset in list_presets().items() if preset.weights}


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


def test_choices_of_parts_are_replaced_one_by_one():
    config = preset_config("transformer_tiny", norm={"kind": "rms"}, attention={"window": [3, 0]}, hidden_dim=64)
    original = get_preset("transformer_tiny").config
    assert config.norm == dataclasses.replace(original.norm, kind="rms")
    assert config.attention == dataclasses.replace(original.attention, window=(3, 0))
    assert (config.hidden_dim, config.feed_forward) == (64, original.feed_forward)
    with pytest.raises(ValueError, match="no 'norm.kinds' to override. Did you mean 'norm.kind'"):
        preset_config("transformer_tiny", norm={"kinds": "rms"})


@pytest.mark.parametrize("kind", ["rotary", "alibi", "learned", "sinusoidal", "relative_bias", "none"])
def test_another_kind_of_positions_has_no_choice_of_the_first_one(kind):
    # rotary, of a base of its own in each kind of layer
    original = get_preset("modern_encoder_tiny").config.position
    assert (original.base, original.local_base) == (160000.0, 10000.0)
    position = preset_config("modern_encoder_tiny", position={"kind": kind}).position
    assert position.kind == kind and (kind != "rotary" or position == original)
    # what both kinds have stays, and what is given is an error where the kind does not have it
    assert preset_config("modern_encoder_tiny", position={"kind": "sinusoidal"}).position.base == 160000.0
    with pytest.raises(ValueError, match="position.base must be 10000.0 with position.kind='alibi'.*got 500.0"):
        preset_config("modern_encoder_tiny", position={"kind": "alibi", "base": 500.0})
    with pytest.raises(ValueError, match="position.kind must be one of .*got 'alibbi'"):
        preset_config("modern_encoder_tiny", position={"kind": "alibbi"})


def test_another_norm_has_no_choice_of_the_first_one():
    original = get_preset("modern_encoder_tiny").config.norm
    assert not original.use_bias and original.embedding
    assert preset_config("modern_encoder_tiny", norm={"kind": "layer"}).norm == original
    norm = preset_config("modern_encoder_tiny", norm={"kind": "rms"}).norm
    assert norm == dataclasses.replace(original, kind="rms", use_bias=True)
    gemma = preset_config("gemma_2_2b", norm={"kind": "dynamic_tanh"}).norm
    assert get_preset("gemma_2_2b").config.norm.unit_offset and not gemma.unit_offset
    config = dataclasses.replace(original, kind="dynamic_tanh", use_bias=True, options={"alpha": 0.8})
    assert config.of_kind("rms").options is None and config.of_kind("dynamic_tanh").options == {"alpha": 0.8}


def test_table():
    presets = list_presets()
    header, *lines = str(presets).splitlines()
    assert header.split() == "name kind layers x width heads parameters positions norm source".split()
    assert len(lines) == len(presets)
    rows = {line.split()[0]: line for line in lines}
    assert set(rows) == set(presets)
    line = " ".join(rows["llama_3.2_1b"].split())
    assert line.startswith(
        "llama_3.2_1b decoder 16 x 2048 32/8 1,235,814,400 rotary (scaled) pre rms Grattafiori et al."
    )
    line = " ".join(rows["bert_base_cased"].split())
    assert line.startswith("bert_base_cased encoder 12 x 768 12 108,310,272 learned post layer Devlin et al. 2019")


def test_table_of_names_with_any_of_some_words():
    lines = str(zoo.list_presets("t5", "bart")).splitlines()
    assert [line.split()[0] for line in lines] == ["name", "t5_small", "flan_t5_small", "bart_base", "t5_base"]
    assert not zoo.list_presets("nothing_of_that_name")
