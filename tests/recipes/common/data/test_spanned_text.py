"""Texts with spans of characters: files, scores, errors; weights of labels; lists of errors."""

import json

import numpy as np
import pytest

from recipes.common.data.spanned_text import SPANNED, read_spanned, span_errors, with_tags
from recipes.common.errors import BadLines, ConfigError, DataError
from recipes.common.evaluation.error_lists import label_errors
from recipes.common.evaluation.evaluation import results_of
from recipes.common.evaluation.label_metrics import span_metrics
from recipes.common.training.class_weights import class_weights
from zoo.preprocessing import Entity
from zoo.preprocessing.labels import Labels

TEXT = "Ada Lovelace, of London"


def span(start, end, label):
    return {"start": start, "end": end, "label": label}


def test_files(tmp_path, capsys):
    path = tmp_path / "a.jsonl"
    rows = [{"text": TEXT, "spans": [span(17, 23, "LOC"), span(0, 12, "PER")]}, {"text": "in mid-May", "spans": []}]
    rows.append({"text": "in mid-May", "spans": [{**span(7, 10, "DAY"), "note": 1}]})
    path.write_text("\n".join(map(json.dumps, rows)))
    found = read_spanned([str(path)], BadLines("raise"), "punctuation")
    assert found[0].tags == ["B-PER", "I-PER", "O", "O", "B-LOC"] and found[0].origin.endswith("a.jsonl:1")
    assert found[2].tags == ["O", "B-DAY"] and found[2].spans == [span(7, 10, "DAY")]
    assert "1 of 3 spans do not begin and end with words" in capsys.readouterr().out
    assert with_tags(found, "kinds")[2].tags == ["O", "O", "O", "B-DAY"]
    with path.open("a") as file:
        file.write('\n{"text": "ab", "spans": [{"start": 0, "end": 3, "label": "X"}]}')
    with pytest.raises(
        DataError, match=r"a.jsonl:4: spans that do not fit: .*\(0, 3, 'X'\) must lie within the 2 char"
    ):
        read_spanned([str(path)], BadLines("raise"), "punctuation")
    bad = BadLines("skip")
    assert len(read_spanned([str(path)], bad, "punctuation")) == 3 and bad.total == 1


def test_data_made_by_code():
    for row in SPANNED["date_spans"]().validation[:50]:
        assert with_tags([row], "punctuation")[0].tags == row.tags


def test_scores_and_errors_of_spans():
    truth = [[span(0, 12, "PER"), span(17, 23, "LOC")], []]
    given = [
        [Entity("PER", "Ada", 0, 3, (0, 1), 0.7), Entity("LOC", "London", 17, 23, (4, 5), 0.9)],
        [Entity("LOC", "x", 0, 1, (0, 1), 0.8)],
    ]
    scores, by_label = map(results_of, span_metrics(truth, given))
    assert scores["span_precision"] == round(1 / 3, 4) and scores["span_recall"] == 0.5 and scores["span_f1"] == 0.4
    assert by_label == {"LOC": round(2 / 3, 4), "PER": 0.0}
    (row, _), text = SPANNED["date_spans"]().validation[:2], TEXT
    rows = [row._replace(text=text, spans=truth[0]), row._replace(text="x", spans=[])]
    values = [np.array([[0.7, 0.3], [0.4, 0.6], [1, 0], [1, 0], [0.1, 0.9]]), np.array([[0.8, 0.2]])]
    errors = span_errors(rows, given, values, "punctuation")
    assert [error[:6] for error in errors] == [
        (0.7, "wrong", "PER", "Ada", 0, 3),
        (pytest.approx(0.65), "missing", "PER", "Ada Lovelace", 0, 12),
        (0.8, "wrong", "LOC", "x", 0, 1),
    ]
    assert errors[0][6] == "[Ada] Lovelace, of London"


def test_weights_are_those_of_scikit_learn():
    from sklearn.utils.class_weight import compute_class_weight

    labels, found = Labels(["a", "b", "c"]), ["a"] * 5 + ["b"] * 2
    expected = compute_class_weight("balanced", classes=np.array(["a", "b"]), y=found)
    np.testing.assert_allclose(class_weights("balanced", labels, found), [*expected, 1], rtol=1e-6)
    # of rows: three without b for each with it
    np.testing.assert_allclose(class_weights("balanced", labels, found, rows=8), [3 / 5, 3, 1], rtol=1e-6)
    assert class_weights({"b": 3}, labels, found).tolist() == [1, 3, 1] and class_weights(None, labels, found) is None
    with pytest.raises(ConfigError, match="training: each key of class_weights must be one of .* got 'd'"):
        class_weights({"d": 2}, labels, found)


def test_errors_of_several_labels():
    values = np.array([[0.9, 0.2], [0.4, 0.6], [0.1, 0.3]])
    truth, predicted = [["a", "b"], ["b"], ["c"]], [["a"], ["b"], []]
    errors = label_errors(["a", "b"], truth, predicted, values, [0.5, 0.5], [["x"], ["y"], ["z"]])
    assert errors == [(pytest.approx(0.8), ["a"], ["a", "b"], "", "x"), (1.0, [], ["c"], "", "z")]
