"""Applies an exported model to files of any size: labels, vectors, summaries, translations.

    python -m recipes.apply runs/reviews --input 'texts/*.jsonl' --output labelled
    python -m recipes.apply runs/dates --input lines.txt.gz --output dates --processes 4
    python -m recipes.apply runs/chat --endpoint generate --options '{seed: 1, max_new_tokens: 50}' ...

A line of the results is a record of the input with what the model made of it as `output`, in the order of the input:
the value where the endpoint has one output, an object of all where it has several. The same command resumes where it
was interrupted. `--engine ray` does the same on a Ray cluster.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
from pathlib import Path
from typing import Any, Literal

import zoo
from recipes.command.printing import print_result
from recipes.common.config import run_recipe, setting
from recipes.common.corpus.application import OUTPUT, Application, ApplyTask, apply_shard
from recipes.common.corpus.engines import run_all
from recipes.common.corpus.exported_model import bind, describe_endpoint, export_folder
from recipes.common.corpus.output_folder import compare, compare_files, locked, planned, tidy
from recipes.common.corpus.sources import find_parts, require_read, state_of
from recipes.common.data.records import USUAL_SPLIT
from recipes.common.errors import BadLines, ConfigError, DataError
from recipes.common.output_file import check_place
from recipes.common.processes import threads_each

_INDEX_FILE = "results.json"
# small, so that all processes have work and little is done again
_PART_BYTES = 1 << 20


@dataclasses.dataclass(frozen=True)
class ApplyConfig:
    """Applies an exported model to all records of files."""

    resumes = True

    model: str = setting(
        help="Folder of a SavedModel that this library has written, or of a run with one.",
        words="first",
        offers="paths",
    )
    input: list[str] = setting(
        help="Files or patterns: plain text (a record a line), JSON lines, each perhaps .gz, Parquet; folders of data "
        "sets of the Hugging Face library, or hf://datasets/owner/name.",
        offers="paths",
    )
    output: str = setting(help="Folder of the results; the same command resumes in it.", offers="paths")
    endpoint: str | None = setting(None, "Endpoint of the model. null: its default endpoint.")
    keys: dict[str, str] = setting(
        {},
        "Key or column of each text input: {texts: review}. By default text for the input texts, and "
        "its own name for any other.",
    )
    options: dict[str, Any] = setting({}, "Values of the other inputs of the endpoint, for example {seed: 1}.")
    keep: list[str] | None = setting(
        None, "Keys of a record that are written to the results. Each record must have them. null: all keys."
    )
    split: str = setting(USUAL_SPLIT, "Name of the part (split) of a data set of the Hugging Face library.")
    batch_size: int = setting(32, "Number of records per call of the model.", least=1, most=1 << 16)
    part_bytes: int = setting(
        _PART_BYTES, "Approximate number of bytes of the part of a file that makes one shard of results.", least=1
    )
    on_error: Literal["raise", "skip"] = setting(
        "raise",
        "What to do at a record that cannot be read or that the model refuses: stop, or leave it out and count it.",
    )
    engine: Literal["local", "ray"] = setting(
        "local", "Where the work is done: in processes of this machine, or on a Ray cluster.", may_change=True
    )
    processes: int | None = setting(
        1,
        "Number of processes of this machine, each with the model in memory. null: one per core.",
        may_change=True,
        least=1,
    )


def main(config: ApplyConfig) -> dict[str, Any]:
    """Runs the recipe.

    Args:
        config: The configuration.

    Returns:
        What is written to `results.json` in the folder: numbers of records and of those left out, and the files.
    """
    started = time.monotonic()
    endpoint, described = describe_endpoint(config.model, config.endpoint)
    keys = bind(described, config.keys, config.options)
    options = {field["name"]: field["default"] for field in described["inputs"] if "default" in field} | config.options
    if OUTPUT in (config.keep or ()):
        raise ConfigError(f"keep must not hold {OUTPUT!r}, the key of the model's output")
    model = export_folder(config.model).absolute()
    check_place(model, "model", saved_model=True)
    application = Application(
        str(model),
        _fingerprint(model),
        endpoint,
        keys,
        options,
        config.split,
        config.keep,
        config.on_error,
        config.batch_size,
    )
    settings = {
        **{name: value for name, value in dataclasses.asdict(application).items() if name not in ("model", "checksum")},
        "model": application.checksum,
        "input": config.input,
        "part_bytes": config.part_bytes,
    }
    folder = Path(config.output)
    with locked(folder):
        index_path = folder / _INDEX_FILE
        if index_path.is_file():
            index = json.loads(index_path.read_text(encoding="utf-8"))
            compare(index["settings"], settings, folder)
            # what was read may have been removed since
            now = state_of(config.input, config.split, may_lack=True)
            compare_files(index["input_files"], now, folder, may_lack=True)
            tidy(folder)
            print(f"{folder} is complete")
            return index
        files = state_of(config.input, config.split)
        shares = planned(folder, settings, files, lambda: _shares(config))
        tasks = [ApplyTask(application, folder.absolute(), number, share) for number, share in enumerate(shares)]
        missing = [task for task in tasks if not task.account.is_file()]
        run_all(apply_shard, missing, config.engine, config.processes or threads_each(1), "applying")
        results = [json.loads(task.account.read_text(encoding="utf-8")) for task in tasks]
        bad = BadLines(config.on_error)
        for result in results:
            bad.counts.update(result["bad"])
            for cause, origins in result["origins"].items():
                bad.origins[cause] = [*bad.origins.get(cause, []), *origins][:10]
        compare_files(files, state_of(config.input, config.split), folder)
        index = {
            "records": sum(result["records"] for result in results),
            "left_out": dict(bad.counts),
            "files": {task.path.name: result["records"] for task, result in zip(tasks, results, strict=True)},
            "settings": settings,
            "input_files": files,
        }
        zoo.storage.write_text_atomically(index_path, json.dumps(index, indent=1))
        tidy(folder)
    seconds = time.monotonic() - started
    print_result(
        f"{folder}: {index['records']:,} records, {index['records'] / seconds:,.1f} a second; lines {bad.report()}"
    )
    return index


def _shares(config: ApplyConfig) -> list[list[Any]]:
    parts = find_parts(config.input, "line", config.split, config.part_bytes)
    if not parts:
        raise DataError(f"input: {' '.join(config.input)} holds nothing")
    require_read(parts, split=(config.split, USUAL_SPLIT, ("data_set",)))
    return [[part] for part in parts]


def _fingerprint(model: Path) -> str:
    """What tells a SavedModel from another one: program, description and weights."""
    hashed = hashlib.sha256()
    weights = sorted((model / "variables").glob("variables.data-*"))
    for path in [model / "saved_model.pb", model / zoo.export.DESCRIPTION_FILE, *weights]:
        with open(path, "rb") as stream:
            hashed.update(hashlib.file_digest(stream, "sha256").digest())
    return hashed.hexdigest()


if __name__ == "__main__":
    run_recipe(main, ApplyConfig, "apply")
