"""Trainings in rounds: validations after a number of batches, and not after each pass over the data."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from zoo.training import ResumableBatches


class Rounds(ResumableBatches):
    """Batches of a training, one pass over the data after the other, cut into rounds of equally many batches.

    A round takes the place of an epoch of Keras, so that all that happens after an epoch happens after a round.

    Args:
        batches: The batches, by epochs.
        length: Number of batches of a round.

    Example:

    >>> rounds = Rounds(batches, 100)
    >>> model.fit(rounds.dataset, epochs=20)
    """

    def __init__(self, batches: ResumableBatches, length: int) -> None:
        whole = batches.number_of_batches
        # an epoch that is begun in its middle, and those that follow
        most = 1 + -(-length // whole)

        def of_round(number: tf.Tensor, skipped: tf.Tensor) -> Any:
            first = number * length + skipped
            epoch, begun = first // whole, first % whole
            rest = tf.data.Dataset.range(epoch + 1, epoch + 1 + most)
            stream = batches.batches_of(epoch, begun)
            return stream.concatenate(rest.flat_map(lambda each: batches.batches_of(each, 0))).take(length - skipped)

        super().__init__(length, of_round, skips=True)
