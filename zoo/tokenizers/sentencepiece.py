"""SentencePiece tokenizer (unigram and BPE): trained here or loaded from a `*.model` file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from zoo.storage import errors_of_file, quote, read_bytes
from zoo.tokenizers.base import Tokenizer
from zoo.tokenizers.chat.chat_format import ChatFormat
from zoo.tokenizers.chat.formats import get_chat_format
from zoo.tokenizers.distinct import Tokens
from zoo.tokenizers.offsets import to_characters
from zoo.tokenizers.sentencepiece_check import MOST_BYTES, parse_model
from zoo.tokenizers.sentencepiece_operations import SentencePieceOperations
from zoo.tokenizers.sentencepiece_training import train_sentencepiece
from zoo.tokenizers.sentencepiece_words import SentencePieceWords, splits_at_spaces
from zoo.tokenizers.tensors import import_tensorflow, repeat
from zoo.tokenizers.text_steps import TextSteps

if TYPE_CHECKING:
    import tensorflow as tf

_MODEL_FILE = "sentencepiece.model"
_SPACE = "\u2581"


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class SentencePieceTokenizer(Tokenizer, kind="sentencepiece"):
    """Subword tokenizer of a SentencePiece `ModelProto`, which includes its normalization.

    Ids equal those of the `sentencepiece` package, in special cases too:

    * An empty text, or white space that the normalization removes, has no tokens.
    * Each byte that is not valid UTF-8 is read as U+FFFD, the replacement character.
    * Control tokens such as `<eos>` in a text are read as plain text; user-defined special tokens are read as tokens.

    A unigram model may split a text, such as a run of one character, in several ways of equal probability. Versions of
    SentencePiece then choose differently; the choice here is that of TensorFlow Text.

    `detokenize` undoes the splitting, not the normalization. Unknown tokens become the model's text for them, " ⁇ " by
    default. User-defined special tokens become their text.

    Args:
        proto: A serialized `ModelProto`, the content of a `*.model` file.
        pad_token, start_token, end_token: Tokens to use in these roles. None for those of the model, if it has them.
            Mistral's model, for example, has no padding token.
        unknown_token: None, or the model's unknown token.
        mask_token: The mask token of masked language models.
        special_tokens: Special tokens in addition to the model's control tokens.
        added_tokens, strip_left, strip_right, single_words, adds_start, adds_end, chat_format: As for
            `Tokenizer`. User-defined tokens of
            the model need not be named.
        prepend_scheme: Where a space is put before text that does not begin with one: `"first"` at the beginning of a
            text, unless a special token is found there; `"always"` after special tokens too; None for the rule of the
            model, which also puts one before spaces. Only for models that neither add nor remove spaces.
        steps: What is changed in texts before the model sees them, in this order: keys of
            `zoo.tokenizers.text_steps.STEPS`, such as `"lowercase"`, or `"charsmap"` for the normalization of the
            model, which is then not applied again.

    Raises:
        TypeError: `proto` is not bytes.
        ValueError: `proto` is not a SentencePiece model, or a given token is not in it, or the model does not go with
            `prepend_scheme`.

    Example:

    >>> tokenizer = SentencePieceTokenizer.train(sentences, vocabulary_size=8000)
    >>> ids = tokenizer.tokenize(["A small dog.", "Ein kleiner Hund."])
    >>> tokenizer.detokenize(ids).numpy()
    array([b'A small dog.', b'Ein kleiner Hund.'], dtype=object)

    Reference:
        Kudo and Richardson (2018), SentencePiece; Kudo (2018), Subword Regularization, section 3.2 (unigram);
        Sennrich et al. (2016), Neural Machine Translation of Rare Words with Subword Units (BPE).
    """

    unstable_tokens = 0
    space = _SPACE

    def __init__(
        self,
        proto: bytes,
        *,
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
        prepend_scheme: str | None = None,
        steps: Sequence[str] = (),
    ) -> None:
        if not isinstance(proto, bytes):
            raise TypeError(
                f"proto must be the content of a model file as bytes, got {type(proto).__name__}. "
                "To read a file use SentencePieceTokenizer.from_file(path)."
            )
        model = parse_model(proto)
        chat_format = get_chat_format(chat_format)
        if chat_format is not None:
            proto = _with_control(model, proto, chat_format.special_tokens)
        self._step_names = tuple(steps)
        self._steps = TextSteps(steps, model.normalizer_spec.precompiled_charsmap)
        operated = proto
        if "charsmap" in steps:
            model.normalizer_spec.precompiled_charsmap = b""
            operated = model.SerializeToString(deterministic=True)
        _check_prepend_scheme(prepend_scheme, model)
        types = {piece.piece: piece.type for piece in model.pieces}
        of_users = [piece for piece, kind in types.items() if kind == model.SentencePiece.USER_DEFINED]
        names = model.trainer_spec
        control = model.SentencePiece.CONTROL

        def own(piece: str) -> str | None:
            # Models without the role still name its default piece, so look whether the vocabulary has it.
            return piece if types.get(piece) == control else None

        unknown = next(piece.piece for piece in model.pieces if piece.type == piece.UNKNOWN)
        if unknown_token not in (None, unknown):
            raise ValueError(f"unknown_token must be {unknown!r}, that of the model, got {quote(unknown_token)}.")
        super().__init__(
            [piece.piece for piece in model.pieces],
            pad_token=own(names.pad_piece) if pad_token is None else pad_token,
            start_token=own(names.bos_piece) if start_token is None else start_token,
            end_token=own(names.eos_piece) if end_token is None else end_token,
            unknown_token=unknown,
            mask_token=mask_token,
            special_tokens=dict.fromkeys([*special_tokens, *(p.piece for p in model.pieces if p.type == control)]),
            # what stands behind one does not begin a text, and no step changes it
            added_tokens=added_tokens
            if prepend_scheme is None and not steps
            else dict.fromkeys([*added_tokens, *of_users]),
            strip_left=strip_left,
            strip_right=strip_right,
            single_words=single_words,
            adds_start=adds_start,
            adds_end=adds_end,
            chat_format=chat_format,
        )
        self._proto = proto
        self._control = {piece for piece, kind in types.items() if kind == control}
        self._of_users = of_users
        self.prepend_scheme = prepend_scheme
        self._unknown_bytes = len(names.unk_surface.encode("utf-8"))
        byte = model.SentencePiece.BYTE
        self._begins_with_space = np.array([p.piece.startswith(_SPACE) and p.type != byte for p in model.pieces])
        self._keeps_leading_spaces = (
            model.normalizer_spec.add_dummy_prefix
            and not model.normalizer_spec.remove_extra_whitespaces
            and not names.treat_whitespace_as_suffix
            and self._unknown_bytes > 0
        )
        self._model = SentencePieceOperations(operated)
        self._words = SentencePieceWords(self._model, model) if splits_at_spaces(model) else None
        self._adds_space = model.normalizer_spec.add_dummy_prefix

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], **special_tokens: str | None) -> SentencePieceTokenizer:
        """Reads a `*.model` file.

        Args:
            path: The file.
            **special_tokens: `pad_token`, `start_token`, `end_token`, as for the constructor.

        Raises:
            FileNotFoundError: There is no such file.
            ValueError: It is not a SentencePiece model.
        """
        content = read_bytes(path, MOST_BYTES)
        with errors_of_file(path):
            return cls(content, **special_tokens)

    @classmethod
    def train(
        cls,
        texts: Iterable[str | bytes],
        vocabulary_size: int,
        *,
        model_type: str = "unigram",
        pad_token: str = "<pad>",
        start_token: str = "<sos>",
        end_token: str = "<eos>",
        unknown_token: str = "<unk>",
        special_tokens: Sequence[str] = (),
        character_coverage: float = 0.9995,
        byte_fallback: bool = False,
        split_digits: bool = False,
        normalization: str = "nmt_nfkc",
        remove_extra_whitespaces: bool = True,
    ) -> SentencePieceTokenizer:
        """Learns a vocabulary. The same texts in the same order give the same bytes, on any number of cores.

        Padding, start, end and unknown get the ids 0, 1, 2 and 3; `special_tokens` and the byte tokens follow.

        Args:
            texts: Sentences or lines, read once. The trainer holds all of them in memory. U+2585 counts as a space,
                because the trainer uses that character itself.
            vocabulary_size: Number of tokens, special tokens included.
            model_type: `"unigram"` or `"bpe"`.
            special_tokens: Tokens that are found as a whole wherever they occur in a text, such as `"<mask>"`.
            character_coverage: Fraction of the characters of the texts that become tokens, from 0.98 to 1. The rarest
                others are unknown, or bytes with `byte_fallback`.
            byte_fallback: Whether to add 256 byte tokens for characters that are not in the vocabulary.
            split_digits: Whether each digit is a separate token.
            normalization: `"nmt_nfkc"`, `"nfkc"`, the two with `"_cf"` for case folding, or `"identity"`.
            remove_extra_whitespaces: Whether to remove spaces at both ends, and all but one of several spaces. With
                False, `"identity"` and `byte_fallback=True`, every text without U+2581 is restored exactly.

        Raises:
            TypeError: A text is not `str` or `bytes`.
            ValueError: There is no text, a text is not UTF-8, the vocabulary is too large or too small for the texts
                (the message says what they allow), or an argument is out of range.
        """
        proto = train_sentencepiece(
            texts,
            vocabulary_size,
            model_type=model_type,
            pad_token=pad_token,
            start_token=start_token,
            end_token=end_token,
            unknown_token=unknown_token,
            special_tokens=special_tokens,
            character_coverage=character_coverage,
            byte_fallback=byte_fallback,
            split_digits=split_digits,
            normalization=normalization,
            remove_extra_whitespaces=remove_extra_whitespaces,
        )
        return cls(proto)

    @property
    def proto(self) -> bytes:
        """The serialized `ModelProto`: the content of a `*.model` file."""
        return self._proto

    @property
    def trackables(self) -> list[Any]:
        words = [] if self._words is None else [self._words.resource]
        return [self._model.resource, *words, *self._steps.resources]

    def _tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        return (self._model if self._words is None else self._words).tokenize(texts)

    def _tokenize_with_offsets(self, texts: tf.Tensor) -> Tokens:
        ids, starts, ends = self._model.tokenize_with_offsets(texts)
        return Tokens(ids, *to_characters(texts, ids, starts, ends))

    def _tokenize_parts(self, parts: tf.Tensor, begins: tf.Tensor, with_offsets: bool) -> Tokens:
        if not self._step_names:
            return self._tokenize_prepended(parts, begins, with_offsets)
        characters = self._steps.characters(parts)
        tf = import_tensorflow()
        changed = tf.strings.unicode_encode(characters.points, "UTF-8")
        tokens = self._tokenize_prepended(changed, begins, with_offsets)
        if not with_offsets:
            return tokens
        starts, ends = tokens.starts, tokens.ends
        if "words" in self._step_names:
            # the space of a token is put before a word, and is not that of the text: it counts as the word's first
            # character, as in the Transformers library
            points = characters.points
            rows = repeat(points.row_starts(), tokens.ids.row_lengths())
            last = tf.maximum(tf.size(points.values, out_type=tf.int64) - 1, 0)
            found = tf.gather(points.values, tf.minimum(rows + tf.cast(starts, tf.int64), last))
            has_space = tf.gather(tf.constant(self._begins_with_space), tokens.ids.values) & (found == ord(" "))
            starts += tf.cast(has_space, starts.dtype)
            ends = tf.maximum(ends, starts + 1)
        return Tokens(tokens.ids, *characters.origins(tokens.ids, starts, ends))

    def _tokenize_prepended(self, parts: tf.Tensor, begins: tf.Tensor, with_offsets: bool) -> Tokens:
        if self.prepend_scheme is None:
            return super()._tokenize_parts(parts, begins, with_offsets)
        tf = import_tensorflow()
        lacks_space = (parts != "") & (tf.strings.substr(parts, 0, 1) != " ")
        lacks_space &= tf.strings.substr(parts, 0, len(_SPACE.encode("utf-8"))) != _SPACE
        adds = lacks_space & begins if self.prepend_scheme == "first" else lacks_space
        tokens = super()._tokenize_parts(tf.where(adds, tf.strings.join([_SPACE, parts]), parts), begins, with_offsets)
        if not with_offsets:
            return tokens
        # back by the character that was put before; a token of it alone counts as the first character
        added = repeat(tf.cast(adds, tf.int32), tokens.ids.row_lengths())
        return Tokens(tokens.ids, tf.maximum(tokens.starts - added, 0), tf.maximum(tokens.ends - added, added))

    @property
    def _words_need_space(self) -> bool:
        return not self._adds_space

    def _detokenize(self, ids: tf.RaggedTensor) -> tf.Tensor:
        if self.prepend_scheme is not None:
            return import_tensorflow().strings.regex_replace(self._model.join(ids), "^ ", "")
        if not self._keeps_leading_spaces:
            return self._model.join(ids)
        # The operation drops all leading spaces; the sentencepiece package drops only the one that tokenizing added
        # unless the model removes extra white space. With a token in front no space leads.
        tf = import_tensorflow()
        unknown = tf.fill([ids.nrows(), 1], tf.cast(self.unknown_id, tf.int32))
        texts = tf.strings.substr(self._model.join(tf.concat([unknown, ids], axis=1)), self._unknown_bytes, 2**31 - 1)
        padded = tf.concat([ids, unknown], axis=1)
        first_ids = tf.gather(padded.values, padded.row_starts())
        begins_with_space = tf.gather(tf.constant(self._begins_with_space), first_ids)
        return tf.where(begins_with_space, tf.strings.regex_replace(texts, "^ ", ""), texts)

    def _spellings(self) -> list[bytes]:
        return [_spelling(piece) for piece in parse_model(self._proto).pieces]

    @property
    def named_tokens(self) -> list[str]:
        return list(dict.fromkeys([*super().named_tokens, *self._of_users]))

    def _spelled_by_no_text(self, tokens: Sequence[str]) -> bool:
        return super()._spelled_by_no_text(tokens) and self._control.issuperset(tokens)

    def _config(self) -> dict[str, Any]:
        # left out where it is None, so that earlier versions read what they could write
        scheme = {} if self.prepend_scheme is None else {"prepend_scheme": self.prepend_scheme}
        steps = {"steps": list(self._step_names)} if self._step_names else {}
        return {**self._special_config(), **scheme, **steps}

    def _files(self) -> dict[str, bytes]:
        return {_MODEL_FILE: self._proto}

    @classmethod
    def _from_files(cls, files: dict[str, bytes], config: dict[str, Any]) -> SentencePieceTokenizer:
        if _MODEL_FILE not in files:
            raise ValueError(f"A sentencepiece tokenizer needs the file {_MODEL_FILE!r}, got {quote(sorted(files))}.")
        return cls(files[_MODEL_FILE], **config)


def _check_prepend_scheme(scheme: str | None, model: Any) -> None:
    if scheme not in (None, "first", "always"):
        raise ValueError(f"prepend_scheme must be None, 'first' or 'always', got {quote(scheme)}.")
    normalizer, trainer = model.normalizer_spec, model.trainer_spec
    changes = normalizer.add_dummy_prefix or normalizer.remove_extra_whitespaces or normalizer.precompiled_charsmap
    plain = normalizer.escape_whitespaces and not changes and not trainer.treat_whitespace_as_suffix
    if scheme is not None and not plain:
        raise ValueError(
            f"prepend_scheme must be None unless the model neither adds nor changes characters itself, got {scheme!r}."
        )


def _spelling(piece: Any) -> bytes:
    """What a piece of a model adds to a text; nothing if no text has it."""
    if piece.type == piece.BYTE:  # such as <0xE4>
        return bytes([int(piece.piece[3:5], 16)])
    is_of_texts = piece.type in (piece.NORMAL, piece.USER_DEFINED)
    return piece.piece.replace(_SPACE, " ").encode("utf-8") if is_of_texts else b""


def _with_control(model: Any, proto: bytes, tokens: Sequence[str]) -> bytes:
    """The model with tokens that no text can spell; they may have been the user's own."""
    kinds = model.SentencePiece
    changed = [p for p in model.pieces if p.piece in tokens and p.type in (kinds.USER_DEFINED, kinds.NORMAL)]
    for piece in changed:
        piece.type = kinds.CONTROL
    return model.SerializeToString(deterministic=True) if changed else proto
