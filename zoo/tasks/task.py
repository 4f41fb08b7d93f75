"""What all tasks share: a backbone with a tokenizer, made from a preset, saved and exported."""

import os
import types
from collections.abc import Sequence
from typing import Any

import keras

from zoo.backbones.backbone import Backbone
from zoo.preprocessing.rows import require_count
from zoo.tasks.adaptation import LoraReport, QuantizationReport, enable_lora, quantize
from zoo.tasks.loading import QUANTIZATION, default_policy, load_task, save_task
from zoo.tasks.text_model import TextModel


class Task(TextModel):
    """A backbone with what it takes to do one job: head, tokenizer, text in, text out.

    `fit`, `evaluate` and `predict` take raw texts, see `zoo.tasks.text_model.TextModel`.

    Args:
        backbone: The backbone.
        tokenizer: The tokenizer; None for a task that is only used on token level.
    """

    def __init__(self, backbone: Backbone, tokenizer: Any = None, **kwargs: Any):
        super().__init__(**kwargs)
        # Keras wraps this method of each layer in one that returns nothing
        self.quantize = types.MethodType(Task.quantize, self)
        self.backbone = backbone
        self.tokenizer = tokenizer
        # of the architecture: adapted and quantized layers have other weights
        self.backbone_parameters = backbone.parameter_count()
        self._quantization: str | None = None
        if tokenizer is not None and tokenizer.vocabulary_size > backbone.config.vocabulary_size:
            raise ValueError(
                f"The tokenizer has {tokenizer.vocabulary_size} tokens, the backbone only "
                f"vocabulary_size={backbone.config.vocabulary_size}."
            )

    @classmethod
    def from_preset(
        cls,
        preset: str | os.PathLike,
        *,
        load_weights: bool = True,
        tokenizer: Any = None,
        dtype: Any = None,
        **choices: Any,
    ) -> "Task":
        """Returns the task of a saved model, or with a named architecture.

        A saved model of another task gives its backbone, for example a `MaskedLM` to a `TextClassifier`; the head
        starts untrained, as it does with other `labels` than those saved, and a warning says so.

        Args:
            preset: A directory that `save_to_preset` wrote, a directory of the Transformers library, `hf://owner/name`
                for one of the Hugging Face hub, or a name of `zoo.list_presets()`.
            load_weights: Whether to load the weights. Named architectures have none here: pass False.
            tokenizer: Tokenizer for a named architecture; a saved model has its own.
            dtype: Policy of all layers, for example "mixed_bfloat16". Default `keras.config.dtype_policy()`.
            **choices: Arguments of the task, for example `labels=["bad", "good"]`; for a named architecture also
                replaced choices of its configuration, for example `vocabulary_size=8000`.

        Raises:
            ValueError: If there is no such preset, if it has no weights and `load_weights` is True, or if the saved
                model is one of a task with another kind of backbone.

        Example:

        >>> model = Seq2SeqLM.from_preset("transformer_tiny", load_weights=False, vocabulary_size=8000)
        """
        with default_policy(dtype):
            return load_task(cls, preset, load_weights, tokenizer, choices)

    def special_tokens(self) -> dict[str, int | None]:
        """Returns the ids of the tokens that stand around a text that the model reads, None for none."""
        tokenizer = self._require_tokenizer("Text input")
        return {"start_id": tokenizer.start_id, "end_id": tokenizer.end_id}

    def options(self) -> dict[str, Any]:
        """Returns the arguments of the constructor beside backbone and tokenizer, as plain values."""
        return {}

    def save_to_preset(self, directory: str | os.PathLike) -> None:
        """Writes configuration, weights and tokenizer to a directory, whole or not at all.

        Args:
            directory: Where to.
        """
        save_task(self, directory)

    def saved_options(self) -> dict[str, Any]:
        """Returns `options()` and what was done to the weights, for a saved model."""
        return {**self.options(), **({} if self._quantization is None else {QUANTIZATION: self._quantization})}

    def save_to_huggingface(self, directory: str | os.PathLike, *, model_type: str | None = None) -> str:
        """Writes the model for the Transformers library, see `zoo.huggingface.tasks.save_task`.

        Args:
            directory: Where to.
            model_type: The family to write it as. Default: the first that can express it.

        Returns:
            The model type.
        """
        from zoo.huggingface import save_task as save_huggingface_task

        return save_huggingface_task(self, directory, model_type=model_type)

    def enable_lora(
        self, rank: int, *, alpha: float | None = None, targets: Sequence[str] = ("query", "value")
    ) -> LoraReport:
        """Adds low-rank updates to layers of the backbone; only these and the task's head train from then on.

        Saved models (`save_to_preset`, `.keras`) hold the updates added to the weights, and load as models without.

        Args:
            rank: Rank of the updates.
            alpha: The updates are multiplied by `alpha / rank`. Default `rank`.
            targets: Names of the layers to adapt: "query", "key", "value", "output" (attention), "up", "down" and so on
                (feed-forward), or paths of single layers.

        Returns:
            What was adapted: paths, trainable and total number of weights. It prints as one line.

        Raises:
            ValueError: If a target matches no layer, a number is out of range, or updates are there already.

        Example:

        >>> print(model.enable_lora(8))
        LoRA of rank 8 on 24 layers: 300,290 of 109,785,604 weights train (0.27 %).

        Reference:
            Hu et al. 2022, "LoRA", section 4.
        """
        require_count(rank, "rank")
        if alpha is not None and not alpha > 0:
            raise ValueError(f"alpha must be above 0, got {alpha!r}.")
        return enable_lora(self, rank, alpha=alpha, targets=targets)

    def quantize(self, mode: str = "int8", **kwargs: Any) -> QuantizationReport:
        """Stores weights in fewer bits, for prediction; saved models stay so.

        Args:
            mode: "int8" (weights and, while it runs, activations), "int4" or "float8".
            **kwargs: Passed on to `keras.Model.quantize`.

        Returns:
            What was quantized: paths, size before and after. It prints as one line.

        Raises:
            ValueError: If there is no such mode, no layer can be quantized, or it was done already.

        Example:

        >>> print(model.quantize("int8"))
        int8 weights in 77 layers: 437,935,112 bytes became 110,713,352 (4.0 times less).
        """
        report = quantize(self, lambda mode: super(Task, self).quantize(mode, **kwargs), mode)
        self._quantization = mode
        return report

    def _require_tokenizer(self, what: str) -> Any:
        if self.tokenizer is None:
            raise ValueError(f"{what} needs a tokenizer: {type(self).__name__}(backbone, tokenizer).")
        return self.tokenizer

    def get_config(self) -> dict[str, Any]:
        serialize = keras.saving.serialize_keras_object
        return {
            "backbone": serialize(self.backbone),
            "tokenizer": None if self.tokenizer is None else serialize(self.tokenizer),
            "name": self.name,
            "trainable": self.trainable,
            "dtype": serialize(self.dtype_policy),
            **self.saved_options(),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Task":
        config = dict(config)
        mode = config.pop(QUANTIZATION, None)
        for part in ("backbone", "tokenizer"):
            if isinstance(config[part], dict):
                config[part] = keras.saving.deserialize_keras_object(config[part])
        task = cls(**config)
        if mode is not None:
            # weights are given to it later, quantized as they were saved
            task.quantize(mode)
        return task

    def get_compile_config(self) -> dict[str, Any] | None:
        return super().get_compile_config()

    def compile_from_config(self, config: dict[str, Any]) -> None:
        # Keras asks for this where compile() has defaults of its own
        self.compile(**keras.saving.deserialize_keras_object(config))
        self.optimizer.build(self.trainable_variables)
