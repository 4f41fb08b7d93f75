"""Arguments of `keras.layers.MultiHeadAttention` and of KerasHub's `CachedMultiHeadAttention` by their names there."""

from typing import Any

from layers.errors import describe, refuse_names

# of the constructor
OPTIONS = {
    "key_dim": "head_dim",
    "value_dim": "value_head_dim",
    "num_query_heads": "num_heads",
    "output_shape": "output_dim",
    "flash_attention": "path",
}
_PADDING = "padding_mask, true where a key is real"
# of a call: those that mean something else, and those that mean the same
_OTHER = {
    **dict.fromkeys(("query_mask", "value_mask", "key_mask"), _PADDING),
    "cache_update_index": "cache_index, with a cache of make_cache()",
}
_SAME = frozenset(("query", "value", "key", "use_causal_mask", "return_attention_scores"))
# what they are called here
_OWN = {"query": "inputs", "value": "memory", "return_attention_scores": "return_weights"}


def to_own_names(causal: bool, positional: tuple[Any, ...], arguments: dict[str, Any]) -> dict[str, Any]:
    """Returns the call arguments that are given by name, under the names of `layers.MultiHeadAttention`.

    Args:
        causal: Whether the layer is causal.
        positional: The call arguments that are given without a name.
        arguments: Those that are given by name.

    Raises:
        ValueError: If `key` is another tensor than `value`, or `use_causal_mask` is not `causal`.
        TypeError: If there is no such argument here, one is given by both names, or there are three tensors.

    Example:

    >>> to_own_names(False, (x,), {"value": y, "return_attention_scores": True})
    {'memory': y, 'return_weights': True}
    """
    refuse_names("The call of MultiHeadAttention", arguments, _OTHER)
    if len(positional) > 2:
        raise TypeError(
            f"The call of MultiHeadAttention takes inputs and memory without a name, got {len(positional)} arguments: "
            "keys and values come from the same memory."
        )
    if not _SAME & arguments.keys():
        return arguments
    given = {**arguments, **dict(zip(("inputs", "memory"), positional, strict=False))}
    for name, own_name in _OWN.items():
        if given.get(name) is not None and given.get(own_name) is not None:
            raise TypeError(f"The call of MultiHeadAttention takes {name} or {own_name}, which are the same, got both.")
    own = {name: value for name, value in arguments.items() if name not in _SAME}
    if arguments.get("use_causal_mask", causal) != causal:
        raise ValueError(
            f"use_causal_mask must be {causal} as causal of the layer, got {arguments['use_causal_mask']}: make it "
            f"with causal={not causal}."
        )
    inputs = given.get("inputs", arguments.get("query"))
    value, key = (arguments.get(name) for name in ("value", "key"))
    memory = next((each for each in (value, given.get("memory")) if each is not None), inputs)
    if key is not None and key is not memory:
        raise ValueError(
            f"key must be the same tensor as value, got another one, {describe(key)}: keys and values come from the "
            "same memory."
        )
    if "query" in arguments:
        own["inputs"] = arguments["query"]
    if value is not None and value is not inputs:
        own["memory"] = value
    if "return_attention_scores" in arguments:
        own["return_weights"] = arguments["return_attention_scores"]
    return own
