"""Raw rows as batches for training: of columns, of `tf.data`, of generators and of `keras.utils.PyDataset`."""

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np

from zoo.columns import is_list, listed
from zoo.preprocessing.examples import Examples
from zoo.preprocessing.preprocessor import Preprocessor
from zoo.preprocessing.rows import batch_parts, is_dataset, require_count, shorten, take_rows
from zoo.preprocessing.token_rows import require_all


def batches_of(
    preprocessor: Preprocessor,
    data: Any,
    batch_size: int | None,
    *,
    shuffle: bool = False,
    seed: Any = None,
    class_weight: np.ndarray | None = None,
) -> Any:
    """Returns a dataset of token-level `(inputs, labels, sample_weight)`.

    Args:
        preprocessor: Makes the batches.
        data: `Examples`, or a `tf.data.Dataset` of raw rows or of batches of these.
        batch_size: Rows per batch. Default 32.
        shuffle: Whether rows are shuffled anew in each epoch; a dataset keeps its order.
        seed: See `Preprocessor.collate`.
        class_weight: Weight of each label, `(labels,)`; None for none.
    """
    import tensorflow as tf

    size = require_count(32 if batch_size is None else batch_size, "batch_size")
    if isinstance(data, Examples):
        count = len(data.lengths)
        rows = tf.data.Dataset.range(count)
        rows = (rows.shuffle(count) if shuffle else rows).batch(size)

        def collate(chosen: Any) -> Any:
            return preprocessor.collate(*take_rows((data.tokens, data.targets, data.weights), chosen), seed)
    else:
        preprocessor.require_tokenizer("Text input")
        rows = in_batches(preprocessor, data, size, batch_size)

        def collate(*batch: Any) -> Any:
            return preprocessor.training_batch(*keras.utils.unpack_x_y_sample_weight(batch), seed=seed)

    @tf.autograph.experimental.do_not_convert
    def prepare(*batch: Any) -> Any:
        inputs, labels, weights = collate(*batch)
        return inputs, labels, apply_class_weight(labels, weights, class_weight)

    # side by side, batches would be given random numbers in any order
    workers = None if preprocessor.draws_random and seed is None else tf.data.AUTOTUNE
    return _counted_as(rows, rows.map(prepare, num_parallel_calls=workers).prefetch(2))


def in_batches(preprocessor: Preprocessor, dataset: Any, size: int, given: int | None) -> Any:
    """Returns a dataset of raw rows in batches; one of batches as it is.

    Args:
        preprocessor: Knows what a row is.
        dataset: The `tf.data.Dataset`.
        size: Rows per batch.
        given: What the user gave as `batch_size`.
    """
    x, *_ = keras.utils.unpack_x_y_sample_weight(dataset.element_spec)
    if all(part.shape.rank == preprocessor.row_rank for part in keras.tree.flatten(x)):
        # a component may be None, which has no shape
        parts = [part for part in keras.tree.flatten(dataset.element_spec) if hasattr(part, "shape")]
        ragged = any(part.shape.rank for part in parts)
        return dataset.ragged_batch(size) if ragged else dataset.batch(size)
    if given is not None:
        raise ValueError(f"batch_size must be None with a dataset that holds batches already, got {given}.")
    return dataset


def rows_of(preprocessor: Preprocessor, data: Any) -> Any:
    """Returns the inputs in a dataset, a generator or a `PyDataset`, as lists; a tuple of these for groups of texts.

    Args:
        preprocessor: Knows what a row is.
        data: A `tf.data.Dataset` of rows or batches, or what `peek_first_batch` returned.
    """
    batches = in_batches(preprocessor, data, 1024, None) if is_dataset(data) else _batches_in(data)
    parts = None
    for batch in batches:
        x, _, _ = batch_parts(batch, preprocessor.row_rank)
        leaves = [_as_list(leaf) for leaf in (x if isinstance(x, tuple) else (x,))]
        parts = leaves if parts is None else [whole + part for whole, part in zip(parts, leaves, strict=True)]
    if parts is None:
        return []
    return parts[0] if len(parts) == 1 else tuple(parts)


