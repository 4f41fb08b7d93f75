"""Text classification: a text or a pair of texts in; a label, several labels or numbers out."""

import os
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from zoo.backbones.backbone import Backbone
from zoo.preprocessing.labels import Labels, as_numbers
from zoo.preprocessing.rows import require_count
from zoo.tasks.encoder_task import EncoderTask, pool, require_pooling
from zoo.tasks.heads import ClassificationHead, initializer_of
from zoo.tasks.raw_batches import row_count

PROBLEMS = ("single_label", "multi_label", "regression")


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class TextClassifier(EncoderTask):
    """Gives texts, or pairs of texts, a label, several labels, or numbers.

    Args:
        backbone: An encoder, or a decoder (then the vector of the last token is classified).
        tokenizer: The tokenizer; None for use on token level.
        labels: The names of the labels, or their number: labels are then 0, 1, ... In a regression the number of values
            per text.
        problem: "single_label", "multi_label" (each label holds or not) or "regression".
        pairs: Whether each row is a pair of texts.
        pooling: Which vector stands for the text: "first" token, "last" token, "mean", "max", or the backbone's
            "pooler". Default the pooler where there is one, else "first" ("last" for a decoder).
        hidden_activation: Activation of the head's inner layer; None for no inner layer, "auto" for "tanh" with the
            vector of the first token, else none.
        inner_bias: Whether that layer has a bias.
        inner_norm: Whether a layer norm follows it.
        head_dropout: Rate of the dropout before the linear map.
        head_dropout_before: Rate of the dropout before the inner layer; None for `head_dropout`.
        sequence_length, truncate, pair_separators: See `EncoderTask`.

    Call arguments:
        inputs: `{"token_ids", "padding_mask"}`, `(batch, length)`, optionally `"segment_ids"`.
        training: Whether dropout is active.

    Returns:
        Logits, or the values of a regression, `(batch, number of labels)`, float32.

    Raises:
        ValueError: If an argument is out of range.

    Example:

    >>> model = TextClassifier.from_preset("path/to/model", labels=["bad", "good"])
    >>> model.fit(["a fine film", "dull"], ["good", "bad"], epochs=3)
    >>> model.classify("a fine film")
    'good'

    Reference:
        Devlin et al. 2019, "BERT", section 4.1; Liu et al. 2019, "RoBERTa" (inner layer).
    """

    architectures = ("encoder", "decoder")

    def __init__(
        self,
        backbone: Backbone,
        tokenizer: Any = None,
        *,
        labels: int | Sequence[str],
        problem: str = "single_label",
        pairs: bool = False,
        pooling: str | None = None,
        hidden_activation: str | None = "auto",
        inner_bias: bool = True,
        inner_norm: bool = False,
        head_dropout: float = 0.1,
        head_dropout_before: float | None = None,
        sequence_length: int | None = None,
        truncate: bool = False,
        pair_separators: int = 1,
        **kwargs: Any,
    ):
        super().__init__(
            backbone,
            tokenizer,
            sequence_length=sequence_length,
            truncate=truncate,
            pair_separators=pair_separators,
            **kwargs,
        )
        if problem not in PROBLEMS:
            raise ValueError(f"problem must be one of {PROBLEMS}, got {problem!r}.")
        self.labels = Labels(labels, lowest=2 if problem == "single_label" else 1)
        self.problem, self.pairs = problem, bool(pairs)
        self.pooling = require_pooling(pooling, backbone)
        if hidden_activation == "auto":
            hidden_activation = "tanh" if self.pooling == "first" else None
        config = backbone.config
        self.head = ClassificationHead(
            len(self.labels),
            hidden_activation,
            inner_bias=inner_bias,
            inner_norm=inner_norm,
            norm_epsilon=config.norm.epsilon,
            dropout=head_dropout,
            dropout_before=head_dropout_before,
            kernel_initializer=initializer_of(config),
            name="head",
            dtype=self.dtype_policy,
        )
        self.head.build((None, config.hidden_dim))
        self.train_pooler(self.pooling == "pooler")
        self.built = True

    def options(self) -> dict[str, Any]:
        head = self.head
        return {
            **super().options(),
            "labels": self.labels.option,
            "problem": self.problem,
            "pairs": self.pairs,
            "pooling": self.pooling,
            "hidden_activation": head.hidden_activation,
            "inner_bias": head.inner_bias,
            "inner_norm": head.inner_norm,
            "head_dropout": head.dropout,
            "head_dropout_before": head.dropout_before,
        }

    def call(self, inputs: dict[str, Any], training: bool | None = None) -> Any:
        hidden = self.backbone(inputs, training=training)
        return self.head(pool(hidden, inputs["padding_mask"], self.pooling, self.backbone), training=training)

    # Training.

    def default_optimizer(self) -> keras.optimizers.Optimizer:
        """Returns AdamW with rate 5e-5, gradients clipped to norm 1 (Devlin et al. 2019, appendix A.3)."""
        return keras.optimizers.AdamW(5e-5, weight_decay=0.01, global_clipnorm=1.0)

    def default_loss(self) -> keras.losses.Loss:
        """Returns the cross-entropy of logits, or the mean squared error of a regression."""
        if self.problem == "regression":
            return keras.losses.MeanSquaredError(reduction="mean_with_sample_weight")
        if self.problem == "multi_label":
            return keras.losses.BinaryCrossentropy(from_logits=True, reduction="mean_with_sample_weight")
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="mean_with_sample_weight")

    def default_metrics(self) -> list[Any]:
        """Returns the accuracy, or the mean absolute error of a regression."""
        if self.problem == "regression":
            return [keras.metrics.MeanAbsoluteError(name="mean_absolute_error")]
        if self.problem == "multi_label":
            return [keras.metrics.BinaryAccuracy(threshold=0.0, name="accuracy")]
        return [keras.metrics.SparseCategoricalAccuracy(name="accuracy")]

    def check_inputs(self, x: Any, name: str) -> Any:
        if not self.pairs:
            if isinstance(x, tuple) and x and not isinstance(x[0], (str, bytes)):
                raise TypeError(f"{name} must be a list of texts; pairs of texts need a classifier with pairs=True.")
            return super().check_inputs(x, name)
        columns = self.check_pairs(x, name)
        self.row_lengths(columns, name, self.truncate)
        return columns

    def check_targets(self, y: Any, x: Any, name: str, x_name: str) -> Any:
        """Returns label ids `(rows,)`, zeros and ones or values `(rows, labels)`; arguments as in the base."""
        count = row_count(x)
        if y is None:
            raise ValueError(f"{name} must hold one label per row of {x_name}: {count} in {x_name}, none in {name}.")
        if self.problem == "single_label":
            return self.labels.ids(y, count, name, x_name)
        if self.problem == "multi_label":
            return self.labels.indicators(y, count, name, x_name)
        return as_numbers(y, count, len(self.labels), name, x_name)

    def preprocess(self, x: Any, y: Any, sample_weight: Any = None) -> tuple[dict[str, Any], Any, Any]:
        """Returns token-level inputs, labels and weights of texts.

        Args:
            x: String tensor `(batch,)`, or a pair of these.
            y: Label ids or names `(batch,)`; for several labels zeros and ones, for a regression values, `(batch,
                labels)`.
            sample_weight: Weight of each row, `(batch,)`, or None.

        Returns:
            `(inputs, labels, weights)`, see the call arguments.
        """
        import tensorflow as tf

        if self.problem == "single_label":
            y = self.labels.graph_ids(y)
        else:
            y = tf.reshape(tf.cast(y, tf.float32), (-1, len(self.labels)))
        return self.encode(x), y, sample_weight

    # Use.

    def probabilities(self, logits: Any) -> Any:
        """Returns probabilities of logits, or the values of a regression as they are, `(batch, labels)`."""
        if self.problem == "regression":
            return logits
        return ops.sigmoid(logits) if self.problem == "multi_label" else ops.softmax(logits, axis=-1)

    def predict_texts(self, x: Any, batch_size: int) -> np.ndarray:
        """Returns the probability of each label, or the values of a regression, `(rows, labels)`."""
        columns = self.check_inputs(x, "x")
        parts = columns if isinstance(columns, tuple) else (columns,)
        results = np.zeros((len(parts[0]), len(self.labels)), "float32")
        lengths = self.row_lengths(columns, "x", self.truncate)
        for rows, _, logits in self.run_batches(columns, lengths, batch_size):
            results[rows] = ops.convert_to_numpy(self.probabilities(logits))
        return results

    def classify(self, texts: Any, *, threshold: float = 0.5, batch_size: int = 32) -> Any:
        """Returns the label of each text.

        Args:
            texts: One text or many; for a classifier of pairs a tuple of two texts, or of two lists of texts.
            threshold: Least probability of a label, of several.
            batch_size: Texts per batch.

        Returns:
            Per text the label (its name, or its number where labels have no names), a list of labels, or the values of
            a regression (one number where there is one); for a single text that alone.

        Raises:
            ValueError: If a text is too long, naming the row.
        """
        single = texts[0] if self.pairs and isinstance(texts, tuple) and texts else texts
        if isinstance(single, (str, bytes)):
            one = tuple([text] for text in texts) if self.pairs else [texts]
            return self.classify(one, threshold=threshold, batch_size=batch_size)[0]
        values = self.predict_texts(texts, require_count(batch_size, "batch_size"))
        if self.problem == "regression":
            return values[:, 0].tolist() if len(self.labels) == 1 else values.tolist()
        if self.problem == "multi_label":
            return [[self.labels[index] for index in np.flatnonzero(row >= threshold)] for row in values]
        return [self.labels[index] for index in values.argmax(axis=-1)]

    def export(self, directory: str | os.PathLike) -> None:
        """Writes a SavedModel that takes strings and returns labels, see `zoo.export.export_text_classifier`.

        Args:
            directory: Where to.
        """
        from zoo.export import export_text_classifier

        export_text_classifier(self, directory)
