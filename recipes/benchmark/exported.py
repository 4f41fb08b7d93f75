"""Generation by a SavedModel beside the same model in Python: time of a call, for one text and for several at a time.

    python -m recipes.benchmark exported --model runs/mine/model --texts prompts.txt
    python -m recipes.benchmark exported --preset transformer_tiny --texts sources.txt    # random weights

Works for each model that writes text: language models, encoder-decoders and recurrent ones; greedily and with beams.
The texts of both must be the same. A model with random weights has a tokenizer that is trained on the texts.
"""

from __future__ import annotations

import dataclasses
import functools
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

import zoo
from recipes.benchmark.step_data import write_table
from recipes.common.config import setting
from recipes.common.data.plain_text import read_plain
from recipes.common.errors import BadLines, ConfigError
from recipes.common.saved_models import load_task, make_sampler


@dataclasses.dataclass(frozen=True)
class Config:
    """Measures generation by a SavedModel against that in Python."""

    texts: str = setting(help="Text file with a prompt or source per line.", offers="paths")
    model: str | None = setting(
        None, "Folder of a run or directory of a saved model that writes text; null for random weights.", offers="paths"
    )
    preset: str | None = setting(
        None, "Name of the architecture whose random weights are used where model is null.", offers="presets"
    )
    vocabulary_size: int = setting(2000, "Largest vocabulary of a model with random weights.", above=0)
    beams: list[int] = setting([1, 4], "Number of beams. 1 is greedy search.", least=1)
    batch_sizes: list[int] = setting([1, 8], "Numbers of texts per call.", least=1)
    max_new_tokens: int = setting(64, "Number of tokens to generate for each text.", above=0)
    jit_compile: bool = setting(False, "Whether XLA compiles the model and the export.")
    rounds: int = setting(5, "Number of turns, one after the other. Medians are reported.", above=0)
    folder: str = setting("runs/benchmark/exported", "Folder for the table.", offers="paths")

    def __post_init__(self) -> None:
        if (self.model is None) == (self.preset is None):
            raise ConfigError("model or preset must be given, and not both")


def main(config: Config) -> list[dict[str, Any]]:
    """Runs the benchmark and prints the table.

    Args:
        config: The configuration.

    Returns:
        A row for each number of beams and batch size: seconds of a call in Python and of the SavedModel, and what is
        between.

    Raises:
        ConfigError: If the model writes no text, or there are too few texts, or those of both ways differ.
    """
    lines = read_plain([config.texts], BadLines("raise"), unit="line")
    if len(lines) < max(config.batch_sizes):
        raise ConfigError(f"texts: {config.texts} must hold at least {max(config.batch_sizes)} texts, got {len(lines)}")
    task = load_task(config.model) if config.model else _random(config, lines)
    if not hasattr(task, "generate"):
        raise ConfigError(f"model: {config.model} is a {type(task).__name__}, which writes no text")
    rows = []
    for beams in config.beams:
        sampler = make_sampler("greedy" if beams == 1 else {"name": "beam", "num_beams": beams})
        options = {"sampler": sampler, "max_new_tokens": config.max_new_tokens, "jit_compile": config.jit_compile}
        with tempfile.TemporaryDirectory() as directory:
            task.export(directory, **options)
            exported = tf.saved_model.load(directory)
            for batch_size in config.batch_sizes:
                texts = lines[:batch_size]
                ways = {
                    "python": functools.partial(task.generate, texts, **options),
                    "exported": functools.partial(_serve, exported, tf.constant(texts)),
                }
                rows.append({"beams": beams, "batch_size": batch_size, **_measure(ways, config.rounds)})
    write_table(config.folder, _table(rows))
    return rows


def _serve(exported: Any, texts: tf.Tensor) -> list[str]:
    return [text.decode("utf-8", "replace") for text in exported.serve(texts).numpy()]


def _random(config: Config, lines: list[str]) -> zoo.Task:
    """A model of a named architecture with random weights, and a tokenizer of the texts."""
    tokenizer = zoo.tokenizers.ByteLevelBPETokenizer.train(lines, config.vocabulary_size)
    keras.utils.set_random_seed(0)
    size = {"vocabulary_size": tokenizer.vocabulary_size}
    backbone = zoo.Backbone.from_preset(config.preset, load_weights=False, **size)
    kinds = {"decoder": zoo.CausalLM, "encoder_decoder": zoo.Seq2SeqLM}
    if backbone.config.architecture not in kinds:
        raise ConfigError(f"preset: {config.preset} has the architecture encoder, which writes no text")
    return kinds[backbone.config.architecture](backbone, tokenizer)


def _measure(ways: dict[str, Callable[[], list[str]]], rounds: int) -> dict[str, Any]:
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
    return {**medians, "as_fast": medians["python"] / medians["exported"]}


def _table(rows: list[dict[str, Any]]) -> str:
    lines = ["| beams | texts of a call | Python: ms | SavedModel: ms | as fast |", "| --- | --- | --- | --- | --- |"]
    for row in rows:
        python, exported = 1000 * row["python"], 1000 * row["exported"]
        numbers = f"| {row['beams']} | {row['batch_size']} | {python:.1f} | {exported:.1f}"
        lines.append(f"{numbers} | {row['as_fast']:.2f} |")
    return "\n".join(lines) + "\n"
