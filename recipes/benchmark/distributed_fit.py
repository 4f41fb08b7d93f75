"""Trains a small model on what devices it is told, and writes what came out.

    python -m recipes.benchmark.distributed_fit OUT.npz '{"shape": "decoder", "distribution": "data"}'

The keys are those of `Fit`. Several processes find each other as those of recipes do. Weights, metrics of the epochs
and of an evaluation go to the file, and the layouts of the weights are printed.
"""

from __future__ import annotations

import dataclasses
import json
import os
import random
import sys
import time
from typing import Any

import keras
import numpy as np

import zoo

WORDS = "alpha beta gamma kappa iota lambda omega theta".split()
VOCABULARY = 26
# steps that are not timed: the first one is compiled
_BEFORE = 3


@dataclasses.dataclass(frozen=True)
class Fit:
    """What is trained, and on what.

    Args:
        shape: "decoder", "encoder" or "encoder_decoder".
        distribution: As `zoo.distribution.use` takes it.
        devices: Logical processors of TensorFlow; those of JAX are told by `JAX_NUM_CPU_DEVICES`.
        epochs: Passes over the texts.
        texts: Number of texts; 8 of them are a batch.
        dropout: Rate of dropout.
        experts: Experts of each layer; None for none.
        optimizer: Name of the optimizer of Keras.
        accumulate: Batches of an update; None for one.
        returns_to_first: Whether `EarlyStopping` puts the weights of the first epoch back, for the largest loss.
        timed_updates: Updates of a larger decoder whose tokens per second are measured instead, with each process on
            a core of its own; None to train the small model.
    """

    shape: str = "decoder"
    distribution: str | dict[str, int] | None = None
    devices: int | None = None
    epochs: int = 2
    texts: int = 75
    dropout: float = 0.0
    experts: int | None = None
    optimizer: str = "AdamW"
    accumulate: int | None = None
    returns_to_first: bool = False
    timed_updates: int | None = None


def main(out: str, fit: Fit) -> None:
    """Trains and writes.

    Args:
        out: The file.
        fit: What is trained.
    """
    if fit.devices is not None:
        import tensorflow as tf

        processor = tf.config.list_physical_devices("CPU")[0]
        logical = [tf.config.LogicalDeviceConfiguration()] * fit.devices
        tf.config.set_logical_device_configuration(processor, logical)
    zoo.distribution.use(fit.distribution)
    found = train(fit) if fit.timed_updates is None else time_updates(fit)
    if zoo.distribution.is_first_process():
        np.savez(out, **found)


def train(fit: Fit) -> dict[str, Any]:
    """Returns the weights after the training, metrics of its epochs, and scores of other texts."""
    with zoo.distribution.scope():
        model = make_model(fit)
    stop = keras.callbacks.EarlyStopping("loss", mode="max", restore_best_weights=True)
    history = model.fit(
        *make_data(fit.shape, fit.texts),
        batch_size=8,
        epochs=fit.epochs,
        shuffle=False,
        verbose=0,
        callbacks=[stop] if fit.returns_to_first else [],
    )
    scores = model.evaluate(*make_data(fit.shape, 20), batch_size=8, verbose=0, return_dict=True)
    layouts = {
        weight.path: str(getattr(getattr(weight.value, "sharding", None), "spec", "")) for weight in model.weights
    }
    print(json.dumps(layouts))
    weights = zoo.distribution.whole_values({weight.path.partition("/")[2]: weight for weight in model.weights})
    return {
        **{f"weights/{name}": value for name, value in weights.items()},
        **{f"history/{name}": np.asarray(column) for name, column in history.history.items()},
        **{f"scores/{name}": np.asarray(value) for name, value in scores.items()},
    }


