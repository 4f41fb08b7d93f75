"""What users pass as texts, turned into checked columns; errors name the argument and the row."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from zoo.columns import column_names, first_rows, is_list, is_table, listed


def is_raw(data: Any) -> bool:
    """Whether data are strings or messages (or nothing at all), not numbers or token-level inputs.

    Args:
        data: Anything that `fit` may be given: a text, a message, nested lists, tuples, lazy columns, arrays or
            tensors, a `tf.data.Dataset`.
    """
    if isinstance(data, (str, bytes)):
        return True
    if isinstance(data, Mapping):
        return "role" in data or "content" in data
    # a few rows, so that one wrong row at the beginning does not hide the others
    if is_list(data):
        return not len(data) or any(is_raw(value) for value in first_rows(data, 8))
    if is_dataset(data):
        # labels may be names on token level, too; a component may be None, which has no dtype
        inputs, *_ = keras.utils.unpack_x_y_sample_weight(data.element_spec)
        return any("string" in str(getattr(spec, "dtype", "")) for spec in keras.tree.flatten(inputs))
    if is_table(data):
        return any(is_raw(data[column]) for column in (data.columns if hasattr(data, "iloc") else column_names(data)))
    if hasattr(data, "to_pylist") or hasattr(data, "iloc"):
        return is_raw(first_rows(data, 8))
    dtype = getattr(data, "dtype", None)
    if dtype is None or isinstance(data, keras.KerasTensor):
        return False
    if str(dtype) == "object":
        return is_raw(np.asarray(data, dtype=object).flat[:8].tolist())
    return "str" in str(dtype).lower() or getattr(dtype, "kind", "") in ("S", "U", "T")


def batch_parts(batch: Any, row_rank: int) -> tuple[Any, Any, Any]:
    """Returns `(x, y, sample_weight)` of what a generator or a `PyDataset` yields, None for what it lacks.

    Keras takes a list for a tuple of these parts; a list of raw rows is the inputs alone here.

    Args:
        batch: What it yields.
        row_rank: Rank of a raw row: 0 for texts, 1 for lists of words.
    """
    if isinstance(batch, list):
        first = batch[0] if batch else ""
        for _ in range(row_rank):
            first = first[0] if isinstance(first, (list, tuple, np.ndarray)) and len(first) else first
        # a tuple of texts is a row of a group
        parts = first if isinstance(first, tuple) and first else (first,)
        is_conversation = isinstance(first, list) and bool(first) and isinstance(first[0], Mapping)
        if is_conversation or all(isinstance(part, (str, bytes)) for part in parts):
            return batch, None, None
    return keras.utils.unpack_x_y_sample_weight(batch)


def is_dataset(data: Any) -> bool:
    """Whether data are a `tf.data.Dataset`.

    Args:
        data: Anything that `fit` may be given.
    """
    return hasattr(data, "element_spec") and hasattr(data, "map")


def as_sequence(values: Any, name: str, of: str = "texts") -> Sequence[Any]:
    """Returns a list, tuple, lazy column, array, series or tensor as a sequence; a lazy column as it is.

    Args:
        values: What the user passed.
        name: Name of the argument.
        of: What it holds, for the error.

    Raises:
        TypeError: If it is none of these; a single text is told to be put in a list.
    """
    if is_table(values):
        raise TypeError(
            f"{name} must be a list or column of {of}, got a {type(values).__name__}: pass one of the columns "
            f"{shorten(column_names(values))}."
        )
    if isinstance(values, (str, bytes)):
        raise TypeError(f"{name} must be a list of {of}, got one text {shorten(values)}: put it in a list.")
    values = listed(values)
    if is_list(values):
        return values
    if hasattr(values, "to_list") and hasattr(values, "row_splits"):
        return values.to_list()
    if isinstance(values, np.ndarray) or hasattr(values, "__array__"):
        array = np.asarray(values)
        if array.ndim:
            return array.tolist()
    raise TypeError(f"{name} must be a list, array or tensor of {of}, got {type(values).__name__} {shorten(values)}.")


def as_texts(values: Any, name: str) -> list[bytes]:
    """Returns texts as UTF-8.

    Bytes that are not valid UTF-8 are left to the tokenizer, which reads them as the replacement character.

    Args:
        values: List, tuple, lazy column, array, series or tensor of `str` or `bytes`.
        name: Name of the argument.

    Raises:
        TypeError: If something is not text, naming the row.
        ValueError: If a text holds a lone surrogate, naming the row.
    """
    return [as_text(value, f"{name}[{row}]") for row, value in enumerate(as_sequence(values, name))]


def as_text(value: Any, name: str) -> bytes:
    """Returns one text as UTF-8; arguments and errors as for `as_texts`."""
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a string, got {type(value).__name__} {shorten(value)}.")
    try:
        return value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(f"{name} is not a text that UTF-8 can hold: {error}.") from error


def as_weights(values: Any, count: int, name: str) -> np.ndarray:
    """Returns one weight per row, float32 `(count,)`.

    Args:
        values: What the user passed, `(count,)` or `(count, 1)`.
        count: Number of rows.
        name: Name of the argument.

    Raises:
        ValueError: If there are not as many as rows, or one is not a finite number, naming the row.
    """
    try:
        weights = np.asarray(values, dtype="float32")
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must hold one number per row, got {shorten(values)}.") from error
    if weights.shape == (count, 1):
        weights = weights[:, 0]
    if weights.shape != (count,):
        raise ValueError(f"{name} must hold one number for each of the {count} rows, got the shape {weights.shape}.")
    wrong = np.flatnonzero(~np.isfinite(weights) | (weights < 0))
    if len(wrong):
        raise ValueError(f"{name}[{wrong[0]}] must be a finite number of at least 0, got {weights[wrong[0]]}.")
    return weights


def require_same_length(count: int, other: int, name: str, other_name: str, one: str, per: str = "row") -> None:
    """Raises a ValueError where two columns differ in their number of rows.

    Args:
        count, other: Rows of each.
        name, other_name: What each is called.
        one: What an entry of the second is, for the error.
        per: What a row of the first is.
    """
    if count != other:
        raise ValueError(f"{other_name} must hold one {one} per {per}, got {other} for {count} in {name}.")


def require_count(value: Any, name: str, lowest: int = 1, highest: int | None = None) -> int:
    """Returns a number that counts something.

    Args:
        value: What the user passed.
        name: Name of the argument.
        lowest: Least allowed number.
        highest: Largest allowed number; None for any.

    Raises:
        ValueError: If it is not an integer of at least `lowest` and at most `highest`.
    """
    is_integer = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not is_integer or value < lowest or (highest is not None and value > highest):
        allowed = f"of at least {lowest}" if highest is None else f"from {lowest} to {highest}"
        raise ValueError(f"{name} must be an integer {allowed}, got {value!r}.")
    return int(value)


def shorten(value: Any) -> str:
    """Returns the first 80 characters of how a value is written, for errors.

    Args:
        value: Any value.
    """
    if isinstance(value, (str, bytes)):
        return repr(value[:80])
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def string_tensor(texts: Sequence[bytes]) -> Any:
    """Returns a `tf.string` tensor `(rows,)`.

    Args:
        texts: Texts as UTF-8.
    """
    import tensorflow as tf

    return tf.constant(texts, dtype=tf.string, shape=(len(texts),))


def row_count(x: Any) -> int:
    """Returns the number of rows of checked inputs.

    Args:
        x: Nested structure of tensors, ragged or not, with rows on axis 0.
    """
    import tensorflow as tf

    first = tf.nest.flatten(x)[0]
    return int(first.nrows() if isinstance(first, tf.RaggedTensor) else first.shape[0])


def take_rows(columns: Any, rows: Any) -> Any:
    """Returns some rows of columns of checked data; None stays None.

    Args:
        columns: Nested structure of tensors.
        rows: Numbers of the rows.
    """
    import tensorflow as tf

    return tf.nest.map_structure(lambda column: None if column is None else tf.gather(column, rows), columns)
