"""Text classification: a text or a pair of texts in; a label, several labels or numbers out."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from zoo.backbones.backbone import Backbone
from zoo.backbones.transformer import first_tokens
from zoo.export import Endpoint, Field
from zoo.inspect.row import Decisions
from zoo.preprocessing import TextClassifierPreprocessor
from zoo.preprocessing.rows import as_sequence, require_count, shorten
from zoo.tasks.encoder_task import EncoderTask
from zoo.tasks.heads import classification_head
from zoo.tasks.pooling import pool, require_pooling
from zoo.tasks.registry import FittedOption
from zoo.training.calibration import (
    Calibration,
    best_thresholds,
    fit_temperature,
    require_temperature,
    require_threshold,
)


class RankedText(NamedTuple):
    """A document for a query: its index among the given documents, its score, and its text."""

    index: int
    score: float
    text: str


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class TextClassifier(EncoderTask):
    """Text classification and regression: one label, several labels, or numbers for a text or a pair of texts.

    With a `stride`, texts of any length are read in overlapping windows. The logits of a text are then the means over
    its windows, so that probabilities are normalised geometric means. With several labels per text they are the maxima:
    a text has the labels of all its windows.

    Args:
        backbone: An encoder, a decoder, or an encoder-decoder, whose decoder reads the same tokens as its encoder.
        preprocessor: A `TextClassifierPreprocessor`; a tokenizer; or None for use on token level.
        pooling: Which vector represents the text: that of the "first" or "last" token, that of the last "end" token (or
            of the last token if there is none), the "mean" or "max" over the tokens, "mean_sqrt" or "weighted_mean"
            (see `TextEmbedder`), the backbone's "pooler", or "late": logits are the means of those of all tokens.
            Default the pooler if the backbone has one, else "first" for an encoder and "last" otherwise.
        hidden_activation: Activation of the head's inner layer; None for no inner layer. "auto" is "tanh" for the first
            token's vector and for an encoder-decoder, otherwise None.
        inner_bias: Whether the inner layer has a bias.
        inner_norm: Whether a layer norm follows the inner layer.
        projection_bias: Whether the last linear map of the head has a bias.
        head_dropout: Rate of the dropout before the last linear map.
        head_dropout_before: Rate of the dropout before the inner layer; None for `head_dropout`.
        end_id: Id of the token of the pooling "end". Default the tokenizer's end token.
        temperature: Divisor of the logits before softmax or sigmoid, see `calibrate`.
        threshold: With several labels per text, the lowest probability at which a label holds: one number, or one per
            label, see `tune_thresholds`.
        decoder_start_id: See `EncoderTask`.
        **options: Arguments of `TextClassifierPreprocessor` where none is given, above all `labels`, also `problem`,
            `pairs`, `sequence_length`, `truncate` and `stride`; and `name`, `dtype` and `trainable`.

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

    preprocessor_class = TextClassifierPreprocessor
    architectures = ("encoder", "decoder", "encoder_decoder")
    temperature = FittedOption()
    threshold = FittedOption()

    def __init__(
        self,
        backbone: Backbone,
        preprocessor: Any = None,
        *,
        pooling: str | None = None,
        hidden_activation: str | None = "auto",
        inner_bias: bool = True,
        inner_norm: bool = False,
        projection_bias: bool = True,
        head_dropout: float = 0.1,
        head_dropout_before: float | None = None,
        end_id: int | None = None,
        decoder_start_id: int | str | None = None,
        temperature: float = 1.0,
        threshold: float | Sequence[float] = 0.5,
        **options: Any,
    ) -> None:
        super().__init__(backbone, preprocessor, decoder_start_id=decoder_start_id, **options)
        self.temperature, self.threshold = temperature, threshold
        self.pooling = pooling if pooling in ("end", "late") else require_pooling(pooling, backbone)
        self.end_id: int | None = None
        if self.pooling == "end":
            end_id = getattr(self.tokenizer, "end_id", None) if end_id is None else end_id
            self.end_id = require_count(end_id, "end_id", 0, backbone.config.vocabulary_size - 1)
        elif end_id is not None:
            raise ValueError(f"end_id must be None without pooling='end', got {end_id!r}.")
        if hidden_activation == "auto":
            has_inner = self.pooling == "first" or backbone.config.architecture == "encoder_decoder"
            hidden_activation = "tanh" if has_inner else None
        choices = (hidden_activation, inner_bias, inner_norm, projection_bias, head_dropout, head_dropout_before)
        self.add_head(classification_head(self, len(self.labels), *choices))

    def checked_fitted(self, name: str, value: Any) -> float | tuple[float, ...]:
        problem = self.preprocessor.problem
        if name == "temperature":
            checked = require_temperature(value)
            if problem == "regression" and checked != 1:
                raise ValueError(f"temperature must be 1 in a regression, got {value!r}.")
            return checked
        checked = require_threshold(value, len(self.labels))
        if problem != "multi_label" and checked != 0.5:
            raise ValueError(f"threshold must be 0.5 with problem={problem!r}, got {value!r}.")
        return checked

    @property
    def returns_logits(self) -> bool:  # type: ignore[override]  # a constant in the base class
        return self.preprocessor.problem != "regression"

    @property
    def window_merge(self) -> str:  # type: ignore[override]  # a constant in the base class
        return "max" if self.preprocessor.problem == "multi_label" else "mean"

    @property
    def logits_are_binary(self) -> bool:  # type: ignore[override]  # a constant in the base class
        return self.preprocessor.problem == "multi_label"

    def global_tokens(self, inputs: dict[str, Any]) -> Any:
        """Returns the first token of each text (Beltagy et al. 2020, section 3.1)."""
        return first_tokens(inputs["padding_mask"])

    def own_options(self) -> dict[str, Any]:
        return {
            **super().own_options(),
            **({} if self.end_id is None else {"end_id": self.end_id}),
            **self.head.task_options(),
            "pooling": self.pooling,
            "head_dropout_before": self.head.dropout_before,
            "temperature": self.temperature,
            "threshold": list(self.threshold) if isinstance(self.threshold, tuple) else self.threshold,
        }

    def outputs_of(self, hidden: Any, inputs: dict[str, Any], training: bool | None = None) -> Any:
        outputs = super().outputs_of(hidden, inputs, training)
        return pool(outputs, inputs["padding_mask"], "mean") if self.pooling == "late" else outputs

    def head_inputs(self, hidden: Any, inputs: dict[str, Any]) -> Any:
        if self.pooling == "late":
            return hidden
        if self.pooling != "end":
            return super().head_inputs(hidden, inputs)
        mask = inputs["padding_mask"]
        ends = ops.logical_and(mask, inputs["token_ids"] == self.end_id)
        return pool(hidden, ops.where(ops.any(ends, axis=1, keepdims=True), ends, mask), "last")

    def decisions(self, outputs: Any, tokens: Sequence[str]) -> Decisions:
        """Returns the probabilities of the labels, or the values of a regression."""
        names, problem = self.labels.strings, self.preprocessor.problem
        if problem == "regression":
            return Decisions(ops.expand_dims(outputs, -1), ("value",), names, are_values=True)
        logits = ops.cast(outputs, "float32") / self.temperature
        if problem == "multi_label":
            return Decisions(ops.log_sigmoid(ops.stack([-logits, logits], axis=-1)), ("no", "yes"), names)
        return Decisions(ops.expand_dims(ops.log_softmax(logits, axis=-1), 1), names, ("label",))

    # Training.

    def default_loss(self) -> keras.losses.Loss:
        """Returns the cross-entropy, or the mean squared error for a regression."""
        if self.preprocessor.problem == "regression":
            return keras.losses.MeanSquaredError()
        if self.preprocessor.problem == "multi_label":
            return keras.losses.BinaryCrossentropy(from_logits=True)
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def default_metrics(self) -> list[Any]:
        """Returns the accuracy, or the mean absolute error for a regression."""
        if self.preprocessor.problem == "regression":
            return [keras.metrics.MeanAbsoluteError(name="mean_absolute_error")]
        if self.preprocessor.problem == "multi_label":
            return [keras.metrics.BinaryAccuracy(threshold=0.0, name="accuracy")]
        return [keras.metrics.SparseCategoricalAccuracy(name="accuracy")]

    # Use.

    def probabilities(self, logits: Any) -> Any:
        """Returns the probabilities for logits, or the values of a regression unchanged, `(batch, labels)`.

        Args:
            logits: The result of a call, `(batch, labels)`.
        """
        if self.preprocessor.problem == "regression":
            return logits
        logits = logits / self.temperature
        return ops.sigmoid(logits) if self.preprocessor.problem == "multi_label" else ops.softmax(logits, axis=-1)

    def classify(self, texts: Any, *, threshold: float | Sequence[float] | None = None, batch_size: int = 32) -> Any:
        """Returns the label of each text.

        Args:
            texts: One text or many; for a classifier of pairs a tuple of two texts, or of two lists of texts.
            threshold: With several labels per text, the lowest probability at which a label holds: one number, or one
                per label. Default that of the task.
            batch_size: Texts per batch.

        Returns:
            For each text its label (the name, or the number if labels have no names), a list of labels, or the value or
            values of a regression. For a single text its result alone.

        Raises:
            ValueError: If a text is too long. The message names the row.
        """
        pairs = self.preprocessor.pairs
        if threshold is not None and self.preprocessor.problem != "multi_label":
            raise ValueError(f"threshold must be None where a text does not have several labels, got {threshold!r}.")
        single = texts[0] if pairs and isinstance(texts, tuple) and texts else texts
        if isinstance(single, (str, bytes)):
            one = tuple([text] for text in texts) if pairs else [texts]
            return self.classify(one, threshold=threshold, batch_size=batch_size)[0]
        threshold = self.threshold if threshold is None else require_threshold(threshold, len(self.labels))
        return self.preprocessor.labels_of(self.predict_texts(texts, batch_size), threshold)

    # Calibration.

    def calibrate(self, x: Any, y: Any, *, batch_size: int = 32) -> Calibration:
        """Sets the temperature that maximises the likelihood of held-out data.

        The temperature changes probabilities, so tune thresholds afterwards. Further training does not change the
        temperature, so calibrate again after it.

        Args:
            x: Texts that the model was not trained on, as for `fit`.
            y: Their labels.
            batch_size: Texts per batch.

        Returns:
            A `Calibration`: the temperature, and calibration error and negative log-likelihood on these data, before
            and after.

        Raises:
            ValueError: If the task is a regression, if a row is invalid, or if all predictions are correct.

        Example:

        >>> model.calibrate(validation_texts, validation_labels)
        Calibration(temperature=1.8, error_before=0.09, error_after=0.02, loss_before=0.41, loss_after=0.33)

        Reference:
            Guo et al. 2017, "On Calibration of Modern Neural Networks", section 4.2.
        """
        if self.preprocessor.problem == "regression":
            raise ValueError("calibrate() needs labels, got a regression.")
        calibration = fit_temperature(*self._labelled_logits(x, y, batch_size))
        self.temperature = calibration.temperature
        return calibration

    def tune_thresholds(self, x: Any, y: Any, *, batch_size: int = 32) -> dict[str | int, float]:
        """Sets the threshold of each label to the one with the highest F1 on held-out data.

        Args:
            x, y, batch_size: As for `calibrate`.

        Returns:
            The threshold of each label: half-way between two probabilities of the data; 0.5 for a label that no row
            has.

        Raises:
            ValueError: If the task does not allow several labels per text, or a row is invalid.
        """
        if self.preprocessor.problem != "multi_label":
            raise ValueError(f"tune_thresholds() needs several labels per text, got a {self.preprocessor.problem}.")
        logits, labels = self._labelled_logits(x, y, batch_size)
        probabilities = ops.convert_to_numpy(self.probabilities(ops.convert_to_tensor(logits)))
        self.threshold = best_thresholds(probabilities, labels)
        return dict(zip(self.labels, self.threshold, strict=True))

    def _labelled_logits(self, x: Any, y: Any, batch_size: int) -> tuple[np.ndarray, np.ndarray]:
        rows = self.preprocessor.examples(x, y)
        labels = np.asarray(rows.targets)
        if rows.groups is not None:
            labels = labels[np.flatnonzero(np.diff(rows.groups, prepend=-1))]
        return self.outputs_of_texts(rows, batch_size), labels

    def rank(
        self, query: str, documents: Sequence[str], *, top: int | None = None, batch_size: int = 32
    ) -> list[RankedText]:
        """Returns documents ranked by their score for a query, the best first. The task must be a cross-encoder.

        Args:
            query: The first text of each pair.
            documents: The second texts.
            top: Number of documents to return; None for all.
            batch_size: Pairs per batch.

        Returns:
            A list of `(index, score, text)`. The score is the probability of the label, or the value of a regression.

        Raises:
            TypeError: If `documents` is a single text.
            ValueError: If the task does not take pairs with one label or value, or a pair is too long.

        Example:

        >>> model.rank("where is rome", ["an oak is a tree", "rome is in italy"], top=1)
        [RankedText(index=1, score=0.98, text='rome is in italy')]

        Reference:
            Nogueira and Cho 2019, "Passage Re-ranking with BERT", section 3.
        """
        if not self.preprocessor.pairs or len(self.labels) != 1:
            raise ValueError(
                "rank() needs a classifier with pairs=True and one label or value, got one with "
                f"pairs={self.preprocessor.pairs} and {len(self.labels)}."
            )
        if isinstance(documents, (str, bytes)):
            raise TypeError(f"documents must be a list of texts, got one: {shorten(documents)}.")
        documents, top = list(as_sequence(documents, "documents")), None if top is None else require_count(top, "top")
        scores = self.predict_texts(([query] * len(documents), documents), batch_size)[:, 0]
        # equal scores in the order in which they were given
        order = np.argsort(-scores, kind="stable")[:top]
        return [RankedText(int(index), float(scores[index]), documents[index]) for index in order]

    # What comes out.

    def result_fields(self) -> tuple[Field, ...]:
        shape = ("batch", len(self.labels))
        if self.preprocessor.problem == "regression":
            return (Field("values", shape, "float32", "predicted numbers"),)
        return (Field("probabilities", shape, "float32", "of each label"),)

    def results(self, outputs: Any) -> dict[str, Any]:
        name = "values" if self.preprocessor.problem == "regression" else "probabilities"
        return {name: self.probabilities(outputs)}

    def result_properties(self) -> dict[str, Any]:
        problem = self.preprocessor.problem
        threshold = self.threshold if problem == "multi_label" else None
        return {"problem": problem, **super().result_properties(), "threshold": threshold}

    def text_result_fields(self) -> tuple[Field, ...]:
        label = Field("label", ("batch",), "string", "the likeliest label")
        has_label = Field("has_label", ("batch", len(self.labels)), "bool", "whether each label holds")
        return {"single_label": (label,), "multi_label": (has_label,), "regression": ()}[self.preprocessor.problem]

    def text_results(self, results: dict[str, Any]) -> dict[str, Any]:
        import tensorflow as tf

        if self.preprocessor.problem == "regression":
            return {}
        probabilities = results["probabilities"]
        if self.preprocessor.problem == "multi_label":
            return {"has_label": probabilities >= tf.constant(self.threshold)}
        return {"label": tf.gather(tf.constant(self.labels.strings), tf.argmax(probabilities, axis=-1))}

    def endpoints(self) -> dict[str, Endpoint]:
        """Returns the endpoints of an export, for any batch size.

        * `serve(texts)`, or `serve(first_texts, second_texts)` for pairs: string tensors `(batch,)` to "probabilities"
          `(batch, labels)`, float32, and "label" `(batch,)`, strings. With several labels per text, "has_label"
          `(batch, labels)`, bool, replaces "label"; it is true if the probability is at least `threshold`. A regression
          returns only "values" `(batch, labels)`.
        * `label_names()`: the labels, strings `(labels,)`.
        * `tokens`: the same texts to the ids that the model reads, see `zoo.tasks.tokens_endpoint`.

        A text longer than the model allows raises an `InvalidArgumentError`, unless the task truncates or has a
        `stride`.
        """
        serve = self.serve_endpoint("Classifies texts.")
        return {"serve": serve, **self.label_endpoints(), "tokens": self.tokens_endpoint()}
