"""Questions and the texts that hold their answers, as rows of tokens; places of answers in both."""

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from zoo.preprocessing.encoder import EncoderPreprocessor, check_groups
from zoo.preprocessing.examples import Examples
from zoo.preprocessing.rows import as_sequence, as_text, require_count, require_same_length, row_count, shorten
from zoo.preprocessing.token_rows import added_count, checked_weights, require_all
from zoo.preprocessing.windows import make_windows, take_window
from zoo.tokenizers.tensors import row_ids

# what stands for no answer: the place of the first token
NO_ANSWER = (-1, -1)


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class QuestionAnswererPreprocessor(EncoderPreprocessor):
    """Preprocessing of extractive question answering: pairs of a question and a context.

    A row is `[start] question [end] context [end]`. A context that does not fit becomes several rows, its overlapping
    windows. In training, a window that does not contain the whole answer has no answer.

    Args:
        tokenizer: The tokenizer; None for use on token level.
        stride: Number of tokens that neighbouring windows share. If a long question leaves little room, they share half
            a window.
        pair_separators: Number of end tokens between question and context: 1 in BERT, 2 in RoBERTa.
        **options: `sequence_length`, `truncate` and `segments`, see `EncoderPreprocessor`. The question may take half
            of the sequence; `truncate` cuts longer questions.

    Raises:
        ValueError: If an argument is out of range.

    Example:

    >>> preprocessor = QuestionAnswererPreprocessor(tokenizer, sequence_length=384)
    >>> inputs, places, weights = preprocessor((["Who wrote?"], ["Ada Lovelace wrote."]), [("Ada Lovelace", 0)])
    >>> places.numpy()
    array([[5, 6]], dtype=int32)

    Reference:
        Devlin et al. 2019, "BERT", sections 4.2 and 4.3.
    """

    text_names = ("questions", "contexts")

    def __init__(self, tokenizer: Any = None, *, stride: int = 128, pair_separators: int = 1, **options: Any) -> None:
        super().__init__(tokenizer, **options)
        self.stride = require_count(stride, "stride", 0)
        self.pair_separators = require_count(pair_separators, "pair_separators")

    def check_rows(self, x: Any, name: str) -> Any:
        """Returns `(questions, contexts)`, string tensors `(rows,)`."""
        return check_groups(x, name)

    def check_targets(self, y: Any, x: Any, name: str, x_name: str) -> Any:
        """Returns start and end (exclusive) of the answers in their contexts, in characters, int32 `(rows, 2)`.

        Args:
            y: For each row `(text, start)`, a dictionary with "text" and "answer_start" as in SQuAD (the first of
                several answers counts), or None for no answer; or a tuple of a column of texts and a column of starts.
                An empty text, or a start below 0, means no answer.
            x, name, x_name: As in the base class.

        Raises:
            TypeError, ValueError: If an answer has another form, or is not at its position. The message names the row.
        """
        count = row_count(x)
        if y is None:
            raise ValueError(f"{name} must hold one answer per row, got None for {count} in {x_name}.")
        if isinstance(y, tuple) and len(y) == 2 and not isinstance(y[0], (str, bytes)):
            texts, starts = (as_sequence(part, f"{name}[{place}]", "answers") for place, part in enumerate(y))
            require_same_length(len(texts), len(starts), f"{name}[0]", f"{name}[1]", "start", "text")
            y = list(zip(texts, starts, strict=True))
        else:
            y = as_sequence(y, name, "answers")
        require_same_length(count, len(y), x_name, name, "answer")
        contexts = [context.decode("utf-8", "replace") for context in x[1].numpy()]
        spans = [
            _span(answer, context, f"{name}[{row}]", f"{x_name}[1][{row}]")
            for row, (answer, context) in enumerate(zip(y, contexts, strict=True))
        ]
        return np.array(spans, "int32").reshape(-1, 2)

    def targets(self, y: Any) -> Any:
        """Returns the characters of the answers, int32 `(batch, 2)`; those of no answer are -1.

        Args:
            y: These, or a tuple of the texts of the answers and of their first characters, tensors `(batch,)`.
        """
        import tensorflow as tf

        if y is None:
            raise ValueError(
                f"A dataset for {self.task_name} must hold (x, y), pairs of texts and (text, start) of the answers; "
                "got x alone."
            )
        if isinstance(y, (tuple, list)) and len(y) == 2:
            texts, starts = tf.convert_to_tensor(y[0]), tf.cast(y[1], tf.int32)
            is_answer = (texts != "") & (starts >= 0)
            spans = tf.stack([starts, starts + tf.strings.length(texts, "UTF8_CHAR")], axis=1)
            return tf.where(is_answer[:, tf.newaxis], spans, -1)
        return tf.ensure_shape(tf.cast(y, tf.int32), (None, 2))

    def tokens(self, x: Any, unit: str = "characters") -> dict[str, Any]:
        """Returns ragged ids of "question" and "context", and the "starts" and "ends" of the context's tokens.

        Args:
            x: Questions and contexts, string tensors `(batch,)`.
            unit: What places count: "characters" or "bytes".
        """
        tokenizer = self.require_tokenizer("Text input")
        ids, starts, ends = tokenizer.tokenize_with_offsets(x[1], unit=unit)
        return {"question": tokenizer.tokenize(x[0]), "context": ids, "starts": starts, "ends": ends}

    def token_counts(self, tokens: dict[str, Any]) -> Any:
        return tokens["question"].row_lengths() + tokens["context"].row_lengths() + self._added

    def check_lengths(self, x: Any, tokens: dict[str, Any], lengths: np.ndarray, name: str) -> None:
        longest = self.longest_question
        counts = tokens["question"].row_lengths().numpy()
        wrong: Any = np.flatnonzero(counts > longest) if longest is not None and not self.truncate else []
        if len(wrong):
            row = int(wrong[0])
            question = x[0][row].numpy().decode("utf-8", "replace")
            raise ValueError(
                f"{name}[0][{row}] has {counts[row]} tokens, and a question may have {longest}, half of the room in a "
                f"sequence of {self.sequence_length}: {shorten(question)}. {self.truncation_hint}"
            )

    @property
    def longest_question(self) -> int | None:
        """Most tokens of a question: half of what a row has room for; None for any number."""
        if self.sequence_length is None:
            return None
        room = self.sequence_length - self._added
        if room < 2:
            raise ValueError(
                f"sequence_length must leave room for question and context besides {self._added} special tokens, got "
                f"{self.sequence_length}."
            )
        return room // 2

    @property
    def _added(self) -> int:
        return added_count(2, **self.special_tokens(), pair_separators=self.pair_separators)

    def windows(self, tokens: dict[str, Any]) -> dict[str, Any]:
        """Returns the windows of rows; a graph function.

        Args:
            tokens: What `tokens` returned.

        Returns:
            Per window: ragged "question", "context", "starts" and "ends" `(windows, None)`; "row", the number of its
            row, "first", the number of its first token in the context, and "own" `(windows, 2)`, the tokens in the
            window that are its own, see `Windows`; int64.
        """
        import tensorflow as tf

        question, lengths = tokens["question"], tf.cast(tokens["context"].row_lengths(), tf.int64)
        longest = self.longest_question
        if longest is None:
            room = tf.maximum(lengths, 1)
        else:
            question = question[:, :longest]
            room = self.sequence_length - self._added - tf.cast(question.row_lengths(), tf.int64)
        windows = make_windows(lengths, room, tf.minimum(tf.cast(self.stride, tf.int64), room // 2))
        return {
            "question": tf.gather(question, windows.row),
            **{name: take_window(tokens[name], windows) for name in ("context", "starts", "ends")},
            "row": windows.row,
            "first": windows.first,
            "own": tf.stack([windows.own_first, windows.own_end], axis=1),
        }

    def rows(self, x: Any, name: str) -> Examples:
        """Returns the windows of rows for inference, checked and tokenized; eager. Arguments as in the base."""
        return self._as_windows(super().rows(x, name))

    def examples(self, *arguments: Any, **options: Any) -> Examples:
        """Returns the windows of rows for training, checked and tokenized; eager. Arguments as in the base."""
        return self._as_windows(super().examples(*arguments, **options))

    def _as_windows(self, rows: Examples) -> Examples:
        import tensorflow as tf

        windows = self.windows(rows.tokens)
        targets = None if rows.targets is None else self.places(rows.tokens, windows, rows.targets)
        weights = None if rows.weights is None else tf.gather(rows.weights, windows["row"])
        return Examples(windows, targets, weights, np.asarray(self.token_counts(windows)), windows["row"].numpy())

    def places(self, tokens: dict[str, Any], windows: dict[str, Any], spans: Any) -> Any:
        """Returns the first and last token of each window's answer in its row of tokens; a graph function.

        Args:
            tokens: What `tokens` returned.
            windows: What `windows` returned.
            spans: Characters of the answers, int32 `(rows, 2)`; -1 for none.

        Returns:
            int32 `(windows, 2)`; 0, the first token, where the window does not hold the answer.
        """
        import tensorflow as tf

        starts, ends = tokens["starts"], tokens["ends"]
        row, count = row_ids(starts.row_splits), starts.nrows()
        number = tf.cast(tf.ragged.range(starts.row_lengths()).values, tf.int32)
        first, end = (tf.gather(spans[:, side], row) for side in (0, 1))
        inside = (tf.cast(ends.values, tf.int32) > first) & (tf.cast(starts.values, tf.int32) < end)
        # the largest and smallest integers where there is none
        first = tf.math.unsorted_segment_min(tf.where(inside, number, number.dtype.max), row, count)
        last = tf.math.unsorted_segment_max(tf.where(inside, number, number.dtype.min), row, count)
        begin, size = tf.cast(windows["first"], tf.int32), tf.cast(windows["context"].row_lengths(), tf.int32)
        first, last = tf.gather(first, windows["row"]), tf.gather(last, windows["row"])
        holds = (first >= begin) & (last < begin + size) & (first <= last)
        places = tf.stack([first, last], axis=1) - (begin - tf.cast(self.context_offsets(windows), tf.int32))[:, None]
        return tf.where(holds[:, tf.newaxis], places, 0)

    def context_offsets(self, windows: dict[str, Any]) -> Any:
        """Returns the position in the row of tokens of each window's first token of the context, `(windows,)`.

        Args:
            windows: What `windows` returned.
        """
        special = self.special_tokens()
        before = int(special["start_id"] is not None) + self.pair_separators * int(special["end_id"] is not None)
        return windows["question"].row_lengths() + before

    def inputs(self, tokens: dict[str, Any]) -> dict[str, Any]:
        """Returns token-level inputs of windows."""
        return super().inputs((tokens["question"], tokens["context"]))

    def collate(self, tokens: Any, targets: Any, sample_weight: Any, seed: Any = None) -> tuple[Any, Any, Any]:
        """Returns inputs of windows, the places of the answers, and weights."""
        return self.inputs(tokens), targets, sample_weight

    def training_batch(self, x: Any, y: Any = None, sample_weight: Any = None, seed: Any = None) -> Any:
        """Returns token-level `(inputs, places, sample_weight)` of the windows of a batch of strings."""
        import tensorflow as tf

        spans = self.targets(y)
        if isinstance(y, (tuple, list)):
            spans = _checked_spans(spans, x[1], y[0])
        tokens = self.checked_questions(self.tokens(x))
        windows = self.windows(tokens)
        weights = checked_weights(sample_weight)
        weights = None if weights is None else tf.gather(weights, windows["row"])
        return self.collate(windows, self.places(tokens, windows, spans), weights, seed)

    def inference_batch(self, x: Any) -> dict[str, Any]:
        """Returns token-level inputs of the windows of a batch of strings."""
        return self.inputs(self.windows(self.checked_questions(self.tokens(x))))

    def checked_questions(self, tokens: dict[str, Any]) -> dict[str, Any]:
        """Returns tokens that are an `InvalidArgumentError`, naming rows, where a question is too long.

        Args:
            tokens: What `tokens` returned.
        """
        import tensorflow as tf

        longest = self.longest_question
        if longest is None or self.truncate:
            return tokens
        counts = tokens["question"].row_lengths()
        message = f"A question may have {longest} tokens; rows and their tokens:"
        with tf.control_dependencies([require_all(counts <= longest, counts, message)]):
            return {**tokens, "question": tokens["question"].with_values(tf.identity(tokens["question"].values))}


def _span(answer: Any, context: str, name: str, context_name: str) -> tuple[int, int]:
    """First character of an answer, and the one after its last."""
    if isinstance(answer, Mapping) and {"text", "answer_start"} <= set(answer):
        texts, starts = (
            list(part) if isinstance(part, (list, tuple, np.ndarray)) else [part]
            for part in (answer["text"], answer["answer_start"])
        )
        require_same_length(len(texts), len(starts), f"{name}['text']", f"{name}['answer_start']", "start", "text")
        answer = (texts[0], starts[0]) if texts else None
    if answer is None:
        return NO_ANSWER
    if not (isinstance(answer, (tuple, list)) and len(answer) == 2 and isinstance(answer[0], (str, bytes))):
        raise TypeError(
            f"{name} must be (text, start), a dictionary of text and answer_start, or None for no answer, got "
            f"{shorten(answer)}."
        )
    text = as_text(answer[0], f"{name}[0]").decode("utf-8", "replace")
    start = require_count(answer[1], f"{name}[1]", lowest=-1)
    if not text or start < 0:
        return NO_ANSWER
    found = context[start : start + len(text)]
    if found != text:
        raise ValueError(
            f"{name} must be a part of {context_name} with its first character, where {shorten(found)} stands at "
            f"{start}, got {shorten(text)}."
        )
    if text.isspace():
        raise ValueError(f"{name} must hold more than white space, got {shorten(text)}.")
    return start, start + len(text)


def _checked_spans(spans: Any, contexts: Any, texts: Any) -> Any:
    """Spans that are an `InvalidArgumentError` where a text does not stand in its context."""
    import tensorflow as tf

    lengths = tf.strings.length(contexts, "UTF8_CHAR")
    starts = tf.clip_by_value(spans[:, 0], 0, lengths)
    found = tf.strings.substr(contexts, starts, spans[:, 1] - spans[:, 0], unit="UTF8_CHAR")
    allowed = (spans[:, 0] < 0) | (found == texts)
    message = "Every answer must stand at its first character in its context; rows and answers:"
    with tf.control_dependencies([require_all(allowed, texts, message)]):
        return tf.identity(spans)
