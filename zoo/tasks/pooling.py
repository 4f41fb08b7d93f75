"""Vectors of texts and of tokens, from the hidden states of a backbone."""

from typing import Any

from keras import ops

from zoo.storage import quote

POOLINGS = ("first", "mean", "mean_sqrt", "weighted_mean", "max", "last", "pooler")


def pool(hidden: Any, mask: Any, pooling: str, backbone: Any = None) -> Any:
    """Returns one vector per row, `(batch, hidden_dim)`.

    Args:
        hidden: `(batch, length, hidden_dim)`.
        mask: True where a token is real, `(batch, length)`.
        pooling: The "first" or "last" real token, "mean" or "max" over the real tokens, their sum divided by the root
            of their number ("mean_sqrt"), their mean with the weights 1, 2, 3 and so on ("weighted_mean"), or the
            backbone's "pooler". The mean of a row without tokens is zero, and so is its maximum.
        backbone: The backbone, for "pooler".
    """
    if pooling in ("first", "last", "pooler"):
        # padding may be on either side
        places = ops.cast(mask, "int32") * ops.arange(1, ops.shape(mask)[1] + 1, dtype="int32")
        chosen = ops.argmax(places if pooling == "last" else ops.cast(mask, "int32"), axis=1)
        states = ops.take_along_axis(hidden, chosen[:, None, None], axis=1)
        return backbone.pool(states) if pooling == "pooler" else ops.squeeze(states, 1)
    token_mask = ops.expand_dims(ops.cast(mask, "float32"), -1)
    states = ops.cast(hidden, "float32")
    if pooling == "max":
        has_tokens = ops.max(token_mask, axis=1) > 0
        return ops.where(has_tokens, ops.max(ops.where(token_mask > 0, states, -1e30), axis=1), 0.0)
    weights = token_mask * ops.cumsum(token_mask, axis=1) if pooling == "weighted_mean" else token_mask
    divisor = ops.maximum(ops.sum(weights, axis=1), 1.0)
    return ops.sum(states * weights, axis=1) / (ops.sqrt(divisor) if pooling == "mean_sqrt" else divisor)


def require_pooling(pooling: Any, backbone: Any) -> str:
    """Returns the kind of pooling, the default if none is given.

    Args:
        pooling: A kind; None for "pooler" where the backbone has one, else "first" for an encoder and "last" otherwise.
        backbone: The backbone.

    Raises:
        ValueError: If there is no such kind, or it does not fit the backbone.
    """
    has_pooler = bool(getattr(backbone.config, "pooler", False))
    if pooling is None:
        return "pooler" if has_pooler else "first" if backbone.config.architecture == "encoder" else "last"
    if pooling not in POOLINGS:
        raise ValueError(f"pooling must be one of {POOLINGS} or None, got {quote(pooling)}.")
    if pooling == "pooler" and not has_pooler:
        allowed = ", ".join(repr(name) for name in POOLINGS if name != "pooler")
        raise ValueError(f"pooling must be one of {allowed} with a backbone without a pooler, got 'pooler'.")
    return pooling


def take_positions(values: Any, positions: Any) -> Any:
    """Returns the vectors at some positions of each row, `(batch, count, dim)`.

    Args:
        values: `(batch, length, dim)`.
        positions: `(batch, count)`; those below 0 give the vector of position 0.
    """
    positions = ops.maximum(ops.cast(positions, "int32"), 0)
    return ops.take_along_axis(values, ops.expand_dims(positions, -1), axis=1)
