"""The folder of training states: each is a folder of its own, written whole or not at all."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from zoo.storage import atomic_write, remove, remove_incomplete, write_bytes, write_tensors
from zoo.storage.processes import first_process_first, is_first_process

_FORMAT = 1
_STATE_FILE = "state.json"
_TENSOR_FILE = "tensors.safetensors"
_FOLDER_NAME = re.compile(r"epoch-(\d+)-batch-(\d+)")


class SavedState(NamedTuple):
    """A training state on the disk.

    Args:
        folder: Its folder.
        values: Numbers, strings, None, lists and dicts by name, see `StateFolder.write`.
    """

    folder: Path
    values: dict[str, Any]

    @property
    def tensors(self) -> Path:
        """The safetensors file of the variables and arrays."""
        return self.folder / _TENSOR_FILE


class StateFolder:
    """Training states in a folder, named by their position: `epoch-EEEEE-batch-BBBBBBBB`.

    If several processes train together, the first one writes and all read. A state is written under a temporary name,
    flushed to the disk and renamed. A kill or a full disk while saving leaves the previous state intact.

    Args:
        directory: The folder, created if needed. No other process may write there.
        keep: Number of states that are kept.

    Raises:
        ValueError: If `keep` is below 1.

    Example:

    >>> StateFolder("run/checkpoints").latest().values["epoch"]
    3
    """

    def __init__(self, directory: str | Path, keep: int = 1) -> None:
        if keep < 1:
            raise ValueError(f"keep must be at least 1, got {keep}.")
        self.directory: Path = Path(directory)
        self.keep = keep
        with first_process_first("training states"):
            self.directory.mkdir(parents=True, exist_ok=True)
            if is_first_process():
                remove_incomplete(self.directory)

    def latest(self) -> SavedState | None:
        """Returns the latest state, or None where there is none.

        Raises:
            ValueError: If the state is damaged or of another format.
        """
        if not (folders := self._folders()):
            return None
        folder = folders[-1]
        path = folder / _STATE_FILE
        try:
            values = json.loads(path.read_text())
            saved_format = values["format"]
            # what the caller asks every state for
            [kind for kind, _ in values["callbacks"]], values["number_of_batches"], values["finished"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"The training state {folder} is damaged ({error!r}). Remove that folder to go on from an earlier "
                "state, or from the beginning if there is none."
            ) from error
        if saved_format != _FORMAT:
            raise ValueError(f"{path} has format {saved_format}; this version reads format {_FORMAT}.")
        return SavedState(folder, values)

    def write(self, epoch: int, batch: int, tensors: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        """Writes a state, and removes those that are no longer kept.

        Args:
            epoch: Number of epochs trained.
            batch: Number of batches trained in the next epoch.
            tensors: Variables and arrays by name.
            values: What JSON can hold, by name: `callbacks`, pairs of a name and a state, `number_of_batches`,
                `finished` and others.

        Raises:
            OSError: If the state cannot be written. The previous state is intact.
        """
        with atomic_write(self.directory / f"epoch-{epoch:05d}-batch-{batch:08d}") as folder:
            folder.mkdir()
            write_tensors(folder / _TENSOR_FILE, tensors)
            write_bytes(folder / _STATE_FILE, [json.dumps({"format": _FORMAT, **values}, indent=1).encode()])
        if is_first_process():
            for old in self._folders()[: -self.keep]:
                _remove(old)

    def _folders(self) -> list[Path]:
        return [folder for _, folder in _states_in(self.directory)]


def _remove(folder: Path) -> None:
    """Removes a state. Files of others that are in its folder stay, in one that has no name of a state."""
    own = (_STATE_FILE, _TENSOR_FILE)
    if all(path.name in own for path in folder.iterdir()):
        remove(folder)
        return
    kept = folder.with_name(f"{folder.name}.others")
    while kept.exists():
        kept = kept.with_name(f"{kept.name}_")
    folder.rename(kept)
    for name in own:
        remove(kept / name)


def _states_in(directory: Path) -> list[tuple[tuple[int, int], Path]]:
    """Positions and folders of the states in a folder, in the order of training; names would not sort by numbers."""
    matches = ((_FOLDER_NAME.fullmatch(path.name), path) for path in directory.iterdir())
    return sorted(((int(match[1]), int(match[2])), path) for match, path in matches if match)


def saved_position(directory: str | Path) -> tuple[int, int] | None:
    """Returns the latest position with a state that a `TrainingState` saved; None if there is none.

    Args:
        directory: Folder of the states.

    Returns:
        Number of complete epochs, and number of batches trained in the next epoch.

    Example:

    >>> saved_position("run/checkpoints")
    (3, 200)
    """
    folder = Path(directory)
    states = _states_in(folder) if folder.is_dir() else []
    return states[-1][0] if states else None
