"""A training step of recurrent encoder-decoders compared with the same models made of `keras.layers.GRU`.

Two models, of one layer each: a fixed context (bidirectional encoder, the decoder continues from its last states) and
one that attends after the cell (Luong et al. 2015, inner product). Both sides have the same sizes and weights in
number, the same loss and optimizer, and are timed in turn in one process.
"""

from __future__ import annotations

import dataclasses
import statistics
from typing import Any

import keras

import zoo
from recipes.benchmark.step_data import make_batch, symbolic_inputs, write_results
from recipes.benchmark.timing import median_ratio, time_in_turn
from recipes.common.config import setting
from recipes.common.errors import errors_of
from recipes.common.output_file import check_output_file


@dataclasses.dataclass(frozen=True)
class Config:
    """Times a training step of recurrent models and of the same models made of keras.layers.GRU."""

    batch_size: int = setting(128, "Number of sentence pairs per batch.", least=1)
    length: int = setting(16, "Number of tokens of the source, and of the target.", least=1)
    vocabulary_size: int = setting(6000, "Size of the joint vocabulary.", least=1)
    width: int = setting(256, "Width of embeddings and states.", least=1)
    dtypes: list[str] = setting(["float32"], "Dtype policies to try.")
    rounds: int = setting(5, "Number of turns of each model.", least=1)
    calls: int = setting(3, "Number of steps per turn.", least=1)
    output: str = setting("runs/benchmark/recurrent_step.json", "File for the figures.", offers="paths")


def main(config: Config) -> dict[str, Any]:
    """Runs the benchmark and prints a table.

    Args:
        config: The configuration.

    Returns:
        Milliseconds of each model, and how many times as fast ours is.

    Raises:
        ConfigError: If there is no such dtype policy.
    """
    check_output_file(config.output)
    for dtype in config.dtypes:
        with errors_of("dtypes"):
            keras.DTypePolicy(dtype)
    batch = make_batch(config.batch_size, config.length, config.vocabulary_size)
    rows, ratios = {}, {}
    for dtype in config.dtypes:
        keras.config.set_dtype_policy(dtype)
        for kind in ("fixed context", "attention"):
            steps, sizes = {}, {}
            for name, build in (("zoo", make_zoo_model), ("keras.layers.GRU", make_keras_model)):
                model = build(config, kind)
                model.compile(keras.optimizers.Adam(1e-4), zoo.training.TokenCrossEntropy(), jit_compile=False)
                sizes[name] = model.count_params()
                steps[name] = lambda model=model: model.train_on_batch(*batch)
            if len(set(sizes.values())) != 1:
                raise RuntimeError(f"The models differ in size: {sizes}.")
            times = time_in_turn(steps, rounds=config.rounds, calls=config.calls)
            ratios[f"{kind}, {dtype}"] = round(median_ratio(times, "keras.layers.GRU", "zoo"), 3)
            for name, seconds in times.items():
                rows[f"{kind}, {dtype}, {name}"] = round(1000 * statistics.median(seconds), 1)
    keras.config.set_dtype_policy("float32")
    print("| model | ms per step, median |\n| --- | --- |")
    for name, milliseconds in rows.items():
        print(f"| {name} | {milliseconds} |")
    for name, ratio in ratios.items():
        print(f"{name}: {ratio:.2f} times as fast as keras.layers.GRU (median of rounds)")
    result = {"config": dataclasses.asdict(config), "milliseconds": rows, "speed_ratio": ratios}
    write_results(config.output, result)
    return result


def make_zoo_model(config: Config, kind: str) -> keras.Model:
    """Returns ours."""
    options = {"attention": "none"}
    if kind == "attention":
        options = {"attention": "current_state", "score": "dot", "bidirectional": False, "readout": "attentional"}
    architecture = zoo.RecurrentConfig(
        vocabulary_size=config.vocabulary_size, embedding_dim=config.width, hidden_dim=config.width, **options
    )
    return zoo.Seq2SeqLM(zoo.Backbone.from_config(architecture))


def make_keras_model(config: Config, kind: str) -> keras.Model:
    """Returns the same model as the documentation of Keras composes it."""
    inputs = symbolic_inputs()
    width, mask = config.width, inputs["encoder_padding_mask"]
    source = keras.layers.Embedding(config.vocabulary_size, width)(inputs["encoder_token_ids"])
    target = keras.layers.Embedding(config.vocabulary_size, width)(inputs["decoder_token_ids"])
    encoder = keras.layers.GRU(width, return_sequences=True, return_state=True)
    if kind == "fixed context":
        _, forward, backward = keras.layers.Bidirectional(encoder)(source, mask=mask)
        first = keras.layers.Dense(width, activation="tanh")(keras.layers.Concatenate()([forward, backward]))
    else:
        memory, last = encoder(source, mask=mask)
        first = keras.layers.Dense(width, activation="tanh")(last)
    hidden = keras.layers.GRU(width, return_sequences=True)(target, initial_state=first)
    if kind == "attention":
        context = keras.layers.Attention()([hidden, memory], mask=[None, mask])
        joined = keras.layers.Concatenate()([context, hidden])
        hidden = keras.layers.Dense(width, activation="tanh", use_bias=False)(joined)
    return keras.Model(inputs, keras.layers.Dense(config.vocabulary_size)(hidden))
