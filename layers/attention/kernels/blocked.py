"""Attention in memory that grows with the length, not with its square: blocks of keys and an online softmax.

The forward pass goes over the key blocks of each query block and keeps a running sum of exp(score - reference) times
value, where the reference is one score of the row (online softmax: Milakov and Gimelshein 2018; Rabe and Staats 2021;
Dao et al. 2022, algorithm 1). Only the logarithm of each row's sum is stored. The backward pass computes the scores
again (Dao et al. 2022, algorithm 4).

The inputs of the matrix products may be rounded (to TF32 or bfloat16, the default of GPUs). The reference, the
logarithm of the sum and the mean of the gradients must be exact, so they are subtracted after the products.

After the matrix products, passes over a block of scores cost most on a CPU. Three measures keep their number low:
* Padding of keys is one more feature of queries and keys in the matrix product. Its values, 0 and a very low number,
  survive any rounding.
* The reference need not be the highest score: any score of the row will do as long as nothing overflows. A block is
  first computed with the current reference, and computed again with the highest score only if it overflowed.
* Blocks that are hidden as a whole (causal, window) are skipped. Blocks that are visible as a whole are not masked.
"""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from layers.attention.kernels.bias import bias_by_distance, depends_on_distance, evaluate_bias
from layers.attention.kernels.block_bias import DistanceBias, MatrixBias
from layers.attention.kernels.blocks import BlockGrid, BlockMask
from layers.attention.kernels.plain import BATCH_IF_UNKNOWN, HIDDEN, to_float32, value_of
from layers.attention.masks import AttentionMask
from layers.loops import next_index, replace_block

# A score below this counts as hidden. A hidden score is HIDDEN or twice that, plus a bias.
_UNSEEN = 0.5 * HIDDEN

# A larger sum needs a new reference. The limit is far below overflow: if the factor that scales such a sum to the new
# reference underflows, what is lost is smaller than a rounding error.
_LARGEST_SUM = 1e29

# Number of scores that are held at a time: 32 MiB in float32, of which there are several copies.
_SCORES_AT_A_TIME = 2**23


def blocked_attention(
    query: Any,
    key: Any,
    value: Any,
    mask: AttentionMask | None = None,
    *,
    scale: float,
    bias: Any = None,
    soft_cap: float | None = None,
    sinks: Any = None,
    dropout: Any = None,
    block_length: int | None = None,
) -> Any:
    """Attention whose memory is linear in the lengths, forward and backward.

    Computes in float32 whatever the type of its inputs (in float64 for that type).

    Args: as for `layers.attention.kernels.attend`, and
        block_length: Number of queries and of keys in a block. Default: chosen from the shapes.

    Returns:
        The output `(batch, heads, query_length, value_dim)`.
    """
    batch, heads, query_length, _ = ops.shape(query)
    _, key_value_heads, key_length, _ = ops.shape(key)
    longest = block_length or _longest_block(query.shape[0], heads, key_length)
    grid = BlockGrid(
        batch=batch,
        key_value_heads=key_value_heads,
        groups=heads // key_value_heads,
        query_length=query_length,
        key_length=key_length,
        query_block=_even_block(query_length, longest),
        key_block=_even_block(key_length, longest),
    )
    output_dtype = query.dtype
    make_bias = MatrixBias
    if depends_on_distance(bias) and (mask is None or mask.default_positions):
        make_bias, bias = DistanceBias, bias_by_distance(bias, query_length, key_length)
    elif bias is not None:
        bias = evaluate_bias(bias, mask, query_length, key_length)
    factors = None if dropout is None else dropout.by_block()
    names = [name for name, x in (("bias", bias), ("sinks", sinks)) if x is not None]
    tensors = [to_float32(value_of(x)) for x in (query, key, value, bias, sinks) if x is not None]
    block_mask = BlockMask(mask, grid)

    @ops.custom_gradient
    def attention(*tensors: Any) -> tuple[Any, Callable[..., tuple[Any, ...]]]:
        extras = dict(zip(names, tensors[3:], strict=True))
        if "bias" in extras:
            extras["bias"] = make_bias(grid, extras["bias"])
        problem = _Problem(grid, block_mask, scale, soft_cap, factors, *tensors[:3], **extras)
        output, log_sums = problem.forward()

        def gradient(*output_gradients: Any, upstream: Any = None) -> tuple[Any, ...]:
            output_gradient = output_gradients[0] if upstream is None else upstream
            return problem.backward(output, log_sums, output_gradient)

        return grid.join_queries(output), gradient

    return ops.cast(attention(*tensors), output_dtype)


def _longest_block(batch: Any, heads: Any, length: Any) -> int:
    """Block length: long for fast matrix products, but with few scores in all, and several blocks to skip if causal."""
    longest = 1024 if isinstance(length, int) else 512
    rows = (batch if isinstance(batch, int) else BATCH_IF_UNKNOWN) * heads
    while longest > 128 and rows * longest**2 > _SCORES_AT_A_TIME:
        longest //= 2
    while longest > 128 and isinstance(length, int) and 4 * longest > length:
        longest //= 2
    return longest


