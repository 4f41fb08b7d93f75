"""Batches of tokenized sentence pairs for `model.fit`, by tf.data."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import numpy as np
import tensorflow as tf

from recipes.common.bucketing import BatchPlan, choose_bucket_lengths, count_batches, plan_batches
from recipes.common.errors import ConfigError, DataError
from recipes.common.resumable import ResumableBatches, require_options
from recipes.common.text_lines import BadLines, OnError
from zoo.tokenizers import Tokenizer, add_start_end

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

    All texts are tokenized once when the object is made; that pass finds the lengths, drops pairs that are too long
    (accounted for in `dropped`) and meets every error in the data. The order of an epoch is a function of the seed and
    the epoch only: call `start_epoch` before each epoch, as a training-state callback does in `on_epoch_begin`.

    Args:
        pairs: Iterable of `(source, target, origin)` texts, such as `ParallelText`. With `cache` False it is iterated
            over again in every epoch and must give the same pairs each time.
        tokenizer: Tokenizer with start, end and padding tokens.
        tokens_per_batch: Most tokens of a batch, source and target together, padding included.
        max_source_length: Longest source in tokens, end token included.
        max_target_length: Longest target in tokens, end token included.
        add_start_token: Whether texts begin with the start token, which counts as the end token does (BART).
        decoder_start_id: What the decoder sees first; None for the start token.
        number_of_buckets: Most distinct lengths.
        shuffle: Whether pairs and batches are shuffled; otherwise short pairs come first.
        seed: Seed of the order, at least 0.
        on_long: "skip" drops and counts pairs that are too long or have no tokens, "raise" stops at the first.
        cache: Whether the token ids stay in memory (2 or 4 bytes a token). If not, the texts are read and tokenized in
            every epoch, `window` pairs at a time, and shuffled and bucketed within such a window.
        window: Number of pairs of a window with `cache` False.

    Attributes:
        dataset, number_of_batches: See `ResumableBatches`.
        number_of_pairs: Pairs of an epoch.
        number_of_tokens: Source and target tokens of an epoch, end tokens included, without padding.
        bucket_lengths: The distinct lengths.
        batch_sizes: Pairs of a batch for each of them.
        dropped: The pairs left out, a `recipes.common.text_lines.BadLines`; `dropped.report()` says it in a line.

    Raises:
        DataError: No pair is left, a pair is too long with `on_long` "raise", or what `pairs` raises.
        ConfigError: An argument is out of range.
        ValueError: The tokenizer lacks a special token.

    Example:

    >>> batches = PairBatches(pairs, tokenizer, tokens_per_batch=8192, max_source_length=256, max_target_length=256)
    >>> batches.start_epoch(3)
    >>> model.fit(batches.dataset, initial_epoch=3, epochs=4)
    """

    def __init__(
        self,
        pairs: Iterable[tuple[str, str, str]],
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
        on_long: OnError = "skip",
        cache: bool = True,
        window: int = 100_000,
    ):
        require_options(
            max_source_length=max_source_length,
            max_target_length=max_target_length,
            number_of_buckets=number_of_buckets,
            window=window,
            seed=seed,
        )
        needs_start = add_start_token or decoder_start_id is None
        for name in (*(["start_id"] if needs_start else []), "end_id", "pad_id"):
            if getattr(tokenizer, name) is None:
                raise ValueError(f"the tokenizer has no {name}, which batches of pairs need")
        self._pairs, self._tokenizer = pairs, tokenizer
        self._text_start_id = tokenizer.start_id if add_start_token else None
        self._decoder_start_id = tokenizer.start_id if decoder_start_id is None else decoder_start_id
        self._added_tokens = 1 + add_start_token
        self._max_lengths = (max_source_length, max_target_length)
        self._shuffle, self._seed, self._window = shuffle, seed, window
        self.dropped = BadLines(on_long)
        self._stored_dtype = np.uint16 if tokenizer.vocabulary_size <= 2**16 else np.int32

        self.number_of_tokens = 0
        with tf.device("CPU:0"):
            lengths, cached = self._read_all(cache)
        self.number_of_pairs = sum(map(len, lengths))
        if not self.number_of_pairs:
            raise DataError(f"no pair of texts is left: {self.dropped.report()}")
        self.bucket_lengths = choose_bucket_lengths(np.concatenate(lengths), number_of_buckets)
        longest = self.bucket_lengths[-1]
        if tokens_per_batch < 2 * longest:
            raise ConfigError(
                f"tokens_per_batch must be at least {2 * longest}, as the longest pair takes {longest} tokens for the "
                f"source and as many for the target; got {tokens_per_batch}"
            )
        self.batch_sizes = [tokens_per_batch // (2 * length) for length in self.bucket_lengths]
        number_of_batches = sum(
            count_batches(window_lengths, self.bucket_lengths, self.batch_sizes) for window_lengths in lengths
        )

        def batches_of_epoch(epoch: tf.Tensor) -> tf.data.Dataset:
            if cached is not None:
                return self._batches_of_window(tf.constant(0, tf.int64), *cached, epoch)
            return self._windows().flat_map(lambda index, rows: self._batches_of_window(index, *rows, epoch))

        super().__init__(number_of_batches, batches_of_epoch)

    def _read_all(self, cache: bool) -> tuple[list[np.ndarray], tuple[tf.RaggedTensor, tf.RaggedTensor] | None]:
        """Tokenize all pairs: the lengths of the rows of each window, and the token ids if they are to be kept."""
        lengths, sources, targets = [], [], []
        for *texts, origins in self._windows_of_texts(_CHUNK_PAIRS if cache else self._window):
            source, target = self._tokenize(*texts)
            self._note_dropped(source, target, origins)
            source, target = self._without_dropped(source, target)
            self.number_of_tokens += len(source.values) + len(target.values)
            lengths.append(_needed_lengths(source, target).numpy())
            if cache:
                sources.append(tf.cast(source, self._stored_dtype))
                targets.append(tf.cast(target, self._stored_dtype))
        if not cache or not lengths:
            return lengths, None
        # In memory everything is one window: pairs from anywhere in the data may share a batch.
        return [np.concatenate(lengths)], (tf.concat(sources, axis=0), tf.concat(targets, axis=0))

    def _windows_of_texts(self, size: int) -> Iterator[tuple[list[str], list[str], list[str]]]:
        iterator = iter(self._pairs)
        while window := list(itertools.islice(iterator, size)):
            sources, targets, origins = zip(*window, strict=True)
            yield list(sources), list(targets), list(origins)

    def _tokenize(self, sources, targets) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
        """Token ids of both sides with the tokens around them."""
        around = (self._text_start_id, self._tokenizer.end_id)
        source, target = (add_start_end(self._tokenizer.tokenize(texts), *around) for texts in (sources, targets))
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
        """The pairs of which each side has a token beside those around it and is not too long."""
        keep = tf.fill([source.nrows()], True)
        for rows, longest in zip((source, target), self._max_lengths, strict=True):
            keep &= (rows.row_lengths() > self._added_tokens) & (rows.row_lengths() <= longest)
        return tf.ragged.boolean_mask(source, keep), tf.ragged.boolean_mask(target, keep)

    def _windows(self) -> tf.data.Dataset:
        """Windows of tokenized pairs, read from the texts: (index, (source ids, target ids))."""
        texts = tf.TensorSpec([None], tf.string)
        windows = tf.data.Dataset.from_generator(
            lambda: (texts[:2] for texts in self._windows_of_texts(self._window)), output_signature=(texts, texts)
        )
        return windows.map(lambda *texts: self._without_dropped(*self._tokenize(*texts))).prefetch(1).enumerate()

    def _batches_of_window(
        self, index: tf.Tensor, source: tf.RaggedTensor, target: tf.RaggedTensor, epoch: tf.Tensor
    ) -> tf.data.Dataset:
        rows, *batches = tf.numpy_function(
            self._plan, [_needed_lengths(source, target), epoch, index], [tf.int64] * 4, stateful=False
        )
        source, target = (_with_empty_row(ids) for ids in (source, target))

        def assemble(start: tf.Tensor, size: tf.Tensor, length: tf.Tensor):
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

    def _plan(self, row_lengths: np.ndarray, epoch: int, window: int) -> BatchPlan:
        generator = np.random.default_rng((self._seed, int(epoch), int(window))) if self._shuffle else None
        return tuple(plan_batches(row_lengths, self.bucket_lengths, self.batch_sizes, generator))

    def _pad(self, ids: tf.RaggedTensor, length: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Dense int32 ids and mask, (batch, length)."""
        ids = tf.cast(ids, tf.int32)
        dense = ids.to_tensor(default_value=self._tokenizer.pad_id, shape=tf.stack([ids.nrows(), length]))
        return tf.ensure_shape(dense, [None, None]), tf.sequence_mask(ids.row_lengths(), length)


def _needed_lengths(source: tf.RaggedTensor, target: tf.RaggedTensor) -> tf.Tensor:
    """The length of the batch that a pair needs: that of its longer side. int64 (rows,)."""
    return tf.maximum(source.row_lengths(), target.row_lengths())


def _with_empty_row(ids: tf.RaggedTensor) -> tf.RaggedTensor:
    """One row without tokens more at the end, which fills up a batch."""
    splits = tf.concat([ids.row_splits, ids.row_splits[-1:]], axis=0)
    return tf.RaggedTensor.from_row_splits(ids.values, splits, validate=False)