class RawBatches(keras.utils.PyDataset):
    """A `keras.utils.PyDataset` of raw batches as one of token-level batches.

    Args:
        dataset: The dataset of the user: batches `x`, `(x, y)` or `(x, y, sample_weight)`.
        convert: From one of these to a token-level batch.
    """

    def __init__(self, dataset: keras.utils.PyDataset, convert: Callable[[Any], Any]) -> None:
        super().__init__(
            workers=dataset.workers,
            use_multiprocessing=dataset.use_multiprocessing,
            max_queue_size=dataset.max_queue_size,
        )
        self._dataset, self._convert = dataset, convert

    @property
    def num_batches(self) -> int | None:
        return self._dataset.num_batches

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> Any:
        return self._convert(self._dataset[index])

    def on_epoch_begin(self) -> None:
        self._dataset.on_epoch_begin()

    def on_epoch_end(self) -> None:
        self._dataset.on_epoch_end()


def peek_first_batch(data: Any, name: str) -> tuple[Any, Any]:
    """Returns a generator or `PyDataset`, none of whose batches is lost, and its first batch.

    Args:
        data: Anything that `fit` may be given; what is neither comes back as it is, with None.
        name: Name of the argument.

    Raises:
        ValueError: If it yields nothing.
    """
    if isinstance(data, keras.utils.PyDataset):
        return data, data[0]
    if not isinstance(data, Iterator):
        return data, None
    first = next(data, None)
    if first is None:
        raise ValueError(f"{name} must yield at least one batch, got a generator that yields nothing.")
    # Keras knows a generator by its type
    return (batch for part in ([first], data) for batch in part), first


def token_batches(preprocessor: Preprocessor, data: Any, seed: Any, class_weight: np.ndarray | None = None) -> Any:
    """Returns a generator or `PyDataset` of raw batches as one of token-level batches.

    Args:
        preprocessor: Makes the batches.
        data: What `peek_first_batch` returned.
        seed, class_weight: As for `batches_of`.
    """

    def convert(batch: Any) -> Any:
        x, y, sample_weight = batch_parts(batch, preprocessor.row_rank)
        if isinstance(x, (str, bytes)):
            raise TypeError(f"A generator must yield batches, lists of texts; got one text {shorten(x)}.")
        rows = preprocessor.examples(x, y, sample_weight)
        inputs, labels, weights = preprocessor.collate(*rows[:3], seed)
        weights = apply_class_weight(labels, weights, class_weight)
        # Keras takes no None inside a batch of a generator
        weights = np.ones(len(rows.lengths), "float32") if weights is None else weights
        return keras.tree.map_structure(np.asarray, (inputs, labels, weights))

    if isinstance(data, keras.utils.PyDataset):
        return RawBatches(data, convert)
    return (convert(batch) for batch in data)


