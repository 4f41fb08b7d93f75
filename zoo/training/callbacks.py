"""Small callbacks for training: throughput, sample outputs, a clear stop on a loss that is not finite."""

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops

from zoo.storage import atomic_write, write_bytes


class Throughput(keras.callbacks.Callback):
    """Adds `tokens_per_second` of the training to the logs of each epoch.

    The time is measured from the end of the first batch, in which the model may be compiled, to the end of the last
    batch of the epoch. It includes waiting for data, but not validation. An epoch with only one batch, also after a
    resume, gets NaN, so that all epochs have the same columns in a log. Put this callback before those that write logs.

    Args:
        tokens: Name of the metric that counts tokens, a `TokenCount` in `compile(weighted_metrics=[...])`.

    Raises:
        ValueError: In `fit`, if the model has no such metric.

    Example:

    >>> model.compile("adam", TokenCrossEntropy(), weighted_metrics=[TokenCount()])
    >>> model.fit(dataset, callbacks=[Throughput(), keras.callbacks.CSVLogger("metrics.csv")])
    """

    def __init__(self, tokens: str = "tokens") -> None:
        super().__init__()
        self.tokens = tokens
        self._start: tuple[float, float] | None = None
        self._end: tuple[float, float] | None = None

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._start = self._end = None

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        if self.tokens not in logs:
            raise ValueError(
                f"The model has no metric {self.tokens!r} that counts tokens: compile it with "
                "weighted_metrics=[TokenCount()]."
            )
        # to read a number waits until the device has computed it, and then has nothing to do: the first and the last
        self._last = logs[self.tokens]
        if self._start is None:
            self._start = self._end = float(self._last), time.perf_counter()
        elif batch + 1 == (self.params or {}).get("steps"):
            self._read_last()
        else:
            self._end = None

    def on_test_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._read_last()  # where nobody knows how many batches there are

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if self._start is not None:
            self._read_last()
            tokens, seconds = (end - start for start, end in zip(self._start, self._end, strict=True))
            logs["tokens_per_second"] = tokens / seconds if self._end != self._start else float("nan")

    def _read_last(self) -> None:
        if self._start is not None and self._end is None:
            self._end = float(self._last), time.perf_counter()


class SampleOutputs(keras.callbacks.Callback):
    """Prints and writes the model's outputs for a few examples after every validation.

    Args:
        make_samples: Function without arguments that runs the model and returns lines of text.
        directory: Folder for the files `epoch-0001.txt`, ... (epochs count from 1, as in Keras); None for no files.
        show: Whether the lines are printed.

    Raises:
        OSError: In `fit`, if a file cannot be written.

    Example:

    >>> SampleOutputs(lambda: task.generate(sources), "run/samples")
    """

    def __init__(
        self, make_samples: Callable[[], Iterable[str]], directory: str | Path | None = None, show: bool = True
    ) -> None:
        super().__init__()
        self.make_samples = make_samples
        self.directory: Path | None = None if directory is None else Path(directory)
        self.show = show

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._validated = False

    def on_test_end(self, logs: dict[str, Any] | None = None) -> None:
        self._validated = True

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if not self._validated:
            return
        _ = self.model  # With JAX, asking for the model brings its variables up to date.
        lines = list(self.make_samples())
        if self.directory is not None:
            with atomic_write(self.directory / f"epoch-{epoch + 1:04d}.txt") as path:
                write_bytes(path, [f"{line}\n".encode() for line in lines])
        if self.show:
            print("\n" + "\n".join(lines))


class StopOnNonFiniteLoss(keras.callbacks.Callback):
    """Raises an error as soon as the training or validation loss is NaN or infinite.

    With JAX, a loss that the device has not computed yet is looked at after the next batch, so that the device need not
    wait. `TrainingState` saves no state with such a loss in the meantime.

    Keras's `TerminateOnNaN` ends `fit` without an error, so that checkpoints of the broken model replace good ones. Put
    this callback before those that save something.

    Raises:
        FloatingPointError: In `fit`. The message names the epoch, the batch and the update.

    Example:

    >>> model.fit(dataset, callbacks=[StopOnNonFiniteLoss(), state])
    """

    def __init__(self) -> None:
        super().__init__()
        self._epoch: int | None = None
        self._unread: tuple[Any, str] | None = None

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._epoch = self._unread = None

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._epoch = epoch

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self._check_unread()
        loss = (logs or {}).get("loss")
        if loss is not None:
            self._unread = loss, f"training loss in epoch {self._epoch + 1}, batch {batch + 1}"
        if getattr(loss, "is_ready", lambda: True)():
            self._check_unread()

    def on_test_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._check_unread()

    def on_test_end(self, logs: dict[str, Any] | None = None) -> None:
        loss = (logs or {}).get("loss")
        if loss is not None:
            self._check(loss, "validation loss")

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._check_unread()

    def _check_unread(self) -> None:
        if self._unread is not None:
            unread, self._unread = self._unread, None
            self._check(*unread)

    def _check(self, loss: Any, what: str) -> None:
        if not np.isfinite(loss):
            step = int(ops.convert_to_numpy(self.model.optimizer.iterations))
            raise FloatingPointError(
                f"The {what}, after {step} updates, is {loss}. Common causes: too high a learning rate or too short a "
                "warm-up, no gradient clipping (global_clipnorm of the optimizer), half precision that overflows, "
                "or labels outside the vocabulary. The last saved training state is from before this update."
            )
