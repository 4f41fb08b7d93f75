import gzip

import pytest

from recipes.common.errors import DataError
from recipes.common.table import Table


def rows(table):
    return [(row.values, row.origin.rsplit("/", 1)[-1]) for row in table]


def write(path, text):
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def test_tsv_has_no_quoting(tmp_path):
    file = write(tmp_path / "a.tsv", 'say "hi\t1\tx\nno\t0\ty\n')
    assert rows(Table(file, ["2", "1"])) == [(("1", 'say "hi'), "a.tsv:1"), (("0", "no"), "a.tsv:2")]


def test_csv_with_header_and_quotes(tmp_path):
    file = write(tmp_path / "a.csv.gz", 'label,text\n1,"good, really"\n0,bad\n')
    assert rows(Table(file, ["text", "label"], header=True)) == [
        (("good, really", "1"), "a.csv.gz:2"),
        (("bad", "0"), "a.csv.gz:3"),
    ]


def test_json_lines_keep_types(tmp_path):
    file = write(tmp_path / "a.jsonl", '{"text": "a", "labels": ["x", "y"]}\n{"text": "b", "labels": []}')
    assert rows(Table(file, ["labels", "text"])) == [((["x", "y"], "a"), "a.jsonl:1"), (([], "b"), "a.jsonl:2")]


@pytest.mark.parametrize(
    ("name", "text", "columns", "message"),
    [
        ("a.tsv", "a\t1\nb\n", ["1", "2"], r"a\.tsv:2: wrong number of columns: 1, needed are 2"),
        ("a.tsv", "a\t1\n\n", ["1", "2"], r"a\.tsv:2: empty line"),
        ("a.jsonl", '{"a": 1}\n\n', ["a"], r"a\.jsonl:2: empty line"),
        (
            "a.jsonl",
            '{"a": "\\ud83d\\ude00"}\n{"a": "\\uD83D"}\n',
            ["a"],
            r"a\.jsonl:2: not .*surrogates",
        ),
        ("a.csv", "a\n" + 200_000 * "b" + "\n", ["1"], r"a\.csv:2: not a row of CSV: field larger than field limit"),
        ("a.jsonl", '{"a": 1}\nnot json\n', ["a"], r"a\.jsonl:2: not a JSON object"),
        ("a.jsonl", "[1]\n", ["a"], r"a\.jsonl:1: not a JSON object: but a list"),
        ("a.jsonl", '{"b": 1}\n', ["a"], r"a\.jsonl:1: key missing: 'a'; the line has the keys \['b'\]"),
        ("a.tsv", "", ["1"], "a.tsv is empty"),
        ("a.tsv", "x\ty\n", ["text"], "has no header, so its columns have numbers .* got the name 'text'"),
    ],
)
def test_bad_rows_name_their_place(tmp_path, name, text, columns, message):
    with pytest.raises(DataError, match=message):
        rows(Table(write(tmp_path / name, text), columns))


def test_bad_rows_can_be_skipped_and_are_counted(tmp_path):
    table = Table(write(tmp_path / "a.tsv", "a\t1\nb\n\nc\t2\n"), ["1", "2"], on_error="skip")
    assert [row.values for row in table] == [("a", "1"), ("c", "2")]
    assert dict(table.bad_lines.counts) == {"wrong number of columns": 1, "empty line": 1}
    assert [row.values for row in table] == [("a", "1"), ("c", "2")]  # counted anew, not twice
    assert table.bad_lines.total == 2


def test_width(tmp_path):
    file = write(tmp_path / "a.tsv", "a\tb\tc\na\tb\n")
    assert len(rows(Table(file, ["1", "2"]))) == 2
    with pytest.raises(DataError, match=r"a\.tsv:2: wrong number of columns: 2 instead of 3"):
        rows(Table(file, ["1", "2"], width=3))


def test_undecodable_bytes(tmp_path):
    (tmp_path / "a.tsv").write_bytes(b"a\t1\n\xff\t2\n")
    with pytest.raises(DataError, match=r"a\.tsv:2:1: undecodable byte"):
        rows(Table(tmp_path / "a.tsv", ["1", "2"]))


def test_missing_column_and_unknown_format(tmp_path):
    with pytest.raises(DataError, match="no column 'text'; the header names"):
        rows(Table(write(tmp_path / "a.csv", "label,words\n1,a\n"), ["text"], header=True))
    with pytest.raises(DataError, match="cannot tell the format of a.xml"):
        Table("a.xml", ["1"])
    with pytest.raises(DataError, match="no column of a.tsv"):
        Table("a.tsv", [])
