"""Which keys of a configuration the Transformers library knows: other programs write some of their own."""

import functools
import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

# written by tests/reference/declared_keys.py from the sources of several versions of the library
_FILE = Path(__file__).with_name("declared_keys.json")


@functools.cache
def declared_keys() -> dict[str, frozenset[str]]:
    """Returns the keys that a configuration class declares or the code of a model reads, by `model_type`."""
    content = json.loads(_FILE.read_text("utf-8"))
    common = frozenset(content.pop(""))
    return {model_type: common.union(keys) for model_type, keys in content.items()}


def stray_keys(model_type: Any, keys: Collection[str]) -> set[str]:
    """Returns those of the keys that no version of the library knows for a `model_type`.

    Args:
        model_type: The `model_type`. One that the library does not have may use any key.
        keys: Keys of its `config.json`.

    Example:

    >>> stray_keys("llama", ["head_dim", "unsloth_fixed"])
    {'unsloth_fixed'}
    """
    known = declared_keys().get(model_type)
    return set() if known is None else set(keys) - known
