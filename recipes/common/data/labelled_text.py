"""Texts, or pairs of texts, with a label: from files and from named data sets."""

from __future__ import annotations

import datetime
import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from recipes.common.data import dates
from recipes.common.data.data_sets import Loaders, RemoteFile, Splits, fetch
from recipes.common.data.headers import may_name_a_column
from recipes.common.data.labels import Labels, read_number
from recipes.common.data.lines import read_lines
from recipes.common.data.text_files import holds_records, read_table
from recipes.common.errors import BadLines, ConfigError, DataError, looks_like_header, shown

NO_TEXT = "no text"
NO_LABEL = "no label"
# of a column whose neighbour is likely to be a name
_WORDS_OF_A_HEADING = 8
OUT_OF_RANGE = "number out of range"


class LabelledText(NamedTuple):
    """One text or two, their label (a name, a list of names, or a number) and where they stand."""

    texts: tuple[str, ...]
    label: Any
    origin: str


SST2 = {
    part: RemoteFile(
        f"sst2/sentences/{part}.tsv",
        sha256,
        "clairett/pytorch-sentiment-classification",
        "457ffd83de90a9d6d472d8ffc31bbffe40a8b236",
        f"data/SST2/{part}.tsv",
    )
    for part, sha256 in (
        ("train", "ec192f833a64da08f475488a77b0d0b47db47acd0f458bd18433fc793b569920"),
        ("dev", "eddea6b39e601dd4e7a672b53cc40fdf6019fa80522f351206c24340ca5d9359"),
    )
}
SST2_PHRASES = {
    part: RemoteFile(
        f"sst2/phrases/{part}.tsv",
        sha256,
        "forest-snow/alps",
        "3c7ef2c98249fc975a897b27f275695f97d5b7a9",
        f"data/SST-2/{part}.tsv",
    )
    for part, sha256 in (
        ("train", "920e317b2c52e12cd22db1da2c6708312bd7dc4f3712b9bbf1b50ee6c2c792ba"),
        ("dev", "92353770071a2a889f75d000a38a9e541ea8f0a5499e50f040b17917a5cbf66f"),
        ("test", "54a9c12c77e402fc14d6a66a506f24d999f596b0176eb777c972cccc2f9cc4b0"),
    )
}
AG_NEWS = RemoteFile(
    "ag_news/dev.tsv",
    "7a0811e0006080bf4de17752c5466450ff3db778be71bc5bcf3c4e99b5f0803d",
    "forest-snow/alps",
    "3c7ef2c98249fc975a897b27f275695f97d5b7a9",
    "data/agnews/dev.tsv",
)
STSB = {
    part: RemoteFile(
        f"stsb/sts-{part}.csv",
        sha256,
        "oborchers/Fast_Sentence_Embeddings",
        "e92261ab5a64ee8fc754bec5a2882ab83bcd0384",
        f"evaluation/sts-{part}.csv",
    )
    for part, sha256 in (
        ("train", "0f71910b59aa1ad973c5897f0791f3b0965a92b8f82b1a95f3eea9f4162fda82"),
        ("dev", "5d7e944d8b02734b07bfdb5df67db3420c64bed153fcaa1ba47ad03480cf4234"),
    )
}


def read_examples(
    files: Sequence[str],
    bad: BadLines,
    *,
    text_columns: Sequence[str] = ("1",),
    label_column: str = "2",
    header: bool | None = None,
    label_separator: str | None = None,
    numeric: bool = False,
) -> list[LabelledText]:
    """Returns the labelled texts of tables, or of files of records (`recipes.common.data.text_files.read_table`).

    Args:
        files: Paths.
        bad: Where bad rows are noted.
        text_columns: Column of the text, or those of a pair: numbers from 1, names or keys.
        label_column: That of the label.
        header: See `recipes.common.data.text_files.read_table`.
        label_separator: What separates several labels; None where each text has one.
        numeric: Whether labels are numbers.

    Raises:
        DataError: A missing or bad file, or a row without text or label, with its place; a first row that looks like a
            header, where it is not said whether there is one.
        ConfigError: `text_columns` are not one or two.
    """
    if len(text_columns) not in (1, 2):
        raise ConfigError(f"data.text_columns must name one column or two, got {list(text_columns)}")
    examples, labels = [], Labels()
    for file in files:
        found, is_json = [], holds_records(file)
        for (*texts, field), origin in read_table(file, [*text_columns, label_column], bad, header=header):
            if not all(isinstance(text, str) and text.strip() for text in texts):
                bad.add(NO_TEXT, origin, f"the fields are {shown(texts)}")
                continue
            try:
                if numeric:
                    label: Any = read_number(field)
                elif label_separator is None:
                    label = labels.read(field, origin, is_json=is_json)
                else:
                    label = labels.read_several(field, label_separator, origin, is_json=is_json)
            except ValueError as error:
                bad.add(NO_LABEL, origin, str(error))
            else:
                found.append(LabelledText(tuple(text.strip() for text in texts), label, origin))
        if header is None and not numeric and not is_json:
            _refuse_header(found)
        examples += found
    return examples


