"""Scores of models on the same test rows: intervals by bootstrap, paired tests against the first model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from recipes.common.evaluation.evaluation import Evaluation
from recipes.common.evaluation.significance import (
    Difference,
    bootstrap_interval,
    difference_cells,
    holm,
    paired_bootstrap,
    resample,
    table_row,
    verdict,
)


def compare_models(
    evaluations: Mapping[str, Evaluation], *, resamples: int = 1000, seed: int = 0
) -> tuple[dict[str, dict[str, dict[str, Any]]], list[dict[str, Any]]]:
    """Returns intervals of the scores of each model, and tests of each model against the first.

    All by resampling the rows, the same resamples for all models. Scores of other tokens than the first model's
    (likelihoods per token, with another tokenizer) get intervals, but no test.

    Args:
        evaluations: The evaluation of each model, by its name, on the same rows.
        resamples: Number of resamples.
        seed: Their seed.

    Returns:
        By model and score `{"value", "interval"}`; and a list of comparisons: "score", "baseline", "model",
        "difference", "interval", "p", "p_corrected" (Holm, for the number of models) and "verdict".

    Reference:
        Koehn 2004, "Statistical Significance Tests for Machine Translation Evaluation".
    """
    baseline, *others = evaluations
    scores: dict[str, dict[str, dict[str, Any]]] = {name: {} for name in evaluations}
    differences: dict[tuple[str, str], Difference] = {}
    names = [(model, score) for model, evaluation in evaluations.items() for score in evaluation.metrics]
    if names:
        metrics = [evaluations[model].metrics[score] for model, score in names]
        found = resample(metrics, resamples=resamples, seed=seed)
        resampled = dict(zip(names, zip(*found, strict=True), strict=True))
        for (model, score), (value, values) in resampled.items():
            scores[model][score] = {"value": float(value), "interval": bootstrap_interval(values)}
            guessed = (evaluations[name].guessed.get(score) for name in (model, baseline))
            if model != baseline and (baseline, score) in resampled and len(set(guessed)) == 1:
                first, of_first = resampled[baseline, score]
                differences[model, score] = paired_bootstrap(value, first, values, of_first)
    return scores, _tested(scores, differences, baseline, others)


def _tested(
    scores: Mapping[str, Mapping[str, Any]],
    differences: Mapping[tuple[str, str], Difference],
    baseline: str,
    others: Sequence[str],
) -> list[dict[str, Any]]:
    comparisons = []
    for score in scores[baseline]:
        compared = [model for model in others if score in scores[model]]
        found = [
            differences.get(
                (model, score), Difference(scores[model][score]["value"] - scores[baseline][score]["value"], None, None)
            )
            for model in compared
        ]
        corrected = holm([difference.p for difference in found])
        for model, difference, p in zip(compared, found, corrected, strict=True):
            interval = difference.interval and [round(bound, 6) for bound in difference.interval]
            comparisons.append(
                {
                    "score": score,
                    "baseline": baseline,
                    "model": model,
                    "difference": round(difference.value, 6),
                    "interval": interval,
                    "p": difference.p,
                    "p_corrected": p,
                    "verdict": verdict(difference, p),
                }
            )
    return comparisons


def table(scores: Mapping[str, Mapping[str, Mapping[str, Any]]], comparisons: Sequence[Mapping[str, Any]]) -> str:
    """Returns scores with intervals, and what the tests say, as Markdown.

    Args:
        scores, comparisons: What `compare_models` returned.
    """
    tested = {(each["model"], each["score"]): each for each in comparisons}
    baseline = next(iter(scores))
    lines = ["| score | model | value | 95 % interval | difference | p | |", "| " + "--- | " * 7]
    for score in dict.fromkeys(score for values in scores.values() for score in values):
        for model, values in scores.items():
            if score not in values:
                continue
            low, high = values[score]["interval"]
            cells = [score, model, f"{values[score]['value']:.4g}", f"{low:.4g} to {high:.4g}"]
            each = tested.get((model, score))
            if each is None:
                cells += ["", "", "baseline" if comparisons and model == baseline else ""]
            else:
                cells += difference_cells(*(each[key] for key in ("difference", "interval", "p_corrected", "verdict")))
            lines.append(table_row(cells))
    legend = "Intervals by bootstrap over the test rows: 2.5 to 97.5 % of the resamples."
    if comparisons:
        legend += (
            " p: paired bootstrap against the first model, corrected for the number of models (Holm); noise: above "
            "0.05. This is the noise of the test rows; that of training shows in runs with several seeds "
            "(recipes.compare)."
        )
    return "\n".join(line.rstrip() for line in lines) + f"\n\n{legend}\n"
