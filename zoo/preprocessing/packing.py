"""Training texts of a language model laid end to end in rows of one length, without padding."""

import math
from typing import Any


def packed_batches(
    texts: Any, encode: Any, length: int, batch_size: int, pad_id: int, *, shuffle: int = 0, count: int | None = None
) -> Any:
    """Returns a dataset of token-level batches in which texts stand end to end.

    A text that does not fit the rest of its row goes on in the next one. Tokens see their own text only
    (`sequence_ids`), and `positions` count from the beginning of each text or row, so the model computes for each part
    what it computes for it alone. Only the last row has padding.

    Args:
        texts: Dataset of scalar strings, or of pairs of a string and the weight of its tokens.
        encode: Graph function from a string tensor `(batch,)` to ragged ids with start and end tokens.
        length: Tokens per row.
        batch_size: Rows per batch.
        pad_id: What fills the last row.
        shuffle: Size of the shuffle buffer in texts; 0 keeps the order.
        count: Number of pairs of a token and the next one in all texts, where it is known.

    Returns:
        Dataset of `(inputs, labels, weights)`: inputs `token_ids`, `padding_mask`, `sequence_ids` and `positions`,
        labels and weights `(batch, length)`.

    Reference:
        Raffel et al. 2020, "Exploring the limits of transfer learning", section 3.1.2 (packing); Krell et al. 2021,
        "Efficient sequence packing without cross-contamination", section 3.2 (masks and positions).
    """
    import tensorflow as tf

    @tf.autograph.experimental.do_not_convert
    def pairs(batch: Any, text_weights: Any) -> Any:
        ids = encode(batch)
        inputs = ids[:, :-1]
        positions = tf.ragged.range(inputs.row_lengths()).values
        weights = tf.gather(text_weights, inputs.value_rowids())
        return inputs.values, ids[:, 1:].values, tf.cast(positions, tf.int32), weights

    @tf.autograph.experimental.do_not_convert
    def row(inputs: Any, labels: Any, positions: Any, weights: Any) -> Any:
        missing = [[0, length - tf.shape(inputs)[0]]]
        mask = tf.pad(tf.ones_like(inputs, tf.bool), missing)
        sequence_ids = tf.cumsum(tf.cast(positions == 0, tf.int32))
        sequence_ids -= sequence_ids[0]
        # the rest of a text that began in the row before counts from 0 again
        positions -= tf.where(sequence_ids == 0, positions[0], 0)
        features = {
            "token_ids": tf.pad(inputs, missing, constant_values=pad_id),
            "padding_mask": mask,
            "sequence_ids": tf.pad(sequence_ids, missing, constant_values=-1),
            "positions": tf.pad(positions, missing),
        }
        features = {name: tf.ensure_shape(value, (length,)) for name, value in features.items()}
        labels = tf.ensure_shape(tf.pad(labels, missing, constant_values=pad_id), (length,))
        return features, labels, tf.ensure_shape(tf.pad(weights, missing), (length,))

    if not isinstance(texts.element_spec, tuple):
        texts = texts.map(lambda text: (text, 1.0))

    if shuffle:
        texts = texts.shuffle(shuffle)
    rows = texts.batch(256).map(pairs, num_parallel_calls=tf.data.AUTOTUNE).rebatch(length).map(row)
    # rebatch() guesses the number of its elements from the number of those before, wrongly: it is told, or forgotten
    batches = rows.filter(lambda *row: True).batch(batch_size)
    if count is not None:
        number = math.ceil(math.ceil(count / length) / batch_size)
        batches = batches.apply(tf.data.experimental.assert_cardinality(number))
    return batches.prefetch(2)
