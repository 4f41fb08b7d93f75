"""Finds the tokenizer in a directory of Hugging Face files."""

from __future__ import annotations

import dataclasses
import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from zoo.storage import errors_of_file, quote, read_bytes, read_json, require_type
from zoo.storage.tokenizer import FORMAT
from zoo.storage.user_warnings import warn_user
from zoo.tokenizers.base import Tokenizer
from zoo.tokenizers.byte_alphabet import missing_bytes_of
from zoo.tokenizers.byte_level_bpe import ByteLevelBPETokenizer
from zoo.tokenizers.huggingface.bpe import from_bpe
from zoo.tokenizers.huggingface.chat_template import with_chat_template
from zoo.tokenizers.huggingface.reader import read_content
from zoo.tokenizers.huggingface.special import (
    added_by_flags,
    roles_from_config,
    tokens_put_around,
    usual_roles,
    with_flags,
)
from zoo.tokenizers.huggingface.unigram import from_unigram
from zoo.tokenizers.huggingface.wordpiece import from_wordpiece
from zoo.tokenizers.marian import SOURCE_FILE, TARGET_FILE, VOCABULARY_FILE, MarianTokenizer
from zoo.tokenizers.sentencepiece import SentencePieceTokenizer
from zoo.tokenizers.sentencepiece_check import MOST_BYTES, parse_model
from zoo.tokenizers.wordpiece import WordPieceTokenizer

_MODEL_FILES = ("tokenizer.model", "spiece.model", "sentencepiece.model", "sentencepiece.bpe.model", "spm.model")
_CONFIG_FILES = ("special_tokens_map.json", "tokenizer_config.json")
_MOST_SENTINELS = 5000  # T5 has 100
# They put the start token before a text, and nothing behind it.
_START_ALONE = ("Llama", "CodeLlama", "Gemma")
_DEBERTA = {"start_token": "[CLS]", "end_token": "[SEP]", "pad_token": "[PAD]", "mask_token": "[MASK]"}
# Their ids are not those of the model file.
_SHIFTED = (
    *("XLMRoberta", "Camembert", "MBart", "MBart50", "M2M100", "Nllb", "Barthez", "XLNet", "Pegasus", "Reformer"),
    "BigBird",
)
# Classes that split texts by what their files do not hold.
_WITH_CODE = {"Esm": "looks for its tokens in a text in any place", "RoFormer": "looks for words with jieba first"}


def load_huggingface(path: str | os.PathLike[str], **roles: str | None) -> Tokenizer:
    """Reads a tokenizer from the files of a Hugging Face model.

    Looks for `tokenizer.json`, Marian's `source.spm` and `target.spm`, a SentencePiece `*.model`, `vocab.json` with
    `merges.txt`, and `vocab.txt`, in this order, and reads the special tokens and whether text is lower-cased from
    `tokenizer_config.json` and `special_tokens_map.json` next to them.

    A chat template becomes the `chat_format`, see `zoo.tokenizers.chat_format_of`. If no `ChatFormat` can express it,
    the tokenizer has none, and an error gives the reason when it is called with a conversation.

    Args:
        path: The directory, or one `tokenizer.json`.
        **roles: `pad_token`, `start_token`, `end_token`, `unknown_token`, `mask_token`: tokens to use in these roles
            instead of those that the files name.

    Returns:
        A `WordPieceTokenizer`, `ByteLevelBPETokenizer` or `SentencePieceTokenizer`, whose ids equal those of the
        `tokenizers` library; or a `MarianTokenizer`, whose ids equal those of Transformers.

    Raises:
        FileNotFoundError: The directory holds none of these files.
        ValueError: A file asks for something that cannot be reproduced exactly. The message names it.

    Example:

    >>> tokenizer = load_huggingface("path/to/gpt2")
    >>> tokenizer.tokenize(["Hello world"]).to_list()
    [[15496, 995]]
    """
    path = Path(path)
    file, tokenizer = _load(path, roles)
    tokenizer.source = str(file)
    return with_chat_template(tokenizer, path.parent if path.is_file() else path)


def has_huggingface_tokenizer(directory: str | os.PathLike[str]) -> bool:
    """Returns whether a directory has files of a tokenizer that `load_huggingface` looks for.

    Args:
        directory: The directory.
    """
    directory = Path(directory)
    alone = ("tokenizer.json", SOURCE_FILE, *_MODEL_FILES, "vocab.txt")
    return any((directory / name).is_file() for name in alone) or all(
        (directory / name).is_file() for name in ("vocab.json", "merges.txt")
    )


