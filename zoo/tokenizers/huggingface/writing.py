"""Writes the files of a tokenizer that the Transformers library reads."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from zoo.tokenizers.base import Tokenizer
from zoo.tokenizers.byte_level_bpe import ByteLevelBPETokenizer
from zoo.tokenizers.chat import write_template
from zoo.tokenizers.huggingface.sentencepiece_json import describe_sentencepiece, user_defined_tokens
from zoo.tokenizers.marian import MarianTokenizer
from zoo.tokenizers.sentencepiece import SentencePieceTokenizer
from zoo.tokenizers.split_patterns import PATTERNS
from zoo.tokenizers.wordpiece import WordPieceTokenizer

MODEL_FILE = "tokenizer.model"
_CLASSES = (ByteLevelBPETokenizer, MarianTokenizer, SentencePieceTokenizer, WordPieceTokenizer)
_NAMES = {"pad": "pad", "unk": "unknown", "mask": "mask"}


def save_huggingface(
    tokenizer: Tokenizer,
    directory: str | os.PathLike[str],
    *,
    before: Sequence[str] = (),
    after: Sequence[str] = (),
    pair_separators: int = 1,
    max_length: int | None = None,
    input_names: Sequence[str] = ("input_ids", "attention_mask"),
) -> None:
    """Writes a tokenizer for the Transformers library, whose `AutoTokenizer` then gives the same ids.

    The files are `tokenizer.json` and `tokenizer_config.json`. SentencePiece without a `prepend_scheme` also has
    `tokenizer.model`. Marian has `vocab.json`, `source.spm` and `target.spm` in place of `tokenizer.json`. The chat
    format becomes an equivalent chat template.

    Two kinds of text have other ids in that library. It reads special tokens wherever they occur in a text, which here
    is an option. It drops the space before a token that a SentencePiece model calls user-defined.

    Args:
        tokenizer: The tokenizer.
        directory: The directory, created if it does not exist. Other files in it are kept.
        before, after: Tokens that the library puts around a text.
        pair_separators: Number of repetitions of `after` between the two texts of a pair.
        max_length: Largest number of tokens of the model.
        input_names: Names of the inputs that the library passes to the model.

    Raises:
        ValueError: The library cannot reproduce the tokenizer. The message says why.

    Warns:
        UserWarning: Only the `tokenizer.model` of a SentencePiece model was written, because a `tokenizer.json` cannot
            express it. `load_huggingface` reads it, `AutoTokenizer` does not.

    Example:

    >>> save_huggingface(tokenizer, "exported", before=["[CLS]"], after=["[SEP]"])
    >>> transformers.AutoTokenizer.from_pretrained("exported")("A small dog.")["input_ids"]
    [101, 1037, 2235, 3899, 1012, 102]
    """
    if type(tokenizer) not in _CLASSES:  # a subclass may tokenize otherwise
        raise ValueError(f"A {tokenizer.kind!r} tokenizer can't be written for the Transformers library.")
    directory, settings = Path(directory), tokenizer.get_config()
    if isinstance(tokenizer, MarianTokenizer):
        _write_marian(tokenizer, directory, [*before, "", *after], max_length)
        return
    content = _describe(tokenizer, settings)
    directory.mkdir(parents=True, exist_ok=True)
    # a model file can't say where prepend_scheme puts a space, nor what steps change
    if isinstance(tokenizer, SentencePieceTokenizer) and tokenizer.prepend_scheme is None and not settings.get("steps"):
        (directory / MODEL_FILE).write_bytes(tokenizer.proto)
    if content is None:
        warnings.warn(
            f"This SentencePiece model has no equal in a tokenizer.json: it is written as {MODEL_FILE}, which "
            "AutoTokenizer does not read. (Unigram models have one, and BPE models with byte_fallback, the "
            "normalization 'identity' and all white space kept.)",
            stacklevel=2,
        )
    else:
        content = {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": _added_tokens(tokenizer, settings),
            "post_processor": _post_processor(tokenizer, before, after, pair_separators),
            **content,
        }
        _write_json(directory / "tokenizer.json", content)
    _write_json(
        directory / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "clean_up_tokenization_spaces": False,
            "model_input_names": list(input_names),
            **({} if max_length is None else {"model_max_length": max_length}),
            **({} if tokenizer.chat_format is None else {"chat_template": write_template(tokenizer.chat_format)}),
            **_roles(tokenizer, settings, before, after),
        },
    )


def _write_marian(tokenizer: MarianTokenizer, directory: Path, around: Sequence[str], max_length: int | None) -> None:
    """Writes the files of the library's own class, which puts the end token behind each text."""
    roles = tokenizer.get_config()
    if list(around) != ["", roles["end_token"]]:
        raise ValueError(f"A marian tokenizer puts {roles['end_token']!r} behind a text and nothing else.")
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in tokenizer.vocabulary_files().items():
        (directory / name).write_bytes(content)
    names = {"pad_token": "pad_token", "end_token": "eos_token", "unknown_token": "unk_token"}
    settings = {
        "tokenizer_class": "MarianTokenizer",
        "separate_vocabs": False,
        **({} if max_length is None else {"model_max_length": max_length}),
        **{theirs: roles[ours] for ours, theirs in names.items() if roles[ours] is not None},
    }
    _write_json(directory / "tokenizer_config.json", settings)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _describe(tokenizer: Tokenizer, settings: dict[str, Any]) -> dict[str, Any] | None:
    """Normalizer, splitting, model and decoder in the words of a `tokenizer.json`."""
    if isinstance(tokenizer, WordPieceTokenizer):
        return _describe_wordpiece(tokenizer, settings)
    if isinstance(tokenizer, ByteLevelBPETokenizer):
        return _describe_byte_level(tokenizer, settings)
    scheme, steps = tokenizer.prepend_scheme, settings.get("steps", ())
    content = describe_sentencepiece(tokenizer.proto, scheme, steps, settings["added_tokens"])
    if content is None and (scheme is not None or steps):
        raise ValueError(f"prepend_scheme={scheme!r} with steps={list(steps)} can't be written with this model.")
    return content


