"""Adapting a trained task cheaply: low-rank updates (LoRA) and weights of 8 or 4 bits, with reports of it."""

import dataclasses
import threading
import warnings
import weakref
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from zoo.backbones.backbone import quick_collection, require_quantization_mode
from zoo.preprocessing.rows import require_count
from zoo.tasks.low_rank import LORA_LAYERS, LoraReport, LowRankUpdates, add_updates, layers_of, size_of

QUANTIZED_LAYERS = (*LORA_LAYERS, keras.layers.Embedding)
# the tasks of each backbone, as long as both are used
_TASKS_OF: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
_LOCK = threading.Lock()


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


class Adaptation:
    """What was done to the weights of a task after it was made: quantized, given low-rank updates.

    Args:
        task: The task, with its backbone, of which other tasks may be made too.

    Attributes:
        mode: The mode of quantized weights, or None.
        updates: The low-rank updates, or None.
    """

    def __init__(self, task: keras.Model) -> None:
        self._task = task
        with _LOCK:
            _TASKS_OF.setdefault(task.backbone, weakref.WeakSet()).add(task)
        self.mode: str | None = None
        self.updates: LowRankUpdates | None = None

    def config(self) -> dict[str, Any]:
        """Returns what `restore` takes, plain values."""
        return {"quantization": self.mode, "lora": None if self.updates is None else self.updates.config()}

    def restore(self, quantization: str | None, lora: dict[str, Any] | None) -> None:
        """Prepares the layers of a fresh task for weights that were saved quantized or adapted.

        Args:
            quantization, lora: What `config` returned.
        """
        if quantization is not None:
            self.quantize(quantization)
        if lora is not None:
            self.enable_lora(**lora)

    def require_trainable(self, what: str) -> None:
        """Raises a ValueError where the weights cannot train; see `TextModel.require_trainable`."""
        # a backbone may have been adapted by another of its tasks
        modes = (layer.quantization_mode for _, layer in layers_of(self._task, QUANTIZED_LAYERS))
        mode = next((mode for mode in modes if mode is not None), None)
        if mode is not None and not self._updated_layers():
            by, of = ("", "") if self.mode is not None else (" by another task of the backbone", " of that task")
            raise ValueError(
                f"{what} needs weights that can train; these are stored in {mode}{by}. Train before quantize(){of}, or "
                f"call enable_lora(){of} behind it."
            )

    def require_own(self, what: str) -> None:
        """Raises a ValueError where weights were quantized, but not by this task: files of it would never load.

        Args:
            what: What needs that, for the error.
        """
        for path, layer in layers_of(self._task, QUANTIZED_LAYERS):
            if self.mode is None and layer.quantization_mode is not None:
                raise ValueError(
                    f"{what} needs weights that this task has quantized; {path} was stored in "
                    f"{layer.quantization_mode} by another task of the backbone, or without quantize() of a task."
                )

    def enable_lora(
        self, rank: int, *, alpha: float | None = None, targets: Sequence[str] = ("query", "value")
    ) -> LoraReport:
        """Adds low-rank updates to layers of the backbone; only these and the task's head train from then on.

        A `.keras` file loads with the updates, to train on. A preset holds them added to the weights and loads as a
        model without, as `merge_lora` makes one in memory; quantized weights, which would be rounded again, cannot be
        saved so.

        Args:
            rank: Rank of the updates.
            alpha: The updates are multiplied by `alpha / rank`. Default `rank`.
            targets: Names of the layers to adapt: "query", "key", "value", "output" (attention), "up", "down" and so on
                (feed-forward), or paths of single layers.

        Returns:
            What was adapted: paths, trainable and total number of weights. It prints as one line.

        Raises:
            ValueError: If a target matches no layer, a number is out of range, updates are there already, or another
                task has quantized the backbone.

        Example:

        >>> print(model.enable_lora(8))
        LoRA of rank 8 on 24 layers: 300,290 of 109,785,604 weights train (0.27 %).

        Reference:
            Hu et al. 2022, "LoRA", section 4.
        """
        require_count(rank, "rank")
        if alpha is not None and not alpha > 0:
            raise ValueError(f"alpha must be above 0, got {alpha!r}.")
        self.require_own("enable_lora()")
        if self._of_another():
            raise ValueError(f"enable_lora() needs a model without low-rank updates; {self._of_another()}.")
        report, self.updates = add_updates(self._task, rank, alpha=alpha, targets=targets)
        self._renew_training()
        return report

    def merge_lora(self) -> None:
        """Adds the low-rank updates to the weights and takes them away: a model as before `enable_lora`, adapted.

        All weights that trained before `enable_lora` train again.

        Raises:
            ValueError: If there are no updates, or the weights are quantized.
        """
        if self.updates is None:
            hint = self._of_another() or "call enable_lora() first"
            raise ValueError(f"merge_lora() needs low-rank updates of this task: {hint}.")
        self.updates.merge()
        self.updates = None
        self._renew_training()

    def quantize(self, mode: str = "int8") -> QuantizationReport:
        """Stores weights in fewer bits, for prediction; saved models stay so.

        Args:
            mode: "int8" (weights and, while it runs, activations) or "int4".

        Returns:
            What was quantized: paths, size before and after. It prints as one line.

        Raises:
            ValueError: If there is no such mode, no layer can be quantized, it was done already, or there are low-rank
                updates.

        Example:

        >>> print(model.quantize("int8"))
        int8 weights in 77 layers: 437,935,112 bytes became 110,713,352 (4.0 times less).
        """
        if self._updated_layers():
            hint = self._of_another() or "call merge_lora() first"
            raise ValueError(f"quantize() needs a model without low-rank updates: {hint}.")
        require_quantization_mode(mode)
        if self._quantized_layers():
            raise ValueError(f"{self._quantized_layers()[0]} is quantized already: quantize() can be called once.")
        before = sum(_bytes(variable) for variable in self._task.weights)
        with warnings.catch_warnings(), quick_collection():
            # layers without weights to quantize; what was and what was not is in the report
            warnings.filterwarnings("ignore", message=".*does not have a `quantize.*")
            keras.Model.quantize(self._task, mode)
        layers = self._quantized_layers()
        if not layers:
            raise ValueError(f"mode={mode!r} quantized no layer of {type(self._task).__name__}.")
        self.mode = mode
        self._renew_training()
        return QuantizationReport(mode, layers, before, sum(_bytes(variable) for variable in self._task.weights))

    def _renew_training(self) -> None:
        # what the backbone and other tasks have compiled, and what optimizers hold, is of the variables of before
        backbone = self._task.backbone
        backbone.train_function = backbone.test_function = backbone.predict_function = None
        with _LOCK:
            tasks = list(_TASKS_OF[backbone])
        for task in tasks:
            task.renew_training()

    def _of_another(self) -> str:
        """What to do about updates that another task has made; nothing where there are none."""
        if self.updates is not None or not self._updated_layers():
            return ""
        return "those that are there belong to another task of the backbone, call its merge_lora()"

    def _quantized_layers(self) -> tuple[str, ...]:
        layers = layers_of(self._task, QUANTIZED_LAYERS)
        return tuple(path for path, layer in layers if layer.quantization_mode is not None)

    def _updated_layers(self) -> tuple[str, ...]:
        return tuple(path for path, layer in layers_of(self._task, LORA_LAYERS) if layer.lora_enabled)


def _bytes(variable: Any) -> int:
    name = keras.backend.standardize_dtype(variable.dtype)
    width = {"bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1}.get(name)
    return size_of(variable) * (width or np.dtype(name).itemsize)