def _load(path: Path, roles: dict[str, str | None]) -> tuple[Path, Tokenizer]:
    """The file of the vocabulary, and the tokenizer."""
    directory = path.parent if path.is_file() else path
    if not directory.is_dir():
        raise FileNotFoundError(f"There is no directory {str(path)!r}.")
    config = {name: value for file in _CONFIG_FILES for name, value in _read_json(directory / file).items()}
    with errors_of_file(directory):
        roles = {**roles_from_config(config), **roles}
        name = _class_of(directory, config)
        if name in _WITH_CODE:
            raise ValueError(
                f"tokenizer_class must not be {config['tokenizer_class']!r}, which {_WITH_CODE[name]}: read its model "
                "on token level with from_preset(..., tokenizer=None), and give it ids from the library."
            )
    # what does not fit may be said in any of these
    others = [name for name in _CONFIG_FILES if (directory / name).is_file()]

    def named(file: Path) -> AbstractContextManager[None]:
        return errors_of_file(", ".join([str(file), *others]))

    json_file = path if path.is_file() else directory / "tokenizer.json"
    if json_file.is_file():
        with named(json_file):
            return json_file, _from_json(_read_json(json_file), roles, config)
    if (directory / SOURCE_FILE).is_file():
        with named(directory / VOCABULARY_FILE):
            return directory / VOCABULARY_FILE, _from_marian(directory, roles, config)
    model_file = next((directory / name for name in _MODEL_FILES if (directory / name).is_file()), None)
    if model_file is not None:
        with named(model_file):
            return model_file, _from_model(model_file, roles, config)
    if (directory / "vocab.json").is_file() and (directory / "merges.txt").is_file():
        with named(directory / "vocab.json"):
            return directory / "vocab.json", _from_vocabulary_and_merges(directory, roles, config)
    if (directory / "vocab.txt").is_file():
        with named(directory / "vocab.txt"):
            return directory / "vocab.txt", _from_vocabulary(directory / "vocab.txt", roles, config)
    raise FileNotFoundError(
        f"{str(directory)!r} holds no tokenizer: no tokenizer.json, {', '.join(_MODEL_FILES)}, "
        "vocab.json with merges.txt, or vocab.txt."
    )


def _read_json(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}


def _from_json(content: dict[str, Any], roles: dict[str, str], config: dict[str, Any]) -> Tokenizer:
    if content.get("format") == FORMAT:
        raise ValueError("this is a tokenizer that Tokenizer.save wrote: read it with Tokenizer.load.")
    if "model" not in content:
        raise ValueError("it has no 'model', so it is not a tokenizer.json.")
    parsed = read_content(content, "tokenizer.json")
    model = parsed.model
    # Old files do not name the type of their model.
    require_type(model.get("type"), str | None, "tokenizer.json: model.type")
    kind = model.get("type") or ("BPE" if "merges" in model else "Unigram" if "unk_id" in model else "WordPiece")
    readers = {"WordPiece": from_wordpiece, "BPE": from_bpe, "Unigram": from_unigram}
    if kind not in readers:
        raise ValueError(f"model.type must be one of {sorted(readers)}, got {quote(kind)}.")
    post_processor = with_flags(parsed.post_processor, roles, config)
    tokenizer = readers[kind](dataclasses.replace(parsed, post_processor=post_processor), roles)
    before, after = tokens_put_around(post_processor)
    if len(before) > 1 or len(after) > 1:
        warn_user(
            f"tokenizer.json: post_processor puts {quote(before)} before and {quote(after)} behind a text; tasks put "
            f"no more than one token on each side here, {quote(before[:1])} and {quote(after[-1:])}."
        )
    tokenizer.adds_start, tokenizer.adds_end = bool(before), bool(after)
    return tokenizer


