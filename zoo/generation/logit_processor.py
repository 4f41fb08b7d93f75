"""What a logit processor is: a rule that changes what may be generated next, applied in the order of a list."""

import dataclasses
from typing import Any

import numpy as np
from keras import ops


@dataclasses.dataclass(frozen=True, eq=False)
class Context:
    """What a processor may look at: the texts so far, and what would end them.

    Attributes:
        prompt: Int32 `(rows, prompt_length)`, padded on the left with -1; no columns without a prompt.
        generated: Int32 `(rows, length)`; only the first `position` columns have been generated.
        position: Int32 scalar, the number of tokens generated so far.
        end_ids: Ids of the end tokens.
        stop_sequences: Tuple of tuples of ids.
    """

    prompt: Any
    generated: Any
    position: Any
    end_ids: tuple
    stop_sequences: tuple

    @property
    def tokens(self) -> Any:
        """Prompt and generated tokens `(rows, prompt_length + length)`; the first `count` columns are filled."""
        return ops.concatenate([self.prompt, self.generated], axis=1)

    @property
    def count(self) -> Any:
        """Number of filled columns of `tokens`, an int32 scalar."""
        return ops.shape(self.prompt)[1] + self.position


@dataclasses.dataclass(frozen=True)
class LogitProcessor:
    """A rule for what may come next, applied to the logits before the sampler chooses.

    A subclass is a frozen dataclass whose fields are plain values, so that it compares by value and goes through
    JSON, and defines `__call__`.

    Example:

    >>> @dataclasses.dataclass(frozen=True)
    ... class Only(LogitProcessor):
    ...     token_ids: tuple
    ...
    ...     def __call__(self, logits, context):
    ...         allowed = members(self.token_ids, logits.shape[-1], "token_ids")
    ...         return ops.where(allowed, logits, float("-inf"))
    >>> model.generate("Once upon a time", processors=[Only((4, 5, 6))])
    """

    def __call__(self, logits: Any, context: Context) -> Any:
        """Returns changed logits.

        Args:
            logits: float32 `(rows, vocabulary)`; log-probabilities in beam search. -inf forbids a token.
            context: The texts so far.
        """
        raise NotImplementedError

    def get_config(self) -> dict[str, Any]:
        """Returns the fields as a dictionary of JSON values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "LogitProcessor":
        """Returns the processor that `get_config` describes; an unknown name raises a TypeError."""
        return cls(**config)


def process(processors: tuple, logits: Any, context: Context) -> Any:
    """Applies processors one after the other.

    Where they leave a row no token at all its text ends: only the end tokens remain, with the logits that they came
    with. Without end tokens the rules are dropped for this step.

    Args:
        processors: Tuple of processors.
        logits: float32 `(rows, vocabulary)`.
        context: The texts so far.

    Returns:
        float32 `(rows, vocabulary)`, at least one entry of each row above -inf.
    """
    if not processors:
        return logits
    processed = logits
    for processor in processors:
        processed = processor(processed, context)
    fallback = logits
    if context.end_ids:
        fallback = forbid(logits, ~members(context.end_ids, logits.shape[-1], "end_ids"))
    possible = ops.any(processed > float("-inf"), axis=-1, keepdims=True)
    return ops.where(possible, processed, fallback)


def forbid(logits: Any, forbidden: Any) -> Any:
    """Returns the logits with -inf where `forbidden` is true; shapes that broadcast."""
    return ops.where(forbidden, float("-inf"), logits)


def members(ids: tuple, vocabulary_size: int, name: str) -> np.ndarray:
    """Returns bools `(vocabulary,)`, true for the ids.

    Args:
        ids: Token ids.
        vocabulary_size: Number of tokens.
        name: What the ids are, for the error.

    Raises:
        ValueError: If an id is beyond the vocabulary.
    """
    beyond = [token_id for token_id in ids if token_id >= vocabulary_size]
    if beyond:
        raise ValueError(f"{name} must be ids below the vocabulary size of {vocabulary_size}, got {beyond}.")
    result = np.zeros(vocabulary_size, "bool")
    result[list(ids)] = True
    return result
