"""The page in a run folder that shows what the trained model does with one of its examples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import zoo
from recipes.common.run_folder import RunFolder

PAGE = "inspect.html"
# Longer examples make pages that are large, and gradients that take minutes.
_MOST_TOKENS, _MOST_WITH_GRADIENTS = 128, 32


def write_inspection(run: RunFolder, task: zoo.Task, examples: Sequence[Any]) -> None:
    """Writes `inspect.html` of the first example that is short enough.

    Without one there is no page, and what is printed says so.

    Args:
        run: The run folder.
        task: The trained task.
        examples: Inputs of the task.
    """
    # one of an earlier run would pass for one of this run
    (run.path / PAGE).unlink(missing_ok=True)
    for example in examples:
        try:
            row = task.row_of(example)
        except ValueError:
            continue  # longer than the model
        length = max(value.shape[1] for name, value in row.inputs.items() if name.endswith("token_ids"))
        if length <= _MOST_TOKENS:
            options = {"lens": True, "gradients": length <= _MOST_WITH_GRADIENTS}
            path = zoo.inspect.inspect_task(task, row, top_k=5, **options).save_html(run.path / PAGE)
            print(f"{path}: what the model does with an example")
            return
    print(f"{PAGE} is left out: no example has at most {_MOST_TOKENS} tokens")
