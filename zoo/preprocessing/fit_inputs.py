"""Turns arguments of `fit`, `evaluate` and calls into those of Keras. Raw rows become batches, all else is checked."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from zoo.preprocessing import EVALUATION_SEED, Examples, Preprocessor
from zoo.preprocessing.datasets import batches_of, peek_first_batch, rows_of, token_batches, weigh_labels
from zoo.preprocessing.rows import batch_parts, is_dataset, is_raw, shorten

NAMES = ("x", "y", "sample_weight")


class FitInputs:
    """Turns what users pass into arguments of the methods of `keras.Model`.

    Raw rows (texts and other inputs of the preprocessor) become a dataset of token-level batches. Token-level inputs
    stay as they are. Errors name the argument.

    Args:
        preprocessor: Makes batches of raw rows.
        input_names: Names of the token-level inputs that the model needs.
    """

    def __init__(self, preprocessor: Preprocessor, input_names: Sequence[str]) -> None:
        self._preprocessor, self._input_names = preprocessor, tuple(input_names)

    def for_fit(
        self,
        x: Any,
        y: Any,
        sample_weight: Any,
        *,
        batch_size: int | None,
        class_weight: Mapping[Any, float] | None,
        validation_data: Any,
        validation_split: float,
        validation_batch_size: int | None,
        shuffle: bool,
        packed: bool | int,
    ) -> dict[str, Any]:
        """Returns the arguments of `keras.Model.fit`, given those of `TextModel.fit`."""
        held_size = validation_batch_size or batch_size
        if validation_data is not None:
            validation_data = self._validation(validation_data, held_size, packed)
        weights = None if class_weight is None else self._preprocessor.class_weights(class_weight)
        _require_some_weight("class_weight", weights)
        _require_some_weight("sample_weight", sample_weight)
        x, batch = peek_first_batch(x, "x")
        if is_raw(x if batch is None else self._inputs(batch)):
            if validation_split and (validation_data is not None or packed or is_dataset(x) or batch is not None):
                raise ValueError(
                    "validation_split must be 0 with a dataset, with packed texts or with validation_data, got "
                    f"{validation_split!r}."
                )
            if validation_split:
                x, held = self._preprocessor.examples(x, y, sample_weight).split(validation_split)
                self._warn_of_new_labels(x, held)
                _require_some_weight("sample_weight", x.weights)
                y = sample_weight = None
                validation_data = batches_of(self._preprocessor, held, held_size, seed=EVALUATION_SEED)
            options = {"packed": packed, "shuffle": shuffle, "class_weight": weights}
            x = self._batches((x, y, sample_weight), NAMES, batch_size, **options)
            return {
                "x": x,
                "validation_data": validation_data,
                # arrays on token level: all else has its batches
                "validation_batch_size": held_size if isinstance(validation_data, tuple) else None,
                "shuffle": False,
            }
        if packed:
            raise ValueError(f"packed={packed!r} needs texts, got {type(x).__name__} {shorten(x)}.")
        self._require_token_level_with_labels(x, y, batch)
        if weights is not None:
            given = sample_weight
            x, sample_weight = weigh_labels(self._preprocessor, x, y, given, weights)
            if validation_split and validation_data is None and sample_weight is not None:
                # Keras cuts the last rows off with their weights, and those of labels are for training
                _, held = weigh_labels(self._preprocessor, x, y, given, np.ones_like(weights))
                kept = int(np.floor(len(held) * (1 - validation_split)))
                sample_weight = np.concatenate([sample_weight[:kept], held[kept:]])
        return {
            "x": x,
            "y": y,
            "batch_size": batch_size,
            "sample_weight": sample_weight,
            "validation_data": validation_data,
            "validation_split": validation_split,
            "validation_batch_size": None if is_dataset(validation_data) else validation_batch_size,
            # the order of a generator is its own
            "shuffle": shuffle and not hasattr(x, "__next__"),
        }

    def for_evaluate(
        self, x: Any, y: Any, sample_weight: Any, *, batch_size: int | None, packed: bool | int
    ) -> dict[str, Any]:
        """Returns the arguments of `keras.Model.evaluate`, given those of `TextModel.evaluate`."""
        x, batch = peek_first_batch(x, "x")
        if is_raw(x if batch is None else self._inputs(batch)):
            return {"x": self._batches((x, y, sample_weight), NAMES, batch_size, packed=packed, seed=EVALUATION_SEED)}
        if packed:
            raise ValueError(f"packed={packed!r} needs texts, got {type(x).__name__} {shorten(x)}.")
        self._require_token_level_with_labels(x, y, batch)
        return {"x": x, "y": y, "batch_size": batch_size, "sample_weight": sample_weight}

    def for_one_batch(
        self, x: Any, y: Any, sample_weight: Any, seed: Any, class_weight: Mapping[Any, float] | None = None
    ) -> tuple[Any, Any, Any]:
        """Returns token-level `(inputs, labels, sample_weight)` of one batch.

        Args:
            x, y, sample_weight: A batch of raw rows, or on token level.
            seed: See `Preprocessor.collate`.
            class_weight: As for `TextModel.fit`.
        """
        weights = None if class_weight is None else self._preprocessor.class_weights(class_weight)
        if is_raw(x):
            rows = self._preprocessor.examples(x, y, sample_weight)
            batch = self._preprocessor.collate(*rows[:3], seed)
            x, y, sample_weight = keras.tree.map_structure(
                lambda part: None if part is None else np.asarray(part), batch
            )
        else:
            self._require_token_level_with_labels(x, y, None)
        if weights is not None:
            x, sample_weight = weigh_labels(self._preprocessor, x, y, sample_weight, weights)
        return x, y, sample_weight

    def for_predict(self, x: Any) -> tuple[Any, bool]:
        """Returns the inputs of `TextModel.predict`, and whether they are raw rows.

        Args:
            x: What the user passed. A dataset, a generator or a `PyDataset` of raw rows becomes lists.
        """
        x, batch = peek_first_batch(x, "x")
        first = x if batch is None else self._inputs(batch)
        if not is_raw(first):
            self.require_token_level(first, "x" if batch is None else "each batch of x")
            return x, False
        return (rows_of(self._preprocessor, x) if batch is not None or is_dataset(x) else x), True

    def require_token_level(self, x: Any, name: str) -> None:
        """Raises an error if a value is neither raw rows nor token-level inputs.

        Args:
            x: What the user passed: a dictionary, or what Keras takes batches of dictionaries from.
            name: Name of the argument.

        Raises:
            TypeError, ValueError: If it is something else, or an input is missing.
        """
        if is_dataset(x):
            x, *_ = keras.utils.unpack_x_y_sample_weight(x.element_spec)
        needed = ", ".join(self._input_names)
        if isinstance(x, Mapping):
            missing = [key for key in self._input_names if key not in x]
            is_group = any(key.endswith(f"_{self._input_names[0]}") for key in x)
            if missing and not is_group:
                raise ValueError(f"{name} must have the inputs {needed}; {missing[0]} is missing, got {sorted(x)}.")
            return
        if type(x).__module__.startswith("torch."):
            return
        shape = getattr(x, "shape", None)
        what = (
            f"{type(x).__name__} of shape {tuple(shape)}" if shape is not None else f"{type(x).__name__} {shorten(x)}"
        )
        raise TypeError(
            f"{name} must be texts (fit, evaluate, predict) or a dictionary of {needed}, got {what}. "
            "model.preprocessor(texts) makes the dictionary."
        )

    def _require_token_level_with_labels(self, x: Any, y: Any, batch: Any) -> None:
        """Raises an error where something is no token-level inputs, or comes without labels.

        Args:
            x, y: What the user passed.
            batch: The first batch of a generator or `PyDataset`, or None.
        """
        name, y_name = "x", "y"
        if batch is not None:
            x, y, *_ = keras.utils.unpack_x_y_sample_weight(batch)
            name, y_name = "each batch of x", "the labels of each batch of x"
        elif is_dataset(x):
            x, y, _ = keras.utils.unpack_x_y_sample_weight(x.element_spec)
            y_name = "the labels of the dataset x"
        self.require_token_level(x, name)
        if y is None and isinstance(x, Mapping):
            raise ValueError(
                f"{y_name} must be given with token-level inputs, got None. preprocessor.training_batch() makes "
                "inputs, labels and weights."
            )

    def _batches(
        self,
        data: tuple[Any, Any, Any],
        names: Sequence[str],
        batch_size: int | None,
        *,
        packed: bool | int = False,
        shuffle: bool = False,
        seed: Any = None,
        class_weight: np.ndarray | None = None,
    ) -> Any:
        """Token-level batches of `(x, y, sample_weight)`, raw as users pass them, or checked."""
        x, y, sample_weight = data
        preprocessor, options = self._preprocessor, {"seed": seed, "class_weight": class_weight}
        preprocessor.require_tokenizer("Text input")
        if packed and not preprocessor.packs_texts:
            raise ValueError(
                f"packed must be False: only a CausalLM learns from texts end to end, got {packed!r} for a "
                f"{preprocessor.task_name}."
            )
        if packed:
            if y is not None:
                raise ValueError(
                    f"{names[1]} must be None with packed texts, which are their own labels, got {shorten(y)}."
                )
            length = None if packed is True else packed
            weights = {"sample_weight": sample_weight, "shuffle": shuffle, "names": (names[0], names[2])}
            return preprocessor.packed_dataset(x, batch_size, length, **weights)
        if not (is_dataset(x) or hasattr(x, "__next__") or isinstance(x, keras.utils.PyDataset)):
            rows = x if isinstance(x, Examples) else preprocessor.examples(x, y, sample_weight, names)
            return batches_of(preprocessor, rows, batch_size, shuffle=shuffle, **options)
        for name, value in zip(names[1:], (y, sample_weight), strict=True):
            if value is not None:
                raise ValueError(
                    f"{name} must be None where {names[0]} is a dataset, which holds it, got {shorten(value)}."
                )
        if is_dataset(x):
            return batches_of(preprocessor, x, batch_size, **options)
        if batch_size is not None:
            raise ValueError(f"batch_size must be None where {names[0]} yields batches already, got {batch_size}.")
        if getattr(x, "use_multiprocessing", False):
            raise ValueError(
                f"{names[0].removesuffix('[0]')} must have use_multiprocessing=False: it holds texts, which TensorFlow "
                "tokenizes, and a forked process has none of its threads. workers above 1 are threads then."
            )
        return token_batches(preprocessor, x, **options)

    def _validation(self, data: Any, batch_size: int | None, packed: bool | int) -> Any:
        """`validation_data` as Keras takes it."""
        names = tuple(f"validation_data[{index}]" for index in range(3))
        options = {"packed": packed, "seed": EVALUATION_SEED}
        data, batch = peek_first_batch(data, "validation_data")
        if batch is not None or is_dataset(data):
            is_text = is_raw(data if batch is None else self._inputs(batch))
            return self._batches((data, None, None), names, batch_size, **options) if is_text else data
        parts = data
        first = data[0] if isinstance(data, tuple) and data else None
        if not isinstance(data, tuple) or isinstance(first, (str, bytes)):
            parts = (data,)
        elif self._preprocessor.trains_on_groups and is_raw(first):
            # a column of texts alone is no input
            is_groups = isinstance(first, tuple) or (isinstance(first, list) and first and isinstance(first[0], tuple))
            parts = parts if is_groups else (data,)
        if not 1 <= len(parts) <= 3:
            raise ValueError(f"validation_data must be (x, y) or (x, y, sample_weight), got {len(parts)} entries.")
        if not is_raw(parts[0]):
            return data
        return self._batches((*parts, *[None] * (3 - len(parts))), names, batch_size, **options)

    def _warn_of_new_labels(self, kept: Examples, held: Examples) -> None:
        """Warns where the rows cut off for validation have labels that no row for training has, as in sorted data."""
        labels = getattr(self._preprocessor, "labels", None)
        if labels is None or getattr(self._preprocessor, "problem", None) == "regression":
            return
        new = np.setdiff1d(_label_ids(held.targets), _label_ids(kept.targets))
        if len(new):
            names = [labels[label] for label in new]
            warnings.warn(
                f"validation_split cuts off the last rows, and no row for training has the labels {shorten(names)} of "
                "these: shuffle the rows before, or pass validation_data.",
                stacklevel=4,
            )

    def _inputs(self, batch: Any) -> Any:
        """The inputs of what a generator or a `PyDataset` yields."""
        return batch_parts(batch, self._preprocessor.row_rank)[0]


def _label_ids(targets: Any) -> np.ndarray:
    """The ids of labels: one a row, zeros and ones `(rows, labels)`, or one a word, ragged."""
    values = np.asarray(getattr(targets, "flat_values", targets))
    return np.flatnonzero(values.any(axis=0)) if values.ndim == 2 else values


def _require_some_weight(name: str, weights: Any) -> None:
    """Raises an error if no row would train, because all have the weight 0."""
    try:
        values = np.asarray(weights, "float64")
    except (TypeError, ValueError):
        return  # what is no number has an error of its own, which names the row
    if weights is not None and values.size and not values.any():
        raise ValueError(
            f"{name} must be above 0 for some of the rows for training, got 0 for all {values.size}: nothing would be "
            "learned."
        )
