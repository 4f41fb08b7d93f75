"""Labels of words: alignment with tokens, loss, tags, entities."""

import keras
import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from zoo.preprocessing.datasets import rows_of  # noqa: E402
from zoo.tasks import TokenClassifier  # noqa: E402

TAGS = ["O", "B-X", "I-X"]
# the second word has several tokens, the empty one none
WORDS = [["alpha", "kapex", "beta"], [], ["omega"], ["", "beta", "\x00", "gamma"]]


@pytest.fixture(scope="module")
def tagger(make_task):
    return make_task(TokenClassifier, labels=TAGS)


def test_preprocess(tagger, mask_tokenizer):
    tokenizer = mask_tokenizer
    pieces = [[tokenizer.tokenize(word).numpy().tolist() for word in row] for row in WORDS]
    assert len(pieces[0][1]) > 1 and pieces[3][0] == []
    words = tagger.preprocessor.check_rows(WORDS, "x")
    labels = tagger.preprocessor.check_targets([["O", 1, "I-X"], [], [2], [0, 1, 2, 0]], words, "y", "x")
    inputs, y, weights = tagger.preprocessor.training_batch(words, labels, tf.constant([1.0, 1.0, 2.0, 0.5]))
    width = inputs["token_ids"].shape[1]
    for row, tokens in enumerate(pieces):
        flat = [tokenizer.start_id, *sum(tokens, []), tokenizer.end_id]
        assert inputs["token_ids"][row].numpy().tolist() == flat + [tokenizer.pad_id] * (width - len(flat))
        expected, position = [], 1
        for word in tokens:
            expected.append(position if word else -1)
            position += len(word)
        assert inputs["word_positions"][row].numpy().tolist() == expected + [-1] * (8 - len(expected))
        expected = np.array(expected) >= 0
        weight = [1.0, 1.0, 2.0, 0.5][row]
        assert weights[row].numpy().tolist() == (expected * weight).tolist() + [0] * (8 - len(expected))
    assert y.numpy()[:, :4].tolist() == [[0, 1, 2, 0], [0] * 4, [2, 0, 0, 0], [0, 1, 2, 0]]


def test_predict_is_softmax_at_the_first_token(tagger, mask_tokenizer):
    probabilities = tagger.predict(WORDS, batch_size=2)
    assert [part.shape for part in probabilities] == [(3, 3), (0, 3), (1, 3), (4, 3)]
    ids = [mask_tokenizer.tokenize(word).numpy().tolist() for word in WORDS[0]]
    row = np.array([[mask_tokenizer.start_id, *sum(ids, []), mask_tokenizer.end_id]])
    logits = np.array(tagger({"token_ids": row, "padding_mask": np.ones_like(row, bool)}))[0]
    at = logits[[1, 1 + len(ids[0]), 1 + len(ids[0] + ids[1])]]
    powers = np.exp(at)
    np.testing.assert_allclose(probabilities[0], powers / powers.sum(-1, keepdims=True), rtol=1e-4)
    # a word without tokens
    np.testing.assert_array_equal(probabilities[3][0], [1, 0, 0])
    tags = tagger.tag(WORDS)
    assert tags == [[TAGS[index] for index in part.argmax(-1)] for part in probabilities]
    assert tagger.tag("alpha  kapex\tbeta") == tags[0] and tagger.tag(["alpha kapex beta", ""]) == [tags[0], []]
    dataset = tf.data.Dataset.from_tensor_slices(tf.ragged.constant(WORDS))
    assert tagger.tag(rows_of(tagger.preprocessor, dataset)) == tags


