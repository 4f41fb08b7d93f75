"""Comparisons of runs that differ in a few choices: what is noise, tables and pictures."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import zoo
from recipes.common.charts import plot_intervals
from recipes.common.evaluation.significance import (
    difference_cells,
    holm,
    mean_interval,
    paired_t_test,
    table_row,
    verdict,
)
from recipes.common.varied_runs import Choice, Run, written

Range = tuple[float, float]

# the first that is found in the name of a result decides
_RANGES: tuple[tuple[str, Range], ...] = (
    (r"bleu|chrf|rouge", (0, 100)),
    (r"spearman|pearson", (-1, 1)),
    (r"nll|bits_per|absolute_error|seconds", (0, math.inf)),
    (r"perplexity", (1, math.inf)),
    (r"accuracy|f1|precision|recall|exact_match|ndcg|mrr|thresholds", (0, 1)),
)
# groups whose results have the names of labels
_BY_LABEL = re.compile(r"_by_label$|^thresholds$")
_OF_ANSWERS = re.compile(r"(exact_match|f1)(_with(out)?_answer)?")

# columns of metrics.csv
_CURVES = ("val_nll", "val_loss")

# label of each choice to the numbers of its runs that have ended, by seed
Results = Mapping[str, Mapping[int, Mapping[str, float]]]


def compare(results: Results, metrics: Sequence[str]) -> list[dict[str, Any]]:
    """Compares each choice with the first, by the seeds that both have.

    Intervals are cut at the range of a metric: neither an accuracy nor a difference of two accuracies is above 1.

    Args:
        results: The numbers of the runs.
        metrics: Names of the numbers to compare.

    Returns:
        For each choice and metric its mean, standard deviation and interval, and beside the first the difference, its
        interval, p value (as it is and corrected for the number of choices) and verdict.
    """
    baseline = next(iter(results.values()))
    rows: list[dict[str, Any]] = []
    for metric in metrics:
        of_metric = []
        low, high = range_of(
            metric, {name for runs in results.values() for numbers in runs.values() for name in numbers}
        )
        for label, runs in results.items():
            values = [numbers[metric] for numbers in runs.values() if metric in numbers]
            row: dict[str, Any] = {"choice": label, "metric": metric, "runs": len(values), "values": values}
            if values:
                row["mean"], row["interval"] = float(np.mean(values)), clipped(mean_interval(values), low, high)
                row["deviation"] = float(np.std(values, ddof=1)) if len(values) > 1 else None
            shared = [seed for seed in runs if metric in runs[seed] and metric in baseline.get(seed, {})]
            if runs is not baseline and shared:
                difference = paired_t_test(*([which[seed][metric] for seed in shared] for which in (runs, baseline)))
                interval = clipped(difference.interval, low - high, high - low)
                row.update(difference=difference.value, difference_interval=interval, p=difference.p)
                row["difference_"] = difference
            of_metric.append(row)
        for row, p in zip(of_metric, holm([row.get("p") for row in of_metric]), strict=True):
            difference = row.pop("difference_", None)
            if difference is not None:
                row["p_corrected"], row["verdict"] = p, verdict(difference, p)
        rows += of_metric
    return rows


def table(choices: Sequence[Choice], results: Results, rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns the comparison as Markdown.

    Args:
        choices: The choices.
        results: The numbers of their runs.
        rows: What `compare` returned.
    """
    names = list(choices[0].values)
    parts = []
    for metric in dict.fromkeys(row["metric"] for row in rows):
        head = [*(f"`{name}`" for name in names), "runs", "parameters", "training, s", metric, "difference", "p", ""]
        lines = ["| " + " | ".join(head) + " |", "| " + " | ".join(["---"] * len(head)) + " |"]
        for index, choice in enumerate(choices):
            row = next(row for row in rows if row["metric"] == metric and row["choice"] == choice.label)
            numbers = list(results[choice.label].values())
            values = [written(value) for value in choice.values.values()]
            cells = [*values, f"{row['runs']}", _mean(numbers, "parameters", ",.0f")]
            cells += [_mean(numbers, "training_seconds", ".0f"), _spread(row, bool(numbers))]
            cells += _difference(row, is_first=index == 0)
            lines.append(table_row(cells))
        parts.append("\n".join(lines))
    return "\n\n".join([*parts, _legend(max(map(len, results.values())), len(choices) - 1)]) + "\n"


def _mean(numbers: Sequence[Mapping[str, float]], name: str, form: str) -> str:
    found = [some[name] for some in numbers if name in some]
    return format(np.mean(found), form) if found else ""


def _spread(row: Mapping[str, Any], has_ended: bool) -> str:
    if not row["runs"]:
        return "no value" if has_ended else "failed"
    return f"{row['mean']:.4g}" + ("" if row["deviation"] is None else f" ± {row['deviation']:.2g}")


def _difference(row: Mapping[str, Any], is_first: bool) -> list[str]:
    if is_first or "difference" not in row:
        return ["", "", "baseline" if is_first else ""]
    return difference_cells(*(row[key] for key in ("difference", "difference_interval", "p_corrected", "verdict")))


