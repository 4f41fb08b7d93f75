"""Masked language model: what is hidden in training, what is guessed in texts."""

import keras
import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from zoo.tasks import MaskedLM  # noqa: E402


@pytest.fixture(scope="module")
def model(make_task):
    return make_task(MaskedLM)


def test_preprocess_hides_tokens_of_the_text_only(model, mask_tokenizer, texts):
    inputs, labels, weights = (
        keras.tree.map_structure(lambda part: part.numpy(), part)
        for part in model.preprocessor.training_batch(tf.constant(texts))
    )
    token_ids, positions = inputs["token_ids"], inputs["mask_positions"]
    for row, text in enumerate(texts):
        ids = mask_tokenizer.tokenize(text).numpy()
        true = [mask_tokenizer.start_id, *ids, mask_tokenizer.end_id]
        assert inputs["padding_mask"][row].sum() == len(true)
        hidden = positions[row][weights[row] > 0]
        assert len(hidden) == max(1, round(0.15 * len(ids))) and ((0 < hidden) & (hidden < len(true) - 1)).all()
        np.testing.assert_array_equal(labels[row][weights[row] > 0], np.array(true)[hidden])
        seen = token_ids[row][: len(true)].copy()
        seen[hidden] = np.array(true)[hidden]
        np.testing.assert_array_equal(seen, true)
    assert (token_ids == mask_tokenizer.mask_id).sum() > 100
    # another choice every time in training, the same in evaluation
    assert (model.preprocessor.training_batch(tf.constant(texts))[0]["token_ids"].numpy() != token_ids).any()
    first, second = (
        model.preprocessor.training_batch(tf.constant(texts), seed=1)[0]["token_ids"].numpy() for _ in range(2)
    )
    np.testing.assert_array_equal(first, second)


def test_whole_words(make_task, mask_tokenizer):
    model = make_task(MaskedLM, whole_words=True, mask_rate=0.4, mask_share=1.0, random_share=0.0)
    words = ["alpha", "kapex", "beta", "xyx"]
    pieces = [mask_tokenizer.tokenize(word).numpy().tolist() for word in words]
    assert sum(len(piece) > 1 for piece in pieces) == 2
    bounds = 1 + np.cumsum([0, *map(len, pieces)])
    inputs, _, _ = model.preprocessor.training_batch(tf.constant([" ".join(words)] * 30))
    choices = set()
    for row in inputs["token_ids"].numpy():
        hidden = [row[start:end] == mask_tokenizer.mask_id for start, end in zip(bounds[:-1], bounds[1:], strict=True)]
        assert all(part.all() or not part.any() for part in hidden)
        choices.add(tuple(part.all() for part in hidden))
    assert len(choices) > 2


def test_loss_is_that_of_the_hidden_tokens(model, texts):
    inputs, labels, weights = model.preprocessor.training_batch(tf.constant(texts[:8]), seed=1)
    logits = np.array(model(inputs), "float64")
    assert logits.shape == (*labels.shape, model.backbone.config.vocabulary_size)
    everywhere = np.array(model({name: value for name, value in inputs.items() if name != "mask_positions"}))
    np.testing.assert_allclose(
        logits, np.take_along_axis(everywhere, inputs["mask_positions"].numpy()[..., None], 1), rtol=1e-4, atol=1e-5
    )
    losses = np.log(np.exp(logits).sum(-1)) - np.take_along_axis(logits, labels.numpy()[..., None], -1)[..., 0]
    expected = (losses * weights.numpy()).sum() / weights.numpy().sum()
    model.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
    np.testing.assert_allclose(model.evaluate(texts[:8], verbose=0)[0], expected, rtol=1e-4)
    history = model.fit(texts[:8], validation_data=texts[:8], verbose=0).history
    np.testing.assert_allclose(history["val_loss"][0], expected, rtol=1e-4)


