"""BLEU and chrF of translations into any language, by sacreBLEU; its tokenization fits the language or the script."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import sacrebleu
import sacremoses

import zoo
from recipes.common.errors import ConfigError
from recipes.common.evaluation.evaluation import Metric, results_of
from recipes.common.evaluation.text_metrics import check_texts, exact_match
from recipes.common.words import language_code

Tokenization = Literal["13a", "intl", "zh", "ja-mecab", "ko-mecab", "char", "spm", "flores101", "flores200", "none"]

# languages whose words 13a does not find
_TOKENIZATIONS = {
    **dict.fromkeys(("zh", "yue", "wuu"), "zh"),
    "ja": "ja-mecab",
    "ko": "ko-mecab",
    **dict.fromkeys(("th", "lo", "km", "my", "shn", "bo", "dz"), "char"),
}
# Japanese texts have far more Hiragana and Katakana than this share of their letters, Chinese ones fewer
_LEAST_KANA = 0.1


def bleu_tokenization(references: Sequence[str], language: str | None = None) -> str:
    """Returns the tokenization of sacreBLEU that fits a language, or the script of texts.

    That is "zh" for Chinese, "ja-mecab" and "ko-mecab" for Japanese and Korean where their packages are installed
    (`pip install "sacrebleu[ja,ko]"`), "char" where they are not and for other languages without spaces between words,
    and "13a" for the rest.

    Args:
        references: Texts in the language.
        language: Its two-letter code, perhaps with a region; None if it is not known. The script decides about
            languages that are none of those above.

    Reference:
        Post 2018, "A Call for Clarity in Reporting BLEU Scores"; the documentation of sacreBLEU.

    Example:

    >>> bleu_tokenization(["我住在北京。"]), bleu_tokenization(["Я живу в Москве."])
    ('zh', '13a')
    """
    code = language_code(language)
    if code not in _TOKENIZATIONS:
        # also of languages that are written in several scripts, such as Hakka
        code = _language_by_script("".join(references))
    tokenization = _TOKENIZATIONS.get(code, "13a")
    return tokenization if _problem(tokenization) is None else "char"


def _language_by_script(text: str) -> str:
    """A language of the script that most letters are of; "th" stands for all whose words are not known."""
    import regex

    letters, kana, hangul = (
        len(regex.findall(expression, text)) for expression in (r"\p{L}", r"[\p{Hiragana}\p{Katakana}]", r"\p{Hangul}")
    )
    if zoo.preprocessing.words.lacks_spaces(text):
        if kana > _LEAST_KANA * letters:
            return "ja"
        return "zh" if 2 * len(regex.findall(r"\p{Han}", text)) > letters else "th"
    return "ko" if 2 * hangul > letters else ""


@functools.cache
def _problem(tokenization: str) -> str | None:
    """Why sacreBLEU cannot tokenize in a way; None if it can."""
    try:
        sacrebleu.BLEU(tokenize=tokenization)
    except Exception as error:  # a missing package, another dictionary, a failed download
        return " ".join(str(error).split())
    return None


def check_tokenization(name: str, tokenization: str | None) -> None:
    """Checks that sacreBLEU has what a tokenization needs; those by SentencePiece are downloaded here.

    Args:
        name: The key that chose it.
        tokenization: The tokenization; None for none.

    Raises:
        ConfigError: If it cannot be used.
    """
    problem = None if tokenization is None else _problem(tokenization)
    if problem is not None:
        raise ConfigError(f"{name} must be a tokenization that is installed, got {tokenization!r}: {problem}")


def bleu(
    hypotheses: Sequence[str],
    references: Sequence[str],
    language: str | None = None,
    tokenization: str | None = None,
) -> Metric:
    """Returns the cased corpus BLEU of detokenised text, 0 to 100, by sacreBLEU with its own tokenisation.

    Args:
        hypotheses: The texts to score.
        references: The right texts, one for each.
        language: See `bleu_tokenization`.
        tokenization: One of sacreBLEU's; None for the one that `bleu_tokenization` chooses. The signature names it.

    Raises:
        ValueError: Different numbers of texts, or none.

    Reference:
        Post 2018, "A Call for Clarity in Reporting BLEU Scores"; Papineni et al. 2002.

    Example:

    >>> bleu(["a dog runs fast"], ["a dog runs fast"]).result
    {'value': 100.0, 'signature': 'nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0'}
    """
    check_texts(hypotheses, references)
    metric = sacrebleu.BLEU(tokenize=tokenization or bleu_tokenization(references, language))
    return _of_corpus(metric, hypotheses, references)


def chrf(hypotheses: Sequence[str], references: Sequence[str]) -> Metric:
    """Returns the corpus chrF2, the F-score of character n-grams up to 6, 0 to 100, by sacreBLEU.

    Args:
        hypotheses: The texts to score.
        references: The right texts, one for each.

    Raises:
        ValueError: Different numbers of texts, or none.

    Reference:
        Popović 2015, "chrF: character n-gram F-score for automatic MT evaluation".

    Example:

    >>> chrf(["a dog"], ["a dog"]).value
    100.0
    """
    check_texts(hypotheses, references)
    return _of_corpus(sacrebleu.CHRF(), hypotheses, references)


def has_moses_tokens(language: str) -> bool:
    """Returns whether Moses finds the words of a language, so that `tokenised_bleu` means something.

    Args:
        language: Its code.
    """
    return _TOKENIZATIONS.get(language_code(language) or "", "ko-mecab") == "ko-mecab"


def tokenised_bleu(hypotheses: Sequence[str], references: Sequence[str], language: str) -> Metric:
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
        The metric; its signature names the steps and the versions of the packages.

    Raises:
        ValueError: Different numbers of texts, or none.

    Example:

    >>> tokenised_bleu(["Ein Hund läuft schnell."], ["ein Hund läuft schnell ."], "de").value
    100.0
    """
    check_texts(hypotheses, references)
    # the texts are tokenised already, so sacreBLEU must neither tokenise again nor warn about it (force)
    plain = sacrebleu.BLEU(tokenize="none", smooth_method="none", force=True)
    metric = _of_corpus(plain, *(moses_tokens(texts, language) for texts in (hypotheses, references)))
    signature = f"lower-cased|moses:{language_code(language)}|{metric.signature}|sacremoses:{sacremoses.__version__}"
    return dataclasses.replace(metric, signature=signature)


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
    code = language_code(language)
    normalizer, tokenizer = sacremoses.MosesPunctNormalizer(code), sacremoses.MosesTokenizer(code)
    return [tokenizer.tokenize(normalizer.normalize(text.lower()), return_str=True, escape=False) for text in texts]


