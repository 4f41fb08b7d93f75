"""Trains a translation model on parallel text, and exports it.

    python -m recipes.translate                                              # learns to read dates, in minutes
    python -m recipes.translate --config recipes/configs/multi30k_tiny.yaml  # Multi30k English-German
    python -m recipes.translate --data.train a.en a.de --data.validation b.en b.de --run_folder runs/mine
    python -m recipes.translate --config recipes/configs/multi30k_en_de_fr.yaml  # into two languages
    python -m recipes.translate --model.start_from hf://Helsinki-NLP/opus-mt-en-de --data.train a.tsv ...

With `--data.language_tokens "<2de>" "<2fr>"` sources begin with one of these tokens, which names the language of the
target (Johnson et al. 2017). The same command resumes an interrupted run.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Literal

import numpy as np

import zoo
from recipes.common import batching
from recipes.common.config import run_recipe, setting
from recipes.common.data.data_config import TestedDataConfig
from recipes.common.data.data_sets import Source, TextPair, open_parts
from recipes.common.data.parallel_text import PARALLEL, check_language_tokens, has_language_token, read_pairs
from recipes.common.errors import ConfigError, shown
from recipes.common.evaluation.evaluation import Evaluation
from recipes.common.evaluation.generated_texts import evaluate_translation
from recipes.common.evaluation.held_out import OF_TRAINING, HeldOut, open_rows
from recipes.common.evaluation.translation_metrics import Tokenization, check_tokenization
from recipes.common.finish import Outcome, decoded
from recipes.common.run_folder import RunFolder
from recipes.common.runner import Recipe
from recipes.common.saved_models import language_tokens_of, make_sampler
from recipes.common.training.fitting import TrainingConfig, compile_model, prepare, token_metrics, train
from recipes.common.training.models import ModelConfig, make_or_load_task
from recipes.common.training.optimizers import (
    LEARNING_RATE_HELP,
    OPTIMIZER_HELP,
    OPTIMIZERS,
    SCHEDULE_HELP,
    SCHEDULE_NAMES,
)
from recipes.common.training.tokenizers import TokenizerConfig

OUTPUT_COLUMNS = ("source", "output", "reference")


@dataclasses.dataclass(frozen=True)
class DataConfig(TestedDataConfig):
    """Where the text comes from."""

    train: list[str] = setting(
        ["dates"],
        "Two aligned files, one TSV, CSV, JSON-lines (or .gz) or Parquet file, or a data set.",
        offers="paths",
    )
    columns: int = setting(
        2,
        "Columns of a TSV or CSV file. The first two are source and target.",
        least=2,
        most=10**6,
        describes_files=True,
    )
    keys: list[str] = setting(
        ["source", "target"], "Keys of source and target in JSON lines, or names in the header.", describes_files=True
    )
    header: bool | None = setting(
        None,
        "Whether the first row of a table names its columns. null: yes if columns are given by name.",
        describes_files=True,
    )
    max_length: int = setting(
        128,
        "Largest number of tokens of a sentence, including the end token. Longer sentences are dropped and counted.",
        least=2,
        most=1 << 16,
    )
    target_language: str | None = setting(
        None,
        "Two-letter code of the target language. With one that Moses tokenises, BLEU of tokenised lower-cased text is "
        "also reported.",
    )
    bleu_tokenization: Tokenization | None = setting(
        None,
        "sacreBLEU's tokenization. null: zh, ja-mecab, ko-mecab, char or 13a, by target_language, or else by the "
        "script of the references.",
        may_change=True,
    )
    language_tokens: list[str] = setting(
        [], "Each source begins with one of these tokens, which names the language of its target."
    )


@dataclasses.dataclass(frozen=True)
class JointTokenizerConfig(TokenizerConfig):
    """The tokenizer, trained on both sides of the training data."""

    kind: Literal["bpe", "unigram"] = setting("bpe", "Kind of SentencePiece model.")
    vocabulary_size: int = setting(110, "Largest number of tokens in the vocabulary, including special tokens.")
    split_digits: bool = setting(True, "Whether each digit is a separate token.")


@dataclasses.dataclass(frozen=True)
class Seq2SeqModelConfig(ModelConfig):
    """The model: a new one by preset and options, or a saved one by start_from, and which of its weights train."""

    preset: str = setting(
        "transformer_tiny", "Name of the preset of a new model, one of zoo.list_presets().", offers="presets"
    )
    options: dict[str, Any] | None = setting(
        None,
        "Choices that differ from the preset. null: 2 layers and dropout 0.1, for the default preset. "
        "A saved model takes dropout and max_length.",
        null_means={"num_layers": 2, "dropout": 0.1},
        unless_changed=("preset", "start_from"),
    )


@dataclasses.dataclass(frozen=True)
class Seq2SeqTrainingConfig(TrainingConfig):
    """How the model is trained."""

    # which does not depend on how long the training is: a resumed run may be longer
    schedule: str = setting("inverse_square_root", SCHEDULE_HELP, offers=SCHEDULE_NAMES)
    optimizer: str = setting("adam", OPTIMIZER_HELP, offers=OPTIMIZERS)
    learning_rate: float | None = setting(None, LEARNING_RATE_HELP.format("0.002"))
    new_model_learning_rate: ClassVar[float] = 0.002
    warmup_steps: float = setting(
        300, "Number of updates of the warm-up. A value below 1 is their share of all updates."
    )
    beta_2: float = setting(0.98, "Adam's second decay rate.")
    epsilon: float = setting(1e-9, "Adam's epsilon.")
    clip_norm: float | None = setting(None, "Largest norm of the whole gradient. Gradients are clipped to it.")
    tokens_per_batch: int = setting(
        4096, "Number of tokens per batch: source and target together, including padding.", least=2, most=1 << 20
    )
    number_of_buckets: int = setting(
        6, "Largest number of different lengths that texts are padded to.", least=1, most=1024
    )
    label_smoothing: float = setting(
        0.1, "Probability mass that label smoothing spreads over the vocabulary.", least=0, below=1
    )
    samples: int = setting(
        4, "Number of texts whose outputs are shown at every validation.", may_change=True, least=0, most=1000
    )


@dataclasses.dataclass(frozen=True)
class TranslateConfig:
    """Trains an encoder-decoder on parallel text and exports it as a SavedModel from strings to strings."""

    run_folder: str = setting(
        "runs/dates", "Folder of the run. The same command resumes the run in it.", offers="paths"
    )
    data: DataConfig = DataConfig()
    tokenizer: JointTokenizerConfig = JointTokenizerConfig()
    model: Seq2SeqModelConfig = Seq2SeqModelConfig()
    training: Seq2SeqTrainingConfig = Seq2SeqTrainingConfig()
    sampler: dict[str, Any] = setting({"name": "greedy"}, "Sampler for test texts and the export.", may_change=True)
    export: bool = setting(True, "Whether to write the SavedModel.", may_change=True)


def steps(config: TranslateConfig, run: RunFolder) -> Outcome:
    """Reads the data, makes the model, trains and measures it."""
    data, tokens = config.data, config.data.language_tokens
    sampler = make_sampler(config.sampler)
    training, validation, test = open_parts(data, source_of(data, tokens), account=run.data)
    model = make_or_load_task(
        zoo.Seq2SeqLM,
        config.model,
        config.tokenizer,
        run,
        lambda: (text for pair in training for text in (pair.source, pair.target)),
        special_tokens=tokens,
        defaults={"max_length": data.max_length},
    )
    require_language_tokens(model, tokens)
    logs = train_seq2seq(
        model, run, config.training, training, validation, max_lengths=(data.max_length, data.max_length)
    )
    generating = time.monotonic()
    sources, references = [pair.source for pair in test], [pair.target for pair in test]
    evaluation = translated(model, test, data, tokens, part="test", sampler=sampler)
    results = {
        "validation_nll_per_token": round(logs["nll"], 4),
        "test_sentences": len(test),
        "test_sources_cut": evaluation.counts["sources_cut"],
        **evaluation.values,
        "sampler": config.sampler,
        "sentences_per_second": round(len(test) / (time.monotonic() - generating), 1),
    }
    run.write_rows("samples/test.tsv", [OUTPUT_COLUMNS, *zip(sources, evaluation.outputs, references, strict=True)])
    shown = [pair.source for pair in pairs_that_fit(model, [*test, *validation], 3)]
    run.final_steps.add("plots", draw_seq2seq, run, model, shown[0])

    def trial(served: Any) -> Iterable[tuple[str, str, str]]:
        return zip(shown, decoded(served.serve(shown)), model.generate(shown, sampler=sampler), strict=True)

    return Outcome(model, results, trial, shown, {"sampler": config.sampler}, test == validation)


def check(config: TranslateConfig) -> None:
    """Checks what can be checked before the data are read, and makes ready for a model."""
    data, tokens = config.data, config.data.language_tokens
    check_language_tokens(tokens)
    check_tokenization("data.bleu_tokenization", data.bleu_tokenization)
    if tokens and data.target_language is not None:
        raise ConfigError(
            f"data.target_language must be null where data.language_tokens name several, got {data.target_language!r}"
        )
    make_sampler(config.sampler)
    prepare(config)


def source_of(data: DataConfig, tokens: Sequence[str]) -> Source:
    """Returns how pairs are read, whose sources begin with a language token where there are some."""
    options = {"columns": data.columns, "keys": data.keys, "header": data.header}
    return Source(
        PARALLEL,
        lambda files, bad: read_pairs(files, bad, **options),
        lambda pair, bad: has_language_token(pair, bad, tokens),
    )


def require_language_tokens(model: zoo.Seq2SeqLM, tokens: Sequence[str]) -> None:
    """Checks that a model that training starts from knows the language tokens, and says which it knows if none is used.

    Args:
        model: The model.
        tokens: The language tokens.

    Raises:
        ConfigError: If it does not know one of them.
    """
    known = language_tokens_of(model)
    for token in tokens:
        if token not in known:
            raise ConfigError(
                f"data.language_tokens must be tokens of the model, which has {shown(known, 200)}, got {token!r}: a "
                "saved model gets no new tokens"
            )
    if known and not tokens:
        print(f"the model has language tokens, which no source needs to begin with: {shown(known, 200)}")


def train_seq2seq(
    model: zoo.Seq2SeqLM,
    run: RunFolder,
    config: Seq2SeqTrainingConfig,
    training: Sequence[TextPair],
    validation: Sequence[TextPair],
    *,
    max_lengths: tuple[int, int],
) -> dict[str, float]:
    """Trains an encoder-decoder on pairs of texts, showing outputs at every validation.

    Args:
        model: The model.
        run: The run folder.
        config: The configuration.
        training: Training pairs.
        validation: Validation pairs, of which the first ones are shown.
        max_lengths: Longest source and longest target in tokens, end token included; pairs with a longer one are
            dropped and counted.

    Returns:
        The metrics of the validation with the weights that were kept.

    Raises:
        ConfigError: If texts may be longer than the model.
    """
    longest, most = max(max_lengths), model.backbone.config.max_length
    if longest > most:
        raise ConfigError(f"the lengths of data must be at most the model's max_length={most}, got {longest}")
    batches, held_out = (
        make_pair_batches(config, model, name, pairs, max_lengths)
        for name, pairs in (("training", training), ("validation", validation))
    )
    loss = zoo.training.TokenCrossEntropy(config.label_smoothing)
    compile_model(model, run, config, batches.number_of_batches, loss=loss, weighted_metrics=token_metrics())
    shown = pairs_that_fit(model, validation, config.samples)

    def samples() -> list[str]:
        outputs = model.generate([pair.source for pair in shown], jit_compile=False)
        return [
            f"{pair.source}\n  -> {out}\n  (reference: {pair.target})" for pair, out in zip(shown, outputs, strict=True)
        ]

    train(
        model,
        run,
        config,
        batches,
        held_out.dataset,
        curves={"training, with label smoothing": "loss", "training": "nll", "validation": "val_nll"},
        monitor="val_nll",
        samples=samples if shown else None,
    )
    return model.evaluate(held_out.dataset, return_dict=True, verbose=0)


def make_pair_batches(
    config: Seq2SeqTrainingConfig,
    model: zoo.Seq2SeqLM,
    name: str,
    pairs: Sequence[TextPair],
    max_lengths: tuple[int, int],
) -> batching.PairBatches:
    """Returns the batches of the "training" or "validation" pairs, and says what was left out."""
    batches = batching.PairBatches(
        pairs,
        model.tokenizer,
        add_start_token=model.preprocessor.adds_start_token,
        decoder_start_id=model.preprocessor.decoder_start_id,
        tokens_per_batch=config.tokens_per_batch,
        max_source_length=max_lengths[0],
        max_target_length=max_lengths[1],
        number_of_buckets=config.number_of_buckets,
        shuffle=name == "training",
        seed=config.seed,
    )
    print(
        f"{name}: {batches.number_of_pairs} pairs, {batches.number_of_tokens} tokens, "
        f"{batches.number_of_batches} batches of lengths {batches.bucket_lengths}; {batches.dropped.report()}"
    )
    return batches


def pairs_that_fit(model: zoo.Seq2SeqLM, pairs: Sequence[TextPair], count: int) -> list[TextPair]:
    """Returns the first pairs whose source is not longer than the model."""
    preprocessor = model.preprocessor
    fitting: list[TextPair] = []
    for pair in pairs:
        if len(fitting) == count:
            break
        # with the tokens that the preprocessor adds
        if int(preprocessor.lengths([pair.source])[0]) <= preprocessor.sequence_length:
            fitting.append(pair)
    return fitting


def draw_seq2seq(run: RunFolder, model: zoo.Seq2SeqLM, source: str) -> None:
    """Draws what the decoder looks at, with tokens on the axes, and the position encoding, where the model has them."""
    position = getattr(model.backbone.decoder, "position", None)
    if position is not None and position.acts_on_embeddings():
        encoding = position(np.arange(min(100, model.backbone.config.max_length)))
        zoo.inspect.plot_position_encoding(np.asarray(encoding, "float32"), run.plots / "positions.png")
    found = model.inspect(source, lens=False, gradients=False)
    if found.cross_attention is None:
        return
    title = "Cross-attention of the last block, mean over heads"
    if found.attention is None:
        title = "Alignment: what the decoder attends to"  # a recurrent model has neither blocks nor heads
    tokens = (found.targets, found.source_tokens)
    zoo.inspect.plot_attention(found.alignment, *tokens, run.plots / "cross_attention.png", title=title)


def translated(
    model: zoo.Seq2SeqLM, pairs: Sequence[TextPair], data: DataConfig, tokens: Sequence[str], **options: Any
) -> Evaluation:
    """Returns what a model makes of pairs of texts, see `evaluate_translation`."""
    sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
    scoring = {"language": data.target_language, "tokenization": data.bleu_tokenization, "tokens": tokens}
    return evaluate_translation(model, sources, references, **scoring, **{"batch_size": 64, **options})


def evaluate(task: Any, held_out: HeldOut) -> tuple[Evaluation, int]:
    """Returns what a model makes of data, read and measured as a run does, and how many rows were left out."""
    held_out.refuse("max_length", because=OF_TRAINING)
    data, tokens = held_out.data, held_out.data.language_tokens
    if held_out.config is None and "language_tokens" not in held_out.given:
        tokens = language_tokens_of(task)
    check_language_tokens(tokens)
    pairs, left_out = open_rows(held_out, source_of(data, tokens))
    check_tokenization("data.bleu_tokenization", data.bleu_tokenization)
    return translated(task, pairs, data, tokens, **held_out.decoding()), left_out


main = Recipe("translate", steps, check, kinds=("Seq2SeqLM",), evaluate=evaluate, takes="options")


if __name__ == "__main__":
    run_recipe(main, TranslateConfig, "translate")
