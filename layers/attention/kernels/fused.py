"""Attention by the kernel of the backend, where it has one.

On a GPU of NVIDIA, JAX has the kernels of cuDNN. They are told what the mask says: causal order, a window, the lengths
of rows. A mask that says more is given to them as a tensor, as long as it is small. Elsewhere the kernel is that of
`keras.ops.dot_product_attention`.
"""

from typing import Any

import keras
from keras import ops

from layers.attention.kernels.plain import BATCH_IF_UNKNOWN
from layers.attention.masks import AttentionMask
from layers.devices import has_cudnn, largest_head_dim

# Bytes of the largest mask that cuDNN is given as a tensor, in half precision. It grows with the square of the length.
MOST_MASK_BYTES = 2**26


def fused_attention(query: Any, key: Any, value: Any, mask: AttentionMask | None = None, *, scale: float) -> Any:
    """Attention by the kernel of the backend, with queries that see nothing set to zero.

    Args: as for `layers.attention.kernels.attend`.

    Returns:
        The output `(batch, heads, query_length, value_dim)`.
    """
    query_length, key_length = ops.shape(query)[2], ops.shape(key)[2]
    facts = facts_for_kernels(mask, query_length, key_length)
    if facts is None or ("key_lengths" in facts and not has_cudnn()):
        facts, visible = {}, mask.materialize(query_length, key_length)
    else:
        visible = None
    by_length = [ops.transpose(x, (0, 2, 1, 3)) for x in (query, key, value)]
    output = (_by_cudnn if has_cudnn() else _by_keras)(*by_length, visible, scale=scale, **facts)
    output = ops.transpose(output, (0, 2, 1, 3))
    # for a query that sees no key the kernels give the mean of all values, or NaN
    if visible is not None and not mask.sees_something(query_length, key_length):
        return ops.where(ops.any(visible, axis=-1, keepdims=True), output, ops.cast(0, output.dtype))
    if "key_lengths" in facts:
        has_keys = ops.reshape(facts["key_lengths"] > 0, (-1, 1, 1, 1))
        return ops.where(has_keys, output, ops.cast(0, output.dtype))
    return output


def facts_for_kernels(mask: AttentionMask | None, query_length: Any, key_length: Any) -> dict[str, Any] | None:
    """Returns what a mask says in the words of kernels; None if it says more than they have words for.

    Args:
        mask: The mask, or None.
        query_length: Number of queries.
        key_length: Number of keys.

    Returns:
        A dictionary that may have `causal` (True), `left` (positions before its own that a query sees) and
        `key_lengths`. Lengths are left out with the causal order, in which a query before the end of a row sees no key
        behind it; results at padding differ then from those of a mask, and have no meaning.
    """
    if mask is None:
        return {}
    more = (mask.block_size, mask.prefix_length, mask.key_padding_mask, mask.query_segment_ids, mask.allowed)
    more = (*more, mask.global_keys)
    if any(each is not None for each in more):
        return None
    if not mask.uses_order:
        return {} if mask.key_lengths is None else {"key_lengths": mask.key_lengths}
    if not mask.causal or not mask.default_positions or not (query_length is key_length or query_length == key_length):
        return None
    left = None if mask.window is None else mask.window[0]
    if left is not None and not has_cudnn():
        return None
    return {"causal": True} if left is None else {"causal": True, "left": left}


def objection_of_cudnn(query: Any, key: Any, mask: AttentionMask | None) -> str | None:
    """Returns the reason why cuDNN's kernel does not take the arguments, or None if it does.

    Args:
        query: `(batch, heads, query_length, head_dim)`, or a `keras.KerasTensor`.
        key: `(batch, key_value_heads, key_length, head_dim)`, likewise.
        mask: The mask, or None.
    """
    dtype = keras.backend.standardize_dtype(query.dtype)
    if dtype not in ("float16", "bfloat16"):
        return f"cuDNN's kernel computes in float16 and bfloat16, not in {dtype}"
    *_, query_length, head_dim = query.shape
    if head_dim % 8 or head_dim > largest_head_dim():
        return f"cuDNN's kernel wants a head_dim that is a multiple of 8 up to {largest_head_dim()}, not {head_dim}"
    lengths = (query_length, key.shape[2])
    if not all(isinstance(length, int) for length in lengths) or facts_for_kernels(mask, *lengths) is not None:
        return None
    if query_length % 2 or lengths[1] % 2:
        return f"cuDNN's kernel takes a mask for even numbers of queries and keys only, not for {lengths}"
    size = mask_bytes(query, key, mask)
    if size > MOST_MASK_BYTES:
        return f"cuDNN's kernel takes this mask as a tensor, which would have {size / 2**20:.0f} MiB"
    return None


def mask_bytes(query: Any, key: Any, mask: AttentionMask | None) -> int:
    """Returns the bytes of the tensor that cuDNN's kernel is given for a mask; 0 where it needs none.

    Args: as for `objection_of_cudnn`; the lengths must be known.
    """
    batch, heads, query_length, _ = query.shape
    if facts_for_kernels(mask, query_length, key.shape[2]) is not None:
        return 0
    rows = batch if isinstance(batch, int) else BATCH_IF_UNKNOWN
    if mask.allowed is not None and len(mask.allowed.shape) == 4 and mask.allowed.shape[1] != 1:
        rows *= heads
    return 2 * rows * query_length * key.shape[2]


def _by_cudnn(
    query: Any,
    key: Any,
    value: Any,
    visible: Any,
    *,
    scale: float,
    causal: bool = False,
    left: int | None = None,
    key_lengths: Any = None,
) -> Any:
    import jax

    if visible is not None:
        # cuDNN refuses a mask that is the same for all queries and has one row only
        shape = ops.shape(visible)
        visible = ops.broadcast_to(visible, (*shape[:2], ops.shape(query)[1], ops.shape(key)[1]))
    return jax.nn.dot_product_attention(
        query,
        key,
        value,
        mask=visible,
        scale=scale,
        is_causal=causal,
        local_window_size=None if left is None else (left, 0),
        # a row without any key would give NaN
        key_value_seq_lengths=None if key_lengths is None else ops.maximum(ops.cast(key_lengths, "int32"), 1),
        implementation="cudnn",
    )


def _by_keras(query: Any, key: Any, value: Any, visible: Any, *, scale: float, causal: bool = False) -> Any:
    return ops.dot_product_attention(query, key, value, mask=visible, scale=scale, is_causal=causal)
