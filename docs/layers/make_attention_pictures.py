"""Draws the pictures of attention.md with the layers themselves: `python docs/layers/make_attention_pictures.py`.

The weights in `attention_weights.png` are those of a model that this script trains, in less than a minute, to spell
backwards. It prints how many held-out strings come out right.
"""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import keras
import matplotlib.pyplot as plt
import numpy as np
from keras import ops

from layers import (
    AttentionMask,
    FeedForward,
    LearnedPositionEmbedding,
    MultiHeadAttention,
    TokenEmbedding,
    TransformerBlock,
)
from layers.attention import RollingCache
from layers.attention.kernels.banded import chunk_layout
from layers.attention.kernels.blocks import BlockGrid, BlockMask
from layers.attention.kernels.plain import run_ends

IMAGES = Path(__file__).parent / "images"

LETTERS = "abcdefghijklmnopqrstuvwxyz"
PAD, START, END = 0, 1, 2
LONGEST = 10


def save(figure, name: str) -> None:
    figure.savefig(IMAGES / f"{name}.png", dpi=100)
    plt.close(figure)


def masks() -> None:
    """What 12 queries see of 12 keys under each condition."""
    n = 12
    index = np.arange(n)
    segments = np.repeat([[1, 2, 3]], [5, 4, 3], axis=1)
    kinds = {
        "padding": AttentionMask(key_padding_mask=index[None] < 9),
        "causal": AttentionMask(causal=True),
        "window (2, 2)": AttentionMask(window=(2, 2)),
        "causal, window (3, 0)": AttentionMask(causal=True, window=(3, 0)),
        "blocks of 4": AttentionMask(block_size=4),
        "causal, prefix of 5": AttentionMask(causal=True, prefix_length=[5]),
        "causal, 3 segments": AttentionMask(causal=True, query_segment_ids=segments, key_segment_ids=segments),
        "arbitrary: causal, every third": AttentionMask(causal=True, allowed=(index[:, None] - index) % 3 == 0),
    }
    figure, axes = plt.subplots(2, 4, figsize=(11, 6.3), layout="constrained", sharex=True, sharey=True)
    for axis, (title, mask) in zip(axes.flat, kinds.items(), strict=True):
        visible = np.broadcast_to(ops.convert_to_numpy(mask.materialize(n, n)), (1, 1, n, n))[0, 0]
        axis.imshow(visible, cmap="Blues", vmin=0, vmax=1.3)
        axis.set_title(title, fontsize=10)
        axis.set_xticks(np.arange(n + 1) - 0.5, minor=True)
        axis.set_yticks(np.arange(n + 1) - 0.5, minor=True)
        axis.grid(which="minor", color="white", linewidth=0.8)
        axis.tick_params(which="minor", length=0)
    for axis in axes[-1]:
        axis.set_xlabel("key")
    for axis in axes[:, 0]:
        axis.set_ylabel("query")
    save(figure, "attention_masks")


def paths() -> None:
    """Scores that each path computes (pale) and those that the mask lets through (dark), 512 queries and keys."""
    n, block = 512, 64
    causal, window = AttentionMask(causal=True), AttentionMask(causal=True, window=(63, 0))
    runs = np.zeros((n, n))
    shape = keras.KerasTensor((1, 1, n, 1))
    for end in reversed(run_ends(shape, shape, causal)):
        runs[:end] = np.arange(n) < end
    computed = {"plain, causal: runs of 128 queries": (runs, causal)}
    blocks = np.zeros((n, n))
    grid = BlockGrid(1, 1, 1, n, n, query_block=block, key_block=block)
    for i in range(grid.query_blocks):
        first, last = (int(bound) for bound in BlockMask(causal, grid).key_range(i))
        blocks[i * block : (i + 1) * block, first * block : last * block] = 1
    computed[f"blocked, causal: blocks of {block}"] = (blocks, causal)
    frames = np.zeros((n, n))
    chunk, before, after = chunk_layout(window, n, n)
    for start in range(0, n, chunk):
        frames[start : start + chunk, max(start - before, 0) : start + chunk + after] = 1
    computed[f"banded, window (63, 0): chunks of {chunk}"] = (frames, window)
    figure, axes = plt.subplots(1, 3, figsize=(11, 4.6), layout="constrained", sharey=True)
    for axis, (title, (pale, mask)) in zip(axes, computed.items(), strict=True):
        visible = ops.convert_to_numpy(mask.materialize(n, n))[0, 0]
        axis.imshow(0.3 * pale + 0.7 * visible, cmap="Blues", vmin=0, vmax=1.3, interpolation="nearest")
        axis.set_title(f"{title}\n{pale.mean():.0%} of the scores", fontsize=10)
        axis.set_xlabel("key")
    axes[0].set_ylabel("query")
    save(figure, "attention_paths")


