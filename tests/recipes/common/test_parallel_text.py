import gzip
import json

import pytest

from recipes.common.errors import ConfigError, DataError
from recipes.common.parallel_text import ParallelText, TextPair
from recipes.common.text_lines import BadLines, read_lines


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        path = tmp_path / name
        content = content.encode() if isinstance(content, str) else content
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return str(path)

    return write


def texts(pairs):
    return [pair[:2] for pair in pairs]


EXPECTED = [("a dog", "ein Hund"), ("a cat", "eine Katze")]
SOURCES, TARGETS = "a dog\na cat\n", "ein Hund\neine Katze"
TSV = "a dog\tein Hund\na cat\teine Katze\n"
JSON = "".join(json.dumps({"source": source, "target": target}) + "\n" for source, target in EXPECTED)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_every_format_gives_the_same_pairs(write, suffix):
    two_files = [write("a.en" + suffix, SOURCES), write("a.de" + suffix, TARGETS)]
    for files in (two_files, [write("a.tsv" + suffix, TSV)], [write("a.jsonl" + suffix, JSON)]):
        pairs = ParallelText(files)
        assert texts(pairs) == EXPECTED
        assert [pair.origin for pair in pairs] == [f"{files[0]}:1", f"{files[0]}:2"]
        assert pairs.bad_lines.report() == "skipped 0"


def test_compression_is_told_by_content(write, tmp_path):
    source = tmp_path / "a.en"
    source.write_bytes(gzip.compress(SOURCES.encode()))
    assert texts(ParallelText([source, write("a.de", TARGETS)])) == EXPECTED


def test_columns_and_keys(write):
    file = write("a.tsv", "a\tb\tsource CC BY\n")
    assert texts(ParallelText([file], columns=3)) == [("a", "b")]
    file = write("a.jsonl", '{"en": "a", "de": "b", "id": 7}\n')
    assert texts(ParallelText([file], keys=("en", "de"))) == [("a", "b")]


def test_only_line_feeds_end_a_line(write):
    # str.splitlines would split at each of these and the files would get out of step.
    files = [write("a.en", "\ufeffone\u2028more\x0bstill\x85one\r\ntwo\n"), write("a.de", "eins\r\nzwei\r\n")]
    assert texts(ParallelText(files)) == [("one\u2028more\x0bstill\x85one", "eins"), ("two", "zwei")]


def test_is_streamed(write):
    pairs = iter(ParallelText([write("a.en", "a\nb\n\n"), write("a.de", "c\nd\n")]))
    # The bad end of the files is not met before it is read.
    assert next(pairs).source == "a"
    assert next(pairs).source == "b"
    with pytest.raises(DataError):
        next(pairs)


@pytest.mark.parametrize("on_error", ["raise", "skip"])
@pytest.mark.parametrize(("first", "second"), [(3, 5), (5, 3)])
def test_unequal_length_names_both(write, on_error, first, second):
    source, target = write("a.en", "a\n" * first), write("a.de", "b\n" * second)
    with pytest.raises(DataError) as error:
        list(ParallelText([source, target], on_error=on_error))
    assert f"unequal length: {source} has {first} lines, {target} has {second}" in str(error.value)


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_empty_files(write, on_error):
    empty, full = write("empty.en", ""), write("a.de", "a\n")
    for files in ([empty, full], [full, empty], [empty, empty], [write("e.tsv", "")], [write("e.jsonl.gz", "")]):
        with pytest.raises(DataError, match="is empty"):
            list(ParallelText(files, on_error=on_error))


