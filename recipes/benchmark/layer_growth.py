"""How time and memory of five kinds of layers grow with the length: table 1 of Vaswani et al. 2017, measured."""

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
from recipes.benchmark.timing import calls_per_turn, time_in_turn
from recipes.common.config import setting
from recipes.common.errors import RecipeError

# By kind: operations of a layer, sequential operations and longest path between two positions, as the paper has them,
# for n positions of width d, kernels of size k and a neighbourhood of r.
COMPLEXITIES = {
    "self-attention": ("n² d", "1", "1"),
    "self-attention, blocked": ("n² d", "1", "1"),
    "restricted self-attention": ("r n d", "1", "n / r"),
    "recurrent": ("n d²", "n", "n"),
    "convolution": ("k n d²", "1", "log_k n"),
    "separable convolution": ("k n d + n d²", "1", "log_k n"),
}
# Not in the paper: Beltagy et al. 2020, section 3.1. Two positions are joined by the token that sees all.
WITH_GLOBAL = "restricted self-attention, global token"
KINDS = {**COMPLEXITIES, WITH_GLOBAL: ("r n d", "1", "2")}


@dataclasses.dataclass(frozen=True)
class GrowthConfig:
    """Sizes for table 1 of Vaswani et al. 2017."""

    lengths: list[int] = setting([512, 1024, 2048, 4096, 8192, 16384, 32768], "Numbers of positions.", least=1)
    kinds: list[str] = setting(list(COMPLEXITIES), f"Kinds of layers; {WITH_GLOBAL!r} is another one.")
    width: int = setting(256, "Number of features per position.", least=1)
    num_heads: int = setting(4, "Heads of the attentions.", least=1)
    window: int = setting(64, "Positions to each side that restricted self-attention sees.", least=1)
    kernel_size: int = setting(3, "Kernel size of the convolution, in positions.", least=1)
    fit_from: int = setting(2048, "Least length that the fit of the exponents uses.", least=1)
    longest_call: float = setting(
        20.0, "Seconds of processor time: lengths at which a call might take longer are left out."
    )
    rounds: int = setting(3, "Number of turns of each layer and length.", least=1)


def make_layer(kind: str, config: GrowthConfig) -> keras.layers.Layer:
    """Returns a layer of one of the kinds.

    Args:
        kind: A key of `KINDS`.
        config: Its sizes.

    Raises:
        RecipeError: There is no such kind.
    """
    if kind in ("convolution", "separable convolution"):
        return layers.ConvolutionMixer(config.kernel_size, separable=kind != "convolution")
    if kind == "recurrent":
        return layers.RecurrentEncoder()
    head_dim = config.width // config.num_heads
    if kind == "self-attention":
        return layers.MultiHeadAttention(config.num_heads, head_dim)
    if kind == "self-attention, blocked":
        return layers.MultiHeadAttention(config.num_heads, head_dim, path="blocked")
    if kind in ("restricted self-attention", WITH_GLOBAL):
        window, has_global = (config.window, config.window), kind == WITH_GLOBAL
        return layers.MultiHeadAttention(config.num_heads, head_dim, window=window, global_projections=has_global)
    raise RecipeError(f"kinds must be among {', '.join(map(repr, KINDS))}, got {kind!r}")


def make_step(kind: str, length: int, backward: bool, **sizes: Any) -> Callable[[], Any]:
    """Returns a pass of a new layer of a kind over one sequence.

    Args:
        kind: A key of `KINDS`.
        length: Number of positions.
        backward: Whether the gradients are computed, too.
        sizes: Fields of `GrowthConfig`.
    """
    config = GrowthConfig(**sizes)
    layer = make_layer(kind, config)
    inputs = random_inputs(1, length, config.width)
    layer.build(inputs.shape)
    if kind != WITH_GLOBAL:
        return traced_step(layer, inputs, layer.trainable_variables, backward=backward)
    is_first = np.arange(length)[None] == 0
    return traced_step(lambda x: layer(x, global_mask=is_first), inputs, layer.trainable_variables, backward=backward)


def exponent(values: dict[int, float], fit_from: int) -> float | None:
    """The slope of a straight line through the logarithms: p if values grow as length^p; None for under two values.

    Args:
        values: By length.
        fit_from: Least length to use.
    """
    used = {length: value for length, value in values.items() if length >= fit_from and value > 0}
    if len(used) < 2:
        return None
    return float(np.polyfit(np.log(list(used)), np.log(list(used.values())), 1)[0])


