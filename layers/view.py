"""What a block knows about the tokens of a call, made once for all blocks of a stack that look alike.

Masks, positions, angles and the places in caches are facts about tokens. They do not depend on the layer, so layers
are told them and do not find them out again.
"""

import dataclasses
from typing import Any

import keras

from layers.errors import describe

_KIND = "__class__"


@dataclasses.dataclass(frozen=True, eq=False)
class View:
    """What a block knows about the tokens of a call, besides the tokens. Made by `TransformerBlock.look`.

    Args:
        token_mask: True where a token of the inputs is real, `(batch, length)`; None if all are.
        to_attention: Arguments of the self-attention: its own view, or what it takes in its place.
        to_memory: Arguments of the cross-attention; empty without one.
    """

    token_mask: Any
    to_attention: dict[str, Any]
    to_memory: dict[str, Any]


def refuse_with_view(facts: dict[str, Any]) -> None:
    """Checks that a call that brings a view says nothing beside it that a view says: it would not be read.

    Args:
        facts: The call arguments of which a view is made, by name.

    Raises:
        ValueError: If one of them is given.
    """
    for name, value in facts.items():
        if value is not None:
            raise ValueError(f"{name} must be None with a view, which is made of it, got {describe(value)}.")


def opened(tree: Any) -> Any:
    """Returns a nested structure with dictionaries in the place of views, so that the tensors of these are leaves.

    Keras takes a view as one value, whose tensors it does not cast.
    """

    def opened_leaf(leaf: Any) -> Any:
        if not dataclasses.is_dataclass(leaf) or isinstance(leaf, type):
            return leaf
        parts = {field.name: opened(getattr(leaf, field.name)) for field in dataclasses.fields(leaf)}
        return {_KIND: type(leaf), **parts}

    return keras.tree.map_structure(opened_leaf, tree)


def closed(tree: Any) -> Any:
    """Returns the structure of which `opened` made `tree`."""
    if isinstance(tree, dict):
        parts = {name: closed(part) for name, part in tree.items()}
        kind = parts.pop(_KIND, None)
        return parts if kind is None else kind(**parts)
    if isinstance(tree, list | tuple):
        parts = [closed(part) for part in tree]
        return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)
    return tree
