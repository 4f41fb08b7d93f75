"""The tokenizers of llama2.c: `tokenizer.bin`, the pieces and scores of a SentencePiece model in one file."""

from __future__ import annotations

import os
import struct
from pathlib import Path

from zoo.storage import errors_of_file, read_bytes
from zoo.tokenizers.sentencepiece import SentencePieceTokenizer
from zoo.tokenizers.sentencepiece_check import MOST_BYTES

SPACE = "\u2581"
_ENTRY = struct.Struct("<fi")
# <unk>, <s> and </s> come first, then a token for each byte
_FIRST, _BYTES = ("<unk>", "<s>", "</s>"), 256
_ROLES = {"start_token": "<s>", "end_token": "</s>", "unknown_token": "<unk>"}


def load_llama2c_tokenizer(path: str | os.PathLike[str]) -> SentencePieceTokenizer:
    """Returns the tokenizer in a file of llama2.c: its `tokenizer.bin`, or the SentencePiece model it was made of.

    Args:
        path: The file; one whose name ends in `.model` is a SentencePiece model.

    Raises:
        ValueError: If the file is damaged.
        FileNotFoundError: If there is no such file.

    Example:

    >>> load_llama2c_tokenizer("tok512.bin").vocabulary_size
    512

    Reference:
        Karpathy 2023, llama2.c, `tokenizer.py` (`export`) and `run.c` (`build_tokenizer`, `encode`).
    """
    path = Path(path)
    content = read_bytes(path, MOST_BYTES)
    with errors_of_file(path):
        proto = content if path.suffix == ".model" else _proto(_pieces(content))
        tokenizer = SentencePieceTokenizer(proto, **_ROLES)
    tokenizer.source = str(path)
    return tokenizer


def _pieces(content: bytes) -> list[tuple[str, float]]:
    """Texts and scores of all tokens."""
    pieces: list[tuple[str, float]] = []
    place = 4  # the greatest length of a token comes first
    while place < len(content):
        number, text = len(pieces), None
        if place + _ENTRY.size <= len(content):
            score, length = _ENTRY.unpack_from(content, place)
            place += _ENTRY.size
            if 0 <= length <= len(content) - place:
                text = content[place : place + length]
                place += length
        if text is None:
            raise ValueError(f"token {number} of a tokenizer of llama2.c is cut off, or its length is damaged.")
        try:
            pieces.append((text.decode("utf-8"), score))
        except UnicodeDecodeError as error:
            raise ValueError(f"token {number} of a tokenizer of llama2.c must be UTF-8: {error}.") from error
    if len(pieces) < len(_FIRST) + _BYTES:
        raise ValueError(
            f"a tokenizer of llama2.c must hold {', '.join(_FIRST)}, {_BYTES} bytes and more, got {len(pieces)} tokens."
        )
    return pieces


def _proto(pieces: list[tuple[str, float]]) -> bytes:
    """The SentencePiece model with these tokens, which splits texts as `run.c` does."""
    from sentencepiece import sentencepiece_model_pb2

    model = sentencepiece_model_pb2.ModelProto()
    kinds = model.SentencePiece
    for index, (text, score) in enumerate(pieces):
        if index < len(_FIRST):
            kind = kinds.CONTROL if index else kinds.UNKNOWN
            model.pieces.add(piece=_FIRST[index], score=0.0, type=kind)
        elif index < len(_FIRST) + _BYTES:
            model.pieces.add(piece=f"<0x{index - len(_FIRST):02X}>", score=0.0, type=kinds.BYTE)
        else:
            model.pieces.add(piece=text.replace(" ", SPACE), score=score, type=kinds.NORMAL)
    trainer, normalizer = model.trainer_spec, model.normalizer_spec
    trainer.model_type, trainer.vocab_size, trainer.byte_fallback = trainer.BPE, len(pieces), True
    trainer.unk_id, trainer.bos_id, trainer.eos_id, trainer.pad_id = 0, 1, 2, -1
    normalizer.name, normalizer.add_dummy_prefix, normalizer.escape_whitespaces = "identity", True, True
    normalizer.remove_extra_whitespaces = False
    return model.SerializeToString(deterministic=True)
