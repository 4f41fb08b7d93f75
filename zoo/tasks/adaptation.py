"""Adaptation of a trained task: low-rank updates (LoRA) and weights of 8 or 4 bits, with reports."""

import dataclasses
import functools
import os
import threading
import warnings
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from layers.keras_internals import sublayers
from zoo.backbones.adapter_targets import choose_layers
from zoo.backbones.adapters import DEFAULT_TARGETS, LoraReport, is_factor, size_of
from zoo.backbones.backbone import Backbone, quick_collection, require_quantization_mode
from zoo.backbones.freezing import weights_of_parts
from zoo.distribution.layouts import require_whole_weights
from zoo.distribution.replicas import scope_of
from zoo.huggingface.adapters import load_adapter, save_adapter
from zoo.preprocessing.rows import require_count
from zoo.storage import fetch
from zoo.storage.deferred import shapes_only
from zoo.storage.hub import PREFIX as HUB
from zoo.tasks.adapter_options import options_for_head, take_options, write_adapter_options

QUANTIZED_LAYERS = (keras.layers.Dense, keras.layers.Embedding)
# the tasks of each backbone, and the models around these, as long as both are used
_MODELS_OF: weakref.WeakKeyDictionary[Any, weakref.WeakSet[Any]] = weakref.WeakKeyDictionary()
_LOCK = threading.Lock()


