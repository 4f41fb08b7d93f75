"""The folder of one run: its config, metrics, checkpoints, samples, plots and export."""

from __future__ import annotations

import csv
import dataclasses
import itertools
import json
import math
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import filelock

import zoo
from recipes.common import config as config_module
from recipes.common.config_sources import dump_yaml
from recipes.common.data.account import DATA_FILE, DataAccount
from recipes.common.data.data_sets import is_name
from recipes.common.errors import ConfigError, RecipeError, RunFolderError, shown
from recipes.common.final_steps import FinalSteps
from recipes.common.output_file import check_place

_CONFIG_FILE = "config.yaml"
_RECIPE_FILE = "recipe.txt"
_RESULTS_FILE = "results.json"
_LOCK_FILE = "run.lock"
_METRICS_FILE = "metrics.csv"
# groups of keys whose files are those of models
_MODELS = ("model", "teacher")
# what processes that train together have in common
_READ_BY_ALL = ("tokenizer", "checkpoints")
# what is written before the first batch, or lost with it; all else in these folders is somebody else's
_MADE_BEFORE_TRAINING = (
    "tokenizer/tokenizer.json",
    f"tokenizer/*-{16 * '[0-9a-f]'}.*",
    "checkpoints/state/epoch-*-batch-*",
    "checkpoints/state/best.safetensors",
    "checkpoints/last_epochs/weights-step-*.safetensors",
    _METRICS_FILE,
    "tensorboard/*/events.out.tfevents.*",
    "samples/epoch-[0-9]*.txt",
)


def recipe_of(config_class: type) -> str | None:
    """Returns the module of the recipe that a class of configs belongs to, as `python -m` takes it; None for a script.

    Args:
        config_class: The class, defined in the file of its recipe.

    Example:

    >>> recipe_of(TranslateConfig)
    'recipes.translate'
    """
    module = config_class.__module__
    if module != "__main__":
        return module
    # what `python -m` runs knows its name all the same
    spec = sys.modules[module].__spec__
    return None if spec is None else spec.name


class StoredRun(NamedTuple):
    """A run that somebody looks at: its folder, the module of its recipe (None where that is not known), its results.

    `results` is None where the run has not ended.
    """

    path: Path
    recipe: str | None
    results: dict[str, Any] | None

    @property
    def config_yaml(self) -> Path:
        """The file that holds the config."""
        return self.path / _CONFIG_FILE

    @property
    def has_ended(self) -> bool:
        """Whether it has results, and no final step has failed."""
        return self.results is not None and not self.results.get("failed")


def find_run(path: str | os.PathLike) -> StoredRun | None:
    """Returns the run that a path names, its folder or the model in it; None where there is none.

    Args:
        path: The path.

    Raises:
        RunFolderError: If its results cannot be read.

    Example:

    >>> find_run("runs/dates/model").recipe
    'recipes.translate'
    """
    folder = Path(path)
    if folder.name == "model" and not (folder / _CONFIG_FILE).is_file():
        folder = folder.parent
    if not (folder / _CONFIG_FILE).is_file():
        return None
    recipe, results = folder / _RECIPE_FILE, folder / _RESULTS_FILE
    try:
        return StoredRun(
            folder,
            recipe.read_text(encoding="utf-8").strip() if recipe.is_file() else None,
            json.loads(results.read_text(encoding="utf-8")) if results.is_file() else None,
        )
    except (OSError, ValueError) as error:
        raise RunFolderError(f"the run in {str(folder)!r} cannot be read: {error}") from error


def changes(stored: Path, config: Any, may_change: bool = False) -> dict[str, tuple[Any, Any]]:
    """Returns the keys in which the config of a run differs from another; not those that name its folder.

    Args:
        stored: The file of the run's config.
        config: The other config.
        may_change: Whether keys count that may differ on a resume.

    Returns:
        Key to (value in the folder, other value).

    Raises:
        RunFolderError: If the file cannot be read.
    """
    try:
        if stored.read_text(encoding="utf-8") == dump_yaml(dataclasses.asdict(config)):
            return {}  # quicker than to read it
        old = config_module.parse(type(config), ["--config", str(stored)])
    except (ConfigError, OSError, ValueError) as error:
        raise RunFolderError(
            f"the run in {str(stored.parent)!r} was started with another version of the recipe: {error}; "
            "name another folder"
        ) from error
    changed = config_module.differences(old, config, may_change=may_change)
    # the folder may have been moved
    changed.pop("run_folder", None)
    if not may_change and getattr(getattr(config, "training", None), "may_be_longer", False):
        changed.pop("training.epochs", None)
    return changed


