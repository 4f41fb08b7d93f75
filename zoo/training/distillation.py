"""Learning from another model: its probabilities and its hidden states, in place of labels or beside them."""

import contextlib
import os
from typing import Any

import keras
from keras import ops

from layers.keras_internals import compiled_loss
from zoo.counts import CountedLoss, CountedMean, count_of, number_counted, weights_for
from zoo.training.task_models import TaskModel
from zoo.training.vectors import unit_vectors


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class SoftTargets(CountedLoss):
    """Divergence from a teacher's probabilities, `T^2 * KL(softmax(teacher / T) || softmax(student / T))`.

    The factor keeps the size of the gradients independent of the temperature. The teacher's logits get no gradient.

    Args:
        temperature: T, above 0. Higher temperatures give more weight to the less probable tokens of the teacher.
        reduction, name: See `zoo.counts.CountedLoss`.

    Call arguments:
        y_true: Logits of the teacher, `(batch, length, vocabulary)`.
        y_pred: Logits of the student, of the same shape.
        sample_weight: `(batch, length)`, 0 where a token does not count.

    Raises:
        ValueError: If `temperature` is not above 0.

    Example:

    >>> SoftTargets(temperature=2.0)(teacher_logits, student_logits)

    Reference:
        Hinton et al. 2015, "Distilling the Knowledge in a Neural Network", section 2.
    """

    def __init__(
        self,
        temperature: float = 1.0,
        reduction: str | None = "sum_over_batch_size",
        name: str = "soft_targets",
        dtype: str = "float32",
    ) -> None:
        if not temperature > 0:
            raise ValueError(f"temperature must be above 0, got {temperature!r}.")
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        self.temperature = float(temperature)

    def call(self, y_true: Any, y_pred: Any) -> Any:
        teacher, student = (
            ops.log_softmax(ops.cast(logits, "float32") / self.temperature, axis=-1)
            for logits in (ops.stop_gradient(y_true), y_pred)
        )
        return self.temperature**2 * ops.sum(ops.exp(teacher) * (teacher - student), axis=-1)


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class HiddenCosine(CountedLoss):
    """One minus the cosine of the student's and the teacher's hidden states. The teacher's states get no gradient.

    Args:
        reduction, name: See `zoo.counts.CountedLoss`.

    Call arguments:
        y_true: Hidden states of the teacher, `(batch, length, dim)`.
        y_pred: Hidden states of the student, of the same shape.
        sample_weight: `(batch, length)`, 0 where a token does not count.

    Example:

    >>> HiddenCosine()(teacher_hidden, student_hidden, sample_weight=padding_mask)

    Reference:
        Sanh et al. 2019, "DistilBERT", section 2 (cosine embedding loss).
    """

    def __init__(
        self,
        reduction: str | None = "sum_over_batch_size",
        name: str = "hidden_cosine",
        dtype: str = "float32",
    ) -> None:
        super().__init__(name=name, reduction=reduction, dtype=dtype)

    def call(self, y_true: Any, y_pred: Any) -> Any:
        teacher, student = unit_vectors(ops.stop_gradient(y_true)), unit_vectors(y_pred)
        return 1.0 - ops.sum(teacher * student, axis=-1)


def _no_gradients() -> contextlib.AbstractContextManager[Any]:
    """In which PyTorch keeps nothing for gradients; other backends see that there are none."""
    if keras.backend.backend() != "torch":
        return contextlib.nullcontext()
    import torch

    return torch.no_grad()


