"""Low-rank updates alone, in the files of the PEFT library: `adapter_config.json` and `adapter_model.safetensors`."""

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from layers.dense import LowRankUpdate, column_norms
from zoo.huggingface.adapter_config import CONFIG_FILE, WEIGHTS_FILE, read_adapter_config, written_config
from zoo.huggingface.adapter_head import head_to_read, head_to_write
from zoo.huggingface.adapter_modules import modules_to_read, modules_to_write, names_to_save
from zoo.huggingface.adapter_names import PREFIX, Module, Names, library_names, names_of, own_names
from zoo.huggingface.directory import OWN_FILES
from zoo.huggingface.family import get_family
from zoo.huggingface.weights import Row
from zoo.storage import TensorFiles, errors_of_file, open_tensor_file, quote_key, replace_folder, write_tensors
from zoo.storage.checkpoint import CONFIG_FILE as MODEL_FILE
from zoo.storage.user_warnings import warn_user

# in the names of weights of the model itself
COPY = ".base_layer"
MAGNITUDE = "magnitude_vector"
_FACTOR = re.compile(rf"(?P<module>.+)\.lora_(?:(?P<factor>[AB])\.weight|(?P<magnitude>{MAGNITUDE}))")


def is_adapter(directory: str | os.PathLike[str]) -> bool:
    """Returns whether a directory holds an adapter of the PEFT library without a model.

    Args:
        directory: The directory.
    """
    return (Path(directory) / CONFIG_FILE).is_file() and not (Path(directory) / MODEL_FILE).exists()


def save_adapter(
    task: Any,
    directory: str | os.PathLike[str],
    name: str = "default",
    *,
    model_type: str | None = None,
    base_model: str | None = None,
    extra: Callable[[Path], None],
) -> str | None:
    """Writes the low-rank updates of one name and the head of the task, see `Task.save_adapter`.

    Args:
        task: The task.
        directory: Where to; replaced if it holds an adapter, an error if it holds a model or something else.
        name: Name of the updates.
        model_type: The family of the Transformers library whose names are written. Default: the first that can express
            the task, or paths of our layers where none can.
        base_model: What the updates are for: a directory, or a name on the hub.
        extra: Writes further files to a folder.

    Returns:
        The model type; None for paths of our layers, which this library alone reads.

    Raises:
        ValueError: If there are no updates of this name, or the given family cannot express the task.
        FileExistsError: If the directory exists and holds something else.
    """
    adapter, updates = task.backbone.adapters[name], task.backbone.adapters.updates(name)
    names = _names_to_write(task, model_type)
    tensors: dict[str, Any] = {}
    written: dict[str, tuple[int, Any]] = {}
    left = set(updates)
    for module in names.modules.values():
        parts = {site.path: updates[site.path] for site in module.sites if site.path in updates}
        if parts:
            left -= set(parts)
            stored = names.stored(module.name)
            first, seconds, alpha = _side_by_side(module, parts)
            row = module.row_of(f"{PREFIX}{stored}.lora_B.weight", seconds)
            tensors |= {f"{PREFIX}{stored}.lora_A.weight": first, row.name: row.write()}
            if adapter.dora:
                row = module.row_of(f"{PREFIX}{stored}.lora_{MAGNITUDE}", _magnitudes(module, parts), transposed=False)
                tensors[row.name] = row.write()
            written[stored] = len(first), alpha
    if left:
        raise ValueError(f"Layers with updates must have names in files of adapters, got {', '.join(sorted(left))}.")
    _warn_about_experts(written, names)
    head, saved = head_to_write(task, names), modules_to_write(task, names, adapter.weights)
    tensors |= {PREFIX + key: tensor for key, tensor in (head | saved).items()}
    all_modules = {*map(names.stored, (*names.modules, *names.others)), *(key.rpartition(".")[0] for key in head)}
    config = written_config(
        written,
        all_modules,
        dropout=adapter.dropout,
        dora=adapter.dora,
        task=type(task).__name__,
        modules_to_save=sorted(
            {key.partition(".")[0] for key in head}
            | set(names_to_save({key.rpartition(".")[0] for key in saved}, all_modules))
        ),
        base_model=base_model,
        fan_in_fan_out=any(not module.row.transposed for module in names.modules.values()),
    )
    with replace_folder(directory, is_adapter, "adapter of the PEFT library alone", OWN_FILES) as folder:
        (folder / CONFIG_FILE).write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        write_tensors(folder / WEIGHTS_FILE, tensors, {"format": "pt"})
        extra(folder)
    return None if names.family is None else names.family.model_type


