"""Resuming: the same command continues where a killed run stopped."""

import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops

from zoo.storage import name_variables, open_tensors, read_variables, save_weights
from zoo.training.callback_state import (
    check_callback,
    get_callback_state,
    join_arrays,
    set_callback_state,
    split_arrays,
)
from zoo.training.resumable_data import ResumableData
from zoo.training.state_folder import SavedState, StateFolder

# What `model.stop_training` is set to where only the epoch is to end; other callbacks set it to True.
_END_OF_EPOCH = "end of epoch"


class TrainingState(keras.callbacks.Callback):
    """Saves the complete state of a training run, and resumes the run after a crash or a kill.

    A state has the variables of the model (weights, seed generators of dropout), the variables of the optimizer (step,
    moments, accumulated gradients, loss scale), the position in the data, the metrics of the epoch so far, the history,
    and the state of the given callbacks: patience counters, best values, length of the CSV log (which is cut to that
    length on a resume). With deterministic kernels (`tf.config.experimental.enable_op_determinism()`) a resumed run
    gives the same numbers as an uninterrupted one, bit for bit.

    Each state is a folder `epoch-EEEEE-batch-BBBBBBBB` of safetensors and JSON. It is written under a temporary name,
    flushed to the disk and renamed, so a kill or a full disk leaves the previous state intact. States are saved when
    the training begins, every `save_every` batches, after every epoch and its validation, and when a callback stops the
    training within an epoch.

    It must be the last callback of `fit`, because it saves the state of the others. Do not set `steps_per_epoch`,
    because Keras then keeps one iterator across epochs. After a resume within an epoch, Keras's progress bar counts the
    remaining batches.

    Args:
        directory: Folder of the states, created if needed. No other process may write there.
        data: The training data, see `ResumableData`.
        callbacks: Callbacks of the same `fit` whose state is kept: Keras's `EarlyStopping`, `ReduceLROnPlateau`,
            `ModelCheckpoint`, `CSVLogger` (with `append=True`), `TensorBoard`, and any with `get_state()` and
            `set_state(state)`.
        save_every: Number of batches between two states within an epoch; None saves after epochs only. With
            `steps_per_execution=n`, states fall on multiples of n.
        keep: Number of states that are kept.
        monitor: Name in the logs of the metric whose best weights are kept in `best.safetensors`; None keeps none. Of
            epochs with equal values, the one with the lowest `val_loss` is kept.
        mode: "min" or "max": which values of the metric are better.

    Attributes:
        initial_epoch: The argument `initial_epoch` of `fit`. If a callback has stopped the training at the end of an
            epoch (early stopping), it is larger than any number of epochs, so that `fit` does nothing.
        resumed: Whether a state was found.
        seconds: Duration of the training in all processes, without the work that a kill has lost.
        best_weights_path: Path of the best weights, see `load_weights`.

    Raises:
        ValueError: If an argument is invalid, or the data has another number of batches than when the state was saved.
            In `fit`, if the variables differ (all are listed), if `initial_epoch` was not passed on, if callbacks are
            missing or in the wrong order, or if the loss is not finite when a state is saved.
        OSError: If a state cannot be written. The previous state is intact.

    Example:

    >>> callbacks = [
    ...     keras.callbacks.EarlyStopping(patience=5),
    ...     keras.callbacks.CSVLogger("run/metrics.csv", append=True),
    ... ]
    >>> state = TrainingState("run/checkpoints", data, callbacks, save_every=500, monitor="val_loss")
    >>> model.fit(
    ...     data.dataset,
    ...     validation_data=validation,
    ...     epochs=30,
    ...     initial_epoch=state.initial_epoch,
    ...     callbacks=[*callbacks, state],
    ... )
    """

    def __init__(
        self,
        directory: str | Path,
        data: ResumableData,
        callbacks: Sequence[keras.callbacks.Callback] = (),
        save_every: int | None = 1000,
        keep: int = 1,
        monitor: str | None = None,
        mode: str = "min",
    ) -> None:
        super().__init__()
        if save_every is not None and save_every < 1:
            raise ValueError(f"save_every must be a number of batches of at least 1, or None, got {save_every}.")
        if mode not in ("min", "max"):
            raise ValueError(f"mode must be 'min' or 'max', got {mode!r}.")
        for callback in callbacks:
            check_callback(callback)
        self.directory: Path = Path(directory)
        self.data = data
        self.callbacks: list[keras.callbacks.Callback] = list(callbacks)
        self.save_every = save_every
        self.monitor = monitor
        self.mode = mode
        self.best_weights_path: Path = self.directory / "best.safetensors"
        self._folder = StateFolder(self.directory, keep)
        self._found = self._folder.latest()
        if self._found is not None:
            self._check_found(self._found)
        self._best: float | None = None
        self._best_loss = math.inf  # `val_loss` of the epoch with the best value
        # Where the epoch that begins next is entered; None after the first one has begun.
        self._entry: tuple[int, int] | None = None
        self._epoch = self._batch = self._last_saved_batch = self._first_batch = 0
        # those of earlier processes; when the training of this one began
        self._seconds = 0.0 if self._found is None else self._found.values.get("seconds", 0.0)
        self._started: float | None = None

    @property
    def resumed(self) -> bool:
        return self._found is not None

    @property
    def initial_epoch(self) -> int:
        if self._found is None:
            return 0
        return sys.maxsize if self._found.values["finished"] else self._found.values["epoch"]

    @property
    def seconds(self) -> float:
        return self._seconds + (0.0 if self._started is None else time.monotonic() - self._started)

    def set_model(self, model: keras.Model) -> None:
        super().set_model(model)
        # asking for `self.model` makes the trainer on JAX write all variables back, which is too slow for every batch
        self._fitted = model
        for callback in self.callbacks:
            # Keras introduces the model to the callbacks in their order, so all before this one know it.
            if getattr(callback, "model", None) is not model:
                raise ValueError(
                    f"{type(callback).__name__} must stand before TrainingState in the callbacks given to `fit`: "
                    "fit(callbacks=[*callbacks, state])."
                )

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._started = time.monotonic()
        model = self.model
        if not model.built:
            raise ValueError(
                "The model must be built before `fit`, as its variables are compared with the saved ones, got one that "
                "is not: call it once."
            )
        if not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)
        if self._found is None:
            self._entry = (0, 0)
            self._save(0, 0, {})
            return
        values = self._found.values
        self._entry = (self.initial_epoch, values["batch"])
        for group, variables in self._groups().items():
            read_variables(self._found.tensors, variables, group)
        with open_tensors(self._found.tensors) as file:
            states = [join_arrays(state, file.get_tensor) for _, state in values["callbacks"]]
        for callback, state in zip(self.callbacks, states, strict=True):
            set_callback_state(callback, state)
        model.history.history = {name: list(column) for name, column in values["history"].items()}
        self._best = values["best"]
        self._best_loss = values.get("best_loss", math.inf)

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        skip_batches = 0
        if self._entry is not None:
            (expected, skip_batches), self._entry = self._entry, None
            if epoch != expected:
                raise ValueError(
                    f"Training begins with epoch {epoch}, but the state in {self.directory} is at epoch {expected}: "
                    "give initial_epoch=state.initial_epoch to `fit`."
                )
        self.data.start_epoch(epoch, skip_batches)
        self._epoch, self._batch, self._last_saved_batch = epoch, skip_batches, skip_batches
        if skip_batches:
            self._build_metrics(epoch, skip_batches)
            read_variables(self._found.tensors, self._metric_variables(), "metrics/")

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        self._seconds, self._started = self.seconds, None

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self._first_batch = batch

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        # With `steps_per_execution` several batches end at once; the last execution of an epoch may have had fewer.
        executed = batch - self._first_batch + 1
        self._batch = min(self._batch + executed, self.data.number_of_batches)
        if self._batch == self.data.number_of_batches:
            # Ends the epoch here. If Keras asked for one batch more to find the end of the data, the training step that
            # fails for lack of data would still do what does not depend on data: count the update, decay the weights,
            # advance the seed generators (keras 3.15 on TensorFlow).
            self._fitted.stop_training = self._fitted.stop_training or _END_OF_EPOCH
            return
        due = self.save_every is not None and self._batch - self._last_saved_batch >= self.save_every
        if due or self._fitted.stop_training:
            self._last_saved_batch = self._batch
            self._save(self._epoch, self._batch, logs)

    def on_test_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._go_on()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._go_on()
        if self._batch < self.data.number_of_batches:
            if not self._fitted.stop_training:
                raise ValueError(
                    f"Epoch {epoch} ended after {self._batch} batches, but the data says that it has "
                    f"{self.data.number_of_batches} (number_of_batches)."
                )
            return
        self._keep_best(epoch, logs)
        self._save(epoch + 1, 0, logs, finished=bool(self._fitted.stop_training))

    def _go_on(self) -> None:
        """Lets training continue after the epoch, unless another callback has asked for it to stop in the meantime."""
        if self._fitted.stop_training is _END_OF_EPOCH:
            self._fitted.stop_training = False

    def _build_metrics(self, epoch: int, skip_batches: int) -> None:
        """Creates the variables of the compiled metrics, which the TensorFlow trainer does only in its first step."""
        with open_tensors(self._found.tensors) as file:
            stored = sum(name.startswith("metrics/") for name in file.keys())
        if len(self.model.metrics_variables) != stored:
            # any batch does; to come to the first one takes no time
            self.data.start_epoch(epoch)
            batch = keras.tree.map_structure(
                lambda part: part.numpy() if hasattr(part, "numpy") else part, next(iter(self.data.dataset))
            )
            self.data.start_epoch(epoch, skip_batches)
            self.model.test_on_batch(*keras.utils.unpack_x_y_sample_weight(batch))
            self.model.reset_metrics()

    def _metric_variables(self) -> dict[str, keras.Variable]:
        return name_variables(self.model.metrics_variables, "metrics/")

    def _groups(self) -> dict[str, dict[str, keras.Variable]]:
        """Variables of the model and of the optimizer, by group and name."""
        return {
            "model/": name_variables(self.model.variables, "model/"),
            "optimizer/": name_variables(self.model.optimizer.variables, "optimizer/"),
        }

    def _keep_best(self, epoch: int, logs: dict[str, Any]) -> None:
        if self.monitor is None:
            return
        if self.monitor not in logs:
            if self.monitor.startswith("val_") and not any(name.startswith("val_") for name in logs):
                return  # an epoch without validation (`validation_freq`)
            raise ValueError(f"monitor must be in the logs, which have {', '.join(logs)}, got {self.monitor!r}.")
        value, loss = float(logs[self.monitor]), float(logs.get("val_loss", math.inf))
        better = self._best is None or (value < self._best if self.mode == "min" else value > self._best)
        # the accuracy of a small validation set is the same for many epochs
        better |= value == self._best and loss < self._best_loss
        if better and np.isfinite(value):
            self._best, self._best_loss = value, loss
            metadata = {"epoch": str(epoch), "monitor": self.monitor, "value": repr(value)}
            save_weights(self.best_weights_path, self.model, metadata)

    def _history(self, logs: dict[str, Any], epoch_ended: bool) -> dict[str, list[float]]:
        """History up to now. Keras' own `History` comes after this callback and lacks the epoch that ends."""
        history = self.model.history
        values = {name: list(values) for name, values in history.history.items()}
        if epoch_ended and logs and (not history.epoch or history.epoch[-1] != self._epoch):
            for name, value in logs.items():
                values.setdefault(name, []).append(float(value))
        return values

    def _save(self, epoch: int, batch: int, logs: dict[str, Any], finished: bool = False) -> None:
        loss = logs.get("loss")
        if loss is not None and not np.isfinite(loss):
            raise ValueError(
                f"The loss is {loss} in epoch {self._epoch}, batch {self._batch}; no state is saved. The previous one "
                "is unharmed."
            )
        arrays: dict[str, np.ndarray] = {}
        callbacks = [
            (type(callback).__name__, split_arrays(get_callback_state(callback), f"callbacks/{index}", arrays))
            for index, callback in enumerate(self.callbacks)
        ]
        groups = self._groups()
        tensors = {**groups["model/"], **groups["optimizer/"], **arrays}
        if batch:
            tensors.update(self._metric_variables())
        state = {
            "epoch": epoch,
            "batch": batch,
            "finished": finished,
            "seconds": self.seconds,
            "step": int(ops.convert_to_numpy(self.model.optimizer.iterations)),
            "number_of_batches": self.data.number_of_batches,
            "best": self._best,
            "best_loss": self._best_loss,
            "callbacks": callbacks,
            "history": self._history(logs, epoch_ended=not batch),
        }
        self._folder.write(epoch, batch, tensors, state)

    def _check_found(self, state: SavedState) -> None:
        """Raises an error for a state that belongs to other data or callbacks."""
        found, number_of_batches = state.values["number_of_batches"], self.data.number_of_batches
        if found != number_of_batches:
            raise ValueError(
                f"The training state {state.folder} was saved with data of {found} batches per epoch, but `data` has "
                f"{number_of_batches}: resume with the same data, or start in a new folder."
            )
        kinds = [kind for kind, _ in state.values["callbacks"]]
        expected = [type(callback).__name__ for callback in self.callbacks]
        if kinds != expected:
            raise ValueError(
                f"The training state {state.folder} was saved with `callbacks` {kinds}, but now they are {expected}: "
                "give the same, or start in a new folder."
            )
