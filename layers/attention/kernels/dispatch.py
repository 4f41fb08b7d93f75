"""One entry to all attention paths, and the choice between them."""

from layers.attention.kernels.plain import plain_attention

PATHS = ("plain",)


def attend(
    query,
    key,
    value,
    mask=None,
    *,
    scale: float,
    bias=None,
    soft_cap: float | None = None,
    sinks=None,
    dropout=None,
    path: str = "auto",
    return_weights: bool = False,
):
    """Scaled dot-product attention of any kind, by the path that suits (Vaswani et al. 2017, equation 1).

    weights = softmax(soft_cap * tanh(scale * query key^T / soft_cap) + bias + mask), output = dropout(weights) value.
    The softmax is computed in float32 whatever the type of the inputs. A query that sees no key gets zero.

    Args:
        query: `(batch, heads, query_length, head_dim)`.
        key: `(batch, key_value_heads, key_length, head_dim)`. `heads` must be a multiple of `key_value_heads`; query
            head i uses key head i // (heads / key_value_heads) (grouped-query attention, Ainslie et al. 2023).
        value: `(batch, key_value_heads, key_length, value_dim)`.
        mask: An `AttentionMask`, or `None` if every query sees every key.
        scale: Factor of the scores, usually head_dim ** -0.5.
        bias: Added to the scores: a tensor that broadcasts to `(batch, heads, query_length, key_length)`, or a callable
            of query positions and key positions (each `(length,)` or `(batch, length)`) that returns one.
        soft_cap: Bound of the scores before bias and mask (Gemma 2, Gemma Team 2024, section 2).
        sinks: `(heads,)`, a logit per head that joins the denominator of the softmax (gpt-oss).
        dropout: Callable from weights to weights, or `None`.
        path: "auto" or a name that `choose_path` can return.
        return_weights: Whether to return the weights, before dropout, as well.

    Returns:
        `(batch, heads, query_length, value_dim)`; with `return_weights` a pair of it and the weights
        `(batch, heads, query_length, key_length)`.

    Raises:
        ValueError: If shapes do not fit together or `path` is unknown.

    Example:

    ```python
    x = keras.random.normal((2, 4, 10, 16))
    y = attend(x, x, x, AttentionMask(causal=True), scale=0.25)  # (2, 4, 10, 16)
    ```
    """
    _check_shapes(query, key, value)
    if path not in ("auto", *PATHS):
        raise ValueError(f"`path` must be one of {('auto', *PATHS)}. Received: path={path!r}")
    return plain_attention(
        query,
        key,
        value,
        mask,
        scale=scale,
        bias=bias,
        soft_cap=soft_cap,
        sinks=sinks,
        dropout=dropout,
        return_weights=return_weights,
    )


def choose_path(query, key, value, mask=None) -> str:
    """The path that `attend` takes for these arguments."""
    return "plain"


def _check_shapes(query, key, value):
    for name, x in (("query", query), ("key", key), ("value", value)):
        if len(x.shape) != 4:
            raise ValueError(f"`{name}` must have shape (batch, heads, length, head_dim). Received: {tuple(x.shape)}")
    if query.shape[-1] != key.shape[-1]:
        raise ValueError(
            f"`query` and `key` must have the same head_dim. Received: {query.shape[-1]} and {key.shape[-1]}"
        )
    if key.shape[1] != value.shape[1]:
        raise ValueError(
            f"`key` and `value` must have the same number of heads. Received: {key.shape[1]} and {value.shape[1]}"
        )
    if query.shape[1] % key.shape[1]:
        raise ValueError(
            "The heads of `query` must be a multiple of the heads of `key`. "
            f"Received: {query.shape[1]} and {key.shape[1]}"
        )
