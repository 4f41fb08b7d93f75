"""Text embeddings: one vector per text, near for texts of like meaning."""

import os
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from zoo.backbones.backbone import Backbone
from zoo.preprocessing.labels import as_numbers
from zoo.preprocessing.rows import require_count
from zoo.tasks.encoder_task import EncoderTask, pool, require_pooling
from zoo.tasks.raw_batches import row_count
from zoo.training.embedding_losses import CosineRegression, InBatchNegatives

OBJECTIVES = ("in_batch_negatives", "cosine_regression")
PARTS = ("first", "second", "third")


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class TextEmbedder(EncoderTask):
    """Gives each text a vector.

    Training takes groups of texts: `(anchors, positives)` or `(anchors, positives, negatives)` without targets for
    "in_batch_negatives", `(first, second)` with their similarities for "cosine_regression".

    Args:
        backbone: An encoder, or a decoder.
        tokenizer: The tokenizer; None for use on token level.
        pooling: "mean" or "max" over the tokens, "first" token, "last" token, or the backbone's "pooler".
        normalize: Whether vectors have length 1.
        objective: What `fit` trains for, see above.
        sequence_length, truncate: See `EncoderTask`.

    Call arguments:
        inputs: `{"token_ids", "padding_mask"}`, `(batch, length)`, optionally `"segment_ids"`; or these for each text
            of a group, with `first_`, `second_` and perhaps `third_` before their names.
        training: Whether dropout is active.

    Returns:
        Vectors `(batch, hidden_dim)`, or `(batch, texts, hidden_dim)` for groups, float32.

    Raises:
        ValueError: If an argument is out of range.

    Example:

    >>> model = TextEmbedder.from_preset("path/to/model")
    >>> model.fit((questions, answers), epochs=3)
    >>> model.embed(["Where is Rome?"]).shape
    (1, 384)

    Reference:
        Reimers and Gurevych 2019, "Sentence-BERT", section 3.
    """

    architectures = ("encoder", "decoder")

    def __init__(
        self,
        backbone: Backbone,
        tokenizer: Any = None,
        *,
        pooling: str = "mean",
        normalize: bool = True,
        objective: str = "in_batch_negatives",
        sequence_length: int | None = None,
        truncate: bool = False,
        **kwargs: Any,
    ):
        super().__init__(backbone, tokenizer, sequence_length=sequence_length, truncate=truncate, **kwargs)
        self.pooling = require_pooling(pooling, backbone)
        self.normalize = bool(normalize)
        if objective not in OBJECTIVES:
            raise ValueError(f"objective must be one of {OBJECTIVES}, got {objective!r}.")
        self.objective = objective
        self.train_pooler(self.pooling == "pooler")
        self.built = True

    def options(self) -> dict[str, Any]:
        options = super().options()
        del options["pair_separators"]
        return {**options, "pooling": self.pooling, "normalize": self.normalize, "objective": self.objective}

    def call(self, inputs: dict[str, Any], training: bool | None = None) -> Any:
        groups = [
            {name.removeprefix(f"{part}_"): value for name, value in inputs.items() if name.startswith(f"{part}_")}
            for part in PARTS
        ]
        if groups[0]:
            return ops.stack([self._embed(group, training) for group in groups if group], axis=1)
        return self._embed(inputs, training)

    def _embed(self, inputs: dict[str, Any], training: bool | None) -> Any:
        hidden = self.backbone(inputs, training=training)
        vectors = ops.cast(pool(hidden, inputs["padding_mask"], self.pooling, self.backbone), "float32")
        return ops.normalize(vectors, axis=-1) if self.normalize else vectors

    # Training.

    def default_optimizer(self) -> keras.optimizers.Optimizer:
        """Returns AdamW with rate 2e-5 (Reimers and Gurevych 2019, section 3.1), gradients clipped to norm 1."""
        return keras.optimizers.AdamW(2e-5, weight_decay=0.01, global_clipnorm=1.0)

    def default_loss(self) -> keras.losses.Loss:
        """Returns the loss of the objective."""
        return InBatchNegatives() if self.objective == "in_batch_negatives" else CosineRegression()

    def check_inputs(self, x: Any, name: str) -> Any:
        """Returns groups of texts as string tensors; each text is a row of tokens of its own."""
        counts = (2, 3) if self.objective == "in_batch_negatives" else (2,)
        columns = self.check_pairs(x, name, counts)
        for index, column in enumerate(columns):
            self.row_lengths(column, f"{name}[{index}]", self.truncate)
        return columns

    def check_targets(self, y: Any, x: Any, name: str, x_name: str) -> Any:
        """Returns similarities `(rows,)` for "cosine_regression"; arguments as in the base."""
        if self.objective == "in_batch_negatives":
            return super().check_targets(y, x, name, x_name)
        count = row_count(x)
        if y is None:
            raise ValueError(f"{name} must hold one similarity per row: {count} in {x_name}, none in {name}.")
        values = as_numbers(y, count, 1, name, x_name)[:, 0]
        wrong = np.flatnonzero(np.abs(values) > 1)
        if len(wrong):
            raise ValueError(f"{name}[{wrong[0]}] must be a cosine from -1 to 1, got {values[wrong[0]]}.")
        return values

    def preprocess(self, x: Any, y: Any = None, sample_weight: Any = None) -> tuple[dict[str, Any], Any, Any]:
        """Returns token-level inputs, labels and weights of groups of texts.

        Args:
            x: Two or three string tensors `(batch,)`.
            y: Similarities `(batch,)`, or None.
            sample_weight: Weight of each group, `(batch,)`, or None.

        Returns:
            `(inputs, labels, weights)`, see the call arguments; `labels` are zeros where there is no `y`.
        """
        import tensorflow as tf

        inputs = {
            f"{part}_{name}": value
            for part, texts in zip(PARTS, x, strict=False)
            for name, value in self.encode(texts).items()
        }
        labels = tf.zeros(tf.shape(x[0])) if y is None else tf.cast(y, tf.float32)
        return inputs, labels, sample_weight

    # Use.

    def embed(self, texts: str | Sequence[str], *, batch_size: int = 32) -> np.ndarray:
        """Returns the vectors of texts.

        Args:
            texts: One text or many.
            batch_size: Texts per batch.

        Returns:
            float32 `(texts, hidden_dim)`, for a single text `(hidden_dim,)`.

        Raises:
            TypeError, ValueError: If something is no text or too long, naming the row.
        """
        if isinstance(texts, (str, bytes)):
            return self.embed([texts], batch_size=batch_size)[0]
        require_count(batch_size, "batch_size")
        # not the groups of training: single texts
        column = super().check_inputs(texts, "texts")
        results = np.zeros((len(column), self.backbone.config.hidden_dim), "float32")
        lengths = self.row_lengths(column, "texts", self.truncate)
        for rows, _, vectors in self.run_batches(column, lengths, batch_size):
            results[rows] = ops.convert_to_numpy(vectors)
        return results

    def predict_texts(self, x: Any, batch_size: int) -> np.ndarray:
        """Returns what `embed` does."""
        return self.embed(x, batch_size=batch_size)

    def export(self, directory: str | os.PathLike) -> None:
        """Writes a SavedModel that takes strings and returns vectors, see `zoo.export.export_text_embedder`.

        Args:
            directory: Where to.
        """
        from zoo.export import export_text_embedder

        export_text_embedder(self, directory)
