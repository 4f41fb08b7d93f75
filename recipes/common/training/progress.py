"""What a run prints while it trains: a bar on a terminal, and a few short lines for each epoch, 80 columns wide."""

from __future__ import annotations

import textwrap
import time
from typing import Any

import keras
from tqdm import tqdm

from recipes.command.printing import has_bars

_COLUMNS = 80
# Seconds of batches, after the first one, from which the duration of an epoch follows, and the least one that is told.
_LOOKED_AT, _LONG = 10, 60
# which have a place of their own, or are no measure of the training
_UNPRINTED = ("tokens", "val_tokens", "tokens_per_second", "learning_rate")


class EpochLines(keras.callbacks.Callback):
    """Prints metrics of each epoch, training first and then validation: `loss 0.513, val 0.498`.

    On a terminal a bar shows the batches of the epoch that is being trained. No metric is read for it: that would make
    an accelerator wait. Before the first line, one more says how long the first step took, which is that of making the
    program, and how long an epoch will take, if that is more than a minute.

    Args:
        epochs: Number of epochs.
        unit: What an epoch is called.

    Example:

    >>> model.fit(dataset, epochs=3, callbacks=[EpochLines(3)], verbose=0)
    """

    def __init__(self, epochs: int, unit: str = "epoch") -> None:
        super().__init__()
        self._epochs, self._unit = epochs, unit
        self._bar: Any = None
        self._started = 0.0
        # batches of the first epoch, and when the first of them was done; None when nothing is left to tell
        self._batches: int | None = 0
        self._first = 0.0

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._started = time.monotonic()
        if has_bars():
            name = f"{self._unit} {epoch + 1} of {self._epochs}"
            self._bar = tqdm(total=(self.params or {}).get("steps"), desc=name, ncols=_COLUMNS, leave=False)

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        if self._bar is not None:
            self._bar.update()
        if self._batches is not None:
            self._batches += 1
            self._tell(time.monotonic(), (self.params or {}).get("steps"))

    def _tell(self, now: float, steps: int | None) -> None:
        """Says how long the first epoch will take, once that is known."""
        if self._batches == 1:
            self._first = now
        elif now - self._first >= _LOOKED_AT:
            seconds = (now - self._first) / (self._batches - 1) * (steps or 0)
            if seconds > _LONG:
                if self._bar is not None:
                    self._bar.clear()
                start = f"the first step took {self._first - self._started:,.0f} s"
                print(f"{start}, the training of one {self._unit} takes about {seconds / 60:,.0f} min", flush=True)
            self._batches = None

    def on_test_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._close()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._close()
        self._batches = None
        line = epoch_line(f"{self._unit} {epoch + 1}/{self._epochs}", logs or {}, time.monotonic() - self._started)
        print(line, flush=True)  # also into a file: a run may be killed

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        self._close()

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def epoch_line(name: str, logs: dict[str, Any], seconds: float) -> str:
    """Returns the metrics of an epoch as lines of at most 80 columns.

    Args:
        name: What the line begins with.
        logs: The metrics; those of the validation have the prefix `val_`.
        seconds: The duration of the epoch.

    Example:

    >>> epoch_line("epoch 1/3", {"loss": 0.5, "val_loss": 0.4, "tokens_per_second": 1200.0}, 12.3)
    'epoch 1/3: loss 0.5, val 0.4; 1,200 tokens/s; 12 s'
    """
    parts = []
    for metric, value in logs.items():
        of_training = metric.removeprefix("val_")
        if metric in _UNPRINTED or (metric != of_training and of_training in logs):
            continue
        text = f"{metric} {_number(value)}"
        if f"val_{metric}" in logs:
            text += f", val {_number(logs[f'val_{metric}'])}"
        parts.append(text)
    speed = logs.get("tokens_per_second")
    if speed is not None and speed == speed:
        parts.append(f"{speed:,.0f} tokens/s")
    parts.append(f"{seconds:,.0f} s")
    # a measure is not divided
    text = "; ".join(part.replace(" ", "\0") for part in parts)
    lines = textwrap.wrap(f"{name}: {text}", _COLUMNS, subsequent_indent="    ", break_long_words=False)
    return "\n".join(lines).replace("\0", " ")


def _number(value: Any) -> str:
    return f"{float(value):.4g}"
