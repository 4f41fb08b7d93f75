"""Conversations to fine-tune on: generated data sets, and those that are short enough."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from recipes.common.data import dates
from recipes.common.data.chat_files import Conversation
from recipes.common.data.choosing import short_enough
from recipes.common.data.data_sets import Loaders, Splits
from recipes.common.data.english_questions import Question, english_questions
from recipes.common.errors import BadLines

# questions about a date, their answers, and the answers in a sentence
DATE_QUESTIONS: tuple[tuple[str, Callable[[datetime.date], str], str], ...] = (
    ("Which year is {}?", lambda date: str(date.year), "The year is {}."),
    ("Which month is {}?", lambda date: date.strftime("%B"), "The month is {}."),
    ("Which day of the month is {}?", lambda date: str(date.day), "The day is {}."),
    ("Write {} in ISO 8601.", lambda date: date.isoformat(), "In ISO 8601 it is {}."),
)


def _date_questions(sentences: float = 0.0) -> Splits:
    """Questions and answers; so many of these, as a share, are sentences."""
    generator = np.random.default_rng(0)

    def conversation(pair: Any) -> Conversation:
        question, answer, sentence = DATE_QUESTIONS[int(generator.integers(len(DATE_QUESTIONS)))]
        reply = answer(datetime.date.fromisoformat(pair.target))
        if sentences and generator.random() < sentences:
            reply = sentence.format(reply)
        messages = [
            {"role": "user", "content": question.format(pair.source)},
            {"role": "assistant", "content": reply},
        ]
        return Conversation(messages, pair.origin)

    splits = dates.generate(train=8000, validation=200, test=400)
    return Splits(*([conversation(pair) for pair in pairs] for pairs in splits))


def _date_replies() -> Splits:
    return _date_questions(sentences=0.5)


def _english_questions() -> Splits:
    def conversation(question: Question) -> Conversation:
        messages = [{"role": "user", "content": question.text}, {"role": "assistant", "content": question.answer}]
        return Conversation(messages, question.origin)

    return Splits(*([conversation(question) for question in part] for part in english_questions()))


# * `date_questions`: generated questions about dates and their answers.
# * `date_replies`: the same with half of the answers as sentences.
# * `english_questions`: whether a film review is positive (SST-2), what news are about (AG News).
CONVERSATIONS: Loaders = {
    "date_questions": _date_questions,
    "date_replies": _date_replies,
    "english_questions": _english_questions,
}


def short_conversations(
    conversations: Sequence[Conversation], preprocessor: Any, max_length: int, dropped: BadLines
) -> list[Conversation]:
    """Returns the conversations of at most the given number of tokens, and notes the others.

    Args:
        conversations: The conversations.
        preprocessor: The preprocessor of a `CausalLM` with a chat format.
        max_length: Most tokens that are fed; the last one is predicted alone.
        dropped: Where the others are noted.

    Raises:
        DataError: If none is left.
    """
    lengths = preprocessor.replace(sequence_length=None).examples([talk.messages for talk in conversations]).lengths
    return short_enough(conversations, lengths, max_length, dropped, what="conversation")
