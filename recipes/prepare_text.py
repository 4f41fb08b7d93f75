"""Prepares files of any size as a corpus of token rows, from which recipes train.

    python -m recipes.prepare_text --input 'texts/*.txt.gz' --tokenizer DIR --output corpus
    python -m recipes.prepare_text --input web.jsonl --tokenizer DIR --output corpus --deduplicate minhash --shards 64
    python -m recipes.language_model --data.train corpus ...

Documents are read as a stream, filtered, freed of duplicates, tokenized and packed once. The same command resumes where
it was interrupted. `--engine ray` does the same on a Ray cluster, with the same bytes as a result.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import zoo
from recipes.command.printing import print_result
from recipes.common.config import run_recipe, setting
from recipes.common.corpus import duplicates, stages
from recipes.common.corpus.engines import run_all
from recipes.common.corpus.filters import make_filters
from recipes.common.corpus.output_folder import compare, compare_files, locked, planned, tidy
from recipes.common.corpus.shards import (
    FORMAT,
    HELD_OUT_FILE,
    INDEX_FILE,
    TOKENIZER_FOLDER,
    dtype_for,
    fingerprint,
    is_corpus,
)
from recipes.common.corpus.sources import Part, find_parts, require_read, share_out, state_of
from recipes.common.data.records import USUAL_SPLIT
from recipes.common.errors import BadLines, ConfigError, DataError, errors_of
from recipes.common.processes import threads_each
from zoo.extras import import_extra

_REPORT_FILE = "report.md"
_MODULES = ("array_record.python.array_record_module", "datasketch")


@dataclasses.dataclass(frozen=True)
class PrepareTextConfig:
    """Turns text files of any size into a corpus of token rows: shards, an index, a report."""

    resumes = True

    input: list[str] = setting(
        help="Files or patterns: plain text, JSON lines, each perhaps .gz, Parquet; folders of data sets of the "
        "Hugging Face library, or hf://datasets/owner/name.",
        offers="paths",
    )
    tokenizer: str = setting(
        help="Folder of a tokenizer, run folder, directory of a model, or hf://owner/name.", offers="paths"
    )
    output: str = setting(help="Folder of the corpus; the same command resumes in it.", offers="paths")
    unit: Literal["file", "paragraph", "line"] = setting("paragraph", "Which part of a plain text file is a document.")
    key: str = setting("text", "Key or column of the text in JSON lines, Parquet files and data sets.")
    split: str = setting(USUAL_SPLIT, "Name of the part (split) of a data set of the Hugging Face library.")
    filters: list[str | dict[str, Any]] = setting(
        [], "Functions of recipes.common.corpus.filters, or my_module.my_filter: [words, {filter: words, least: 5}]."
    )
    deduplicate: Literal["none", "exact", "minhash"] = setting(
        "exact",
        "Texts that are left out when they occur again. exact: equal apart from white space. minhash: "
        "also similar texts.",
    )
    threshold: float = setting(
        0.8, "Share of five-word sequences that near duplicates have in common.", above=0.1, below=1
    )
    validation: float = setting(0.0, "Share of the documents that are held out and written as text.", least=0, below=1)
    length: int = setting(1024, "Number of tokens of a row.", least=1, most=1 << 20)
    start_token: bool = setting(False, "Whether documents begin with the start token.")
    shards: int | None = setting(None, "Number of shards. null: 64, or fewer for little text.", least=1)
    on_error: Literal["raise", "skip"] = setting(
        "raise", "What to do at a line that cannot be read: stop, or skip and count it."
    )
    engine: Literal["local", "ray"] = setting(
        "local", "Where the work is done: in processes of this machine, or on a Ray cluster.", may_change=True
    )
    processes: int | None = setting(
        None, "Number of processes of this machine. null: one per core.", may_change=True, least=1, most=1024
    )


def main(config: PrepareTextConfig) -> dict[str, Any]:
    """Runs the recipe.

    Args:
        config: The configuration.

    Returns:
        The index, as written to `corpus.json` in the folder.
    """
    started = time.monotonic()
    for module in _MODULES:
        import_extra(module, "corpus")
    make_filters(config.filters)
    usual = PrepareTextConfig.__dataclass_fields__["threshold"].default
    if config.deduplicate != "minhash" and config.threshold != usual:
        raise ConfigError(f"threshold must be {usual} with deduplicate {config.deduplicate!r}, got {config.threshold}")
    tokenizer = load_tokenizer(config)
    folder = Path(config.output)
    with locked(folder):
        if is_corpus(folder):
            index = json.loads((folder / INDEX_FILE).read_text(encoding="utf-8"))
            compare(index["settings"], settings_of(config, tokenizer), folder)
            # what was read may have been removed since
            now = state_of(config.input, config.split, may_lack=True)
            compare_files(index["files"], now, folder, may_lack=True)
            tidy(folder)
            print(f"{folder} is complete")
            return index
        files = state_of(config.input, config.split)
        shares = make_plan(config, tokenizer, folder, files)
        index = prepare(config, tokenizer, folder, files, shares)
        seconds = time.monotonic() - started
        print(
            f"{folder}: {index['tokens']:,} tokens in {index['rows']:,} rows, {index['tokens'] / seconds:,.0f} tokens/s"
        )
        return index


def load_tokenizer(config: PrepareTextConfig) -> zoo.tokenizers.Tokenizer:
    """Returns the tokenizer, which must have the tokens that stand between documents."""
    with errors_of("tokenizer"):
        path = Path(config.tokenizer)
        stored = next((place for place in (path, path / "tokenizer") if (place / "tokenizer.json").is_file()), None)
        try:
            tokenizer = zoo.tokenizers.Tokenizer.from_preset(config.tokenizer)
        except (FileNotFoundError, ValueError):
            if stored is None:
                raise
            tokenizer = zoo.tokenizers.Tokenizer.load(stored)
    if tokenizer.end_id is None:
        raise ConfigError(f"tokenizer: {config.tokenizer} has no end token, which follows each document")
    if config.start_token and tokenizer.start_id is None:
        raise ConfigError(f"start_token must be false, as {config.tokenizer} has none, got true")
    return tokenizer


def settings_of(config: PrepareTextConfig, tokenizer: zoo.tokenizers.Tokenizer) -> dict[str, Any]:
    """Returns all that the bytes of the corpus depend on, apart from the files."""
    harmless = {"output", "tokenizer", "engine", "processes"}
    fields = {name: value for name, value in dataclasses.asdict(config).items() if name not in harmless}
    return {**fields, "tokenizer": fingerprint(tokenizer)}


def make_plan(
    config: PrepareTextConfig, tokenizer: zoo.tokenizers.Tokenizer, folder: Path, files: dict[str, Any]
) -> list[list[Part]]:
    """Returns the parts of the input that each shard is made of, as an earlier run has planned, or planned now."""

    def plan() -> list[list[Part]]:
        parts = find_parts(config.input, config.unit, config.split)
        if not parts:
            raise DataError(f"input: {' '.join(config.input)} holds nothing")
        usual = {field.name: field.default for field in dataclasses.fields(config)}
        kinds = {"unit": ("text",), "key": ("json_lines", "parquet", "data_set"), "split": ("data_set",)}
        require_read(parts, **{name: (getattr(config, name), usual[name], kinds[name]) for name in kinds})
        shares = share_out(parts, config.shards)
        tokenizer.save(folder / TOKENIZER_FOLDER)
        return shares

    return planned(folder, settings_of(config, tokenizer), files, plan, mine=[TOKENIZER_FOLDER])


def prepare(
    config: PrepareTextConfig,
    tokenizer: zoo.tokenizers.Tokenizer,
    folder: Path,
    files: dict[str, Any],
    shares: Sequence[Sequence[Part]],
) -> dict[str, Any]:
    """Goes through the stages, writes the index and the report, and removes what the stages have left."""
    settings = stages.Settings(
        folder.absolute(),
        config.unit,
        config.key,
        config.split,
        config.on_error,
        config.filters,
        config.deduplicate,
        config.threshold,
        config.validation,
        config.length,
        config.start_token,
        fingerprint(tokenizer),
    )
    tasks = [stages.ShardTask(settings, number, share) for number, share in enumerate(shares)]
    processes = config.processes or threads_each(1)

    def run(function: Callable, work: Sequence[Any], label: str) -> list[Any]:
        return run_all(function, work, config.engine, processes, label)

    read = stages.do_missing(stages.read_shard, tasks, "read", run, "reading")
    counts = [result["documents"].get("kept", 0) for result in read]
    bands = duplicates.band_shape(config.threshold)[0] if config.deduplicate == "minhash" else 0
    comparisons = [stages.DuplicatesTask(settings, counts, band) for band in range(bands)]
    if config.deduplicate != "none":
        comparisons.append(stages.DuplicatesTask(settings, counts))
    run(stages.find_duplicates, [task for task in comparisons if not task.path.is_file()], "comparing")
    decided = stages.decide(settings, counts, bands)
    packed = stages.do_missing(stages.pack_shard, tasks, "packed", run, "packing")
    sums = {"documents": 0, "characters": 0, "tokens": 0, "rows": 0, **stages.total(packed)}
    sums.pop("bytes")
    if not sums["rows"]:
        raise DataError("nothing is left of the input: see the filters, or whether it holds text")
    compare_files(files, state_of(config.input, config.split), folder)
    index = {
        "format": FORMAT,
        **sums,
        "length": config.length,
        "dtype": dtype_for(tokenizer.vocabulary_size),
        "start_id": tokenizer.start_id if config.start_token else None,
        "end_id": tokenizer.end_id,
        "tokenizer": fingerprint(tokenizer),
        "settings": settings_of(config, tokenizer),
        "files": files,
        "counts": {
            "documents": stages.total(read, "documents"),
            "characters": stages.total(read, "characters"),
            "decisions": decided,
            "bad_lines": stages.total(read, "bad"),
        },
        "shards": packed,
    }
    zoo.storage.write_text_atomically(folder / _REPORT_FILE, report(index, bad_lines(config, read)))
    if config.validation:
        with zoo.storage.atomic_write(folder / HELD_OUT_FILE) as path, open(path, "wb") as whole:
            for number in range(len(tasks)):
                with open(settings.work(f"validation-{number:05d}.jsonl"), "rb") as part:
                    shutil.copyfileobj(part, whole)
    zoo.storage.write_text_atomically(folder / INDEX_FILE, json.dumps(index, indent=1))
    tidy(folder)
    print_result(report(index, bad_lines(config, read)))
    return index


def bad_lines(config: PrepareTextConfig, read: Sequence[dict[str, Any]]) -> BadLines:
    """Returns the account of the lines that could not be read."""
    bad = BadLines(config.on_error)
    for result in read:
        bad.counts.update(result["bad"])
        for cause, origins in result["origins"].items():
            bad.origins[cause] = [*bad.origins.get(cause, []), *origins][:10]
    return bad


def report(index: dict[str, Any], bad: BadLines) -> str:
    """Returns what became of the documents, as Markdown."""
    counts = index["counts"]
    total = sum(counts["documents"].values())
    lines = ["| documents | number | share |", "| --- | ---: | ---: |"]
    filters = dict.fromkeys(name for name, _ in make_filters(index["settings"]["filters"]))
    dropped = [(name, counts["documents"].get(name, 0)) for name in filters]
    names = {"exact": "exact duplicates", "near": "near duplicates", "held_out": "held out for validation"}
    rows = [("read", total), *((f"left out by the filter {name}", number) for name, number in dropped)]
    rows += [(names[name], number) for name, number in counts["decisions"].items() if name in names]
    rows += [("without tokens", index.get("without_tokens", 0)), ("in the rows", index["documents"])]
    lines += [f"| {name} | {number:,} | {number / max(total, 1):.2%} |" for name, number in rows]
    lines += [
        "",
        f"{index['tokens']:,} tokens, {index['tokens'] / max(index['documents'], 1):.1f} of a document, one for "
        f"{index['characters'] / max(index['tokens'], 1):.2f} characters; {index['rows']:,} rows of "
        f"{index['length']} in {len(index['shards'])} shards. Lines {bad.report()}.",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    run_recipe(main, PrepareTextConfig, "prepare_text")
