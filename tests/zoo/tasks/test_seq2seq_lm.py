"""Sequence to sequence from text to text: training, generation, scores."""

import keras
import numpy as np
import pytest

from zoo import Backbone, Beam, Greedy, Sample, Seq2SeqLM, TransformerConfig

BEAM = Beam(num_beams=3, length_penalty=0.6)


def log_softmax(logits):
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def test_learns_to_copy(trained, copied):
    losses = trained.losses_by_epoch
    # from more than one nat per token, which has about eight words to choose from
    assert losses[0] > 1 and losses[-1] < 0.1
    assert trained.generate(copied, jit_compile=False) == copied
    assert trained.evaluate(copied, copied, verbose=0) < 0.1


@pytest.mark.slow
def test_xla_gives_the_same(trained, texts):
    assert trained.generate(texts[:40], jit_compile=True) == trained.generate(texts[:40], jit_compile=False)


@pytest.mark.parametrize("sampler", [pytest.param(Greedy(), marks=pytest.mark.slow), BEAM], ids=["greedy", "beam"])
def test_batch_is_each_alone(trained, texts, sampler):
    # not only what was learned: uncertain models have close decisions
    some = texts[60:68] + [""] + ["theta " * 30]
    together = trained.generate(some, sampler=sampler, jit_compile=False)
    assert len(set(together)) > 5
    for text, expected in zip(some, together, strict=True):
        assert trained.generate(text, sampler=sampler, jit_compile=False) == expected
    assert trained.generate(some, sampler=sampler, batch_size=3, jit_compile=False) == together
    assert trained.generate(some[::-1], sampler=sampler, jit_compile=False) == together[::-1]


def test_random_sampling(trained, texts):
    options = {"sampler": Sample(temperature=2.0), "jit_compile": False}
    first = trained.generate(texts[:9], seed=3, **options)
    # each text has random numbers of its own, whatever shares its batch
    assert trained.generate(texts[:9], seed=3, batch_size=2, **options) == first
    assert trained.generate(texts[:9], seed=4, **options) != first
    assert len(set(trained.generate(texts[:1] * 9, seed=3, **options))) > 3


def test_samplers_by_name_and_dictionary(trained, copied):
    expected = trained.generate(copied[:3], sampler=BEAM, jit_compile=False)
    beam = {"name": "beam", "num_beams": 3, "length_penalty": 0.6}
    assert trained.generate(copied[:3], sampler=beam, jit_compile=False) == expected
    assert trained.generate(copied[:3], sampler="greedy", jit_compile=False) == copied[:3]
    with pytest.raises((ValueError, TypeError), match="sampler"):
        trained.generate(copied[:3], sampler="psychic")


def test_one_text_no_text_and_arrays(trained, copied):
    assert trained.generate(copied[0], jit_compile=False) == copied[0]
    assert trained.generate([], jit_compile=False) == []
    assert trained.generate(np.array(copied[:2]), jit_compile=False) == copied[:2]
    assert trained.generate(tuple(copied[:2]), jit_compile=False) == copied[:2]


def test_output_length(trained, copied):
    tokenizer = trained.tokenizer
    text = max(copied, key=len)
    assert len(tokenizer.tokenize(text)) == 4
    for length in (1, 2, 4):
        generated = trained.generate(text, max_length=length, jit_compile=False)
        assert generated == " ".join(text.split()[:length])
    assert trained.generate(text, max_length=5, jit_compile=False) == text
    for length in (0, 33):
        with pytest.raises(ValueError, match=f"max_length must be an integer from 1 to 32, got {length}"):
            trained.generate(text, max_length=length)


def test_text_longer_than_the_model(trained, copied):
    # 31 words and the end token fit
    fits, long = "theta " * 31, " ".join(["iota", "beta"] * 20)
    trained.generate(fits, jit_compile=False)
    texts = [copied[0], long, fits, long]
    with pytest.raises(ValueError, match=r"texts\[1\] has 41 tokens .* max_length=32 \(2 of 4 .*'iota"):
        trained.generate(texts)
    with pytest.raises(ValueError, match=r"targets\[1\] has 41 tokens"):
        trained.score(copied[:2], [copied[0], long])
    generated = trained.generate(texts, truncate=True, jit_compile=False)
    # what is cut ends with the end token, as every source does
    cut = trained.tokenizer.tokenize(long).numpy()[:31].tolist() + [trained.tokenizer.end_id]
    outputs = trained.generate_tokens(source=[cut], sampler=Greedy(), max_new_tokens=32)
    expected = trained.tokenizer.detokenize(outputs["token_ids"]).numpy()[0].decode()
    assert generated == [copied[0], expected, generated[2], expected]
    assert generated[2] == trained.generate(fits, jit_compile=False)