def translation_metrics(
    hypotheses: Sequence[str],
    references: Sequence[str],
    language: str | None = None,
    tokenization: str | None = None,
) -> dict[str, Metric]:
    """Returns the fraction of exact matches, and sacreBLEU and chrF2 with their signatures.

    Args:
        hypotheses: The texts to score.
        references: The right texts, one for each.
        language: Two-letter code of the target language; with that of a language which Moses tokenises,
            `tokenised_bleu` is among the metrics.
        tokenization: See `bleu`.

    Raises:
        ValueError: Different numbers of texts, or none.

    Example:

    >>> translation_metrics(["a dog runs fast"], ["a dog runs fast"])["sacreBLEU"].value
    100.0
    """
    metrics = {
        "exact_match": exact_match(hypotheses, references),
        "sacreBLEU": bleu(hypotheses, references, language, tokenization),
        "chrF2": chrf(hypotheses, references),
    }
    if language is not None and has_moses_tokens(language):
        metrics["tokenised lower-cased BLEU"] = tokenised_bleu(hypotheses, references, language)
    return metrics


def scores_by_language(
    sources: Sequence[str],
    outputs: Sequence[str],
    references: Sequence[str],
    tokens: Sequence[str],
    tokenization: str | None = None,
) -> dict[str, dict[str, Any]]:
    """Returns the scores of the translations into each language, by its token; languages without a text are left out.

    Args:
        sources: Texts, each beginning with its token.
        outputs: Their translations.
        references: The right ones.
        tokens: The tokens.
        tokenization: See `bleu`.
    """
    results = {}
    for token in tokens:
        rows = [index for index, source in enumerate(sources) if source.split(maxsplit=1)[:1] == [token]]
        if rows:
            chosen = ([texts[index] for index in rows] for texts in (outputs, references))
            results[token] = {
                "sentences": len(rows),
                **results_of(translation_metrics(*chosen, tokenization=tokenization)),
            }
    return results


def _of_corpus(metric: Any, hypotheses: Sequence[str], references: Sequence[str]) -> Metric:
    """BLEU or chrF of a corpus, from the counts that sacreBLEU takes of each text."""
    # the way of sacreBLEU's own tests of significance
    counts = np.array(metric._extract_corpus_statistics(list(hypotheses), [list(references)]), "float64")

    def score(rows: np.ndarray) -> np.ndarray:
        # equal texts have 100.00000000000004 there
        return np.minimum([metric._compute_score_from_stats(sums).score for sums in rows @ counts], 100.0)

    return Metric(score, len(counts), 2, str(metric.get_signature()))
