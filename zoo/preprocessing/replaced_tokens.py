"""Texts in which some tokens are replaced by others, for training; texts as they are, for use."""

from typing import Any

import keras
import numpy as np

from zoo.preprocessing.encoder import EncoderPreprocessor
from zoo.preprocessing.masked_lm import mask_tokens
from zoo.preprocessing.token_rows import added_count


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class ReplacedTokenDetectorPreprocessor(EncoderPreprocessor):
    """Preprocessing of replaced token detection: replaces random tokens of texts in training.

    Args:
        tokenizer: The tokenizer; None for use on token level.
        replace_rate: Fraction of the tokens that are replaced, in (0, 1).
        **options: `sequence_length`, `truncate` and `segments`, see `EncoderPreprocessor`.

    Raises:
        ValueError: If an argument is out of range.

    Example:

    >>> inputs, labels, weights = preprocessor.training_batch(tf.constant(["a text with replaced tokens"]))
    >>> labels.shape, weights.shape
    (TensorShape([1, 8, 1]), TensorShape([1, 8]))
    """

    draws_random = True

    def __init__(self, tokenizer: Any = None, *, replace_rate: float = 0.15, **options: Any) -> None:
        super().__init__(tokenizer, **options)
        if not 0 < replace_rate < 1:
            raise ValueError(f"replace_rate must be above 0 and below 1, got {replace_rate!r}.")
        self.replace_rate = replace_rate

    def tokens(self, x: Any, unit: str = "characters") -> dict[str, Any]:
        """Returns ragged "ids" of texts, and the "starts" and "ends" of the tokens.

        Args:
            x: String tensor `(batch,)`.
            unit: What places count: "characters" or "bytes".
        """
        names = ("ids", "starts", "ends")
        parts = self.require_tokenizer("Text input").tokenize_with_offsets(x, unit=unit)
        return dict(zip(names, parts, strict=True))

    def token_counts(self, tokens: dict[str, Any]) -> Any:
        return tokens["ids"].row_lengths() + added_count(1, **self.special_tokens())

    def inputs(self, tokens: dict[str, Any]) -> dict[str, Any]:
        return super().inputs(tokens["ids"])

    @property
    def offset(self) -> int:
        """Position of the first token of a text in its row."""
        return int(self.special_tokens()["start_id"] is not None)

    def kept(self, tokens: dict[str, Any]) -> dict[str, Any]:
        """Returns the tokens that reach the model, without those that are cut off; a graph function.

        Args:
            tokens: What `tokens` returned.
        """
        if not self.truncate or self.sequence_length is None:
            return tokens
        room = self.sequence_length - added_count(1, **self.special_tokens())
        return {name: part[:, :room] for name, part in tokens.items()}

    def collate(
        self, tokens: dict[str, Any], targets: Any, sample_weight: Any, seed: Any = None
    ) -> tuple[Any, Any, Any]:
        """Returns inputs with tokens replaced, labels `(batch, length, 1)`, 1 for these, and weights."""
        import tensorflow as tf

        inputs = self.inputs(tokens)
        true_ids, mask = inputs["token_ids"], inputs["padding_mask"]
        if seed is not None:
            seed = tf.stack([tf.cast(seed, tf.int64), tf.reduce_sum(tf.cast(true_ids, tf.int64))])
        special = [self.tokenizer.token_to_id(token) for token in self.tokenizer.special_tokens]
        ordinary = np.setdiff1d(np.arange(self.tokenizer.vocabulary_size), special)
        lengths = tf.cast(self.kept(tokens)["ids"].row_lengths(), tf.int32)[:, tf.newaxis]
        place = tf.range(tf.shape(mask)[1])[tf.newaxis] - self.offset
        inputs["token_ids"], _ = mask_tokens(
            true_ids,
            (place >= 0) & (place < lengths),
            mask_id=0,
            ordinary_ids=tf.constant(ordinary, tf.int32),
            rate=self.replace_rate,
            mask_share=0.0,
            random_share=1.0,
            seed=seed,
        )
        # a token that is replaced by itself is none
        labels = tf.cast(inputs["token_ids"] != true_ids, tf.int32)[:, :, tf.newaxis]
        weights = tf.cast(mask, tf.float32)
        if sample_weight is not None:
            weights *= tf.cast(sample_weight, tf.float32)[:, tf.newaxis]
        return inputs, labels, weights
