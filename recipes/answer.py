"""Trains a model that answers questions from a context, and exports it.

    python -m recipes.answer                                               # learns who did what and when, in minutes
    python -m recipes.answer --data.train train-v2.0.json --data.validation dev-v2.0.json --run_folder runs/squad
    python -m recipes.answer --model.start_from runs/encoder/model --data.train a.jsonl --data.validation b.jsonl

Files are those of SQuAD, 1.1 or 2.0, or JSON lines with "question", "context" and "answers". Questions may have no
answer. Long contexts are read in windows that overlap. The same command resumes an interrupted run.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np

import zoo
from recipes.common.charts import plot_reliability, title_of
from recipes.common.config import run_recipe, setting
from recipes.common.data.data_config import TestedDataConfig
from recipes.common.data.data_sets import Source, open_parts
from recipes.common.data.questions import QUESTIONS, Question, columns_of, read_questions
from recipes.common.evaluation.answer_metrics import best_threshold, is_exact, token_f1
from recipes.common.evaluation.error_lists import ERRORS_FILE, write_errors
from recipes.common.evaluation.evaluation import Evaluation
from recipes.common.evaluation.evaluations import evaluate_answers
from recipes.common.evaluation.held_out import HeldOut, open_rows
from recipes.common.finish import Outcome, decoded
from recipes.common.run_folder import RunFolder
from recipes.common.runner import Recipe
from recipes.common.training.encoder_recipe import (
    EncoderModelConfig,
    EncoderTokenizerConfig,
    EncoderTrainingConfig,
    train_encoder_task,
)
from recipes.common.training.models import make_or_load_task
from recipes.common.training.windowed import count_cut_questions

TUNE = "tune"
# how questions are read
SOURCE = Source(QUESTIONS, read_questions)


@dataclasses.dataclass(frozen=True)
class DataConfig(TestedDataConfig):
    """Where the questions come from."""

    train: list[str] = setting(
        ["date_events"], "Files of SQuAD, JSON lines (or .gz) or Parquet, or a data set.", offers="paths"
    )
    language: str = setting(
        "en",
        "Two-letter code of the language of the answers. Scores ignore the articles of ar, de, en, es and vi.",
        may_change=True,
    )


@dataclasses.dataclass(frozen=True)
class AnswererConfig(EncoderModelConfig):
    """The model: a new one by preset and options, or a saved one by start_from, and which of its weights train."""

    sequence_length: int | None = setting(
        None,
        "Largest number of tokens of question and context, or of a window. null: as many as the model takes.",
        least=1,
    )
    stride: int = setting(
        64, "Number of tokens that neighbouring windows of a long context share, at most half of a window.", least=0
    )
    max_answer_length: int = setting(30, "Largest number of tokens of an answer.", least=1, most=10**4)
    no_answer_threshold: float | Literal["tune"] | None = setting(
        TUNE,
        "The model gives no answer if the logit of no answer exceeds that of the best answer by more "
        "than this. tune: the value with the highest F1 on the validation data. null: the model "
        "always answers.",
    )


@dataclasses.dataclass(frozen=True)
class AnswerConfig:
    """Trains a model that answers questions from contexts, and exports it as a SavedModel that takes strings."""

    run_folder: str = setting(
        "runs/answer", "Folder of the run. The same command resumes the run in it.", offers="paths"
    )
    data: DataConfig = DataConfig()
    tokenizer: EncoderTokenizerConfig = EncoderTokenizerConfig()
    model: AnswererConfig = AnswererConfig()
    training: EncoderTrainingConfig = EncoderTrainingConfig(epochs=10)
    best: int = setting(
        3, "Number of answers to each test question that are kept in answers.jsonl.", least=1, most=1000
    )
    export: bool = setting(True, "Whether to write the SavedModel.", may_change=True)


def steps(config: AnswerConfig, run: RunFolder) -> Outcome:
    """Reads the data, makes the model, trains and measures it."""
    train, validation, test = open_parts(config.data, SOURCE, account=run.data)
    task = make_model(config, run, train)
    for name, rows in (("training", train), ("validation", validation)):
        count_cut_questions(name, task.preprocessor, [row.question for row in rows])
    train_encoder_task(
        task, run, config.training, columns_of(train), columns_of(validation), metric="accuracy", mode="max"
    )
    if config.model.no_answer_threshold == TUNE and not all(row.answers for row in validation):
        tune_threshold(task, validation, config.data.language)
        task.save_to_preset(run.path / "model")
    (questions, contexts), _ = columns_of(test)
    evaluation = evaluate_answers(task, test, config.data.language, "test", config.best)
    report(run, test, evaluation, config.data.language, test == validation)
    results = {
        **evaluation.results(),
        "without_answer": sum(not row.answers for row in test),
        "no_answer_threshold": task.no_answer_threshold,
    }

    def trial(served: Any) -> Iterable[tuple[str, str, str]]:
        given = served.serve(questions[:3], contexts[:3])["answers"]
        return zip(questions, decoded(given), evaluation.outputs[:3], strict=False)

    examples = list(zip(questions[:3], contexts[:3], strict=True))
    return Outcome(task, results, trial, examples, test_is_validation=test == validation)


def make_model(config: AnswerConfig, run: RunFolder, examples: Sequence[Question]) -> zoo.QuestionAnswerer:
    """Returns the model with initial weights, or on the backbone of a saved model."""
    model = config.model
    lengths = {} if model.sequence_length is None else {"sequence_length": model.sequence_length}

    def texts() -> Iterable[str]:
        # many questions have one context
        return (text for text in dict.fromkeys(text for row in examples for text in (row.question, row.context)))

    return make_or_load_task(
        zoo.QuestionAnswerer,
        model,
        config.tokenizer,
        run,
        texts,
        stride=model.stride,
        # questions, that is
        truncate=True,
        max_answer_length=model.max_answer_length,
        no_answer_threshold=None if model.no_answer_threshold == TUNE else model.no_answer_threshold,
        **lengths,
    )


def tune_threshold(task: zoo.QuestionAnswerer, examples: Sequence[Question], language: str) -> None:
    """Sets the threshold of no answer to that with the highest F1.

    Args:
        task: The task, which always gives an answer.
        examples: Validation data.
        language: That of the answers.
    """
    found = task.answer(*columns_of(examples)[0])
    margins = [math.log(max(each.no_answer, 1e-300)) - math.log(max(each.score, 1e-300)) for each in found]
    f1 = [
        max((token_f1(each.text, text, language) for text, _ in row.answers), default=0.0)
        for each, row in zip(found, examples, strict=True)
    ]
    task.no_answer_threshold = best_threshold(margins, f1, [bool(row.answers) for row in examples])
    print(f"no answer where its logit is above that of the best answer by {task.no_answer_threshold:.3f}")


def report(
    run: RunFolder, examples: Sequence[Question], evaluation: Evaluation, language: str, is_validation: bool
) -> None:
    """Writes predictions, the best answers and the wrong ones, and draws how sure they are.

    Args:
        run: The run folder.
        examples: Test data.
        evaluation: The answers to them.
        language: That of the answers.
        is_validation: Whether they are the validation data.
    """
    predicted, found = evaluation.outputs, evaluation.predictions
    right = [row["reference"] for row in evaluation.rows]
    is_right = [is_exact(text, texts, language) for text, texts in zip(predicted, right, strict=True)]
    # what SQuAD's evaluation script reads
    named = by_name(examples, predicted)
    content = json.dumps(named, ensure_ascii=False, indent=2) + "\n"
    run.final_steps.add("predictions.json", run.write_text, "predictions.json", content)
    rows = [
        {
            "question": row.question,
            "right": list(dict.fromkeys(texts)),
            "answers": [{**answer._asdict(), "score": round(answer.score, 6)} for answer in answers],
            "origin": row.origin,
        }
        for row, texts, answers in zip(examples, right, found, strict=True)
    ]
    content = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    run.final_steps.add("answers.jsonl", run.write_text, "answers.jsonl", content)
    errors = [
        (answers[0].score, answers[0].text or "(none)", texts or "(none)", row.question, row.context, row.origin)
        for row, texts, answers, is_one in zip(examples, right, found, is_right, strict=True)
        if not is_one
    ]
    columns = ["confidence", "predicted", "right", "question", "context", "origin"]
    run.final_steps.add(ERRORS_FILE, write_errors, run, columns, errors)
    sure = np.array([answers[0].score for answers in found])
    title = title_of("questions", is_validation)
    run.draw("reliability.png", plot_reliability, {"first answers": (sure, is_right)}, title=title)


def by_name(examples: Sequence[Question], answers: Sequence[str]) -> dict[str, str]:
    """Returns answers by the names of the questions; of several of one name the first, and says how many others.

    Args:
        examples: The questions.
        answers: An answer to each.
    """
    named: dict[str, str] = {}
    for row, text in zip(examples, answers, strict=True):
        named.setdefault(row.name, text)
    missing = len(answers) - len(named)
    if missing:
        print(f"predictions.json lacks {missing} questions with the id of an earlier one; answers.jsonl has them")
    return named


def evaluate(task: Any, held_out: HeldOut) -> tuple[Evaluation, int]:
    """Returns what a model makes of data, read and measured as a run does, and how many rows were left out."""
    questions, left_out = open_rows(held_out, SOURCE)
    return evaluate_answers(task, questions, held_out.data.language), left_out


main = Recipe("answer", steps, kinds=("QuestionAnswerer",), evaluate=evaluate)


if __name__ == "__main__":
    run_recipe(main, AnswerConfig, "answer")
