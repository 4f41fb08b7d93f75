"""`MultiHeadAttention` compared with the attention layers of Keras and KerasHub: equal weights, equal outputs."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

import layers
from recipes.benchmark.peak_memory import peak_memory
from recipes.benchmark.steps import random_inputs, traced_step
from recipes.benchmark.timing import calls_per_turn, median_ratio, time_in_turn
from recipes.common.config import setting
from recipes.common.errors import RecipeError

OURS, OURS_GROUPED = "MultiHeadAttention", "MultiHeadAttention, grouped"

# Each layer of the other libraries, and ours that does the same work.
RIVALS = {
    "keras.layers.MultiHeadAttention": OURS,
    "keras_nlp.layers.CachedMultiHeadAttention": OURS,
    "keras.layers.GroupQueryAttention": OURS_GROUPED,
}


@dataclasses.dataclass(frozen=True)
class AttentionConfig:
    """Sizes for the comparison of attention layers."""

    lengths: list[int] = setting([128, 256, 512, 1024, 2048, 4096, 8192], "Numbers of positions.", least=1)
    batch_size: int = setting(1, "Number of sequences per batch.", least=1)
    width: int = setting(256, "Number of features per position.", least=1)
    num_heads: int = setting(4, "Number of query heads.", least=1)
    num_key_value_heads: int = setting(2, "Number of key-value heads of the grouped layers.", least=1)
    memory_from: int = setting(2048, "Least length whose memory is measured.", least=1)
    rounds: int = setting(5, "Number of turns of each layer and length.", least=1)


def make_function(
    name: str, causal: bool, length: int, config: AttentionConfig
) -> tuple[Callable[[Any], Any], Sequence[keras.Variable]]:
    """Returns self-attention by one of the layers, as a function of its inputs, and the weights of the layer.

    The weights of layers with as many heads are the same.

    Args:
        name: A key or a value of `RIVALS`.
        causal: Whether a position sees only itself and what is before.
        length: Number of positions.
        config: The sizes.
    """
    shape = (config.batch_size, length, config.width)
    head_dim = config.width // config.num_heads
    options: dict[str, Any] = {}
    if name in (OURS, OURS_GROUPED):
        key_value_heads = config.num_key_value_heads if name == OURS_GROUPED else None
        layer = layers.MultiHeadAttention(
            config.num_heads, head_dim, num_key_value_heads=key_value_heads, causal=causal
        )
        layer.build(shape)
        function = layer
    elif name == "keras.layers.GroupQueryAttention":
        layer = keras.layers.GroupQueryAttention(head_dim, config.num_heads, config.num_key_value_heads)
        layer.build(shape, shape)
        options = {"use_causal_mask": causal}
    elif name == "keras.layers.MultiHeadAttention":
        layer = keras.layers.MultiHeadAttention(config.num_heads, head_dim)
        layer.build(shape, shape)
        options = {"use_causal_mask": causal}
    elif name == "keras_nlp.layers.CachedMultiHeadAttention":
        import keras_nlp

        layer = keras_nlp.layers.CachedMultiHeadAttention(config.num_heads, head_dim)
        layer.build(shape, shape)
    else:
        raise RecipeError(f"there is no attention layer {name!r} to compare")
    if name == "keras_nlp.layers.CachedMultiHeadAttention":

        def function(x: Any) -> Any:
            # this layer takes the mask from its caller
            mask = keras.ops.tril(keras.ops.ones((1, length, length), "bool")) if causal else None
            return layer(x, x, attention_mask=mask)

    elif name not in (OURS, OURS_GROUPED):

        def function(x: Any) -> Any:
            return layer(x, x, **options)

    generator = np.random.default_rng(0)
    for variable in layer.weights:
        variable.assign(keras.ops.reshape(generator.normal(0, 0.05, int(np.prod(variable.shape))), variable.shape))
    return function, layer.trainable_variables


def make_step(name: str, causal: bool, length: int, backward: bool, **sizes: Any) -> Callable[[], Any]:
    """Returns a pass of one of the layers.

    Args:
        name: A key or a value of `RIVALS`.
        causal: Whether a position sees only itself and what is before.
        length: Number of positions.
        backward: Whether the gradients are computed, too.
        sizes: Fields of `AttentionConfig`.
    """
    config = AttentionConfig(**sizes)
    function, variables = make_function(name, causal, length, config)
    inputs = random_inputs(config.batch_size, length, config.width)
    return traced_step(function, inputs, variables, backward=backward)


def check_equal_outputs(config: AttentionConfig) -> float:
    """Checks that each layer of the other libraries gives what ours gives with the same weights.

    Args:
        config: The sizes.

    Returns:
        The largest difference.

    Raises:
        RecipeError: An output differs by more than float32 sums do.
    """
    inputs = random_inputs(config.batch_size, 64, config.width)
    largest = 0.0
    for causal in (False, True):
        for theirs, ours in RIVALS.items():
            first, second = (
                keras.ops.convert_to_numpy(make_function(name, causal, 64, config)[0](inputs))
                for name in (theirs, ours)
            )
            difference = float(np.abs(first - second).max())
            if difference > 1e-4 * np.abs(second).max():
                raise RecipeError(f"{theirs} gives other outputs than {ours}: they differ by up to {difference}")
            largest = max(largest, difference)
    return largest


def measure(config: AttentionConfig, advance: Callable[[str], None]) -> list[dict[str, Any]]:
    """Times all layers in turn at all lengths, and measures the memory of each.

    Args:
        config: What to measure.
        advance: Called with the name of each case that is done.

    Returns:
        A row for each layer, mask, direction and length: `layer`, `causal`, `backward`, `length`, `seconds`, `bytes`;
        for the layers of other libraries also `time_ratio`, the median over turns of their time divided by ours,
        `processor_ratio`, the same for processor time, and `memory_ratio`.
    """
    check_equal_outputs(config)
    sizes = dataclasses.asdict(config)
    names = [OURS, OURS_GROUPED, *RIVALS]
    rows = []
    for backward in (False, True):
        for causal in (False, True):
            for length in config.lengths:
                cases = {
                    name: {"name": name, "causal": causal, "length": length, "backward": backward, **sizes}
                    for name in names
                }
                steps = {name: make_step(**case) for name, case in cases.items()}
                calls = calls_per_turn(steps[OURS])
                times = time_in_turn(steps, rounds=config.rounds, calls=calls, warm_up=1)
                work = time_in_turn(steps, rounds=config.rounds, calls=calls, warm_up=0, clock=time.process_time)
                del steps
                memory = {}
                if length >= config.memory_from:
                    memory = {
                        name: peak_memory("recipes.benchmark.attention_layers:make_step", **case)
                        for name, case in cases.items()
                    }
                for name in names:
                    row = {"layer": name, "causal": causal, "backward": backward, "length": length}
                    row |= {"seconds": statistics.median(times[name]), "bytes": memory.get(name)}
                    if name in RIVALS:
                        row["time_ratio"] = median_ratio(times, name, RIVALS[name])
                        row["processor_ratio"] = median_ratio(work, name, RIVALS[name])
                        row["memory_ratio"] = memory[name] / memory[RIVALS[name]] if memory else None
                    rows.append(row)
                advance(f"{length}{', causal' if causal else ''}{', backward' if backward else ''}")
    return rows


def count_cases(config: AttentionConfig) -> int:
    """How many cases `measure` has."""
    return 4 * len(config.lengths)


def table(rows: Sequence[dict[str, Any]], config: AttentionConfig) -> str:
    """The measurements as Markdown tables.

    Args:
        rows: What `measure` returned.
        config: What was measured.
    """
    lines = []
    for backward in (False, True):
        for causal in (False, True):
            chosen = [row for row in rows if row["backward"] == backward and row["causal"] == causal]
            title = f"{'Training' if backward else 'Inference'}, {'causal' if causal else 'no mask'}"
            lines += [
                f"{title}: milliseconds (MiB beyond weights and inputs) by length. For the other libraries also how "
                "many times as much as ours they take: time, processor time in brackets, and memory.",
                "",
                "| layer |" + "".join(f" {length:,} |" for length in config.lengths),
                "| --- |" + " --- |" * len(config.lengths),
            ]
            for name in (OURS, OURS_GROUPED, *RIVALS):
                cells = [_cell(row) for row in chosen if row["layer"] == name]
                lines.append("| " + " | ".join([name, *cells]) + " |")
            lines.append("")
    return "\n".join(lines)


def _cell(row: dict[str, Any]) -> str:
    cell = f"{1000 * row['seconds']:,.1f}"
    if row["bytes"] is not None:
        cell += f" ({row['bytes'] / 2**20:,.0f})"
    if "time_ratio" in row:
        cell += f": ×{row['time_ratio']:.2f} (×{row['processor_ratio']:.2f})"
        if row["memory_ratio"] is not None:
            cell += f", ×{row['memory_ratio']:.1f}"
    return cell


def plot(rows: Sequence[dict[str, Any]], path: Any) -> None:
    """Draws how many times as long, and how many times the memory, the other libraries' layers take.

    Args:
        rows: What `measure` returned.
        path: PNG file to write.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 8), layout="constrained")
    axes = figure.subplots(2, 2, sharex=True)
    for axis_row, (key, label) in zip(
        axes,
        (("processor_ratio", "processor time divided by ours"), ("memory_ratio", "memory divided by ours")),
        strict=True,
    ):
        for axis, backward in zip(axis_row, (False, True), strict=True):
            for color, name in enumerate(RIVALS):
                for causal, style in ((False, "-"), (True, "--")):
                    values = {
                        row["length"]: row[key]
                        for row in rows
                        if (row["layer"], row["backward"], row["causal"]) == (name, backward, causal) and row[key]
                    }
                    axis.semilogx(
                        list(values),
                        list(values.values()),
                        style,
                        color=f"C{color}",
                        marker="o",
                        markersize=3,
                        label=name.rsplit(".", 1)[1] + (", causal" if causal else ""),
                    )
            axis.axhline(1, color="black", linewidth=0.5)
            axis.set(title="training" if backward else "inference", ylabel=label, ylim=(0, None))
            axis.grid(alpha=0.3)
            axis.legend(fontsize=8)
    for axis in axes[1]:
        axis.set_xlabel("length")
    figure.savefig(path, dpi=100)
