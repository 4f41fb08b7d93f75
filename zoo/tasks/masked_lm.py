"""Masked language model: guesses tokens that are hidden."""

import os
from typing import Any

import keras
import numpy as np
from keras import ops

from zoo.backbones.backbone import Backbone
from zoo.preprocessing.masking import chosen_positions, mask_tokens
from zoo.preprocessing.token_rows import pack
from zoo.tasks.encoder_task import dense_to_multiple, take_positions
from zoo.tasks.heads import MaskedLMHead, initializer_of
from zoo.tasks.mask_filling import MaskFilling
from zoo.training.losses import TokenCrossEntropy
from zoo.training.metrics import TokenAccuracy


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class MaskedLM(MaskFilling):
    """An encoder that guesses hidden tokens from all others.

    `fit` hides other tokens of a text in each epoch, `evaluate` and validation always the same ones.

    Args:
        backbone: An encoder.
        tokenizer: Tokenizer with a mask token; None for use on token level.
        mask_rate: Share of the tokens to guess, in (0, 1).
        mask_share: Share of those that become the mask token.
        random_share: Share of those that become a random token; the others stay as they are.
        whole_words: Whether whole words are hidden. Texts are then split at white space, which counts as one space.
        head: "transform" (dense, activation, norm, tied projection, bias: BERT and its followers), or "projection" (the
            backbone's projection alone).
        head_activation: Activation of the dense layer of "transform".
        head_bias: Whether its dense layer and norm have biases.
        sequence_length, truncate: See `EncoderTask`.

    Call arguments:
        inputs: `{"token_ids", "padding_mask"}`, `(batch, length)`, optionally `"segment_ids"`; with
            `"mask_positions"` `(batch, count)` only those tokens are guessed.
        training: Whether dropout is active.

    Returns:
        Logits `(batch, length, vocabulary)`, or `(batch, count, vocabulary)`.

    Raises:
        ValueError: If the backbone is no encoder, the tokenizer has no mask token, or an argument is out of range.

    Example:

    >>> model = MaskedLM.from_preset("path/to/model")
    >>> model.fill_mask("The capital of France is [MASK].")
    [[('Paris', 0.92), ...]]

    Reference:
        Devlin et al. 2019, "BERT", section 3.1.
    """

    draws_random = True

    def __init__(
        self,
        backbone: Backbone,
        tokenizer: Any = None,
        *,
        mask_rate: float = 0.15,
        mask_share: float = 0.8,
        random_share: float = 0.1,
        whole_words: bool = False,
        head: str = "transform",
        head_activation: str = "gelu",
        head_bias: bool = True,
        sequence_length: int | None = None,
        truncate: bool = False,
        **kwargs: Any,
    ):
        super().__init__(backbone, tokenizer, sequence_length=sequence_length, truncate=truncate, **kwargs)
        if tokenizer is not None and tokenizer.mask_id is None:
            raise ValueError("MaskedLM needs a tokenizer with a mask token; this one has mask_id=None.")
        if not 0 < mask_rate < 1:
            raise ValueError(f"mask_rate must be above 0 and below 1, got {mask_rate!r}.")
        if not (0 <= mask_share <= 1 and 0 <= random_share <= 1 and mask_share + random_share <= 1):
            raise ValueError(
                f"mask_share and random_share must be from 0 to 1, and their sum too, got {mask_share!r} and "
                f"{random_share!r}."
            )
        if head not in ("transform", "projection"):
            raise ValueError(f"head must be 'transform' or 'projection', got {head!r}.")
        self.mask_rate, self.mask_share, self.random_share = mask_rate, mask_share, random_share
        self.whole_words = whole_words
        self.head_kind, self.head_activation, self.head_bias = head, head_activation, head_bias
        config = backbone.config
        self.head = None
        if head == "transform":
            self.head = MaskedLMHead(
                (config.embedding.factor_dim if config.embedding.tie_output else None) or config.hidden_dim,
                config.vocabulary_size,
                head_activation,
                use_bias=head_bias,
                norm_epsilon=config.norm.epsilon,
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
        return {
            **options,
            "mask_rate": self.mask_rate,
            "mask_share": self.mask_share,
            "random_share": self.random_share,
            "whole_words": self.whole_words,
            "head": self.head_kind,
            "head_activation": self.head_activation,
            "head_bias": self.head_bias,
        }

    def call(self, inputs: dict[str, Any], training: bool | None = None) -> Any:
        inputs = dict(inputs)
        positions = inputs.pop("mask_positions", None)
        hidden = self.backbone(inputs, training=training)
        if positions is not None:
            hidden = take_positions(hidden, positions)
        if self.head is None:
            return self.backbone.logits(hidden)
        logits = self.backbone.logits(self.head(hidden))
        return logits + ops.cast(self.head.output_bias, logits.dtype)

    # Training.

    def default_loss(self) -> TokenCrossEntropy:
        """Returns `TokenCrossEntropy()`."""
        return TokenCrossEntropy()

    def default_metrics(self) -> list[Any]:
        """Returns the share of tokens that are guessed."""
        return [TokenAccuracy()]

    def preprocess(self, x: Any, y: Any = None, sample_weight: Any = None) -> tuple[dict[str, Any], Any, Any]:
        """Returns token-level inputs, labels and weights of texts, with tokens hidden anew in each call.

        Args:
            x: String tensor `(batch,)`.
            y: None.
            sample_weight: Weight of each text, `(batch,)`; None for 1.

        Returns:
            `(inputs, labels, weights)`, see the call arguments; `labels` and `weights` `(batch, count)` belong to
            `inputs["mask_positions"]`.
        """
        return self._masked(x, sample_weight, seed=None)

    def preprocess_with_seed(
        self, x: Any, y: Any = None, sample_weight: Any = None, *, seed: Any
    ) -> tuple[dict[str, Any], Any, Any]:
        """As `preprocess`, but equal batches with equal seeds, a scalar integer, have the same tokens hidden."""
        return self._masked(x, sample_weight, seed=seed)

    def preprocess_evaluation(self, x: Any, y: Any = None, sample_weight: Any = None) -> tuple[Any, Any, Any]:
        """As `preprocess`, but equal batches have the same tokens hidden."""
        return self._masked(x, sample_weight, seed=1)

    def _masked(self, texts: Any, sample_weight: Any, seed: Any) -> tuple[dict[str, Any], Any, Any]:
        import tensorflow as tf

        word_ids = None
        if self.whole_words:
            ids, words = self.tokenizer.tokenize_words(tf.strings.split(texts))
            word_ids = self._beside_tokens(words)
        else:
            ids = self.text_ids(texts)
        inputs = self.encode_ids([ids])
        true_ids = inputs["token_ids"]
        candidates = self._candidates(ids)
        if seed is not None:
            seed = tf.stack([tf.cast(seed, tf.int64), tf.reduce_sum(tf.cast(true_ids, tf.int64))])
        ordinary = np.setdiff1d(
            np.arange(self.tokenizer.vocabulary_size),
            [self.tokenizer.token_to_id(token) for token in self.tokenizer.special_tokens],
        )
        inputs["token_ids"], chosen = mask_tokens(
            true_ids,
            candidates,
            mask_id=self.tokenizer.mask_id,
            ordinary_ids=tf.constant(ordinary, tf.int32),
            rate=self.mask_rate,
            mask_share=self.mask_share,
            random_share=self.random_share,
            word_ids=word_ids,
            seed=seed,
        )
        inputs["mask_positions"], labels, weights = chosen_positions(chosen, true_ids)
        if sample_weight is not None:
            weights *= tf.cast(sample_weight, tf.float32)[:, tf.newaxis]
        return inputs, labels, weights

    def _candidates(self, ids: Any) -> Any:
        """True where a token of the text stands, not a special one, `(batch, length)`."""
        import tensorflow as tf

        return tf.cast(self._beside_tokens(ids.with_values(tf.ones_like(ids.values))), tf.bool)

    def _beside_tokens(self, values: Any) -> Any:
        """Numbers of the tokens of a text at the places of these in the row, and 0 elsewhere, `(batch, length)`."""
        special = {name: None if token is None else 0 for name, token in self.special_tokens().items()}
        packed, _ = pack([values], **special, max_length=self.longest if self.truncate else None)
        return dense_to_multiple(packed, 0, 1, self.longest)[0]

    def export(self, directory: str | os.PathLike, *, top_k: int = 5) -> None:
        """Writes a SavedModel that fills masks in strings, see `zoo.export.export_masked_lm`.

        Args:
            directory: Where to.
            top_k: Number of tokens for each mask.
        """
        from zoo.export import export_masked_lm

        export_masked_lm(self, directory, top_k=top_k)
