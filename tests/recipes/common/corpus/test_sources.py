import configparser
import gzip
import json
import re
import tracemalloc
from pathlib import Path

import pytest

from recipes.common.corpus import documents as documents_module
from recipes.common.corpus import sources
from recipes.common.corpus.documents import BadRecords, read_documents
from recipes.common.corpus.sources import Part, find_parts, share_out, state_of
from recipes.common.errors import BadLines, ConfigError, DataError
from zoo.extras import import_extra

ROOT = Path(__file__).parents[4]
TEXT = "\ufeffOne line\nand its second.\n\n\n  Two\r\n\r\nThree ü — ß\n   \nFour\nends without a line feed"
PARAGRAPHS = ["One line and its second.", "Two", "Three ü — ß", "Four ends without a line feed"]
LINES = ["One line", "and its second.", "Two", "Three ü — ß", "Four", "ends without a line feed"]


def documents(parts, unit="line", key="text", bad=None):
    bad = bad or BadLines("raise")
    return [text for part in parts for text in read_documents(part, unit, key, "train", bad)]


@pytest.mark.parametrize("block", [1, 4, 1 << 20])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 20, 1000])
@pytest.mark.parametrize("unit", ["paragraph", "line"])
def test_no_document_is_cut(tmp_path, unit, size, block, monkeypatch):
    monkeypatch.setattr(sources, "_BLOCK", block)
    file = tmp_path / "a.txt"
    file.write_bytes(TEXT.encode())
    parts = find_parts([str(file)], unit, "train", part_bytes=size)
    assert (len(parts) > 1) == (size < 60)
    assert documents(parts, unit) == (LINES if unit == "line" else PARAGRAPHS)
    assert sum(part.size for part in parts) == len(TEXT.encode())


def test_whole_and_compressed_files(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"one\ntwo\n")
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(b"three\n\nfour"))
    (tmp_path / "empty.txt").write_bytes(b"")
    parts = find_parts([str(tmp_path / "*.txt*")], "file", "train")
    assert documents(parts, "file") == ["one\ntwo\n", "three\n\nfour\n"]
    assert documents(parts, "paragraph") == ["one two", "three", "four"]


