"""WordPiece models of `tokenizer.json`."""

from __future__ import annotations

from zoo.storage import quote
from zoo.tokenizers.huggingface.reader import OfType, TokenizerJson, parts, read, refuse, require_keys, types
from zoo.tokenizers.huggingface.special import added_tokens, settle_roles, vocabulary_with_added
from zoo.tokenizers.vocabulary_files import in_order_of_ids
from zoo.tokenizers.wordpiece import WordPieceTokenizer, check_lengths


def from_wordpiece(content: TokenizerJson, roles: dict[str, str]) -> WordPieceTokenizer:
    """Makes a tokenizer from a file whose model is WordPiece, as BERT's is.

    Raises:
        ValueError: The file needs something that `WordPieceTokenizer` does not do.
    """
    model = read(
        content.model,
        "model",
        vocab=OfType(dict[str, int]),
        unk_token=OfType(str | None),
        continuing_subword_prefix=("##",),
        max_input_chars_per_word=(100,),
    )
    normalizers = parts(content.normalizer, "normalizer")
    if types(normalizers) != ["BertNormalizer"]:
        raise refuse("normalizer", types(normalizers), "do BertNormalizer")
    normalizer = read(
        normalizers[0],
        "normalizer",
        clean_text=(True, False),
        handle_chinese_chars=(True, False),
        strip_accents=(None, True, False),
        lowercase=(True, False),
    )
    splitters = parts(content.pre_tokenizer, "pre_tokenizer")
    if types(splitters) != ["BertPreTokenizer"]:
        raise refuse("pre_tokenizer", types(splitters), "do BertPreTokenizer")
    for decoder in parts(content.decoder, "decoder"):
        if decoder.get("type") != "WordPiece":
            raise refuse("decoder", decoder.get("type"), "do WordPiece")
        read(decoder, "decoder", prefix=("##",), cleanup=(True,))
    require_keys(model, "model", "vocab")
    entries = content.added_tokens
    for entry in entries:
        if entry.single_word and not entry.special and entry.content in model["vocab"]:
            what = f"added_tokens: single_word of {quote(entry.content)}"
            raise refuse(what, True, "do for tokens that are not in model.vocab")
    check_lengths([entry.content for entry in entries], "tokenizer.json: added_tokens")
    tokens = in_order_of_ids(vocabulary_with_added(model["vocab"], entries), "model.vocab with added_tokens")
    check_lengths(tokens, "tokenizer.json: model.vocab")
    found = {"unknown_token": model.get("unk_token", "[UNK]")}
    settled = settle_roles(roles, content.post_processor, tokens)
    empty = dict.fromkeys(("pad_token", "start_token", "end_token", "mask_token"))
    return WordPieceTokenizer(
        tokens,
        lowercase=normalizer.get("lowercase", True),
        strip_accents=normalizer.get("strip_accents"),
        clean_text=normalizer.get("clean_text", True),
        split_ideographs=normalizer.get("handle_chinese_chars", True),
        **{**empty, **settled, **found},
        **added_tokens(entries, normalizes=True),
    )
