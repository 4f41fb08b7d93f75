"""Logit processors: small immutable values that change what may be generated next, composed in the order of a list."""

import dataclasses
from typing import Any

import keras
from keras import ops

from zoo.generation.checks import as_ids, as_sequences, is_integer, is_number
from zoo.generation.logit_processor import Context, LogitProcessor, forbid, members
from zoo.generation.selection import ends_with

PACKAGE = "keras_transformer_zoo"


def _mark(token_ids: Any, where: Any, vocabulary_size: int) -> Any:
    """Bool `(rows, vocabulary)`: which tokens occur among the `token_ids` `(rows, length)` at which `where` is true."""
    rows = ops.shape(token_ids)[0]
    # padding on the left is -1, and what follows the end may be any number
    where = ops.logical_and(where, ops.logical_and(token_ids >= 0, token_ids < vocabulary_size))
    numbers = ops.broadcast_to(ops.expand_dims(ops.arange(rows, dtype="int32"), 1), ops.shape(token_ids))
    indices = ops.reshape(ops.stack([numbers, ops.where(where, token_ids, 0)], axis=-1), (-1, 2))
    counts = ops.scatter(indices, ops.reshape(ops.cast(where, "float32"), (-1,)), (rows, vocabulary_size))
    return counts > 0


@keras.saving.register_keras_serializable(PACKAGE)
@dataclasses.dataclass(frozen=True)
class RepetitionPenalty(LogitProcessor):
    """Makes tokens that the text holds already less probable: positive logits are divided, negative multiplied.

    Args:
        penalty: The divisor, above 0; 1 changes nothing, above 1 discourages repetition.
        include_prompt: Whether tokens of the prompt count too.

    Raises:
        ValueError: If the penalty is not a number above 0.

    Source: Keskar et al. 2019, "CTRL", section 4.1; negative logits are multiplied, so that they fall too.
    """

    penalty: float
    include_prompt: bool = True

    def __post_init__(self):
        if not is_number(self.penalty) or self.penalty <= 0:
            raise ValueError(f"`penalty` must be a number above 0. Received: {self.penalty!r}")

    def __call__(self, logits: Any, context: Context) -> Any:
        tokens, count = (
            (context.tokens, context.count) if self.include_prompt else (context.generated, context.position)
        )
        filled = ops.arange(ops.shape(tokens)[1], dtype="int32") < count
        seen = _mark(tokens, ops.broadcast_to(filled, ops.shape(tokens)), logits.shape[-1])
        penalised = ops.where(logits > 0, logits / self.penalty, logits * self.penalty)
        return ops.where(seen, penalised, logits)


@keras.saving.register_keras_serializable(PACKAGE)
@dataclasses.dataclass(frozen=True)
class NoRepeatNGram(LogitProcessor):
    """Forbids tokens that would complete a sequence of `size` tokens that the text holds already.

    Args:
        size: Length of the sequences, at least 1.
        include_prompt: Whether the prompt is part of the text.

    Raises:
        ValueError: If the size is not an integer of at least 1.

    Source: Paulus et al. 2017, "A deep reinforced model for abstractive summarization", section 2.5 (size 3).
    """

    size: int
    include_prompt: bool = True

    def __post_init__(self):
        if not is_integer(self.size) or self.size < 1:
            raise ValueError(f"`size` must be an integer of at least 1. Received: {self.size!r}")

    def __call__(self, logits: Any, context: Context) -> Any:
        tokens, count = (
            (context.tokens, context.count) if self.include_prompt else (context.generated, context.position)
        )
        length = ops.shape(tokens)[1]
        last = ops.arange(length, dtype="int32")  # where a sequence would end
        repeated = ops.broadcast_to(last < count, ops.shape(tokens))
        for back in range(1, self.size):
            recent = ops.take(tokens, ops.maximum(count - back, 0), axis=1)
            earlier = ops.roll(tokens, back, axis=1)
            same = ops.logical_and(earlier == ops.expand_dims(recent, 1), earlier >= 0)
            repeated = ops.logical_and(repeated, ops.logical_and(same, last >= back))
        repeated = ops.logical_and(repeated, count >= self.size)
        return forbid(logits, _mark(tokens, repeated, logits.shape[-1]))


@keras.saving.register_keras_serializable(PACKAGE)
@dataclasses.dataclass(frozen=True)
class MinimumLength(LogitProcessor):
    """Forbids to end a text before it has so many generated tokens, the end token or stop sequence not counted.

    Args:
        length: Number of tokens, at least 0.

    Raises:
        ValueError: If the length is not an integer of at least 0.
    """

    length: int

    def __post_init__(self):
        if not is_integer(self.length) or self.length < 0:
            raise ValueError(f"`length` must be an integer of at least 0. Received: {self.length!r}")

    def __call__(self, logits: Any, context: Context) -> Any:
        if context.end_ids:
            ends = members(context.end_ids, logits.shape[-1], "end_ids")
            logits = forbid(logits, ops.logical_and(context.position < self.length, ends))
        for sequence in context.stop_sequences:
            completing = ops.logical_and(
                ends_with(context.generated, context.position, sequence[:-1]),
                context.position + 1 - len(sequence) < self.length,
            )
            last = members(sequence[-1:], logits.shape[-1], "stop_sequences")
            logits = forbid(logits, ops.logical_and(ops.expand_dims(completing, 1), last))
        return logits


