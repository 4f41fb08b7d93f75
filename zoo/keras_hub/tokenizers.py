"""Tokenizers of KerasHub presets, in both directions."""

import dataclasses
from pathlib import Path
from typing import Any

from zoo.storage import errors_of_file, quote, read_json
from zoo.tokenizers import ByteLevelBPETokenizer, SentencePieceTokenizer, Tokenizer, WordPieceTokenizer

TOKENIZER_FILE = "tokenizer.json"
ASSETS = "assets/tokenizer"


@dataclasses.dataclass(frozen=True)
class Kind:
    """A class of tokenizers of KerasHub.

    Args:
        ours: Our class.
        roles: Arguments of our class that name special tokens; they are constants of theirs.
    """

    ours: type[Tokenizer]
    roles: dict[str, str]


_ANGLE = {"start_token": "<s>", "end_token": "</s>"}
_CLASSES = {
    "BertTokenizer": Kind(WordPieceTokenizer, {}),
    "DistilBertTokenizer": Kind(WordPieceTokenizer, {}),
    "GPT2Tokenizer": Kind(ByteLevelBPETokenizer, {"start_token": "<|endoftext|>", "end_token": "<|endoftext|>"}),
    "RobertaTokenizer": Kind(ByteLevelBPETokenizer, {**_ANGLE, "pad_token": "<pad>", "mask_token": "<mask>"}),
    "BartTokenizer": Kind(ByteLevelBPETokenizer, {**_ANGLE, "pad_token": "<pad>"}),
    "LlamaTokenizer": Kind(SentencePieceTokenizer, _ANGLE),
    "MistralTokenizer": Kind(SentencePieceTokenizer, _ANGLE),
    "MixtralTokenizer": Kind(SentencePieceTokenizer, _ANGLE),
    "Phi3Tokenizer": Kind(SentencePieceTokenizer, {"start_token": "<s>", "end_token": "<|endoftext|>"}),
    "GemmaTokenizer": Kind(
        SentencePieceTokenizer, {"start_token": "<bos>", "end_token": "<eos>", "pad_token": "<pad>"}
    ),
    "T5Tokenizer": Kind(SentencePieceTokenizer, {"end_token": "</s>", "pad_token": "<pad>"}),
    "AlbertTokenizer": Kind(
        SentencePieceTokenizer,
        {"start_token": "[CLS]", "end_token": "[SEP]", "pad_token": "<pad>", "mask_token": "[MASK]"},
    ),
    "ElectraTokenizer": Kind(WordPieceTokenizer, {}),
    "OPTTokenizer": Kind(ByteLevelBPETokenizer, {"start_token": "</s>", "end_token": "</s>", "pad_token": "<pad>"}),
    "GPTNeoXTokenizer": Kind(ByteLevelBPETokenizer, {"start_token": "<|endoftext|>", "end_token": "<|endoftext|>"}),
}


def read_tokenizer(directory: Path) -> Tokenizer | None:
    """Returns the tokenizer of a KerasHub preset; None if it has none.

    Args:
        directory: The preset.

    Raises:
        ValueError: If its class is not supported, or it is damaged. KerasHub splits texts for Llama 3 and Qwen
            differently from their training: pass the tokenizer of the published model for these.
    """
    path = directory / TOKENIZER_FILE
    if not path.is_file():
        return None
    values = read_json(path)
    name, options = values.get("class_name"), values.get("config")
    if not isinstance(name, str) or name not in _CLASSES:
        raise ValueError(f"{path}: class_name must be one of {sorted(_CLASSES)}, got {quote(name)}: pass tokenizer=.")
    if not isinstance(options, dict):
        raise ValueError(f"{path}: config must be an object, got {quote(options)}.")
    kind, assets = _CLASSES[name], directory / ASSETS
    with errors_of_file(path):
        if kind.ours is WordPieceTokenizer:
            _require(options, {"suffix_indicator": "##", "oov_token": "[UNK]", "split": True})
            choices = {key: options.get(key, False) for key in ("lowercase", "strip_accents")}
            for key, value in choices.items():
                if not isinstance(value, bool):
                    raise ValueError(f"config.{key} must be true or false, got {quote(value)}.")
            return WordPieceTokenizer.from_file(assets / "vocabulary.txt", **choices)
        if kind.ours is SentencePieceTokenizer:
            return SentencePieceTokenizer.from_file(assets / "vocabulary.spm", **kind.roles)
        _require(options, {"add_prefix_space": False})
        return ByteLevelBPETokenizer.from_files(assets / "vocabulary.json", assets / "merges.txt", **kind.roles)


def _require(options: dict[str, Any], needed: dict[str, Any]) -> None:
    for key, value in needed.items():
        if options.get(key, value) != value:
            raise ValueError(f"config.{key} must be {value!r}: nothing else is supported, got {quote(options[key])}.")


def class_of(class_name: str) -> str:
    """Returns the name of the class of tokenizers of a class of backbones, as `BertTokenizer`."""
    return class_name.replace("Backbone", "Tokenizer")


def require_kind(tokenizer: Tokenizer, class_name: str) -> None:
    """Raises a ValueError unless the tokenizers for a class of backbones are of the kind of ours.

    Args:
        tokenizer: The tokenizer.
        class_name: Name of the class of backbones.
    """
    name = class_of(class_name)
    kind = _CLASSES.get(name)
    # a subclass may tokenize otherwise
    if kind is None or type(tokenizer) is not kind.ours:
        raise ValueError(f"tokenizer must be one that keras_hub.models.{name} can express, got {tokenizer.kind!r}.")
    if getattr(tokenizer, "prepend_scheme", None) is not None:
        raise ValueError(f"tokenizer.prepend_scheme must be None for KerasHub, got {tokenizer.prepend_scheme!r}.")


def make_tokenizer(tokenizer: Tokenizer, class_name: str) -> Any:
    """Returns a tokenizer as one of KerasHub, to be compared by `require_same` once it is written.

    Args:
        tokenizer: The tokenizer.
        class_name: Name of the class of backbones that it is for.

    Raises:
        ValueError: If the tokenizers of this class are of another kind.
    """
    import keras_hub

    require_kind(tokenizer, class_name)
    theirs = getattr(keras_hub.models, class_of(class_name))
    config = tokenizer.get_config()
    if isinstance(tokenizer, WordPieceTokenizer):
        choices = {key: config[key] for key in ("lowercase", "strip_accents")}
        return theirs(vocabulary=tokenizer.get_vocabulary(), **choices)
    if isinstance(tokenizer, SentencePieceTokenizer):
        return theirs(proto=tokenizer.proto)
    merges = [" ".join(pair) for pair in tokenizer.merges]
    return theirs(vocabulary={token: index for index, token in enumerate(tokenizer.get_vocabulary())}, merges=merges)


def require_same(tokenizer: Tokenizer, class_name: str, folder: Path) -> None:
    """Raises a ValueError unless what was written for KerasHub is the same tokenizer.

    Args:
        tokenizer: Ours.
        class_name: Name of the class of backbones that it is for.
        folder: The preset.
    """
    name, config, again = class_of(class_name), tokenizer.get_config(), read_tokenizer(folder)
    roles = _CLASSES[name].roles
    # GPT-2 and Llama of KerasHub pad with the id 0, whatever token it is
    expected = {key: value for key, value in config.items() if value and (key != "pad_token" or key in roles)}
    differing = sorted(key for key, value in again.get_config().items() if expected.get(key, value) != value)
    if again.get_vocabulary() != tokenizer.get_vocabulary() or differing:
        raise ValueError(f"keras_hub.models.{name} cannot express the tokenizer: it differs in {differing}.")
