"""Trains a language model on running text, and exports it.

    python -m recipes.language_model                                              # learns to write dates, in minutes
    python -m recipes.language_model --config recipes/configs/shakespeare_char.yaml
    python -m recipes.language_model --data.train a.txt b.txt --data.validation c.txt --run_folder runs/mine
    python -m recipes.language_model --model.start_from hf://openai-community/gpt2 --data.train a.txt ...
    python -m recipes.language_model --data.train corpus --training.length 1024 ...    # of recipes.prepare_text

The text is cut into windows, or with `--data.packing documents` packed in rows where no document sees another. A
prepared corpus may be larger than the memory. The same command resumes an interrupted run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Literal

import zoo
from recipes.common import batching
from recipes.common.config import run_recipe, setting
from recipes.common.corpus.shards import Corpus
from recipes.common.data.data_config import TextDataConfig
from recipes.common.errors import ConfigError
from recipes.common.evaluation.evaluation import Evaluation
from recipes.common.evaluation.held_out import HeldOut, open_text
from recipes.common.evaluation.likelihoods import evaluate_language_model
from recipes.common.finish import Outcome, decoded
from recipes.common.run_folder import RunFolder
from recipes.common.runner import Recipe
from recipes.common.saved_models import make_sampler
from recipes.common.training.corpora import (
    TRAIN_HELP,
    WEIGHTS_HELP,
    adopt_tokenizer,
    check_tokenizer,
    open_corpora,
    open_running_text,
)
from recipes.common.training.fitting import TrainingConfig, compile_model, prepare, token_metrics, train
from recipes.common.training.models import ModelConfig, make_or_load_task
from recipes.common.training.optimizers import LEARNING_RATE_HELP
from recipes.common.training.tokenizers import TokenizerConfig

# tokens of a batch, and windows of an epoch: what fits in the memory
_MOST_NUMBERS = 1 << 26


@dataclasses.dataclass(frozen=True)
class DataConfig(TextDataConfig):
    """Where the text comes from."""

    train: list[str] = setting(["date_lines"], TRAIN_HELP, offers="paths")
    weights: list[float] = setting([], WEIGHTS_HELP)
    unit: Literal["file", "paragraph", "line"] = setting(
        "file", "Which part of a file is a document.", describes_files=True
    )
    packing: Literal["windows", "documents"] = setting(
        "windows",
        "windows: windows of all documents joined. documents: rows of whole documents that do not "
        "attend to each other.",
    )


@dataclasses.dataclass(frozen=True)
class LanguageTokenizerConfig(TokenizerConfig):
    """The tokenizer."""

    kind: Literal["characters", "bytes", "byte_level_bpe", "bpe", "unigram"] = setting(
        "characters", "Kind of tokenizer. bpe and unigram are SentencePiece models."
    )


@dataclasses.dataclass(frozen=True)
class DecoderConfig(ModelConfig):
    """The model: a new one by preset and options, or a saved one by start_from, and which of its weights train."""

    preset: str = setting(
        "llama_shakespeare", "Name of the preset of a new model, one of zoo.list_presets().", offers="presets"
    )


@dataclasses.dataclass(frozen=True)
class LanguageTrainingConfig(TrainingConfig):
    """How the model is trained."""

    epochs: int = setting(6, "Number of parts of the training, with a validation after each.")
    batches_per_epoch: int = setting(
        250, "Number of batches per epoch: of random windows, or of all documents in turn.", least=1, most=10**5
    )
    batch_size: int = setting(32, "Number of windows or rows per batch.", least=1, most=1 << 14)
    length: int = setting(64, "Number of tokens of a window or row.", least=1, most=1 << 16)
    learning_rate: float | None = setting(None, LEARNING_RATE_HELP.format("0.003"))
    new_model_learning_rate: ClassVar[float] = 0.003
    beta_2: float = setting(0.99, "Adam's second decay rate.")
    weight_decay: float = setting(0.1, "Decoupled weight decay, applied to matrices.")
    label_smoothing: float = setting(
        0.0, "Probability mass that label smoothing spreads over the vocabulary.", least=0, below=1
    )


@dataclasses.dataclass(frozen=True)
class LanguageModelConfig:
    """Trains a decoder on running text and exports it as a SavedModel that continues strings."""

    run_folder: str = setting(
        "runs/language_model", "Folder of the run. The same command resumes the run in it.", offers="paths"
    )
    data: DataConfig = DataConfig()
    tokenizer: LanguageTokenizerConfig = LanguageTokenizerConfig()
    model: DecoderConfig = DecoderConfig()
    training: LanguageTrainingConfig = LanguageTrainingConfig()
    prompts: list[str] | None = setting(
        None, "Texts that samples continue. null: the first words of lines of the validation text.", may_change=True
    )
    sampler: dict[str, Any] = setting(
        {"name": "sample", "temperature": 0.8}, "Sampler for samples and the export.", may_change=True
    )
    new_tokens: int = setting(48, "Largest number of tokens of a continuation.", may_change=True, least=1, most=1 << 16)
    export: bool = setting(True, "Whether to write the SavedModel.", may_change=True)


def steps(config: LanguageModelConfig, run: RunFolder) -> Outcome:
    """Reads the data, makes the model, trains and measures it."""
    sampler = make_sampler(config.sampler)
    corpora = open_corpora(config, run)
    train_text, validation_text = open_running_text(config.data, corpora, run)
    task = make_model(config, run, train_text, corpora)
    prompts = config.prompts
    if prompts is None:
        prompts = first_words(validation_text, task.backbone.config.max_length)
    check_prompts(prompts, task)
    batches, validation = make_batches(config, task, train_text, validation_text, corpora)

    def samples() -> list[str]:
        return task.generate(prompts, sampler=sampler, max_new_tokens=config.new_tokens, jit_compile=False)

    train(
        task,
        run,
        config.training,
        batches,
        validation.dataset,
        curves={"training": "nll", "validation": "val_nll"},
        monitor="val_nll",
        samples=samples,
    )
    packed = config.data.packing == "documents"
    evaluation = evaluate_language_model(task, validation_text, length=config.training.length, packed=packed)
    results = {f"validation_{name}": value for name, value in evaluation.scores.items() if name != "window"}
    options = {"sampler": sampler, "max_new_tokens": config.new_tokens}

    texts = prompts[:3]

    def trial(served: Any) -> Iterable[tuple[str, str, str]]:
        return zip(texts, decoded(served.serve(texts)), task.generate(texts, **options), strict=True)

    return Outcome(task, results, trial, texts, export=options | {"sampler": config.sampler})


def check(config: LanguageModelConfig) -> None:
    """Checks what can be checked before the data are read, and makes ready for a model."""
    prepare(config)
    make_sampler(config.sampler)
    training = config.training
    if training.batch_size * max(training.length, training.batches_per_epoch) > _MOST_NUMBERS:
        raise ConfigError(
            f"training.batch_size must be at most {_MOST_NUMBERS} divided by training.length {training.length} and by "
            f"training.batches_per_epoch {training.batches_per_epoch}, got {training.batch_size}"
        )


def make_batches(
    config: LanguageModelConfig,
    task: zoo.CausalLM,
    train_text: list[str],
    validation_text: list[str],
    corpora: Sequence[Corpus] = (),
) -> tuple[
    batching.TokenWindows | batching.PackedDocuments | batching.CorpusRows,
    batching.TokenWindows | batching.PackedDocuments,
]:
    """Returns batches of the training text, and those of the validation text, which hold every token once."""
    training = config.training
    shape = {"length": training.length, "batch_size": training.batch_size}
    held_out = {"length": training.length, "batch_size": 64}
    count, seed = training.batches_per_epoch, training.seed
    separate = config.data.packing == "documents"
    if separate:
        validation = batching.PackedDocuments(task, validation_text, **held_out)
    else:
        validation = batching.TokenWindows(task.tokenizer.tokenize(validation_text).values.numpy(), **held_out)
    if corpora:
        batches = batching.CorpusRows(
            corpora,
            separate=separate,
            batch_size=training.batch_size,
            batches_per_epoch=count,
            weights=config.data.weights or None,
            seed=seed,
        )
    elif separate:
        batches = batching.PackedDocuments(task, train_text, batches_per_epoch=count, seed=seed, **shape)
    else:
        ids = task.tokenizer.tokenize(train_text).values.numpy()
        batches = batching.TokenWindows(ids, random_windows=count, seed=seed, **shape)
    print(f"training: {batches.number_of_tokens} tokens; validation: {validation.number_of_tokens} tokens")
    return batches, validation


def first_words(documents: Sequence[str], max_length: int) -> list[str]:
    """Returns the first two words of three lines from all over a text.

    Args:
        documents: Parts of the text.
        max_length: Tokens that the model takes.

    Example:

    >>> first_words(["The film was good.", "I left."], 64)
    ['The film', 'I left.']
    """
    # a character has at most four tokens
    most = min(20, max(1, (max_length - 3) // 4))
    lines = [line.split() for document in documents for line in document.splitlines() if line.strip()]
    return [" ".join(words[:2])[:most] for words in lines[:: max(1, -(-len(lines) // 3))]]


def check_prompts(prompts: Sequence[str], task: zoo.CausalLM) -> None:
    """Raises a `ConfigError` for a prompt that the model cannot continue, before the training and not after it."""
    if not prompts:
        raise ConfigError("prompts must hold at least one text")
    most = task.backbone.config.max_length - 1
    for prompt, length in zip(prompts, task.preprocessor.prompt_ids(prompts).row_lengths().numpy(), strict=True):
        if not 1 <= length <= most:
            raise ConfigError(f"prompts must have 1 to {most} tokens each, got {prompt!r} with {length}")


def make_model(
    config: LanguageModelConfig, run: RunFolder, texts: Sequence[str], corpora: Sequence[Corpus] = ()
) -> zoo.CausalLM:
    """Returns the compiled model, new or a saved one."""
    options: dict[str, Any] = {}
    if corpora and config.model.start_from is None:
        adopt_tokenizer(corpora, run)
        options["add_start_token"] = corpora[0].start_id is not None
    elif config.model.start_from is None:
        # a window has no beginning that a start token could mark; a saved model goes on as it is
        options["add_start_token"] = False if config.data.packing == "windows" else None
    defaults = {"max_length": config.training.length}
    task = make_or_load_task(
        zoo.CausalLM, config.model, config.tokenizer, run, lambda: texts, defaults=defaults, **options
    )
    if task.backbone.config.max_length < config.training.length:
        raise ConfigError(
            f"training.length must be at most the model's max_length={task.backbone.config.max_length}, got "
            f"{config.training.length}"
        )
    if corpora:
        check_corpora(config, task, corpora)
    loss = zoo.training.TokenCrossEntropy(config.training.label_smoothing)
    batches = config.training.batches_per_epoch
    compile_model(task, run, config.training, batches, loss=loss, weighted_metrics=token_metrics())
    return task


def check_corpora(config: LanguageModelConfig, task: zoo.CausalLM, corpora: Sequence[Corpus]) -> None:
    """Raises a `ConfigError` for corpora that were prepared otherwise than the run needs them."""
    check_tokenizer(corpora, task.tokenizer)
    path, length, begins = corpora[0].path, corpora[0].length, corpora[0].start_id is not None
    if config.training.length != length:
        raise ConfigError(f"training.length must be {length}, as the rows of {path} have, got {config.training.length}")
    if config.data.packing == "documents" and task.preprocessor.adds_start_token != begins:
        raise ConfigError(
            f"data.train: the documents of {path} begin {'with the' if begins else 'without a'} start token, those of "
            f"the model {'without' if begins else 'with'} one: prepare_text --start_token {str(not begins).lower()}"
        )


def evaluate(task: Any, held_out: HeldOut) -> tuple[Evaluation, int]:
    """Returns what a model makes of data, read and measured as a run does, and how many rows were left out."""
    data = held_out.data
    documents, left_out = open_text(held_out)
    length = held_out.length
    if length is None and held_out.config is not None:
        length = held_out.config.training.length
    return evaluate_language_model(task, documents, length=length, packed=data.packing == "documents"), left_out


main = Recipe("language_model", steps, check, kinds=("CausalLM",), evaluate=evaluate, takes="length")


if __name__ == "__main__":
    run_recipe(main, LanguageModelConfig, "language_model")
