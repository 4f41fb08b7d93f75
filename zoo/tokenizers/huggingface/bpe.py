"""BPE models of `tokenizer.json`: of bytes, or of characters with bytes for what has no token."""

from __future__ import annotations

from typing import Any

from zoo.storage import quote
from zoo.tokenizers.base import Tokenizer
from zoo.tokenizers.byte_alphabet import missing_bytes_of
from zoo.tokenizers.byte_level_bpe import ByteLevelBPETokenizer
from zoo.tokenizers.huggingface.reader import ANY, OfType, TokenizerJson, parts, read, refuse, require_keys, types
from zoo.tokenizers.huggingface.sentencepiece_json import bytes_decoder
from zoo.tokenizers.huggingface.sentencepiece_proto import SPACE, bpe_proto
from zoo.tokenizers.huggingface.special import added_tokens, settle_roles, vocabulary_with_added
from zoo.tokenizers.sentencepiece import SentencePieceTokenizer
from zoo.tokenizers.split_patterns import PATTERNS
from zoo.tokenizers.vocabulary_files import in_order_of_ids

_NAMES = {pattern: name for name, pattern in PATTERNS.items()}


def from_bpe(content: TokenizerJson, roles: dict[str, str]) -> Tokenizer:
    """Makes a tokenizer from a file whose model is BPE, as those of GPT-2, Llama, Qwen and Gemma are.

    Raises:
        ValueError: The file needs something that neither `ByteLevelBPETokenizer` nor `SentencePieceTokenizer` does.
    """
    model = read(
        content.model,
        "model",
        vocab=OfType(dict[str, int]),
        merges=OfType(list[str | tuple[str, str]]),
        unk_token=OfType(str | None),
        dropout=(None, 0.0),
        continuing_subword_prefix=(None, ""),
        end_of_word_suffix=(None, ""),
        fuse_unk=ANY,
        byte_fallback=(True, False),
        ignore_merges=(True, False),
    )
    require_keys(model, "model", "vocab", "merges")
    splitters = parts(content.pre_tokenizer, "pre_tokenizer")
    if "ByteLevel" in types(splitters):
        return _byte_level(content, model, splitters, roles)
    if model.get("byte_fallback"):
        return _with_byte_fallback(content, model, splitters, roles)
    raise refuse(
        "pre_tokenizer", types(splitters), "do BPE with ByteLevel, or with model.byte_fallback as SentencePiece does"
    )


def _merges(model: dict[str, Any]) -> list[tuple[str, str]]:
    merges = [tuple(merge.split(" ")) if isinstance(merge, str) else tuple(merge) for merge in model["merges"]]
    for number, merge in enumerate(merges):
        if len(merge) != 2:
            raise ValueError(f"tokenizer.json: model.merges[{number}] must be a pair of tokens, got {quote(merge)}.")
    return merges


def _byte_level(
    content: TokenizerJson, model: dict[str, Any], splitters: list[dict[str, Any]], roles: dict[str, str]
) -> ByteLevelBPETokenizer:
    if model.get("byte_fallback"):
        raise refuse("model.byte_fallback", True, "do it without ByteLevel")
    normalizers = types(parts(content.normalizer, "normalizer"))
    if normalizers not in ([], ["NFC"]):
        raise refuse("normalizer", normalizers, "do none or NFC")
    for decoder in types(parts(content.decoder, "decoder")):
        if decoder != "ByteLevel":
            raise refuse("decoder", decoder, "do ByteLevel")
    split = []
    for splitter in splitters[:-1]:
        split.append(_pattern_name(splitter))
    last = read(
        splitters[-1], "pre_tokenizer", add_prefix_space=(True, False), trim_offsets=ANY, use_regex=(True, False)
    )
    if splitters[-1]["type"] != "ByteLevel":
        raise refuse("pre_tokenizer", types(splitters), "do sequences that end with ByteLevel")
    if last.get("use_regex", True):
        split.append("gpt2")
    if not split:
        raise refuse("pre_tokenizer", "ByteLevel without a pattern", f"split by {sorted(PATTERNS)}")
    if last.get("add_prefix_space", True) and len(splitters) > 1:
        raise refuse("pre_tokenizer.add_prefix_space", True, "do it where ByteLevel splits alone")
    entries = content.added_tokens
    tokens = in_order_of_ids(vocabulary_with_added(model["vocab"], entries), "model.vocab with added_tokens")
    settled = settle_roles(roles, content.post_processor, [entry.content for entry in entries])
    settled = {role: token for role, token in settled.items() if token in tokens}
    return ByteLevelBPETokenizer(
        tokens,
        _merges(model),
        split=split,
        add_prefix_space=last.get("add_prefix_space", True),
        normalization="NFC" if normalizers else None,
        whole_words_first=model.get("ignore_merges", False),
        **_missing_bytes(model, tokens, settled),
        **added_tokens(entries, normalizes=bool(normalizers)),
    )


