"""Embeddings of tokens and of segments."""

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import keras
from keras import ops

from layers.constructor_arguments import ConfigFromArguments
from layers.dense import Dense
from layers.roles import VOCABULARY, WHOLE, Role

# of all tokens: 15 % were chosen, of which 80 % were masked
_LEFT_IN_TRAINING = 1 - 0.15 * 0.8


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class TokenEmbedding(ConfigFromArguments, keras.layers.Layer):
    """Token embedding, also used as the output projection (tied weights).

    The table is a `keras.layers.ReversibleEmbedding`, so LoRA and quantization work on it. An encoder, a decoder and
    the projection to logits may share one `TokenEmbedding`, as in Vaswani et al.

    Args:
        vocabulary_size: Number of token ids.
        dim: Width of the output vectors.
        scale: True to multiply the vectors by `sqrt(dim)`, False not to, or the factor itself. `project` does not
            multiply.
        factor_dim: Width of a table that is narrower than `dim`. A linear map then leads from `factor_dim` to `dim`
            (factorised embedding). Default: the table has the width `dim`.
        factor_bias: Whether that map has a bias (as in ALBERT and ELECTRA). Needs `factor_dim`.
        kernel_initializer: Initializer of the table. Default: normal with standard deviation `dim**-0.5`.

    Call arguments:
        token_ids: Integers `(...)`, usually `(batch, length)`.

    Returns:
        `(..., dim)`.

    Raises:
        ValueError: If a size or `scale` is not positive, or `factor_bias` is set without `factor_dim`.

    Example:

    >>> embedding = TokenEmbedding(1000, 64, scale=True)
    >>> vectors = embedding(keras.ops.ones((2, 5), dtype="int32"))
    >>> vectors.shape, embedding.project(vectors).shape
    ((2, 5, 64), (2, 5, 1000))

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.4; Press and Wolf 2017, "Using the Output Embedding"
        (tied weights); Lan et al. 2020, "ALBERT", section 3.1 (factorised).
    """

    weight_roles: ClassVar[Mapping[str, Role]] = {"table": VOCABULARY, "factor": WHOLE}

    def __init__(
        self,
        vocabulary_size: int,
        dim: int,
        scale: bool | float = False,
        factor_dim: int | None = None,
        factor_bias: bool = False,
        kernel_initializer: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        for name, value in (("vocabulary_size", vocabulary_size), ("dim", dim), ("factor_dim", factor_dim)):
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}.")
        if not isinstance(scale, bool) and not scale > 0:
            raise ValueError(f"scale must be True, False or a number above 0, got {scale!r}.")
        if factor_bias and factor_dim is None:
            raise ValueError("factor_bias must be False without factor_dim, got True: there is no map to add to.")
        if kernel_initializer is None:
            kernel_initializer = keras.initializers.RandomNormal(stddev=dim**-0.5)
        self.vocabulary_size = vocabulary_size
        self.dim = dim
        self.scale = scale
        self.factor_dim = factor_dim
        self.factor_bias = factor_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.table = keras.layers.ReversibleEmbedding(
            vocabulary_size,
            factor_dim or dim,
            embeddings_initializer=self.kernel_initializer,
            dtype=self.dtype_policy,
            name="table",
        )
        self.factor = None
        if factor_dim is not None:
            self.factor = Dense(dim, use_bias=factor_bias, dtype=self.dtype_policy, name="factor")

    def build(self, input_shape: tuple[int | None, ...] | None = None) -> None:
        self.table.build(input_shape)
        if self.factor is not None:
            self.factor.build((None, self.factor_dim))

    def call(self, token_ids: Any) -> Any:
        return self.widen(self.look_up(token_ids))

    def look_up(self, token_ids: Any) -> Any:
        """Returns the rows of the table, neither scaled nor mapped to the width of the model.

        Args:
            token_ids: Integers `(...)`.

        Returns:
            `(..., factor_dim)`, or `(..., dim)` without a `factor_dim`.
        """
        return self.table(token_ids)

    def widen(self, vectors: Any) -> Any:
        """Returns rows of the table, scaled and mapped to the width of the model.

        Args:
            vectors: The result of `look_up`, `(..., factor_dim)` or `(..., dim)`.

        Returns:
            `(..., dim)`.
        """
        if self.factor is not None:
            vectors = self.factor(vectors)
        if self.scale is True:
            vectors = vectors * math.sqrt(self.dim)
        elif self.scale is not False:
            vectors = vectors * self.scale
        return vectors

    def project(self, hidden: Any) -> Any:
        """Returns logits over the vocabulary, by the transposed linear map (if any) and the transposed table.

        Args:
            hidden: `(..., dim)`.

        Returns:
            `(..., vocabulary_size)`.

        Raises:
            ValueError: If the last axis has another size.
        """
        return self.score(self.narrow(hidden))

    def narrow(self, hidden: Any) -> Any:
        """Returns `hidden` times the transposed linear map, with the width of the table; unchanged without a map.

        Args:
            hidden: `(..., dim)`.

        Raises:
            ValueError: If the last axis has another size.
        """
        _check_width("hidden", hidden, self.dim)
        if self.factor is None:
            return hidden
        return ops.matmul(hidden, ops.transpose(ops.cast(self._factor_kernel(), hidden.dtype)))

    def score(self, vectors: Any) -> Any:
        """Returns logits over the vocabulary: `vectors` times the transposed table.

        Args:
            vectors: `(..., factor_dim)`, or `(..., dim)` without a `factor_dim`.

        Returns:
            `(..., vocabulary_size)`.

        Raises:
            ValueError: If the last axis has another size.
        """
        _check_width("vectors", vectors, self.factor_dim or self.dim)
        if self.table.quantization_mode is not None:
            return self._quantized_scores(ops.convert_to_tensor(vectors))
        return self.table(vectors, reverse=True)

    def _quantized_scores(self, vectors: Any) -> Any:
        """The result of `score` with a quantized table; its gradient passes the rounding of the vectors unchanged.

        `keras.layers.Dense` does the same. `ReversibleEmbedding` leaves the rounding in, whose gradient is zero.
        """

        @ops.custom_gradient
        def scores(vectors: Any) -> tuple[Any, Callable[..., Any]]:
            def gradient(*arguments: Any, upstream: Any = None) -> Any:
                upstream = arguments[0] if upstream is None else upstream
                rows = self.look_up(ops.arange(self.vocabulary_size))
                return ops.cast(ops.matmul(upstream, ops.cast(rows, upstream.dtype)), vectors.dtype)

            return self.table(vectors, reverse=True), gradient

        return scores(vectors)

    def _factor_kernel(self) -> Any:
        """The kernel of the linear map `(factor_dim, dim)`, with low-rank updates, in floating point."""
        if self.factor.quantization_mode is None:
            return self.factor.updated_kernel()
        # a quantized layer stores integers and scales: its outputs for unit vectors are the rows of the kernel
        rows = self.factor(ops.eye(self.factor_dim, dtype=self.compute_dtype))
        return rows if self.factor.bias is None else rows - ops.cast(self.factor.bias, rows.dtype)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        return (*input_shape, self.dim)

    def compute_output_spec(self, token_ids: Any) -> Any:
        return keras.KerasTensor((*token_ids.shape, self.dim), dtype=self.compute_dtype)


