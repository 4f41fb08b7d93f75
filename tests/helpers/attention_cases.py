"""Options of attention that are drawn in pairs, the layer of a case, and what it must give by a formula in NumPy."""

import keras
import numpy as np
from keras import ops
from numpy_attention import array, made, normal

from layers import ALiBi, RelativePositionBias, RMSNorm, RotaryEmbedding, XPos

HEADS, WIDTH, LENGTH, MEMORY = 4, 6, 8, 7
OPTIONS = {
    "key_value_heads": [4, 2, 1],
    "value_head_dim": [6, 4],
    "use_bias": [True, False],
    "position": ["none", "rotary", "xpos", "relative_bias", "alibi"],
    "order": ["full", "causal", "window", "causal window", "causal blocks"],
    "soft_cap": [None, 1.5],
    "sinks": [False, True],
    "norm": [None, "head", "width"],
    "gate": [False, True],
    "weighting": [None, "sigmoid"],
    "path": ["auto", "plain", "blocked", "banded"],
    "mask": ["none", "padding", "lengths", "allowed", "segments", "prefix"],
    "memory": ["self", "memory", "projected"],
    "cache": ["none", "parts", "by row"],
    "positions": ["default", "shifted"],
    "dtype": ["float32", "mixed_bfloat16"],
    "run": ["eager", "compiled"],
}
ORDERS = {
    "full": {},
    "causal": {"causal": True},
    "window": {"window": (3, 1)},
    "causal window": {"causal": True, "window": (2, 0)},
    "causal blocks": {"causal": True, "block_size": 3},
}
SHIFT = 3000
PREFIX, SEGMENTS = np.array([4, 2]), np.array([[1, 1, 1, 2, 2, 2, 2, 3], [1, 1, 1, 1, 1, 1, 2, 2]])


def is_valid(case):
    causal = "causal" in case["order"]
    may_be_cached = causal and case["memory"] == "self" and case["mask"] in ("none", "prefix")
    return not (
        (case["weighting"] and (case["soft_cap"] or case["sinks"] or case["path"] == "blocked"))
        or (case["cache"] != "none" and not may_be_cached)
        or (case["mask"] == "prefix" and not causal)
        or (case["mask"] == "segments" and case["memory"] != "self")
        or (case["path"] == "banded" and case["order"] in ("full", "causal"))
    )


@keras.saving.register_keras_serializable("attention_cases")
def sigmoid(scores, visible):
    return ops.sigmoid(scores - 1.0)


def layer_of(case):
    position = {
        "none": lambda: None,
        "rotary": lambda: RotaryEmbedding(WIDTH),
        "xpos": lambda: XPos(WIDTH, scale_base=16.0),
        "relative_bias": lambda: RelativePositionBias(HEADS, num_buckets=8, max_distance=6),
        "alibi": lambda: ALiBi(HEADS),
    }[case["position"]]()
    norms = {} if case["norm"] is None else {"query_norm": RMSNorm(), "key_norm": RMSNorm(), "norm_scope": case["norm"]}
    return made(
        *(HEADS, WIDTH),
        num_key_value_heads=case["key_value_heads"],
        value_head_dim=case["value_head_dim"],
        use_bias=case["use_bias"],
        position=position,
        logit_soft_cap=case["soft_cap"],
        sinks=case["sinks"],
        output_gate=case["gate"],
        weighting=sigmoid if case["weighting"] else None,
        path=case["path"],
        dtype=case["dtype"],
        memory=None if case["memory"] == "self" else 10,
        **ORDERS[case["order"]],
        **norms,
    )


def inputs_of(case):
    """Inputs, memory (None for self-attention), and call arguments."""
    x, memory = normal(2, LENGTH, 12), None if case["memory"] == "self" else normal(2, MEMORY, 10, seed=1)
    keys = LENGTH if memory is None else MEMORY
    generator, arguments = np.random.default_rng(5), {}
    if case["mask"] == "padding":
        arguments["padding_mask"] = np.arange(keys) < np.array([[keys], [keys - 3]])
    elif case["mask"] == "lengths":
        arguments["lengths"] = np.array([keys, keys - 3])
    elif case["mask"] == "allowed":
        arguments["attention_mask"] = generator.random((2, HEADS, LENGTH, keys)) < 0.6
    elif case["mask"] == "segments":
        arguments["segment_ids"] = SEGMENTS
    elif case["mask"] == "prefix":
        arguments["prefix_length"] = PREFIX + (SHIFT if case["positions"] == "shifted" else 0)
    if case["positions"] == "shifted":
        arguments["positions"] = np.arange(LENGTH) + SHIFT
    return x, memory, arguments


def run(case, layer):
    """The output of the layer in float32, eagerly or compiled, at once or with a cache."""
    x, memory, arguments = inputs_of(case)
    dtype = layer.compute_dtype

    def whole(x, memory):
        given = {"projected_memory": layer.project_memory(memory)} if case["memory"] == "projected" else {}
        if case["memory"] == "memory":
            given = {"memory": memory}
        return layer(x, **given, **arguments)

    def cached(x, memory):
        cache, index, outputs = layer.make_cache(2, LENGTH + 3), 0, []
        for count in (3, 1, 1, 3):
            place, given = slice(index, index + count), dict(arguments)
            if "positions" in given:
                given["positions"] = given["positions"][place]
                if case["cache"] == "by row":
                    given["positions"] = np.broadcast_to(given["positions"], (2, count))
            at = np.full(2, index, "int32") if case["cache"] == "by row" else index
            output, cache = layer(x[:, place], cache=cache, cache_index=at, **given)
            outputs.append(output)
            index += count
        return ops.concatenate(outputs, axis=1)

    function = whole if case["cache"] == "none" else cached
    if case["run"] == "compiled":
        if keras.backend.backend() == "jax":
            import jax

            function = jax.jit(function)
        else:
            import tensorflow as tf

            function = tf.function(function, autograph=False)
    tensors = [None if tensor is None else ops.cast(tensor, dtype) for tensor in (x, memory)]
    return array(ops.cast(function(*tensors), "float32"))


