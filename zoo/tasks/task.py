"""What all tasks share: a backbone with a tokenizer, made from a preset, saved and exported."""

import os
from pathlib import Path
from typing import Any

import keras

from zoo.backbones.backbone import Backbone
from zoo.files import recover
from zoo.presets.directory import WEIGHTS_FILE, load_task_parts, save_task_parts
from zoo.presets.registry import preset_config
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
        self.backbone = backbone
        self.tokenizer = tokenizer
        if tokenizer is not None and tokenizer.vocabulary_size > backbone.config.vocabulary_size:
            raise ValueError(
                f"The tokenizer has {tokenizer.vocabulary_size} tokens, the backbone only "
                f"vocabulary_size={backbone.config.vocabulary_size}."
            )

    @classmethod
    def from_preset(
        cls, preset: str | os.PathLike, *, load_weights: bool = True, tokenizer: Any = None, **overrides: Any
    ) -> "Task":
        """Returns the task of a saved model, or with a named architecture.

        Args:
            preset: A directory that `save_to_preset` wrote, or a name of `zoo.list_presets()`.
            load_weights: Whether to load the weights. Named architectures have none here: pass False.
            tokenizer: Tokenizer for a named architecture; a saved model has its own.
            **overrides: Replaced choices of a named architecture, for example `vocabulary_size=8000`.

        Raises:
            ValueError: If there is no such preset, if it has no weights and `load_weights` is True, or if the saved
                model is one of another task.

        Example:

        >>> model = Seq2SeqLM.from_preset("transformer_tiny", load_weights=False, vocabulary_size=8000)
        """
        recover(preset)
        if not Path(preset).is_dir():
            config = preset_config(os.fspath(preset), **overrides)
            if load_weights:
                raise ValueError(
                    f"The preset {os.fspath(preset)!r} names an architecture and has no weights: pass "
                    "load_weights=False for random ones, or the directory of a saved model."
                )
            return cls(Backbone.from_config(config), tokenizer)
        if overrides or tokenizer is not None:
            raise ValueError(f"A saved model ({preset}) brings its own configuration and tokenizer; got others too.")
        description, backbone, tokenizer = load_task_parts(preset)
        if description["task"] != cls.__name__:
            raise ValueError(f"{preset} holds a {description['task']}, not a {cls.__name__}.")
        task = cls(backbone, tokenizer, **description["options"])
        if load_weights:
            task.load_weights(Path(preset) / WEIGHTS_FILE)
        return task

    def options(self) -> dict[str, Any]:
        """Returns the arguments of the constructor beside backbone and tokenizer, as plain values."""
        return {}

    def save_to_preset(self, directory: str | os.PathLike) -> None:
        """Writes configuration, weights and tokenizer to a directory, whole or not at all.

        Args:
            directory: Where to.
        """
        save_task_parts(self, directory)

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
            **self.options(),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Task":
        config = dict(config)
        for part in ("backbone", "tokenizer"):
            if isinstance(config[part], dict):
                config[part] = keras.saving.deserialize_keras_object(config[part])
        return cls(**config)

    def get_compile_config(self) -> dict[str, Any] | None:
        return super().get_compile_config()

    def compile_from_config(self, config: dict[str, Any]) -> None:
        # Keras asks for this where compile() has defaults of its own
        self.compile(**keras.saving.deserialize_keras_object(config))
        self.optimizer.build(self.trainable_variables)