def _even_block(length: Any, longest: int) -> int:
    """Block length that cuts a length into the fewest blocks and pads the last one least; `longest` if unknown."""
    if not isinstance(length, int):
        return longest
    blocks = max(1, -(-length // longest))
    return max(1, -(-length // blocks))


class _Problem:
    """The tensors of one attention, in blocks; computes the output and the gradients."""

    def __init__(
        self,
        grid: BlockGrid,
        mask: AttentionMask | None,
        scale: float,
        soft_cap: float | None,
        factors: Callable[[Any, Any, str], Any] | None,
        query: Any,
        key: Any,
        value: Any,
        bias: Any = None,
        sinks: Any = None,
    ) -> None:
        self.grid, self.mask, self.soft_cap, self.factors = grid, mask, soft_cap, factors
        self.query_factor = scale if soft_cap is None else scale / soft_cap
        self.dtype = keras.backend.standardize_dtype(query.dtype)
        self.value_dim = value.shape[-1]
        self.query = grid.cut_queries(query * self.query_factor)
        self.key, self.value = grid.cut_keys(key), grid.cut_keys(value)
        self.key_offsets = mask.key_offsets(self.dtype)
        # Products that do not need the padding feature use `self.query` and `self.key`: a product is a fifth slower
        # if the number of columns is not a multiple of the width of a vector register.
        self.extended_query, self.extended_key = self.query, self.key
        if self.key_offsets is not None and soft_cap is None:
            ones = ops.ones((grid.query_blocks, grid.batch, grid.key_value_heads, grid.rows, 1), self.dtype)
            self.extended_query = ops.concatenate([self.query, ones], axis=-1)
            self.extended_key = ops.concatenate([self.key, self.key_offsets], axis=-1)
        self.bias = bias
        self.sinks = None
        if sinks is not None:
            sinks = ops.reshape(sinks, (1, grid.key_value_heads, grid.groups, 1, 1))
            sinks = ops.broadcast_to(sinks, (grid.batch, grid.key_value_heads, grid.groups, grid.query_block, 1))
            self.sinks = ops.reshape(sinks, (grid.batch, grid.key_value_heads, grid.rows, 1))

    def scores(self, i: Any, j: Any) -> tuple[Any, Any]:
        """Scores of blocks i and j after soft cap, bias and mask.

        Args:
            i: Index of the query block.
            j: Index of the key block.

        Returns:
            The scores `(batch, key_value_heads, rows, key_block)` and the tanh of the soft cap, if there is one.
        """
        grid, tanh = self.grid, None
        scores = ops.einsum("bkrd,bkcd->bkrc", self.extended_query[i], self.extended_key[j])
        if self.soft_cap is not None:
            tanh = ops.tanh(scores)
            scores = self.soft_cap * tanh
            if self.key_offsets is not None:
                scores = scores + ops.swapaxes(self.key_offsets[j], -1, -2)
        if self.bias is not None:
            scores = grid.by_row(grid.by_group(scores) + self.bias.block(i, j))
        return self.mask.hide(scores, i, j), tanh

    def dropped(self, weights: Any, i: Any, j: Any) -> Any:
        """What dropout leaves of the weights `(batch, key_value_heads, rows, key_block)` of blocks i and j."""
        if self.factors is None:
            return weights
        return weights * self.factors(i * self.grid.key_blocks + j, ops.shape(weights), self.dtype)

    def forward(self) -> tuple[Any, Any]:
        """The output in blocks, and the logarithm of each row's sum of exponentials."""
        grid = self.grid
        block = (grid.batch, grid.key_value_heads, grid.rows)

        def outer(i: Any, outputs: Any, log_sums: Any) -> tuple[Any, ...]:
            first, last = self.mask.key_range(i)

            def inner(step: Any, sums: Any, totals: Any, reference: Any, all_seen: Any) -> tuple[Any, ...]:
                j = last - 1 - step if self.mask.descending else first + step
                safe = _replace_unseen(reference)

                def keep_reference() -> tuple[Any, ...]:
                    scores, _ = self.scores(i, j)
                    weights = ops.exp(scores - safe)
                    return sums + ops.matmul(self.dropped(weights, i, j), self.value[j]), totals + _sum(weights)

                def new_reference() -> tuple[Any, ...]:
                    scores, _ = self.scores(i, j)
                    highest = ops.maximum(reference, ops.max(scores, axis=-1, keepdims=True, initial=HIDDEN))
                    new_safe = _replace_unseen(highest)
                    factor, weights = ops.exp(reference - new_safe), ops.exp(scores - new_safe)
                    new_sums = sums * factor + ops.matmul(self.dropped(weights, i, j), self.value[j])
                    return new_sums, totals * factor + _sum(weights), highest, ops.all(highest > _UNSEEN)

                quick = ops.cond(all_seen, keep_reference, lambda: (sums, totals))
                valid = ops.logical_and(all_seen, ops.all(quick[1] < _LARGEST_SUM))
                return (step + 1, *ops.cond(valid, lambda: (*quick, reference, all_seen), new_reference))

            _, sums, total, reference, _ = ops.while_loop(
                lambda step, *_: step < last - first,
                inner,
                (
                    0,
                    ops.zeros((*block, self.value_dim), self.dtype),
                    ops.zeros((*block, 1), self.dtype),
                    ops.full((*block, 1), HIDDEN, self.dtype),
                    False,
                ),
            )
            reference = _replace_unseen(reference)
            seen = total > 0
            total = ops.where(seen, total, 1)
            log_sum = reference + ops.log(total)
            output = sums / total
            if self.sinks is not None:
                log_sum_of_keys, log_sum = log_sum, ops.where(seen, ops.logaddexp(log_sum, self.sinks), self.sinks)
                output = output * ops.where(seen, ops.exp(log_sum_of_keys - log_sum), 0)
            return i + 1, replace_block(outputs, i, output), replace_block(log_sums, i, log_sum)

        _, outputs, log_sums = ops.while_loop(
            lambda i, *_: i < grid.query_blocks,
            outer,
            (
                0,
                ops.zeros((grid.query_blocks, *block, self.value_dim), self.dtype),
                ops.zeros((grid.query_blocks, *block, 1), self.dtype),
            ),
        )
        return outputs, log_sums

    def backward(self, outputs: Any, log_sums: Any, output_gradient: Any) -> tuple[Any, ...]:
        """Gradients by query, key, value and, where they are given, bias and sinks.

        Args:
            outputs: First result of `forward`.
            log_sums: Second result of `forward`.
            output_gradient: `(batch, heads, query_length, value_dim)`.

        Returns:
            A tuple of tensors.
        """
        grid = self.grid
        output_gradients = grid.cut_queries(output_gradient)
        means = _sum(outputs * output_gradients)
        bias_gradient = () if self.bias is None else (ops.zeros_like(self.bias.bias),)

        def outer(
            i: Any, query_gradients: Any, key_gradients: Any, value_gradients: Any, *bias_gradient: Any
        ) -> tuple[Any, ...]:
            query_rows = self.query[i]
            first, last = self.mask.key_range(i)

            def inner(
                j: Any, row_gradients: Any, key_gradients: Any, value_gradients: Any, *bias_gradient: Any
            ) -> tuple[Any, ...]:
                scores, tanh = self.scores(i, j)
                weights = ops.exp(scores - log_sums[i])
                weight_gradients = ops.einsum("bkrd,bkcd->bkrc", output_gradients[i], self.value[j])
                weight_gradients = self.dropped(weight_gradients, i, j)
                score_gradients = weights * (weight_gradients - means[i])
                if bias_gradient:
                    by_head = ops.reshape(
                        score_gradients,
                        (grid.batch, grid.key_value_heads * grid.groups, grid.query_block, grid.key_block),
                    )
                    bias_gradient = (self.bias.add_gradient(bias_gradient[0], by_head, i, j),)
                if tanh is not None:
                    score_gradients = score_gradients * (self.soft_cap * (1 - tanh * tanh))
                key_gradient = ops.einsum("bkrc,bkrd->bkcd", score_gradients, query_rows)
                value_gradient = ops.einsum("bkrc,bkrd->bkcd", self.dropped(weights, i, j), output_gradients[i])
                row_gradients = row_gradients + ops.matmul(score_gradients, self.key[j])
                return (
                    next_index(j, row_gradients),
                    row_gradients,
                    replace_block(key_gradients, j, key_gradients[j] + key_gradient),
                    replace_block(value_gradients, j, value_gradients[j] + value_gradient),
                    *bias_gradient,
                )

            _, row_gradients, *rest = ops.while_loop(
                lambda j, *_: j < last,
                inner,
                (first, ops.zeros_like(query_rows), key_gradients, value_gradients, *bias_gradient),
            )
            return (i + 1, replace_block(query_gradients, i, row_gradients), *rest)

        _, query_gradients, key_gradients, value_gradients, *bias_gradient = ops.while_loop(
            lambda i, *_: i < grid.query_blocks,
            outer,
            (
                0,
                ops.zeros_like(self.query),
                ops.zeros_like(self.key),
                ops.zeros_like(self.value),
                *bias_gradient,
            ),
        )
        gradients = [
            grid.join_queries(query_gradients) * self.query_factor,
            # the queries contain the factor of the scores, so it is in this product already
            grid.join_keys(key_gradients),
            grid.join_keys(value_gradients),
        ]
        if self.bias is not None:
            gradients.append(self.bias.finish_gradient(bias_gradient[0]))
        if self.sinks is not None:
            # a sink has the value zero, so the gradient of its weight consists of the mean alone
            sink_gradients = -ops.exp(self.sinks - log_sums) * means
            sink_gradients = ops.reshape(sink_gradients, (-1, grid.key_value_heads, grid.groups, grid.query_block))
            gradients.append(ops.reshape(ops.sum(sink_gradients, axis=(0, 3)), (-1,)))
        return tuple(gradients)


def _sum(x: Any) -> Any:
    return ops.sum(x, axis=-1, keepdims=True)


def _replace_unseen(reference: Any) -> Any:
    """The reference, or 0 for rows that have seen no key: subtracting 0 keeps hidden scores low."""
    return ops.where(reference > _UNSEEN, reference, 0)
