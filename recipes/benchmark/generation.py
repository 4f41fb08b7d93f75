"""Tokens per second of greedy generation, compared with KerasHub's `generate`, for a GPT-2 of the same sizes."""

from __future__ import annotations

import dataclasses
import json
import statistics
from pathlib import Path
from typing import Any

import keras
import numpy as np

import zoo
from recipes.benchmark.timing import time_in_turn
from recipes.common.config import setting
from zoo.storage import write_text_atomically


@dataclasses.dataclass(frozen=True)
class Config:
    """Times greedy generation of CausalLM and of KerasHub's CausalLM, random weights of the same sizes."""

    batch_sizes: list[int] = setting([1, 8], "Prompts of a batch: which to try.", least=1)
    prompt_length: int = setting(16, "Tokens of a prompt.", least=1)
    new_tokens: int = setting(224, "Tokens to generate.", least=1)
    num_layers: int = setting(6, "Blocks.", least=1)
    hidden_dim: int = setting(384, "Width.", least=1)
    num_heads: int = setting(6, "Attention heads.", least=1)
    vocabulary_size: int = setting(8192, "Size of the vocabulary.", least=1)
    max_length: int = setting(1024, "Longest text that the model takes.", least=1)
    keras_hub: bool = setting(True, "Whether to time KerasHub too.")
    rounds: int = setting(3, "Turns of each.", least=1)
    output: str = setting("runs/benchmark/generation.json", "File for the figures.")


def main(config: Config) -> dict[str, Any]:
    """Runs the benchmark and prints a table.

    Args:
        config: The configuration.

    Returns:
        Tokens per second of each mode and batch size.
    """
    keras.utils.set_random_seed(0)
    ours = make_zoo_model(config)
    theirs = make_keras_hub_model(config) if config.keras_hub else None
    generator = np.random.default_rng(0)
    rows: dict[str, dict[str, float]] = {}
    for batch_size in config.batch_sizes:
        prompts = generator.integers(2, config.vocabulary_size, (batch_size, config.prompt_length))
        functions = {
            "zoo, XLA": lambda prompts=prompts: generate_zoo(ours, prompts, config.new_tokens, True),
            "zoo": lambda prompts=prompts: generate_zoo(ours, prompts, config.new_tokens, False),
        }
        if theirs is not None:
            functions["KerasHub"] = lambda prompts=prompts: generate_keras_hub(theirs, prompts, config.new_tokens)
        times = time_in_turn(functions, rounds=config.rounds, calls=1, warm_up=1)
        tokens = batch_size * config.new_tokens
        rows[str(batch_size)] = {name: round(tokens / statistics.median(times[name])) for name in functions}
        rows[str(batch_size)].update({f"{name}, fastest": round(tokens / min(times[name])) for name in functions})
    names = list(functions)
    print(f"| prompts | {' | '.join(names)} |\n| --- |{' --- |' * len(names)}")
    for batch_size, row in rows.items():
        cells = " | ".join(f"{row[name]:,} ({row[f'{name}, fastest']:,})" for name in names)
        print(f"| {batch_size} | {cells} |")
    print("Tokens per second, median (fastest) of the rounds.")
    write_text_atomically(Path(config.output), json.dumps({"config": dataclasses.asdict(config), **rows}, indent=2))
    return rows


def make_zoo_model(config: Config) -> zoo.CausalLM:
    """Returns a language model of GPT-2's design with random weights."""
    backbone = zoo.Backbone.from_config(
        zoo.TransformerConfig(
            "decoder",
            vocabulary_size=config.vocabulary_size,
            hidden_dim=config.hidden_dim,
            num_layers=config.num_layers,
            max_length=config.max_length,
            attention=zoo.AttentionConfig(config.num_heads),
            feed_forward=zoo.FeedForwardConfig(4 * config.hidden_dim, "gelu_tanh"),
            norm=zoo.NormConfig(placement="pre"),
            position=zoo.PositionConfig("learned"),
            dropout=0.0,
            initializer_range=0.02,
        )
    )
    return zoo.CausalLM(backbone)


def generate_zoo(model: zoo.CausalLM, prompts: np.ndarray, new_tokens: int, jit_compile: bool) -> np.ndarray:
    """Generates exactly `new_tokens` tokens per row."""
    result = model.generate_tokens(prompts.tolist(), max_new_tokens=new_tokens, jit_compile=jit_compile)
    if not (result["lengths"] == new_tokens).all():
        raise RuntimeError(f"{new_tokens} tokens per row were wanted, got {result['lengths'].tolist()}.")
    return result["token_ids"]


def make_keras_hub_model(config: Config) -> Any:
    """Returns KerasHub's GPT-2 of the same sizes with random weights."""
    import keras_nlp

    backbone = keras_nlp.models.GPT2Backbone(
        vocabulary_size=config.vocabulary_size,
        num_layers=config.num_layers,
        num_heads=config.num_heads,
        hidden_dim=config.hidden_dim,
        intermediate_dim=4 * config.hidden_dim,
        dropout=0.0,
        max_sequence_length=config.max_length,
    )
    model = keras_nlp.models.GPT2CausalLM(backbone=backbone, preprocessor=None)
    model.compile(sampler="greedy")
    return model


def generate_keras_hub(model: Any, prompts: np.ndarray, new_tokens: int) -> Any:
    """Generates `new_tokens` tokens per row; there the output buffer has the length of the inputs."""
    padding = ((0, 0), (0, new_tokens))
    token_ids = np.pad(prompts, padding).astype("int32")
    mask = np.pad(np.ones_like(prompts), padding).astype("int32")
    return model.generate({"token_ids": token_ids, "padding_mask": mask}, stop_token_ids=None)
