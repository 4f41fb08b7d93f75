"""The folder of one run: its config, metrics, checkpoints, samples, plots and export."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import filelock

from recipes.common import config as config_module
from recipes.common.errors import ConfigError, RunFolderError
from zoo.storage import write_text_atomically

_CONFIG_FILE = "config.yaml"
_LOCK_FILE = "run.lock"


class RunFolder:
    """A run folder, held by one process at a time.

    A new folder gets the config as `config.yaml`. In a folder that has one, the run is resumed: the config must be
    the same, except for the keys marked `setting(..., harmless=True)`, whose new values are stored. The lock is the
    operating system's, so a killed process leaves none behind.

    Args:
        path: The folder; made if it does not exist.
        config: The config of the run (see `recipes.common.config`).

    Attributes:
        path: The folder.
        resumed: True if the folder held the config of an earlier start of this run.

    Raises:
        RunFolderError: Another process holds the folder, it belongs to a run with another config (the message lists
            the keys that differ), its config cannot be read, or it holds files but no config.

    Example:

    >>> with RunFolder("runs/dates", config) as run:
    ...     run.write_text("samples/epoch_1.txt", "4 May 1999 -> 1999-05-04\\n")
    """

    def __init__(self, path: str | os.PathLike, config: Any):
        self.path = Path(path)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except FileExistsError as error:
            raise RunFolderError(f"the run folder {str(path)!r} is a file; name a folder") from error
        self._lock = filelock.FileLock(self.path / _LOCK_FILE)
        try:
            self._lock.acquire(blocking=False)
        except filelock.Timeout as error:
            raise RunFolderError(
                f"the run folder {str(path)!r} is in use by another process; wait for it or name another folder"
            ) from error
        try:
            self.resumed = self._adopt(config)
        except BaseException:
            self._lock.release()
            raise

    def _adopt(self, config: Any) -> bool:
        """Compare the config with the one stored here, if any, and store it."""
        stored = self.path / _CONFIG_FILE
        resumed = stored.exists()
        if resumed:
            self._compare(stored, config)
        else:
            # A kill before the first save leaves the lock and temporary files only.
            content = [
                entry.name
                for entry in self.path.iterdir()
                if entry.name != _LOCK_FILE and entry.suffix != ".incomplete"
            ]
            if content:
                raise RunFolderError(
                    f"the folder {str(self.path)!r} holds {sorted(content)[0]!r} but no {_CONFIG_FILE}, so it is not "
                    "the folder of a run; name a new or an empty folder"
                )
        config_module.save(config, stored)
        return resumed

    def _compare(self, stored: Path, config: Any) -> None:
        try:
            old = config_module.parse(type(config), ["--config", str(stored)])
        except ConfigError as error:
            raise RunFolderError(
                f"the run in {str(self.path)!r} was started with another version of the recipe: {error}; "
                "name another folder"
            ) from error
        harmless = config_module.harmless_keys(type(config))
        changed = {key: pair for key, pair in config_module.differences(old, config).items() if key not in harmless}
        if changed:
            lines = [f"  {key}: {before!r} in the folder, {now!r} now" for key, (before, now) in changed.items()]
            raise RunFolderError(
                f"the run folder {str(self.path)!r} belongs to a run with another config; take the old values to "
                "resume that run, or name another folder:\n" + "\n".join(lines)
            )

    def folder(self, name: str) -> Path:
        """A sub-folder, made if it does not exist.

        Args:
            name: Its path relative to the run folder.

        Returns:
            Its path.

        Example:

        >>> run.folder("plots")
        PosixPath('runs/dates/plots')
        """
        path = self.path / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def write_text(self, name: str, text: str) -> Path:
        """Write a text file atomically, see `write_text_atomically`; its sub-folder is made if it does not exist.

        Args:
            name: Path relative to the run folder.
            text: The content.

        Returns:
            The path of the file.

        Example:

        >>> run.write_text("model_card.md", "# Dates\\n")
        """
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text_atomically(path, text)
        return path

    @property
    def config_yaml(self) -> Path:
        """The file that holds the config."""
        return self.path / _CONFIG_FILE

    @property
    def metrics_csv(self) -> Path:
        """The file of the losses and metrics of every epoch."""
        return self.path / "metrics.csv"

    @property
    def model_card(self) -> Path:
        """The file that describes the trained model."""
        return self.path / "model_card.md"

    @property
    def tensorboard(self) -> Path:
        """The folder of TensorBoard's logs."""
        return self.folder("tensorboard")

    @property
    def checkpoints(self) -> Path:
        """The folder of weights and training state."""
        return self.folder("checkpoints")

    @property
    def tokenizer(self) -> Path:
        """The folder of the tokenizer."""
        return self.folder("tokenizer")

    @property
    def samples(self) -> Path:
        """The folder of texts that the model wrote during training."""
        return self.folder("samples")

    @property
    def plots(self) -> Path:
        """The folder of pictures."""
        return self.folder("plots")

    @property
    def export(self) -> Path:
        """The folder of the SavedModel. It is not made here: an exporter makes it whole or not at all."""
        return self.path / "export"

    def close(self) -> None:
        """Let other processes use the folder."""
        self._lock.release()

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
