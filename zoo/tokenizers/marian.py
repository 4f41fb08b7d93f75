"""The tokenizer of Marian's translation models: a SentencePiece model per language, and one vocabulary for both."""

from __future__ import annotations

import functools
import json
import os
from typing import TYPE_CHECKING, Any

import keras

from zoo.storage import errors_of_file, quote, read_bytes
from zoo.tokenizers.base import Tokenizer
from zoo.tokenizers.distinct import Tokens
from zoo.tokenizers.offsets import to_characters
from zoo.tokenizers.sentencepiece_check import MOST_BYTES, parse_model
from zoo.tokenizers.sentencepiece_operations import SentencePieceOperations
from zoo.tokenizers.tensors import import_tensorflow, row_ids
from zoo.tokenizers.vocabulary_files import in_order_of_ids, read_vocabulary

if TYPE_CHECKING:
    import tensorflow as tf

SOURCE_FILE, TARGET_FILE, VOCABULARY_FILE = "source.spm", "target.spm", "vocab.json"
_SPACE = "\u2581"
# ">>fr<<" in front of a text names the language to translate it to
_LANGUAGE = r"(?s)^(>>.*?<<).*$"


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class MarianTokenizer(Tokenizer, kind="marian"):
    """Marian's tokenizer: a SentencePiece model for sources, another for targets, and one vocabulary for both.

    `tokenize` is for sources, `of_targets.tokenize` for targets. `detokenize` is the same for both. A source may begin
    with the target language, such as ">>fr<<". A piece that is not in the vocabulary becomes `unknown_token`.

    Args:
        vocabulary: All tokens, in the order of their ids.
        source_proto, target_proto: Serialized `ModelProto`s, the content of `source.spm` and `target.spm`.
        pad_token, end_token, unknown_token: The tokens in these roles.

    Raises:
        TypeError: A model is not bytes.
        ValueError: A model is damaged, or a token is not in the vocabulary.

    Example:

    >>> tokenizer = MarianTokenizer.from_files("opus/vocab.json", "opus/source.spm", "opus/target.spm")
    >>> tokenizer.detokenize(tokenizer.of_targets.tokenize(["Ein Hund."])).numpy()
    array([b'Ein Hund.'], dtype=object)

    Reference:
        Junczys-Dowmunt et al. (2018), "Marian: Fast Neural Machine Translation in C++"; Tiedemann and Thottingal
        (2020), "OPUS-MT - Building open translation services for the World".
    """

    # texts only ever grow
    unstable_tokens = 0
    space = _SPACE

    def __init__(
        self,
        vocabulary: list[str],
        source_proto: bytes,
        target_proto: bytes,
        *,
        pad_token: str | None = "<pad>",
        end_token: str | None = "</s>",
        unknown_token: str = "<unk>",
    ) -> None:
        for name, proto in (("source_proto", source_proto), ("target_proto", target_proto)):
            if not isinstance(proto, bytes):
                raise TypeError(f"{name} must be the content of a model file as bytes, got {type(proto).__name__}.")
        super().__init__(vocabulary, pad_token=pad_token, end_token=end_token, unknown_token=unknown_token)
        self.source_proto, self.target_proto = source_proto, target_proto
        parts = []
        for name, proto in ((SOURCE_FILE, source_proto), (TARGET_FILE, target_proto)):
            with errors_of_file(name):
                parse_model(proto)
                parts.append(SentencePieceOperations(proto))
        self._operations, self._target_operations = parts
        tf = import_tensorflow()
        with tf.init_scope(), tf.device("CPU:0"):
            self._table = tf.lookup.StaticHashTable(
                tf.lookup.KeyValueTensorInitializer(tf.constant(vocabulary), tf.range(len(vocabulary), dtype=tf.int32)),
                default_value=self.unknown_id,
            )

    @classmethod
    def from_files(
        cls,
        vocabulary: str | os.PathLike[str],
        source: str | os.PathLike[str],
        target: str | os.PathLike[str],
        **roles: str | None,
    ) -> MarianTokenizer:
        """Reads `vocab.json`, `source.spm` and `target.spm`.

        Args:
            vocabulary, source, target: The files.
            **roles: `pad_token`, `end_token`, `unknown_token`, as for the constructor.

        Raises:
            FileNotFoundError: A file is missing.
            ValueError: A file is damaged, or a token is not in the vocabulary.
        """
        with errors_of_file(vocabulary):
            tokens = in_order_of_ids(read_vocabulary(read_bytes(vocabulary, MOST_BYTES), vocabulary))
        return cls(tokens, read_bytes(source, MOST_BYTES), read_bytes(target, MOST_BYTES), **roles)

    @functools.cached_property
    def of_targets(self) -> MarianTokenizer:
        copy = self._copy()
        copy._operations = self._target_operations
        return copy

    @property
    def trackables(self) -> list[Any]:
        return [self._operations.resource, self._target_operations.resource, self._table]

    def _tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        tf = import_tensorflow()
        codes, texts = self._split_language(texts)
        pieces = self._operations.tokenize(texts, pieces=True)
        return tf.concat([codes, self._look_up(pieces)], axis=1)

    def _tokenize_with_offsets(self, texts: tf.Tensor) -> Tokens:
        tf = import_tensorflow()
        codes, rest = self._split_language(texts)
        pieces, starts, ends = self._operations.tokenize_with_offsets(rest, pieces=True)
        ids = self._look_up(pieces)
        # positions in what stands behind the language, moved to the right by its bytes
        lengths = tf.strings.length(texts) - tf.strings.length(rest)
        shift = tf.gather(lengths, row_ids(ids.row_splits))
        widths = tf.boolean_mask(lengths, lengths > 0)
        all_ids = tf.concat([codes, ids], axis=1)
        starts, ends = (tf.cast(positions, tf.int32) + shift for positions in (starts, ends))
        starts = tf.concat([codes.with_values(tf.zeros_like(widths)), ids.with_values(starts)], axis=1).values
        ends = tf.concat([codes.with_values(widths), ids.with_values(ends)], axis=1).values
        return Tokens(all_ids, *to_characters(texts, all_ids, starts, ends))

    def _look_up(self, pieces: tf.RaggedTensor) -> tf.RaggedTensor:
        """The ids of pieces, none of them that of a special token, even where unknown characters spell it."""
        tf = import_tensorflow()
        ids = self._table.lookup(pieces.values)
        return pieces.with_values(tf.where(self.are_silent(ids), self.unknown_id, ids))

    def _split_language(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """The ids of languages in front of texts, none or one in each row, and the texts behind them."""
        tf = import_tensorflow()
        has_code = tf.strings.regex_full_match(texts, _LANGUAGE)
        codes = tf.where(has_code, tf.strings.regex_replace(texts, _LANGUAGE, r"\1"), "")
        rest = tf.strings.substr(texts, tf.strings.length(codes), tf.fill(tf.shape(texts), 2**31 - 1))
        ids = self._table.lookup(tf.boolean_mask(codes, has_code))
        return tf.RaggedTensor.from_row_lengths(ids, tf.cast(has_code, tf.int64), validate=False), rest

    def _detokenize(self, ids: tf.RaggedTensor) -> tf.Tensor:
        later = [token.replace(_SPACE, " ") for token in self._vocabulary]
        return self._join(ids, [text.removeprefix(" ") for text in later], later)

    def _spelled_by_no_text(self, tokens: Any) -> bool:
        # no text becomes a special token unless it is asked for
        return set(tokens) <= set(self.special_tokens)

    def _config(self) -> dict[str, Any]:
        roles = {"pad_token": self.pad_id, "end_token": self.end_id, "unknown_token": self.unknown_id}
        return {role: None if index is None else self.id_to_token(index) for role, index in roles.items()}

    def _files(self) -> dict[str, bytes]:
        return self.vocabulary_files()

    def vocabulary_files(self) -> dict[str, bytes]:
        """Returns the content of `vocab.json`, `source.spm` and `target.spm`."""
        vocabulary = json.dumps(self._ids, ensure_ascii=False, indent=0).encode("utf-8")
        return {VOCABULARY_FILE: vocabulary, SOURCE_FILE: self.source_proto, TARGET_FILE: self.target_proto}

    @classmethod
    def _from_files(cls, files: dict[str, bytes], config: dict[str, Any]) -> MarianTokenizer:
        names = (VOCABULARY_FILE, SOURCE_FILE, TARGET_FILE)
        for name in names:
            if name not in files:
                raise ValueError(f"A marian tokenizer needs the files {names}, got {quote(sorted(files))}.")
        vocabulary, source, target = (files[name] for name in names)
        return cls(in_order_of_ids(read_vocabulary(vocabulary, VOCABULARY_FILE)), source, target, **config)
