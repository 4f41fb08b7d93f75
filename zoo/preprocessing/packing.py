"""Training texts of a language model laid end to end in rows of one length, without padding; whole conversations."""

import math
from typing import Any

import keras

from zoo.preprocessing.conversations import are_conversations, whole_rows
from zoo.preprocessing.examples import TOKENIZED_AT_ONCE
from zoo.preprocessing.rows import as_texts, as_weights, is_dataset, require_count, shorten, string_tensor
from zoo.tokenizers.tensors import row_ids


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
        weights = tf.gather(text_weights, row_ids(inputs.row_splits))
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


def packed_dataset(
    preprocessor: Any,
    texts: Any,
    batch_size: int | None = None,
    length: int | None = None,
    *,
    sample_weight: Any = None,
    shuffle: bool = True,
    names: tuple[str, str] = ("x", "sample_weight"),
) -> Any:
    """Returns texts end to end in rows of one length, see `packed_batches`.

    Conversations stay whole: rows are filled with as many as fit, see `zoo.preprocessing.conversations`.

    Args:
        preprocessor: A `CausalLMPreprocessor` with a tokenizer.
        texts: List, array or tensor of strings, or a dataset of strings, one by one or in batches; or a list of
            conversations.
        batch_size: Rows per batch. Default 32.
        length: Tokens per row. Default the longest that the model takes.
        sample_weight: Weight of each text, `(texts,)`; its tokens have it.
        shuffle: Whether the texts of a list are shuffled anew in each epoch; a dataset keeps its order.
        names: Names of the arguments with texts and weights, for errors.

    Returns:
        `tf.data.Dataset` of token-level batches.

    Raises:
        TypeError, ValueError: If an argument is out of range, or a dataset holds more than texts.
    """
    import tensorflow as tf

    length = require_count(
        preprocessor.sequence_length if length is None else length, "packed", 1, preprocessor.sequence_length
    )
    batch_size = require_count(32 if batch_size is None else batch_size, "batch_size")
    if are_conversations(texts):
        rows = preprocessor.replace(sequence_length=length).examples(
            texts, None, sample_weight, (names[0], "y", names[1])
        )
        members = tf.ragged.constant(whole_rows(rows.lengths, length), tf.int64, ragged_rank=1)
        numbers = tf.data.Dataset.range(members.nrows())
        numbers = (numbers.shuffle(members.nrows()) if shuffle else numbers).batch(batch_size)
        return numbers.map(lambda chosen: preprocessor.packed(rows, tf.gather(members, chosen), length)).prefetch(2)
    options: dict[str, Any] = {}
    if is_dataset(texts):
        if sample_weight is not None:
            raise ValueError(f"{names[1]} must be None with a dataset of packed texts, got {shorten(sample_weight)}.")
        x, y, weights = keras.utils.unpack_x_y_sample_weight(texts.element_spec)
        is_text = isinstance(x, tf.TensorSpec) and x.dtype == tf.string and x.shape.rank in (None, 0, 1)
        if not is_text or y is not None or weights is not None:
            raise ValueError(f"A dataset of packed texts must hold texts alone, got {shorten(texts.element_spec)}.")
        if isinstance(texts.element_spec, tuple):
            texts = texts.map(lambda text, *_: text)
        texts = texts.unbatch() if x.shape.rank else texts
    else:
        tensor = string_tensor(as_texts(texts, names[0]))
        count = tensor.shape[0]
        if not count:
            raise ValueError(f"{names[0]} must hold at least one text, got none.")
        parts = (tensor[start : start + TOKENIZED_AT_ONCE] for start in range(0, count, TOKENIZED_AT_ONCE))
        pairs = sum(int(tf.reduce_sum(preprocessor.training_counts(preprocessor.text_ids(part)))) for part in parts)
        if not pairs:
            raise ValueError(f"{names[0]} must hold a token to predict, got texts of at most one token each.")
        options = {"shuffle": count if shuffle else 0, "count": pairs}
        weights = tf.ones(count) if sample_weight is None else as_weights(sample_weight, count, names[1])
        texts = tf.data.Dataset.from_tensor_slices((tensor, weights))
    return packed_batches(texts, preprocessor.text_ids, length, batch_size, preprocessor.pad_id, **options)