def test_never_much_longer_than_the_source(untrained):
    # a model that never ends: 50 tokens more than the source at most (Vaswani et al. 2017, section 6.1)
    config = TransformerConfig.from_dict({**untrained.backbone.config.to_dict(), "max_length": 200})
    model = Seq2SeqLM(Backbone.from_config(config), untrained.tokenizer)
    for weight in model.backbone.weights:
        if "final_norm/beta" in weight.path:
            table = model.backbone.token_embedding.table.embeddings
            weight.assign(100 * table[model.tokenizer.token_to_id("\u2581beta")])
    generated = model.generate(["alpha", "alpha beta gamma"], jit_compile=False)
    assert [len(text.split()) for text in generated] == [52, 54] and set(generated[0].split()) == {"beta"}


def test_score_is_the_sum_of_log_probabilities(untrained, texts):
    sources, targets = texts[:5], texts[5:10]
    tokenizer, expected = untrained.tokenizer, []
    for source, target in zip(sources, targets, strict=True):
        source_ids = [*tokenizer.tokenize(source).numpy(), tokenizer.end_id]
        labels = [*tokenizer.tokenize(target).numpy(), tokenizer.end_id]
        logits = untrained(
            {
                "encoder_token_ids": np.array([source_ids]),
                "encoder_padding_mask": np.ones((1, len(source_ids)), "bool"),
                "decoder_token_ids": np.array([[tokenizer.start_id, *labels[:-1]]]),
                "decoder_padding_mask": np.ones((1, len(labels)), "bool"),
            }
        )
        expected.append(log_softmax(np.array(logits))[0, np.arange(len(labels)), labels].sum())
    # float32 sums of five terms of a size up to 20
    np.testing.assert_allclose(untrained.score(sources, targets), expected, rtol=1e-5)
    np.testing.assert_allclose(untrained.score(sources, targets, batch_size=2), expected, rtol=1e-5)


def test_score_of_what_was_generated(trained, texts):
    """Cached decoding and the teacher-forced pass give the same probabilities."""
    tokenizer, some = trained.tokenizer, texts[40:52]
    source = trained.preprocessor.text_ids(some).to_list()
    outputs = trained.generate_tokens(source=source, sampler=Greedy(), max_new_tokens=20)
    generated = [text.decode() for text in tokenizer.detokenize(outputs["token_ids"]).numpy()]
    # spelled differently, a text has other tokens and another score
    same = np.array(
        [
            tokenizer.tokenize(text).numpy().tolist() == row[:length].tolist()
            for text, row, length in zip(
                generated, np.array(outputs["token_ids"]), np.array(outputs["lengths"]) - 1, strict=True
            )
        ]
    )
    assert same.sum() > 6
    scores = trained.score(some, generated)
    np.testing.assert_allclose(scores[same], np.array(outputs["log_probabilities"])[same], rtol=1e-3, atol=1e-4)


def test_score_needs_pairs(untrained):
    with pytest.raises(ValueError, match="one target text per source text, got 1 for 2 in sources"):
        untrained.score(["alpha", "beta"], ["alpha"])
    with pytest.raises(ValueError, match="got None for 2 in x"):
        untrained.fit(["alpha", "beta"])


