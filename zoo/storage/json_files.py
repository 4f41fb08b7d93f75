"""JSON from outside."""

import json
from pathlib import Path
from typing import Any


def read_json(path: Path) -> dict[str, Any]:
    """Returns the dictionary in a JSON file.

    Args:
        path: The file.

    Raises:
        ValueError: If it is no JSON, or no dictionary.
        FileNotFoundError: If there is none.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(values, dict):
        raise ValueError(f"{path} must hold a dictionary, it holds a {type(values).__name__}.")
    return values
