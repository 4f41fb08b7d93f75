"""Low-rank updates (LoRA) of a task's backbone: added, saved, loaded, merged."""

import contextlib
import contextvars
import dataclasses
import difflib
import functools
import math
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from zoo.backbones.low_rank import kernel_with_update

# Layers of Keras that know low-rank updates and that the blocks are made of.
LORA_LAYERS = (keras.layers.Dense, keras.layers.EinsumDense)
# whether the files that are written have factors of updates
_KEEPS_FACTORS = contextvars.ContextVar("keeps_factors", default=True)


@dataclasses.dataclass(frozen=True)
class LoraReport:
    """What `enable_lora` adapted.

    Args:
        layers: Paths of the layers.
        rank: Rank of the updates.
        trainable_parameters: Number of weights that train now.
        total_parameters: Number of all weights.
    """

    layers: tuple[str, ...]
    rank: int
    trainable_parameters: int
    total_parameters: int

    def __str__(self) -> str:
        share = 100 * self.trainable_parameters / self.total_parameters
        return (
            f"LoRA of rank {self.rank} on {len(self.layers)} layers: {self.trainable_parameters:,} of "
            f"{self.total_parameters:,} weights train ({share:.2f} %)."
        )


class LowRankUpdates:
    """The low-rank updates of a task: saved apart from the weights, loaded, merged.

    Args:
        rank, alpha, targets: What `enable_lora` was given.
        layers: The adapted layers by their paths.
        trainable: Each variable of the backbone with whether it trained before.
    """

    def __init__(
        self,
        rank: int,
        alpha: float | None,
        targets: Sequence[str],
        layers: dict[str, Any],
        trainable: Sequence[tuple[Any, bool]],
    ) -> None:
        self.rank, self.alpha, self.targets = rank, alpha, tuple(targets)
        self.layers, self.trainable = layers, tuple(trainable)
        # of each file that is written or read, as long as it is; Keras hands its store to all objects in turn
        self._has_factors: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
        self._factors: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
        for path, layer in layers.items():
            layer.load_own_variables = functools.partial(self._load_layer, path, layer)
            layer.save_own_variables = functools.partial(self._save_layer, path, layer)

    def config(self) -> dict[str, Any]:
        """Returns the arguments of `enable_lora`."""
        return {"rank": self.rank, "alpha": self.alpha, "targets": list(self.targets)}

    def save(self, store: Any) -> None:
        """Writes the factors of the updates; the kernels in the same file are written without the updates.

        Kernels in files without factors, those of another task or of the backbone alone, hold the updates.

        Args:
            store: Where to, as Keras hands it to `save_own_variables`.
        """
        # a file may have the kernels already, where the backbone is part of something else, too
        if not _of_file(self._has_factors, store, _KEEPS_FACTORS.get()):
            return
        for index, layer in enumerate(self.layers.values()):
            store[f"lora_{index}_a"] = ops.convert_to_numpy(layer.lora_kernel_a)
            store[f"lora_{index}_b"] = ops.convert_to_numpy(layer.lora_kernel_b)

    def load(self, store: Any) -> None:
        """Reads the factors; the layers take them when they read their kernels.

        Args:
            store: What `save` wrote to; one without factors gives each layer fresh ones.
        """
        names = set(store.keys())
        factors = {
            path: (np.array(store[f"lora_{index}_a"]), np.array(store[f"lora_{index}_b"]))
            for index, path in enumerate(self.layers)
            if f"lora_{index}_a" in names
        }
        _of_file(self._factors, store, factors)

    def _save_layer(self, path: str, layer: Any, store: Any) -> None:
        # whoever saves the backbone alone, or with another task, has no place for the factors
        is_added = not _of_file(self._has_factors, store, False)
        mode = layer.quantization_mode
        if is_added and mode is not None:
            raise ValueError(
                f"The low-rank updates of {path} belong to a task, which alone can save them: its kernel is "
                f"stored in {mode}, and the sum would be rounded again."
            )
        # Keras adds the update in the precision of computations, and rounds integers again; the layer itself is left
        # as it is, since other threads may compute with it
        names = layer.variable_serialization_spec[mode]
        values = {name: getattr(layer, "_kernel" if name == "kernel" else name, None) for name in names}
        if is_added:
            values["kernel"] = kernel_with_update(layer)
        for index, value in enumerate(value for value in values.values() if value is not None):
            store[str(index)] = value

    def _load_layer(self, path: str, layer: Any, store: Any) -> None:
        # Keras leaves both factors zero, which would never train
        type(layer).load_own_variables(layer, store)
        factors = _of_file(self._factors, store, {}).get(path)
        first = layer.lora_kernel_a
        if factors is None:
            first.assign(keras.initializers.HeUniform()(first.shape, dtype=first.dtype))
            return
        first.assign(factors[0])
        layer.lora_kernel_b.assign(factors[1])

    def merge(self) -> None:
        """Adds the updates to the kernels and takes them away; what trained before trains again."""
        for layer in self.layers.values():
            if layer.quantization_mode is not None:
                raise ValueError(
                    f"Kernels must not be quantized for merge_lora(), got {layer.path} in {layer.quantization_mode}."
                )
        for layer in self.layers.values():
            merged = kernel_with_update(layer)
            layer.lora_enabled = False
            layer._kernel.assign(merged)
            del layer.lora_kernel_a, layer.lora_kernel_b, layer.load_own_variables, layer.save_own_variables
        for variable, trains in self.trainable:
            variable.trainable = trains


