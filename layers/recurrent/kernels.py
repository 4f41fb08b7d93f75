"""Recurrent layers over whole sequences with their own backward pass.

Automatic differentiation of a loop computes a weight gradient at every step and keeps all intermediate values. Here the
backward loop computes only what each step needs from the next. Factors that depend on the forward pass alone are
computed before the loop, and the gradients of weights and inputs after it, each for all positions at once.
"""

from collections.abc import Sequence
from typing import Any

from keras import ops

from layers.recurrent.loop import Features, run_steps


def all_states(
    cell: str,
    projected: Any,
    states: Sequence[Any],
    kernel: Any,
    bias: Any = None,
    mask: Any = None,
    backwards: bool = False,
) -> list[Any]:
    """Returns the states of a recurrent layer after every position.

    Args:
        cell: "simple", "gru_reset_after", "gru_reset_before" or "lstm".
        projected: `W x_t + b`, `(batch, length, gates * units)`, gates in the order of `keras.layers`.
        states: Initial states: `[h]`, or `[h, c]` for an LSTM, each `(batch, units)`.
        kernel: U, `(units, gates * units)`.
        bias: Added to `U h_{t-1}`, `(gates * units,)`; for "gru_reset_after" only.
        mask: True where a position is real, `(batch, length)`. At other positions the states do not change.
        backwards: Whether the sequence is read from its end.

    Returns:
        For each of `states` a tensor `(batch, length, units)`, the state after each position.

    Example:

    >>> projected, state = keras.ops.ones((2, 5, 4)), keras.ops.zeros((2, 4))
    >>> all_states("simple", projected, [state], keras.ops.eye(4))[0].shape
    (2, 5, 4)
    """
    equations, count = CELLS[cell], len(states)
    units = int(states[0].shape[-1])
    mask = None if mask is None else ops.expand_dims(ops.cast(mask, projected.dtype), -1)
    biases = [] if bias is None else [bias]

    def forward(projected: Any, kernel: Any, *rest: Any) -> Any:
        initial = list(rest[:count])
        if mask is not None:
            # the backward pass multiplies factors of all positions, and NaN times zero would be NaN
            projected = ops.where(mask > 0.5, projected, ops.cast(0, projected.dtype))
        features = Features(projected=projected, mask=mask)

        def step(columns: Any, states: Any) -> Any:
            parts = features.split(columns)
            new, saved = equations.forward(parts["projected"], states, kernel, *rest[count:])
            if mask is not None:
                token_mask = parts["mask"] > 0.5
                new = [ops.where(token_mask, after, before) for after, before in zip(new, states, strict=True)]
            return (ops.concatenate(new, axis=-1), saved), new

        (sequence, saved), _ = run_steps(step, features.joined, initial, backwards=backwards)

        def backward(*gradients: Any, upstream: Any = None) -> Any:
            gradient = gradients[0] if upstream is None else upstream
            first = ops.expand_dims(ops.concatenate(initial, axis=-1), 1)
            edges = [sequence[:, 1:], first] if backwards else [first, sequence[:, :-1]]
            previous = _split(ops.concatenate(edges, axis=1), count)
            factors = equations.factors(_split(sequence, count), previous, saved)
            features = Features(gradient=gradient, **factors, mask=mask)

            def step(columns: Any, carried: Any) -> Any:
                parts = features.split(columns)
                total = [a + b for a, b in zip(_split(parts["gradient"], count), carried, strict=True)]
                before, record = equations.backward(total, parts, kernel)
                if mask is not None:
                    token_mask = parts["mask"] > 0.5
                    before = [ops.where(token_mask, a, b) for a, b in zip(before, total, strict=True)]
                    record = ops.where(token_mask, record, ops.cast(0, record.dtype))
                return record, before

            zeros = [ops.zeros_like(state) for state in initial]
            records, to_initial = run_steps(step, features.joined, zeros, backwards=not backwards)
            gates, recurrent, kernel_gradient = equations.gradients(records, factors, previous, saved)
            bias_gradient = [ops.sum(recurrent, axis=(0, 1))] * len(biases)
            return (gates, kernel_gradient, *to_initial, *bias_gradient)

        return sequence, backward

    sequence = ops.custom_gradient(forward)(projected, kernel, *states, *biases)
    return [sequence[..., index * units : (index + 1) * units] for index in range(count)]