def _refuse_header(examples: Sequence[LabelledText]) -> None:
    """A first row of a few words, with a label that no other row has and that is unlike theirs, is taken for names."""
    rows = [example.label if isinstance(example.label, list) else [example.label] for example in examples]
    if len(rows) < 2 or len(rows[0]) != 1:
        return
    counts = Counter(label for labels in rows for label in labels)
    name = rows[0][0]
    others = {label: count for label, count in counts.items() if label != name}
    # of labels that are numbers a name is none; of names only one that is rarer than all others
    differs = all(map(_is_number, others)) or min(others.values()) > 2
    is_rare = others and counts[name] == 1 and differs and may_name_a_column(name)
    if is_rare and all(may_name_a_column(text, _WORDS_OF_A_HEADING) for text in examples[0].texts):
        raise looks_like_header([*examples[0].texts, name], examples[0].origin)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def is_in_range(example: LabelledText, bad: BadLines, highest: float) -> bool:
    """Returns whether the number of an example is from 0 to the highest; notes it if not.

    Args:
        example: The example.
        bad: Where it is noted.
        highest: The highest number.
    """
    if 0 <= example.label <= highest:
        return True
    bad.add(OUT_OF_RANGE, example.origin, f"{example.label} is not from 0 to {highest}")
    return False


def _read_sentiments(file: RemoteFile, header: bool) -> list[LabelledText]:
    rows = read_table(fetch(file), ["1", "2"], BadLines("raise"), header=header)
    return [LabelledText((text,), ("negative", "positive")[int(label)], origin) for (text, label), origin in rows]


def _load_sst2() -> Splits:
    return Splits(*(_read_sentiments(SST2[part], header=False) for part in ("train", "dev")))


def _load_sst2_phrases() -> Splits:
    parts = {part: _read_sentiments(file, header=True) for part, file in SST2_PHRASES.items()}
    # a slice of the training phrases is named dev there, and the development set of GLUE test
    return Splits(parts["train"] + parts["dev"], parts["test"])


def _load_ag_news() -> Splits:
    parts: dict[str, list[LabelledText]] = {part: [] for part in Splits._fields}
    for line in read_lines(fetch(AG_NEWS)):
        text, label = (line.text or "").split("\t")
        # by a hash of the text, so that what occurs twice is in one part
        tenth = hashlib.sha256(text.encode()).digest()[0] % 10
        part = {0: "test", 1: "validation"}.get(tenth, "train")
        parts[part].append(LabelledText((text,), label, line.origin))
    return Splits(**parts)


def _load_stsb() -> Splits:
    def read(part: str) -> list[LabelledText]:
        # some lines have quotation marks of their own, and more columns
        path = fetch(STSB[part])
        rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]
        return [
            LabelledText((row[5].strip(), row[6].strip()), float(row[4]), f"{path}:{number}")
            for number, row in enumerate(rows, 1)
        ]

    return Splits(read("train"), read("dev"))


def _load_date_languages() -> Splits:
    parts = {}
    for part, pairs in zip(Splits._fields, dates.generate(train=3000, validation=300, test=600), strict=True):
        languages = [dates.languages_of(pair.source, pair.target) for pair in pairs]
        # digits alone, and some months, are the same in several languages
        parts[part] = [
            LabelledText((pair.source,), *language, pair.origin)
            for pair, language in zip(pairs, languages, strict=True)
            if len(language) == 1
        ]
    return Splits(**parts)


