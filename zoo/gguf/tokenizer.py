"""The tokenizer of a GGUF file, as the files of a tokenizer of Hugging Face would say it."""

from __future__ import annotations

from typing import Any

import numpy as np

from zoo.gguf.header import GGUFHeader
from zoo.storage import quote
from zoo.tokenizers.huggingface.sentencepiece_proto import SPACE, scored_proto
from zoo.tokenizers.split_patterns import PATTERNS

# types of tokens, those of SentencePiece
_NORMAL, _UNKNOWN, _CONTROL, _USER = 1, 2, 3, 4
# how texts are split before merges are looked for, by the names that llama.cpp has
_SPLITS = {
    "default": ("gpt2",),
    "gpt-2": ("gpt2",),
    "exaone4": ("gpt2",),
    "phi-2": ("gpt2",),
    "smollm": ("digits", "gpt2"),
    "starcoder": ("digits", "gpt2"),
    "llama-bpe": ("llama3",),
    "lfm2": ("llama3",),
    "smaug-bpe": ("llama3",),
    "chatglm-bpe": ("llama3",),
    "glm4": ("llama3",),
    "qwen2": ("qwen2",),
    "stablelm2": ("qwen2",),
    "gpt-4o": ("gpt4o",),
    "bloom": ("bloom",),
    "deepseek-v3": ("numbers", "han_kana", "deepseek_v3"),
}
# those that take a word whole where it is a token, whatever its merges
_WHOLE_WORDS = ("llama-bpe", "smaug-bpe", "lfm2")
ROLES = {
    **{"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding", "mask": "mask"},
    **{"cls": "cls", "sep": "seperator"},  # so llama.cpp spells it
}


def tokenizer_files(header: GGUFHeader) -> dict[str, Any]:
    """Returns the contents of the files of a tokenizer: bytes, a text, or an object for JSON.

    Args:
        header: The header of the file.

    Raises:
        ValueError: If the kind of tokenizer is not supported, or something does not fit.
    """
    kind = header.require("tokenizer.ggml.model", str)
    if kind not in _KINDS:
        raise ValueError(
            f"{header.path}: tokenizer.ggml.model must be one of {', '.join(map(repr, _KINDS))}, got {quote(kind)}."
        )
    tokens = header.require("tokenizer.ggml.tokens", list)
    types = [_NORMAL] * len(tokens)
    if "tokenizer.ggml.token_type" in header.metadata:
        types = [int(each) for each in header.metadata["tokenizer.ggml.token_type"]]
    if not all(isinstance(token, str) for token in tokens) or not all(1 <= kind <= 6 for kind in types):
        raise ValueError(
            f"{header.path}: tokenizer.ggml.tokens must be texts and tokenizer.ggml.token_type from 1 to 6."
        )
    if len(types) != len(tokens) or len(set(tokens)) != len(tokens):
        raise ValueError(
            f"{header.path}: tokenizer.ggml.tokens must be different from each other, with as many "
            f"tokenizer.ggml.token_type, got {len(tokens)} tokens ({len(set(tokens))} different) and {len(types)} "
            "types."
        )
    settings: dict[str, Any] = {}
    for role, key in ROLES.items():
        index = header.get(f"tokenizer.ggml.{key}_token_id", int)
        if index is None:
            continue
        if not 0 <= index < len(tokens):
            raise ValueError(f"{header.path}: tokenizer.ggml.{key}_token_id must be below {len(tokens)}, got {index}.")
        settings[f"{role}_token"] = tokens[index]
    for flag in ("add_bos_token", "add_eos_token"):
        value = header.get(f"tokenizer.ggml.{flag}", bool)
        if value is not None:
            settings[flag] = value
    template = header.get("tokenizer.chat_template", str)
    if template is not None:
        settings["chat_template"] = template
    return _KINDS[kind](header, tokens, types, settings)


def _byte_level(header: GGUFHeader, tokens: list[str], types: list[int], settings: dict[str, Any]) -> dict[str, Any]:
    """Byte-level BPE, llama.cpp's "gpt2"."""
    named = header.get("tokenizer.ggml.pre", str, "default")
    if named not in _SPLITS:
        raise ValueError(f"{header.path}: tokenizer.ggml.pre must be one of {sorted(_SPLITS)}, got {quote(named)}.")
    content = {
        "version": "1.0",
        "added_tokens": [
            {
                "id": index,
                "content": tokens[index],
                "special": types[index] == _CONTROL,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
            }
            for index in range(len(tokens))
            if types[index] in (_CONTROL, _USER)
        ],
        "normalizer": _normalizer(named),
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": _splitters(_SPLITS[named])},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": named in _WHOLE_WORDS,
            "vocab": {token: index for index, token in enumerate(tokens)},
            "merges": header.require("tokenizer.ggml.merges", list),
        },
    }
    return {"tokenizer.json": content, "tokenizer_config.json": settings}


