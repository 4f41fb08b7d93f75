"""Options of tasks that the files of other libraries have no place for."""

from typing import Any

import numpy as np
from keras import ops

from zoo.huggingface.directory import head_layers
from zoo.huggingface.weights import layer_view, leaves_of, variable_of
from zoo.storage.user_warnings import warn_user

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
        ValueError: If it has thresholds of its own.
    """
    options, kind = task.options(), type(task).__name__
    if not np.all(np.asarray(options.get("threshold", 0.5)) == 0.5):
        raise ValueError(
            "threshold must be 0.5 in files of another library, which have no place for it, got "
            f"{options['threshold']}: set task.threshold = 0.5, and apply it where the model is used."
        )
    lost = [
        f"{name}={options[name]!r}"
        for name, default in _DEFAULTS.get(kind, {}).items()
        # the files of a cross-encoder say that it takes pairs
        if options[name] != default and not (name == "pairs" and len(task.labels) == 1)
    ]
    if lost:
        warn_user(
            f"Files of another library have no place for {', '.join(lost)}: give them to {kind}.from_preset again."
        )


def written_head(task: Any) -> dict[str, Any]:
    """Returns the layers of the head of a task as files of another library hold them.

    These have no place for the temperature that logits are divided by: kernel and bias of the last map are divided
    instead, which makes the same probabilities.

    Args:
        task: The task.

    Example:

    >>> model.temperature = 2.0
    >>> written_head(model)["projection"].kernel  # half of that in the model
    """
    layers, temperature = head_layers(task), task.options().get("temperature", 1.0)
    if temperature == 1:
        return layers
    last = layers["projection"]
    divided = {leaf: _Divided(variable_of(last, leaf), temperature) for leaf in leaves_of("projection", last)}
    return layers | {"projection": layer_view(**divided)}


class _Divided:
    """A weight of the last map of a head, divided by the temperature of the task.

    Args:
        variable: The weight.
        temperature: The temperature.
    """

    name = ""

    def __init__(self, variable: Any, temperature: float) -> None:
        self.variable, self.temperature = variable, temperature
        self.shape, self.dtype = tuple(variable.shape), variable.dtype

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        value = ops.convert_to_numpy(self.variable)
        # rounded once
        return (np.asarray(value, "float64") / self.temperature).astype(dtype or value.dtype)
