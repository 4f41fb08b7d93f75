"""Cross-entropy over a vocabulary in memory that does not grow with the number of tokens.

Logits of 2,048 tokens over a vocabulary of 50,000 are 400 MB in float32, their probabilities and gradients as much
again. Here the tokens are processed one piece at a time, and only what losses and metrics need of a piece is kept.
The gradient of the logits, `(softmax - target) * weight`, is known as soon as the logits are. So the gradients of
hidden states and kernel are computed along with the loss, in the forward pass. The backward pass only scales them, and
no product is computed twice.

Reference:
    Hsu et al. 2024, "Liger Kernel", section 3.2 (FusedLinearCrossEntropy); Wijmans et al. 2025, "Cut Your Losses in
    Large-Vocabulary Language Models".
"""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from layers.devices import batch_parts, memory_of_accelerator
from layers.loops import next_index, replace_block
from zoo.backbones.output_map import OutputMap
from zoo.training.losses import check_labels, gradient_by_logits, score_labels
from zoo.training.metrics import are_hits
from zoo.training.token_scores import Scoring, TokenScores, TokenTargets

# Logits of a piece: 16 MiB in float32, in three or four copies. Processors compute no faster with more.
LOGITS_AT_A_TIME = 2**22
# On an accelerator a piece takes this share of the memory, so that there are few of them: each reads and writes all of
# the kernel's gradient, which for GPT-2 small and 128 pieces was a fifth of the time of a step on an H100.
SHARE_OF_MEMORY = 1 / 64
# A piece over a large vocabulary has more: for each piece the whole gradient of the kernel is added to, which on a CPU
# takes as long as the products of 20 to 40 tokens.
LEAST_TOKENS_AT_A_TIME = 256


