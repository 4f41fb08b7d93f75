"""Checks a SentencePiece model before the C++ library, which checks little, reads it.

A process of its own that loads the model first would be safe, too, but it would have to import TensorFlow for seconds
to run the same version of the library. The format is small enough to be checked completely.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from zoo.storage import quote

MOST_BYTES = 64 * 2**20
# Gemma has 262,144
MOST_PIECES = 4_000_000
# the library's tries are as deep as a piece is long, one call of a function for each byte; the longest published
# tokens have some hundred bytes
MOST_PIECE_BYTES = 2048
# U+FDFA becomes 33 bytes, and no character more
MOST_REPLACEMENT_BYTES = 1024
MOST_SCORE = 1e12

_BYTE_PIECES = frozenset(f"<0x{byte:02X}>" for byte in range(256))


def parse_model(proto: bytes) -> Any:
    """Returns the `ModelProto` of a SentencePiece model that is safe to load.

    Args:
        proto: Content of a `*.model` file.

    Raises:
        ValueError: It is not such a model, or its content is inconsistent. The message names the field.
    """
    from google.protobuf.message import DecodeError
    from sentencepiece import sentencepiece_model_pb2

    if len(proto) > MOST_BYTES:
        raise ValueError(f"A SentencePiece model must have at most {MOST_BYTES} bytes, got {len(proto)}.")
    try:
        model = sentencepiece_model_pb2.ModelProto.FromString(proto)
    except (DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"This is not a SentencePiece model ({len(proto)} bytes): {error}.") from error
    if not any(piece.type == piece.UNKNOWN for piece in model.pieces):
        raise ValueError(
            f"This is not a SentencePiece model ({len(proto)} bytes): pieces must hold one of the type UNKNOWN."
        )
    _check_pieces(model)
    _check_trainer(model)
    _check_charsmap(model.normalizer_spec.precompiled_charsmap, "normalizer_spec.precompiled_charsmap")
    _check_charsmap(model.denormalizer_spec.precompiled_charsmap, "denormalizer_spec.precompiled_charsmap")
    return model


def _check_pieces(model: Any) -> None:
    pieces, kinds = model.pieces, model.SentencePiece
    if len(pieces) > MOST_PIECES:
        raise ValueError(f"pieces must be at most {MOST_PIECES}, got {len(pieces)}.")
    texts = [piece.piece for piece in pieces]
    types = np.array([piece.type for piece in pieces])
    scores = np.array([piece.score for piece in pieces])
    for index, text in enumerate(texts):
        # protobuf gives bytes that are no UTF-8 as they are
        if not isinstance(text, str):
            raise ValueError(f"pieces[{index}].piece must be UTF-8, got {quote(text)}.")
    check_tokens(texts, "pieces")
    for index in np.flatnonzero(~(np.abs(scores) <= MOST_SCORE))[:1]:
        raise ValueError(f"pieces[{index}].score must be a finite number, got {scores[index]}.")
    for index in np.flatnonzero(types == kinds.UNKNOWN)[1:]:
        raise ValueError(f"pieces[{index}].type must be UNKNOWN for one piece only, got it a second time.")
    of_bytes = np.flatnonzero(types == kinds.BYTE)
    for index in of_bytes:
        if texts[index] not in _BYTE_PIECES:
            raise ValueError(
                f"pieces[{index}].piece must be of the form <0x0A> for the type BYTE, got {quote(texts[index])}."
            )
    if np.all((types == kinds.UNKNOWN) | (types == kinds.CONTROL)):
        raise ValueError("pieces must hold at least one that text can become, got control tokens only.")
    if model.trainer_spec.byte_fallback and len(of_bytes) != 256:
        raise ValueError(f"trainer_spec.byte_fallback needs 256 pieces of the type BYTE, got {len(of_bytes)}.")
    if len(of_bytes) and not model.trainer_spec.byte_fallback:
        raise ValueError(f"pieces of the type BYTE need trainer_spec.byte_fallback, got {len(of_bytes)} without it.")


def _check_trainer(model: Any) -> None:
    trainer, count = model.trainer_spec, len(model.pieces)
    for name in ("unk_id", "bos_id", "eos_id", "pad_id"):
        # the defaults stand in small models, too
        if trainer.HasField(name) and getattr(trainer, name) >= max(count, 4):
            raise ValueError(f"trainer_spec.{name} must be below {count}, got {getattr(trainer, name)}.")
    for name in ("unk_surface", "unk_piece", "bos_piece", "eos_piece", "pad_piece"):
        text = getattr(trainer, name)
        if len(text) > MOST_PIECE_BYTES:
            raise ValueError(f"trainer_spec.{name} must have at most {MOST_PIECE_BYTES} characters, got {quote(text)}.")


def _check_charsmap(content: bytes, name: str) -> None:
    """Checks a compiled normalization: the size of a trie, the trie, and the texts that its leaves point to.

    The trie is of the Darts-clone library: an array of 32-bit units. A look-up goes from a unit to another by its
    offset and the next byte of the text, and tests no bounds.
    """
    if not content:
        return
    size = int.from_bytes(content[:4], "little") if len(content) >= 4 else -1
    if size < 1024 or size % 1024 or size > len(content) - 5:
        raise ValueError(
            f"{name} must begin with the size of its trie, a multiple of 1024 below its {len(content)} bytes, "
            f"got {size}."
        )
    units = np.frombuffer(content, "<u4", size // 4, 4)
    texts = content[4 + size :]
    if texts[-1] != 0:
        raise ValueError(f"{name} must end with a NUL.")
    try:
        texts.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{name} must hold replacements in UTF-8: {error}.") from error
    values = _reachable_values(units, name)
    if values.size and values.max() >= len(texts):
        raise ValueError(f"{name} must point to its {len(texts)} bytes of replacements, got {values.max()}.")
    ends = np.flatnonzero(np.frombuffer(texts, np.uint8) == 0)
    lengths = ends[np.searchsorted(ends, values)] - values
    if lengths.size and lengths.max() > MOST_REPLACEMENT_BYTES:
        raise ValueError(f"{name} must replace by at most {MOST_REPLACEMENT_BYTES} bytes, got {lengths.max()}.")
    starts = np.frombuffer(texts, np.uint8)[values]
    if np.any((starts & 0xC0) == 0x80):
        raise ValueError(f"{name} must point to the beginning of characters.")


def _reachable_values(units: np.ndarray, name: str) -> np.ndarray:
    """Walks through the trie; returns the values of all leaves.

    Raises:
        ValueError: A look-up could leave the array.
    """
    count = len(units)
    labels = np.arange(256)
    seen = np.zeros(count, dtype=bool)
    frontier, leaves = np.array([0]), []
    while frontier.size:
        seen[frontier] = True
        unit = units[frontier].astype(np.int64)
        # the offset of a unit, shifted further where bit 9 is set
        base = frontier ^ ((unit >> 10) << ((unit & 512) >> 6))
        if np.any((base | 255) >= count):
            raise ValueError(f"{name} has a trie that leads outside itself.")
        has_leaf = (unit & 256) != 0
        leaves.append(units[base[has_leaf]].astype(np.int64) & (2**31 - 1))
        next_units = base[:, None] ^ labels
        # a unit with the highest bit is a leaf, its label is none of a byte
        matches = (units[next_units].astype(np.int64) & (2**31 | 255)) == labels
        matches[:, 0] = False  # texts hold no NUL where the library looks
        found = np.unique(next_units[matches])
        frontier = found[~seen[found]]
    return np.concatenate(leaves)


def check_tokens(tokens: Sequence[str], name: str) -> None:
    """Checks the tokens that a tokenizer from outside has.

    Args:
        tokens: The tokens.
        name: Their name in the error.

    Raises:
        ValueError: A token is empty, has a NUL, is longer than the library allows, or occurs twice.
    """
    if len(tokens) > MOST_PIECES:
        raise ValueError(f"{name} must hold at most {MOST_PIECES} tokens, got {len(tokens)}.")
    for index, token in enumerate(tokens):
        # a character has at most 4 bytes
        if not 0 < len(token) <= MOST_PIECE_BYTES // 4 and not 0 < len(token.encode("utf-8")) <= MOST_PIECE_BYTES:
            raise ValueError(
                f"{name}[{index}] must have 1 to {MOST_PIECE_BYTES} bytes, got {quote(token)} of "
                f"{len(token)} characters."
            )
        if "\0" in token:
            raise ValueError(f"{name}[{index}] must have no NUL, got {quote(token)}.")
    if len(set(tokens)) < len(tokens):
        seen: set[str] = set()
        index = next(index for index, token in enumerate(tokens) if token in seen or seen.add(token))
        raise ValueError(f"{name}[{index}] must be unique, got {quote(tokens[index])} a second time.")