def data_paths(config: Any) -> dict[str, list[str]]:
    """Returns the data files and folders that a config names, by key: no named data sets, and no models.

    Args:
        config: The config.
    """
    paths = config_module.paths_in(config)
    return {key: named for key, named in paths.items() if key.split(".")[0] not in _MODELS and not is_name(named)}


def trained(folder: Path) -> tuple[int, int] | None:
    """Returns the epochs, and batches of the next one, that a run has been trained; None if there are none.

    Args:
        folder: Its folder.
    """
    position = zoo.training.saved_position(folder / "checkpoints" / "state")
    return None if position in (None, (0, 0)) else position


def read_metrics(folder: Path) -> list[dict[str, str]]:
    """Returns the rows of the `metrics.csv` of a run, one for each validation, see `validation_unit`.

    Args:
        folder: Its folder; there may be no such file yet.
    """
    path = folder / _METRICS_FILE
    if not path.is_file():
        return []
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def validation_unit(training: Any) -> str:
    """Returns what stands between two validations of a run: an epoch, or a round of `training.evaluate_every` batches.

    Args:
        training: The group `training` of its config.
    """
    return "epoch" if getattr(training, "evaluate_every", None) is None else "round"


def has_ended(folder: Path, config: Any) -> bool:
    """Returns whether a run within another one has ended; one with another config, or of another recipe, is renamed.

    Keys that a resumed run may change do not count. A run that is to be longer than it was has not ended.

    Args:
        folder: Its folder.
        config: The config that it must have.

    Example:

    >>> has_ended(run.path / "teacher", LanguageModelConfig(run_folder=str(run.path / "teacher")))
    False
    """
    stored = find_run(folder)
    if stored is None:
        return False
    epochs = wanted = 0
    try:
        is_same = stored.recipe == recipe_of(type(config)) and not changes(stored.config_yaml, config)
        if is_same:
            epochs, wanted = changes(stored.config_yaml, config, may_change=True).get("training.epochs", (0, 0))
    except RunFolderError:
        is_same = False  # a key that there is no more
    if not is_same or epochs > wanted:
        numbers = itertools.count(1)
        kept = next(path for number in numbers if not os.path.lexists(path := Path(f"{folder}.before_{number}")))
        print(f"{folder} belongs to a run with another config, and begins anew; the other one is now {kept}")
        folder.rename(kept)
        return False
    return epochs == wanted and stored.has_ended


def _remove_empty(folder: Path, top: Path) -> None:
    """Removes a folder, and those above it up to `top`, as long as they are empty."""
    while folder != top and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent


