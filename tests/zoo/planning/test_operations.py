"""Operations of an update against formulas of others, and numbers of weights against published ones."""

import dataclasses

import pytest

import zoo
from zoo.planning import Job, model_shape, operations_of, without_values

TRILLION = 1e12


def shape_of(name, **options):
    return model_shape(without_values(zoo.preset_config(name, **options)))


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("llama_3_8b", 8_030_261_248),  # meta-llama/Meta-Llama-3-8B, safetensors
        ("gpt2_small", 124_439_808),  # openai-community/gpt2, of which 124M is said
        ("gpt2_xl", 1_557_611_200),
    ],
)
def test_parameters_are_those_published(name, parameters):
    assert shape_of(name).parameters == parameters


def test_parameters_of_the_first_transformer():
    """Vaswani et al. 2017, table 3: 65 million for the base model, with a vocabulary of about 37,000."""
    shape = shape_of("transformer_base", vocabulary_size=37_000)
    width, inner = 512, 2048
    network = 2 * width * inner + inner + width
    attention, norm = 4 * (width * width + width), 2 * width
    layers = 6 * (attention + network + 2 * norm) + 6 * (2 * attention + network + 3 * norm)
    assert shape.parameters == 37_000 * width + layers
    assert 62e6 < shape.parameters < 66e6


def test_devices_hold_a_part_of_the_weights():
    backbone = without_values(zoo.preset_config("llama_3_8b"))
    whole, part = model_shape(backbone), model_shape(backbone, 8)
    norms = 65 * 4096
    assert part.parameters_on_all == norms
    assert part.parameters_of_device == (whole.parameters - norms) / 8 + norms
    assert part.vocabulary_part == 128256 // 8


def by_hand(config, rows, length):
    """Kaplan et al. 2020, table 1, with scores, for a decoder or an encoder-decoder whose layers are all alike."""
    width, inner = config.hidden_dim, config.feed_forward.intermediate_dim
    projections, network, scores = 8 * width * width, 4 * width * inner, 4 * length * width
    layer = projections + network + scores
    if config.architecture == "encoder_decoder":
        layer += layer + projections + scores
    return 3 * rows * length * (config.num_layers * layer + 2 * width * config.vocabulary_size)


@pytest.mark.parametrize("architecture", ["decoder", "encoder_decoder"])
def test_operations_of_layers_that_are_alike(architecture):
    config = zoo.TransformerConfig(architecture, 8192, 384, 6, attention=zoo.AttentionConfig(6))
    job = Job(config, 8, 256)
    assert operations_of(model_shape(without_values(config)), job).model == by_hand(config, 8, 256)


def test_operations_are_six_for_each_weight_and_token():
    """Kaplan et al. 2020, section 2.1: 6 N D; for so large a model, weights without embeddings, and short rows."""
    shape = shape_of("llama_3_8b")
    job = Job(shape.config, 4, 256)
    weights = shape.parameters - 128256 * 4096 - 65 * 4096
    found = operations_of(shape, job)
    assert found.model == 6 * weights * 4 * 256 + 3 * 4 * 256 * 32 * 4 * 256 * 4096
    assert found.model == found.computed == found.of_device


def test_remat_computes_the_layers_again():
    """A forward pass more, but for the logits (Korthikanti et al. 2022, section 5 and appendix A) and the last product
    of each layer, which nothing reads."""
    shape = shape_of("gpt2_small")
    job = Job(shape.config, 8, 1024)
    plain, again = operations_of(shape, job), operations_of(shape, dataclasses.replace(job, remat=True))
    layers = plain.model - 3 * 8 * 1024 * 2 * (50257 + 12 * 3072) * 768
    assert again.model == plain.model
    assert again.computed == pytest.approx(plain.model + layers / 3)


def test_devices_share_the_operations():
    backbone = without_values(zoo.preset_config("llama_3_8b"))
    one = operations_of(model_shape(backbone), Job(backbone.config, 64, 512))
    for data, model in ((4, 1), (1, 8), (2, 4)):
        job = Job(backbone.config, 64, 512, data=data, model=model)
        assert operations_of(model_shape(backbone, model), job).of_device == pytest.approx(one.model / data / model)
    # with 16 devices each computes all of the 8 heads of keys and values
    shared = operations_of(model_shape(backbone, 16), Job(backbone.config, 64, 512, model=16))
    twice = 3 * 64 * 512 * 32 * 2 * 2 * 4096 * 1024
    assert shared.of_device == pytest.approx((one.model - twice) / 16 + twice)
    # 10 rows on 4 devices are 12
    uneven = operations_of(model_shape(backbone), Job(backbone.config, 10, 512, data=4))
    assert uneven.computed == pytest.approx(uneven.model * 1.2)


def test_experts_count_where_tokens_are_sent():
    options = {"num_layers": 2, "hidden_dim": 64, "max_length": 32}
    config = zoo.TransformerConfig(
        "decoder",
        100,
        **options,
        attention=zoo.AttentionConfig(4),
        feed_forward=zoo.FeedForwardConfig(48, num_experts=8, experts_per_token=2, gated=True),
    )
    shape = model_shape(without_values(config))
    of_token = 2 * (4 * 64 * 64 + 2 * 3 * 64 * 48 + 64 * 8 + 2 * 32 * 64) + 100 * 64
    assert operations_of(shape, Job(config, 3, 32)).model == 3 * 3 * 32 * 2 * of_token


def test_layers_that_share_weights_and_windows():
    config = zoo.TransformerConfig(
        "decoder",
        100,
        hidden_dim=64,
        num_layers=6,
        layer_groups=1,
        max_length=256,
        attention=zoo.AttentionConfig(4, window=(15, 0)),
        feed_forward=zoo.FeedForwardConfig(128),
    )
    scores_left_out = 3 * 2 * 256 * 6 * 4 * (256 - 16) * 64
    found = operations_of(model_shape(without_values(config)), Job(config, 2, 256)).model
    assert found == by_hand(config, 2, 256) - scores_left_out


@pytest.mark.parametrize("window", [None, (63, 0)])
def test_fused_kernels_compute_visible_scores_alone(window):
    """The pairs that a causal mask and a window leave, counted one by one; three passes of an update."""
    config, length = zoo.preset_config("gpt2_small"), 512
    config = dataclasses.replace(config, attention=dataclasses.replace(config.attention, window=window))
    shape = model_shape(without_values(config))
    whole, fused = (operations_of(shape, Job(config, 4, length, attention=kind)) for kind in ("scores", "flash"))
    visible = hidden = 0
    for layer in shape.layers:
        width = layer.window or length
        pairs = sum(min(place + 1, width) for place in range(length))
        product = 2 * layer.heads * (layer.key_dim + layer.value_dim)
        visible += 4 * pairs * product
        hidden += 4 * (min(width, length) * length - pairs) * product
    assert whole.model - fused.model == pytest.approx(3 * hidden)
    # the backward pass makes the scores again: 3.5 passes of two products
    assert whole.computed - fused.computed == pytest.approx(3 * hidden - 0.5 * visible)


def test_encoders_have_no_causal_mask():
    config = zoo.preset_config("bert_base_uncased")
    shape = model_shape(without_values(config))
    whole, fused = (operations_of(shape, Job(config, 4, 512, attention=kind)).model for kind in ("scores", "flash"))
    assert whole == fused