BAD_FILES = [
    (["a.en", "a.de"], [b"a\n\xc3\xa9t\xff\nc\n", b"d\ne\nf\n"], "a.en:2:4", "undecodable byte", "0xff"),
    (["a.en", "a.de"], [b"a\nb\nc\n", b"d\n\xff\nf\n"], "a.de:2:1", "undecodable byte", "byte 1 of the line"),
    (["a.en", "a.de"], [b"a\n\nc\n", b"d\ne\nf\n"], "a.en:2", "empty line", ""),
    (["a.en", "a.de"], [b"a\nb\nc\n", b"d\n \t\nf\n"], "a.de:2", "empty line", ""),
    (["a.tsv"], [b"a\td\nb\nc\tf\n"], "a.tsv:2", "wrong number of columns", "1 instead of 2"),
    (["a.tsv"], [b"a\td\nb\te\tx\nc\tf\n"], "a.tsv:2", "wrong number of columns", "3 instead of 2"),
    (["a.tsv"], [b"a\td\n\nc\tf\n"], "a.tsv:2", "empty line", ""),
    (["a.tsv"], [b"a\td\nb\t\nc\tf\n"], "a.tsv:2", "empty line", ""),
    (["a.tsv"], [b"a\td\n\xe9\te\nc\tf\n"], "a.tsv:2:1", "undecodable byte", "0xe9"),
    (["a.jsonl"], ['{"source": "a", "target": "d"}', "{", '{"source": "c", "target": "f"}'], "a.jsonl:2", "JSON", ""),
    (["a.jsonl"], ['{"source": "a", "target": "d"}', "[]", '{"source": "c", "target": "f"}'], "a.jsonl:2", "list", ""),
    (
        ["a.jsonl"],
        ['{"source": "a", "target": "d"}', '{"source": "b", "targt": "e"}', '{"source": "c", "target": "f"}'],
        "a.jsonl:2",
        "key missing: 'target'",
        "['source', 'targt']",
    ),
    (
        ["a.jsonl"],
        ['{"source": "a", "target": "d"}', '{"source": 1, "target": "e"}', '{"source": "c", "target": "f"}'],
        "a.jsonl:2",
        "not a text: 1",
        "",
    ),
]


@pytest.mark.parametrize(("names", "contents", "origin", "cause", "detail"), BAD_FILES)
def test_bad_line_raises_or_is_skipped_and_reported(write, tmp_path, names, contents, origin, cause, detail):
    if names == ["a.jsonl"]:
        contents = ["\n".join(contents)]
    files = [write(name, content) for name, content in zip(names, contents, strict=True)]
    with pytest.raises(DataError) as error:
        list(ParallelText(files))
    message = str(error.value)
    assert message.startswith(str(tmp_path / origin) + ": ")
    assert cause in message
    assert detail in message

    pairs = ParallelText(files, on_error="skip")
    for _ in range(2):
        # The second pass starts its account anew.
        assert texts(pairs) == [("a", "d"), ("c", "f")]
        assert pairs.bad_lines.total == 1
        assert str(tmp_path / origin) in pairs.bad_lines.report()


def test_nothing_left_is_an_error(write):
    with pytest.raises(DataError, match=r"no pair of texts in .*skipped 2: empty line 2"):
        list(ParallelText([write("a.en", "a\n\n"), write("a.de", "\nb\n")], on_error="skip"))


def test_missing_and_damaged_files(write, tmp_path):
    with pytest.raises(DataError, match="file not found: .*none.en"):
        list(ParallelText([tmp_path / "none.en", write("a.de", "a\n")]))
    with pytest.raises(DataError, match="cannot read"):
        list(ParallelText([tmp_path, write("a.de", "a\n")]))
    whole = gzip.compress(b"line\n" * 1000, mtime=0)
    for damaged in (whole[: len(whole) // 2], whole[:-8] + b"\0" * 8, whole[:12] + b"\xff" + whole[13:]):
        (tmp_path / "damaged.gz").write_bytes(damaged)
        with pytest.raises(DataError, match="damaged"):
            list(read_lines(tmp_path / "damaged.gz"))


def test_arguments_out_of_range(write):
    with pytest.raises(DataError, match=r"two files .* or one .*got \[\]"):
        ParallelText([])
    with pytest.raises(DataError, match=r"two files"):
        ParallelText(["a", "b", "c"])
    with pytest.raises(DataError, match=r"cannot tell the format of a\.doc.*\.tsv"):
        ParallelText(["a.doc"])
    with pytest.raises(ConfigError, match="columns must be at least 2, got 1"):
        ParallelText(["a.tsv"], columns=1)
    with pytest.raises(ConfigError, match="keys must be two, of the source and of the target, got "):
        ParallelText(["a.jsonl"], keys=["source"])
    with pytest.raises(ValueError, match="on_error must be 'raise' or 'skip'; got 'ignore'"):
        ParallelText(["a.tsv"], on_error="ignore")


def test_report_lists_the_first_ten_of_each_cause():
    bad_lines = BadLines("skip")
    for number in range(12):
        bad_lines.add("empty line", f"a:{number}")
    bad_lines.add("undecodable byte", "b:1:2")
    assert bad_lines.report() == (
        "skipped 13: empty line 12 (a:0, a:1, a:2, a:3, a:4, a:5, a:6, a:7, a:8, a:9, ...); undecodable byte 1 (b:1:2)"
    )
    assert len(bad_lines.origins["empty line"]) == 12


def test_pair_is_a_plain_tuple():
    source, target, origin = TextPair("a", "b", "f:1")
    assert (source, target, origin) == ("a", "b", "f:1")
