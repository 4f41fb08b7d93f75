"""Processors, stops and start tokens of sequence-to-sequence models, against a loop of whole passes in NumPy."""

import dataclasses
import functools

import keras
import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from zoo import Backbone, Beam, EmbeddingConfig, Sample, Seq2SeqLM  # noqa: E402
from zoo.generation import (  # noqa: E402
    BannedTokens,
    ForcedTokens,
    LogitProcessor,
    MinimumLength,
    NoRepeatNGram,
    RepetitionPenalty,
)

MAX_LENGTH = 10


@pytest.fixture(scope="module")
def model(tiny_config, tiny_tokenizer, texts):
    """The first random weights whose texts are varied enough for the rules of this file; not to be changed."""
    # a projection of its own: with that of the embedding most tokens repeat the one before
    config = dataclasses.replace(
        tiny_config, initializer_range=0.5, hidden_dim=16, embedding=EmbeddingConfig(tie_output=False)
    )
    for seed in range(40):
        keras.utils.set_random_seed(seed)
        model = Seq2SeqLM(Backbone.from_config(config), tiny_tokenizer)
        source = model.preprocessor.text_ids(texts[:8]).to_list()
        result = model.generate_tokens(source=source, max_new_tokens=MAX_LENGTH, jit_compile=False)
        lengths = result["lengths"] - result["end_lengths"]
        rows = [row[:length].tolist() for row, length in zip(result["token_ids"], lengths, strict=True)]
        pairs = [list(zip(row, row[1:], strict=False)) for row in rows[:4]]
        repeats = sum(len(set(row)) < len(row) for row in pairs)
        if min(lengths[:5]) < 7 and sorted(lengths)[-2] > 4 and repeats > 2 and len(set(map(tuple, rows))) > 5:
            return model
    raise AssertionError("no random weights give varied texts")


@functools.cache
def whole_pass(model):
    return tf.function(lambda inputs: model(inputs, training=False), reduce_retracing=True)


def next_logits(model, source, generated):
    """The logits behind the generated tokens, by a pass over everything."""
    decoder = [model.preprocessor.decoder_start_id, *generated]
    padding = [[0, MAX_LENGTH - len(decoder)]]
    inputs = {
        "encoder_token_ids": tf.constant([source]),
        "encoder_padding_mask": tf.ones((1, len(source)), tf.bool),
        "decoder_token_ids": tf.constant(np.pad([decoder], [[0, 0], *padding])),
        "decoder_padding_mask": tf.range(MAX_LENGTH)[None] < len(decoder),
    }
    return np.array(whole_pass(model)(inputs), "float64")[0, len(generated)]


def greedy(model, text, rule, stops=()):
    """Greedy search; `rule(logits, generated)` changes logits in place. The tokens without those of the end."""
    source = model.preprocessor.text_ids(tf.constant([text])).to_list()[0]
    generated = []
    for _ in range(MAX_LENGTH):
        logits = next_logits(model, source, generated)
        rule(logits, generated)
        generated.append(int(np.argmax(logits)))
        if generated[-1] == model.tokenizer.end_id:
            return generated[:-1]
        for stop in stops:
            if generated[-len(stop) :] == list(stop):
                return generated[: -len(stop)]
    return generated


def repetition(logits, generated):
    seen = sorted(set(generated))
    logits[seen] = np.where(logits[seen] > 0, logits[seen] / 3.0, logits[seen] * 3.0)


def bigrams(logits, generated):
    for first, second in zip(generated, generated[1:], strict=False):
        if first == generated[-1]:
            logits[second] = -np.inf


def never_ends(end_id):
    def rule(logits, generated):
        if len(generated) < 8:
            logits[end_id] = -np.inf

    return rule


def never(token_ids):
    def rule(logits, generated):
        logits[token_ids] = -np.inf

    return rule


def forced(logits, generated):
    if len(generated) < 2:
        logits[np.arange(len(logits)) != (9, 11)[len(generated)]] = -np.inf


