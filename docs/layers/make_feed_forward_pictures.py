"""Draws the pictures of norms.md, feed_forward.md and attention_scores.md with the layers themselves.

`python docs/layers/make_feed_forward_pictures.py`
"""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import keras
import matplotlib.pyplot as plt
import numpy as np
from keras import ops

from layers.activations import ACTIVATIONS
from layers.attention.scores import DistanceKernelAttention, DotAttention
from layers.norm_makers import make_norm

IMAGES = Path(__file__).parent / "images"
KINDS = {"layer": "layer, RMS, scale", "batch": "masked batch", "dynamic_tanh": "dynamic tanh"}


def save(figure, name: str) -> None:
    figure.savefig(IMAGES / f"{name}.png", dpi=100)
    plt.close(figure)


def norm_axes() -> None:
    """What one output depends on, found by changing one input after the other."""
    batch, length, dim = 3, 5, 6
    mask = np.arange(length) < np.array([5, 3, 4])[:, None]
    x = np.random.default_rng(0).normal(size=(batch, length, dim)).astype("float32")
    entry = (1, 1, 2)
    figure, axes = plt.subplots(len(KINDS), batch, figsize=(9, 6), layout="constrained", sharex=True, sharey=True)
    for row, (kind, title) in zip(axes, KINDS.items(), strict=True):
        norm = make_norm(kind)

        def output(x, norm=norm, kind=kind):
            options = {"mask": mask, "training": True} if kind == "batch" else {}
            return ops.convert_to_numpy(norm(x, **options))[entry]

        before = output(x)
        depends = np.zeros(x.shape)
        for index in np.ndindex(*x.shape):
            changed = x.copy()
            changed[index] += 0.5
            depends[index] = abs(output(changed) - before) > 1e-6
        for sequence, axis in enumerate(row):
            shades = depends[sequence] + 0.25 * ~mask[sequence][:, None]
            axis.imshow(shades, cmap="Blues", vmin=0, vmax=1.3, aspect="auto")
            axis.set_title(f"{title}: sequence {sequence}", fontsize=9)
            if sequence == entry[0]:
                axis.plot(entry[2], entry[1], "o", color="tab:red")
        row[0].set_ylabel("position")
    for axis in axes[-1]:
        axis.set_xlabel("feature")
    save(figure, "norm_axes")


def activation_curves() -> None:
    x = np.linspace(-4, 4, 401).astype("float32")
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    styles = ["-", "-", "--", "--", "-", "-", ":", ":", ":"]
    for (name, function), style in zip(ACTIVATIONS.items(), styles, strict=True):
        values = ops.convert_to_numpy(function(x))
        axes[0].plot(x, values, style, label=name)
        axes[1].plot(x, np.gradient(values, x), style, label=name)
    axes[0].set(xlabel="x", title="activation", ylim=(-1.2, 4))
    axes[1].set(xlabel="x", title="derivative", ylim=(-0.3, 2.5))
    axes[0].legend()
    save(figure, "activation_curves")


def score_distance() -> None:
    """Sizes by waist: the known pairs, the regression between them, and the weights that make it."""
    waists, sizes = np.array([56.0, 58.0, 60.0, 65.0]), np.array([36.0, 37.0, 38.0, 41.0])
    asked = np.linspace(54, 67, 261)
    keys, values = waists.reshape(1, -1, 1), sizes.reshape(1, -1, 1)
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for bandwidth, style in ((0.5, ":"), (2.0, "-"), (20.0, "--")):
        layer = DistanceKernelAttention(bandwidth)
        context, weights = map(ops.convert_to_numpy, layer(asked.reshape(1, -1, 1), keys, values))
        axes[0].plot(asked, context[0, :, 0], style, label=f"bandwidth {bandwidth:g}")
        if bandwidth == 2.0:
            for waist, weight in zip(waists, weights[0].T, strict=True):
                axes[1].plot(asked, weight, label=f"weight of {waist:g}")
    axes[0].plot(waists, sizes, "o", color="black", label="known")
    axes[0].set(xlabel="waist", ylabel="size")
    axes[1].set(xlabel="waist", ylabel="weight, bandwidth 2")
    for axis in axes:
        axis.legend()
    save(figure, "score_distance")


def score_scaling() -> None:
    """Sorted weights of 64 random keys: without the square root, wide vectors attend to a single key."""
    generator = np.random.default_rng(0)
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained", sharey=True)
    for axis, scaled in zip(axes, (False, True), strict=True):
        for dim, style in ((4, ":"), (64, "-"), (1024, "--")):
            query, keys = generator.normal(size=(200, dim)), generator.normal(size=(200, 64, dim))
            _, weights = DotAttention(scaled=scaled)(query.astype("float32"), keys.astype("float32"))
            axis.plot(np.sort(ops.convert_to_numpy(weights))[:, ::-1].mean(0)[:20], style, label=f"width {dim}")
        axis.set(title="scaled dot product" if scaled else "dot product", xlabel="rank of the key")
        axis.legend()
    axes[0].set_ylabel("weight, mean of 200 queries")
    save(figure, "score_scaling")


if __name__ == "__main__":
    keras.utils.set_random_seed(0)
    IMAGES.mkdir(exist_ok=True)
    norm_axes()
    activation_curves()
    score_distance()
    score_scaling()
