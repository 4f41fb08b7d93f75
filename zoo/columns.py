"""Columns of rows, whichever library they are of: lists, lazy sequences, arrays, series, Arrow arrays."""

import itertools
from collections.abc import Sequence
from typing import Any


def is_list(values: Any) -> bool:
    """Whether values are a list, a tuple, or another sequence of rows, such as a lazy column of a data set.

    Args:
        values: Anything that a user may pass. A text is none.
    """
    return isinstance(values, Sequence) and not isinstance(values, (str, bytes, bytearray, memoryview))


def is_table(values: Any) -> bool:
    """Whether values are a table with columns by name: a DataFrame, a data set of `datasets`, an Arrow table.

    Args:
        values: Anything that a user may pass.
    """
    # a DataFrame may have no columns at all
    return _is_frame(values) or bool(column_names(values))


def _is_frame(values: Any) -> bool:
    return hasattr(values, "iloc") and hasattr(values, "columns")


def column_names(values: Any) -> list[str]:
    """Returns the names of the columns of a table; none for what is no table.

    Args:
        values: Anything that a user may pass.
    """
    if _is_frame(values):
        return [str(name) for name in values.columns]
    return [str(name) for name in getattr(values, "column_names", None) or ()]


def listed(values: Any) -> Any:
    """Returns an Arrow array or a series as a list of Python values; all else as it is.

    Args:
        values: Anything that a user may pass.
    """
    if is_table(values):
        return values
    if hasattr(values, "to_pylist"):
        return values.to_pylist()
    return values.tolist() if hasattr(values, "iloc") else values


def first_rows(values: Any, count: int) -> list[Any]:
    """Returns the first rows of a column, read without the others.

    Args:
        values: A list, a lazy sequence, a series or an Arrow array.
        count: Number of rows, if there are so many.
    """
    if hasattr(values, "to_pylist"):
        return values.slice(0, count).to_pylist()
    if hasattr(values, "iloc"):
        return values.iloc[:count].tolist()
    return list(itertools.islice(values, count))
