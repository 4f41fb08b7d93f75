import json

import pytest

from recipes.common.data.summaries import SUMMARIES, read_summaries
from recipes.common.errors import BadLines, ConfigError, DataError

KEYS = ["source", "target"]


def open_summaries(files, keys=KEYS, on_error="raise"):
    bad = BadLines(on_error)
    return read_summaries(files, bad, keys=keys), bad


def write(folder, *records):
    (folder / "a.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return [str(folder / "a.jsonl")]


def test_texts_are_joined_and_summaries_are_alternatives(tmp_path):
    files = write(tmp_path, {"source": ["a b.", " c."], "target": ["x", "", "y "]}, {"source": "d", "target": "z"})
    rows, bad = open_summaries(files)
    assert [row[:2] for row in rows] == [("a b. c.", ("x", "y")), ("d", ("z",))] and bad.total == 0


def test_columns_of_a_table(tmp_path):
    (tmp_path / "a.csv").write_text('title,abstract\nx,"a, b"\n')
    rows, _ = open_summaries([str(tmp_path / "a.csv")], ["abstract", "title"])
    assert rows[0][:2] == ("a, b", ("x",))


def test_the_header_of_a_table(tmp_path):
    def read(text, keys, **options):
        (tmp_path / "a.tsv").write_text(text)
        return [row.text for row in read_summaries([str(tmp_path / "a.tsv")], BadLines("raise"), keys=keys, **options)]

    assert read("a b\tx\nc d\ty\n", ["1", "2"]) == ["a b", "c d"]
    assert read("a b\tx\nc d\ty\n", ["1", "2"], header=True) == ["c d"]
    assert read("text\tsummary\nc d\ty\n", ["1", "2"], header=False) == ["text", "c d"]
    assert read("text\tsummary\nc d\ty\n", ["text", "2"]) == ["c d"]
    with pytest.raises(DataError, match="the first row looks like the names of the columns"):
        read("text\tsummary\nc d\ty\n", ["1", "2"])
    with pytest.raises(DataError, match="has no header, .* got the name 'text'"):
        read("text\tsummary\nc d\ty\n", ["text", "summary"], header=False)


@pytest.mark.parametrize(
    "record",
    [{"source": "a", "target": []}, {"source": " ", "target": "x"}, {"source": [1], "target": "x"}, {"source": "a"}],
)
def test_bad_rows_raise_or_are_counted(tmp_path, record):
    files = write(tmp_path, {"source": "a", "target": "x"}, record)
    with pytest.raises(DataError, match=r"a\.jsonl:2: (no text or no summary|key missing: 'target')"):
        open_summaries(files)
    rows, bad = open_summaries(files, on_error="skip")
    assert len(rows) == bad.total == 1 and "a.jsonl:2" in bad.report()


def test_keys_are_two():
    with pytest.raises(ConfigError, match="keys must be two, of the text and of the summary, got .'source'."):
        open_summaries(["a.jsonl"], ["source"])


def test_notes_hold_what_their_summary_says():
    for note in SUMMARIES["date_notes"]().test[:50]:
        event, date = note.summaries[0].split(": ")
        assert event in note.text.lower() and date[:4] in note.text


def test_real_data(data_folder):
    parts = SUMMARIES["scitldr"]()[:2]
    assert [len(part) for part in parts] == [1992, 619]
    assert max(len(row.summaries) for row in parts[1]) > 1
