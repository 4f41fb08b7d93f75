"""Token classification: a label for each word, for example to find names."""

import os
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from zoo.backbones.backbone import Backbone
from zoo.preprocessing.bio import OUTSIDE, decode_bio
from zoo.preprocessing.labels import Labels
from zoo.preprocessing.rows import as_sequence, as_text, as_texts, require_count, require_same_length, shorten
from zoo.preprocessing.token_rows import added_count
from zoo.tasks.encoder_task import EncoderTask, take_positions
from zoo.tasks.heads import ClassificationHead, initializer_of
from zoo.tasks.raw_batches import row_count
from zoo.training.losses import TokenCrossEntropy
from zoo.training.metrics import TokenAccuracy


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class TokenClassifier(EncoderTask):
    """Gives each word of a text a label: parts of speech, names in BIO tags.

    Each word is split into tokens by itself; its first token stands for it. A word of which no token reaches the model
    (nothing but control characters, or cut off by `truncate`) does not count in training and gets the label "O", or
    the first label where there is no "O".

    Args:
        backbone: An encoder.
        tokenizer: The tokenizer; None for use on token level.
        labels: The names of the labels, or their number.
        hidden_activation: Activation of the head's inner layer; None for no inner layer.
        inner_bias: Whether that layer has a bias.
        inner_norm: Whether a layer norm follows it.
        head_dropout: Rate of the dropout before the linear map.
        sequence_length, truncate: See `EncoderTask`.

    Call arguments:
        inputs: `{"token_ids", "padding_mask"}`, `(batch, length)`, optionally `"segment_ids"`; with
            `"word_positions"` `(batch, words)` only those tokens are classified, -1 where there is none.
        training: Whether dropout is active.

    Returns:
        Logits `(batch, length, labels)` or `(batch, words, labels)`, float32.

    Raises:
        ValueError: If the backbone is no encoder, or an argument is out of range.

    Example:

    >>> model = TokenClassifier.from_preset("path/to/model", labels=["O", "B-PER", "I-PER"])
    >>> model.fit([["Ada", "Lovelace", "wrote"]], [["B-PER", "I-PER", "O"]])
    >>> model.tag("Ada Lovelace wrote")
    ['B-PER', 'I-PER', 'O']

    Reference:
        Devlin et al. 2019, "BERT", section 5.3.
    """

    row_rank = 1

    def __init__(
        self,
        backbone: Backbone,
        tokenizer: Any = None,
        *,
        labels: int | Sequence[str],
        hidden_activation: str | None = None,
        inner_bias: bool = True,
        inner_norm: bool = False,
        head_dropout: float = 0.1,
        sequence_length: int | None = None,
        truncate: bool = False,
        **kwargs: Any,
    ):
        super().__init__(backbone, tokenizer, sequence_length=sequence_length, truncate=truncate, **kwargs)
        self.labels = Labels(labels, lowest=2)
        config = backbone.config
        self.head = ClassificationHead(
            len(self.labels),
            hidden_activation,
            inner_bias=inner_bias,
            inner_norm=inner_norm,
            norm_epsilon=config.norm.epsilon,
            dropout=head_dropout,
            kernel_initializer=initializer_of(config),
            name="head",
            dtype=self.dtype_policy,
        )
        self.head.build((None, None, config.hidden_dim))
        self.train_pooler(False)
        self.built = True

    def options(self) -> dict[str, Any]:
        options = super().options()
        del options["pair_separators"]
        head = self.head
        return {
            **options,
            "labels": self.labels.option,
            "hidden_activation": head.hidden_activation,
            "inner_bias": head.inner_bias,
            "inner_norm": head.inner_norm,
            "head_dropout": head.dropout,
        }

    def call(self, inputs: dict[str, Any], training: bool | None = None) -> Any:
        inputs = dict(inputs)
        positions = inputs.pop("word_positions", None)
        hidden = self.backbone(inputs, training=training)
        if positions is not None:
            hidden = take_positions(hidden, positions)
        return self.head(hidden, training=training)

    @property
    def outside(self) -> int:
        """Number of the label of words that the model does not see."""
        names = self.labels.names or []
        return names.index(OUTSIDE) if OUTSIDE in names else 0

    # Training.

    def default_optimizer(self) -> keras.optimizers.Optimizer:
        """Returns AdamW with rate 5e-5, gradients clipped to norm 1 (Devlin et al. 2019, appendix A.3)."""
        return keras.optimizers.AdamW(5e-5, weight_decay=0.01, global_clipnorm=1.0)

    def default_loss(self) -> TokenCrossEntropy:
        """Returns `TokenCrossEntropy()`: the mean over all words."""
        return TokenCrossEntropy()

    def default_metrics(self) -> list[Any]:
        """Returns the share of words with the right label."""
        return [TokenAccuracy(name="accuracy")]

    def check_inputs(self, x: Any, name: str) -> Any:
        """Returns words as a ragged string tensor `(rows, None)`; texts are split at white space."""
        import tensorflow as tf

        rows = as_sequence(x, name, "lists of words")
        if all(isinstance(row, (str, bytes)) for row in rows):
            words = tf.strings.split(self.string_tensor(as_texts(rows, name)))
        else:
            flat, lengths = [], []
            for index, row in enumerate(rows):
                if isinstance(row, (str, bytes)) or not isinstance(row, (list, tuple, np.ndarray)):
                    raise TypeError(f"{name}[{index}] must be a list of words like other rows, got {shorten(row)}.")
                flat += [as_text(word, f"{name}[{index}][{position}]") for position, word in enumerate(row)]
                lengths.append(len(row))
            words = tf.RaggedTensor.from_row_lengths(self.string_tensor(flat), tf.constant(lengths, tf.int64))
        self.row_lengths(words, name, self.truncate)
        return words

    def check_targets(self, y: Any, x: Any, name: str, x_name: str) -> Any:
        """Returns label ids as a ragged tensor with the row lengths of the words; arguments as in the base."""
        import tensorflow as tf

        count = row_count(x)
        if y is None:
            raise ValueError(f"{name} must hold one list of labels per row of {x_name}, got none.")
        rows = as_sequence(y, name, "lists of labels")
        require_same_length(count, len(rows), x_name, name, "list of labels")
        ids = []
        for index, (labels, words) in enumerate(zip(rows, x.row_lengths().numpy(), strict=True)):
            if isinstance(labels, (str, bytes)) or not isinstance(labels, (list, tuple, np.ndarray)):
                raise TypeError(f"{name}[{index}] must be a list of labels, one per word, got {shorten(labels)}.")
            if len(labels) != words:
                raise ValueError(
                    f"{name}[{index}] must hold one label per word: {x_name}[{index}] has {words} words, "
                    f"{name}[{index}] has {len(labels)} labels."
                )
            ids += [self.labels.id_of(label, f"{name}[{index}][{place}]") for place, label in enumerate(labels)]
        return x.with_values(tf.constant(ids, tf.int32, shape=(len(ids),)))

    def token_lengths(self, x: Any) -> Any:
        ids, _ = self._require_tokenizer("Text input").tokenize_words(x)
        return ids.row_lengths() + added_count(1, **self.special_tokens())

    def encode(self, x: Any, multiple: int = 1) -> dict[str, Any]:
        """Returns token-level inputs of words, with the position of each word's first token.

        Args:
            x: Ragged string tensor `(batch, None)`.
            multiple: Lengths are padded to multiples of this.
        """
        import tensorflow as tf

        ids, word_ids = self._require_tokenizer("Text input").tokenize_words(x)
        inputs = self.encode_ids([ids], multiple)
        special = self.special_tokens()
        before = int(special["start_id"] is not None)
        positions = tf.ragged.range(tf.cast(ids.row_lengths(), tf.int32)).values + before
        words = tf.gather(x.row_starts(), ids.value_rowids()) + tf.cast(word_ids.values, tf.int64)
        first = tf.math.unsorted_segment_min(positions, words, tf.size(x.values, out_type=tf.int64))
        # a word without tokens has the largest integer here
        reached = self.longest - int(special["end_id"] is not None) if self.truncate else first.dtype.max
        first = tf.where(first < reached, first, -1)
        width = tf.maximum(x.bounding_shape(1), 1)
        inputs["word_positions"] = x.with_values(first).to_tensor(-1, shape=tf.stack([-1, width]))
        return inputs

    def preprocess(self, x: Any, y: Any, sample_weight: Any = None) -> tuple[dict[str, Any], Any, Any]:
        """Returns token-level inputs, labels and weights of words.

        Args:
            x: Ragged string tensor `(batch, None)`.
            y: Label ids or names, ragged with the row lengths of `x`.
            sample_weight: Weight of each row, `(batch,)`; None for 1.

        Returns:
            `(inputs, labels, weights)`, see the call arguments; `labels` and `weights` `(batch, words)`.
        """
        import tensorflow as tf

        check = tf.debugging.assert_equal(
            x.row_lengths(), y.row_lengths(), "There must be one label per word; row lengths of words and of labels:"
        )
        with tf.control_dependencies([check] if check is not None else []):
            inputs = self.encode(x)
        positions = inputs["word_positions"]
        shape = tf.shape(positions, out_type=tf.int64)
        labels = y.with_values(self.labels.graph_ids(y.values)).to_tensor(0, shape=tf.stack([-1, shape[1]]))
        weights = tf.cast(positions >= 0, tf.float32)
        if sample_weight is not None:
            weights *= tf.cast(sample_weight, tf.float32)[:, tf.newaxis]
        return inputs, labels, weights

    # Use.

    def probabilities(self, logits: Any, word_positions: Any) -> Any:
        """Returns the probabilities of each word's labels, `(batch, words, labels)`.

        Args:
            logits: `(batch, words, labels)`.
            word_positions: `(batch, words)`, -1 for words that the model does not see.
        """
        outside = ops.one_hot(self.outside, len(self.labels), dtype="float32")
        seen = ops.expand_dims(ops.convert_to_tensor(word_positions) >= 0, -1)
        return ops.where(seen, ops.softmax(logits, axis=-1), outside)

    def predict_texts(self, x: Any, batch_size: int) -> list[np.ndarray]:
        """Returns the probability of each label of each word, a list of arrays `(words, labels)`."""
        words = self.check_inputs(x, "x")
        counts = words.row_lengths().numpy()
        results: list[Any] = [None] * len(counts)
        lengths = self.row_lengths(words, "x", self.truncate)
        for rows, inputs, logits in self.run_batches(words, lengths, batch_size):
            values = ops.convert_to_numpy(self.probabilities(logits, inputs["word_positions"]))
            for row, value in zip(rows, values, strict=True):
                results[row] = value[: counts[row]]
        return results

    def tag(self, texts: Any, *, batch_size: int = 32) -> list[Any]:
        """Returns the label of each word.

        Args:
            texts: A text, many texts (split at white space), or a list of lists of words.
            batch_size: Texts per batch.

        Returns:
            For each text a list with one label per word: its name, or its number where labels have no names. For a
            single text its list alone.

        Raises:
            TypeError, ValueError: If a row is no text or too long, naming the row.
        """
        if isinstance(texts, (str, bytes)):
            return self.tag([texts], batch_size=batch_size)[0]
        rows = self.predict_texts(texts, require_count(batch_size, "batch_size"))
        return [[self.labels[label] for label in row.argmax(axis=-1)] for row in rows]

    def entities(self, texts: Any, *, batch_size: int = 32) -> list[Any]:
        """Returns the entities that BIO tags mark, see `zoo.preprocessing.bio.decode_bio`.

        Args:
            texts: As for `tag`.
            batch_size: Texts per batch.

        Returns:
            For each text a list of `(label, start, end)`, words `start` to `end - 1`; for a single text its list alone.

        Raises:
            ValueError: If the labels of the task are no BIO tags.
        """
        if self.labels.names is None:
            raise ValueError(f"entities() needs labels with names in BIO, got labels={self.labels.option!r}.")
        tags = self.tag(texts, batch_size=batch_size)
        return decode_bio(tags) if isinstance(texts, (str, bytes)) else [decode_bio(row) for row in tags]

    def export(self, directory: str | os.PathLike) -> None:
        """Writes a SavedModel that takes strings and returns tags, see `zoo.export.export_token_classifier`.

        Args:
            directory: Where to.
        """
        from zoo.export import export_token_classifier

        export_token_classifier(self, directory)
