"""What a logit processor is: a rule that changes what may be generated next, applied in the order of a list."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from keras import ops

from zoo.generation.checks import Register, plain_fields, require_own_equality

register_processor: Register = Register("processor")


@dataclasses.dataclass(frozen=True, eq=False)
class Context:
    """The input of a processor: the texts so far, and the tokens that end them.

    Attributes:
        prompt: Int32 `(rows, prompt_length)`, padded on the left with -1; no columns without a prompt. The decoder's
            start token of an encoder-decoder is not part of the text, and is stored as `-2 - id`.
        generated: Int32 `(rows, length)`. Only the first `position` columns have been generated.
        position: Int32 scalar, the number of tokens generated so far.
        end_ids: Ids of the end tokens.
        stop_sequences: Tuple of tuples of ids.
        limits: Int32 `(rows,)`, the largest number of tokens to generate for each row.
    """

    prompt: Any
    generated: Any
    position: Any
    end_ids: tuple[int, ...]
    stop_sequences: tuple[tuple[int, ...], ...]
    limits: Any

    @property
    def tokens(self) -> Any:
        """Prompt and generated tokens `(rows, prompt_length + length)`; the first `count` columns are filled."""
        return ops.concatenate([self.prompt, self.generated], axis=1)

    @property
    def count(self) -> Any:
        """Number of filled columns of `tokens`, an int32 scalar."""
        return ops.shape(self.prompt)[1] + self.position

    def text(self, include_prompt: bool, include_start: bool = False) -> tuple[Any, Any]:
        """Returns `tokens` and `count` with the prompt, `generated` and `position` without it.

        Args:
            include_prompt: Whether the prompt is part of the text.
            include_start: Whether the token that decoding starts with is part of the prompt.
        """
        if not include_prompt:
            return self.generated, self.position
        if not include_start:
            return self.tokens, self.count
        prompt = ops.where(self.prompt < -1, -2 - self.prompt, self.prompt)
        return ops.concatenate([prompt, self.generated], axis=1), self.count

    def prompt_lengths(self, include_start: bool) -> Any:
        """Returns the number of tokens of each prompt, int32 `(rows,)`; `include_start` as for `text`."""
        counted = self.prompt != -1 if include_start else self.prompt >= 0
        return ops.sum(ops.cast(counted, "int32"), axis=1)

    @property
    def begins(self) -> Any:
        """Whether at most one token, usually the start token, precedes the generated ones: bools `(rows,)`."""
        return self.prompt_lengths(include_start=True) <= 1

    def occurrences(self, vocabulary_size: int, include_prompt: bool, include_start: bool = False) -> Any:
        """Returns how often each token occurs in the text, float32 `(rows, vocabulary)`; arguments as for `text`."""
        tokens, count = self.text(include_prompt, include_start)
        filled = ops.arange(ops.shape(tokens)[1], dtype="int32") < count
        return occurrences(tokens, ops.broadcast_to(filled, ops.shape(tokens)), vocabulary_size)


@dataclasses.dataclass(frozen=True, eq=False)
class LogitProcessor:
    """A rule for the next token, applied to the logits before the sampler chooses.

    A subclass is a frozen dataclass with a `__call__`. Its fields are plain values, so that processors compare by value
    and can be written as JSON.

    Attributes:
        unbounded: Whether a log-probability can be above 0 after the processor. Beam search then cannot bound the score
            of an unfinished text, and always runs to the limit. Default True, which is correct for any processor. With
            False the search may end earlier.

    Example:

    >>> @dataclasses.dataclass(frozen=True)
    ... class Only(LogitProcessor):
    ...     token_ids: tuple
    ...     unbounded = False
    ...
    ...     def __call__(self, logits, context):
    ...         allowed = members(self.token_ids, logits.shape[-1], "token_ids")
    ...         return ops.where(allowed, logits, float("-inf"))
    >>> model.generate("Once upon a time", processors=[Only((4, 5, 6))])
    """

    # no annotation, as it is no field
    unbounded = True

    def __call__(self, logits: Any, context: Context) -> Any:
        """Returns changed logits.

        Args:
            logits: float32 `(rows, vocabulary)`; log-probabilities in beam search. -inf forbids a token.
            context: The texts so far.
        """
        raise NotImplementedError

    def get_config(self) -> dict[str, Any]:
        """Returns the fields as a dictionary of JSON values."""
        return plain_fields(self)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "LogitProcessor":
        """Returns the processor that `get_config` describes; an unknown name raises a TypeError."""
        return cls(**config)


def process(processors: tuple[Callable[[Any, Context], Any], ...], logits: Any, context: Context) -> Any:
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


def force(logits: Any, token_ids: tuple[int, ...], rows: Any) -> Any:
    """Returns the logits of rows that can only go on with one of some tokens, with probability 1 where it is one.

    Args:
        logits: float32 `(rows, vocabulary)`.
        token_ids: The tokens: their logits become 0, all others -inf.
        rows: Bools `(rows,)`: the other rows stay as they are.
    """
    forced = np.where(members(token_ids, logits.shape[-1], "token_ids"), 0.0, -np.inf).astype("float32")
    return ops.where(ops.expand_dims(rows, 1), forced, logits)


def members(ids: tuple[int, ...], vocabulary_size: int, name: str) -> np.ndarray:
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


def occurrences(token_ids: Any, where: Any, vocabulary_size: int, weights: Any = 1.0) -> Any:
    """Returns how often each token occurs, or the sum of its weights, float32 `(rows, vocabulary)`.

    Args:
        token_ids: `(rows, length)`.
        where: Bools of the same shape: which of them count.
        vocabulary_size: Number of tokens.
        weights: What each of them counts, float32 of the same shape.
    """
    rows = ops.shape(token_ids)[0]
    # padding on the left is -1, and what follows the end may be any number
    where = ops.logical_and(where, ops.logical_and(token_ids >= 0, token_ids < vocabulary_size))
    numbers = ops.broadcast_to(ops.expand_dims(ops.arange(rows, dtype="int32"), 1), ops.shape(token_ids))
    indices = ops.reshape(ops.stack([numbers, ops.where(where, token_ids, 0)], axis=-1), (-1, 2))
    counts = ops.cast(where, "float32") * weights
    return ops.scatter(indices, ops.reshape(counts, (-1,)), (rows, vocabulary_size))


def ends_with(texts: Any, count: Any, sequence: tuple[int, ...]) -> Any:
    """Returns whether the first `count` tokens of each text end with a sequence.

    Args:
        texts: Integer tensor `(..., length)`.
        count: Int32 scalar.
        sequence: Python integers; every text ends with an empty one.

    Returns:
        Bool tensor `(...)`.
    """
    result = ops.ones_like(texts[..., 0], dtype="bool")
    for back, token_id in enumerate(reversed(sequence), start=1):
        result = ops.logical_and(result, ops.take(texts, ops.maximum(count - back, 0), axis=-1) == token_id)
    return ops.logical_and(result, count >= len(sequence))


def get_processors(identifiers: Any) -> tuple[Callable[[Any, Context], Any], ...]:
    """Returns the processors of a list that may hold processors and their configurations.

    Args:
        identifiers: List of hashable callables `(logits, context) -> logits`, and of dictionaries with the key "name"
            and arguments, as in a YAML file. None for no processors.

    Raises:
        ValueError: For a name that does not exist, or an argument that the processor does not have or lacks.
        TypeError: For any other object.

    Example:

    >>> get_processors([{"name": "repetition_penalty", "penalty": 1.2}, NoRepeatNGram(3)])
    (RepetitionPenalty(penalty=1.2, include_prompt=True), NoRepeatNGram(size=3, include_prompt=True))
    """
    if identifiers is None:
        return ()
    if not isinstance(identifiers, (list, tuple)):
        raise TypeError(f"processors must be a list of logit processors, got {identifiers!r}.")
    return tuple(_get_processor(identifier) for identifier in identifiers)


def _get_processor(identifier: Any) -> Any:
    if callable(identifier):
        try:
            hash(identifier)
        except TypeError as error:
            raise TypeError(
                f"A processor must be hashable, as a frozen dataclass of plain values is, got {identifier!r}."
            ) from error
        if isinstance(identifier, LogitProcessor):
            require_own_equality("A processor", identifier)
        return identifier
    if not isinstance(identifier, dict):
        raise TypeError(
            f"A processor must be a LogitProcessor or a dictionary with the key 'name', got {identifier!r}."
        )
    return register_processor.make(identifier)