@pytest.mark.parametrize("head", ["transform", pytest.param("projection", marks=pytest.mark.slow)])
def test_learns(make_task, head):
    model = make_task(MaskedLM, head=head, mask_rate=0.5)
    cycle = "alpha beta gamma omega theta iota".split()
    texts = [" ".join((cycle * 2)[start : start + 5]) for start in range(6)]
    # many small steps: a graph pays
    model.compile(keras.optimizers.Adam(0.02), run_eagerly=False)
    losses = model.fit(texts * 160, epochs=18, verbose=0).history["loss"]
    assert losses[-1] < 0.6 * losses[0]
    (guess,) = model.fill_mask("alpha beta <mask> omega theta", top_k=3)
    assert guess[0][0] == "\u2581gamma" and guess[0][1] > 0.5


def test_fill_mask(model, mask_tokenizer):
    texts = ["alpha <mask> beta", "<mask> gamma <mask> omega", "<mask>"]
    filled = model.fill_mask(texts, top_k=4, batch_size=2)
    assert [len(row) for row in filled] == [1, 2, 1]
    for text, row in zip(texts, filled, strict=True):
        ids = mask_tokenizer.tokenize(text, special_tokens=["<mask>"]).numpy()
        ids = np.array([[mask_tokenizer.start_id, *ids, mask_tokenizer.end_id]])
        logits = np.array(model({"token_ids": ids, "padding_mask": np.ones_like(ids, bool)}), "float64")[0]
        probabilities = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
        for position, best in zip(np.flatnonzero(ids[0] == mask_tokenizer.mask_id), row, strict=True):
            order = np.argsort(-probabilities[position])[:4]
            assert [token for token, _ in best] == [mask_tokenizer.id_to_token(int(index)) for index in order]
            np.testing.assert_allclose([p for _, p in best], probabilities[position, order], rtol=1e-3)
    assert model.fill_mask(texts[0], top_k=4) == filled[0] or np.allclose(
        [p for _, p in model.fill_mask(texts[0], top_k=4)[0]], [p for _, p in filled[0][0]], rtol=1e-4
    )
    assert model.fill_mask([]) == [] and model.mask_token == "<mask>"


@pytest.mark.parametrize(
    ("given", "top_k", "message"),
    [
        (["<mask>", "alpha"], 5, r"texts\[1\] must have a '<mask>' to fill, got 'alpha'"),
        (["<mask>" + " alpha" * 40], 5, r"texts\[0\] has \d+ tokens with its special tokens"),
        (["<mask>"], 0, "top_k must be an integer from 1 to 27, got 0"),
        (["<mask>", 7], 5, r"texts\[1\] must be a string"),
    ],
)
def test_what_is_wrong_is_named(model, given, top_k, message):
    with pytest.raises((TypeError, ValueError), match=message):
        model.fill_mask(given, top_k)


def test_wrong_choices(make_task, encoder_config, tiny_tokenizer):
    from zoo import Backbone

    for options, message in (
        ({"mask_rate": 0}, "mask_rate must be above 0 and below 1, got 0"),
        ({"mask_share": 0.9, "random_share": 0.2}, "and their sum too, got 0.9 and 0.2"),
        ({"head": "linear"}, "head must be 'transform' or 'projection', got 'linear'"),
        ({"config": {"architecture": "decoder", "pooler": False}}, "must have the architecture 'encoder', got 'dec"),
    ):
        with pytest.raises(ValueError, match=message):
            make_task(MaskedLM, **options)
    with pytest.raises(ValueError, match="needs a tokenizer with a mask token"):
        MaskedLM(Backbone.from_config(encoder_config), tiny_tokenizer)
    with pytest.raises(ValueError, match="y must be None: MaskedLM learns from the texts alone"):
        make_task(MaskedLM).fit(["alpha"], ["beta"])


def test_texts_without_tokens(model):
    assert np.isfinite(model.evaluate(["", "alpha", " "], verbose=0)[0])
    assert np.isfinite(model.evaluate(["", ""], verbose=0)[0])