def tokens_at_a_time(vocabulary_size: int, memory: float | None = None) -> int:
    """Returns the largest number of tokens of a piece.

    Args:
        vocabulary_size: Number of logits of a token.
        memory: Bytes of memory of an accelerator; None for a processor, or where it is not known.

    Example:

    >>> tokens_at_a_time(50257), tokens_at_a_time(50257, memory=80e9)
    (256, 6218)
    """
    logits = LOGITS_AT_A_TIME if memory is None else max(LOGITS_AT_A_TIME, int(memory * SHARE_OF_MEMORY / 4))
    return max(LEAST_TOKENS_AT_A_TIME, logits // vocabulary_size)


def score_in_pieces(
    vectors: Any, output_map: OutputMap, targets: TokenTargets, scoring: Scoring, *, with_gradient: bool
) -> TokenScores:
    """Returns the scores of labels, without holding the logits of more than one piece of the tokens.

    Args:
        vectors: `(batch, length, dim)`.
        output_map: Layer that maps vectors to logits.
        targets: Labels and weights. A label out of range raises an error when executed eagerly, and has scores of NaN
            in a compiled function.
        scoring: The scores to compute.
        with_gradient: Whether vectors and weights get gradients through `total`.

    Raises:
        ValueError: In eager execution, if a label is out of range.
    """
    if output_map.scale is not None:
        vectors = vectors * output_map.scale
    kernel, bias = output_map.kernel, output_map.bias
    vocabulary_size, dim = kernel.shape
    labels = ops.convert_to_tensor(targets.labels)
    check_labels(labels, vocabulary_size)
    shape = ops.shape(labels)
    weights = ops.ones(shape, "float32")
    if targets.weights is not None:
        weights = weights * ops.cast(targets.weights, "float32")
    # gradients of half precision are made with weights up to 1: others may be too large or too small for it
    largest = ops.stop_gradient(ops.max(ops.abs(weights), initial=0.0))
    largest = ops.where(largest > 0, largest, 1.0)
    vectors = ops.cast(ops.reshape(vectors, (-1, dim)), kernel.dtype)
    fixed = output_map._replace(
        kernel=ops.stop_gradient(kernel), bias=None if bias is None else ops.stop_gradient(bias)
    )

    def score(tokens: list[Any]) -> tuple[list[Any], list[Any]]:
        """Sums over tokens, and values of each, a piece at a time."""
        num_tokens = ops.shape(tokens[0])[0]
        pieces = _Pieces(num_tokens, tokens_at_a_time(vocabulary_size, memory_of_accelerator()))
        cut = [pieces.cut(values) for values in tokens]
        return pieces.visit(lambda index: score_piece(*(values[index] for values in cut)))

    def score_piece(vectors: Any, labels: Any, weights: Any) -> tuple[list[Any], list[Any]]:
        logits = _logits(fixed, vectors)
        losses, log_likelihoods, probabilities = score_labels(logits, labels, scoring.label_smoothing)
        sums, values = [ops.sum(losses * weights)], [log_likelihoods]
        if scoring.with_hits:
            values.append(are_hits(logits, labels))
        if with_gradient:
            upstream = gradient_by_logits(probabilities, labels, scoring.label_smoothing, weights / largest)
            by_vectors, *by_weights = _gradients(fixed, vectors, logits, upstream)
            sums, values = [*sums, *by_weights], [*values, by_vectors]
        return sums, values

    tokens = [ops.stop_gradient(vectors), ops.cast(ops.reshape(labels, (-1,)), "int32"), ops.reshape(weights, (-1,))]
    (total, *by_weights), values = _in_parts(score, tokens, batch_parts(shape[0]))
    if with_gradient:
        *values, by_vectors = values
        tensors = [vectors]
        if output_map.trains:
            tensors += [kernel] if bias is None else [bias, kernel]
        total = _with_gradients(total, tensors, [by_vectors, *by_weights], largest)
    return TokenScores(total, *(ops.reshape(scores, shape) for scores in values))


def _in_parts(function: Callable[..., Any], tokens: list[Any], parts: int) -> tuple[list[Any], list[Any]]:
    """Calls a function with the tokens of each part of the batch, which are on devices of their own.

    Pieces then have tokens of one part, and each device adds up its own sums; these are added up once, at the end. One
    of them is the gradient of the kernel, which may be as large as all else that devices send.

    Args:
        function: From tensors `(tokens, ...)` to sums over them and values of each.
        tokens: `(tokens, ...)` of the batch.
        parts: Number of parts, of equal size.
    """
    if parts == 1:
        return function(tokens)
    sums, values = ops.vectorized_map(function, [ops.reshape(each, (parts, -1, *each.shape[1:])) for each in tokens])
    return [ops.sum(each, axis=0) for each in sums], [ops.reshape(each, (-1, *each.shape[2:])) for each in values]


class _Pieces:
    """Tokens cut into pieces of one size, as few as possible.

    Args:
        num_tokens: Number of tokens, an integer or a tensor.
        most: Tokens of a piece at most.
    """

    def __init__(self, num_tokens: Any, most: int) -> None:
        self._num_tokens = num_tokens
        # a batch without tokens is one token of padding
        at_least_one = (lambda n: max(1, n)) if isinstance(num_tokens, int) else (lambda n: ops.maximum(1, n))
        self.count = at_least_one(-(-num_tokens // most))
        self.rows = at_least_one(-(-num_tokens // self.count))

    def cut(self, values: Any) -> Any:
        """`(tokens, ...)` to `(pieces, tokens of a piece, ...)`, padded with zeros."""
        axes = len(values.shape)
        missing = self.count * self.rows - self._num_tokens
        values = ops.pad(values, [(0, missing), *[(0, 0)] * (axes - 1)])
        values = ops.reshape(values, (self.rows, self.count, *values.shape[1:]))
        return ops.swapaxes(values, 0, 1)

    def visit(self, function: Callable[[Any], tuple[list[Any], list[Any]]]) -> tuple[list[Any], list[Any]]:
        """Calls a function with the number of each piece, one piece after the other.

        The first piece is not part of the loop: a batch that fits into it is spared the loop and the sums, whether or
        not its size is known. TensorFlow also keeps zeros to begin with for as long as the program lives.

        Args:
            function: Returns sums over the tokens of a piece, and values of its tokens, `(tokens of a piece, ...)`.

        Returns:
            The sums over all tokens, and the values of all, `(tokens, ...)`.
        """

        def advance(index: Any, sums: list[Any], all_values: list[Any]) -> tuple[Any, list[Any], list[Any]]:
            more, values = function(index)
            sums = [old + new for old, new in zip(sums, more, strict=True)]
            all_values = [replace_block(old, index, new) for old, new in zip(all_values, values, strict=True)]
            return next_index(index, sums[-1]), sums, all_values

        sums, values = function(0)
        values = [ops.broadcast_to(value, (self.count, self.rows, *value.shape[1:])) for value in values]
        if not (isinstance(self.count, int) and self.count == 1):
            begin = (next_index(0, sums[-1]), sums, values)
            _, sums, values = ops.while_loop(lambda index, *_: index < self.count, advance, begin)
        return sums, [self._join(value) for value in values]

    def _join(self, pieces: Any) -> Any:
        """`(pieces, tokens of a piece, ...)` to `(tokens, ...)`."""
        values = ops.swapaxes(pieces, 0, 1)
        return ops.reshape(values, (self.count * self.rows, *pieces.shape[2:]))[: self._num_tokens]


def _product(a: Any, b: Any, *, transpose_a: bool = False, transpose_b: bool = False) -> Any:
    """Product of two matrices, without a transposed copy of one in a loop of TensorFlow."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.matmul(a, b, transpose_a=transpose_a, transpose_b=transpose_b)
    return ops.matmul(ops.transpose(a) if transpose_a else a, ops.transpose(b) if transpose_b else b)


def _logits(output_map: OutputMap, vectors: Any) -> Any:
    """Logits in float32, `(tokens, vocabulary)`."""
    logits = ops.cast(_product(vectors, output_map.kernel, transpose_b=True), "float32")
    if output_map.bias is not None:
        logits = logits + output_map.bias
    cap = output_map.soft_cap
    return logits if cap is None else cap * ops.tanh(logits / cap)


def _gradients(output_map: OutputMap, vectors: Any, logits: Any, upstream: Any) -> list[Any]:
    """Gradients by vectors and, where these train, bias and kernel; those by weights in float32.

    Args:
        output_map: The map.
        vectors: The vectors of a piece, `(tokens, dim)`.
        logits: Its logits.
        upstream: The gradient by them.
    """
    if output_map.soft_cap is not None:
        upstream = upstream * (1.0 - ops.square(logits / output_map.soft_cap))
    rounded = ops.cast(upstream, vectors.dtype)
    by_vectors = ops.matmul(rounded, output_map.kernel)
    if not output_map.trains:
        return [by_vectors]
    # that of the kernel is known last
    by_bias = [] if output_map.bias is None else [ops.sum(upstream, axis=0)]
    return [by_vectors, *by_bias, ops.cast(_product(rounded, vectors, transpose_a=True), "float32")]


def _with_gradients(total: Any, tensors: list[Any], gradients: list[Any], factor: Any) -> Any:
    """`total`, whose gradients by the tensors are those given times a factor."""

    @ops.custom_gradient
    def attach(*tensors: Any) -> tuple[Any, Callable[..., Any]]:
        def gradient(*arguments: Any, upstream: Any = None) -> Any:
            upstream = factor * (arguments[0] if upstream is None else upstream)
            scaled = [
                ops.cast(upstream * ops.cast(values, "float32"), tensor.dtype)
                for values, tensor in zip(gradients, tensors, strict=True)
            ]
            return tuple(scaled) if len(scaled) > 1 else scaled[0]

        return total, gradient

    return attach(*tensors)