def _ids(tokenizer: Tokenizer) -> dict[str, int]:
    return {token: index for index, token in enumerate(tokenizer.get_vocabulary())}


def _describe_wordpiece(tokenizer: WordPieceTokenizer, settings: dict[str, Any]) -> dict[str, Any]:
    return {
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": settings["clean_text"],
            "handle_chinese_chars": settings["split_ideographs"],
            "strip_accents": settings["strip_accents"],
            "lowercase": settings["lowercase"],
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": tokenizer.id_to_token(tokenizer.unknown_id),
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": _ids(tokenizer),
        },
    }


def _describe_byte_level(tokenizer: ByteLevelBPETokenizer, settings: dict[str, Any]) -> dict[str, Any]:
    *first, last = settings["split"]
    with_pattern = last == "gpt2"  # the one that ByteLevel has itself
    splitters = [_splitter(name) for name in (first if with_pattern else settings["split"])]
    if splitters and settings["add_prefix_space"]:
        raise ValueError(
            f"add_prefix_space=True with split={settings['split']} can't be written: the Transformers library puts a "
            "space before each of the parts."
        )
    byte_level = {"type": "ByteLevel", "add_prefix_space": settings["add_prefix_space"], "trim_offsets": True}
    splitters.append({**byte_level, "use_regex": with_pattern})
    return {
        "normalizer": {"type": settings["normalization"]} if settings["normalization"] else None,
        "pre_tokenizer": splitters[0] if len(splitters) == 1 else {"type": "Sequence", "pretokenizers": splitters},
        "decoder": {**byte_level, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": settings["unknown_token"] if settings.get("missing_bytes") == "unknown" else None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": settings["whole_words_first"],
            "vocab": _ids(tokenizer),
            "merges": [list(pair) for pair in tokenizer.merges],
        },
    }


def _splitter(name: str) -> dict[str, Any]:
    if name == "digits":
        return {"type": "Digits", "individual_digits": True}
    return {"type": "Split", "pattern": {"Regex": PATTERNS[name]}, "behavior": "Isolated", "invert": False}


def _added_tokens(tokenizer: Tokenizer, settings: dict[str, Any]) -> list[dict[str, Any]]:
    """The tokens that are found as a whole, in the order of their ids."""
    plain = set(settings["added_tokens"])
    if isinstance(tokenizer, SentencePieceTokenizer):
        plain |= user_defined_tokens(tokenizer.proto)
    return [
        {
            "id": tokenizer.token_to_id(token),
            "content": token,
            "single_word": token in settings.get("single_words", ()),
            "lstrip": token in settings["strip_left"],
            "rstrip": token in settings["strip_right"],
            "normalized": False,
            "special": token not in plain,
        }
        for token in sorted({*tokenizer.special_tokens, *plain}, key=tokenizer.token_to_id)
    ]


def _post_processor(
    tokenizer: Tokenizer, before: Sequence[str], after: Sequence[str], pair_separators: int
) -> dict[str, Any] | None:
    if not before and not after:
        return None

    def special(tokens: Sequence[str], kind: int) -> list[dict[str, Any]]:
        return [{"SpecialToken": {"id": token, "type_id": kind}} for token in tokens]

    def text(name: str, kind: int) -> list[dict[str, Any]]:
        return [{"Sequence": {"id": name, "type_id": kind}}]

    single = [*special(before, 0), *text("A", 0), *special(after, 0)]
    between = special(after, 1) * (pair_separators - 1)
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, *between, *text("B", 1), *special(after, 1)],
        "special_tokens": {
            token: {"id": token, "ids": [tokenizer.token_to_id(token)], "tokens": [token]}
            for token in sorted({*before, *after})
        },
    }


def _roles(
    tokenizer: Tokenizer, settings: dict[str, Any], before: Sequence[str], after: Sequence[str]
) -> dict[str, str]:
    """The special tokens by the library's names of their roles."""
    start, end = settings["start_token"], settings["end_token"]
    roles = {f"{name}_token": settings[f"{role}_token"] for name, role in _NAMES.items()}
    if not isinstance(tokenizer, WordPieceTokenizer):
        roles |= {"bos_token": start, "eos_token": end}
    if isinstance(tokenizer, WordPieceTokenizer) or (before and after):
        roles |= {"cls_token": start, "sep_token": end}
    return {role: token for role, token in roles.items() if token is not None}