def _split(tensor: Any, count: int) -> list[Any]:
    width = tensor.shape[-1] // count
    return [tensor[..., index * width : (index + 1) * width] for index in range(count)]


def _sum_of_products(a: Any, b: Any) -> Any:
    """Gradient of a matrix: `a^T b`, for `(batch, length, m)` and `(batch, length, n)`, summed over all positions."""
    a, b = (ops.reshape(x, (-1, x.shape[-1])) for x in (a, b))
    return ops.matmul(ops.transpose(a), b)


class SimpleEquations:
    """`h_t = tanh(p_t + U h_{t-1})`. A record is the gradient of the argument of tanh."""

    @staticmethod
    def forward(projected: Any, states: Any, kernel: Any) -> Any:
        state = ops.tanh(projected + ops.matmul(states[0], kernel))
        return [state], ()

    @staticmethod
    def factors(states: Any, previous: Any, saved: Any) -> Any:
        return {"slope": 1 - ops.square(states[0])}

    @staticmethod
    def backward(gradients: Any, parts: Any, kernel: Any) -> Any:
        record = gradients[0] * parts["slope"]
        return [ops.matmul(record, ops.transpose(kernel))], record

    @staticmethod
    def gradients(records: Any, factors: Any, previous: Any, saved: Any) -> Any:
        return records, records, _sum_of_products(previous[0], records)


class GRUResetAfterEquations:
    """`z, r = sigmoid(...)`, `n = tanh(p_n + r (U_n h_{t-1} + b_n))`, `h_t = n + z (h_{t-1} - n)`.

    A record is the gradient of `h_t`. Multiplied by the factors "recurrent" it is the gradient of `U h_{t-1}`.
    """

    @staticmethod
    def forward(projected: Any, states: Any, kernel: Any, bias: Any) -> Any:
        units = states[0].shape[-1]
        recurrent = ops.matmul(states[0], kernel) + bias
        gates = ops.sigmoid(projected[:, : 2 * units] + recurrent[:, : 2 * units])
        product = recurrent[:, 2 * units :]
        candidate = ops.tanh(projected[:, 2 * units :] + gates[:, units:] * product)
        state = candidate + gates[:, :units] * (states[0] - candidate)
        return [state], (gates, candidate, product)

    @staticmethod
    def factors(states: Any, previous: Any, saved: Any) -> Any:
        gates, candidate, product = saved
        update, reset = _split(gates, 2)
        to_input = (1 - update) * (1 - ops.square(candidate))
        to_update = (previous[0] - candidate) * update * (1 - update)
        to_reset = to_input * product * reset * (1 - reset)
        return {"recurrent": ops.concatenate([to_update, to_reset, to_input * reset], axis=-1), "update": update}

    @staticmethod
    def backward(gradients: Any, parts: Any, kernel: Any) -> Any:
        gradient = gradients[0]
        recurrent = ops.concatenate([gradient] * 3, axis=-1) * parts["recurrent"]
        return [gradient * parts["update"] + ops.matmul(recurrent, ops.transpose(kernel))], gradient

    @staticmethod
    def gradients(records: Any, factors: Any, previous: Any, saved: Any) -> Any:
        gates, candidate, _ = saved
        recurrent = ops.concatenate([records] * 3, axis=-1) * factors["recurrent"]
        units = records.shape[-1]
        to_input = records * (1 - gates[..., :units]) * (1 - ops.square(candidate))
        projected = ops.concatenate([recurrent[..., : 2 * units], to_input], axis=-1)
        return projected, recurrent, _sum_of_products(previous[0], recurrent)