CASES = {
    "repetition penalty": (RepetitionPenalty(3.0), repetition),
    "no repeated bigram": (NoRepeatNGram(2), bigrams),
    "minimum length": (MinimumLength(8), None),
    "banned tokens": (None, None),
    "forced tokens": (ForcedTokens([9, 11]), forced),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", CASES)
def test_processors(model, texts, name):
    processor, rule = CASES[name]
    if processor is None:
        # tokens that the model likes
        common = sorted({*greedy(model, texts[0], lambda logits, generated: None)[:2]})
        processor, rule = BannedTokens(common), never(common)
    rule = never_ends(model.tokenizer.end_id) if rule is None else rule
    some, options = texts[:5], {"max_length": MAX_LENGTH, "jit_compile": False}
    ids = [greedy(model, text, rule) for text in some]
    expected = [text.decode() for text in model.tokenizer.detokenize(ids).numpy()]
    assert model.generate(some, processors=[processor], **options) == expected
    assert expected != model.generate(some, **options), "the rule changes something"


@pytest.mark.slow
def test_processors_by_name_and_compiled(model, texts):
    options = {"max_length": 6}
    rules = [{"name": "no_repeat_ngram", "size": 2}, {"name": "banned_tokens", "token_ids": [6, [9, 9]]}]
    expected = model.generate(
        texts[:4], processors=[NoRepeatNGram(2), BannedTokens([6, [9, 9]])], jit_compile=False, **options
    )
    assert model.generate(texts[:4], processors=rules, jit_compile=True, **options) == expected


@pytest.mark.slow
def test_processors_with_beams(model, texts):
    """No text of the result has a pair of tokens twice."""
    options = {"max_length": MAX_LENGTH, "jit_compile": False, "sampler": Beam(2)}
    source = model.preprocessor.text_ids(texts[:4]).to_list()
    for processors, repeats in (([], True), ([NoRepeatNGram(2)], False)):
        result = model.generate_tokens(source=source, processors=processors, max_new_tokens=MAX_LENGTH, sampler=Beam(2))
        rows = [
            row[:length].tolist()
            for row, length in zip(np.array(result["token_ids"]), np.array(result["lengths"]), strict=True)
        ]
        twice = any(len(set(pairs)) < len(pairs) for pairs in (list(zip(row, row[1:], strict=False)) for row in rows))
        assert twice == repeats
        ids = [[token for token in row if token != model.tokenizer.end_id] for row in rows]
        expected = [text.decode() for text in model.tokenizer.detokenize(ids).numpy()]
        assert model.generate(texts[:4], processors=processors, **options) == expected


def test_stops_are_no_part_of_the_text(model, texts):
    options = {"max_length": MAX_LENGTH, "jit_compile": False}
    whole = {text: greedy(model, text, lambda logits, generated: None) for text in texts[:8]}
    some = sorted(whole, key=lambda text: -len(whole[text]))
    whole = [whole[text] for text in some]
    # a pair and a token that occur, but not at the beginning of all texts
    pair, single = whole[0][2:4], whole[1][3]
    ids = [greedy(model, text, lambda logits, generated: None, [pair, [single]]) for text in some]
    assert sum(map(len, ids)) < sum(map(len, whole))
    expected = [text.decode() for text in model.tokenizer.detokenize(ids).numpy()]
    assert model.generate(some, stop=[pair, single], **options) == expected
    outputs = model.generate(some, **options)
    word = outputs[0][1:3]
    assert model.generate(some, stop=word, **options) == [text.split(word)[0] for text in outputs]
    # whichever comes first
    until_pair = model.tokenizer.detokenize([greedy(model, some[0], lambda logits, generated: None, [pair])])
    assert model.generate(some[0], stop=[word, pair], **options) == until_pair.numpy()[0].decode().split(word)[0]
    for stop, message in (("", r"stop\[0\] must not be empty"), ([[]], "stop_sequences"), (["a", 3.5], "stop_seq")):
        with pytest.raises((TypeError, ValueError), match=message):
            model.generate(some, stop=stop)


def test_export(model, texts, tmp_path):
    options = {
        "sampler": Sample(0.8),
        "processors": [RepetitionPenalty(1.5), MinimumLength(4)],
        "stop": ["theta", [9, 10]],
        "max_length": MAX_LENGTH,
        "seed": 3,
        "jit_compile": False,
    }
    model.export(tmp_path / "export", **options)
    loaded = tf.saved_model.load(str(tmp_path / "export"))
    served = loaded.serve(tf.constant(texts[:20])).numpy()
    expected = model.generate(texts[:20], **options)
    assert [text.decode() for text in served] == expected
    assert not any("theta" in text for text in expected) and len(set(expected)) > 10


def test_tokens_without_a_tokenizer(model, texts):
    source = model.preprocessor.text_ids(texts[:3]).to_list()
    bare = Seq2SeqLM(model.backbone)
    options = {"sampler": "greedy", "max_new_tokens": 6}
    with pytest.raises(ValueError, match="no token that decoding starts with: the tokenizer has no start token"):
        bare.generate_tokens(source=source, **options)
    end = model.tokenizer.end_id
    start_id = model.preprocessor.decoder_start_id
    ours = bare.generate_tokens([[start_id]] * 3, source=source, end_ids=end, **options)
    np.testing.assert_array_equal(ours["token_ids"], model.generate_tokens(source=source, **options)["token_ids"])


class Noisy(LogitProcessor):
    """Counts how often it is traced."""

    calls = 0

    def __call__(self, logits, context):
        Noisy.calls += 1
        return logits


@pytest.mark.slow
def test_quantized_weights_are_seen_by_programs_that_exist(tiny_config, tiny_tokenizer, texts):
    keras.utils.set_random_seed(1)
    config = dataclasses.replace(tiny_config, initializer_range=0.5)
    model = Seq2SeqLM(Backbone.from_config(config), tiny_tokenizer)
    options = {"processors": [Noisy()], "max_length": 4, "jit_compile": False}
    model.generate(texts[:2], **options)
    traced = Noisy.calls
    model.generate(texts[2:4], **options)
    assert Noisy.calls == traced, "one program for all"
    model.generate(texts[2:4], **{**options, "max_length": 3})
    assert Noisy.calls == traced, "the limit of a row is an input"
    model.quantize("int8")
    model.generate(texts[:2], **options)
    assert Noisy.calls > traced


# Start tokens.


@pytest.mark.slow
def test_texts_begin_with_the_start_token_where_decoding_starts_with_another(tiny_config, tiny_tokenizer, tmp_path):
    """BART: sources `<s> x </s>`, targets `<s> y </s>` behind `</s>`."""
    keras.utils.set_random_seed(0)
    end_token = tiny_tokenizer.id_to_token(tiny_tokenizer.end_id)
    model = Seq2SeqLM(Backbone.from_config(tiny_config), tiny_tokenizer, decoder_start_token=end_token)
    start, end, pad = tiny_tokenizer.start_id, tiny_tokenizer.end_id, tiny_tokenizer.pad_id
    alpha, beta = (tiny_tokenizer.token_to_id(f"\u2581{word}") for word in ("alpha", "beta"))
    inputs, labels, weights = model.preprocessor.training_batch(["alpha", ""], ["beta", "beta alpha"])
    more = [pad] * 4
    assert np.array(inputs["encoder_token_ids"]).tolist() == [
        [start, alpha, end, pad, *more],
        [start, end, pad, pad, *more],
    ]
    assert np.array(inputs["decoder_token_ids"]).tolist() == [
        [end, start, beta, pad, *more],
        [end, start, beta, alpha, *more],
    ]
    assert np.array(labels).tolist() == [[start, beta, end, pad, *more], [start, beta, alpha, end, *more]]
    assert np.array(weights).tolist() == [[1] * 3 + [0] * 5, [1] * 4 + [0] * 4]
    model.generate("theta " * 30, jit_compile=False)
    with pytest.raises(ValueError, match=r"texts\[0\] has 33 tokens with its start and end token"):
        model.generate("theta " * 31)
    model.save_to_preset(tmp_path / "preset")
    loaded = Seq2SeqLM.from_preset(tmp_path / "preset")
    assert loaded.preprocessor.decoder_start_id == end and loaded.preprocessor.adds_start_token
    assert loaded.score("alpha", "beta") == pytest.approx(model.score("alpha", "beta"), rel=1e-5)


def test_texts_are_cut_as_the_preprocessor_does_it(model):
    cutting = Seq2SeqLM(model.backbone, model.preprocessor.replace(truncate=True))
    text, options = "theta " * 40, {"jit_compile": False, "max_new_tokens": 4}
    assert cutting.generate(text, **options) == model.generate(text, truncate=True, **options)
    assert "".join(cutting.stream(text, **options)) == model.generate(text, truncate=True, **options)
    with pytest.raises(ValueError, match=r"texts\[0\] has 41 tokens"):
        cutting.generate(text, truncate=False, **options)
