"""Draws the pictures of docs/concepts with the layers: `python docs/concepts/make_pictures.py [NAME ...]`."""

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import FancyBboxPatch

from layers import (
    AttentionMask,
    DistanceKernelAttention,
    MultiHeadAttention,
    RecurrentLayer,
    RotaryEmbedding,
    ScheduledSampling,
)
from layers.attention import attend

IMAGES = Path(__file__).parent / "images"
BLUE, ORANGE, GREY = "#3b6fb5", "#d9822b", "#9aa0a6"


def box(axis, x: float, y: float, text: str, color: str, width: float = 0.8) -> None:
    """A rounded box with its centre at (x, y)."""
    corner = (x - width / 2, y - 0.3)
    axis.add_patch(FancyBboxPatch(corner, width, 0.6, boxstyle="round,pad=0,rounding_size=0.1", fc=color, ec="none"))
    axis.text(x, y, text, ha="center", va="center", color="white", fontsize=9)


def arrow(axis, start: tuple[float, float], end: tuple[float, float], **style) -> None:
    axis.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": GREY, "lw": 1.2, **style})


def matrix(axis, values, title: str, rows=(), columns=(), shades: str = "Blues", top: float | None = None) -> None:
    """A matrix as a picture, with its numbers."""
    values = np.asarray(values)
    top = values.max() if top is None else top
    axis.imshow(values, cmap=shades, vmin=0, vmax=1.25 * top)
    for (row, column), value in np.ndenumerate(values):
        dark = value > 0.75 * top
        axis.text(
            column,
            row,
            f"{value:.4f}".rstrip("0").rstrip("."),
            ha="center",
            va="center",
            color="white" if dark else "black",
            fontsize=9,
        )
    axis.set_xticks(range(values.shape[1]), columns or [""] * values.shape[1])
    axis.set_yticks(range(values.shape[0]), rows or [""] * values.shape[0])
    axis.tick_params(length=0)
    axis.set_title(title, fontsize=10)


def task_shapes():
    """Boxes for what goes in, below, and what comes out, above."""
    figure, axes = plt.subplots(1, 4, figsize=(10, 2.6), layout="constrained")
    for axis, title, places_in, places_out in (
        (axes[0], "N to 1: classify", range(3), [1]),
        (axes[1], "1 to N: generate", [0], range(3)),
        (axes[2], "N to N: tag", range(3), range(3)),
        (axes[3], "N to M: translate", range(3), [0.5, 1.5]),
    ):
        last = max(places_in)
        for place in places_in:
            box(axis, place, 0, "token", BLUE)
        for place in places_out:
            box(axis, place, 2, "label" if title[-1] in "yg" else "token", ORANGE)
        if title.startswith("N to 1"):
            for place in places_in:
                arrow(axis, (place, 0.35), (1, 1.65))
        elif title.startswith("N to N"):
            for place in places_in:
                arrow(axis, (place, 0.35), (place, 1.65))
        else:
            first = min(places_out)
            for place in places_in:
                arrow(axis, (place, 0.35), (first, 1.65))
            for place in list(places_out)[1:]:
                arrow(axis, (place - 0.55, 2), (place - 0.42, 2))
        axis.set(xlim=(-0.6, max(last, *places_out, 2) + 0.6), ylim=(-0.5, 2.5), title=title)
        axis.axis("off")
    return figure


def forgetting():
    """The state of a simple recurrent layer after one input of 1 and zeros."""
    steps = 12
    inputs = np.zeros((1, steps, 1), "float32")
    inputs[0, 0] = 1
    figure, axis = plt.subplots(figsize=(6, 3.2), layout="constrained")
    for weight, style in ((0.5, "o-"), (1.0, "s-"), (1.2, "^-")):
        layer = RecurrentLayer(1, "simple")
        layer.build(inputs.shape)
        layer.set_weights([np.array([[1.0]]), np.array([[weight]]), np.array([0.0])])
        axis.plot(np.arange(1, steps + 1), np.array(layer(inputs)[0])[0, :, 0], style, label=f"U = {weight:g}", ms=4)
    axis.set(xlabel="step", ylabel="state", ylim=(0, 0.85), title="what is left of the first input")
    axis.legend()
    return figure


