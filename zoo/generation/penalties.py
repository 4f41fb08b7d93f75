"""Processors that make tokens less or more probable: those that the text holds already, or given ones."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from keras import ops

from zoo.generation.checks import LARGEST, as_ids, require_number
from zoo.generation.processors import Context, LogitProcessor, members, register_processor
from zoo.preprocessing.rows import shorten


@register_processor("repetition_penalty")
@dataclasses.dataclass(frozen=True)
class RepetitionPenalty(LogitProcessor):
    """Makes tokens of the text less probable: their positive logits are divided by a penalty, negative ones multiplied.

    Args:
        penalty: The penalty, from 1e-30 to 1e30. 1 changes nothing, and above 1 repetition gets less probable.
        include_prompt: Whether tokens of the prompt count too.
        include_start: Whether the token that an encoder-decoder starts decoding with is part of the prompt.

    Raises:
        ValueError: If the penalty is not a number in this range.

    Reference:
        Keskar et al. 2019, "CTRL", section 4.1; negative logits are multiplied, so that they fall too.
    """

    penalty: float
    include_prompt: bool = True
    include_start: bool = False
    unbounded = False

    def __post_init__(self) -> None:
        require_number("penalty", self.penalty, 1e-30, LARGEST)

    def __call__(self, logits: Any, context: Context) -> Any:
        seen = context.occurrences(logits.shape[-1], self.include_prompt, self.include_start) > 0
        penalised = ops.where(logits > 0, logits / self.penalty, logits * self.penalty)
        return ops.where(seen, penalised, logits)


@dataclasses.dataclass(frozen=True)
class _Subtraction(LogitProcessor):
    """A penalty that is subtracted from the logits of the tokens that the text holds already."""

    penalty: float
    include_prompt: bool = False

    def __post_init__(self) -> None:
        require_number("penalty", self.penalty, -LARGEST, LARGEST)

    @property
    def unbounded(self) -> bool:  # type: ignore[override]  # a constant in the base class
        return self.penalty < 0

    def __call__(self, logits: Any, context: Context) -> Any:
        return logits - self.penalty * self.times(context.occurrences(logits.shape[-1], self.include_prompt))

    def times(self, occurrences: Any) -> Any:
        """Returns how often the penalty of each token is subtracted, `(rows, vocabulary)`."""
        raise NotImplementedError


@register_processor("presence_penalty")
@dataclasses.dataclass(frozen=True)
class PresencePenalty(_Subtraction):
    """Subtracts a constant from the logits of the tokens that occur in the text.

    Args:
        penalty: The constant, in nats. Negative values encourage repetition.
        include_prompt: Whether tokens of the prompt count too.

    Raises:
        ValueError: If the penalty is not a number from -1e30 to 1e30.
    """

    def times(self, occurrences: Any) -> Any:
        return ops.minimum(occurrences, 1.0)


@register_processor("frequency_penalty")
@dataclasses.dataclass(frozen=True)
class FrequencyPenalty(_Subtraction):
    """Subtracts from the logit of each token a constant for each of its occurrences in the text.

    Args:
        penalty: The constant, in nats. Negative values encourage repetition.
        include_prompt: Whether tokens of the prompt count too.

    Raises:
        ValueError: If the penalty is not a number from -1e30 to 1e30.
    """

    def times(self, occurrences: Any) -> Any:
        return occurrences


@register_processor("logit_bias")
@dataclasses.dataclass(frozen=True)
class LogitBias(LogitProcessor):
    """Adds a bias to the logits of given tokens.

    Args:
        biases: The bias of each token, in nats: `{token_id: bias}`, or pairs of these.

    Raises:
        ValueError: If an id is not an integer of at least 0, or a bias is not a number from -1e30 to 1e30.

    Example:

    >>> LogitBias({17: -2.0, 4: 1.5})
    LogitBias(biases=((4, 1.5), (17, -2.0)))
    """

    biases: Mapping[int, float] | Sequence[tuple[int, float]]

    def __post_init__(self) -> None:
        try:
            pairs = [(i, bias) for i, bias in dict(self.biases).items()]
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"biases must be a dictionary of token ids and numbers, or pairs of these, got {shorten(self.biases)}."
            ) from error
        # in JSON the keys of a mapping are strings
        pairs = [(int(i) if isinstance(i, str) and i.isdecimal() else i, bias) for i, bias in pairs]
        ids = as_ids("biases", [i for i, _ in pairs])
        for token_id, (_, bias) in zip(ids, pairs, strict=True):
            require_number(f"biases[{token_id}]", bias, -LARGEST, LARGEST)
        object.__setattr__(self, "biases", tuple(sorted(dict(zip(ids, (b for _, b in pairs), strict=True)).items())))

    @property
    def unbounded(self) -> bool:  # type: ignore[override]  # a constant in the base class
        return any(bias > 0 for _, bias in self.biases)

    def __call__(self, logits: Any, context: Context) -> Any:
        ids = tuple(token_id for token_id, _ in self.biases)
        members(ids, logits.shape[-1], "biases")
        biases = np.zeros(logits.shape[-1], "float32")
        biases[list(ids)] = [bias for _, bias in self.biases]
        return logits + biases
