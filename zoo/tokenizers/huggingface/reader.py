"""Reads the parts of a `tokenizer.json` without ignoring anything in them."""

from __future__ import annotations

import dataclasses
from typing import Any

from zoo.storage import quote, quote_key, require_type, to_dataclass
from zoo.tokenizers.sentencepiece_check import check_tokens
from zoo.tokenizers.vocabulary import MOST_FOUND

ANY = object()
# what a `Sequence` of each component calls the list of its parts
_LISTS = {
    "normalizer": "normalizers",
    "pre_tokenizer": "pretokenizers",
    "post_processor": "processors",
    "decoder": "decoders",
}


@dataclasses.dataclass(frozen=True)
class OfType:
    """Any value of a given type.

    Args:
        hint: The type, as `zoo.storage.to_dataclass` takes it.
    """

    hint: Any


@dataclasses.dataclass(frozen=True)
class AddedToken:
    """An entry of `added_tokens`.

    Args:
        id: Its id.
        content: Its text.
        special: Whether it is a control token.
        single_word: Whether it is found only as a whole word.
        lstrip, rstrip: Whether it removes the white space before or after it.
        normalized: Whether it is searched in the normalized text.
    """

    id: int
    content: str
    special: bool = False
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool = True


@dataclasses.dataclass(frozen=True)
class TokenizerJson:
    """A `tokenizer.json`.

    Args:
        model: The vocabulary and how texts are split.
        normalizer, pre_tokenizer, post_processor, decoder: Its other parts.
        added_tokens: Tokens that are found as a whole.
    """

    model: dict[str, Any]
    normalizer: dict[str, Any] | None = None
    pre_tokenizer: dict[str, Any] | None = None
    post_processor: dict[str, Any] | None = None
    decoder: dict[str, Any] | None = None
    added_tokens: list[AddedToken] = dataclasses.field(default_factory=list)


def read_content(content: Any, name: str) -> TokenizerJson:
    """Returns the parts of a `tokenizer.json`.

    Args:
        content: Content of the file.
        name: Name of the file, for errors.

    Raises:
        ValueError: A part is missing or is of another type.
    """
    added = content.get("added_tokens") if isinstance(content, dict) else None
    if isinstance(added, list) and len(added) > MOST_FOUND:
        raise ValueError(f"{name}: added_tokens must be at most {MOST_FOUND}, got {len(added)}.")
    parsed = to_dataclass(TokenizerJson, content, name, others=True)
    check_tokens([entry.content for entry in parsed.added_tokens], f"{name}: added_tokens")
    for index, entry in enumerate(parsed.added_tokens):
        if entry.id < 0:
            raise ValueError(f"{name}: added_tokens[{index}].id must be at least 0, got {entry.id}.")
    return parsed


def refuse(what: str, value: Any, allowed: str) -> ValueError:
    """Returns the error for a part of the file that can't be honoured."""
    shown = quote(what, plain=True)
    return ValueError(f"tokenizer.json: {shown} must be what this library can {allowed}, got {quote(value)}.")


def read(part: dict[str, Any], where: str, **allowed: Any) -> dict[str, Any]:
    """Returns the settings of one part.

    Args:
        part: An object of the file, with a `type`.
        where: Its name in errors.
        **allowed: For each allowed key, a tuple of the supported values, an `OfType`, or `ANY`.

    Raises:
        ValueError: A key or a value is not listed.
    """
    settings = {key: value for key, value in part.items() if key != "type"}
    for key, value in settings.items():
        name = f"tokenizer.json: {where}.{quote_key(key)}"
        kind = f"for the type {quote(part.get('type'))}"
        if key not in allowed:
            raise ValueError(f"{name} must be left out {kind}, only {sorted(allowed)} are known, got {quote(value)}.")
        if isinstance(allowed[key], OfType):
            require_type(value, allowed[key].hint, name)
        elif allowed[key] is not ANY and value not in allowed[key]:
            raise ValueError(f"{name} must be one of {allowed[key]} {kind}, got {quote(value)}.")
    return settings


def require_keys(part: dict[str, Any], where: str, *keys: str) -> None:
    """Raises a ValueError if a part lacks a key.

    Args:
        part: An object of the file.
        where: Its name in errors.
        *keys: The keys.
    """
    for key in keys:
        if key not in part:
            raise ValueError(f"tokenizer.json: {where}.{key} is missing.")


def parts(component: dict[str, Any] | None, name: str) -> list[dict[str, Any]]:
    """Returns a component as a list: of none, of itself, or of what a `Sequence` holds.

    Args:
        component: A part of the file.
        name: Its key.

    Raises:
        ValueError: A part is no object with a `type`.
    """
    return [] if component is None else _parts(component, name, _LISTS[name])


def _parts(component: dict[str, Any], where: str, list_key: str) -> list[dict[str, Any]]:
    require_type(component.get("type"), str, f"tokenizer.json: {where}.type")
    if component["type"] != "Sequence":
        return [component]
    where = f"{where}.{list_key}"
    require_type(component.get(list_key), list[dict[str, Any]], f"tokenizer.json: {where}")
    return [
        inner for index, part in enumerate(component[list_key]) for inner in _parts(part, f"{where}[{index}]", list_key)
    ]


def types(components: list[dict[str, Any]]) -> list[str]:
    """Returns the types of components."""
    return [component["type"] for component in components]
