"""Attention by its definition: all scores at once, softmax, weighted mean. Fastest for short sequences."""

import keras
from keras import ops

from layers.attention.kernels.bias import evaluate_bias

# Added to hidden scores. Leaves room below for scores and biases, and its exponential is exactly zero in float32.
HIDDEN = -1e38


def plain_attention(
    query, key, value, mask=None, *, scale, bias=None, soft_cap=None, sinks=None, dropout=None, return_weights=False
):
    """Scaled dot-product attention (Vaswani et al. 2017, equation 1) with the whole score matrix in memory.

    Args: as for `layers.attention.kernels.attend`.

    Returns:
        The output `(batch, heads, query_length, value_dim)`, or a pair of it and the weights
        `(batch, heads, query_length, key_length)`, before dropout.
    """
    query_length, key_length = ops.shape(query)[2], ops.shape(key)[2]
    scores = grouped_matmul(query * scale, key, transpose=True)
    scores = to_float32(scores)
    if soft_cap is not None:
        scores = soft_cap * ops.tanh(scores / soft_cap)
    if bias is not None:
        scores = scores + ops.cast(evaluate_bias(bias, mask, query_length, key_length), scores.dtype)
    visible = None if mask is None else mask.materialize(query_length, key_length)
    if visible is not None:
        # Adding costs less than selecting: the operand is small and broadcast.
        scores = scores + ops.where(visible, ops.cast(0, scores.dtype), ops.cast(HIDDEN, scores.dtype))
    if sinks is None:
        weights = ops.softmax(scores, axis=-1)
    else:
        weights = softmax_with_sinks(scores, ops.reshape(sinks, (1, -1, 1, 1)))
    some_empty = visible is not None and sinks is None and not mask.sees_something(query_length, key_length)
    sees = ops.any(visible, axis=-1, keepdims=True) if some_empty else None
    if some_empty and return_weights:
        weights = weights * ops.cast(sees, weights.dtype)
    weights = ops.cast(weights, value.dtype)
    output = grouped_matmul(weights if dropout is None else dropout(weights), value)
    if some_empty and not return_weights:
        output = output * ops.cast(sees, output.dtype)
    return (output, weights) if return_weights else output


def softmax_with_sinks(scores, sinks):
    """Softmax whose denominator has one more term, exp(sink of the head), that takes weight and gives no value.

    Agarwal et al. 2025 (gpt-oss), section 2.3; Xiao et al. 2024, "Efficient streaming language models with
    attention sinks".

    Args:
        scores: Scores, with keys along the last axis.
        sinks: Logits that broadcast to `scores` with a last axis of 1.

    Returns:
        Weights in the shape of `scores`, each row summing to less than one.
    """
    sinks = ops.cast(sinks, scores.dtype)
    highest = ops.stop_gradient(ops.maximum(ops.max(scores, axis=-1, keepdims=True), sinks))
    exponentials = ops.exp(scores - highest)
    return exponentials / (ops.sum(exponentials, axis=-1, keepdims=True) + ops.exp(sinks - highest))


def grouped_matmul(x, y, transpose=False):
    """Product of each of `heads` matrices in `x` with the one of `key_value_heads` matrices in `y` of its group.

    Heads of a group are stacked into one taller matrix, so that `y` is never repeated and the product is one call.

    Args:
        x: `(batch, heads, rows, inner)`, heads = key_value_heads * group size, groups contiguous.
        y: `(batch, key_value_heads, inner, columns)`, or `(batch, key_value_heads, columns, inner)` if `transpose`.
        transpose: Whether the last two axes of `y` are to be swapped.

    Returns:
        `(batch, heads, rows, columns)`.
    """
    equation = "bhqi,bhki->bhqk" if transpose else "bhqi,bhik->bhqk"
    heads, key_value_heads = x.shape[1], y.shape[1]
    if heads == key_value_heads:
        return ops.einsum(equation, x, y)
    batch, _, rows, inner = ops.shape(x)
    columns = ops.shape(y)[2 if transpose else 3]
    product = ops.einsum(equation, ops.reshape(x, (batch, key_value_heads, -1, inner)), y)
    return ops.reshape(product, (batch, heads, rows, columns))


def to_float32(x):
    """`x` in float32, unless it is in float64 already."""
    return x if keras.backend.standardize_dtype(x.dtype) in ("float32", "float64") else ops.cast(x, "float32")
