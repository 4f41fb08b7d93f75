import csv
import gzip
import io
import random

import pytest

from recipes.common.data.lines import read_lines
from recipes.common.data.text_files import read_table
from recipes.common.errors import BadLines, DataError


def rows(file, columns, **options):
    table = read_table(file, columns, BadLines("raise"), **options)
    return [(row.values, row.origin.rsplit("/", 1)[-1]) for row in table]


def write(path, text):
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def test_quotes_within_cells_of_tsv_are_characters(tmp_path):
    file = write(tmp_path / "a.tsv", 'say "hi\t1\tx\nno\t0\ty\n')
    assert rows(file, ["2", "1"]) == [(("1", 'say "hi'), "a.tsv:1"), (("0", "no"), "a.tsv:2")]


def test_csv_with_header_and_quotes(tmp_path):
    file = write(tmp_path / "a.csv.gz", 'label,text\n1,"good, really"\n0,bad\n')
    assert rows(file, ["text", "label"], header=True) == [
        (("good, really", "1"), "a.csv.gz:2"),
        (("bad", "0"), "a.csv.gz:3"),
    ]


def test_an_array_of_json(tmp_path):
    text = '\n[ {"a": 1,\n "b": "]"},\n{"a": "\\u00e4"}\n]\n'
    assert rows(write(tmp_path / "a.json", text), ["a"]) == [((1,), "a.json:2"), (("\xe4",), "a.json:4")]
    for text, message in (
        ('[{"a": 1}\n {"a": 2}]', r"a\.json:2: the array of JSON is broken"),
        ('[{"a": 1},\n]', r"a\.json:2: the array of JSON is broken"),
        ('[{"a": 1}', r"a\.json:1: the array of JSON is broken"),
        ('[{"a": 1}]\n{}', r"a\.json:2: there is more behind the array"),
        ('[{"a": 1},\n 7]', r"a\.json:2: not a JSON object: but a int"),
        ("[" * 100_000, r"a\.json:1: the array of JSON is broken: nested too deeply"),
        ("[]", "has no rows"),
    ):
        with pytest.raises(DataError, match=message):
            rows(write(tmp_path / "a.json", text), ["a"])


def test_json_lines_keep_types(tmp_path):
    file = write(tmp_path / "a.jsonl", '{"text": "a", "labels": ["x", "y"]}\n{"text": "b", "labels": []}')
    assert rows(file, ["labels", "text"]) == [((["x", "y"], "a"), "a.jsonl:1"), (([], "b"), "a.jsonl:2")]


@pytest.mark.parametrize(
    ("name", "text", "columns", "message"),
    [
        ("a.tsv", "a\t1\nb\n", ["1", "2"], r"a\.tsv:2: wrong number of columns: 1 instead of 2"),
        ("a.tsv", "a\t1\n\n", ["1", "2"], r"a\.tsv:2: empty line"),
        ("a.jsonl", '{"a": 1}\n\n', ["a"], r"a\.jsonl:2: empty line"),
        (
            "a.jsonl",
            '{"a": "\\ud83d\\ude00"}\n{"a": "\\uD83D"}\n',
            ["a"],
            r"a\.jsonl:2: not .*surrogates",
        ),
        (
            "a.csv",
            "a\n" + (1 + (16 << 20)) * "b" + "\n",
            ["1"],
            r"a\.csv:2: not a row of CSV: field larger than field limit \(16777216\)",
        ),
        ("a.jsonl", '{"a": 1}\nnot json\n', ["a"], r"a\.jsonl:2: not a JSON object"),
        ("a.jsonl", "[1]\n", ["a"], r"a\.jsonl:1: not a JSON object: but a list"),
        ("a.jsonl", '{"b": 1}\n', ["a"], r"a\.jsonl:1: key missing: 'a'; the line has the keys \['b'\]"),
        ("a.tsv", "", ["1"], "a.tsv is empty"),
        ("a.csv", "text,label\n", ["text"], "a.csv has no rows, only a header"),
        ("a.tsv", "x\ty\n", ["text"], r"a\.tsv:1: there is no column 'text'"),
    ],
)
def test_bad_rows_name_their_place(tmp_path, name, text, columns, message):
    with pytest.raises(DataError, match=message):
        rows(write(tmp_path / name, text), columns)


def test_bad_rows_can_be_skipped_and_are_counted(tmp_path):
    file, bad = write(tmp_path / "a.tsv", "a\t1\nb\n\nc\t2\n"), BadLines("skip")
    assert [row.values for row in read_table(file, ["1", "2"], bad)] == [("a", "1"), ("c", "2")]
    assert dict(bad.counts) == {"wrong number of columns": 1, "empty line": 1} and bad.total == 2
    (tmp_path / "b.tsv").write_text("a\n")
    with pytest.raises(DataError, match="b.tsv has no row to read: skipped 3: wrong number of columns 2"):
        list(read_table(tmp_path / "b.tsv", ["1", "2"], bad))


def test_width(tmp_path):
    file = write(tmp_path / "a.tsv", "a\tb\tc\na\tb\n")
    for width in (None, 3):
        with pytest.raises(DataError, match=r"a\.tsv:2: wrong number of columns: 2 instead of 3"):
            rows(file, ["1", "2"], width=width)


def test_undecodable_bytes(tmp_path):
    (tmp_path / "a.tsv").write_bytes(b"a\t1\n\xff\t2\n")
    with pytest.raises(DataError, match=r"a\.tsv:2:1: undecodable byte"):
        rows(tmp_path / "a.tsv", ["1", "2"])


