"""Processors that forbid and force tokens."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from keras import ops

from zoo.generation.checks import as_ids, as_sequences, require_count
from zoo.generation.processors import (
    Context,
    LogitProcessor,
    ends_with,
    forbid,
    force,
    members,
    occurrences,
    register_processor,
)


@register_processor("no_repeat_ngram")
@dataclasses.dataclass(frozen=True)
class NoRepeatNGram(LogitProcessor):
    """Forbids tokens that would repeat a sequence of `size` tokens of the text.

    Args:
        size: Length of the sequences, at least 1.
        include_prompt: Whether the prompt is part of the text.
        include_start: Whether the token that an encoder-decoder starts decoding with is part of the prompt.

    Raises:
        ValueError: If the size is not an integer of at least 1.

    Reference:
        Paulus et al. 2017, "A deep reinforced model for abstractive summarization", section 2.5 (size 3).
    """

    size: int
    include_prompt: bool = True
    include_start: bool = False
    unbounded = False

    def __post_init__(self) -> None:
        require_count("size", self.size)

    def __call__(self, logits: Any, context: Context) -> Any:
        tokens, count = context.text(self.include_prompt, self.include_start)
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
    """Forbids the end of a text before it has a number of generated tokens.

    Args:
        length: Number of tokens before the end token or stop sequence, at least 0.
        include_prompt: Whether the tokens of the prompt count too.
        include_start: Whether the token that an encoder-decoder starts decoding with is part of the prompt.

    Raises:
        ValueError: If the length is not an integer of at least 0.
    """

    length: int
    include_prompt: bool = False
    include_start: bool = False
    unbounded = False

    def __post_init__(self) -> None:
        require_count("length", self.length, 0)

    def __call__(self, logits: Any, context: Context) -> Any:
        length = context.position
        if self.include_prompt:
            # (rows,)
            length = length + context.prompt_lengths(self.include_start)
        if context.end_ids:
            ends = members(context.end_ids, logits.shape[-1], "end_ids")
            short = ops.reshape(length < self.length, (-1, 1))
            logits = forbid(logits, ops.logical_and(short, ends))
        for sequence in context.stop_sequences:
            completing = ops.logical_and(
                ends_with(context.generated, context.position, sequence[:-1]),
                length + 1 - len(sequence) < self.length,
            )
            last = members(sequence[-1:], logits.shape[-1], "stop_sequences")
            logits = forbid(logits, ops.logical_and(ops.expand_dims(completing, 1), last))
        return logits


@register_processor("banned_tokens")
@dataclasses.dataclass(frozen=True)
class BannedTokens(LogitProcessor):
    """Forbids tokens and sequences of tokens. Of a sequence, the last token is forbidden after the others.

    Args:
        token_ids: Ids and sequences of ids, for example `[3, [4, 5]]`.
        include_prompt: Whether a sequence may begin in the prompt.
        include_start: Whether the token that an encoder-decoder starts decoding with is part of the prompt.

    Raises:
        ValueError: If a sequence is empty, or an id is not an integer of at least 0.
    """

    token_ids: Sequence[int | Sequence[int]]
    include_prompt: bool = True
    include_start: bool = False
    unbounded = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "token_ids", as_sequences("token_ids", self.token_ids))

    def __call__(self, logits: Any, context: Context) -> Any:
        alone = tuple(sequence[0] for sequence in self.token_ids if len(sequence) == 1)
        logits = forbid(logits, members(alone, logits.shape[-1], "token_ids"))
        if len(alone) == len(self.token_ids):
            return logits
        tokens, count = context.text(self.include_prompt, self.include_start)
        for sequence in self.token_ids:
            if len(sequence) > 1:
                begun = ops.expand_dims(ends_with(tokens, count, sequence[:-1]), 1)
                last = members(sequence[-1:], logits.shape[-1], "token_ids")
                logits = forbid(logits, ops.logical_and(begun, last))
        return logits


@register_processor("banned_first_tokens")
@dataclasses.dataclass(frozen=True)
class BannedFirstTokens(LogitProcessor):
    """Forbids tokens as the first generated token.

    Args:
        token_ids: Ids of the tokens.
        behind_forced: Whether they are forbidden as the second token instead, if `ForcedFirstToken` forces the first.

    Raises:
        ValueError: If an id is not an integer of at least 0.
    """

    token_ids: int | Sequence[int]
    behind_forced: bool = False
    unbounded = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "token_ids", as_ids("token_ids", self.token_ids))

    def __call__(self, logits: Any, context: Context) -> Any:
        place = ops.cast(context.begins, "int32") if self.behind_forced else ops.zeros_like(context.limits)
        now = ops.expand_dims(place == context.position, 1)
        return forbid(logits, ops.logical_and(now, members(self.token_ids, logits.shape[-1], "token_ids")))


@register_processor("forced_first_token")
@dataclasses.dataclass(frozen=True)
class ForcedFirstToken(LogitProcessor):
    """Forces the first generated token if at most one token, usually the start token, comes before it.

    The token counts as certain, so beam search adds no log-probability for it. `ForcedTokens` forces tokens with their
    own probabilities.

    Args:
        token_id: Id of the token, for example the language token of a translation.

    Raises:
        ValueError: If it is not an integer of at least 0.
    """

    token_id: int
    unbounded = False

    def __post_init__(self) -> None:
        require_count("token_id", self.token_id, 0)

    def __call__(self, logits: Any, context: Context) -> Any:
        return force(logits, (self.token_id,), ops.logical_and(context.begins, context.position == 0))


@register_processor("forced_last_token")
@dataclasses.dataclass(frozen=True)
class ForcedLastToken(LogitProcessor):
    """Forces the last token that a row may generate, so that a text that is cut has an end token.

    The token counts as certain, so beam search adds no log-probability for it.

    Args:
        token_ids: Id of the token, or several ids from which one is chosen.

    Raises:
        ValueError: If an id is not an integer of at least 0, or there is none.
    """

    token_ids: int | Sequence[int]
    unbounded = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "token_ids", as_ids("token_ids", self.token_ids))
        if not self.token_ids:
            raise ValueError("token_ids must hold at least one id, got none.")

    def __call__(self, logits: Any, context: Context) -> Any:
        return force(logits, self.token_ids, context.position + 1 >= context.limits)


@register_processor("forced_tokens")
@dataclasses.dataclass(frozen=True)
class ForcedTokens(LogitProcessor):
    """Forces a sequence of generated tokens.

    Args:
        token_ids: The ids, in order.
        first: Index of the generated token at which the sequence begins, from 0.

    Raises:
        ValueError: If `first` or an id is not an integer of at least 0, or there is no id.
    """

    token_ids: int | Sequence[int]
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
