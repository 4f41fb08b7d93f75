"""Attention by its definition: all scores at once, softmax, weighted mean. Fastest for short sequences."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
from keras import ops

from layers.attention.kernels.bias import evaluate_bias
from layers.attention.masks import AttentionMask
from layers.fusion import sizes

# The score of a hidden key. It leaves room below for biases, and its exponential is exactly zero in float32.
HIDDEN = -1e38

# Long sequences are computed in runs of queries. A run has at least _STEP queries, so that products stay fast. With a
# causal mask, each run needs the keys up to its end only, which saves up to half of the work. Without one, runs save
# memory if there are more than _PART_SIZE scores: intermediate results have the size of a run.
_STEP, _PART_SIZE, _MOST_PARTS = 128, 2**21, 8

# Number of rows assumed for a batch of unknown size where memory is planned ahead: the default of `fit`.
BATCH_IF_UNKNOWN = 32


def plain_attention(
    query: Any,
    key: Any,
    value: Any,
    mask: AttentionMask | None = None,
    *,
    scale: float,
    bias: Any = None,
    soft_cap: float | None = None,
    sinks: Any = None,
    dropout: Callable[[Any], Any] | None = None,
    weighting: Any = None,
    return_weights: bool = False,
) -> Any:
    """Scaled dot-product attention (Vaswani et al. 2017, equation 1) with the whole score matrix in memory.

    Args: as for `layers.attention.kernels.attend`.

    Returns:
        The output `(batch, heads, query_length, value_dim)`, or a pair of it and the weights
        `(batch, heads, query_length, key_length)`, before dropout.
    """
    query_length, key_length = sizes(query)[2], sizes(key)[2]
    options = {"scale": scale, "soft_cap": soft_cap, "sinks": sinks, "dropout": dropout, "weighting": weighting}
    if bias is not None:
        bias = evaluate_bias(bias, mask, query_length, key_length)
    ends = run_ends(query, key, mask)
    if return_weights or len(ends) == 1:
        return _attend_rows(query, key, value, mask, bias=bias, return_weights=return_weights, **options)
    staircase = is_staircase(mask, query_length, key_length)
    # split and joined, not sliced: the gradient of a slice is as long as the whole tensor
    queries = ops.split(query, ends[:-1], axis=2)
    keys, values = (ops.split(x, ends[:-1], axis=2) if staircase else None for x in (key, value))
    outputs = []
    for part, (first, last) in enumerate(zip([0, *ends], ends, strict=False)):
        part_bias = bias
        if bias is not None and bias.shape[2] != 1:
            part_bias = part_bias[:, :, first:last]
        if staircase:
            key, value = (ops.concatenate(x[: part + 1], axis=2) if part else x[0] for x in (keys, values))
            if bias is not None and bias.shape[3] != 1:
                part_bias = part_bias[..., :last]
        outputs.append(_attend_rows(queries[part], key, value, mask, first, bias=part_bias, **options))
    return ops.concatenate(outputs, axis=2)


def is_staircase(mask: AttentionMask | None, query_length: Any, key_length: Any) -> bool:
    """Returns whether a mask is known to hide all keys after the query's own index, with equally many of both."""
    both_known = isinstance(query_length, int) and isinstance(key_length, int)
    return mask is not None and mask.causal and mask.bounded_by_index and both_known and query_length == key_length


