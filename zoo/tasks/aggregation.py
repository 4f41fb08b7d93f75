"""Tokens of a text joined to the units that have a label each, by the strategies of Transformers' pipeline."""

from typing import Any

from zoo.tokenizers.tensors import row_ids

STRATEGIES = ("none", "simple", "first", "average", "max")


def join_tokens(strategy: str, texts: Any, tokens: tuple[Any, Any, Any], probabilities: Any, tokenizer: Any) -> Any:
    """Returns the units of texts that have a label each; a graph function.

    "none" and "simple": the tokens. "first", "average" and "max": words, as tokens of WordPiece tell them and otherwise
    what stands between spaces. They have the probabilities of their first token, the mean of all, or those of the token
    with the highest one.

    Args:
        strategy: One of `STRATEGIES`.
        texts: String tensor `(batch,)`.
        tokens: Ids of tokens, and where they start and end in bytes, ragged `(batch, None)`.
        probabilities: Of the labels of all tokens, `(tokens, labels)`.
        tokenizer: The tokenizer.

    Returns:
        `(starts, ends, probabilities)` of units, without spaces around them: ragged int64 `(batch, None)`, and
        `(units, labels)`.

    Reference:
        `TokenClassificationPipeline` of the Transformers library (`gather_pre_entities`, `aggregate_word`).
    """
    import tensorflow as tf

    ids, starts, ends = tokens
    row = row_ids(ids.row_splits)
    bytes_of_texts = tf.strings.bytes_split(texts)
    is_space = tf.concat([bytes_of_texts.values == " ", [False]], axis=0)
    text = tf.gather(bytes_of_texts.row_starts(), row)
    starts, ends = (text + tf.cast(part.values, tf.int64) for part in (starts, ends))
    starts, ends = _without_spaces(is_space, starts, ends)

    def units(rows: Any, starts: Any, ends: Any, values: Any) -> Any:
        count = tf.size(texts, out_type=tf.int64)
        parts = (tf.RaggedTensor.from_value_rowids(part, rows, count, validate=False) for part in (starts, ends))
        return *parts, values

    if strategy in ("none", "simple"):
        return units(row, starts - text, ends - text, probabilities)
    if tokenizer.continues_word is None:
        begins = (starts == text) | tf.gather(is_space, starts) | tf.gather(is_space, tf.maximum(starts - 1, 0))
    else:
        begins = ~tf.gather(tf.constant(tokenizer.continues_word), ids.values)
    if tokenizer.unknown_id is not None:
        begins |= ids.values == tokenizer.unknown_id
    begins |= tf.concat([[True], row[1:] != row[:-1]], axis=0)[: tf.size(row)]
    unit, first = tf.cumsum(tf.cast(begins, tf.int64)) - 1, tf.where(begins)[:, 0]
    if strategy == "average":
        values = tf.math.segment_mean(probabilities, unit)
    else:
        values = tf.gather(probabilities, _highest(probabilities, unit) if strategy == "max" else first)
    start, begin = tf.gather(starts, first), tf.gather(text, first)
    return units(tf.gather(row, first), start - begin, tf.math.segment_max(ends, unit) - begin, values)


def _highest(probabilities: Any, unit: Any) -> Any:
    """The token of each unit that has the highest probability of any label."""
    import tensorflow as tf

    most = tf.reduce_max(probabilities, axis=-1)
    number = tf.range(tf.size(unit, out_type=tf.int64))
    is_highest = most == tf.gather(tf.math.segment_max(most, unit), unit)
    return tf.math.segment_min(tf.where(is_highest, number, number.dtype.max), unit)


def _without_spaces(is_space: Any, starts: Any, ends: Any) -> tuple[Any, Any]:
    """Parts of a text without the spaces that they begin or end with; those of spaces alone are empty at their end."""
    import tensorflow as tf

    places = tf.concat([tf.where(~is_space)[:, 0], [0]], axis=0)
    before = tf.cumsum(tf.cast(~is_space, tf.int64), exclusive=True)
    first, end = tf.gather(before, starts), tf.gather(before, ends)
    has_other = end > first
    last = tf.gather(places, tf.maximum(end - 1, 0)) + 1
    return tf.where(has_other, tf.gather(places, first), ends), tf.where(has_other, last, ends)
