"""Parquet files and data sets of the Hugging Face library as the input of all readers of rows."""

import json

import pytest

from recipes import classify
from recipes.common.data.chat_files import read_conversations
from recipes.common.data.data_sets import Source, files_of, open_parts
from recipes.common.data.labelled_text import LABELLED, read_examples
from recipes.common.data.parallel_text import read_pairs
from recipes.common.data.plain_text import read_plain
from recipes.common.data.questions import read_questions
from recipes.common.data.spanned_text import read_spanned
from recipes.common.data.summaries import read_summaries
from recipes.common.data.tagged_words import read_tagged
from recipes.common.data.text_groups import read_groups
from recipes.common.errors import BadLines, ConfigError, DataError

datasets = pytest.importorskip("datasets", reason="the extra datasets is not installed")
BAD = BadLines("raise")


def write_parquet(folder, rows, name="a.parquet"):
    datasets.Dataset.from_list(rows).to_parquet(str(folder / name))
    return str(folder / name)


def test_each_reader_takes_parquet(tmp_path):
    """The same rows as those of JSON lines."""
    import zoo

    row = {
        "text": "Ada met Emmy.",
        "label": "good",
        "translation": {"en": "a dog", "de": "ein Hund"},
        "summary": ["short", "shorter"],
        "tokens": ["Ada", "met"],
        "tags": ["B-PER", "O"],
        "spans": [{"start": 0, "end": 3, "label": "PER"}],
        "question": "Who?",
        "context": "Ada met Emmy.",
        "answers": {"text": ["Ada"], "answer_start": [0]},
        "messages": [{"role": "user", "content": "1?"}, {"role": "assistant", "content": "2"}],
    }
    (tmp_path / "a.jsonl").write_text(json.dumps(row) + "\n" + json.dumps(row))
    chat = {"chat_format": zoo.tokenizers.chat.get_chat_format("chatml"), "file_format": "messages"}
    found = []
    for file in (str(tmp_path / "a.jsonl"), write_parquet(tmp_path, [row, row])):
        rows = [
            read_examples([file], BAD, text_columns=["text"], label_column="label"),
            read_pairs([file], BAD, keys=["translation.en", "translation.de"]),
            read_summaries([file], BAD, keys=["text", "summary"]),
            read_tagged([file], BAD, word_column="tokens", tag_column="tags"),
            read_spanned([file], BAD, "space"),
            read_groups([file], BAD, text_columns=["question", "context"]),
            read_conversations([file], BAD, **chat),
            read_plain([file], BAD, unit="file"),
        ]
        rows.append([each._replace(name="") for each in read_questions([file], BAD)])
        assert [getattr(part[1], "origin", f"{file}:2") for part in rows] == [f"{file}:2"] * len(rows)
        found.append([[each if isinstance(each, str) else each._replace(origin="") for each in part] for part in rows])
    assert found[0] == found[1]
    assert found[0][1][0][:2] == ("a dog", "ein Hund") and found[0][3][0].tags == ("B-PER", "O")


def test_numbers_of_labels_become_their_names(tmp_path):
    names = datasets.ClassLabel(names=["negative", "positive"])
    features = datasets.Features(
        {
            "text": datasets.Value("string"),
            "label": names,
            "tags": datasets.Sequence(names),
            "stars": datasets.Value("int8"),
        }
    )
    rows = {"text": ["a", "b", "c"], "label": [1, 0, -1], "tags": [[0, 1], [1], []], "stars": [1, 2, 3]}
    data = datasets.Dataset.from_dict(rows, features=features)
    data.to_parquet(str(tmp_path / "a.parquet"))
    # as data sets of the hub are named that were files of JSON
    data.save_to_disk(str(tmp_path / "saved.json"))
    for file in ("a.parquet", "saved.json"):
        bad = BadLines("skip")
        found = read_examples([str(tmp_path / file)], bad, text_columns=["text"], label_column="label")
        assert [row.label for row in found] == ["positive", "negative"]
        # the test set of a benchmark may have no labels
        assert bad.counts == {"no label": 1} and bad.origins["no label"] == [f"{tmp_path / file}:3"]
        stars = read_examples([str(tmp_path / file)], BAD, text_columns=["text"], label_column="stars", numeric=True)
        assert [row.label for row in stars] == [1.0, 2.0, 3.0]


def labelled(count, start=0):
    return datasets.Dataset.from_dict(
        {"text": [f"text {n}" for n in range(start, start + count)], "label": ["a", "b"] * (count // 2)}
    )


def test_an_address_stands_for_all_parts(tmp_path, monkeypatch):
    parts = datasets.DatasetDict({"train": labelled(8), "test": labelled(4, 50), "validation": labelled(2, 90)})
    parts.save_to_disk(str(tmp_path / "saved"))
    asked = []

    def load_dataset(name, config=None, split=None):
        asked.append((name, config, split))
        return parts if split is None else parts[split]

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    columns = {"text_columns": ["text"], "label_column": "label"}
    source = Source(LABELLED, lambda files, bad: read_examples(files, bad, **columns))
    for name in ("hf://datasets/owner/name", str(tmp_path / "saved")):
        found = open_parts(classify.DataConfig([name], **columns), source)
        assert [len(part) for part in found] == [8, 2, 4]
        assert found[2][0].texts == ("text 50",)
    assert asked[0] == ("owner/name", None, "train") and ("owner/name", None, "test") in asked
    data = classify.DataConfig(["hf://datasets/owner/name#of_2024/test"], **columns, validation_share=0.5)
    train, validation, _ = open_parts(data, source)
    assert asked[-1] == ("owner/name", "of_2024", "test") and len(train) == len(validation) == 2
    assert files_of(classify.DataConfig(["hf://datasets/owner/name#train"]), "validation") == []
    with pytest.raises(DataError, match="saved has no part 'dev'; it has train, test, validation"):
        read_examples([f"{tmp_path / 'saved'}#dev"], BAD, **columns)


def test_errors(tmp_path):
    columns = {"text_columns": ["text"], "label_column": "label"}
    with pytest.raises(DataError, match="file not found: .*a.parquet"):
        read_examples([str(tmp_path / "a.parquet")], BAD, **columns)
    (tmp_path / "b.parquet").write_text("no Parquet")
    with pytest.raises(ConfigError, match="data: .*b.parquet: Parquet magic bytes not found"):
        read_examples([str(tmp_path / "b.parquet")], BAD, **columns)
    file = write_parquet(tmp_path, [{"text": "a"}])
    with pytest.raises(DataError, match=r"a.parquet:1: key missing: 'label'; the line has the keys \['text'\]"):
        read_examples([file], BAD, **columns)
    with pytest.raises(ConfigError, match="data.word_column must be a key of the records, got 1"):
        read_tagged([file], BAD)
    with pytest.raises(ConfigError, match="data.tag_column must be a number of at least 1, got 'tags'"):
        read_tagged(["a.conll"], BAD, tag_column="tags")
    file = write_parquet(tmp_path, [{"words": ["a", "b"], "tags": ["O"]}])
    with pytest.raises(DataError, match="a.parquet:1: no word or no tag: words and tags must be lists of one length"):
        read_tagged([file], BAD, word_column="words", tag_column="tags")
    with pytest.raises(DataError, match="is called hf://datasets/owner/name#config/split, got 'hf://datasets/a#b/c/d'"):
        read_examples(["hf://datasets/a#b/c/d"], BAD, **columns)
