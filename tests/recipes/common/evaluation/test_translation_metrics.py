import collections
import math

import numpy as np
import pytest
import sacrebleu

from recipes.common.errors import ConfigError
from recipes.common.evaluation.evaluation import results_of
from recipes.common.evaluation.significance import bootstrap_interval, resample
from recipes.common.evaluation.text_metrics import exact_match, perplexity
from recipes.common.evaluation.translation_metrics import (
    bleu,
    bleu_tokenization,
    check_tokenization,
    chrf,
    moses_tokens,
    scores_by_language,
    tokenised_bleu,
    translation_metrics,
)

HYPOTHESES = ["A dog runs on the green grass.", "The man's hat is big, isn't it?", "Two birds"]
REFERENCES = ["A dog is running on the green grass.", "The man's hat is very big, isn't it?", "Two small birds fly."]


def corpus_bleu(hypotheses, references):
    """BLEU of token lists by the formula of Papineni et al. 2002, section 2.3: no smoothing, one reference."""
    logarithms = 0.0
    for n in range(1, 5):
        matches = total = 0
        for hypothesis, reference in zip(hypotheses, references, strict=True):
            counts, allowed = (
                collections.Counter(tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1))
                for tokens in (hypothesis, reference)
            )
            matches += sum((counts & allowed).values())
            total += sum(counts.values())
        logarithms += math.log(matches / total) / 4
    length, reference_length = sum(map(len, hypotheses)), sum(map(len, references))
    return 100 * min(1.0, math.exp(1 - reference_length / length)) * math.exp(logarithms)


# The texts as Moses tokenises them, lower-cased, written down by hand.
TOKENISED_HYPOTHESES = ["a dog runs on the green grass .", "the man 's hat is big , isn 't it ?", "two birds"]
TOKENISED_REFERENCES = [
    "a dog is running on the green grass .",
    "the man 's hat is very big , isn 't it ?",
    "two small birds fly .",
]


def split(texts):
    return [text.split() for text in texts]


def test_tokenised_bleu_is_the_formula_on_moses_tokens():
    score = tokenised_bleu(HYPOTHESES, REFERENCES, "en")
    # Both are sums of four logarithms in double precision.
    expected = corpus_bleu(split(TOKENISED_HYPOTHESES), split(TOKENISED_REFERENCES))
    assert score.value == pytest.approx(expected, abs=1e-9)
    assert 30 < expected < 70
    assert score.signature.startswith("lower-cased|moses:en|nrefs:1")
    assert "tok:none|smooth:none" in score.signature
    assert "sacremoses:" in score.signature


def test_bleu_is_the_formula_on_13a_tokens():
    # 13a splits punctuation off, but not "'s" and "n't", and keeps case.
    score = bleu(HYPOTHESES, REFERENCES)
    hypotheses = ["A dog runs on the green grass .", "The man's hat is big , isn't it ?", "Two birds"]
    references = [
        "A dog is running on the green grass .",
        "The man's hat is very big , isn't it ?",
        "Two small birds fly .",
    ]
    assert score.value == pytest.approx(corpus_bleu(split(hypotheses), split(references)), abs=1e-9)
    assert "case:mixed" in score.signature
    assert "tok:13a" in score.signature


def test_case_counts_for_bleu_only():
    lower = [text.lower() for text in REFERENCES]
    assert tokenised_bleu(lower, REFERENCES, "en").value == pytest.approx(100)
    assert bleu(lower, REFERENCES).value < 90


def test_german_moses_tokens():
    assert moses_tokens(["Zwei „junge“ Männer, z.B. im Garten..."], "de") == [
        'zwei " junge " männer , z.b. im garten ...'
    ]
    assert moses_tokens(["Saftig-grünes Gras & <b>"], "de") == ["saftig-grünes gras & < b >"]


