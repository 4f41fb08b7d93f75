import pytest

from recipes.common.errors import ConfigError, DataError
from recipes.common.language_tokens import LanguageTokenPairs, language_token, scores_by_language
from recipes.common.parallel_text import ParallelText, TextPair
from recipes.common.text_metrics import bleu

PAIRS = [TextPair("<2de> one", "eins", "a:1"), TextPair("two", "deux", "a:2"), TextPair("<2fr>\tsix", "six", "a:3")]


def test_a_source_without_a_token_raises_or_is_skipped():
    with pytest.raises(DataError, match="a:2: no language token: 'two' begins with none of <2de>, <2fr>"):
        list(LanguageTokenPairs(PAIRS, ["<2de>", "<2fr>"]))
    pairs = LanguageTokenPairs(PAIRS, ["<2de>", "<2fr>"], "skip")
    for _ in range(2):
        # the second pass starts its account anew
        assert list(pairs) == [PAIRS[0], PAIRS[2]]
        assert pairs.bad_lines.report() == "skipped 1: no language token 1 (a:2)"
    with pytest.raises(DataError, match="a:1: no language token"):
        list(LanguageTokenPairs(PAIRS, ["<2"]))


def test_lines_that_the_reader_skipped_are_in_the_account(tmp_path):
    (tmp_path / "a.tsv").write_text("<2de> one\teins\nno tab\none\tun\n")
    pairs = LanguageTokenPairs(ParallelText([tmp_path / "a.tsv"], on_error="skip"), ["<2de>"], "skip")
    assert len(list(pairs)) == 1
    assert dict(pairs.bad_lines.counts) == {"no language token": 1, "wrong number of columns": 1}


@pytest.mark.parametrize("tokens", [["<2de>", "<2de>"], [""], ["to German"]])
def test_bad_tokens(tokens):
    with pytest.raises(ConfigError, match="language_tokens must be different ones without white space"):
        LanguageTokenPairs(PAIRS, tokens)


def test_scores_are_those_of_the_texts_of_a_language():
    sources = ["<2de> a", "<2fr> b", "<2de> c"]
    outputs, references = ["ein Hund läuft im Gras", "un chien", "eine Katze"], ["ein Hund läuft im Gras", "x", "y"]
    scores = scores_by_language(sources, outputs, references, ["<2de>", "<2fr>", "<2es>"])
    assert list(scores) == ["<2de>", "<2fr>"]
    assert (scores["<2de>"]["sentences"], scores["<2de>"]["exact_match"]) == (2, 0.5)
    assert scores["<2de>"]["BLEU"]["value"] == round(bleu(outputs[::2], references[::2]).value, 2) > 50
    assert scores["<2fr>"]["exact_match"] == 0
    assert language_token("") == language_token("  ") == ""
