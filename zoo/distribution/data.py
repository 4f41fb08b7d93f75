"""What `fit` and `evaluate` are given, as the replicas of a model take it."""

from typing import Any

import keras

from layers.keras_internals import model_strategy
from zoo.distribution.batches import batches_of_arrays, for_replicas
from zoo.distribution.checks import compares_rows, replicas_of, require_distributable, require_fillable
from zoo.distribution.layouts import ModelLayouts

_DATA = ("x", "y", "sample_weight", "batch_size", "validation_data", "validation_batch_size", "validation_split")


def distributed_data(model: keras.Model, given: dict[str, Any], *, shuffle: bool = False) -> dict[str, Any]:
    """Returns arguments of `keras.Model.fit` or `evaluate` by which each replica has its part of each batch.

    Args:
        model: The compiled model.
        given: The arguments, on token level. Without several devices they stay as they are.
        shuffle: Whether the rows of arrays are shuffled.

    Raises:
        TypeError, ValueError: If the model cannot train on the devices, or the data cannot be divided.
    """
    require_distributable(model)
    layouts, replicas = keras.distribution.distribution(), replicas_of(model)
    if replicas == 1 and layouts is None:
        return given if model_strategy(model) is None else _without_missing(given)
    loss = model.loss
    options = {"num_replicas": replicas, "fills_up": not compares_rows(loss)}
    require_fillable(loss, model.unweighted_metrics if options["fills_up"] else None)
    if isinstance(layouts, ModelLayouts):
        options["own"] = layouts.own_replicas

    def divided(name: str, x: Any, y: Any, weight: Any, size: int | None, shuffle: bool) -> Any:
        if not hasattr(x, "element_spec"):
            if not isinstance(x, dict):
                raise TypeError(
                    f"{name} must be rows, arrays or a tf.data.Dataset where several devices share a batch, got a "
                    f"{type(x).__name__}: tf.data.Dataset.from_generator makes one of a generator."
                )
            x = batches_of_arrays(x, y, weight, size, shuffle)
        return for_replicas(x, **options)

    if given.get("validation_split"):
        raise ValueError(
            "validation_split must be 0 with arrays where several devices share a batch, got "
            f"{given['validation_split']}: give validation_data."
        )
    size, validation = given.get("batch_size"), given.get("validation_data")
    result = {name: value for name, value in given.items() if name not in _DATA}
    result["x"] = divided("x", given.get("x"), given.get("y"), given.get("sample_weight"), size, shuffle)
    if validation is not None:
        parts = validation if isinstance(validation, tuple) else (validation,)
        size = given.get("validation_batch_size") or size
        result["validation_data"] = divided("validation_data", *(*parts, None, None)[:3], size, False)
    return result | ({"shuffle": False} if "shuffle" in given else {})


def _without_missing(given: dict[str, Any]) -> dict[str, Any]:
    """The arguments with datasets whose batches lack None at the end, which iterators of a strategy do not take."""

    def present(data: Any) -> Any:
        if not isinstance(getattr(data, "element_spec", None), tuple) or None not in _parts(data.element_spec):
            return data
        mapped = data.map(lambda *batch: tuple(_parts(batch)[: _parts(batch).index(None)]))
        # a dataset may know its number of batches from its user alone
        mapped.cardinality = data.cardinality
        return mapped

    return {name: present(value) if name in ("x", "validation_data") else value for name, value in given.items()}


def _parts(batch: tuple[Any, ...]) -> list[Any]:
    """The parts of a batch, None for those that it lacks."""
    return [None if part is None or type(part).__name__ == "NoneTensorSpec" else part for part in batch]


def distributed_batch(model: keras.Model, x: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Any]:
    """Returns a batch of which each replica has as many rows, and of these the rows of this process.

    Args:
        model: The compiled model.
        x, y, sample_weight: The batch, on token level. Without several devices it stays as it is.

    Raises:
        ValueError: If the model cannot train on the devices.
    """
    given = {"x": x, "y": y, "sample_weight": sample_weight, "batch_size": len(keras.tree.flatten(x)[0])}
    data = distributed_data(model, given)
    if data is given:
        return x, y, sample_weight
    return keras.tree.map_structure(lambda part: part.numpy(), next(iter(data["x"])))
