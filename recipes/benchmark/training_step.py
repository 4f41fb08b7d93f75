"""A training step of `transformer_tiny` compared with the same model made of KerasHub's layers.

Both have the same sizes, the same dropout (residual, embedding and, as KerasHub cannot leave it out, attention
weights), one embedding shared three ways, the same loss and the same optimizer. Every mode (XLA or not, float32 or
mixed_bfloat16) of both is timed in turn in one process.
"""

from __future__ import annotations

import dataclasses
import statistics
from typing import Any

import keras

import zoo
from recipes.benchmark.libraries.keras_hub import encoder_decoder
from recipes.benchmark.step_data import make_batch, write_results
from recipes.benchmark.timing import time_in_turn
from recipes.benchmark.works import Work
from recipes.common.config import setting
from zoo.training import TokenCrossEntropy


@dataclasses.dataclass(frozen=True)
class Config:
    """Times a training step of transformer_tiny and of the same model made of KerasHub's layers."""

    batch_size: int = setting(128, "Sentence pairs of a batch.", least=1)
    length: int = setting(20, "Tokens of the source, and of the target.", least=1)
    vocabulary_size: int = setting(10000, "Size of the joint vocabulary.", least=1)
    dropout: float = setting(0.3, "Rate of all dropouts.")
    dtypes: list[str] = setting(["float32", "mixed_bfloat16"], "Dtype policies to try.")
    jit_compile: list[bool] = setting([False, True], "Whether XLA compiles the step: which to try.")
    rounds: int = setting(5, "Turns of each model and mode.", least=1)
    calls: int = setting(3, "Steps per turn.", least=1)
    output: str = setting("runs/benchmark/training_step.json", "File for the figures.")


def main(config: Config) -> dict[str, Any]:
    """Runs the benchmark and prints a table.

    Args:
        config: The configuration.

    Returns:
        Milliseconds and tokens per second of each model and mode.
    """
    batch = make_batch(config.batch_size, config.length, config.vocabulary_size)
    builders = {"zoo": make_zoo_model, "KerasHub": make_keras_hub_model}
    steps = {}
    for dtype in config.dtypes:
        keras.config.set_dtype_policy(dtype)
        for jit_compile in config.jit_compile:
            for name, build in builders.items():
                model = build(config)
                model.compile(keras.optimizers.Adam(1e-4), TokenCrossEntropy(0.1), jit_compile=jit_compile)
                mode = f"{name}, {dtype}{', XLA' if jit_compile else ''}"
                steps[mode] = lambda model=model: model.train_on_batch(*batch)
    keras.config.set_dtype_policy("float32")
    times = time_in_turn(steps, rounds=config.rounds, calls=config.calls)
    tokens = 2 * config.batch_size * config.length
    rows = {
        mode: {
            "milliseconds": round(1000 * statistics.median(seconds), 1),
            "fastest": round(1000 * min(seconds), 1),
            "tokens_per_second": round(tokens / statistics.median(seconds)),
        }
        for mode, seconds in times.items()
    }
    print("| model and mode | ms per step, median (fastest) | source + target tokens per second |\n| --- | --- | --- |")
    for mode, row in rows.items():
        print(f"| {mode} | {row['milliseconds']} ({row['fastest']}) | {row['tokens_per_second']:,} |")
    best = {
        name: min((m for m in rows if m.startswith(name)), key=lambda m: rows[m]["milliseconds"]) for name in builders
    }
    ratio = statistics.median(
        theirs / ours for ours, theirs in zip(times[best["zoo"]], times[best["KerasHub"]], strict=True)
    )
    print(f"best against best: {best['zoo']} is {ratio:.2f} times as fast as {best['KerasHub']} (median of rounds)")
    result = {"config": dataclasses.asdict(config), "rows": rows, "best": best, "speed_ratio": round(ratio, 3)}
    write_results(config.output, result)
    return result


def make_zoo_model(config: Config) -> keras.Model:
    """Returns ours."""
    architecture = zoo.preset_config("transformer_tiny", vocabulary_size=config.vocabulary_size, dropout=config.dropout)
    attention = dataclasses.replace(architecture.attention, dropout=config.dropout)
    return zoo.Seq2SeqLM(zoo.Backbone.from_config(dataclasses.replace(architecture, attention=attention)))


def make_keras_hub_model(config: Config) -> keras.Model:
    """Returns the same model made of KerasHub's layers."""
    sizes = zoo.preset_config("transformer_tiny")
    return encoder_decoder(
        Work(
            "train",
            "encoder_decoder",
            config.batch_size,
            config.length,
            sizes.num_layers,
            sizes.hidden_dim,
            sizes.attention.num_heads,
            sizes.feed_forward.intermediate_dim,
            config.vocabulary_size,
            dropout=config.dropout,
        )
    )
