"""What all recipes share between the data and the results: optimizer, callbacks, `model.fit`, resume, loss curve."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import keras

from recipes.common.config import setting
from recipes.common.errors import ConfigError, RecipeError, errors_of
from recipes.common.models import check_architecture
from recipes.common.run_folder import RunFolder
from zoo.backbones.backbone import require_plain_policy
from zoo.inspect import plot_curves
from zoo.storage import average_weights, load_weights
from zoo.tasks import Task
from zoo.training import (
    CheckpointAveraging,
    InverseSquareRoot,
    PerUpdate,
    SampleOutputs,
    StopOnNonFiniteLoss,
    Throughput,
    TrainingState,
    WarmupLinear,
    WarmupStableDecay,
)


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
    """How a model is trained; recipes derive from it, with defaults and keys of their own."""

    epochs: int = setting(5, "Most passes over the training data.", least=1, most=10**6)
    optimizer: Literal["adam", "adamw", "muon"] = setting("adamw", "muon: matrices by Muon, the rest by AdamW.")
    learning_rate: float = setting(0.001, "Peak of the learning rate.", above=0)
    schedule: Literal["inverse_square_root", "linear", "cosine", "warmup_stable_decay"] = setting(
        "cosine", "How the learning rate falls after the warm-up."
    )
    warmup_steps: float = setting(100, "Updates up to the peak; below 1 their share of all updates.", least=0)
    decay_share: float = setting(0.2, "Share of the updates in which warmup_stable_decay decays.", above=0, most=1)
    final_learning_rate: float = setting(0.0, "Learning rate after the last update (not inverse_square_root).", least=0)
    beta_1: float = setting(0.9, "Adam's first decay rate.", least=0, below=1)
    beta_2: float = setting(0.999, "Adam's second decay rate.", least=0, below=1)
    epsilon: float = setting(1e-8, "Adam's epsilon.", above=0)
    weight_decay: float = setting(0.0, "Decoupled weight decay of matrices (adamw, muon).", least=0)
    clip_norm: float | None = setting(1.0, "Norm that the whole gradient is clipped to.", above=0)
    accumulation_steps: int | None = setting(
        None, "Batches whose gradients are averaged before an update.", least=1, most=10**6
    )
    dtype: str = setting("float32", "Dtype policy, for example mixed_bfloat16.")
    jit_compile: bool = setting(False, "Whether XLA compiles the training step.")
    patience: int | None = setting(
        None, "Epochs without a better validation metric after which training stops.", least=0
    )
    weights: Literal["average", "best"] = setting(
        "average", "Which weights are kept: the average of the last epochs', or those of the best epoch."
    )
    average_checkpoints: int = setting(
        1, "Number of last epochs whose weights are averaged; 1 takes the last.", least=1, most=10**6
    )
    save_every: int = setting(200, "Batches between two saved states within an epoch.", harmless=True, least=1)
    seed: int = setting(0, "Seed of weights, dropout and order.", least=0, most=2**32 - 1)


def prepare(config: Any) -> None:
    """Checks what can be checked before the data are read; sets seed and dtype policy, before anything is made.

    Args:
        config: The configuration of a recipe, with the groups `model` and `training` and the key `export`.

    Raises:
        ConfigError: If a value is out of range, or does not go together with another.
    """
    training, model = config.training, config.model
    if training.weight_decay and training.optimizer == "adam":
        raise ConfigError(f"training.weight_decay must be 0 with optimizer 'adam', got {training.weight_decay}")
    if training.weights == "best" and training.average_checkpoints != 1:
        raise ConfigError(
            f"training.average_checkpoints must be 1 with weights 'best', got {training.average_checkpoints}"
        )
    warmup = training.warmup_steps
    if warmup > 1 and warmup != int(warmup):
        raise ConfigError(f"training.warmup_steps must be a whole number, or a share below 1, got {warmup}")
    if training.schedule == "inverse_square_root" and training.final_learning_rate:
        rate = training.final_learning_rate
        raise ConfigError(f"training.final_learning_rate must be 0 with inverse_square_root, got {rate}")
    if config.export and keras.backend.backend() != "tensorflow":
        raise ConfigError(
            f"export must be false with the backend {keras.backend.backend()}: the saved model can be exported "
            "with the backend tensorflow afterwards (python -m recipes.export)"
        )
    if getattr(model, "start_from", None) is None:
        check_architecture(model.preset, model.options)
    keras.utils.set_random_seed(training.seed)
    with errors_of("training.dtype"):
        policy = keras.DTypePolicy(training.dtype)
        require_plain_policy(policy)
    keras.config.set_dtype_policy(policy)


def make_schedule(config: TrainingConfig, updates: int) -> keras.optimizers.schedules.LearningRateSchedule:
    """Returns the learning rate as a function of the update.

    Args:
        config: The configuration.
        updates: Number of updates of the whole training.

    Raises:
        ConfigError: If the warm-up is longer than the training.
    """
    peak, warmup, final = config.learning_rate, config.warmup_steps, config.final_learning_rate
    warmup = round(warmup * updates) if warmup < 1 else int(warmup)
    if config.schedule == "inverse_square_root":
        return InverseSquareRoot(peak, max(1, warmup))
    if warmup >= updates:
        raise ConfigError(f"training.warmup_steps must be below the {updates} updates of the training, got {warmup}")
    if config.schedule == "warmup_stable_decay":
        decay = max(1, min(round(config.decay_share * updates), updates - warmup))
        return WarmupStableDecay(peak, warmup, updates - warmup - decay, decay, final=final)
    if config.schedule == "linear":
        return WarmupLinear(peak, warmup, updates, final)
    # Keras counts updates from 0, and its warm-up begins with the first rate that it is given: here above 0
    warmup, target = max(1, warmup), peak if warmup > 1 else None
    return keras.optimizers.schedules.CosineDecay(
        peak / warmup, max(1, updates - warmup), alpha=final / peak, warmup_target=target, warmup_steps=warmup - 1
    )


def make_optimizer(config: TrainingConfig, batches: int, model: keras.Model) -> keras.optimizers.Optimizer:
    """Returns the optimizer.

    Weight decay is on matrices only: not on biases, norms and other vectors, nor on embeddings.

    Args:
        config: The configuration.
        batches: Number of batches of an epoch.
        model: The model, built: its variables tell which are not decayed.

    Raises:
        ConfigError: If there are fewer batches than one update takes.
    """
    every = config.accumulation_steps or 1
    if every > config.epochs * batches:
        raise ConfigError(
            f"training.accumulation_steps must be at most the {config.epochs * batches} batches of the training, got "
            f"{every}: no weight would change"
        )
    schedule = make_schedule(config, max(1, config.epochs * batches // every))
    if every > 1:
        schedule = PerUpdate(schedule, every)
    options = {
        "epsilon": config.epsilon,
        "global_clipnorm": config.clip_norm,
        "gradient_accumulation_steps": config.accumulation_steps,
    }
    if config.optimizer == "adam":
        return keras.optimizers.Adam(schedule, beta_1=config.beta_1, beta_2=config.beta_2, **options)
    if config.optimizer == "adamw":
        options.update(weight_decay=config.weight_decay, beta_1=config.beta_1, beta_2=config.beta_2)
        optimizer = keras.optimizers.AdamW(schedule, **options)
    else:
        options.update(weight_decay=config.weight_decay, adam_beta_1=config.beta_1, adam_beta_2=config.beta_2)
        # the projection to the vocabulary learns like an embedding (Jordan et al. 2024, "Muon")
        excluded = ["embedding", "output_projection"]
        optimizer = keras.optimizers.Muon(schedule, adam_weight_decay=0.0, exclude_layers=excluded, **options)
    optimizer.exclude_from_weight_decay(
        [variable for variable in model.trainable_variables if len(variable.shape) < 2 or "embedding" in variable.path]
    )
    return optimizer


def train(
    model: Task,
    run: RunFolder,
    config: TrainingConfig,
    batches: Any,
    validation: Any,
    *,
    curves: Mapping[str, str],
    monitor: str = "val_loss",
    mode: str = "min",
    samples: Callable[[], Iterable[str]] | None = None,
    throughput: bool = True,
) -> float:
    """Trains a task, or goes on where an interrupted run was, and saves it with the weights that the config asks for.

    Args:
        model: The compiled task.
        run: The run folder.
        config: The configuration.
        batches: Training data, see `zoo.training.ResumableData`.
        validation: `tf.data.Dataset` of validation batches.
        curves: What the loss curve shows: label to name in the history.
        monitor: Validation metric that decides about early stopping and the best weights.
        mode: "min" or "max".
        samples: Makes lines of text to print and keep at every validation.
        throughput: Whether to note the tokens per second, which a `TokenCount` among the metrics counts.

    Returns:
        The seconds of training of this process.
    """
    checkpoints = run.folder("checkpoints")
    averaging = CheckpointAveraging(checkpoints / "last_epochs", keep=config.average_checkpoints)
    stateful = []
    if config.patience is not None:
        stateful.append(keras.callbacks.EarlyStopping(monitor=monitor, mode=mode, patience=config.patience, verbose=1))
    stateful += [
        keras.callbacks.CSVLogger(run.path / "metrics.csv", append=True),
        keras.callbacks.TensorBoard(run.folder("tensorboard"), write_graph=False),
    ]
    state = TrainingState(
        checkpoints / "state", batches, stateful, save_every=config.save_every, monitor=monitor, mode=mode
    )
    if state.resumed:
        print(f"resuming in epoch {min(state.initial_epoch, config.epochs - 1) + 1}")
    others = [Throughput()] if throughput else []
    if samples is not None:
        others.append(SampleOutputs(samples, run.folder("samples")))
    started = time.monotonic()
    try:
        history = model.fit(
            batches.dataset,
            validation_data=validation,
            epochs=config.epochs,
            initial_epoch=state.initial_epoch,
            shuffle=False,  # the order of an epoch is made by the batches themselves
            callbacks=[StopOnNonFiniteLoss(), *others, averaging, *stateful, state],
        )
    except FloatingPointError as error:
        raise RecipeError(f"training.learning_rate {config.learning_rate:g}? {error}") from error
    seconds = time.monotonic() - started
    if config.weights == "best":
        if not state.best_weights_path.exists():
            raise RecipeError(f"training.weights 'best': {monitor} was finite after no epoch; lower the rate?")
        load_weights(state.best_weights_path, model)
    else:
        average_weights(averaging.paths, model)
    # before anything else can fail
    model.save_to_preset(run.path / "model")
    epochs = range(1, len(history.history["loss"]) + 1)
    plot_curves(
        {label: (epochs, history.history[key]) for label, key in curves.items()},
        run.plots / "loss.png",
        x_label="epoch",
        y_label="loss",
        title="Training",
    )
    return seconds
