"""Unigram models of `tokenizer.json`."""

from __future__ import annotations

import base64
from typing import Any

from zoo.storage import quote
from zoo.tokenizers.huggingface.reader import OfType, TokenizerJson, parts, read, refuse, require_keys, types
from zoo.tokenizers.huggingface.sentencepiece_json import OUTER_SPACES, SEVERAL_SPACES
from zoo.tokenizers.huggingface.sentencepiece_proto import SPACE, unigram_proto
from zoo.tokenizers.huggingface.special import added_tokens, settle_roles
from zoo.tokenizers.sentencepiece import SentencePieceTokenizer
from zoo.tokenizers.sentencepiece_check import check_tokens


def _charsmap(part: dict[str, Any]) -> bytes:
    text = read(part, "normalizer", precompiled_charsmap=OfType(str | None)).get("precompiled_charsmap") or ""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise ValueError(f"tokenizer.json: normalizer.precompiled_charsmap must be base64: {error}.") from error


def from_unigram(content: TokenizerJson, roles: dict[str, str]) -> SentencePieceTokenizer:
    """Makes a tokenizer from a file whose model is Unigram, as those of T5 and XLM-R are.

    Raises:
        ValueError: The file needs something that SentencePiece does not do.
    """
    model = read(
        content.model,
        "model",
        vocab=OfType(list[tuple[str, float]]),
        unk_id=OfType(int | None),
        byte_fallback=(True, False),
    )
    if model.get("unk_id") is None:
        raise refuse("model.unk_id", None, "do models with an unknown token")
    require_keys(model, "model", "vocab")
    if not 0 <= model["unk_id"] < len(model["vocab"]):
        raise ValueError(
            f"tokenizer.json: model.unk_id must be below {len(model['vocab'])}, the number of tokens, "
            f"got {model['unk_id']}."
        )
    check_tokens([token for token, _ in model["vocab"]], "tokenizer.json: model.vocab")
    charsmap, removes_spaces, adds_space = b"", False, False
    for part in parts(content.normalizer, "normalizer"):
        if part["type"] == "Precompiled":
            charsmap = _charsmap(part)
        elif (
            part["type"] == "Replace" and part.get("pattern") == SEVERAL_SPACES and part.get("content") in (" ", SPACE)
        ):
            removes_spaces = True
        elif part["type"] == "Replace" and part.get("pattern") == OUTER_SPACES and part.get("content") == "":
            pass  # with the replacement of several spaces, as SentencePiece does
        elif part["type"] == "Prepend":
            read(part, "normalizer", prepend=(SPACE,))
            adds_space = True
        elif part["type"] == "Strip":  # with the replacement of several spaces, as SentencePiece does
            read(part, "normalizer", strip_left=(True, False), strip_right=(True,))
        else:
            raise refuse("normalizer", part, "do Precompiled, Strip, Prepend, and Replace of several spaces by one")
    splitters = parts(content.pre_tokenizer, "pre_tokenizer")
    if types(splitters) not in (["Metaspace"], ["WhitespaceSplit", "Metaspace"]):
        raise refuse("pre_tokenizer", types(splitters), "do Metaspace, alone or after WhitespaceSplit")
    removes_spaces = removes_spaces or len(splitters) == 2
    metaspace = read(
        splitters[-1],
        "pre_tokenizer",
        replacement=(SPACE,),
        str_rep=(SPACE,),
        prepend_scheme=("always", "never"),
        add_prefix_space=(True, False),
        split=(True, False),
    )
    scheme = metaspace.get("prepend_scheme", "always" if metaspace.get("add_prefix_space", True) else "never")
    for decoder in parts(content.decoder, "decoder"):
        if decoder["type"] not in ("Metaspace", "Replace", "ByteFallback", "Fuse", "Strip"):
            raise refuse("decoder", decoder["type"], "do Metaspace")
    pieces = [(token, score) for token, score in model["vocab"]]
    entries = sorted(content.added_tokens, key=lambda entry: entry.id)
    for entry in entries:
        if entry.id == len(pieces):
            pieces.append((entry.content, 0.0))
        elif entry.id > len(pieces) or pieces[entry.id][0] != entry.content:
            allowed = f"the next one, {len(pieces)}, or its id in model.vocab"
            raise ValueError(
                f"tokenizer.json: added_tokens: the id of {quote(entry.content)} must be {allowed}, got {entry.id}."
            )
    found = added_tokens(entries, normalizes=bool(charsmap))
    settled = settle_roles(roles, content.post_processor, [entry.content for entry in entries])
    proto = unigram_proto(
        pieces,
        unknown_id=model["unk_id"],
        control=found["special_tokens"],
        added=found["added_tokens"],
        byte_fallback=model.get("byte_fallback", False),
        charsmap=charsmap,
        adds_space=adds_space or scheme == "always",
        removes_extra_spaces=removes_spaces,
    )
    names = {token for token, _ in pieces}
    settled = {role: token for role, token in settled.items() if token in names and role != "unknown_token"}
    return SentencePieceTokenizer(proto, **settled, **found)
