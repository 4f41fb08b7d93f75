"""Models around tasks, which train them in another way than `fit` of the tasks."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras

from layers.keras_internals import schedule_of
from zoo.distribution.model import DistributedModel
from zoo.distribution.replicas import scope_of
from zoo.training.layerwise import keep_exclusions


class TaskModel(DistributedModel):
    """A model around tasks that shares their weights. If the weights are adapted, it is compiled again, like the tasks.

    Args:
        tasks: The tasks whose outputs it uses, trained or not. Other models may be among them.
        trained: The task that is trained.
        **options: Arguments of `keras.Model`.
    """

    def __init__(self, tasks: Sequence[keras.Model], trained: keras.Model, **options: Any) -> None:
        super().__init__(**options)
        # a function: Keras would track what is assigned
        self._trained_task = lambda: trained
        for task in tasks:
            # a model of Keras cannot be adapted
            if hasattr(task, "adaptation"):
                task.adaptation.add_user(self)

    def compile(self, optimizer: Any = "rmsprop", loss: Any = None, **kwargs: Any) -> None:
        """Compiles the model, see `keras.Model.compile`."""
        given = {"optimizer": optimizer, "loss": loss, **kwargs}
        self._given_to_compile = lambda: given
        super().compile(**given)

    def compile_from_config(self, config: dict[str, Any]) -> None:
        # Keras asks for this where there is a compile() of one's own
        self.compile(**keras.saving.deserialize_keras_object(config))
        self.optimizer.build(self.trainable_variables)

    def get_compile_config(self) -> dict[str, Any] | None:
        return super().get_compile_config()

    def renew_training(self) -> None:
        """Compiles again with the arguments of `compile` and a fresh optimizer, for the variables that train now."""
        self.train_function = self.test_function = self.predict_function = None
        if self.compiled:
            with scope_of(self):
                self.compile(**with_fresh_optimizer(self._given_to_compile()))

    def fit(self, *args: Any, **kwargs: Any) -> keras.callbacks.History:
        """Trains the model, see `keras.Model.fit`.

        Raises:
            ValueError: If the weights of the task cannot train.
        """
        self._require_trainable("fit()")
        return super().fit(*args, **kwargs)

    def train_on_batch(self, *args: Any, **kwargs: Any) -> Any:
        """Trains on one batch, see `keras.Model.train_on_batch`. Raises the errors of `fit`."""
        self._require_trainable("train_on_batch()")
        return super().train_on_batch(*args, **kwargs)

    def _require_trainable(self, what: str) -> None:
        task = self._trained_task()
        if hasattr(task, "adaptation"):
            task.require_trainable(what)


def with_fresh_optimizer(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns arguments of `compile` with a fresh optimizer. An optimizer that was built belongs to its old variables.

    Args:
        given: The arguments.
    """
    optimizer = given["optimizer"]
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        return dict(given)
    config = optimizer.get_config()
    if schedule_of(optimizer) is not None:
        config["learning_rate"] = schedule_of(optimizer)  # one of one's own need not be registered
    fresh = type(optimizer).from_config(config)
    keep_exclusions(optimizer, fresh)
    return {**given, "optimizer": fresh}
