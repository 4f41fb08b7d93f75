"""Translate: from parallel text to a SavedModel that takes a sentence and returns one.

    python -m recipes.translate                                              # learns to read dates, in minutes
    python -m recipes.translate --config recipes/configs/multi30k_tiny.yaml  # Multi30k English-German
    python -m recipes.translate --data.train a.en a.de --data.validation b.en b.de --run_folder runs/mine
    python -m recipes.translate --config recipes/configs/multi30k_en_de_fr.yaml  # into two languages

With `--data.language_tokens "<2de>" "<2fr>"` sources begin with one of these tokens, which names the language of the
target (Johnson et al. 2017). The same command resumes an interrupted run.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable
from typing import Any, Literal

import zoo
from recipes.common import command_line
from recipes.common.batching import PairBatches
from recipes.common.config import setting
from recipes.common.errors import ConfigError, DataError
from recipes.common.finish import decoded, finish, make_sampler, make_task
from recipes.common.language_tokens import LanguageTokenPairs, scores_by_language
from recipes.common.named_data import part_files
from recipes.common.parallel_datasets import open_pairs
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
from recipes.common.text_metrics import translation_scores
from recipes.common.tokenizers import load_or_train_tokenizer
from recipes.common.training import prepare


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """Where the text comes from."""

    train: list[str] = setting(["dates"], "Two aligned files, one TSV or JSON-lines file (or .gz), or a data set.")
    validation: list[str] = setting([], "Likewise; empty for the validation part of the data set that train names.")
    test: list[str] = setting([], "Likewise; empty for the test part of the data set that train names.")
    columns: int = setting(2, "Columns of a TSV file; the first two are source and target.")
    keys: list[str] = setting(["source", "target"], "Keys of source and target in JSON lines.")
    on_error: Literal["raise", "skip"] = setting("raise", "At a malformed row: stop, or skip and count it.")
    max_length: int = setting(128, "Longest sentence in tokens, end token included; longer ones are dropped, counted.")
    target_language: str | None = setting(None, "Two-letter code; with it tokenised BLEU is reported too.")
    language_tokens: list[str] = setting([], "Tokens of which each source begins with one, which names its target.")


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """The architecture."""

    preset: str = setting("transformer_tiny", "A name of zoo.list_presets().")
    options: dict[str, Any] = setting({"num_layers": 2, "dropout": 0.1}, "Choices that differ from the preset.")


@dataclasses.dataclass(frozen=True)
class TranslateConfig:
    """Trains an encoder-decoder on parallel text and exports it as a SavedModel from strings to strings."""

    run_folder: str = setting("runs/dates", "Folder of the run; the same command resumes what it holds.")
    data: DataConfig = DataConfig()
    tokenizer: JointTokenizerConfig = JointTokenizerConfig()
    model: ModelConfig = ModelConfig()
    training: Seq2SeqTrainingConfig = Seq2SeqTrainingConfig()
    sampler: dict[str, Any] = setting({"name": "greedy"}, "How test texts and the export are decoded.", harmless=True)
    export: bool = setting(True, "Whether to write the SavedModel.", harmless=True)


def main(config: TranslateConfig) -> dict[str, Any]:
    """Runs the recipe.

    Args:
        config: The configuration.

    Returns:
        The results, as written to `results.json` in the run folder.
    """
    started = time.monotonic()
    data = config.data
    if data.max_length > 1 << 16 or data.max_length < 2:
        raise ConfigError(f"data.max_length must be from 2 to 65536, got {data.max_length}")
    if data.language_tokens and data.target_language is not None:
        raise ConfigError(
            f"data.target_language must be null where data.language_tokens name several, got {data.target_language!r}"
        )
    sampler = make_sampler(config.sampler)
    prepare(config.training)
    with RunFolder(config.run_folder, config) as run:
        train, validation, test = (open_split(data, split) for split in ("train", "validation", "test"))
        if train is None or validation is None:
            raise DataError("data.train and data.validation must be given (or a data set that has both parts)")
        texts = (text for pair in train for text in (pair.source, pair.target))
        tokenizer = load_or_train_tokenizer(config.tokenizer, run, texts, special_tokens=data.language_tokens)
        length = data.max_length
        options = {"max_length": length, **config.model.options}
        model = make_task(zoo.Seq2SeqLM, config.model.preset, tokenizer, options)
        batches, validation_batches = make_pair_batches(
            config.training, model, train, validation, max_source_length=length, max_target_length=length
        )
        compile_seq2seq(model, config.training, batches)
        training_seconds = train_seq2seq(model, run, config.training, batches, validation_batches, list(validation))
        examples = list(test or validation)
        results = evaluate(config, run, model, sampler, validation_batches, examples)
        results["training_seconds"] = round(training_seconds, 1)
        sources = [pair.source for pair in pairs_that_fit(model, [*examples, *validation], 3)]
        draw_seq2seq(run, model, sources[0])

        def trial(served: Any) -> Iterable[tuple[str, str, str]]:
            outputs = decoded(served.serve(sources))
            return zip(sources, outputs, model.generate(sources, sampler=sampler), strict=True)

        export = {"sampler": sampler} if config.export else None
        return finish(run, "translate", model, results, started, export=export, trial=trial)


def open_split(data: DataConfig, split: str) -> Iterable[TextPair] | None:
    """Returns the pairs of a part, those of the data set that `train` names where the part has no files of its own."""
    files = part_files(data, split)
    if not files:
        return None
    pairs = open_pairs(files, split, columns=data.columns, keys=data.keys, on_error=data.on_error)
    if pairs is None or not data.language_tokens:
        return pairs
    return LanguageTokenPairs(pairs, data.language_tokens, data.on_error)


def evaluate(
    config: TranslateConfig,
    run: RunFolder,
    model: zoo.Seq2SeqLM,
    sampler: Any,
    validation: PairBatches,
    test: list[TextPair],
) -> dict[str, Any]:
    """Translates the test part and returns its scores; writes the translations beside the references."""
    validation_logs = model.evaluate(validation.dataset, return_dict=True, verbose=0)
    started = time.monotonic()
    outputs = model.generate([pair.source for pair in test], sampler=sampler, batch_size=64, truncate=True)
    seconds = time.monotonic() - started
    sources, references = [pair.source for pair in test], [pair.target for pair in test]
    rows = zip(test, outputs, strict=True)
    run.write_text("samples/test.tsv", "".join(f"{pair.source}\t{output}\t{pair.target}\n" for pair, output in rows))
    return {
        "parameters": model.count_params(),
        "validation_nll_per_token": round(float(validation_logs["nll"]), 4),
        "test_sentences": len(test),
        **translation_scores(outputs, references, config.data.target_language),
        **scores_by_language(sources, outputs, references, config.data.language_tokens),
        "sampler": config.sampler,
        "sentences_per_second": round(len(test) / seconds, 1),
    }


if __name__ == "__main__":
    command_line.run(main, TranslateConfig, "translate")
