"""Entities as tags of words: B- begins one, I- goes on, O is outside."""

from collections.abc import Iterable, Sequence

OUTSIDE = "O"


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
