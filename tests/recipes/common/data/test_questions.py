"""Files of questions, and the scores of answers."""

import collections
import json
import re
import unicodedata

import numpy as np
import pytest

from recipes.answer import by_name
from recipes.common.data.questions import QUESTIONS, Question, columns_of, read_questions
from recipes.common.errors import BadLines, DataError
from recipes.common.evaluation.answer_metrics import answer_metrics, best_threshold, normalized, token_f1
from recipes.common.evaluation.evaluation import results_of
from recipes.common.training.windowed import count_cut_questions
from zoo.preprocessing import QuestionAnswererPreprocessor

CONTEXT = "The tower stands in Paris, France."
ENTRIES = [
    {"id": "a", "question": "Where?", "answers": [{"text": "Paris", "answer_start": 20}] * 2},
    {"id": "b", "question": "Who?", "is_impossible": True, "answers": [], "plausible_answers": [{"text": "x"}]},
]


def test_questions_that_are_cut_are_counted(tiny_tokenizer, capsys):
    preprocessor = QuestionAnswererPreprocessor(tiny_tokenizer, sequence_length=9, stride=1, truncate=True)
    questions = ["alpha", "alpha beta gamma kappa iota"]
    assert count_cut_questions("test", preprocessor, questions) == 1
    assert capsys.readouterr().out.startswith("test: 1 of 2 questions (50.0%) are cut at ")
    assert count_cut_questions("test", preprocessor, questions[:1]) == 0
    assert not capsys.readouterr().out


def test_formats_of_files(tmp_path):
    (tmp_path / "squad.json").write_text(
        json.dumps(
            {"version": "v2.0", "data": [{"title": "x", "paragraphs": [{"context": CONTEXT, "qas": ENTRIES}]}]},
            indent=1,
        )
    )
    lines = [
        {"question": "Where?", "context": CONTEXT, "answers": {"text": ["Paris"] * 2, "answer_start": [20] * 2}},
        {"question": "Who?", "context": CONTEXT, "answers": []},
    ]
    (tmp_path / "lines.jsonl").write_text("\n".join(map(json.dumps, lines)))
    squad, plain = (read_questions([str(tmp_path / name)], BadLines("raise")) for name in ("squad.json", "lines.jsonl"))
    assert [row[:3] for row in squad] == [row[:3] for row in plain]
    assert squad[0].answers == (("Paris", 20),) * 2 and squad[1].answers == ()
    assert squad[1].name == "b" and squad[1].origin.endswith("squad.json: data[0].paragraphs[0].qas[1]")
    assert plain[1].name.endswith("lines.jsonl:2")
    assert columns_of(squad) == ((["Where?", "Who?"], [CONTEXT] * 2), [("Paris", 20), None])


def test_questions_of_one_name(capsys):
    questions = [Question("Where?", CONTEXT, (), name, f"{name}:{number}") for number, name in enumerate("aba")]
    assert by_name(questions, ["1", "2", "3"]) == {"a": "1", "b": "2"}
    assert "predictions.json lacks 1 questions with the id of an earlier one" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ([{"text": "Paris", "answer_start": 19}], "the answer 'Paris' must be at 19 .*, where ' Pari' is"),
        ([{"text": "Paris"}], "an answer must have text and answer_start"),
        ({"text": ["Paris"], "answer_start": []}, "must be lists of one length"),
        ("Paris", "answers must be a list, or an object"),
    ],
)
def test_bad_answers_are_named(answers, message, tmp_path):
    path = tmp_path / "a.jsonl"
    rows = [{"question": "Who?", "context": CONTEXT, "answers": each} for each in ([], answers)]
    path.write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(DataError, match=rf"a\.jsonl:2: answers that do not fit: .*{message}"):
        read_questions([str(path)], BadLines("raise"))
    bad = BadLines("skip")
    assert len(read_questions([str(path)], bad)) == 1 and bad.total == 1


