"""What the recipes that train a head on an encoder share: keys of model and training, the task, its training."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, Literal

from recipes.common.config import setting
from recipes.common.example_batches import ExampleBatches
from recipes.common.models import TokenizerConfig, load_or_train_tokenizer, make_task, start_from
from recipes.common.run_folder import RunFolder
from recipes.common.training import TrainingConfig, make_optimizer, train
from zoo.tasks import Task


@dataclasses.dataclass(frozen=True)
class EncoderTokenizerConfig(TokenizerConfig):
    """The tokenizer, trained on the training texts."""

    kind: Literal["bpe", "unigram", "wordpiece", "byte_level_bpe"] = setting("bpe", "Kind of tokenizer.")
    vocabulary_size: int = setting(300, "Most tokens, special ones included.")


@dataclasses.dataclass(frozen=True)
class EncoderModelConfig:
    """The architecture."""

    preset: str = setting("modern_encoder_tiny", "A name of zoo.list_presets().")
    options: dict[str, Any] = setting(
        {"num_layers": 2, "hidden_dim": 128, "feed_forward": {"intermediate_dim": 256}},
        "Choices that differ from the preset.",
    )
    start_from: str | None = setting(None, "Directory of a saved model whose backbone and tokenizer are taken instead.")


@dataclasses.dataclass(frozen=True)
class EncoderTrainingConfig(TrainingConfig):
    """How the model is trained."""

    epochs: int = setting(4, "Passes over the training data.")
    batch_size: int = setting(32, "Examples of a batch.", least=1, most=1 << 16)
    learning_rate: float = setting(0.001, "Peak of the learning rate.")
    schedule: Literal["linear", "cosine", "inverse_square_root", "warmup_stable_decay"] = setting(
        "linear", "How the learning rate falls after the warm-up."
    )
    warmup_steps: float = setting(0.1, "Updates up to the peak; below 1 their share of all updates.")
    weight_decay: float = setting(0.01, "Decoupled weight decay of matrices.")
    weights: Literal["average", "best"] = setting(
        "best", "Which weights are kept: the average of the last epochs', or those of the best epoch."
    )


def make_encoder_task(
    kind: type[Task],
    model: EncoderModelConfig,
    tokenizer: TokenizerConfig,
    run: RunFolder,
    texts: Callable[[], Iterable[str]],
    *,
    mask_token: str | None = None,
    **options: Any,
) -> Any:
    """Returns a task with initial weights, or on the backbone of a saved model.

    Args:
        kind: The class.
        model: The architecture.
        tokenizer: The tokenizer, where it is to be trained.
        run: The run folder.
        texts: Gives what the tokenizer is trained on.
        mask_token: The mask token of the tokenizer.
        **options: Arguments of the task.
    """
    if model.start_from is not None:
        return start_from(kind, model.start_from, **options)
    trained = load_or_train_tokenizer(tokenizer, run, texts, mask_token=mask_token)
    return make_task(kind, model.preset, trained, model.options, **options)


def train_encoder_task(
    task: Any,
    run: RunFolder,
    config: EncoderTrainingConfig,
    training: tuple[Any, Any],
    validation: tuple[Any, Any],
    *,
    metric: str,
    mode: str,
) -> tuple[float, dict[str, float]]:
    """Trains a task on raw examples, or goes on where an interrupted run was.

    Args:
        task: The task.
        run: The run folder.
        config: The configuration.
        training: Inputs and targets.
        validation: Likewise.
        metric: Metric of the validation that decides about the best epoch.
        mode: "min" or "max".

    Returns:
        Seconds of training of this process, and the metrics of the validation with the weights that were kept.
    """
    options = {"batch_size": config.batch_size, "seed": config.seed}
    batches = ExampleBatches(task.preprocessor, *training, **options)
    held_out = ExampleBatches(task.preprocessor, *validation, shuffle=False, **options)
    print(f"training: {batches.number_of_rows} examples; validation: {held_out.number_of_rows}")
    task.compile(
        optimizer=make_optimizer(config, batches.number_of_batches, task),
        weighted_metrics=task.default_metrics() or None,
        jit_compile=config.jit_compile,
    )
    curves = {"training, loss": "loss", "validation, loss": "val_loss"}
    if metric != "loss":
        curves.update({f"training, {metric}": metric, f"validation, {metric}": f"val_{metric}"})
    seconds = train(
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
    logs = task.evaluate(held_out.dataset, return_dict=True, verbose=0)
    return seconds, {name: float(value) for name, value in logs.items() if name != "tokens"}
