"""Groups of texts: files, named data sets, pairs of queries and documents made of them."""

import pytest

from recipes.common.data.relevance import Pair, pairs_of_groups, with_negatives
from recipes.common.data.text_groups import GROUPS, group_columns, neighbours, read_groups
from recipes.common.errors import BadLines, DataError


def read(tmp_path, text, name="a.tsv", on_error="raise", **options):
    (tmp_path / name).write_text(text, encoding="utf-8")
    bad = BadLines(on_error)
    return read_groups([str(tmp_path / name)], bad, **options), bad


def test_columns_and_lists(tmp_path):
    groups, _ = read(tmp_path, "a\tb \tc\nd\te\tf\n", text_columns=["1", "3", "2"])
    assert [group.texts for group in groups] == [("a", "c", "b"), ("d", "f", "e")] and groups[1].origin.endswith(":2")
    assert group_columns(groups) == (["a", "d"], ["c", "f"], ["b", "e"])
    text = '{"query": "q", "pos": ["a", "b"], "neg": ["x", "y", "z"]}\n'
    groups, _ = read(tmp_path, text, "a.jsonl", text_columns=["query", "pos", "neg"])
    assert [group.texts for group in groups] == [("q", "a", "x"), ("q", "b", "y"), ("q", "a", "z")]


@pytest.mark.parametrize("field", ['""', "[]", "null", '["a", " "]', '["a", 1]'])
def test_bad_rows_name_their_place(tmp_path, field):
    text = '{"q": "a", "p": "b"}\n{"q": "a", "p": ' + field + "}\n"
    with pytest.raises(DataError, match=r"a\.jsonl:2: no text: column 'p' must hold a text, or a list of texts"):
        read(tmp_path, text, "a.jsonl", text_columns=["q", "p"])
    groups, bad = read(tmp_path, text, "a.jsonl", "skip", text_columns=["q", "p"])
    assert len(groups) == 1 and bad.counts == {"no text": 1}


def test_a_header_is_not_taken_for_texts(tmp_path):
    with pytest.raises(DataError, match=r"a\.tsv:1: the first row looks like the names of the columns"):
        read(tmp_path, "anchor\tpositive\na\tb\n", text_columns=["1", "2"])
    assert len(read(tmp_path, "anchor\tpositive\na\tb\n", text_columns=["anchor", "positive"], header=True)[0]) == 1


def test_writings_of_dates_are_of_different_dates():
    train, validation, test = GROUPS["date_writings"]()
    assert all(first != second for first, second in (group.texts for group in test)) and len(train) > 5000
    texts = [text for group in train for text in group.texts]
    assert len({*texts}) == len(texts) and not {*texts} & {text for group in validation for text in group.texts}


def test_queries_of_dates_name_year_and_language():
    _, validation, test = GROUPS["date_queries"]()
    assert {query[4:] for query, _ in (group.texts for group in test)} == {" in English", " in French", " in German"}
    assert all(query[:4] in document for query, document in (group.texts for group in validation))


@pytest.mark.parametrize(
    "count, cuts",
    [
        (0, []),
        (15, []),
        (16, [(0, 8, 16)]),
        (17, [(0, 9, 17)]),
        (96, [(0, 48, 96)]),
        (97, [(0, 48, 96)]),
        (151, [(0, 48, 96)]),
        (152, [(0, 48, 96), (96, 144, 152)]),
    ],
)
def test_neighbours_are_consecutive_passages(count, cuts):
    words = [str(number) for number in range(count)]
    expected = [(" ".join(words[first:middle]), " ".join(words[middle:last])) for first, middle, last in cuts]
    assert neighbours("  ".join(words)) == expected


def test_neighbours_in_a_script_without_spaces():
    text = "".join(chr(0x4E00 + number) + ("，" if number == 7 else "") for number in range(20))
    assert neighbours(text) == [(text[:11], text[11:])]


@pytest.mark.parametrize("source", ["tfidf", "random", "both"])
def test_negatives(source):
    groups = [("rome", "rome in italy"), ("rome", "old rome"), ("bern", "bern in june"), ("oak", "an oak")]
    drawn = with_negatives(groups, 2, source, 0)
    relevant = {"rome": {"rome in italy", "old rome"}, "bern": {"bern in june"}, "oak": {"an oak"}}
    for query, document, *others in drawn:
        assert len({*others}) == 2 and document in relevant[query] and not {*others} & relevant[query]
    assert drawn == with_negatives(groups, 2, source, 0)
    pairs = pairs_of_groups([("q", "a", "x"), ("q", "b", "y"), ("q", "a", "b")])
    assert pairs == [Pair("q", "a", 1.0), Pair("q", "b", 1.0), Pair("q", "x", 0.0), Pair("q", "y", 0.0)]
