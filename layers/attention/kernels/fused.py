"""Attention by the kernel of the backend, where it has one (`keras.ops.dot_product_attention`)."""

from typing import Any

from keras import ops

from layers.attention.masks import AttentionMask


def fused_attention(query: Any, key: Any, value: Any, mask: AttentionMask | None = None, *, scale: float) -> Any:
    """Attention by `keras.ops.dot_product_attention`, with queries that see nothing set to zero.

    Args: as for `layers.attention.kernels.attend`.

    Returns:
        The output `(batch, heads, query_length, value_dim)`.
    """
    query_length, key_length = ops.shape(query)[2], ops.shape(key)[2]
    causal = is_plain_causal(mask, query_length, key_length)
    visible = None if mask is None or causal else mask.materialize(query_length, key_length)
    output = ops.dot_product_attention(
        *(ops.transpose(x, (0, 2, 1, 3)) for x in (query, key, value)), mask=visible, scale=scale, is_causal=causal
    )
    output = ops.transpose(output, (0, 2, 1, 3))
    if visible is not None and not mask.sees_something(query_length, key_length):
        # for such a query the kernels give the mean of all values, or NaN
        output = ops.where(ops.any(visible, axis=-1, keepdims=True), output, ops.cast(0, output.dtype))
    return output


def is_plain_causal(mask: AttentionMask | None, query_length: Any, key_length: Any) -> bool:
    """Returns whether a mask is only causal, over equally many queries and keys. Kernels have a flag for this case."""
    return (
        mask is not None
        and mask.causal
        and mask.window is None
        and mask.block_size is None
        and mask.default_positions
        and mask.prefix_length is None
        and mask.key_padding_mask is None
        and mask.query_segment_ids is None
        and mask.allowed is None
        and (query_length is key_length or query_length == key_length)
    )