def _load_date_pairs() -> Splits:
    generator = np.random.default_rng(0)
    parts = {}
    for part, pairs in zip(Splits._fields, dates.generate(train=6000, validation=300, test=600), strict=True):
        parts[part] = []
        for pair in pairs:
            date = datetime.date.fromisoformat(pair.target)
            # day 28 at most: every month has it
            others = (int(generator.integers(1900, 2100)), *(int(n) + 1 for n in generator.integers((12, 28))))
            keep = generator.random(3) < 0.5
            fields = [
                mine if kept else other
                for mine, other, kept in zip((date.year, date.month, min(date.day, 28)), others, keep, strict=True)
            ]
            second = datetime.date(*fields)
            agreement = sum(getattr(date, name) == getattr(second, name) for name in ("year", "month", "day")) / 3
            texts = (pair.source, dates.write(second, generator))
            parts[part].append(LabelledText(texts, agreement, pair.origin))
    return Splits(**parts)


# * `date_languages`: generated dates (see `recipes.common.data.dates`), labelled with the language they are written in.
# * `date_pairs`: two writings and a number: 1 if they are the same date, else the share of year, month and day that
#   agree.
# * `sst2`: film-review sentences, 6,920 / 872, negative or positive. Source: Socher et al. 2013; no explicit licence.
# * `sst2_phrases`: the same as GLUE has it, 67,349 phrases of the training sentences for training / 872 sentences.
# * `ag_news`: 10,001 news descriptions in four classes, split 80 / 10 / 10 by their words. Source: the AG corpus,
#   non-commercial; Zhang et al. 2015.
# * `stsb`: sentence pairs with a similarity from 0 to 5, 5,749 / 1,500. Source: Cer et al. 2017; CC BY-SA 4.0.
LABELLED: Loaders = {
    "date_languages": _load_date_languages,
    "date_pairs": _load_date_pairs,
    "sst2": _load_sst2,
    "sst2_phrases": _load_sst2_phrases,
    "ag_news": _load_ag_news,
    "stsb": _load_stsb,
}


def require_known_labels(
    known: Sequence[str], rows: Sequence[tuple[Iterable[str], str]], occurring: Sequence[str] | None = None
) -> None:
    """Checks the labels, or tags, of validation data, and says which ones they lack.

    Args:
        known: Those that the model can give.
        rows: For each row its labels and where it stands.
        occurring: Those that occur in the training data; None for all that are known.

    Raises:
        DataError: If a label is not among them, with its place.
    """
    for labels, origin in rows:
        unknown = [label for label in labels if label not in known]
        if unknown:
            label, names = shown(unknown[0]), shown(list(known), 200)
            raise DataError(f"{origin}: {label} does not occur in the training data, which have {names}")
    missing = sorted(set(known if occurring is None else occurring) - {label for labels, _ in rows for label in labels})
    if missing:
        print(f"validation: no row has {shown(missing, 200)}: it says nothing of them")


def unknown_labels(known: Sequence[str], rows: Sequence[tuple[Sequence[str], str]], what: str) -> dict[str, int]:
    """Returns how many labels, or tags, of the data the model cannot give, and says which, if there are any.

    Args:
        known: Those of the model.
        rows: For each row its labels and where it stands.
        what: "label" or "tag".

    Raises:
        DataError: If the model can give none of them.
    """
    counts = Counter(label for labels, _ in rows for label in labels if label not in known)
    if not counts:
        return {}
    first = next(origin for labels, origin in rows if any(label in counts for label in labels))
    names = f"{what}s {shown(list(counts), 200)}, first at {first}; it knows {shown(list(known), 200)}"
    if all(label in counts for labels, _ in rows for label in labels):
        raise DataError(f"the model knows none of the {names}")
    print(f"the model does not know the {names}")
    return {f"unknown_{what}s": counts.total()}


def columns_of(examples: Iterable[LabelledText]) -> tuple[Any, list[Any]]:
    """Returns texts and labels as columns: a list of texts, or two lists of them, and the labels.

    Args:
        examples: Examples with equally many texts each.
    """
    texts = list(zip(*(example.texts for example in examples), strict=True))
    labels = [example.label for example in examples]
    return (list(texts[0]) if len(texts) == 1 else tuple(map(list, texts))), labels
