"""Texts, or pairs of texts, with a label: from files and from named data sets."""

from __future__ import annotations

import datetime
import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from recipes.common import dates
from recipes.common.errors import DataError
from recipes.common.named_data import is_name, load_named
from recipes.common.remote_files import RemoteFile, fetch
from recipes.common.table import Table
from recipes.common.text_lines import BadLines, OnError

NO_TEXT = "no text"
NO_LABEL = "no label"
OUT_OF_RANGE = "number out of range"


class LabelledText(NamedTuple):
    """One text or two, their label (a name, a list of names, or a number) and where they stand."""

    texts: tuple[str, ...]
    label: Any
    origin: str


class Examples(NamedTuple):
    """The parts of a data set; `test` is None where there is none."""

    train: Sequence[LabelledText]
    validation: Sequence[LabelledText]
    test: Sequence[LabelledText] | None


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


def load(name: str) -> Examples:
    """A named data set.

    * `date_languages`: generated dates (see `recipes.common.dates`), labelled with the language they are written in.
    * `date_pairs`: two writings and a number: 1 if they are the same date, else the share of year, month and day that
      agree.
    * `sst2`: film-review sentences, 6,920 / 872, negative or positive. Source: Socher et al. 2013; no explicit licence.
    * `ag_news`: 10,001 news descriptions in four classes, split 80 / 10 / 10 by their words. Source: the AG corpus,
      non-commercial; Zhang et al. 2015.
    * `stsb`: sentence pairs with a similarity from 0 to 5, 5,749 / 1,500. Source: Cer et al. 2017; CC BY-SA 4.0.

    Args:
        name: One of the names above.

    Raises:
        DataError: An unknown name, or a file that is neither in the data folder nor can be downloaded.

    Example:

    >>> load("sst2").train[0].label
    'positive'
    """
    return load_named(name, _LOADERS)


def open_examples(
    files: Sequence[str],
    split: str,
    *,
    text_columns: Sequence[str],
    label_column: str,
    header: bool = False,
    label_separator: str | None = None,
    numeric: bool = False,
    highest: float | None = None,
    on_error: OnError = "raise",
) -> tuple[Sequence[LabelledText] | None, BadLines]:
    """Returns the examples that a config key such as `data.train` names, and the rows left out.

    Args:
        files: The name of a data set, or paths as `Table` takes them.
        split: Part of a named data set: "train", "validation" or "test".
        text_columns: The column of the text, or those of the two texts.
        label_column: The column of the label.
        header: Whether files have a header.
        label_separator: What separates labels in a field, where a text may have several; None for one label.
        numeric: Whether labels are numbers.
        highest: With it numbers must be from 0 to this one.
        on_error: See `Table`.

    Raises:
        DataError: What `load` and `Table` raise, or a row without text or with a bad label, with its place.
    """
    bad = BadLines(on_error)
    if is_name(files):
        examples = getattr(load(files[0]), split)
        return (examples if highest is None or examples is None else _in_range(examples, highest, bad)), bad
    if len(text_columns) not in (1, 2):
        raise DataError(f"data.text_columns must name one column or two, got {list(text_columns)}")
    examples = []
    for file in files:
        table = Table(file, [*text_columns, label_column], header=header, on_error=on_error)
        for (*texts, field), origin in table:
            if not all(isinstance(text, str) and text.strip() for text in texts):
                bad.add(NO_TEXT, origin, f"the fields are {texts!r}")
                continue
            label = _label(field, label_separator, numeric)
            if label is None:
                needed = "a number" if numeric else "a name" if label_separator is None else "names"
                bad.add(NO_LABEL, origin, f"the field must hold {needed}, got {field!r}")
                continue
            examples.append(LabelledText(tuple(text.strip() for text in texts), label, origin))
        bad.extend(table.bad_lines)
    return (examples if highest is None else _in_range(examples, highest, bad)), bad


