"""Which rows are used, and which of them are for the validation: drawn by what rows hold, not by their places."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from recipes.common.data.overlap import content_of, given_of
from recipes.common.data.text_files import read_table
from recipes.common.errors import BadLines, DataError

Row = TypeVar("Row")


def limited(rows: list[Row], most: int | None) -> list[Row]:
    """Returns as many rows, drawn by chance, in their order; the same for the same rows.

    Args:
        rows: The rows.
        most: Most rows; None for all.

    Example:

    >>> len(limited(list("abcdef"), 2))
    2
    """
    if most is None or len(rows) <= most:
        return rows
    order = sorted(range(len(rows)), key=lambda place: (_number(content_of(rows[place])), place))
    return [rows[place] for place in sorted(order[:most])]


def short_enough(rows: Sequence[Row], lengths: Iterable[Any], most: int, dropped: BadLines, *, what: str) -> list[Row]:
    """Returns the rows of at most the given number of tokens, and notes the others.

    Args:
        rows: Rows with an `origin`, `FILE:line`.
        lengths: The tokens of each that are fed.
        most: Most tokens.
        dropped: Where the others are noted.
        what: What a row is, for the error.

    Raises:
        DataError: If none is left.

    Example:

    >>> short_enough(pairs, [12, 80], 64, BadLines("skip"), what="pair of texts")
    """
    kept = []
    for row, length in zip(rows, lengths, strict=True):
        if length > most:
            dropped.add(f"longer than {most} tokens", row.origin, f"it has {int(length)}")
        else:
            kept.append(row)
    if not kept:
        raise DataError(f"no {what} is left: {dropped.report()}")
    return kept


def hold_out(
    rows: Sequence[Row], share: float, group_of: Callable[[Row], str] | None = None
) -> tuple[list[Row], list[Row]]:
    """Returns rows for training and rows for validation.

    Rows of one group are in one part, and so are rows of several groups with the same input. Where each row has one
    label (an attribute `label` that is a text), each label has the share, as near as groups allow. Of each label, also
    where rows have several or a tag for each word, some row is for training. Groups are drawn by a digest of their
    names, so that a group stays in its part when others come. A text that is all there is is cut between two lines,
    and its end is for validation.

    Args:
        rows: The rows.
        share: Share of the rows that are for validation, between 0 and 1.
        group_of: The group of a row; None for what a model is given of it, or its attribute `group`.

    Raises:
        DataError: If one of both would be empty.

    Example:

    >>> hold_out(["one\\ntwo\\nthree\\nfour\\n"], 0.25)
    (['one\\ntwo\\nthree\\n'], ['four\\n'])
    """
    if len(rows) == 1 and isinstance(rows[0], str):
        lines = rows[0].splitlines(keepends=True)
        cut = len(lines) - max(1, round(share * len(lines)))
        if cut > 0:
            return ["".join(lines[:cut])], ["".join(lines[cut:])]
    groups = _grouped(rows, group_of)
    labels = {name: {label for place in places for label in _labels_of(rows[place])} for name, places in groups.items()}
    left = Counter(label for found in labels.values() for label in found)
    strata: dict[Any, list[str]] = defaultdict(list)
    for name, places in groups.items():
        label = getattr(rows[places[0]], "label", None)
        strata[label if isinstance(label, str) else None].append(name)
    held: set[int] = set()
    for names in strata.values():
        wanted = share * sum(len(groups[name]) for name in names)
        taken = 0
        # one group stays for training
        for name in sorted(names, key=_number)[: len(names) - 1]:
            if taken + len(groups[name]) / 2 > wanted or any(left[label] == 1 for label in labels[name]):
                continue
            left.subtract(labels[name])
            held.update(groups[name])
            taken += len(groups[name])
    if not held:
        raise DataError(
            f"data.validation_share {share} of {len(rows)} training rows in {len(groups)} groups leaves no row for the "
            "validation: more rows, smaller groups or a larger share are needed"
        )
    parts = ([], [])
    for place, row in enumerate(rows):
        parts[place in held].append(row)
    return parts


def _labels_of(row: Any) -> Sequence[Any]:
    """The labels of a row, or the tags of its words; none of a row without, or with a number."""
    found = getattr(row, "label", getattr(row, "tags", ()))
    return [found] if isinstance(found, str) else found if isinstance(found, Sequence) else ()


def _grouped(rows: Sequence[Row], group_of: Callable[[Row], str] | None) -> dict[str, list[int]]:
    """The places of rows by the names of their groups; groups that hold the same input are one."""
    names = [group_of(row) if group_of is not None else getattr(row, "group", None) or given_of(row) for row in rows]
    joined: dict[str, str] = {}

    def first_of(name: str) -> str:
        while name in joined:
            name = joined[name]
        return name

    known: dict[str, str] = {}
    for row, name in zip(rows, names, strict=True):
        pair = {first_of(name), first_of(known.setdefault(given_of(row), name))}
        if len(pair) == 2:
            # in an order that does not depend on that of the rows
            first, second = sorted(pair, key=_number)
            joined[second] = first
    groups: dict[str, list[int]] = defaultdict(list)
    for place, name in enumerate(names):
        groups[first_of(name)].append(place)
    return groups


def groups_by_column(files: Sequence[str], column: str, header: bool | None) -> Mapping[str, str]:
    """Returns the values that rows of files have in a column which is not read otherwise, by the origins of the rows.

    A row without that key, or with null, is left out.

    Args:
        files: The files.
        column: The column, or the key.
        header: See `recipes.common.data.text_files.read_table`.

    Raises:
        DataError: If the files have no such column.
    """
    try:
        rows = (row for file in files for row in read_table(file, [column], BadLines("skip"), header=header))
        return {row.origin: str(row.values[0]) for row in rows if row.values[0] is not None}
    except DataError as error:
        raise DataError(f"data.group_column: {error}") from error


def _number(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
