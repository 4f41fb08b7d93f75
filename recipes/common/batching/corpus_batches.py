"""Batches of prepared corpora, larger than the memory, by tf.data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from recipes.common.corpus.order import RowOrder
from recipes.common.corpus.shards import Corpus
from recipes.common.errors import ConfigError, require_options
from zoo.training import ResumableBatches

# from tokens (rows, length + 1) and how many each row has, to what a batch holds
Assemble = Callable[[np.ndarray, np.ndarray], Sequence[np.ndarray]]


class CorpusBatches(ResumableBatches):
    """A reproducible, resumable `tf.data.Dataset` of batches of rows of prepared corpora, read as they are needed.

    The rows are an endless stream (`RowOrder`) of passes, each a permutation of the whole index, or a mixture. Batch
    `b` of epoch `e` has the rows from `(e * number_of_batches + b) * batch_size` on. It depends neither on where the
    training was resumed nor on the number of processes, each of which reads its part of every batch.

    Args:
        corpora: The corpora, all with rows of one length and of one tokenizer.
        batch_size: Number of rows of a batch, over all processes.
        batches_per_epoch: Number of batches of an epoch; None for one pass. Rows of an incomplete batch then begin the
            next epoch.
        weights: See `RowOrder`.
        seed: Seed of the order, at least 0.
        process, processes: Index of this process, and number of processes.

    Attributes:
        dataset, number_of_batches: See `ResumableBatches`. Elements are tokens int32 `(rows, length + 1)` and how many
            each row has, int32 `(rows,)`, or what `assembled` makes of these.
        number_of_tokens: Tokens of the corpora.

    Raises:
        ConfigError: An argument is out of range.

    Example:

    >>> batches = CorpusBatches([Corpus("corpus")], batch_size=32, batches_per_epoch=1000)
    """

    def __init__(
        self,
        corpora: Sequence[Corpus],
        *,
        batch_size: int,
        batches_per_epoch: int | None = None,
        weights: Sequence[float] | None = None,
        seed: int = 0,
        process: int = 0,
        processes: int = 1,
    ) -> None:
        require_options(batch_size=batch_size, batches_per_epoch=batches_per_epoch, seed=seed)
        if not 0 <= process < processes or batch_size % processes:
            raise ConfigError(
                f"training.batch_size must be a multiple of the {processes} processes, of which this is number "
                f"{process}, got {batch_size}"
            )
        try:
            self._order = RowOrder([corpus.rows for corpus in corpora], weights, seed)
        except ValueError as error:
            raise ConfigError(f"data.{error}") from error
        self._corpora, self._batch_size, self._length = corpora, batch_size, corpora[0].length
        self._share = batch_size // processes
        self._first = process * self._share
        self.number_of_tokens = sum(corpus.tokens for corpus in corpora)
        super().__init__(
            batches_per_epoch or max(1, self._order.rows // batch_size), self._batches_of_epoch, skips=True
        )

    def _batches_of_epoch(self, epoch: tf.Tensor, skip_batches: tf.Tensor) -> tf.data.Dataset:
        first = epoch * self.number_of_batches

        def read(number: tf.Tensor) -> Any:
            shapes = self.shapes
            arrays = tf.numpy_function(self.arrays, [number], [tf.int32] * len(shapes), stateful=False)
            return self.assemble(
                [tf.ensure_shape(array, shape) for array, shape in zip(arrays, shapes, strict=True)], number
            )

        return tf.data.Dataset.range(first + skip_batches, first + self.number_of_batches).map(read)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shapes of `arrays`."""
        return [(self._share, self._length + 1), (self._share,)]

    def assemble(self, arrays: list[tf.Tensor], number: tf.Tensor) -> Any:
        """Returns what a batch is; a graph function.

        Args:
            arrays: The tensors of `arrays`.
            number: The number of the batch since the beginning of the training, int64.
        """
        return tuple(arrays)

    def arrays(self, number: int) -> list[np.ndarray]:
        """Reads the rows of a batch: tokens int32 `(rows, length + 1)` and how many each has, int32 `(rows,)`.

        Args:
            number: The number of the batch since the beginning of the training.
        """
        places = int(number) * self._batch_size + self._first + np.arange(self._share)
        corpora, rows = self._order.rows_at(places)
        tokens = np.zeros((self._share, self._length + 1), np.int32)
        lengths = np.zeros(self._share, np.int32)
        for index in np.unique(corpora):
            chosen = corpora == index
            tokens[chosen], lengths[chosen] = self._corpora[index].read(rows[chosen])
        return [tokens, lengths]


