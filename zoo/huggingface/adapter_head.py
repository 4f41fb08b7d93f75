"""The head of a task in the files of an adapter, where PEFT calls it a module to save."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from zoo.huggingface.adapter_names import HEAD, PREFIX, Names
from zoo.huggingface.directory import head_layers
from zoo.huggingface.family import all_families
from zoo.huggingface.weights import Row, named_layers, table_rows
from zoo.storage import TensorFiles, quote_key
from zoo.storage.user_warnings import warn_user


def head_to_write(task: Any, names: Names) -> dict[str, np.ndarray]:
    """Returns the tensors of the head of a task; with what modules of the head hold a second time in that library.

    Args:
        task: The task.
        names: What its layers are called.

    Raises:
        ValueError: If it has projections, which the format has no place for.
    """
    if getattr(task, "projections", None):
        raise ValueError(
            f"projections of a {type(task).__name__} must be none in files of adapters, got {len(task.projections)}: "
            "use merge_lora() and save the whole task."
        )
    tensors = {row.name: row.write() for row in names.head_rows(task)}
    copies = {} if names.family is None else names.family.copies
    modules = tuple({name.partition(".")[0] + "." for name in tensors})
    for copy, original in copies.items():
        if modules and copy.startswith(modules):
            tensors[copy] = tensors[original] if original in tensors else _shared_row(task, names, original).write()
    return tensors


def head_to_read(
    task: Any, names: Names, tensors: TensorFiles, others: Sequence[str], is_wanted: bool
) -> list[tuple[Row, str]]:
    """Returns the weights of the head of a task, and the tensors of a file that are for them.

    Args:
        task: The task.
        names: What its layers are called.
        tensors: The file.
        others: Names of the tensors that belong to no update, without `PREFIX`.
        is_wanted: Whether the head is read.

    Raises:
        ValueError: If a tensor is for nothing, or a layer lacks one.
    """
    copies = {} if names.family is None else names.family.copies
    found = {names.plain_tensor(other): PREFIX + other for other in others}
    own = {row.name for row in names.rows}
    for name, key in found.items():
        if name in own or not (names.is_of_head(name) or name in copies):
            raise ValueError(
                f"{quote_key(key)} is a weight of the model itself, which modules_to_save must name to replace it: "
                "merge the adapter with PEFT (merge_and_unload) and load the result."
            )
    if not (found and is_wanted):
        return []
    if not head_layers(task):
        raise ValueError(
            f"{quote_key(next(iter(found.values())))} is of a head, a {type(task).__name__} has none: use head=False."
        )
    for name, layer in head_layers(task).items():
        if getattr(layer, "quantization_mode", None) is not None:
            raise ValueError(
                f"head.{name} must not be quantized to be replaced, got {layer.quantization_mode}: load the adapter "
                "before quantize(), or with head=False."
            )
    rows = {row.name: row for row in names.head_rows(task)}
    layers = {name.rpartition(".")[0] for name in found}
    left = sorted({name.rpartition(".")[0] for name in rows} - layers)
    if left:
        warn_user(f"The adapter has no weights for {', '.join(left)}, which stay as they are.")
    rows = {name: row for name, row in rows.items() if name.rpartition(".")[0] not in left}
    for name, row in rows.items():
        if name not in found:
            raise ValueError(f"{PREFIX}{name} is missing, the file has other weights of this layer.")
        shape = tensors.shapes[found[name]]
        if shape != row.shape:
            raise ValueError(f"{quote_key(found[name])} must have the shape {row.shape} of this head, got {shape}.")
    for name in sorted(set(found) - set(rows)):
        if name not in copies:
            raise ValueError(
                f"{quote_key(found[name])} has no place in the head of a {type(task).__name__}: use head=False."
            )
        original = copies[name]
        value = tensors.get(found[original]) if original in found else _shared_row(task, names, original).write()
        if not np.array_equal(np.asarray(tensors.get(found[name]), "float32"), np.asarray(value, "float32")):
            raise ValueError(f"{quote_key(found[name])} must be the same as {original}, with which it is tied here.")
    return [(row, found[name]) for name, row in rows.items()]


def _shared_row(task: Any, names: Names, name: str) -> Row:
    """A tensor of the backbone that a head holds a second time: the embedding."""
    layers = {"token_embedding": named_layers(task.backbone)["token_embedding"]}
    rows = table_rows(layers, names.family.table_of(task.backbone.config))
    return next(row for row in rows if row.name == name)


def outputs_of_head(tensors: TensorFiles, kind: str) -> int | None:
    """Returns how many outputs the head in the file of an adapter has; None where there is none.

    Args:
        tensors: The file.
        kind: Name of our task.
    """
    heads = [family.heads[kind] for family in all_families() if kind in family.heads]
    names = {f"{HEAD}projection", *(head.table["projection"] for head in heads if "projection" in head.table)}
    shapes = (
        shape for key, shape in tensors.shapes.items() if key.removeprefix(PREFIX).removesuffix(".weight") in names
    )
    return next((shape[0] for shape in shapes if len(shape) == 2), None)
