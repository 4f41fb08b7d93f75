"""Processors that shape the distribution tokens are drawn from: temperature, and what is left of the vocabulary."""

import dataclasses
import math
from typing import Any

import numpy as np
from keras import ops

from zoo.generation.checks import LARGEST, is_of_rows, require_count, require_number
from zoo.generation.processors import Context, LogitProcessor, forbid, register_processor

# Halvings of an interval of about 15 nats: the cut is found to about 1e-7, the spacing of float32 numbers near 1.
_HALVINGS = 27


def keep(logits: Any, kept: Any) -> Any:
    """Returns the logits with -inf where `kept` is false, except for the most probable token of each row.

    The exception is an index and not a comparison of values: compilers round a value differently in different places.
    """
    best = ops.arange(logits.shape[-1], dtype="int32") == ops.cast(
        ops.expand_dims(ops.argmax(logits, axis=-1), -1), "int32"
    )
    return forbid(logits, ops.logical_not(ops.logical_or(kept, best)))


@register_processor("temperature")
@dataclasses.dataclass(frozen=True)
class Temperature(LogitProcessor):
    """Divides the logits by a temperature.

    Args:
        temperature: The divisor, above 0. Below 1 the distribution gets sharper, above 1 flatter. Or a float32 tensor
            `(rows, 1)`, of which 0 changes nothing; the largest logit of a row must then be 0.

    Raises:
        ValueError: If the temperature is not a number above 0.
    """

    temperature: float
    unbounded = False

    def __post_init__(self) -> None:
        if not is_of_rows(self.temperature):
            hint = " (for the most probable token use Greedy())"
            require_number("temperature", self.temperature, above=0, hint=hint)

    def __call__(self, logits: Any, context: Context | None = None) -> Any:
        # one product, which all compilers round alike, with a number that float32 has: no infinity, and no 0 either,
        # which makes nonsense of -inf
        limits = np.finfo("float32")
        if is_of_rows(self.temperature):
            divisor = ops.where(self.temperature > 0.0, self.temperature, 1.0)
            return logits * ops.minimum(1.0 / divisor, float(limits.max))
        if self.temperature == 1:
            return logits
        factor = min(max(1.0 / float(self.temperature), float(limits.tiny)), float(limits.max))
        if factor > LARGEST:
            # the best token stays at 0, all others fall to -inf
            logits = logits - ops.max(logits, axis=-1, keepdims=True)
        return logits * factor


@register_processor("normalized")
@dataclasses.dataclass(frozen=True)
class Normalized(LogitProcessor):
    """Turns logits into log-probabilities, so beam search ranks texts by the result of the processors before it."""

    unbounded = False

    def __call__(self, logits: Any, context: Context | None = None) -> Any:
        return ops.log_softmax(logits, axis=-1)


@register_processor("top_k")
@dataclasses.dataclass(frozen=True)
class TopK(LogitProcessor):
    """Keeps the most probable tokens.

    Args:
        top_k: Number of tokens, at least 1. Of tokens that tie for the last place, those with the lowest ids are kept.
            Or an int32 tensor `(rows, 1)`, of which 0 keeps all.

    Raises:
        ValueError: If the number is not an integer of at least 1.

    Reference:
        Fan et al. 2018, "Hierarchical neural story generation", section 5.1.
    """

    top_k: int
    unbounded = False

    def __post_init__(self) -> None:
        if not is_of_rows(self.top_k):
            require_count("top_k", self.top_k)

    def __call__(self, logits: Any, context: Context | None = None) -> Any:
        if is_of_rows(self.top_k):
            return ops.cond(ops.any(self.top_k > 0), lambda: _most_probable(logits, self.top_k), lambda: logits)
        if self.top_k >= logits.shape[-1]:
            return logits
        values, token_ids = ops.top_k(logits, self.top_k)
        # (rows, vocabulary): the last place, and the last id that has it
        lowest = values[:, -1:]
        last = ops.max(ops.where(values == lowest, ops.cast(token_ids, "int32"), -1), axis=-1, keepdims=True)
        tied = ops.logical_and(logits == lowest, ops.arange(logits.shape[-1], dtype="int32") <= last)
        return keep(logits, ops.logical_or(logits > lowest, tied))


def _most_probable(logits: Any, count: Any) -> Any:
    """Keeps the `count` `(rows, 1)` largest logits of each row, of equal ones those with the lowest ids; 0 keeps all.

    The smallest that stays is found exactly, by bisection of the integers whose order is that of the numbers.
    """
    bits = ops.view(logits, "int32")
    keys = ops.where(bits >= 0, bits, ops.bitwise_xor(bits, 0x7FFFFFFF))
    count = ops.where(count > 0, count, logits.shape[-1]) + ops.zeros_like(keys[:, :1])
    low = ops.full_like(count, -(2**31))
    high = ops.full_like(count, 2**31 - 1)

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


