"""Rows that are in two parts: counted by hand, left out on request; named data sets that are cut here have none."""

import dataclasses
import json

import pytest

from recipes.common.data.account import DataAccount
from recipes.common.data.chat_data import CONVERSATIONS
from recipes.common.data.chat_files import Conversation
from recipes.common.data.data_sets import Source, TextPair, open_parts
from recipes.common.data.labelled_text import LABELLED, LabelledText, read_examples
from recipes.common.data.overlap import content_of, deduplicated, given_of, overlaps
from recipes.common.data.parallel_text import PARALLEL
from recipes.common.data.plain_text import PLAIN
from recipes.common.data.preference_data import PREFERENCES, Preference
from recipes.common.data.questions import QUESTIONS, Question
from recipes.common.data.summaries import SUMMARIES, Summary
from recipes.common.data.tagged_words import TAGGED, TaggedWords
from recipes.common.data.text_groups import GROUPS, TextGroup
from recipes.common.errors import DataError, RunFolderError


def message(role, content):
    return {"role": role, "content": content}


@pytest.mark.parametrize(
    ("row", "same_question", "other"),
    [
        (LabelledText(("a",), "x", "f:1"), LabelledText(("a",), "y", "g:2"), LabelledText(("b",), "x", "f:1")),
        (TextPair("a  b", "c", "f:1"), TextPair("a b", "d", "g:2"), TextPair("c", "c", "f:1")),
        (Summary("a", ("b",), "f:1"), Summary("a", ("c",), "g:2"), Summary("b", ("b",), "f:1")),
        (TaggedWords(("a",), ("X",), "f:1"), TaggedWords(("a",), ("Y",), "g"), TaggedWords(("b",), ("X",), "f:1")),
        (TextGroup(("a", "b"), "f:1"), TextGroup(("a", "b"), "g:2"), TextGroup(("a", "c"), "f:1")),
        (Question("a", "b", (("b", 0),), "1", "f"), Question("a", "b", (), "2", "g"), Question("a", "c", (), "1", "f")),
        (
            Conversation([message("user", "a"), message("assistant", "b")], "f:1"),
            Conversation([message("user", "a"), message("assistant", "c")], "g:2"),
            Conversation([message("user", "b"), message("assistant", "b")], "f:1"),
        ),
        (Preference("a", "b", "c", "f:1"), Preference("a", "c", "b", "g:2"), Preference("b", "b", "c", "f:1")),
        ("a b", " a\nb ", "a c"),
    ],
)
def test_rows_are_the_same_question_whatever_the_answer_and_the_place(row, same_question, other):
    assert given_of(row) == given_of(same_question) != given_of(other)
    if not isinstance(row, str):
        assert content_of(row) == content_of(row._replace(origin="elsewhere")) != content_of(other)


def test_counts_and_what_is_left_out(capsys):
    def rows(texts):
        return [LabelledText((text,), "x", f"f:{number}") for number, text in enumerate(texts, 1)]

    parts = {"train": rows("abcdd"), "validation": rows("cef"), "test": rows("aegg")}
    assert overlaps(parts) == {
        "validation_rows_in_train": 1,
        "test_rows_in_train": 1,
        "test_rows_in_validation": 1,
    }
    said = capsys.readouterr().out
    assert (
        "validation: 1 of 3 rows are in train" in said and "test: 1 of 4 rows are in validation, too, first f:2" in said
    )
    kept = deduplicated(parts)
    assert {name: "".join(row.texts[0] for row in found) for name, found in kept.items()} == {
        "train": "bd",
        "validation": "cf",
        "test": "aeg",
    }
    assert list(kept) == list(parts) and kept["train"][1].origin == "f:4"
    assert not any(overlaps(kept).values())
    # in their order
    assert [row.texts[0] for row in deduplicated({"train": rows("abac")})["train"]] == ["a", "b", "c"]


@dataclasses.dataclass(frozen=True)
class Data:
    """Where rows are."""

    train: list[str]
    validation: list[str]
    test: list[str]
    on_error: str = "raise"
    deduplicate: bool = False


