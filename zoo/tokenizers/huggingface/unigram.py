"""Unigram models of `tokenizer.json`."""

from __future__ import annotations

import base64
from typing import Any, NamedTuple

from zoo.storage import quote
from zoo.tokenizers.huggingface.reader import OfType, TokenizerJson, parts, read, refuse, require_keys, types
from zoo.tokenizers.huggingface.sentencepiece_json import STEPS
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


def _steps(normalizers: list[dict[str, Any]]) -> tuple[list[str], bytes]:
    """Names of the steps of a normalizer, with "charsmap" and "prepend" among them; and the charsmap."""
    names, charsmap, left = [], b"", [_plain(part) for part in normalizers]
    while left:
        found = [name for name, parts in STEPS.items() if left[: len(parts)] == parts]
        if found:
            names.append(found[0])
            left = left[len(STEPS[found[0]]) :]
        elif left[0]["type"] == "Precompiled" and not charsmap:
            charsmap = _charsmap(left.pop(0))
            names += ["charsmap"] if charsmap else []
        elif left[0]["type"] == "Strip":
            sides = read(left.pop(0), "normalizer", strip_left=(True, False), strip_right=(True, False))
            names += [f"strip_{side}" for side in ("left", "right") if sides.get(f"strip_{side}", True)]
        elif left[0]["type"] == "Prepend" and len(left) == 1:
            read(left.pop(0), "normalizer", prepend=(SPACE,))
            names.append("prepend")
        else:
            raise refuse("normalizer", left[0], f"do {sorted(STEPS)}, Precompiled, Strip and Prepend")
    return names, charsmap


def _plain(part: dict[str, Any]) -> dict[str, Any]:
    """A part in which a replacement by Metaspace's character is one by a space, which it becomes."""
    return {**part, "content": " "} if part.get("content") == SPACE and part["type"] == "Replace" else part


class _Spaces(NamedTuple):
    """Who does what with spaces: the model, or steps before it.

    Attributes:
        steps: The steps before the model.
        removes_extra: Whether the model removes spaces at both ends, and all but one of several.
        adds_space: Whether the model puts a space before each text.
        prepend_scheme: As for `SentencePieceTokenizer`.
    """

    steps: list[str]
    removes_extra: bool
    adds_space: bool
    prepend_scheme: str | None


def _spaces(names: list[str], is_split: bool, prepends: bool) -> _Spaces:
    """Leaves to the model what SentencePiece does itself; the rest are steps.

    Args:
        names: The steps of the file.
        is_split: Whether texts are split at white space.
        prepends: Whether a space is put before each text, unless it begins with one.
    """
    adds_space = names[-1:] == ["prepend"]
    steps = names[:-1] if adds_space else list(names)
    tail = []
    while steps and steps[-1] in ("several_spaces", "outer_spaces", "strip_left", "strip_right"):
        tail.append(steps.pop())
    if is_split and steps[-1:] != ["charsmap"] and prepends:
        return _Spaces([*steps, "words"], False, False, "always")
    if is_split or ("several_spaces" in tail and {"outer_spaces", "strip_right"} & set(tail)):
        if steps[-1:] == ["charsmap"]:
            steps.pop()
        return _Spaces(steps, True, adds_space or prepends, None)
    steps += tail[::-1]
    if not adds_space and prepends:
        return _Spaces(steps, False, False, "always")
    if steps[-1:] == ["charsmap"]:
        steps.pop()
    return _Spaces(steps, False, adds_space, None)


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
    names, charsmap = _steps(parts(content.normalizer, "normalizer"))
    splitters = parts(content.pre_tokenizer, "pre_tokenizer")
    if types(splitters) not in (["Metaspace"], ["WhitespaceSplit", "Metaspace"]):
        raise refuse("pre_tokenizer", types(splitters), "do Metaspace, alone or after WhitespaceSplit")
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
    spaces = _spaces(names, is_split=len(splitters) == 2, prepends=scheme == "always")
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
    found = added_tokens(entries, normalizes=bool(names))
    settled = settle_roles(roles, content.post_processor, [entry.content for entry in entries])
    finds_added = not spaces.steps and spaces.prepend_scheme is None and not found["single_words"]
    known = {token for token, _ in model["vocab"]}
    proto = unigram_proto(
        pieces,
        unknown_id=model["unk_id"],
        control=found["special_tokens"],
        added=found["added_tokens"] if finds_added else set(found["added_tokens"]) - known,
        byte_fallback=model.get("byte_fallback", False),
        charsmap=charsmap,
        adds_space=spaces.adds_space,
        removes_extra_spaces=spaces.removes_extra,
        finds_added=finds_added,
        splits=metaspace.get("split", True),
    )
    names = {token for token, _ in pieces}
    settled = {role: token for role, token in settled.items() if token in names and role != "unknown_token"}
    return SentencePieceTokenizer(proto, **settled, **found, prepend_scheme=spaces.prepend_scheme, steps=spaces.steps)