def run_ends(query: Any, key: Any, mask: AttentionMask | None) -> list[Any]:
    """Returns the end of each run of queries: the index after its last query.

    Args:
        query: `(batch, heads, query_length, head_dim)`.
        key: `(batch, key_value_heads, key_length, head_dim)`.
        mask: An `AttentionMask` or `None`.
    """
    batch, heads, query_length, _ = query.shape
    key_length = key.shape[2]
    if not (isinstance(query_length, int) and isinstance(key_length, int)):
        return [query_length]
    parts = query_length
    if not is_staircase(mask, query_length, key_length):
        batch = batch if isinstance(batch, int) else BATCH_IF_UNKNOWN
        parts = batch * heads * query_length * key_length // _PART_SIZE
    parts = max(1, min(parts, _MOST_PARTS, query_length // _STEP))
    return [query_length * (part + 1) // parts for part in range(parts)]


def _attend_rows(
    query: Any,
    key: Any,
    value: Any,
    mask: AttentionMask | None,
    query_start: Any = 0,
    *,
    scale: float,
    bias: Any,
    soft_cap: float | None,
    sinks: Any,
    dropout: Callable[[Any], Any] | None,
    weighting: Any,
    return_weights: bool = False,
) -> Any:
    """Attention of a run of queries, the first of which has the index `query_start`, to the first keys.

    Args: as for `plain_attention`.

    Returns:
        As `plain_attention`.
    """
    query_length, key_length = sizes(query)[2], sizes(key)[2]
    drawn = None if mask is None else mask.drawn or draw(mask, query_length, key_length, query_start)
    visible = None if drawn is None else drawn.visible
    if weighting is not None:
        weights = weighting.weigh(query, key, scale=scale, bias=bias, visible=visible)
        weights = weights if visible is None else ops.where(visible, weights, ops.cast(0, weights.dtype))
        output = mean_of_values(weights, value, dropout, grouped_matmul)
        return (output, ops.cast(weights, value.dtype)) if return_weights else output
    # float32 from the product on: in bfloat16 a score of 20 is off by up to 0.06, and its weight by 6 %
    scores = grouped_matmul(to_float32(query) * scale, to_float32(key), transpose=True)
    if soft_cap is not None:
        scores = soft_cap * ops.tanh(scores / soft_cap)
    reduction = None if drawn is None else ops.cast(drawn.penalty, scores.dtype)
    if bias is not None:
        bias = ops.cast(bias, scores.dtype)
        reduction = -bias if reduction is None else reduction - bias
    if reduction is not None:
        # Subtracted, not added: TensorFlow 2.21 would fuse the factor, the product and the addition into one kernel at
        # inference on a CPU. That kernel is hundreds of times slower if the addend is broadcast.
        scores = scores - reduction
    sees = None
    if sinks is not None:
        weights = softmax_with_sinks(scores, ops.reshape(sinks, (1, -1, 1, 1)))
    else:
        weights = softmax(scores)
        sees = None if drawn is None else drawn.sees
    if sees is not None and return_weights:
        weights = weights * ops.cast(sees, weights.dtype)
    output = mean_of_values(weights, value, dropout, grouped_matmul)
    if sees is not None and not return_weights:
        output = output * ops.cast(sees, output.dtype)
    return (output, ops.cast(weights, value.dtype)) if return_weights else output


class DrawnMask(NamedTuple):
    """A mask, or a part of it, as a matrix.

    Args:
        visible: True where a query sees a key, broadcasts to `(batch, heads, query_length, key_length)`.
        penalty: What is subtracted from scores, see `penalty`.
        sees: 1 for queries that see a key, else 0, of the same shape with one key; None if all see one.
    """

    visible: Any
    penalty: Any
    sees: Any


def draw(mask: AttentionMask, query_length: Any, key_length: Any, query_start: Any = 0) -> DrawnMask | None:
    """Returns the matrix of a mask for a run of queries and the first keys; None if it hides nothing.

    Args:
        mask: The mask.
        query_length, key_length: Number of queries in the run, and of keys, an int or a scalar tensor.
        query_start: Index of the first query.
    """
    visible = mask.materialize(query_length, key_length, query_start)
    if visible is None:
        return None
    sees = None
    if not mask.sees_something(query_start + query_length, key_length):
        sees = ops.cast(ops.any(visible, axis=-1, keepdims=True), "float32")
    return DrawnMask(visible, penalty(visible, "float32"), sees)


def draw_once(mask: AttentionMask, query: Any, key: Any, query_length: Any, key_length: Any) -> AttentionMask:
    """Returns a mask with its whole matrix for many layers, if it is small; else the mask itself.

    Args:
        mask: The mask.
        query, key: As for `plain_attention`; only their shapes are used.
        query_length, key_length: Number of queries and keys, an int or a scalar tensor.
    """
    sizes_known = (query.shape[0] or BATCH_IF_UNKNOWN, query.shape[2], key.shape[2])
    is_small = None in sizes_known or math.prod(sizes_known) <= _PART_SIZE
    if mask.key_lengths is not None or not is_small or len(run_ends(query, key, mask)) > 1:
        return mask
    return dataclasses.replace(mask, drawn=draw(mask, query_length, key_length))


def mean_of_values(
    weights: Any, value: Any, dropout: Callable[[Any], Any] | None, product: Callable[[Any, Any], Any]
) -> Any:
    """Returns the weighted sum of values, computed in float32 whatever their type.

    Processors without instructions for half precision also accumulate in half precision. With TensorFlow on such a CPU,
    3,000 equal weights in bfloat16 sum to 0.54.

    Args:
        weights: Weights of any type, in float32 where they come from the softmax.
        value: Values, in the type of the result.
        dropout: Callable from weights to weights in the type of the values, or `None`.
        product: Product of two tensors.
    """
    if dropout is not None:
        weights = dropout(ops.cast(weights, value.dtype))
    return ops.cast(product(to_float32(weights), to_float32(value)), value.dtype)


def penalty(visible: Any, dtype: str) -> Any:
    """Returns what to subtract from scores to hide keys: 0 for visible keys, else more than any score."""
    # broadcasting a small operand costs less than a `where` over all scores
    return ops.where(visible, ops.cast(0, dtype), ops.cast(-HIDDEN, dtype))


def softmax(scores: Any) -> Any:
    """Returns the softmax over the last axis, the keys.

    Keras warns of an axis of size 1. Here it is a text of one token, which attends to itself.

    Args:
        scores: Scores, with keys along the last axis.
    """
    # 1, with a gradient of 0, and NaN where the softmax is NaN
    return ops.exp(scores - scores) if scores.shape[-1] == 1 else ops.softmax(scores, axis=-1)


def softmax_with_sinks(scores: Any, sinks: Any) -> Any:
    """Returns the softmax with one more term in its denominator, the exponential of the head's sink.

    Agarwal et al. 2025, "gpt-oss-120b & gpt-oss-20b Model Card", on the architecture; Xiao et al. 2024, "Efficient
    streaming language models with attention sinks".

    Args:
        scores: Scores, with keys along the last axis.
        sinks: Logits that broadcast to `scores` with a last axis of 1.

    Returns:
        Weights in the shape of `scores`, each row summing to less than one.
    """
    sinks = ops.cast(sinks, scores.dtype)
    highest = ops.stop_gradient(ops.maximum(ops.max(scores, axis=-1, keepdims=True, initial=-math.inf), sinks))
    exponentials = ops.exp(scores - highest)
    return exponentials / (ops.sum(exponentials, axis=-1, keepdims=True) + ops.exp(sinks - highest))


def grouped_matmul(x: Any, y: Any, transpose: bool = False) -> Any:
    """Returns the product of each head's matrix in `x` with the matrix of its group in `y`.

    The heads of a group are stacked into one taller matrix. So `y` is never repeated, and the product is one call.

    Args:
        x: `(batch, heads, rows, inner)`, with `heads = key_value_heads * group size` and contiguous groups.
        y: `(batch, key_value_heads, inner, columns)`, or `(batch, key_value_heads, columns, inner)` if `transpose`.
        transpose: Whether the last two axes of `y` are to be swapped.

    Returns:
        `(batch, heads, rows, columns)`.
    """
    equation = "bhqi,bhki->bhqk" if transpose else "bhqi,bhik->bhqk"
    heads, key_value_heads = x.shape[1], y.shape[1]
    if heads == key_value_heads:
        return ops.einsum(equation, x, y)
    batch, _, rows, inner = sizes(x)
    columns = sizes(y)[2 if transpose else 3]
    product = ops.einsum(equation, ops.reshape(x, (batch, key_value_heads, heads // key_value_heads * rows, inner)), y)
    return ops.reshape(product, (batch, heads, rows, columns))


def value_of(x: Any) -> Any:
    """Returns `x` as a tensor: of a variable its value. `custom_gradient` of TensorFlow takes no variables of Keras."""
    return ops.copy(x.value) if isinstance(x, keras.Variable) else ops.convert_to_tensor(x)


def to_float32(x: Any) -> Any:
    """Returns `x` in float32; float64 is kept."""
    return x if keras.backend.standardize_dtype(x.dtype) in ("float32", "float64") else ops.cast(x, "float32")