@contextlib.contextmanager
def updates_added() -> Iterator[None]:
    """Files that this thread writes inside hold no factors of updates, but kernels with these added, in float32."""
    token = _KEEPS_FACTORS.set(False)
    try:
        yield
    finally:
        _KEEPS_FACTORS.reset(token)


def _of_file(known: weakref.WeakKeyDictionary, store: Any, default: Any) -> Any:
    """What is known of the file of a store; the default from now on where nothing is."""
    # a plain dictionary stands for one entry, whatever the file
    return known.setdefault(store, default) if hasattr(store, "make") else type(default)()


def add_updates(
    task: Any, rank: int, *, alpha: float | None = None, targets: Sequence[str] = ("query", "value")
) -> tuple[LoraReport, LowRankUpdates]:
    """Adds low-rank updates to layers of the backbone and freezes all else but the task's head.

    Args:
        task: The task.
        rank: Rank of the updates.
        alpha: The updates are multiplied by `alpha / rank`. Default `rank`.
        targets: Names of the layers to adapt ("query", "key", "value", "output", "intermediate", ...), or paths.

    Returns:
        What was adapted, and the updates. The optimizer of a compiled task still has the variables of before.

    Raises:
        ValueError: If a target matches no layer (naming the nearest), or updates are there already.
    """
    if isinstance(targets, str) or not targets:
        raise ValueError(f"targets must be a list of names of layers, got {targets!r}.")
    candidates = dict(layers_of(task.backbone, LORA_LAYERS))
    adapted = {}
    for target in targets:
        matches = {path: layer for path, layer in candidates.items() if path == target or layer.name == target}
        if not matches:
            names = sorted({layer.name for layer in candidates.values()})
            near = difflib.get_close_matches(str(target), names, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"targets must be names of layers, got {target!r}.{hint} There are: {', '.join(names)}.")
        adapted |= matches
    present = [path for path, layer in candidates.items() if layer.lora_enabled]
    if present:
        raise ValueError(f"{present[0]} has low-rank updates already: enable_lora() can be called once.")
    trainable = [(variable, variable.trainable) for variable in task.backbone.variables]
    for variable in task.backbone.variables:
        variable.trainable = False
    for layer in adapted.values():
        layer.enable_lora(rank, lora_alpha=alpha)
    report = LoraReport(
        tuple(adapted),
        rank,
        sum(size_of(variable) for variable in task.trainable_variables),
        sum(size_of(variable) for variable in task.weights),
    )
    return report, LowRankUpdates(rank, alpha, targets, adapted, trainable)


def layers_of(model: Any, kinds: tuple[type, ...]) -> Iterator[tuple[str, Any]]:
    """Returns paths and layers of some kinds, each layer once.

    Args:
        model: A model.
        kinds: Classes of layers.
    """
    for layer in model._flatten_layers():
        if isinstance(layer, kinds) and layer.weights:
            yield layer.weights[0].path.rpartition("/")[0], layer


def size_of(variable: Any) -> int:
    """Returns how many numbers a variable holds.

    Args:
        variable: The variable.
    """
    return math.prod(variable.shape)
