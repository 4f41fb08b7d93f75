"""Words with tags that mark entities, and tags of labelled spans of characters.

BIO: B- begins an entity, I- continues it, O is outside. BIOES adds E- for the last word and S- for a single one; BILOU
names these two L- and U-.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from zoo.columns import is_list
from zoo.preprocessing.rows import as_texts, require_same_length, shorten, string_tensor
from zoo.preprocessing.words import split_words

OUTSIDE = "O"
FIRST, LAST = "BSU", "ELSU"  # prefixes of a first word, and of a last one
PREFIXES = ("B-", "I-", "E-", "S-", "L-", "U-")


class Entity(NamedTuple):
    """A part of a text with a label.

    Args:
        label: The label, for example "PER".
        text: The part of the text.
        start, end: The part is `text[start:end]` of the whole text, or of its words joined by spaces.
        words: Indices of its first word and of the word after its last.
        score: Mean probability of the tags of its words.
    """

    label: str
    text: str
    start: int
    end: int
    words: tuple[int, int]
    score: float


def are_spans(x: Any, y: Any) -> bool:
    """Whether labels are spans of characters of texts, and not one for each word.

    Args:
        x: What the user passed as inputs.
        y: What the user passed as labels.
    """
    if not is_list(y) or not all(
        is_list(row) and all(isinstance(span, (Mapping, Entity)) for span in row) for row in y
    ):
        return False
    # of texts with words, empty lists are no labels of words
    return any(y) or (is_list(x) and all(isinstance(text, (str, bytes)) for text in x))


def span_tags(
    texts: Sequence[str | bytes],
    spans: Sequence[Sequence[Any]],
    split: str = "punctuation",
    name: str = "spans",
    texts_name: str = "texts",
) -> list[list[str]]:
    """Returns the BIO tags of the words of texts, from labelled spans of characters; eager.

    A word that a span covers partly is tagged as a whole.

    Args:
        texts: The texts.
        spans: For each text a list of `Entity`, or of dictionaries with "start", "end" and "label": characters `start`
            to `end - 1`, in any order.
        split: See `split_words`.
        name, texts_name: Names of the arguments, for errors.

    Raises:
        TypeError, ValueError: If texts and spans differ in number; if a span is outside its text, overlaps another
            span, contains no word, or shares a word with another span. The message names the span.

    Example:

    >>> span_tags(["Ada Lovelace wrote"], [[{"start": 0, "end": 12, "label": "PER"}]])
    [['B-PER', 'I-PER', 'O']]
    """
    encoded = as_texts(texts, texts_name)
    require_same_length(len(encoded), len(spans), texts_name, name, "list of spans")
    rows = zip(encoded, places_in_texts(encoded, split), spans, strict=True)
    return [
        tags_of_words(text.decode("utf-8", "replace"), places, some, f"{name}[{row}]")
        for row, (text, places, some) in enumerate(rows)
    ]


def places_in_texts(texts: Sequence[bytes], split: str) -> list[list[tuple[int, int]]]:
    """Returns the places of the words that the graph finds in texts, `(start, end)` in characters for each; eager.

    Args:
        texts: Texts; bytes that are not UTF-8 count as the characters that replace them.
        split: See `split_words`.
    """
    _, *places = split_words(string_tensor(texts), split)
    starts, ends = (place.to_list() for place in places)
    return [character_spans(text, *row) for text, *row in zip(texts, starts, ends, strict=True)]


def tags_of_words(text: str, places: Sequence[tuple[int, int]], spans: Sequence[Any], name: str = "spans") -> list[str]:
    """Returns the BIO tags of the words of one text, see `span_tags`.

    Args:
        text: The text.
        places: First character of each word, and the one after its last.
        spans: The spans.
        name: Name of the spans, for errors.
    """
    found: list[Any] = []
    last = (0, 0)
    for start, end, label in sorted(_span(span, f"{name}[{place}]") for place, span in enumerate(spans)):
        shown = f"{name}: the span ({start}, {end}, {shorten(label)})"
        if not 0 <= start < end <= len(text):
            raise ValueError(f"{shown} must lie within the {len(text)} characters of the text, and not be empty.")
        if start < last[1]:
            raise ValueError(f"{shown} must not overlap another, got {last} too.")
        words = [number for number, (begin, stop) in enumerate(places) if begin < end and stop > start]
        if not words:
            raise ValueError(f"{shown} must hold a word, got {shorten(text[start:end])}.")
        if found and words[0] < found[-1][2]:
            word = shorten(text[slice(*places[words[0]])])
            raise ValueError(
                f"{shown} must not share a word with another, got {word}; with split='kinds', there are more."
            )
        found.append((label, words[0], words[-1] + 1))
        last = (start, end)
    return encode_bio(found, len(places))


def _span(span: Any, name: str) -> tuple[int, int, str]:
    if isinstance(span, Entity):
        span = span._asdict()
    if not isinstance(span, Mapping) or not {"start", "end", "label"} <= set(span):
        raise TypeError(f"{name} must have 'start', 'end' and 'label', got {shorten(span)}.")
    start, end, label = span["start"], span["end"], span["label"]
    for key, value in (("start", start), ("end", end)):
        if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
            raise TypeError(f"{name}['{key}'] must be a number of characters, got {shorten(value)}.")
    if not isinstance(label, str) or not label:
        raise TypeError(f"{name}['label'] must be a name, got {shorten(label)}.")
    return int(start), int(end), label


def mark_entities(
    text: str, spans: Sequence[tuple[int, int]], tags: Sequence[str], scores: Sequence[float]
) -> list[Entity]:
    """Returns the entities that tags mark in a text.

    Args:
        text: The text.
        spans: First character of each word, and the one after its last.
        tags: Tag of each word.
        scores: Probability of each tag.
    """
    found = []
    for label, first, end in decode_tags(tags):
        start, stop = spans[first][0], spans[end - 1][1]
        found.append(Entity(label, text[start:stop], start, stop, (first, end), float(np.mean(scores[first:end]))))
    return found


def joined_spans(words: Sequence[str]) -> list[tuple[int, int]]:
    """Returns the places of words in the text that joins them by spaces, `(start, end)` for each.

    Args:
        words: The words.
    """
    starts = np.cumsum([0, *(len(word) + 1 for word in words)])
    return [(int(start), int(start) + len(word)) for start, word in zip(starts, words, strict=False)]


def character_spans(text: bytes, starts: Sequence[int], ends: Sequence[int]) -> list[tuple[int, int]]:
    """Returns places in bytes as places in characters of `text.decode("utf-8", "replace")`.

    Args:
        text: The text as UTF-8.
        starts, ends: Places in bytes, in ascending order: `start <= end <= next start`.
    """
    spans, before, characters = [], 0, 0

    def count(place: int) -> int:
        nonlocal before, characters
        characters += len(text[before:place].decode("utf-8", "replace"))
        before = place
        return characters

    for start, end in zip(starts, ends, strict=True):
        spans.append((count(start), count(end)))
    return spans


def decode_tags(tags: Sequence[str]) -> list[tuple[str, int, int]]:
    """Returns the entities that tags mark, of the schemes BIO, BIOES and BILOU.

    A tag that goes on or ends an entity begins one if it follows no open entity of its label, as in the evaluation of
    CoNLL.

    Args:
        tags: One tag per word: "O", or a prefix and a label. "B-" begins an entity, "I-" is inside, "E-" or "L-" is
            its last word, and "S-" or "U-" its only one.

    Returns:
        `(label, start, end)` per entity, in order: words `start` to `end - 1`.

    Raises:
        ValueError: If a tag has another form. The message names its position.

    Example:

    >>> decode_tags(["B-PER", "I-PER", "O", "B-LOC", "S-LOC"])
    [('PER', 0, 2), ('LOC', 3, 4), ('LOC', 4, 5)]

    Reference:
        Ramshaw and Marcus 1995, "Text Chunking using Transformation-Based Learning", section 4.1; Tjong Kim Sang and
        Buchholz 2000 (CoNLL: every first word has B-); Ratinov and Roth 2009, "Design Challenges and Misconceptions in
        Named Entity Recognition", section 3.2 (BILOU).
    """
    entities: list[tuple[str, int, int]] = []
    label, start = None, 0
    for position, tag in enumerate([*tags, OUTSIDE]):
        if tag != OUTSIDE and not is_tag(tag):
            prefixes = ", ".join(map(repr, PREFIXES))
            raise ValueError(f"tags[{position}] must be 'O', or one of {prefixes} and a label, got {tag!r}.")
        prefix, _, name = tag.partition("-")
        goes_on = name == label and prefix not in FIRST
        if label is not None and not goes_on:
            entities.append((label, start, position))
        if tag == OUTSIDE:
            label = None
        elif not goes_on:
            label, start = name, position
        if prefix in LAST:
            entities.append((name, start, position + 1))
            label = None
    return entities


def is_tag(name: str) -> bool:
    """Returns whether a name is "O" or a tag of BIO, BIOES or BILOU.

    Args:
        name: The name.
    """
    return name == OUTSIDE or (name[:2] in PREFIXES and len(name) > 2)


def encode_bio(entities: Iterable[tuple[str, int, int]], length: int) -> list[str]:
    """Returns the tags of entities.

    Args:
        entities: `(label, start, end)`, words `start` to `end - 1`.
        length: Number of words.

    Returns:
        One tag per word.

    Raises:
        ValueError: If an entity is empty, lies outside the words, or overlaps another.

    Example:

    >>> encode_bio([("PER", 0, 2)], 3)
    ['B-PER', 'I-PER', 'O']
    """
    tags = [OUTSIDE] * length
    for label, start, end in entities:
        if not 0 <= start < end <= length:
            raise ValueError(f"An entity must have 0 <= start < end <= {length}, got {(label, start, end)}.")
        if any(tag != OUTSIDE for tag in tags[start:end]):
            raise ValueError(f"The entity {(label, start, end)} overlaps another.")
        tags[start:end] = [f"B-{label}"] + [f"I-{label}"] * (end - start - 1)
    return tags
