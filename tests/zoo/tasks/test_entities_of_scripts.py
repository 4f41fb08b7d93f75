"""Entities of raw texts in many scripts: as Transformers' pipeline finds them, in Python and in an export."""

import json
from pathlib import Path

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from zoo.preprocessing import span_tags, words_of  # noqa: E402
from zoo.preprocessing.tags import decode_tags  # noqa: E402
from zoo.tasks import MaskedLM, TokenClassifier  # noqa: E402

REFERENCE = Path(__file__).parents[2] / "reference" / "token_classification"
STRATEGIES = ("none", "simple", "first", "average", "max")


@pytest.fixture(scope="module", params=["bert", "roberta", "xlm-roberta"])
def tagger(request):
    return TokenClassifier.from_preset(REFERENCE / request.param)


@pytest.fixture(scope="module")
def golden(tagger):
    return json.loads((REFERENCE / tagger.backbone.origin.model_type / "golden.json").read_text("utf-8"))


def test_strategies_give_what_the_pipeline_gives(tagger, golden):
    texts = golden["texts"]
    endpoints = tagger.endpoints()
    # one program for all strategies, as an export has it
    endpoint = tf.function(
        endpoints["aggregate"].function,
        input_signature=[tf.TensorSpec([None], tf.string), tf.TensorSpec([], tf.string)],
    )
    words = endpoints["entities"].function(tf.constant(texts))
    for name, value in endpoint(texts, "words").items():
        if name == "scores":  # a graph fuses biases into products, eager execution does not
            np.testing.assert_allclose(value.numpy(), words[name].numpy(), rtol=1e-5)
        else:
            np.testing.assert_array_equal(value.numpy(), words[name].numpy())
    found = tagger.entities(texts, aggregation_strategy="words")
    assert [len(row) for row in found] == [int((row != b"").sum()) for row in words["labels"].numpy()]
    for strategy in STRATEGIES:
        found = tagger.entities(texts, aggregation_strategy=strategy)
        served = {name: value.numpy() for name, value in endpoint(texts, strategy).items()}
        for row, (text, expected) in enumerate(zip(texts, golden["entities"][strategy], strict=True)):
            got = [(entity.label, entity.start, entity.end) for entity in found[row]]
            assert got == [tuple(each[:3]) for each in expected], (strategy, text)
            scores = [each[3] for each in expected]
            np.testing.assert_allclose([entity.score for entity in found[row]], scores, rtol=1e-3, atol=1e-5)
            assert [entity.text for entity in found[row]] == [text[start:end] for _, start, end in got]
            assert [label.decode() for label in served["labels"][row] if label] == [label for label, *_ in got]
            for side, name in enumerate(("starts", "ends")):
                places = [len(text[: entity[1 + side]].encode()) for entity in got]
                assert served[name][row][: len(got)].tolist() == places
            np.testing.assert_allclose(served["scores"][row][: len(got)], scores, rtol=1e-3, atol=1e-5)


def test_each_character_of_chinese_is_a_word_of_bert(golden, tagger):
    if tagger.preprocessor.tokenizer.continues_word is None:
        pytest.skip("tokens of bytes are parts of characters")
    text, expected = golden["texts"][0], golden["entities"]["first"][0]
    assert [(entity.label, entity.start, entity.end) for entity in tagger.entities(text)] == [
        tuple(each[:3]) for each in expected
    ]
    assert len(tagger.tag(text)) == len(words_of(text, "punctuation")) == 11


def test_words_are_in_the_tokens_that_represent_them(tagger, golden):
    """The first token that holds a part of a word, found one by one."""
    preprocessor = tagger.preprocessor
    for text in golden["texts"]:
        ids, starts, ends = preprocessor.tokenizer.tokenize_with_offsets(text)
        tokens = [
            (start, end, preprocessor.tokenizer.is_space[token])
            for token, start, end in zip(ids.numpy(), starts.numpy(), ends.numpy(), strict=True)
        ]
        words = words_of(text, "punctuation")
        expected, at = [], 0
        for word in words:
            at = text.index(word, at)
            inside = (start < at + len(word) and end > at and not blank for start, end, blank in tokens)
            expected.append(1 + list(inside).index(True))
            at += len(word)
        positions = preprocessor([text])["word_positions"].numpy()[0]
        assert positions[: len(words)].tolist() == expected and set(positions[len(words) :]) <= {-1}
        # the export and training see the same
        inputs = preprocessor.inference_batch(tf.constant([text]))
        assert inputs["word_positions"].numpy()[0].tolist() == positions.tolist()


