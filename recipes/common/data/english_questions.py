"""Questions about English texts and their answers, from labelled data sets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from recipes.common.data.data_sets import Splits
from recipes.common.data.labelled_text import LABELLED, LabelledText


class Question(NamedTuple):
    """A question about a text.

    Args:
        text: The question, with the text.
        answer: The right answer.
        wrong: The other answers.
        origin: Where the text stands.
    """

    text: str
    answer: str
    wrong: list[str]
    origin: str


# what is asked of a text, and the answer for each of its labels
_QUESTIONS: dict[str, tuple[str, dict[str, str]]] = {
    "sst2": (
        "Is this film review positive or negative?\n{}",
        {"positive": "The review is positive.", "negative": "The review is negative."},
    ),
    "ag_news": (
        "Is this news about the world, sports, business or technology?\n{}",
        {
            "World": "The news is about the world.",
            "Sports": "The news is about sports.",
            "Business": "The news is about business.",
            "Sci/Tech": "The news is about technology.",
        },
    ),
}
_EVERY = 20


def english_questions() -> Splits:
    """Returns questions about film reviews (SST-2) and news (AG News).

    SST-2 has no test set: its validation set is for the test, every 20th of its training texts for the validation.
    """
    reviews, news = LABELLED["sst2"](), LABELLED["ag_news"]()
    learned = [row for index, row in enumerate(reviews.train) if index % _EVERY]
    known = {row.texts for row in learned}
    held_out = [row for row in reviews.train[::_EVERY] if row.texts not in known]
    parts = ((learned, news.train), (held_out, news.validation), (reviews.validation, news.test))
    return Splits(*([*_asked("sst2", of_films), *_asked("ag_news", of_news)] for of_films, of_news in parts))


def _asked(name: str, rows: Iterable[LabelledText]) -> list[Question]:
    question, answers = _QUESTIONS[name]
    return [
        Question(
            question.format(row.texts[0]),
            answers[row.label],
            [answer for label, answer in answers.items() if label != row.label],
            row.origin,
        )
        for row in rows
    ]
