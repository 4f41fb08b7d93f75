"""Options of tasks that the files of other libraries have no place for."""

import warnings
from typing import Any

import numpy as np

# what changes predictions, or stops them, and what the task is again when the files are read
_DEFAULTS = {
    "TextClassifier": {"stride": None, "pairs": False},
    "TokenClassifier": {"stride": None, "split": "punctuation"},
    "QuestionAnswerer": {"stride": 128, "max_answer_length": 30, "no_answer_threshold": None},
    "TextEmbedder": {"training_prompts": None},
}


def check_options(task: Any) -> None:
    """Checks that a task can be written for another library; options that are left out are named in a warning.

    Args:
        task: The task.

    Raises:
        ValueError: If its probabilities are not those of logits as they are: it has a temperature, or thresholds.
    """
    options, kind = task.options(), type(task).__name__
    for name, plain in (("temperature", 1.0), ("threshold", 0.5)):
        if not np.all(np.asarray(options.get(name, plain)) == plain):
            raise ValueError(
                f"{name} must be {plain} in files of another library, which have no place for it, got {options[name]}: "
                f"set task.{name} = {plain}, and apply it where the model is used."
            )
    lost = [
        f"{name}={options[name]!r}"
        for name, default in _DEFAULTS.get(kind, {}).items()
        # the files of a cross-encoder say that it takes pairs
        if options[name] != default and not (name == "pairs" and len(task.labels) == 1)
    ]
    if lost:
        warnings.warn(
            f"Files of another library have no place for {', '.join(lost)}: give them to {kind}.from_preset again.",
            stacklevel=4,
        )
