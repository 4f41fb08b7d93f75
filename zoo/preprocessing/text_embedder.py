"""Groups of texts that belong together for training, single texts for use."""

from typing import Any

import keras
import numpy as np

from zoo.preprocessing.encoder import EncoderPreprocessor, check_groups
from zoo.preprocessing.labels import as_numbers
from zoo.preprocessing.rows import row_count
from zoo.preprocessing.token_rows import require_all

OBJECTIVES = ("in_batch_negatives", "cosine_regression")
PARTS = ("first", "second", "third")


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class TextEmbedderPreprocessor(EncoderPreprocessor):
    """Single texts for use, and groups of texts for training: each text is a row of tokens of its own.

    Args:
        tokenizer: The tokenizer; None for use on token level.
        objective: "in_batch_negatives": training rows are `(anchor, positive)` or `(anchor, positive, negative)`
            without targets. "cosine_regression": `(first, second)` with their similarity from -1 to 1.
        **options: `sequence_length`, `truncate` and `segments`, see `EncoderPreprocessor`.

    Raises:
        ValueError: If an argument is out of range.

    Example:

    >>> inputs, labels, weights = preprocessor.training_batch((questions, answers))
    >>> sorted(inputs)
    ['first_padding_mask', 'first_token_ids', 'second_padding_mask', 'second_token_ids']
    """

    trains_on_groups = True

    def __init__(self, tokenizer: Any = None, *, objective: str = "in_batch_negatives", **options: Any) -> None:
        super().__init__(tokenizer, **options)
        if objective not in OBJECTIVES:
            raise ValueError(f"objective must be one of {OBJECTIVES}, got {objective!r}.")
        self.objective = objective

    def options(self) -> dict[str, Any]:
        return {**super().options(), "objective": self.objective}

    def check_training_rows(self, x: Any, name: str) -> tuple[Any, ...]:
        """Returns groups of texts as string tensors."""
        return check_groups(x, name, (2, 3) if self.objective == "in_batch_negatives" else (2,))

    def check_targets(self, y: Any, x: Any, name: str, x_name: str) -> Any:
        """Returns similarities `(rows,)` for "cosine_regression"; arguments as in the base."""
        if self.objective == "in_batch_negatives":
            return super().check_targets(y, x, name, x_name)
        count = row_count(x)
        if y is None:
            raise ValueError(f"{name} must hold one similarity per row, got None for {count} in {x_name}.")
        values = as_numbers(y, count, 1, name, x_name)[:, 0]
        wrong = np.flatnonzero(np.abs(values) > 1)
        if len(wrong):
            raise ValueError(f"{name}[{wrong[0]}] must be a cosine from -1 to 1, got {values[wrong[0]]}.")
        return values

    def targets(self, y: Any) -> Any:
        import tensorflow as tf

        if self.objective == "in_batch_negatives":
            return super().targets(y)
        if y is None:
            raise ValueError(f"A dataset for {self.task_name} must hold (x, y), texts and similarities; got x alone.")
        y = tf.cast(y, tf.float32)
        return require_all(tf.abs(y) <= 1, y, "Every similarity must be a cosine from -1 to 1; rows and values:")

    def token_counts(self, tokens: Any) -> Any:
        """Returns the tokens of each text; for a group those of its longest."""
        import tensorflow as tf

        parts = tokens if isinstance(tokens, tuple) else (tokens,)
        return tf.reduce_max(tf.stack([super(TextEmbedderPreprocessor, self).token_counts(part) for part in parts]), 0)

    def check_lengths(self, x: Any, tokens: Any, lengths: np.ndarray, name: str) -> None:
        if not isinstance(tokens, tuple):
            return super().check_lengths(x, tokens, lengths, name)
        for index, (column, part) in enumerate(zip(x, tokens, strict=True)):
            self.check_fits(column, np.asarray(self.token_counts(part)), f"{name}[{index}]")
        return None

    def collate(self, tokens: Any, targets: Any, sample_weight: Any, seed: Any = None) -> tuple[Any, Any, Any]:
        """Returns inputs of groups of texts; labels are zeros where there are no targets."""
        import tensorflow as tf

        inputs = {
            f"{part}_{name}": value
            for part, ids in zip(PARTS, tokens, strict=False)
            for name, value in self.inputs(ids).items()
        }
        labels = tf.zeros(tf.stack([tokens[0].nrows()])) if targets is None else targets
        return inputs, labels, sample_weight
