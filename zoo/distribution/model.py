"""A Keras model that trains on whatever devices were chosen for it."""

import contextlib
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from layers.devices import num_replicas
from layers.keras_internals import ModelHooks, is_evaluated_by_fit, model_strategy, replace_loss_mean
from zoo.counts import LossMean, count_of, counting_batch, weights_for, weights_of_tokens
from zoo.distribution.accumulation import weigh_accumulated
from zoo.distribution.checks import require_distributable
from zoo.distribution.data import distributed_batch, distributed_data
from zoo.distribution.gathering import divide_values, gather_values
from zoo.distribution.layouts import ModelLayouts
from zoo.distribution.one_device import predicts_on_one_device
from zoo.distribution.replicas import add_gradients_first, first_replica, mean_over_replicas, scope_of
from zoo.distribution.sparse_gradients import sum_repeated_rows
from zoo.storage.processes import num_processes, whole_value


def without_autograph(step: Callable[..., Any]) -> Callable[..., Any]:
    """Keeps TensorFlow from rewriting the code of a step, and of all layers that it calls, which takes seconds.

    Args:
        step: The method of a model.
    """
    if keras.backend.backend() != "tensorflow":
        return step
    import tensorflow as tf

    return tf.autograph.experimental.do_not_convert(step)


class DistributedModel(ModelHooks):
    """A model whose `fit` and `evaluate` divide each batch among devices, with the results of one device.

    On one device it is a plain `keras.Model`. All code for training on several devices is here.
    """

    # whether labels are those of tokens, not of rows
    labels_are_of_tokens = False

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """As `keras.Model.compile`. On a JAX mesh the step is always compiled, and `jit_compile` has no effect.

        Raises:
            ValueError: If the model cannot be trained on the chosen devices.
        """
        if isinstance(keras.distribution.distribution(), ModelLayouts):
            # step by step, each operation would be a program that all processes start together
            kwargs["jit_compile"] = True
        metrics = kwargs.get("metrics", args[3] if len(args) > 3 else None)
        # a function: Keras would track what is assigned
        self._unweighted_metrics = lambda: metrics
        # also where `fit` compiles, which is called outside of it
        with scope_of(self):
            super().compile(*args, **kwargs)
            require_distributable(self)
            sum_repeated_rows(self.optimizer)
            add_gradients_first(self.optimizer)
            weigh_accumulated(self.optimizer)
            replace_loss_mean(self, LossMean("loss"))

    @property
    def unweighted_metrics(self) -> Any:
        """The `metrics` of `compile`, which ignore sample weights."""
        return self._unweighted_metrics() if self.compiled else None

    def fit(self, *args: Any, **kwargs: Any) -> keras.callbacks.History:
        """As `keras.Model.fit`; each device has its part of a batch."""
        names = ("x", "y", "batch_size", "epochs", "verbose", "callbacks")
        kwargs |= dict(zip(names, args, strict=False))
        return super().fit(**distributed_data(self, kwargs, shuffle=kwargs.get("shuffle", True)))

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        """As `keras.Model.evaluate`; each device has its part of a batch."""
        kwargs |= dict(zip(("x", "y", "batch_size"), args, strict=False))
        # what `fit` evaluates has been divided
        if is_evaluated_by_fit(kwargs):
            return super().evaluate(**kwargs)
        return super().evaluate(**distributed_data(self, kwargs))

    def train_on_batch(self, x: Any, y: Any = None, sample_weight: Any = None, **kwargs: Any) -> Any:
        """As `keras.Model.train_on_batch`; each device has its part of the batch."""
        return super().train_on_batch(*distributed_batch(self, x, y, sample_weight), **kwargs)

    def test_on_batch(self, x: Any, y: Any = None, sample_weight: Any = None, **kwargs: Any) -> Any:
        """As `keras.Model.test_on_batch`; each device has its part of the batch."""
        return super().test_on_batch(*distributed_batch(self, x, y, sample_weight), **kwargs)

    def predict(self, *args: Any, **kwargs: Any) -> Any:
        """As `keras.Model.predict`, on one device. With several processes it raises a ValueError."""
        with predicts_on_one_device(self):
            return super().predict(*args, **kwargs)

    def predict_on_batch(self, x: Any) -> Any:
        """As `keras.Model.predict_on_batch`, on one replica."""
        with predicts_on_one_device(self, by_batch=True):
            return super().predict_on_batch(x)

    def get_weights(self) -> list[np.ndarray]:
        """As `keras.Model.get_weights`. If processes have parts of the weights, all must call it at the same time.

        `EarlyStopping(restore_best_weights=True)` does so. Each process then keeps a copy of all weights in host
        memory.
        """
        if num_processes() == 1:
            return super().get_weights()
        return [whole_value(weight) for weight in self.weights]

    @without_autograph
    def train_step(self, *arguments: Any) -> Any:
        """Runs one training step, see `keras.Model.train_step`."""
        with self._step_on(*self._parts_of(arguments[-1])):
            return super().train_step(*arguments)

    @without_autograph
    def test_step(self, *arguments: Any) -> Any:
        """Runs one step of `evaluate`, see `keras.Model.test_step`."""
        with self._step_on(*self._parts_of(arguments[-1])):
            return super().test_step(*arguments)

    def _parts_of(self, data: Any) -> tuple[Any, Any, Any]:
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        return x, y, self.weights_of_labels(y, sample_weight)

    def _step_on(self, x: Any, y: Any, sample_weight: Any) -> contextlib.AbstractContextManager[None]:
        """In which a mean over batches knows what this one counts."""
        return counting_batch(mean_over_replicas(count_of(self.loss, x, y, sample_weight)))

    def weights_of_labels(self, y: Any, sample_weight: Any) -> Any:
        """Returns the weights of a batch, of each token if labels are those of tokens.

        Args:
            y, sample_weight: The batch.

        Raises:
            ValueError: If the weights do not fit the labels of tokens.
        """
        return weights_of_tokens(y, sample_weight) if self.labels_are_of_tokens else sample_weight

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
    ) -> Any:
        """As `keras.Model.compute_loss`, divided by the number of rows or tokens whose weight is not 0.

        In a `tf.distribute` replica, its part of the loss of the whole batch.
        """
        sample_weight = self.weights_of_labels(y, sample_weight)
        loss = super().compute_loss(x, y, y_pred, weights_for(self.loss, sample_weight, y_pred), training)
        if num_replicas() == 1:
            return loss
        own = count_of(self.loss, x, y, sample_weight)
        # Keras has divided the loss of the replica by its own count
        return loss * ops.cast(ops.divide_no_nan(own, mean_over_replicas(own)), loss.dtype)

    def compute_loss_and_updates(
        self, trainable_variables: list[Any], non_trainable_variables: list[Any], *arguments: Any, **options: Any
    ) -> Any:
        """As that of Keras's trainer on JAX, with weights of which devices have parts gathered."""
        loss, (unscaled, outputs, others, metrics) = super().compute_loss_and_updates(
            gather_values(self.trainable_variables, trainable_variables),
            gather_values(self.non_trainable_variables, non_trainable_variables),
            *arguments,
            **options,
        )
        return loss, (unscaled, outputs, divide_values(self.non_trainable_variables, others), metrics)

    def batch_to_build_on(self, iterator: Any) -> Any:
        """As `ModelHooks.batch_to_build_on`: the batch of the first replica, because masks have no mean."""
        strategy = model_strategy(self)
        return None if strategy is None else first_replica(next(next(iter(iterator))[-1]), strategy)
