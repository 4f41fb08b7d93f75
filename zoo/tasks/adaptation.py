"""Adapting a trained task cheaply: low-rank updates (LoRA) and weights of 8 or 4 bits, with reports of it."""

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

from zoo.backbones.adapter_targets import choose_layers
from zoo.backbones.adapters import DEFAULT_TARGETS, LoraReport, size_of
from zoo.backbones.backbone import Backbone, quick_collection, require_quantization_mode
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
_MODELS_OF: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
_LOCK = threading.Lock()


@dataclasses.dataclass(frozen=True)
class QuantizationReport:
    """The result of `quantize`: layers, and bytes before and after.

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
    """Quantization and low-rank updates of the weights of a task.

    The updates belong to the backbone, so that all its tasks share them.

    Args:
        task: The task, with its backbone, of which other tasks may be made too.

    Attributes:
        mode: The mode of quantized weights, or None.
        quantized_head: Whether `quantize` acts, or has acted, on the head too.
    """

    def __init__(self, task: keras.Model) -> None:
        self._task = task
        self.add_user(task)
        self.mode: str | None = None
        self.quantized_head = True

    def add_user(self, model: keras.Model) -> None:
        """Has a model renewed whenever the weights of the backbone are adapted.

        Args:
            model: A model that uses the backbone and has a method `renew_training`.
        """
        with _LOCK:
            _MODELS_OF.setdefault(self._task.backbone, weakref.WeakSet()).add(model)

    def require_trainable(self, what: str) -> None:
        """Raises a ValueError where the weights cannot train; see `TextModel.require_trainable`."""
        # a backbone may have been quantized by another of its tasks
        modes = (layer.quantization_mode for _, layer in _layers_of(self._task, QUANTIZED_LAYERS))
        mode = next((mode for mode in modes if mode is not None), None)
        if mode is not None and not len(self._task.backbone.adapters):
            by, of = ("", "") if self.mode is not None else (" by another task of the backbone", " of that task")
            raise ValueError(
                f"{what} needs weights that can train; these are stored in {mode}{by}. Train before quantize(){of}, or "
                "call enable_lora() behind it."
            )

    def require_own(self, what: str) -> None:
        """Raises a ValueError where weights were quantized, but not by this task: files of it would never load.

        Args:
            what: What needs that, for the error.
        """
        for path, layer in _layers_of(self._task, QUANTIZED_LAYERS):
            if self.mode is None and layer.quantization_mode is not None:
                raise ValueError(
                    f"{what} needs weights that this task has quantized; {path} was stored in "
                    f"{layer.quantization_mode} by another task of the backbone, or without quantize() of a task."
                )

    def take_over(self) -> None:
        """Makes the mode of the backbone's weights, which were quantized before there was this task, that of it."""
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
        name: str = "default",
    ) -> LoraReport:
        """Adds low-rank updates to layers of the backbone; only these and the task's head train from then on.

        The weights may be quantized. Updates that are there already, under other names, stay active and stop training.
        Saved models keep the updates apart from the weights; `merge_lora` makes a model without of them.

        Args:
            rank: Rank of the updates.
            alpha: The updates are multiplied by `alpha / rank`. Default `rank`.
            dropout: Rate at which inputs of updates are dropped in training, at least 0 and below 1.
            targets: Name or names of the layers to adapt: "query", "key", "value", "output" (attention), "up", "down"
                and so on (feed-forward), "all" for all layers of the blocks, or paths of single layers.
            blocks: Numbers of the blocks to adapt, counted from 0 in each stack, negative ones from the last. Default
                all.
            name: Name of the updates.

        Returns:
            What was adapted: paths, trainable and total number of weights. It prints as one line.

        Raises:
            ValueError: If a target matches no layer, a number is out of range, or the name is taken.

        Example:

        >>> print(model.enable_lora(8))
        LoRA of rank 8 on 24 layers: 300,290 of 109,785,604 weights train (0.27 %).

        Reference:
            Hu et al. 2022, "LoRA", section 4; on quantized weights Dettmers et al. 2023, "QLoRA", section 3.
        """
        require_count(rank, "rank")
        adapters = self._task.backbone.adapters
        paths = choose_layers(dict(adapters.candidates()), targets, blocks)
        with scope_of(self._task):
            adapters.add(name, {path: (rank, alpha) for path in paths}, dropout)
        self.renew_training()
        return self._report(paths, rank)

    def save_adapter(
        self,
        directory: str | os.PathLike,
        name: str = "default",
        *,
        model_type: str | None = None,
        base_model: str | None = None,
    ) -> str | None:
        """Writes low-rank updates alone, with the head of the task, in the files of the PEFT library.

        `task_options.json`, beside them, has the arguments of the task, which PEFT has no place for: labels and their
        problem, temperature and thresholds, pooling, prompts, lengths, the chat format. `from_preset` makes the task of
        them. What is not in the files is how the weights of the model were quantized.

        PEFT reads them beside a model of the Transformers library with the same weights (`save_to_huggingface` writes
        one). For a model that no family there can express, layers have their own paths, which `load_adapter` alone
        reads. Several layers that a family stores as one (queries, keys and values) become one update, whose rank is
        the sum of theirs unless they share their first factor.

        Args:
            directory: Where to; replaced if it holds an adapter, an error if it holds a model or something else.
            name: Name of the updates.
            model_type: The family of the Transformers library whose names are written. Default: the first that can
                express the task, or else paths.
            base_model: What the updates are for, a directory or a name on the hub, for `base_model_name_or_path`.

        Returns:
            The model type; None for paths.

        Raises:
            ValueError: If there are no updates of this name, or the given family cannot express the task.
            FileExistsError: If the directory exists and holds something else.

        Example:

        >>> model.save_adapter("adapter", base_model="google-bert/bert-base-uncased")
        'bert'
        """
        extra = functools.partial(write_adapter_options, self._task)
        return save_adapter(self._task, directory, name, model_type=model_type, base_model=base_model, extra=extra)

    def load_adapter(self, source: str | os.PathLike, name: str = "default", *, head: bool = True) -> LoraReport:
        """Adds low-rank updates that `save_adapter` or the PEFT library has written, active and trainable.

        Updates that are there already, under other names, stay active and stop training. The weights may be quantized.

        Args:
            source: A directory, or `hf://owner/name` for an adapter of the hub.
            name: What the updates are called from now on.
            head: Whether the head of the task takes the weights that the files have for it. There is one head: that of
                an adapter replaces that of another. With it come the names of its labels, its temperature and its
                thresholds; their defaults where the files do not say them. Other arguments of the task stay.

        Returns:
            What was adapted, as of `enable_lora`; its rank is the largest.

        Raises:
            ValueError: If a file is damaged, has something other than plain LoRA, or does not fit, or the head is one
                for another `problem`; nothing is changed then.
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
        return self._report(paths, max(rank for rank, _ in self._task.backbone.adapters[name].layers.values()))

    def activate_adapters(self, *names: str, trainable: Sequence[str] = ()) -> None:
        """Adds the low-rank updates of these names from now on, and no others.

        Args:
            *names: Names of updates; none for the backbone alone.
            trainable: Those of them that train.

        Raises:
            ValueError: If there are none of a name.
        """
        self._task.backbone.adapters.activate(names, trainable)
        self.renew_training()

    def remove_adapters(self, *names: str) -> None:
        """Removes low-rank updates. After the last ones, the weights that trained before `enable_lora` train again.

        Args:
            *names: Names of updates.

        Raises:
            ValueError: If there are none of a name.
        """
        self._task.backbone.adapters.remove(names)
        self.renew_training()

    def merge_lora(self, *names: str) -> None:
        """Adds low-rank updates to the weights and takes them away: a model as before `enable_lora`, adapted.

        When none are left, all weights that trained before `enable_lora` train again.

        Args:
            *names: Names of updates. Default the active ones.

        Raises:
            ValueError: If there are no updates, or the weights are quantized.
        """
        adapters = self._task.backbone.adapters
        names = names or adapters.active
        if not names:
            raise ValueError("merge_lora() needs active low-rank updates: call enable_lora() first.")
        adapters.remove(names, merge=True)
        self.renew_training()

    def quantize(self, mode: str = "int8", *, head: bool = True) -> QuantizationReport:
        """Stores weights in fewer bits, for prediction; saved models stay so. Low-rank updates are left as they are.

        Args:
            mode: "int8" (weights and, while it runs, activations) or "int4".
            head: Whether the weights outside of the backbone, too. A head that is still to be trained must not be.

        Returns:
            What was quantized: paths, size before and after. It prints as one line.

        Raises:
            ValueError: If there is no such mode, no layer can be quantized, or it was done already.

        Example:

        >>> print(model.quantize("int8"))
        int8 weights in 77 layers: 437,935,112 bytes became 110,713,352 (4.0 times less).
        """
        require_quantization_mode(mode)
        require_whole_weights("quantize()")
        if self._quantized_layers():
            raise ValueError(f"{self._quantized_layers()[0]} is quantized already: quantize() can be called once.")
        before = sum(_bytes(variable) for variable in self._task.weights)
        with warnings.catch_warnings(), quick_collection(), scope_of(self._task):
            # layers without weights to quantize; what was and what was not is in the report
            warnings.filterwarnings("ignore", message=".*does not have a `quantize.*")
            inside = {id(layer) for layer in self._task.backbone._flatten_layers()}
            keras.Model.quantize(self._task, mode, filters=None if head else lambda layer: id(layer) in inside)
            self._task.backbone.adapters.quantize(mode)
        layers = self._quantized_layers()
        if not layers:
            raise ValueError(f"mode={mode!r} quantized no layer of {type(self._task).__name__}.")
        self.mode, self.quantized_head = mode, head
        self.renew_training()
        return QuantizationReport(mode, layers, before, sum(_bytes(variable) for variable in self._task.weights))

    def _report(self, paths: tuple[str, ...], rank: int) -> LoraReport:
        return LoraReport(
            paths,
            rank,
            sum(size_of(variable) for variable in self._task.trainable_variables),
            sum(size_of(variable) for variable in self._task.weights),
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
    for layer in model._flatten_layers():
        if isinstance(layer, kinds) and layer.weights:
            yield layer.weights[0].path.rpartition("/")[0], layer


def _bytes(variable: Any) -> int:
    name = keras.backend.standardize_dtype(variable.dtype)
    width = {"bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1}.get(name)
    return size_of(variable) * (width or np.dtype(name).itemsize)
