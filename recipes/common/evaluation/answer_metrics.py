"""Scores of answers to questions, as the evaluations of SQuAD and, for other languages, of MLQA compute them."""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Sequence

import numpy as np

from recipes.common.evaluation.evaluation import Metric, mean_of
from recipes.common.words import counted_words, language_code

# what the evaluation of MLQA leaves out; in Arabic wherever these letters stand
_ARTICLES = {
    "ar": "ال",
    "de": r"\b(?:ein|eine|einen|einem|eines|einer|der|die|das|den|dem|des)\b",
    "en": r"\b(?:a|an|the)\b",
    "es": r"\b(?:un|una|unos|unas|el|la|los|las)\b",
    "vi": r"\b(?:của|là|cái|chiếc|những)\b",
}


def normalized(text: str, language: str = "en") -> str:
    """Returns an answer as it is compared: lower case, without punctuation and articles, words joined by one space.

    Words stand between white space; in scripts without spaces each character is one. Of English in ASCII this is the
    evaluation of SQuAD.

    Args:
        text: The answer.
        language: Its two-letter code. Articles of ar, de, en, es and vi are left out.

    Example:

    >>> normalized("The Eiffel  Tower!"), normalized("北京。")
    ('eiffel tower', '北 京')

    Reference:
        Rajpurkar et al. 2016, "SQuAD", section 6.1, and its evaluation script; Lewis et al. 2020, "MLQA", and its
        evaluation script.
    """
    # composed, as texts of one alphabet may be written in two ways
    lower = unicodedata.normalize("NFC", text.lower())
    kept = "".join(character for character in lower if not _is_punctuation(character))
    articles = _ARTICLES.get(language_code(language) or "")
    return " ".join(counted_words(kept if articles is None else re.sub(articles, " ", kept)))


def _is_punctuation(character: str) -> bool:
    return character in string.punctuation or unicodedata.category(character).startswith("P")


def token_f1(predicted: str, right: str, language: str = "en") -> float:
    """Returns the F1 of the words of an answer, counted as often as they occur.

    Args:
        predicted: The answer, "" for none.
        right: A right answer, "" for none: then it is 1 if both are empty, else 0.
        language: See `normalized`.

    Example:

    >>> round(token_f1("in Paris", "Paris, France"), 2)
    0.5
    """
    given, expected = normalized(predicted, language).split(), normalized(right, language).split()
    if not given or not expected:
        return float(given == expected)
    shared = (Counter(given) & Counter(expected)).total()
    return 2 * shared / (len(given) + len(expected))


def is_exact(predicted: str, right: Sequence[str], language: str = "en") -> bool:
    """Returns whether an answer is one of the right ones, as they are compared.

    Args:
        predicted: The answer, "" for none.
        right: The right answers; none where there is none.
        language: See `normalized`.
    """
    return normalized(predicted, language) in {normalized(text, language) for text in _known(right, language)}


def _known(right: Sequence[str], language: str) -> Sequence[str]:
    """The right answers, "" for none; those of punctuation or articles alone are left out, as in SQuAD's script."""
    return [text for text in right if normalized(text, language)] or [""]


def answer_metrics(predicted: Sequence[str], right: Sequence[Sequence[str]], language: str = "en") -> dict[str, Metric]:
    """Returns exact match and F1 in percent, the best over the right answers of each question.

    Where some questions have no answer, also of those with one and of those without.

    Args:
        predicted: The answers, "" for none.
        right: The right answers of each question; none where there is none.
        language: See `normalized`.

    Example:

    >>> answer_metrics(["the tower", ""], [["Tower"], []])["f1"].value
    100.0

    Reference:
        Rajpurkar et al. 2016, "SQuAD", section 6.1; Rajpurkar et al. 2018, "Know What You Don't Know", section 5.
    """
    pairs = [(given, _known(texts, language)) for given, texts in zip(predicted, right, strict=True)]
    each = {
        "exact_match": np.array([100.0 * is_exact(given, texts, language) for given, texts in pairs]),
        "f1": np.array([100 * max(token_f1(given, text, language) for text in texts) for given, texts in pairs]),
    }
    has_answer = np.array([texts != [""] for _, texts in pairs])
    metrics = {name: mean_of(values, digits=2) for name, values in each.items()}
    if not has_answer.all() and has_answer.any():
        for group, some in (("with_answer", has_answer), ("without_answer", ~has_answer)):
            metrics |= {f"{name}_{group}": mean_of(values * some, some, digits=2) for name, values in each.items()}
    return metrics


def best_threshold(margins: Sequence[float], f1: Sequence[float], has_answer: Sequence[bool]) -> float:
    """Returns above which margin of no answer it is best to give none: that with the highest F1 of all questions.

    Args:
        margins: Logit of no answer minus that of the best span, of each question.
        f1: F1 of the best span of each, whatever its margin; 0 where there is no answer.
        has_answer: Whether there is one.

    Example:

    >>> best_threshold([-3.0, -1.0, 2.0], [1.0, 1.0, 0.0], [True, True, False])
    0.5

    Reference:
        Rajpurkar et al. 2018, "Know What You Don't Know", section 5, and its evaluation script (`best_f1_thresh`).
    """
    margins = np.asarray(margins, "float64")
    order = np.argsort(margins, kind="stable")
    ordered = margins[order]
    # the first n questions are answered; of the others those are right that have no answer
    gains = np.where(np.asarray(has_answer), np.asarray(f1, "float64"), 0.0)[order]
    losses = (~np.asarray(has_answer))[order].astype("float64")
    totals = np.concatenate([[0.0], np.cumsum(gains)]) + losses.sum() - np.concatenate([[0.0], np.cumsum(losses)])
    borders = np.concatenate([[ordered[0] - 1], (ordered[1:] + ordered[:-1]) / 2, [ordered[-1] + 1]])
    # questions with one margin are answered together
    totals[1:-1][ordered[1:] == ordered[:-1]] = -1.0
    best = np.flatnonzero(totals >= totals.max() - 1e-12)
    return float(borders[best[np.argmin(np.abs(borders[best]))]])
