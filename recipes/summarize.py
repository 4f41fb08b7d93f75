"""Summarize: from texts with summaries to a SavedModel that takes a text and returns its summary.

    python -m recipes.summarize                                      # learns to take dates out of notes, in minutes
    python -m recipes.summarize --config recipes/configs/scitldr.yaml
    python -m recipes.summarize --data.train a.jsonl --data.validation b.jsonl --run_folder runs/mine

The model and its training are those of `recipes.translate`; data, lengths and scores differ. The same command resumes
an interrupted run.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable
from typing import Any, Literal

import zoo
from recipes.common import command_line
from recipes.common.config import setting
from recipes.common.finish import decoded, finish, make_sampler, make_task, start_from
from recipes.common.named_data import open_parts
from recipes.common.parallel_text import TextPair
from recipes.common.run_folder import RunFolder
from recipes.common.seq2seq_recipe import (
    JointTokenizerConfig,
    Seq2SeqTrainingConfig,
    compile_seq2seq,
    draw_seq2seq,
    make_pair_batches,
    pairs_that_fit,
    train_seq2seq,
)
from recipes.common.summaries import Summary, open_summaries
from recipes.common.text_metrics import rouge
from recipes.common.tokenizers import load_or_train_tokenizer
from recipes.common.training import prepare


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """Where the texts come from."""

    train: list[str] = setting(["date_notes"], "JSON-lines, TSV or CSV files (or .gz), or the name of a data set.")
    validation: list[str] = setting([], "Likewise; empty for the validation part of the data set that train names.")
    test: list[str] = setting([], "Likewise; empty for the test part of the data set, or else the validation part.")
    keys: list[str] = setting(["source", "target"], "Keys, or columns, of text and summary; either may be a list.")
    on_error: Literal["raise", "skip"] = setting("raise", "At a malformed row: stop, or skip and count it.")
    max_text_length: int = setting(128, "Longest text in tokens, end token included; longer ones are dropped, counted.")
    max_summary_length: int = setting(32, "Longest summary likewise.")


@dataclasses.dataclass(frozen=True)
class SummaryTokenizerConfig(JointTokenizerConfig):
    """The tokenizer, trained on texts and summaries."""

    vocabulary_size: int = setting(300, "Number of tokens, special ones included.")


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """The architecture."""

    preset: str = setting("transformer_tiny", "A name of zoo.list_presets().")
    options: dict[str, Any] = setting({"num_layers": 2, "dropout": 0.1}, "Choices that differ from the preset.")
    start_from: str | None = setting(None, "Saved Seq2SeqLM, or one of the Transformers library, to start from.")


@dataclasses.dataclass(frozen=True)
class SummarizeConfig:
    """Trains an encoder-decoder to summarize and exports it as a SavedModel from strings to strings."""

    run_folder: str = setting("runs/summarize", "Folder of the run; the same command resumes what it holds.")
    data: DataConfig = DataConfig()
    tokenizer: SummaryTokenizerConfig = SummaryTokenizerConfig()
    model: ModelConfig = ModelConfig()
    training: Seq2SeqTrainingConfig = Seq2SeqTrainingConfig()
    sampler: dict[str, Any] = setting({"name": "greedy"}, "How test texts and the export are decoded.", harmless=True)
    export: bool = setting(True, "Whether to write the SavedModel.", harmless=True)


def main(config: SummarizeConfig) -> dict[str, Any]:
    """Runs the recipe.

    Args:
        config: The configuration.

    Returns:
        The results, as written to `results.json` in the run folder.
    """
    started = time.monotonic()
    prepare(config.training)
    data, sampler = config.data, make_sampler(config.sampler)
    with RunFolder(config.run_folder, config) as run:
        training, validation, test = open_parts(
            data, lambda files, split: open_summaries(files, split, keys=data.keys, on_error=data.on_error)
        )
        task = make_model(config, run, training)
        batches, held_out = make_pair_batches(
            config.training,
            task,
            _pairs(training),
            _pairs(validation),
            max_source_length=data.max_text_length,
            max_target_length=data.max_summary_length,
        )
        compile_seq2seq(task, config.training, batches)
        seconds = train_seq2seq(task, run, config.training, batches, held_out, _pairs(validation))
        texts = [row.text for row in test]
        options = {"sampler": sampler, "max_length": data.max_summary_length}
        outputs = task.generate(texts, truncate=True, **options)
        rows = zip(test, outputs, strict=True)
        run.write_text("samples/test.tsv", "".join(f"{row.text}\t{out}\t{row.summaries[0]}\n" for row, out in rows))
        shown = [pair.source for pair in pairs_that_fit(task, _pairs([*test, *validation]), 3)]
        draw_seq2seq(run, task, shown[0])
        results = {
            "parameters": task.count_params(),
            "test_texts": len(test),
            **rouge(outputs, [row.summaries for row in test]),
            "training_seconds": round(seconds, 1),
        }

        def trial(served: Any) -> Iterable[tuple[str, str, str]]:
            return zip(shown, decoded(served.serve(shown)), task.generate(shown, **options), strict=True)

        return finish(run, "summarize", task, results, started, export=options if config.export else None, trial=trial)


def _pairs(rows: list[Summary]) -> list[TextPair]:
    return [TextPair(row.text, row.summaries[0], row.origin) for row in rows]


def make_model(config: SummarizeConfig, run: RunFolder, training: list[Summary]) -> zoo.Seq2SeqLM:
    """Returns the model with initial weights, or a saved one."""
    if config.model.start_from is not None:
        return start_from(zoo.Seq2SeqLM, config.model.start_from)
    texts = (text for row in training for text in (row.text, *row.summaries))
    tokenizer = load_or_train_tokenizer(config.tokenizer, run, texts)
    options = {"max_length": config.data.max_text_length, **config.model.options}
    return make_task(zoo.Seq2SeqLM, config.model.preset, tokenizer, options)


if __name__ == "__main__":
    command_line.run(main, SummarizeConfig, "summarize")
