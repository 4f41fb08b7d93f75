"""Batches of tokenized sentence pairs for `model.fit`, by tf.data."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from recipes.common.errors import BadLines, ConfigError, DataError, require_options
from zoo.preprocessing import add_start_end
from zoo.tokenizers import Tokenizer
from zoo.training import BatchPlan, ResumableBatches, choose_bucket_lengths, count_batches, plan_batches

_CHUNK_PAIRS = 8192


class PairBatches(ResumableBatches):
    """A reproducible, resumable `tf.data.Dataset` of batches of sentence pairs.

    Each element is `(inputs, labels, sample_weight)`: `inputs` has the keys `encoder_token_ids` (source, end token),
    `encoder_padding_mask`, `decoder_token_ids` (start token, target) and `decoder_padding_mask`; `labels` is the target
    with its end token; `sample_weight` is 1 for its tokens and 0 for padding. All have the shape
    `(batch, length)`; ids are int32, masks bool, weights float32.

    Pairs of similar length share a batch. There are at most `number_of_buckets` distinct shapes, so XLA compiles that
    many times. A batch holds `tokens_per_batch // (2 * length)` pairs. No pair is left out: the last pairs of an epoch
    form a batch that is filled up with rows whose mask and weights are all zero.

    All texts are tokenized once when the object is made; that pass finds the lengths and drops pairs that are too long
    or have no tokens (accounted for in `dropped`). The order of an epoch is a function of the seed and the epoch only:
    call `start_epoch` before each epoch, as a training-state callback does in `on_epoch_begin`.

    Args:
        pairs: `(source, target, origin)` texts.
        tokenizer: Tokenizer with start, end and padding tokens.
        tokens_per_batch: Largest number of tokens of a batch, source, target and padding together.
        max_source_length: Largest number of tokens of a source, end token included.
        max_target_length: Largest number of tokens of a target, end token included.
        add_start_token: Whether texts begin with the start token (BART), which counts as a token of the text.
        decoder_start_id: The first token of the decoder's input; None for the start token.
        number_of_buckets: Largest number of distinct lengths.
        shuffle: Whether pairs and batches are shuffled. Otherwise short pairs come first.
        seed: Seed of the order, at least 0.

    Attributes:
        dataset, number_of_batches: See `ResumableBatches`.
        number_of_pairs: Pairs of an epoch.
        number_of_tokens: Source and target tokens of an epoch, end tokens included, without padding.
        bucket_lengths: The distinct lengths.
        batch_sizes: Pairs of a batch for each of them.
        dropped: The pairs left out, a `recipes.common.errors.BadLines`; `dropped.report()` says it in a line.

    Raises:
        DataError: No pair is left.
        ConfigError: An argument is out of range.
        ValueError: The tokenizer lacks a special token.

    Example:

    >>> batches = PairBatches(pairs, tokenizer, tokens_per_batch=8192, max_source_length=256, max_target_length=256)
    >>> batches.start_epoch(3)
    >>> model.fit(batches.dataset, initial_epoch=3, epochs=4)
    """

    def __init__(
        self,
        pairs: Sequence[tuple[str, str, str]],
        tokenizer: Tokenizer,
        *,
        tokens_per_batch: int,
        max_source_length: int,
        max_target_length: int,
        add_start_token: bool = False,
        decoder_start_id: int | None = None,
        number_of_buckets: int = 8,
        shuffle: bool = True,
        seed: int = 0,
    ) -> None:
        require_options(
            max_source_length=max_source_length,
            max_target_length=max_target_length,
            number_of_buckets=number_of_buckets,
            seed=seed,
        )
        needs_start = add_start_token or decoder_start_id is None
        for name in (*(["start_id"] if needs_start else []), "end_id", "pad_id"):
            if getattr(tokenizer, name) is None:
                raise ValueError(f"the tokenizer has no {name}, which batches of pairs need")
        self._tokenizer = tokenizer
        self._text_start_id = tokenizer.start_id if add_start_token else None
        self._decoder_start_id = tokenizer.start_id if decoder_start_id is None else decoder_start_id
        self._added_tokens = 1 + add_start_token
        self._max_lengths = (max_source_length, max_target_length)
        self._shuffle, self._seed = shuffle, seed
        self.dropped = BadLines("skip")
        self._stored_dtype = np.uint16 if tokenizer.vocabulary_size <= 2**16 else np.int32

        with tf.device("CPU:0"):
            self._source, self._target = self._read(pairs)
        lengths = np.maximum(self._source.row_lengths(), self._target.row_lengths())
        self.number_of_tokens = len(self._source.values) + len(self._target.values)
        self.number_of_pairs = len(lengths)
        if not self.number_of_pairs:
            raise DataError(f"no pair of texts is left: {self.dropped.report()}")
        self._lengths = lengths
        self.bucket_lengths = choose_bucket_lengths(lengths, number_of_buckets)
        longest = self.bucket_lengths[-1]
        if tokens_per_batch < 2 * longest:
            raise ConfigError(
                f"training.tokens_per_batch must be at least {2 * longest}, as the longest pair takes {longest} tokens "
                f"for the source and as many for the target, got {tokens_per_batch}"
            )
        # a batch of more rows than there are would hold nothing but padding there
        sizes = (tokens_per_batch // (2 * length) for length in self.bucket_lengths)
        self.batch_sizes = [min(size, self.number_of_pairs) for size in sizes]
        super().__init__(count_batches(lengths, self.bucket_lengths, self.batch_sizes), self._batches_of_epoch)

    def _read(self, pairs: Sequence[tuple[str, str, str]]) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
        """The token ids of both sides of the pairs that are kept."""
        columns: tuple[list[tf.RaggedTensor], ...] = ([], [])
        for start in range(0, len(pairs), _CHUNK_PAIRS):
            sources, targets, origins = zip(*pairs[start : start + _CHUNK_PAIRS], strict=True)
            sides = self._tokenize(list(sources), list(targets))
            self._note_dropped(*sides, origins)
            for column, side in zip(columns, self._without_dropped(*sides), strict=True):
                column.append(tf.cast(side, self._stored_dtype))
        empty = tf.RaggedTensor.from_row_lengths(tf.zeros([0], self._stored_dtype), tf.zeros([0], tf.int64))
        source, target = (tf.concat([empty, *column], axis=0) for column in columns)
        return source, target

    def _tokenize(self, sources: Sequence[str], targets: Sequence[str]) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
        """Token ids of both sides with the tokens around them."""
        around = (self._text_start_id, self._tokenizer.end_id)
        sides = ((self._tokenizer, sources), (self._tokenizer.of_targets, targets))
        source, target = (add_start_end(tokenizer.tokenize(texts), *around) for tokenizer, texts in sides)
        return source, target

    def _note_dropped(self, source: tf.RaggedTensor, target: tf.RaggedTensor, origins: list[str]) -> None:
        """Account for the pairs that `_without_dropped` leaves out, each by one cause."""
        noted = set()
        for name, rows, longest in zip(("source", "target"), (source, target), self._max_lengths, strict=True):
            lengths = rows.row_lengths().numpy()
            for index in np.nonzero((lengths == self._added_tokens) | (lengths > longest))[0]:
                if index in noted:
                    continue
                noted.add(index)
                if lengths[index] == self._added_tokens:
                    self.dropped.add(f"{name} without tokens", origins[index])
                else:
                    detail = f"it has {lengths[index]}"
                    self.dropped.add(f"{name} longer than {longest} tokens", origins[index], detail)

    def _without_dropped(
        self, source: tf.RaggedTensor, target: tf.RaggedTensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
        """The pairs whose sides each hold a token besides the special tokens around it and are not too long."""
        keep = tf.fill([source.nrows()], True)
        for rows, longest in zip((source, target), self._max_lengths, strict=True):
            keep &= (rows.row_lengths() > self._added_tokens) & (rows.row_lengths() <= longest)
        return tf.ragged.boolean_mask(source, keep), tf.ragged.boolean_mask(target, keep)

    def _batches_of_epoch(self, epoch: tf.Tensor) -> tf.data.Dataset:
        rows, *batches = tf.numpy_function(self._plan, [epoch], [tf.int64] * 4, stateful=False)
        source, target = (_with_empty_row(ids) for ids in (self._source, self._target))

        def assemble(
            start: tf.Tensor, size: tf.Tensor, length: tf.Tensor
        ) -> tuple[dict[str, tf.Tensor], tf.Tensor, tf.Tensor]:
            batch = tf.gather(tf.ensure_shape(rows, [None]), tf.range(start, start + size))
            source_ids, source_mask = self._pad(tf.gather(source, batch), length)
            labels, target_mask = self._pad(tf.gather(target, batch), length)
            # The decoder sees its first token and all of the target but its end.
            shifted = tf.pad(labels[:, :-1], [[0, 0], [1, 0]], constant_values=self._decoder_start_id)
            inputs = {
                "encoder_token_ids": source_ids,
                "encoder_padding_mask": source_mask,
                "decoder_token_ids": tf.where(target_mask, shifted, self._tokenizer.pad_id),
                "decoder_padding_mask": target_mask,
            }
            return inputs, labels, tf.cast(target_mask, tf.float32)

        batches = tuple(tf.ensure_shape(column, [None]) for column in batches)
        return tf.data.Dataset.from_tensor_slices(batches).map(assemble)

    def _plan(self, epoch: int) -> BatchPlan:
        generator = np.random.default_rng((self._seed, int(epoch), 0)) if self._shuffle else None
        return tuple(plan_batches(self._lengths, self.bucket_lengths, self.batch_sizes, generator))

    def _pad(self, ids: tf.RaggedTensor, length: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Dense int32 ids and mask, (batch, length)."""
        ids = tf.cast(ids, tf.int32)
        dense = ids.to_tensor(default_value=self._tokenizer.pad_id, shape=tf.stack([ids.nrows(), length]))
        return tf.ensure_shape(dense, [None, None]), tf.sequence_mask(ids.row_lengths(), length)


def _with_empty_row(ids: tf.RaggedTensor) -> tf.RaggedTensor:
    """One row without tokens more at the end, which fills up a batch."""
    splits = tf.concat([ids.row_splits, ids.row_splits[-1:]], axis=0)
    return tf.RaggedTensor.from_row_splits(ids.values, splits, validate=False)