def weigh_labels(
    preprocessor: Preprocessor, x: Any, y: Any, sample_weight: Any, class_weight: np.ndarray
) -> tuple[Any, Any]:
    """Returns token-level data and their weights, those of the labels included.

    Args:
        preprocessor: Knows whether rows have one label, or one for each word.
        x: A dictionary of arrays, or a dataset, generator or `PyDataset` of batches, which then hold the weights.
        y: Labels, where `x` does not hold them.
        sample_weight: Weights, likewise; of rows, or of labels.
        class_weight: Weight of each label, `(labels,)`.

    Raises:
        ValueError: If labels are no numbers of labels, one per row or word.
    """
    rank, count = 1 + preprocessor.row_rank, len(class_weight)
    allowed = f"class_weight needs whole numbers from 0 to {count - 1} as labels"
    per = f"one per {'row' if rank == 1 else 'word'}"

    def require_rank(labels: Any) -> None:
        found = labels.shape
        if len(found) != rank and not (len(found) == rank + 1 and found[-1] == 1):
            raise ValueError(f"{allowed}, {per}, got labels of the shape {tuple(found)}.")

    def weigh(inputs: Any, labels: Any, weights: Any = None) -> tuple[Any, Any, Any]:
        labels = np.asarray(labels)
        require_rank(labels)
        if labels.dtype.kind not in "biuf":
            raise ValueError(f"{allowed}, {per}, got labels of the type {labels.dtype}.")
        wrong = labels[(labels < 0) | (labels >= count) | (labels != np.floor(labels))]
        if len(wrong):
            raise ValueError(f"{allowed}, got {wrong[0]}.")
        of_labels = class_weight[labels.astype("int64")]
        if weights is not None:
            weights = np.asarray(weights, "float32")
            if weights.ndim > labels.ndim and weights.size != labels.size:
                raise ValueError(
                    f"sample_weight must hold one weight per row or label, got the shape {weights.shape} for labels of "
                    f"the shape {labels.shape}."
                )
            shape = weights.shape + (1,) * (labels.ndim - weights.ndim)
            of_labels = of_labels * weights.reshape(labels.shape if weights.ndim > labels.ndim else shape)
        return inputs, labels, of_labels

    if is_dataset(x):

        def weigh_in_graph(inputs: Any, labels: Any, weights: Any = None) -> tuple[Any, Any, Any]:
            import tensorflow as tf

            if labels.shape.rank is not None:
                require_rank(labels)
            if labels.dtype == tf.string:
                raise ValueError(f"{allowed}, {per}, got labels of the type string.")
            numbers = tf.cast(labels, tf.float32)
            is_label = (numbers >= 0) & (numbers < count) & (numbers == tf.floor(numbers))
            labels = require_all(is_label, labels, f"{allowed}; rows and labels:")
            return inputs, labels, apply_class_weight(labels, weights, class_weight)

        return _counted_as(x, x.map(weigh_in_graph)), None
    if isinstance(x, keras.utils.PyDataset):
        return RawBatches(x, lambda batch: weigh(*keras.utils.unpack_x_y_sample_weight(batch))), None
    if isinstance(x, Iterator):
        return (weigh(*keras.utils.unpack_x_y_sample_weight(batch)) for batch in x), None
    return x, weigh(x, y, sample_weight)[2]


def apply_class_weight(labels: Any, weights: Any, class_weight: np.ndarray | None) -> Any:
    """Returns the weights of rows, or of labels, times those of the labels; a graph function.

    Args:
        labels: Numbers of labels, of any shape.
        weights: Weights of rows, or of the shape of the labels; None for ones.
        class_weight: Weight of each label, `(labels,)`; None leaves the weights as they are.
    """
    if class_weight is None:
        return weights
    import tensorflow as tf

    of_labels = tf.gather(tf.constant(class_weight, tf.float32), tf.cast(labels, tf.int32))
    if weights is None:
        return of_labels
    weights = tf.cast(weights, tf.float32)
    if weights.shape.rank > of_labels.shape.rank:
        weights = tf.reshape(weights, tf.shape(of_labels))
    for _ in range(of_labels.shape.rank - weights.shape.rank):
        weights = weights[..., tf.newaxis]
    return of_labels * weights


def _counted_as(dataset: Any, mapped: Any) -> Any:
    """Gives a dataset the number of batches of the one that it was made of, which may know it only from its user."""
    mapped.cardinality = dataset.cardinality
    return mapped


def _batches_in(data: Any) -> Iterator[Any]:
    if isinstance(data, keras.utils.PyDataset):
        return (data[index] for index in range(len(data)))
    return iter(data)


def _as_list(column: Any) -> list[Any]:
    column = listed(column)
    if is_list(column):
        return list(column)
    if hasattr(column, "to_list"):
        return column.to_list()
    return np.asarray(column).tolist()
