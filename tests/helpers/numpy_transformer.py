"""One stack of a Transformer in NumPy, written from the formulas: one row, no padding, no cache."""

import math

import numpy as np
from keras import ops


def weights(x):
    return ops.convert_to_numpy(x).astype("float64")


def dense(layer, x):
    y = x @ weights(layer.kernel)
    return y if layer.bias is None else y + weights(layer.bias)


def normed(layer, kind, x, epsilon, unit_offset=False):
    if kind == "rms":
        factor = weights(layer.scale) + unit_offset
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + epsilon) * factor
    mean = x.mean(-1, keepdims=True)
    factor = weights(layer.gamma) + unit_offset
    y = (x - mean) / np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + epsilon) * factor
    return y if layer.beta is None else y + weights(layer.beta)


def rotated(x, base, factor=1.0):
    """`x` is `(length, heads, head_dim)`; pair i is the features i and i + head_dim / 2."""
    half = x.shape[-1] // 2
    y = np.empty_like(x)
    for position in range(x.shape[0]):
        for i in range(half):
            angle = position / factor * base ** (-i / half)
            first, second = x[position, :, i], x[position, :, i + half]
            y[position, :, i] = first * math.cos(angle) - second * math.sin(angle)
            y[position, :, i + half] = first * math.sin(angle) + second * math.cos(angle)
    return y


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "quick_gelu": lambda x: x / (1 + np.exp(-1.702 * x)),
}


