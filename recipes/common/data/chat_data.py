"""Conversations to fine-tune on: a generated data set, and batches of rows of whole conversations."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from recipes.common.data import dates
from recipes.common.data.chat_files import Conversation
from recipes.common.data.data_sets import Loaders, Splits
from recipes.common.data.english_questions import Question, english_questions
from recipes.common.data.row_lengths import short_enough
from recipes.common.errors import BadLines, require_options
from zoo.preprocessing.conversations import whole_rows
from zoo.training import ResumableBatches

# questions about a date, their answers, and the answers in a sentence
DATE_QUESTIONS: tuple[tuple[str, Callable[[datetime.date], str], str], ...] = (
    ("Which year is {}?", lambda date: str(date.year), "The year is {}."),
    ("Which month is {}?", lambda date: date.strftime("%B"), "The month is {}."),
    ("Which day of the month is {}?", lambda date: str(date.day), "The day is {}."),
    ("Write {} in ISO 8601.", lambda date: date.isoformat(), "In ISO 8601 it is {}."),
)


def _date_questions(sentences: float = 0.0) -> Splits:
    """Questions and answers; so many of these, as a share, are sentences."""
    generator = np.random.default_rng(0)

    def conversation(pair: Any) -> Conversation:
        question, answer, sentence = DATE_QUESTIONS[int(generator.integers(len(DATE_QUESTIONS)))]
        reply = answer(datetime.date.fromisoformat(pair.target))
        if sentences and generator.random() < sentences:
            reply = sentence.format(reply)
        messages = [
            {"role": "user", "content": question.format(pair.source)},
            {"role": "assistant", "content": reply},
        ]
        return Conversation(messages, pair.origin)

    splits = dates.generate(train=8000, validation=200, test=400)
    return Splits(*([conversation(pair) for pair in pairs] for pairs in splits))


def _date_replies() -> Splits:
    return _date_questions(sentences=0.5)


def _english_questions() -> Splits:
    def conversation(question: Question) -> Conversation:
        messages = [{"role": "user", "content": question.text}, {"role": "assistant", "content": question.answer}]
        return Conversation(messages, question.origin)

    return Splits(*([conversation(question) for question in part] for part in english_questions()))


# * `date_questions`: generated questions about dates and their answers.
# * `date_replies`: the same with half of the answers as sentences.
# * `english_questions`: whether a film review is positive (SST-2), what news are about (AG News).
CONVERSATIONS: Loaders = {
    "date_questions": _date_questions,
    "date_replies": _date_replies,
    "english_questions": _english_questions,
}


def short_conversations(
    conversations: Sequence[Conversation], preprocessor: Any, max_length: int, dropped: BadLines
) -> list[Conversation]:
    """Returns the conversations that have at most so many tokens, and notes the others.

    Args:
        conversations: The conversations.
        preprocessor: The preprocessor of a `CausalLM` with a chat format.
        max_length: Most tokens that are fed; the last one is predicted alone.
        dropped: Where the others are noted.

    Raises:
        DataError: If none is left.
    """
    lengths = preprocessor.replace(sequence_length=None).examples([talk.messages for talk in conversations]).lengths
    return short_enough(conversations, lengths, max_length, dropped, what="conversation")


class PackedConversations(ResumableBatches):
    """A reproducible, resumable `tf.data.Dataset` of rows of whole conversations that do not see each other.

    Which conversations share a row is the same in all epochs; the order of the rows is a function of the seed and the
    epoch only.

    Args:
        preprocessor: The preprocessor of a `CausalLM` with a chat format.
        conversations: Lists of messages.
        length: Tokens of a row; no conversation may be longer.
        batch_size: Rows of a batch.
        shuffle: Whether the rows are shuffled.
        seed: Seed of the order, at least 0.

    Attributes:
        dataset, number_of_batches: See `ResumableBatches`.
        number_of_rows: Conversations of an epoch.
        filled: Share of the places of the rows that hold a token.

    Example:

    >>> batches = PackedConversations(chat_model.preprocessor, conversations, length=1024, batch_size=8)
    """

    def __init__(
        self,
        preprocessor: Any,
        conversations: Sequence[Any],
        *,
        length: int,
        batch_size: int,
        shuffle: bool = True,
        seed: int = 0,
    ) -> None:
        require_options(length=length, batch_size=batch_size, seed=seed)
        self._preprocessor, self._length, self._batch_size = preprocessor, length, batch_size
        self._shuffle, self._seed = shuffle, seed
        with tf.device("CPU:0"):
            self._examples = preprocessor.replace(sequence_length=length).examples(conversations)
            rows = whole_rows(self._examples.lengths, length)
            self._members = tf.ragged.constant(rows, tf.int64, ragged_rank=1)
        self._count, self.number_of_rows = len(rows), len(conversations)
        self.filled = float(self._examples.lengths.sum()) / (length * len(rows))
        super().__init__(-(-len(rows) // batch_size), self._batches_of_epoch)

    def _batches_of_epoch(self, epoch: tf.Tensor) -> tf.data.Dataset:
        order = tf.ensure_shape(tf.numpy_function(self._order, [epoch], tf.int64, stateful=False), [None])

        def assemble(chosen: tf.Tensor) -> tuple[Any, Any, Any]:
            return self._preprocessor.packed(self._examples, tf.gather(self._members, chosen), self._length)

        batches = tf.data.Dataset.from_tensor_slices(order).batch(self._batch_size)
        return batches.map(assemble, num_parallel_calls=tf.data.AUTOTUNE)

    def _order(self, epoch: int) -> np.ndarray:
        if not self._shuffle:
            return np.arange(self._count)
        return np.random.default_rng((self._seed, int(epoch))).permutation(self._count)
