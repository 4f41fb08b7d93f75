"""An exported model: which of its endpoints take texts, and what they make of them as values for JSON."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import zoo
from recipes.common.errors import ConfigError, DataError, shown

_NUMBERS = {"int32": int, "int64": int, "float32": float, "bool": bool}
_BITS = {"int32": 32, "int64": 64}


class Refused(Exception):
    """Raised when a model rejects its input; the message is that of the model."""


def describe_endpoint(model: str, endpoint: str | None) -> tuple[str, dict[str, Any]]:
    """Returns name and description of an endpoint of a SavedModel.

    Args:
        model: Its folder, that of a model with versions, or the folder of a run that was exported.
        endpoint: The name; None for the default one.

    Raises:
        DataError: If the folder holds no SavedModel of this library.
        ConfigError: If there is no such endpoint.
    """
    path = export_folder(model) / zoo.export.DESCRIPTION_FILE
    try:
        described = json.loads(path.read_text(encoding="utf-8"))
        endpoints, name = described["endpoints"], endpoint or described["default"]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise DataError(f"{path} does not describe a SavedModel: {error}; recipes.export writes one") from error
    if name not in endpoints:
        raise ConfigError(f"endpoint must be one of {', '.join(endpoints)}, got {shown(name)}")
    return name, endpoints[name]


def export_folder(model: str) -> Path:
    """Returns the folder of a SavedModel.

    Args:
        model: It, the folder of a model, of which the newest version is taken, or the folder of a run.
    """
    folder = Path(model)
    for models in (folder, folder / "export" / folder.absolute().name):
        if zoo.export.versions(models):
            return zoo.export.newest_version(models)
    return folder


def bind(endpoint: Mapping[str, Any], keys: Mapping[str, str], options: Mapping[str, Any]) -> dict[str, str]:
    """Returns for each input of texts the key that holds them.

    Args:
        endpoint: Its description.
        keys: Those that were named.
        options: Values of the inputs that all records share; those that have a default may be left out.

    Raises:
        ConfigError: If an input takes neither texts nor a number, or has no value, or something is no input.
    """
    bound: dict[str, str] = {}
    numbers = set()
    for field in endpoint["inputs"]:
        name = field["name"]
        if field["dtype"] == "string" and field["shape"] == ["batch"]:
            bound[name] = keys.get(name, "text" if name == "texts" else name)
        elif "default" in field and name not in options:
            numbers.add(name)
        elif field["dtype"] == "string" and len(field["shape"]) == 1:
            numbers.add(name)
            value = options.get(name)
            if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
                raise ConfigError(f"options: {name} must be a list of texts, got {shown(value)}")
        elif not field["shape"] and field["dtype"] in _NUMBERS:
            numbers.add(name)
            value, kind = options.get(name), _NUMBERS[field["dtype"]]
            if not isinstance(value, (int, float) if kind is float else kind) or (
                isinstance(value, bool) and kind is not bool
            ):
                raise ConfigError(f"options must give {name} ({field['dtype']}), got {shown(value)}")
            if kind is int and not -(1 << _BITS[field["dtype"]] - 1) <= value < 1 << _BITS[field["dtype"]] - 1:
                raise ConfigError(f"options.{name} must fit into {field['dtype']}, got {value}")
        else:
            raise ConfigError(f"endpoint must take texts; its input {name} is {field['dtype']} {field['shape']}")
    for group, given, known in (("keys", keys, bound), ("options", options, numbers)):
        unknown = [name for name in given if name not in known]
        if unknown:
            raise ConfigError(f"{group} must be among {', '.join(known) or 'none'}, got {unknown[0]}")
    if not bound:
        raise ConfigError("endpoint must take texts")
    return bound


def call(
    model: str, checksum: str, endpoint: str, texts: Mapping[str, Sequence[str]], options: Mapping[str, Any]
) -> list[Any]:
    """Returns the output of a model for each record: a value, or a dictionary if the model has several outputs.

    What an output is filled up with, where the records of a call have different numbers of words, masks or entities, is
    not in it.

    Args:
        model: Folder of the SavedModel.
        checksum: What tells it from another one in the same folder.
        endpoint: Name of the endpoint.
        texts: For each input of texts one of each record.
        options: The values of its other inputs.

    Raises:
        Refused: If it rejects one of the records, such as a text that is too long.
    """
    import tensorflow as tf

    function, numbers, axes, names = _load(model, checksum, endpoint, json.dumps(dict(options)))
    try:
        outputs = function(**{name: tf.constant(values) for name, values in texts.items()}, **numbers)
    except tf.errors.InvalidArgumentError as error:
        raise Refused(" ".join(str(error.message).split())[:300]) from error
    # the order in which TensorFlow has them differs from process to process
    arrays = {name: outputs[name].numpy() for name in names}
    counts = _counts(arrays, axes)
    columns = {}
    for name, array in arrays.items():
        rows = _values(array)
        columns[name] = (
            rows if name not in axes else [row[:count] for row, count in zip(rows, counts[axes[name]], strict=True)]
        )
    if len(columns) == 1:
        return next(iter(columns.values()))
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _counts(arrays: Mapping[str, np.ndarray], axes: Mapping[str, str]) -> dict[str, np.ndarray]:
    """How many entries each record has on an axis as long as the longest: behind them stand empty texts."""
    counts: dict[str, np.ndarray] = {}
    for name, axis in axes.items():
        array = arrays[name]
        if array.dtype == object:
            is_filled = (array != b"").any(axis=tuple(range(2, array.ndim)))
            found = np.where(is_filled, np.arange(1, array.shape[1] + 1), 0).max(axis=1, initial=0)
            counts[axis] = np.maximum(counts.get(axis, 0), found)
        else:
            counts.setdefault(axis, np.zeros(len(array), np.int64))
    return counts


@functools.lru_cache(maxsize=1)
def _load(
    model: str, checksum: str, endpoint: str, options: str
) -> tuple[Any, dict[str, Any], dict[str, str], list[str]]:
    """The endpoint, inputs that are numbers, names of second axes that the longest record sets, names of outputs."""
    import tensorflow as tf
    import tensorflow_text  # noqa: F401 (its operations)

    loaded = tf.saved_model.load(model)
    function = loaded.signatures[endpoint]
    function.loaded = loaded  # which keeps the variables alive
    types = {name: spec.dtype for name, spec in function.structured_input_signature[1].items()}
    numbers = {name: tf.constant(value, types[name]) for name, value in json.loads(options).items()}
    outputs = describe_endpoint(model, endpoint)[1]["outputs"]
    axes = {field["name"]: field["shape"][1] for field in outputs if len(field["shape"]) > 1}
    named = {name: axis for name, axis in axes.items() if isinstance(axis, str)}
    of_texts = {named[field["name"]] for field in outputs if field["dtype"] == "string" and field["name"] in named}
    axes = {name: axis for name, axis in named.items() if axis in of_texts}
    return function, numbers, axes, [field["name"] for field in outputs]


def _values(array: np.ndarray) -> list[Any]:
    """Values for JSON; nine digits hold all of a float32."""
    if array.dtype == object:
        return _nested(array.tolist(), lambda value: value.decode("utf-8", errors="replace"))
    if array.dtype.kind == "f":
        return _nested(array.tolist(), lambda value: float(f"{value:.9g}") if np.isfinite(value) else None)
    return array.tolist()


def _nested(values: list[Any], convert: Any) -> list[Any]:
    return [_nested(value, convert) if isinstance(value, list) else convert(value) for value in values]
