"""Options of a Transformer block that are drawn in pairs, the block of a case, and what it must give by the formulas.

`expected` computes in NumPy, from a dictionary of weights by their paths. So the gradient along a random direction is a
difference of two of its values, which no gradient of a framework enters.
"""

import keras
import numpy as np
from keras import ops

from layers import FeedForward, LayerNorm, MultiHeadAttention, RMSNorm, RotaryEmbedding, TransformerBlock

HEADS, HEAD_DIM, WIDTH, MEMORY_WIDTH, LENGTH, MEMORY_LENGTH = 2, 4, 8, 6, 6, 5
OPTIONS = {
    "placement": ["post", "pre", "sandwich", "res_post", "parallel"],
    "norm": ["layer", "rms"],
    "attention_norm": [True, False],
    "shared_norm": [True, False],
    "residual_scale": [1.0, 1.7],
    "branch_scale": [1.0, 0.6],
    "layer_scale": [None, 0.4],
    "feed_forward": ["plain", "gated", "limited"],
    "memory": ["none", "memory", "projected"],
    "remat": [False, True],
    "mask": ["none", "padding", "memory padding", "segments"],
    "positions": ["default", "shifted"],
    "cache": ["none", "parts", "by row"],
    "return_weights": [False, True],
    "run": ["inference", "training", "gradient"],
    "compiled": [False, True],
    "dtype": ["float32", "mixed_bfloat16"],
}
SHIFT, SEGMENTS = 40, np.array([[1, 1, 1, 2, 2, 2], [1, 1, 1, 1, 2, 2]])
LENGTHS, MEMORY_LENGTHS = np.array([LENGTH, LENGTH - 2]), np.array([MEMORY_LENGTH - 2, MEMORY_LENGTH])


def is_valid(case):
    placement, cached = case["placement"], case["cache"] != "none"
    return not (
        (not case["attention_norm"] and placement != "pre")
        or (not case["shared_norm"] and placement != "parallel")
        or (case["residual_scale"] != 1.0 and placement != "post")
        or (case["mask"] == "memory padding" and case["memory"] == "none")
        or (cached and (case["mask"] in ("padding", "segments") or case["run"] != "inference"))
        or (case["return_weights"] and case["run"] == "gradient")
        # a difference of two values needs float32
        or (case["dtype"] != "float32" and case["run"] == "gradient")
    )


def block_of(case):
    """The block, with random weights."""
    has_memory = case["memory"] != "none"
    gate = {"gate_limit": 0.8, "up_offset": 1.0} if case["feed_forward"] == "limited" else {}
    block = TransformerBlock(
        MultiHeadAttention(HEADS, HEAD_DIM, causal=True, position=RotaryEmbedding(HEAD_DIM), dtype=case["dtype"]),
        FeedForward(10, "silu", gated=case["feed_forward"] != "plain", dtype=case["dtype"], **gate),
        MultiHeadAttention(HEADS, HEAD_DIM, dtype=case["dtype"]) if has_memory else None,
        norm=RMSNorm(1e-6) if case["norm"] == "rms" else LayerNorm(1e-6),
        dtype=case["dtype"],
        **{
            name: case[name]
            for name in (
                *("placement", "attention_norm", "shared_norm", "residual_scale", "branch_scale"),
                *("layer_scale", "remat"),
            )
        },
    )
    block.build((None, None, WIDTH), (None, None, MEMORY_WIDTH) if has_memory else None)
    generator = np.random.default_rng(5)
    for weight in block.weights:
        weight.assign(weight + generator.normal(0, 0.3, weight.shape))
    return block