def measure(config: GrowthConfig, advance: Callable[[str], None]) -> list[dict[str, Any]]:
    """Times all kinds at all lengths, forward and with backward, and measures their memory.

    The time is that of all processors together: it is the work that the table of the paper counts, and other processes
    on the machine do not change it.

    Args:
        config: What to measure.
        advance: Called with the name of each case that is done.

    Returns:
        For each kind and direction a row: `kind`, `backward`, `seconds` and `bytes` by length, and the exponents of
        both.
    """
    sizes = dataclasses.asdict(config)
    rows = []
    for backward in (False, True):
        seconds: dict[str, dict[int, float]] = {kind: {} for kind in config.kinds}
        memory: dict[str, dict[int, float]] = {kind: {} for kind in config.kinds}
        for length in config.lengths:
            kinds = [kind for kind in config.kinds if not _too_slow(seconds[kind], length, config.longest_call)]
            steps = {kind: make_step(kind, length, backward, **sizes) for kind in kinds}
            for kind, step in steps.items():  # alone, because a fast layer takes many turns while a slow one takes one
                options = {"calls": calls_per_turn(step), "warm_up": 0, "clock": time.process_time}
                seconds[kind][length] = statistics.median(
                    time_in_turn({kind: step}, rounds=config.rounds, **options)[kind]
                )
            for kind in kinds:
                arguments = {"kind": kind, "length": length, "backward": backward, **sizes}
                memory[kind][length] = peak_memory("recipes.benchmark.layer_growth:make_step", **arguments)
            for kind in config.kinds:
                advance(f"{kind}, {length}{', backward' if backward else ''}")
        rows += [
            {
                "kind": kind,
                "backward": backward,
                "seconds": seconds[kind],
                "bytes": memory[kind],
                "exponent_of_seconds": exponent(seconds[kind], config.fit_from),
                "exponent_of_bytes": exponent(memory[kind], config.fit_from),
            }
            for kind in config.kinds
        ]
    return rows


def _too_slow(seconds: dict[int, float], length: int, longest_call: float) -> bool:
    """Whether a call would take too long if its time grew with the square of the length from the last one on."""
    if not seconds:
        return False
    last = max(seconds)
    return seconds[last] * (length / last) ** 2 > longest_call


def count_cases(config: GrowthConfig) -> int:
    """How many cases `measure` has at the most."""
    return 2 * len(config.kinds) * len(config.lengths)


def table(rows: Sequence[dict[str, Any]], config: GrowthConfig) -> str:
    """The measurements as a Markdown table.

    Args:
        rows: What `measure` returned.
        config: What was measured.
    """
    lines = []
    for backward in (False, True):
        title = "Forward and backward" if backward else "Forward"
        lengths = "".join(f" {length:,} |" for length in config.lengths)
        lines += [
            f"{title}: milliseconds of processor time (MiB beyond weights and inputs) by length; exponents fitted from "
            f"{config.fit_from:,} positions on.",
            "",
            f"| layer | operations | sequential | longest path |{lengths} time grows as | memory grows as |",
            "| --- | --- | --- | --- |" + " --- |" * (len(config.lengths) + 2),
        ]
        for row in rows:
            if row["backward"] == backward:
                lines.append(_table_row(row, config.lengths))
        lines.append("")
    return "\n".join(lines)


def _table_row(row: dict[str, Any], lengths: Sequence[int]) -> str:
    cells = [
        f"{1000 * row['seconds'][length]:,.1f} ({row['bytes'][length] / 2**20:,.0f})"
        if length in row["seconds"]
        else "–"
        for length in lengths
    ]
    powers = [
        "–" if row[name] is None else f"n^{row[name]:.2f}" for name in ("exponent_of_seconds", "exponent_of_bytes")
    ]
    complexity = [f"O({entry})" for entry in KINDS[row["kind"]]]
    return "| " + " | ".join([row["kind"], *complexity, *cells, *powers]) + " |"


def plot(rows: Sequence[dict[str, Any]], path: Any) -> None:
    """Draws time and memory over length, both axes logarithmic.

    Args:
        rows: What `measure` returned.
        path: PNG file to write.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 8), layout="constrained")
    axes = figure.subplots(2, 2, sharex=True)
    for row in rows:
        for axis, (name, factor) in zip(
            axes[:, int(row["backward"])], (("seconds", 1000.0), ("bytes", 2.0**-20)), strict=True
        ):
            values = {length: factor * value for length, value in row[name].items()}
            power = row[f"exponent_of_{name}"]
            label = row["kind"] if power is None else f"{row['kind']}: n^{power:.2f}"
            axis.loglog(list(values), list(values.values()), marker="o", markersize=3, label=label)
    for column, title in enumerate(("forward", "forward and backward")):
        axes[0, column].set(title=title, ylabel="milliseconds of processor time")
        axes[1, column].set(xlabel="length", ylabel="MiB beyond weights and inputs")
    for axis in axes.flat:
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)
    figure.savefig(path, dpi=100)
