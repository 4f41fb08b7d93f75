"""Scheduled sampling: during training, a decoder sees its own output more and more often."""

from typing import Any

import keras
from keras import ops

from layers.devices import seed_of_replica
from layers.roles import WHOLE

SCHEDULES = ("linear", "exponential", "inverse_sigmoid")


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class ScheduledSampling(keras.layers.Layer):
    """Draws, for each token of a batch, whether the decoder reads the true previous token or its own.

    The probability of the true one falls with the number i of batches that were tossed for in training:

    * "linear": `max(minimum, constant - slope * i)`;
    * "exponential": `constant ** i`, with `constant` below 1;
    * "inverse_sigmoid": `constant / (constant + exp(i / constant))`, with `constant` at least 1.

    i is a weight of the layer, so that it is saved and restored with the model.

    Args:
        schedule: One of these names.
        constant: K of the formulas.
        slope: Fall per batch of "linear"; 0 for the others.
        minimum: Least probability of "linear"; 0 for the others.

    Call arguments:
        token_ids: Any tensor `(batch, length)`, of which the shape counts.

    Returns:
        Booleans `(batch, length)`, true where the true token is to be read. Each call counts as a batch.

    Raises:
        ValueError: If an argument is out of range.

    Example:

    >>> sampling = ScheduledSampling("linear", constant=1.0, slope=0.001, minimum=0.25)
    >>> sampling(keras.ops.ones((2, 3)))    # at the first batch with probability 1
    [[True, True, True], [True, True, True]]

    Reference:
        Bengio et al. 2015, section 2.4.
    """

    # small, and the same on all devices
    weight_role = WHOLE

    def __init__(self, schedule: str, constant: float, slope: float = 0.0, minimum: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_schedule(schedule, constant, slope, minimum)
        self.schedule = schedule
        self.constant = constant
        self.slope = slope
        self.minimum = minimum
        self.seed_generator = keras.random.SeedGenerator()

    def build(self, token_ids_shape: tuple | None = None) -> None:
        self.batches = self.add_weight(
            shape=(), dtype="int32", initializer="zeros", trainable=False, autocast=False, name="batches"
        )

    def probability(self) -> Any:
        """Probability of the true token at present, a float32 scalar."""
        batches, constant = ops.cast(self.batches, "float32"), self.constant
        if self.schedule == "linear":
            return ops.maximum(constant - self.slope * batches, self.minimum)
        if self.schedule == "exponential":
            return ops.power(ops.cast(constant, "float32"), batches)
        # as a sigmoid, because the exponential overflows
        return ops.sigmoid(ops.log(ops.cast(constant, "float32")) - batches / constant)

    @property
    def output_shape(self) -> tuple[None, None]:
        """The shape of the decisions, for the summary of a model."""
        return (None, None)

    def call(self, token_ids: Any) -> Any:
        numbers = keras.random.uniform(ops.shape(token_ids), seed=seed_of_replica(self.seed_generator))
        gold = numbers < self.probability()
        self.batches.assign(self.batches + 1)
        return gold

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "schedule": self.schedule,
            "constant": self.constant,
            "slope": self.slope,
            "minimum": self.minimum,
        }


def check_schedule(schedule: str, constant: float, slope: float, minimum: float) -> None:
    """Checks the arguments of `ScheduledSampling`.

    Raises:
        ValueError: If one is out of range, naming it.
    """
    if schedule not in SCHEDULES:
        raise ValueError(f"schedule must be one of {', '.join(map(repr, SCHEDULES))}, got {schedule!r}.")
    ranges = {
        "linear": ("above 0", constant > 0),
        "exponential": ("above 0 and below 1", 0 < constant < 1),
        "inverse_sigmoid": ("at least 1", constant >= 1),
    }
    allowed, holds = ranges[schedule]
    if not holds:
        raise ValueError(f"constant must be {allowed} with schedule={schedule!r}, got {constant}.")
    if schedule == "linear":
        if slope <= 0 or not 0 <= minimum < 1:
            raise ValueError(
                f"slope must be above 0 and minimum in [0, 1) with schedule='linear', got {slope} and {minimum}."
            )
    elif slope or minimum:
        raise ValueError(f"slope and minimum must be 0 with schedule={schedule!r}, got {slope} and {minimum}.")