class RunFolder:
    """A run folder, held by one process at a time, or by the first of several that train together.

    A new folder gets the config as `config.yaml` and the name of the recipe as `recipe.txt`. In a folder with a config,
    the run is resumed. The config must then be the same, except for keys marked `setting(..., may_change=True)`, whose
    new values are stored, and for the number of epochs if `config.training.may_be_longer` is true. A run that failed
    before its first batch starts again, with any config and data. The lock belongs to the operating system, so a killed
    process leaves none behind.

    Args:
        path: The folder, created if it does not exist.
        config: The config of the run (see `recipes.common.config`).

    Attributes:
        path: The folder.
        config: The config of the run.
        resumed: True if the folder held the config of an earlier start of this run.
        start: The saved model that the run starts from; None until there is one, and for a new model.
        data: What the run has read.
        final_steps: What `finish` does after the results.
        training_seconds: The seconds of training, of all processes; 0 before it.
        best: Of a run that keeps the best weights, `best_epoch` or `best_round`, from 1; empty before they are chosen.

    Raises:
        ConfigError: The path is too long.
        RunFolderError: Another process holds the folder, it belongs to a run with another config or other data (the
            message lists the keys or files that differ) or has been trained for more epochs than the config asks for,
            its checkpoints were removed, its config cannot be read, it holds files but no config, or it cannot be made.

    Example:

    >>> with RunFolder("runs/dates", config) as run:
    ...     run.write_text("samples/epoch_1.txt", "4 May 1999 -> 1999-05-04\\n")
    """

    def __init__(self, path: str | os.PathLike, config: Any) -> None:
        self.path, self.config = Path(path), config
        self.final_steps = FinalSteps(self.path)
        self.start: str | None = None
        self.training_seconds = 0.0
        self.best: dict[str, int] = {}
        self._lock = self._scratch = None
        # what a resume replaces, for one that is refused; and how long the run has been trained
        self._before: dict[Path, bytes] = {}
        self._position: tuple[int, int] | None = None
        if not zoo.distribution.is_first_process():
            zoo.distribution.wait_for_all("run folder")
            self._follow()
            return
        check_place(self.path, "run_folder")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except FileExistsError as error:
            raise RunFolderError(f"the run folder {str(path)!r} is a file; name a folder") from error
        except OSError as error:
            raise RunFolderError(f"run_folder: cannot make {shown(str(path), 300)}: {error.strerror}") from error
        self._lock = filelock.FileLock(self.path / _LOCK_FILE)
        try:
            self._lock.acquire(blocking=False)
        except filelock.Timeout as error:
            raise RunFolderError(
                f"the run folder {str(path)!r} is in use by another process; wait for it or name another folder"
            ) from error
        except OSError as error:
            raise RunFolderError(f"run_folder: cannot write in {str(path)!r}: {error.strerror}") from error
        try:
            self.resumed = self._adopt(config)
        except BaseException:
            self._lock.release()
            raise
        if zoo.distribution.num_processes() > 1:
            # which the others reach by a link
            self.folder("checkpoints")
        zoo.distribution.wait_for_all("run folder")

    def _follow(self) -> None:
        """Makes this the folder of a process that trains with the first one: it reads what that writes.

        What it writes itself (logs, samples, plots) is thrown away.
        """
        run, self._scratch = self.path.resolve(), tempfile.TemporaryDirectory()
        self.path = Path(self._scratch.name)
        for name in _READ_BY_ALL:
            os.symlink(run / name, self.path / name)
        if (run / _METRICS_FILE).exists():
            # which a resume cuts to the length that it had
            shutil.copy(run / _METRICS_FILE, self.path)
        self.resumed = trained(self.path) is not None
        self.data = DataAccount(None, {}, False)

    def _adopt(self, config: Any) -> bool:
        """Compares the config with the one stored here, if any, and stores it."""
        self._clean()
        stored = self.path / _CONFIG_FILE
        resumed = stored.exists()
        if resumed and trained(self.path) is None:
            if (self.path / "model").is_dir():
                raise RunFolderError(
                    f"the run folder {str(self.path)!r} holds a trained model, but not the checkpoints to go on from; "
                    "name another folder, or remove this one"
                )
            resumed = not changes(stored, config)
            # the tokenizer, too: where a file of the data was put right, it is that of the wrong one
            made = [path for pattern in _MADE_BEFORE_TRAINING for path in sorted(self.path.glob(pattern))]
            if made or not resumed:
                print(f"{self.path}: nothing has been trained here, so the run begins anew")
            for path in made:
                zoo.storage.remove(path)
                _remove_empty(path.parent, self.path)
            if self.tokenizer.is_dir():
                raise RunFolderError(
                    f"{str(self.tokenizer)!r} holds {min(os.listdir(self.tokenizer))!r}, which is of no tokenizer; "
                    "move it to another place"
                )
        elif resumed:
            self._compare(stored, config)
        else:
            # A kill before the first save leaves the lock only.
            content = sorted(entry.name for entry in self.path.iterdir() if entry.name != _LOCK_FILE)
            if content:
                raise RunFolderError(
                    f"the folder {str(self.path)!r} holds {content[0]!r} but no {_CONFIG_FILE}, so it is not "
                    "the folder of a run; name a new or an empty folder"
                )
        self._position = trained(self.path)
        self.data = DataAccount(self.path, data_paths(config), self._position is not None)
        if resumed:
            files = (self.path / name for name in (_CONFIG_FILE, _RESULTS_FILE, DATA_FILE))
            self._before = {file: file.read_bytes() for file in files if file.is_file()}
        if resumed and changes(stored, config, may_change=True):
            # what a longer training gives is not known yet
            (self.path / _RESULTS_FILE).unlink(missing_ok=True)
        config_module.save(config, stored)
        recipe = recipe_of(type(config))
        if recipe is not None:
            self.write_text(_RECIPE_FILE, recipe + "\n")
        self.data.save()
        return resumed

    def _clean(self) -> None:
        """Removes what killed processes left half written, and puts back what they had set aside."""
        for folder in (self.path, self.path / "samples"):
            zoo.storage.remove_incomplete(folder)

    def _compare(self, stored: Path, config: Any) -> None:
        changed = changes(stored, config)
        if changed:
            lines = [f"  {key}: {before!r} in the folder, {now!r} now" for key, (before, now) in changed.items()]
            raise RunFolderError(
                f"the run folder {str(self.path)!r} belongs to a run with another config; take the old values to "
                "resume that run, or name another folder:\n" + "\n".join(lines)
            )
        epochs, batches = trained(self.path) or (0, 0)
        training = getattr(config, "training", None)
        wanted = getattr(training, "epochs", math.inf)
        # rounds are not epochs
        if validation_unit(training) == "epoch" and wanted < epochs + (batches > 0):
            raise RunFolderError(
                f"training.epochs must be at least {epochs + (batches > 0)}, as many as have been begun in "
                f"{str(self.path)!r}, got {wanted}; name another folder for a shorter run"
            )

    def write_text(self, name: str, text: str) -> Path:
        """Writes a text file atomically, see `write_text_atomically`. Its sub-folder is created if it does not exist.

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
        zoo.storage.write_text_atomically(path, text)
        return path

    def write_rows(self, name: str, rows: Iterable[Sequence[Any]]) -> None:
        """Writes tab-separated values, a line for each row, once the results are written, see `FinalSteps`.

        White space within a text is written as one space.

        Args:
            name: Path relative to the run folder.
            rows: The rows, the first one the names of the columns.

        Example:

        >>> run.write_rows("samples/test.tsv", [("source", "output"), *pairs])
        """
        lines = ["\t".join(" ".join(str(value).split()) for value in row) + "\n" for row in rows]
        self.final_steps.add(name, self.write_text, name, "".join(lines))

    def draw(self, name: str, plot: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        """Draws a picture once the results are written, see `FinalSteps`.

        Args:
            name: File name, in `plots`.
            plot: The function that draws, with an argument `path`.
            *arguments, **options: Its other arguments.

        Example:

        >>> run.draw("confusion.png", plot_confusion, truth, predicted, title="Test examples")
        """

        def step() -> None:
            plot(*arguments, path=self.folder("plots") / name, **options)

        self.final_steps.add(f"plots/{name}", step)

    def folder(self, name: str) -> Path:
        """Returns a sub-folder, created if it does not exist."""
        path = self.path / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    @property
    def config_yaml(self) -> Path:
        """The file that holds the config."""
        return self.path / _CONFIG_FILE

    @property
    def plots(self) -> Path:
        """The folder of pictures, which the first one makes."""
        return self.path / "plots"

    @property
    def tokenizer(self) -> Path:
        """The folder of the tokenizer, which is made whole or not at all."""
        return self.path / "tokenizer"

    @property
    def export(self) -> Path:
        """The folder of the exported model, whose versions are made whole or not at all; it has the name of the run."""
        return self.path / "export" / self.path.absolute().name

    def close(self) -> None:
        """Releases the folder for other processes."""
        if self._lock is not None:
            self._lock.release()
        if self._scratch is not None:
            self._scratch.cleanup()

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, RecipeError):
            self._put_back()
        self.close()

    def _put_back(self) -> None:
        """Leaves a folder as it was if a resume is refused later than at the door: no batch trained, no results."""
        if (self.path / _RESULTS_FILE).exists() or trained(self.path) != self._position:
            return
        for file, content in self._before.items():
            with zoo.storage.atomic_write(file) as temporary:
                Path(temporary).write_bytes(content)
