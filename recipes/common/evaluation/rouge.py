"""ROUGE of texts in every script: the package `rouge-score`, with words as Unicode has them."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence

from recipes.common.evaluation.evaluation import Metric, mean_of
from recipes.common.evaluation.text_metrics import check_texts
from recipes.common.words import folded_words, language_code

NAMES = ("rouge1", "rouge2", "rougeL")


def rouge_metrics(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], language: str | None = None
) -> dict[str, Metric]:
    """Returns `rouge1`, `rouge2` and `rougeL`, 0 to 100: F1, the best over references, the mean over texts.

    Words are runs of letters and digits without case, and single characters in scripts without spaces. For English,
    words of more than three characters are stemmed by Porter's algorithm, as the package does.

    Args:
        hypotheses: The texts to score.
        references: One right text or more for each.
        language: Two-letter code of their language; None for an unknown one, without stemming.

    Raises:
        ValueError: Different numbers of texts, or none.

    Reference:
        Lin 2004, "ROUGE"; the `rouge-score` package; best reference: Cachola et al. 2020, "TLDR", section 4.

    Example:

    >>> rouge_metrics(["a dog runs"], [["a dog runs", "dogs run"]])["rougeL"].value
    100.0
    """
    from rouge_score.rouge_scorer import RougeScorer

    check_texts(hypotheses, references)
    scorer = RougeScorer(NAMES, tokenizer=_Words(stems=language_code(language) == "en"))
    pairs = zip(hypotheses, references, strict=True)
    scores = [scorer.score_multi(several, hypothesis) for hypothesis, several in pairs]
    return {name: mean_of([100 * each[name].fmeasure for each in scores], digits=2) for name in NAMES}


def rouge_signature(language: str | None = None) -> str:
    """Returns what tells how ROUGE was computed.

    Args:
        language: See `rouge_metrics`.

    Example:

    >>> rouge_signature("en")
    'case:folded|tok:unicode|stem:porter|refs:best|rouge-score:0.1.2'
    """
    stem = "porter" if language_code(language) == "en" else "none"
    return f"case:folded|tok:unicode|stem:{stem}|refs:best|rouge-score:{importlib.metadata.version('rouge-score')}"


class _Words:
    """The tokenizer that `rouge-score` is given."""

    def __init__(self, stems: bool) -> None:
        from nltk.stem.porter import PorterStemmer

        self._stem = PorterStemmer().stem if stems else None

    def tokenize(self, text: str) -> list[str]:
        words = folded_words(text)
        return words if self._stem is None else [self._stem(word) if len(word) > 3 else word for word in words]