def load_adapter(
    task: Any, directory: Path, name: str = "default", *, head: bool = True
) -> tuple[tuple[str, ...], bool]:
    """Adds the low-rank updates of an adapter of the PEFT library to a task, see `Task.load_adapter`.

    Args:
        task: The task.
        directory: Where they are.
        name: What the updates are called from now on.
        head: Whether the head of the task takes the weights that the adapter has for it.

    Returns:
        Paths of the layers with updates, and whether the head was given weights.

    Raises:
        ValueError: If something is damaged, not supported or does not fit the task, which is then as before.
    """
    config = read_adapter_config(directory)
    with open_tensor_file(directory / WEIGHTS_FILE) as tensors:
        with errors_of_file(directory / WEIGHTS_FILE):
            factors, others = _sorted_out(tensors, config.use_dora)
            _require_floats(tensors)
            names = _names_to_read(task, list(factors), head and not all(COPY in other for other in others))
            modules = {stored: names.modules[names.plain(stored)] for stored in factors}
            ranks = {stored: _rank(stored, factors[stored], module) for stored, module in modules.items()}
            known = {module.name: stored for stored, module in modules.items()}
            if len(known) < len(modules):
                raise ValueError("the names of updates must not mean the same linear map twice.")
            others = _without_copies(others, modules, tensors)
            rows, weights, others = modules_to_read(task, names, tensors, others, config)
            head_rows = head_to_read(task, names, tensors, others, head)
        with errors_of_file(directory / CONFIG_FILE):
            config.check_targets(modules, [known.get(module, module) for module in names.modules])
            alphas = {stored: config.alpha_of(stored, rank) for stored, rank in ranks.items()}
        layers = {
            site.path: (ranks[stored], alphas[stored]) for stored, module in modules.items() for site in module.sites
        }
        adapters = task.backbone.adapters
        adapters.add(name, layers, config.lora_dropout, config.use_dora, weights)
        updates = adapters.updates(name)
        for stored, module in modules.items():
            first, second = (f"{PREFIX}{stored}.lora_{factor}.weight" for factor in "AB")
            for site in module.sites:
                Row(first, (updates[site.path].lora_a,), transposed=True).read(tensors.get(first))
            seconds = {site.path: updates[site.path].lora_b for site in module.sites}
            module.row_of(second, seconds).read(tensors.get(second))
            if config.use_dora:
                magnitudes = {site.path: updates[site.path].lora_magnitude for site in module.sites}
                key = f"{PREFIX}{stored}.lora_{MAGNITUDE}"
                module.row_of(key, magnitudes, transposed=False).read(tensors.get(key))
        for row, key in (*rows, *head_rows):
            row.read(tensors.get(key))
    return tuple(layers), bool(head_rows)


def _names_to_write(task: Any, model_type: str | None) -> Names:
    if model_type is not None:
        return names_of(get_family(model_type), task)[0]
    return next(library_names(task), None) or own_names(task)


def _warn_about_experts(written: Iterable[str], names: Names) -> None:
    leaves = {other.rpartition(".")[2] for other in names.others if ".experts." in other}
    found = sorted(module for module in written if module.rpartition(".")[2] in leaves)
    if found:
        warn_user(
            f"PEFT with version 5 of the Transformers library may take updates of {found[0]} for those of experts, "
            "which have modules of the same name; this library reads them as they are."
        )


def _names_to_read(task: Any, modules: list[str], has_head: bool) -> Names:
    """The names by which a file knows the layers of a task."""
    nearest = unknown = None
    for names in (own_names(task), *library_names(task, with_head=False)):
        others = [module for module in modules if names.plain(module) not in names.modules]
        if unknown is None or len(others) < len(unknown):
            nearest, unknown = names, others
    if unknown:
        kind = "" if nearest.family is None else f" of a {nearest.family.model_type!r} model"
        raise ValueError(
            f"updates must be of linear maps{kind} that can have some here, got {quote_key(unknown[0])}"
            + (f" and {len(unknown) - 1} more" if len(unknown) > 1 else "")
            + f". There are: {', '.join(sorted(nearest.modules)[:8])}, ..."
        )
    if has_head and nearest.family is not None:
        same = [names for names in names_of(nearest.family, task) if set(names.modules) == set(nearest.modules)]
        return same[0]
    return nearest


