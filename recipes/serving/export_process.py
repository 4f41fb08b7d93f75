"""The process that exports a saved model for the server, which starts it; it is not for people."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import time
from pathlib import Path

import filelock

import zoo
from recipes.command.native_log import leave_out_native_log
from recipes.common.errors import ConfigError, RecipeError, errors_of
from recipes.common.output_file import check_place
from recipes.common.saved_models import TASKS, load_task
from recipes.serving.saved_source import Source, export_place, is_written, require_private
from zoo.serving.logs import set_up_logs

_log = logging.getLogger(__name__)


def export(source: Source, cache: Path) -> Path:
    """Returns the folder of a model's export, which is written unless it is there; of several processes by one.

    Args:
        source: The model.
        cache: Folder of all such exports.

    Raises:
        RecipeError: If it cannot be read, is of no task, or has no conversations for `tools`; or if nothing can be
            written to the cache, or others may write to it.
    """
    with errors_of("task"):
        reader, path = zoo.storage.find_reader(source.name)
        kind = reader.task_of(path) if source.task is None else source.task
    if kind not in TASKS:
        raise ConfigError(f"task must be one of {', '.join(TASKS)}, got {kind!r}")
    place = export_place(source, path, cache)
    check_place(place / "1", "cache", saved_model=True)
    with errors_of("cache"):
        cache.mkdir(parents=True, exist_ok=True, mode=0o700)
        place.parent.mkdir(exist_ok=True, mode=0o700)
        place.mkdir(exist_ok=True, mode=0o700)
    require_private(cache, place)
    with filelock.FileLock(place.with_name(".lock")):
        if not is_written(place):
            _log.info("%s is being exported as a %s, which happens once and can take minutes.", place.name, kind)
            began = time.monotonic()
            _loaded(source, kind).export(place / "1")
            _log.info("%s has been exported in %.0f seconds.", place.name, time.monotonic() - began)
    return place


def _loaded(source: Source, kind: str) -> zoo.Task:
    task = load_task(source.name, kind)
    if source.tools is not None:
        chat_format = getattr(task, "chat_format", None)
        if chat_format is None:
            raise ConfigError(f"tools must be null for a model without a chat format, got {source.tools!r}")
        with errors_of("tools"):
            task.chat_format = chat_format.with_tools(source.tools)
    return task


def main(arguments: list[str]) -> None:
    """Exports a model, and prints `{"folder": ...}` or `{"error": ...}`.

    Args:
        arguments: The fields of the `Source`, and `"cache"`, as JSON.
    """
    [request] = map(json.loads, arguments)
    leave_out_native_log()
    set_up_logs()
    logging.getLogger().setLevel(logging.WARNING)  # TensorFlow tells names of inputs, by the hundred
    _log.setLevel(logging.INFO)
    # what libraries print is no answer, be it written by Python or not
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with contextlib.redirect_stdout(sys.stderr):
        try:
            cache = Path(request.pop("cache"))
            answer = {"folder": str(export(Source(**request), cache))}
        except (RecipeError, ImportError, OSError, ValueError) as error:
            answer = {"error": str(error)}
    with answers:
        print(json.dumps(answer), file=answers)


if __name__ == "__main__":
    main(sys.argv[1:])
