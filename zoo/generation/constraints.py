"""Processors that forbid and force tokens."""

import dataclasses
from typing import Any

from keras import ops

from zoo.generation.checks import as_ids, as_sequences, require_count
from zoo.generation.processors import (
    Context,
    LogitProcessor,
    ends_with,
    forbid,
    members,
    occurrences,
    register_processor,
)


@register_processor("no_repeat_ngram")
@dataclasses.dataclass(frozen=True)
class NoRepeatNGram(LogitProcessor):
    """Forbids tokens that would complete a sequence of `size` tokens that the text holds already.

    Args:
        size: Length of the sequences, at least 1.
        include_prompt: Whether the prompt is part of the text.

    Raises:
        ValueError: If the size is not an integer of at least 1.

    Reference:
        Paulus et al. 2017, "A deep reinforced model for abstractive summarization", section 2.5 (size 3).
    """

    size: int
    include_prompt: bool = True
    unbounded = False

    def __post_init__(self) -> None:
        require_count("size", self.size)

    def __call__(self, logits: Any, context: Context) -> Any:
        tokens, count = context.text(self.include_prompt)
        length = ops.shape(tokens)[1]
        last = ops.arange(length, dtype="int32")  # where a sequence would end
        repeated = ops.broadcast_to(last < count, ops.shape(tokens))
        for back in range(1, self.size):
            recent = ops.take(tokens, ops.maximum(count - back, 0), axis=1)
            earlier = ops.roll(tokens, back, axis=1)
            same = ops.logical_and(earlier == ops.expand_dims(recent, 1), earlier >= 0)
            repeated = ops.logical_and(repeated, ops.logical_and(same, last >= back))
        repeated = ops.logical_and(repeated, count >= self.size)
        return forbid(logits, occurrences(tokens, repeated, logits.shape[-1]) > 0)


@register_processor("minimum_length")
@dataclasses.dataclass(frozen=True)
class MinimumLength(LogitProcessor):
    """Forbids to end a text before it has so many generated tokens, the end token or stop sequence not counted.

    Args:
        length: Number of tokens, at least 0.

    Raises:
        ValueError: If the length is not an integer of at least 0.
    """

    length: int
    unbounded = False

    def __post_init__(self) -> None:
        require_count("length", self.length, 0)

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


@register_processor("banned_tokens")
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
    unbounded = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "token_ids", as_sequences("token_ids", self.token_ids))

    def __call__(self, logits: Any, context: Context) -> Any:
        alone = tuple(sequence[0] for sequence in self.token_ids if len(sequence) == 1)
        logits = forbid(logits, members(alone, logits.shape[-1], "token_ids"))
        if len(alone) == len(self.token_ids):
            return logits
        tokens, count = context.text(self.include_prompt)
        for sequence in self.token_ids:
            if len(sequence) > 1:
                begun = ops.expand_dims(ends_with(tokens, count, sequence[:-1]), 1)
                last = members(sequence[-1:], logits.shape[-1], "token_ids")
                logits = forbid(logits, ops.logical_and(begun, last))
        return logits


@register_processor("forced_tokens")
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
    unbounded = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "token_ids", as_ids("token_ids", self.token_ids))
        if not self.token_ids:
            raise ValueError("token_ids must hold at least one id, got none.")
        require_count("first", self.first, 0)

    def __call__(self, logits: Any, context: Context) -> Any:
        members(self.token_ids, logits.shape[-1], "token_ids")
        place = context.position - self.first
        forced = ops.take(
            ops.convert_to_tensor(self.token_ids, dtype="int32"), ops.clip(place, 0, len(self.token_ids) - 1)
        )
        others = ops.arange(logits.shape[-1], dtype="int32") != forced
        now = ops.logical_and(place >= 0, place < len(self.token_ids))
        return forbid(logits, ops.logical_and(now, others))
