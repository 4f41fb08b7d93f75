"""Keeping the last few weights of a training run, to average them."""

import re
from pathlib import Path
from typing import Any

import keras
from keras import ops

from zoo.storage import remove_incomplete, save_weights
from zoo.storage.processes import is_first_process

_FILE_NAME = re.compile(r"weights-step-(\d+)\.safetensors")


class CheckpointAveraging(keras.callbacks.Callback):
    """Keeps the weights of the last epochs, or of the last intervals of updates, for `average_weights`.

    Files are named by the number of the update, and written completely or not at all. A resumed run that passes the
    same update again replaces them by equal files, so a resume needs no further state. Files of later updates than the
    one being saved belong to an abandoned run, and are removed.

    Args:
        directory: Folder for these files only.
        keep: Number of files that are kept, which is the number of checkpoints to average.
        every_steps: Number of updates between two files; None for one after each epoch.

    Attributes:
        paths: The present files, oldest first.

    Raises:
        ValueError: If `keep` or `every_steps` is below 1.
        OSError: In `fit`, if a file cannot be written; the earlier ones are unharmed.

    Example:

    >>> averaging = CheckpointAveraging("run/last_weights", keep=10)
    >>> model.fit(dataset, epochs=30, callbacks=[averaging])
    >>> average_weights(averaging.paths, model)

    Reference:
        Vaswani et al. 2017, section 6.1.
    """

    def __init__(self, directory: str | Path, keep: int = 10, every_steps: int | None = None) -> None:
        super().__init__()
        if keep < 1:
            raise ValueError(f"keep must be at least 1, got {keep}.")
        if every_steps is not None and every_steps < 1:
            raise ValueError(f"every_steps must be at least 1, or None, got {every_steps}.")
        self.directory: Path = Path(directory)
        self.keep = keep
        self.every_steps = every_steps

    @property
    def paths(self) -> list[Path]:
        if not self.directory.is_dir():
            return []
        return sorted((path for path in self.directory.iterdir() if _FILE_NAME.fullmatch(path.name)), key=self._step_of)

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        if is_first_process():
            remove_incomplete(self.directory)

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._previous_step = self._step()

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        if self.every_steps is not None:
            step = self._step()
            if step // self.every_steps > self._previous_step // self.every_steps:
                self._save(step)
            self._previous_step = step

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if self.every_steps is None:
            self._save(self._step())

    def _step(self) -> int:
        return int(ops.convert_to_numpy(self.model.optimizer.iterations))

    @staticmethod
    def _step_of(path: Path) -> int:
        return int(_FILE_NAME.fullmatch(path.name).group(1))

    def _save(self, step: int) -> None:
        save_weights(self.directory / f"weights-step-{step:09d}.safetensors", self.model)
        if not is_first_process():
            return
        earlier = [path for path in self.paths if self._step_of(path) <= step]
        for path in self.paths:
            if path not in earlier[-self.keep :]:
                path.unlink()
