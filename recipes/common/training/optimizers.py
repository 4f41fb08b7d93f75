"""Optimizers and schedules of recipes: those of Keras and of zoo by name, with options that are checked early."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import keras

import zoo
from recipes.common.errors import ConfigError, errors_of, nearest, shown

# our schedules with what schedule_options may hold
SCHEDULES: dict[str, tuple[str, ...]] = {
    "constant": (),
    "linear": (),
    "cosine": (),
    "inverse_square_root": (),
    "warmup_stable_decay": ("decay",),
}
# those that end with the training, at final_learning_rate
FINITE = ("linear", "cosine", "warmup_stable_decay")

# keys of `training` that stand for arguments of optimizers
_KEY_OF = {
    "learning_rate": "learning_rate",
    "weight_decay": "weight_decay",
    "global_clipnorm": "clip_norm",
    "gradient_accumulation_steps": "accumulation_steps",
    "beta_1": "beta_1",
    "beta_2": "beta_2",
    "adam_beta_1": "beta_1",
    "adam_beta_2": "beta_2",
    "epsilon": "epsilon",
    **dict.fromkeys(("use_ema", "ema_momentum", "ema_overwrite_frequency"), "average_checkpoints"),
}
# written out, since Keras is not asked before it is needed
OPTIMIZERS = (
    *("adadelta", "adafactor", "adagrad", "adam", "adamax", "adamw", "ftrl", "lamb", "lion", "muon", "nadam"),
    *("rmsprop", "schedulefreeadamw", "sgd"),
)
SCHEDULE_NAMES = (
    *SCHEDULES,
    *("CosineDecay", "CosineDecayRestarts", "ExponentialDecay", "InverseTimeDecay", "PolynomialDecay"),
)
# Of fine-tuning with all weights, and what low-rank updates take of it, see `usual_learning_rate`.
_RATE_TIMES_WIDTH, _LORA_FACTOR = 0.04, 10
_ADAMS = ("adam", "adamw", "nadam")
LEARNING_RATE_HELP = (
    "Peak learning rate, after the warm-up. null: {} for a new model; for one that it starts from, with Adam, 0.04 "
    "divided by its width, and ten times that for low-rank updates, but no more than for a new one."
)
OPTIMIZER_HELP = f"Any optimizer of Keras: {', '.join(OPTIMIZERS)}."
SCHEDULE_HELP = f"Schedule of the learning rate after the warm-up: {', '.join(SCHEDULE_NAMES)}."


@functools.cache
def optimizers() -> dict[str, type[keras.optimizers.Optimizer]]:
    """Returns the optimizers of Keras by their names in configs."""
    return {kind.__name__.lower(): kind for kind in zoo.training.OPTIMIZERS}


@functools.cache
def keras_schedules() -> dict[str, type[keras.optimizers.schedules.LearningRateSchedule]]:
    """Returns the schedules of Keras that begin with a learning rate, by their names in configs."""
    return {
        name: kind
        for name, kind in vars(keras.optimizers.schedules).items()
        if isinstance(kind, type) and "initial_learning_rate" in inspect.signature(kind).parameters
    }


def check_optimizer(training: Any, default: Any) -> None:
    """Checks the keys of `training` that are about optimizer and schedule.

    Args:
        training: The group.
        default: The same group with the recipe's defaults.

    Raises:
        ConfigError: If there is no such optimizer, schedule or option, or a key has no effect with it.
    """
    kind = _optimizer(training.optimizer)
    for name in ("beta_1", "beta_2", "epsilon"):
        value, usual = getattr(training, name), getattr(default, name)
        if _argument(kind, name) is None and value != usual:
            with_it = f"with optimizer {training.optimizer!r}, which has none"
            raise ConfigError(f"training.{name} must be {usual!r} {with_it}, got {value!r}")
    allowed = [name for name in _parameters(kind) if name not in (*_KEY_OF, "name")]
    for name in training.optimizer_options:
        if name in _KEY_OF:
            raise ConfigError(f"training.optimizer_options must not hold {name}: that is training.{_KEY_OF[name]}")
        if name not in allowed:
            raise _unknown("training.optimizer_options", name, allowed)
    with errors_of("training.optimizer_options"):
        new_optimizer(training, 0.1)
    _check_schedule(training, default)


def _check_schedule(training: Any, default: Any) -> None:
    name, options = training.schedule, training.schedule_options
    if name not in SCHEDULES and name not in keras_schedules():
        raise _unknown("training.schedule", name, [*SCHEDULES, *keras_schedules()], quote=True)
    allowed = [*SCHEDULES.get(name, ())]
    if name in keras_schedules():
        taken = ("initial_learning_rate", "name")
        allowed = [key for key in inspect.signature(keras_schedules()[name]).parameters if key not in taken]
    for option in options:
        if option not in allowed:
            raise _unknown(f"training.schedule_options of {name!r}", option, allowed)
    if name not in FINITE and training.final_learning_rate:
        raise ConfigError(f"training.final_learning_rate must be 0 with {name}, got {training.final_learning_rate}")
    if name != "warmup_stable_decay" and training.decay_share != default.decay_share:
        raise ConfigError(
            f"training.decay_share must be {default.decay_share} with {name}, got {training.decay_share}: it is of "
            "warmup_stable_decay"
        )
    warmup = training.warmup_steps
    if warmup > 1 and warmup != int(warmup):
        raise ConfigError(f"training.warmup_steps must be a whole number, or a share below 1, got {warmup}")
    with errors_of("training.schedule_options"):
        if name in keras_schedules():
            float(keras_schedules()[name](0.1, **options)(0))
        elif name == "warmup_stable_decay":
            zoo.training.WarmupStableDecay(0.1, 0, 1, 1, **options)


def usual_learning_rate(training: Any, task: Any, saved: bool) -> float:
    """Returns the peak learning rate where `training.learning_rate` is null.

    With Adam, the best rate of matrices falls with their width (Yang et al. 2022, "Tensor Programs V", section 3);
    that of BERT base, 5e-5 at a width of 768 (Devlin et al. 2019, appendix A.3), gives the factor. Low-rank updates
    take ten times as much (Schulman et al. 2025, "LoRA Without Regret").

    Args:
        training: The group `training`.
        task: The task.
        saved: Whether its weights come from a saved model.
    """
    backbone = task.backbone
    if not saved or not backbone.trainable_weights:  # all that trains is new
        return training.new_model_learning_rate
    if training.optimizer.lower() not in _ADAMS:  # whose rates follow other rules
        return training.new_model_learning_rate
    rate = _RATE_TIMES_WIDTH / backbone.config.hidden_dim * (_LORA_FACTOR if backbone.adapters.active else 1)
    return min(rate, training.new_model_learning_rate)


def make_schedule(training: Any, updates: int) -> keras.optimizers.schedules.LearningRateSchedule | float:
    """Returns the learning rate as a function of the update; a number if it never changes, which callbacks may set.

    Args:
        training: The group `training`.
        updates: Number of updates of the whole training.

    Raises:
        ConfigError: If the warm-up is longer than the training.
    """
    peak, warmup, final = training.learning_rate, training.warmup_steps, training.final_learning_rate
    name, options = training.schedule, training.schedule_options
    warmup = round(warmup * updates) if warmup < 1 else int(warmup)
    if name == "inverse_square_root":
        return zoo.training.InverseSquareRoot(peak, max(1, warmup))
    if warmup >= updates:
        raise ConfigError(f"training.warmup_steps must be below the {updates} updates of the training, got {warmup}")
    if name == "constant":
        return zoo.training.WithWarmup(peak, warmup) if warmup else peak
    if name in keras_schedules():
        return zoo.training.WithWarmup(keras_schedules()[name](peak, **options), warmup)
    if name == "warmup_stable_decay":
        decay = max(1, min(round(training.decay_share * updates), updates - warmup))
        return zoo.training.WarmupStableDecay(peak, warmup, updates - warmup - decay, decay, final=final, **options)
    if name == "linear":
        return zoo.training.WarmupLinear(peak, warmup, updates, final)
    # Keras counts updates from 0, and its warm-up begins with the first rate that it is given: here above 0
    warmup, target = max(1, warmup), peak if warmup > 1 else None
    return keras.optimizers.schedules.CosineDecay(
        peak / warmup, max(1, updates - warmup), alpha=final / peak, warmup_target=target, warmup_steps=warmup - 1
    )


def new_optimizer(training: Any, rate: Any) -> keras.optimizers.Optimizer:
    """Returns the optimizer that `training` names.

    Args:
        training: The group `training`.
        rate: Its learning rate: a schedule in batches, or a number.
    """
    kind = _optimizer(training.optimizer)
    options = {
        _argument(kind, name): getattr(training, name)
        for name in ("beta_1", "beta_2", "epsilon")
        if _argument(kind, name) is not None
    }
    if kind is keras.optimizers.Muon:
        # the projection to the vocabulary learns like an embedding (Jordan et al. 2024, "Muon")
        options |= {"exclude_layers": ["embedding", "output_projection"], "adam_weight_decay": 0.0}
    options |= training.optimizer_options
    every = training.accumulation_steps
    return kind(
        rate,
        weight_decay=training.weight_decay or (0.0 if kind is keras.optimizers.AdamW else None),
        global_clipnorm=training.clip_norm,
        gradient_accumulation_steps=every if every and every > 1 else None,
        **options,
    )


def _optimizer(name: str) -> type[keras.optimizers.Optimizer]:
    if name.lower() not in optimizers():
        raise _unknown("training.optimizer", name, list(optimizers()), quote=True)
    return optimizers()[name.lower()]


def _parameters(kind: type) -> list[str]:
    return [name for name, each in inspect.signature(kind).parameters.items() if each.kind is not each.VAR_KEYWORD]


def _argument(kind: type, name: str) -> str | None:
    """What an optimizer calls a key; None if it has no such argument."""
    return next((each for each in (name, f"adam_{name}") if each in _parameters(kind)), None)


def _unknown(key: str, name: str, allowed: list[str], quote: bool = False) -> ConfigError:
    near = nearest(name, allowed) if allowed else None
    hint = f"; did you mean {near}?" if near else ""
    known = ", ".join(allowed) or "empty"
    if quote:
        return ConfigError(f"{key} must be one of {known}, got {shown(name)}{hint}")
    return ConfigError(f"{key} must be {'among ' if allowed else ''}{known}, got {shown(name)}{hint}")
