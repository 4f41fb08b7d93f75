"""Preferences: which of two replies is likelier, to which one a model's own reply is nearer, what training changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import sacrebleu

import zoo
from recipes.common.charts import plot_histogram, title_of
from recipes.common.data.preference_data import Preference, PreferenceRows
from recipes.common.errors import errors_of
from recipes.common.evaluation.evaluation import Evaluation, mean_of
from recipes.common.evaluation.likelihoods import batch_size_of
from recipes.common.run_folder import RunFolder, validation_unit
from recipes.common.training.reference import likelihoods


def evaluate_preferences(
    task: zoo.CausalLM,
    preferences: Sequence[Preference],
    max_length: int,
    *,
    loss: Any = None,
    reference: zoo.CausalLM | np.ndarray | None = None,
    part: str = "data",
    **options: Any,
) -> Evaluation:
    """Returns how often a model finds the chosen reply likelier, per token, and how near its own replies are to it.

    A reply's closeness is its chrF2 with the chosen reply less that with the rejected one; it is nearer to the chosen
    one where that is above 0. Equal values count one half.

    Args:
        task: The model.
        preferences: The pairs of replies.
        max_length: Most tokens of prompt and reply; pairs with a longer one are left out.
        loss: What the model was trained with, for accuracy and margin of its rewards; None for none.
        reference: The model that the rewards of this loss compare with, or its log-likelihoods of the pairs that are
            not left out, `(pairs, 2)`; None for a loss that needs none.
        part: The part of the data, for what is printed.
        **options: Arguments of `generate`.

    Returns:
        The evaluation; its predictions are the numbers of each pair, by the name of the metric.
    """
    rows = PreferenceRows(task.preprocessor, max_length)
    kept, tokens = rows.tokenized(preferences)
    longest = int(tokens["ids"].merge_dims(0, 1).row_lengths().numpy().max())
    size = max(1, batch_size_of(task, longest) // 2)
    found = likelihoods(zoo.training.ReplyLikelihoods(task), rows, tokens, size)
    per_token = found[..., 0] / np.maximum(found[..., 1], 1)
    prompts = [preference.prompt for preference in kept]
    is_plain = {"strip_prompt": True} if isinstance(prompts[0], str) else {}
    with errors_of("options"):
        replies = task.generate(prompts, **{"truncate": True, **is_plain, **options})
    cut = count_cut_prompts(part, task, tokens["learned"], options.get("max_new_tokens"))
    near = closeness(replies, [each.chosen for each in kept], [each.rejected for each in kept])
    columns = {
        "likelier_chosen": wins(per_token[:, 0], per_token[:, 1]),
        "nearer_to_chosen": wins(near, 0),
        "closeness": near,
    }
    if loss is not None:
        base = np.zeros((len(kept), 2), "float32") if reference is None else reference
        if isinstance(base, zoo.CausalLM):
            base = likelihoods(zoo.training.ReplyLikelihoods(base), rows, tokens, size)[..., 0]
        margins = np.array(loss.margins(base, found), "float64")
        columns |= {"reward_accuracy": wins(margins, 0), "reward_margin": margins}
    return Evaluation(
        [{"prompt": each.prompt, "chosen": each.chosen, "rejected": each.rejected} for each in kept],
        replies,
        {"pairs": len(kept), "too_long": rows.dropped.total, "prompts_cut": cut},
        {name: mean_of(values) for name, values in columns.items()},
        predictions=columns,
    )


def last_words(preference: Preference) -> str:
    """Returns what is replied to, to be shown."""
    return preference.prompt if isinstance(preference.prompt, str) else preference.prompt[-1]["content"]


def reply_scores(
    run: RunFolder, test: Sequence[Preference], before: Sequence[str], evaluation: Evaluation
) -> dict[str, Any]:
    """Returns how often replies are nearer to the chosen than to the rejected one, and how often training helped.

    The trained model wins a prompt where its reply has the higher closeness, see `evaluate_preferences`. Ties count one
    half.

    Args:
        run: The run folder, which gets all replies.
        test: The pairs.
        before: Replies of the model that the run started from.
        evaluation: That of the trained one.
    """
    chosen, rejected = [preference.chosen for preference in test], [preference.rejected for preference in test]
    columns = zip(map(last_words, test), before, evaluation.outputs, chosen, rejected, strict=True)
    run.write_rows("samples/test.tsv", [("prompt", "before", "after", "chosen", "rejected"), *columns])
    near = closeness(before, chosen, rejected)
    return {
        "test_nearer_to_chosen_before": mean_of(wins(near, 0)).result,
        "test_nearer_to_chosen": evaluation.values["nearer_to_chosen"],
        "test_win_rate": mean_of(wins(evaluation.predictions["closeness"], near)).result,
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


def draw(run: RunFolder, history: dict[str, list[float]], margins: np.ndarray, is_validation: bool) -> None:
    """Draws margins and accuracies of rewards by validation, and the margins of the test pairs."""
    numbers = range(1, len(history["loss"]) + 1)
    for name, label in (("reward_margin", "margin of rewards"), ("reward_accuracy", "accuracy of rewards")):
        series = {part: (numbers, history[f"{key}{name}"]) for part, key in (("training", ""), ("validation", "val_"))}
        labels = {"x_label": validation_unit(run.config.training), "y_label": label, "title": "Chosen over rejected"}
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


def wins(values: Sequence[float], others: Sequence[float] | float) -> np.ndarray:
    """Returns 1 where a value is greater than the other one at its place, one half where they are equal, else 0.

    Args:
        values: Numbers.
        others: Numbers, as many, or one.

    Example:

    >>> wins([1.0, 2.0, 3.0], [0.0, 2.0, 4.0])
    array([1. , 0.5, 0. ])
    """
    return (np.sign(np.subtract(values, others)) + 1) / 2
