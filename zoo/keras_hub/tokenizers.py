"""Tokenizers of KerasHub presets, in both directions."""

import dataclasses
from pathlib import Path
from typing import Any

from zoo.storage import naming, quote, read_json
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
}


def read_tokenizer(directory: Path) -> Tokenizer | None:
    """Returns the tokenizer of a KerasHub preset; None if it has none.

    Args:
        directory: The preset.

    Raises:
        ValueError: If it is of a class that is not known here, or damaged. KerasHub splits the text of Llama 3 and Qwen
            otherwise than these models were trained with: give the tokenizer of the published model for them.
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
    with naming(path):
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


def write_tokenizer(tokenizer: Tokenizer, class_name: str, folder: Path) -> None:
    """Writes a tokenizer as one of KerasHub.

    Args:
        tokenizer: The tokenizer.
        class_name: Name of the backbone class that it is for.
        folder: The preset.

    Raises:
        ValueError: If the tokenizers of this class cannot express it.
    """
    import keras_hub

    name = class_name.replace("Backbone", "Tokenizer")
    kind = _CLASSES.get(name)
    if kind is None or not isinstance(tokenizer, kind.ours):
        raise ValueError(f"tokenizer must be one that keras_hub.models.{name} can express, got {tokenizer.kind!r}.")
    config = tokenizer.get_config()
    theirs = getattr(keras_hub.models, name)
    if kind.ours is WordPieceTokenizer:
        written = theirs(
            vocabulary=tokenizer.get_vocabulary(),
            lowercase=config["lowercase"],
            strip_accents=config["strip_accents"],
        )
    elif kind.ours is SentencePieceTokenizer:
        written = theirs(proto=tokenizer.proto)
    else:
        merges = [" ".join(pair) for pair in tokenizer.merges]
        ids = {token: index for index, token in enumerate(tokenizer.get_vocabulary())}
        written = theirs(vocabulary=ids, merges=merges)
    written.save_to_preset(str(folder))
    again = read_tokenizer(folder)
    # GPT-2 and Llama of KerasHub pad with the id 0, whatever token it is
    expected = {key: value for key, value in config.items() if value and (key != "pad_token" or key in kind.roles)}
    differing = sorted(key for key, value in again.get_config().items() if expected.get(key, value) != value)
    if again.get_vocabulary() != tokenizer.get_vocabulary() or differing:
        raise ValueError(f"keras_hub.models.{name} cannot express the tokenizer: it differs in {differing}.")
