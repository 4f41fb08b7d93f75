"""Recurrent networks written out in NumPy, one row and one step at a time, without padding."""

import numpy as np


def array(weight):
    return np.array(weight.numpy() if hasattr(weight, "numpy") else weight, "float64")


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x):
    x = np.exp(x - x.max())
    return x / x.sum()


def dense(layer, x):
    y = x @ array(layer.kernel)
    return y if layer.bias is None else y + array(layer.bias)


def step(layer, x, states):
    """One step of a `RecurrentLayer` on a vector, with the equations of the papers gate by gate."""
    cell = layer.network.cell
    w, u, b, h = array(cell.kernel), array(cell.recurrent_kernel), array(cell.bias), states[0]
    n = layer.units
    w = [w[:, i : i + n] for i in range(0, w.shape[1], n)]
    u = [u[:, i : i + n] for i in range(0, u.shape[1], n)]
    if layer.cell == "simple":
        return [np.tanh(x @ w[0] + h @ u[0] + b)]
    if layer.cell == "lstm":
        b = [b[i : i + n] for i in range(0, 4 * n, n)]
        i, f, g, o = (x @ w[k] + h @ u[k] + b[k] for k in range(4))
        c = sigmoid(f) * states[1] + sigmoid(i) * np.tanh(g)
        return [sigmoid(o) * np.tanh(c), c]
    bias, recurrent_bias = b if layer.reset_after else (b, np.zeros(3 * n))
    bias, recurrent_bias = ([v[i : i + n] for i in range(0, 3 * n, n)] for v in (bias, recurrent_bias))
    z = sigmoid(x @ w[0] + bias[0] + h @ u[0] + recurrent_bias[0])
    r = sigmoid(x @ w[1] + bias[1] + h @ u[1] + recurrent_bias[1])
    if layer.reset_after:
        candidate = np.tanh(x @ w[2] + bias[2] + r * (h @ u[2] + recurrent_bias[2]))
    else:
        candidate = np.tanh(x @ w[2] + bias[2] + (r * h) @ u[2])
    return [z * h + (1 - z) * candidate]


def run(layer, xs, states=None):
    """All outputs and the last states of a `RecurrentLayer` on `(length, dim)`."""
    states = states or [np.zeros(layer.units)] * layer.number_of_states
    outputs = []
    for x in xs[::-1] if layer.backwards else xs:
        states = step(layer, x, states)
        outputs.append(states[0])
    return np.array(outputs[::-1] if layer.backwards else outputs), states


def encode(encoder, xs):
    """Outputs and last states of a `RecurrentEncoder`."""
    all_states = []
    for directions in encoder.layers_by_direction:
        results = [run(layer, xs) for layer in directions]
        xs = np.concatenate([outputs for outputs, _ in results], axis=-1)
        all_states.append([states for _, states in results])
    return xs, all_states


def attend(decoder, query, memory, t):
    """Context and weights of step t (from 1)."""
    attention, name = decoder.attention, decoder.score
    if name == "additive":
        hidden = np.tanh(dense(attention.query_projection, query) + dense(attention.key_projection, memory))
        scores = dense(attention.score_projection, hidden)[:, 0]
    elif name == "bilinear":
        scores = np.array([query @ array(attention.key_projection.kernel).T @ key for key in memory])
    else:
        scores = memory @ query / (np.sqrt(len(query)) if name == "scaled_dot" else 1)
    places = np.arange(1, len(memory) + 1)
    visible, factors = np.ones(len(memory), bool), np.ones(len(memory))
    if decoder.window is not None:
        radius = decoder.window.radius
        center = min(t, len(memory))
        if decoder.window.center == "predicted":
            hidden = np.tanh(dense(decoder.window.hidden_projection, query))
            center = len(memory) * sigmoid(dense(decoder.window.position_projection, hidden)[0] / np.sqrt(len(hidden)))
            factors = np.exp(-((places - center) ** 2) / (2 * (radius / 2) ** 2))
        visible = np.abs(places - center) <= radius
    weights = np.zeros(len(memory))
    weights[visible] = softmax(scores[visible])
    weights = weights * factors
    return weights @ memory, weights


def readout(decoder, state, context, embedded):
    layer = decoder.readout
    joined = np.concatenate([part for part in (state, context, embedded) if part is not None])
    if layer.kind == "state":
        return state
    if layer.kind == "concatenation":
        return joined
    if layer.kind == "maxout":
        return dense(layer.projection, joined).reshape(-1, 2).max(axis=1)
    joined = np.concatenate([part for part in (context, state) if part is not None])
    return np.tanh(dense(layer.projection, joined))


def decode(decoder, embedded, memory, encoder_states):
    """Readouts and attention weights of a `RecurrentDecoder` on `(length, embedding_dim)`."""
    last = np.concatenate([states[0] for states in encoder_states[-1]])
    fixed = None
    if decoder.context_layer is not None:
        fixed = np.tanh(dense(decoder.context_layer, last))
    states = []
    for index, layer in enumerate(decoder.recurrent_layers):
        source = encoder_states[min(index, len(encoder_states) - 1)]
        if decoder.bridge == "backward":
            source = source[-1:]
        joined = [np.concatenate([states[k] for states in source]) for k in range(layer.number_of_states)]
        if decoder.bridge != "copy":
            joined = [fixed] * len(joined) if decoder.bridge == "context" else joined
            joined = [dense(bridge, x) for bridge, x in zip(decoder.bridges[index], joined, strict=True)]
            joined[0] = np.tanh(joined[0])
        states.append(joined)
    attends = decoder.attends
    fed = np.zeros(decoder.output_dim)
    outputs, all_weights = [], []
    for t, y in enumerate(embedded, 1):
        context, weights, x = fixed, None, y
        if attends == "previous_state":
            context, weights = attend(decoder, states[-1][0], memory, t)
        if decoder.input_feeding:
            x = np.concatenate([y, fed])
        elif context is not None:
            x = np.concatenate([y, context])
        for index, layer in enumerate(decoder.recurrent_layers):
            states[index] = step(layer, x, states[index])
            x = states[index][0]
        if attends == "current_state":
            context, weights = attend(decoder, x, memory, t)
        fed = readout(decoder, x, context, y)
        outputs.append(fed)
        all_weights.append(weights)
    return np.array(outputs), None if weights is None else np.array(all_weights)
