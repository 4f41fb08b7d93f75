"""Processors that make tokens less or more probable: those that the text holds already, or given ones."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from zoo.generation.checks import as_ids, require_number
from zoo.generation.logit_processor import Context, LogitProcessor, members

PACKAGE = "keras_transformer_zoo"


def occurrences(token_ids: Any, where: Any, vocabulary_size: int) -> Any:
    """Returns how often each token occurs, float32 `(rows, vocabulary)`.

    Args:
        token_ids: `(rows, length)`.
        where: Bools of the same shape: which of them count.
        vocabulary_size: Number of tokens.
    """
    rows = ops.shape(token_ids)[0]
    # padding on the left is -1, and what follows the end may be any number
    where = ops.logical_and(where, ops.logical_and(token_ids >= 0, token_ids < vocabulary_size))
    numbers = ops.broadcast_to(ops.expand_dims(ops.arange(rows, dtype="int32"), 1), ops.shape(token_ids))
    indices = ops.reshape(ops.stack([numbers, ops.where(where, token_ids, 0)], axis=-1), (-1, 2))
    return ops.scatter(indices, ops.reshape(ops.cast(where, "float32"), (-1,)), (rows, vocabulary_size))


def _counts(logits: Any, context: Context, include_prompt: bool) -> Any:
    tokens, count = (context.tokens, context.count) if include_prompt else (context.generated, context.position)
    filled = ops.arange(ops.shape(tokens)[1], dtype="int32") < count
    return occurrences(tokens, ops.broadcast_to(filled, ops.shape(tokens)), logits.shape[-1])


@keras.saving.register_keras_serializable(PACKAGE)
@dataclasses.dataclass(frozen=True)
class RepetitionPenalty(LogitProcessor):
    """Makes tokens that the text holds already less probable: positive logits are divided, negative multiplied.

    Args:
        penalty: The divisor, above 0; 1 changes nothing, above 1 discourages repetition.
        include_prompt: Whether tokens of the prompt count too.

    Raises:
        ValueError: If the penalty is not a number above 0.

    Reference:
        Keskar et al. 2019, "CTRL", section 4.1; negative logits are multiplied, so that they fall too.
    """

    penalty: float
    include_prompt: bool = True

    def __post_init__(self):
        require_number("penalty", self.penalty, above=0)

    def __call__(self, logits: Any, context: Context) -> Any:
        seen = _counts(logits, context, self.include_prompt) > 0
        penalised = ops.where(logits > 0, logits / self.penalty, logits * self.penalty)
        return ops.where(seen, penalised, logits)


@keras.saving.register_keras_serializable(PACKAGE)
@dataclasses.dataclass(frozen=True)
class PresencePenalty(LogitProcessor):
    """Subtracts a constant from the logits of the tokens that the text holds already.

    Args:
        penalty: What is subtracted, in nats; negative values encourage repetition.
        include_prompt: Whether tokens of the prompt count too.

    Raises:
        ValueError: If the penalty is no number.
    """

    penalty: float
    include_prompt: bool = False

    def __post_init__(self):
        require_number("penalty", self.penalty)

    def __call__(self, logits: Any, context: Context) -> Any:
        seen = _counts(logits, context, self.include_prompt) > 0
        return ops.where(seen, logits - self.penalty, logits)


@keras.saving.register_keras_serializable(PACKAGE)
@dataclasses.dataclass(frozen=True)
class FrequencyPenalty(LogitProcessor):
    """Subtracts from the logit of each token a constant for every time that the text holds it already.

    Args:
        penalty: What is subtracted each time, in nats; negative values encourage repetition.
        include_prompt: Whether tokens of the prompt count too.

    Raises:
        ValueError: If the penalty is no number.
    """

    penalty: float
    include_prompt: bool = False

    def __post_init__(self):
        require_number("penalty", self.penalty)

    def __call__(self, logits: Any, context: Context) -> Any:
        return logits - self.penalty * _counts(logits, context, self.include_prompt)


@keras.saving.register_keras_serializable(PACKAGE)
@dataclasses.dataclass(frozen=True)
class LogitBias(LogitProcessor):
    """Adds numbers to the logits of given tokens.

    Args:
        biases: What is added to each token, in nats: `{token_id: number}`, or pairs of these.

    Raises:
        ValueError: If an id is not an integer of at least 0, or a bias no number.

    Example:

    >>> LogitBias({17: -2.0, 4: 1.5})
    LogitBias(biases=((4, 1.5), (17, -2.0)))
    """

    biases: tuple

    def __post_init__(self):
        pairs = self.biases.items() if isinstance(self.biases, Mapping) else self.biases
        # in JSON the keys of a mapping are strings
        pairs = [(int(i) if isinstance(i, str) and i.isdecimal() else i, bias) for i, bias in pairs]
        ids = as_ids("biases", [i for i, _ in pairs])
        for token_id, (_, bias) in zip(ids, pairs, strict=True):
            require_number(f"biases[{token_id}]", bias)
        object.__setattr__(self, "biases", tuple(sorted(dict(zip(ids, (b for _, b in pairs), strict=True)).items())))

    def __call__(self, logits: Any, context: Context) -> Any:
        ids = tuple(token_id for token_id, _ in self.biases)
        members(ids, logits.shape[-1], "biases")
        biases = np.zeros(logits.shape[-1], "float32")
        biases[list(ids)] = [bias for _, bias in self.biases]
        return logits + biases
