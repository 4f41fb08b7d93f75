"""The one way from raw texts to token-level batches: checks of every row, then `tf.data`."""

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np

from zoo.preprocessing.rows import as_texts, as_weights, is_dataset, is_raw, require_count, shorten
from zoo.preprocessing.token_rows import checked_lengths

# Texts are tokenized this many at a time where their lengths are checked.
CHECKED_AT_ONCE = 4096
# Lengths are padded to multiples of this in `predict`, so that few shapes are compiled.
LENGTH_MULTIPLE = 16


class RawBatches(keras.Model):
    """A model that makes batches of raw texts, in lists, arrays, tensors and `tf.data`.

    `check_inputs` and `check_targets` look at every row before the first step, then `preprocess` makes token-level
    tensors of each batch inside `tf.data`.

    A subclass defines `preprocess`, `encode`, `token_lengths`, and where its inputs are not single texts
    `check_inputs`, where it has targets `check_targets`. In `preprocess`, `encode` and `token_lengths` only
    TensorFlow's operations may be used: they run in `tf.data` on every backend.
    """

    # What a subclass defines.

    def preprocess(self, x: Any, y: Any = None, sample_weight: Any = None) -> tuple[Any, Any, Any]:
        """Returns token-level `(inputs, labels, sample_weight)` of a batch for training; a graph function.

        Args:
            x: Batch of inputs: string tensor `(batch,)`, or what `check_inputs` of the task returns, row by row.
            y: Batch of targets, or None.
            sample_weight: Weight of each row `(batch,)`, or None.
        """
        raise NotImplementedError

    def preprocess_evaluation(self, x: Any, y: Any = None, sample_weight: Any = None) -> tuple[Any, Any, Any]:
        """As `preprocess`, for evaluation and validation; another only where training draws at random."""
        return self.preprocess(x, y, sample_weight)

    def encode(self, x: Any, multiple: int = 1) -> dict[str, Any]:
        """Returns token-level inputs of a batch for inference; a graph function.

        Args:
            x: As for `preprocess`.
            multiple: Lengths are padded to multiples of this, but not beyond the model's longest.
        """
        raise NotImplementedError

    def token_lengths(self, x: Any) -> Any:
        """Returns the number of tokens of each row before truncation, added ones included; a graph function.

        Args:
            x: As for `preprocess`.
        """
        raise NotImplementedError

    def check_inputs(self, x: Any, name: str) -> Any:
        """Returns checked inputs as tensors with one row per example.

        Args:
            x: What the user passed.
            name: Name of the argument.

        Raises:
            TypeError, ValueError: If a row is no text or too long, naming the row.
        """
        texts = self.string_tensor(as_texts(x, name))
        self.row_lengths(texts, name, self.truncates)
        return texts

    def check_targets(self, y: Any, x: Any, name: str, x_name: str) -> Any:
        """Returns checked targets as a tensor with one row per example, or None for a task that has none.

        Args:
            y: What the user passed.
            x: Checked inputs.
            name: Name of the argument.
            x_name: Name of the argument with the inputs.
        """
        if y is not None:
            raise ValueError(
                f"{name} must be None: {type(self).__name__} learns from the texts alone, got {shorten(y)}."
            )
        return None

    # From rows to batches.

    @staticmethod
    def string_tensor(texts: list[bytes]) -> Any:
        """Returns a `tf.string` tensor `(rows,)`."""
        import tensorflow as tf

        return tf.constant(texts, dtype=tf.string, shape=(len(texts),))

    def row_lengths(
        self, x: Any, name: str, truncate: bool = False, token_lengths: Callable[[Any], Any] | None = None
    ) -> np.ndarray:
        """Returns the number of tokens of each row, at most the longest that the model takes.

        Args:
            x: Checked inputs.
            name: Name of the argument.
            truncate: Whether longer rows will be cut, instead of being an error.
            token_lengths: What counts the tokens of each row. Default `token_lengths()`.

        Raises:
            ValueError: If a row is longer than the model and is not cut, naming the row.
        """
        import tensorflow as tf

        count, longest = row_count(x), self.longest
        token_lengths = token_lengths or self.token_lengths
        parts = [
            np.asarray(token_lengths(take(x, tf.range(start, min(start + CHECKED_AT_ONCE, count)))))
            for start in range(0, count, CHECKED_AT_ONCE)
        ]
        lengths = np.concatenate(parts) if parts else np.zeros((0,), "int64")
        too_long = np.flatnonzero(lengths > longest)
        if len(too_long) and not truncate:
            row = int(too_long[0])
            shown = tf.nest.flatten(take(x, [row]))[0][0].numpy()
            raise ValueError(
                f"{name}[{row}] has {lengths[row]} tokens with its {self.added_tokens}, the model takes at most "
                f"max_length={longest} ({len(too_long)} of {count} rows are too long): {_readable(shown)}. "
                f"{self.truncation_hint}"
            )
        return np.minimum(lengths, longest)

    @property
    def longest(self) -> int:
        """Most tokens of a row."""
        return self.backbone.config.max_length

    @property
    def truncates(self) -> bool:
        """Whether longer rows are cut."""
        return False

    # how an error says what tokenizing adds, and what to do about a text that is too long
    added_tokens = "added tokens"
    truncation_hint = "Shorten it."
    # number of axes of the strings of one row: 0 for a text, 1 for a list of words
    row_rank = 0
    # whether preprocess() draws random numbers
    draws_random = False

    def _columns(self, x: Any, y: Any, sample_weight: Any, names: tuple[str, str, str]) -> Any:
        """Checked `(x, y, sample_weight)` as tensors, or the dataset itself."""
        self._require_tokenizer("Text input")
        if is_dataset(x):
            for name, value in zip(names[1:], (y, sample_weight), strict=True):
                if value is not None:
                    raise ValueError(f"{name} must be None where {names[0]} is a dataset: the dataset holds it.")
            return x
        x = self.check_inputs(x, names[0])
        count = row_count(x)
        if not count:
            raise ValueError(f"{names[0]} must hold at least one text, got none.")
        y = self.check_targets(y, x, names[1], names[0])
        if sample_weight is not None:
            sample_weight = as_weights(sample_weight, count, names[2])
        return x, y, sample_weight

    def _validation(self, data: Any, batch_size: int | None) -> Any:
        if is_dataset(data):
            return self._batches(data, batch_size) if is_raw(data) else data
        parts = data
        if not isinstance(data, tuple) or (data and isinstance(data[0], (str, bytes))):
            parts = (data,)
        if not 1 <= len(parts) <= 3:
            raise ValueError(f"validation_data must be (x, y) or (x, y, sample_weight), got {len(parts)} entries.")
        if not is_raw(parts[0]):
            return data
        names = tuple(f"validation_data[{index}]" for index in range(3))
        return self._batches(self._columns(*parts, *[None] * (3 - len(parts)), names), batch_size)

    def _batches(self, columns: Any, batch_size: int | None, shuffle: bool = False, training: bool = False) -> Any:
        """Dataset of token-level batches, of checked columns or of a dataset of raw ones."""
        import tensorflow as tf

        size = require_count(32 if batch_size is None else batch_size, "batch_size")
        if is_dataset(columns):
            dataset = self._batched(columns, size, batch_size)
        else:
            x, y, sample_weight = columns
            count = row_count(x)
            dataset = tf.data.Dataset.range(count)
            if shuffle:
                dataset = dataset.shuffle(count)
            # Keras reads a tuple of three; None keeps the place of what there is not
            dataset = dataset.batch(size).map(
                tf.autograph.experimental.do_not_convert(lambda rows: take((x, y, sample_weight), rows))
            )

        preprocess = self.preprocess if training else self.preprocess_evaluation

        @tf.autograph.experimental.do_not_convert
        def prepare(*batch: Any) -> Any:
            # one component that is no tuple is a batch of inputs
            inputs, labels, weights = preprocess(*keras.utils.unpack_x_y_sample_weight(batch))
            return checked_lengths(inputs, self.longest), labels, weights

        # side by side, batches would be given random numbers in any order
        workers = None if self.draws_random and training else tf.data.AUTOTUNE
        return dataset.map(prepare, num_parallel_calls=workers).prefetch(2)

    def run_batches(self, x: Any, lengths: np.ndarray, batch_size: int) -> Iterator[tuple[np.ndarray, Any, Any]]:
        """Yields row numbers, token-level inputs and outputs of the model, rows of similar length together.

        Args:
            x: Checked inputs.
            lengths: Number of tokens of each row.
            batch_size: Rows per batch.
        """
        order = np.argsort(lengths, kind="stable")
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            inputs = {name: value.numpy() for name, value in self.encode(take(x, rows), LENGTH_MULTIPLE).items()}
            yield rows, inputs, self.predict_on_batch(inputs)

    def _batched(self, dataset: Any, size: int, given: int | None) -> Any:
        """A dataset of rows in batches; one of batches as it is."""
        x, *_ = keras.utils.unpack_x_y_sample_weight(dataset.element_spec)
        if all(part.shape.rank == self.row_rank for part in keras.tree.flatten(x)):
            ragged = any(part.shape.rank for part in keras.tree.flatten(dataset.element_spec))
            return dataset.ragged_batch(size) if ragged else dataset.batch(size)
        if given is not None:
            raise ValueError(f"batch_size={given} must be None: the dataset holds batches already.")
        return dataset

    def _rows_of(self, dataset: Any) -> Any:
        """The inputs in a dataset of rows or batches, as lists."""
        parts = None
        for batch in self._batched(dataset, 1024, None):
            x, _, _ = keras.utils.unpack_x_y_sample_weight(batch)
            leaves = [_as_list(leaf) for leaf in (x if isinstance(x, (list, tuple)) else (x,))]
            parts = leaves if parts is None else [whole + part for whole, part in zip(parts, leaves, strict=True)]
        if parts is None:
            return []
        return parts[0] if len(parts) == 1 else tuple(parts)


def row_count(x: Any) -> int:
    """Returns the number of rows of checked inputs."""
    import tensorflow as tf

    first = tf.nest.flatten(x)[0]
    return int(first.nrows() if isinstance(first, tf.RaggedTensor) else first.shape[0])


def take(columns: Any, rows: Any) -> Any:
    """Returns some rows of columns of checked data; None stays None.

    Args:
        columns: Nested structure of tensors.
        rows: Numbers of the rows.
    """
    import tensorflow as tf

    return tf.nest.map_structure(lambda column: None if column is None else tf.gather(column, rows), columns)


def _as_list(column: Any) -> list[Any]:
    return column.to_list() if hasattr(column, "to_list") else column.numpy().tolist()


def _readable(row: Any) -> str:
    if isinstance(row, bytes):
        return repr(row.decode("utf-8", "replace")[:80])
    return "[" + ", ".join(_readable(word) for word in row[:20]) + "]"