def _legend(seeds: int, comparisons: int) -> str:
    from scipy import stats

    if seeds == 1:
        return "One seed each: nothing tells these differences from noise. Repeat with more seeds."
    needed = stats.t.ppf(0.975, seeds - 1) / math.sqrt(seeds)
    corrected = f", corrected for {comparisons} comparisons (Holm)" if comparisons > 1 else ""
    text = (
        f"Mean and standard deviation of {seeds} seeds. Differences to the first row are paired by seed, with 95 % "
        f"intervals; p by the paired t-test{corrected}; noise: p above 0.05."
    )
    if seeds < 6:
        text += (
            f" So few seeds show only differences of at least {needed:.1f} times the standard deviation of the paired "
            "differences: noise means not shown, not equal."
        )
    return text


def write_tables(
    choices: Sequence[Choice], results: Results, metrics: Sequence[str], folder: Path
) -> tuple[list[dict[str, Any]], str]:
    """Writes `table.md`, `table.csv` (a row for each choice and metric) and `runs.csv` (all numbers of each run).

    Args:
        choices: The choices.
        results: The numbers of their runs.
        metrics: Names of the numbers to compare.
        folder: Where to.

    Returns:
        What `compare` returned, and the table.
    """
    rows = compare(results, metrics)
    text = table(choices, results, rows)
    zoo.storage.write_text_atomically(folder / "table.md", text)
    of_label = {choice.label: choice.values for choice in choices}
    zoo.storage.write_text_atomically(folder / "table.csv", _csv([{**of_label[row["choice"]], **row} for row in rows]))
    every = [
        {**choice.values, "seed": seed, **numbers}
        for choice in choices
        for seed, numbers in results[choice.label].items()
    ]
    zoo.storage.write_text_atomically(folder / "runs.csv", _csv(every))
    return rows, text


def _csv(rows: Sequence[Mapping[str, Any]]) -> str:
    def cell(value: Any) -> Any:
        return json.dumps(value) if isinstance(value, list | dict | tuple) else value

    columns = list(dict.fromkeys(name for row in rows for name in row))
    stream = io.StringIO()
    writer = csv.DictWriter(stream, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: cell(value) for name, value in row.items()} for row in rows)
    return stream.getvalue()


def draw(choices: Sequence[Choice], runs: Sequence[Run], rows: Sequence[Mapping[str, Any]], folder: Path) -> None:
    """Draws `comparison.png`, the scores of all seeds with mean and interval, and `curves.png`, their means.

    Args:
        choices: The choices.
        runs: The runs that have ended.
        rows: What `compare` returned.
        folder: Where to.
    """
    panels: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row["runs"]:
            panels.setdefault(row["metric"], {})[row["choice"]] = (row["mean"], row["interval"], row["values"])
    varied = "\n".join(choices[0].values)
    plot_intervals(panels, folder / "comparison.png", f"{varied}\nseeds, their mean and its 95 % interval".strip())
    series, measures = {}, []
    for choice in choices:
        curves = [run.curves() for run in runs if run.choice is choice]
        column = next((name for name in _CURVES if curves and all(name in (rows or [{}])[0] for rows in curves)), None)
        if column is not None:
            points = min(map(len, curves))
            means = [np.mean([float(rows[point][column]) for rows in curves]) for point in range(points)]
            series[f"{choice.label}"] = (range(1, points + 1), means)
            measures.append(column)
    if series:
        name = f"{' or '.join(dict.fromkeys(measures))}, mean over the seeds"
        units = " or ".join(dict.fromkeys(run.unit for run in runs))
        zoo.inspect.plot_curves(series, folder / "curves.png", x_label=units, y_label=name, title=varied)


def range_of(metric: str, others: Collection[str] = ()) -> Range:
    """Returns the lowest and the highest value that a result may have, infinite if it is unbounded or unknown.

    Args:
        metric: Its name, as in `results.json`; those of a group have the name of the group and a point before theirs.
        others: Names of the other results: `exact_match` beside `f1` is that of SQuAD, in percent.

    Example:

    >>> range_of("accuracy"), range_of("exact_match", ["exact_match", "f1"]), range_of("test_reward_margin")
    ((0, 1), (0, 100), (-inf, inf))
    """
    groups = metric.split(".")
    name = next((group for group in groups[:-1] if _BY_LABEL.search(group)), groups[-1])
    if _OF_ANSWERS.fullmatch(name) and metric.removesuffix(name) + "f1" in (metric, *others):
        return 0, 100
    found = (of_name for pattern, of_name in _RANGES if re.search(pattern, name.lower()))
    return next(found, (-math.inf, math.inf))


def clipped(interval: Range | None, low: float, high: float) -> Range | None:
    """Returns an interval clipped to two values; None for None.

    Args:
        interval: The interval.
        low, high: The values.

    Example:

    >>> clipped((0.97, 1.02), 0, 1)
    (0.97, 1)
    """
    return None if interval is None else (max(interval[0], low), min(interval[1], high))
