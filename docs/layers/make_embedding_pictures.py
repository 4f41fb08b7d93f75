"""Draws the picture of embeddings.md with the layers themselves: `python docs/layers/make_embedding_pictures.py`."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import keras
import matplotlib.pyplot as plt
import numpy as np

from layers import SinusoidalPositionEncoding, TokenEmbedding

IMAGES = Path(__file__).parent / "images"
WIDTH, LENGTH = 64, 40


def scaling() -> None:
    """Vectors of random tokens plus their positions, with and without the factor sqrt(d)."""
    token_ids = np.random.default_rng(0).integers(0, 1000, LENGTH)
    positions = SinusoidalPositionEncoding(WIDTH)(np.arange(LENGTH))
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained", sharey=True)
    panels = {"positions": positions}
    for scale in (False, True):
        keras.utils.set_random_seed(0)
        tokens = TokenEmbedding(1000, WIDTH, scale=scale)(token_ids)
        size = float(np.std(tokens))
        panels[f"tokens + positions, scale={scale} (deviation {size:.2f})"] = tokens + positions
    for axis, (title, values) in zip(axes, panels.items(), strict=True):
        image = axis.imshow(keras.ops.convert_to_numpy(values), cmap="RdBu_r", vmin=-3, vmax=3, interpolation="nearest")
        axis.set_title(title, fontsize=9)
        axis.set_xlabel("feature")
    axes[0].set_ylabel("position")
    figure.colorbar(image, ax=axes, extend="both")
    figure.savefig(IMAGES / "embedding_scaling.png", dpi=100)


if __name__ == "__main__":
    scaling()