def test_learns_names(make_task, texts):
    model = make_task(TokenClassifier, labels=TAGS, head_dropout=0.0)
    words = [text.split() for text in texts[:64]]
    # a name begins with alpha and goes on while beta follows
    tags = []
    for row in words:
        tags.append([])
        for place, word in enumerate(row):
            inside = place and word == "beta" and tags[-1][-1] != "O"
            tags[-1].append("B-X" if word == "alpha" else "I-X" if inside else "O")
    model.compile(keras.optimizers.Adam(0.02))
    history = model.fit(
        words * 12, tags * 12, epochs=4, batch_size=64, validation_data=(words, tags), verbose=0
    ).history
    assert history["val_accuracy"][-1] > 0.97
    found = model.entities("omega alpha gamma alpha")
    assert [entity[:-1] for entity in found] == [("X", "alpha", 6, 11, (1, 2)), ("X", "alpha", 18, 23, (3, 4))]
    (probabilities,) = model.predict(["omega alpha gamma alpha"])
    np.testing.assert_allclose([entity.score for entity in found], probabilities.max(-1)[[1, 3]], rtol=1e-5)
    (nothing, (entity,)) = model.entities([["omega"], ["alpha"]])
    assert nothing == [] and entity[:-1] == ("X", "alpha", 0, 5, (0, 1))
    pairs = tf.data.Dataset.from_tensor_slices((tf.ragged.constant(words), tf.ragged.constant(tags)))
    expected = model.evaluate(words, tags, verbose=0)
    np.testing.assert_allclose(model.evaluate(pairs, verbose=0), expected, rtol=1e-4)
    np.testing.assert_allclose(model.evaluate(pairs.ragged_batch(16), verbose=0), expected, rtol=0.05, atol=0.02)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ([["a", "b"]], [["O"]], r"y\[0\] must hold one label per word, got 1 labels for the 2 words of x\[0\]"),
        (
            [["a"], ["b"]],
            [["O"], ["O", "O"]],
            r"y\[1\] must hold one label per word, got 2 labels for the 1 words of x\[1\]",
        ),
        ([["a"], ["b"]], [["O"]], "y must hold one list of labels per row, got 1 for 2 in x"),
        ([["a"]], [["odd"]], r"y\[0\]\[0\] must be one of .* got 'odd'"),
        ([["a"]], [[3]], r"y\[0\]\[0\] must be .* got 3"),
        ([["a"]], ["O"], r"y\[0\] must be a list of labels, one per word, got 'O'"),
        ([["a"]], [np.array("O")], r"y\[0\] must be a list of labels, one per word, got array\('O'"),
        ([["a"], "b"], [["O"], ["O"]], r"x\[1\] must be a list of words like other rows, got 'b'"),
        ([["a", 3]], [["O", "O"]], r"x\[0\]\[1\] must be a string, got int 3"),
        ([["a"]], None, "y must hold one list of labels per row of x, got none"),
        (
            [["beta"], ["alpha"] * 30],
            [["O"], ["O"] * 30],
            r"x\[1\] has 32 tokens with its special tokens.*24.*\['alpha'",
        ),
        ([], [], "x must hold at least one text, got none"),
    ],
)
def test_what_is_wrong_is_named(tagger, x, y, message):
    with pytest.raises((TypeError, ValueError), match=message):
        tagger.fit(x, y, verbose=0)


def test_more_words_than_labels_in_a_dataset(tagger):
    rows = (tf.ragged.constant([["a", "b"], ["c"]]), tf.ragged.constant([["O", "O"], ["O", "O"]]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="There must be one label per word"):
        tagger.evaluate(tf.data.Dataset.from_tensors(rows), verbose=0)


def test_words_that_are_cut_off(make_task):
    model = make_task(TokenClassifier, labels=TAGS, truncate=True, sequence_length=5)
    words = [["alpha", "beta", "gamma", "omega", "theta"]]
    probabilities = model.predict(words)[0]
    np.testing.assert_allclose(probabilities[:3], model.predict([words[0][:3]])[0], rtol=1e-5)
    np.testing.assert_array_equal(probabilities[3:], [[1, 0, 0]] * 2)
    assert np.isfinite(model.evaluate(words, [["O"] * 5], verbose=0)).all()


def test_entities_of_a_text_with_punctuation(tagger, monkeypatch):
    """Words without their commas, and places that count characters: those before are of two to four bytes."""
    text = "\u201eG\u00fcnther\u201c \U0001f600 met Otto, of \u6771\u4eac."
    words = ["\u201e", "G\u00fcnther", "\u201c", "\U0001f600", "met", "Otto", ",", "of", "\u6771", "\u4eac", "."]
    tags = {"G\u00fcnther": 1, "\u6771": 1, "\u4eac": 2, "Otto": 1, ",": 0}
    rows = [np.eye(3)[[tags.get(word, 0) for word in words]] * 0.7 + 0.1]
    monkeypatch.setattr(tagger, "predict_texts", lambda texts, batch_size: rows)
    found = tagger.entities(text)
    assert [(entity.text, entity.words) for entity in found] == [
        ("G\u00fcnther", (1, 2)),
        ("Otto", (5, 6)),
        ("\u6771\u4eac", (8, 10)),
    ]
    assert [(entity.start, entity.end) for entity in found] == [(1, 8), (16, 20), (25, 27)]
    for entity in found:
        assert text[entity.start : entity.end] == entity.text and entity.score == pytest.approx(0.8)


def test_texts_are_tokenized_as_a_whole(tagger, mask_tokenizer):
    text = "alpha, kapex. beta"
    assert len(tagger.tag(text)) == 5
    special = mask_tokenizer.start_id, mask_tokenizer.end_id
    ids = [special[0], *mask_tokenizer.tokenize(text).numpy().tolist(), special[1]]
    assert tagger.preprocessor([text])["token_ids"].numpy()[0, : len(ids)].tolist() == ids


def test_entities_need_names(make_task):
    with pytest.raises(ValueError, match="got labels=3"):
        make_task(TokenClassifier, labels=3).entities("alpha")
