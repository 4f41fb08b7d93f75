"""Masked language model: guesses tokens that are hidden."""

import os
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from zoo.backbones.backbone import Backbone
from zoo.tasks.encoder_task import EncoderTask, take_positions
from zoo.tasks.encoding import added_count, dense, pack
from zoo.tasks.heads import MaskedLMHead
from zoo.tasks.masking import chosen_positions, mask_tokens
from zoo.tasks.raw_data import as_text, as_texts, require_count
from zoo.training.losses import TokenCrossEntropy
from zoo.training.metrics import TokenAccuracy


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class MaskedLM(EncoderTask):
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
            deviation = config.initializer_range
            self.head = MaskedLMHead(
                (config.embedding.factor_dim if config.embedding.tie_output else None) or config.hidden_dim,
                config.vocabulary_size,
                head_activation,
                use_bias=head_bias,
                norm_epsilon=config.norm.epsilon,
                kernel_initializer="glorot_uniform"
                if deviation is None
                else keras.initializers.TruncatedNormal(stddev=deviation),
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
        return dense(packed, 0, 1, self.longest)[0]

    # Filling gaps.

    @property
    def mask_token(self) -> str:
        """How the mask is spelled in a text."""
        tokenizer = self._require_tokenizer("mask_token")
        return tokenizer.id_to_token(tokenizer.mask_id)

    def prompt_ids(self, texts: Any) -> Any:
        """Returns the ragged ids of texts in which the mask token is spelled out; a graph function."""
        return self._require_tokenizer("Text input").tokenize(texts, special_tokens=[self.mask_token])

    @staticmethod
    def best_tokens(logits: Any, top_k: int) -> tuple[Any, Any]:
        """Returns the ids of the likeliest tokens and their probabilities, `(batch, count, top_k)`.

        Args:
            logits: `(batch, count, vocabulary)`.
            top_k: Number of tokens, the likeliest first.
        """
        probabilities, token_ids = ops.top_k(ops.softmax(ops.cast(logits, "float32"), axis=-1), top_k)
        return token_ids, probabilities

    def mask_inputs(self, ids: Any, multiple: int = 1) -> tuple[dict[str, Any], Any]:
        """Returns token-level inputs of ragged ids with `mask_positions`, and which of these are real; graph function.

        Args:
            ids: Ragged ids of texts `(batch, None)`, without start and end token.
            multiple: Lengths are padded to multiples of this.
        """
        import tensorflow as tf

        inputs = self.encode_ids([ids], multiple)
        is_mask = (inputs["token_ids"] == self.tokenizer.mask_id) & inputs["padding_mask"]
        inputs["mask_positions"], _, weights = chosen_positions(is_mask, inputs["token_ids"])
        return inputs, tf.cast(weights, tf.bool)

    def fill_mask(self, texts: str | Sequence[str], top_k: int = 5, *, batch_size: int = 32) -> list[Any]:
        """Returns the likeliest tokens for each mask token in texts.

        Args:
            texts: One text or many, in which the mask token is spelled out, see `mask_token`.
            top_k: Number of tokens.
            batch_size: Texts per batch.

        Returns:
            For each text a list with one entry per mask: `top_k` pairs of a token and its probability, the likeliest
            first. For a single text its list alone.

        Raises:
            ValueError: If a text has no mask or is too long, naming the row, or an argument is out of range.

        Example:

        >>> model.fill_mask("The capital of France is [MASK].", top_k=2)
        [[('paris', 0.71), ('lyon', 0.12)]]
        """
        if isinstance(texts, (str, bytes)):
            return self.fill_mask([as_text(texts, "texts")], top_k, batch_size=batch_size)[0]
        require_count(batch_size, "batch_size")
        require_count(top_k, "top_k", 1, self.backbone.config.vocabulary_size)
        column = self.string_tensor(as_texts(texts, "texts"))
        results: list[Any] = [None] * len(column)
        added = added_count(1, **self.special_tokens())
        lengths = self.row_lengths(
            column, "texts", self.truncate, lambda some: self.prompt_ids(some).row_lengths() + added
        )
        order = np.argsort(lengths, kind="stable")
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            ids = self.prompt_ids(column.numpy()[rows])
            inputs, real = self.mask_inputs(ids, 16)
            has_none = np.flatnonzero(~real.numpy().any(axis=1))
            if len(has_none):
                row = rows[has_none[0]]
                shown = column.numpy()[row].decode("utf-8", "replace")[:80]
                raise ValueError(f"texts[{row}] must have a {self.mask_token!r} to fill, got {shown!r}.")
            logits = self.predict_on_batch({name: value.numpy() for name, value in inputs.items()})
            token_ids, probabilities = map(ops.convert_to_numpy, self.best_tokens(logits, top_k))
            for index, row in enumerate(rows):
                results[row] = [
                    list(
                        zip(map(self._token, token_ids[index, mask]), probabilities[index, mask].tolist(), strict=True)
                    )
                    for mask in range(int(real.numpy()[index].sum()))
                ]
        return results

    def _token(self, token_id: Any) -> str:
        # the vocabulary of a model may be padded beyond that of its tokenizer
        return self.tokenizer.id_to_token(int(token_id)) if token_id < self.tokenizer.vocabulary_size else ""

    def predict_texts(self, x: Any, batch_size: int) -> list[Any]:
        """Returns what `fill_mask` finds."""
        return self.fill_mask(x, batch_size=batch_size)

    def export(self, directory: str | os.PathLike, *, top_k: int = 5) -> None:
        """Writes a SavedModel that fills masks in strings, see `zoo.export.export_masked_lm`.

        Args:
            directory: Where to.
            top_k: Number of tokens for each mask.
        """
        from zoo.export import export_masked_lm

        export_masked_lm(self, directory, top_k=top_k)
