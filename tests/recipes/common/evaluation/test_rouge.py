"""ROUGE against its formulas, and against `rouge-score` where that knows the letters."""

import collections

import numpy as np
import pytest
from rouge_score.rouge_scorer import RougeScorer

from recipes.common.evaluation.rouge import NAMES, rouge_metrics, rouge_signature


def f1(hypothesis, reference, kind):
    """ROUGE-N and ROUGE-L of words by their formulas (Lin 2004, sections 2 and 3)."""
    if kind == "rougeL":
        lengths = np.zeros((len(hypothesis) + 1, len(reference) + 1), int)
        for i, word in enumerate(hypothesis):
            for j, other in enumerate(reference):
                longest = max(lengths[i, j + 1], lengths[i + 1, j])
                lengths[i + 1, j + 1] = lengths[i, j] + 1 if word == other else longest
        hits, given, right = lengths[-1, -1], len(hypothesis), len(reference)
    else:
        n = int(kind[-1])
        counts = [
            collections.Counter(tuple(words[at : at + n]) for at in range(len(words) - n + 1))
            for words in (hypothesis, reference)
        ]
        hits, given, right = (counts[0] & counts[1]).total(), counts[0].total(), counts[1].total()
    return 200 * hits / (given + right) if hits else 0.0


# texts, and their words written down by hand
PAIRS = [
    ("Müller kam, sah und siegte.", "Möller kam nicht.", "müller kam sah und siegte", "möller kam nicht"),
    ("Кошка спит на диване.", "Кошка спит под столом!", "кошка спит на диване", "кошка спит под столом"),
    ("Ο Γιάννης τρέχει", "Η Μαρία τρέχει", "ο γιάννησ τρέχει", "η μαρία τρέχει"),
    ("ذهب الولد إلى المدرسة", "الولد في المدرسة، اليوم", "ذهب الولد إلى المدرسة", "الولد في المدرسة اليوم"),
    ("लड़का स्कूल गया।", "लड़की स्कूल गई।", "लड़का स्कूल गया", "लड़की स्कूल गई"),
    ("고양이가 소파에서 잔다", "고양이가 침대에서 잔다.", "고양이가 소파에서 잔다", "고양이가 침대에서 잔다"),
    ("猫在沙发上睡觉。", "猫在床上睡觉！", "猫 在 沙 发 上 睡 觉", "猫 在 床 上 睡 觉"),
    ("แมวนอน", "แมวกิน", "แ ม ว น อ น", "แ ม ว กิ น"),
]


@pytest.mark.parametrize(("hypothesis", "reference", "words", "right"), PAIRS)
def test_rouge_is_the_formula_on_unicode_words(hypothesis, reference, words, right):
    found = rouge_metrics([hypothesis], [[reference]])
    for name in NAMES:
        assert found[name].value == pytest.approx(f1(words.split(), right.split(), name)), name
    assert found["rouge1"].value > 0


def test_english_is_what_the_package_says():
    generator = np.random.default_rng(0)
    vocabulary = ["running", "runs", "The", "dog's", "e-mail", "3.5", "snake_case", "houses", "house", "a", "U.S.", "?"]
    texts = [" ".join(generator.choice(vocabulary, size=9)) for _ in range(40)]
    for language, stems in (("en", True), ("en-GB", True), (None, False), ("de", False)):
        scorer = RougeScorer(NAMES, use_stemmer=stems)
        found = rouge_metrics(texts[:20], [[text] for text in texts[20:]], language)
        for name in NAMES:
            expected = [
                100 * scorer.score(right, text)[name].fmeasure for text, right in zip(texts, texts[20:], strict=False)
            ]
            each = found[name](np.eye(20))
            assert each == pytest.approx(expected), (language, name)


def test_the_best_reference_counts_and_the_signature_tells_the_words():
    texts = ["running dogs"], [["a cat", "dog runs"]]
    assert rouge_metrics(*texts, "en")["rouge1"].value == 100.0 and "stem:porter" in rouge_signature("en")
    assert rouge_metrics(*texts)["rouge1"].value == 0.0
    assert "tok:unicode|stem:none" in rouge_signature() and "rouge-score:" in rouge_signature()