def _missing_bytes(model: dict[str, Any], tokens: list[str], settled: dict[str, str]) -> dict[str, str]:
    """What becomes of bytes without a token: the model's unknown token, or nothing."""
    if not missing_bytes_of(set(tokens)):
        return settled
    unknown = model.get("unk_token")
    if unknown is None:
        return {**settled, "missing_bytes": "drop"}
    if model.get("fuse_unk"):
        raise refuse("model.fuse_unk", True, "do it where each of the 256 bytes has a token")
    return {**settled, "missing_bytes": "unknown", "unknown_token": unknown}


def _pattern_name(splitter: dict[str, Any]) -> str:
    if splitter["type"] == "Digits":
        read(splitter, "pre_tokenizer", individual_digits=(True,))
        return "digits"
    if splitter["type"] == "Split":
        settings = read(
            splitter, "pre_tokenizer", pattern=OfType(dict[str, str]), behavior=("Isolated",), invert=(False,)
        )
        require_keys(settings, "pre_tokenizer", "pattern")
        pattern = settings["pattern"].get("Regex")
        if pattern in _NAMES:
            return _NAMES[pattern]
        raise refuse("pre_tokenizer.pattern", settings["pattern"], f"split by the patterns {sorted(PATTERNS)}")
    raise refuse("pre_tokenizer", splitter["type"], "do Split and Digits before ByteLevel")


def _with_byte_fallback(
    content: TokenizerJson, model: dict[str, Any], splitters: list[dict[str, Any]], roles: dict[str, str]
) -> SentencePieceTokenizer:
    """Llama 2, Mistral, Gemma: the space is a character, and the whole text is merged at once."""
    adds_space, scheme = False, None
    normalizers = parts(content.normalizer, "normalizer")
    replaces = False
    for part in normalizers:
        if part["type"] == "Prepend":
            read(part, "normalizer", prepend=(SPACE,))
            adds_space = True
        elif part["type"] == "Replace":
            read(part, "normalizer", pattern=({"String": " "},), content=(SPACE,))
            replaces = True
        else:
            raise refuse("normalizer", part["type"], f"do Prepend {SPACE!r} and Replace of spaces by {SPACE!r}")
    if types(splitters) == ["Metaspace"] and not normalizers:
        scheme = _prepend_scheme(splitters[0], parts(content.decoder, "decoder"))
        replaces, splitters = True, []
    for splitter in splitters:
        # Gemma's: after the replacement there are no spaces left to split at
        if splitter["type"] != "Split" or splitter.get("pattern") != {"String": " "} or not replaces:
            raise refuse("pre_tokenizer", splitter, "do none where spaces are replaced by the normalizer")
    if not replaces:
        raise refuse("normalizer", types(normalizers), f"do BPE with byte_fallback where spaces become {SPACE!r}")
    if model.get("ignore_merges"):
        raise refuse("model.ignore_merges", True, "do it with ByteLevel only")
    entries = content.added_tokens
    ids = vocabulary_with_added(model["vocab"], entries)
    settled = settle_roles(roles, content.post_processor, [entry.content for entry in entries])
    unknown = model.get("unk_token") or settled.get("unknown_token")
    found = added_tokens(entries, normalizes=False)
    if {*found["single_words"]} & {*found["added_tokens"]}:
        raise refuse("added_tokens: single_word", True, "do it without model.byte_fallback")
    proto = bpe_proto(
        in_order_of_ids(ids, "model.vocab with added_tokens"),
        _merges(model),
        unknown_token=unknown,
        control=found["special_tokens"],
        added=found["added_tokens"],
        adds_space=adds_space,
    )
    settled = {role: token for role, token in settled.items() if token in ids and role != "unknown_token"}
    return SentencePieceTokenizer(proto, **settled, **found, prepend_scheme=scheme)


def _prepend_scheme(splitter: dict[str, Any], decoders: list[dict[str, Any]]) -> str | None:
    """Where Metaspace puts a space before text, as Transformers 5 saves the tokenizers of Llama; None for nowhere."""
    settings = read(
        splitter,
        "pre_tokenizer",
        replacement=(SPACE,),
        prepend_scheme=("first", "always", "never"),
        split=(False,),
        add_prefix_space=ANY,  # what prepend_scheme was before
    )
    require_keys(settings, "pre_tokenizer", "replacement", "prepend_scheme", "split")
    scheme = settings["prepend_scheme"]
    expected = bytes_decoder(scheme != "never")["decoders"]
    if decoders != expected:
        raise refuse("decoder", decoders, f"do with prepend_scheme {scheme!r}, {expected}")
    return None if scheme == "never" else scheme
