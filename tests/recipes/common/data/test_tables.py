"""TSV and CSV against pandas and the csv module: what these write is read back, and plain files keep their quotes."""

import csv
import random

import pandas
import pytest

from recipes.common.data.headers import may_name_a_column
from recipes.common.data.text_files import read_table
from recipes.common.errors import BadLines, DataError


def read(path, **options):
    return [list(row.values) for row in read_table(path, ["text", "label"], BadLines("raise"), header=True, **options)]


def random_cells(seed, letters, count=60):
    generator = random.Random(seed)
    return ["".join(generator.choices(letters, k=generator.randint(1, 8))) + "." for _ in range(count)]


@pytest.mark.parametrize("suffix", ["tsv", "csv"])
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_what_pandas_writes_is_read_as_pandas_reads_it(tmp_path, suffix, quoting, line_end, encoding):
    path, delimiter = tmp_path / f"a.{suffix}", "\t" if suffix == "tsv" else ","
    table = pandas.DataFrame({"text": random_cells(1, 'ab",\n \t\u00e9'), "label": ["x", "y"] * 30})
    table.to_csv(path, sep=delimiter, index=False, quoting=quoting, lineterminator=line_end, encoding=encoding)
    found = pandas.read_csv(path, sep=delimiter, keep_default_na=False, encoding=encoding)
    assert found.equals(table)
    assert read(path) == table.to_numpy().tolist()


def test_line_ends_within_cells_are_those_of_the_csv_module(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_bytes(b'text\tlabel\r\n"one\r\ntwo\nthree"\tx\r\n')
    with open(path, encoding="utf-8", newline="") as file:
        assert [["one\r\ntwo\nthree", "x"]] == list(csv.reader(file, delimiter="\t"))[1:] == read(path)


def test_plain_tsv_keeps_its_quotes(tmp_path, capsys):
    """Sentences as SST-2 and Tatoeba have them: quotes that nothing closes, or that are closed within a cell."""
    rows = [
        ['" the dangerous lives of altar boys " has flaws', "1"],
        ['say "hi', "0"],
        ['"', "1"],
        ['"Come in."', "0"],
        ["plain", "1"],
        *([text.replace("\n", " ").replace("\t", " "), "0"] for text in random_cells(2, 'ab" ', 200)),
    ]
    path = tmp_path / "a.tsv"
    path.write_text("text\tlabel\n" + "".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    plain = pandas.read_csv(path, sep="\t", quoting=csv.QUOTE_NONE, keep_default_na=False, dtype=str)
    assert read(path) == rows == plain.to_numpy().tolist()
    assert f"{path}: double quotes are characters" in capsys.readouterr().out


def test_it_is_said_how_quotes_are_read_where_there_are_some(tmp_path, capsys):
    path = tmp_path / "a.tsv"
    path.write_text('text\tlabel\n"a\tb"\tx\n')
    assert read(path) == [["a\tb", "x"]] and "as those of CSV" in capsys.readouterr().out
    path.write_text('text\tlabel\nno "quote"\tx\n')
    assert read(path) == [['no "quote"', "x"]] and not capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "text", "place", "numbers"),
    [
        ("a.tsv", "text\tlabel\na\tx\nb\tx\ty\n", "a.tsv:3", "3 instead of 2"),
        ("a.tsv", "text\tlabel\na\nb\tx\n", "a.tsv:2", "1 instead of 2"),
        ("a.csv", "text,label\na,x\nb,x,y\n", "a.csv:3", "3 instead of 2"),
        ("a.csv", 'text,label\n"a\n\n",x\nb\n', "a.csv:5", "1 instead of 2"),
        ("a.tsv", 'text\tlabel\n"a\n""b""\t"\tx\nb\tx\ty\n', "a.tsv:4", "3 instead of 2"),
        ("a.tsv", 'text\tlabel\n"a\tb\tx\nc\tx\n', "a.tsv:2", "3 instead of 2"),
    ],
)
def test_a_row_of_another_width_is_an_error_with_its_line(tmp_path, name, text, place, numbers):
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=f"{place}: .*{numbers}"):
        read(tmp_path / name)


def test_a_quoted_file_with_one_bad_row_is_still_a_quoted_one(tmp_path):
    path, bad = tmp_path / "a.tsv", BadLines("skip")
    path.write_text('text\tlabel\n"a\tb"\tx\n"c\nd"\ty\n"e" f\tx\ng\ty\n')
    rows = [list(row.values) for row in read_table(path, ["text", "label"], bad)]
    assert rows == [["a\tb", "x"], ["c\nd", "y"], ["g", "y"]]
    assert bad.origins == {"not a row of CSV": [f"{path}:5"]}


@pytest.mark.parametrize("name", ["a.tsv", "a.csv"])
def test_a_column_that_is_named_twice_cannot_be_asked_for(tmp_path, name):
    cells = [["text", "note", "note", "label"], ["a", "b", "c", "x"]]
    (tmp_path / name).write_text("".join(("\t" if name == "a.tsv" else ",").join(row) + "\n" for row in cells))
    assert read(tmp_path / name) == [["a", "x"]]
    with pytest.raises(DataError, match=rf"{name}:1: .*'note' 2 times"):
        list(read_table(tmp_path / name, ["note"], BadLines("raise")))


def test_names_of_columns_mean_that_there_is_a_header(tmp_path):
    (tmp_path / "a.csv").write_text("text,label\na,x\n")
    assert [row.values for row in read_table(tmp_path / "a.csv", ["label"], BadLines("raise"))] == [("x",)]
    with pytest.raises(DataError, match="no header.*'label'"):
        list(read_table(tmp_path / "a.csv", ["label"], BadLines("raise"), header=False))


@pytest.mark.parametrize(
    ("first", "is_header"),
    [("anglais\tklass", True), ("Englisch\tDeutsch", True), ("I do\t0", False), ("He is here.\tIl est ici.", False)],
)
def test_an_unusual_header_is_not_taken_for_data(tmp_path, first, is_header):
    """A first row whose cells may all be names, while no other cell may be one."""
    path = tmp_path / "a.tsv"
    path.write_text(f"{first}\n" + "She has left the house.\tElle est partie.\n" * 9)
    if is_header:
        with pytest.raises(DataError, match=r"a\.tsv:1: .*header"):
            list(read_table(path, ["1", "2"], BadLines("raise")))
    for header, count in ((True, 9), (False, 10), *(() if is_header else ((None, 10),))):
        assert len(list(read_table(path, ["1", "2"], BadLines("raise"), header=header))) == count


def test_a_key_that_stands_twice_in_an_object(tmp_path):
    for name, text in (
        ("a.jsonl", '{"text": "a", "label": 1}\n{"text": "b", "label": 1, "text": "c"}\n'),
        ("a.json", '[{"text": "a", "label": 1},\n {"text": "b", "label": 1, "text": "c"}]\n'),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(DataError, match=rf"{name}:2: .*'text'.* 2 times"):
            list(read_table(tmp_path / name, ["text", "label"], BadLines("raise")))


def test_sentences_without_spaces_are_no_names_of_columns():
    for name in ("文本", "电影评论", "ข้อความ", "текст отзыва"):
        assert may_name_a_column(name), name
    for sentence in ("今天天气很好，我们去公园", "我喜欢。", "ฉันชอบภาพยนตร์เรื่องนี้มาก", "मुझे यह पसंद है।", "هل هذا جيد؟"):
        assert not may_name_a_column(sentence), sentence