def disentangled(layer, stack, config, query, key):
    """He et al. 2021, equation 4, without the first term and the scale: `(heads, length, length)`, pair by pair."""
    position, (length, heads, width) = config.position_in_attention, query.shape
    options, encoding = position.options or {}, stack.attention_position or stack.position
    has_buckets = options.get("buckets", True)
    span = position.num_buckets if has_buckets else position.max_distance
    vectors = weights(encoding.table.embeddings)
    if "norm_epsilon" in options:
        vectors = normed(encoding.norm, "layer", vectors, options["norm_epsilon"])
    queries = dense(layer.query_projection, vectors).reshape(2 * span, heads, width)
    keys = dense(layer.key_projection, vectors).reshape(2 * span, -1, width)
    groups, middle = heads // keys.shape[1], span // 2
    bias = np.zeros((heads, length, length))
    for i in range(length):
        for j in range(length):
            row = i - j
            if has_buckets and abs(row) > middle:
                steps = math.log(abs(row) / middle) / math.log((position.max_distance - 1) / middle) * (middle - 1)
                row = int(math.copysign(math.ceil(steps) + middle, row))
            row = min(max(row + span, 0), 2 * span - 1)
            for head in range(heads):
                if options.get("content_to_position", True):
                    bias[head, i, j] += query[i, head] @ keys[row, head // groups]
                if options.get("position_to_content", True):
                    bias[head, i, j] += queries[row, head] @ key[j, head // groups]
    return bias


def distance_bias(stack, config, length):
    """T5's biases `(heads, length, length)` of distances that have a bucket each, those to the right after half."""
    if config.position_in_attention.kind != "relative_bias":
        return np.zeros((config.attention.num_heads, length, length))
    table = weights((stack.attention_position or stack.position).embeddings)
    bias = np.zeros((table.shape[1], length, length))
    for i in range(length):
        for j in range(length):
            bias[:, i, j] = table[abs(i - j) + (len(table) // 2 if j > i else 0)]
    return bias


def attention(layer, stack, config, index, x, causal):
    choices, position, norm = config.attention, config.position, config.norm
    heads, width = choices.num_heads, config.head_dim
    groups = heads // (choices.num_key_value_heads or heads)
    has_window = choices.window is not None and (
        choices.window_layers is None or choices.window_layers[index % len(choices.window_layers)]
    )

    def split(projection, norm_layer=None):
        y = dense(projection, x).reshape(len(x), -1, width)
        kind = choices.query_key_norm
        if norm_layer is not None and kind is not None:
            y = normed(norm_layer, kind, y, norm.epsilon, norm.unit_offset and kind == norm.kind)
        return y

    query = split(layer.query_projection, layer.query_norm)
    key = split(layer.key_projection, layer.key_norm)
    value = split(layer.value_projection)
    if position.kind == "rotary" and (position.layers is None or position.layers[index % len(position.layers)]):
        base = position.local_base if has_window and position.local_base else position.base
        is_scaled = position.scaling is not None and (position.local_scaling or not has_window)
        factor = position.scaling["factor"] if is_scaled else 1.0
        query, key = rotated(query, base, factor), rotated(key, base, factor)
    bias = distance_bias(stack, config, len(x))
    if config.position_in_attention.kind == "disentangled":
        bias = disentangled(layer, stack, config, query, key) * (choices.scale or width**-0.5)
    context = np.zeros((len(x), heads, width))
    for head in range(heads):
        scores = query[:, head] @ key[:, head // groups].T * (choices.scale or width**-0.5) + bias[head]
        for i in range(len(x)):
            for j in range(len(x)):
                left, right = choices.window if has_window else (None, None)
                if (causal and j > i) or (left is not None and j < i - left) or (right is not None and j > i + right):
                    scores[i, j] = -np.inf
        context[:, head] = softmax(scores) @ value[:, head // groups]
    return dense(layer.output_projection, context.reshape(len(x), -1))


def feed_forward(layer, config, x):
    return dense(layer.down, inner(config, dense(layer.gate, x) if config.gated else None, dense(layer.up, x)))


def inner(config, gate, up):
    activation = ACTIVATIONS[config.activation]
    if gate is None:
        return activation(up)
    limit = math.inf if config.gate_limit is None else config.gate_limit
    return activation(np.minimum(gate, limit)) * (np.clip(up, -limit, limit) + config.up_offset)


def experts(layer, config, x):
    """Softmax over all experts, of which the best are chosen and their weights made to sum to one."""
    stacked = {part: weights(getattr(layer, f"{part}_kernel")) for part in ("gate", "up", "down")}
    biases = {part: getattr(layer, f"{part}_bias") for part in stacked}
    biases = {part: 0.0 if bias is None else weights(bias)[:, 0] for part, bias in biases.items()}
    logits = x @ weights(layer.router.kernel) + (0 if layer.router.bias is None else weights(layer.router.bias))
    output = np.zeros_like(x)
    for token, probabilities in enumerate(softmax(logits)):
        chosen = np.argsort(-probabilities)[: config.experts_per_token]
        for expert in chosen:

            def project(part, x, expert=expert):
                return x @ stacked[part][expert] + (biases[part][expert] if np.ndim(biases[part]) else 0)

            hidden = inner(config, project("gate", x[token]), project("up", x[token]))
            output[token] += probabilities[expert] / probabilities[chosen].sum() * project("down", hidden)
    if layer.shared_experts is not None:
        shared = feed_forward(layer.shared_experts, config, x)
        output += shared if layer.shared_gate is None else shared / (1 + np.exp(-dense(layer.shared_gate, x)))
    return output


def hidden_states(backbone, token_ids):
    """Hidden states `(length, hidden_dim)` of tokens `(length,)`.

    Args:
        backbone: An encoder or a decoder with norms before or after the sublayers.
        token_ids: The tokens.
    """
    config, norm = backbone.config, backbone.config.norm
    causal = config.architecture == "decoder"
    stack = backbone.decoder if causal else backbone.encoder

    def apply(layer, x):
        return normed(layer, norm.kind, x, norm.epsilon, norm.unit_offset)

    embedding = config.embedding
    x = weights(backbone.token_embedding.table.embeddings)[token_ids]
    if embedding.factor_dim and not embedding.factor_after_norm:
        x = dense(backbone.token_embedding.factor, x)
    x = x * (math.sqrt(config.hidden_dim) if embedding.scale is True else embedding.scale or 1)
    if embedding.num_segments:
        x = x + weights(backbone.segment_embedding.table.embeddings)[0]
    if config.position.kind == "learned":
        x = x + weights(stack.position.embeddings)[: len(x)]
    if norm.embedding:
        x = apply(stack.embedding_norm, x)
    if embedding.factor_after_norm:
        x = dense(backbone.token_embedding.factor, x)
    for index in range(config.num_layers):
        groups = config.layer_groups or config.num_layers
        block = stack.blocks[index * groups // config.num_layers]
        for name in ("attention", "feed_forward"):
            y = apply(block.norms[name], x) if norm.placement == "pre" else x
            if name == "attention":
                y = attention(block.attention, stack, config, index, y, causal)
            else:
                pattern = config.feed_forward.expert_layers or (True,)
                has_experts = config.feed_forward.num_experts and pattern[index % len(pattern)]
                y = (experts if has_experts else feed_forward)(block.feed_forward, config.feed_forward, y)
            x = x + config.branch_scale * y
            x = x if norm.placement == "pre" else apply(block.norms[name], x)
    return x if stack.final_norm is None else apply(stack.final_norm, x)