def _from_model(path: Path, roles: dict[str, str], config: dict[str, Any]) -> Tokenizer:
    name = _class_of(path.parent, config)
    if name in _SHIFTED:
        raise ValueError(f"tokenizer_class={name!r} renumbers the pieces of the model file; use its tokenizer.json.")
    proto = read_bytes(path, MOST_BYTES)
    count = config.get("extra_ids")
    require_type(count, int | None, "tokenizer_config.json: extra_ids")
    if count is not None and not 0 <= count <= _MOST_SENTINELS:
        raise ValueError(f"tokenizer_config.json: extra_ids must be 0 to {_MOST_SENTINELS}, got {quote(count)}.")
    if count:
        proto = _with_control(proto, [f"<extra_id_{number}>" for number in reversed(range(count))])
    if path.name == "spm.model":
        roles = {**_DEBERTA, **roles}
        proto = _with_control(proto, [roles["mask_token"]])
    pieces = set(SentencePieceTokenizer(proto).get_vocabulary())
    known = {role: token for role, token in roles.items() if token in pieces}
    known.pop("unknown_token", None)  # the model has its own
    tokenizer = SentencePieceTokenizer(proto, **known, steps=_steps_before_model(name, config))
    start, end = added_by_flags(config)
    if name in _START_ALONE:
        start, end = start is not False, end is True
    tokenizer.adds_start, tokenizer.adds_end = start, end
    return tokenizer


def _from_marian(directory: Path, roles: dict[str, str], config: dict[str, Any]) -> Tokenizer:
    if _flag(config, "separate_vocabs"):
        raise ValueError("tokenizer_config.json: separate_vocabs must be false: one vocabulary for both, got true.")
    roles = {role: token for role, token in roles.items() if role in ("pad_token", "end_token", "unknown_token")}
    files = (directory / name for name in (VOCABULARY_FILE, SOURCE_FILE, TARGET_FILE))
    return MarianTokenizer.from_files(*files, **roles)


def _class_of(directory: Path, config: dict[str, Any]) -> str:
    """The beginning of the class's name; ALBERT's files need not name it."""
    require_type(config.get("tokenizer_class"), str | None, "tokenizer_config.json: tokenizer_class")
    name = config.get("tokenizer_class")
    if name is None and _read_json(directory / "config.json").get("model_type") == "albert":
        return "Albert"
    return (name or "").removesuffix("Fast").removesuffix("Tokenizer")


def _steps_before_model(name: str, config: dict[str, Any]) -> list[str]:
    """What the class changes in a text before its SentencePiece model sees it."""
    lower = _flag(config, "do_lower_case")
    if name != "Albert":
        return ["lowercase"] if lower else []
    steps = ["quotes"] if _flag(config, "keep_accents") else ["quotes", "strip_accents"]
    return steps if lower is False else [*steps, "lowercase"]


def _with_control(proto: bytes, tokens: list[str]) -> bytes:
    """The model with tokens that its file lacks behind its pieces: T5's sentinels, DeBERTa's mask token."""
    model = parse_model(proto)
    known = {piece.piece for piece in model.pieces}
    for token in tokens:
        if token not in known:
            model.pieces.add(piece=token, type=model.SentencePiece.CONTROL)
    return model.SerializeToString(deterministic=True)


def _from_vocabulary_and_merges(directory: Path, roles: dict[str, str], config: dict[str, Any]) -> Tokenizer:
    vocabulary = _read_json(directory / "vocab.json")
    roles = roles or usual_roles(list(vocabulary))
    tokenizer = ByteLevelBPETokenizer.from_files(
        directory / "vocab.json",
        directory / "merges.txt",
        add_prefix_space=bool(_flag(config, "add_prefix_space")),
        missing_bytes="drop" if missing_bytes_of(vocabulary) else None,
        strip_left=[roles["mask_token"]] if "mask_token" in roles else [],  # RoBERTa's swallows the space before
        **roles,
    )
    if tokenizer.start_id in (None, tokenizer.end_id):  # GPT-2's, not RoBERTa's
        tokenizer.adds_start, tokenizer.adds_end = (bool(flag) for flag in added_by_flags(config))
    return tokenizer


def _from_vocabulary(path: Path, roles: dict[str, str], config: dict[str, Any]) -> Tokenizer:
    if "do_lower_case" not in config:
        found = f"only {quote(sorted(config))}" if config else "as there is no such file, or nothing in it"
        raise ValueError(
            "tokenizer_config.json: do_lower_case must be true or false, as vocab.txt does not say whether text is "
            f'lower-cased, got none, {found}. Write {{"do_lower_case": true}} or false to that file, or use '
            f"WordPieceTokenizer.from_file({str(path)!r}, lowercase=...)."
        )
    return WordPieceTokenizer.from_file(
        path,
        lowercase=bool(_flag(config, "do_lower_case")),
        strip_accents=_flag(config, "strip_accents"),
        split_ideographs=_flag(config, "tokenize_chinese_chars") is not False,
        **roles,
    )


def _flag(config: dict[str, Any], key: str) -> bool | None:
    require_type(config.get(key), bool | None, f"tokenizer_config.json: {key}")
    return config.get(key)
