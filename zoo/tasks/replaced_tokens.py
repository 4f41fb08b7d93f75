"""Detection of replaced tokens: ELECTRA's discriminator."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from zoo.backbones.backbone import Backbone
from zoo.export import Endpoint, Field
from zoo.inspect.row import Decisions
from zoo.preprocessing import ReplacedTokenDetectorPreprocessor
from zoo.preprocessing.rows import as_texts
from zoo.preprocessing.token_rows import checked_lengths
from zoo.tasks.encoder_task import EncoderTask
from zoo.tasks.heads import classification_head
from zoo.tasks.task import Task


class DetectedToken(NamedTuple):
    """A token of a text.

    Args:
        text: The part of the text.
        start, end: Its characters are `text[start:end]`.
        probability: That it was replaced.
    """

    text: str
    start: int
    end: int
    probability: float


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class ReplacedTokenDetector(EncoderTask):
    """Replaced token detection: an encoder that predicts for each token of a text whether it was replaced.

    `fit` replaces different tokens of a text by random tokens in each epoch. `evaluate` and validation always replace
    the same tokens. ELECTRA itself was trained with tokens of a small masked language model; pass such batches to `fit`
    on token level.

    Args:
        backbone: An encoder.
        preprocessor: A `ReplacedTokenDetectorPreprocessor`; a tokenizer; or None for use on token level.
        hidden_activation: Activation of the head's inner layer.
        **options: Arguments of `ReplacedTokenDetectorPreprocessor` where none is given: `replace_rate`,
            `sequence_length` and `truncate`; and `name`, `dtype` and `trainable`.

    Call arguments:
        inputs: `{"token_ids", "padding_mask"}`, `(batch, length)`, optionally `"segment_ids"`.
        training: Whether dropout is active.

    Returns:
        Logits `(batch, length, 1)`, float32.

    Raises:
        ValueError: If the backbone is not an encoder, or an argument is out of range.

    Example:

    >>> model = ReplacedTokenDetector.from_preset("path/to/electra-small-discriminator")
    >>> [token.text for token in model.detect("The quick brown fox ate over the lazy dog") if token.probability > 0.5]
    ['ate']

    Reference:
        Clark et al. 2020, "ELECTRA", section 2.
    """

    preprocessor_class = ReplacedTokenDetectorPreprocessor
    logits_are_binary = True
    labels_are_of_tokens = True

    def __init__(
        self, backbone: Backbone, preprocessor: Any = None, *, hidden_activation: str = "gelu", **options: Any
    ) -> None:
        super().__init__(backbone, preprocessor, **options)
        self.add_head(classification_head(self, 1, hidden_activation))

    def own_options(self) -> dict[str, Any]:
        return {"hidden_activation": self.head.hidden_activation}

    def decisions(self, outputs: Any, tokens: Sequence[str]) -> Decisions:
        """Returns for each token the probabilities that it is original, and that it was replaced."""
        return Decisions(ops.log_sigmoid(ops.concatenate([-outputs, outputs], axis=-1)), ("original", "replaced"))

    # Training.

    def default_optimizer(self) -> keras.optimizers.Optimizer:
        """Returns Adam with rate 1e-4, gradients clipped to norm 1."""
        return Task.default_optimizer(self)

    def default_loss(self) -> keras.losses.Loss:
        """Returns the binary cross-entropy, the mean over all tokens."""
        return keras.losses.BinaryCrossentropy(from_logits=True)

    def default_metrics(self) -> list[Any]:
        """Returns the accuracy over all tokens."""
        return [keras.metrics.BinaryAccuracy(threshold=0.0, name="accuracy")]

    # Use.

    def predict_texts(self, x: Any, batch_size: int) -> list[np.ndarray]:
        """Returns the probability of each token of the texts, a list of float32 `(tokens,)`."""
        return self._probabilities(self.preprocessor.rows(x, "x"), batch_size)

    def _probabilities(self, rows: Any, batch_size: int) -> list[np.ndarray]:
        counts = self.preprocessor.kept(rows.tokens)["ids"].row_lengths().numpy()
        first = self.preprocessor.offset

        def tokens(numbers: np.ndarray, inputs: dict[str, Any], logits: Any) -> list[np.ndarray]:
            values = ops.convert_to_numpy(self.results(logits)["probabilities"])
            return [value[first : first + count] for value, count in zip(values, counts[numbers], strict=True)]

        return self.map_batches(tokens, rows, batch_size)

    def detect(self, texts: Any, *, batch_size: int = 32) -> list[Any]:
        """Returns the tokens of texts with the probability that each was replaced.

        Args:
            texts: One text or many.
            batch_size: Texts per batch.

        Returns:
            For each text a list of `DetectedToken`: text, `start` and `end` in characters (end exclusive), probability.
            For a single text its list alone.

        Raises:
            TypeError, ValueError: If a row is not text, or is too long. The message names the row.
        """
        if isinstance(texts, (str, bytes)):
            return self.detect([texts], batch_size=batch_size)[0]
        whole = [text.decode("utf-8", "replace") for text in as_texts(texts, "texts")]
        rows = self.preprocessor.rows(texts, "texts")
        places = (self.preprocessor.kept(rows.tokens)[name].to_list() for name in ("starts", "ends"))
        return [
            [DetectedToken(text[start:end], start, end, float(value)) for start, end, value in zip(*row, strict=True)]
            for text, *row in zip(whole, *places, self._probabilities(rows, batch_size), strict=True)
        ]

    def result_fields(self) -> tuple[Field, ...]:
        return (Field("probabilities", ("batch", "length"), "float32", "that each token was replaced"),)

    def results(self, outputs: Any) -> dict[str, Any]:
        return {"probabilities": ops.sigmoid(outputs)[:, :, 0]}

    def endpoints(self) -> dict[str, Endpoint]:
        """Returns the endpoint `serve(texts)` of an export: string tensor `(batch,)` to the tokens of each text.

        It returns "probabilities", float32 `(batch, tokens)`; "starts" and "ends", byte offsets in the texts, int64;
        and "counts", the number of tokens of each text, int64 `(batch,)`. Rows are padded with zeros. A text longer
        than the model allows raises an `InvalidArgumentError`, unless the task truncates.
        """
        import tensorflow as tf

        preprocessor = self.preprocessor

        def serve(texts: Any) -> dict[str, Any]:
            tokens = preprocessor.tokens(texts, unit="bytes")
            logits = self(checked_lengths(preprocessor.inputs(tokens), self.longest), training=False)
            tokens = preprocessor.kept(tokens)
            counts = tf.cast(tokens["ids"].row_lengths(), tf.int64)
            values = self.results(logits)["probabilities"][:, preprocessor.offset :]
            shape = tf.shape(values, out_type=tf.int64)
            places = {name: tf.cast(tokens[name].to_tensor(0, shape=shape), tf.int64) for name in ("starts", "ends")}
            is_token = tf.sequence_mask(counts, shape[1])
            return {"probabilities": tf.where(is_token, values, 0.0), **places, "counts": counts}

        shape = ("batch", "tokens")
        outputs = (
            Field("probabilities", shape, "float32", "that each token was replaced"),
            *(Field(name, shape, "int64", f"where tokens {name[:-1]}, in bytes") for name in ("starts", "ends")),
            Field("counts", ("batch",), "int64", "number of tokens of each text"),
        )
        return {"serve": Endpoint(serve, self.text_fields(), outputs, "Finds replaced tokens.")}
