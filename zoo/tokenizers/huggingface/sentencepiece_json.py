"""SentencePiece models in the words of a `tokenizer.json`."""

from __future__ import annotations

import base64
from typing import Any

from zoo.tokenizers.huggingface.sentencepiece_proto import SPACE

# what SentencePiece does to spaces: none at both ends, one of several
OUTER_SPACES = {"Regex": r"\A +| +\z"}
SEVERAL_SPACES = {"Regex": " {2,}"}


def user_defined_tokens(proto: bytes) -> set[str]:
    """Returns the tokens that a model finds as a whole wherever a text spells them."""
    model = _model(proto)
    return {piece.piece for piece in model.pieces if piece.type == piece.USER_DEFINED}


def describe_sentencepiece(proto: bytes, prepend_scheme: str | None = None) -> dict[str, Any] | None:
    """Returns normalizer, splitting, decoder and model of a `tokenizer.json`, or None where it can't say the same.

    Args:
        proto: The model.
        prepend_scheme: That of the tokenizer.
    """
    model = _model(proto)
    normalizer, trainer = model.normalizer_spec, model.trainer_spec
    if trainer.treat_whitespace_as_suffix or not normalizer.escape_whitespaces:
        return None
    if model.HasField("denormalizer_spec") and model.denormalizer_spec.precompiled_charsmap:
        return None
    if any(piece.type == piece.UNUSED for piece in model.pieces):
        return None
    if trainer.model_type == trainer.UNIGRAM:
        return _describe_unigram(model)
    plain = not normalizer.precompiled_charsmap and not normalizer.remove_extra_whitespaces
    if trainer.model_type == trainer.BPE and trainer.byte_fallback and plain:
        return _describe_bpe(model, prepend_scheme)
    return None


def _model(proto: bytes) -> Any:
    from sentencepiece import sentencepiece_model_pb2

    return sentencepiece_model_pb2.ModelProto.FromString(proto)


def _sequence(kind: str, parts: list[dict[str, Any]]) -> dict[str, Any] | None:
    if len(parts) > 1:
        return {"type": "Sequence", kind: parts}
    return parts[0] if parts else None


def _describe_unigram(model: Any) -> dict[str, Any]:
    normalizer, byte_fallback = model.normalizer_spec, model.trainer_spec.byte_fallback
    steps = []
    if normalizer.precompiled_charsmap:
        charsmap = base64.b64encode(normalizer.precompiled_charsmap).decode("ascii")
        steps.append({"type": "Precompiled", "precompiled_charsmap": charsmap})
    if normalizer.remove_extra_whitespaces:
        steps.append({"type": "Replace", "pattern": OUTER_SPACES, "content": ""})
        steps.append({"type": "Replace", "pattern": SEVERAL_SPACES, "content": " "})
    elif normalizer.add_dummy_prefix:
        # Metaspace would put none before a space
        steps.append({"type": "Prepend", "prepend": SPACE})
    scheme = "always" if normalizer.add_dummy_prefix else "never"
    metaspace = {
        "type": "Metaspace",
        "replacement": SPACE,
        "prepend_scheme": scheme if normalizer.remove_extra_whitespaces else "never",
        # pieces of several words need the whole text
        "split": not any(SPACE in piece.piece[1:] for piece in model.pieces),
    }
    unknown_id = next(index for index, piece in enumerate(model.pieces) if piece.type == piece.UNKNOWN)
    return {
        "normalizer": _sequence("normalizers", steps),
        "pre_tokenizer": metaspace,
        "decoder": bytes_decoder(normalizer.add_dummy_prefix)
        if byte_fallback
        else {**metaspace, "prepend_scheme": scheme},
        "model": {
            "type": "Unigram",
            "unk_id": unknown_id,
            "vocab": [[piece.piece, piece.score] for piece in model.pieces],
            "byte_fallback": byte_fallback,
        },
    }


def _describe_bpe(model: Any, prepend_scheme: str | None) -> dict[str, Any]:
    adds_space = model.normalizer_spec.add_dummy_prefix
    steps = [{"type": "Prepend", "prepend": SPACE}] if adds_space else []
    steps.append({"type": "Replace", "pattern": {"String": " "}, "content": SPACE})
    metaspace = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": prepend_scheme, "split": False}
    return {
        "normalizer": _sequence("normalizers", steps) if prepend_scheme is None else None,
        "pre_tokenizer": None if prepend_scheme is None else metaspace,
        "decoder": bytes_decoder(adds_space or prepend_scheme is not None),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": next(piece.piece for piece in model.pieces if piece.type == piece.UNKNOWN),
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": {piece.piece: index for index, piece in enumerate(model.pieces)},
            "merges": _merges(model),
        },
    }


def bytes_decoder(adds_space: bool) -> dict[str, Any]:
    """Returns the decoder of a model with tokens for bytes.

    Args:
        adds_space: Whether a space is put before texts, which it drops.
    """
    steps = [
        {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if adds_space:
        steps.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return {"type": "Sequence", "decoders": steps}


def _merges(model: Any) -> list[list[str]]:
    """Every way to make a piece of two others, the piece with the highest score first."""
    normal = {piece.piece: index for index, piece in enumerate(model.pieces) if piece.type == piece.NORMAL}
    found = []
    for token, index in normal.items():
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in normal and right in normal:
                found.append((-model.pieces[index].score, normal[left], normal[right], [left, right]))
    return [pair for *_, pair in sorted(found, key=lambda entry: entry[:3])]
