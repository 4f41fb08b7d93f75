"""A Keras model that trains on whatever devices were chosen for it."""

from typing import Any

import keras
import numpy as np

from zoo.distribution.alone import predicting
from zoo.distribution.checks import adds_up, require_distributable
from zoo.distribution.data import distributed_batch, distributed_data
from zoo.distribution.layouts import ModelLayouts
from zoo.distribution.replicas import add_gradients_first, first_replica, scope_of, weighted_over_replicas
from zoo.storage.processes import num_processes, whole_value


class DistributedModel(keras.Model):
    """A model whose `fit` and `evaluate` give each device its part of a batch, with the result of one device.

    Without several devices it is a `keras.Model`. All that training on several takes is here.
    """

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """As `keras.Model.compile`. On a mesh of JAX the step is always compiled: `jit_compile` says nothing there.

        Raises:
            ValueError: If the model cannot train on the devices that were chosen.
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
            add_gradients_first(self.optimizer)

    @property
    def unweighted_metrics(self) -> Any:
        """The `metrics` that `compile` was given, which do not look at weights."""
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
        if kwargs.get("_use_cached_eval_dataset"):
            return super().evaluate(**kwargs)
        return super().evaluate(**distributed_data(self, kwargs))

    def train_on_batch(self, x: Any, y: Any = None, sample_weight: Any = None, **kwargs: Any) -> Any:
        """As `keras.Model.train_on_batch`; each device has its part of the batch."""
        return super().train_on_batch(*distributed_batch(self, x, y, sample_weight), **kwargs)

    def test_on_batch(self, x: Any, y: Any = None, sample_weight: Any = None, **kwargs: Any) -> Any:
        """As `keras.Model.test_on_batch`; each device has its part of the batch."""
        return super().test_on_batch(*distributed_batch(self, x, y, sample_weight), **kwargs)

    def predict(self, *args: Any, **kwargs: Any) -> Any:
        """As `keras.Model.predict`; of several devices one does it, and several processes raise a ValueError."""
        with predicting(self):
            return super().predict(*args, **kwargs)

    def predict_on_batch(self, x: Any) -> Any:
        """As `keras.Model.predict_on_batch`; of several replicas one does it."""
        with predicting(self, by_batch=True):
            return super().predict_on_batch(x)

    def get_weights(self) -> list[np.ndarray]:
        """As `keras.Model.get_weights`. Where several processes have parts of the weights, all must ask at once.

        `EarlyStopping(restore_best_weights=True)` does. Each process then keeps a copy of all weights in the memory of
        its host.
        """
        if num_processes() == 1:
            return super().get_weights()
        return [whole_value(weight) for weight in self.weights]

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
    ) -> Any:
        """As `keras.Model.compute_loss`; of a replica of `tf.distribute` its part of the loss of the whole batch."""
        loss = super().compute_loss(x, y, y_pred, sample_weight, training)
        # a sum over the rows of a replica is its part already
        return loss if adds_up(self.loss) else weighted_over_replicas(loss, sample_weight)

    def _maybe_symbolic_build(self, iterator: Any = None, data_batch: Any = None) -> None:
        # TensorFlow's trainer takes the mean of a batch over the replicas, and masks have none
        if iterator is not None and self._distribute_strategy is not None:
            data_batch = first_replica(next(next(iter(iterator))[-1]), self._distribute_strategy)
            iterator = None
        super()._maybe_symbolic_build(iterator, data_batch)
