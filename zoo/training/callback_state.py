"""What callbacks remember between epochs, taken out and put back for a resume."""

import os
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np

from layers.keras_internals import CALLBACK_STATE


def _attributes_of(callback: keras.callbacks.Callback) -> tuple[str, ...] | None:
    for kind, attributes in CALLBACK_STATE.items():
        if isinstance(callback, kind):
            return attributes
    return None


def has_state(callback: keras.callbacks.Callback) -> bool:
    """Returns whether a callback has a state that is kept for a resume.

    Args:
        callback: Any callback.
    """
    return (hasattr(callback, "get_state") and hasattr(callback, "set_state")) or _attributes_of(callback) is not None


def check_callback(callback: keras.callbacks.Callback) -> None:
    """Raises an error for a callback whose state could not be kept.

    Args:
        callback: One of Keras' stateful callbacks, or any with the methods `get_state() -> dict` and `set_state(dict)`.

    Raises:
        ValueError: For other callbacks, and for a `CSVLogger` that would overwrite its file on a resume.

    Example:

    >>> check_callback(keras.callbacks.EarlyStopping(patience=3))
    """
    if not has_state(callback):
        known = ", ".join(kind.__name__ for kind in CALLBACK_STATE)
        raise ValueError(
            f"callbacks must be of {known}, or have the methods get_state() and set_state(state), got {callback!r}. "
            "Callbacks without state need not be listed."
        )
    if isinstance(callback, keras.callbacks.CSVLogger) and not callback.append:
        raise ValueError(
            f"CSVLogger({callback.filename!r}) would overwrite its file when training resumes: create it with "
            "append=True."
        )


def get_callback_state(callback: keras.callbacks.Callback) -> dict[str, Any]:
    """Returns the state of a callback: numbers, strings, None, arrays, and lists and dicts of them.

    Args:
        callback: A callback that `check_callback` accepts.

    Example:

    >>> get_callback_state(early_stopping)["wait"]
    """
    if hasattr(callback, "get_state"):
        return callback.get_state()
    state = {attribute: getattr(callback, attribute, None) for attribute in _attributes_of(callback)}
    if isinstance(callback, keras.callbacks.CSVLogger):
        callback.csv_file.flush()
        state["file_size"] = os.path.getsize(callback.filename)
    return state


def set_callback_state(callback: keras.callbacks.Callback, state: dict[str, Any]) -> None:
    """Puts a state back. The file of a `CSVLogger` is cut to its former length, which removes the rows of lost epochs.

    Args:
        callback: A callback that `check_callback` accepts, after its `on_train_begin`.
        state: What `get_callback_state` returned.

    Raises:
        ValueError: If a CSV file is shorter than it was.

    Example:

    >>> set_callback_state(early_stopping, {"wait": 2, "best": 1.5})
    """
    if hasattr(callback, "set_state"):
        callback.set_state(state)
        return
    state = dict(state)
    if isinstance(callback, keras.callbacks.CSVLogger):
        size, present = state.pop("file_size"), os.path.getsize(callback.filename)
        if present < size:
            raise ValueError(
                f"{callback.filename} has {present} bytes, but had {size} when the training state was saved: "
                "restore the file, or start the run in a new folder."
            )
        os.truncate(callback.filename, size)
        callback.append_header = size == 0
    for attribute, value in state.items():
        setattr(callback, attribute, value)


def split_arrays(value: Any, name: str, arrays: dict[str, np.ndarray]) -> Any:
    """Takes the arrays out of a state, so that the rest can be written as JSON.

    Args:
        value: Numbers, strings, None, arrays, and lists and dicts of them.
        name: Name of the value, with which the names of its arrays begin.
        arrays: Receives the arrays by name.

    Returns:
        The value with `{"array": name}` in place of each array.

    Raises:
        TypeError: For a value of another type.

    Example:

    >>> split_arrays({"best": 1.0, "weights": [np.ones(2)]}, "early_stopping", arrays := {})
    {'best': 1.0, 'weights': [{'array': 'early_stopping/weights/0'}]}
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        arrays[name] = value
        return {"array": name}
    if isinstance(value, Mapping):
        return {key: split_arrays(entry, f"{name}/{key}", arrays) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [split_arrays(entry, f"{name}/{index}", arrays) for index, entry in enumerate(value)]
    raise TypeError(
        f"{name} cannot be saved: {type(value).__name__} is none of number, string, None, array, list, dict."
    )


def join_arrays(value: Any, get_array: Callable[[str], np.ndarray]) -> Any:
    """Returns a state with its arrays put back, the inverse of `split_arrays`.

    Args:
        value: What `split_arrays` returned.
        get_array: Function from the name of an array to the array.

    Example:

    >>> join_arrays({"array": "weights"}, {"weights": np.ones(2)}.get)
    """
    if isinstance(value, dict):
        if value.keys() == {"array"}:
            return get_array(value["array"])
        return {key: join_arrays(entry, get_array) for key, entry in value.items()}
    if isinstance(value, list):
        return [join_arrays(entry, get_array) for entry in value]
    return value