def test_score_of_one_pair_and_of_none(untrained):
    assert untrained.score([], []).shape == (0,)
    one = untrained.score("alpha beta", "omega")
    assert isinstance(one, float)
    np.testing.assert_allclose(one, untrained.score(["alpha beta"], ["omega"])[0], rtol=1e-6)
    for arguments, message in (
        (("alpha", ["omega"]), "sources must be a list of texts, got one text 'alpha'"),
        ((["alpha"], "omega"), "targets must be a list of texts, got one text 'omega'"),
        ((["alpha"], None), "got None for 1 in sources"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            untrained.score(*arguments)


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        (["alpha"], {"max_length": 2.5}, "max_length must be an integer from 1 to 32, got 2.5"),
        (["alpha"], {"max_length": True}, "max_length must be an integer from 1 to 32, got True"),
        (["alpha"], {"batch_size": 0}, "batch_size must be an integer of at least 1, got 0"),
        (None, {}, "texts must be a list, array or tensor of texts, got NoneType None"),
        (["alpha", 3], {}, r"texts\[1\] must be a string, got int 3"),
        (["alpha", "\ud800"], {}, r"texts\[1\] is not a text that UTF-8 can hold"),
    ],
)
def test_wrong_arguments_of_generate(untrained, given, options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        untrained.generate(given, **options)


def test_predict_is_generate(trained, copied):
    assert trained.predict(copied[:3]) == copied[:3]
    assert trained.predict(np.array(copied[:3]), batch_size=2) == copied[:3]
    with pytest.raises(TypeError, match="x must be a list of texts, got one text 'alpha'"):
        trained.predict("alpha")
    with pytest.raises(ValueError, match=r"predict\(\) on texts must be x, batch_size or verbose, got \['steps'\]"):
        trained.predict(copied, steps=3)


def test_preprocess(untrained):
    tokenizer = untrained.tokenizer
    alpha, beta, gamma = (tokenizer.token_to_id(f"\u2581{word}") for word in ("alpha", "beta", "gamma"))
    start, end, pad = tokenizer.start_id, tokenizer.end_id, tokenizer.pad_id
    inputs, labels, weights = untrained.preprocessor.training_batch(["alpha", "beta gamma"], ["gamma beta", ""])
    arrays = {name: np.array(value)[:, :3].tolist() for name, value in inputs.items()}
    assert arrays == {
        "encoder_token_ids": [[alpha, end, pad], [beta, gamma, end]],
        "encoder_padding_mask": [[True, True, False], [True, True, True]],
        "decoder_token_ids": [[start, gamma, beta], [start, pad, pad]],
        "decoder_padding_mask": [[True, True, True], [True, False, False]],
    }
    assert np.array(labels)[:, :3].tolist() == [[gamma, beta, end], [end, pad, pad]]
    assert np.array(weights)[:, :3].tolist() == [[1, 1, 1], [1, 0, 0]]
    # padded to one of few lengths
    assert all(value.shape == (2, 8) for value in (*inputs.values(), labels, weights))
    assert not np.array(weights)[:, 3:].any() and not np.array(inputs["decoder_padding_mask"])[:, 3:].any()


def test_fit_on_token_level_and_validation_texts(untrained, texts):
    inputs, labels, weights = untrained.preprocessor.training_batch(texts[:8], texts[:8])
    inputs = {name: np.array(value) for name, value in inputs.items()}
    validation = (texts[8:12], texts[8:12])
    untrained.compile(keras.optimizers.SGD(0.1), "auto")
    history = untrained.fit(
        inputs,
        np.array(labels),
        sample_weight=np.array(weights),
        batch_size=8,
        epochs=2,
        validation_data=validation,
        verbose=0,
    ).history
    assert history["loss"][1] < history["loss"][0] and len(history["val_loss"]) == 2


def test_default_loss_is_smoothed_and_counts_tokens(untrained, texts):
    untrained.compile()
    inputs, labels, mask = untrained.preprocessor.training_batch(texts[:3], ["alpha", "beta gamma iota", "omega"])
    log_probabilities = log_softmax(np.array(untrained(inputs), "float64"))
    chosen = np.take_along_axis(log_probabilities, np.array(labels)[..., None], -1)[..., 0]
    # label smoothing of 0.1 over the vocabulary, mean over the eight real tokens (Vaswani et al. 2017, section 5.4)
    losses = -(0.9 * chosen + 0.1 * log_probabilities.mean(-1))
    expected = (losses * np.array(mask)).sum() / np.array(mask).sum()
    loss = untrained.evaluate(texts[:3], ["alpha", "beta gamma iota", "omega"], verbose=0)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)


def test_training_is_seen_by_later_generation(untrained, copied):
    before = untrained.generate(copied[:4], jit_compile=False)
    for weight in untrained.backbone.weights:
        weight.assign(weight * 1.5 + 0.1)
    assert untrained.generate(copied[:4], jit_compile=False) != before


def test_keras_file(trained, copied, tmp_path):
    trained.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.tokenizer.get_vocabulary() == trained.tokenizer.get_vocabulary()
    np.testing.assert_allclose(loaded.score(copied, copied), trained.score(copied, copied), rtol=1e-6)


def test_other_backbones_are_refused(tiny_config, tiny_tokenizer):
    config = TransformerConfig.from_dict({**tiny_config.to_dict(), "architecture": "decoder"})
    with pytest.raises(ValueError, match="must have the architecture 'encoder_decoder', got 'decoder'"):
        Seq2SeqLM(Backbone.from_config(config), tiny_tokenizer)
    config = TransformerConfig.from_dict({**tiny_config.to_dict(), "vocabulary_size": 10})
    with pytest.raises(
        ValueError, match="vocabulary_size must be at least 26, the number of tokens in the tokenizer, got 10"
    ):
        Seq2SeqLM(Backbone.from_config(config), tiny_tokenizer)


def test_without_a_tokenizer(tiny_config):
    model = Seq2SeqLM(Backbone.from_config(tiny_config))
    for use in (
        lambda: model.generate(["alpha"]),
        lambda: model.score(["alpha"], ["alpha"]),
        lambda: model.fit(["alpha"], ["alpha"], verbose=0),
        lambda: model.export("unused"),
    ):
        with pytest.raises(ValueError, match="needs a tokenizer"):
            use()
