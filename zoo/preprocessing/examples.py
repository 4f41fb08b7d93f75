"""Rows that were checked and tokenized once: how they are made of what users pass, and taken in batches."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from zoo.preprocessing.rows import as_weights, row_count, take_rows

# Texts are tokenized this many at a time where a user passed them all.
TOKENIZED_AT_ONCE = 4096


class Examples(NamedTuple):
    """Rows that were checked and tokenized.

    Args:
        tokens: The result of `Preprocessor.tokens`: ragged tensors with one row per example.
        targets: The result of `Preprocessor.targets`; None for none.
        weights: Weight of each row, float32 `(rows,)`; None for none.
        lengths: Number of tokens of each row, int64 `(rows,)`, at most the model's longest row.
        groups: If several rows were made from one row of the user, the index of that row, ascending, int64 `(rows,)`.
    """

    tokens: Any
    targets: Any
    weights: Any
    lengths: np.ndarray
    groups: np.ndarray | None = None

    def take(self, rows: Any) -> "Examples":
        """Returns some of the rows.

        Args:
            rows: Their numbers.
        """
        parts = take_rows((self.tokens, self.targets, self.weights), rows)
        rows = np.asarray(rows)
        return Examples(*parts, self.lengths[rows], None if self.groups is None else self.groups[rows])

    def split(self, share: float) -> tuple["Examples", "Examples"]:
        """Cuts off the last rows, as Keras does for arrays.

        Args:
            share: Share of the rows to cut off, above 0 and below 1.

        Returns:
            The rows that stay, and those cut off.

        Raises:
            ValueError: If it is out of range, or leaves no row on one of the sides.
        """
        if not 0 < share < 1:
            raise ValueError(f"validation_split must be at least 0 and below 1, got {share!r}.")
        count = len(self.lengths) if self.groups is None else int(self.groups[-1]) + 1
        kept = int(np.floor(count * (1 - share)))
        if not 0 < kept < count:
            raise ValueError(
                f"validation_split={share!r} of {count} rows leaves {kept} for training and {count - kept} for "
                "validation: both need at least one."
            )
        if self.groups is not None:  # rows of one group stay on one side
            kept, count = int(np.searchsorted(self.groups, kept)), len(self.lengths)
        return self.take(np.arange(kept)), self.take(np.arange(kept, count))


class RowReader:
    """Checks and tokenizes what users pass; eager.

    Args:
        preprocessor: Knows what a row is.
    """

    def __init__(self, preprocessor: Any) -> None:
        self._preprocessor = preprocessor

    def rows(self, x: Any, name: str) -> Examples:
        """Returns rows for inference, checked and tokenized; eager.

        Args:
            x: What the user passed.
            name: Name of the argument.

        Raises:
            TypeError, ValueError: If a row is wrong or too long, naming it.
        """
        preprocessor = self._preprocessor
        return self._tokenized(preprocessor.check_rows(x, name), name, preprocessor.tokens, preprocessor.token_counts)

    def examples(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        names: tuple[str, str, str] = ("x", "y", "sample_weight"),
    ) -> Examples:
        """Returns rows for training, checked and tokenized; eager.

        Args:
            x, y, sample_weight: What the user passed.
            names: Names of the three arguments.

        Raises:
            TypeError, ValueError: If a row is wrong or too long, naming it.
        """
        preprocessor = self._preprocessor
        preprocessor.require_tokenizer("Text input")
        x = preprocessor.check_training_rows(x, names[0])
        count = row_count(x)
        if not count:
            raise ValueError(f"{names[0]} must hold at least one text, got none.")
        rows = self._tokenized(x, names[0], preprocessor.training_tokens, preprocessor.training_counts)
        targets = preprocessor.targets(preprocessor.check_targets(y, x, names[1], names[0]))
        weights = None if sample_weight is None else as_weights(sample_weight, count, names[2])
        return rows._replace(targets=targets, weights=weights)

    def check_fits(
        self, x: Any, lengths: np.ndarray, name: str, truncate: bool | None = None, hint: str | None = None
    ) -> None:
        """Raises a ValueError that names the first row that is too long, unless such rows are cut.

        Args:
            x: Checked inputs.
            lengths: Number of tokens of each row.
            name: Name of the argument.
            truncate: Whether they are cut. Default as the preprocessor does it.
            hint: What to do about such a row. Default what the preprocessor says.
        """
        preprocessor = self._preprocessor
        longest = preprocessor.sequence_length
        if longest is None or (preprocessor.truncate if truncate is None else truncate):
            return
        too_long = np.flatnonzero(lengths > longest)
        if len(too_long):
            row = int(too_long[0])
            raise ValueError(
                f"{name}[{row}] has {lengths[row]} tokens with its {preprocessor.added_tokens}, the model takes at "
                f"most max_length={longest} ({len(too_long)} of {len(lengths)} rows are too long): "
                f"{_shown(x, row)}. {preprocessor.truncation_hint if hint is None else hint}"
            )

    def _tokenized(
        self, x: Any, name: str, tokenize: Callable[[Any], Any], count_tokens: Callable[[Any], Any]
    ) -> Examples:
        import tensorflow as tf

        self._preprocessor.require_tokenizer("Text input")
        count = row_count(x)
        starts = range(0, max(count, 1), TOKENIZED_AT_ONCE)
        parts = [tokenize(take_rows(x, tf.range(start, min(start + TOKENIZED_AT_ONCE, count)))) for start in starts]
        tokens = parts[0] if len(parts) == 1 else tf.nest.map_structure(lambda *part: tf.concat(part, 0), *parts)
        lengths = np.asarray(count_tokens(tokens), "int64")
        self._preprocessor.check_lengths(x, tokens, lengths, name)
        longest = self._preprocessor.sequence_length
        return Examples(tokens, None, None, lengths if longest is None else np.minimum(lengths, longest))


def _shown(x: Any, row: int) -> str:
    """The beginning of one row of checked inputs, as an error shows it."""
    import tensorflow as tf

    return _readable(tf.nest.flatten(take_rows(x, [row]))[0][0].numpy())


def _readable(row: Any) -> str:
    if isinstance(row, bytes):
        return repr(row.decode("utf-8", "replace")[:80])
    return "[" + ", ".join(_readable(word) for word in row[:20]) + "]"
