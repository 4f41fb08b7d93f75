import functools
import gzip
import itertools
import json

import pytest

from recipes.common.data import parallel_text
from recipes.common.data.data_sets import Source, TextPair, open_part
from recipes.common.data.lines import read_lines
from recipes.common.data.parallel_text import (
    PARALLEL,
    check_language_tokens,
    has_language_token,
    language_token,
    read_pairs,
)
from recipes.common.errors import BadLines, ConfigError, DataError


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        path = tmp_path / name
        content = content.encode() if isinstance(content, str) else content
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return str(path)

    return write


def read(files, on_error="raise", **options):
    bad = BadLines(on_error)
    return read_pairs(files, bad, **options), bad


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
        pairs, bad = read(files)
        assert texts(pairs) == EXPECTED
        assert [pair.origin for pair in pairs] == [f"{files[0]}:1", f"{files[0]}:2"]
        assert bad.report() == "skipped 0"


def test_compression_is_told_by_content(write, tmp_path):
    source = tmp_path / "a.en"
    source.write_bytes(gzip.compress(SOURCES.encode()))
    assert texts(read([source, write("a.de", TARGETS)])[0]) == EXPECTED


def test_columns_and_keys(write):
    file = write("a.tsv", "a\tb\tsource CC BY\n")
    assert texts(read([file], columns=3)[0]) == [("a", "b")]
    file = write("a.jsonl", '{"en": "a", "de": "b", "id": 7}\n')
    assert texts(read([file], keys=("en", "de"))[0]) == [("a", "b")]


def test_only_line_feeds_end_a_line(write):
    # str.splitlines would split at each of these and the files would get out of step.
    files = [write("a.en", "\ufeffone\u2028more\x0bstill\x85one\r\ntwo\n"), write("a.de", "eins\r\nzwei\r\n")]
    assert texts(read(files)[0]) == [("one\u2028more\x0bstill\x85one", "eins"), ("two", "zwei")]


@pytest.mark.parametrize("on_error", ["raise", "skip"])
@pytest.mark.parametrize(("first", "second"), [(3, 5), (5, 3)])
def test_unequal_length_names_both(write, on_error, first, second):
    source, target = write("a.en", "a\n" * first), write("a.de", "b\n" * second)
    with pytest.raises(DataError) as error:
        read([source, target], on_error=on_error)
    assert f"unequal length: {source} has {first} lines, {target} has {second}" in str(error.value)


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_empty_files(write, on_error):
    empty, full = write("empty.en", ""), write("a.de", "a\n")
    for files in ([empty, full], [full, empty], [empty, empty], [write("e.tsv", "")], [write("e.jsonl.gz", "")]):
        with pytest.raises(DataError, match="is empty"):
            read(files, on_error=on_error)


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
        read(files)
    message = str(error.value)
    assert message.startswith(str(tmp_path / origin) + ": ")
    assert cause in message
    assert detail in message

    pairs, bad = read(files, on_error="skip")
    assert texts(pairs) == [("a", "d"), ("c", "f")]
    assert bad.total == 1
    assert str(tmp_path / origin) in bad.report()


def test_nothing_left_is_an_error(write):
    files = [write("a.en", "a\n\n"), write("a.de", "\nb\n")]
    with pytest.raises(DataError, match=r"nothing is left of .*skipped 2: empty line 2"):
        open_part(files, "train", Source(PARALLEL, read_pairs), "skip")


