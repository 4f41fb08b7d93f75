"""Sentences of words with a tag each: CoNLL and CoNLL-U files and named data sets."""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from recipes.common.data import dates
from recipes.common.data.data_sets import Loaders, RemoteFile, Splits, fetch
from recipes.common.data.labels import Labels
from recipes.common.data.lines import UNDECODABLE, read_lines
from recipes.common.data.text_files import COLUMNS, holds_records, read_table
from recipes.common.errors import BadLines, ConfigError, DataError, shown

NO_TAG = "no word or no tag"


class TaggedWords(NamedTuple):
    """The words of a sentence, a tag for each, and where it begins."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    origin: str


UD_ENGLISH_EWT = {
    part: RemoteFile(
        f"ud_english_ewt/en_ewt-ud-{part}.conllu",
        sha256,
        "UniversalDependencies/UD_English-EWT",
        "15d613d8447b3478787d4c278730a1e48a945efb",
        f"en_ewt-ud-{part}.conllu",
    )
    for part, sha256 in (
        ("train", "3fb78e2b55482c8ee00caa653af436c88c9e5bc9a73ce26e4ae3ddc79d2b7e7b"),
        ("dev", "531a54ff90d6ab12201c5a50c3e78e6ddac4de69abc4bce5d275d3cd29efe2b6"),
    )
}
WNUT17 = {
    name: RemoteFile(
        f"wnut17/{name}", sha256, "leondz/emerging_entities_17", "e52a2d2a71ac1a051ca2d532eef28653c5c02603", name
    )
    for name, sha256 in (
        ("wnut17train.conll", "731820e13f71af324c6b55a1575ec2ce59fbaa2a0806f8f0400b98d56cd6a7a5"),
        ("emerging.dev.conll", "e053b752b8155113ca66e7db08af5f2f5f43ab993694e4774f1ec5bad42312d8"),
    )
}


def read_conll(
    file: str | os.PathLike, bad: BadLines, *, word_column: int = 1, tag_column: int = 2
) -> Iterator[TaggedWords]:
    """Sentences of a file with a word per line and an empty line after each sentence.

    Columns are separated by a tab, or by white space where a line has no tab. In CoNLL-U files (`.conllu`) comments,
    multi-word tokens and empty nodes are no words.

    Args:
        file: The file, plain or gzip-compressed.
        bad: Where bad lines are accounted for; a sentence with one is left out whole.
        word_column: Number of the column of the word, from 1.
        tag_column: Number of the column of the tag, from 1; in CoNLL-U 4 is the universal part of speech.

    Raises:
        DataError: If the file holds no sentence, or has a bad line and `bad` raises.

    Example:

    >>> next(read_conll("wnut17train.conll", BadLines("raise"))).words[:2]
    ('@paulwalk', 'It')
    """
    is_conllu = re.search(r"\.conllu(\.gz)?$", str(file)) is not None
    words: list[str] = []
    tags: list[str] = []
    start, is_whole, count, tag = "", True, 0, ""
    labels = Labels()
    for line in read_lines(file):
        if line.text is not None and not line.text.strip():
            if words and is_whole:
                count += 1
                yield TaggedWords(tuple(words), tuple(tags), start)
            words, tags, is_whole = [], [], True
            continue
        problem = None
        if line.text is None:
            problem = (UNDECODABLE, line.problem)
        elif is_conllu and line.text.startswith("#"):
            continue
        else:
            fields = line.text.split("\t") if "\t" in line.text else line.text.split()
            if is_conllu and ("-" in fields[0] or "." in fields[0]):
                continue
            if len(fields) < max(word_column, tag_column):
                problem = (COLUMNS, f"{len(fields)}, needed are {max(word_column, tag_column)}")
            elif not fields[word_column - 1].strip():
                problem = (NO_TAG, shown(line.text))
            else:
                try:
                    tag = labels.read(fields[tag_column - 1], line.origin)
                except ValueError as error:
                    problem = (NO_TAG, f"{shown(line.text)}: {error}")
        if problem is not None:
            bad.add(problem[0], line.origin, problem[1])
            is_whole = False
            continue
        start = start if words else line.origin
        words.append(fields[word_column - 1].strip())
        tags.append(tag)
    if words and is_whole:
        count += 1
        yield TaggedWords(tuple(words), tuple(tags), start)
    if not count:
        raise DataError(f"{file} holds no sentence: {bad.report()}")


def read_tagged(
    files: Sequence[str], bad: BadLines, *, word_column: int | str = 1, tag_column: int | str = 2
) -> list[TaggedWords]:
    """Returns the sentences of files.

    Args:
        files: Paths, or names of data sets.
        bad: Where bad lines are accounted for.
        word_column, tag_column: Numbers of columns of CoNLL, see `read_conll`; of files of records (JSON, Parquet, data
            sets) the keys of a list of words and of a list of their tags.

    Raises:
        ConfigError: If there can be no such column.
        DataError: See `read_conll`.
    """
    columns = {"word_column": word_column, "tag_column": tag_column}
    has_keys = any(map(holds_records, files))
    for name, column in columns.items():
        if has_keys != isinstance(column, str) or (not has_keys and column < 1):
            needed = "a key of the records" if has_keys else "a number of at least 1"
            raise ConfigError(f"data.{name} must be {needed}, got {shown(column)}")
    read = read_word_lists if has_keys else read_conll
    return [sentence for file in files for sentence in read(file, bad, **columns)]


def read_word_lists(file: str, bad: BadLines, *, word_column: str, tag_column: str) -> Iterator[TaggedWords]:
    """Sentences of a file of records, each with a list of words and a list of as many tags.

    Args:
        file: The file, or the name of a data set.
        bad: Where bad records are accounted for.
        word_column, tag_column: The keys.

    Raises:
        DataError: If the file holds no sentence, or has a bad record and `bad` raises.

    Example:

    >>> next(read_word_lists("hf://datasets/eriktks/conll2003", bad, word_column="tokens", tag_column="ner_tags"))
    """
    labels = Labels()
    for (words, tags), origin in read_table(file, [word_column, tag_column], bad):
        try:
            if not isinstance(words, list) or not isinstance(tags, list) or len(words) != len(tags) or not words:
                raise ValueError(f"words and tags must be lists of one length, got {shown([words, tags])}")
            if not all(isinstance(word, str) and word.strip() for word in words):
                raise ValueError(f"words must be texts, got {shown(words)}")
            read = tuple(labels.read(tag, origin, is_json=True) for tag in tags)
        except ValueError as error:
            bad.add(NO_TAG, origin, str(error))
        else:
            yield TaggedWords(tuple(word.strip() for word in words), read, origin)


def _load_ud_english_ewt() -> Splits:
    parts = (fetch(UD_ENGLISH_EWT[part]) for part in ("train", "dev"))
    columns = {"word_column": 2, "tag_column": 4}
    return Splits(*(list(read_conll(part, BadLines("raise"), **columns)) for part in parts))


def _load_wnut17() -> Splits:
    parts = (fetch(file) for file in WNUT17.values())
    return Splits(*(list(read_conll(part, BadLines("raise"))) for part in parts))


def _load_date_parts() -> Splits:
    generator = np.random.default_rng(0)
    frames = (("we meet on", "at noon"), ("born", ""), ("the letter of", "was lost"), ("", "was a fine day"))

    def sentence(iso: str, origin: str) -> TaggedWords:
        date = datetime.date.fromisoformat(iso)
        before, after = frames[int(generator.integers(len(frames)))]
        month = date.strftime("%B")
        day = [(str(date.day), "B-DAY")]
        middle = [(month, "B-MONTH")]
        if generator.random() < 0.5:
            day = [("the", "B-DAY"), (f"{date.day}th", "I-DAY")]
            middle = [("of", "O"), *middle]
        written = day + middle if generator.random() < 0.5 else [*middle[-1:], *day]
        written.append((str(date.year), "B-YEAR"))
        words = [(word, "O") for word in before.split()] + written + [(word, "O") for word in after.split()]
        return TaggedWords(*map(tuple, zip(*words, strict=True)), origin)

    splits = dates.generate(train=2000, validation=200, test=400)
    return Splits(*([sentence(pair.target, pair.origin) for pair in pairs] for pairs in splits))


# * `date_parts`: generated English dates in short sentences, tagged B-DAY, B-MONTH, B-YEAR, I-... or O.
# * `ud_english_ewt`: English Web Treebank, universal parts of speech, 12,544 / 2,001 sentences. Source: Silveira et
#   al. 2014; CC BY-SA 4.0.
# * `wnut17`: rare entities in social media, BIO tags of six kinds, 3,394 / 1,009. Source: Derczynski et al. 2017;
#   CC BY 4.0.
TAGGED: Loaders = {
    "date_parts": _load_date_parts,
    "ud_english_ewt": _load_ud_english_ewt,
    "wnut17": _load_wnut17,
}
