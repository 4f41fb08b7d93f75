"""Draws the pictures of positions.md with the layers themselves: `python docs/layers/make_position_pictures.py`."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import keras
import matplotlib.pyplot as plt
import numpy as np

from layers.positions import (
    ROTARY_SCALINGS,
    ALiBi,
    RotaryEmbedding,
    SinusoidalPositionEncoding,
    alibi_slopes,
    relative_position_buckets,
)

IMAGES = Path(__file__).parent / "images"


def save(figure, name: str) -> None:
    figure.savefig(IMAGES / f"{name}.png", dpi=100)
    plt.close(figure)


def sinusoidal_heatmap() -> None:
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained", sharey=True)
    for axis, layout in zip(axes, ("interleaved", "concatenated"), strict=True):
        encoding = keras.ops.convert_to_numpy(SinusoidalPositionEncoding(64, layout=layout)(np.arange(100)))
        image = axis.imshow(encoding, cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto", interpolation="nearest")
        axis.set(title=f'layout="{layout}"', xlabel="feature")
    axes[0].set_ylabel("position")
    figure.colorbar(image, ax=axes)
    save(figure, "position_sinusoidal")


def rotary_product_over_distance() -> None:
    """Query and key are the same vector of ones, divided so that their product at distance zero is one."""
    distances = np.arange(0, 513)
    x = np.full((1, len(distances), 1, 128), 128**-0.5, "float32")
    figure, axis = plt.subplots(figsize=(8, 4), layout="constrained")
    for base, style in ((100.0, ":"), (10_000.0, "-"), (500_000.0, "--")):
        key = RotaryEmbedding(128, base=base)(x, distances)
        product = keras.ops.convert_to_numpy(keras.ops.sum(x * key, axis=-1))[0, :, 0]
        axis.plot(distances, product, style, label=f"base {base:,.0f}")
    axis.axhline(0, color="black", linewidth=0.5)
    axis.set(xlabel="distance between query and key", ylabel="product of the rotated vectors", ylim=(-0.3, 1.05))
    axis.legend()
    save(figure, "position_rotary_distance")


def rotary_scalings() -> None:
    """Wavelength of each pair, trained on 2,048 positions and stretched to four times as many."""
    trained = {"original_max_position_embeddings": 2048}
    methods = {
        "linear": {"factor": 4.0},
        "dynamic_ntk": {"factor": 4.0, **trained},
        "yarn": {"factor": 4.0, **trained},
        "llama3": {"factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, **trained},
    }
    plain = ROTARY_SCALINGS["linear"](10_000.0, 128, {"factor": 1.0})[0]
    figure, axis = plt.subplots(figsize=(8, 4), layout="constrained")
    for (kind, scaling), style in zip(methods.items(), ("-", "--", "-", ":"), strict=True):
        frequencies, _ = ROTARY_SCALINGS[kind](10_000.0, 128, scaling, 4 * 2048)
        axis.plot(plain / frequencies, style, label=kind)
    whole_turn = np.argmax(2 * np.pi / plain > 2048)
    axis.axvline(whole_turn, color="black", linewidth=0.5)
    axis.annotate("slower pairs do not finish\none turn in training", (whole_turn + 1, 1.5), fontsize=9)
    axis.set(xlabel="pair of features, fast to slow", ylabel="frequency is divided by")
    axis.legend(loc="upper left")
    save(figure, "position_rotary_scalings")


def biases() -> None:
    positions = np.arange(64)
    distances = positions[None] - positions[:, None]
    slopes = alibi_slopes(8)
    bias = keras.ops.convert_to_numpy(ALiBi(8)(positions, positions))[0]
    figure, axes = plt.subplots(1, 4, figsize=(14, 3.6), layout="constrained")
    for axis, head in zip(axes, (0, 3), strict=False):
        image = axis.imshow(bias[head], cmap="viridis", vmin=-16)
        axis.set(title=f"ALiBi, head {head + 1}: slope {slopes[head]:.4g}", xlabel="key", ylabel="query")
    figure.colorbar(image, ax=axes[1], label="added to the score", extend="min")
    for axis, bidirectional in zip(axes[2:], (True, False), strict=True):
        buckets = relative_position_buckets(distances, bidirectional=bidirectional)
        image = axis.imshow(buckets, cmap="turbo", vmin=0, vmax=31, interpolation="nearest")
        name = "bidirectional" if bidirectional else "causal"
        axis.set(title=f"T5, {name}", xlabel="key", ylabel="query")
    figure.colorbar(image, ax=axes[3], label="bucket")
    save(figure, "position_biases")


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    sinusoidal_heatmap()
    rotary_product_over_distance()
    rotary_scalings()
    biases()