def expected(case, layer):
    """The output by the formulas, row by row, head by head and query by query, in float64.

    With a cache, the keys are those that are filled when the query is fed.
    """
    x, memory, arguments = inputs_of(case)
    source = x if memory is None else memory
    q_places = np.arange(LENGTH) + (SHIFT if case["positions"] == "shifted" else 0)
    k_places = q_places if memory is None else np.arange(MEMORY)
    ends = np.repeat([3, 4, 5, 8], [3, 1, 1, 3]) if case["cache"] != "none" else np.full(LENGTH, len(k_places))
    groups, outputs = HEADS // case["key_value_heads"], []

    def project(dense, x):
        y = x.astype("float64") @ array(dense.kernel).astype("float64")
        return y if dense.bias is None else y + array(dense.bias)

    def split(dense, x, width, norm=None):
        y = project(dense, x)
        if norm is not None and case["norm"] == "width":
            y = _rms(y, norm)
        y = y.reshape(len(y), -1, width)
        return _rms(y, norm) if norm is not None and case["norm"] == "head" else y

    for row in range(2):
        query = split(layer.query_projection, x[row], WIDTH, layer.query_norm)
        key = split(layer.key_projection, source[row], WIDTH, layer.key_norm)
        value = split(layer.value_projection, source[row], case["value_head_dim"])
        contexts = np.zeros((LENGTH, HEADS, case["value_head_dim"]))
        for h, i in np.ndindex(HEADS, LENGTH):
            seen = [
                j for j in range(ends[i]) if _sees(case["order"], arguments, row, h, i, j, q_places[i], k_places[j])
            ]
            if not seen:
                continue
            scores = []
            for j in seen:
                k = key[j, h // groups]
                score = _product(case["position"], query[i, h], k, q_places[i] - k_places[j]) / np.sqrt(WIDTH)
                if case["soft_cap"] is not None:
                    score = case["soft_cap"] * np.tanh(score / case["soft_cap"])
                scores.append(score + _bias(case["position"], layer, h, k_places[j] - q_places[i]))
            scores = np.array(scores)
            if case["weighting"]:
                weights = 1 / (1 + np.exp(1 - scores))
            else:
                sink = array(layer.sinks)[h].astype("float64") if case["sinks"] else -np.inf
                highest = max(scores.max(), sink)
                weights = np.exp(scores - highest)
                weights = weights / (weights.sum() + np.exp(sink - highest))
            contexts[i, h] = weights @ value[seen, h // groups]
        joined = contexts.reshape(LENGTH, -1)
        if case["gate"]:
            joined = joined / (1 + np.exp(-project(layer.gate_projection, x[row])))
        outputs.append(project(layer.output_projection, joined))
    return np.stack(outputs)


def error(case):
    """How far the layer of a case is from the formulas, beside the size of what they give."""
    layer = layer_of(case)
    actual, wanted = run(case, layer), expected(case, layer)
    return np.abs(actual - wanted).max() / max(1, np.abs(wanted).max())


def tolerance(case):
    """Three products and rotations of numbers up to some tens, in bfloat16; angles of 3,000 in float32."""
    if case["dtype"] != "float32":
        return 0.15
    return 5e-3 if case["positions"] == "shifted" else 1e-4


def _rms(x, norm):
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * array(norm.weights[0])


def _sees(order, arguments, row, head, i, j, q_place, k_place):
    options = ORDERS[order]
    left, right = options.get("window", (None, None))
    in_prefix = "prefix_length" in arguments and k_place < arguments["prefix_length"][row]
    return (
        not (options.get("causal") and k_place > q_place and not in_prefix)
        and not (left is not None and k_place < q_place - left)
        and not (right is not None and k_place > q_place + right)
        and not ("block_size" in options and q_place // options["block_size"] != k_place // options["block_size"])
        and not ("padding_mask" in arguments and not arguments["padding_mask"][row, j])
        and not ("lengths" in arguments and j >= arguments["lengths"][row])
        and not ("attention_mask" in arguments and not arguments["attention_mask"][row, head, i, j])
        and not ("segment_ids" in arguments and SEGMENTS[row, i] != SEGMENTS[row, j])
    )


def _product(position, query, key, distance):
    """Of a query and the key that is so far before it: pairs turn, and shrink with xPos (Sun et al. 2023)."""
    if position not in ("rotary", "xpos"):
        return query @ key
    half = WIDTH // 2
    turn = np.exp(1j * distance * 10000.0 ** (-np.arange(half) / half))
    if position == "xpos":
        turn = turn * ((np.arange(half) / half + 0.4) / 1.4) ** (distance / 16.0)
    return ((query[:half] + 1j * query[half:]) * turn * (key[:half] - 1j * key[half:])).real.sum()


def _bias(position, layer, head, distance):
    """Of a key so far behind a query: ALiBi's slopes, T5's buckets (half of those of a side are exact)."""
    if position == "alibi":
        return -(2.0 ** (-8 * (head + 1) / HEADS)) * abs(distance)
    if position != "relative_bias":
        return 0.0
    far = abs(distance)
    if far >= 2:
        far = min(2 + int(np.log(far / 2) / np.log(6 / 2) * 2), 3)
    return float(array(layer.position.embeddings)[far + (4 if distance > 0 else 0), head])