def test_chrf_of_one_text():
    def f_score(hypothesis, reference):
        """chrF with beta 2 (Popović 2015, equation 1) from the mean precision and recall of the 6 orders."""
        precisions, recalls = [], []
        hypothesis, reference = hypothesis.replace(" ", ""), reference.replace(" ", "")
        for n in range(1, 7):
            counts, allowed = (
                collections.Counter(text[i : i + n] for i in range(len(text) - n + 1))
                for text in (hypothesis, reference)
            )
            matches = sum((counts & allowed).values())
            precisions.append(matches / sum(counts.values()))
            recalls.append(matches / sum(allowed.values()))
        precision, recall = sum(precisions) / 6, sum(recalls) / 6
        return 100 * 5 * precision * recall / (4 * precision + recall)

    score = chrf(HYPOTHESES[:1], REFERENCES[:1])
    assert score.value == pytest.approx(f_score(HYPOTHESES[0], REFERENCES[0]), abs=1e-9)
    assert "nc:6|nw:0" in score.signature


def test_exact_match():
    assert exact_match(["a", "B", "c", "d "], ["a", "b", "c", "d"]).value == 0.5


@pytest.mark.parametrize("metric", [bleu, chrf, exact_match, lambda a, b: tokenised_bleu(a, b, "en")])
def test_bad_lists(metric):
    with pytest.raises(ValueError, match="got 2 hypotheses and 1 references"):
        metric(["a", "b"], ["a"])
    with pytest.raises(ValueError, match="got 0 hypotheses and 0 references"):
        metric([], [])
    with pytest.raises(ValueError, match="must be lists of texts"):
        metric("abc", "abc")


def test_scores_are_those_of_the_texts_of_a_language():
    sources = ["<2de> a", "<2fr> b", "<2de> c", ""]
    outputs = ["ein Hund läuft im Gras", "un chien", "eine Katze", ""]
    references = ["ein Hund läuft im Gras", "x", "y", ""]
    scores = scores_by_language(sources, outputs, references, ["<2de>", "<2fr>", "<2es>"])
    assert list(scores) == ["<2de>", "<2fr>"]
    assert (scores["<2de>"]["sentences"], scores["<2de>"]["exact_match"]) == (2, 0.5)
    assert scores["<2de>"]["sacreBLEU"]["value"] == round(bleu(outputs[:3:2], references[:3:2]).value, 2) > 50
    assert scores["<2fr>"]["exact_match"] == 0


def test_perplexity():
    # of 20 equally likely tokens
    assert perplexity(-math.log(1 / 20)) == 20.0
    assert perplexity(710.0) is perplexity(1e30) is perplexity(math.nan) is None


CHINESE = ["我每天早上骑自行车去学校。", "他们昨天在公园里看见一只小猫。"]


def without(monkeypatch, *tokenizations):
    """Takes packages of sacreBLEU away, as on a machine that lacks them."""
    from recipes.common.evaluation import translation_metrics

    problem = translation_metrics._problem

    def found(tokenization):
        return "not installed" if tokenization in tokenizations else problem(tokenization)

    monkeypatch.setattr(translation_metrics, "_problem", found)


def test_the_tokenization_fits_the_language_or_the_script(monkeypatch):
    without(monkeypatch, "ja-mecab", "ko-mecab")
    texts = {
        "zh": (["我住在北京。"], "zh"),
        "zh-TW": (["我住在臺北。"], "zh"),
        "zho_Hans": (["我住在北京。"], "zh"),
        "ja": (["私は東京に住んでいます。"], "char"),
        "ko": (["저는 서울에 살아요."], "char"),
        "th": (["ฉันอยู่ที่กรุงเทพฯ"], "char"),
        "km": (["ខ្ញុំរស់នៅភ្នំពេញ"], "char"),
        "ru": (["Я живу в Москве."], "13a"),
        "ar": (["أنا أعيش في القاهرة."], "13a"),
        "hi": (["मैं दिल्ली में रहता हूँ।"], "13a"),
        "de": (["Ich wohne in 北京."], "13a"),
        "pt_BR": ([""], "13a"),
    }
    for language, (references, expected) in texts.items():
        assert bleu_tokenization(references) == bleu_tokenization(references, language) == expected, language
    # the language is believed, whatever the text
    assert bleu_tokenization(["Ich wohne in Berlin."], "zh") == "zh"
    # but Hakka has two scripts, and Mon is not listed
    assert bleu_tokenization(CHINESE, "hak") == "zh" and bleu_tokenization(["Ngài hiông-ngì"], "hak_Latn") == "13a"
    assert bleu_tokenization(["\u1006\u1031\u1010\u103a\u1019\u103a"], "mnw") == "char"
    without(monkeypatch)
    for language, expected in (("ja", "ja-mecab"), ("ko", "ko-mecab")):
        monkeypatch.setattr("recipes.common.evaluation.translation_metrics._problem", lambda tokenization: None)
        assert bleu_tokenization(texts[language][0]) == bleu_tokenization([], language) == expected


