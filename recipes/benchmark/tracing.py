"""What it saves to trace the layers of one structure once: seconds to the first step and to the first answer.

Models have the shape of SmolLM2 135M and random weights. Each call is the first one of a process of its own, on the
backend of this one.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
from matplotlib.figure import Figure
from tqdm import tqdm

import zoo
from recipes.benchmark.step_data import write_results
from recipes.common.config import setting
from recipes.common.errors import ConfigError, RecipeError
from recipes.common.output_file import check_output_file

WORKS = {"training": "the first step", "generation": "an answer of 8 tokens to 42"}


@dataclasses.dataclass(frozen=True)
class Config:
    """Measures the first call of deep models, with layers that are traced once and each by itself."""

    num_layers: list[int] = setting([6, 12, 30, 60], "Numbers of layers.", least=1)
    works: list[str] = setting(list(WORKS), f"What is called, among {', '.join(WORKS)}.")
    hidden_dim: int = setting(576, "Width, in heads of 64.", least=64)
    vocabulary_size: int = setting(49152, "Number of tokens.", least=64)
    dropout: float = setting(0.1, "Rate of the dropout in training.", least=0, below=1)
    jit_compile: bool = setting(False, "Whether XLA compiles the calls; on JAX it always does.")
    rounds: int = setting(3, "Number of processes of each call.", least=1)
    output: str = setting("runs/benchmark/tracing.json", "File for the figures, beside a picture.", offers="paths")


def main(config: Config) -> list[dict[str, Any]]:
    """Measures, prints a table, and writes the figures and a picture.

    Args:
        config: The configuration.

    Returns:
        For each work and number of layers a row: `work`, `num_layers`, and medians of the seconds of the first call
        `once` and `each`, and of a later call, `then_once` and `then_each`.
    """
    check_output_file(config.output)
    unknown = [work for work in config.works if work not in WORKS]
    if unknown:
        raise ConfigError(f"works must be among {', '.join(WORKS)}, got {unknown}")
    rows = []
    print("| call | layers | traced once | each by itself | ratio | later calls, ratio |")
    print("| --- | --- | --- | --- | --- | --- |")
    cases = [(work, number) for work in config.works for number in config.num_layers]
    for work, number in tqdm(cases, disable=None):
        taken: dict[str, list[list[float]]] = {"once": [], "each": []}
        for _ in range(config.rounds):
            for way, found in taken.items():  # in turn
                found.append(_in_a_process(config, work, number, way == "once"))
        row: dict[str, Any] = {"work": work, "num_layers": number}
        for way, found in taken.items():
            row[way], row[f"then_{way}"] = (statistics.median(column) for column in zip(*found, strict=True))
        rows.append(row)
        print(
            f"| {WORKS[work]} | {number} | {row['once']:.1f} s | {row['each']:.1f} s | {row['each'] / row['once']:.2f} "
            f"| {row['then_each'] / row['then_once']:.2f} |",
            flush=True,
        )
    write_results(config.output, {"config": dataclasses.asdict(config), "rows": rows})
    _draw(rows, config)
    return rows


def _in_a_process(config: Config, work: str, number: int, once: bool) -> list[float]:
    given = {**dataclasses.asdict(config), "num_layers": number}
    program = "import sys; from recipes.benchmark.tracing import first_calls; first_calls(*sys.argv[1:])"
    words = [sys.executable, "-c", program, work, json.dumps(given), "once" * once]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise RecipeError(f"the process for {number} layers ended with status {done.returncode}: {done.stderr[-1000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def first_calls(work: str, given: str, once: str) -> None:
    """Prints the seconds of the first call in this process, and the median of later ones.

    Args:
        work: A key of `WORKS`.
        given: Fields of `Config` as JSON, with one number of layers.
        once: Whether layers are traced once; empty for not.
    """
    if not once:
        zoo.backbones.traced_once.TracedOnce.__call__ = lambda self, layer, *arguments, **options: layer(
            *arguments, **options
        )  # type: ignore[method-assign]
    config = Config(**json.loads(given))
    heads = config.hidden_dim // 64
    model = zoo.CausalLM(
        zoo.Backbone.from_config(
            zoo.TransformerConfig(
                "decoder",
                config.vocabulary_size,
                hidden_dim=config.hidden_dim,
                num_layers=config.num_layers,  # type: ignore[arg-type]  # one number here
                max_length=256,
                attention=zoo.AttentionConfig(heads, num_key_value_heads=3 if heads % 3 == 0 else heads),
                position=zoo.PositionConfig("rotary"),
                norm=zoo.NormConfig("rms", "pre"),
                feed_forward=zoo.FeedForwardConfig(config.hidden_dim * 8 // 3, "silu", gated=True, use_bias=False),
                dropout=config.dropout,
            )
        )
    )
    ids = np.random.default_rng(0).integers(1, config.vocabulary_size, (2, 42)).astype("int32")
    inputs = {"token_ids": ids, "padding_mask": np.ones(ids.shape, "bool")}
    is_compiled = config.jit_compile or keras.backend.backend() == "jax"
    model.compile(keras.optimizers.SGD(1e-3), jit_compile=is_compiled)

    def call() -> float:
        started = time.perf_counter()
        if work == "training":
            model.train_on_batch(inputs, ids)
        else:
            model.generate_tokens(ids[:1].tolist(), max_new_tokens=8, end_ids=(), jit_compile=is_compiled)
        return time.perf_counter() - started

    first = call()
    print(json.dumps([first, statistics.median(call() for _ in range(5))]))


def _draw(rows: list[dict[str, Any]], config: Config) -> None:
    """A picture of the seconds by number of layers."""
    figure = Figure(figsize=(4 * len(config.works), 3), layout="constrained")
    for place, work in enumerate(config.works):
        axis = figure.add_subplot(1, len(config.works), place + 1)
        found = [row for row in rows if row["work"] == work]
        for way, label in (("once", "traced once"), ("each", "each by itself")):
            axis.plot([row["num_layers"] for row in found], [row[way] for row in found], "o-", label=label)
        axis.set_xlabel("layers")
        axis.set_ylabel("seconds")
        axis.set_ylim(bottom=0)
        axis.set_title(WORKS[work])
        axis.legend()
    figure.savefig(Path(config.output).with_suffix(".png"), dpi=120)
