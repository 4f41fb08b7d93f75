"""Scheduled sampling: in the course of training, a decoder reads its own output more and more often."""

from typing import Any

import keras
from keras import ops

from layers.constructor_arguments import ConfigFromArguments
from layers.devices import seed_of_replica
from layers.roles import WHOLE

SCHEDULES = ("linear", "exponential", "inverse_sigmoid")


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class ScheduledSampling(ConfigFromArguments, keras.layers.Layer):
    """Draws, for each token of a batch, whether the decoder reads the true previous token or its own.

    The probability of the true token falls with the number i of training batches so far:

    * "linear": `max(minimum, constant - slope * i)`;
    * "exponential": `constant ** i`, with `constant` below 1;
    * "inverse_sigmoid": `constant / (constant + exp(i / constant))`, with `constant` at least 1.

    The number i is a weight of the layer, so it is saved and restored with the model. Each call counts as a batch.

    Args:
        schedule: "linear", "exponential" or "inverse_sigmoid".
        constant: The number `constant` of the formulas (k in the paper).
        slope: Decrease per batch of "linear"; 0 for the others.
        minimum: Lowest probability of "linear", in [0, 1); 0 for the others.

    Call arguments:
        token_ids: Any tensor `(batch, length)`. Only its shape is used.

    Returns:
        Booleans `(batch, length)`, true where the decoder reads the true token.

    Raises:
        ValueError: If an argument is out of range.

    Example:

    >>> sampling = ScheduledSampling("linear", constant=1.0, slope=0.001, minimum=0.25)
    >>> sampling(keras.ops.ones((2, 3)))    # probability 1 in the first batch
    [[True, True, True], [True, True, True]]

    Reference:
        Bengio et al. 2015, "Scheduled Sampling for Sequence Prediction with Recurrent Neural Networks", section 2.4.
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

    def build(self, token_ids_shape: tuple[int | None, ...] | None = None) -> None:
        self.batches = self.add_weight(
            shape=(), dtype="int32", initializer="zeros", trainable=False, autocast=False, name="batches"
        )

    def probability(self) -> Any:
        """Returns the current probability of the true token, a float32 scalar."""
        batches, constant = ops.cast(self.batches, "float32"), self.constant
        if self.schedule == "linear":
            return ops.maximum(constant - self.slope * batches, self.minimum)
        if self.schedule == "exponential":
            return ops.power(ops.cast(constant, "float32"), batches)
        # written as a sigmoid, because the exponential overflows
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


def check_schedule(schedule: str, constant: float, slope: float, minimum: float) -> None:
    """Checks the arguments of `ScheduledSampling`.

    Raises:
        ValueError: If an argument is out of range. The message names it.
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
