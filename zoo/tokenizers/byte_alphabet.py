"""The printable characters by which byte-level BPE writes bytes, and a SentencePiece model that merges like it."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence

import numpy as np

# Bytes that stand for themselves: the visible characters of Latin-1.
_VISIBLE = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAC + 1), *range(0xAE, 0xFF + 1)]


@functools.lru_cache
def byte_characters() -> tuple[str, ...]:
    """Returns the character that represents each byte: itself if visible, else the next free one from U+0100.

    Example:

    >>> byte_characters()[ord(" ")], byte_characters()[ord("a")]
    ('Ġ', 'a')
    """
    others = iter(range(0x100, 0x200))
    return tuple(chr(byte if byte in _VISIBLE else next(others)) for byte in range(256))


@functools.lru_cache
def _bytes_of_characters() -> dict[str, int]:
    return {character: byte for byte, character in enumerate(byte_characters())}


def to_bytes(token: str) -> bytes:
    """Returns the bytes that a token of the printable alphabet represents.

    Raises:
        ValueError: A character is not in the alphabet.
    """
    table = _bytes_of_characters()
    try:
        return bytes(table[character] for character in token)
    except KeyError as error:
        raise ValueError(
            f"The token {token!r} has the character {error.args[0]!r}, which stands for no byte."
        ) from None


def missing_bytes_of(tokens: Collection[str]) -> list[int]:
    """Returns the bytes that have no token."""
    return [byte for byte, character in enumerate(byte_characters()) if character not in tokens]


def merging_model(tokens: Sequence[str], scores: Mapping[str, int]) -> bytes:
    """Builds a SentencePiece model that merges as byte-level BPE does.

    Its pieces have the ids of the tokens. Tokens that merging can't reach are control pieces under another name, which
    no text spells. The model's obligatory unknown piece follows them and never comes up. Behind it are the bytes that
    have no token, so that each of them is a piece of its own.

    Args:
        tokens: All tokens in the order of their ids.
        scores: Rank of the last merge of each token that merging reaches (`merge_scores`).

    Returns:
        A serialized `ModelProto`.
    """
    from sentencepiece import sentencepiece_model_pb2

    model = sentencepiece_model_pb2.ModelProto()
    piece = model.SentencePiece
    characters = set(byte_characters())
    for index, token in enumerate(tokens):
        if token in scores or token in characters:
            model.pieces.add(piece=token, score=-scores.get(token, 0), type=piece.NORMAL)
        else:
            model.pieces.add(piece=f"\u2581{index}", type=piece.CONTROL)
    model.pieces.add(piece="\u2581unknown", type=piece.UNKNOWN)
    for byte in missing_bytes_of(set(tokens)):
        model.pieces.add(piece=byte_characters()[byte], type=piece.NORMAL)
    trainer = model.trainer_spec
    trainer.model_type = trainer.BPE
    trainer.vocab_size = len(model.pieces)
    trainer.unk_id = len(tokens)
    trainer.unk_piece = "\u2581unknown"
    trainer.bos_id = trainer.eos_id = trainer.pad_id = -1
    normalizer = model.normalizer_spec
    normalizer.name = "identity"
    normalizer.add_dummy_prefix = False
    normalizer.remove_extra_whitespaces = False
    normalizer.escape_whitespaces = False
    return model.SerializeToString(deterministic=True)


def byte_to_code_point() -> np.ndarray:
    """Returns the code point of the character that represents each byte, int32 `(256,)`."""
    return np.array([ord(character) for character in byte_characters()], np.int32)
