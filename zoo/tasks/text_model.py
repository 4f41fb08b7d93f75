"""A Keras model that takes raw texts in `fit`, `evaluate` and `predict`."""

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np

from zoo.tasks.encoding import checked_lengths
from zoo.tasks.raw_data import as_texts, as_weights, is_dataset, is_raw, require_count, shorten

# Texts are tokenized this many at a time where their lengths are checked.
CHECKED_AT_ONCE = 4096
# Lengths are padded to multiples of this in `predict`, so that few shapes are compiled.
LENGTH_MULTIPLE = 16


class TextModel(keras.Model):
    """Raw texts in `fit`, `evaluate` and `predict`: lists, arrays and tensors of strings, `tf.data` of strings.

    All of these go one way: `check_inputs` and `check_targets` look at every row before the first step, then
    `preprocess` makes token-level tensors of each batch inside `tf.data`. What holds no strings is left to Keras.

    A subclass defines `preprocess`, `encode`, `token_lengths`, and where its inputs are not single texts
    `check_inputs`, where it has targets `check_targets`, and where it predicts from texts `predict_texts`. In
    `preprocess`, `encode` and `token_lengths` only TensorFlow's operations may be used: they run in `tf.data` on every
    backend.
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

    def predict_texts(self, x: Any, batch_size: int) -> Any:
        """Returns what `predict` gives for raw inputs, one entry per row.

        Args:
            x: Raw inputs of the user, not checked yet.
            batch_size: Rows per batch.
        """
        raise NotImplementedError(f"{type(self).__name__} does not predict from texts.")

    def default_loss(self) -> Any:
        """Returns the loss of `compile(loss="auto")`."""
        raise NotImplementedError

    def default_optimizer(self) -> Any:
        """Returns the optimizer of `compile(optimizer="auto")`."""
        return keras.optimizers.Adam(1e-4, global_clipnorm=1.0)

    def default_metrics(self) -> list[Any]:
        """Returns the weighted metrics of a `compile` that is given no metrics."""
        return []

    # What users call.

    def compile(self, optimizer: Any = "auto", loss: Any = "auto", **kwargs: Any) -> None:
        """Configures training; what is left out gets the task's default.

        Args:
            optimizer: Default `default_optimizer()`.
            loss: Default `default_loss()`.
            **kwargs: Passed on to `keras.Model.compile`. Without `metrics` and `weighted_metrics` the task's own
                `default_metrics()` are shown.
        """
        if optimizer == "auto":
            optimizer = self.default_optimizer()
        if loss == "auto":
            loss = self.default_loss()
        if "metrics" not in kwargs and "weighted_metrics" not in kwargs:
            kwargs["weighted_metrics"] = self.default_metrics() or None
        super().compile(optimizer=optimizer, loss=loss, **kwargs)

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int = 1,
        *,
        sample_weight: Any = None,
        validation_data: Any = None,
        validation_split: float = 0.0,
        validation_batch_size: int | None = None,
        shuffle: bool = True,
        **kwargs: Any,
    ) -> Any:
        """Trains, on raw texts or on token-level batches.

        Args:
            x: Texts (list, array or tensor of strings), what else the task takes, a `tf.data.Dataset` of `x`, `(x, y)`
                or `(x, y, sample_weight)` (rows, or batches of rows), or anything on token level that
                `keras.Model.fit` takes.
            y: Targets, where the task has them.
            batch_size: Rows per batch. Default 32.
            epochs: Number of passes over the data.
            sample_weight: Weight of each row, `(rows,)`.
            validation_data: `(x, y)`, `(x, y, sample_weight)`, a dataset, or for tasks without targets `x` alone.
            validation_split: Share of the rows, taken from the end, that is kept for validation, in [0, 1).
            validation_batch_size: Rows per batch of validation. Default `batch_size`.
            shuffle: Whether rows are shuffled anew in each epoch; a dataset keeps its order.
            **kwargs: Passed on to `keras.Model.fit`.

        Returns:
            The `keras.callbacks.History`.

        Raises:
            TypeError, ValueError: If a row is wrong, naming argument, row and what is allowed, before the first step.
        """
        if not self.compiled:
            self.compile()
        if validation_data is not None:
            validation_data = self._validation(validation_data, validation_batch_size or batch_size)
        if is_raw(x):
            columns = self._columns(x, y, sample_weight, ("x", "y", "sample_weight"))
            if validation_split and (is_dataset(x) or validation_data is not None):
                raise ValueError(
                    f"validation_split={validation_split!r} must be 0 with a dataset or with validation_data."
                )
            if validation_split:
                columns, held = _split(columns, validation_split)
                validation_data = self._batches(held, validation_batch_size or batch_size)
            x = self._batches(columns, batch_size, shuffle=shuffle, training=True)
            y = sample_weight = batch_size = validation_batch_size = None
            validation_split, shuffle = 0.0, False
        return super().fit(
            x,
            y,
            batch_size=batch_size,
            epochs=epochs,
            sample_weight=sample_weight,
            validation_data=validation_data,
            validation_split=validation_split,
            validation_batch_size=None if is_dataset(validation_data) else validation_batch_size,
            shuffle=shuffle,
            **kwargs,
        )

    def evaluate(
        self, x: Any = None, y: Any = None, batch_size: int | None = None, *, sample_weight: Any = None, **kwargs: Any
    ) -> Any:
        """Computes the loss and metrics, on raw texts or on token-level batches; arguments as for `fit`."""
        if not self.compiled:
            self.compile()
        if is_raw(x):
            columns = self._columns(x, y, sample_weight, ("x", "y", "sample_weight"))
            x, y, sample_weight, batch_size = self._batches(columns, batch_size), None, None, None
        return super().evaluate(x, y, batch_size=batch_size, sample_weight=sample_weight, **kwargs)

    def predict(self, x: Any, batch_size: int | None = None, **kwargs: Any) -> Any:
        """Returns what the task makes of raw texts; of token-level batches the outputs of the model.

        Args:
            x: Texts, what else the task takes, a `tf.data.Dataset` of these, or token-level inputs.
            batch_size: Rows per batch. Default 32.
            **kwargs: Passed on to `keras.Model.predict` on token level; with texts only `verbose` may be given.
        """
        if not is_raw(x):
            return super().predict(x, batch_size=batch_size, **kwargs)
        if set(kwargs) - {"verbose"}:
            raise ValueError(f"predict() on texts takes x, batch_size and verbose, got {sorted(kwargs)} too.")
        if is_dataset(x):
            x = self._rows_of(x)
        return self.predict_texts(x, require_count(32 if batch_size is None else batch_size, "batch_size"))

    # The one way from raw data to batches.

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
            np.asarray(token_lengths(_rows(x, tf.range(start, min(start + CHECKED_AT_ONCE, count)))))
            for start in range(0, count, CHECKED_AT_ONCE)
        ]
        lengths = np.concatenate(parts) if parts else np.zeros((0,), "int64")
        too_long = np.flatnonzero(lengths > longest)
        if len(too_long) and not truncate:
            row = int(too_long[0])
            shown = tf.nest.flatten(_rows(x, [row]))[0][0].numpy()
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
                tf.autograph.experimental.do_not_convert(lambda rows: _rows((x, y, sample_weight), rows))
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
            inputs = {name: value.numpy() for name, value in self.encode(_rows(x, rows), LENGTH_MULTIPLE).items()}
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


def _rows(columns: Any, rows: Any) -> Any:
    import tensorflow as tf

    return tf.nest.map_structure(lambda column: None if column is None else tf.gather(column, rows), columns)


def _split(columns: tuple[Any, Any, Any], share: float) -> tuple[Any, Any]:
    """Cuts off the last rows, as Keras does for arrays."""
    import tensorflow as tf

    if not 0 < share < 1:
        raise ValueError(f"validation_split must be at least 0 and below 1, got {share!r}.")
    count = row_count(columns[0])
    kept = int(np.floor(count * (1 - share)))
    if not 0 < kept < count:
        raise ValueError(
            f"validation_split={share!r} of {count} rows leaves {kept} for training and {count - kept} for validation: "
            "both need at least one."
        )
    return _rows(columns, tf.range(kept)), _rows(columns, tf.range(kept, count))


def _as_list(column: Any) -> list[Any]:
    return column.to_list() if hasattr(column, "to_list") else column.numpy().tolist()


def _readable(row: Any) -> str:
    if isinstance(row, bytes):
        return repr(row.decode("utf-8", "replace")[:80])
    return "[" + ", ".join(_readable(word) for word in row[:20]) + "]"
