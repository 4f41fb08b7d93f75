"""Multi-head attention in NumPy, and small layers with random weights to compare with it."""

import numpy as np
from keras import ops

from layers import MultiHeadAttention, RelativePositionBias

# float32 sums of a few dozen terms of size one
TOLERANCE = {"atol": 2e-5, "rtol": 2e-5}


def made(*arguments, inputs=12, memory=None, **options):
    """A built layer whose weights, biases and norms included, are random."""
    layer = MultiHeadAttention(*arguments, **options)
    layer.build((None, None, inputs), None if memory is None else (None, None, memory))
    generator = np.random.default_rng(3)
    for weight in layer.weights:
        weight.assign(generator.normal(0, 0.5, weight.shape))
    return layer


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def array(x):
    return ops.convert_to_numpy(ops.cast(x, "float32")) if "bfloat16" in str(x.dtype) else ops.convert_to_numpy(x)


def formula(
    layer, inputs, memory=None, visible=True, *, bias=None, rotate=None, norm=None, scale=None, cap=None, limit=np.inf
):
    """Output and weights, one row, head and query at a time, in float64.

    Args:
        visible: broadcasts to `(batch, heads, queries, keys)`.
        bias: `(heads, queries, keys)`.
        rotate: function of `(length, head_dim)`.
        norm: function of `(length, head_dim)` and the gain.
        limit: largest absolute value of queries, keys and values.
    """
    memory = inputs if memory is None else memory
    heads, groups = layer.num_heads, layer.num_heads // layer.num_key_value_heads
    scale = 1 / np.sqrt(layer.head_dim) if scale is None else scale

    def project(dense, x):
        result = x.astype("float64") @ array(dense.kernel).astype("float64")
        return result if dense.bias is None else result + array(dense.bias)

    def head(x, index, width):
        return x[:, index * width : (index + 1) * width]

    visible = np.broadcast_to(visible, (len(inputs), heads, inputs.shape[1], memory.shape[1]))
    outputs, all_weights = [], np.zeros(visible.shape)
    for row in range(len(inputs)):
        query = project(layer.query_projection, inputs[row])
        key, value = project(layer.key_projection, memory[row]), project(layer.value_projection, memory[row])
        if norm is not None and layer.norm_scope == "width":
            query, key = norm(query, array(layer.query_norm.weights[0])), norm(key, array(layer.key_norm.weights[0]))
        contexts = []
        for h in range(heads):
            q, k = head(query, h, layer.head_dim), head(key, h // groups, layer.head_dim)
            v = head(value, h // groups, layer.value_head_dim)
            if norm is not None and layer.norm_scope == "head":
                q, k = norm(q, array(layer.query_norm.weights[0])), norm(k, array(layer.key_norm.weights[0]))
            q, k, v = (np.clip(x, -limit, limit) for x in (q, k, v))
            if rotate is not None:
                q, k = rotate(q), rotate(k)
            scores = q @ k.T * scale
            if cap is not None:
                scores = cap * np.tanh(scores / cap)
            if bias is not None:
                scores = scores + bias[h]
            context = np.zeros((len(q), layer.value_head_dim))
            for i in range(len(q)):
                seen = np.flatnonzero(visible[row, h, i])
                exponentials = np.exp(scores[i, seen])
                total = exponentials.sum() + (np.exp(array(layer.sinks)[h]) if layer.sinks is not None else 0)
                if len(seen):
                    all_weights[row, h, i, seen] = exponentials / total
                context[i] = all_weights[row, h, i] @ v
            contexts.append(context)
        joined = np.concatenate(contexts, axis=-1)
        if layer.gate_projection is not None:
            joined = joined / (1 + np.exp(-project(layer.gate_projection, inputs[row])))
        outputs.append(project(layer.output_projection, joined))
    return np.stack(outputs), all_weights


def rotation(head_dim):
    """Rotates by position in the half-split layout (Su et al. 2021), base 10000."""

    def rotate(x):
        half = head_dim // 2
        angles = np.arange(len(x))[:, None] * 10000.0 ** (-np.arange(half) / half)
        a, b = x[:, :half], x[:, half:]
        return np.concatenate([a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)], -1)

    return rotate


def root_mean_square(x, gain):
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * gain


def order(queries, keys=None):
    """Query index minus key index, `(queries, keys)`."""
    return np.arange(queries)[:, None] - np.arange(queries if keys is None else keys)[None]


def relative_bias(**options):
    position = RelativePositionBias(4, num_buckets=8, max_distance=6, **options)
    position.build(None)
    position.weights[0].assign(np.random.default_rng(8).normal(size=position.weights[0].shape))
    return position
