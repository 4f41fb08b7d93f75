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

import numpy as np

import zoo
from recipes.common import command_line
from recipes.common.batching import PairBatches
from recipes.common.config import setting
from recipes.common.errors import ConfigError, DataError
from recipes.common.finish import decoded, finish, make_task
from recipes.common.language_tokens import LanguageTokenPairs, scores_by_language
from recipes.common.named_data import part_files
from recipes.common.parallel_datasets import open_pairs
from recipes.common.parallel_text import TextPair
from recipes.common.run_folder import RunFolder
from recipes.common.text_metrics import translation_scores
from recipes.common.tokenizers import TokenizerConfig, load_or_train_tokenizer
from recipes.common.training import TrainingConfig, make_optimizer, prepare, train
from zoo.generation import get_sampler
from zoo.inspect import plot_attention, plot_position_encoding
from zoo.tokenizers import Tokenizer
from zoo.training import TokenCount, TokenCrossEntropy, TokenNegativeLogLikelihood


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
class JointTokenizerConfig(TokenizerConfig):
    """The tokenizer, trained on both sides of the training data."""

    kind: Literal["bpe", "unigram"] = setting("bpe", "Kind of SentencePiece model.")
    vocabulary_size: int = setting(110, "Number of tokens, special ones included.")
    split_digits: bool = setting(True, "Whether each digit is a token of its own.")


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """The architecture."""

    preset: str = setting("transformer_tiny", "A name of zoo.list_presets().")
    options: dict[str, Any] = setting({"num_layers": 2, "dropout": 0.1}, "Choices that differ from the preset.")


@dataclasses.dataclass(frozen=True)
class TranslateTrainingConfig(TrainingConfig):
    """How the model is trained."""

    # the schedule does not depend on how long the training is, so a resumed run may be longer
    epochs: int = setting(5, "Most passes over the training data.", harmless=True)
    schedule: Literal["inverse_square_root"] = setting(
        "inverse_square_root", "How the learning rate falls after the warm-up."
    )
    optimizer: Literal["adam"] = setting("adam", "The optimizer.")
    learning_rate: float = setting(0.002, "Peak of the learning rate.")
    warmup_steps: float = setting(300, "Updates up to the peak; below 1 their share of all updates.")
    beta_2: float = setting(0.98, "Adam's second decay rate.")
    epsilon: float = setting(1e-9, "Adam's epsilon.")
    clip_norm: float | None = setting(None, "Norm that the whole gradient is clipped to.")
    tokens_per_batch: int = setting(4096, "Tokens of a batch: source and target together, padding included.")
    number_of_buckets: int = setting(6, "Most distinct lengths that sentences are padded to.")
    label_smoothing: float = setting(0.1, "Probability mass spread over the vocabulary.")


@dataclasses.dataclass(frozen=True)
class TranslateConfig:
    """Trains an encoder-decoder on parallel text and exports it as a SavedModel from strings to strings."""

    run_folder: str = setting("runs/dates", "Folder of the run; the same command resumes what it holds.")
    data: DataConfig = DataConfig()
    tokenizer: JointTokenizerConfig = JointTokenizerConfig()
    model: ModelConfig = ModelConfig()
    training: TranslateTrainingConfig = TranslateTrainingConfig()
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
    if config.data.max_length > 1 << 16 or config.data.max_length < 2:
        raise ConfigError(f"data.max_length must be from 2 to 65536, got {config.data.max_length}")
    if config.data.language_tokens and config.data.target_language is not None:
        raise ConfigError(
            f"data.target_language must be null where data.language_tokens name several, got "
            f"{config.data.target_language!r}"
        )
    sampler = get_sampler(config.sampler)
    prepare(config.training)
    with RunFolder(config.run_folder, config) as run:
        train, validation, test = (open_split(config.data, split) for split in ("train", "validation", "test"))
        if train is None or validation is None:
            raise DataError("data.train and data.validation must be given (or a data set that has both parts)")
        texts = (text for pair in train for text in (pair.source, pair.target))
        tokenizer = load_or_train_tokenizer(config.tokenizer, run, texts, special_tokens=config.data.language_tokens)
        batches, validation_batches = make_batches(config, tokenizer, train, validation)
        model = make_model(config, tokenizer, batches.number_of_batches)
        training_seconds = train_model(config, run, model, batches, validation_batches, list(validation))
        examples = list(test or validation)
        results = evaluate(config, run, model, sampler, validation_batches, examples)
        draw(run, model, examples)
        results["training_seconds"] = round(training_seconds, 1)
        sources = [pair.source for pair in examples[:3]]

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