def test_parts_of_files(tmp_path, capsys):
    files = {}
    for name, text in (("train", "a\tx\nb\ty\nc\tx\n"), ("validation", "b\tx\nd\ty\n"), ("test", "c\tx\ne\ty\n")):
        files[name] = [str(tmp_path / f"{name}.tsv")]
        (tmp_path / f"{name}.tsv").write_text(text)
    account = DataAccount(tmp_path, {}, is_trained=False)
    assert [len(part) for part in open_parts(Data(**files), Source(LABELLED, read_examples), account=account)] == [
        3,
        2,
        2,
    ]
    assert account.counts == {"validation_rows_in_train": 1, "test_rows_in_train": 1, "test_rows_in_validation": 0}
    assert "train.tsv" not in capsys.readouterr().out.replace("in train", "")
    parts = open_parts(Data(**files, deduplicate=True), Source(LABELLED, read_examples))
    assert [[row.texts[0] for row in part] for part in parts] == [["a"], ["b", "d"], ["c", "e"]]
    without_test = Data(files["train"], files["validation"], [])
    train, validation, test = open_parts(without_test, Source(LABELLED, read_examples), account=account)
    assert test is validation and len(train) == 3
    # the same rows twice are one part
    same = Data(files["train"], files["validation"], files["validation"], deduplicate=True)
    train, validation, test = open_parts(same, Source(LABELLED, read_examples))
    assert test == validation and len(train) == len(validation) == 2
    with pytest.raises(DataError, match="data.deduplicate .*data.train"):
        open_parts(Data(files["train"], files["train"], [], deduplicate=True), Source(LABELLED, read_examples))


def test_rows_of_a_run_that_are_read_in_another_way(tmp_path):
    """The files are the same, but another version makes other rows of them, or generates others."""
    rows = [TextPair("a", "b", "f:1"), TextPair("c", "\u00fc", "f:2")]
    # the digest is the same whatever version of Unicode Python knows
    assert content_of(rows[1]) == r"['c', '\xfc']"
    DataAccount(tmp_path, {}, is_trained=False).note_rows("train", rows)
    DataAccount(tmp_path, {}, is_trained=True).note_rows("train", [row._replace(origin="g") for row in rows])
    for others in (rows[::-1], rows[:1], [rows[0], TextPair("c", "e", "f:2")]):
        with pytest.raises(RunFolderError, match="data.train"):
            DataAccount(tmp_path, {}, is_trained=True).note_rows("train", others)
    # a run that has not been trained may have any
    DataAccount(tmp_path, {}, is_trained=False).note_rows("train", rows[:1])
    assert list(json.loads((tmp_path / "data.json").read_text())["rows"]) == ["train"]


# data sets whose parts are made here; those with official parts (GLUE, Multi30k, SciTLDR, EWT) keep them
MADE_HERE = {
    **{name: PLAIN[name] for name in ("gutenberg", "wikitext2", "movie_reviews", "date_lines")},
    **{name: LABELLED[name] for name in ("ag_news", "date_languages", "date_pairs")},
    **{name: PARALLEL[name] for name in ("dates", "multi30k_en_de_fr", "tatoeba_en_fr")},
    **{name: GROUPS[name] for name in ("date_writings", "date_queries")},
    **{name: CONVERSATIONS[name] for name in ("date_questions", "english_questions")},
    **{name: PREFERENCES[name] for name in ("date_preferences", "english_preferences")},
    **{name: loaders[name] for name, loaders in (("date_events", QUESTIONS), ("date_notes", SUMMARIES))},
    "date_parts": TAGGED["date_parts"],
}


@pytest.mark.parametrize("name", MADE_HERE)
def test_named_data_sets_have_no_row_of_one_part_in_another(data_folder, name):
    parts = {part: rows for part, rows in MADE_HERE[name]()._asdict().items() if rows is not None}
    if name == "multi30k_en_de_fr":
        # one caption for two languages is one row
        parts = {part: [row.source.partition(" ")[2] for row in rows] for part, rows in parts.items()}
        assert [len(rows) for rows in parts.values()] == [58_000, 1_014, 1_506]
    assert not any(overlaps(parts).values())
