"""Scores of translations and other generated text: two kinds of BLEU with a name each, chrF, ROUGE, exact match."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import sacrebleu
import sacremoses


class Score(NamedTuple):
    """A score, the metric's name and the signature that says exactly how it was computed."""

    name: str
    value: float
    signature: str

    def __str__(self) -> str:
        return f"{self.name} {self.value:.2f} ({self.signature})"


def bleu(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """Returns the cased corpus BLEU of detokenised text, 0 to 100, by sacreBLEU with its own tokenisation (13a).

    Args:
        hypotheses: The texts to score.
        references: The right texts, one for each.

    Returns:
        The score with sacreBLEU's signature.

    Raises:
        ValueError: Different numbers of texts, or none.

    Reference:
        Post 2018, "A Call for Clarity in Reporting BLEU Scores"; Papineni et al. 2002.

    Example:

    >>> str(bleu(["a dog runs fast"], ["a dog runs fast"]))
    'sacreBLEU 100.00 (nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0)'
    """
    return _sacrebleu_score(sacrebleu.BLEU(), "sacreBLEU", hypotheses, references)


def chrf(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """Returns the corpus chrF2, the F-score of character n-grams up to 6, 0 to 100, by sacreBLEU.

    Args:
        hypotheses: The texts to score.
        references: The right texts, one for each.

    Returns:
        The score with sacreBLEU's signature.

    Raises:
        ValueError: Different numbers of texts, or none.

    Reference:
        Popović 2015, "chrF: character n-gram F-score for automatic MT evaluation".

    Example:

    >>> chrf(["a dog"], ["a dog"]).value
    100.0
    """
    return _sacrebleu_score(sacrebleu.CHRF(), "chrF2", hypotheses, references)


def tokenised_bleu(hypotheses: Sequence[str], references: Sequence[str], language: str) -> Score:
    """Returns the corpus BLEU of Moses-tokenised, lower-cased text, as most papers on Multi30k report it.

    Hypotheses and references are lower-cased (Unicode), their punctuation is normalised
    (`MosesPunctNormalizer(language)`), and they are tokenised (`MosesTokenizer(language)`, no splitting at hyphens, no
    HTML escapes), by the package `sacremoses`. The score is corpus BLEU over 1- to 4-grams of the tokens with one
    reference, without smoothing, with the brevity penalty over the whole corpus, as in Moses's `multi-bleu.perl`.

    The tokenised files of Multi30k were made by the same steps, so hypotheses in plain text can be compared with
    numbers measured on those files. The score is not comparable with `bleu`.

    Args:
        hypotheses: The texts to score, detokenised.
        references: The right texts, detokenised, one for each.
        language: Two-letter code, decides about abbreviations and apostrophes.

    Returns:
        The score; the signature names the steps and the versions of the packages.

    Raises:
        ValueError: Different numbers of texts, or none.

    Example:

    >>> tokenised_bleu(["Ein Hund läuft schnell."], ["ein Hund läuft schnell ."], "de").value
    100.0
    """
    _check(hypotheses, references)
    # The texts are tokenised already, so sacreBLEU must neither tokenise again nor warn about it (force).
    metric = sacrebleu.BLEU(tokenize="none", smooth_method="none", force=True)
    score = metric.corpus_score(moses_tokens(hypotheses, language), [moses_tokens(references, language)])
    signature = f"lower-cased|moses:{language}|{metric.get_signature()}|sacremoses:{sacremoses.__version__}"
    return Score("tokenised lower-cased BLEU", score.score, signature)


def moses_tokens(texts: Sequence[str], language: str) -> list[str]:
    """Returns lower-cased, normalised and tokenised texts, as `tokenised_bleu` counts them.

    Args:
        texts: Plain texts.
        language: Two-letter code.

    Returns:
        For each text its tokens, joined by spaces.

    Example:

    >>> moses_tokens(["It's a dog."], "en")
    ["it 's a dog ."]
    """
    normalizer = sacremoses.MosesPunctNormalizer(language)
    tokenizer = sacremoses.MosesTokenizer(language)
    return [tokenizer.tokenize(normalizer.normalize(text.lower()), return_str=True, escape=False) for text in texts]


def exact_match(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Returns the fraction of texts that equal their reference, character by character.

    Args:
        hypotheses: The texts to score.
        references: The right texts, one for each.

    Returns:
        Between 0 and 1.

    Raises:
        ValueError: Different numbers of texts, or none.

    Example:

    >>> exact_match(["1999-05-04", "2000-01-01"], ["1999-05-04", "2001-01-01"])
    0.5
    """
    _check(hypotheses, references)
    return sum(map(str.__eq__, hypotheses, references)) / len(references)


def translation_scores(
    hypotheses: Sequence[str], references: Sequence[str], language: str | None = None
) -> dict[str, Any]:
    """Returns the fraction of exact matches, and sacreBLEU and chrF2 with their signatures.

    Args:
        hypotheses: The texts to score.
        references: The right texts, one for each.
        language: Two-letter code of the target language; with it `tokenised_bleu` is among the scores.

    Returns:
        Plain values by name, as they stand in the results of a run.

    Raises:
        ValueError: Different numbers of texts, or none.

    Example:

    >>> translation_scores(["a dog runs fast"], ["a dog runs fast"])["sacreBLEU"]["value"]
    100.0
    """
    scores = [bleu(hypotheses, references), chrf(hypotheses, references)]
    if language is not None:
        scores.append(tokenised_bleu(hypotheses, references, language))
    return {
        "exact_match": round(exact_match(hypotheses, references), 4),
        **{score.name: {"value": round(score.value, 2), "signature": score.signature} for score in scores},
    }


def _sacrebleu_score(metric: Any, name: str, hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    _check(hypotheses, references)
    score = metric.corpus_score(list(hypotheses), [list(references)])
    return Score(name, score.score, str(metric.get_signature()))


def _check(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    if isinstance(hypotheses, str) or isinstance(references, str):
        raise ValueError("hypotheses and references must be lists of texts; got a single text")
    if len(hypotheses) != len(references) or not len(references):
        raise ValueError(
            "there must be one reference for each hypothesis, and at least one; "
            f"got {len(hypotheses)} hypotheses and {len(references)} references"
        )


def rouge(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, float]:
    """Returns ROUGE-1, ROUGE-2 and ROUGE-L: F1 with stemming, the best over references, the mean over texts.

    Args:
        hypotheses: The texts to score.
        references: One right text or more for each.

    Returns:
        `rouge1`, `rouge2`, `rougeL`, 0 to 100.

    Raises:
        ValueError: Different numbers of texts, or none.

    Reference:
        Lin 2004, "ROUGE"; the `rouge-score` package; best reference: Cachola et al. 2020, "TLDR", section 4.

    Example:

    >>> rouge(["a dog runs"], [["a dog runs", "dogs run"]])["rougeL"]
    100.0
    """
    return {name: round(sum(values) / len(values), 2) for name, values in rouge_of_each(hypotheses, references).items()}


def rouge_of_each(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, list[float]]:
    """Returns the ROUGE of each text, see `rouge`.

    Args:
        hypotheses: The texts to score.
        references: One right text or more for each.

    Raises:
        ValueError: Different numbers of texts, or none.
    """
    from rouge_score.rouge_scorer import RougeScorer

    _check(hypotheses, references)
    names = ("rouge1", "rouge2", "rougeL")
    scorer = RougeScorer(names, use_stemmer=True)
    pairs = zip(hypotheses, references, strict=True)
    scores = [scorer.score_multi(several, hypothesis) for hypothesis, several in pairs]
    return {name: [100 * each[name].fmeasure for each in scores] for name in names}


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


def scores_by_language(
    sources: Sequence[str], outputs: Sequence[str], references: Sequence[str], tokens: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Returns the scores of the translations into each language, by its token; languages without a text are left out.

    Args:
        sources: Texts, each beginning with its token.
        outputs: Their translations.
        references: The right ones.
        tokens: The tokens.
    """
    results = {}
    for token in tokens:
        rows = [index for index, source in enumerate(sources) if source.split(maxsplit=1)[:1] == [token]]
        if rows:
            chosen = ([texts[index] for index in rows] for texts in (outputs, references))
            results[token] = {"sentences": len(rows), **translation_scores(*chosen)}
    return results
