"""Words with a label each, and labels and entities of probabilities."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from zoo.columns import is_list, listed
from zoo.preprocessing.examples import Examples
from zoo.preprocessing.labels import Labels
from zoo.preprocessing.rows import (
    as_sequence,
    as_text,
    as_texts,
    require_same_length,
    row_count,
    shorten,
    string_tensor,
)
from zoo.preprocessing.tags import (
    OUTSIDE,
    Entity,
    are_spans,
    joined_spans,
    mark_entities,
    places_in_texts,
    span_tags,
)
from zoo.preprocessing.text_places import first_tokens
from zoo.preprocessing.token_rows import added_count, padded_length
from zoo.preprocessing.windowed import WindowedPreprocessor
from zoo.preprocessing.windows import take_window
from zoo.preprocessing.words import SPLITS, split_words
from zoo.tokenizers.tensors import row_ids


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class TokenClassifierPreprocessor(WindowedPreprocessor):
    """Preprocessing of token classification: texts as words with a label each.

    A text is tokenized as a whole, and each word of a list separately. The first token of a word represents it. In
    scripts without spaces a token may hold several words; in training, the label of the first counts. A word without
    tokens in the model's input (only control characters, or cut off by `truncate`) does not count. With a `stride`, a
    text that does not fit becomes several rows, its overlapping windows. A word belongs to the window in which its
    first token has the most context on both sides.

    Args:
        tokenizer: The tokenizer; None for use on token level.
        labels: The names of the labels, or their number.
        split: How texts are split into words: "punctuation", "space", "kinds", "symbols" or "letters", see
            `split_words`.
        **options: `stride`, see `WindowedPreprocessor`; `sequence_length`, `truncate` and `segments`, see
            `EncoderPreprocessor`.

    Raises:
        ValueError: If an argument is out of range.

    Example:

    >>> preprocessor = TokenClassifierPreprocessor(tokenizer, labels=["O", "B-PER", "I-PER"])
    >>> preprocessor([["Ada", "Lovelace", "wrote"]])["word_positions"][0, :3].numpy()
    array([1, 2, 4], dtype=int32)
    """

    row_rank = 1

    argument_attributes = {"labels": "labels.option"}

    def __init__(
        self, tokenizer: Any = None, *, labels: int | Sequence[str], split: str = "punctuation", **options: Any
    ) -> None:
        super().__init__(tokenizer, **options)
        self.labels = Labels(labels, lowest=2)
        if split not in SPLITS:
            raise ValueError(f"split must be one of {SPLITS}, got {split!r}.")
        self.split = split

    @property
    def outside(self) -> int:
        """Index of the label of words without tokens in the input: "O", or the first label if there is no "O"."""
        names = self.labels.names or []
        return names.index(OUTSIDE) if OUTSIDE in names else 0

    def check_rows(self, x: Any, name: str) -> Any:
        """Returns texts as a string tensor `(rows,)`, or words as a ragged one `(rows, None)`."""
        import tensorflow as tf

        rows = as_sequence(x, name, "lists of words")
        if all(isinstance(row, (str, bytes)) for row in rows):
            return string_tensor(as_texts(rows, name))
        flat, lengths = [], []
        for index, row in enumerate(rows):
            if not _is_list(row):
                raise TypeError(f"{name}[{index}] must be a list of words like other rows, got {shorten(row)}.")
            flat += [as_text(word, f"{name}[{index}][{position}]") for position, word in enumerate(row)]
            lengths.append(len(row))
        return tf.RaggedTensor.from_row_lengths(string_tensor(flat), tf.constant(lengths, tf.int64))

    def examples(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        names: tuple[str, str, str] = ("x", "y", "sample_weight"),
    ) -> Examples:
        """Returns rows for training, checked and tokenized; eager. Arguments as in the base.

        Of texts that are not split into words, `y` may also hold lists of spans, see `span_tags`.
        """
        x, y = listed(x), listed(y)
        if are_spans(x, y):
            y = span_tags(x, y, self.split, names[1], names[0])
        return super().examples(x, y, sample_weight, names)

    def check_targets(self, y: Any, x: Any, name: str, x_name: str) -> Any:
        """Returns label ids as a ragged tensor with the row lengths of the words; arguments as in the base."""
        import tensorflow as tf

        count, x = row_count(x), self.words(x)
        if y is None:
            raise ValueError(f"{name} must hold one list of labels per row of {x_name}, got none.")
        rows = as_sequence(y, name, "lists of labels")
        require_same_length(count, len(rows), x_name, name, "list of labels")
        ids = []
        for index, (labels, words) in enumerate(zip(rows, x.row_lengths().numpy(), strict=True)):
            if not _is_list(labels):
                raise TypeError(f"{name}[{index}] must be a list of labels, one per word, got {shorten(labels)}.")
            if len(labels) != words:
                raise ValueError(
                    f"{name}[{index}] must hold one label per word, got {len(labels)} labels for the {words} words of "
                    f"{x_name}[{index}]."
                )
            ids += [self.labels.class_of(label, f"{name}[{index}][{place}]") for place, label in enumerate(labels)]
        return x.with_values(tf.constant(ids, tf.int32, shape=(len(ids),)))

    def tokens(self, x: Any) -> dict[str, Any]:
        """Returns ragged "ids" `(batch, None)`, and for each word, `(batch, words)`, the "first" token and the "begin".

        Both count the tokens of the text from 0. "begin" is the number of tokens before the word, and "first" the same,
        or the largest integer for a word without tokens.

        Args:
            x: Texts, `(batch,)`, or words, `(batch, None)`.

        Raises:
            ValueError: If the shape is another.
        """
        import tensorflow as tf

        if not isinstance(x, tf.RaggedTensor):
            x = tf.convert_to_tensor(x)
        if x.shape.rank == 1:
            ids, starts, ends = self.text_tokens(x)
            _, *places = split_words(x, self.split)
            first, begin = first_tokens(self._without_blanks(ids, starts, ends), *places)
            return {"ids": ids, "first": first, "begin": begin}
        x = self._lists(x, "words")
        ids, word_ids = self.require_tokenizer("Text input").tokenize_words(x)
        places = tf.ragged.range(tf.cast(ids.row_lengths(), tf.int32)).values
        words = tf.gather(x.row_starts(), row_ids(ids.row_splits)) + tf.cast(word_ids.values, tf.int64)
        count = tf.size(x.values, out_type=tf.int64)
        first = tf.math.unsorted_segment_min(places, words, count)
        before = tf.cumsum(tf.math.unsorted_segment_sum(tf.ones_like(words), words, count), exclusive=True)
        begin = before - tf.gather(tf.cast(ids.row_starts(), tf.int64), row_ids(x.row_splits))
        return {"ids": ids, "first": x.with_values(first), "begin": x.with_values(begin)}

    def words(self, x: Any) -> Any:
        """Returns the words of what `check_rows` returned, ragged `(batch, None)`; a graph function.

        Args:
            x: Texts, `(batch,)`, or words, `(batch, None)`.
        """
        return split_words(x, self.split)[0] if x.shape.rank == 1 else x

    def text_tokens(self, texts: Any) -> tuple[Any, Any, Any]:
        """Returns the ids of texts that are tokenized as a whole, and where each token starts and ends in bytes.

        Args:
            texts: `(batch,)`.

        Returns:
            Ragged `(ids, starts, ends)`, `(batch, None)`.
        """
        return self.require_tokenizer("Text input").tokenize_with_offsets(texts, unit="bytes")

    def of_single_tokens(self, ids: Any) -> dict[str, Any]:
        """Returns what `tokens` returns, with each token in the place of a word; a graph function.

        Args:
            ids: Ragged ids of texts, `(batch, None)`.
        """
        import tensorflow as tf

        number = tf.ragged.range(tf.cast(ids.row_lengths(), tf.int64))
        return {"ids": ids, "first": ids.with_values(tf.cast(number.values, tf.int32)), "begin": number}

    def rows_of_tokens(self, x: Any, ids: Any, name: str) -> Examples:
        """Returns rows for inference with a label for each token; eager.

        Args:
            x: Texts, `(rows,)`.
            ids: Their ragged ids.
            name: Name of the argument.
        """
        tokens = self.of_single_tokens(ids)
        lengths = np.asarray(self.token_counts(tokens), "int64")
        self.check_lengths(x, tokens, lengths, name)
        longest = self.sequence_length
        rows = Examples(tokens, None, None, lengths if longest is None else np.minimum(lengths, longest))
        return self._in_windows(rows)

    def windows(self, tokens: Any, targets: Any = None, weights: Any = None) -> tuple[Any, Any, Any, Any]:
        """Returns windows as in the base; each has the words of its own, so that those of a row follow each other."""
        import tensorflow as tf

        lengths, first, begin = tokens["ids"].row_lengths(), tokens["first"], tokens["begin"]
        windows = self.make_windows(lengths)
        # the window whose own tokens a word begins in: the last of its row that has them begin no later
        size = tf.reduce_max(tf.concat([lengths, [0]], axis=0)) + 1
        borders = windows.row * size + windows.first + windows.own_first
        places = row_ids(first.row_splits) * size + begin.values
        window = tf.searchsorted(borders, places, side="right", out_type=tf.int64) - 1
        count = tf.size(windows.row, out_type=tf.int64)

        def of_windows(values: Any) -> Any:
            return tf.RaggedTensor.from_value_rowids(values, window, count, validate=False)

        moved = first.values - tf.cast(tf.gather(windows.first, window), first.dtype)
        places = {"first": of_windows(tf.where(first.values == first.dtype.max, first.dtype.max, moved))}
        if targets is not None:
            with tf.control_dependencies(_require_one_per_word(first, targets)):
                targets = of_windows(tf.identity(targets.values))
        if weights is not None:
            weights = tf.gather(weights, windows.row)
        return {"ids": take_window(tokens["ids"], windows), **places}, targets, weights, windows.row

    def token_counts(self, tokens: dict[str, Any]) -> Any:
        return tokens["ids"].row_lengths() + added_count(1, **self.special_tokens())

    def targets(self, y: Any) -> Any:
        if y is None:
            raise ValueError(f"A dataset for {self.task_name} must hold (x, y), words and labels; got x alone.")
        y = self._lists(y, "labels")
        return y.with_values(self.labels.graph_ids(y.values))

    def _without_blanks(self, ids: Any, starts: Any, ends: Any) -> tuple[Any, Any]:
        """Where tokens start and end; those of spaces alone are empty, as the text may lack these spaces."""
        import tensorflow as tf

        is_space = tf.gather(tf.constant(self.tokenizer.is_space), ids.values)
        return starts, ends.with_values(tf.where(is_space, starts.values, ends.values))

    def _lists(self, rows: Any, what: str) -> Any:
        """Rows of a dataset, which are ragged only where their lengths differ or are not known, as a ragged tensor."""
        import tensorflow as tf

        if isinstance(rows, tf.RaggedTensor):
            return rows
        rows = tf.convert_to_tensor(rows)
        if rows.shape.rank != 2:
            raise ValueError(
                f"A dataset for {self.task_name} must hold lists of {what}, of the shape (batch, None), got "
                f"{tuple(rows.shape)}."
            )
        return tf.RaggedTensor.from_tensor(rows)

    def inputs(self, tokens: dict[str, Any]) -> dict[str, Any]:
        """Returns token-level inputs of words, with the position of each word's first token, -1 for none."""
        import tensorflow as tf

        inputs = super().inputs(tokens["ids"])
        special, first = self.special_tokens(), tokens["first"]
        before = int(special["start_id"] is not None)
        reached = first.dtype.max
        if self.truncate and self.sequence_length is not None:
            reached = self.sequence_length - before - int(special["end_id"] is not None)
        positions = first.with_values(tf.where(first.values < reached, first.values + before, -1))
        width = padded_length(tf.reduce_max(tf.concat([first.row_lengths(), [1]], axis=0)))
        inputs["word_positions"] = positions.to_tensor(-1, shape=tf.stack([-1, width]))
        return inputs

    def collate(
        self, tokens: dict[str, Any], targets: Any, sample_weight: Any, seed: Any = None
    ) -> tuple[Any, Any, Any]:
        """Returns inputs, labels and weights of words; `labels` and `weights` `(batch, words)`."""
        import tensorflow as tf

        with tf.control_dependencies(_require_one_per_word(tokens["first"], targets)):
            inputs = self.inputs(tokens)
        positions = inputs["word_positions"]
        labels = targets.to_tensor(0, shape=tf.stack([-1, tf.shape(positions, out_type=tf.int64)[1]]))
        # of several words of one token, the first has its label
        before = tf.pad(positions[:, :-1], [[0, 0], [1, 0]], constant_values=-1)
        weights = tf.cast((positions >= 0) & (positions != before), tf.float32)
        if sample_weight is not None:
            weights *= tf.cast(sample_weight, tf.float32)[:, tf.newaxis]
        return inputs, labels, weights

    def class_weights(self, weights: Mapping[Any, float]) -> np.ndarray:
        return self.labels.weights(weights, "class_weight")

    def labels_of(self, rows: Sequence[np.ndarray]) -> list[list[Any]]:
        """Returns the label of each word.

        Args:
            rows: Probabilities of each text's words, `(words, labels)`.
        """
        return [[self.labels[index] for index in row.argmax(axis=-1)] for row in rows]

    def entities(self, texts: Any, rows: Sequence[np.ndarray]) -> list[list[Entity]]:
        """Returns the entities that tags mark.

        Args:
            texts: What `check_rows` takes.
            rows: Probabilities of each text's words, `(words, labels)`.
        """
        texts = as_sequence(texts, "texts", "lists of words")
        if all(isinstance(text, (str, bytes)) for text in texts):
            whole = as_texts(texts, "texts")
            spans = places_in_texts(whole, self.split)
            whole = [text.decode("utf-8", "replace") for text in whole]
        else:
            words = [[as_text(word, "texts").decode("utf-8", "replace") for word in row] for row in texts]
            whole, spans = [" ".join(row) for row in words], [joined_spans(row) for row in words]
        return [
            mark_entities(text, places, tags, values.max(axis=-1, initial=0.0))
            for text, places, tags, values in zip(whole, spans, self.labels_of(rows), rows, strict=True)
        ]


def _require_one_per_word(words: Any, labels: Any) -> list[Any]:
    import tensorflow as tf

    check = tf.debugging.assert_equal(
        words.row_lengths(),
        labels.row_lengths(),
        "There must be one label per word; row lengths of words and of labels:",
    )
    return [] if check is None else [check]


def _is_list(row: Any) -> bool:
    return is_list(row) or (isinstance(row, np.ndarray) and row.ndim == 1)
