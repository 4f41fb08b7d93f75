"""What training on preferences has changed: replies compared by a rule, pictures of rewards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import sacrebleu

import zoo
from recipes.common.charts import plot_histogram, title_of
from recipes.common.data.preference_data import Preference
from recipes.common.run_folder import RunFolder


def last_words(preference: Preference) -> str:
    """Returns what is replied to, to be shown."""
    return preference.prompt if isinstance(preference.prompt, str) else preference.prompt[-1]["content"]


def reply_scores(
    run: RunFolder, test: Sequence[Preference], before: Sequence[str], after: Sequence[str]
) -> dict[str, Any]:
    """Returns how often replies are nearer to the chosen than to the rejected one, and how often training helped.

    A reply's closeness is its chrF2 with the chosen reply less that with the rejected one. It is nearer where that is
    above 0; the trained model wins a prompt where its reply has the higher closeness. Ties count one half.

    Args:
        run: The run folder, which gets all replies.
        test: The pairs.
        before, after: Replies of the model that the run started from, and of the trained one.
    """
    pairs = [(preference.chosen, preference.rejected) for preference in test]
    scores = [closeness(texts, *zip(*pairs, strict=True)) for texts in (before, after)]
    columns = zip(
        [last_words(preference) for preference in test], before, after, *zip(*pairs, strict=True), strict=True
    )
    lines = ["prompt\tbefore\tafter\tchosen\trejected", *("\t".join(map(_one_line, row)) for row in columns)]
    run.final_steps.add("samples/test.tsv", run.write_text, "samples/test.tsv", "\n".join(lines) + "\n")
    return {
        "test_nearer_to_chosen_before": round(win_rate(scores[0], np.zeros(len(test))), 4),
        "test_nearer_to_chosen": round(win_rate(scores[1], np.zeros(len(test))), 4),
        "test_win_rate": round(win_rate(scores[1], scores[0]), 4),
        "rule_of_a_win": "higher chrF2 with the chosen less chrF2 with the rejected reply than before; ties one half",
    }


def count_cut_prompts(name: str, task: zoo.CausalLM, learned: Any, new_tokens: int | None) -> int:
    """Returns how many prompts lose their beginning when the model replies, and says so.

    Args:
        name: The part of the data.
        task: The model.
        learned: Which tokens of prompt and reply are of the reply, ragged `(pairs, 2, None)`.
        new_tokens: How many more tokens have to fit behind a prompt; None for what `generate` leaves room for.
    """
    keep = task.preprocessor.kept_tokens(task.backbone.config.max_length, new_tokens)
    count = sum(pair[0].index(True) > keep for pair in learned.to_list() if True in pair[0])
    if count:
        print(f"{name}: {count} prompts are cut to their last {keep} tokens, so that a reply has room behind them")
    return count


def _one_line(text: str) -> str:
    return " ".join(text.split())


def draw(run: RunFolder, history: dict[str, list[float]], margins: np.ndarray, is_validation: bool) -> None:
    """Draws margins and accuracies of rewards by epoch, and the margins of the test pairs."""
    epochs = range(1, len(history["loss"]) + 1)
    for name, label in (("reward_margin", "margin of rewards"), ("reward_accuracy", "accuracy of rewards")):
        series = {part: (epochs, history[f"{key}{name}"]) for part, key in (("training", ""), ("validation", "val_"))}
        labels = {"x_label": "epoch", "y_label": label, "title": "Chosen over rejected"}
        run.draw(f"{name}.png", zoo.inspect.plot_curves, series, **labels)
    labels = {"x_label": "margin of rewards, chosen over rejected", "title": title_of("pairs", is_validation)}
    run.draw("test_margins.png", plot_histogram, margins, **labels)


def closeness(outputs: Sequence[str], wanted: Sequence[str], others: Sequence[str]) -> list[float]:
    """Returns how much nearer each output is to the wanted text than to another one, -100 to 100.

    Args:
        outputs: The texts to score.
        wanted, others: One text each, for each of them.

    Returns:
        chrF2 of each output with the wanted text less that with the other one.

    Example:

    >>> closeness(["a dog"], ["a dog"], ["xyz"])
    [100.0]
    """
    metric = sacrebleu.CHRF()

    def score(output: str, reference: str) -> float:
        return metric.sentence_score(output, [reference]).score

    return [score(text, good) - score(text, bad) for text, good, bad in zip(outputs, wanted, others, strict=True)]


def win_rate(values: Sequence[float], others: Sequence[float]) -> float:
    """Returns the fraction of values greater than the other ones at their places; equal ones count one half.

    Args:
        values: Numbers.
        others: Numbers, as many.

    Example:

    >>> win_rate([1.0, 2.0, 3.0, 0.0], [0.0, 2.0, 4.0, -1.0])
    0.625
    """
    points = (1.0 if value > other else 0.5 * (value == other) for value, other in zip(values, others, strict=True))
    return sum(points) / len(values)
