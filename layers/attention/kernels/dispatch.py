"""One entry to all attention paths, and the choice between them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import keras

from layers.attention.kernels.banded import band, banded_attention, chunk_layout
from layers.attention.kernels.bias import depends_on_distance
from layers.attention.kernels.blocked import blocked_attention
from layers.attention.kernels.fused import (
    MOST_MASK_BYTES,
    facts_for_kernels,
    fused_attention,
    mask_bytes,
    objection_of_cudnn,
)
from layers.attention.kernels.plain import BATCH_IF_UNKNOWN, is_staircase, plain_attention
from layers.attention.masks import AttentionMask
from layers.devices import has_accelerator, has_cudnn
from layers.errors import describe
from layers.fusion import graph_forms, sizes

PATHS = ("plain", "blocked", "banded", "fused")

# Bytes of scores beyond which the blocked path is chosen. With fewer the plain path is faster, because it computes
# nothing twice.
_MOST_SCORES = 2**31
# The same for a window whose other arguments rule out the banded path, as positions in a cache do. It is lower, because
# a window is chosen so that memory does not grow with the text.
_MOST_LOCAL_SCORES = 2**28
# The same on an accelerator for weights that are dropped: weights and random bits of all layers would be kept.
_MOST_DROPPED_SCORES = 2**26

_TOLD = {"causal": "causal order", "left": "window", "key_lengths": "lengths of the rows"}


class PathChoice(NamedTuple):
    """A path of `attend`, and why it is taken."""

    path: str
    reason: str


def attend(
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
    path: str = "auto",
    preferred_path: str = "auto",
    return_weights: bool = False,
) -> Any:
    """Computes scaled dot-product attention with any mask, by the most suitable path.

    `weights = softmax(soft_cap * tanh(scale * query key^T / soft_cap) + bias + mask)` and
    `output = dropout(weights) value`. The softmax is computed in float32 whatever the type of the inputs. The output of
    a query that sees no key is zero.

    All paths give the same result. They differ in memory, here for n queries and n keys:

    * "plain": n * n.
    * "blocked": n. The backward pass computes the scores again.
    * "banded": n * window. Its time grows in the same way.
    * "fused": that of the backend's kernel. On a GPU of NVIDIA, JAX has cuDNN's, which is told the causal order, a
      window on the left and `key_lengths`; another mask is a tensor of n * n for it, up to 64 MiB.

    Args:
        query: `(batch, heads, query_length, head_dim)`.
        key: `(batch, key_value_heads, key_length, head_dim)`. `heads` must be a multiple of `key_value_heads`; query
            head i uses key head i // (heads / key_value_heads) (grouped-query attention, Ainslie et al. 2023).
        value: `(batch, key_value_heads, key_length, value_dim)`.
        mask: An `AttentionMask`, or `None` if every query sees every key.
        scale: Factor of the scores, usually head_dim ** -0.5.
        bias: Added to the scores: a tensor that broadcasts to `(batch, heads, query_length, key_length)`, or a callable
            of query positions and key positions (each `(length,)` or `(batch, length)`) that returns one. A callable
            that depends on the difference of positions alone should have an attribute `depends_on_distance = True`: it
            then takes memory linear in the length, and works with the banded path.
        soft_cap: Bound of the scores before bias and mask (Gemma 2, Gemma Team 2024, section 2).
        sinks: `(heads,)`, a logit per head that joins the denominator of the softmax (gpt-oss).
        dropout: Callable from weights to weights, or `None`. The blocked path needs one with the method `by_block` of
            `layers.dropout.Dropout`.
        weighting: An `AttentionWeighting` that makes the weights in place of the softmax; `None` for the softmax.
        path: "auto", "plain", "blocked", "banded" or "fused". `choose_path` returns the choice of "auto".
        preferred_path: With path="auto", the path to take if it supports the arguments.
        return_weights: Whether to return the weights, before dropout, as well.

    Returns:
        `(batch, heads, query_length, value_dim)`; with `return_weights` a pair of it and the weights
        `(batch, heads, query_length, key_length)`.

    Raises:
        ValueError: If shapes do not fit together, or `path` is unknown or does not support the arguments.

    Example:

    ```python
    x = keras.random.normal((2, 4, 10, 16))
    y = attend(x, x, x, AttentionMask(causal=True), scale=0.25)  # (2, 4, 10, 16)
    ```

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.2.1, equation 1.
    """
    options = {"bias": bias, "soft_cap": soft_cap, "sinks": sinks, "dropout": dropout, "weighting": weighting}
    of_runtime = graph_forms().attention
    if of_runtime is not None:
        return of_runtime(query, key, value, mask, scale=scale, return_weights=return_weights, **options)
    paths = {"path": path, "preferred_path": preferred_path}
    chosen = choose_path(query, key, value, mask, return_weights=return_weights, **paths, **options).path
    if mask is not None and chosen != "fused":
        mask = mask.with_padding_mask(sizes(key)[2])
    if chosen == "plain":
        return plain_attention(query, key, value, mask, scale=scale, return_weights=return_weights, **options)
    if chosen == "banded":
        return banded_attention(query, key, value, mask, scale=scale, **options)
    if chosen == "fused":
        return fused_attention(query, key, value, mask, scale=scale)
    given = {"bias": bias, "soft_cap": soft_cap, "sinks": sinks, "dropout": dropout}
    return blocked_attention(query, key, value, mask, scale=scale, **given)


def choose_path(
    query: Any,
    key: Any,
    value: Any,
    mask: AttentionMask | None = None,
    *,
    bias: Any = None,
    soft_cap: float | None = None,
    sinks: Any = None,
    dropout: Callable[[Any], Any] | None = None,
    weighting: Any = None,
    path: str = "auto",
    preferred_path: str = "auto",
    return_weights: bool = False,
) -> PathChoice:
    """Returns the path that `attend` takes for the same arguments, and the reason.

    Args: as for `attend`. Only shapes are used, so a `keras.KerasTensor` may stand for each tensor.

    Returns:
        A pair `(path, reason)` of strings.

    Raises:
        ValueError: As for `attend`.

    Example:

    ```python
    x = keras.KerasTensor((1, 8, 32768, 64))
    choose_path(x, x, x, AttentionMask(window=(128, 128))).path  # "banded"
    ```
    """
    _check_shapes(query, key, value)
    if weighting is not None and (soft_cap is not None or sinks is not None):
        raise ValueError(
            "soft_cap and sinks must be None with weighting, as they belong to the softmax, got "
            f"soft_cap={soft_cap!r} and sinks={describe(sinks)}."
        )
    asked = {
        "bias": bias,
        "soft_cap": soft_cap,
        "sinks": sinks,
        "dropout": dropout,
        "weighting": weighting,
        "return_weights": return_weights,
    }
    lengths = query.shape[2], key.shape[2]
    known = all(isinstance(length, int) for length in lengths)
    reason = "asked for"
    if path == "auto" and preferred_path != "auto" and not _objection(preferred_path, query, key, value, mask, **asked):
        path, reason = preferred_path, "preferred"
    if path != "auto":
        if path not in PATHS:
            raise ValueError(f"path must be one of {('auto', *PATHS)}, got {path!r}.")
        objection = _objection(path, query, key, value, mask, **asked)
        if objection:
            raise ValueError(f"path must be 'auto' or 'plain' where {objection}, got {path!r}.")
        if path in ("blocked", "banded") and not known and keras.backend.backend() == "jax":
            # JAX gives lengths that are not known as symbols: where only shapes are asked for, and in an export.
            return PathChoice("plain", f"JAX cannot cut lengths that it does not know, so not {path!r} here")
        return PathChoice(path, reason)
    takes_kernel = not _on_jax_cpu() and _objection("fused", query, key, value, mask, **asked) is None
    kernel = PathChoice("fused", _reason_of_kernel(query, key, mask))
    if takes_kernel and has_cudnn() and facts_for_kernels(mask, *lengths) is not None:
        return kernel  # a window, too, without any tensor
    is_local = mask is not None and (mask.window is not None or mask.block_size is not None)
    if is_local and _objection("banded", query, key, value, mask, **asked) is None:
        if known and _is_long_for_its_window(mask, *lengths):
            return PathChoice("banded", f"a query sees few of the {lengths[1]} keys")
        if not known and keras.backend.backend() != "jax":
            return PathChoice("banded", "a query sees few keys of a long sequence; the length is not known")
    size = _score_bytes(query, key, mask) if known else 0
    most = _MOST_LOCAL_SCORES if is_local and known and _sees_few(mask, *lengths) else _MOST_SCORES
    if dropout is not None and has_accelerator():
        most = _MOST_DROPPED_SCORES
    if known and has_cudnn() and mask_bytes(query, key, mask) > MOST_MASK_BYTES:
        most = 0  # the mask alone is too large
    if takes_kernel:
        return kernel
    if not known:
        return PathChoice("plain", "the lengths are not known when the graph is built; ask for 'blocked' if long")
    if size <= most:
        return PathChoice("plain", f"the scores take no more than {most / 2**30:g} GiB")
    rows = "" if isinstance(query.shape[0], int) else f" for {BATCH_IF_UNKNOWN} rows; the batch size is not known"
    objection = _objection("blocked", query, key, value, mask, **asked)
    if objection:
        return PathChoice("plain", f"the scores take {size / 2**30:.1f} GiB{rows}, but {objection}")
    return PathChoice("blocked", f"the scores would take {size / 2**30:.1f} GiB{rows}")


def _reason_of_kernel(query: Any, key: Any, mask: AttentionMask | None) -> str:
    """Names the backend's kernel, and what cuDNN's is told of the mask."""
    if not has_cudnn():
        return "the backend has a kernel for it"
    facts = facts_for_kernels(mask, query.shape[2], key.shape[2])
    if facts is None:
        return "cuDNN has a kernel for it; the mask is a tensor"
    told = " and ".join(_TOLD[fact] for fact in facts)
    return f"cuDNN has a kernel for it, which is told the {told}" if told else "cuDNN has a kernel for it"


def path_up_to(mask: AttentionMask, length: int | None) -> str:
    """Returns the `path` for a layer whose longest length is known before a graph is built.

    In a sequence of unknown length, a window is computed chunk by chunk. This only costs time if the sequence is hardly
    longer than the window.

    Args:
        mask: The conditions on order of the layer: causal, window, blocks.
        length: Largest number of queries and of keys; None for no limit.

    Returns:
        "plain"; or "auto" if the lengths decide or the backend has a kernel.

    Example:

    >>> path_up_to(AttentionMask(window=(64, 64)), 256)  # with TensorFlow
    'plain'
    """
    if length is None or keras.backend.backend() != "tensorflow" or band(mask) is None:
        return "auto"
    return "auto" if _is_long_for_its_window(mask, length, length) else "plain"


def _is_long_for_its_window(mask: AttentionMask, query_length: int, key_length: int) -> bool:
    """Whether chunks of queries see few of the keys."""
    chunk, before, after = chunk_layout(mask, query_length, key_length)
    return 2 * (before + chunk + after) <= key_length and query_length > chunk


def _sees_few(mask: AttentionMask, query_length: int, key_length: int) -> bool:
    """Whether the conditions on order alone let queries see few of the keys."""
    order = AttentionMask(causal=mask.causal, window=mask.window, block_size=mask.block_size)
    return band(order) is not None and _is_long_for_its_window(order, query_length, key_length)


def _score_bytes(query: Any, key: Any, mask: AttentionMask | None) -> int:
    """Memory of the scores in float32 on the plain path, with `BATCH_IF_UNKNOWN` rows if the batch is unknown."""
    batch, heads, query_length, _ = query.shape
    batch = batch if isinstance(batch, int) else BATCH_IF_UNKNOWN
    size = 4 * batch * heads * query_length * key.shape[2]
    return size * 9 // 16 if is_staircase(mask, query_length, key.shape[2]) else size


def _objection(
    path: str,
    query: Any,
    key: Any,
    value: Any,
    mask: AttentionMask | None,
    bias: Any,
    soft_cap: float | None,
    sinks: Any,
    dropout: Callable[[Any], Any] | None,
    weighting: Any,
    return_weights: bool,
) -> str | None:
    """The reason why a path does not support the arguments, or `None` if it does."""
    if weighting is not None and path not in weighting.paths:
        return f"weighting={weighting!r} is computed by {' and '.join(map(repr, weighting.paths))} only"
    if path == "plain":
        return None
    if return_weights:
        return f"the {path} path never holds all weights, and return_weights is set"
    if path == "banded":
        if band(mask) is None:
            return (
                "the mask has no window with limits on both sides (one, if causal) and no block_size, or has allowed, "
                "prefix_length or positions besides"
            )
        if bias is not None and not depends_on_distance(bias):
            return "the bias does not say that it depends on the distance alone"
        return None
    if dropout is not None and path == "fused":
        return "the fused kernel has no dropout of the weights"
    if dropout is not None and not hasattr(dropout, "by_block"):
        return f"dropout={dropout!r} has no method by_block, which gives the factors of a block of weights"
    if path == "fused":
        if keras.backend.backend() not in ("jax", "torch"):
            return f"the {keras.backend.backend()} backend has no fused kernel"
        for name, given in (("bias", bias), ("soft_cap", soft_cap), ("sinks", sinks)):
            if given is not None:
                return f"the fused kernel has no {name}"
        if query.shape[-1] != value.shape[-1]:
            return f"the fused kernel wants head_dim {query.shape[-1]} and value_dim {value.shape[-1]} to be equal"
        if has_cudnn():
            return objection_of_cudnn(query, key, mask)
    return None


def _on_jax_cpu() -> bool:
    """Whether JAX runs on a CPU, where its "fused" kernel holds all scores, and takes two to nine times as long.

    Measured forward and backward in float32 and bfloat16, with lengths of 256 and 1,024 (docs/results.md).
    """
    return keras.backend.backend() == "jax" and all("cpu" in name for name in keras.distribution.list_devices())


def _check_shapes(query: Any, key: Any, value: Any) -> None:
    for name, x in (("query", query), ("key", key), ("value", value)):
        if len(x.shape) != 4:
            raise ValueError(f"{name} must have shape (batch, heads, length, head_dim), got {tuple(x.shape)}.")
    if query.shape[-1] != key.shape[-1]:
        raise ValueError(f"query and key must have the same head_dim, got {query.shape[-1]} and {key.shape[-1]}.")
    if key.shape[1] != value.shape[1]:
        raise ValueError(f"key and value must have the same number of heads, got {key.shape[1]} and {value.shape[1]}.")
    if query.shape[1] % key.shape[1]:
        raise ValueError(
            f"heads of query must be a multiple of the heads of key, got {query.shape[1]} and {key.shape[1]}."
        )
