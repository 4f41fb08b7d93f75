"""What all models that write texts share: several results, scores, truncation, streams of many texts."""

import dataclasses

import keras
import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from zoo import (  # noqa: E402
    AttentionConfig,
    Backbone,
    Beam,
    CausalLM,
    EmbeddingConfig,
    FeedForwardConfig,
    Greedy,
    NormConfig,
    PositionConfig,
    RecurrentConfig,
    Sample,
    Seq2SeqLM,
    TransformerConfig,
)
from zoo.tokenizers import SentencePieceTokenizer  # noqa: E402

TEXTS = ["alpha beta", "kappa", "gamma iota omega theta alpha"]
OPTIONS = {"max_new_tokens": 8, "jit_compile": False}


def make(kind, tokenizer):
    keras.utils.set_random_seed(1)
    sizes = {"vocabulary_size": tokenizer.vocabulary_size, "hidden_dim": 16, "max_length": 32}
    if kind == "recurrent":
        config = RecurrentConfig(**sizes, embedding_dim=16, attention="previous_state")
        model = Seq2SeqLM(Backbone.from_config(config), tokenizer)
        for weight in model.backbone.weights:
            weight.assign(weight * 3)
        return model
    config = TransformerConfig(
        kind,
        **sizes,
        num_layers=1,
        attention=AttentionConfig(num_heads=2),
        feed_forward=FeedForwardConfig(32),
        norm=NormConfig(placement="pre"),
        position=PositionConfig("rotary"),
        embedding=EmbeddingConfig(tie_output=False),
        dropout=0.0,
        initializer_range=0.7,
    )
    return (CausalLM if kind == "decoder" else Seq2SeqLM)(Backbone.from_config(config), tokenizer)


@pytest.fixture(scope="module", params=["decoder", "encoder_decoder", "recurrent"])
def model(request, tiny_tokenizer):
    return make(request.param, tiny_tokenizer)


@pytest.mark.sampled(2)
def test_several_draws(model):
    options = {**OPTIONS, "sampler": Sample(1.2), "seed": 2**32 - 1}
    one = model.generate(TEXTS, **options)
    texts, scores = model.generate(TEXTS, num_results=3, return_scores=True, **options)
    assert [row[0] for row in texts] == one and scores.shape == (3, 3)
    assert len({text for row in texts for text in row}) > 6
    # what the others are, and how many, changes nothing
    assert model.generate(TEXTS, num_results=2, batch_size=2, **options) == [row[:2] for row in texts]
    text, score = model.generate(TEXTS[0], return_scores=True, **options)
    assert text == one[0] and score == pytest.approx(scores[0, 0], rel=1e-4)
    with pytest.raises(ValueError, match="num_results must be 1 with Greedy.*got 2"):
        model.generate(TEXTS, num_results=2, **OPTIONS)
    with pytest.raises(ValueError, match="num_results must be an integer from 1 to 127, got 0"):
        model.generate(TEXTS, num_results=0, **options)


@pytest.mark.sampled(1)
def test_results_of_beams(model):
    best = model.generate(TEXTS, sampler="beam", **OPTIONS)
    texts, scores = model.generate(TEXTS, sampler=Beam(num_results=4), return_scores=True, **OPTIONS)
    assert [row[0] for row in texts] == best and scores.shape == (3, 4)
    assert (np.diff(scores, axis=1) <= 0).all()
    assert model.generate(TEXTS, sampler="beam", num_results=2, **OPTIONS) == [row[:2] for row in texts]
    assert model.generate(TEXTS[0], sampler=Beam(num_results=4), **OPTIONS) == texts[0]
    assert model.generate([], sampler=Beam(num_results=4), **OPTIONS) == []