class GRUResetBeforeEquations:
    """`n = tanh(p_n + U_n (r h_{t-1}))`, otherwise as with reset after. A record holds the gradients of all gates."""

    @staticmethod
    def forward(projected: Any, states: Any, kernel: Any) -> Any:
        units = states[0].shape[-1]
        gates = ops.sigmoid(projected[:, : 2 * units] + ops.matmul(states[0], kernel[:, : 2 * units]))
        reset = ops.matmul(gates[:, units:] * states[0], kernel[:, 2 * units :])
        candidate = ops.tanh(projected[:, 2 * units :] + reset)
        state = candidate + gates[:, :units] * (states[0] - candidate)
        return [state], (gates, candidate)

    @staticmethod
    def factors(states: Any, previous: Any, saved: Any) -> Any:
        gates, candidate = saved
        update, reset = _split(gates, 2)
        return {
            "to_update": (previous[0] - candidate) * update * (1 - update),
            "to_candidate": (1 - update) * (1 - ops.square(candidate)),
            "to_reset": previous[0] * reset * (1 - reset),
            "update": update,
            "reset": reset,
        }

    @staticmethod
    def backward(gradients: Any, parts: Any, kernel: Any) -> Any:
        gradient, units = gradients[0], gradients[0].shape[-1]
        candidate = gradient * parts["to_candidate"]
        state = ops.matmul(candidate, ops.transpose(kernel[:, 2 * units :]))
        gates = ops.concatenate([gradient * parts["to_update"], state * parts["to_reset"]], axis=-1)
        before = gradient * parts["update"] + state * parts["reset"]
        before = before + ops.matmul(gates, ops.transpose(kernel[:, : 2 * units]))
        return [before], ops.concatenate([gates, candidate], axis=-1)

    @staticmethod
    def gradients(records: Any, factors: Any, previous: Any, saved: Any) -> Any:
        units = previous[0].shape[-1]
        gates = _sum_of_products(previous[0], records[..., : 2 * units])
        candidate = _sum_of_products(factors["reset"] * previous[0], records[..., 2 * units :])
        return records, records, ops.concatenate([gates, candidate], axis=-1)


class LSTMEquations:
    """`i, f, o = sigmoid(...)`, `g = tanh(...)`, `c_t = f c_{t-1} + i g`, `h_t = o tanh(c_t)`.

    A record holds the gradients of all gates.
    """

    @staticmethod
    def forward(projected: Any, states: Any, kernel: Any) -> Any:
        gates = projected + ops.matmul(states[0], kernel)
        write, keep, new, show = _split(gates, 4)
        write, keep, new, show = ops.sigmoid(write), ops.sigmoid(keep), ops.tanh(new), ops.sigmoid(show)
        memory = keep * states[1] + write * new
        return [show * ops.tanh(memory), memory], (write, keep, new, show)

    @staticmethod
    def factors(states: Any, previous: Any, saved: Any) -> Any:
        write, keep, new, show = saved
        shown = ops.tanh(states[1])
        to_gates = [new * write * (1 - write), previous[1] * keep * (1 - keep), write * (1 - ops.square(new))]
        return {
            "to_gates": ops.concatenate(to_gates, axis=-1),
            "to_show": shown * show * (1 - show),
            "to_memory": show * (1 - ops.square(shown)),
            "keep": keep,
        }

    @staticmethod
    def backward(gradients: Any, parts: Any, kernel: Any) -> Any:
        memory = gradients[1] + gradients[0] * parts["to_memory"]
        gates = ops.concatenate([memory] * 3, axis=-1) * parts["to_gates"]
        gates = ops.concatenate([gates, gradients[0] * parts["to_show"]], axis=-1)
        return [ops.matmul(gates, ops.transpose(kernel)), memory * parts["keep"]], gates

    @staticmethod
    def gradients(records: Any, factors: Any, previous: Any, saved: Any) -> Any:
        return records, records, _sum_of_products(previous[0], records)


CELLS = {
    "simple": SimpleEquations,
    "gru_reset_after": GRUResetAfterEquations,
    "gru_reset_before": GRUResetBeforeEquations,
    "lstm": LSTMEquations,
}
