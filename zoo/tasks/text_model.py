"""A Keras model that trains on raw rows and predicts from them. Its preprocessor makes the batches."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from layers.keras_internals import is_evaluated_by_fit, model_strategy, sublayers
from zoo.distribution.model import DistributedModel
from zoo.distribution.one_device import predicts_on_one_device
from zoo.distribution.replicas import scope_of
from zoo.preprocessing import EVALUATION_SEED, Examples, Preprocessor, map_by_length
from zoo.preprocessing.fit_inputs import FitInputs
from zoo.preprocessing.rows import is_raw, require_count
from zoo.tasks.token_head import TokenHead
from zoo.training.logits import are_of_single_rows, loss_of_logits, metrics_of_logits
from zoo.training.one_kernel import update_by_one_kernel
from zoo.training.task_models import with_fresh_optimizer


class TextModel(DistributedModel):
    """A model whose `fit`, `evaluate` and `predict` take the raw inputs of its preprocessor.

    Raw inputs are texts and the other inputs of the preprocessor: lists, arrays and tensors of strings, `tf.data` of
    these, generators and `keras.utils.PyDataset` of batches of them. Data without strings are on token level and are
    passed to Keras.

    A subclass sets `preprocessor` and `input_names`, and defines `call`, `default_loss` and `predict_texts`.
    """

    preprocessor: Preprocessor
    # token-level inputs that a call needs
    input_names: Sequence[str]
    # whether the model returns logits, of which `predict` makes probabilities or texts
    returns_logits = True
    # whether each logit is a decision of its own
    logits_are_binary = False
    # of models that predict tokens
    token_head: TokenHead | None = None

    # What a subclass defines.

    def default_loss(self) -> Any:
        """Returns the loss of `compile(loss="auto")`."""
        raise NotImplementedError

    def default_optimizer(self) -> Any:
        """Returns the optimizer of `compile(optimizer="auto")`."""
        return keras.optimizers.Adam(1e-4, global_clipnorm=1.0)

    def default_metrics(self) -> list[Any]:
        """Returns the weighted metrics that `compile` uses by default."""
        return []

    def predict_texts(self, x: Any, batch_size: int) -> Any:
        """Returns the predictions of `predict` for raw inputs, one entry per row.

        Args:
            x: Raw inputs of the user, not checked yet.
            batch_size: Rows per batch.
        """
        raise NotImplementedError(f"{type(self).__name__} does not predict from texts.")

    def require_trainable(self, what: str) -> None:
        """Raises a ValueError if the weights cannot train.

        Args:
            what: The operation that needs training, for the error message.
        """

    # Training.

    def compile(self, optimizer: Any = "auto", loss: Any = "auto", **kwargs: Any) -> None:
        """Configures training. Arguments that are left out get the task's defaults.

        Args:
            optimizer: Default `default_optimizer()`. On TensorFlow, `Adam` and `AdamW` of Keras update each weight by
                one kernel, see `zoo.training.one_kernel`.
            loss: Default `default_loss()`. A cross-entropy given by name or as a class takes logits, because the model
                returns logits.
            **kwargs: Passed on to `keras.Model.compile`. Without `metrics` and `weighted_metrics`, the metrics are
                `default_metrics()`.
        """
        if "sampler" in kwargs:
            raise TypeError(
                f"compile() takes no sampler, got {kwargs['sampler']!r}: pass it to generate(sampler=...), or as the "
                "default generation={'sampler': ...} of the task."
            )
        given = {"optimizer": optimizer, "loss": loss, **kwargs}
        # a function: Keras would track what a dictionary holds
        self._given_to_compile = lambda: given
        if isinstance(optimizer, str) and optimizer == "auto":
            with scope_of(self):
                optimizer = self.default_optimizer()
        if isinstance(loss, str) and loss == "auto":
            loss = self.default_loss()
        elif self.returns_logits:
            loss = loss_of_logits(loss)
        for name in ("metrics", "weighted_metrics") if self.returns_logits else ():
            if name in kwargs:
                kwargs[name] = metrics_of_logits(kwargs[name], self.logits_are_binary, name)
        if "metrics" not in kwargs and "weighted_metrics" not in kwargs:
            kwargs["weighted_metrics"] = self.default_metrics()
        if kwargs.get("metrics") is None and kwargs.get("weighted_metrics") is None:
            # without a list Keras keeps those of the `compile` before
            kwargs["weighted_metrics"] = []
        metrics = [kwargs.get("metrics"), kwargs.get("weighted_metrics")]
        if self.token_head is not None:
            self.token_head.compile(type(self), loss, metrics)
        self._flattens_tokens = self.labels_are_of_tokens and are_of_single_rows(metrics)
        super().compile(optimizer=optimizer, loss=loss, **kwargs)
        update_by_one_kernel(self.optimizer)

    def renew_training(self) -> None:
        """Compiles again with the same arguments and a new optimizer, after the trainable variables have changed."""
        self.train_function = self.test_function = self.predict_function = None
        if not self.compiled:
            return
        with scope_of(self):
            self.compile(**with_fresh_optimizer(self._given_to_compile()))
        self._build_optimizer()

    def compile_from_config(self, config: dict[str, Any]) -> None:
        # Keras asks for this where compile() has defaults of its own
        self.compile(**keras.saving.deserialize_keras_object(config))
        if self.optimizer is not None:
            # a file has values for its variables
            self.optimizer.build(self.trainable_variables)

    def get_compile_config(self) -> dict[str, Any] | None:
        return super().get_compile_config()

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int = 1,
        *,
        sample_weight: Any = None,
        class_weight: Mapping[Any, float] | None = None,
        validation_data: Any = None,
        validation_split: float = 0.0,
        validation_batch_size: int | None = None,
        shuffle: bool = True,
        packed: bool | int = False,
        **kwargs: Any,
    ) -> keras.callbacks.History:
        """Trains, on raw texts or on token-level batches.

        Args:
            x: Texts (list, array or tensor of strings), or other inputs of the task (conversations, lists of messages,
                for a `CausalLM`); a `tf.data.Dataset` of `x`, `(x, y)` or `(x, y, sample_weight)` (rows, or batches of
                rows); a generator or `keras.utils.PyDataset` of such batches; or anything on token level that
                `keras.Model.fit` takes.
            y: Targets, if the task has any.
            batch_size: Rows per batch. Default 32.
            epochs: Number of passes over the data.
            sample_weight: Weight of each row, `(rows,)`. With labels of tokens on token level, also that of each token,
                `(rows, length)`.
            class_weight: Weights of labels, by name or number. Default 1.
            validation_data: `(x, y)`, `(x, y, sample_weight)`, a dataset, or for tasks without targets `x` alone.
            validation_split: Fraction of the rows, taken from the end, that is kept for validation, in [0, 1).
            validation_batch_size: Rows per batch of validation. Default `batch_size`.
            shuffle: Whether rows are shuffled again in each epoch. A dataset keeps its order.
            packed: For a `CausalLM`, whether to pack texts end to end in rows without padding, also in validation:
                True for rows of the model's longest length, or the length of a row. Packed texts do not attend to each
                other, and conversations stay whole. With False each text is a row, and a text longer than the model
                allows is an error.
            **kwargs: Passed on to `keras.Model.fit`.

        Returns:
            The `keras.callbacks.History`.

        Raises:
            TypeError, ValueError: If a row is invalid, before the first step. The message names argument, row and what
                is allowed.
        """
        self._prepare_training("fit()")
        arguments = self._fit_inputs.for_fit(
            x,
            y,
            sample_weight,
            batch_size=batch_size,
            class_weight=class_weight,
            validation_data=validation_data,
            validation_split=validation_split,
            validation_batch_size=validation_batch_size,
            shuffle=shuffle,
            packed=packed,
        )
        self._build_optimizer()
        return super().fit(epochs=epochs, **arguments, **kwargs)

    def evaluate(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        *,
        sample_weight: Any = None,
        packed: bool | int = False,
        **kwargs: Any,
    ) -> Any:
        """Returns loss and metrics on raw rows or token-level batches. Arguments are those of `fit`."""
        if not self.compiled:
            self.compile()
        if is_evaluated_by_fit(kwargs):
            # the validation data of `fit`, which has prepared them
            return super().evaluate(x, y, batch_size, sample_weight=sample_weight, **kwargs)
        data = self._fit_inputs.for_evaluate(x, y, sample_weight, batch_size=batch_size, packed=packed)
        return super().evaluate(**data, **kwargs)

    def train_on_batch(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        class_weight: Mapping[Any, float] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Like `keras.Model.train_on_batch`, also for a batch of raw rows; `class_weight` as for `fit`."""
        self._prepare_training("train_on_batch()")
        batch = self._fit_inputs.for_one_batch(x, y, sample_weight, None, class_weight)
        self._build_optimizer()
        return super().train_on_batch(*batch, **kwargs)

    def test_on_batch(self, x: Any, y: Any = None, sample_weight: Any = None, **kwargs: Any) -> Any:
        """Like `keras.Model.test_on_batch`, also for a batch of raw rows."""
        if not self.compiled:
            self.compile()
        return super().test_on_batch(
            *self._fit_inputs.for_one_batch(x, y, sample_weight, seed=EVALUATION_SEED), **kwargs
        )

    @contextlib.contextmanager
    def _step_on(self, x: Any, y: Any, sample_weight: Any) -> Iterator[None]:
        with contextlib.ExitStack() as contexts:
            contexts.enter_context(super()._step_on(x, y, sample_weight))
            if self.token_head is not None:
                contexts.enter_context(self.token_head.step_on(y, sample_weight))
            yield

    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> dict[str, Any]:
        """As `keras.Model.compute_metrics`. Metrics of Keras get tokens as rows.

        Otherwise Keras would first take the mean over the length of each row, in which padding counts.
        """
        sample_weight = self.weights_of_labels(y, sample_weight)
        parts = [part for part in (y, y_pred, sample_weight) if part is not None]
        if self._flattens_tokens and all(hasattr(part, "shape") and len(part.shape) > 1 for part in parts):
            y, y_pred, sample_weight = (
                part if part is None else ops.reshape(part, (-1, *part.shape[2:]))
                for part in (y, y_pred, sample_weight)
            )
        return super().compute_metrics(x, y, y_pred, sample_weight)

    # Prediction.

    def predict(self, x: Any, batch_size: int | None = None, **kwargs: Any) -> Any:
        """Returns the task's predictions for raw rows, or the outputs of the model for token-level batches.

        Args:
            x: Texts or other raw inputs of the task, a `tf.data.Dataset` of these, or token-level inputs.
            batch_size: Rows per batch. Default 32.
            **kwargs: Passed on to `keras.Model.predict` on token level. With texts only `verbose` is allowed.

        Raises:
            TypeError, ValueError: If a row is invalid. The message names argument, row and what is allowed.
        """
        x, is_text = self._fit_inputs.for_predict(x)
        if not is_text:
            return super().predict(x, batch_size=batch_size, **kwargs)
        others = sorted(set(kwargs) - {"verbose"})
        if others:
            raise ValueError(f"Arguments of predict() on texts must be x, batch_size or verbose, got {others}.")
        return self.predict_texts(x, require_count(32 if batch_size is None else batch_size, "batch_size"))

    def predict_on_batch(self, x: Any) -> Any:
        """Like `keras.Model.predict_on_batch`; for raw rows, like `predict`."""
        if is_raw(x):
            return self.predict(x)
        self._fit_inputs.require_token_level(x, "x")
        return super().predict_on_batch(x)

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        self._fit_inputs.require_token_level(inputs, "inputs")
        return super().__call__(inputs, *args, **kwargs)

    def map_batches(
        self, function: Callable[[np.ndarray, dict[str, Any], Any], Sequence[Any]], rows: Examples, batch_size: int
    ) -> list[Any]:
        """Runs the model on batches of rows of similar length, and returns one result per row, in their order.

        Args:
            function: Maps the indices of the rows of a batch, their token-level inputs and the outputs of the model to
                one result per row.
            rows: The result of `preprocessor.rows`.
            batch_size: Rows per batch.
        """

        def run(numbers: np.ndarray) -> Sequence[Any]:
            inputs = self.preprocessor.inputs(rows.take(numbers).tokens)
            inputs = {name: np.asarray(value) for name, value in inputs.items()}
            return function(numbers, inputs, self.predict_on_batch(inputs))

        with predicts_on_one_device(self, by_batch=True):
            return map_by_length(run, rows.lengths, require_count(batch_size, "batch_size"))

    def _prepare_training(self, what: str) -> None:
        self.require_trainable(what)
        if not self.compiled:
            self.compile()

    def _build_optimizer(self) -> None:
        """Makes the optimizer's variables before the first step, where that helps.

        TensorFlow traces a function again if it makes variables: the first step would take twice as long. Elsewhere,
        and in the scope of a `tf.distribute.Strategy`, Keras makes them itself, as it does behind the weights of layers
        that are built by their first call.
        """
        if keras.backend.backend() != "tensorflow" or model_strategy(self) is not None:
            return
        are_built = all(layer.built for layer in sublayers(self, include_self=False))
        if self.optimizer is not None and not self.optimizer.built and are_built:
            self.optimizer.build(self.trainable_variables)

    @property
    def _fit_inputs(self) -> FitInputs:
        # a loaded file replaces the preprocessor
        return FitInputs(self.preprocessor, self.input_names)
