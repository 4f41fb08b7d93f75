"""What a task's `generation` says is what it does where an argument is not given, and is saved with it."""

import keras
import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytest.importorskip("tensorflow_text")

from zoo import (  # noqa: E402
    AttentionConfig,
    Backbone,
    CausalLM,
    EmbeddingConfig,
    FeedForwardConfig,
    NormConfig,
    PositionConfig,
    Seq2SeqLM,
    TransformerConfig,
)

SAMPLE = {"name": "sample", "temperature": 1.2, "top_p": 0.9}
PROCESSORS = [{"name": "no_repeat_ngram", "size": 2}]
GENERATION = {"sampler": SAMPLE, "processors": PROCESSORS, "max_new_tokens": 6, "stop": ["beta", 5], "end_ids": [2, 7]}
EXPLICIT = {key: GENERATION[key] for key in ("sampler", "processors", "max_new_tokens", "stop")}
TEXTS = ["alpha beta", "kappa", "gamma iota omega theta alpha"]


def make(kind, tokenizer, generation):
    keras.utils.set_random_seed(1)
    config = TransformerConfig(
        kind,
        vocabulary_size=tokenizer.vocabulary_size,
        hidden_dim=16,
        max_length=100,
        num_layers=1,
        attention=AttentionConfig(num_heads=2),
        feed_forward=FeedForwardConfig(32),
        norm=NormConfig(placement="pre"),
        position=PositionConfig("rotary"),
        embedding=EmbeddingConfig(tie_output=False),
        dropout=0.0,
        initializer_range=0.7,
    )
    task = CausalLM if kind == "decoder" else Seq2SeqLM
    return task(Backbone.from_config(config), tokenizer, generation=generation)


def tokens(model, **options):
    source = {"source": [[5, 9, 12]], "prompts": [[1]]} if isinstance(model, Seq2SeqLM) else {"prompts": [[1, 5]]}
    result = model.generate_tokens(**source, jit_compile=False, **options)
    return result["token_ids"][0, : result["lengths"][0]].tolist()


@pytest.mark.parametrize("kind", ["decoder", "encoder_decoder"])
def test_defaults_are_what_is_done(tiny_tokenizer, kind):
    plain, model = make(kind, tiny_tokenizer, None), make(kind, tiny_tokenizer, {**GENERATION, "end_ids": [2]})
    expected = plain.generate(TEXTS, seed=3, jit_compile=False, **EXPLICIT)
    assert model.generate(TEXTS, seed=3, jit_compile=False) == expected
    pieces = zip(*model.stream(TEXTS, seed=3, jit_compile=False), strict=True)
    assert ["".join(row) for row in pieces] == expected
    # what is given takes their place, one by one
    greedy = {"sampler": "greedy", "processors": [], "stop": []}
    assert model.generate(TEXTS, max_length=9, jit_compile=False, **greedy) == plain.generate(
        TEXTS, max_length=9, jit_compile=False
    )
    assert plain.generation == {} and plain.generation_defaults.sampler is None


@pytest.mark.parametrize("kind", ["decoder", pytest.param("encoder_decoder", marks=pytest.mark.slow)])
def test_every_end_id_ends_a_text(tiny_tokenizer, kind):
    free = make(kind, tiny_tokenizer, {"end_ids": []})
    whole = tokens(free, max_new_tokens=12)
    assert len(whole) == 12
    other = next(token for token in range(tiny_tokenizer.vocabulary_size) if token not in whole)
    for end in {whole[3], whole[5]}:
        place = whole.index(end)
        model = make(kind, tiny_tokenizer, {"end_ids": [other, end], "max_new_tokens": 12})
        assert tokens(model) == whole[: place + 1]
        assert tokens(model, end_ids=()) == whole


def test_a_length_that_is_asked_for_does_not_depend_on_the_source(tiny_tokenizer):
    model = make("encoder_decoder", tiny_tokenizer, {"end_ids": []})
    assert len(tokens(model)) == 53  # 50 more than the source
    assert len(tokens(model, max_new_tokens=70)) == len(tokens(model, max_length=70)) == 70
    assert len(tokens(make("encoder_decoder", tiny_tokenizer, {"end_ids": [], "max_length": 1000}))) == 100


@pytest.mark.parametrize("kind", ["decoder", "encoder_decoder"])
def test_saved(tiny_tokenizer, tmp_path, kind):
    model = make(kind, tiny_tokenizer, GENERATION)
    assert model.generation == GENERATION and model.options()["generation"] == GENERATION
    model.save_to_preset(tmp_path / "preset")
    model.save(tmp_path / "model.keras")
    for again in (type(model).from_preset(tmp_path / "preset"), keras.saving.load_model(tmp_path / "model.keras")):
        assert again.generation == GENERATION
    assert type(model).from_preset(tmp_path / "preset", generation={}).generation == {}


def test_exported(tiny_tokenizer, tmp_path):
    model = make("decoder", tiny_tokenizer, GENERATION)
    model.export(tmp_path / "export", jit_compile=False)
    served = tf.saved_model.load(str(tmp_path / "export"))
    texts = [text.decode() for text in served.serve(tf.constant(TEXTS)).numpy()]
    assert texts == model.generate(TEXTS, jit_compile=False)


@pytest.mark.parametrize(
    "generation, message",
    [
        ({"temperature": 0.5}, r"keys of generation must be among \['sampler'.*got \['temperature'\]"),
        ({"sampler": "beem"}, "generation: The name of a sampler must be one of"),
        ({"sampler": {"name": "sample", "top_p": 2}}, "generation: top_p must be a number"),
        ({"processors": [{"name": "top_k"}]}, "generation: The arguments of processor 'top_k'"),
        ({"processors": "top_k"}, "generation: processors must be a list"),
        ({"end_ids": [2, 10**6]}, "generation: end_ids must be ids below the vocabulary size"),
        ({"end_ids": [-1]}, "generation: end_ids must be made of integers of at least 0"),
        ({"max_new_tokens": 0}, "generation: max_new_tokens must be an integer"),
        ({"stop": [""]}, r"generation: stop\[0\] must not be empty"),
        ({"stop": [np.int64(3)]}, "generation must hold JSON values"),
        (["greedy"], "generation must be a dictionary"),
    ],
)
def test_refused(tiny_tokenizer, generation, message):
    with pytest.raises(ValueError, match=message):
        make("decoder", tiny_tokenizer, generation)


def test_beams_are_not_streamed(tiny_tokenizer):
    model = make("decoder", tiny_tokenizer, {"sampler": {"name": "beam", "num_beams": 2}, "max_new_tokens": 3})
    with pytest.raises(ValueError, match='sampler must write texts from left to right.*or pass sampler="greedy"'):
        model.stream("kappa")
    assert "".join(model.stream("kappa", sampler="greedy", jit_compile=False)).startswith("kappa")
