"""Which rows are used: limits, and validation sets that are divided off."""

import dataclasses
import json
from collections import Counter

import pytest

from recipes import classify, language_model
from recipes.common.data.choosing import hold_out, limited
from recipes.common.data.data_config import check_data
from recipes.common.data.data_sets import Source, Splits, TextPair, open_parts
from recipes.common.data.labelled_text import LABELLED, LabelledText, read_examples
from recipes.common.data.plain_text import PLAIN, read_plain
from recipes.common.data.questions import Question
from recipes.common.data.tagged_words import TaggedWords
from recipes.common.errors import ConfigError, DataError
from recipes.common.evaluation.held_out import HeldOut, open_rows

SOURCE = Source(LABELLED, lambda files, bad: read_examples(files, bad, text_columns=["text"], label_column="label"))
FILES = {"text_columns": ["text"], "label_column": "label"}


def examples(counts):
    labels = [label for label, count in counts.items() for _ in range(count)]
    return [LabelledText((f"text {place}",), label, f"a.tsv:{place}") for place, label in enumerate(labels)]


def test_each_label_keeps_its_share():
    rows = examples({"common": 800, "rare": 40, "once": 1})
    train, validation = hold_out(rows, 0.1)
    assert Counter(row.label for row in validation) == {"common": 80, "rare": 4}
    # in their order, each in one part
    assert sorted(train + validation, key=rows.index) == rows and train == [row for row in rows if row in train]
    assert hold_out(rows, 0.1) == (train, validation)
    # by what they hold: the order of the file makes no difference
    assert {row.texts for row in hold_out(rows[::-1], 0.1)[1]} == {row.texts for row in validation}
    assert {place // 100 for place in (rows.index(row) for row in validation) if place < 800} == set(range(8))


def test_each_label_of_several_is_in_the_training_data():
    """Labels of one row each would else be in the validation alone in about every fifth draw."""
    names = [f"rare {number}" for number in range(20)]
    rows = [LabelledText((f"text {place}",), ["common"], f"a:{place}") for place in range(80)]
    rows += [LabelledText((f"own {name}",), [name, "common"], "b:1") for name in names]
    train, validation = hold_out(rows, 0.2)
    assert len(validation) == 20 and {label for row in train for label in row.label} == {"common", *names}
    words = [TaggedWords((f"word {place}", "end"), ("B", "O"), f"c:{place}") for place in range(40)]
    words += [TaggedWords((name, "end"), (name, "O"), "d:1") for name in names]
    train, validation = hold_out(words, 0.2)
    assert len(validation) == 12 and {tag for row in train for tag in row.tags} == {"B", "O", *names}
    # a number is no label
    values = [LabelledText((f"text {place}",), float(place), f"a:{place}") for place in range(10)]
    assert len(hold_out(values, 0.2)[1]) == 2


def test_rows_with_one_input_stay_together():
    rows = [TextPair(f"source {number // 3}", f"target {number}", f"a:{number}") for number in range(300)]
    train, validation = hold_out(rows, 0.2)
    assert not {row.source for row in train} & {row.source for row in validation} and len(validation) == 60
    # all questions on one context, as models could learn it by heart
    rows = [Question(f"question {number}", f"context {number % 10}", (), "", "") for number in range(50)]
    train, validation = hold_out(rows, 0.3)
    assert not {row.context for row in train} & {row.context for row in validation} and len(validation) == 15


def test_groups_with_one_input_stay_together():
    """A text of two speakers would be learned from one and asked of the other."""
    rows = [TextPair(f"source {number // 2}", f"target {number}", f"a:{number}") for number in range(200)]
    # a source is said by two speakers that stand apart, a speaker says four sources
    speakers = {row.origin: str(number % 2 * 25 + number // 8) for number, row in enumerate(rows)}
    train, validation = hold_out(rows, 0.2, lambda row: speakers[row.origin])
    for name in (lambda row: row.source, lambda row: speakers[row.origin]):
        assert not set(map(name, train)) & set(map(name, validation))
    assert len(validation) == 40
    # the order of the file makes no difference
    assert sorted(hold_out(rows[::-1], 0.2, lambda row: speakers[row.origin])[1]) == sorted(validation)


def test_running_text():
    lines = [f"line {number}\n" for number in range(10)]
    assert hold_out(["".join(lines)], 0.2) == (["".join(lines[:8])], ["".join(lines[8:])])
    train, validation = hold_out(lines, 0.2)
    assert len(validation) == 2 and sorted(train + validation) == lines
    for rows in (["one line"], ["a", "a"]):
        with pytest.raises(DataError, match="data.validation_share 0.5 of . training rows in 1 groups leaves no row"):
            hold_out(rows, 0.5)


def test_limits():
    rows = examples({"a": 50, "b": 50})
    some = limited(rows, 30)
    assert (
        len(some) == 30 and some == [row for row in rows if row in some] and {row.label for row in some} == {"a", "b"}
    )
    # the more, the same and others
    assert set(map(str, some)) < set(map(str, limited(rows, 60)))
    assert limited(rows, 100) is rows and limited(rows, None) is rows


def write(folder, rows):
    text = "".join(f"{text}\t{label}\t{speaker}\n" for text, label, speaker in rows)
    (folder / "a.tsv").write_text("text\tlabel\tspeaker\n" + text)
    return [str(folder / "a.tsv")]


def test_parts_of_a_run_and_of_its_evaluation(tmp_path, capsys):
    files = write(tmp_path, [(f"text {number}", "ab"[number % 2], f"speaker {number % 7}") for number in range(140)])
    data = classify.DataConfig(files, **FILES, validation_share=0.3, group_column="speaker", limit=30)
    train, validation, test = open_parts(data, SOURCE)
    assert test == validation and len(train) == len(validation) == 30
    assert "validation: 40 of the 140 training rows (data.validation_share)" in capsys.readouterr().out
    speakers = [{int(row.texts[0].split()[1]) % 7 for row in part} for part in (train, validation)]
    assert not speakers[0] & speakers[1] and len(speakers[1]) == 2
    # `recipes.evaluate` finds the same rows
    for split, expected in (("test", validation), ("validation", validation), ("train", train)):
        assert open_rows(HeldOut(None, None, None, data, set(), split, {}), SOURCE) == (expected, 0)
    with pytest.raises(DataError, match="data.group_column: .*a.tsv:1: there is no column 'talker'"):
        open_parts(classify.DataConfig(files, **FILES, validation_share=0.3, group_column="talker"), SOURCE)


def test_rows_without_a_group(tmp_path, capsys):
    """They are bad lines like any other: a row in a group of its own might be one that another row repeats."""
    rows = [{"text": f"text {number}", "label": "ab"[number % 2], "speaker": number // 4} for number in range(40)]
    del rows[3]["speaker"]
    rows[8]["speaker"] = None
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = classify.DataConfig([str(tmp_path / "a.jsonl")], **FILES, validation_share=0.25, group_column="speaker")
    with pytest.raises(DataError, match=r"a.jsonl:4: no group: 'speaker' is missing or null"):
        open_parts(data, SOURCE)
    train, validation, _ = open_parts(dataclasses.replace(data, on_error="skip"), SOURCE)
    assert len(train) + len(validation) == 38
    assert "no group" in capsys.readouterr().out


def test_groups_of_an_array_in_one_line(tmp_path):
    """As `json.dump` writes it: each row has its own group, though all begin in line 1."""
    rows = [{"text": f"text {number}", "label": "ab"[number % 2], "speaker": number // 4} for number in range(40)]
    (tmp_path / "a.json").write_text(json.dumps(rows))
    data = classify.DataConfig([str(tmp_path / "a.json")], **FILES, validation_share=0.25, group_column="speaker")
    train, validation, _ = open_parts(data, SOURCE)
    speakers = [{int(row.texts[0].split()[1]) // 4 for row in part} for part in (train, validation)]
    assert not speakers[0] & speakers[1] and len(train) + len(validation) == 40
    assert train[0].origin == f"{tmp_path / 'a.json'}:1" and train[1].origin == f"{tmp_path / 'a.json'}:1 (2)"


def test_running_text_has_no_groups(tmp_path):
    (tmp_path / "a.jsonl").write_text("".join(f'{{"text": "text {number}", "speaker": "b"}}\n' for number in range(9)))
    data = language_model.DataConfig([str(tmp_path / "a.jsonl")], validation_share=0.25, group_column="speaker")
    source = Source(PLAIN, lambda files, bad: read_plain(files, bad, unit="line"))
    with pytest.raises(ConfigError, match="group_column must be null with running text, which has no columns, got 's"):
        open_parts(data, source)


def test_files_of_an_evaluation_are_whole(tmp_path):
    """Of a run with a share and a limit, `recipes.evaluate --data.validation other.tsv` reads all rows of that file."""
    rows = [(f"text {number}", "ab"[number % 2], "c") for number in range(40)]
    own, other = tmp_path / "own", tmp_path / "other"
    own.mkdir(), other.mkdir()
    data = classify.DataConfig(write(own, rows), write(other, rows[:20]), **FILES, validation_share=0.25, limit=8)
    found, _ = open_rows(HeldOut(None, None, None, data, {"validation"}, "validation", {}), SOURCE)
    assert [row.texts[0] for row in found] == [text for text, *_ in rows[:20]]
    # a limit of the evaluation holds
    assert len(open_rows(HeldOut(None, None, None, data, {"validation", "limit"}, "validation", {}), SOURCE)[0]) == 8
    # a test set that the run itself has named
    named = dataclasses.replace(data, test=data.validation)
    for given, expected in ((set(), 8), ({"test"}, 20)):
        assert len(open_rows(HeldOut(None, None, None, named, given, "test", {}), SOURCE)[0]) == expected


def test_a_validation_set_in_place_of_a_test_set_is_limited():
    splits = Splits(examples({"a": 50}), examples({"b": 40, "c": 40}))
    data = classify.DataConfig(["named"], test=["named"], limit=30)
    train, validation, test = open_parts(data, Source({"named": lambda: splits}, None))
    assert len(train) == len(validation) == 30 and test == validation


def test_keys_that_depend_on_each_other():
    for words, message in (
        ({"validation_share": 0.1, "validation": ["b.tsv"]}, "validation_share must be null with data.validation, got"),
        ({"group_column": "3"}, "data.group_column must be null without data.validation_share, got '3'"),
    ):
        with pytest.raises(ConfigError, match=message):
            check_data(classify.DataConfig(["a.tsv"], **words))
    with pytest.raises(ConfigError, match="data.group_column must be null with a named data set"):
        check_data(classify.DataConfig(group_column="3", validation_share=0.1))
    check_data(classify.DataConfig(validation_share=0.1))
    with pytest.raises(DataError, match="data.validation must be given, .*, or data.validation_share"):
        open_parts(classify.DataConfig(["a.tsv"]), Source({}, lambda files, bad: ["a"]))