def test_one_word_of_a_token_counts_in_training(tagger, golden):
    text = golden["texts"][1]
    labels = [["O"] * len(words_of(text, "punctuation"))]
    inputs, _, weights = tagger.preprocessor([text], labels)
    positions = inputs["word_positions"].numpy()[0]
    positions = positions[positions >= 0].tolist()
    assert len(positions) == len(labels[0])
    assert weights.numpy()[0, : len(positions)].tolist() == [positions.index(at) == k for k, at in enumerate(positions)]
    assert weights.numpy().sum() == len(set(positions))


def test_two_spans_in_a_clause():
    text = "\u6211\u4f4f\u5728\u5317\u4eac\u548c\u4e0a\u6d77\u3002"
    spans = [{"start": 3, "end": 5, "label": "LOC"}, {"start": 6, "end": 8, "label": "LOC"}]
    (tags,) = span_tags([text], [spans])
    assert decode_tags(tags) == [("LOC", 3, 5), ("LOC", 6, 8)] and len(tags) == 9


@pytest.mark.parametrize(
    ("labels", "best", "expected"),
    [
        (["O", "B-X", "I-X"], "B-X", ["B-X", "I-X", "I-X"]),
        (["O", "B-X", "I-X", "E-X", "S-X"], "S-X", ["B-X", "I-X", "E-X"]),
        (["O", "B-X", "I-X", "L-X", "U-X"], "L-X", ["I-X", "I-X", "L-X"]),
        (["NOUN", "VERB"], "VERB", ["VERB"] * 3),
    ],
)
def test_words_of_one_token_are_one_part_of_an_entity(make_task, labels, best, expected):
    logits = np.tile(np.eye(len(labels))[labels.index(best)] * 9, (1, 4, 1)).astype("float32")
    tagger = make_task(TokenClassifier, labels=labels)
    values = np.array(tagger.probabilities(logits, np.array([[1, 1, 1, 2]])))[0]
    assert [labels[number] for number in values.argmax(-1)] == [*expected, best]
    np.testing.assert_allclose(values.sum(-1), 1.0, rtol=1e-5)


def test_strategies_that_cannot_be(make_task):
    tagger = make_task(TokenClassifier, labels=["O", "B-X"])
    with pytest.raises(ValueError, match="aggregation_strategy must be one of .* got 'last'"):
        tagger.entities("alpha", aggregation_strategy="last")
    with pytest.raises(ValueError, match="aggregation_strategy must be 'words' for lists of words, got 'simple'"):
        tagger.entities([["alpha"]], aggregation_strategy="simple")
    endpoint = tf.function(tagger.endpoints()["aggregate"].function)
    # the second is no UTF-8
    for strategy in (b"last", b"\xff\xfe"):
        with pytest.raises(tf.errors.InvalidArgumentError, match="strategy must be one of words, none, simple"):
            endpoint(tf.constant(["alpha"]), tf.constant(strategy))
    assert tagger.entities(["", "alpha"], aggregation_strategy="simple")[0] == []


def test_strategies_in_windows(make_task, texts):
    """A token of a long text is seen in a window, and has the probabilities of the text alone where it fits one."""
    long = [" ".join(texts[:20]), *texts[:3]]
    tagger = make_task(TokenClassifier, labels=["O", "B-X", "I-X"], stride=6, seed=3)
    found = tagger.entities(long, aggregation_strategy="none")
    alone = tagger.entities(long[1:], aggregation_strategy="none")
    # the last bits of a sum depend on how many rows are computed together
    rounded = [[entity._replace(score=pytest.approx(entity.score, rel=1e-5)) for entity in text] for text in alone]
    assert found[1:] == rounded
    served = tagger.endpoints()["aggregate"].function(tf.constant(long), tf.constant("none"))
    assert [int((row != b"").sum()) for row in served["labels"].numpy()] == [*map(len, found)]


def test_whole_words_of_bert_and_of_scripts_without_spaces(golden, tagger, make_task):
    tokenizer = tagger.preprocessor.tokenizer
    preprocessor = MaskedLM.preprocessor_class(tokenizer, whole_words=True)
    found = preprocessor.training_tokens(tf.constant(golden["texts"]))
    for text, ids, words in zip(golden["texts"], found["ids"].to_list(), found["words"].to_list(), strict=True):
        assert ids == tokenizer.tokenize(text).numpy().tolist()
        pieces = [tokenizer.id_to_token(token) for token in ids]
        if "\u0e09" in text:
            # of the 12 characters of this text with their marks, a token may hold several
            assert words[0] == 0 and set(np.diff(words)) <= {0, 1} and 4 < words[-1] + 1 <= 12
        elif tokenizer.continues_word is not None and "\u30bf" not in text:  # BERT does not split Katakana
            assert words == (np.cumsum([not piece.startswith("##") for piece in pieces]) - 1).tolist(), text
        else:
            # and a space behind the last word
            assert words[-1] + 1 <= len(words_of(text, "symbols")) + text.endswith(" ")
