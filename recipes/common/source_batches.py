"""Batches of source texts for decoding: sorted by length, and the results put back in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from recipes.common.bucketing import choose_bucket_lengths, plan_batches
from recipes.common.errors import DataError
from zoo.tokenizers import Tokenizer, add_start_end


class SourceBatches:
    """All texts of a list in batches of few distinct shapes, long ones together.

    Args:
        texts: The texts; an empty one becomes a row with the end token only.
        tokenizer: Tokenizer with end and padding tokens.
        batch_size: Rows of every batch; the last one is filled up with rows whose mask is all false.
        max_length: Longest text in tokens, end token included.
        number_of_buckets: Most distinct lengths.
        on_long: "raise" stops at a text that is too long, "truncate" cuts it before its end token and lists it in
            `truncated`. None is left out, since every text needs a result.

    Attributes:
        dataset: `tf.data.Dataset` of dicts with `encoder_token_ids`, int32 (batch_size, length), and
            `encoder_padding_mask`, bool (batch_size, length); the longest texts come first, so that a lack of memory
            shows at once.
        truncated: Positions in `texts` of the texts that were cut.

    Raises:
        DataError: A text is too long and `on_long` is "raise"; the message names its position.
        ValueError: There is no text, an argument is out of range or the tokenizer lacks a special token.

    Example:

    >>> batches = SourceBatches(texts, tokenizer, batch_size=64, max_length=256)
    >>> outputs = [row for batch in batches.dataset for row in translate(batch)]
    >>> translations = batches.restore_order(outputs)
    """

    def __init__(
        self,
        texts: Sequence[str],
        tokenizer: Tokenizer,
        *,
        batch_size: int,
        max_length: int,
        number_of_buckets: int = 8,
        on_long: Literal["raise", "truncate"] = "raise",
    ):
        if on_long not in ("raise", "truncate"):
            raise ValueError(f"on_long must be 'raise' or 'truncate'; got {on_long!r}")
        for name, value in (("batch_size", batch_size), ("max_length", max_length)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1; got {value}")
        for name in ("end_id", "pad_id"):
            if getattr(tokenizer, name) is None:
                raise ValueError(f"the tokenizer has no {name}, which batches of texts need")
        if isinstance(texts, str) or not len(texts):
            raise ValueError(f"texts must be a list of at least one text; got {texts!r}")
        self._number_of_texts = len(texts)
        self._pad_id = tokenizer.pad_id
        ids = tokenizer.tokenize(list(texts))
        lengths = ids.row_lengths().numpy() + 1
        self.truncated = np.nonzero(lengths > max_length)[0].tolist()
        if self.truncated and on_long == "raise":
            first = self.truncated[0]
            raise DataError(
                f"text number {first + 1} of {len(texts)} has {lengths[first]} tokens with its end token, at most "
                f"{max_length} are possible; {len(self.truncated)} texts are too long"
            )
        # The rows and their end tokens; rows without text at the end fill up a batch.
        rows = add_start_end(ids[:, : max_length - 1], None, tokenizer.end_id)
        self._rows = tf.concat([rows, tf.ragged.constant([[]], dtype=rows.dtype, row_splits_dtype=tf.int64)], axis=0)
        lengths = np.minimum(lengths, max_length)
        bucket_lengths = choose_bucket_lengths(lengths, number_of_buckets)
        self._plan = plan_batches(lengths, bucket_lengths, [batch_size] * len(bucket_lengths))
        self._plan = self._plan._replace(starts=self._plan.starts[::-1], lengths=self._plan.lengths[::-1])
        self._batch_size = batch_size
        self.dataset = self._make_dataset()

    def _make_dataset(self) -> tf.data.Dataset:
        rows = self._plan.rows

        def assemble(start: tf.Tensor, length: tf.Tensor):
            batch = tf.gather(self._rows, tf.gather(rows, tf.range(start, start + self._batch_size)))
            dense = batch.to_tensor(default_value=self._pad_id, shape=tf.stack([self._batch_size, length]))
            return {
                "encoder_token_ids": tf.ensure_shape(dense, [self._batch_size, None]),
                "encoder_padding_mask": tf.sequence_mask(batch.row_lengths(), length),
            }

        return tf.data.Dataset.from_tensor_slices((self._plan.starts, self._plan.lengths)).map(assemble).prefetch(1)

    def restore_order(self, outputs: Sequence[Any]) -> list[Any]:
        """The results of all rows of all batches, in the order of the texts and without those of filled-up rows.

        Args:
            outputs: One result for each row of each batch, in the order of `dataset`.

        Returns:
            One result for each text.

        Raises:
            ValueError: There is another number of results than of rows.

        Example:

        >>> batches.restore_order(["Hund", "Eine Katze schläft"])
        ['Eine Katze schläft', 'Hund']
        """
        order = [row for start in self._plan.starts for row in self._plan.rows[start : start + self._batch_size]]
        if len(outputs) != len(order):
            raise ValueError(f"there must be {len(order)} results, one for each row; got {len(outputs)}")
        restored: list[Any] = [None] * self._number_of_texts
        for row, output in zip(order, outputs, strict=True):
            if row < self._number_of_texts:
                restored[row] = output
        return restored
