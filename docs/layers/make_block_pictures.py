"""Draws the picture of block.md with the layers themselves: `python docs/layers/make_block_pictures.py`.

Needs the TensorFlow backend, for its gradients.
"""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import keras
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
from keras import ops

from layers import FeedForward, LayerNorm, MultiHeadAttention, TransformerBlock

IMAGES = Path(__file__).parent / "images"
WIDTH, DEPTH, CLASSES = 64, 24, 64


def make_stack(placement: str, residual_scale: float, kernel_factor: float) -> list[TransformerBlock]:
    """Blocks with fresh weights; `kernel_factor` is beta of DeepNorm."""
    blocks = []
    for _ in range(DEPTH):
        attention, feed_forward = MultiHeadAttention(4, WIDTH // 4), FeedForward(4 * WIDTH)
        block = TransformerBlock(attention, feed_forward, placement=placement, residual_scale=residual_scale)
        block.build((None, None, WIDTH))
        for dense in (attention.value_projection, attention.output_projection, feed_forward.up, feed_forward.down):
            dense.kernel.assign(kernel_factor * dense.kernel)
        blocks.append(block)
    return blocks


def measure(placement: str, residual_scale: float = 1.0, kernel_factor: float = 1.0) -> tuple[list, list]:
    """Root mean square after each block, and the norm of each block's gradient by the last feed-forward kernel."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(16, 32, WIDTH)).astype("float32")
    labels = generator.integers(0, CLASSES, (16, 32))
    classifier = (generator.normal(size=(WIDTH, CLASSES)) * WIDTH**-0.5).astype("float32")
    blocks, final_norm = make_stack(placement, residual_scale, kernel_factor), LayerNorm()
    sizes = []
    with tf.GradientTape() as tape:
        for block in blocks:
            x = block(x)
            sizes.append(float(ops.sqrt(ops.mean(ops.square(x)))))
        hidden = x if placement == "post" else final_norm(x)
        losses = keras.losses.sparse_categorical_crossentropy(labels, ops.matmul(hidden, classifier), from_logits=True)
        loss = ops.mean(losses)
    gradients = tape.gradient(loss, [block.feed_forward.down.kernel.value for block in blocks])
    return sizes, [float(ops.norm(gradient)) for gradient in gradients]


def placements() -> None:
    alpha, beta = (2 * DEPTH) ** 0.25, (8 * DEPTH) ** -0.25
    figure, axes = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    for label, style, options in (
        ("post", "-", {"placement": "post"}),
        ("post, DeepNorm", "--", {"placement": "post", "residual_scale": alpha, "kernel_factor": beta}),
        ("pre", "-", {"placement": "pre"}),
        ("sandwich", ":", {"placement": "sandwich"}),
        ("res_post", (0, (5, 1, 1, 1)), {"placement": "res_post"}),
        ("parallel", "-.", {"placement": "parallel"}),
    ):
        for axis, values in zip(axes, measure(**options), strict=True):
            axis.plot(range(1, DEPTH + 1), values, linestyle=style, label=label)
    axes[0].set(xlabel="block", ylabel="root mean square after the block", ylim=(0, None))
    axes[1].set(xlabel="block", ylabel="norm of the gradient", yscale="log")
    axes[0].legend()
    figure.savefig(IMAGES / "block_placements.png", dpi=100)
    plt.close(figure)


if __name__ == "__main__":
    keras.utils.set_random_seed(0)
    IMAGES.mkdir(exist_ok=True)
    placements()
