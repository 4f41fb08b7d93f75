"""One rule for labels, whatever the file: no new class for another writing, for a missing value or for white space."""

import json

import pytest

from recipes.common.data.labelled_text import read_examples
from recipes.common.data.retrieval import read_beir
from recipes.common.data.spanned_text import read_spanned
from recipes.common.data.tagged_words import read_tagged
from recipes.common.errors import BadLines, DataError


def labels_of(path, **options):
    columns = {"text_columns": ["text"], "label_column": "label", **options}
    return [row.label for row in read_examples([str(path)], BadLines("raise"), **columns)]


def write(path, *fields):
    """A file whose labels stand in lines 2 and on, of JSON or CSV."""
    if path.suffix == ".jsonl":
        lines = ["", *(f'{{"text": "a", "label": {field}}}' for field in fields)]
        path.write_text("\n".join(lines[1:]) + "\n")
    else:
        path.write_text("text,label\n" + "".join(f"a,{field}\n" for field in fields))
    return path


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        *(("a.jsonl", ("1", field)) for field in ("1.0", "true", '"1.0"', '"True"', '"1e0"', '"\uff11"', '"\u0661.0"')),
        *(("a.jsonl", ("false", field)) for field in ("0", '"FALSE"', "0.0")),
        *(("a.csv", ("1", field)) for field in ("1.0", "true", "+1", " 1.00")),
        ("a.csv", ("-1", "-1.0")),
        ("a.csv", ("20", "2E1")),
        ("a.csv", ("0", "-0")),
        # composed and not composed, which look the same
        ("a.csv", ("caf\u00e9", "cafe\u0301")),
        ("a.jsonl", ('"\\u1112\\u1161\\u11ab"', '"\\ud55c"')),
    ],
)
def test_two_writings_of_one_label_are_an_error_with_both_places(tmp_path, name, fields):
    first, second = (1, 2) if name == "a.jsonl" else (2, 3)
    with pytest.raises(DataError, match=rf"{name}:{second}: .*{name}:{first}"):
        labels_of(write(tmp_path / name, *fields))


@pytest.mark.parametrize(
    ("name", "fields", "labels"),
    [
        ("a.jsonl", ('" x "', '"x"', '"\\u00a0x"'), ["x", "x", "x"]),
        ("a.jsonl", ("1", '"1"', "2"), ["1", "1", "2"]),
        ("a.jsonl", ("true", "false", '"true"'), ["true", "false", "true"]),
        ("a.csv", (" x ", "x", '" x"'), ["x", "x", "x"]),
        # codes, which are no whole numbers
        ("a.csv", ("250.1", "250.10", "007", "7"), ["250.1", "250.10", "007", "7"]),
        ("a.csv", ("None", "NA", "us", "US"), ["None", "NA", "us", "US"]),
        ("a.csv", ("1e-3", "0.001", "1e9999", "1\u00b2"), ["1e-3", "0.001", "1e9999", "1\u00b2"]),
        # the code of a language, which is no missing value if JSON quotes it
        ("a.jsonl", ('"nan"', '"en"'), ["nan", "en"]),
    ],
)
def test_white_space_and_types_make_no_new_label(tmp_path, name, fields, labels):
    assert labels_of(write(tmp_path / name, *fields)) == labels


@pytest.mark.parametrize("field", ["NaN", "Infinity", "null", '""', '"  "', "{}", '["x"]'])
def test_what_is_no_label_of_json(tmp_path, field):
    with pytest.raises(DataError, match=r"a\.jsonl:2: no label: .*name"):
        labels_of(write(tmp_path / "a.jsonl", '"x"', field))


@pytest.mark.parametrize("field", ["", "  ", "nan", "NaN"])
def test_what_is_no_label_of_a_table(tmp_path, field):
    with pytest.raises(DataError, match=r"a\.csv:3: no label: .*name"):
        labels_of(write(tmp_path / "a.csv", "x", field))


@pytest.mark.parametrize("field", ["true", '"1_000"', "NaN", "null", '""', '"x"', "[1]"])
def test_what_is_no_number(tmp_path, field):
    with pytest.raises(DataError, match=r"a\.jsonl:2: no label: .*number"):
        labels_of(write(tmp_path / "a.jsonl", "0.5", field), numeric=True)


def test_several_labels_of_a_text(tmp_path):
    fields = ('"x, y"', '["y", " x"]', "[]", '""', '"x,,"', "1")
    found = labels_of(write(tmp_path / "a.jsonl", *fields), label_separator=",")
    assert found == [["x", "y"], ["y", "x"], [], [], ["x"], ["1"]]
    for field, value in (
        ('["x", null]', "null"),
        ('["x", NaN]', "nan"),
        ('["x", ""]', "''"),
        ('["x", ["y"]]', r"\['y'\]"),
        ('"x,x"', "'x'.*'x,x'"),
        ("null", "null"),
        ("NaN", "nan"),
        ('["1.0"]', "'1.0'"),
    ):
        with pytest.raises(DataError, match=rf"a\.jsonl:2: no label: .*{value}"):
            labels_of(write(tmp_path / "a.jsonl", '["1"]', field), label_separator=",")


def test_tags_and_labels_of_spans_follow_the_rule(tmp_path):
    (tmp_path / "a.conll").write_text("a\t1\nb\t 1 \n\nc\t1.0\n")
    with pytest.raises(DataError, match=r"a\.conll:4: .*'1\.0'.*a\.conll:1"):
        read_tagged([str(tmp_path / "a.conll")], BadLines("raise"))
    (tmp_path / "a.conll").write_text("a\tO\nb\tnan\n")
    with pytest.raises(DataError, match=r"a\.conll:2: .*nan"):
        read_tagged([str(tmp_path / "a.conll")], BadLines("raise"))
    row = {"text": "Ada", "spans": [{"start": 0, "end": 3, "label": " PER "}]}
    (tmp_path / "a.jsonl").write_text(json.dumps(row) + "\n")
    assert read_spanned([str(tmp_path / "a.jsonl")], BadLines("raise"), "kinds")[0].spans[0]["label"] == "PER"
    row["spans"][0]["label"] = float("nan")
    (tmp_path / "a.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(DataError, match=r"a\.jsonl:1: .*nan"):
        read_spanned([str(tmp_path / "a.jsonl")], BadLines("raise"), "kinds")


def test_ids_and_grades_of_a_search_follow_the_rule(tmp_path):
    queries, corpus, relevance = (str(tmp_path / name) for name in ("q.jsonl", "c.jsonl", "r.tsv"))

    def read(query='{"_id": 1, "text": "a"}', grades="1\td\t1\n"):
        (tmp_path / "q.jsonl").write_text(query + "\n")
        (tmp_path / "c.jsonl").write_text('{"_id": "d", "text": "b"}\n')
        (tmp_path / "r.tsv").write_text("query-id\tcorpus-id\tscore\n" + grades)
        return read_beir(queries, corpus, relevance, BadLines("raise"))

    assert read().relevant == {"1": {"d": 1.0}}
    for options, place in (
        ({"query": '{"_id": null, "text": "a"}'}, r"q\.jsonl:1: .*null"),
        ({"query": '{"_id": NaN, "text": "a"}'}, r"q\.jsonl:1: .*nan"),
        ({"grades": "1\td\t1\n1\td\t2\n"}, r"r\.tsv:3: .*twice"),
        ({"grades": "1\td\t1_0\n"}, r"r\.tsv:2: .*1_0"),
    ):
        with pytest.raises(DataError, match=place):
            read(**options)