def test_missing_and_damaged_files(write, tmp_path):
    with pytest.raises(DataError, match="file not found: .*none.en"):
        read([tmp_path / "none.en", write("a.de", "a\n")])
    with pytest.raises(DataError, match="cannot read"):
        read([tmp_path, write("a.de", "a\n")])
    whole = gzip.compress(b"line\n" * 1000, mtime=0)
    for damaged in (whole[: len(whole) // 2], whole[:-8] + b"\0" * 8, whole[:12] + b"\xff" + whole[13:]):
        (tmp_path / "damaged.gz").write_bytes(damaged)
        with pytest.raises(DataError, match="damaged"):
            list(read_lines(tmp_path / "damaged.gz"))


def test_arguments_out_of_range():
    with pytest.raises(DataError, match=r"two files .* or one .*got \[\]"):
        read([])
    with pytest.raises(DataError, match=r"two files"):
        read(["a", "b", "c"])
    with pytest.raises(DataError, match=r"cannot tell the format of 'a\.doc'.*\.tsv"):
        read(["a.doc"])
    with pytest.raises(ConfigError, match="columns must be at least 2, got 1"):
        read(["a.tsv"], columns=1)
    with pytest.raises(ConfigError, match="keys must be two, of the source and of the target, got "):
        read(["a.jsonl"], keys=["source"])
    with pytest.raises(ValueError, match="on_error must be 'raise' or 'skip', got 'ignore'"):
        read(["a.tsv"], on_error="ignore")


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_a_header_is_said_or_named(write, name):
    file = write(name, "\n".join(("target,source", "b,a", "d,c", "")).replace(",", "," if "csv" in name else "\t"))
    with pytest.raises(DataError, match=r":1: the first row looks like the names of the columns"):
        read([file])
    assert texts(read([file], header=True)[0]) == [("a", "b"), ("c", "d")]
    assert texts(read([file], header=False)[0])[0] == ("target", "source")
    with pytest.raises(DataError, match="there is no column 'en'; the header names"):
        read([file], header=True, keys=("en", "de"))


def test_two_columns_with_a_header_are_source_and_target_by_their_order(write):
    file = write("a.tsv", "en\tde\na\tb\n")
    assert texts(read([file], header=True)[0]) == [("a", "b")]
    for text, options in (("en\tde\tid\na\tb\t1\n", {"columns": 3}), ("source\tde\na\tb\n", {})):
        with pytest.raises(DataError, match="there is no column '(source|target)'; the header names"):
            read([write("b.tsv", text)], header=True, **options)


def test_cells_with_line_breaks_are_one_pair(write):
    file = write("a.csv", '"a\nb","c, ""d"""\n\n"e","f\r\ng"\n')
    pairs, bad = read([file], on_error="skip")
    assert texts(pairs) == [("a\nb", 'c, "d"'), ("e", "f\r\ng")]
    assert [pair.origin for pair in pairs] == [f"{file}:1", f"{file}:4"]
    assert bad.report() == f"skipped 1: empty line 1 ({file}:3)"


def test_report_lists_the_first_ten_of_each_cause():
    bad_lines = BadLines("skip")
    for number in range(12):
        bad_lines.add("empty line", f"a:{number}")
    bad_lines.add("undecodable byte", "b:1:2")
    assert bad_lines.report() == (
        "skipped 13: empty line 12 (a:0, a:1, a:2, a:3, a:4, a:5, a:6, a:7, a:8, a:9, ...); undecodable byte 1 (b:1:2)"
    )
    # a file of nothing else does not fill the memory
    assert len(bad_lines.origins["empty line"]) == 10 and bad_lines.counts["empty line"] == 12


def test_pair_is_a_plain_tuple():
    source, target, origin = TextPair("a", "b", "f:1")
    assert (source, target, origin) == ("a", "b", "f:1")


def test_public_source_is_pinned():
    for file in (*parallel_text.MULTI30K.values(), parallel_text.TATOEBA_EN_FR):
        assert file.url.startswith("https://raw.githubusercontent.com/")
        assert len(file.commit) == 40
        assert len(file.sha256) == 64


@functools.cache
def loaded(name):
    """A named data set; several tests look at each, and none changes it."""
    return PARALLEL[name]()


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("multi30k_en_de", (29_000, 1_014, 1_000)),
        ("multi30k_de_en", (29_000, 1_014, 1_000)),
        ("multi30k_en_fr", (29_000, 1_014, None)),
        ("multi30k_en_de_fr", (58_000, 1_014, 1_506)),
        ("tatoeba_en_fr", (137_037, 2_866, 2_884)),
    ],
)
def test_real_data(data_folder, name, numbers):
    splits = loaded(name)
    assert tuple(None if part is None else len(part) for part in splits) == numbers


def test_real_multi30k_is_aligned(data_folder):
    source, target, origin = loaded("multi30k_de_en").train[0]
    assert source == "Zwei junge weiße Männer sind im Freien in der Nähe vieler Büsche."
    assert target == "Two young, White males are outside near many bushes."
    assert origin.endswith("train.de.gz:1")


def test_real_multi30k_in_two_languages(data_folder):
    train, validation, test = loaded("multi30k_en_de_fr")
    german, french = train[:2]
    assert german.source.removeprefix("<2de> ") == french.source.removeprefix("<2fr> ")
    assert (german.target, french.target) == (
        "Zwei junge weiße Männer sind im Freien in der Nähe vieler Büsche.",
        "Deux jeunes hommes blancs sont dehors près de buissons.",
    )
    counts = [sum(pair.source.startswith("<2fr> ") for pair in part) for part in (train, validation, test)]
    # without a caption that is learned, too
    assert counts == [29_000, 507, 506]
    # no English caption is tested on and validated on, in whatever language
    lines = [{pair.source.partition(" ")[2] for pair in part} for part in (validation, test)]
    assert not lines[0] & lines[1]


def test_real_tatoeba_is_split_by_english_sentence(data_folder):
    parts = [{pair.source for pair in part} for part in loaded("tatoeba_en_fr")]
    for first, second in itertools.combinations(parts, 2):
        assert not first & second
    assert parallel_text._part_of("Go on in!") == parallel_text._part_of("go on in.")


PAIRS = [TextPair("<2de> one", "eins", "a:1"), TextPair("two", "deux", "a:2"), TextPair("<2fr>\tsix", "six", "a:3")]


def test_a_source_without_a_language_token_raises_or_is_skipped():
    tokens = ["<2de>", "<2fr>"]
    with pytest.raises(DataError, match="a:2: no language token: 'two' begins with none of <2de>, <2fr>"):
        has_language_token(PAIRS[1], BadLines("raise"), tokens)
    bad = BadLines("skip")
    assert [has_language_token(pair, bad, tokens) for pair in PAIRS] == [True, False, True]
    assert bad.report() == "skipped 1: no language token 1 (a:2)"
    assert not has_language_token(PAIRS[0], bad, ["<2"]) and has_language_token(PAIRS[1], bad, [])
    assert language_token("") == language_token("  ") == ""


@pytest.mark.parametrize("tokens", [["<2de>", "<2de>"], [""], ["to German"]])
def test_bad_language_tokens(tokens):
    with pytest.raises(ConfigError, match="language_tokens must be different ones without white space"):
        check_language_tokens(tokens)