def _in_range(examples: Sequence[LabelledText], highest: float, bad: BadLines) -> list[LabelledText]:
    kept = []
    for example in examples:
        if 0 <= example.label <= highest:
            kept.append(example)
        else:
            bad.add(OUT_OF_RANGE, example.origin, f"{example.label} is not from 0 to {highest}")
    return kept


def _label(value: Any, separator: str | None, numeric: bool) -> Any:
    """None where the field holds none."""
    if value is None:
        return None
    if numeric:
        try:
            number = float(value)
        except (TypeError, ValueError):
            return None
        return number if math.isfinite(number) else None
    if separator is not None and not isinstance(value, dict):
        parts = value if isinstance(value, list) else str(value).split(separator)
        return [str(part).strip() for part in parts if str(part).strip()]
    return None if isinstance(value, (list, dict)) else str(value).strip() or None


def _load_sst2() -> Examples:
    def read(part: str) -> list[LabelledText]:
        rows = Table(fetch(SST2[part]), ["1", "2"])
        return [LabelledText((text,), ("negative", "positive")[int(label)], origin) for (text, label), origin in rows]

    return Examples(read("train"), read("dev"), None)


def _load_ag_news() -> Examples:
    parts: dict[str, list[LabelledText]] = {part: [] for part in Examples._fields}
    for (text, label), origin in Table(fetch(AG_NEWS), ["1", "2"]):
        # by a hash of the text, so that what occurs twice is in one part
        tenth = hashlib.sha256(text.encode()).digest()[0] % 10
        part = {0: "test", 1: "validation"}.get(tenth, "train")
        parts[part].append(LabelledText((text,), label, origin))
    return Examples(**parts)


def _load_stsb() -> Examples:
    def read(part: str) -> list[LabelledText]:
        # some lines have quotation marks of their own, and more columns
        path = fetch(STSB[part])
        rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]
        return [
            LabelledText((row[5].strip(), row[6].strip()), float(row[4]), f"{path}:{number}")
            for number, row in enumerate(rows, 1)
        ]

    return Examples(read("train"), read("dev"), None)


def _load_date_languages() -> Examples:
    parts = {}
    for part, pairs in zip(Examples._fields, dates.generate(train=3000, validation=300, test=600), strict=True):
        languages = [dates.languages_of(pair.source, pair.target) for pair in pairs]
        # digits alone, and some months, are the same in several languages
        parts[part] = [
            LabelledText((pair.source,), *language, pair.origin)
            for pair, language in zip(pairs, languages, strict=True)
            if len(language) == 1
        ]
    return Examples(**parts)


def _load_date_pairs() -> Examples:
    generator = np.random.default_rng(0)
    parts = {}
    for part, pairs in zip(Examples._fields, dates.generate(train=6000, validation=300, test=600), strict=True):
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
    return Examples(**parts)


_LOADERS: dict[str, Callable[[], Examples]] = {
    "date_languages": _load_date_languages,
    "date_pairs": _load_date_pairs,
    "sst2": _load_sst2,
    "ag_news": _load_ag_news,
    "stsb": _load_stsb,
}
NAMES = tuple(_LOADERS)


def require_known_labels(known: Sequence[str], rows: Iterable[tuple[Iterable[str], str]]) -> None:
    """Checks the labels, or tags, of validation data.

    Args:
        known: Those of the training data.
        rows: For each row its labels and where it stands.

    Raises:
        DataError: If a label is not among them, with its place.
    """
    for labels, origin in rows:
        unknown = [label for label in labels if label not in known]
        if unknown:
            raise DataError(f"{origin}: {unknown[0]!r} does not occur in the training data, which have {list(known)}")


def columns_of(examples: Iterable[LabelledText]) -> tuple[Any, list[Any]]:
    """Returns texts and labels as columns: a list of texts, or two lists of them, and the labels.

    Args:
        examples: Examples with equally many texts each.
    """
    texts = list(zip(*(example.texts for example in examples), strict=True))
    labels = [example.label for example in examples]
    return (list(texts[0]) if len(texts) == 1 else tuple(map(list, texts))), labels
