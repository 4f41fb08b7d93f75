"""Classes and options that the files of other libraries have no place for."""

from typing import Any

import numpy as np
from keras import ops

from zoo.backbones.transformer import Transformer
from zoo.huggingface.directory import head_layers
from zoo.huggingface.weights import layer_view, leaves_of, variable_of
from zoo.storage.user_warnings import warn_user

# what changes predictions, or stops them, and what the task is again when the files are read
_DEFAULTS = {
    "TextClassifier": {"stride": None},
    "TokenClassifier": {"stride": None, "split": "punctuation"},
    "QuestionAnswerer": {"stride": 128, "max_answer_length": 30, "no_answer_threshold": None},
    "TextEmbedder": {"training_prompts": None},
}


def require_own_classes(backbone: Any, task: Any = None) -> None:
    """Checks that a model computes what its configuration and the name of its task say, which is all that is written.

    A task of one's own that has a name of its own is written where a family has a head for it.

    Args:
        backbone: The backbone.
        task: Its task, if it has one.

    Raises:
        ValueError: If one of them is of a subclass of ours, which may compute something else.
    """
    bases = [base.__name__ for base in type(backbone).__mro__[1:]]
    if Transformer.__name__ in bases:
        _refuse("backbone", backbone, Transformer.__name__)
    name = type(task).__name__
    if name in [base.__name__ for base in type(task).__mro__[1:]]:
        _refuse("task", task, name)


def _refuse(what: str, part: Any, name: str) -> None:
    kind = type(part)
    raise ValueError(
        f"{what} must be a {name} itself in files of another library, which would compute without what a subclass "
        f"changes, got a {kind.__module__}.{kind.__qualname__}."
    )


def check_options(task: Any) -> None:
    """Checks that a task can be written for another library; what is left out is named in a warning.

    Args:
        task: The task.

    Raises:
        ValueError: If it has thresholds of its own.
    """
    options, kind, preprocessor = task.options(), type(task).__name__, type(task.preprocessor)
    if preprocessor is not task.preprocessor_class:
        warn_user(
            f"Files of another library have no place for the preprocessor {preprocessor.__name__}: do what it does to "
            "texts before the model that is read from them."
        )
    if not np.all(np.asarray(options.get("threshold", 0.5)) == 0.5):
        raise ValueError(
            "threshold must be 0.5 in files of another library, which cannot store it, got "
            f"{options['threshold']}: set task.threshold = 0.5, and apply it where the model is used."
        )
    lost = [
        f"{name}={options[name]!r}" for name, default in _DEFAULTS.get(kind, {}).items() if options[name] != default
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
