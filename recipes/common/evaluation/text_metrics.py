"""Scores of generated text that count no words, and the check that all of them share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from recipes.common.evaluation.evaluation import Metric, mean_of


def exact_match(hypotheses: Sequence[str], references: Sequence[str]) -> Metric:
    """Returns the fraction of texts that equal their reference, character by character.

    Args:
        hypotheses: The texts to score.
        references: The right texts, one for each.

    Raises:
        ValueError: Different numbers of texts, or none.

    Example:

    >>> exact_match(["1999-05-04", "2000-01-01"], ["1999-05-04", "2001-01-01"]).value
    0.5
    """
    check_texts(hypotheses, references)
    return mean_of(list(map(str.__eq__, hypotheses, references)))


def check_texts(hypotheses: Sequence[str], references: Sequence[Any]) -> None:
    """Raises a `ValueError` unless there is a reference, or a list of them, for each text.

    Args:
        hypotheses: The texts to score.
        references: What is right.
    """
    if isinstance(hypotheses, str) or isinstance(references, str):
        raise ValueError("hypotheses and references must be lists of texts; got a single text")
    if len(hypotheses) != len(references) or not len(references):
        raise ValueError(
            "there must be one reference for each hypothesis, and at least one; "
            f"got {len(hypotheses)} hypotheses and {len(references)} references"
        )


def bits_per_character(lost: int) -> str:
    """Returns what the figure is called: where tokens do not tell all characters, it is a lower bound.

    A text takes more bits than its tokens, which become fewer the more characters a tokenizer loses.

    Args:
        lost: Number of characters that the tokens do not tell, see `Tokenizer.lost_characters`.

    Example:

    >>> bits_per_character(3)
    'bits_per_character_at_least'
    """
    return "bits_per_character_at_least" if lost else "bits_per_character"


def perplexity(loss: float) -> float | None:
    """Returns the exponential of a mean negative log-likelihood; None if it is NaN or too large for a float.

    Args:
        loss: Mean over the tokens, in nats.

    Example:

    >>> perplexity(0.0), perplexity(1000.0)
    (1.0, None)
    """
    # the logarithm of the largest number is 709.78
    return round(math.exp(loss), 3) if loss < 709 else None