def _sorted_out(tensors: TensorFiles, dora: bool) -> tuple[dict[str, dict[str, tuple[int, ...]]], list[str]]:
    """Shapes of the factors and magnitudes by modules, and the names of all other tensors; names without `PREFIX`."""
    factors: dict[str, dict[str, tuple[int, ...]]] = {}
    others = []
    for key, shape in tensors.shapes.items():
        name = key.removeprefix(PREFIX)
        found = _FACTOR.fullmatch(name)
        if name == key or (found is None and ".lora_" in name):
            raise ValueError(f"{quote_key(key)} must be named {PREFIX}MODULE.lora_A.weight or the like.")
        if found is None:
            others.append(name)
        else:
            factors.setdefault(found["module"], {})[found["factor"] or MAGNITUDE] = shape
    if not factors:
        raise ValueError("there must be updates, got none.")
    for module, shapes in factors.items():
        for factor in {"A", "B"} - shapes.keys():
            key = quote_key(f"{PREFIX}{module}.lora_{factor}.weight")
            raise ValueError(f"{key} is missing: an update has lora_A and lora_B.")
        if dora != (MAGNITUDE in shapes):
            key = quote_key(f"{PREFIX}{module}.lora_{MAGNITUDE}")
            raise ValueError(f"{key} {'is missing' if dora else 'must not be there'} with use_dora {dora}.")
    return factors, others


def _without_copies(others: list[str], modules: Mapping[str, Module], tensors: TensorFiles) -> list[str]:
    """The names of tensors without those of kernels of the model itself, which PEFT writes beside some updates."""
    left = []
    for name in others:
        module = modules.get(name.removesuffix(f"{COPY}.weight"))
        if module is None:
            left.append(name)
            continue
        row, stored = module.kernel_row(), np.asarray(tensors.get(PREFIX + name), "float32")
        if row is not None and not np.array_equal(np.asarray(row.write(), "float32"), stored):
            raise ValueError(f"{PREFIX}{name} must be the weight of the model that the adapter is for, got others.")
    return left


def _rank(stored: str, shapes: Mapping[str, tuple[int, ...]], module: Module) -> int:
    """The rank of an update, whose shapes are checked."""
    inputs, outputs = module.shape
    rank = shapes["A"][0] if shapes["A"] else 0
    for factor, needed in (("A", (rank, inputs)), ("B", (outputs, rank))):
        if shapes[factor] != needed or rank < 1:
            wanted = f"(rank, {inputs})" if factor == "A" else needed
            raise ValueError(f"{stored}.lora_{factor}.weight must have the shape {wanted}, got {shapes[factor]}.")
    if shapes.get(MAGNITUDE, (outputs,)) != (outputs,):
        raise ValueError(f"{stored}.lora_{MAGNITUDE} must have the shape {(outputs,)}, got {shapes[MAGNITUDE]}.")
    return rank


def _magnitudes(module: Module, updates: Mapping[str, LowRankUpdate]) -> dict[str, Any]:
    """The magnitudes of a linear map that holds several layers; of those without an update the norms as they are."""
    return {
        site.path: updates[site.path].lora_magnitude
        if site.path in updates
        else column_norms(site.layer.plain_kernel())
        for site in module.sites
    }


def _require_floats(tensors: TensorFiles) -> None:
    for key in tensors.shapes:
        dtype = tensors.get(key).dtype
        if not (dtype.kind == "f" or dtype.name == "bfloat16"):
            raise ValueError(f"{quote_key(key)} must hold floating-point numbers, got {dtype}.")


def _side_by_side(
    module: Module, updates: Mapping[str, LowRankUpdate]
) -> tuple[np.ndarray, dict[str, np.ndarray], float]:
    """The update of a linear map that holds several layers: A `(rank, inputs)`, B of each layer, and alpha.

    Layers with the same A share it. Others have their own rows of A, and zeros in the columns of B that belong to the
    rows of others: the rank is the sum of theirs.
    """
    firsts: list[np.ndarray] = []
    starts: dict[str, int] = {}
    for path, update in updates.items():
        first = np.asarray(keras.ops.convert_to_numpy(update.lora_a)).T
        same = next((index for index, other in enumerate(firsts) if np.array_equal(other, first)), len(firsts))
        if same == len(firsts):
            firsts.append(first)
        starts[path] = sum(len(other) for other in firsts[:same])
    rank = sum(map(len, firsts))
    scales = {path: update.alpha / update.rank for path, update in updates.items()}
    scale = next(iter(scales.values())) if len(set(scales.values())) == 1 else 1.0
    seconds = {}
    for site in module.sites:
        second = np.zeros((rank, site.shape[1]), "float32")
        if site.path in updates:
            own = np.asarray(keras.ops.convert_to_numpy(updates[site.path].lora_b))
            factor = np.float32(scales[site.path] / scale)
            second[starts[site.path] : starts[site.path] + len(own)] = own * factor
        seconds[site.path] = second
    alphas = {update.alpha for update in updates.values()}
    alpha = alphas.pop() if len(firsts) == len(alphas) == 1 else scale * rank
    return np.ascontiguousarray(np.concatenate(firsts)), seconds, alpha