def test_data_made_by_code():
    splits = QUESTIONS["date_events"]()
    rows = [row for part in splits for row in part]
    for row in rows:
        for text, start in row.answers:
            assert row.context[start : start + len(text)] == text
    assert 0.2 < np.mean([not row.answers for row in rows]) < 0.3
    assert not {row.context for row in splits.train} & {row.context for row in splits.test}


def test_scores_are_those_of_squad():
    """Values worked out by hand after the rules of its evaluation script."""
    assert normalized(" The  Eiffel-Tower, an A!") == "eiffeltower"
    assert token_f1("in Paris", "Paris, France") == 0.5 and token_f1("the", "") == 1 and token_f1("x", "") == 0
    assert token_f1("a b b c", "b b d") == pytest.approx(2 * (2 / 3) * (2 / 3) / (4 / 3))
    right = [["Paris", "the city of Paris"], ["1999"], [], []]
    scores = results_of(answer_metrics(["The Paris.", "May 1999", "", "x"], right))
    assert scores["exact_match"] == 50 and scores["f1"] == pytest.approx((1 + 2 / 3 + 1 + 0) * 25, abs=0.01)
    assert scores["exact_match_with_answer"] == 50 and scores["f1_without_answer"] == 50
    assert set(answer_metrics(["x"], [["x"]])) == {"exact_match", "f1"}


def mlqa_f1(predicted, right, articles):
    """F1 of MLQA's evaluation by its rules: characters of Chinese are words, punctuation of all scripts is none."""

    def words(text):
        kept = "".join(letter for letter in text.lower() if not unicodedata.category(letter).startswith(("P", "S")))
        kept = re.sub(articles, " ", kept) if articles else kept
        return re.sub("([\u4e00-\u9fa5])", r" \1 ", kept).split()

    given, expected = collections.Counter(words(predicted)), collections.Counter(words(right))
    return 2 * (given & expected).total() / (given.total() + expected.total())


@pytest.mark.parametrize(
    ("language", "predicted", "right", "articles"),
    [
        ("zh", "北京大学，1898年", "北京大学（1898年）创立", None),
        ("de", "der Kölner Dom", "Dom in Köln", r"\b(der|die|das)\b"),
        ("es", "la casa «blanca»", "una casa blanca", r"\b(un|una|el|la)\b"),
        ("hi", "दिल्ली में।", "दिल्ली", None),
        ("ar", "المدرسة", "مدرسة", "ال"),
        ("vi", "những con mèo", "con mèo đen", r"\b(những)\b"),
        ("ru", "в Москве", "Москве", None),
        ("en", "the “Eiffel” tower", "Eiffel Tower – Paris", r"\b(a|an|the)\b"),
    ],
)
def test_answers_in_other_languages_are_scored_as_mlqa_does(language, predicted, right, articles):
    f1 = token_f1(predicted, right, language)
    assert f1 == pytest.approx(mlqa_f1(predicted, right, articles)) and f1 > 0
    assert answer_metrics([predicted], [[right]], language)["f1"].value == pytest.approx(100 * f1, abs=0.01)


def test_answers_in_scripts_without_spaces():
    # one character of nine is missing: 8 of 9 and of 8
    assert token_f1("中华人民共和国的", "中华人民共和国") == pytest.approx(2 * 7 / 15)
    assert token_f1("กรุงเทพ", "กรุงเทพมหานคร") > 0.5
    assert normalized("東京タワー。") == normalized("東京 タワー") and normalized("a. b", "zh") == "a b"
    # articles are those of the language
    assert normalized("a casa", "pt") == "a casa" and normalized("die Katze", "de-AT") == "katze"


def test_threshold_is_the_best():
    generator = np.random.default_rng(0)
    has_answer = generator.random(40) < 0.6
    margins = np.round(generator.normal(size=40) - 2 * has_answer, 1)
    f1 = generator.random(40) * has_answer
    found = best_threshold(margins, f1, has_answer)

    def total(threshold):
        return np.where(margins <= threshold, f1, ~has_answer).sum()

    assert total(found) == pytest.approx(max(total(value) for value in [-9, *margins]))
