"""ROUGE of texts in every script: the package `rouge-score`, with words as Unicode has them."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from typing import Any

from recipes.common.evaluation.text_metrics import check_texts
from recipes.common.words import folded_words, language_code

NAMES = ("rouge1", "rouge2", "rougeL")


def rouge(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], language: str | None = None
) -> dict[str, Any]:
    """Returns ROUGE-1, ROUGE-2 and ROUGE-L: F1, the best over references, the mean over texts.

    Words are runs of letters and digits without case, and single characters in scripts without spaces. For English,
    words of more than three characters are stemmed by Porter's algorithm, as the package does.

    Args:
        hypotheses: The texts to score.
        references: One right text or more for each.
        language: Two-letter code of their language; None for an unknown one, without stemming.

    Returns:
        `rouge1`, `rouge2`, `rougeL`, 0 to 100, and `rouge_signature`, which says how they were computed.

    Raises:
        ValueError: Different numbers of texts, or none.

    Reference:
        Lin 2004, "ROUGE"; the `rouge-score` package; best reference: Cachola et al. 2020, "TLDR", section 4.

    Example:

    >>> rouge(["a dog runs"], [["a dog runs", "dogs run"]])["rougeL"]
    100.0
    """
    each = rouge_of_each(hypotheses, references, language)
    means = {name: round(sum(values) / len(values), 2) for name, values in each.items()}
    return {**means, "rouge_signature": rouge_signature(language)}


def rouge_signature(language: str | None = None) -> str:
    """Returns what tells how ROUGE was computed.

    Args:
        language: See `rouge`.

    Example:

    >>> rouge_signature("en")
    'case:folded|tok:unicode|stem:porter|refs:best|rouge-score:0.1.2'
    """
    stem = "porter" if language_code(language) == "en" else "none"
    return f"case:folded|tok:unicode|stem:{stem}|refs:best|rouge-score:{importlib.metadata.version('rouge-score')}"


def rouge_of_each(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], language: str | None = None
) -> dict[str, list[float]]:
    """Returns the ROUGE of each text, see `rouge`.

    Args:
        hypotheses: The texts to score.
        references: One right text or more for each.
        language: See `rouge`.

    Raises:
        ValueError: Different numbers of texts, or none.
    """
    from rouge_score.rouge_scorer import RougeScorer

    check_texts(hypotheses, references)
    scorer = RougeScorer(NAMES, tokenizer=_Words(stems=language_code(language) == "en"))
    pairs = zip(hypotheses, references, strict=True)
    scores = [scorer.score_multi(several, hypothesis) for hypothesis, several in pairs]
    return {name: [100 * each[name].fmeasure for each in scores] for name in NAMES}


class _Words:
    """The tokenizer that `rouge-score` is given."""

    def __init__(self, stems: bool) -> None:
        from nltk.stem.porter import PorterStemmer

        self._stem = PorterStemmer().stem if stems else None

    def tokenize(self, text: str) -> list[str]:
        words = folded_words(text)
        return words if self._stem is None else [self._stem(word) if len(word) > 3 else word for word in words]