def test_bleu_of_chinese_is_the_formula_on_characters():
    """One wrong character is no wrong text, as it is for 13a."""
    hypotheses = [CHINESE[0].replace("早", "晚"), CHINESE[1]]
    score = bleu(hypotheses, CHINESE)
    assert "tok:zh" in score.signature
    # of a text without Latin letters and digits the tokens are the characters
    assert score.value == pytest.approx(corpus_bleu([list(text) for text in hypotheses], [*map(list, CHINESE)]))
    assert 80 < score.value < 100 and bleu(hypotheses[:1], CHINESE[:1], tokenization="13a").value < 10
    scores = results_of(translation_metrics(hypotheses, CHINESE, "zh"))
    assert scores["sacreBLEU"] == {"value": round(score.value, 2), "signature": score.signature}
    # Moses has no words of Chinese
    assert set(scores) == {"exact_match", "sacreBLEU", "chrF2"}


def test_each_language_of_several_has_its_tokenization():
    sources, outputs = ["<2zh> a", "<2ru> b"], [CHINESE[0], "Я живу в Москве."]
    scores = scores_by_language(sources, outputs, outputs, ["<2zh>", "<2ru>"])
    assert "tok:zh" in scores["<2zh>"]["sacreBLEU"]["signature"]
    assert "tok:13a" in scores["<2ru>"]["sacreBLEU"]["signature"]
    chosen = scores_by_language(sources, outputs, outputs, ["<2zh>"], "char")["<2zh>"]
    assert "tok:char" in chosen["sacreBLEU"]["signature"]


def test_a_tokenization_that_is_not_installed(monkeypatch):
    without(monkeypatch, "ja-mecab")
    with pytest.raises(ConfigError, match="data.bleu_tokenization.*'ja-mecab'"):
        check_tokenization("data.bleu_tokenization", "ja-mecab")
    check_tokenization("data.bleu_tokenization", "zh")
    check_tokenization("data.bleu_tokenization", None)


@pytest.mark.parametrize(
    ("metric", "of_texts", "options"),
    [
        (sacrebleu.BLEU(), bleu, {"tokenization": "13a"}),
        (sacrebleu.BLEU(tokenize="zh"), bleu, {"tokenization": "zh"}),
        (sacrebleu.CHRF(), chrf, {}),
    ],
)
def test_intervals_are_percentiles_of_the_scores_of_resampled_texts(metric, of_texts, options):
    references = [f"the {word} dog runs over the green hill" for word in ("red", "big", "old", "shy")] + CHINESE
    hypotheses = [references[0], "a cat", *references[2:5], "他们在公园里"]
    (value,), resampled = resample([of_texts(hypotheses, references, **options)], resamples=50, seed=3)
    assert value == pytest.approx(metric.corpus_score(hypotheses, [references]).score, abs=1e-9)
    generator = np.random.default_rng(3)
    expected = [
        metric.corpus_score([hypotheses[row] for row in rows], [[references[row] for row in rows]]).score
        for rows in generator.integers(6, size=(50, 6))
    ]
    np.testing.assert_allclose(resampled[0], expected, atol=1e-9)
    low, high = bootstrap_interval(resampled[0])
    assert (low, high) == tuple(np.percentile(resampled[0], [2.5, 97.5])) and 0 <= low <= value <= high <= 100
