"""What tasks take on token level, and errors that say so."""

from collections.abc import Mapping
from typing import Any

import keras

from zoo.preprocessing.rows import is_dataset, shorten


def require_token_level(task: Any, x: Any, name: str) -> None:
    """Raises an error where something is neither texts nor token-level inputs.

    Args:
        task: The task, for its `input_names`.
        x: What the user passed: a dictionary, or what Keras takes batches of dictionaries from.
        name: Name of the argument.

    Raises:
        TypeError, ValueError: If it is something else, or an input is missing.
    """
    if is_dataset(x):
        x, *_ = keras.utils.unpack_x_y_sample_weight(x.element_spec)
    needed = ", ".join(task.input_names)
    if isinstance(x, Mapping):
        missing = [key for key in task.input_names if key not in x]
        is_group = any(key.endswith(f"_{task.input_names[0]}") for key in x)
        if missing and not is_group:
            raise ValueError(f"{name} must have the inputs {needed}; {missing[0]} is missing, got {sorted(x)}.")
        return
    if isinstance(x, keras.utils.PyDataset) or hasattr(x, "__next__") or type(x).__module__.startswith("torch."):
        return
    kind = type(task).__name__
    shape = getattr(x, "shape", None)
    what = f"{type(x).__name__} of shape {tuple(shape)}" if shape is not None else f"{type(x).__name__} {shorten(x)}"
    raise TypeError(
        f"{name} must be texts (fit, evaluate, predict) or a dictionary of {needed}, got {what}. "
        f"{kind}.preprocessor(texts) makes the dictionary."
    )


def require_labels(task: Any, x: Any, y: Any, name: str, y_name: str) -> None:
    """Raises a ValueError where token-level inputs come without labels.

    Args:
        task: The task.
        x, y: What the user passed.
        name, y_name: Names of the arguments.
    """
    if is_dataset(x):
        _, y, _ = keras.utils.unpack_x_y_sample_weight(x.element_spec)
        y_name = f"the labels of the dataset {name}"
    elif not isinstance(x, Mapping):
        return
    if y is None:
        raise ValueError(
            f"{y_name} must be given with token-level inputs, got None. preprocessor.training_batch() makes "
            "inputs, labels and weights."
        )