@keras.saving.register_keras_serializable(PACKAGE)
@dataclasses.dataclass(frozen=True)
class BannedTokens(LogitProcessor):
    """Forbids tokens, and sequences of tokens: the last token of one, where the text ends with those before it.

    Args:
        token_ids: Ids and sequences of ids, for example `[3, [4, 5]]`.
        include_prompt: Whether a sequence may begin in the prompt.

    Raises:
        ValueError: If a sequence is empty, or an id is not an integer of at least 0.
    """

    token_ids: tuple
    include_prompt: bool = True

    def __post_init__(self):
        object.__setattr__(self, "token_ids", as_sequences("token_ids", self.token_ids))

    def __call__(self, logits: Any, context: Context) -> Any:
        alone = tuple(sequence[0] for sequence in self.token_ids if len(sequence) == 1)
        logits = forbid(logits, members(alone, logits.shape[-1], "token_ids"))
        if len(alone) == len(self.token_ids):
            return logits
        tokens, count = (
            (context.tokens, context.count) if self.include_prompt else (context.generated, context.position)
        )
        for sequence in self.token_ids:
            if len(sequence) > 1:
                begun = ops.expand_dims(ends_with(tokens, count, sequence[:-1]), 1)
                last = members(sequence[-1:], logits.shape[-1], "token_ids")
                logits = forbid(logits, ops.logical_and(begun, last))
        return logits


@keras.saving.register_keras_serializable(PACKAGE)
@dataclasses.dataclass(frozen=True)
class ForcedTokens(LogitProcessor):
    """Forces generated tokens to be the given ones.

    Args:
        token_ids: The ids, in order.
        first: Which generated token the first of them is, counted from 0.

    Raises:
        ValueError: If `first` or an id is not an integer of at least 0, or there is no id.
    """

    token_ids: tuple
    first: int = 0

    def __post_init__(self):
        object.__setattr__(self, "token_ids", as_ids("token_ids", self.token_ids))
        if not self.token_ids:
            raise ValueError("`token_ids` must hold at least one id.")
        if not is_integer(self.first) or self.first < 0:
            raise ValueError(f"`first` must be an integer of at least 0. Received: {self.first!r}")

    def __call__(self, logits: Any, context: Context) -> Any:
        members(self.token_ids, logits.shape[-1], "token_ids")
        place = context.position - self.first
        forced = ops.take(
            ops.convert_to_tensor(self.token_ids, dtype="int32"), ops.clip(place, 0, len(self.token_ids) - 1)
        )
        others = ops.arange(logits.shape[-1], dtype="int32") != forced
        now = ops.logical_and(place >= 0, place < len(self.token_ids))
        return forbid(logits, ops.logical_and(now, others))


_BY_NAME = {
    "repetition_penalty": RepetitionPenalty,
    "no_repeat_ngram": NoRepeatNGram,
    "minimum_length": MinimumLength,
    "banned_tokens": BannedTokens,
    "forced_tokens": ForcedTokens,
}


def get_processors(identifiers: Any) -> tuple:
    """The processors that a list of processors and configurations stands for.

    Args:
        identifiers: List of callables `(logits, context) -> logits`, which must be hashable, and of dicts with the key
            "name" and arguments, as they stand in a YAML file. None is no processor.

    Raises:
        ValueError: for a name that does not exist or an argument that the processor does not have.
        TypeError: for any other object.

    Example:

    >>> get_processors([{"name": "repetition_penalty", "penalty": 1.2}, NoRepeatNGram(3)])
    (RepetitionPenalty(penalty=1.2, include_prompt=True), NoRepeatNGram(size=3, include_prompt=True))
    """
    if identifiers is None:
        return ()
    if not isinstance(identifiers, (list, tuple)):
        raise TypeError(f"`processors` must be a list of logit processors. Received: {identifiers!r}")
    return tuple(_get_processor(identifier) for identifier in identifiers)


def _get_processor(identifier: Any) -> Any:
    if callable(identifier):
        return identifier
    if not isinstance(identifier, dict):
        raise TypeError(f"A processor must be a LogitProcessor or a dict with the key 'name'. Received: {identifier!r}")
    arguments = dict(identifier)
    name = arguments.pop("name", None)
    if name not in _BY_NAME:
        raise ValueError(f"The name of a processor must be one of {sorted(_BY_NAME)}. Received: {name!r}")
    fields = [field.name for field in dataclasses.fields(_BY_NAME[name])]
    unknown = sorted(set(arguments) - set(fields))
    if unknown:
        raise ValueError(f"Processor {name!r} has the arguments {fields}. Received also: {unknown}")
    return _BY_NAME[name](**arguments)
