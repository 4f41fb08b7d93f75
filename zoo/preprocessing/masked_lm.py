"""Texts with tokens hidden for training, texts with the mask token spelled out for use."""

from typing import Any

import keras
import numpy as np

from zoo.preprocessing.encoder import EncoderPreprocessor
from zoo.preprocessing.rows import as_sequence, as_text, shorten
from zoo.preprocessing.text_places import word_numbers
from zoo.preprocessing.token_rows import added_count, padded_length, to_dense
from zoo.preprocessing.words import split_words


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class MaskedLMPreprocessor(EncoderPreprocessor):
    """Preprocessing of masked language models: masks tokens for training, and reads mask tokens for inference.

    Args:
        tokenizer: Tokenizer with a mask token; None for use on token level.
        mask_rate: Fraction of the tokens to predict, in (0, 1).
        mask_share: Fraction of these that become the mask token.
        random_share: Fraction of these that become a random token. The others do not change.
        whole_words: Whether whole words are masked, as BERT splits texts: at white space, and around each character
            other than letters and digits. In scripts without spaces each character is a word.
        **options: `sequence_length`, `truncate` and `segments`, see `EncoderPreprocessor`.

    Raises:
        ValueError: If the tokenizer has no mask token, or an argument is out of range.

    Example:

    >>> inputs, labels, weights = preprocessor.training_batch(tf.constant(["a text with hidden tokens"]))
    >>> preprocessor(["a text with a [MASK] token"])["mask_positions"].shape
    (1, 8)
    """

    draws_random = True

    def __init__(
        self,
        tokenizer: Any = None,
        *,
        mask_rate: float = 0.15,
        mask_share: float = 0.8,
        random_share: float = 0.1,
        whole_words: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(tokenizer, **options)
        if tokenizer is not None and tokenizer.mask_id is None:
            raise ValueError("MaskedLM needs a tokenizer with a mask token; this one has mask_id=None.")
        if not 0 < mask_rate < 1:
            raise ValueError(f"mask_rate must be above 0 and below 1, got {mask_rate!r}.")
        if not (0 <= mask_share <= 1 and 0 <= random_share <= 1 and mask_share + random_share <= 1):
            raise ValueError(
                f"mask_share and random_share must be from 0 to 1, and their sum too, got {mask_share!r} and "
                f"{random_share!r}."
            )
        self.mask_rate, self.mask_share, self.random_share = mask_rate, mask_share, random_share
        self.whole_words = bool(whole_words)

    @property
    def mask_token(self) -> str:
        """The string of the mask token in a text."""
        tokenizer = self.require_tokenizer("mask_token")
        return tokenizer.id_to_token(tokenizer.mask_id)

    def tokens(self, x: Any) -> Any:
        """Returns the ragged ids of texts with mask tokens."""
        return self.require_tokenizer("Text input").tokenize(x, special_tokens=[self.mask_token])

    def inputs(self, tokens: Any) -> dict[str, Any]:
        """Returns token-level inputs with `mask_positions`, `(batch, masks)`, padded with -1."""
        import tensorflow as tf

        inputs = super().inputs(tokens)
        is_mask = (inputs["token_ids"] == self.tokenizer.mask_id) & inputs["padding_mask"]
        positions, _, weights = chosen_positions(is_mask, inputs["token_ids"])
        inputs["mask_positions"] = tf.where(weights > 0, positions, -1)
        return inputs

    def training_tokens(self, x: Any) -> dict[str, Any]:
        """Returns ragged "ids" of texts, with mask tokens read as plain text, and "words"."""
        tokenizer = self.require_tokenizer("Text input")
        if self.whole_words:
            ids, *places = tokenizer.tokenize_with_offsets(x, unit="bytes")
            _, _, word_ends = split_words(x, "symbols")
            return {"ids": ids, "words": word_numbers(places, word_ends)}
        return {"ids": tokenizer.tokenize(x)}

    def training_counts(self, tokens: dict[str, Any]) -> Any:
        return tokens["ids"].row_lengths() + added_count(1, **self.special_tokens())

    def collate(
        self, tokens: dict[str, Any], targets: Any, sample_weight: Any, seed: Any = None
    ) -> tuple[Any, Any, Any]:
        """Returns inputs with masked tokens, and labels and weights `(batch, count)` for their `mask_positions`."""
        import tensorflow as tf

        ids = tokens["ids"]
        inputs = super().inputs(ids)
        true_ids = inputs["token_ids"]
        candidates = tf.cast(self._at_tokens(ids.with_values(tf.ones_like(ids.values))), tf.bool)
        for separator in {self.tokenizer.start_id, self.tokenizer.end_id} - {None}:
            candidates &= true_ids != separator  # between the documents of a packed row
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
            word_ids=self._at_tokens(tokens["words"]) if self.whole_words else None,
            seed=seed,
        )
        inputs["mask_positions"], labels, weights = chosen_positions(chosen, true_ids)
        if sample_weight is not None:
            weights *= tf.cast(sample_weight, tf.float32)[:, tf.newaxis]
        return inputs, labels, weights

    def _at_tokens(self, values: Any) -> Any:
        """Numbers of the tokens of a text where these stand in the row, and 0 elsewhere, `(batch, length)`."""
        special = {name: None if token is None else 0 for name, token in self.special_tokens().items()}
        return to_dense(self.packed(values, special)[0], 0, self.sequence_length)[0]

    def token_of(self, token_id: int) -> str:
        """Returns the token of an id, "" for one that only the model's padded vocabulary has."""
        return self.tokenizer.id_to_token(int(token_id)) if token_id < self.tokenizer.vocabulary_size else ""

    def require_masks(self, texts: Any, tokens: Any) -> None:
        """Raises a ValueError that names the first text without a mask token; eager.

        Args:
            texts: The texts.
            tokens: What `tokens` made of them.
        """
        if self.truncate and self.sequence_length is not None:
            tokens = tokens[:, : self.sequence_length - added_count(1, **self.special_tokens())]
        for row, ids in enumerate(tokens.to_list()):
            if self.tokenizer.mask_id not in ids:
                text = as_text(as_sequence(texts, "texts")[row], f"texts[{row}]").decode("utf-8", "replace")
                raise ValueError(f"texts[{row}] must have a {self.mask_token!r} to fill, got {shorten(text)}.")


