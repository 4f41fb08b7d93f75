"""Weights of the backbone that are in the file of an adapter whole, where PEFT calls their layers modules to save."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from zoo.huggingface.adapter_config import AdapterConfig
from zoo.huggingface.adapter_names import PREFIX, Module, Names, Site
from zoo.huggingface.weights import Row
from zoo.storage import TensorFiles, quote_key


def modules_to_write(task: Any, names: Names, weights: Collection[str]) -> dict[str, np.ndarray]:
    """Returns the tensors of the modules that hold some weights of the backbone, without `PREFIX`.

    Args:
        task: The task.
        names: What its layers are called.
        weights: Paths of the weights within the backbone.

    Raises:
        ValueError: If PEFT has no module for a weight, or cannot save it.
    """
    if not weights:
        return {}
    _require_modules(names)
    chosen, found, modules = set(weights), set(), set()
    for row in names.rows:
        paths = _paths_of(row, task)
        if chosen.intersection(paths):
            found |= set(paths)
            modules.add(_module_of(row.name))
    left = sorted(chosen - found)
    if left:
        raise ValueError(f"modules_to_save must have names in files of adapters, got {', '.join(left)}.")
    rows = {row.name: row for row in names.rows if _module_of(row.name) in modules}
    _require_one_table(task, rows, names)
    tensors = {names.stored_tensor(name): _whole(row).write() for name, row in rows.items()}
    originals = _copies_of(task, names, rows)
    return tensors | {copy: _whole(rows[original]).write() for copy, original in originals.items()}


def modules_to_read(
    task: Any, names: Names, tensors: TensorFiles, others: Sequence[str], config: AdapterConfig
) -> tuple[list[tuple[Row, str]], list[str], list[str]]:
    """Returns weights of the backbone with the tensors that are for them, the paths of the weights, and other tensors.

    Args:
        task: The task.
        names: What its layers are called.
        tensors: The file.
        others: Names of the tensors that belong to no update, without `PREFIX`.
        config: What the adapter says of itself.

    Raises:
        ValueError: If a tensor does not fit or is missing, or is not the same as one that it is tied to here.
    """
    rows = {row.name: row for row in names.rows}
    found = {names.plain_tensor(other): other for other in others if config.saves(_module_of(other))}
    chosen = {name: rows[name] for name in found if name in rows}
    left = [other for other in others if other not in {found[name] for name in chosen}]
    if not chosen:
        return [], [], left
    _require_modules(names)
    _require_one_table(task, chosen, names)
    prefix = "" if names.family is None else names.family.prefix
    modules = set(map(_module_of, chosen))
    for name in rows:
        module = _module_of(name)
        if name not in chosen and (module in modules or config.saves(module) or config.saves(prefix + module)):
            raise ValueError(f"{PREFIX}{name} is missing: modules_to_save has {quote_key(module)}.")
    for copy, original in _copies_of(task, names, chosen).items():
        value = tensors.get(PREFIX + found[original])
        if copy not in found or not np.array_equal(tensors.get(PREFIX + found[copy]), value):
            raise ValueError(
                f"{PREFIX}{copy} must be in the file with the values of {original}, with which it is tied here: merge "
                "the adapter with PEFT (merge_and_unload) and load the result."
            )
        left.remove(found[copy])
    paths: list[str] = []
    for name, row in chosen.items():
        shape = tensors.shapes[PREFIX + found[name]]
        if shape != row.shape:
            raise ValueError(f"{quote_key(PREFIX + found[name])} must have the shape {row.shape}, got {shape}.")
        paths += _paths_of(row, task)
    return [(_whole(row), PREFIX + found[name]) for name, row in chosen.items()], paths, left


def names_to_save(saved: Iterable[str], all_modules: Iterable[str]) -> list[str]:
    """Returns the shortest of the last part and the whole of each name that is the end of no other module's name.

    Args:
        saved: Names of modules.
        all_modules: Names of all modules.

    Example:

    >>> names_to_save(["model.norm"], ["model.norm", "model.layers.0.q_norm"])
    ['model.norm']
    """
    saved, found = set(saved), set()
    others = set(all_modules) - saved
    for name in saved:
        last = name.rpartition(".")[2]
        found.add(name if any(other.endswith(last) for other in others) else last)
    return sorted(found)


def _module_of(name: str) -> str:
    return name.rpartition(".")[0]


def _whole(row: Row) -> Row:
    """A tensor with the variables themselves in place of sites."""
    if not any(isinstance(getattr(variable, "variable", variable), Site) for variable in row.variables):
        return row
    return Module(row).kernel_row()


def _paths_of(row: Row, task: Any) -> list[str]:
    """Paths of the variables of a tensor within the backbone; none for a quantized one."""
    start, paths = len(task.backbone.path) + 1, []
    for variable in row.variables:
        while hasattr(variable, "variable"):
            variable = variable.variable
        if isinstance(variable, Site):
            paths.append(f"{variable.path}/kernel")
        elif hasattr(variable, "path"):
            paths.append(variable.path[start:])
    return paths


def _copies_of(task: Any, names: Names, saved: Mapping[str, Row]) -> dict[str, str]:
    """Tensors that PEFT has a second time, and unties: what a tied output projection of a decoder is called there."""
    if names.family is None or type(task).__name__ != "CausalLM":
        return {}
    known = {row.name for row in names.rows}
    copies = names.family.copies.items()
    return {copy: original for copy, original in copies if original in saved and copy not in known}


def _require_modules(names: Names) -> None:
    if names.family is not None and names.family.modules is not None:
        raise ValueError(
            f"modules_to_save of a {names.family.model_type!r} model must be the head alone: its other modules have "
            "other names in memory than in files."
        )


def _require_one_table(task: Any, saved: Iterable[str], names: Names) -> None:
    """Raises a ValueError if PEFT would untie a table of vectors that a model has in several modules."""
    tied = set() if names.family is None else set(saved) & set(names.family.copies.values())
    if tied and (task.backbone.config.architecture == "encoder_decoder" or type(task).__name__ == "MaskedLM"):
        raise ValueError(
            f"modules_to_save must not have {quote_key(_module_of(min(tied)))}, which is tied to other modules: PEFT "
            "would untie them. Merge the adapter and save the whole model."
        )
