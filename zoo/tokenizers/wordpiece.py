"""WordPiece tokenizer of BERT, cased and uncased."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from zoo.storage import errors_of_file, quote, read_bytes
from zoo.storage.json_files import MOST_BYTES
from zoo.tokenizers.base import Tokenizer
from zoo.tokenizers.bert_normalization import character_table, normalize_characters
from zoo.tokenizers.chat.chat_format import ChatFormat
from zoo.tokenizers.distinct import (
    CodePointSet,
    Tokens,
    code_points_of,
    previous,
    tokenize_distinct_words,
    words_at_white_space,
)
from zoo.tokenizers.tensors import import_tensorflow, repeat
from zoo.tokenizers.unicode_ranges import WHITE_SPACE, WHITE_SPACE_AFTER_CLEANING
from zoo.tokenizers.vocabulary_files import read_tokens

if TYPE_CHECKING:
    import tensorflow as tf

_VOCABULARY_FILE = "vocab.txt"
_CONTINUATION = "##"
_MAX_CHARACTERS = 100
_MOST_TOKEN_BYTES = 256  # of the operation that looks for them
# Stands for a word that is too long: a noncharacter, which no vocabulary has.
_UNSPELLABLE = "\uffff"
# What is joined to the word before it when ids become text.
_JOINED = {f" {text}": text for text in (".", "?", "!", ",", "n't", "'m", "'s", "'ve", "'re")}


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class WordPieceTokenizer(Tokenizer, kind="wordpiece"):
    """BERT's tokenizer: words split at white space and punctuation, then pieces of words.

    A word is split from the left into the longest pieces of the vocabulary. Pieces that continue a word begin with
    `##`. A word that cannot be split in this way, or that has more than 100 characters, is one unknown token. Ids equal
    those of the `tokenizers` library. Bytes that are not valid UTF-8 are read as U+FFFD, which `clean_text` removes.

    `detokenize` joins pieces with spaces, except before punctuation. It cannot restore what was removed.

    Args:
        vocabulary: All tokens, in the order of their ids.
        lowercase: Whether to lower-case the text, as in uncased models.
        strip_accents: Whether to remove accents; None for the value of `lowercase`.
        clean_text: Whether to remove control characters, U+0000 and U+FFFD.
        split_ideographs: Whether each CJK ideograph is a separate word.
        pad_token, start_token, end_token, unknown_token, mask_token: Tokens in these roles, each in the vocabulary or
            None. The unknown token is required.
        special_tokens, added_tokens, strip_left, strip_right, single_words, adds_start, adds_end, chat_format: As for
            `Tokenizer`.

    Raises:
        ValueError: A token occurs twice or is empty, or a special token is not in the vocabulary.

    Example:

    >>> tokenizer = WordPieceTokenizer.from_file("vocab.txt", lowercase=True)
    >>> tokenizer.tokenize(["An unaffordable cafe."]).to_list()
    [[2019, 14477, 4246, 8551, 3085, 7668, 1012]]

    Reference:
        Devlin et al. (2019), BERT, section 3 and its code; Wu et al. (2016), Google's Neural Machine Translation
        System, section 4.1; Song et al. (2021), Fast WordPiece Tokenization (the operation that is used here).
    """

    unstable_tokens = 0

    def __init__(
        self,
        vocabulary: Sequence[str],
        *,
        lowercase: bool,
        strip_accents: bool | None = None,
        clean_text: bool = True,
        split_ideographs: bool = True,
        pad_token: str | None = "[PAD]",
        start_token: str | None = "[CLS]",
        end_token: str | None = "[SEP]",
        unknown_token: str = "[UNK]",
        mask_token: str | None = "[MASK]",
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
            vocabulary,
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
        if self.unknown_id is None:
            raise ValueError("unknown_token must be a token, got None: WordPiece needs one for words it can't spell.")
        check_lengths(self._vocabulary, "vocabulary")
        self._choices = {
            "lowercase": bool(lowercase),
            "strip_accents": bool(lowercase if strip_accents is None else strip_accents),
            "clean_text": bool(clean_text),
            "split_ideographs": bool(split_ideographs),
        }
        self._characters = character_table(**self._choices)
        self._find_words = words_at_white_space(CodePointSet(WHITE_SPACE_AFTER_CLEANING if clean_text else WHITE_SPACE))
        control = {*self.special_tokens, *self.single_words} - {unknown_token}
        # no word has a space in it, so none becomes a control token
        spelled = [f" {index}" if token in control else token for index, token in enumerate(self._vocabulary)]
        self._pieces = _make_wordpiece(spelled, unknown_token)
        # Characters of a word that each token stands for: at the beginning of the word, and later in it.
        self._lengths = np.array(
            [[len(token), len(token.removeprefix(_CONTINUATION))] for token in self._vocabulary], np.int32
        )
        self._texts = _decoded_texts(self._vocabulary)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], *, lowercase: bool, **options: Any) -> WordPieceTokenizer:
        """Reads a `vocab.txt`: one token per line, its id is the number of the line, from 0.

        Args:
            path: The file.
            lowercase: Whether the model is uncased. The file does not say it.
            **options: Further arguments of the constructor.

        Raises:
            FileNotFoundError: There is no such file.
            ValueError: It is not UTF-8, or not a vocabulary.
        """
        with errors_of_file(path):
            return cls(read_tokens(read_bytes(path, MOST_BYTES), path), lowercase=lowercase, **options)

    @classmethod
    def train(
        cls,
        texts: Iterable[str | bytes],
        vocabulary_size: int,
        *,
        lowercase: bool,
        special_tokens: Sequence[str] = (),
        min_frequency: int = 2,
        **options: Any,
    ) -> WordPieceTokenizer:
        """Learns a vocabulary. The same texts in the same order give the same vocabulary.

        `[PAD]`, `[UNK]`, `[CLS]`, `[SEP]` and `[MASK]` get the ids 0 to 4; `special_tokens` follow.

        Args:
            texts: Lines of text, read once.
            vocabulary_size: Number of tokens, including the special ones. Fewer are learned if the texts allow no more.
            lowercase: Whether to lower-case.
            special_tokens: Further special tokens.
            min_frequency: Pairs of pieces that occur less often are not merged.
            **options: `strip_accents`, `clean_text`, `split_ideographs`, as for the constructor.

        Raises:
            TypeError: A text is not `str` or `bytes`.
            ValueError: No text, a text that is not UTF-8, or a vocabulary too small for the characters of the texts.
        """
        from zoo.tokenizers.training import train_wordpiece

        vocabulary = train_wordpiece(
            texts,
            vocabulary_size,
            lowercase=lowercase,
            special_tokens=special_tokens,
            min_frequency=min_frequency,
            **options,
        )
        return cls(vocabulary, lowercase=lowercase, special_tokens=special_tokens, **options)

    @property
    def continues_word(self) -> np.ndarray:
        return np.array([token.startswith(_CONTINUATION) for token in self._vocabulary])

    def _tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        return tokenize_distinct_words(texts, self._find_words, self._encode_words, with_offsets=False).ids

    def _tokenize_with_offsets(self, texts: tf.Tensor) -> Tokens:
        return tokenize_distinct_words(texts, self._find_words, self._encode_words, with_offsets=True)

    def _encode_words(self, words: tf.Tensor, with_offsets: bool) -> Tokens:
        """Encodes the parts between white space, in which punctuation and ideographs are words of their own."""
        tf = import_tensorflow()
        characters = normalize_characters(code_points_of(words), self._characters)
        count = tf.size(characters.points, out_type=tf.int64)
        begins_row = tf.scatter_nd(
            characters.row_splits[:-1, tf.newaxis], tf.ones_like(characters.row_splits[:-1], tf.int32), [count + 1]
        )[:-1]
        begins = tf.where((begins_row > 0) | characters.is_alone | previous(characters.is_alone, True))[:, 0]
        parts = tf.RaggedTensor.from_row_splits(
            characters.points, tf.concat([begins, count[tf.newaxis]], axis=0), validate=False
        )
        lengths = parts.row_lengths()
        strings = tf.where(lengths > _MAX_CHARACTERS, _UNSPELLABLE, tf.strings.unicode_encode(parts, "UTF-8"))
        pieces = self._pieces.tokenize(strings)
        ids = tf.RaggedTensor.from_row_splits(
            pieces.values,
            tf.gather(pieces.row_splits, tf.searchsorted(begins, characters.row_splits)),
            validate=False,
        )
        if not with_offsets:
            return Tokens(ids)
        is_first = tf.scatter_nd(
            pieces.row_starts()[:, tf.newaxis],
            tf.ones_like(lengths, tf.int32),
            [tf.size(pieces.values, out_type=tf.int64)],
        )
        token_lengths = tf.where(
            pieces.values == self.unknown_id,
            repeat(tf.cast(lengths, tf.int32), pieces.row_lengths()),
            tf.gather_nd(tf.constant(self._lengths), tf.stack([pieces.values, 1 - is_first], axis=1)),
        )
        ends = tf.cumsum(token_lengths)
        return Tokens(
            ids, tf.gather(characters.sources, ends - token_lengths), tf.gather(characters.sources, ends - 1) + 1
        )

    def _detokenize(self, ids: tf.RaggedTensor) -> tf.Tensor:
        return self._join(ids, *self._texts)

    def _config(self) -> dict[str, Any]:
        return {**self._choices, **self._special_config()}

    def _files(self) -> dict[str, bytes]:
        return {_VOCABULARY_FILE: "".join(f"{token}\n" for token in self._vocabulary).encode("utf-8")}

    @classmethod
    def _from_files(cls, files: dict[str, bytes], config: dict[str, Any]) -> WordPieceTokenizer:
        if _VOCABULARY_FILE not in files:
            raise ValueError(f"A wordpiece tokenizer needs the file {_VOCABULARY_FILE!r}, got {quote(sorted(files))}.")
        return cls(read_tokens(files[_VOCABULARY_FILE], _VOCABULARY_FILE), **config)


def check_lengths(tokens: Sequence[str], name: str) -> None:
    """Checks that no token is longer than the operation allows.

    Args:
        tokens: The tokens.
        name: Their name in the error.

    Raises:
        ValueError: A token has more than 256 bytes.
    """
    for index, token in enumerate(tokens):
        if len(token.removeprefix(_CONTINUATION).encode("utf-8")) > _MOST_TOKEN_BYTES:
            raise ValueError(f"{name}[{index}] must have at most {_MOST_TOKEN_BYTES} bytes, got {quote(token)}.")


def _make_wordpiece(vocabulary: Sequence[str], unknown_token: str) -> Any:
    """The operation that splits words into pieces; its model is a constant, not a resource."""
    tf = import_tensorflow()
    from tensorflow_text import FastWordpieceTokenizer

    with tf.init_scope():
        return FastWordpieceTokenizer(
            list(vocabulary),
            suffix_indicator=_CONTINUATION,
            max_bytes_per_word=4 * _MAX_CHARACTERS,  # longer words are replaced before
            token_out_type=tf.int32,
            unknown_token=unknown_token,
            no_pretokenization=True,
        )


def _decoded_texts(vocabulary: Sequence[str]) -> tuple[list[str], list[str]]:
    """What each token becomes in a text: as the first token, and as a later one."""
    later = []
    for token in vocabulary:
        if token.startswith(_CONTINUATION):
            later.append(token.removeprefix(_CONTINUATION))
            continue
        text = f" {token}"
        for spaced, joined in _JOINED.items():
            text = text.replace(spaced, joined)
        later.append(text)
    return list(vocabulary), later
