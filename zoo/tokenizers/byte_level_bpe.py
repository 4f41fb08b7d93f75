"""Byte-level BPE tokenizer of GPT-2, RoBERTa, Llama 3, Qwen and others."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from zoo.storage import errors_of_file, quote, read_bytes
from zoo.storage.json_files import MOST_BYTES as MOST_JSON_BYTES
from zoo.tokenizers.base import Tokenizer
from zoo.tokenizers.byte_alphabet import byte_characters, missing_bytes_of, to_bytes
from zoo.tokenizers.byte_level_words import ByteLevelWords
from zoo.tokenizers.chat.chat_format import ChatFormat
from zoo.tokenizers.distinct import Tokens, cumulative_in_rows, tokens_of_words
from zoo.tokenizers.merge_ranks import merge_scores
from zoo.tokenizers.offsets import to_bytes as to_bytes_of_text
from zoo.tokenizers.offsets import to_characters
from zoo.tokenizers.spaced_words import words_at_spaces
from zoo.tokenizers.special_tokens import RE2_SPACE
from zoo.tokenizers.tensors import as_utf8, import_tensorflow, join_rows, repeat
from zoo.tokenizers.vocabulary_files import in_order_of_ids, read_merges, read_vocabulary

if TYPE_CHECKING:
    import tensorflow as tf

_VOCABULARY_FILE = "vocab.json"
_MERGES_FILE = "merges.txt"
# All known patterns split a text at a single space between two characters that are no white space.
_APART = f"(?s)[^{RE2_SPACE}](?:.*[^{RE2_SPACE}])?"


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class ByteLevelBPETokenizer(Tokenizer, kind="byte_level_bpe"):
    """Byte-level byte pair encoding, which covers any text and restores every valid text exactly.

    A text is split into words by the model's regular expression. The bytes of each word are merged pair by pair, in the
    order of the merges. Ids equal those of the `tokenizers` library. Bytes that are not valid UTF-8 are read as U+FFFD.
    `detokenize` always returns valid UTF-8; an unfinished character becomes U+FFFD.

    Some vocabularies lack tokens for bytes that their training text did not have, such as control characters
    (SmolLM2: 21 bytes). `missing_bytes` says what becomes of these bytes. Texts with them are not restored.

    Args:
        vocabulary: Tokens in the order of their ids, or a mapping from token to id. Each byte is written as one
            printable character (a space is `Ġ`). Special and added tokens are written as plain text.
        merges: Pairs of tokens, the first merged first.
        split: `"gpt2"` (also RoBERTa), `"llama3"`, `"qwen2"`, `"gpt4o"` or `"bloom"`; or several patterns that are
            applied in turn, such as `("digits", "gpt2")` of SmolLM2 and `("numbers", "han_kana", "deepseek_v3")`.
        add_prefix_space: Whether to put a space before a text that does not begin with one.
        normalization: None, or `"NFC"` as in Qwen.
        whole_words_first: Whether a word that is a token becomes that token in spite of the merges (Llama 3's
            `ignore_merges`).
        missing_bytes: What becomes of bytes without a token: None if there must be none, `"drop"` to leave them out
            before merging, or `"unknown"` for one unknown token each.
        pad_token, start_token, end_token, unknown_token, mask_token, special_tokens, added_tokens, strip_left,
            strip_right, single_words, adds_start, adds_end, chat_format: As for
            `Tokenizer`. The unknown token comes up only with
            `missing_bytes="unknown"`.

    Raises:
        ValueError: A byte without `missing_bytes`, or a merged token, is not in the vocabulary, a token occurs twice,
            ids have gaps, or an argument is not one of the values above.

    Example:

    >>> tokenizer = ByteLevelBPETokenizer.from_files("vocab.json", "merges.txt", end_token="<|endoftext|>")
    >>> tokenizer.tokenize(["Hello world"]).to_list()
    [[15496, 995]]

    Reference:
        Radford et al. (2019), Language Models are Unsupervised Multitask Learners, section 2.2; Sennrich et al. (2016),
        Neural Machine Translation of Rare Words with Subword Units, section 3.2.
    """

    unstable_tokens = 0
    space = "\u0120"

    def __init__(
        self,
        vocabulary: Sequence[str] | Mapping[str, int],
        merges: Iterable[tuple[str, str]],
        *,
        split: str | Sequence[str] = "gpt2",
        add_prefix_space: bool = False,
        normalization: str | None = None,
        whole_words_first: bool = False,
        missing_bytes: str | None = None,
        pad_token: str | None = None,
        start_token: str | None = None,
        end_token: str | None = None,
        unknown_token: str | None = None,
        mask_token: str | None = None,
        special_tokens: Sequence[str] = (),
        added_tokens: Sequence[str] = (),
        strip_left: Sequence[str] = (),
        strip_right: Sequence[str] = (),
        single_words: Sequence[str] = (),
        adds_start: bool | None = None,
        adds_end: bool | None = None,
        chat_format: dict[str, Any] | str | ChatFormat | None = None,
    ) -> None:
        super().__init__(
            in_order_of_ids(vocabulary) if isinstance(vocabulary, Mapping) else vocabulary,
            pad_token=pad_token,
            start_token=start_token,
            end_token=end_token,
            unknown_token=unknown_token,
            mask_token=mask_token,
            special_tokens=special_tokens,
            added_tokens=added_tokens,
            strip_left=strip_left,
            strip_right=strip_right,
            single_words=single_words,
            adds_start=adds_start,
            adds_end=adds_end,
            chat_format=chat_format,
        )
        if normalization not in (None, "NFC"):
            raise ValueError(f"normalization must be None or 'NFC', got {quote(normalization)}.")
        self._split = (split,) if isinstance(split, str) else tuple(split)
        self._choices = {
            "split": list(self._split),
            "add_prefix_space": bool(add_prefix_space),
            "normalization": normalization,
            "whole_words_first": bool(whole_words_first),
        }
        self._missing_bytes = missing_bytes
        self._merges = [tuple(pair) for pair in merges]
        as_spelled = {*self.special_tokens, *self._added}
        self._check_missing_bytes(as_spelled)
        self._bytes = [token.encode("utf-8") if token in as_spelled else to_bytes(token) for token in self._vocabulary]
        self._byte_lengths = np.array([len(content) for content in self._bytes], np.int32)
        if missing_bytes == "unknown":
            self._byte_lengths[self.unknown_id] = 1
        self._words = ByteLevelWords(
            self._ids,
            merge_scores(self._ids, self._merges),
            as_spelled=as_spelled,
            split=self._split,
            normalization=normalization,
            whole_words_first=whole_words_first,
            unknown_id=self.unknown_id if missing_bytes == "unknown" else None,
        )

    def _check_missing_bytes(self, as_spelled: Collection[str]) -> None:
        choice, missing = self._missing_bytes, missing_bytes_of(self._ids)
        if choice not in (None, "drop", "unknown"):
            raise ValueError(f"missing_bytes must be None, 'drop' or 'unknown', got {quote(choice)}.")
        if choice == "unknown" and self.unknown_id is None:
            raise ValueError("missing_bytes='unknown' needs an unknown_token, got None.")
        if not missing:
            return
        first = byte_characters()[missing[0]]
        if choice is None:
            raise ValueError(
                f"vocabulary must hold a token for each of the 256 bytes, got none for {len(missing)} of them; the "
                f"first is {missing[0]:#04x}, spelled {quote(first)}. Or set missing_bytes to 'drop' or 'unknown'."
            )
        if self._choices["whole_words_first"]:
            characters = {byte_characters()[byte] for byte in missing}
            for token in self._vocabulary:
                if token not in as_spelled and not characters.isdisjoint(token):
                    raise ValueError(
                        "whole_words_first must be False where a token holds a byte that has no token of its own, "
                        f"got True with {quote(token)}."
                    )

    @classmethod
    def from_files(
        cls, vocabulary: str | os.PathLike[str], merges: str | os.PathLike[str], **options: Any
    ) -> ByteLevelBPETokenizer:
        """Reads `vocab.json` and `merges.txt`.

        Args:
            vocabulary: JSON object from token to id.
            merges: One pair per line, separated by a space; a first line that begins with `#version` is skipped.
            **options: Further arguments of the constructor. The files do not say which tokens are special.

        Raises:
            FileNotFoundError: A file is missing.
            ValueError: A file is not what it should be.
        """
        contents = [read_bytes(path, MOST_JSON_BYTES) for path in (vocabulary, merges)]
        tokens, pairs = read_vocabulary(contents[0], vocabulary), read_merges(contents[1], merges)
        with errors_of_file(f"{vocabulary}, {merges}"):
            return cls(tokens, pairs, **options)

    @classmethod
    def train(
        cls,
        texts: Iterable[str | bytes],
        vocabulary_size: int,
        *,
        split: str | Sequence[str] = "gpt2",
        end_token: str = "<|endoftext|>",
        special_tokens: Sequence[str] = (),
        min_frequency: int = 2,
        **options: Any,
    ) -> ByteLevelBPETokenizer:
        """Learns merges. The same texts in the same order give the same merges.

        The special tokens get the first ids, followed by the 256 bytes. The end token is also the start and padding
        token, unless `options` name others, which must be in `special_tokens`.

        Args:
            texts: Lines of text, read once.
            vocabulary_size: Number of all tokens. Fewer are learned if the texts do not allow more.
            split: As for the constructor.
            end_token: The token that ends a text.
            special_tokens: Further special tokens.
            min_frequency: Pairs that occur less often are not merged.
            **options: Further arguments of the constructor.

        Raises:
            TypeError: A text is not `str` or `bytes`.
            ValueError: No text, a text that is not UTF-8, or a vocabulary too small for the bytes.
        """
        from zoo.tokenizers.training import train_byte_level_bpe

        vocabulary, merges = train_byte_level_bpe(
            texts,
            vocabulary_size,
            split=(split,) if isinstance(split, str) else tuple(split),
            special_tokens=[end_token, *special_tokens],
            min_frequency=min_frequency,
            add_prefix_space=options.get("add_prefix_space", False),
            normalization=options.get("normalization"),
        )
        roles = {"pad_token": end_token, "start_token": end_token, **options}
        return cls(vocabulary, merges, split=split, end_token=end_token, special_tokens=special_tokens, **roles)

    @property
    def merges(self) -> list[tuple[str, str]]:
        """Pairs of tokens, the first merged first."""
        return list(self._merges)

    @property
    def trackables(self) -> list[Any]:
        return self._words.resources

    @property
    def _words_need_space(self) -> bool:
        return True

    def _tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        texts, _ = self._with_prefix(texts)
        return self._tokenize_words(texts, with_offsets=False).ids

    def _tokenize_with_offsets(self, texts: tf.Tensor) -> Tokens:
        tf = import_tensorflow()
        texts, is_prefixed = self._with_prefix(texts)
        tokens = self._tokenize_words(texts, with_offsets=True)
        # a token that is nothing but the added space counts as part of the first character
        shift = repeat(tf.cast(is_prefixed, tf.int32), tokens.ids.row_lengths())
        return Tokens(tokens.ids, tf.maximum(tokens.starts - shift, 0), tf.maximum(tokens.ends - shift, shift))

    def _with_prefix(self, texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The texts, with a space in front where the model wants one, and whether each got it."""
        tf = import_tensorflow()
        if not self._choices["add_prefix_space"]:
            return texts, tf.zeros_like(texts, tf.bool)
        is_prefixed = (texts != "") & (tf.strings.substr(texts, 0, 1) != " ")
        return tf.where(is_prefixed, tf.strings.join([" ", texts]), texts), is_prefixed

    def _tokenize_words(self, texts: tf.Tensor, with_offsets: bool) -> Tokens:
        words, places, row_splits, starts = words_at_spaces(texts, _APART, with_starts=with_offsets)
        return tokens_of_words(self._encode_words(words, with_offsets), places, row_splits, starts)

    def _encode_words(self, words: tf.Tensor, with_offsets: bool) -> Tokens:
        tf = import_tensorflow()
        ids = self._words.tokenize(words)
        if not with_offsets:
            return Tokens(ids)
        texts = as_utf8(words)
        token_lengths = tf.gather(tf.constant(self._byte_lengths), ids.values)
        ends = cumulative_in_rows(token_lengths, ids.row_splits)
        normal = self._words.normalize(texts)
        starts, ends = self._words.from_kept(normal, ids, ends - token_lengths, ends)
        if self._choices["normalization"]:
            starts, ends = self._before_normalization(texts, normal, ids, starts, ends)
        return Tokens(ids, *to_characters(texts, ids, starts, ends))

    def _before_normalization(
        self, texts: tf.Tensor, words: tf.Tensor, ids: tf.RaggedTensor, starts: tf.Tensor, ends: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Positions in the bytes of the normalized words to positions in those of the texts, by whole characters."""
        tf = import_tensorflow()
        import tensorflow_text

        # the operation takes no row without tokens, as words have whose bytes are all dropped
        lengths = ids.row_lengths()
        texts, words, lengths = (tf.boolean_mask(part, lengths > 0) for part in (texts, words, lengths))
        ids = tf.RaggedTensor.from_row_lengths(ids.values, lengths, validate=False)
        starts, ends = to_bytes_of_text(words, ids, *to_characters(words, ids, starts, ends))
        _, mapping = tensorflow_text.normalize_utf8_with_offsets_map(texts, self._choices["normalization"])
        ragged = (ids.with_values(tf.cast(part, tf.int64)) for part in (starts, ends))
        return tuple(tf.cast(tensorflow_text.find_source_offsets(mapping, part).values, tf.int32) for part in ragged)

    def _detokenize(self, ids: tf.RaggedTensor) -> tf.Tensor:
        tf = import_tensorflow()
        return as_utf8(join_rows(ids.with_values(tf.gather(self._constant("bytes", self._bytes), ids.values))))

    def _spellings(self) -> list[bytes]:
        return self._bytes

    def _config(self) -> dict[str, Any]:
        # left out where it is None, so that earlier versions read what they could write
        missing = {} if self._missing_bytes is None else {"missing_bytes": self._missing_bytes}
        return {**self._choices, **missing, **self._special_config()}

    def _files(self) -> dict[str, bytes]:
        vocabulary = json.dumps(self._ids, ensure_ascii=False)
        merges = "".join(f"{left} {right}\n" for left, right in self._merges)
        return {_VOCABULARY_FILE: vocabulary.encode("utf-8"), _MERGES_FILE: merges.encode("utf-8")}

    @classmethod
    def _from_files(cls, files: dict[str, bytes], config: dict[str, Any]) -> ByteLevelBPETokenizer:
        for name in (_VOCABULARY_FILE, _MERGES_FILE):
            if name not in files:
                raise ValueError(f"A byte_level_bpe tokenizer needs the file {name!r}, got {quote(sorted(files))}.")
        vocabulary, merges = (files[name] for name in (_VOCABULARY_FILE, _MERGES_FILE))
        return cls(read_vocabulary(vocabulary, _VOCABULARY_FILE), read_merges(merges, _MERGES_FILE), **config)