def inputs_of(case):
    """Inputs, memory (None without one), and call arguments."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(2, LENGTH, WIDTH)).astype("float32")
    memory = generator.normal(size=(2, MEMORY_LENGTH, MEMORY_WIDTH)).astype("float32")
    arguments = {}
    if case["mask"] == "padding":
        arguments["padding_mask"] = np.arange(LENGTH) < LENGTHS[:, None]
    elif case["mask"] == "memory padding":
        arguments["memory_padding_mask"] = np.arange(MEMORY_LENGTH) < MEMORY_LENGTHS[:, None]
    elif case["mask"] == "segments":
        arguments["segment_ids"] = SEGMENTS
    if case["positions"] == "shifted":
        arguments["positions"] = np.arange(LENGTH) + SHIFT
    return x, None if case["memory"] == "none" else memory, arguments


def weights_of(block):
    return {weight.path: np.array(ops.convert_to_numpy(weight), "float64") for weight in block.trainable_weights}


def direction_of(block):
    """A random direction in the space of all trainable weights, by path."""
    generator = np.random.default_rng(7)
    return {weight.path: generator.normal(size=weight.shape) for weight in block.trainable_weights}


def factors():
    """What the outputs are multiplied with, so that their sum is a scalar that depends on each of them differently."""
    return np.random.default_rng(8).normal(size=(2, LENGTH, WIDTH)).astype("float32")


def run(case, block):
    """The output `(batch, length, width)`, or for a gradient its product with `direction_of`, a number."""
    x, memory, arguments = inputs_of(case)
    training = case["run"] != "inference"

    def whole(x, memory):
        given = dict(arguments)
        if case["memory"] == "projected":
            given["projected_memory"] = block.cross_attention.project_memory(memory)
        elif memory is not None:
            given["memory"] = memory
        if case["cache"] == "none":
            result = block(x, training=training, return_weights=case["return_weights"], **given)
            return result[0] if case["return_weights"] else result
        cache, index, outputs = block.attention.make_cache(2, LENGTH + 2), 0, []
        for count in (3, 1, 2):
            part = dict(given)
            if "positions" in part:
                part["positions"] = part["positions"][index : index + count]
            at = np.full(2, index, "int32") if case["cache"] == "by row" else index
            output, cache, *_ = block(
                x[:, index : index + count],
                cache=cache,
                cache_index=at,
                return_weights=case["return_weights"],
                **part,
            )
            outputs.append(output)
            index += count
        return ops.concatenate(outputs, axis=1)

    if case["run"] == "gradient":
        return _along_direction(block, whole, x, memory, case["compiled"])
    tensors = [None if given is None else ops.cast(given, block.compute_dtype) for given in (x, memory)]
    output = compiled(whole)(*tensors) if case["compiled"] else whole(*tensors)
    return ops.convert_to_numpy(ops.cast(output, "float32"))


def compiled(function):
    if keras.backend.backend() == "jax":
        import jax

        return jax.jit(function)
    import tensorflow as tf

    return tf.function(function, autograph=False)


def _along_direction(block, function, x, memory, is_compiled):
    """The gradient of the scalar with respect to all trainable weights, times the direction; a missing one is 0."""
    import tensorflow as tf

    def gradients(x, memory):
        with tf.GradientTape() as tape:
            value = tf.reduce_sum(function(x, memory) * factors())
        return tape.gradient(value, [weight.value for weight in block.trainable_weights])

    tensors = [None if given is None else tf.constant(given) for given in (x, memory)]
    found = compiled(gradients)(*tensors) if is_compiled else gradients(*tensors)
    direction = direction_of(block)
    return sum(
        float(np.sum(ops.convert_to_numpy(gradient) * direction[weight.path]))
        for weight, gradient in zip(block.trainable_weights, found, strict=True)
        if gradient is not None
    )


def expected(case, block):
    """What `run` must give, by the formulas."""
    weights = weights_of(block)
    if case["run"] != "gradient":
        return formula(case, block, weights)
    step, direction = 1e-6, direction_of(block)
    values = []
    for sign in (1, -1):
        moved = {path: value + sign * step * direction[path] for path, value in weights.items()}
        values.append(np.sum(formula(case, block, moved) * factors()))
    return (values[0] - values[1]) / (2 * step)


def formula(case, block, weights):
    """The output of the block in float64, row by row."""
    x, memory, arguments = inputs_of(case)
    start = SHIFT if case["positions"] == "shifted" else 0

    def get(variable):
        return weights[variable.path]

    def dense(layer, x):
        return x @ get(layer.kernel) + (0 if layer.bias is None else get(layer.bias))

    def norm(layers, name, x):
        if name not in layers:
            return x
        layer = layers[name]
        if case["norm"] == "rms":
            return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * get(layer.weights[0])
        deviation = x - x.mean(-1, keepdims=True)
        deviation = deviation / np.sqrt((deviation**2).mean(-1, keepdims=True) + 1e-6)
        return deviation * get(layer.gamma) + get(layer.beta)

    def attend(layer, x, source, visible, turns):
        query, key, value = (
            dense(projection, given).reshape(len(given), HEADS, HEAD_DIM)
            for projection, given in (
                (layer.query_projection, x),
                (layer.key_projection, source),
                (layer.value_projection, source),
            )
        )
        context = np.zeros((len(x), HEADS, HEAD_DIM))
        for head, i in np.ndindex(HEADS, len(x)):
            seen = np.flatnonzero(visible[i])
            if not len(seen):
                continue
            q, keys = query[i, head], key[seen, head]
            if turns:  # one product of complex numbers, Su et al. 2021, equation 12
                half = HEAD_DIM // 2
                angles = (start + i - (start + seen))[:, None] * 10000.0 ** (-np.arange(half) / half)
                turned = (q[:half] + 1j * q[half:]) * np.exp(1j * angles)
                scores = (turned * (keys[:, :half] - 1j * keys[:, half:])).real.sum(-1)
            else:
                scores = keys @ q
            scores = np.exp((scores - scores.max()) / np.sqrt(HEAD_DIM))
            context[i, head] = scores @ value[seen, head] / scores.sum()
        return dense(layer.output_projection, context.reshape(len(x), -1))

    def feed_forward(x):
        layer, up = block.feed_forward, dense(block.feed_forward.up, x)
        if layer.gate is None:
            return dense(layer.down, _silu(up))
        gate = dense(layer.gate, x)
        if case["feed_forward"] == "limited":
            gate, up = np.minimum(gate, 0.8), np.clip(up, -0.8, 0.8) + 1.0
        return dense(layer.down, _silu(gate) * up)

    outputs = []
    for row in range(2):
        places = np.arange(LENGTH)
        visible = places[None] <= places[:, None]
        if case["mask"] == "padding":
            visible = visible & arguments["padding_mask"][row]
        elif case["mask"] == "segments":
            visible = visible & (SEGMENTS[row][:, None] == SEGMENTS[row][None])
        visible_memory = np.ones((LENGTH, MEMORY_LENGTH), "bool")
        if case["mask"] == "memory padding":
            visible_memory = visible_memory & arguments["memory_padding_mask"][row]
        functions = {
            "attention": lambda x, visible=visible: attend(block.attention, x, x, visible, turns=True),
            "cross_attention": lambda x, row=row, visible=visible_memory: attend(
                block.cross_attention, x, memory[row].astype("float64"), visible, turns=False
            ),
            "feed_forward": feed_forward,
        }
        hidden = first = x[row].astype("float64")
        for name in ("attention", "cross_attention", "feed_forward"):
            if name == "cross_attention" and memory is None:
                continue
            placement = case["placement"]
            given = first if placement == "parallel" else hidden
            if placement == "parallel" and case["shared_norm"]:
                given = norm(block.norms, "attention", given)
            elif placement in ("pre", "sandwich", "parallel"):
                given = norm(block.norms, name, given)
            branch = norm(block.norms_after, name, functions[name](given)) * case["branch_scale"]
            if case["layer_scale"] is not None:
                branch = branch * get(block.scales[name])
            hidden = case["residual_scale"] * hidden + branch
            if placement == "post":
                hidden = norm(block.norms, name, hidden)
        outputs.append(hidden)
    return np.stack(outputs)


def real(case):
    """Which outputs count: positions that are no padding, `(batch, length)`."""
    return np.arange(LENGTH) < (LENGTHS if case["mask"] == "padding" else np.full(2, LENGTH))[:, None]


def _silu(x):
    return x / (1 + np.exp(-x))


def error(case):
    """How far the block of a case is from the formulas, beside the size of what they give."""
    block = block_of(case)
    actual, wanted = run(case, block), expected(case, block)
    if case["run"] != "gradient":
        actual, wanted = actual[real(case)], wanted[real(case)]
    return np.abs(actual - wanted).max() / max(1, np.abs(wanted).max())


def tolerance(case):
    """float32 sums of some dozens of terms; bfloat16 keeps 8 bits, through three sublayers and their norms."""
    return 1e-4 if case["dtype"] == "float32" else 0.1
