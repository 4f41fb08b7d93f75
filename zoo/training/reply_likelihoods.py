"""Log-likelihoods of replies, as a model that is trained on preferences."""

import os
from typing import Any

import keras
from keras import ops

from zoo.training.losses import smoothed_cross_entropy
from zoo.training.task_models import TaskModel


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class ReplyLikelihoods(TaskModel):
    """A wrapper of a language model that returns the log-likelihoods and numbers of tokens of groups of replies.

    It trains the language model by `fit` with a preference loss. Save the language model, which shares all weights.

    Args:
        language_model: A `CausalLM`, or any model from `{"token_ids", "padding_mask"}` to logits.

    Call arguments:
        inputs: `token_ids`, `padding_mask`, `labels` (the next tokens) and `weights` (1 where a label belongs to the
            reply, else 0), all `(batch, replies, length)`.
        training: Whether dropout is active.

    Returns:
        Float32 `(batch, replies, 2)`: sums of log-likelihoods in nats, and numbers of tokens.

    Example:

    >>> model = ReplyLikelihoods(language_model)
    >>> model.compile("adam", DirectPreference(beta=0.1))
    >>> model.fit(inputs, reference_log_likelihoods)
    """

    def __init__(self, language_model: keras.Model, **options: Any) -> None:
        super().__init__([language_model], language_model, **options)
        self.language_model = language_model
        self.built = True

    def call(self, inputs: dict[str, Any], training: bool | None = None) -> Any:
        shape = ops.shape(inputs["token_ids"])
        rows = {name: ops.reshape(value, (-1, shape[-1])) for name, value in inputs.items()}
        labels, weights = rows.pop("labels"), ops.cast(rows.pop("weights"), "float32")
        logits = self.language_model(rows, training=training)
        sums = -ops.sum(smoothed_cross_entropy(labels, logits) * weights, axis=-1)
        counts = ops.sum(weights, axis=-1)
        return ops.reshape(ops.stack([sums, counts], axis=-1), (-1, shape[1], 2))

    def save_to_preset(self, directory: str | os.PathLike[str]) -> None:
        """Writes the language model, see `Task.save_to_preset`.

        Args:
            directory: The directory to write.
        """
        self.language_model.save_to_preset(directory)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "language_model": keras.saving.serialize_keras_object(self.language_model)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "ReplyLikelihoods":
        config = dict(config)
        return cls(keras.saving.deserialize_keras_object(config.pop("language_model")), **config)
