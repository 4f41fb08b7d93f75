"""Draws images/position_length.png: `python docs/layers/make_position_length_pictures.py`.

Small language models on texts four times as long as those that they were trained on. Each model reads the source of
Python's standard library letter by letter, in pieces of 64 letters, and then has to predict pieces of 256 letters of
modules that it has not seen. Takes some minutes on two CPU cores.
"""

import random
import sysconfig
from pathlib import Path

import keras
import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from keras import ops

import layers

TRAINED, TESTED, STEPS, BATCH = 64, 256, 600, 32
WIDTH, HEADS, BLOCKS = 64, 4, 2
HEAD_DIM = WIDTH // HEADS

POSITIONS = {
    "none": None,
    "learned": lambda: layers.LearnedPositionEmbedding(TESTED, WIDTH, embeddings_initializer="random_normal"),
    "sinusoidal": lambda: layers.SinusoidalPositionEncoding(WIDTH),
    "rotary": lambda: layers.RotaryEmbedding(HEAD_DIM),
    "T5 relative bias": lambda: layers.RelativePositionBias(HEADS, bidirectional=False),
    "Shaw, distance up to 16": lambda: layers.ShawRelativePositions(HEAD_DIM, max_distance=16),
    "ALiBi": lambda: layers.ALiBi(HEADS),
}
# the trained rotary model, with other frequencies and no further training
RESCALED = {
    "rotary, linear": {"kind": "linear", "factor": TESTED / TRAINED},
    "rotary, dynamic NTK": {
        "kind": "dynamic_ntk",
        "factor": 1.0,
        "original_max_position_embeddings": TRAINED,
    },
    "rotary, YaRN": {
        "kind": "yarn",
        "factor": TESTED / TRAINED,
        "original_max_position_embeddings": TRAINED,
    },
}


def read_library() -> tuple[np.ndarray, np.ndarray]:
    """Letters of the modules of the standard library, as numbers below 128: for training, and for the test."""
    paths = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    random.Random(0).shuffle(paths)
    texts = [path.read_bytes() for path in paths]
    letters = [np.frombuffer(text, "uint8") for text in texts if max(text, default=255) < 128]
    return np.concatenate(letters[20:]).astype("int32"), np.concatenate(letters[:20]).astype("int32")


def make_model(position: keras.layers.Layer | None) -> keras.Model:
    on_embeddings = position is not None and position.acts_on_embeddings()
    token_ids = keras.Input((None,), dtype="int32")
    x = keras.layers.Embedding(128, WIDTH)(token_ids)
    if on_embeddings:
        x = position.on_embeddings(x, ops.cumsum(ops.ones_like(token_ids), axis=1) - 1)
    for _ in range(BLOCKS):
        inside = None if on_embeddings else position
        attention = layers.MultiHeadAttention(HEADS, HEAD_DIM, causal=True, position=inside, path="plain")
        x = layers.TransformerBlock(attention, layers.FeedForward(4 * WIDTH, "gelu"), placement="pre")(x)
    return keras.Model(token_ids, keras.layers.Dense(128)(layers.LayerNorm()(x)))


def train(position: keras.layers.Layer | None, letters: np.ndarray) -> keras.Model:
    keras.utils.set_random_seed(1)
    model = make_model(position)
    starts = np.random.default_rng(1).integers(0, len(letters) - TRAINED - 1, STEPS * BATCH)
    pieces = letters[starts[:, None] + np.arange(TRAINED + 1)]
    schedule = keras.optimizers.schedules.CosineDecay(0.0, STEPS, warmup_target=3e-3, warmup_steps=100)
    model.compile(
        keras.optimizers.Adam(schedule, clipnorm=1.0), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    model.fit(pieces[:, :-1], pieces[:, 1:], batch_size=BATCH, shuffle=False, verbose=2)
    return model


def losses(model: keras.Model, letters: np.ndarray) -> np.ndarray:
    """Mean negative log-likelihood at each place of pieces of TESTED letters, in nats."""
    pieces = letters[: len(letters) // (TESTED + 1) * (TESTED + 1)].reshape(-1, TESTED + 1)[:500]
    logits = model.predict(pieces[:, :-1], batch_size=50, verbose=0)
    return np.concatenate(
        [
            ops.convert_to_numpy(keras.losses.sparse_categorical_crossentropy(labels, chunk, from_logits=True))
            for labels, chunk in zip(np.split(pieces[:, 1:], 10), np.split(logits, 10), strict=True)
        ]
    ).mean(0)


def main() -> None:
    train_letters, test_letters = read_library()
    results = {}
    for name, make in POSITIONS.items():
        print(name, flush=True)
        model = train(make and make(), train_letters)
        results[name] = losses(model, test_letters)
        if name == "rotary":
            for other, scaling in RESCALED.items():
                copy = make_model(layers.RotaryEmbedding(HEAD_DIM, scaling=scaling))
                copy.set_weights(model.get_weights())
                results[other] = losses(copy, test_letters)
    width = 16
    figure, axis = plt.subplots(figsize=(9, 5), layout="constrained")
    for index, (name, loss) in enumerate(results.items()):
        smooth = np.convolve(loss, np.full(width, 1 / width), "valid")
        style = "--" if name in RESCALED else "-"
        axis.plot(np.arange(len(smooth)) + width / 2, smooth, style, color=f"C{index}", label=name)
        inside, beyond = loss[TRAINED // 2 : TRAINED].mean(), loss[TESTED // 2 :].mean()
        print(f"{name}: {inside:.3f} at places 32 to 63, {beyond:.3f} at places 128 to 255")
    axis.axvline(TRAINED, color="black", linewidth=0.5)
    axis.annotate("longest text in training", (TRAINED + 2, 3.9), fontsize=9)
    axis.set(xlabel="place in the text", ylabel="negative log-likelihood per letter (nats)", ylim=(1.2, 4))
    axis.legend(fontsize=9, ncols=2, loc="upper right")
    figure.savefig(Path(__file__).parent / "images" / "position_length.png", dpi=100)


if __name__ == "__main__":
    main()
