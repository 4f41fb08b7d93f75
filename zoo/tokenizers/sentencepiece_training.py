"""Trains a SentencePiece model in memory, with errors that name the argument."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence

from zoo.tokenizers.text_reader import TextReader

MODEL_TYPES = ("unigram", "bpe")
NORMALIZATIONS = ("nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf", "identity")

# The trainer drops every sentence that holds this character, which it keeps for itself.
_RESERVED_CHARACTER = "\u2585"
# The trainer drops longer sentences, by default those over 4,192 bytes. This is the largest limit it takes.
_MAX_SENTENCE_BYTES = 2**30
# The result depends on the number of threads (sums in another order), so it must not depend on the machine.
_NUM_THREADS = 4


class VocabularyTooLargeError(ValueError):
    """The requested vocabulary is larger than the texts allow.

    Args:
        vocabulary_size: The requested size.
        largest: The largest size that the texts allow.
        rows: Number of texts.

    Attributes:
        largest: See above.
    """

    def __init__(self, vocabulary_size: int, largest: int, rows: int) -> None:
        super().__init__(
            f"vocabulary_size={vocabulary_size} is too large for these {rows} texts: they allow at most {largest}."
        )
        self.largest = largest


def train_sentencepiece(
    texts: Iterable[str | bytes],
    vocabulary_size: int,
    *,
    model_type: str,
    pad_token: str,
    start_token: str,
    end_token: str,
    unknown_token: str,
    special_tokens: Sequence[str],
    character_coverage: float,
    byte_fallback: bool,
    split_digits: bool,
    normalization: str,
    remove_extra_whitespaces: bool,
) -> bytes:
    """Returns a serialized SentencePiece `ModelProto`. See `SentencePieceTokenizer.train` for arguments and errors."""
    import sentencepiece

    if model_type not in MODEL_TYPES:
        raise ValueError(f"model_type must be one of {MODEL_TYPES}, got {model_type!r}.")
    if normalization not in NORMALIZATIONS:
        raise ValueError(f"normalization must be one of {NORMALIZATIONS}, got {normalization!r}.")
    if not 0.98 <= character_coverage <= 1.0:
        raise ValueError(f"character_coverage must be at least 0.98 and at most 1, got {character_coverage!r}.")
    if isinstance(texts, (str, bytes)):
        raise TypeError(f"texts must be an iterable of texts, got a single {type(texts).__name__}.")
    tokens = [pad_token, start_token, end_token, unknown_token, *special_tokens]
    for token in tokens:
        if not token or any(character.isspace() or character == "\u2581" for character in token):
            raise ValueError(f"Special tokens must not be empty or hold white space, got {token!r}.")
        if tokens.count(token) > 1:
            raise ValueError(f"Special tokens must be given once, got {token!r} more than once.")
    needed = len(tokens) + 256 * byte_fallback
    if vocabulary_size <= needed:
        raise ValueError(
            f"vocabulary_size must be above {needed}, the number of special and byte tokens, got {vocabulary_size!r}."
        )

    reader = TextReader(texts)
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=(text.replace(_RESERVED_CHARACTER, " ") for text in reader),
            model_writer=model,
            model_type=model_type,
            vocab_size=vocabulary_size,
            pad_id=0,
            bos_id=1,
            eos_id=2,
            unk_id=3,
            pad_piece=pad_token,
            bos_piece=start_token,
            eos_piece=end_token,
            unk_piece=unknown_token,
            user_defined_symbols=list(special_tokens),
            character_coverage=character_coverage,
            byte_fallback=byte_fallback,
            split_digits=split_digits,
            normalization_rule_name=normalization,
            remove_extra_whitespaces=remove_extra_whitespaces,
            max_sentence_length=_MAX_SENTENCE_BYTES,
            num_threads=_NUM_THREADS,
            minloglevel=2,
        )
    except (RuntimeError, ValueError) as error:
        if reader.failure is not None:
            raise reader.failure from None
        if found := re.search(r"Vocabulary size too high \(\d+\).*?<= (\d+)", str(error)):
            raise VocabularyTooLargeError(vocabulary_size, int(found[1]), reader.rows) from error
        raise ValueError(_explain(str(error), vocabulary_size, character_coverage, reader)) from error
    return model.getvalue()


def _explain(message: str, vocabulary_size: int, character_coverage: float, reader: TextReader) -> str:
    """The trainer's messages name its C++ source lines; these name the arguments."""
    if not reader.has_text:
        return f"texts holds no text: {reader.rows} rows, all empty or white space."
    if found := re.search(r"smaller than required_chars\. \d+ vs (\d+)", message):
        return (
            f"vocabulary_size must be at least {found[1]} for the characters and special tokens of these texts with "
            f"character_coverage={character_coverage}, got {vocabulary_size}. Raise the one or lower the other."
        )
    return f"SentencePiece could not train on these {reader.rows} texts: {message}"