def make_batches(
    config: TranslateConfig, tokenizer: Tokenizer, train: Iterable[TextPair], validation: Iterable[TextPair]
) -> tuple[PairBatches, PairBatches]:
    """Returns training and validation batches, and says what was left out."""

    def make(name: str, pairs: Iterable[TextPair], shuffle: bool) -> PairBatches:
        batches = PairBatches(
            pairs,
            tokenizer,
            tokens_per_batch=config.training.tokens_per_batch,
            max_source_length=config.data.max_length,
            max_target_length=config.data.max_length,
            number_of_buckets=config.training.number_of_buckets,
            shuffle=shuffle,
            seed=config.training.seed,
        )
        print(
            f"{name}: {batches.number_of_pairs} pairs, {batches.number_of_tokens} tokens, "
            f"{batches.number_of_batches} batches of lengths {batches.bucket_lengths}; {batches.dropped.report()}"
        )
        skipped = getattr(pairs, "bad_lines", None)
        if skipped:
            print(f"{name}: {skipped.report()}")
        return batches

    return make("training", train, True), make("validation", validation, False)


def make_model(config: TranslateConfig, tokenizer: Tokenizer, batches: int) -> zoo.Seq2SeqLM:
    """Returns the compiled model with initial weights."""
    options = {"max_length": config.data.max_length, **config.model.options}
    model = make_task(zoo.Seq2SeqLM, config.model.preset, tokenizer, options)
    training = config.training
    model.compile(
        optimizer=make_optimizer(training, batches, model),
        loss=TokenCrossEntropy(training.label_smoothing),
        weighted_metrics=[TokenNegativeLogLikelihood(name="nll"), TokenCount()],
        jit_compile=training.jit_compile,
    )
    return model


def train_model(
    config: TranslateConfig,
    run: RunFolder,
    model: zoo.Seq2SeqLM,
    batches: PairBatches,
    validation_batches: PairBatches,
    validation: list[TextPair],
) -> float:
    """Trains the model, showing translations at every validation, and returns the seconds of this process."""
    pairs = validation[: config.training.samples]

    def samples() -> list[str]:
        outputs = model.generate([pair.source for pair in pairs], jit_compile=False)
        return [
            f"{pair.source}\n  -> {output}\n   ({pair.target})" for pair, output in zip(pairs, outputs, strict=True)
        ]

    return train(
        model,
        run,
        config.training,
        batches,
        validation_batches.dataset,
        curves={"training, smoothed": "loss", "training": "nll", "validation": "val_nll"},
        monitor="val_nll",
        samples=samples,
    )


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


def draw(run: RunFolder, model: zoo.Seq2SeqLM, test: list[TextPair]) -> None:
    """Draws cross-attention with tokens on the axes, and the position encoding, where the model has them."""
    position = getattr(model.backbone.decoder, "position_embedding", None)
    if position is not None:
        encoding = position(np.arange(min(100, model.backbone.config.max_length)))
        plot_position_encoding(np.asarray(encoding, "float32"), run.plots / "positions.png")
    pair = test[0]
    tokenizer = model.tokenizer
    output = model.generate(pair.source, jit_compile=False, truncate=True)
    inputs, labels, _ = model.preprocess([pair.source], [output])
    cross_attention = model.backbone.attention_weights(inputs).get("cross")
    if not cross_attention:
        return
    tokens = [
        [tokenizer.id_to_token(int(token_id)).replace("\u2581", " ") for token_id in np.asarray(ids)[0]]
        for ids in (labels, inputs["encoder_token_ids"])
    ]
    plot_attention(
        np.mean(np.asarray(cross_attention[-1], "float32")[0], axis=0),
        *tokens,
        run.plots / "cross_attention.png",
        title="Cross-attention of the last block, mean over heads",
    )


if __name__ == "__main__":
    command_line.run(main, TranslateConfig, "translate")