class Distiller(TaskModel):
    """A student that learns from a teacher: `soft * SoftTargets + hard * (the compiled loss) + cosine * HiddenCosine`.

    Soft targets are compared where labels count, the last hidden states at all real tokens. The logs contain the parts
    with a weight above 0, as `soft_loss`, `hard_loss` and `cosine_loss`. Losses that layers of the student add (the
    balance of experts) are added once, independent of the weights. Metrics are those of the student.

    The teacher is not trained, and its weights are not saved with this model. Save the student, or call
    `save_to_preset`, which does so.

    Args:
        student: A task from token-level inputs to logits with a method `with_hidden`: `CausalLM`, `MaskedLM`,
            `Seq2SeqLM`.
        teacher: A task of the same kind with the same tokens.
        temperature: See `SoftTargets`.
        soft, hard, cosine: Weights of the losses, at least 0, not all 0.

    Raises:
        ValueError: If a weight is out of range, if student and teacher have different tokens, or if they have different
            widths with `cosine`.

    Example:

    >>> distiller = Distiller(student, teacher, temperature=2.0, soft=5.0, hard=2.0, cosine=1.0)
    >>> distiller.compile("adam", TokenCrossEntropy())
    >>> distiller.fit(batches)
    >>> student.save_to_preset("small")

    Reference:
        Hinton et al. 2015, "Distilling the Knowledge in a Neural Network"; Sanh et al. 2019, "DistilBERT", section 2,
        whose published code has the weights 5, 2 and 1 and the temperature 2.
    """

    def __init__(
        self,
        student: keras.Model,
        teacher: keras.Model,
        *,
        temperature: float = 2.0,
        soft: float = 0.5,
        hard: float = 0.5,
        cosine: float = 0.0,
        **options: Any,
    ) -> None:
        super().__init__([student, teacher], student, **options)
        for name, weight in (("soft", soft), ("hard", hard), ("cosine", cosine)):
            if not weight >= 0:
                raise ValueError(f"{name} must be at least 0, got {weight!r}.")
        if not soft + hard + cosine > 0:
            raise ValueError("soft, hard and cosine must not all be 0, got 0, 0 and 0.")
        configs = [task.backbone.config for task in (student, teacher)]
        sizes = [config.vocabulary_size for config in configs]
        if sizes[0] != sizes[1]:
            raise ValueError(f"student must have the teacher's {sizes[1]} tokens, got {sizes[0]}.")
        widths = [config.hidden_dim for config in configs]
        if cosine and widths[0] != widths[1]:
            raise ValueError(
                f"cosine must be 0 where student and teacher are {widths[0]} and {widths[1]} wide, got {cosine}."
            )
        self.student = student
        self.labels_are_of_tokens = student.labels_are_of_tokens
        # a function: Keras would track what is assigned, train it and save it
        self._teacher = lambda: teacher
        self._weights_of_losses = {"soft": float(soft), "hard": float(hard), "cosine": float(cosine)}
        self._soft_targets, self._hidden_cosine = SoftTargets(temperature), HiddenCosine()
        self.means: list[CountedMean] = [
            CountedMean(f"{name}_loss") for name, weight in self._weights_of_losses.items() if weight
        ]
        self._mean_added = CountedMean("added_loss")
        self.built = True

    # the student knows which of its weights have no use

    @property
    def trainable_variables(self) -> list[keras.Variable]:
        return self.student.trainable_variables

    @property
    def non_trainable_variables(self) -> list[keras.Variable]:
        return self.student.non_trainable_variables

    @property
    def trainable_weights(self) -> list[keras.Variable]:
        return self.student.trainable_weights

    @property
    def non_trainable_weights(self) -> list[keras.Variable]:
        return self.student.non_trainable_weights

    def call(self, inputs: dict[str, Any], training: bool | None = None) -> dict[str, Any]:
        logits, hidden = self.student.with_hidden(inputs, training=training)
        return {"logits": logits, "hidden": hidden}

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Any:
        weights = self._weights_of_losses
        sample_weight = self.weights_of_labels(y, sample_weight)
        losses: dict[str, Any] = {}
        labels_count = count_of(self.loss, x, y, sample_weight)
        counts = {"hard": labels_count, "soft": count_of(None, x, y, sample_weight)}
        # what layers of the student add, such as the balance of experts, is of no target
        added = sum(ops.sum(loss) for loss in self.losses)
        self._mean_added.update_state(added, labels_count)
        if weights["hard"]:
            hard_loss = compiled_loss(self)
            if hard_loss is None:
                raise ValueError(f"hard must be 0 without a loss in compile(), got {weights['hard']}.")
            losses["hard"] = hard_loss(y, y_pred["logits"], weights_for(self.loss, sample_weight, y_pred["logits"]))
        if weights["soft"] or weights["cosine"]:
            with _no_gradients():
                logits, hidden = self._teacher().with_hidden(x, training=False)
        if weights["soft"]:
            losses["soft"] = self._soft_targets(logits, y_pred["logits"], sample_weight)
        if weights["cosine"]:
            mask = x["decoder_padding_mask" if "decoder_padding_mask" in x else "padding_mask"]
            losses["cosine"] = self._hidden_cosine(hidden, y_pred["hidden"], mask)
            counts["cosine"] = number_counted(mask)
        for mean in self.means:
            name = mean.name.removesuffix("_loss")
            mean.update_state(losses[name], counts[name])
        return added + sum(weights[name] * loss for name, loss in losses.items())

    def get_metrics_result(self) -> dict[str, Any]:
        """As `keras.Model.get_metrics_result`. The loss is the weighted sum of the means of its parts."""
        logs = super().get_metrics_result()
        added = logs.pop(self._mean_added.name)
        logs["loss"] = added + sum(
            weight * logs[f"{name}_loss"] for name, weight in self._weights_of_losses.items() if weight
        )
        return logs

    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> dict[str, Any]:
        return super().compute_metrics(x, y, y_pred["logits"], self.weights_of_labels(y, sample_weight))

    def save_to_preset(self, directory: str | os.PathLike[str]) -> None:
        """Writes the student, see `Task.save_to_preset`.

        Args:
            directory: The directory to write.
        """
        self.student.save_to_preset(directory)
