"""The same tokens on every backend, without a tokenizer: run with KERAS_BACKEND=jax too."""

import keras
import numpy as np
import pytest
from keras import ops

from zoo import (
    AttentionConfig,
    Backbone,
    CausalLM,
    FeedForwardConfig,
    NormConfig,
    PositionConfig,
    Seq2SeqLM,
    TransformerConfig,
)
from zoo.generation import Beam, Contrastive, MinimumLength, NoRepeatNGram, RepetitionPenalty, Sample
from zoo.generation.request import GenerationOptions

pytestmark = pytest.mark.backends

PROMPTS = [[5, 6, 7], [8], [9, 2, 9, 2, 11, 3]]


def make_model(seed, layers):
    config = TransformerConfig(
        "decoder",
        vocabulary_size=19,
        hidden_dim=16,
        num_layers=layers,
        max_length=48,
        attention=AttentionConfig(4, num_key_value_heads=2),
        feed_forward=FeedForwardConfig(24, "silu", gated=True),
        norm=NormConfig(kind="rms", placement="pre"),
        position=PositionConfig("rotary"),
        dropout=0.0,
    )
    model = CausalLM(Backbone.from_config(config))
    generator = np.random.default_rng(seed)
    for weight in model.backbone.weights:
        if len(weight.shape) > 1:
            weight.assign(generator.normal(0, 0.6, weight.shape))
    return model


@pytest.fixture(scope="module")
def model():
    return make_model(0, 2)


SETTINGS = {
    "greedy": {"processors": [RepetitionPenalty(1.5), NoRepeatNGram(2)], "stop_sequences": [[4], [2, 7]]},
    "sample": {"sampler": Sample(1.1, top_k=9, top_p=0.9), "processors": [MinimumLength(3)], "seed": 3},
    "beam": {"sampler": Beam(3)},
    "contrastive": {"sampler": Contrastive(3, 0.5)},
    "speculative": {"sampler": Sample(1.1, top_p=0.95), "seed": 3},
}
# Every backend must choose the same tokens.
GOLDEN = {
    "greedy": [[8, 9, 17, 4, 0, 0, 0, 0], [13, 13, 17, 6, 16, 13, 4, 0], [7, 13, 8, 8, 5, 15, 10, 16]],
    "sample": [[5, 13, 11, 11, 11, 11, 13, 8], [6, 6, 16, 12, 6, 0, 6, 15], [7, 10, 4, 4, 5, 2, 15, 10]],
    "beam": [[5, 11, 13, 13, 16, 5, 11, 18], [13, 13, 17, 13, 10, 13, 13, 13], [7, 13, 7, 2, 2, 2, 3, 7]],
    "contrastive": [[11, 17, 15, 2, 10, 9, 5, 7], [13, 15, 4, 15, 3, 18, 18, 18], [15, 13, 7, 4, 13, 15, 4, 13]],
    "speculative": [[5, 3, 12, 3, 13, 4, 13, 13], [1, 0, 0, 0, 0, 0, 0, 0], [3, 7, 13, 7, 0, 3, 11, 4]],
}


def generate(model, name, jit_compile):
    draft = {"draft": make_model(1, 1), "lookahead": 3} if name == "speculative" else {}
    return model.generate_tokens(
        PROMPTS, max_new_tokens=8, end_ids=1, jit_compile=jit_compile, **SETTINGS[name], **draft
    )


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name == "speculative")) for name in SETTINGS]
)
def test_golden(model, name):
    compile_it = name in ("greedy", "speculative")
    assert generate(model, name, compile_it)["token_ids"].tolist() == GOLDEN[name]


def most_probable(model, prompt, written):
    """The most probable token at each place of what was written, without cache, batch and loop."""
    text = np.array([[*prompt, *written]])
    logits = ops.convert_to_numpy(model({"token_ids": text, "padding_mask": np.ones(text.shape, "bool")}))
    return logits[0, len(prompt) - 1 : -1].argmax(axis=-1).tolist()


def test_greedy_is_the_most_probable(model):
    result = model.generate_tokens(PROMPTS, max_new_tokens=4, end_ids=(), jit_compile=False)["token_ids"]
    for prompt, written in zip(PROMPTS, result.tolist(), strict=True):
        assert written == most_probable(model, prompt, written) and len(written) == 4


def make_translator(seed):
    config = TransformerConfig(
        "encoder_decoder",
        vocabulary_size=19,
        hidden_dim=8,
        num_layers=1,
        max_length=16,
        attention=AttentionConfig(2),
        feed_forward=FeedForwardConfig(8),
        position=PositionConfig("learned"),
        dropout=0.0,
        initializer_range=0.7,
    )
    keras.utils.set_random_seed(seed)
    return Seq2SeqLM(Backbone.from_config(config))


@pytest.fixture(scope="module")
def translator():
    return make_translator(0)


