"""SentencePiece models in the words of a `tokenizer.json`."""

from __future__ import annotations

import base64
from collections.abc import Collection, Sequence
from typing import Any

from zoo.tokenizers.huggingface.sentencepiece_proto import SPACE

# what SentencePiece does to spaces: none at both ends, one of several
OUTER_SPACES = {"Regex": r"\A +| +\z"}
SEVERAL_SPACES = {"Regex": " {2,}"}


def _replace(pattern: dict[str, str], content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


# the steps of `zoo.tokenizers.text_steps` as parts of a normalizer, but for "words", which are split
STEPS: dict[str, list[dict[str, Any]]] = {
    "collapse_white_space": [_replace({"Regex": r"\s{2,}|[\n\r\t]"}, " ")],
    "line_feeds": [_replace({"Regex": r"\n"}, " ")],
    "lowercase": [{"type": "Lowercase"}],
    "nfc": [{"type": "NFC"}],
    "nfkc": [{"type": "NFKC"}],
    "outer_spaces": [_replace(OUTER_SPACES, "")],
    "quotes": [_replace({"String": "``"}, '"'), _replace({"String": "''"}, '"')],
    "several_spaces": [_replace(SEVERAL_SPACES, " ")],
    "strip_accents": [{"type": "NFKD"}, {"type": "StripAccents"}],
}


def user_defined_tokens(proto: bytes) -> set[str]:
    """Returns the tokens that a model finds as a whole wherever a text spells them."""
    model = _model(proto)
    return {piece.piece for piece in model.pieces if piece.type == piece.USER_DEFINED}


def describe_sentencepiece(
    proto: bytes, prepend_scheme: str | None = None, steps: Sequence[str] = (), added: Collection[str] = ()
) -> dict[str, Any] | None:
    """Returns normalizer, splitting, decoder and model of a `tokenizer.json`, or None where it can't say the same.

    Args:
        proto: The model.
        prepend_scheme, steps: Those of the tokenizer.
        added: Tokens that the tokenizer finds as a whole.
    """
    model = _model(proto)
    normalizer, trainer = model.normalizer_spec, model.trainer_spec
    if trainer.treat_whitespace_as_suffix or not normalizer.escape_whitespaces:
        return None
    if model.HasField("denormalizer_spec") and model.denormalizer_spec.precompiled_charsmap:
        return None
    unused = [piece.piece for piece in model.pieces if piece.type == piece.UNUSED and piece.piece not in added]
    if any(SPACE not in token[1:] for token in unused):
        return None
    if trainer.model_type == trainer.UNIGRAM:
        return _describe_unigram(model, prepend_scheme, steps)
    if steps or unused:
        return None
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


def _describe_unigram(model: Any, prepend_scheme: str | None, names: Sequence[str]) -> dict[str, Any]:
    normalizer, byte_fallback = model.normalizer_spec, model.trainer_spec.byte_fallback
    steps = []
    in_model = ["charsmap"] if normalizer.precompiled_charsmap and "charsmap" not in names else []
    for name in [*names, *in_model]:
        if name == "charsmap":
            charsmap = base64.b64encode(normalizer.precompiled_charsmap).decode("ascii")
            steps.append({"type": "Precompiled", "precompiled_charsmap": charsmap})
        elif name == "words":
            pass  # the splitting below
        elif name in ("strip_left", "strip_right"):
            steps.append({"type": "Strip", **{side: side == name for side in ("strip_left", "strip_right")}})
        else:
            steps += STEPS[name]
    if normalizer.remove_extra_whitespaces:
        steps.append({"type": "Replace", "pattern": OUTER_SPACES, "content": ""})
        steps.append({"type": "Replace", "pattern": SEVERAL_SPACES, "content": " "})
    elif normalizer.add_dummy_prefix:
        # Metaspace would put none before a space
        steps.append({"type": "Prepend", "prepend": SPACE})
    scheme = prepend_scheme or ("always" if normalizer.add_dummy_prefix else "never")
    metaspace = {
        "type": "Metaspace",
        "replacement": SPACE,
        "prepend_scheme": scheme if normalizer.remove_extra_whitespaces or prepend_scheme else "never",
        # pieces of several words need the whole text
        "split": not any(SPACE in piece.piece[1:] and piece.type != piece.UNUSED for piece in model.pieces),
    }
    unknown_id = next(index for index, piece in enumerate(model.pieces) if piece.type == piece.UNKNOWN)
    return {
        "normalizer": _sequence("normalizers", steps),
        "pre_tokenizer": _sequence("pretokenizers", [{"type": "WhitespaceSplit"}] * ("words" in names) + [metaspace]),
        "decoder": bytes_decoder(scheme != "never") if byte_fallback else {**metaspace, "prepend_scheme": scheme},
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
