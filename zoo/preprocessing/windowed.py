"""Texts that are longer than the model, read in windows that overlap: what the preprocessors that do so share."""

from typing import Any

import numpy as np

from zoo.preprocessing.encoder import EncoderPreprocessor
from zoo.preprocessing.examples import Examples
from zoo.preprocessing.rows import require_count
from zoo.preprocessing.token_rows import added_count, checked_weights
from zoo.preprocessing.windows import Windows, make_windows


class WindowedPreprocessor(EncoderPreprocessor):
    """Single texts; a long text may become several rows, windows that overlap.

    A subclass defines `windows`.

    Args:
        tokenizer: The tokenizer; None for use on token level.
        stride: Tokens that neighbouring windows share, at most half of a window. None: there are no windows, and a text
            that is longer than the sequence is an error, or cut.
        **options: `sequence_length`, `truncate` and `segments`, see `EncoderPreprocessor`.

    Raises:
        ValueError: If an argument is out of range, or texts are both cut and read in windows.

    Reference:
        Devlin et al. 2019, "BERT", and its code (`doc_stride`).
    """

    def __init__(self, tokenizer: Any = None, *, stride: int | None = None, **options: Any) -> None:
        super().__init__(tokenizer, **options)
        self.stride: int | None = None if stride is None else require_count(stride, "stride", 0)
        if stride is not None and self.truncate:
            raise ValueError(f"truncate must be False with a stride, which reads texts of any length, got {stride=}.")

    # What a subclass defines.

    def windows(self, tokens: Any, targets: Any = None, weights: Any = None) -> tuple[Any, Any, Any, Any]:
        """Returns the windows of rows: their tokens, targets, weights, and the numbers of their rows, ascending.

        A graph function. Targets and weights that are None stay so, unless windows need weights of their own.

        Args:
            tokens: What `tokens` returned.
            targets: What `targets` returned, or None.
            weights: Weight of each row, `(rows,)`, or None.
        """
        raise NotImplementedError

    # What subclasses and tasks call.

    def make_windows(self, lengths: Any) -> Windows:
        """Returns which tokens each window holds; a graph function.

        Args:
            lengths: Tokens of each row, without added ones, `(rows,)`.

        Raises:
            ValueError: If neighbours would share more than half of a window.
        """
        import tensorflow as tf

        lengths = tf.cast(lengths, tf.int64)
        if self.sequence_length is None:
            return make_windows(lengths, tf.maximum(lengths, 1), tf.zeros_like(lengths))
        room = self.sequence_length - added_count(1, **self.special_tokens())
        if room < 1 or 2 * self.stride > room:
            raise ValueError(
                f"stride must be at most {max(room // 2, 0)}, half of the {room} tokens of a text that a sequence of "
                f"{self.sequence_length} holds, got {self.stride}."
            )
        return make_windows(lengths, tf.fill(tf.shape(lengths), np.int64(room)), tf.zeros_like(lengths) + self.stride)

    def check_lengths(self, x: Any, tokens: Any, lengths: np.ndarray, name: str) -> None:
        if self.stride is None:
            super().check_lengths(x, tokens, lengths, name)

    def rows(self, x: Any, name: str) -> Examples:
        """Returns rows for inference, or their windows, checked and tokenized; eager. Arguments as in the base."""
        return self._in_windows(super().rows(x, name))

    def examples(self, *arguments: Any, **options: Any) -> Examples:
        """Returns rows for training, or their windows, checked and tokenized; eager. Arguments as in the base."""
        return self._in_windows(super().examples(*arguments, **options))

    def _in_windows(self, rows: Examples) -> Examples:
        if self.stride is None:
            return rows
        tokens, targets, weights, row = self.windows(rows.tokens, rows.targets, rows.weights)
        return Examples(tokens, targets, weights, np.asarray(self.token_counts(tokens), "int64"), row.numpy())

    def inference_batch(self, x: Any) -> dict[str, Any]:
        """Returns token-level inputs of the rows, or windows, of a batch of strings; a graph function."""
        return self.inference_rows(x)[0]

    def inference_rows(self, x: Any) -> tuple[dict[str, Any], Any]:
        if self.stride is None:
            return super().inference_batch(x), None
        tokens, _, _, row = self.windows(self.tokens(x))
        return self.inputs(tokens), row

    def training_batch(self, x: Any, y: Any = None, sample_weight: Any = None, seed: Any = None) -> Any:
        """Returns token-level `(inputs, labels, sample_weight)` of the rows, or windows, of a batch of strings."""
        if self.stride is None:
            return super().training_batch(x, y, sample_weight, seed)
        parts = self.windows(self.tokens(x), self.targets(y), checked_weights(sample_weight))
        return self.collate(*parts[:3], seed)
