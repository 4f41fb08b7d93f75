"""Generation by a SavedModel beside the same model in Python: time of a call, for one text and for several at a time.

    python -m recipes.benchmark exported --model runs/mine/model --texts prompts.txt

Works for each model that writes text: language models, encoder-decoders and recurrent ones. Texts are those of a greedy
search, and must be the same.
"""

from __future__ import annotations

import dataclasses
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from recipes.benchmark.step_data import write_table
from recipes.common.config import setting
from recipes.common.errors import ConfigError
from recipes.common.saved_models import load_task


@dataclasses.dataclass(frozen=True)
class Config:
    """Measures generation by a SavedModel against that in Python."""

    model: str = setting(help="Folder of a run or directory of a saved model that writes text.")
    texts: str = setting(help="Text file with a prompt or source per line.")
    batch_sizes: list[int] = setting([1, 8], "Texts of a call.")
    max_new_tokens: int = setting(64, "Tokens to generate of each text.", above=0)
    jit_compile: bool = setting(False, "Whether XLA compiles both.")
    rounds: int = setting(5, "Turns, one after the other; medians are reported.", above=0)
    folder: str = setting("runs/benchmark/exported", "Folder for the table.")


def main(config: Config) -> list[dict[str, Any]]:
    """Runs the benchmark and prints the table.

    Args:
        config: The configuration.

    Returns:
        A row for each batch size: seconds of a call in Python and of the SavedModel, and what is between.

    Raises:
        ConfigError: If the model writes no text, or there are too few texts.
    """
    task = load_task(config.model)
    if not hasattr(task, "generate"):
        raise ConfigError(f"model: {config.model} is a {type(task).__name__}, which writes no text")
    lines = [line for line in Path(config.texts).read_text(encoding="utf-8").splitlines() if line.strip()]
    if len(lines) < max(config.batch_sizes):
        raise ConfigError(f"texts: {config.texts} must hold at least {max(config.batch_sizes)} texts, got {len(lines)}")
    options = {"sampler": "greedy", "max_new_tokens": config.max_new_tokens, "jit_compile": config.jit_compile}
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        task.export(directory, **options)
        exported = tf.saved_model.load(directory)
        for batch_size in config.batch_sizes:
            texts = lines[:batch_size]
            ways: dict[str, Callable[[], list[str]]] = {
                "python": lambda texts=texts: task.generate(texts, **options),
                "exported": lambda texts=texts: [text.decode() for text in exported.serve(tf.constant(texts)).numpy()],
            }
            rows.append(_measure(batch_size, ways, config.rounds))
    write_table(config.folder, _table(rows))
    return rows


def _measure(batch_size: int, ways: dict[str, Callable[[], list[str]]], rounds: int) -> dict[str, Any]:
    """Calls both in turn; the first calls, which compile, do not count."""
    python, exported = (call() for call in ways.values())
    if python != exported:
        different = next(pair for pair in zip(python, exported, strict=True) if pair[0] != pair[1])
        raise ConfigError(f"the SavedModel writes {different[1]!r} where Python writes {different[0]!r}")
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    bar = keras.utils.Progbar(rounds, unit_name="turn")
    for _ in range(rounds):
        for way, call in ways.items():
            start = time.perf_counter()
            call()
            seconds[way].append(time.perf_counter() - start)
        bar.add(1)
    medians = {way: statistics.median(taken) for way, taken in seconds.items()}
    return {"batch_size": batch_size, **medians, "as_fast": medians["python"] / medians["exported"]}


def _table(rows: list[dict[str, Any]]) -> str:
    lines = ["| texts of a call | Python: ms | SavedModel: ms | as fast |", "| --- | --- | --- | --- |"]
    for row in rows:
        python, exported = 1000 * row["python"], 1000 * row["exported"]
        lines.append(f"| {row['batch_size']} | {python:.1f} | {exported:.1f} | {row['as_fast']:.2f} |")
    return "\n".join(lines) + "\n"
