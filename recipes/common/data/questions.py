"""Questions with contexts that may answer them: SQuAD's JSON, JSON lines, a named data set."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from recipes.common.data import dates
from recipes.common.data.data_sets import Loaders, Splits
from recipes.common.data.json_files import parse_json
from recipes.common.data.lines import read_lines
from recipes.common.data.text_files import read_table
from recipes.common.errors import BadLines, DataError, shown

NO_TEXT = "no question or no context"
BAD_FORM = "not as in SQuAD"
BAD_ANSWERS = "answers that do not fit"


class Question(NamedTuple):
    """A question, its context, the right answers (texts and first characters; none where there is none), its name.

    `origin` is where it stands.
    """

    question: str
    context: str
    answers: tuple[tuple[str, int], ...]
    name: str
    origin: str

    @property
    def given(self) -> tuple[str, str]:
        """What a model is given of it."""
        return self.question, self.context

    @property
    def group(self) -> str:
        """What all questions on one context have in common."""
        return self.context


def read_questions(files: Sequence[str], bad: BadLines) -> list[Question]:
    """Returns the questions of files.

    A `.json` file that holds one object with "data" is one of SQuAD (1.1 or 2.0; questions that are impossible have no
    answer). Otherwise each line is an object with "question", "context" and "answers", as the `datasets` library has
    them: `{"text": [...], "answer_start": [...]}`, or a list of `{"text": ..., "answer_start": ...}`; both may be
    empty.

    Args:
        files: Paths.
        bad: Where bad questions are noted.

    Raises:
        DataError: A missing, damaged or empty file, or a bad question and `bad` raises, with its place.
    """
    found: list[Question] = []
    for file in files:
        before = len(found)
        squad = _squad(file)
        rows = _squad_rows(file, squad, bad) if squad is not None else _json_rows(file, bad)
        for question, context, answers, name, origin in rows:
            if not all(isinstance(text, str) and text.strip() for text in (question, context)):
                bad.add(NO_TEXT, origin, f"got {shown([question, context])}")
                continue
            try:
                found.append(Question(question, context, _answers(answers, context), str(name), origin))
            except (TypeError, ValueError) as error:
                bad.add(BAD_ANSWERS, origin, str(error))
        if len(found) == before:
            raise DataError(f"{file} holds no question: {bad.report()}")
    return found


def _squad(file: str | os.PathLike) -> Any:
    """The articles of a file of SQuAD; None where it is another."""
    if ".json" not in Path(file).suffixes:
        return None
    lines = list(read_lines(file))
    undecodable = next((line for line in lines if line.text is None), None)
    if undecodable is not None:
        raise DataError(f"{undecodable.origin}: undecodable byte: {undecodable.problem}")
    try:
        content = parse_json("\n".join(line.text or "" for line in lines))
    except (ValueError, RecursionError):
        return None  # lines of objects, or neither
    return content["data"] if isinstance(content, dict) and isinstance(content.get("data"), list) else None


def _squad_rows(file: str, articles: Sequence[Any], bad: BadLines) -> Iterator[tuple[Any, Any, Any, Any, str]]:
    for number, article in enumerate(articles):
        paragraphs = article.get("paragraphs") if isinstance(article, dict) else None
        origin = f"{file}: data[{number}]"
        if not isinstance(paragraphs, list):
            bad.add(BAD_FORM, origin, f"an article must have paragraphs, got {shown(article)}")
            continue
        for place, paragraph in enumerate(paragraphs):
            where = f"{origin}.paragraphs[{place}]"
            questions = paragraph.get("qas") if isinstance(paragraph, dict) else None
            if not isinstance(questions, list):
                bad.add(BAD_FORM, where, f"a paragraph must have qas, got {shown(paragraph)}")
                continue
            for index, entry in enumerate(questions):
                here = f"{where}.qas[{index}]"
                if not isinstance(entry, dict):
                    bad.add(BAD_FORM, here, f"a question must be an object, got {shown(entry)}")
                    continue
                # the plausible answers of impossible questions are wrong ones
                answers = [] if entry.get("is_impossible") else entry.get("answers")
                yield entry.get("question"), paragraph.get("context"), answers, entry.get("id", here), here


def _json_rows(file: str, bad: BadLines) -> Iterator[tuple[Any, Any, Any, Any, str]]:
    for (question, context, answers), origin in read_table(file, ["question", "context", "answers"], bad):
        yield question, context, answers, origin, origin


def _answers(answers: Any, context: str) -> tuple[tuple[str, int], ...]:
    if isinstance(answers, dict):
        texts, starts = answers.get("text"), answers.get("answer_start")
        if not isinstance(texts, list) or not isinstance(starts, list) or len(texts) != len(starts):
            raise ValueError(f"text and answer_start must be lists of one length, got {shown(answers)}")
        answers = [{"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)]
    if not isinstance(answers, list):
        raise TypeError(f"answers must be a list, or an object of text and answer_start, got {shown(answers)}")
    found = []
    for answer in answers:
        text, start = (answer.get(key) if isinstance(answer, dict) else None for key in ("text", "answer_start"))
        if not isinstance(text, str) or not text or not isinstance(start, int) or isinstance(start, bool):
            raise TypeError(f"an answer must have text and answer_start, got {shown(answer)}")
        if start < 0 or context[start : start + len(text)] != text:
            there = context[max(0, start) : max(0, start) + len(text)]
            raise ValueError(f"the answer {shown(text)} must be at {start} in the context, where {shown(there)} is")
        found.append((text, start))
    return tuple(found)


def columns_of(questions: Sequence[Question]) -> tuple[tuple[list[str], list[str]], list[tuple[str, int] | None]]:
    """Returns questions and contexts, and the first right answer of each, None for none.

    Args:
        questions: The questions.
    """
    texts = [row.question for row in questions], [row.context for row in questions]
    return texts, [row.answers[0] if row.answers else None for row in questions]


_NAMES = ("Ada", "Emmy", "Grace", "Hedy", "Katherine", "Lise", "Mary", "Sofia")
_PLACES = ("Bern", "Lisbon", "Oslo", "Paris", "Rome", "Turin", "Vienna", "Warsaw")
_EVENTS = ("was born in", "moved to", "gave a speech in", "wrote a letter from", "opened a school in")
_ASKED = ("be born", "move", "give a speech", "write a letter", "open a school")


def _load_date_events() -> Splits:
    generator = np.random.default_rng(0)

    def question(iso: str, other: str, origin: str) -> Question:
        names = [str(name) for name in generator.choice(_NAMES, 2, replace=False)]
        places = [str(place) for place in generator.choice(_PLACES, 3, replace=False)]
        events = [int(event) for event in generator.choice(len(_EVENTS), 3, replace=False)]
        days = [datetime.date.fromisoformat(date) for date in (iso, other)]
        written = [f"{day.day} {day:%B} {day.year}" for day in days]
        facts = [
            f"{name} {_EVENTS[event]} {place} on {date}."
            for name, event, place, date in zip(names, events[:2], places[:2], written, strict=True)
        ]
        context = " ".join(facts if generator.random() < 0.5 else facts[::-1])
        has_answer = generator.random() < 0.75
        # where there is none, of what nobody did, in a place where nobody was
        event, place = (events[0], places[0]) if has_answer else (events[2], places[2])
        kind = int(generator.integers(3))
        text = (
            f"When did {names[0]} {_ASKED[event]}?",
            f"Where did {names[0]} {_ASKED[event]}?",
            f"Who {_EVENTS[event]} {place}?",
        )[kind]
        answer = (written[0], places[0], names[0])[kind]
        start = context.index(facts[0]) + facts[0].index(answer)
        return Question(text, context, ((answer, start),) if has_answer else (), origin, origin)

    def questions(pairs: Sequence[Any]) -> list[Question]:
        others = [*pairs[1:], pairs[0]]
        return [question(pair.target, after.target, pair.origin) for pair, after in zip(pairs, others, strict=True)]

    return Splits(*map(questions, dates.generate(train=4000, validation=200, test=400)))


# * `date_events`: two generated sentences on who did what, where and on which date, and a question for one of these;
#   a quarter have no answer.
QUESTIONS: Loaders = {"date_events": _load_date_events}