@pytest.mark.parametrize("size", [1, 50, 10**6])
def test_json_lines(tmp_path, size):
    rows = [{"text": f"number {number}\nü", "id": number} for number in range(9)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    assert documents(find_parts([str(tmp_path / "a.jsonl")], "line", "train", size)) == [row["text"] for row in rows]


def test_bad_rows_are_counted(tmp_path):
    rows = ['{"text": "good"}', "{", '{"other": 1}', '{"text": 3}', '{"text": " "}', "", '{"text": "end"}']
    (tmp_path / "a.jsonl").write_bytes("\n".join(rows).encode() + b'\n{"text": "\xff"}')
    parts, bad = find_parts([str(tmp_path / "a.jsonl")], "line", "train"), BadLines("skip")
    assert documents(parts, bad=bad) == ["good", "end"]
    assert bad.total == 5 and all("a.jsonl, byte" in origin for found in bad.origins.values() for origin in found)
    place = int(bad.origins["key missing"][0].split()[-1])
    assert (tmp_path / "a.jsonl").read_bytes()[place - 1 :].startswith(b'{"other"')
    with pytest.raises(DataError, match="not a JSON object"):
        documents(parts)


@pytest.mark.parametrize("size", [1, 30, 10**6])
def test_bad_rows_are_named_by_their_lines(tmp_path, size):
    rows = ['{"text": "good"}', "{", "", '{"other": 1}', '{"text": "ü"}', '{"text": 3}'] + ["{"] * 12
    (tmp_path / "ä, byte 3.jsonl").write_bytes("\n".join(rows).encode() + b'\n{"text": "\xff"}')
    parts, bad = find_parts([str(tmp_path / "*.jsonl")], "line", "train", size), BadRecords("skip")
    assert documents(parts, bad=bad) == ["good", "ü"]
    lines = {cause: [int(origin.rpartition(":")[2]) for origin in found] for cause, found in bad.origins.items()}
    assert lines == {
        "not a JSON object": [2, *range(7, 16)],
        "key missing": [4],
        "not text": [6],
        "undecodable byte": [19],
    }
    assert bad.counts["not a JSON object"] == 13
    with pytest.raises(DataError, match="ä, byte 3.jsonl:2: not a JSON object"):
        documents(parts, bad=BadRecords("raise"))


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.txt.gz"])
@pytest.mark.parametrize("unit", ["file", "paragraph", "line"])
def test_a_line_that_never_ends(tmp_path, monkeypatch, name, unit):
    monkeypatch.setattr(documents_module, "_MOST_BYTES", 1 << 20)
    text = b"one\n\n" + b"x" * (12 << 20)
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    tracemalloc.start()
    try:
        parts = find_parts([str(tmp_path / name)], unit, "train", 1024)
        with pytest.raises(DataError, match=r"a\..*: a line has more than 1,048,576 bytes"):
            documents(parts, unit, bad=BadLines("skip"))
        assert tracemalloc.get_traced_memory()[1] < 6 << 20
    finally:
        tracemalloc.stop()


def test_names_from_another_folder(tmp_path, monkeypatch):
    """A process elsewhere, or a run that goes on in another folder, finds the same files."""
    for folder in ("x", "y"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.txt").write_text(folder)
    monkeypatch.chdir(tmp_path)
    parts = find_parts(["*/a.txt"], "line", "train")
    monkeypatch.chdir("/")
    assert documents(parts) == ["x", "y"]
    with pytest.raises(DataError, match="a.txt is named twice"):
        find_parts([str(tmp_path / "x" / "a.txt"), str(tmp_path / "*" / "a.txt")], "line", "train")


def test_parquet(tmp_path):
    arrow = pytest.importorskip("pyarrow", reason="the extra 'corpus' is not installed")
    parquet = pytest.importorskip("pyarrow.parquet")
    texts = [f"text {number}" for number in range(2500)]
    parquet.write_table(arrow.table({"content": texts}), tmp_path / "a.parquet", row_group_size=1200)
    parts = find_parts([str(tmp_path / "a.parquet")], "line", "train")
    assert len(parts) == 3
    assert documents(parts, key="content") == texts
    with pytest.raises(DataError, match="no column 'text'; it has content"):
        documents(parts)


def test_damaged_parquet(tmp_path):
    arrow = pytest.importorskip("pyarrow", reason="the extra 'corpus' is not installed")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({"text": [f"text {number}" for number in range(5000)]}), tmp_path / "a.parquet")
    content = bytearray((tmp_path / "a.parquet").read_bytes())
    content[20:60] = bytes(40)
    (tmp_path / "a.parquet").write_bytes(content)
    with pytest.raises(DataError, match=r"a\.parquet: row group 1 is damaged behind row 0"):
        documents(find_parts([str(tmp_path / "a.parquet")], "line", "train"), bad=BadLines("skip"))


def test_data_set_of_a_hub(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets", reason="the extra 'datasets' is not installed")
    (tmp_path / "rows.jsonl").write_text('{"text": "one"}\n{"text": "two"}\n')
    load, asked = datasets.load_dataset, []

    def from_file(name, split):
        asked.append((name, split))
        return load("json", data_files=str(tmp_path / "rows.jsonl"), split="train", cache_dir=str(tmp_path / "cache"))

    monkeypatch.setattr(datasets, "load_dataset", from_file)
    parts = find_parts(["hf://datasets/owner/name"], "line", "test")
    assert documents(parts) == ["one", "two"]
    assert set(asked) == {("owner/name", "test"), ("owner/name", "train")}
    assert all(name.startswith(str(tmp_path / "cache")) for name in state_of(["hf://datasets/owner/name"], "test"))


def test_data_set(tmp_path):
    datasets = pytest.importorskip("datasets", reason="the extra 'datasets' is not installed")
    rows = datasets.Dataset.from_dict({"text": [f"text {number}" for number in range(30)]})
    datasets.DatasetDict({"train": rows, "test": rows.select([3])}).save_to_disk(tmp_path / "set")
    assert documents(find_parts([str(tmp_path / "set")], "line", "train")) == rows["text"][:]
    before = state_of([str(tmp_path / "set")], "train")
    datasets.DatasetDict({"train": rows.select([1, 2]), "test": rows}).save_to_disk(tmp_path / "set")
    assert before and state_of([str(tmp_path / "set")], "train") != before
    with pytest.raises(DataError, match="has no part 'dev'; it has train, test"):
        find_parts([str(tmp_path / "set")], "line", "dev")
    rows.save_to_disk(tmp_path / "rows")
    assert len(find_parts([str(tmp_path / "rows")], "line", "train")) == 1
    with pytest.raises(DataError, match="rows has no parts: split must be left out, got 'test'"):
        find_parts([str(tmp_path / "rows")], "line", "test")


def test_folder_of_texts(tmp_path):
    """It is not asked for as a data set, whose library may not be installed."""
    (tmp_path / "a.txt").write_text("one")
    with pytest.raises(DataError, match=r"is no data set that .*; name files by a pattern: .*/\*\.txt"):
        find_parts([str(tmp_path)], "line", "train")


def test_shares_are_neighbours_of_about_one_size():
    for sizes in ([1] * 10, [100, 1, 1, 1], [1, 1, 1, 100], [5, 50, 5, 50, 5], [0, 0, 3]):
        parts = [Part(str(number), "text", 0, size, size) for number, size in enumerate(sizes)]
        for count in range(1, len(parts) + 1):
            shares = share_out(parts, count)
            assert [part for share in shares for part in share] == parts
            assert len(shares) == count and all(shares)
            # none is above its share by more than its largest part
            assert max(sum(part.size for part in share) for share in shares) <= sum(sizes) / count + max(sizes)
    with pytest.raises(ConfigError, match="shards must be at most 3"):
        share_out(parts, 4)


def test_mistakes(tmp_path):
    (tmp_path / "a.json").write_text("[]")
    for name, message in (("none*.txt", "there is no file"), ("a.json", "write JSON lines")):
        with pytest.raises(DataError, match=message):
            find_parts([str(tmp_path / name)], "line", "train")


def test_what_is_not_installed_is_named_with_its_extra():
    message = 'needs no_such_library, of the extra corpus: pip install "keras-transformer-zoo[corpus]"'
    with pytest.raises(ImportError, match=re.escape(message)):
        import_extra("no_such_library.part", "corpus")


def test_extra_for_the_benchmark_of_corpora():
    """docs/recipes.md installs this extra alone for it."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    extras = {name: set(setup["options.extras_require"][name].split()) for name in ("benchmark",)}
    assert "keras-transformer-zoo[corpus,datasets,recipes]" in extras["benchmark"]