def _sentencepiece(header: GGUFHeader, tokens: list[str], types: list[int], settings: dict[str, Any]) -> dict[str, Any]:
    """A SentencePiece model: of type BPE is llama.cpp's "llama", unigram its "t5"."""
    is_bpe = header.metadata["tokenizer.ggml.model"] == "llama"
    scores = header.require("tokenizer.ggml.scores", np.ndarray)
    if len(scores) != len(tokens) or scores.dtype.kind != "f":
        raise ValueError(
            f"{header.path}: tokenizer.ggml.scores must be {len(tokens)} numbers, one for a token, got {len(scores)}."
        )
    if _UNKNOWN not in types:  # old files have no types; the first token is the unknown one by default
        types = list(types)
        types[header.get("tokenizer.ggml.unknown_token_id", int, 0)] = _UNKNOWN
    model = scored_proto(
        tokens,
        scores.tolist(),
        types,
        unigram=not is_bpe,
        charsmap=header.get("tokenizer.ggml.precompiled_charsmap", np.ndarray, np.zeros(0, "uint8")).tobytes(),
        adds_space=header.get("tokenizer.ggml.add_space_prefix", bool, True),
        removes_extra_spaces=header.get("tokenizer.ggml.remove_extra_whitespaces", bool, False),
    )
    defaults = {"tokenizer_class": "LlamaTokenizer"} if is_bpe else {"tokenizer_class": "T5Tokenizer"}
    return {"tokenizer.model": model, "tokenizer_config.json": {**defaults, **settings}}


def _wordpiece(header: GGUFHeader, tokens: list[str], types: list[int], settings: dict[str, Any]) -> dict[str, Any]:
    """WordPiece, llama.cpp's "bert": words have "\u2581" before them, and what continues them has nothing."""

    def ours(token: str) -> str:
        if token.startswith("[") and token.endswith("]"):
            return token
        return token[1:] if token.startswith(SPACE) else f"##{token}"

    pieces = [ours(token) for token in tokens]
    broken = next((token for token in pieces if not token or len(token.splitlines()) != 1), None)
    if broken is not None:
        raise ValueError(f"{header.path}: tokenizer.ggml.tokens must be of one line each, got {quote(broken)}.")
    for role in ("cls", "sep", "unk", "pad", "mask"):
        settings.setdefault(f"{role}_token", f"[{role.upper()}]")
    # no key says it: a vocabulary with capital letters is of texts with capital letters
    lowercase = not any(piece != piece.lower() for piece in pieces if not piece.startswith("["))
    settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": lowercase, **settings}
    return {"vocab.txt": "".join(f"{piece}\n" for piece in pieces), "tokenizer_config.json": settings}


_KINDS = {"gpt2": _byte_level, "llama": _sentencepiece, "t5": _sentencepiece, "bert": _wordpiece}


def from_files(content: dict[str, Any]) -> tuple[str, list[str], list[int], list[str]]:
    """Returns what a GGUF file says of a tokenizer.

    Args:
        content: What `tokenizer.json` holds.

    Returns:
        llama.cpp's name of how texts are split, the tokens, their types and the merges.

    Raises:
        ValueError: If it is no byte-level BPE, or splits, normalizes or merges as no name of llama.cpp says.
    """
    model, steps = content["model"], content.get("pre_tokenizer") or {}
    steps = steps["pretokenizers"] if steps.get("type") == "Sequence" else [steps]
    is_bytes = model.get("type") == "BPE" and (content.get("decoder") or {}).get("type") == "ByteLevel"
    names = [name for name, split in _SPLITS.items() if _splitters(split) == steps and name != "default"]
    names = [name for name in names if content.get("normalizer") == _normalizer(name)]
    if not is_bytes or not names:
        raise ValueError(
            "A GGUF file is written with a SentencePiece model, or a byte-level BPE tokenizer that splits as one of "
            f"{', '.join(sorted(set(_SPLITS) - {'default'}))}, this one is another."
        )
    if bool(model.get("ignore_merges")) != (names[0] in _WHOLE_WORDS):
        raise ValueError(f"ignore_merges must be {names[0] in _WHOLE_WORDS} for a tokenizer that splits as {names[0]}.")
    added = {token["id"]: token for token in content.get("added_tokens", ())}
    numbers = {index: token for token, index in model["vocab"].items()} | {
        index: token["content"] for index, token in added.items()
    }
    if sorted(numbers) != list(range(len(numbers))):
        raise ValueError(f"A GGUF file has tokens of the ids 0 to {len(numbers) - 1}, this tokenizer has others.")
    types = [
        (_CONTROL if added[index]["special"] else _USER) if index in added else _NORMAL for index in range(len(numbers))
    ]
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    return names[0], [numbers[index] for index in range(len(numbers))], types, merges


def _normalizer(name: str) -> dict[str, Any] | None:
    return {"type": "NFC"} if name == "qwen2" else None


def _splitters(names: tuple[str, ...]) -> list[dict[str, Any]]:
    """The steps before the model; the pattern of GPT-2 is that of the last step."""
    steps: list[dict[str, Any]] = []
    for name in names:
        if name == "digits":
            steps.append({"type": "Digits", "individual_digits": True})
        elif name != "gpt2":
            split = {"type": "Split", "pattern": {"Regex": PATTERNS[name]}, "behavior": "Isolated", "invert": False}
            steps.append(split)
    last = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": names[-1] == "gpt2"}
    return [*steps, last]
