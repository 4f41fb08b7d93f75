"""Rows of token ids as tensors of endpoints: -1 stands behind those of a row."""

from typing import Any

from zoo.export import Field

TOKENS = Field("token_ids", ("batch", "length"), "int32", "ids of tokens, -1 behind those of a row")
LENGTHS = Field("lengths", ("batch",), "int32", "number of tokens of each row")


def padded(ids: Any) -> dict[str, Any]:
    """Returns what `TOKENS` and `LENGTHS` describe; a graph function.

    Args:
        ids: Ragged ids, `(batch, None)`.
    """
    import tensorflow as tf

    return {"token_ids": tf.cast(ids.to_tensor(-1), tf.int32), "lengths": tf.cast(ids.row_lengths(), tf.int32)}


def ragged(token_ids: Any) -> Any:
    """Returns ragged ids of what `TOKENS` describes; a graph function.

    Args:
        token_ids: `(batch, length)`.
    """
    import tensorflow as tf

    return tf.ragged.boolean_mask(token_ids, token_ids >= 0)