def waist_and_size():
    """Kernel regression between three known pairs, for three bandwidths."""
    waists, sizes = np.array([56.0, 58.0, 60.0]), np.array([36.0, 37.0, 38.0])
    asked = np.linspace(54, 62, 161)
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    for bandwidth, style in ((0.1, ":"), (1.0, "-"), (10.0, "--")):
        layer = DistanceKernelAttention(bandwidth)
        size, weights = layer(asked.reshape(1, -1, 1), waists.reshape(1, -1, 1), sizes.reshape(1, -1, 1))
        axes[0].plot(asked, np.array(size)[0, :, 0], style, color=BLUE, label=f"bandwidth {bandwidth:g}")
        if bandwidth == 1.0:
            for waist, weight in zip(waists, np.array(weights)[0].T, strict=True):
                axes[1].plot(asked, weight, label=f"weight of {waist:g} cm")
    axes[0].plot(waists, sizes, "o", color="black", label="known")
    axes[0].plot([59], [37.4997], "*", color=ORANGE, ms=13, label="59 cm: 37.4997")
    axes[1].axvline(59, color=ORANGE, lw=1)
    axes[0].set(xlabel="waist in cm", ylabel="size")
    axes[1].set(xlabel="waist in cm", ylabel="weight, bandwidth 1")
    for axis in axes:
        axis.legend(fontsize=8)
    return figure


def three_tokens():
    """Scores, weights and result of the example with three tokens."""
    query = np.array([[1.0, 0, 1, 0], [0, 1, 0, 2], [1, 1, 1, 2]])
    key = np.array([[1.0, 1, 0, 0], [0, 0, 1, 1], [1, 1, 1, 1]])
    value = np.array([[1.0, 0], [0, 2], [1, 2]])
    heads = [x[None, None].astype("float32") for x in (query, key, value)]
    result, weights = (np.array(x)[0, 0] for x in attend(*heads, scale=0.5, return_weights=True))
    figure, axes = plt.subplots(1, 4, figsize=(10, 2.9), layout="constrained", width_ratios=[3, 3, 2, 2])
    keys, queries = [f"key {i}" for i in (1, 2, 3)], [f"query {i}" for i in (1, 2, 3)]
    matrix(axes[0], query @ key.T / 2, "scores, divided by 2", queries, keys)
    matrix(axes[1], weights.round(4), "weights", queries, keys, "Oranges")
    matrix(axes[2], value, "values", [f"value {i}" for i in (1, 2, 3)])
    matrix(axes[3], result.round(4), "weights x values", [f"result {i}" for i in (1, 2, 3)], shades="Greens")
    return figure


def two_heads():
    """Weights of a head that compares colours and of one that compares shapes."""
    x = np.array([[[2.0, 0, 0, 2], [0, 2, 2, 0], [2, 0, 2, 0]]], "float32")
    attention = MultiHeadAttention(num_heads=2, head_dim=2, use_bias=False)
    attention.build(x.shape)
    for projection in (attention.query_projection, attention.key_projection, attention.value_projection):
        projection.kernel.assign(np.eye(4))
    _, weights = attention(x, return_weights=True)
    things = ["red\nround", "blue\nsquare", "red\nsquare"]
    figure, axes = plt.subplots(1, 2, figsize=(7, 3.2), layout="constrained")
    for axis, title, of_head in zip(axes, ("head 1: colour", "head 2: shape"), np.array(weights)[0], strict=True):
        matrix(axis, of_head.round(4), title, things, things, "Oranges", top=1)
    return figure


def rotated_pair():
    """A query and a key before and behind the rotation, at two pairs of positions of the same distance."""
    rotary = RotaryEmbedding(2)
    query, key = np.array([1.0, 2.0]), np.array([3.0, 1.0])
    figure, axes = plt.subplots(1, 3, figsize=(10, 4.4), sharex=True, sharey=True)
    for axis, places in zip(axes, (None, (2, 1), (12, 11)), strict=True):
        turned = [query, key]
        title = "not turned"
        if places is not None:
            pairs = zip((query, key), places, strict=True)
            turned = [np.ravel(rotary(x.reshape(1, 1, 1, 2), np.array([place]))) for x, place in pairs]
            title = f"query at {places[0]}, key at {places[1]}"
        for vector, color, name in zip(turned, (BLUE, ORANGE), ("query", "key"), strict=True):
            axis.annotate("", vector, (0, 0), arrowprops={"arrowstyle": "-|>", "color": color, "lw": 2})
            axis.text(*(vector * 1.12), name, color=color, ha="center", va="center")
        axis.set(
            xlim=(-3.8, 3.8), ylim=(-3.8, 3.8), aspect="equal", title=f"{title}\nproduct {turned[0] @ turned[1]:.4f}"
        )
        axis.grid(alpha=0.3)
    figure.subplots_adjust(left=0.04, right=0.99, wspace=0.08)
    return figure


