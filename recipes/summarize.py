"""Trains a model that summarizes texts, and exports it.

    python -m recipes.summarize                                      # learns to take dates out of notes, in minutes
    python -m recipes.summarize --config recipes/configs/scitldr.yaml
    python -m recipes.summarize --data.train a.jsonl --data.validation b.jsonl --run_folder runs/mine

The model and its training are those of `recipes.translate`; data, lengths and scores differ. The same command resumes
an interrupted run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import zoo
from recipes.common.config import run_recipe, setting
from recipes.common.data.data_config import TestedDataConfig
from recipes.common.data.data_sets import Source, TextPair, open_parts
from recipes.common.data.summaries import SUMMARIES, Summary, read_summaries
from recipes.common.evaluation.evaluation import Evaluation
from recipes.common.evaluation.generated_texts import evaluate_summaries
from recipes.common.evaluation.held_out import OF_TRAINING, HeldOut, open_rows
from recipes.common.finish import Outcome, decoded
from recipes.common.run_folder import RunFolder
from recipes.common.runner import Recipe
from recipes.common.saved_models import make_sampler
from recipes.common.training.fitting import prepare
from recipes.common.training.models import make_or_load_task
from recipes.translate import (
    OUTPUT_COLUMNS,
    JointTokenizerConfig,
    Seq2SeqModelConfig,
    Seq2SeqTrainingConfig,
    draw_seq2seq,
    pairs_that_fit,
    train_seq2seq,
)


@dataclasses.dataclass(frozen=True)
class DataConfig(TestedDataConfig):
    """Where the texts come from."""

    train: list[str] = setting(
        ["date_notes"], "JSON-lines, TSV or CSV (or .gz) or Parquet files, or a data set.", offers="paths"
    )
    keys: list[str] = setting(
        ["source", "target"], "Keys or columns of text and summary. Either may be a list.", describes_files=True
    )
    header: bool | None = setting(
        None,
        "Whether the first row of a table names its columns. null: yes if columns are given by name.",
        describes_files=True,
    )
    max_text_length: int = setting(
        128,
        "Largest number of tokens of a text, including the end token. Longer texts are dropped and counted.",
        least=2,
        most=1 << 16,
    )
    max_summary_length: int = setting(
        32,
        "Largest number of tokens of a summary, including the end token. Longer summaries are dropped and counted.",
        least=2,
        most=1 << 16,
    )
    target_language: str | None = setting(
        None,
        "Two-letter code of the language of the summaries. en: ROUGE stems words, as papers on English report it.",
        may_change=True,
    )


@dataclasses.dataclass(frozen=True)
class SummaryTokenizerConfig(JointTokenizerConfig):
    """The tokenizer, trained on texts and summaries."""

    vocabulary_size: int = setting(300, "Largest number of tokens in the vocabulary, including special tokens.")


@dataclasses.dataclass(frozen=True)
class SummarizeConfig:
    """Trains an encoder-decoder to summarize and exports it as a SavedModel from strings to strings."""

    run_folder: str = setting(
        "runs/summarize", "Folder of the run. The same command resumes the run in it.", offers="paths"
    )
    data: DataConfig = DataConfig()
    tokenizer: SummaryTokenizerConfig = SummaryTokenizerConfig()
    model: Seq2SeqModelConfig = Seq2SeqModelConfig()
    training: Seq2SeqTrainingConfig = Seq2SeqTrainingConfig()
    sampler: dict[str, Any] | None = setting(
        None, "Sampler for test texts and the export. null: the default of the model, or greedy.", may_change=True
    )
    export: bool = setting(True, "Whether to write the SavedModel.", may_change=True)


def steps(config: SummarizeConfig, run: RunFolder) -> Outcome:
    """Reads the data, makes the model, trains and measures it."""
    data = config.data
    sampler = None if config.sampler is None else make_sampler(config.sampler)
    training, validation, test = open_parts(data, source_of(data), account=run.data)
    task = make_or_load_task(
        zoo.Seq2SeqLM,
        config.model,
        config.tokenizer,
        run,
        lambda: (text for row in training for text in (row.text, *row.summaries)),
        defaults={"max_length": data.max_text_length},
    )
    max_lengths = (data.max_text_length, data.max_summary_length)
    train_seq2seq(task, run, config.training, _pairs(training), _pairs(validation), max_lengths=max_lengths)
    texts = [row.text for row in test]
    options = {"sampler": sampler, "max_length": data.max_summary_length}
    summaries = [row.summaries for row in test]
    evaluation = evaluate_summaries(task, texts, summaries, language=data.target_language, part="test", **options)
    rows = zip(texts, evaluation.outputs, [several[0] for several in summaries], strict=True)
    run.write_rows("samples/test.tsv", [OUTPUT_COLUMNS, *rows])
    shown = [pair.source for pair in pairs_that_fit(task, _pairs([*test, *validation]), 3)]
    run.final_steps.add("plots", draw_seq2seq, run, task, shown[0])

    def trial(served: Any) -> Iterable[tuple[str, str, str]]:
        return zip(shown, decoded(served.serve(shown)), task.generate(shown, **options), strict=True)

    return Outcome(task, evaluation.results(), trial, shown, options | {"sampler": config.sampler}, test == validation)


def check(config: SummarizeConfig) -> None:
    """Checks what can be checked before the data are read, and makes ready for a model."""
    if config.sampler is not None:
        make_sampler(config.sampler)
    prepare(config)


def source_of(data: DataConfig) -> Source:
    """Returns how texts and summaries are read."""
    return Source(SUMMARIES, lambda files, bad: read_summaries(files, bad, keys=data.keys, header=data.header))


def _pairs(rows: list[Summary]) -> list[TextPair]:
    return [TextPair(row.text, row.summaries[0], row.origin) for row in rows]


def evaluate(task: Any, held_out: HeldOut) -> tuple[Evaluation, int]:
    """Returns what a model makes of data, read and measured as a run does, and how many rows were left out."""
    held_out.refuse("max_text_length", because=OF_TRAINING)
    data = held_out.data
    rows, left_out = open_rows(held_out, source_of(data))
    is_known = held_out.config is not None or "max_summary_length" in held_out.given
    longest = {"max_length": data.max_summary_length} if is_known else {}
    texts, summaries = [row.text for row in rows], [row.summaries for row in rows]
    decoding = {**longest, **held_out.decoding()}
    return evaluate_summaries(task, texts, summaries, language=data.target_language, **decoding), left_out


main = Recipe("summarize", steps, check, kinds=("Seq2SeqLM",), evaluate=evaluate, takes="options")


if __name__ == "__main__":
    run_recipe(main, SummarizeConfig, "summarize")