def with_token_dropout(
    embedded: Any, token_ids: Any, mask_id: int, padding_mask: Any = None, sequence_ids: Any = None
) -> Any:
    """Returns embedded tokens, those of mask tokens zero and the others scaled as by dropout (ESM).

    The factor is the share of tokens that training left, `1 - 0.15 * 0.8`, divided by the share of the tokens of this
    text that are no mask tokens.

    Args:
        embedded: `(batch, length, dim)`.
        token_ids: `(batch, length)`.
        mask_id: Id of the mask token.
        padding_mask: True where a token is real, `(batch, length)`. Default all.
        sequence_ids: Integers `(batch, length)` of packed sequences, of which each has a share of its own.

    Returns:
        `(batch, length, dim)`, in the dtype of `embedded`.

    Example:

    >>> with_token_dropout(keras.ops.ones((1, 2, 1)), [[7, 9]], mask_id=9)[0, :, 0]  # [1.76, 0.0]

    Reference:
        Lin et al. 2023, "Evolutionary-scale prediction of atomic-level protein structure with a language model", and
        the code published with it (`token_dropout`).
    """
    is_mask = ops.equal(token_ids, mask_id)
    is_counted = ops.ones_like(is_mask) if padding_mask is None else ops.cast(padding_mask, "bool")
    kept = ops.cast(ops.logical_and(is_counted, ops.logical_not(is_mask)), "float32")
    counted = ops.cast(is_counted, "float32")
    if sequence_ids is None:
        counts = (ops.sum(x, axis=-1, keepdims=True) for x in (counted, kept))
    else:
        same = ops.equal(ops.expand_dims(sequence_ids, 1), ops.expand_dims(sequence_ids, 2))
        counts = (ops.sum(ops.expand_dims(x, 1) * ops.cast(same, "float32"), axis=-1) for x in (counted, kept))
    all_tokens, others = counts
    factor = _LEFT_IN_TRAINING * all_tokens / ops.maximum(others, 1.0)
    factor = ops.where(is_mask, 0.0, factor)  # (batch, length)
    return ops.cast(ops.cast(embedded, "float32") * ops.expand_dims(factor, -1), embedded.dtype)


def _check_width(name: str, x: Any, width: int) -> None:
    if x.shape[-1] != width:
        raise ValueError(f"{name} must have {width} as the size of its last axis, got the shape {tuple(x.shape)}.")


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class SegmentEmbedding(ConfigFromArguments, keras.layers.Layer):
    """Segment embedding: a vector for each segment, such as the first and the second sentence of a pair.

    Args:
        num_segments: Number of segment ids.
        dim: Width of the vectors.
        kernel_initializer: Initializer of the table.

    Call arguments:
        segment_ids: Integers `(...)`, usually `(batch, length)`.

    Returns:
        `(..., dim)`.

    Raises:
        ValueError: If a size is not positive.

    Example:

    >>> SegmentEmbedding(2, 64)(keras.ops.zeros((2, 5), dtype="int32")).shape
    (2, 5, 64)

    Reference:
        Devlin et al. 2019, "BERT", section 3.
    """

    # small, and the same on all devices
    weight_role = WHOLE

    def __init__(self, num_segments: int, dim: int, kernel_initializer: Any = "glorot_uniform", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        for name, value in (("num_segments", num_segments), ("dim", dim)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}.")
        self.num_segments = num_segments
        self.dim = dim
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.table = keras.layers.Embedding(
            num_segments, dim, embeddings_initializer=self.kernel_initializer, dtype=self.dtype_policy, name="table"
        )

    def build(self, input_shape: tuple[int | None, ...] | None = None) -> None:
        self.table.build(input_shape)

    def call(self, segment_ids: Any) -> Any:
        return self.table(segment_ids)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        return (*input_shape, self.dim)

    def compute_output_spec(self, segment_ids: Any) -> Any:
        return keras.KerasTensor((*segment_ids.shape, self.dim), dtype=self.compute_dtype)
