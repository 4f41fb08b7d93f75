"""Biases of attention scores: tensors, callables of positions, and callables of the distance alone."""

from typing import Any

from keras import ops

from layers.attention.masks import AttentionMask


def depends_on_distance(bias: Any) -> bool:
    """Returns whether a bias is a callable that depends on the key position minus the query position alone.

    Such a callable has a true attribute `depends_on_distance`. One value per distance then describes the whole matrix.
    """
    return callable(bias) and getattr(bias, "depends_on_distance", False)


def evaluate_bias(bias: Any, mask: AttentionMask | None, query_length: Any, key_length: Any) -> Any:
    """Returns the bias as a tensor; a callable is evaluated at the positions of the mask (by default the indices).

    Args:
        bias: A tensor, or a callable of query positions and key positions.
        mask: An `AttentionMask` or `None`.
        query_length: Number of queries.
        key_length: Number of keys.

    Returns:
        A tensor that broadcasts to `(batch, heads, query_length, key_length)`.
    """
    if not callable(bias):
        return bias
    if mask is None or mask.default_positions:
        if depends_on_distance(bias) and isinstance(query_length, int) and query_length > 1:
            return toeplitz(bias_by_distance(bias, query_length, key_length), query_length, key_length)
        return bias(ops.arange(query_length, dtype="int32"), ops.arange(key_length, dtype="int32"))
    return bias(mask.positions_of_queries(query_length), mask.positions_of_keys(key_length))


def bias_by_distance(bias: Any, query_length: Any, key_length: Any, first_key: int = 0) -> Any:
    """Returns a bias for each distance between queries at 0, 1, ... and keys at `first_key`, `first_key` + 1, ...

    Args:
        bias: Callable that depends on the distance only.
        query_length: Number of queries.
        key_length: Number of keys.
        first_key: Position of the first key.

    Returns:
        `(1, heads, query_length + key_length - 1)`, from the lowest distance to the highest.
    """
    distances = ops.arange(query_length + key_length - 1, dtype="int32") + (first_key - query_length + 1)
    return bias(ops.zeros((1,), dtype="int32"), distances)[:, :, 0]


def toeplitz(diagonals: Any, rows: Any, columns: Any) -> Any:
    """Returns the matrix with the given diagonals: entry (i, j) is `diagonals[j - i + rows - 1]`.

    Each row is the row above, shifted by one. With one extra entry at the end of each row, the rows written one after
    the other are copies of one sequence. The matrix is therefore made by repeating, without computing any index.

    Args:
        diagonals: `(..., rows + columns - 1)`.
        rows: Number of rows.
        columns: Number of columns.

    Returns:
        `(..., rows, columns)`.
    """
    leading = tuple(ops.shape(diagonals)[:-1])
    ones = (1,) * len(leading)
    period = ops.concatenate([diagonals[..., rows - 1 :], diagonals[..., :1], diagonals[..., : rows - 1]], axis=-1)
    flat = ops.tile(period, (*ones, rows))[..., : rows * (rows + columns - 1)]
    return ops.reshape(flat, (*leading, rows, rows + columns - 1))[..., :columns]


def sum_diagonals(matrix: Any, rows: Any, columns: Any) -> Any:
    """Returns the sums along the diagonals of a matrix, which is the gradient of `toeplitz`.

    Args:
        matrix: `(..., rows, columns)`.
        rows: Number of rows.
        columns: Number of columns.

    Returns:
        `(..., rows + columns - 1)`; entry n is the sum of entries (i, j) with j - i + rows - 1 = n.
    """
    leading = tuple(ops.shape(matrix)[:-2])
    nothing = [[0, 0]] * len(leading)
    flat = ops.reshape(ops.pad(matrix, [*nothing, [0, 0], [0, rows - 1]]), (*leading, rows * (rows + columns - 1)))
    flat = ops.pad(flat, [*nothing, [0, rows]])
    period = ops.sum(ops.reshape(flat, (*leading, rows, rows + columns)), axis=-2)
    return ops.concatenate([period[..., columns + 1 :], period[..., :columns]], axis=-1)