@dataclasses.dataclass(frozen=True)
class QuantizationReport:
    """The result of `quantize`: layers, and bytes before and after.

    Args:
        mode: The quantization mode.
        layers: Paths of the quantized layers.
        bytes_before: Size of all weights before, in bytes.
        bytes_after: Size of all weights after, in bytes.
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
    """Quantization and low-rank updates of the weights of a task.

    The updates belong to the backbone, so that all its tasks share them.

    Args:
        task: The task. Other tasks may share its backbone.

    Attributes:
        mode: The quantization mode, or None.
        quantized_head: Whether `quantize` acts, or has acted, on the head too.
    """

    def __init__(self, task: keras.Model) -> None:
        self._task = task
        self.add_user(task)
        self.mode: str | None = None
        self.quantized_head: bool = True

    def add_user(self, model: keras.Model) -> None:
        """Registers a model whose `renew_training` is called whenever the weights of the backbone are adapted.

        Args:
            model: A model that uses the backbone and has a method `renew_training`.
        """
        with _LOCK:
            _MODELS_OF.setdefault(self._task.backbone, weakref.WeakSet()).add(model)

    def require_trainable(self, what: str) -> None:
        """Raises a ValueError if the weights cannot train; see `TextModel.require_trainable`."""
        # a backbone may have been quantized by another of its tasks
        modes = (layer.quantization_mode for _, layer in _layers_of(self._task, QUANTIZED_LAYERS))
        mode = next((mode for mode in modes if mode is not None), None)
        if mode is not None and not len(self._task.backbone.adapters):
            by, of = ("", "") if self.mode is not None else (" by another task of the backbone", " of that task")
            raise ValueError(
                f"{what} needs weights that can train; these are stored in {mode}{by}. Train before quantize(){of}, or "
                "call enable_lora() after it."
            )

    def require_own(self, what: str) -> None:
        """Raises a ValueError if another task quantized the weights, because files of this task could not be loaded.

        Args:
            what: The operation that needs this, for the error message.
        """
        for path, layer in _layers_of(self._task, QUANTIZED_LAYERS):
            if self.mode is None and layer.quantization_mode is not None:
                raise ValueError(
                    f"{what} needs weights that this task has quantized; {path} was stored in "
                    f"{layer.quantization_mode} by another task of the backbone, or without quantize() of a task."
                )

    def take_over(self) -> None:
        """Takes over the quantization mode of a backbone that was quantized before this task was made."""
        modes = (layer.quantization_mode for _, layer in _layers_of(self._task.backbone, QUANTIZED_LAYERS))
        self.mode = next((mode for mode in modes if mode is not None), None)
        if self.mode is not None:
            self.quantized_head = False
            with shapes_only():
                self._task.backbone_parameters = Backbone.from_config(self._task.backbone.config).parameter_count()

    def enable_lora(
        self,
        rank: int,
        *,
        alpha: float | None = None,
        dropout: float = 0.0,
        targets: str | Sequence[str] = DEFAULT_TARGETS,
        blocks: Sequence[int] | None = None,
        dora: bool = False,
        modules_to_save: Sequence[str] = (),
        name: str = "default",
    ) -> LoraReport:
        """Adds low-rank updates (LoRA) to layers of the backbone. From then on only these and the head are trained.

        The weights may be quantized. Existing updates under other names stay active, but are not trained any more.
        Saved models store the updates apart from the weights. `merge_lora` merges them into the weights.

        Args:
            rank: Rank of the updates.
            alpha: The updates are multiplied by `alpha / rank`. Default `rank`.
            dropout: Rate of the dropout on the inputs of the updates, in [0, 1).
            targets: Name or names of the layers to adapt: "query", "key", "value", "output" (attention), "up", "down"
                and so on (feed-forward), "all" for all layers of the blocks, or paths of single layers.
            blocks: Indices of the blocks to adapt in each stack, from 0; negative ones count from the last. Default
                all.
            dora: Whether the updates also learn the norm of each column of the kernels (DoRA). The kernels may be
                quantized to int8, not to int4.
            modules_to_save: Parts of the backbone whose own weights train too, and which `save_adapter` writes whole,
                as in PEFT: "token_embedding", "final_norm", "block_0/attention_norm" and so on, see `freeze`. They are
                replaced, so that these updates can be merged, but neither deactivated nor removed. The head trains, and
                is written, in any case.
            name: Name of the updates.

        Returns:
            A `LoraReport`: paths, trainable and total number of weights. It prints as one line.

        Raises:
            ValueError: If a target matches no layer, a part is unknown, quantized, or has updates, a number is out of
                range, the name is in use, or `dora` meets kernels in int4.

        Example:

        >>> print(model.enable_lora(8))
        LoRA of rank 8 on 24 layers: 300,290 of 109,785,604 weights train (0.27 %).

        Reference:
            Hu et al. 2022, "LoRA", section 4; on quantized weights Dettmers et al. 2023, "QLoRA", section 3; Liu et al.
            2024, "DoRA: Weight-Decomposed Low-Rank Adaptation", section 4.
        """
        require_count(rank, "rank")
        adapters = self._task.backbone.adapters
        paths = choose_layers(dict(adapters.candidates()), targets, blocks)
        weights = self._weights_to_save(modules_to_save)
        with scope_of(self._task):
            adapters.add(name, {path: (rank, alpha) for path in paths}, dropout, dora, weights)
        self.renew_training()
        return self._report(paths, rank, dora)

    def save_adapter(
        self,
        directory: str | os.PathLike[str],
        name: str = "default",
        *,
        model_type: str | None = None,
        base_model: str | None = None,
    ) -> str | None:
        """Writes the low-rank updates and the head of the task, without the backbone, as files of the PEFT library.

        `task_options.json` holds the arguments of the task that PEFT cannot store: labels and their problem,
        temperature and thresholds, pooling, prompts, lengths, the chat format. `from_preset` restores the task from
        them. The quantization of the weights is not stored.

        PEFT applies the files to a model of the Transformers library with the same weights, which `save_to_huggingface`
        writes. If no family of Transformers can express the model, the files use our paths, and only `load_adapter`
        reads them. Layers that a family stores as one (queries, keys and values) become one update. Its rank is the sum
        of theirs, unless they share their first factor.

        Args:
            directory: The directory to write. An adapter that it holds is replaced.
            name: Name of the updates.
            model_type: The family of the Transformers library whose names are written. Default: the first that can
                express the task; our paths if there is none.
            base_model: The model that the updates are for, a directory or a name on the hub, written as
                `base_model_name_or_path`.

        Returns:
            The model type; None for paths.

        Raises:
            ValueError: If there are no updates of this name, or the given family cannot express the task.
            FileExistsError: If the directory exists and does not hold an adapter.

        Example:

        >>> model.save_adapter("adapter", base_model="google-bert/bert-base-uncased")
        'bert'
        """
        extra = functools.partial(write_adapter_options, self._task)
        return save_adapter(self._task, directory, name, model_type=model_type, base_model=base_model, extra=extra)

    def load_adapter(self, source: str | os.PathLike[str], name: str = "default", *, head: bool = True) -> LoraReport:
        """Loads low-rank updates that `save_adapter` or the PEFT library wrote. They are active and trainable.

        Existing updates under other names stay active, but are not trained any more. The weights may be quantized.

        Args:
            source: A directory, or `hf://owner/name` for an adapter on the hub.
            name: New name of the updates.
            head: Whether to load the head of the task, if the files have one. It replaces the present head, with its
                label names, temperature and thresholds, or their defaults if the files have none. Other arguments of
                the task do not change.

        Returns:
            A `LoraReport`, as from `enable_lora`. Its rank is the largest of all layers.

        Raises:
            ValueError: If a file is damaged, holds something other than LoRA or DoRA, or does not fit, or if the head
                is for another `problem`. Nothing is changed then.
            HubError: If the adapter could not be fetched.

        Example:

        >>> print(model.load_adapter("adapter"))
        LoRA of rank 8 on 24 layers: 300,290 of 109,785,604 weights train (0.27 %).
        """
        directory = Path(fetch(str(source)) if str(source).startswith(HUB) else source)
        options = options_for_head(self._task, directory) if head else {}
        with scope_of(self._task):
            paths, has_head = load_adapter(self._task, directory, name, head=head)
        if has_head:
            take_options(self._task, options)
        self.renew_training()
        adapter = self._task.backbone.adapters[name]
        return self._report(paths, max(rank for rank, _ in adapter.layers.values()), adapter.dora)

    def activate_adapters(self, *names: str, trainable: Sequence[str] = ()) -> None:
        """Activates the low-rank updates of these names, and deactivates all others.

        Args:
            *names: Names of updates. Without names, the backbone is used alone.
            trainable: Those of the names that are trained.

        Raises:
            ValueError: If a name is unknown.
        """
        self._task.backbone.adapters.activate(names, trainable)
        self.renew_training()

    def remove_adapters(self, *names: str) -> None:
        """Removes low-rank updates. Without any left, the weights that trained before `enable_lora` train again.

        Args:
            *names: Names of updates.

        Raises:
            ValueError: If a name is unknown.
        """
        self._task.backbone.adapters.remove(names)
        self.renew_training()

    def merge_lora(self, *names: str) -> None:
        """Merges low-rank updates into the weights, and removes them.

        Without any left, the weights that trained before `enable_lora` train again.

        Args:
            *names: Names of updates. Default the active ones.

        Raises:
            ValueError: If there are no updates, the weights are quantized, or updates with DoRA of the same layers are
                left: these are relative to the weights.
        """
        adapters = self._task.backbone.adapters
        names = names or adapters.active
        if not names:
            raise ValueError("merge_lora() needs active low-rank updates: call enable_lora() first.")
        adapters.remove(names, merge=True)
        self.renew_training()

    def quantize(self, mode: str = "int8", *, head: bool = True) -> QuantizationReport:
        """Quantizes the weights, for prediction. Saved models stay quantized. Low-rank updates are not quantized.

        Args:
            mode: "int8" (weights, and activations at run time) or "int4".
            head: Whether to quantize the weights outside of the backbone too. A quantized head cannot be trained.

        Returns:
            A `QuantizationReport`: paths, size before and after. It prints as one line.

        Raises:
            ValueError: If the mode is unknown, no layer can be quantized, or the weights are already quantized; for
                "int4" if there are updates with DoRA.

        Example:

        >>> print(model.quantize("int8"))
        int8 weights in 77 layers: 437,935,112 bytes became 110,713,352 (4.0 times less).
        """
        require_quantization_mode(mode)
        require_whole_weights("quantize()")
        if self._quantized_layers():
            raise ValueError(f"{self._quantized_layers()[0]} is quantized already: quantize() can be called once.")
        self._task.backbone.adapters.require_quantizable(mode)
        before = sum(_bytes(variable) for variable in self._task.weights)
        with warnings.catch_warnings(), quick_collection(), scope_of(self._task):
            # layers without weights to quantize; what was and what was not is in the report
            warnings.filterwarnings("ignore", message=".*does not have a `quantize.*")
            inside = {id(layer) for layer in sublayers(self._task.backbone)}
            keras.Model.quantize(self._task, mode, filters=None if head else lambda layer: id(layer) in inside)
            self._task.backbone.adapters.quantize(mode)
        layers = self._quantized_layers()
        if not layers:
            raise ValueError(f"mode={mode!r} quantized no layer of {type(self._task).__name__}.")
        self.mode, self.quantized_head = mode, head
        self.renew_training()
        return QuantizationReport(mode, layers, before, sum(_bytes(variable) for variable in self._task.weights))

    def _weights_to_save(self, parts: Sequence[str]) -> list[str]:
        """Paths of the weights of some parts of the backbone."""
        if isinstance(parts, str):
            raise ValueError(f"modules_to_save must be names of parts of the backbone, got {parts!r}.")
        backbone = self._task.backbone
        own, start = {id(weight) for weight in backbone.weights}, len(backbone.path) + 1
        paths: dict[str, None] = {}
        for part, weights in weights_of_parts(self._task, parts).items():
            inside = [weight for weight in weights if id(weight) in own and not is_factor(weight)]
            if not inside:
                raise ValueError(
                    f"modules_to_save must be parts of the backbone, got {part!r}: the head trains anyway."
                )
            paths |= dict.fromkeys(weight.path[start:] for weight in inside)
        return list(paths)

    def _report(self, paths: tuple[str, ...], rank: int, dora: bool) -> LoraReport:
        return LoraReport(
            paths,
            rank,
            sum(size_of(variable) for variable in self._task.trainable_variables),
            sum(size_of(variable) for variable in self._task.weights),
            dora,
        )

    def renew_training(self) -> None:
        # what the backbone and its users have compiled, and what optimizers hold, is of the variables of before
        backbone = self._task.backbone
        backbone.train_function = backbone.test_function = backbone.predict_function = None
        with _LOCK:
            models = list(_MODELS_OF[backbone])
        for model in models:
            model.renew_training()

    def _quantized_layers(self) -> tuple[str, ...]:
        layers = _layers_of(self._task, QUANTIZED_LAYERS)
        return tuple(path for path, layer in layers if layer.quantization_mode is not None)


def _layers_of(model: Any, kinds: tuple[type, ...]) -> Iterator[tuple[str, Any]]:
    """Paths and layers of some kinds, each layer once."""
    for layer in sublayers(model):
        if isinstance(layer, kinds) and layer.weights:
            yield layer.weights[0].path.rpartition("/")[0], layer


def _bytes(variable: Any) -> int:
    name = keras.backend.standardize_dtype(variable.dtype)
    width = {"bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1}.get(name)
    return size_of(variable) * (width or np.dtype(name).itemsize)
