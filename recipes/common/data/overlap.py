"""Rows of one part of the data that are in another one, too: counted, said, and left out on request."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

# a part, and that to which its rows must be new
_PAIRS = (("validation", "train"), ("test", "train"), ("test", "validation"))
# where a row stands and what it is called, not what it says
_PLACES = ("origin", "name")


def content_of(row: Any) -> str:
    """Returns what a row says, wherever it stands.

    Args:
        row: A row of any kind.

    Example:

    >>> content_of(TextPair("a", "b", "x.tsv:1")) == content_of(TextPair("a", "b", "y.tsv:7"))
    True
    """
    if isinstance(row, str):
        return row
    # `repr` escapes what this version of Python does not know as printable
    return ascii([value for field, value in zip(row._fields, row, strict=True) if field not in _PLACES])


def given_of(row: Any) -> str:
    """Returns what a model is given of a row, without the answer: rows with the same are the same question.

    Args:
        row: A row of any kind. Its attribute `given` if it has one, or else its first field.

    Example:

    >>> given_of(TextPair("a", "b", "x.tsv:1")) == given_of(TextPair("a", "c", "x.tsv:2"))
    True
    """
    given = row if isinstance(row, str) else getattr(row, "given", row[0])
    return " ".join(given.split()) if isinstance(given, str) else ascii(given)


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def overlaps(parts: Mapping[str, Sequence[Any]]) -> dict[str, int]:
    """Returns how many rows of the validation and test parts are in another part, too, and says so if there are any.

    Args:
        parts: The rows by the names of the parts.

    Returns:
        Numbers by their names in the results, such as "test_rows_in_train".

    Example:

    >>> overlaps({"train": ["a", "b"], "validation": ["b", "c"]})
    {'validation_rows_in_train': 1}
    """
    # training data may be larger than memory has room for a second time
    digests = {name: [_digest(given_of(row)) for row in rows] for name, rows in parts.items()}
    known = {other: set(digests[other]) for _, other in _PAIRS if other in digests}
    counts = {}
    for part, other in _PAIRS:
        if part not in parts:
            continue
        found = [row for row, digest in zip(parts[part], digests[part], strict=True) if digest in known[other]]
        counts[f"{part}_rows_in_{other}"] = len(found)
        if found:
            where = getattr(found[0], "origin", "")
            print(
                f"{part}: {len(found)} of {len(parts[part])} rows are in {other}, too{where and f', first {where}'}: "
                "scores of new data would be lower; data.deduplicate true leaves them out"
            )
    return counts


def deduplicated(parts: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
    """Returns parts in which each row is there once, and says how many are left out.

    The test part keeps its rows, the validation part those that the test part has not, and the training part those that
    neither has. Of rows of one part that say the same the first is kept.

    Args:
        parts: The rows by the names of the parts.

    Example:

    >>> deduplicated({"train": ["a", "a", "b"], "validation": ["b"]})
    {'train': ['a'], 'validation': ['b']}
    """
    result: dict[str, list[Any]] = {}
    known: set[bytes] = set()
    for name in reversed(parts):
        once: dict[bytes, Any] = {}
        for row in parts[name]:
            once.setdefault(_digest(content_of(row)), row)
        digests = [(row, _digest(given_of(row))) for row in once.values()]
        kept = [row for row, digest in digests if digest not in known]
        known.update(digest for _, digest in digests)
        result[name] = kept
        if len(kept) < len(parts[name]):
            print(
                f"{name}: {len(parts[name]) - len(kept)} of {len(parts[name])} rows are left out, as they repeat others"
            )
    return {name: result[name] for name in parts}
