"""Trains a language model on preferred and rejected replies (DPO, IPO, ORPO), and exports it.

    python -m recipes.prefer                          # learns to answer shortly rather than in sentences, in minutes
    python -m recipes.prefer --model.start_from runs/x/model --data.train pairs.jsonl --data.validation held.jsonl
    python -m recipes.prefer --method orpo --model.start_from hf://owner/name --model.lora.rank 8 ...

Files are JSON lines, or one JSON array, with `prompt`, `chosen` and `rejected`: texts, or lists of messages. DPO and
IPO compare with the model that the run starts from, whose log-likelihoods are computed once; ORPO needs no reference.
The same command resumes an interrupted run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import keras
import numpy as np

import zoo
from recipes import finetune
from recipes.common import batching
from recipes.common.config import run_recipe, setting
from recipes.common.data.chat_files import CHAT_FORMATS
from recipes.common.data.data_config import TestedDataConfig
from recipes.common.data.data_sets import Source, open_parts
from recipes.common.data.preference_data import (
    PREFERENCES,
    Preference,
    PreferenceRows,
    is_preference,
    read_preferences,
)
from recipes.common.errors import ConfigError, RecipeError
from recipes.common.evaluation.evaluation import Evaluation
from recipes.common.evaluation.held_out import HeldOut, open_rows
from recipes.common.evaluation.preferences import draw, evaluate_preferences, last_words, reply_scores
from recipes.common.finish import Outcome, decoded
from recipes.common.run_folder import RunFolder
from recipes.common.runner import Recipe, trained_within
from recipes.common.training import models
from recipes.common.training.fitting import TrainingConfig, compile_model, prepare, require_one_device, train
from recipes.common.training.reference import reference_likelihoods


@dataclasses.dataclass(frozen=True)
class DataConfig(TestedDataConfig):
    """Where the preferences come from."""

    train: list[str] = setting(["date_preferences"], "JSON (or .gz) or Parquet files, or a data set.", offers="paths")
    keys: list[str] = setting(
        ["prompt", "chosen", "rejected"],
        "Keys of the prompt, the preferred reply and the rejected reply.",
        describes_files=True,
    )
    chat_format: str | None = setting(
        None,
        f"Chat format: {CHAT_FORMATS}. null: that of the model. Without any, texts are "
        "plain: a reply follows its prompt.",
    )
    max_length: int | None = setting(
        None,
        "Largest number of tokens of prompt and reply. null: that of the model. Pairs with a longer text are dropped.",
        least=2,
    )


@dataclasses.dataclass(frozen=True)
class PreferModelConfig(finetune.ChatModelConfig):
    """The model to start from; without start_from, one that recipes.finetune trains on answers of both kinds."""


@dataclasses.dataclass(frozen=True)
class PreferTrainingConfig(TrainingConfig):
    """How the model is trained."""

    beta: float = setting(
        0.1,
        "DPO: how strongly the model is held to the reference. IPO: tau. ORPO: lambda, the weight of the odds ratio.",
        above=0,
    )
    label_smoothing: float = setting(
        0.0, "DPO: assumed share of pairs whose replies are in the wrong order.", least=0, below=0.5
    )
    epochs: int = setting(2, "Number of passes over the training data.")
    batch_size: int = setting(32, "Number of pairs per batch.", least=1, most=1 << 16)
    learning_rate: float = setting(0.0001, "Peak learning rate, after the warm-up.")
    warmup_steps: float = setting(
        0.1, "Number of updates of the warm-up. A value below 1 is their share of all updates."
    )
    samples: int = setting(
        4, "Number of prompts whose replies are shown at every validation.", may_change=True, least=0, most=1000
    )


@dataclasses.dataclass(frozen=True)
class PreferConfig:
    """Trains a language model on preferences, and exports it as a SavedModel that replies."""

    run_folder: str = setting(
        "runs/prefer", "Folder of the run. The same command resumes the run in it.", offers="paths"
    )
    method: Literal["dpo", "ipo", "orpo"] = setting(
        "dpo", "The loss: DPO (Rafailov et al. 2023), IPO (Azar et al. 2023) or ORPO (Hong et al. 2024)."
    )
    data: DataConfig = DataConfig()
    model: PreferModelConfig = PreferModelConfig()
    training: PreferTrainingConfig = PreferTrainingConfig()
    new_tokens: int = setting(32, "Largest number of tokens of a reply.", may_change=True, least=1, most=1 << 16)
    export: bool = setting(True, "Whether to write the SavedModel.", may_change=True)


def steps(config: PreferConfig, run: RunFolder) -> Outcome:
    """Reads the data, makes the model, trains and measures it."""
    source = config.model.start_from or train_start(config, run)
    task = load_start(config, run, source)
    training, validation, test = open_preferences(config, task, run)
    is_validation = test == validation
    longest = finetune.longest_of(config.data.max_length, task)
    rows = PreferenceRows(task.preprocessor, longest)
    tokenized = {
        name: rows.tokenized(part)
        for name, part in (("training", training), ("validation", validation), ("test", test))
    }
    tokens = {name: columns for name, (_, columns) in tokenized.items()}
    test = tokenized["test"][0]
    model, loss = zoo.training.ReplyLikelihoods(task), make_loss(config)
    size = config.training.batch_size
    if loss.needs_reference:
        # without the path of the run, which may be moved
        name = config.model.start_from or "start/model"
        reference = reference_likelihoods(run, model, rows, tokens, source=name, batch_size=size)
    else:
        reference = {name: np.zeros((int(part["ids"].nrows()), 2)) for name, part in tokens.items()}
    before = replies(task, config, test)
    options = {"batch_size": size, "seed": config.training.seed}
    batches = batching.ExampleBatches(rows, tokens["training"], reference["training"], **options)
    held_out = batching.ExampleBatches(rows, tokens["validation"], reference["validation"], shuffle=False, **options)
    print(f"training: {batches.number_of_rows}, validation: {held_out.number_of_rows}; {rows.dropped.report()}")
    metrics = [
        keras.metrics.MeanMetricWrapper(loss.margins, name="reward_margin"),
        keras.metrics.MeanMetricWrapper(loss.accuracies, name="reward_accuracy"),
    ]
    options = {"task": task, "loss": loss, "weighted_metrics": metrics}
    compile_model(model, run, config.training, batches.number_of_batches, **options)

    def samples() -> list[str]:
        shown = test[: config.training.samples]
        pairs = zip(shown, replies(task, config, shown), strict=True)
        return [f"{last_words(preference)}\n  -> {reply}" for preference, reply in pairs]

    train(
        model,
        run,
        config.training,
        batches,
        held_out.dataset,
        curves={"training": "loss", "validation": "val_loss"},
        samples=samples,
        throughput=False,
        task=task,
    )
    logs = model.evaluate(held_out.dataset, return_dict=True, verbose=0)
    evaluation = evaluate_preferences(
        task, test, longest, loss=loss, reference=reference["test"], part="test", **decoding_of(config)
    )
    draw(run, model.history.history, evaluation.predictions["reward_margin"], is_validation)
    results = {
        "method": config.method,
        "trained_parameters": models.count_trained(task),
        "validation_loss": round(float(logs["loss"]), 4),
        "validation_reward_accuracy": round(float(logs["reward_accuracy"]), 4),
        "validation_reward_margin": round(float(logs["reward_margin"]), 4),
        "test_pairs": len(test),
        "test_prompts_cut": evaluation.counts["prompts_cut"],
        "test_reward_accuracy": evaluation.values["reward_accuracy"],
        **reply_scores(run, test, before, evaluation),
    }
    return outcome_of(config, task, test, results, is_validation)


def check(config: PreferConfig) -> None:
    """Checks what can be checked before the data are read, and makes ready for a model."""
    training = config.training
    if config.method != "dpo" and training.label_smoothing:
        raise ConfigError(
            f"training.label_smoothing must be 0 with method {config.method!r}, got {training.label_smoothing}"
        )
    if config.model.start_from is None and config.data.train != ["date_preferences"]:
        raise ConfigError(
            "model.start_from must be given with your own data: preferences need a model that already replies, such as "
            "one that recipes.finetune trained"
        )
    require_one_device(config, "prefer")
    prepare(config)


def train_start(config: PreferConfig, run: RunFolder) -> str:
    """Returns the folder of a model that answers in both ways, trained by `recipes.finetune` if it is not there yet."""
    folder = run.path / "start"
    wanted = finetune.FinetuneConfig(
        run_folder=str(folder),
        data=finetune.DataConfig(train=["date_replies"]),
        model=finetune.ChatModelConfig(preset=config.model.preset, options=config.model.options),
        training=finetune.FinetuneTrainingConfig(epochs=3, seed=config.training.seed),
        export=False,
    )
    return trained_within(run, folder, finetune.main, wanted)


def load_start(config: PreferConfig, run: RunFolder, source: str) -> zoo.CausalLM:
    """Returns the model to start from, adapted as `model` says."""
    model = config.model
    if model.start_from is None:
        # its options are in the saved model
        model = dataclasses.replace(model, start_from=source, options=None)
    task = models.make_or_load_task(zoo.CausalLM, model, None, run, list)
    finetune.set_chat_format(task, config.data.chat_format)
    return task


def open_preferences(config: PreferConfig, task: zoo.CausalLM, run: RunFolder) -> list[list[Preference]]:
    """Returns the training, validation and test sets."""
    return open_parts(config.data, source_of(config.data, task), account=run.data)


def source_of(data: DataConfig, task: zoo.CausalLM) -> Source:
    """Returns how preferences are read, for the chat format of a model."""
    chat_format = task.chat_format
    return Source(
        PREFERENCES,
        lambda files, bad: read_preferences(files, bad, chat_format=chat_format, keys=data.keys),
        lambda preference, bad: is_preference(preference, bad, chat_format),
    )


def make_loss(config: PreferConfig) -> Any:
    """Returns the loss of the method."""
    beta = config.training.beta
    if config.method == "dpo":
        return zoo.training.DirectPreference(beta, label_smoothing=config.training.label_smoothing)
    if config.method == "ipo":
        return zoo.training.IdentityPreference(beta)
    return zoo.training.OddsRatioPreference(beta)


def replies(task: zoo.CausalLM, config: PreferConfig, preferences: Sequence[Preference]) -> list[str]:
    """Returns what the model replies to the prompts, greedily; long prompts lose their beginning."""
    if not preferences:
        return []
    prompts = [preference.prompt for preference in preferences]
    options = {"strip_prompt": True} if isinstance(prompts[0], str) else {}
    return task.generate(prompts, **decoding_of(config), **options)


def decoding_of(config: PreferConfig) -> dict[str, Any]:
    """Returns the arguments of `generate` for samples, the test and the export."""
    return {"sampler": "greedy", "max_new_tokens": config.new_tokens, "truncate": True}


def outcome_of(
    config: PreferConfig,
    task: zoo.CausalLM,
    test: Sequence[Preference],
    results: dict[str, Any],
    is_validation: bool,
) -> Outcome:
    """Returns the model, what was measured, and how the export is tried."""
    prompts = [preference.prompt for preference in test[:3]]
    export = decoding_of(config)

    def trial(served: Any) -> Iterable[tuple[str, str, str]]:
        if isinstance(prompts[0], str):
            answers = served.serve(prompts)
        else:
            answers = served.chat(*(column.to_tensor("") for column in zoo.tokenizers.chat.as_ragged(prompts)))
        return zip(map(last_words, test[:3]), decoded(answers), task.generate(prompts, **export), strict=True)

    return Outcome(task, results, trial, prompts, export, is_validation)


def evaluate(task: Any, held_out: HeldOut) -> tuple[Evaluation, int]:
    """Returns what a model makes of data, read and measured as a run does, and how many rows were left out."""
    data = held_out.data
    finetune.set_chat_format(task, data.chat_format)
    preferences, left_out = open_rows(held_out, source_of(data, task))
    config = dataclasses.replace(held_out.config or PreferConfig(), data=data)
    rewards = {} if held_out.config is None else rewards_of(config, held_out.folder)
    longest = finetune.longest_of(data.max_length, task)
    return evaluate_preferences(task, preferences, longest, **rewards, **finetune.replies_of(held_out)), left_out


def rewards_of(config: PreferConfig, folder: Path | None) -> dict[str, Any]:
    """Returns what a run took as rewards: its loss, and the model that it began with where this needs one."""
    loss = make_loss(config)
    if not loss.needs_reference:
        return {"loss": loss}
    source = config.model.start_from or str(Path(folder or config.run_folder, "start", "model"))
    model = config.model if config.model.start_from else dataclasses.replace(config.model, options=None)
    try:
        return {
            "loss": loss,
            "reference": models.load_start(zoo.CausalLM, dataclasses.replace(model, start_from=source)),
        }
    except RecipeError as error:
        print(f"rewards are left out: they need the model that the run began with: {error}")
        return {}


main = Recipe("prefer", steps, check, kinds=("CausalLM",), evaluate=evaluate, takes="options")


if __name__ == "__main__":
    run_recipe(main, PreferConfig, "prefer")