class CorpusRows(CorpusBatches):
    """Batches for a language model that predicts each next token: `(inputs, labels, sample_weight)`.

    Args:
        corpora: See `CorpusBatches`.
        separate: Whether tokens see their own document only, with positions from its beginning or that of the row; what
            follows an end token is then not predicted.
        **options: See `CorpusBatches`.
    """

    def __init__(self, corpora: Sequence[Corpus], *, separate: bool, **options: Any) -> None:
        self._separate, self._end_id = separate, corpora[0].end_id
        super().__init__(corpora, **options)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return [*super().shapes, *([(self._share, self._length)] * 2 if self._separate else [])]

    def arrays(self, number: int) -> list[np.ndarray]:
        tokens, lengths = super().arrays(number)
        return [tokens, lengths, *(document_places(tokens, lengths, self._end_id) if self._separate else [])]

    def assemble(self, arrays: list[tf.Tensor], number: tf.Tensor) -> Any:
        tokens, lengths, *places = arrays
        token_ids, labels = tokens[:, :-1], tokens[:, 1:]
        mask = tf.sequence_mask(lengths - 1, self._length)
        inputs = {"token_ids": token_ids, "padding_mask": mask}
        if not self._separate:
            return inputs, labels, tf.cast(mask, tf.float32)
        inputs["sequence_ids"], inputs["positions"] = places
        return inputs, labels, tf.cast(mask & (token_ids != self._end_id), tf.float32)


def document_places(tokens: np.ndarray, lengths: np.ndarray, end_id: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the number of the document of each token that is fed, from 0, and its position there.

    Args:
        tokens: Rows, `(rows, length + 1)`.
        lengths: How many tokens each has, `(rows,)`; of the rest, and of the last, the number is -1 and the position 0.
        end_id: The token behind each document.

    Returns:
        Both int32 `(rows, length)`.
    """
    places = np.arange(tokens.shape[1] - 1, dtype=np.int32)[None]
    begins = np.zeros((len(tokens), places.shape[1]), bool)
    begins[:, 1:] = tokens[:, :-2] == end_id
    mask = places < lengths[:, None] - 1
    starts = np.maximum.accumulate(np.where(begins, places, 0), axis=1)
    numbers = np.cumsum(begins, axis=1, dtype=np.int32)
    return np.where(mask, numbers, np.int32(-1)), np.where(mask, places - starts, np.int32(0))


class CorpusExamples(CorpusBatches):
    """Batches that the preprocessor of an encoder makes of the rows, such as those of a masked language model.

    Args:
        corpora: See `CorpusBatches`.
        preprocessor: The preprocessor, whose `collate` takes ragged "ids".
        **options: See `CorpusBatches`.
    """

    def __init__(self, corpora: Sequence[Corpus], preprocessor: Any, *, seed: int = 0, **options: Any) -> None:
        self._preprocessor = preprocessor
        # what a batch draws at random; more than 64 bits begin again
        self._drawn = (seed * 10**15 + (1 << 63)) % (1 << 64) - (1 << 63)
        self.number_of_rows, self.number_cut = sum(corpus.rows for corpus in corpora), 0
        super().__init__(corpora, seed=seed, **options)

    def assemble(self, arrays: list[tf.Tensor], number: tf.Tensor) -> Any:
        tokens, lengths = arrays
        # the token behind the last is the first of another row
        ids = tf.RaggedTensor.from_tensor(tokens[:, :-1], lengths=tf.minimum(lengths, self._length))
        inputs, labels, weights = self._preprocessor.collate({"ids": ids}, None, None, self._drawn + number)
        return inputs, labels, weights