@pytest.mark.sampled(1)
@pytest.mark.parametrize("stop", [None, ["eta", [9]]])
def test_stream_of_many_texts(model, stop):
    options = {**OPTIONS, "sampler": Sample(1.2), "stop": stop, "seed": 5}
    pieces = list(model.stream(TEXTS, chunk=3, **options))
    assert all(len(piece) == 3 for piece in pieces) and len(pieces) > 1
    assert ["".join(column) for column in zip(*pieces, strict=True)] == model.generate(TEXTS, **options)
    assert "".join(model.stream(TEXTS[1], **options)) == model.generate(TEXTS[1], **options)
    assert list(model.stream([], **options)) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "nonsense"}, "engine must be None, 'openvino'.* got 'nonsense'"),
        ({"draft": "nonsense"}, "draft must be a task that writes texts or 'prompt_lookup', got 'nonsense'"),
        ({"grammar": "nonsense"}, "grammar must be one of zoo.generation.* got 'nonsense'"),
        ({"seed": -1}, "seed must be an integer from 0"),
    ],
)
@pytest.mark.parametrize("way", ["generate", "stream"])
def test_arguments_are_checked_where_there_is_no_text(tiny_llama, way, options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        getattr(tiny_llama, way)([], **options)


def test_stop_strings_end_the_work(model):
    """A stop string in the first tokens: the rest is not generated, whatever the model."""
    text = model.generate(TEXTS[0], strip_prompt=True, jit_compile=False)
    stop = text[2:4]
    expected = text.split(stop)[0]
    assert model.generate(TEXTS[0], strip_prompt=True, stop=stop, jit_compile=False) == expected


@pytest.mark.sampled(1)
@pytest.mark.parametrize("sampler", [Greedy(), Beam(4, num_results=4, length_penalty=1.0)], ids=["greedy", "beam"])
def test_scores_are_those_of_the_texts_up_to_a_stop(tiny_tokenizer, sampler):
    """By the softmax of the model, fed with each text as a whole: what is behind a stop does not count."""
    model = make("decoder", tiny_tokenizer)
    options = {"max_new_tokens": 20, "sampler": sampler, "jit_compile": False}
    prompt = model.preprocessor.prompts(tf.constant(TEXTS[:1]), None, False, 32, 20)[0].to_list()
    found = model.generate_tokens(prompt, **options)
    hypotheses = found["beams"]["token_ids"][0] if "beams" in found else found["token_ids"]
    counts = np.ravel(found["beams"]["lengths"][0] if "beams" in found else found["lengths"])
    stop = model.generate(TEXTS[0], strip_prompt=True, **{**options, "sampler": "greedy"}).strip()[3:5]
    expected = []
    for ids, count in zip(hypotheses, counts, strict=True):
        whole = [*prompt[0], *ids[:count].tolist()]
        logits = np.asarray(model({"token_ids": np.array([whole]), "padding_mask": np.ones((1, len(whole)), "bool")}))
        log_probabilities = logits[0] - np.log(np.exp(logits[0].astype("float64")).sum(-1, keepdims=True))
        texts = [
            tiny_tokenizer.detokenize([whole[: len(prompt[0]) + length]]).numpy()[0].decode()[len(TEXTS[0]) :]
            for length in range(1, count + 1)
        ]
        length = next((place + 1 for place, text in enumerate(texts) if stop in text), count)
        first = len(prompt[0])
        total = log_probabilities[range(first - 1, first - 1 + length), whole[first : first + length]].sum()
        expected.append((texts[-1].split(stop)[0], total / ((5 + length) / 6 if "beams" in found else 1)))
    expected.sort(key=lambda pair: -pair[1])
    texts, scores = model.generate(TEXTS[:1], stop=stop, return_scores=True, strip_prompt=True, **options)
    texts = texts[0] if "beams" in found else texts
    np.testing.assert_allclose(np.ravel(scores), [score for _, score in expected], rtol=1e-4)
    assert texts == [text for text, _ in expected]
    endpoint = model.endpoints(stop=stop, return_scores=True, strip_prompt=True, **options)["serve"]
    outputs = endpoint.function(tf.constant(TEXTS[:1]))
    np.testing.assert_allclose(np.ravel(outputs["scores"]), np.ravel(scores), rtol=1e-4)
    assert [text.decode() for text in np.ravel(outputs["texts"])] == texts


def test_seeds_out_of_range(model):
    for seed in (-1, 2**32, 1.5):
        with pytest.raises(ValueError, match=f"seed must be an integer from 0 to 4294967295, got {seed}"):
            model.generate(TEXTS, seed=seed, sampler="sample", **OPTIONS)


@pytest.mark.slow
def test_beginnings(tiny_tokenizer):
    for kind in ("encoder_decoder", "recurrent"):
        model = make(kind, tiny_tokenizer)
        given = ["theta", "omega iota alpha", ""]
        together = model.generate(TEXTS, beginnings=given, **OPTIONS)
        assert all(text.startswith(one) for text, one in zip(together, given, strict=True))
        assert together[2] == model.generate(TEXTS[2], **OPTIONS)
        assert together[1] == model.generate(TEXTS[1], beginnings=given[1], **OPTIONS)
        # what the model would have written itself changes nothing
        _, cache = model.generate(TEXTS[0], return_cache=True, **{**OPTIONS, "max_new_tokens": 3})
        assert model.generate(TEXTS[0], beginnings=" theta", cache=cache, **OPTIONS).startswith(" theta")
    with pytest.raises(ValueError, match="beginnings must be None: texts are continued as they are, got 'a'"):
        make("decoder", tiny_tokenizer).generate(TEXTS, beginnings="a", **OPTIONS)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("change", ["fit", "set_weights", "one number"])
def test_caches_and_streams_follow_the_weights(tiny_tokenizer, change):
    """What was computed with other weights is computed again; a stream that is interrupted ends."""
    model = make("decoder", tiny_tokenizer)
    options = {**OPTIONS, "jit_compile": False}
    text, cache = model.generate(TEXTS[0], return_cache=True, **{**options, "max_new_tokens": 3})
    stream = model.stream(TEXTS[0], chunk=1, **options)
    next(stream), next(stream)
    if change == "fit":
        model.compile("sgd")
        model.optimizer.learning_rate = 0.1
        model.fit(TEXTS, epochs=1, verbose=0)
    elif change == "set_weights":
        model.set_weights([weight[::-1] * 3.0 for weight in model.get_weights()])
    else:
        table = model.backbone.token_embedding.table.embeddings
        values = np.array(table)
        values[7] += 1e-3
        table.assign(values)
    options |= {"return_cache": True, "return_scores": True}
    # of which nothing is known but its tokens
    afresh = dataclasses.replace(cache, checksums=np.zeros_like(cache.checksums))
    new, again = (model.generate(" theta", cache=given, **options)[:2] for given in (cache, afresh))
    assert new[0] == again[0]
    np.testing.assert_allclose(new[1], again[1], rtol=1e-4)
    if change != "one number":
        with pytest.raises(RuntimeError, match="weights"):
            list(stream)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", ["encoder_decoder", "recurrent"])
def test_a_cache_is_that_of_its_sources(tiny_tokenizer, kind):
    model = make(kind, tiny_tokenizer)
    options = {**OPTIONS, "max_new_tokens": 3}
    _, cache = model.generate(TEXTS[:2], return_cache=True, **options)
    model.generate(TEXTS[:2], cache=cache, **options)
    with pytest.raises(ValueError, match="cache must .*sources.* row 1"):
        model.generate([TEXTS[0], TEXTS[2]], cache=cache, **options)


@pytest.mark.sampled(2)
def test_what_generation_refuses(model, tiny_tokenizer):
    other = make("decoder" if model.preprocessor.takes_beginnings else "encoder_decoder", tiny_tokenizer)
    _, cache = other.generate(TEXTS[:1], return_cache=True, **{**OPTIONS, "max_new_tokens": 1})
    for error, message, options in (
        (ValueError, "cache must be what this model returned, got one of another model", {"cache": cache}),
        (TypeError, "draft must be a task that writes texts or .prompt_lookup., got .small.", {"draft": "small"}),
        (TypeError, "stop must be a string, or a list of .*, got 5", {"stop": 5}),
        (ValueError, r"stop\[0\] must be a string in UTF-8, got b'.xff'", {"stop": b"\xff"}),
        (ValueError, "seed must be an integer from 0 to 4294967295, got -1", {"seed": -1}),
        (ValueError, "seed must be an integer from 0 to 4294967295, got 9223372036854775807", {"seed": 2**63 - 1}),
        (ValueError, "max_new_tokens must be an integer of at least 1, got 0", {"max_new_tokens": 0}),
        (TypeError, "A processor must be hashable", {"processors": [Unhashable()]}),
    ):
        with pytest.raises(error, match=message):
            model.generate(TEXTS[:1], **{**OPTIONS, **options})
    if model.preprocessor.takes_beginnings:
        with pytest.raises(ValueError, match="source must be token ids for each row of an encoder-decoder, got None"):
            model.generate_tokens([[1]])
        with pytest.raises(ValueError, match=r"source\[1\] must have from 1 to 32 tokens, got 33"):
            model.generate_tokens(source=[[3], [3] * 33])


@pytest.mark.sampled(1)
@pytest.mark.parametrize("sampler", [Sample(1.2), Beam(3)], ids=lambda sampler: type(sampler).__name__)
def test_exports_of_several_results(model, sampler):
    """The functions of an export, run as they are."""
    options = {**OPTIONS, "sampler": sampler, "num_results": 3, "return_scores": True, "stop": "et"}
    expected, expected_scores = model.generate(TEXTS, **options, seed=5)
    endpoints = model.endpoints(**options, seed=5)
    shapes = {field.name: field.shape for field in endpoints["serve"].outputs}
    assert shapes == {"texts": ("batch", 3), "scores": ("batch", 3)}
    outputs = endpoints["serve"].function(tf.constant(TEXTS))
    assert [[text.decode() for text in row] for row in outputs["texts"].numpy()] == expected
    np.testing.assert_allclose(outputs["scores"], expected_scores, rtol=1e-4)


@pytest.mark.sampled(1)
def test_exports_with_prompt_lookup(model):
    """The functions of an export, run as they are."""
    if not model.backbone.can_rewind(40):
        with pytest.raises(
            ValueError, match=r"draft must be None with caches that cannot be rewound.*\(35 positions\)"
        ):
            model.endpoints(**OPTIONS, draft="prompt_lookup", lookahead=3)
        return
    endpoints = model.endpoints(**OPTIONS, draft="prompt_lookup", lookahead=3)
    texts = endpoints["serve"].function(tf.constant(TEXTS)).numpy()
    assert [text.decode() for text in texts] == model.generate(TEXTS, **OPTIONS)
    with pytest.raises(ValueError, match="draft must be None or 'prompt_lookup' here, got .*LM"):
        model.endpoints(**OPTIONS, draft=model)


class Unhashable:
    __hash__ = None

    def __call__(self, logits, context):
        return logits


@pytest.mark.parametrize(
    "options, kept",
    [({}, 24), ({"max_new_tokens": 12}, 20), ({"max_new_tokens": 1000}, 8), ({"max_length": 16}, 12)],
)
def test_truncated_prompts_keep_most_of_their_end(tiny_tokenizer, options, kept):
    """Without `max_new_tokens` a quarter of `max_length` is left free; a quarter is kept in any case."""
    model = make("decoder", tiny_tokenizer)
    words = ["iota", "beta", "omega", "theta"] * 12
    options = {"strip_prompt": True, "jit_compile": False, **options}
    # the start token stays
    end = " ".join(words[-(kept - 1) :])
    longest = options.get("max_length", 32)
    new = min(options.get("max_new_tokens", 32), longest - kept)
    expected = model.generate(end, **{**options, "max_new_tokens": new})
    assert model.generate(" ".join(words), truncate=True, **options) == expected
    assert model.preprocessor.kept_tokens(longest, options.get("max_new_tokens")) == kept


class Tidy(SentencePieceTokenizer, kind="tidy_for_tests"):
    """Takes back what it wrote when certain words follow, as tokenizers do that clean spaces up."""

    unstable_tokens = 4

    def _detokenize(self, ids):
        texts = super()._detokenize(ids)
        for word in ("alpha", "beta", "gamma", "theta", "a", "e"):
            texts = tf.strings.regex_replace(texts, f"(\\w) {word}", rf"\1_{word}")
        return tf.strings.regex_replace(texts, "(\\w)(\\w)(\\w)k", r"\2K")


def test_stream_of_a_tokenizer_that_takes_back(tiny_tokenizer):
    model = make("encoder_decoder", Tidy(tiny_tokenizer.proto))
    for seed in range(2):
        options = {**OPTIONS, "sampler": Sample(1.5), "seed": seed, "max_new_tokens": 16}
        for chunk in (1, 3):
            assert "".join(model.stream(TEXTS[0], chunk=chunk, **options)) == model.generate(TEXTS[0], **options)