def window_reach():
    """Positions that the result at a place depends on, through layers with a window of one to each side."""
    length = 13
    band = np.array(AttentionMask(window=(1, 1)).materialize(length, length))[0, 0].astype(int)
    figure, axes = plt.subplots(1, 4, figsize=(10, 2.8), layout="constrained")
    reach = np.eye(length, dtype=int)
    for depth, axis in enumerate(axes, start=1):
        reach = (band @ reach > 0).astype(int)
        axis.imshow(reach, cmap="Blues", vmin=0, vmax=1.4)
        axis.set_title(f"{depth} layer{'s' if depth > 1 else ''}", fontsize=10)
        axis.set(xticks=[], yticks=[], xlabel="input")
    axes[0].set_ylabel("output")
    return figure


def schedules():
    """The probability of the true token, for the schedules of the page."""
    batches = np.arange(0, 2501, 50)
    figure, axis = plt.subplots(figsize=(6.5, 3.2), layout="constrained")
    for name, options, style in (
        ("linear", {"constant": 1.0, "slope": 0.0005, "minimum": 0.25}, "-"),
        ("exponential", {"constant": 0.999}, "--"),
        ("inverse_sigmoid", {"constant": 200.0}, "-."),
    ):
        sampling = ScheduledSampling(name, **options)
        sampling.build((None, None))
        values = []
        for count in batches:
            sampling.batches.assign(count)
            values.append(float(sampling.probability()))
        axis.plot(batches, values, style, label=name.replace("_", " "))
    axis.set(xlabel="training batches", ylabel="probability of the true token", ylim=(0, 1.05))
    axis.legend()
    return figure


def beam_search():
    """The tree of the search with two beams; what is dropped is grey."""
    nodes = {
        "start": (0, 2.5, "start", BLUE),
        "A": (2, 3.6, "A  0.60", BLUE),
        "B": (2, 1.0, "B  0.40", BLUE),
        "A A": (4.2, 4.9, "A A  0.15", BLUE),
        "A B": (4.2, 4.0, "A B  0.21", BLUE),
        "A end": (4.2, 3.1, "A end  0.24", ORANGE),
        "B A": (4.2, 1.9, "B A  0.02", GREY),
        "B B": (4.2, 1.0, "B B  0.02", GREY),
        "B end": (4.2, 0.1, "B end  0.36", ORANGE),
        "A B end": (6.8, 4.0, "A B end  0.1995", ORANGE),
    }
    figure, axis = plt.subplots(figsize=(9, 4), layout="constrained")
    widths = {1: 0.9, 2: 1.3, 3: 1.8}
    for name, (x, y, text, color) in nodes.items():
        width = widths[len(name.split())]
        box(axis, x, y, text, color, width)
        if name != "start":
            parent = " ".join(name.split()[:-1]) or "start"
            start, from_y = nodes[parent][:2]
            arrow(axis, (start + widths[len(parent.split())] / 2, from_y), (x - width / 2, y))
    for x, title in ((2, "step 1"), (4.2, "step 2"), (6.8, "step 3")):
        axis.text(x, 5.6, title, ha="center", fontsize=10)
    axis.text(6.8, 1.0, "orange: finished\nblue: pursued\ngrey: dropped", ha="center", va="center", fontsize=9)
    axis.set(xlim=(-0.7, 8), ylim=(-0.4, 5.9))
    axis.axis("off")
    return figure


def architectures():
    """Masks of six tokens, four of them the source, in the three architectures."""
    length, source = 6, 4
    causal = np.array(AttentionMask(causal=True).materialize(length, length))[0, 0]
    both = causal.copy()
    both[:source] = np.arange(length) < source
    figure, axes = plt.subplots(1, 3, figsize=(9, 3.3), layout="constrained")
    names = [f"s{i}" for i in range(1, source + 1)] + [f"t{i}" for i in range(1, length - source + 1)]
    for axis, title, mask in zip(
        axes,
        ("encoder-only", "decoder-only", "encoder-decoder"),
        (np.ones((length, length), bool), causal, both),
        strict=True,
    ):
        axis.imshow(mask, cmap="Blues", vmin=0, vmax=1.4)
        axis.set_xticks(range(length), names)
        axis.set_yticks(range(length), names)
        axis.set(title=title, xlabel="is seen")
        for place in np.arange(length - 1) + 0.5:
            axis.axhline(place, color="white", lw=1)
            axis.axvline(place, color="white", lw=1)
    axes[0].set_ylabel("sees")
    return figure


PICTURES = {
    function.__name__: function
    for function in (
        task_shapes,
        forgetting,
        waist_and_size,
        three_tokens,
        two_heads,
        rotated_pair,
        window_reach,
        schedules,
        beam_search,
        architectures,
    )
}

if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    for name in sys.argv[1:] or PICTURES:
        figure = PICTURES[name]()
        figure.savefig(IMAGES / f"{name}.png", dpi=90)
        plt.close(figure)
