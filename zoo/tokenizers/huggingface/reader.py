"""Reads the parts of a `tokenizer.json` so that nothing in them is passed over."""

from __future__ import annotations

from typing import Any

ANY = object()


def refuse(what: str, value: Any, allowed: str) -> ValueError:
    """Returns the error for a part of the file that can't be honoured."""
    return ValueError(f"tokenizer.json: {what} is {value!r}, which this library can't reproduce; it can {allowed}.")


def read(part: dict[str, Any], where: str, **allowed: Any) -> dict[str, Any]:
    """Returns the settings of one part.

    Args:
        part: an object of the file, with a `type`.
        where: what to call it in errors.
        **allowed: for each key that may occur a tuple of the values that are understood, or `ANY`.

    Raises:
        ValueError: a key or a value that is not listed.
    """
    settings = {key: value for key, value in part.items() if key != "type"}
    name = f"{where} ({part.get('type')})"
    for key, value in settings.items():
        if key not in allowed:
            raise refuse(f"{name}.{key}", value, f"read {sorted(allowed)}")
        if allowed[key] is not ANY and value not in allowed[key]:
            raise refuse(f"{name}.{key}", value, f"do {allowed[key]}")
    return settings


def parts(component: dict[str, Any] | None, list_key: str) -> list[dict[str, Any]]:
    """Returns a component as a list: of none, of itself, or of what a `Sequence` holds."""
    if component is None:
        return []
    if component.get("type") != "Sequence":
        return [component]
    return [inner for part in component[list_key] for inner in parts(part, list_key)]


def types(components: list[dict[str, Any]]) -> list[str]:
    """Returns the types of components."""
    return [component.get("type", "?") for component in components]
