"""Trains a model that tags the words of texts, and exports it.

    python -m recipes.tag                                             # learns the parts of dates, in minutes
    python -m recipes.tag --config recipes/configs/ud_english_ewt.yaml
    python -m recipes.tag --data.train a.conll --data.validation b.conll --run_folder runs/mine
    python -m recipes.tag --data.train a.jsonl --data.validation b.jsonl --data.split kinds

JSON lines hold raw texts with spans of characters, `{"text": ..., "spans": [{"start": 0, "end": 3, "label": "PER"}]}`.
Long texts are read in windows that overlap (`--model.stride 32`), rare tags weighted (`--training.class_weights
balanced`). The temperature of the probabilities is fitted to the validation data.
The same command resumes an interrupted run.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np

import zoo
from recipes.common.charts import plot_confusion
from recipes.common.config import run_recipe, setting
from recipes.common.data.data_config import TestedDataConfig
from recipes.common.data.data_sets import Source, is_name, open_parts
from recipes.common.data.labelled_text import require_known_labels, unknown_labels
from recipes.common.data.spanned_text import SPANNED, SpannedText, read_spanned, span_errors, with_tags
from recipes.common.data.tagged_words import TAGGED, TaggedWords, read_tagged
from recipes.common.data.text_files import holds_records
from recipes.common.errors import ConfigError
from recipes.common.evaluation.calibrated import calibrate, calibration_scores
from recipes.common.evaluation.error_lists import ERRORS_FILE, write_errors
from recipes.common.evaluation.evaluation import Evaluation
from recipes.common.evaluation.evaluations import evaluate_spans, evaluate_tags
from recipes.common.evaluation.held_out import HeldOut, open_rows
from recipes.common.evaluation.label_metrics import tag_metrics
from recipes.common.finish import Outcome
from recipes.common.run_folder import RunFolder
from recipes.common.runner import Recipe
from recipes.common.training.class_weights import LabelTrainingConfig, class_weights, print_weights
from recipes.common.training.encoder_recipe import EncoderTokenizerConfig, train_encoder_task
from recipes.common.training.models import make_or_load_task
from recipes.common.training.windowed import WindowedModelConfig, length_options, seen_words


@dataclasses.dataclass(frozen=True)
class DataConfig(TestedDataConfig):
    """Where the sentences come from."""

    train: list[str] = setting(
        ["date_parts"],
        "CoNLL or CoNLL-U files, JSON lines (or .gz) or Parquet files with spans or words, or a data set.",
        offers="paths",
    )
    word_column: int | str = setting(
        1,
        "Number of the column of the word, from 1; of JSON, Parquet and data sets the key of a list of words.",
        least=1,
        describes_files=True,
    )
    tag_column: int | str = setting(
        2,
        "Number of the column of the tag, from 1; of JSON, Parquet and data sets the key of a list of tags.",
        least=1,
        describes_files=True,
    )
    split: Literal["punctuation", "space", "kinds"] = setting(
        "punctuation", "Where raw texts are split into words. kinds: also between letters and digits."
    )


@dataclasses.dataclass(frozen=True)
class TagConfig:
    """Trains a tagger of words and exports it as a SavedModel that tags strings."""

    run_folder: str = setting("runs/tag", "Folder of the run. The same command resumes the run in it.", offers="paths")
    data: DataConfig = DataConfig()
    tokenizer: EncoderTokenizerConfig = EncoderTokenizerConfig()
    model: WindowedModelConfig = WindowedModelConfig()
    training: LabelTrainingConfig = LabelTrainingConfig()
    calibrate: bool = setting(True, "Whether to fit the temperature of probabilities to the validation data.")
    export: bool = setting(True, "Whether to write the SavedModel.", may_change=True)


def steps(config: TagConfig, run: RunFolder) -> Outcome:
    """Reads the data, makes the model, trains and measures it."""
    train, validation, test = open_data(config.data, run)
    labels = labels_of(train)
    task = make_or_load_task(
        zoo.TokenClassifier,
        config.model,
        config.tokenizer,
        run,
        lambda: (row.text if isinstance(row, SpannedText) else " ".join(row.words) for row in train),
        labels=labels,
        split=config.data.split,
        # of a model that was calibrated, it is fitted anew
        temperature=1.0,
        **length_options(config.model),
    )
    occurring = sorted({tag for row in train for tag in row.tags})
    require_known_labels(labels, [(row.tags, row.origin) for row in validation], occurring)
    # before the training, and not after it
    unknown_labels(labels, [(row.tags, row.origin) for row in test], "tag")
    # the loss is that of the words that the model sees
    seen = seen_words(task.preprocessor, columns_of(train)[0])
    found = itertools.compress((tag for row in train for tag in row.tags), seen)
    weights = class_weights(config.training.class_weights, task.labels, found)
    if weights is not None:
        print_weights(task.labels, weights)
    held_out = columns_of(validation)
    train_encoder_task(
        task,
        run,
        config.training,
        columns_of(train),
        held_out,
        metric="accuracy",
        mode="max",
        class_weight=weights,
    )
    if config.calibrate:
        calibrate(task, *held_out)
        task.save_to_preset(run.path / "model")
    inputs, _ = columns_of(test)
    evaluation = (evaluate_spans if are_spanned(test) else evaluate_tags)(task, test, "test")
    values = evaluation.predictions
    truth, predicted = [list(row.tags) for row in test], task.preprocessor.labels_of(values)
    seen = seen_words(task.preprocessor, inputs)
    tags = [[tag for row in rows for tag in row] for rows in (truth, predicted)]
    run.draw("confusion.png", plot_confusion, *tags, title="Words of the test sentences")
    run.final_steps.add(ERRORS_FILE, list_errors, run, task, test, evaluation, seen)
    results = {
        "test_sentences": len(test),
        "test_words": len(seen),
        "test_words_unseen": evaluation.counts["words_unseen"],
        "accuracy": tag_metrics(truth, predicted)["accuracy"].result,
        **evaluation.values,
    }
    numbers = {label: number for number, label in enumerate(labels)}
    right = np.array([numbers.get(tag, -1) for tag in tags[0]])
    of_seen = np.concatenate(values)[seen], right[seen]
    results.update(calibration_scores(run, task, *of_seen, is_fitted=test == validation))
    trial = functools.partial(try_export, task, inputs[:3])
    examples = [row if isinstance(row, str) else " ".join(row) for row in inputs[:3]]
    return Outcome(task, results, trial, examples, test_is_validation=test == validation)


Row = SpannedText | TaggedWords


def are_spanned(rows: Sequence[Row]) -> bool:
    """Whether rows are raw texts with spans, and not words with tags."""
    return isinstance(rows[0], SpannedText)


def is_spanned(file: str, data: DataConfig) -> bool:
    """Whether a file, or a named data set, holds raw texts with spans, and not words with tags."""
    if is_name([file]):
        return str(file) in SPANNED
    # records of words are read by the keys of their lists
    return holds_records(file) and not isinstance(data.word_column, str)


def open_data(data: DataConfig, run: RunFolder) -> list[Sequence[Row]]:
    """Returns training, validation and test rows, all words with tags or all texts with spans."""
    columns = {"word_column": data.word_column, "tag_column": data.tag_column}
    files = [*data.train, *data.validation, *data.test]
    are_spanned_files = {is_spanned(file, data) for file in files}
    if len(are_spanned_files) > 1:
        raise ConfigError(f"data must be texts with spans (JSON lines) or words with tags (CoNLL), got both: {files}")
    if are_spanned_files == {False}:
        return open_parts(data, source_of(data, spans=False), account=run.data)
    for name, column in columns.items():
        default = getattr(DataConfig(), name)
        if column != default:
            raise ConfigError(
                f"data.{name} must be {default} with texts with spans, which have no columns, got {column}"
            )
    parts = open_parts(data, source_of(data, spans=True), account=run.data)
    return [with_tags(part, data.split) for part in parts]


def source_of(data: DataConfig, spans: bool) -> Source:
    """Returns how texts with spans are read, or words with tags."""
    if spans:
        return Source(SPANNED, lambda files, bad: read_spanned(files, bad, data.split))
    columns = {"word_column": data.word_column, "tag_column": data.tag_column}
    return Source(TAGGED, lambda files, bad: read_tagged(files, bad, **columns))


def labels_of(rows: Sequence[Row]) -> list[str]:
    """Returns the tags that occur; of spans those of longer and of shorter ones, too."""
    found = {tag for row in rows for tag in row.tags}
    if are_spanned(rows):
        found |= {"O", *(f"{begin}-{tag[2:]}" for tag in found if tag != "O" for begin in "BI")}
    return sorted(found)


def columns_of(rows: Sequence[Row]) -> tuple[list[Any], list[Any]]:
    """Returns inputs and labels: texts and spans, or words and tags."""
    if are_spanned(rows):
        return [row.text for row in rows], [row.spans for row in rows]
    return [list(row.words) for row in rows], [list(row.tags) for row in rows]


def known_alone(values: Sequence[np.ndarray], seen: np.ndarray) -> list[np.ndarray]:
    """Returns probabilities of words with 0 for those that the model does not see: of these it is not sure at all.

    Args:
        values: Of the labels of each text's words, `(words, labels)`.
        seen: Whether it sees each word of all texts.
    """
    ends = np.cumsum([len(value) for value in values])
    return [value * some[:, None] for value, some in zip(values, np.split(seen, ends[:-1]), strict=True)]


def list_errors(
    run: RunFolder, task: zoo.TokenClassifier, rows: Sequence[Row], evaluation: Evaluation, seen: np.ndarray
) -> None:
    """Writes the wrong tags with the words around them; of texts the spans that are wrong or missing."""
    values = known_alone(evaluation.predictions, seen)
    if are_spanned(rows):
        entities = task.preprocessor.entities([row.text for row in rows], evaluation.predictions)
        columns = ["confidence", "which", "label", "text", "start", "end", "context", "origin"]
        write_errors(run, columns, span_errors(rows, entities, values, task.preprocessor.split))
        return
    numbers, errors = {label: number for number, label in enumerate(task.labels)}, []
    for row, probabilities, tags in zip(rows, values, evaluation.outputs, strict=True):
        for place, (right, given) in enumerate(zip(row.tags, tags, strict=True)):
            if right != given:
                of_right = float(probabilities[place, numbers[right]]) if right in numbers else 0.0
                before, after = row.words[max(0, place - 6) : place], row.words[place + 1 : place + 7]
                context = " ".join([*before, f"[{row.words[place]}]", *after])
                sure = float(probabilities[place, numbers[given]])
                errors.append((sure, given, right, of_right, row.words[place], context, row.origin))
    columns = ["confidence", "predicted", "right", "probability of the right one", "word", "context", "origin"]
    write_errors(run, columns, errors)


def try_export(task: zoo.TokenClassifier, inputs: Sequence[Any], served: Any) -> Iterable[tuple[str, list, list]]:
    """Returns texts, what a SavedModel gives for them, and what the task gives: entities of texts, tags of words.

    Args:
        task: The task.
        inputs: Texts, or lists of words. As texts these may have more words: both split "'s" into two.
        served: The loaded SavedModel.
    """
    if isinstance(inputs[0], str):
        outputs = served.entities(inputs)
        columns = [[[part.decode() for part in row] for row in outputs[key].numpy()] for key in ("labels", "texts")]
        found = [
            [f"{label}: {text}" for label, text in zip(*row, strict=True) if label]
            for row in zip(*columns, strict=True)
        ]
        expected = [[f"{entity.label}: {entity.text}" for entity in row] for row in task.entities(inputs)]
        return zip(inputs, found, expected, strict=True)
    texts = [" ".join(words) for words in inputs]
    tags = [[tag.decode() for tag in row if tag] for row in served.serve(texts)["tags"].numpy()]
    return zip(texts, tags, task.tag(texts), strict=True)


def evaluate(task: Any, held_out: HeldOut) -> tuple[Evaluation, int]:
    """Returns what a model makes of data, read and measured as a run does, and how many rows were left out."""
    data = held_out.data
    files = getattr(data, held_out.split) or (data.train if is_name(data.train) else data.validation) or data.train
    if is_spanned(files[0], data):
        held_out.refuse("word_column", "tag_column", because="texts with spans have no columns")
        texts, left_out = open_rows(held_out, source_of(data, spans=True))
        return evaluate_spans(task, texts), left_out
    held_out.refuse("split", because="words with tags are split already")
    sentences, left_out = open_rows(held_out, source_of(data, spans=False))
    return evaluate_tags(task, sentences), left_out


main = Recipe("tag", steps, kinds=("TokenClassifier",), evaluate=evaluate)


if __name__ == "__main__":
    run_recipe(main, TagConfig, "tag")
