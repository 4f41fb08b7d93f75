"""A Keras model that takes raw texts in `fit`, `evaluate` and `predict`."""

from typing import Any

import keras
import numpy as np

from zoo.preprocessing.rows import is_dataset, is_raw, require_count
from zoo.tasks.raw_batches import RawBatches, row_count, take


class TextModel(RawBatches):
    """Raw texts in `fit`, `evaluate` and `predict`: lists, arrays and tensors of strings, `tf.data` of strings.

    What holds no strings is left to Keras. A subclass defines what `RawBatches` asks for, `default_loss`, and where it
    predicts from texts `predict_texts`.
    """

    # What a subclass defines.

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
    return take(columns, tf.range(kept)), take(columns, tf.range(kept, count))