def make_model(fit: Fit) -> zoo.Task:
    """Returns a compiled model; one for each shape, of 2 layers of width 16."""
    is_decoder = fit.shape == "decoder"
    feed_forward = zoo.FeedForwardConfig(32, "silu", gated=is_decoder, num_experts=fit.experts, experts_per_token=2)
    config = zoo.TransformerConfig(
        fit.shape,
        VOCABULARY,
        hidden_dim=16,
        num_layers=2,
        max_length=32,
        attention=zoo.AttentionConfig(4, num_key_value_heads=2 if is_decoder else 4),
        feed_forward=feed_forward,
        embedding=zoo.EmbeddingConfig(tie_output=fit.shape != "encoder_decoder"),
        norm=zoo.NormConfig(placement="pre"),
        dropout=fit.dropout,
        **({"position": zoo.PositionConfig("rotary")} if is_decoder else {}),
    )
    tokenizer = zoo.tokenizers.SentencePieceTokenizer.train(make_texts(200), vocabulary_size=VOCABULARY)
    keras.utils.set_random_seed(0)
    backbone = zoo.Backbone.from_config(config)
    # a small bound, so that gradients are clipped in each update
    optimizer = getattr(keras.optimizers, fit.optimizer)(
        0.01, weight_decay=0.01, global_clipnorm=0.3, gradient_accumulation_steps=fit.accumulate
    )
    options: dict[str, Any] = {"jit_compile": keras.backend.backend() == "jax"}
    if fit.shape == "encoder":
        model = zoo.TextClassifier(backbone, tokenizer, labels=["few", "many"], head_dropout=fit.dropout)
        model.compile(optimizer, weighted_metrics=["accuracy"], **options)
        return model
    model = (zoo.CausalLM if is_decoder else zoo.Seq2SeqLM)(backbone, tokenizer)
    metrics = [zoo.training.TokenAccuracy(), zoo.training.TokenCount(), zoo.training.Perplexity()]
    model.compile(optimizer, zoo.training.TokenCrossEntropy(0.1), weighted_metrics=metrics, **options)
    return model


def make_texts(number: int) -> list[str]:
    """Returns texts of 1 to 5 words: parts of a batch have different numbers of tokens."""
    generator = random.Random(0)
    return [" ".join(generator.choices(WORDS, k=generator.randint(1, 5))) for _ in range(number)]


def make_data(shape: str, number: int) -> tuple[list[str], ...]:
    """Returns texts, and labels or replies where the shape has such."""
    texts = make_texts(number)
    if shape == "decoder":
        return (texts,)
    return texts, ([["few", "many"][len(text.split()) > 3] for text in texts] if shape == "encoder" else texts)


def time_updates(fit: Fit) -> dict[str, Any]:
    """Returns the tokens per second of a decoder of 4 layers of width 256 with 8,192 tokens, in float32."""
    rows, length, vocabulary = 16, 128, 8192
    config = zoo.TransformerConfig(
        "decoder",
        vocabulary,
        hidden_dim=256,
        num_layers=4,
        max_length=length,
        attention=zoo.AttentionConfig(4),
        feed_forward=zoo.FeedForwardConfig(1024),
        norm=zoo.NormConfig(placement="pre"),
        dropout=0.0,
    )
    model = zoo.CausalLM(zoo.Backbone.from_config(config))
    model.compile("adamw", jit_compile=keras.backend.backend() == "jax")
    ids = np.random.default_rng(0).integers(1, vocabulary, (rows * (_BEFORE + fit.timed_updates), length))
    ids = ids.astype("int32")
    clock = _Clock()
    inputs = {"token_ids": ids, "padding_mask": np.ones(ids.shape, "bool")}
    model.fit(inputs, ids, batch_size=rows, epochs=1, shuffle=False, verbose=0, callbacks=[clock])
    return {"tokens_per_second": rows * length * fit.timed_updates / (clock.times[-1] - clock.times[_BEFORE - 1])}


class _Clock(keras.callbacks.Callback):
    """Notes when each update is done."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        # which is known when the update is done
        float(logs["loss"])
        self.times.append(time.perf_counter())


def _stay_on_a_core() -> None:
    """Keeps this process on a core of its own, so that several have no more than one has but their number."""
    cores = sorted(os.sched_getaffinity(0))
    number = int(os.environ.get("KERAS_DISTRIBUTION_PROCESS_ID", 0))
    os.sched_setaffinity(0, {cores[number % len(cores)]})


if __name__ == "__main__":
    given = Fit(**json.loads(sys.argv[2]))
    if given.timed_updates is not None:
        _stay_on_a_core()
    main(sys.argv[1], given)
