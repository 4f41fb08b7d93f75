"""Weights of a model in one safetensors file, and the average of several such files."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import keras

from zoo.storage.errors import quote
from zoo.storage.files import atomic_write
from zoo.storage.tensors import (
    dtype_name,
    match_variables,
    name_variables,
    open_tensors,
    read_variables,
    write_tensors,
)


def save_weights(path: str | Path, model: keras.Model, metadata: dict[str, str] | None = None) -> None:
    """Writes the weights of a model, without its seed generators and its optimizer, completely or not at all.

    Args:
        path: Safetensors file to write.
        model: Built model.
        metadata: Strings for the header of the file.

    Raises:
        OSError: If the file cannot be written. An earlier file of that name is intact.

    Example:

    >>> save_weights("best.safetensors", model)
    """
    with atomic_write(Path(path)) as temporary:
        write_tensors(temporary, name_variables(model.weights), metadata)


def load_weights(path: str | Path, model: keras.Model) -> None:
    """Loads the weights of a model from a file that `save_weights` wrote.

    Args:
        path: Safetensors file.
        model: Built model.

    Raises:
        ValueError: If the file is damaged, or the weights differ in names, shapes or dtypes. The message lists all.
        FileNotFoundError: If there is no such file.

    Example:

    >>> load_weights(state.best_weights_path, model)
    """
    read_variables(Path(path), name_variables(model.weights))


def average_weights(paths: Sequence[str | Path], model: keras.Model) -> None:
    """Sets the weights of a model to the mean of the weights in several files.

    Sums are computed in float64, one variable at a time, so the extra memory is that of one variable. Variables that
    are not floating point get the value in the last file.

    Args:
        paths: Safetensors files written by `save_weights`, such as `CheckpointAveraging.paths`.
        model: Built model.

    Raises:
        ValueError: If `paths` is empty, if a file is damaged or does not fit the model, or if the model has low-rank
            updates and there are several files. The model is not changed then.
        FileNotFoundError: If a file is missing.

    Example:

    >>> average_weights(averaging.paths, model)

    Reference:
        Vaswani et al. 2017, section 6.1.
    """
    paths = [Path(path) for path in paths]
    if not paths:
        raise ValueError("`paths` is empty: there are no weights to average.")
    named = name_variables(model.weights)
    factors = [name for name in named if name.rsplit("/", 1)[-1].startswith("lora_")]
    if factors and len(paths) > 1:
        raise ValueError(
            f"model must have no low-rank updates where {len(paths)} files are averaged, got {quote(factors[0])}: the "
            "product of two averages is no average of products. Average files of the whole weights."
        )
    counterparts = [match_variables(path, named) for path in paths]
    with ExitStack() as stack:
        files = [stack.enter_context(open_tensors(path)) for path in paths]
        for name, variable in named.items():
            values = (file.get_tensor(names[name]) for file, names in zip(files, counterparts, strict=True))
            if "float" in dtype_name(variable):
                mean = sum(value.astype("float64") for value in values) / len(files)
                variable.assign(mean.astype(files[-1].get_tensor(counterparts[-1][name]).dtype))
            else:
                *_, last = values
                variable.assign(last)
