"""Learning-rate schedules with linear warm-up that Keras lacks; its `CosineDecay` has a warm-up.

Keras counts updates from 0, the papers from 1. Here `t = step + 1`: the first update already has a learning rate above
0, and the update number `warmup_steps` has the peak.

With `gradient_accumulation_steps=n`, Keras gives schedules the number of batches, not of updates (keras 3.15). Wrap the
schedule in `PerUpdate` then.
"""

import math
from typing import Any

import keras
from keras import ops

from layers.constructor_arguments import ConfigFromArguments


def _check_rate(name: str, value: float, allow_zero: bool = False) -> float:
    if not math.isfinite(value) or value < 0 or (value == 0 and not allow_zero):
        allowed = "a finite number of at least 0" if allow_zero else "a finite number above 0"
        raise ValueError(f"{name} must be {allowed}, got {value}.")
    return float(value)


def _check_steps(name: str, value: int, minimum: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise ValueError(f"{name} must be an integer of at least {minimum}, got {value!r}.")
    return value


class _WarmupSchedule(ConfigFromArguments, keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up to `peak` in `warmup_steps` updates, then `after_warmup`."""

    def __init__(self, peak: float, warmup_steps: int) -> None:
        super().__init__()
        self.peak = _check_rate("peak", peak)
        self.warmup_steps = _check_steps("warmup_steps", warmup_steps)

    def after_warmup(self, t: Any) -> Any:
        """Learning rate of update number `t` (from 1, float32), where `t > warmup_steps`; finite before, too."""
        raise NotImplementedError

    def __call__(self, step: Any) -> Any:
        t = ops.cast(step, "float32") + 1.0
        warming_up = self.peak * t / max(self.warmup_steps, 1)
        return ops.where(t <= self.warmup_steps, warming_up, self.after_warmup(t))


def _cooled(peak: float, final: float, progress: Any, shape: str) -> Any:
    """From `peak` at progress 0 to `final` at progress 1 and beyond."""
    progress = ops.clip(progress, 0.0, 1.0)
    if shape == "cosine":
        remaining = 0.5 * (1.0 + ops.cos(math.pi * progress))
    elif shape == "one_minus_sqrt":
        remaining = 1.0 - ops.sqrt(progress)
    else:
        remaining = 1.0 - progress
    return final + (peak - final) * remaining


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class InverseSquareRoot(_WarmupSchedule):
    """Linear warm-up, then decay with the inverse square root of the update number.

    Args:
        peak: The highest learning rate, that of update number `warmup_steps`.
        warmup_steps: Number of updates of the warm-up, at least 1.

    Raises:
        ValueError: If `peak` is not above 0, or `warmup_steps` is below 1.

    Example:

    >>> InverseSquareRoot(peak=0.005, warmup_steps=2000)
    >>> InverseSquareRoot.from_model_dim(512, warmup_steps=4000)   # "Attention is all you need", base model

    Reference:
        Vaswani et al. 2017, section 5.3, equation 3.
    """

    def __init__(self, peak: float, warmup_steps: int) -> None:
        super().__init__(peak, _check_steps("warmup_steps", warmup_steps, minimum=1))

    @classmethod
    def from_model_dim(cls, model_dim: int, warmup_steps: int, factor: float = 1.0) -> "InverseSquareRoot":
        """Returns the schedule of the paper, `factor * model_dim**-0.5 * min(t**-0.5, t * warmup_steps**-1.5)`.

        Args:
            model_dim: Width of the model.
            warmup_steps: Number of updates of the warm-up.
            factor: Factor on the learning rate.

        Example:

        >>> InverseSquareRoot.from_model_dim(512, 4000).peak   # 0.000699
        """
        _check_steps("model_dim", model_dim, minimum=1)
        _check_steps("warmup_steps", warmup_steps, minimum=1)
        return cls(_check_rate("factor", factor) * (model_dim * warmup_steps) ** -0.5, warmup_steps)

    def after_warmup(self, t: Any) -> Any:
        return self.peak * ops.sqrt(self.warmup_steps / t)


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class WarmupLinear(_WarmupSchedule):
    """Linear warm-up, then linear decay.

    Args:
        peak: Learning rate of update number `warmup_steps`.
        warmup_steps: Number of updates of the warm-up; 0 for none.
        total_steps: Number of the update from which on the learning rate is `final`.
        final: Learning rate at the end.

    Raises:
        ValueError: If a rate is below 0, or `total_steps` is not above `warmup_steps`.

    Example:

    >>> WarmupLinear(peak=5e-5, warmup_steps=100, total_steps=1000)

    Reference:
        Devlin et al. 2019 (BERT), appendix A.2.
    """

    def __init__(self, peak: float, warmup_steps: int, total_steps: int, final: float = 0.0) -> None:
        super().__init__(peak, warmup_steps)
        self.total_steps = _check_steps("total_steps", total_steps, minimum=warmup_steps + 1)
        self.final = _check_rate("final", final, allow_zero=True)

    def after_warmup(self, t: Any) -> Any:
        progress = (t - self.warmup_steps) / (self.total_steps - self.warmup_steps)
        return _cooled(self.peak, self.final, progress, "linear")


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class WarmupStableDecay(_WarmupSchedule):
    """Linear warm-up, a constant learning rate, and a decay at the end of the training.

    Args:
        peak: Learning rate of the constant phase.
        warmup_steps: Number of updates of the warm-up; 0 for none.
        stable_steps: Number of updates of the constant phase.
        decay_steps: Number of updates of the decay. Afterwards the learning rate is `final`.
        final: Learning rate at the end.
        decay: Shape of the decay: "linear", "cosine" or "one_minus_sqrt".

    Raises:
        ValueError: If a rate or number of updates is below 0, `decay_steps` is below 1, or the shape is unknown.

    Example:

    >>> WarmupStableDecay(peak=1e-3, warmup_steps=1000, stable_steps=16_000, decay_steps=3000)

    Reference:
        Hu et al. 2024 (MiniCPM), section 4; "one_minus_sqrt": Hägele et al. 2024, section 3.
    """

    def __init__(
        self,
        peak: float,
        warmup_steps: int,
        stable_steps: int,
        decay_steps: int,
        final: float = 0.0,
        decay: str = "linear",
    ) -> None:
        super().__init__(peak, warmup_steps)
        self.stable_steps = _check_steps("stable_steps", stable_steps)
        self.decay_steps = _check_steps("decay_steps", decay_steps, minimum=1)
        self.final = _check_rate("final", final, allow_zero=True)
        if decay not in ("linear", "cosine", "one_minus_sqrt"):
            raise ValueError(f"decay must be 'linear', 'cosine' or 'one_minus_sqrt', got {decay!r}.")
        self.decay = decay

    def after_warmup(self, t: Any) -> Any:
        progress = (t - self.warmup_steps - self.stable_steps) / self.decay_steps
        return _cooled(self.peak, self.final, progress, self.decay)


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class WithWarmup(ConfigFromArguments, keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up before another schedule, or before a constant learning rate.

    Args:
        schedule: Any schedule, which begins after the warm-up, or a constant learning rate.
        warmup_steps: Number of updates of the warm-up, which ends at the first learning rate of the schedule; 0 for
            none.

    Raises:
        ValueError: If a constant rate is not above 0, or `warmup_steps` is below 0.

    Example:

    >>> WithWarmup(keras.optimizers.schedules.ExponentialDecay(1e-3, 1000, 0.9), warmup_steps=100)
    >>> WithWarmup(1e-3, warmup_steps=100)
    """

    def __init__(self, schedule: keras.optimizers.schedules.LearningRateSchedule | float, warmup_steps: int) -> None:
        super().__init__()
        self.schedule = schedule if callable(schedule) else _check_rate("schedule", schedule)
        self.warmup_steps = _check_steps("warmup_steps", warmup_steps)

    def __call__(self, step: Any) -> Any:
        t = ops.cast(step, "float32") + 1.0
        first = self._rate(ops.zeros((), "float32"))
        after = self._rate(ops.maximum(t - 1.0 - self.warmup_steps, 0.0))
        return ops.where(t <= self.warmup_steps, first * t / max(self.warmup_steps, 1), after)

    def _rate(self, step: Any) -> Any:
        return ops.cast(self.schedule(step) if callable(self.schedule) else self.schedule, "float32")


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class PerUpdate(ConfigFromArguments, keras.optimizers.schedules.LearningRateSchedule):
    """A schedule that advances once per update when gradients are accumulated over several batches.

    Args:
        schedule: Any schedule, in updates.
        gradient_accumulation_steps: The number given to the optimizer.

    Raises:
        ValueError: If `gradient_accumulation_steps` is below 1.

    Example:

    >>> schedule = PerUpdate(InverseSquareRoot(0.005, 2000), gradient_accumulation_steps=4)
    >>> keras.optimizers.Adam(schedule, gradient_accumulation_steps=4)
    """

    def __init__(
        self, schedule: keras.optimizers.schedules.LearningRateSchedule, gradient_accumulation_steps: int
    ) -> None:
        super().__init__()
        self.schedule = schedule
        self.gradient_accumulation_steps = _check_steps(
            "gradient_accumulation_steps", gradient_accumulation_steps, minimum=1
        )

    def __call__(self, step: Any) -> Any:
        return self.schedule(ops.floor_divide(ops.cast(step, "int32"), self.gradient_accumulation_steps))
