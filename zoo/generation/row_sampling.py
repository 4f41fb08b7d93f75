"""Choosing the next tokens by settings that are tensors: those of each row, or those of a request."""

import dataclasses
from typing import Any

import numpy as np
from keras import ops

from zoo.generation.filters import keep, nucleus
from zoo.generation.processors import forbid
from zoo.generation.random import draw
from zoo.generation.samplers import Greedy, Sample, Sampler


def row_settings(sampler: Sampler) -> dict[str, float | int] | None:
    """Returns the arguments of `choose_by_row` that stand for a sampler; None where there are none.

    Args:
        sampler: The sampler; `Greedy()` and `Sample(...)` without `typical_p` have such settings.
    """
    if type(sampler) is Greedy:
        return {"temperature": 0.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
    if type(sampler) is not Sample or sampler.typical_p != 1:
        return None
    return {
        "temperature": float(sampler.temperature),
        "top_k": sampler.top_k or 0,
        "top_p": float(sampler.top_p),
        "min_p": float(sampler.min_p),
    }


@dataclasses.dataclass(frozen=True, eq=False)
class Adjusted(Sampler):
    """A sampler of which a request may replace settings, given as scalars of which a negative one changes nothing.

    Args:
        sampler: A sampler that has `row_settings`.
        temperature: float32; 0 for the most probable token.
        top_k: int32; 0 keeps all tokens.
        top_p: float32; 1 keeps all tokens.
    """

    sampler: Sampler
    temperature: Any
    top_k: Any
    top_p: Any

    def choose(self, logits: Any, numbers: Any) -> Any:
        given = {"temperature": self.temperature, "top_k": self.top_k, "top_p": self.top_p}
        own = row_settings(self.sampler)

        def adjusted() -> Any:
            rows = ops.zeros_like(logits[:, 0])
            settings = {
                name: ops.where(value >= 0, value, ops.cast(own[name], value.dtype)) for name, value in given.items()
            }
            settings = {name: ops.cast(rows, value.dtype) + value for name, value in settings.items()}
            return choose_by_row(logits, numbers, **settings, min_p=rows + own["min_p"])

        is_given = ops.logical_or(ops.logical_or(self.temperature >= 0, self.top_k >= 0), self.top_p >= 0)
        return ops.cond(is_given, adjusted, lambda: self.sampler.choose(logits, numbers))


def choose_by_row(logits: Any, numbers: Any, temperature: Any, top_k: Any, top_p: Any, min_p: Any) -> Any:
    """Returns the next token of each row, as `Greedy()` or `Sample(...)` with the settings of the row chooses it.

    Args:
        logits: float32 `(rows, vocabulary)`.
        numbers: float32 `(rows,)`, uniform in (0, 1).
        temperature: float32 `(rows,)`; 0 for the most probable token, whatever the other settings are.
        top_k: int32 `(rows,)`; 0 keeps all tokens.
        top_p: float32 `(rows,)`; 1 keeps all tokens.
        min_p: float32 `(rows,)`; 0 keeps all tokens.

    Returns:
        int32 `(rows,)`. Tokens whose probabilities are equal up to the rounding of float32 sums can be cut otherwise
        than by `Sample`, which computes with one setting for all rows.
    """
    best = ops.cast(ops.argmax(logits, axis=-1), "int32")
    draws = temperature > 0.0

    def drawn() -> Any:
        # of the smallest temperatures the inverse is no number; see `Temperature`
        scale = ops.minimum(1.0 / ops.where(draws, temperature, 1.0), float(np.finfo("float32").max))
        kept = _filtered(logits, *(ops.expand_dims(setting, 1) for setting in (scale, top_k, top_p, min_p)))
        weights = ops.exp(kept - ops.max(kept, axis=-1, keepdims=True))
        return ops.where(draws, draw(weights, numbers), best)

    return ops.cond(ops.any(draws), drawn, lambda: best)


def _filtered(logits: Any, scale: Any, top_k: Any, top_p: Any, min_p: Any) -> Any:
    """Logits after the settings `(rows, 1)`, in the order of `Sample`. Each filter runs if a row asks for it."""
    # no temperature makes the logits overflow
    logits = logits - ops.max(logits, axis=-1, keepdims=True)
    logits = ops.cond(ops.any(top_k > 0), lambda: _most_probable(logits, top_k), lambda: logits) * scale
    cut = logits
    logits = ops.cond(ops.any(top_p < 1.0), lambda: keep(cut, nucleus(ops.exp(cut), top_p)), lambda: cut)
    # a comparison of logits, of which the largest is 0: exponentials would be rounded
    return keep(logits, logits >= ops.log(min_p))


def _most_probable(logits: Any, count: Any) -> Any:
    """Keeps the `count` `(rows, 1)` largest logits of each row, of equal ones those with the lowest ids; 0 keeps all.

    The smallest that stays is found exactly, by bisection of the integers whose order is that of the numbers.
    """
    bits = ops.view(logits, "int32")
    keys = ops.where(bits >= 0, bits, ops.bitwise_xor(bits, 0x7FFFFFFF))
    count = ops.where(count > 0, count, logits.shape[-1])
    low = ops.zeros_like(count) - 2**31
    high = ops.zeros_like(count) + (2**31 - 1)

    def halve(_: Any, interval: tuple[Any, Any]) -> tuple[Any, Any]:
        low, high = interval
        # the mean, rounded up, of integers whose sum need not fit into 32 bits
        middle = ops.bitwise_or(low, high) - ops.right_shift(ops.bitwise_xor(low, high), 1)
        enough = ops.sum(ops.cast(keys >= middle, "int32"), axis=-1, keepdims=True) >= count
        return ops.where(enough, middle, low), ops.where(enough, high, middle - 1)

    smallest, _ = ops.fori_loop(0, 32, halve, (low, high))
    above, tied = keys > smallest, keys == smallest
    places = ops.cumsum(ops.cast(tied, "int32"), axis=-1)
    room = count - ops.sum(ops.cast(above, "int32"), axis=-1, keepdims=True)
    return forbid(logits, ops.logical_not(ops.logical_or(above, ops.logical_and(tied, places <= room))))