def test_missing_column_and_unknown_format(tmp_path):
    with pytest.raises(DataError, match="no column 'text'; the header names"):
        rows(write(tmp_path / "a.csv", "label,words\n1,a\n"), ["text"], header=True)
    with pytest.raises(DataError, match="cannot tell the format of 'a.xml'"):
        rows("a.xml", ["1"])
    with pytest.raises(DataError, match="no column of a.tsv"):
        rows("a.tsv", [])


def test_cells_of_csv_are_those_of_the_csv_module(tmp_path):
    """Random cells of everything that CSV quotes, written by the standard library."""
    generator = random.Random(0)
    cells = [
        ["".join(generator.choices('ab",\n ;\t', k=generator.randint(1, 6))) + "." for _ in "12"] for _ in range(60)
    ]
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerows(cells)
    found = list(read_table(write(tmp_path / "a.csv", text.getvalue()), ["1", "2"], BadLines("raise")))
    assert [list(row.values) for row in found] == cells
    # each origin is the line where its row begins
    lines = text.getvalue().split("\n")
    for row in found:
        first = row.values[0].split("\n")[0].replace('"', '""')
        assert first in lines[int(row.origin.rsplit(":", 1)[1]) - 1]


@pytest.mark.parametrize(
    ("text", "message", "kept", "skipped"),
    [
        (
            b'a,1\n"b\nc,2\nd,3\n',
            r"a\.csv:2: not a row of CSV: unexpected end of data .in the row of lines 2 to 4",
            1,
            3,
        ),
        (b'a,1\n"b\n\xff,2\nd,3\n', r"a\.csv:2: not a row of CSV: unexpected end of data", 1, 3),
        (b'a,1\n"b" c,2\nd,3\n', r"a\.csv:2: not a row of CSV: ',' expected after '\"'", 2, 1),
        (b'a,1\n"b\n\xff",2\nd,3\n', r"a\.csv:3:1: undecodable byte", 2, 1),
        (b"a,1\nb\rc,2\nd,3\n", r"a\.csv:2: not a row of CSV: new-line character", 2, 1),
        (b"a,1\n\nd,3\n", r"a\.csv:2: empty line", 2, 1),
    ],
)
def test_bad_rows_of_csv(tmp_path, text, message, kept, skipped):
    (tmp_path / "a.csv").write_bytes(text)
    with pytest.raises(DataError, match=message):
        rows(tmp_path / "a.csv", ["1", "2"])
    bad = BadLines("skip")
    assert (len(list(read_table(tmp_path / "a.csv", ["1", "2"], bad))), bad.total) == (kept, skipped)


def test_cells_of_csv_may_be_documents(tmp_path):
    cell = 40_000 * "word, "
    assert rows(write(tmp_path / "a.csv", f'a,1\n"{cell}",2\n'), ["1"])[1] == ((cell,), "a.csv:2")


@pytest.mark.parametrize(
    ("first", "is_header"),
    [
        ("Title,Class Index", True),
        ("review,sentiment score", True),
        ('"Review, text",Rating', True),
        ("sentence_a,Sentence 2", True),
        ("a,b", False),
        ("text is long,label", False),
        ("review a book,review", False),
        ("1,2", False),
    ],
)
def test_a_first_row_of_words_for_columns_is_taken_for_a_header(tmp_path, first, is_header):
    file = write(tmp_path / "a.csv", f"{first}\na,b\n")
    if not is_header:
        assert len(rows(file, ["1", "2"])) == 2
        return
    with pytest.raises(DataError, match=r"a\.csv:1: the first row looks like the names of the columns"):
        rows(file, ["1", "2"])


def test_a_header_alone_is_read_by_number(tmp_path):
    file = write(tmp_path / "a.csv", "text,label\na,x\n")
    assert rows(file, ["1", "2"], header=True) == [(("a", "x"), "a.csv:2")]
    with pytest.raises(DataError, match=r"a\.csv:1: there is no column '3'; the header names"):
        rows(file, ["3"], header=True)


@pytest.mark.parametrize("line", [b"a", b"a" * 9_999 + b"\n"], ids=["one line", "many lines"])
def test_a_compressed_file_does_not_fill_the_memory(tmp_path, line):
    path = tmp_path / "a.txt.gz"
    with gzip.open(path, "wb", compresslevel=9) as file:
        for _ in range(20):
            file.write(line * (1_000_000 // len(line)))
    with pytest.raises(
        DataError, match=r"a\.txt\.gz:\d+: the compressed file of [\d,]+ bytes unpacks to more than 16,777,216"
    ):
        for _ in read_lines(path):
            pass


def test_odd_files_and_nesting(tmp_path):
    with pytest.raises(DataError, match="holds no NUL"):
        next(read_lines("a\0b"))
    with pytest.raises(DataError, match="cannot read .*File name too long") as error:
        next(read_lines("a" * 5000))
    assert len(str(error.value)) < 500
    with pytest.raises(DataError, match="it is a folder or a device, not a file"):
        next(read_lines(tmp_path))
    file = write(tmp_path / "a.jsonl", '{"a": ' + "[" * 100_000 + "\n")
    with pytest.raises(DataError, match=r"a\.jsonl:1: not a JSON object: nested too deeply"):
        rows(file, ["a"])


def test_messages_are_short(tmp_path):
    file = write(tmp_path / "a.jsonl", "{" + ", ".join(f'"{n}": 1' for n in range(100_000)) + "}\n")
    with pytest.raises(DataError) as error:
        rows(file, ["a"])
    assert len(str(error.value)) < 1000
    bad = BadLines("skip")
    for number in range(99):
        bad.add("empty line", f"a:{number}")
    assert len(bad.report()) < 200