def mask_tokens(
    token_ids: Any,
    candidates: Any,
    *,
    mask_id: int,
    ordinary_ids: Any,
    rate: float = 0.15,
    mask_share: float = 0.8,
    random_share: float = 0.1,
    word_ids: Any = None,
    seed: Any = None,
) -> tuple[Any, Any]:
    """Chooses tokens at random and masks them.

    In each row the fraction `rate` of the candidates is chosen, rounded, at least one. Of the chosen tokens, the
    fraction `mask_share` becomes the mask token and `random_share` a random token. The rest does not change. With
    `word_ids`, whole words are chosen in random order until `rate` of the candidates is reached.

    Args:
        token_ids: int32 `(batch, length)`.
        candidates: Bool `(batch, length)`: the tokens of the text, without special ones and padding.
        mask_id: Id of the mask token.
        ordinary_ids: The ids that a random token is drawn from, `(number,)`.
        rate: Fraction of the candidates to choose, in (0, 1].
        mask_share: Fraction of the chosen tokens that become the mask token.
        random_share: Fraction of the chosen tokens that become a random token.
        word_ids: Index of each token's word in its row, at least 0, `(batch, length)`. None to choose single tokens.
        seed: Two integers, for the same choice in every call. None for a new choice in each call, from TensorFlow's
            global seed.

    Returns:
        `(masked_ids, chosen)`: int32 and bool, `(batch, length)`.

    Example:

    >>> masked, chosen = mask_tokens(ids, ids > 4, mask_id=4, ordinary_ids=tf.range(5, 8000))
    >>> dataset = dataset.map(lambda ids: mask_tokens(ids, ids > 4, mask_id=4, ordinary_ids=tf.range(5, 8000)))

    Reference:
        Devlin et al. 2019, "BERT", section 3.1 and appendix A.1; whole words: the code of BERT, May 2019; dynamic
        masking: Liu et al. 2019, "RoBERTa", section 4.1.
    """
    import tensorflow as tf

    candidates = tf.cast(candidates, tf.bool)
    shape = tf.shape(token_ids)
    draw = _uniform(seed)
    scores = draw(shape, 0)
    if word_ids is not None:
        # all tokens of a word have the number that was drawn at its place
        scores = tf.gather(scores, tf.clip_by_value(word_ids, 0, tf.maximum(shape[1] - 1, 0)), batch_dims=1)
    scores = tf.where(candidates, scores, 2.0)
    number = tf.reduce_sum(tf.cast(candidates, tf.float32), axis=1, keepdims=True)
    wanted = tf.cast(tf.maximum(tf.round(rate * number), 1.0), tf.int32)
    # how many tokens come before a token's word in the random order
    before = tf.searchsorted(tf.sort(scores, axis=1), scores, side="left")
    chosen = candidates & (before < wanted)
    action = draw(shape, 1)
    ordinary_ids = tf.cast(ordinary_ids, tf.int32)
    count = tf.size(ordinary_ids)
    index = tf.cast(draw(shape, 2) * tf.cast(count, tf.float32), tf.int32)
    random_ids = tf.gather(ordinary_ids, tf.minimum(index, count - 1))
    replaced = tf.where(action < mask_share, tf.fill(shape, tf.cast(mask_id, tf.int32)), random_ids)
    masked = tf.where(chosen & (action < mask_share + random_share), replaced, token_ids)
    return masked, chosen


def chosen_positions(chosen: Any, token_ids: Any) -> tuple[Any, Any, Any]:
    """Returns where the chosen tokens are, padded to one of few lengths, see `padded_length`.

    Args:
        chosen: Bool `(batch, length)`.
        token_ids: The true tokens, `(batch, length)`.

    Returns:
        `(positions, labels, weights)`, `(batch, count)`: int32, int32 and float32; the weight is 1 for a chosen token
        and 0 for what fills the row.
    """
    import tensorflow as tf

    counts = tf.reduce_sum(tf.cast(chosen, tf.int32), axis=1)
    most = tf.reduce_max(tf.concat([counts, [1]], axis=0))
    # the chosen ones first, each group in the order of the text
    order = tf.argsort(tf.cast(~chosen, tf.int32), axis=1, stable=True)
    positions = order[:, : padded_length(most)]
    weights = tf.cast(tf.range(tf.shape(positions)[1])[tf.newaxis] < counts[:, tf.newaxis], tf.float32)
    return positions, tf.gather(token_ids, positions, batch_dims=1), weights


def _uniform(seed: Any) -> Any:
    """Random numbers in [0, 1) of a shape, several independent draws told apart by a number."""
    import tensorflow as tf

    if seed is None:
        return lambda shape, _: tf.random.uniform(shape)
    seed = tf.cast(seed, tf.int64)
    return lambda shape, draw: tf.random.stateless_uniform(shape, seed + tf.constant([draw, 0], tf.int64))