def rolling_cache() -> None:
    """The position that each of four slots holds after each of ten steps."""
    capacity, steps = 4, 10
    layout = RollingCache(capacity)
    cache = layout.make(1, steps, num_heads=1, head_dim=1, value_head_dim=1, dtype="float32")
    held = np.stack([ops.convert_to_numpy(layout.entries(cache, step)) for step in range(1, steps + 1)], axis=1)
    newest = held == np.arange(steps)
    figure, axis = plt.subplots(figsize=(7, 3), layout="constrained")
    axis.imshow(np.where(held < 0, 0, 0.35 + 0.5 * newest), cmap="Blues", vmin=0, vmax=1.3, aspect="auto")
    for (slot, step), position in np.ndenumerate(held):
        if position >= 0:
            axis.text(step, slot, position, ha="center", va="center")
    axis.set(xlabel="positions written", ylabel="slot", yticks=range(capacity))
    axis.set_xticks(range(steps), range(1, steps + 1))
    save(figure, "attention_rolling_cache")


class Speller(keras.Model):
    """One encoder and one decoder block over letters."""

    def __init__(self, width: int = 64, num_heads: int = 2):
        super().__init__()

        def attention(**options):
            return MultiHeadAttention(num_heads, width // num_heads, **options)

        self.embedding = TokenEmbedding(len(LETTERS) + 3, width, scale=True)
        self.positions = LearnedPositionEmbedding(LONGEST + 1, width)
        self.encoder = TransformerBlock(attention(), FeedForward(2 * width))
        self.decoder = TransformerBlock(attention(causal=True), FeedForward(2 * width), attention())

    def call(self, inputs, return_weights=False):
        source, target = inputs["source"], inputs["target"]
        real = ops.not_equal(source, PAD)
        memory, encoder_weights = self.encoder(self._embed(source), padding_mask=real, return_weights=True)
        hidden, decoder_weights = self.decoder(
            self._embed(target), memory, memory_padding_mask=real, return_weights=True
        )
        logits = self.embedding.project(hidden)
        return (logits, encoder_weights, decoder_weights) if return_weights else logits

    def _embed(self, token_ids):
        return self.embedding(token_ids) + self.positions(ops.arange(token_ids.shape[1]))


def spelled(words) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Inputs and labels: the word and an end, a start and the reversed word, the reversed word and an end."""
    source, target, labels = (np.full((len(words), LONGEST + 1), PAD, "int32") for _ in range(3))
    for row, word in enumerate(words):
        ids = [LETTERS.index(letter) + 3 for letter in word]
        source[row, : len(ids) + 1] = [*ids, END]
        target[row, : len(ids) + 1] = [START, *ids[::-1]]
        labels[row, : len(ids) + 1] = [*ids[::-1], END]
    return {"source": source, "target": target}, labels


def random_words(count: int, generator: np.random.Generator) -> list[str]:
    lengths = generator.integers(3, LONGEST + 1, count)
    return ["".join(generator.choice(list(LETTERS), length)) for length in lengths]


def weights() -> None:
    """Self-attention of an encoder, causal self-attention and cross-attention of a decoder that spells backwards."""
    generator = np.random.default_rng(0)
    inputs, labels = spelled(random_words(25_600, generator))
    model = Speller()
    schedule = keras.optimizers.schedules.CosineDecay(0.0, 800, warmup_target=3e-3, warmup_steps=200)
    model.compile(
        keras.optimizers.Adam(schedule), keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=PAD)
    )
    model.fit(inputs, labels, batch_size=128, epochs=5, verbose=2)
    held_out, held_out_labels = spelled(random_words(1000, generator))
    predicted = model.predict(held_out, verbose=0).argmax(-1)
    right = np.all((predicted == held_out_labels) | (held_out_labels == PAD), axis=1).mean()
    print(f"{right:.1%} of 1,000 held-out random strings without an error (each letter given the right ones before it)")

    word = "attention"
    end = len(word) + 1
    inputs, labels = spelled([word])
    logits, encoder_weights, decoder_weights = model(inputs, return_weights=True)
    written = ops.convert_to_numpy(ops.argmax(logits, -1))[0, : end - 1]
    print(word, "->", "".join(LETTERS[i - 3] if i >= 3 else "?" for i in written))
    read, given = [*word, "end"], ["start", *word[::-1]]
    figure, axes = plt.subplots(2, 3, figsize=(11, 6.9), layout="constrained")
    for column, (title, heads, rows, columns) in zip(
        axes.T,
        (
            ("encoder self-attention", encoder_weights["attention"], read, read),
            ("causal self-attention", decoder_weights["attention"], given, given),
            ("cross-attention", decoder_weights["cross_attention"], given, read),
        ),
        strict=True,
    ):
        for head, axis in enumerate(column):
            panel = ops.convert_to_numpy(heads)[0, head, :end, :end]
            image = axis.imshow(panel, cmap="viridis", vmin=0, vmax=1)
            axis.set_title(f"{title}, head {head}", fontsize=10)
            axis.set_xticks(range(end), columns, fontsize=8)
            axis.set_yticks(range(end), rows, fontsize=8)
        column[-1].set_xlabel("key")
        column[0].set_ylabel("query")
        column[1].set_ylabel("query")
    figure.colorbar(image, ax=axes, label="weight", shrink=0.5)
    save(figure, "attention_weights")


if __name__ == "__main__":
    keras.utils.set_random_seed(0)
    IMAGES.mkdir(exist_ok=True)
    masks()
    paths()
    rolling_cache()
    weights()
