"""Splits and merges words as byte-level BPE does; a word that is one token is looked up."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.tokenizers.byte_alphabet import (
    byte_characters,
    byte_to_code_point,
    merging_model,
    missing_bytes_of,
    to_bytes,
)
from zoo.tokenizers.known_words import KnownWords
from zoo.tokenizers.sentencepiece_operations import SentencePieceOperations
from zoo.tokenizers.special_tokens import StringIndex
from zoo.tokenizers.split_patterns import WordSplitter
from zoo.tokenizers.tensors import as_utf8, import_tensorflow, keep_values, repeat

if TYPE_CHECKING:
    import tensorflow as tf


class ByteLevelWords:
    """Tokenizes words by byte-level BPE.

    Args:
        ids: Id of each token. A byte is written as one printable character.
        scores: Rank of the last merge of each token that merging reaches (`merge_scores`).
        as_spelled: Tokens that are not written in this alphabet. No word becomes one of them.
        split: Keys of `PATTERNS`.
        normalization: `None` or `"NFC"`.
        whole_words_first: Whether a word that is a token becomes that token, whatever the merges say.
        unknown_id: The token of a byte that has none of its own; None where such bytes are dropped before merging.

    Attributes:
        resources: What a SavedModel must track.

    Raises:
        ValueError: A key of `split` is not known.
    """

    def __init__(
        self,
        ids: Mapping[str, int],
        scores: Mapping[str, int],
        *,
        as_spelled: Collection[str],
        split: Sequence[str],
        normalization: str | None,
        whole_words_first: bool,
        unknown_id: int | None,
    ) -> None:
        self._splitter = WordSplitter(split)
        self._normalization = normalization
        self._unknown_id = unknown_id
        self._count = len(ids)
        missing = missing_bytes_of(ids)
        self._has_token = np.isin(np.arange(256), missing, invert=True)
        self._drops = bool(missing) and unknown_id is None
        self._model = SentencePieceOperations(merging_model(list(ids), scores))
        known = [token for token in ids if token in scores or token in byte_characters()]
        self._out_of_reach = None
        if whole_words_first:
            out_of_reach = [
                token for token in ids if len(token) > 1 and token not in scores and token not in as_spelled
            ]
            if out_of_reach:
                known += out_of_reach
                self._out_of_reach = StringIndex(out_of_reach, [ids[token] for token in out_of_reach])
        self._known = self._find_known({to_bytes(token): ids[token] for token in known if token not in as_spelled})
        self.resources: list[Any] = [self._model.resource, self._known.resource]

    def _find_known(self, ids: Mapping[bytes, int]) -> KnownWords:
        """Those of the tokens that are a single word as texts, in normal form."""
        tf = import_tensorflow()
        # the splitter reads U+0000 as U+0001
        contents = [content for content in ids if _is_utf8(content) and b"\x01" not in content]
        with tf.init_scope(), tf.device("CPU:0"):
            texts = tf.constant(contents, tf.string, shape=[len(contents)])
            owners = self._splitter(texts)[1].numpy()
            is_normal = (self.normalize(texts) == texts).numpy()
        is_known = (np.bincount(owners, minlength=len(contents)) == 1) & is_normal
        words = [contents[place] for place in np.flatnonzero(is_known)]
        return KnownWords(words, [ids[word] for word in words])

    def normalize(self, texts: tf.Tensor) -> tf.Tensor:
        """Returns valid UTF-8 in normal form."""
        if not self._normalization:
            return texts
        import tensorflow_text

        return tensorflow_text.normalize_utf8(texts, self._normalization)

    def tokenize(self, words: tf.Tensor) -> tf.RaggedTensor:
        """`tf.string` `(words,)` to ragged int32 ids `(words, None)`. The words may be several to the splitter."""
        tf = import_tensorflow()
        return self._known.tokenize(words, lambda places: self._split_and_merge(tf.gather(words, places)))

    def _split_and_merge(self, texts: tf.Tensor) -> tf.RaggedTensor:
        tf = import_tensorflow()
        words = self.normalize(as_utf8(texts))
        parts, owners = self._splitter(words)
        # Latin-1 reads each byte as the character of that number.
        contents = tf.RaggedTensor.from_row_lengths(
            tf.strings.unicode_decode(words, "ISO-8859-1").values,
            tf.cast(tf.strings.length(parts), tf.int64),
            validate=False,
        )

        def merge(places: Any) -> Any:
            rest = self._without_dropped(tf.gather(contents, places))
            characters = tf.gather(tf.constant(byte_to_code_point()), rest.values)
            return self._merge(tf.strings.unicode_encode(rest.with_values(characters), "UTF-8"))

        pieces = self._known.tokenize(parts, merge)
        part_splits = tf.searchsorted(owners, tf.range(tf.size(texts, out_type=tf.int64) + 1))
        return tf.RaggedTensor.from_row_splits(pieces.values, tf.gather(pieces.row_splits, part_splits), validate=False)

    def _without_dropped(self, contents: tf.RaggedTensor) -> tf.RaggedTensor:
        """Ragged bytes without those that are dropped, so that those around them merge."""
        if not self._drops:
            return contents
        tf = import_tensorflow()
        is_kept = tf.gather(tf.constant(self._has_token), contents.values)
        return keep_values(contents, is_kept)

    def from_kept(
        self, words: tf.Tensor, ids: tf.RaggedTensor, starts: tf.Tensor, ends: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Converts positions among the bytes that are not dropped to positions among all bytes.

        Args:
            words: `tf.string` `(words,)`, valid UTF-8 in normal form.
            ids: Their tokens, ragged `(words, None)`.
            starts, ends: Flat int32 positions of the tokens.
        """
        if not self._drops:
            return starts, ends
        tf = import_tensorflow()
        contents = tf.strings.unicode_decode(words, "ISO-8859-1")
        places = tf.ragged.range(contents.row_lengths()).with_row_splits_dtype(tf.int64)
        is_kept = tf.gather(tf.constant(self._has_token), contents.values)
        kept = keep_values(places, is_kept)
        first = repeat(kept.row_starts(), ids.row_lengths())
        begins, lasts = (
            tf.cast(tf.gather(kept.values, first + tf.cast(part, tf.int64)), tf.int32) for part in (starts, ends - 1)
        )
        return begins, lasts + 1

    def _merge(self, parts: tf.Tensor) -> tf.RaggedTensor:
        ids = self._merge_known(parts)
        if self._unknown_id is None:
            return ids
        return ids.with_values(import_tensorflow().where(ids.values < self._count, ids.values, self._unknown_id))

    def _merge_known(self, parts: tf.Tensor) -> tf.RaggedTensor:
        tf = import_tensorflow()
        if self._out_of_reach is None:
            return self._model.tokenize(parts)
        whole = self._out_of_reach(parts)
        # What is a token already is left to the model as an empty string and then put in its place.
        merged = self._model.tokenize(tf.where(whole >= 0, "", parts))
        ids = tf.RaggedTensor.from_row_lengths(
            tf.boolean_mask(whole, whole >= 0), tf.cast(whole >= 0, tf.int64), validate=False
        )
        return tf.concat([merged, ids], axis=1)


def _is_utf8(content: bytes) -> bool:
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
