"""Raw texts in which spans of characters have labels: JSON-lines files, a named data set, errors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

import zoo
from recipes.common.data.data_sets import Loaders, Splits
from recipes.common.data.labels import Labels
from recipes.common.data.tagged_words import TAGGED, TaggedWords
from recipes.common.data.text_files import read_table
from recipes.common.errors import BadLines, shown

NO_TEXT = "no text"
BAD_SPANS = "spans that do not fit"
# characters of the text that are shown around an error
_AROUND = 40

Span = dict[str, Any]


class SpannedText(NamedTuple):
    """A text, its spans ("start", "end", "label", in characters), the tags of its words, and where it stands."""

    text: str
    spans: list[Span]
    tags: list[str]
    origin: str


def read_spanned(files: Sequence[str], bad: BadLines, split: str) -> list[SpannedText]:
    """Returns the texts of JSON-lines files: `{"text": "...", "spans": [{"start": 0, "end": 3, "label": "PER"}]}`.

    Says how many spans do not begin and end with words: their words are tagged as a whole.

    Args:
        files: Paths.
        bad: Where bad rows are noted: no text; spans outside of it, that overlap, hold no word, or share one.
        split: How texts are split into words, see `zoo.preprocessing.split_words`.
    """
    found: list[SpannedText] = []
    widened, labels = 0, Labels()
    for file in files:
        rows = []
        for (text, spans), origin in read_table(file, ["text", "spans"], bad):
            if not isinstance(text, str) or not text.strip():
                bad.add(NO_TEXT, origin, f"got {shown(text)}")
            elif not isinstance(spans, list):
                bad.add(BAD_SPANS, origin, f"spans must be a list, got {shown(spans)}")
            else:
                rows.append((text, spans, origin))
        for text, spans, origin in rows:
            places = zoo.preprocessing.words.word_places(text, split)
            try:
                spans = [_read_label(span, labels, origin) for span in spans]
                tags = zoo.preprocessing.tags.tags_of_words(text, places, spans)
            except (TypeError, ValueError) as error:
                bad.add(BAD_SPANS, origin, str(error).removesuffix("."))
                continue
            starts, ends = ({place[side] for place in places} for side in (0, 1))
            widened += sum(span["start"] not in starts or span["end"] not in ends for span in spans)
            spans = [{name: span[name] for name in ("start", "end", "label")} for span in spans]
            found.append(SpannedText(text, spans, tags, origin))
    if widened:
        total = sum(len(row.spans) for row in found)
        print(f"{widened} of {total} spans do not begin and end with words: these are tagged as a whole")
    return found


def _read_label(span: Any, labels: Labels, origin: str) -> Any:
    return (
        {**span, "label": labels.read(span["label"], origin, is_json=True)}
        if isinstance(span, dict) and "label" in span
        else span
    )


def with_tags(rows: Sequence[SpannedText], split: str) -> list[SpannedText]:
    """Returns rows with the tags of their words.

    Args:
        rows: The rows.
        split: How texts are split into words.
    """
    tags = zoo.preprocessing.span_tags([row.text for row in rows], [row.spans for row in rows], split)
    return [row._replace(tags=some) for row, some in zip(rows, tags, strict=True)]


def make_spanned(sentence: TaggedWords) -> SpannedText:
    """Returns a sentence as a text with spans: its words joined by spaces, followed by a full stop.

    Args:
        sentence: Words without punctuation, with BIO tags.
    """
    places = zoo.preprocessing.tags.joined_spans(sentence.words)
    spans = [
        {"start": places[first][0], "end": places[end - 1][1], "label": label}
        for label, first, end in zoo.preprocessing.decode_tags(sentence.tags)
    ]
    return SpannedText(" ".join(sentence.words) + ".", spans, [*sentence.tags, "O"], sentence.origin)


def _load_date_spans() -> Splits:
    return Splits(*([make_spanned(sentence) for sentence in part] for part in TAGGED["date_parts"]()))


# * `date_spans`: the sentences of `date_parts` as texts with spans of characters: DAY, MONTH, YEAR.
SPANNED: Loaders = {"date_spans": _load_date_spans}


def span_keys(spans: Iterable[Any]) -> set[tuple[int, int, str]]:
    """Returns what tells spans of one text from each other: start, end and label.

    Args:
        spans: Spans of the data, or entities that a model found.
    """
    dicts = (span._asdict() if isinstance(span, zoo.preprocessing.Entity) else span for span in spans)
    return {(span["start"], span["end"], span["label"]) for span in dicts}


def span_errors(
    rows: Sequence[SpannedText],
    predicted: Sequence[Sequence[zoo.preprocessing.Entity]],
    probabilities: Sequence[np.ndarray],
    split: str,
) -> list[tuple[Any, ...]]:
    """Returns spans that are too many and spans that are missing: confidence, which, label, text, place, context.

    The confidence of a missing span is the mean probability of the tags that its words were given.

    Args:
        rows: The texts.
        predicted: Spans of each.
        probabilities: Of the labels of each text's words, `(words, labels)`.
        split: How texts were split into words.
    """
    found = []
    places = [zoo.preprocessing.words.word_places(row.text, split) for row in rows]
    for row, entities, values, words in zip(rows, predicted, probabilities, places, strict=True):
        right, given = span_keys(row.spans), span_keys(entities)
        errors = [(entity.score, "wrong", entity.start, entity.end, entity.label) for entity in entities]
        errors = [error for error in errors if error[2:] not in right]
        for start, end, label in sorted(right - given):
            inside = [number for number, (first, last) in enumerate(words) if first < end and last > start]
            errors.append((float(values[inside].max(axis=-1).mean()), "missing", start, end, label))
        for score, kind, start, end, label in errors:
            around = row.text[max(0, start - _AROUND) : start], row.text[end : end + _AROUND]
            context = f"{around[0]}[{row.text[start:end]}]{around[1]}"
            found.append((score, kind, label, row.text[start:end], start, end, context, row.origin))
    return found
