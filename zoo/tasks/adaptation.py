"""Adapting a trained task cheaply: low-rank updates (LoRA) and 8-bit weights, with a report of what was done."""

import dataclasses
import difflib
import functools
import math
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

# Layers of Keras that know low-rank updates and that the blocks are made of.
LORA_LAYERS = (keras.layers.Dense, keras.layers.EinsumDense)
QUANTIZED_LAYERS = (*LORA_LAYERS, keras.layers.Embedding)
MODES = ("int8", "int4")


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


@dataclasses.dataclass(frozen=True)
class QuantizationReport:
    """What `quantize` changed.

    Args:
        mode: The mode.
        layers: Paths of the layers with quantized weights.
        bytes_before: Size of all weights before.
        bytes_after: Size of all weights now.
    """

    mode: str
    layers: tuple[str, ...]
    bytes_before: int
    bytes_after: int

    def __str__(self) -> str:
        return (
            f"{self.mode} weights in {len(self.layers)} layers: {self.bytes_before:,} bytes became "
            f"{self.bytes_after:,} ({self.bytes_before / self.bytes_after:.1f} times less)."
        )


class LowRankUpdates:
    """The low-rank updates of a task: saved beside the weights that hold them, loaded, merged.

    Args:
        task: The task.
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
    ):
        self.rank, self.alpha, self.targets = rank, alpha, tuple(targets)
        self.layers, self.trainable = layers, tuple(trainable)
        self._loaded: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        for path, layer in layers.items():
            layer.load_own_variables = functools.partial(self._load_layer, path, layer)

    def config(self) -> dict[str, Any]:
        """Returns the arguments of `enable_lora`."""
        return {"rank": self.rank, "alpha": self.alpha, "targets": list(self.targets)}

    def save(self, store: Any) -> None:
        """Writes the factors of the updates; the saved kernels hold the updates already.

        Args:
            store: Where to, a dictionary of arrays.
        """
        for index, layer in enumerate(self.layers.values()):
            store[f"lora_{index}_a"] = ops.convert_to_numpy(layer.lora_kernel_a)
            store[f"lora_{index}_b"] = ops.convert_to_numpy(layer.lora_kernel_b)

    def load(self, store: Any) -> None:
        """Reads the factors; the layers take them when they read their kernels.

        Args:
            store: What `save` wrote to; one without factors gives each layer fresh ones.
        """
        names = set(store.keys())
        self._loaded = {
            path: (np.array(store[f"lora_{index}_a"]), np.array(store[f"lora_{index}_b"]))
            for index, path in enumerate(self.layers)
            if f"lora_{index}_a" in names
        }

    def _load_layer(self, path: str, layer: Any, store: Any) -> None:
        # Keras reads a kernel that holds the update, and leaves both factors zero, which would never train
        type(layer).load_own_variables(layer, store)
        factors = self._loaded.pop(path, None)
        if factors is None or layer.quantization_mode is not None:
            first = layer.lora_kernel_a
            first.assign(keras.initializers.HeUniform()(first.shape, dtype=first.dtype))
            return
        layer._kernel.assign(
            ops.cast(layer._kernel, "float32") - layer.lora_alpha / layer.lora_rank * np.matmul(*factors)
        )
        layer.lora_kernel_a.assign(factors[0])
        layer.lora_kernel_b.assign(factors[1])

    def merge(self) -> None:
        """Adds the updates to the kernels and takes them away; what trained before trains again."""
        for layer in self.layers.values():
            if layer.quantization_mode is not None:
                raise ValueError(f"merge_lora() needs kernels that are not quantized to {layer.quantization_mode}.")
        for layer in self.layers.values():
            merged = ops.convert_to_numpy(layer.kernel)
            layer.lora_enabled = False
            layer._kernel.assign(merged)
            del layer.lora_kernel_a, layer.lora_kernel_b, layer.load_own_variables
        for variable, trains in self.trainable:
            variable.trainable = trains


def enable_lora(
    task: Any, rank: int, *, alpha: float | None = None, targets: Sequence[str] = ("query", "value")
) -> tuple[LoraReport, LowRankUpdates]:
    """Adds low-rank updates to layers of the backbone and freezes all else but the task's head.

    Args:
        task: The task.
        rank: Rank of the updates.
        alpha: The updates are multiplied by `alpha / rank`. Default `rank`.
        targets: Names of the layers to adapt ("query", "key", "value", "output", "intermediate", ...), or paths.

    Returns:
        What was adapted, and the updates.

    Raises:
        ValueError: If a target matches no layer (naming the nearest), or updates are there already.
    """
    if isinstance(targets, str) or not targets:
        raise ValueError(f"targets must be a list of names of layers, got {targets!r}.")
    candidates = dict(_layers(task.backbone, LORA_LAYERS))
    adapted = {}
    for target in targets:
        matches = {path: layer for path, layer in candidates.items() if path == target or layer.name == target}
        if not matches:
            names = sorted({layer.name for layer in candidates.values()})
            near = difflib.get_close_matches(str(target), names, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"targets: no layer is called {target!r}.{hint} There are: {', '.join(names)}.")
        adapted |= matches
    present = [path for path, layer in candidates.items() if layer.lora_enabled]
    if present:
        raise ValueError(f"{present[0]} has low-rank updates already: enable_lora() can be called once.")
    trainable = [(variable, variable.trainable) for variable in task.backbone.variables]
    for variable in task.backbone.variables:
        variable.trainable = False
    for layer in adapted.values():
        layer.enable_lora(rank, lora_alpha=alpha)
    renew_training(task)
    report = LoraReport(
        tuple(adapted),
        rank,
        sum(_size(variable) for variable in task.trainable_variables),
        sum(_size(variable) for variable in task.weights),
    )
    return report, LowRankUpdates(rank, alpha, targets, adapted, trainable)


def quantized_layers(task: Any) -> tuple[str, ...]:
    """Returns the paths of the layers of a task whose weights are quantized."""
    return tuple(path for path, layer in _layers(task, QUANTIZED_LAYERS) if layer.quantization_mode is not None)


def quantize(task: Any, apply: Any, mode: str) -> QuantizationReport:
    """Quantizes the weights of a task and says what changed.

    Args:
        task: The task.
        apply: Function of the mode that does it.
        mode: "int8" or "int4".

    Raises:
        ValueError: If there is no such mode, weights are quantized already, or none were.
    """
    if mode not in MODES:
        hint = " Keras trains in float8, and stores no weight in fewer bits." if mode == "float8" else ""
        raise ValueError(f"mode must be one of {MODES}, got {mode!r}.{hint}")
    if quantized_layers(task):
        raise ValueError(f"{quantized_layers(task)[0]} is quantized already: quantize() can be called once.")
    before = sum(_bytes(variable) for variable in task.weights)
    with warnings.catch_warnings():
        # layers without weights to quantize; what was and what was not is in the report
        warnings.filterwarnings("ignore", message=".*does not have a `quantize.*")
        apply(mode)
    layers = quantized_layers(task)
    if not layers:
        raise ValueError(f"mode={mode!r} quantized no layer of {type(task).__name__}.")
    return QuantizationReport(mode, layers, before, sum(_bytes(variable) for variable in task.weights))


def renew_training(task: Any) -> None:
    """Starts the optimizer of a compiled task anew, for the variables that train now."""
    task.train_function = task.test_function = task.predict_function = None
    if task.compiled:
        task.compile_from_config(task.get_compile_config())


def _layers(model: Any, kinds: tuple[type, ...]) -> Iterator[tuple[str, Any]]:
    """Paths and layers of some kinds, each layer once."""
    for layer in model._flatten_layers():
        if isinstance(layer, kinds) and layer.weights:
            yield layer.weights[0].path.rpartition("/")[0], layer


def _size(variable: Any) -> int:
    return math.prod(variable.shape)


def _bytes(variable: Any) -> int:
    name = keras.backend.standardize_dtype(variable.dtype)
    width = {"bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1}.get(name)
    return _size(variable) * (width or np.dtype(name).itemsize)
