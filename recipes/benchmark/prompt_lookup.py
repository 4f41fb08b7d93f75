"""Prompt lookup: how many tokens a pass of the model gives, what a pass costs, and what comes of it.

    python -m recipes.benchmark prompt_lookup --preset gpt2_small    # random weights: what a pass costs
    python -m recipes.benchmark prompt_lookup --model runs/mine/model --prompts prompts.txt

One text at a time, greedily. Random weights of a preset soon repeat themselves, so that nearly all proposals are kept:
their time per pass says something about models of this size, their tokens per pass nothing about texts.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from typing import Any

import keras
import numpy as np

import zoo
from recipes.benchmark.step_data import write_table
from recipes.common.config import setting
from recipes.common.data.plain_text import read_plain
from recipes.common.errors import BadLines, ConfigError, errors_of
from recipes.common.saved_models import load_task


@dataclasses.dataclass(frozen=True)
class Config:
    """Measures generation with prompt lookup against one token at a time."""

    model: str | None = setting(
        None, "Folder of a run or directory of a saved language model; null for random weights.", offers="paths"
    )
    prompts: str | None = setting(None, "Text file with a prompt per line, for a saved model.", offers="paths")
    preset: str = setting(
        "gpt2_small", "Name of the architecture whose random weights are used where model is null.", offers="presets"
    )
    lookaheads: list[int] = setting([2, 4, 8], "Numbers of tokens that are proposed at a time.", least=1)
    max_new_tokens: int = setting(200, "Number of tokens to generate.", above=0)
    rounds: int = setting(3, "Number of turns, one after the other. Medians are reported.", above=0)
    folder: str = setting("runs/benchmark/prompt_lookup", "Folder for the table.", offers="paths")

    def __post_init__(self) -> None:
        if (self.model is None) != (self.prompts is None):
            raise ConfigError("prompts must be given with model, and only with it")


def main(config: Config) -> list[dict[str, Any]]:
    """Runs the benchmark and prints the table.

    Args:
        config: The configuration.

    Returns:
        A row for each number of proposals, 0 for none: tokens per second, milliseconds of a pass, tokens of a pass.

    Raises:
        ConfigError: If texts with prompt lookup are not those without.
    """
    task, prompts = _read(config) if config.model else _random(config)
    kinds = [0, *config.lookaheads]
    seconds: dict[int, list[float]] = {kind: [] for kind in kinds}
    tokens, passes, expected = {}, {}, []
    bar = keras.utils.Progbar((config.rounds + 1) * len(kinds), unit_name="turn")
    for turn in range(config.rounds + 1):
        for kind in kinds:
            options = {"draft": "prompt_lookup", "lookahead": kind} if kind else {}
            start = time.perf_counter()
            results = [
                task.generate_tokens([prompt], max_new_tokens=config.max_new_tokens, **options) for prompt in prompts
            ]
            if turn:  # the first one compiles
                seconds[kind].append(time.perf_counter() - start)
            texts = [result["token_ids"].tolist() for result in results]
            expected = expected or texts
            if texts != expected:
                raise ConfigError(f"with {kind} proposals a text is another one")
            tokens[kind] = sum(int(result["lengths"][0]) for result in results)
            passes[kind] = sum(int(result.get("rounds", result["lengths"][0])) for result in results)
            bar.add(1)
    rows = []
    for kind in kinds:
        median = statistics.median(seconds[kind])
        rows.append(
            {
                "proposals": kind,
                "tokens_per_second": tokens[kind] / median,
                "milliseconds_per_pass": 1000 * median / passes[kind],
                "tokens_per_pass": tokens[kind] / passes[kind],
                "times_as_fast": statistics.median(seconds[0]) / median,
            }
        )
    write_table(config.folder, _table(rows))
    return rows


def _read(config: Config) -> tuple[Any, list[list[int]]]:
    task = load_task(config.model, "CausalLM")
    lines = read_plain([config.prompts], BadLines("raise"), unit="line")
    tokenizer = task.preprocessor.tokenizer
    start = [tokenizer.start_id] if task.preprocessor.adds_start_token else []
    return task, [[*start, *map(int, ids)] for ids in tokenizer.tokenize(lines).to_list()]


def _random(config: Config) -> tuple[Any, list[list[int]]]:
    keras.utils.set_random_seed(0)
    with errors_of("preset"):
        backbone = zoo.Backbone.from_preset(config.preset, load_weights=False)
    prompt = np.random.default_rng(0).integers(0, backbone.config.vocabulary_size, 16)
    return zoo.CausalLM(backbone), [prompt.tolist()]


def _table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| proposals at a time | tokens per second | as fast as without | tokens of a pass | milliseconds of a pass |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        lines.append(
            f"| {row['proposals'] or 'none'} | {row['tokens_per_second']:.0f} | {row['times_as_fast']:.2f} | "
            f"{row['tokens_per_pass']:.2f} | {row['milliseconds_per_pass']:.1f} |"
        )
    return "\n".join(lines) + "\n"
