"""Conversations to fine-tune on: files and a generated data set, and their token-level batches."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from recipes.common import dates
from recipes.common.data_sets import Loaders, Splits
from recipes.common.errors import BadLines, DataError, shown
from recipes.common.text_files import read_table
from zoo.preprocessing import Examples
from zoo.preprocessing.token_rows import dense
from zoo.tokenizers.chat import ChatFormat, as_ragged, chat_tokens

BAD_MESSAGES = "not a conversation"
# conversations that are tokenized at once
_AT_ONCE = 1024


class Conversation(NamedTuple):
    """Messages `{"role", "content"}`, the last by the assistant, and where they stand."""

    messages: list[dict[str, str]]
    origin: str


def read_conversations(
    files: Sequence[str], bad: BadLines, *, chat_format: ChatFormat, key: str = "messages"
) -> list[Conversation]:
    """Returns the conversations of JSON-lines files.

    Args:
        files: Paths.
        bad: Where bad lines are noted.
        chat_format: How conversations are written, which not all can be.
        key: Key of the list of messages `{"role": ..., "content": ...}`.

    Raises:
        DataError: A missing or bad file, or a line that is no conversation of this format with a reply at its end.
    """
    conversations = []
    for file in files:
        for (messages,), origin in read_table(file, [key], bad):
            problem = _problem(messages, chat_format)
            if problem is not None:
                bad.add(BAD_MESSAGES, origin, problem)
                continue
            conversations.append(Conversation(messages, origin))
    return conversations


def _problem(messages: Any, chat_format: ChatFormat) -> str | None:
    if not isinstance(messages, list) or len(messages) < 2:
        return "a list of at least two messages is needed"
    for number, message in enumerate(messages, 1):
        fields = [message.get(name) for name in ("role", "content")] if isinstance(message, dict) else []
        if not all(isinstance(field, str) for field in fields) or not fields:
            return f"message {number} must be {{'role': text, 'content': text}}, got {shown(message)}"
    try:
        chat_format.check(messages, add_reply=False)
    except ValueError as error:
        return str(error)
    if messages[-1]["role"] != "assistant" or not messages[-1]["content"].strip():
        return "the last message is not a reply of the assistant"
    return None


def _date_questions() -> Splits:
    generator = np.random.default_rng(0)
    questions = (
        ("Which year is {}?", lambda date: str(date.year)),
        ("Which month is {}?", lambda date: date.strftime("%B")),
        ("Which day of the month is {}?", lambda date: str(date.day)),
        ("Write {} in ISO 8601.", lambda date: date.isoformat()),
    )

    def conversation(pair: Any) -> Conversation:
        question, answer = questions[int(generator.integers(len(questions)))]
        date = datetime.date.fromisoformat(pair.target)
        messages = [
            {"role": "user", "content": question.format(pair.source)},
            {"role": "assistant", "content": answer(date)},
        ]
        return Conversation(messages, pair.origin)

    splits = dates.generate(train=8000, validation=200, test=400)
    return Splits(*([conversation(pair) for pair in pairs] for pairs in splits))


# * `date_questions`: generated questions about dates and their answers.
CONVERSATIONS: Loaders = {"date_questions": _date_questions}


class ConversationRows:
    """Stands in the place of a preprocessor in `ExampleBatches`: conversations as tokens, of which replies are learned.

    Args:
        tokenizer: The tokenizer, which has a chat format.
        max_length: Most tokens that the model takes; longer conversations are dropped.

    Attributes:
        dropped: The conversations left out by `short_enough`, see `recipes.common.errors.BadLines`.
    """

    def __init__(self, tokenizer: Any, max_length: int) -> None:
        self.max_length = max_length
        self.dropped = BadLines("skip")
        self._tokenizer = tokenizer

    def short_enough(self, conversations: Sequence[Conversation]) -> list[Conversation]:
        """Returns the conversations that the model takes, and notes the others in `dropped`.

        Args:
            conversations: The conversations.

        Raises:
            DataError: If none is left.
        """
        kept = []
        for conversation, ids in zip(conversations, self.columns(conversations)[0], strict=True):
            if len(ids) > self.max_length + 1:
                detail = f"it has {len(ids)}"
                self.dropped.add(f"longer than {self.max_length} tokens", conversation.origin, detail)
            else:
                kept.append(conversation)
        if not kept:
            raise DataError(f"no conversation is left: {self.dropped.report()}")
        return kept

    def columns(self, conversations: Sequence[Conversation]) -> tuple[list[list[int]], list[list[bool]]]:
        """Returns the token ids of each conversation, and which of them belong to a reply.

        Args:
            conversations: The conversations.
        """
        ids, learned = [], []
        for start in range(0, len(conversations), _AT_ONCE):
            some = as_ragged([conversation.messages for conversation in conversations[start : start + _AT_ONCE]])
            tokens = chat_tokens(self._tokenizer, *some, add_reply=False, learned=True)
            ids += tokens.ids.to_list()
            learned += tokens.learned.to_list()
        return ids, learned

    def examples(self, x: Sequence[Sequence[int]], y: Sequence[Sequence[bool]]) -> Examples:
        """Returns the rows of `columns` as ragged tensors.

        Args:
            x: Token ids of each conversation.
            y: Which of them belong to a reply.
        """
        ids = tf.ragged.constant(x, tf.int32, ragged_rank=1)
        mask = tf.ragged.constant(y, tf.bool, ragged_rank=1)
        return Examples(ids, mask, None, ids.row_lengths().numpy() - 1)

    def collate(
        self, tokens: tf.RaggedTensor, targets: tf.RaggedTensor, sample_weight: Any, seed: Any = None
    ) -> tuple[dict[str, tf.Tensor], tf.Tensor, tf.Tensor]:
        """Returns inputs, labels and weights, 1 for tokens of replies; a graph function.

        Args:
            tokens, targets: What `examples` returned.
            sample_weight, seed: Not used.
        """
        token_ids, mask = dense(tokens[:, :-1], 0, self.max_length)
        labels, _ = dense(tokens[:, 1:], 0, self.max_length)
        weights, _ = dense(tf.cast(targets[:, 1:], tf.float32), 0, self.max_length)
        return {"token_ids": token_ids, "padding_mask": mask}, labels, weights
