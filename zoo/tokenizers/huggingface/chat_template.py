"""Chat templates in directories of Hugging Face."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from zoo.storage import quote, read_bytes, read_json, require_type
from zoo.tokenizers.base import Tokenizer
from zoo.tokenizers.chat import chat_format_of
from zoo.tokenizers.chat.rendering import MOST_TEMPLATE

TEMPLATE_FILE = "chat_template.jinja"
CONFIG_FILE = "tokenizer_config.json"
# files that name special tokens, the later ones before the earlier ones
_FILES = ("special_tokens_map.json", CONFIG_FILE)


def with_chat_template(tokenizer: Tokenizer, directory: Path) -> Tokenizer:
    """Returns a tokenizer with the chat format of its directory, if there is one that can be read.

    Args:
        tokenizer: The tokenizer.
        directory: The directory.
    """
    try:
        values = {file: read_json(directory / file) for file in _FILES if (directory / file).is_file()}
        template, source = _read_template(directory, values.get(CONFIG_FILE, {}))
    except ValueError as error:
        return _without(tokenizer, str(error))
    if template is None:
        return tokenizer
    try:
        tokens = {name: value for content in values.values() for name, value in content.items()}
        return tokenizer.with_chat_format(chat_format_of(template, _variables(tokens), tokenizer.named_tokens))
    except ValueError as error:
        return _without(tokenizer, f"{directory / source} has a chat template that cannot be read: {error}")


def _without(tokenizer: Tokenizer, reason: str) -> Tokenizer:
    tokenizer.no_chat_because = reason
    return tokenizer


def _read_template(directory: Path, config: dict[str, Any]) -> tuple[str | None, str]:
    """The template, and the file that it is from. There may be several, by name; "default" is that of conversations."""
    if (directory / TEMPLATE_FILE).is_file():
        return read_bytes(directory / TEMPLATE_FILE, 4 * MOST_TEMPLATE).decode("utf-8", "replace"), TEMPLATE_FILE
    value = config.get("chat_template")
    where = f"{directory / CONFIG_FILE}: chat_template"
    require_type(value, str | list[dict[str, Any]] | None, where)
    if isinstance(value, list):
        named = {}
        for index, entry in enumerate(value):
            for key in ("name", "template"):
                require_type(entry.get(key), str, f"{where}[{index}].{key}")
            named[entry["name"]] = entry["template"]
        if "default" not in named and len(named) != 1:
            raise ValueError(f"{where} must have the name 'default' among its names, got {quote(sorted(named))}.")
        value = named.get("default", next(iter(named.values())))
    return value, CONFIG_FILE


def _variables(config: dict[str, Any]) -> dict[str, str]:
    """The special tokens by the names that templates know them by."""
    found = {}
    for name, value in config.items():
        value = value.get("content") if isinstance(value, dict) else value
        if name.endswith("_token") and isinstance(value, str):
            found[name] = value
    return found
