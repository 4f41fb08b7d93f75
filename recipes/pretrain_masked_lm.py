"""Pretrains an encoder on running text by predicting masked tokens.

    python -m recipes.pretrain_masked_lm                                    # on generated dates, in minutes
    python -m recipes.pretrain_masked_lm --config recipes/configs/gutenberg_masked_lm.yaml
    python -m recipes.pretrain_masked_lm --data.train corpus ...            # of recipes.prepare_text
    python -m recipes.classify --model.start_from runs/masked_lm/model ...

Tokens, or whole words (`--masking.whole_words true`), are hidden anew in every epoch. The same command resumes an
interrupted run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np

import zoo
from recipes.common import batching
from recipes.common.config import run_recipe, setting
from recipes.common.corpus.shards import Corpus
from recipes.common.data.data_config import TextDataConfig
from recipes.common.data.plain_text import cut_texts
from recipes.common.errors import ConfigError
from recipes.common.evaluation.evaluation import Evaluation
from recipes.common.evaluation.held_out import HeldOut, open_text
from recipes.common.evaluation.likelihoods import evaluate_masked_lm, evaluate_replaced_tokens
from recipes.common.finish import Outcome
from recipes.common.run_folder import RunFolder
from recipes.common.runner import Recipe
from recipes.common.training.corpora import (
    TRAIN_HELP,
    WEIGHTS_HELP,
    adopt_tokenizer,
    check_tokenizer,
    open_corpora,
    open_running_text,
)
from recipes.common.training.encoder_recipe import (
    EncoderModelConfig,
    EncoderTokenizerConfig,
    EncoderTrainingConfig,
    train_encoder_task,
)
from recipes.common.training.models import make_or_load_task
from recipes.common.words import word_places


@dataclasses.dataclass(frozen=True)
class DataConfig(TextDataConfig):
    """Where the text comes from."""

    train: list[str] = setting(["date_lines"], TRAIN_HELP, offers="paths")
    weights: list[float] = setting([], WEIGHTS_HELP)
    unit: Literal["paragraph", "line"] = setting("paragraph", "Which part of a file is a text.", describes_files=True)
    words_per_text: int = setting(48, "Longer texts are cut into texts of this many words.", least=2, most=1 << 16)


@dataclasses.dataclass(frozen=True)
class MaskingConfig:
    """What is hidden."""

    rate: float = setting(0.15, "Share of the tokens that the model must predict.", above=0, most=1)
    whole_words: bool = setting(False, "Whether whole words are masked.")


@dataclasses.dataclass(frozen=True)
class MaskedTrainingConfig(EncoderTrainingConfig):
    """How the model is trained."""

    weights: Literal["average", "best"] = setting(
        "average", "Which weights are kept: the average over the last epochs, or those of the best epoch."
    )


@dataclasses.dataclass(frozen=True)
class MaskedLMConfig:
    """Trains an encoder to guess hidden tokens and exports it as a SavedModel that fills gaps in strings."""

    run_folder: str = setting(
        "runs/masked_lm", "Folder of the run. The same command resumes the run in it.", offers="paths"
    )
    data: DataConfig = DataConfig()
    tokenizer: EncoderTokenizerConfig = EncoderTokenizerConfig()
    model: EncoderModelConfig = EncoderModelConfig()
    masking: MaskingConfig = MaskingConfig()
    training: MaskedTrainingConfig = MaskedTrainingConfig()
    export: bool = setting(True, "Whether to write the SavedModel.", may_change=True)


def steps(config: MaskedLMConfig, run: RunFolder) -> Outcome:
    """Reads the data, makes the model, trains and measures it."""
    corpora = open_corpora(config, run)
    parts = open_running_text(config.data, corpora, run)
    train, validation = (cut_texts(documents, config.data.words_per_text) for documents in parts)
    if corpora and config.model.start_from is None:
        adopt_tokenizer(corpora, run)
    options = {"mask_rate": config.masking.rate, "whole_words": config.masking.whole_words, "truncate": True}
    task = make_or_load_task(
        zoo.MaskedLM, config.model, config.tokenizer, run, lambda: train, mask_token="<mask>", **options
    )
    train_encoder_task(
        task,
        run,
        config.training,
        corpus_batches(config, task, corpora) if corpora else (train, None),
        (validation, None),
        metric="loss",
        mode="min",
    )
    scores = evaluate_masked_lm(task, validation).scores
    results = {
        "validation_texts": scores["texts"],
        "validation_accuracy": scores["token_accuracy"],
        "validation_nll_per_hidden_token": scores["nll_per_hidden_token"],
        "validation_pseudo_perplexity": scores["perplexity"],
    }
    gaps = [with_gap(task, text) for text in validation[:3]]

    def trial(served: Any) -> Iterable[tuple[str, np.ndarray, np.ndarray]]:
        outputs = served.serve(gaps)["probabilities"]
        expected = [[probability for _, probability in row[0]] for row in task.fill_mask(gaps)]
        return zip(gaps, [np.asarray(row)[0] for row in outputs], map(np.asarray, expected), strict=True)

    for text, guesses in zip(gaps, task.fill_mask(gaps), strict=True):
        print(f"{text}\n  -> {', '.join(f'{token} {probability:.2f}' for token, probability in guesses[0])}")
    return Outcome(task, results, trial, gaps, numbers="probabilities of the best tokens")


def corpus_batches(config: MaskedLMConfig, task: zoo.MaskedLM, corpora: Sequence[Corpus]) -> batching.CorpusExamples:
    """Returns the training batches of prepared corpora, after a look at whether they fit the task."""
    check_tokenizer(corpora, task.tokenizer)
    if config.masking.whole_words:
        raise ConfigError(
            "masking.whole_words must be false with a prepared corpus, whose words are not known, got true"
        )
    preprocessor, length = task.preprocessor, corpora[0].length
    most = preprocessor.sequence_length - zoo.preprocessing.added_count(1, **preprocessor.special_tokens())
    if length > most:
        raise ConfigError(
            f"data.train: the rows of {corpora[0].path} have {length} tokens, and the model takes {most}: "
            f"prepare_text --length {most}, or a larger max_length in model.options"
        )
    return batching.CorpusExamples(
        corpora,
        preprocessor,
        batch_size=config.training.batch_size,
        weights=config.data.weights or None,
        seed=config.training.seed,
    )


def with_gap(task: zoo.MaskedLM, text: str) -> str:
    """Returns a text with a mask in place of a word, the one in the middle or an earlier one that the model sees.

    Args:
        task: The task, which may cut the text.
        text: The text.
    """

    places = word_places(text)

    def hidden(place: int, rest: bool) -> str:
        start, end = places[place]
        return text[:start] + task.mask_token + (text[end:] if rest else "")

    place = len(places) // 2
    while place and int(task.preprocessor.lengths([hidden(place, rest=False)])[0]) > task.preprocessor.sequence_length:
        place //= 2
    return hidden(place, rest=True)


def evaluate(task: Any, held_out: HeldOut) -> tuple[Evaluation, int]:
    """Returns what a model makes of data, read and measured as a run does, and how many rows were left out."""
    documents, left_out = open_text(held_out)
    texts = cut_texts(documents, held_out.data.words_per_text)
    of_kind = evaluate_masked_lm if isinstance(task, zoo.MaskedLM) else evaluate_replaced_tokens
    return of_kind(task, texts), left_out


main = Recipe("pretrain_masked_lm", steps, kinds=("MaskedLM", "ReplacedTokenDetector"), evaluate=evaluate)


if __name__ == "__main__":
    run_recipe(main, MaskedLMConfig, "pretrain_masked_lm")
