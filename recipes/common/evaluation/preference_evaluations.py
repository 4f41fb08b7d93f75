"""Evaluations of preferences: which of two replies is likelier, and to which one a model's own reply is nearer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import zoo
from recipes.common.data.preference_data import Preference, PreferenceRows
from recipes.common.errors import errors_of
from recipes.common.evaluation.evaluations import Evaluation
from recipes.common.evaluation.likelihoods import batch_size_of
from recipes.common.evaluation.preference_results import closeness, count_cut_prompts
from recipes.common.evaluation.significance import mean_of
from recipes.common.training.reference import likelihoods


def evaluate_preferences(
    task: zoo.CausalLM,
    preferences: Sequence[Preference],
    max_length: int,
    *,
    loss: Any = None,
    reference: zoo.CausalLM | None = None,
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
        reference: The model that the rewards of this loss compare with.
        **options: Arguments of `generate`.
    """
    rows = PreferenceRows(task.preprocessor, max_length)
    kept, tokens = rows.tokenized(preferences)
    size = max(1, batch_size_of(task, max_length) // 2)
    found = likelihoods(zoo.training.ReplyLikelihoods(task), rows, tokens, size)
    per_token = found[..., 0] / np.maximum(found[..., 1], 1)
    prompts = [preference.prompt for preference in kept]
    is_plain = {"strip_prompt": True} if isinstance(prompts[0], str) else {}
    with errors_of("options"):
        replies = task.generate(prompts, **{"truncate": True, **is_plain, **options})
    cut = count_cut_prompts("data", task, tokens["learned"], options.get("max_new_tokens"))
    near = closeness(replies, [each.chosen for each in kept], [each.rejected for each in kept])
    columns = {
        "likelier_chosen": _above_zero(per_token[:, 0] - per_token[:, 1]),
        "nearer_to_chosen": _above_zero(near),
        "closeness": near,
    }
    if loss is not None:
        base = np.zeros((len(kept), 2), "float32")
        if reference is not None:
            base = likelihoods(zoo.training.ReplyLikelihoods(reference), rows, tokens, size)[..., 0]
        margins = np.array(loss.margins(base, found), "float64")
        columns |= {"reward_accuracy": _above_zero(margins), "reward_margin": margins}
    return Evaluation(
        [{"prompt": each.prompt, "chosen": each.chosen, "rejected": each.rejected} for each in kept],
        replies,
        {
            "pairs": len(kept),
            "too_long": rows.dropped.total,
            "prompts_cut": cut,
            **{name: round(float(np.mean(values)), 4) for name, values in columns.items()},
        },
        {name: mean_of(values) for name, values in columns.items()},
    )


def _above_zero(values: Sequence[float]) -> np.ndarray:
    return (np.sign(values) + 1) / 2
