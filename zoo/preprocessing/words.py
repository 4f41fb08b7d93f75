"""Texts as words with their positions, and words with tags: B- begins an entity, I- continues it, O is outside."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

OUTSIDE = "O"
SPLITS = ("punctuation", "space")
# letters, digits and marks, with single other characters between them ("U.S", "don't", "3.5", "e-mail")
_WORD = r"[\p{L}\p{N}\p{M}]+(?:[\p{P}\p{S}][\p{L}\p{N}\p{M}]+)*"
_PIECE = rf"{_WORD}|[\p{{P}}\p{{S}}]|[^\s\p{{P}}\p{{S}}\p{{L}}\p{{N}}\p{{M}}]+"
_PATTERNS = {"punctuation": _PIECE, "space": r"\S+"}


class Entity(NamedTuple):
    """A part of a text with a label.

    Args:
        label: What it is, for example "PER".
        text: The part of the text.
        start, end: Its characters are `text[start:end]`; for a text given as words, of these joined by spaces.
        words: Numbers of its first word and of the one after its last.
        score: Mean probability of the tags of its words.
    """

    label: str
    text: str
    start: int
    end: int
    words: tuple[int, int]
    score: float


def split_words(texts: Any, split: str = "punctuation") -> tuple[Any, Any, Any]:
    """Splits texts into words; a graph function.

    Args:
        texts: String tensor `(batch,)`.
        split: "punctuation": at white space, and other characters than letters and digits are words of their own unless
            they stand singly between these. "space": at white space alone.

    Returns:
        `(words, starts, ends)`: ragged `(batch, None)`; starts and ends count bytes, int64. A NUL in a word has become
        U+0001.

    Example:

    >>> split_words(tf.constant(["Otto, the 2nd, met the U.S. envoy."]))[0].to_list()
    [[b'Otto', b',', b'the', b'2nd', b',', b'met', b'the', b'U.S', b'.', b'envoy', b'.']]
    """
    import tensorflow as tf
    import tensorflow_text as tf_text

    piece = _PATTERNS[split]
    # the splitting operation ends a text at NUL, which is a control character like others here
    texts = tf.strings.regex_replace(texts, r"\x00", "\x01")
    words, starts, ends = tf_text.regex_split_with_offsets(texts, rf"\s+|{piece}", piece)
    # what no pattern matches (bytes that are not UTF-8) stands between two matches
    is_word = tf.strings.regex_full_match(words.values, r"\s*")
    keep = words.with_values(~is_word)
    words, starts, ends = (tf.ragged.boolean_mask(part, keep) for part in (words, starts, ends))
    return words, starts, ends


def mark_entities(
    text: str, spans: Sequence[tuple[int, int]], tags: Sequence[str], scores: Sequence[float]
) -> list[Entity]:
    """Returns the entities that BIO tags mark in a text.

    Args:
        text: The text.
        spans: First character of each word, and the one after its last.
        tags: Tag of each word.
        scores: Probability of each tag.
    """
    found = []
    for label, first, end in decode_bio(tags):
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


def decode_bio(tags: Sequence[str]) -> list[tuple[str, int, int]]:
    """Returns the entities that tags mark.

    An `I-` that follows no tag of its label begins an entity, as in the evaluation of CoNLL.

    Args:
        tags: One tag per word: "O", or "B-" or "I-" and a label.

    Returns:
        `(label, start, end)` per entity, in order: words `start` to `end - 1`.

    Raises:
        ValueError: If a tag is none of these, naming its position.

    Example:

    >>> decode_bio(["B-PER", "I-PER", "O", "B-LOC"])
    [('PER', 0, 2), ('LOC', 3, 4)]

    Reference:
        Ramshaw and Marcus 1995, "Text Chunking using Transformation-Based Learning", section 4.1; Tjong Kim Sang and
        Buchholz 2000 (CoNLL: every first word has B-).
    """
    entities: list[tuple[str, int, int]] = []
    label, start = None, 0
    for position, tag in enumerate([*tags, OUTSIDE]):
        prefix, _, name = tag.partition("-")
        if tag != OUTSIDE and (prefix not in ("B", "I") or not name):
            raise ValueError(f"tags[{position}] must be 'O', or 'B-' or 'I-' and a label, got {tag!r}.")
        goes_on = prefix == "I" and name == label
        if label is not None and not goes_on:
            entities.append((label, start, position))
        if tag == OUTSIDE:
            label = None
        elif not goes_on:
            label, start = name, position
    return entities


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
