"""SentencePiece models made of what `tokenizer.json` holds."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any

from zoo.storage import quote
from zoo.tokenizers.merge_ranks import merge_scores

SPACE = "\u2581"
_BYTE = re.compile(r"<0x[0-9A-F]{2}>")


def _empty(unknown_id: int, unknown_token: str) -> Any:
    from sentencepiece import sentencepiece_model_pb2

    model = sentencepiece_model_pb2.ModelProto()
    trainer = model.trainer_spec
    trainer.unk_id, trainer.unk_piece = unknown_id, unknown_token
    trainer.bos_id = trainer.eos_id = trainer.pad_id = -1
    # Roles are given to the tokenizer; the defaults of these names could be tokens of another role.
    trainer.bos_piece = trainer.eos_piece = trainer.pad_piece = ""
    return model


def bpe_proto(
    tokens: Sequence[str],
    merges: Sequence[tuple[str, str]],
    *,
    unknown_token: str | None,
    control: Collection[str],
    added: Collection[str],
    adds_space: bool,
) -> bytes:
    """Returns a BPE model with bytes for characters that are no tokens.

    Args:
        tokens: All tokens in the order of their ids, with those of the form `<0x0A>` for the bytes.
        merges: Pairs of tokens, the first merged first.
        unknown_token: The token that the model needs for what it can't spell.
        control: Tokens that no text spells.
        added: Tokens that stand for the text that they are.
        adds_space: Whether a space is put before each text.

    Raises:
        ValueError: There is no unknown token, or a byte has no token.
    """
    if unknown_token not in tokens:
        raise ValueError(f"model.unk_token must be in the vocabulary, got {quote(unknown_token)}.")
    bytes_found = sum(bool(_BYTE.fullmatch(token)) for token in tokens)
    if bytes_found != 256:
        raise ValueError(f"model.byte_fallback needs a token for each of 256 bytes, the vocabulary has {bytes_found}.")
    control, added = frozenset(control), frozenset(added)
    scores = merge_scores(set(tokens), merges)
    model = _empty(list(tokens).index(unknown_token), unknown_token)
    piece = model.SentencePiece
    for token in tokens:
        if token == unknown_token:
            kind = piece.UNKNOWN
        elif token in control:
            kind = piece.CONTROL
        elif token in added:
            kind = piece.USER_DEFINED
        elif _BYTE.fullmatch(token):
            kind = piece.BYTE
        elif len(token) == 1 or token in scores:
            kind = piece.NORMAL
        else:
            kind = piece.CONTROL  # merging never gets there
        model.pieces.add(piece=token, score=-scores.get(token, 0), type=kind)
    trainer = model.trainer_spec
    trainer.model_type = trainer.BPE
    trainer.vocab_size = len(tokens)
    trainer.byte_fallback = True
    model.normalizer_spec.name = "identity"
    model.normalizer_spec.add_dummy_prefix = adds_space
    model.normalizer_spec.remove_extra_whitespaces = False
    return model.SerializeToString(deterministic=True)


def unigram_proto(
    pieces: Sequence[tuple[str, float]],
    *,
    unknown_id: int,
    control: Collection[str],
    added: Collection[str],
    byte_fallback: bool,
    charsmap: bytes,
    adds_space: bool,
    removes_extra_spaces: bool,
    finds_added: bool,
    splits: bool,
) -> bytes:
    """Returns a unigram model.

    Args:
        pieces: Tokens with their log-probabilities, in the order of their ids.
        unknown_id: Id of the unknown token.
        control: Tokens that no text spells.
        added: Tokens that stand for the text that they are.
        byte_fallback: Whether characters without a token become bytes, by the tokens of the form `<0x0A>`.
        charsmap: The compiled normalization; empty for none.
        adds_space: Whether a space is put before each text.
        removes_extra_spaces: Whether spaces at both ends and all but one of several are dropped.
        finds_added: Whether the model itself finds the tokens `added` in texts.
        splits: Whether texts are split before spaces, so that no token has one behind another character.
    """
    control, added = frozenset(control), frozenset(added)
    model = _empty(unknown_id, pieces[unknown_id][0])
    piece = model.SentencePiece
    for index, (token, score) in enumerate(pieces):
        if index == unknown_id:
            kind = piece.UNKNOWN
        elif token in control:
            kind = piece.CONTROL
        elif token in added:
            kind = piece.USER_DEFINED if finds_added else piece.UNUSED
        elif splits and SPACE in token[1:]:
            kind = piece.UNUSED
        elif byte_fallback and _BYTE.fullmatch(token):
            kind = piece.BYTE
        else:
            kind = piece.NORMAL
        model.pieces.add(piece=token, score=score, type=kind)
    trainer = model.trainer_spec
    trainer.model_type = trainer.UNIGRAM
    trainer.vocab_size = len(pieces)
    trainer.byte_fallback = byte_fallback
    normalizer = model.normalizer_spec
    normalizer.name = "precompiled" if charsmap else "identity"
    normalizer.precompiled_charsmap = charsmap
    normalizer.add_dummy_prefix = adds_space
    normalizer.remove_extra_whitespaces = removes_extra_spaces
    return model.SerializeToString(deterministic=True)


def scored_proto(
    tokens: Sequence[str],
    scores: Sequence[float],
    types: Sequence[int],
    *,
    unigram: bool,
    charsmap: bytes,
    adds_space: bool,
    removes_extra_spaces: bool,
) -> bytes:
    """Returns a model of what files beside SentencePiece's own say of one.

    Args:
        tokens: Tokens in the order of their ids.
        scores: A score of each: of merges, or log-probabilities.
        types: Type of each, a number of `ModelProto.SentencePiece.Type`; one token is unknown.
        unigram: Whether it is a unigram model, and not BPE.
        charsmap, adds_space, removes_extra_spaces: As for `unigram_proto`.
    """
    unknown_id = list(types).index(2)
    model = _empty(unknown_id, tokens[unknown_id])
    for token, score, kind in zip(tokens, scores, types, strict=True):
        model.pieces.add(piece=token, score=score, type=kind)
    trainer, normalizer = model.trainer_spec, model.normalizer_spec
    trainer.model_type = trainer.UNIGRAM if unigram else trainer.BPE
    trainer.vocab_size = len(tokens)
    trainer.byte_fallback = 6 in types
    normalizer.name = "precompiled" if charsmap else "identity"
    normalizer.precompiled_charsmap = charsmap
    normalizer.add_dummy_prefix = adds_space
    normalizer.remove_extra_whitespaces = removes_extra_spaces
    return model.SerializeToString(deterministic=True)
