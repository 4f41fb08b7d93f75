"""Tag: from sentences with a tag per word to a SavedModel that tags the words of strings.

    python -m recipes.tag                                             # learns the parts of dates, in minutes
    python -m recipes.tag --config recipes/configs/ud_english_ewt.yaml
    python -m recipes.tag --data.train a.conll --data.validation b.conll --run_folder runs/mine

The same command resumes an interrupted run.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import zoo
from recipes.common.charts import plot_confusion
from recipes.common.config import run_recipe, setting
from recipes.common.data_sets import open_parts
from recipes.common.encoder_recipe import (
    EncoderModelConfig,
    EncoderTokenizerConfig,
    EncoderTrainingConfig,
    train_encoder_task,
)
from recipes.common.finish import finish
from recipes.common.label_metrics import tag_scores
from recipes.common.labelled_text import require_known_labels, unknown_labels
from recipes.common.models import make_or_load_task
from recipes.common.run_folder import RunFolder
from recipes.common.tagged_words import TAGGED, TaggedWords, read_tagged
from recipes.common.training import prepare


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """Where the sentences come from."""

    train: list[str] = setting(["date_parts"], "CoNLL or CoNLL-U files (or .gz), or the name of a data set.")
    validation: list[str] = setting([], "Likewise; empty for the validation part of the data set that train names.")
    test: list[str] = setting([], "Likewise; empty for the test part of the data set, or else the validation part.")
    word_column: int = setting(1, "Number of the column of the word, from 1.", least=1)
    tag_column: int = setting(2, "Number of the column of the tag, from 1.", least=1)
    on_error: Literal["raise", "skip"] = setting("raise", "At a malformed line: stop, or skip and count the sentence.")


@dataclasses.dataclass(frozen=True)
class TagConfig:
    """Trains a tagger of words and exports it as a SavedModel that tags strings."""

    run_folder: str = setting("runs/tag", "Folder of the run; the same command resumes what it holds.")
    data: DataConfig = DataConfig()
    tokenizer: EncoderTokenizerConfig = EncoderTokenizerConfig()
    model: EncoderModelConfig = EncoderModelConfig()
    training: EncoderTrainingConfig = EncoderTrainingConfig()
    export: bool = setting(True, "Whether to write the SavedModel.", harmless=True)


def main(config: TagConfig) -> dict[str, Any]:
    """Runs the recipe.

    Args:
        config: The configuration.

    Returns:
        The results, as written to `results.json` in the run folder.
    """
    started = time.monotonic()
    prepare(config)
    with RunFolder(config.run_folder, config) as run:
        columns = {"word_column": config.data.word_column, "tag_column": config.data.tag_column}
        train, validation, test = open_parts(config.data, TAGGED, lambda files, bad: read_tagged(files, bad, **columns))
        labels = sorted({tag for sentence in train for tag in sentence.tags})
        task = make_or_load_task(
            zoo.TokenClassifier,
            config.model,
            config.tokenizer,
            run,
            lambda: (" ".join(sentence.words) for sentence in train),
            labels=labels,
            truncate=True,
        )
        require_known_labels(labels, ((sentence.tags, sentence.origin) for sentence in validation))
        unknown = unknown_labels(labels, [(sentence.tags, sentence.origin) for sentence in test], "tag")
        seconds, _ = train_encoder_task(
            task, run, config.training, _columns(train), _columns(validation), metric="accuracy", mode="max"
        )
        words, truth = _columns(test)
        predicted = task.tag(words)
        tags = [[tag for row in rows for tag in row] for rows in (truth, predicted)]
        plot_confusion(*tags, run.plots / "confusion.png", "Words of the test sentences")
        results = {
            "parameters": task.count_params(),
            "test_sentences": len(words),
            "test_words": sum(map(len, words)),
            **unknown,
            **tag_scores(truth, predicted),
            "training_seconds": round(seconds, 1),
        }
        export = {} if config.export else None
        trial = functools.partial(try_export, task, words[:3])
        return finish(run, "tag", task, results, started, export=export, trial=trial)


def try_export(
    task: zoo.TokenClassifier, sentences: Sequence[Sequence[str]], served: Any
) -> Iterable[tuple[str, list[str], list[str]]]:
    """Returns sentences as texts, the tags that a SavedModel gives their words, and those that the task gives.

    Args:
        task: The task.
        sentences: Words of each sentence. As texts they may have more: both split "'s" into two.
        served: The loaded SavedModel.
    """
    texts = [" ".join(sentence) for sentence in sentences]
    tags = [[tag.decode() for tag in row if tag] for row in served.serve(texts)["tags"].numpy()]
    return zip(texts, tags, task.tag(texts), strict=True)


def _columns(sentences: Sequence[TaggedWords]) -> tuple[list[list[str]], list[list[str]]]:
    return [list(sentence.words) for sentence in sentences], [list(sentence.tags) for sentence in sentences]


if __name__ == "__main__":
    run_recipe(main, TagConfig, "tag")