@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_proposals_behind_the_last_position(translator, jit_compile):
    """A table of positions has no row for them; those before are what they are without a draft."""
    options = {"source": [[5, 6, 7]], "max_new_tokens": 16, "end_ids": (), "jit_compile": jit_compile}
    expected = translator.generate_tokens([[1]], **options)
    result = translator.generate_tokens([[1]], **options, draft=make_translator(1), lookahead=4)
    assert expected["lengths"].tolist() == [16 - 1 + translator.preprocessor.start_tokens]
    np.testing.assert_array_equal(result["token_ids"], expected["token_ids"])
    np.testing.assert_allclose(result["log_probabilities"], expected["log_probabilities"], atol=1e-4)


def test_refusals_of_an_encoder_decoder(model, translator):
    for prompts, source in (([[1], [1]], [[3, 4]]), ([[1]], [[3], [4]])):
        message = rf"source must have as many rows as prompts \({len(prompts)}\), got {len(source)}"
        with pytest.raises(ValueError, match=message):
            translator.generate_tokens(prompts, source=source)
    with pytest.raises(ValueError, match="source must be a list with an entry per row, got 3"):
        translator.generate_tokens(source=3)
    with pytest.raises(ValueError, match=r"source\[1\] must be a list of token ids, got 4"):
        translator.generate_tokens([[1], [1]], source=[[3], 4])
    with pytest.raises(ValueError, match="draft must be a Seq2SeqLM as the model is, got a CausalLM"):
        translator.generate_tokens([[1]], source=[[3, 4]], draft=model)
    with pytest.raises(ValueError, match="draft must be a CausalLM as the model is, got a Seq2SeqLM"):
        model.generate_tokens([[1]], draft=translator)


def test_unknown_arguments_are_those_of_the_method(model):
    for write in (model.stream, model.generate_tokens, model.generate):
        with pytest.raises(TypeError, match=rf"{write.__name__}\(\) got an unexpected keyword argument 'num_result"):
            write([[1]], num_result=2)
    with pytest.raises(TypeError, match=r"stream\(\) got an unexpected keyword argument 'num_results'"):
        model.stream(["alpha"], num_results=2)


def test_refusals(model):
    for streams in ([7], [7, 8, 9]):
        with pytest.raises(ValueError, match=rf"streams must have as many rows as prompts \(2\), got {len(streams)}"):
            model.generate_tokens([[5], [6]], sampler="sample", streams=streams)
    for options in ({"streams": 7}, {"prompts": 5}, {"streams": iter([1])}):
        (name,) = options
        with pytest.raises(ValueError, match=f"{name} must be a list with an entry per row, got"):
            model.generate_tokens(**{"prompts": [[5]], "sampler": "sample", **options})
    with pytest.raises(ValueError, match=r"prompts\[1\] must be a list of token ids, got 6"):
        model.generate_tokens([[5], 6])
    with pytest.raises(ValueError, match=r"prompts\[0\]\[1\] must be an id from 0 to 18, got 2.7"):
        model.generate_tokens([[5, 2.7]])
    with pytest.raises(ValueError, match=r"prompts\[0\]\[0\] must be an id from 0 to 18, got 'a'"):
        model.generate_tokens([["a"]])
    with pytest.raises(ValueError, match=r"prompts\[1\] must be shorter than 48 tokens, got 48"):
        model.generate_tokens([[1], [2] * 48])
    with pytest.raises(ValueError, match="max_new_tokens must be an integer of at least 1, got 0"):
        model.generate_tokens([[1]], max_new_tokens=0)
    with pytest.raises(ValueError, match=r"source must be None with a decoder, got \[\[2\]\]"):
        model.generate_tokens([[1]], source=[[2]])
    with pytest.raises(ValueError, match=r"prompts\[1\]\[2\] must be an id from 0 to \d+, got -1"):
        model.generate_tokens([[1], [5, 7, -1]])
    with pytest.raises(ValueError, match=r"prompts\[0\]\[0\] must be an id from 0 to \d+, got 999"):
        model.generate_tokens([[999]])
    with pytest.raises(ValueError, match="prompts must hold token ids for each row, got None"):
        model.generate_tokens()


def test_long_texts_together_and_alone(model):
    """Rows together have a copy of the output's matrix, a row alone and a session of few steps have none."""
    options = {"max_new_tokens": 24, "end_ids": ()}
    together = model.generate_tokens(PROMPTS, **options)["token_ids"].tolist()
    for prompt, written in zip(PROMPTS, together, strict=True):
        assert written == most_probable(model, prompt, written) and len(written) == 24
        assert model.generate_tokens([prompt], **options)["token_ids"][0].tolist() == written


@pytest.mark.parametrize(("backend", "expected"), [("tensorflow", True), ("jax", True), ("torch", False)])
def test_xla_where_the_backend_has_it(monkeypatch, backend, expected):
    monkeypatch.setattr(keras.backend, "backend", lambda: backend)
    assert GenerationOptions(1).jit_compile is expected
    # what is asked for is not changed: on PyTorch it is an error where the program is made
    assert GenerationOptions(1, jit_compile=True).jit_compile is True
    assert GenerationOptions(1, jit_compile=False).jit_compile is False
