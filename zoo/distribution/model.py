"""A Keras model that trains on whatever devices were chosen for it."""

from typing import Any

import keras

from zoo.distribution.checks import require_distributable
from zoo.distribution.data import distributed_data
from zoo.distribution.layouts import ModelLayouts
from zoo.distribution.replicas import add_gradients_first, first_replica, weighted_over_replicas


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
        super().compile(*args, **kwargs)
        require_distributable(self)
        add_gradients_first(self.optimizer)

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

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
    ) -> Any:
        """As `keras.Model.compute_loss`; of a replica of `tf.distribute` its part of the loss of the whole batch."""
        return weighted_over_replicas(super().compute_loss(x, y, y_pred, sample_weight, training), sample_weight)

    def _maybe_symbolic_build(self, iterator: Any = None, data_batch: Any = None) -> None:
        # TensorFlow's trainer takes the mean of a batch over the replicas, and masks have none
        if iterator is not None and self._distribute_strategy is not None:
            data_batch = first_replica(next(next(iter(iterator))[-1]), self._distribute_strategy)
            iterator = None
        super()._maybe_symbolic_build(iterator, data_batch)
