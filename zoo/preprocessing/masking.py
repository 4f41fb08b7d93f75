"""Which tokens a masked language model has to guess, and what it sees in their place: graph functions for `tf.data`."""

from typing import Any

from zoo.preprocessing.batching import padded_length


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
    """Chooses tokens at random and hides them.

    In each row the share `rate` of the candidates is chosen, rounded, at least one. Of the chosen tokens `mask_share`
    become the mask token, `random_share` a token drawn at random, and the rest stays as it is. With `word_ids`, whole
    words are chosen in random order until `rate` of the candidates is reached.

    Args:
        token_ids: int32 `(batch, length)`.
        candidates: Bool `(batch, length)`: the tokens of the text, without special ones and padding.
        mask_id: Id of the mask token.
        ordinary_ids: The ids that a random token is drawn from, `(number,)`.
        rate: Share of the candidates to choose, in (0, 1].
        mask_share: Share of the chosen ones that become the mask token.
        random_share: Share of the chosen ones that become a random token.
        word_ids: Number of the word in its row that each token belongs to, at least 0, `(batch, length)`. None for
            tokens of their own.
        seed: Two integers, for the same choice every time. None draws anew with each call, from TensorFlow's global
            seed.

    Returns:
        `(masked_ids, chosen)`: int32 and bool, `(batch, length)`.

    Example:

    >>> masked, chosen = mask_tokens(ids, ids > 4, mask_id=4, ordinary_ids=tf.range(5, 8000))
    >>> dataset = dataset.map(lambda ids: mask_tokens(ids, ids > 4, mask_id=4, ordinary_ids=tf.range(5, 8000)))

    Reference:
        Devlin et al. 2019, "BERT", section 3.1 and appendix A.1; whole words: the code of BERT, May 2019; anew with
        each call ("dynamic"): Liu et al. 2019, "RoBERTa", section 4.1.
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
