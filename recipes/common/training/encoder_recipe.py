"""What the recipes that train a head on an encoder share: keys of model and training, the training of the task."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Literal

import numpy as np

import zoo
from recipes.common import batching
from recipes.common.config import setting
from recipes.common.run_folder import RunFolder
from recipes.common.training.fitting import TrainingConfig, compile_model, train
from recipes.common.training.models import ModelConfig
from recipes.common.training.optimizers import LEARNING_RATE_HELP, SCHEDULE_HELP, SCHEDULE_NAMES
from recipes.common.training.tokenizers import TokenizerConfig


@dataclasses.dataclass(frozen=True)
class EncoderTokenizerConfig(TokenizerConfig):
    """The tokenizer, trained on the training texts."""

    kind: Literal["bpe", "unigram", "wordpiece", "byte_level_bpe"] = setting("bpe", "Kind of tokenizer.")
    vocabulary_size: int = setting(300, "Largest number of tokens in the vocabulary, including special tokens.")


@dataclasses.dataclass(frozen=True)
class EncoderModelConfig(ModelConfig):
    """The model: a new one by preset and options, or a saved one by start_from, and which of its weights train."""

    options: dict[str, Any] | None = setting(
        None,
        "Choices that differ from the preset. null: 2 layers of width 128 with feed-forward width "
        "256, for the default preset. A saved model takes dropout and max_length.",
        null_means={"num_layers": 2, "hidden_dim": 128, "feed_forward": {"intermediate_dim": 256}},
        unless_changed=("preset", "start_from"),
    )


@dataclasses.dataclass(frozen=True)
class EncoderTrainingConfig(TrainingConfig):
    """How the model is trained."""

    epochs: int = setting(4, "Number of passes over the training data.")
    batch_size: int = setting(32, "Number of examples per batch.", least=1, most=1 << 16)
    learning_rate: float | None = setting(None, LEARNING_RATE_HELP.format("0.001"))
    new_model_learning_rate: ClassVar[float] = 0.001
    schedule: str = setting("linear", SCHEDULE_HELP, offers=SCHEDULE_NAMES)
    warmup_steps: float = setting(
        0.1, "Number of updates of the warm-up. A value below 1 is their share of all updates."
    )
    weight_decay: float = setting(0.01, "Decoupled weight decay, applied to matrices.")
    weights: Literal["average", "best"] = setting(
        "best", "Which weights are kept: the average over the last epochs, or those of the best epoch."
    )


def print_cut(name: str, count: int, total: int, what: str, preprocessor: Any) -> None:
    """Says how much the model does not see, as texts are cut, if there is any, and how else they are read.

    Args:
        name: The part of the data.
        count: How many rows are cut, or words cut off.
        total: Of how many.
        what: What they are.
        preprocessor: The preprocessor of the task.
    """
    if count:
        # pairs have no windows
        has_windows = hasattr(preprocessor, "stride") and not getattr(preprocessor, "pairs", False)
        hint = "; model.stride reads long texts in windows" if has_windows else ""
        length = preprocessor.sequence_length
        print(f"{name}: {count} of {total} {what} ({count / total:.1%}) are cut at {length} tokens{hint}")


def train_encoder_task(
    task: Any,
    run: RunFolder,
    config: EncoderTrainingConfig,
    training: tuple[Any, Any] | zoo.training.ResumableBatches,
    validation: tuple[Any, Any],
    *,
    metric: str,
    mode: str,
    loss: Any = "auto",
    class_weight: np.ndarray | None = None,
) -> None:
    """Trains a task on raw examples, or goes on where an interrupted run was.

    Args:
        task: The task.
        run: The run folder.
        config: The configuration.
        training: Inputs and targets, or batches with `number_of_rows` and `number_cut`.
        validation: Inputs and targets.
        metric: Metric of the validation that decides about the best epoch.
        mode: "min" or "max".
        loss: The loss. Default that of the task.
        class_weight: Weight of each label in the training, `(labels,)`; None for none.
    """
    options = {"batch_size": config.batch_size, "seed": config.seed}
    batches = training
    if not isinstance(training, zoo.training.ResumableBatches):
        batches = batching.ExampleBatches(task.preprocessor, *training, class_weight=class_weight, **options)
    held_out = batching.ExampleBatches(task.preprocessor, *validation, shuffle=False, **options)
    print(f"training: {batches.number_of_rows} examples; validation: {held_out.number_of_rows}")
    for name, part in (("training", batches), ("validation", held_out)):
        print_cut(name, part.number_cut, part.number_of_rows, "examples", task.preprocessor)
    metrics = task.default_metrics() or None
    compile_model(task, run, config, batches.number_of_batches, loss=loss, weighted_metrics=metrics)
    curves = {"training, loss": "loss", "validation, loss": "val_loss"}
    if metric != "loss":
        curves.update({f"training, {metric}": metric, f"validation, {metric}": f"val_{metric}"})
    train(
        task,
        run,
        config,
        batches,
        held_out.dataset,
        curves=curves,
        monitor=f"val_{metric}",
        mode=mode,
        throughput=False,
    )
