"""Texts or pairs of texts with labels, and labels of probabilities."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from zoo.preprocessing.encoder import check_groups
from zoo.preprocessing.labels import Labels, as_numbers
from zoo.preprocessing.rows import require_count, row_count, shorten
from zoo.preprocessing.token_rows import require_all
from zoo.preprocessing.windowed import WindowedPreprocessor
from zoo.preprocessing.windows import take_window

PROBLEMS = ("single_label", "multi_label", "regression")


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class TextClassifierPreprocessor(WindowedPreprocessor):
    """Preprocessing of text classification and regression: texts, or pairs of texts, with labels or numbers.

    With a `stride`, a text that does not fit becomes several rows, its overlapping windows. In training, each window
    has the label of the text. The weights of the windows of a text sum to the weight of the text.

    Args:
        tokenizer: The tokenizer; None for use on token level.
        labels: The names of the labels; or their number, for labels 0, 1, ...; or the number of values per text of a
            regression.
        problem: "single_label", "multi_label" (each label holds or not) or "regression".
        pairs: Whether each row is a pair of texts.
        pair_separators: Number of end tokens between the texts of a pair: 1 in BERT, 2 in RoBERTa.
        **options: `stride` (of single texts), see `WindowedPreprocessor`; `sequence_length`, `truncate` and `segments`,
            see `EncoderPreprocessor`.

    Raises:
        ValueError: If an argument is out of range.

    Example:

    >>> preprocessor = TextClassifierPreprocessor(tokenizer, labels=["bad", "good"])
    >>> inputs, labels, weights = preprocessor(["a fine film", "dull"], ["good", "bad"])
    >>> labels.numpy()
    array([1, 0], dtype=int32)
    """

    argument_attributes = {"labels": "labels.option"}

    def __init__(
        self,
        tokenizer: Any = None,
        *,
        labels: int | Sequence[str],
        problem: str = "single_label",
        pairs: bool = False,
        pair_separators: int = 1,
        **options: Any,
    ) -> None:
        super().__init__(tokenizer, **options)
        if problem not in PROBLEMS:
            raise ValueError(f"problem must be one of {PROBLEMS}, got {problem!r}.")
        self.labels = Labels(labels, lowest=2 if problem == "single_label" else 1)
        self.problem, self.pairs = problem, bool(pairs)
        if self.pairs:
            self.text_names = ("first_texts", "second_texts")
        self.pair_separators = require_count(pair_separators, "pair_separators")
        if self.pairs and self.stride is not None:
            raise ValueError(f"stride must be None with pairs of texts, which have no windows, got {self.stride}.")

    def check_rows(self, x: Any, name: str) -> Any:
        if self.pairs:
            return check_groups(x, name)
        if isinstance(x, tuple) and x and not isinstance(x[0], (str, bytes)):
            raise TypeError(
                f"{name} must be a list of texts, got a tuple of {len(x)}; pairs of texts need a classifier with "
                "pairs=True."
            )
        return super().check_rows(x, name)

    def check_targets(self, y: Any, x: Any, name: str, x_name: str) -> Any:
        """Returns label ids `(rows,)`, zeros and ones or values `(rows, labels)`; arguments as in the base."""
        count = row_count(x)
        if y is None:
            raise ValueError(f"{name} must hold one label per row, got None for {count} in {x_name}.")
        if self.problem == "single_label":
            return self.labels.ids(y, count, name, x_name)
        if self.problem == "multi_label":
            return self.labels.indicators(y, count, name, x_name)
        return as_numbers(y, count, len(self.labels), name, x_name)

    def targets(self, y: Any) -> Any:
        """Returns label ids `(batch,)` of ids or names; zeros and ones, or values, `(batch, labels)`."""
        import tensorflow as tf

        if y is None:
            raise ValueError(f"A dataset for {self.task_name} must hold (x, y), texts and labels; got x alone.")
        if self.problem == "multi_label":
            return self.labels.graph_indicators(y)
        if self.problem == "single_label":
            y = y if isinstance(y, tf.RaggedTensor) else tf.convert_to_tensor(y)
            # readers of CSV files give a column
            if y.shape.rank == 2 and y.shape[1] == 1:
                y = y[:, 0]
            if y.shape.rank != 1:
                raise ValueError(
                    f"A dataset for {self.task_name} must hold one label per text, of the shape (batch,), got "
                    f"{tuple(y.shape)}."
                )
            return self.labels.graph_ids(y)
        y = tf.cast(y, tf.float32)
        if y.shape.rank == 1 and len(self.labels) == 1:
            y = y[:, tf.newaxis]
        y = tf.ensure_shape(y, (None, len(self.labels)))
        return require_all(tf.math.is_finite(y), y, "Every target must be finite; rows, values and targets:")

    def windows(self, tokens: Any, targets: Any = None, weights: Any = None) -> tuple[Any, Any, Any, Any]:
        import tensorflow as tf

        windows = self.make_windows(tokens.row_lengths())
        row = windows.row
        if targets is not None:
            targets = tf.gather(targets, row)
            # a long text counts as much as a short one
            count = tf.math.unsorted_segment_sum(tf.ones_like(row, tf.float32), row, tokens.nrows())
            weights = tf.gather((1.0 if weights is None else weights) / count, row)
        return take_window(tokens, windows), targets, weights, row

    def collate(self, tokens: Any, targets: Any, sample_weight: Any, seed: Any = None) -> tuple[Any, Any, Any]:
        return self.inputs(tokens), targets, sample_weight

    def class_weights(self, weights: Mapping[Any, float]) -> np.ndarray:
        if self.problem == "multi_label":
            raise ValueError(
                "class_weight must be None where a text may have several labels, got "
                f"{shorten(weights)}: compile with zoo.training.WeightedBinaryCrossEntropy."
            )
        if self.problem != "single_label":
            return super().class_weights(weights)
        return self.labels.weights(weights, "class_weight")

    def labels_of(self, values: np.ndarray, threshold: float | Sequence[float] = 0.5) -> list[Any]:
        """Returns the prediction of each row, from probabilities or the values of a regression.

        Args:
            values: `(rows, labels)`.
            threshold: With several labels per text, the lowest probability at which a label holds: one number, or one
                per label.

        Returns:
            For each row its label (the name, or the number if labels have no names), a list of labels, or the value or
            values of a regression.
        """
        if self.problem == "regression":
            return values[:, 0].tolist() if len(self.labels) == 1 else values.tolist()
        if self.problem == "multi_label":
            holds = values >= np.asarray(threshold, "float32")
            return [[self.labels[index] for index in np.flatnonzero(row)] for row in holds]
        return [self.labels[index] for index in values.argmax(axis=-1)]
