"""Spans of characters as labels of a tagger: BIO tags of them, entities in an export."""

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from zoo.preprocessing import Entity, span_tags  # noqa: E402
from zoo.tasks import TokenClassifier  # noqa: E402
from zoo.tasks.entities import entities_in_graph  # noqa: E402

TEXTS = ["\U0001f600 G\u00fcnther M\u00fcller, of \u6771\u4eac.", "none", "born 4th 1999-05"]
SPANS = [[(2, 16, "PER"), (21, 23, "LOC")], [], [(5, 6, "DAY"), (9, 13, "YEAR")]]


def as_dicts(rows):
    return [[{"start": start, "end": end, "label": label} for start, end, label in row] for row in rows]


def test_tags_of_spans():
    tags = span_tags(TEXTS, as_dicts(SPANS), "kinds")
    assert tags[0] == ["O", "B-PER", "I-PER", "O", "O", "B-LOC", "I-LOC", "O"]
    assert tags[1:] == [["O"], ["O", "B-DAY", "O", "B-YEAR", "O", "O"]]
    # words that are covered in part
    assert span_tags(TEXTS[2:], as_dicts(SPANS[2:])) == [["O", "B-DAY", "B-YEAR"]]
    entity = Entity("PER", "G\u00fcnther M\u00fcller", 2, 16, (1, 3), 0.9)
    assert span_tags(TEXTS[:1], [[entity]])[0][:3] == ["O", "B-PER", "I-PER"]


@pytest.mark.parametrize(
    ("span", "message"),
    [
        ([(0, 5, "X")], r"y\[0\]: the span \(0, 5, 'X'\) must lie within the 4 characters of the text"),
        ([(2, 2, "X")], "and not be empty"),
        ([(0, 3, "X"), (1, 4, "Y")], r"must not overlap another, got \(0, 3\) too"),
        ([(2, 3, "X")], "must hold a word, got ' '"),
        ([(0, 1, "X"), (1, 2, "Y")], "must not share a word with another, got 'ab'"),
        ([(0.0, 1, "X")], r"y\[0\]\[0\]\['start'\] must be a number of characters, got 0.0"),
        ([(0, 1, "")], r"y\[0\]\[0\]\['label'\] must be a name"),
    ],
)
def test_wrong_spans_are_named(span, message):
    with pytest.raises((TypeError, ValueError), match=message):
        span_tags(["ab c"], as_dicts([span]), name="y", texts_name="x")


def test_tagger_learns_from_spans(make_task):
    tagger = make_task(TokenClassifier, labels=["O", "B-X", "I-X"])
    texts, spans = ["alpha, beta gamma", "omega"], as_dicts([[(0, 5, "X"), (7, 17, "X")], []])
    rows = tagger.preprocessor.examples(texts, spans)
    assert rows.targets.to_list() == [[1, 0, 1, 2], [0]]
    tagger.compile("sgd", run_eagerly=True)
    loss = tagger.evaluate(texts, [["B-X", "O", "B-X", "I-X"], ["O"]], verbose=0)
    np.testing.assert_allclose(tagger.evaluate(texts, spans, verbose=0), loss, rtol=1e-5)
    np.testing.assert_allclose(
        tagger.evaluate(["omega"], [[]], verbose=0)[0], -np.log(tagger.predict(["omega"])[0][0, 0])
    )
    with pytest.raises(ValueError, match=r"y\[0\]\[0\] must be one of .* got 'B-Y'"):
        tagger.fit(["alpha"], as_dicts([[(0, 5, "Y")]]), verbose=0)


def test_exported_entities_are_those_of_the_task(make_task, odd_texts):
    names = ["O", "B-X", "I-X", "I-Y", "B-Y"]
    tagger = make_task(TokenClassifier, labels=names)
    # all kinds of tags
    projection = tagger.head.projection
    projection.kernel.assign(np.random.default_rng(0).normal(size=projection.kernel.shape))
    (states,) = tagger.predict(["alpha beta gamma omega"])
    projection.bias.assign(-np.log(states.mean(0)))
    texts = [text if isinstance(text, str) else text.decode("utf-8", "replace") for text in odd_texts]
    served = tf.function(tagger.endpoints()["entities"].function)(tf.constant(texts))
    expected = tagger.entities(texts)
    assert sum(map(len, expected)) > 50
    for row, found in enumerate(expected):
        count = int(np.sum(served["labels"][row] != b""))
        assert count == len(found)
        for place, entity in enumerate(found):
            values = {name: served[name][row, place].numpy() for name in served}
            assert (values["labels"].decode(), values["texts"].decode()) == (entity.label, entity.text)
            assert values["starts"] == len(texts[row][: entity.start].encode())
            assert values["ends"] == len(texts[row][: entity.end].encode())
            np.testing.assert_allclose(values["scores"], entity.score, rtol=1e-4)
    assert "entities" not in make_task(TokenClassifier, labels=["NOUN", "VERB"]).endpoints()


def test_tags_of_all_orders():
    """I- without a beginning, two kinds side by side, a second beginning, the end of a text."""
    from zoo.preprocessing import decode_tags

    names = ["O", "B-X", "I-X", "B-Y", "I-Y", "E-X", "S-X", "L-Y", "U-Y"]
    ids = np.random.default_rng(0).integers(0, 9, (200, 5))
    texts = tf.constant(["a b c d e"] * 200)
    places = tf.RaggedTensor.from_tensor(tf.tile(tf.range(0, 10, 2, dtype=tf.int64)[None], [200, 1]))
    found = entities_in_graph(texts, places, places + 1, tf.one_hot(ids.ravel(), 9), names)
    for row, numbers in enumerate(ids):
        expected = decode_tags([names[number] for number in numbers])
        labels = [label.decode() for label in found["labels"][row].numpy() if label]
        spans = zip(labels, found["starts"][row].numpy() // 2, (found["ends"][row].numpy() + 1) // 2, strict=False)
        assert [(label, int(start), int(end)) for label, start, end in spans] == expected
