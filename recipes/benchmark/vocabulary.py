"""A training step of a decoder whose logits are computed in pieces, compared with one that holds all of them.

Time is that of all processors together, in turn in one process; memory is the peak of a first step in a process of its
own, beyond what the process held before it (libraries, weights, batch).
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable
from typing import Any

import keras

from recipes.benchmark.libraries import zoo as library
from recipes.benchmark.memory import peak_memory
from recipes.benchmark.step_data import write_results
from recipes.benchmark.timing import median_ratio, time_in_turn
from recipes.benchmark.works import WORKS
from recipes.common.config import setting
from zoo.training import TokenCrossEntropy


@dataclasses.dataclass(frozen=True)
class Config:
    """Compares a loss over the vocabulary that is computed in pieces with one that is given all logits."""

    vocabulary_sizes: list[int] = setting([8192, 50257], "Sizes of vocabularies to try.", least=1)
    batch_size: int = setting(8, "Rows of a batch.", least=1)
    length: int = setting(256, "Tokens of a row.", least=1)
    dtype: str = setting("float32", "Dtype policy.")
    jit_compile: bool = setting(False, "Whether XLA compiles the step.")
    rounds: int = setting(3, "Turns of each.", least=1)
    output: str = setting("runs/benchmark/vocabulary.json", "File for the figures.")


class AllLogits(TokenCrossEntropy):
    """The same loss, which a model cannot know to be computed from less than all logits."""


LOSSES = {"pieces": TokenCrossEntropy, "all logits": AllLogits}


def make_step(loss: str, **sizes: Any) -> Callable[[], Any]:
    """Returns a step of training.

    Args:
        loss: A key of `LOSSES`.
        sizes: `vocabulary_size`, `batch_size`, `length`, `dtype` and `jit_compile`.
    """
    keras.config.set_dtype_policy(sizes.pop("dtype"))
    jit_compile = sizes.pop("jit_compile")
    work = dataclasses.replace(WORKS["train_decoder"], **sizes)
    task, batch = library.task_and_batch(work)
    keras.config.set_dtype_policy("float32")
    task.compile(keras.optimizers.Adam(1e-4), LOSSES[loss](), jit_compile=jit_compile)
    return lambda: task.train_on_batch(*batch)


def main(config: Config) -> dict[str, Any]:
    """Runs the benchmark and prints a table.

    Args:
        config: The configuration.

    Returns:
        Processor seconds, bytes and ratios of each size.
    """
    rows = []
    print("| vocabulary | logits | processor seconds | peak, MB |\n| --- | --- | --- | --- |")
    for size in config.vocabulary_sizes:
        names = ("batch_size", "length", "dtype", "jit_compile")
        sizes = {"vocabulary_size": size, **{name: getattr(config, name) for name in names}}
        steps = {loss: make_step(loss, **sizes) for loss in LOSSES}
        times = time_in_turn(steps, rounds=config.rounds, calls=1, warm_up=1, clock=time.process_time)
        steps.clear()
        memory = {loss: peak_memory("recipes.benchmark.vocabulary:make_step", loss=loss, **sizes) for loss in LOSSES}
        for loss in LOSSES:
            seconds = statistics.median(times[loss])
            print(f"| {size:,} | {loss} | {seconds:.2f} | {memory[loss] / 1e6:,.0f} |")
        rows.append(
            {
                "vocabulary_size": size,
                "processor_seconds": {loss: round(statistics.median(times[loss]), 3) for loss in LOSSES},
                "bytes": memory,
                "ratio_of_seconds": round(median_ratio(times, "pieces", "all logits"), 3),
                "ratio_of_bytes": round(memory["pieces"] / max(1, memory["all logits"]), 3),
            }
        )
        print(f"pieces / all logits: time {rows[-1]['ratio_of_seconds']}, memory {rows[-1]['ratio_of_bytes']}")
    result = {"config": dataclasses.asdict(config), "rows": rows}
    write_results(config.output, result)
    return result