def nucleus(weights: Any, top_p: Any) -> Any:
    """Marks the smallest set of most probable tokens that holds at least the mass `top_p`.

    The set is found as a threshold on the logarithms by bisection, without sorting the vocabulary. Tokens that tie
    with the least probable member are all kept, so the result does not depend on the order of the vocabulary.

    Args:
        weights: float32 tensor `(batch, vocabulary)`, probabilities divided by the largest of the row.
        top_p: Probability mass to keep, in (0, 1); or a float32 tensor `(batch, 1)` in (0, 1], where 1 keeps all.

    Returns:
        bool tensor `(batch, vocabulary)`; the most probable token may be missing by a rounding.

    Reference:
        Holtzman et al. 2020, "The curious case of neural text degeneration", section 3.1.
    """
    total = ops.sum(weights, axis=-1, keepdims=True)
    wanted = top_p * total
    # All tokens less probable than (1 - top_p) / vocabulary together hold less than 1 - top_p: the cut is above.
    rest = (1.0 - top_p) / weights.shape[-1]
    low = ops.log(total) + (ops.log(rest) if ops.is_tensor(rest) else math.log(rest))
    high = ops.ones_like(low) * 1e-3

    def halve(_: Any, interval: tuple[Any, Any]) -> tuple[Any, Any]:
        low, high = interval
        middle = 0.5 * (low + high)
        mass = ops.sum(ops.where(weights >= ops.exp(middle), weights, 0.0), axis=-1, keepdims=True)
        enough = mass >= wanted
        return ops.where(enough, middle, low), ops.where(enough, high, middle)

    low, _ = ops.fori_loop(0, _HALVINGS, halve, (low, high))
    return weights >= ops.exp(low)


@register_processor("top_p")
@dataclasses.dataclass(frozen=True)
class TopP(LogitProcessor):
    """Keeps the smallest set of most probable tokens with a total probability of at least `top_p` (nucleus sampling).

    Args:
        top_p: The probability, above 0 and at most 1; 1 keeps all tokens. All tokens that tie for the last place are
            kept. Or a float32 tensor `(rows, 1)`.

    Raises:
        ValueError: If `top_p` is not a number above 0 and at most 1.

    Reference:
        Holtzman et al. 2020, "The curious case of neural text degeneration", section 3.1.
    """

    top_p: float
    unbounded = False

    def __post_init__(self) -> None:
        if not is_of_rows(self.top_p):
            require_number("top_p", self.top_p, above=0, most=1)

    def __call__(self, logits: Any, context: Context | None = None) -> Any:
        def cut() -> Any:
            return keep(logits, nucleus(ops.exp(logits - ops.max(logits, axis=-1, keepdims=True)), self.top_p))

        if is_of_rows(self.top_p):
            return ops.cond(ops.any(self.top_p < 1.0), cut, lambda: logits)
        return logits if self.top_p == 1 else cut()


@register_processor("min_p")
@dataclasses.dataclass(frozen=True)
class MinP(LogitProcessor):
    """Keeps the tokens whose probability is at least `min_p` times the largest one.

    Args:
        min_p: The factor, from 0 to 1; 0 keeps all tokens. Or a float32 tensor `(rows, 1)`.

    Raises:
        ValueError: If it is not a number from 0 to 1.

    Reference:
        Nguyen et al. 2024, "Turning up the heat: min-p sampling", section 3.
    """

    min_p: float
    unbounded = False

    def __post_init__(self) -> None:
        if not is_of_rows(self.min_p):
            require_number("min_p", self.min_p, least=0, most=1)

    def __call__(self, logits: Any, context: Context | None = None) -> Any:
        by_row = is_of_rows(self.min_p)
        if not by_row and self.min_p == 0:
            return logits
        # a comparison of logits: exponentials would be rounded
        least = ops.log(self.min_p) if by_row else math.log(self.min_p)
        return keep(logits, logits >= ops.max(logits, axis=-1, keepdims=True) + least)


@register_processor("typical_p")
@dataclasses.dataclass(frozen=True)
class TypicalP(LogitProcessor):
    """Keeps the tokens whose information is closest to the entropy, up to a total probability of `typical_p`.

    The most typical token is always kept. The most probable one can be removed, if its information is too low.

    Args:
        typical_p: The probability, above 0 and at most 1; 1 keeps all tokens.

    Raises:
        ValueError: If `typical_p` is not a number above 0 and at most 1.

    Reference:
        Meister et al. 2023, "Locally typical sampling", equation 9.
    """

    typical_p: float
    unbounded = False

    def __post_init__(self) -> None:
        require_number("typical_p", self.typical_p, above=0, most=1)

    def __call__(self, logits: Any, context: Context | None = None) -> Any:
        if self.typical_p == 1:
            return logits
        # (rows, vocabulary)
        information = -ops.log_softmax(logits, axis=-1)
        probabilities = ops.exp(-information)
        possible = probabilities > 0
        entropy = ops.sum(ops.where(possible, probabilities * information, 0.0), axis=-1, keepdims=True)
        surprise = ops.where(possible, ops.absolute(information - entropy), float("inf"))
        order = ops.argsort(surprise, axis=-1)
        ordered = ops.take_along_axis(probabilities, order, axis=-1)
        count = ops.sum(ops.cast(ops.cumsum(ordered, axis=-1) - ordered < self.typical_p, "int32"), axis=-1)
        # (rows, 1)
        last = ops.expand_dims(ops.maximum(count - 1, 0), -1)
        limit = ops.take_along_axis(surprise, ops.take_along_axis(order, last, axis=-1), axis=-1)
        return forbid(logits, surprise > limit)
