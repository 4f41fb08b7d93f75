"""Peak of memory: of training a decoder, compared with KerasHub, and of reading long texts through a window.

Each way of training has a process of its own. Its peak is the largest resident set since it started, libraries
included. Its time is that of all processors together, in turn with the other ways.
"""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
from collections.abc import Callable
from typing import Any

import keras

import zoo
from recipes.benchmark.contestant import Contestant
from recipes.benchmark.libraries.batches import token_ids
from recipes.benchmark.peak_memory import peak_memory
from recipes.benchmark.step_data import write_results
from recipes.benchmark.steps import traced_step
from recipes.benchmark.works import WORKS
from recipes.common.config import setting
from recipes.common.errors import errors_of
from recipes.common.output_file import check_output_file

# library, and what its `make` is given
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "zoo": ("zoo", {}),
    "zoo, remat": ("zoo", {"remat": True}),
    "zoo, all logits": ("zoo", {"all_logits": True}),
    "KerasHub": ("keras_hub", {}),
}


@dataclasses.dataclass(frozen=True)
class Config:
    """Measures the memory of training and of long inputs."""

    vocabulary_sizes: list[int] = setting([8192, 50257], "Vocabulary sizes to train with.", least=1)
    batch_size: int = setting(8, "Number of rows of a training batch.", least=1)
    length: int = setting(256, "Number of tokens of a training row.", least=1)
    dtype: str = setting("float32", "Dtype policy of training.")
    rounds: int = setting(3, "Number of turns of each way of training.", least=1)
    long_lengths: list[int] = setting([4096, 8192, 16384, 32768], "Numbers of tokens of the long texts.", least=1)
    window: int = setting(512, "Number of tokens that a token attends to, including itself.", least=1)
    output: str = setting("runs/benchmark/memory.json", "File for the figures.", offers="paths")


def main(config: Config) -> dict[str, Any]:
    """Runs the benchmark and prints two tables.

    Args:
        config: The configuration.

    Returns:
        For each vocabulary and way of training peak bytes and processor seconds, for each length bytes.

    Raises:
        ConfigError: If there is no such dtype policy.
    """
    check_output_file(config.output)
    with errors_of("dtype"):
        keras.DTypePolicy(config.dtype)
    results: dict[str, Any] = {"training": [], "reading": []}
    print("| vocabulary | way | peak, MB | / KerasHub | processor seconds |\n| --- | --- | --- | --- | --- |")
    for size in config.vocabulary_sizes:
        for row in train(size, config):
            results["training"].append(row)
            print(
                f"| {size:,} | {row['way']} | {row['peak_bytes'] / 1e6:,.0f} | {row['of_keras_hub']:.2f} | "
                f"{row['processor_seconds']:.2f} |"
            )
    print("\n| tokens | MB beyond weights and inputs |\n| --- | --- |")
    for length in config.long_lengths:
        found = peak_memory("recipes.benchmark.memory:make_reading", length=length, window=config.window)
        results["reading"].append({"length": length, "bytes": found})
        print(f"| {length:,} | {found / 1e6:,.0f} |")
    write_results(config.output, {"config": dataclasses.asdict(config), **results})
    return results


def train(vocabulary_size: int, config: Config) -> list[dict[str, Any]]:
    """Measures each way of training.

    Args:
        vocabulary_size: Number of tokens.
        config: The other sizes.
    """
    sizes = {name: getattr(config, name) for name in ("batch_size", "length")}
    work = dataclasses.replace(WORKS["train_decoder"], vocabulary_size=vocabulary_size, **sizes)
    with contextlib.ExitStack() as stack:
        processes = {
            way: stack.enter_context(Contestant(library, work, {"dtype": config.dtype, **mode}))
            for way, (library, mode) in WAYS.items()
        }
        for process in processes.values():
            process.turn(2)
        turns = [{way: process.turn(1) for way, process in processes.items()} for _ in range(config.rounds)]
    peaks = {way: turns[-1][way].peak_bytes for way in WAYS}
    return [
        {
            "vocabulary_size": vocabulary_size,
            "way": way,
            "peak_bytes": peaks[way],
            "of_keras_hub": round(peaks[way] / peaks["KerasHub"], 3),
            "processor_seconds": statistics.median(turn[way].processor_seconds for turn in turns),
        }
        for way in WAYS
    ]


def make_reading(length: int, window: int) -> Callable[[], Any]:
    """Returns a pass over one text of the decoder of the training, whose attention has a window.

    Args:
        length: Tokens of the text.
        window: Tokens that one of them attends to, itself included.
    """
    work = dataclasses.replace(WORKS["train_decoder"], job="infer", batch_size=1, length=length)
    backbone = zoo.Backbone.from_config(
        zoo.TransformerConfig(
            "decoder",
            vocabulary_size=work.vocabulary_size,
            hidden_dim=work.hidden_dim,
            num_layers=work.num_layers,
            max_length=length,
            attention=zoo.AttentionConfig(work.num_heads, window=(window - 1, 0)),
            feed_forward=zoo.FeedForwardConfig(work.intermediate_dim),
            position=zoo.PositionConfig("rotary"),
        )
    )

    def read(ids: Any) -> Any:
        return backbone({"token_ids": ids, "padding_mask": keras.ops.ones_like(ids, dtype="bool")}, training=False)

    return traced_step(read, token_ids(work), backbone.variables, backward=False)
