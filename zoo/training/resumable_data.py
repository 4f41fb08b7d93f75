"""Training data whose position can be set, so that training can resume in the middle of an epoch."""

from collections.abc import Callable
from typing import Any, Protocol


class ResumableData(Protocol):
    """Data whose position can be set.

    Attributes:
        dataset: The `tf.data.Dataset` for `fit`. Each iteration yields the batches chosen by the last `start_epoch`.
            Its `cardinality()` must be unknown or `number_of_batches`, also for an epoch that skips some. Keras's
            progress bar shows it.
        number_of_batches: Number of batches of a whole epoch, the same for every epoch.
    """

    dataset: object
    number_of_batches: int

    def start_epoch(self, epoch: int, skip_batches: int = 0) -> None:
        """Chooses the batches of an epoch without the first `skip_batches`. They depend on the epoch number only."""


class ResumableBatches:
    """A `tf.data.Dataset` with the batches of the epoch that was chosen last, see `ResumableData`.

    Args:
        number_of_batches: Number of batches of an epoch, the same for every epoch.
        batches_of_epoch: Graph function from the number of an epoch, an int64 scalar, to the dataset of its batches.
        skips: Whether that function takes the number of batches to skip as a second scalar. Otherwise these batches are
            made and dropped, which takes time if they are read from a disk.

    Attributes:
        dataset: The dataset. Each iteration yields the epoch set by `start_epoch` (initially 0). Its cardinality is
            that of a whole epoch.
        number_of_batches: Number of batches of an epoch.

    Example:

    >>> batches.start_epoch(3)
    >>> model.fit(batches.dataset, initial_epoch=3, epochs=4)
    """

    def __init__(self, number_of_batches: int, batches_of_epoch: Callable[..., Any], skips: bool = False) -> None:
        import tensorflow as tf

        self.number_of_batches = number_of_batches
        self._of_epoch, self._skips = batches_of_epoch, skips
        # variables, because the graph of a dataset is made once and reads them at the start of every iteration
        with tf.device("CPU:0"):
            self._epoch = tf.Variable(0, dtype=tf.int64, trainable=False)
            self._skip_batches = tf.Variable(0, dtype=tf.int64, trainable=False)

        # nothing below depends on tensors by Python's own words, and to convert it would take most of the time
        @tf.autograph.experimental.do_not_convert
        def one_epoch(_: Any) -> Any:
            return self.batches_of(self._epoch.read_value(), self._skip_batches.read_value())

        dataset = tf.data.Dataset.from_tensors(0).flat_map(one_epoch).prefetch(tf.data.AUTOTUNE)
        # Keras stops an epoch after `cardinality` batches and, where that is unknown, after as many as its first epoch
        # had, which would cut all epochs short after a resume in the middle of one. `assert_cardinality` would not do:
        # it raises when that shortened epoch ends.
        cardinality = tf.constant(number_of_batches, tf.int64)
        dataset.cardinality = lambda: cardinality
        self.dataset = dataset

    def batches_of(self, epoch: Any, skip_batches: Any) -> Any:
        """Returns the dataset of the batches of an epoch; a graph function.

        Args:
            epoch: Number of the epoch, an int64 scalar.
            skip_batches: Number of batches to skip, an int64 scalar.
        """
        if self._skips:
            return self._of_epoch(epoch, skip_batches)
        return self._of_epoch(epoch).skip(skip_batches)

    def start_epoch(self, epoch: int, skip_batches: int = 0) -> None:
        """Sets the epoch and the batch with which the next iteration over `dataset` begins.

        Args:
            epoch: Number of the epoch, from 0.
            skip_batches: Number of batches to skip at the start of the epoch, as they were trained on before an
                interruption.

        Raises:
            ValueError: A number is out of range.

        Example:

        >>> batches.start_epoch(7, skip_batches=120)
        """
        if epoch < 0:
            raise ValueError(f"epoch must be at least 0, got {epoch}")
        if not 0 <= skip_batches <= self.number_of_batches:
            raise ValueError(f"skip_batches must be 0 to {self.number_of_batches}, got {skip_batches}")
        self._epoch.assign(epoch)
        self._skip_batches.assign(skip_batches)
