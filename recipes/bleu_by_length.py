"""Computes sacreBLEU by the length of the source, for one or more runs of `translate`.

    python -m recipes.bleu_by_length --runs runs/multi30k_de_en_fixed_context runs/multi30k_de_en_rnnsearch

Reads the translations of the test texts in each run folder (`samples/test.tsv`). A model that squeezes the source into
one vector falls behind as sources get longer (Bahdanau et al. 2015, figure 2).
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import zoo
from recipes.command.printing import print_result
from recipes.common.config import run_recipe, setting
from recipes.common.errors import ConfigError, DataError, errors_of
from recipes.common.evaluation.translation_metrics import Tokenization, bleu, bleu_tokenization, check_tokenization
from recipes.common.final_steps import FinalSteps
from recipes.common.words import counted_words
from recipes.translate import OUTPUT_COLUMNS


@dataclasses.dataclass(frozen=True)
class BleuByLengthConfig:
    """Compares runs of the translate recipe by the length of the source."""

    runs: list[str] = setting(["runs/dates"], "Run folders of the translate recipe.", offers="paths")
    names: list[str] = setting([], "Their names in the report. Empty: the names of the folders.")
    bounds: list[int] = setting(
        [8, 11, 14, 17], "Largest number of words of a source in each row of the table, except the last row."
    )
    bleu_tokenization: Tokenization | None = setting(
        None, "sacreBLEU's tokenization. null: by the script of the references, as recipes.translate chooses it."
    )
    run_folder: str = setting("runs/bleu_by_length", "Folder of the report.", offers="paths")


def main(config: BleuByLengthConfig) -> dict[str, Any]:
    """Runs the recipe.

    Args:
        config: The configuration.

    Returns:
        sacreBLEU of each run and row, as written to `bleu_by_length.json`.
    """
    if not config.runs:
        raise ConfigError("runs must name at least one run folder, got []")
    names = config.names or [Path(run).name for run in config.runs]
    if len(set(names)) != len(config.runs):
        raise ConfigError(f"names must be {len(config.runs)} different ones, one per run, got {names}")
    if not config.bounds or sorted(set(config.bounds)) != config.bounds:
        raise ConfigError(f"bounds must be numbers that grow, got {config.bounds}")
    check_tokenization("bleu_tokenization", config.bleu_tokenization)
    scores = {
        name: by_length(read_outputs(run), config.bounds, config.bleu_tokenization)
        for name, run in zip(names, config.runs, strict=True)
    }
    folder = Path(config.run_folder)
    with errors_of("run_folder"):
        folder.mkdir(parents=True, exist_ok=True)
    zoo.storage.write_text_atomically(folder / "bleu_by_length.json", json.dumps(scores, indent=2) + "\n")
    rows = list(next(iter(scores.values())))
    lines = [f"| words of the source | {' | '.join(rows)} |", "| --- " * (len(rows) + 1) + "|"]
    for name, row in scores.items():
        lines.append(f"| {name} | {' | '.join(_cell(row.get(key)) for key in rows)} |")
    table = "\n".join(lines) + "\n"
    zoo.storage.write_text_atomically(folder / "bleu_by_length.md", table)
    print_result(table)
    places = [*config.bounds, config.bounds[-1] + 1]
    steps = FinalSteps(folder)
    steps.attempt(
        "bleu_by_length.png",
        zoo.inspect.plot_curves,
        {
            name: tuple(
                zip(
                    *[(x, row[key]["sacreBLEU"]) for x, key in zip(places, rows, strict=False) if key in row],
                    strict=True,
                )
            )
            for name, row in scores.items()
        },
        folder / "bleu_by_length.png",
        x_label="words of the source, up to (the last: more)",
        y_label="sacreBLEU",
        title="sacreBLEU by length of the source",
    )
    steps.raise_failed()
    return scores


def read_outputs(run: str) -> list[tuple[str, str, str]]:
    """Returns source, translation and reference of each test text of a run.

    Args:
        run: The run folder.

    Raises:
        DataError: If there are none.
    """
    path = Path(run) / "samples" / "test.tsv"
    if not path.exists():
        raise DataError(f"{path} does not exist: {run} is no finished run of the translate recipe")
    first, *rows = [tuple(line.split("\t")) for line in path.read_text(encoding="utf-8").split("\n") if line] or [()]
    if first != OUTPUT_COLUMNS:
        raise DataError(f"{path}:1 must name the columns {', '.join(OUTPUT_COLUMNS)}")
    for number, row in enumerate(rows, 2):
        if len(row) != 3:
            raise DataError(f"{path}:{number} has {len(row)} columns, expected {', '.join(OUTPUT_COLUMNS)}")
    if not rows:
        raise DataError(f"{path} is empty")
    return rows


def by_length(
    rows: list[tuple[str, str, str]], bounds: list[int], tokenization: str | None = None
) -> dict[str, dict[str, Any]]:
    """Returns sacreBLEU and number of texts for each range of words of the source that occurs, and for all.

    Args:
        rows: What `read_outputs` returned.
        bounds: Most words of each range but the last. In scripts without spaces, each character is a word.
        tokenization: One of sacreBLEU's; None for the one that fits the references.
    """
    tokenization = tokenization or bleu_tokenization([row[2] for row in rows])
    lengths = [len(counted_words(row[0])) for row in rows]
    edges = [0, *bounds, None]
    results = {}
    for low, high in [*zip(edges, edges[1:], strict=False), (0, None)]:
        label = f"over {low}" if high is None else f"{low + 1}-{high}"
        label = "all" if (low, high) == (0, None) else label
        chosen = [
            row for row, length in zip(rows, lengths, strict=True) if length > low and (high is None or length <= high)
        ]
        if chosen:
            score = bleu([row[1] for row in chosen], [row[2] for row in chosen], tokenization=tokenization)
            results[label] = {"sacreBLEU": round(score.value, 2), "texts": len(chosen), "signature": score.signature}
    return results


def _cell(value: dict[str, Any] | None) -> str:
    return "" if value is None else f"{value['sacreBLEU']:.1f} ({value['texts']})"


if __name__ == "__main__":
    run_recipe(main, BleuByLengthConfig, "bleu_by_length")
