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
from zoo.tokenizers.chat import ChatFormat, tokenize_chat

BAD_MESSAGES = "not a conversation"


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
        chat_format.parts(messages)
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


class _TokensOfMany:
    """Stands in the place of a tokenizer: collects texts first, and then knows the tokens of each."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.special_tokens, self.token_to_id = tokenizer.special_tokens, tokenizer.token_to_id
        self._known: dict[str, list[int]] = {}

    def tokenize(self, texts: list[str]) -> _Rows:
        return _Rows([self._known.setdefault(text, []) for text in texts])

    def look_up(self) -> None:
        """Tokenizes the texts collected."""
        texts = [text for text, ids in self._known.items() if text and not ids]
        for start in range(0, len(texts), 4096):
            some = texts[start : start + 4096]
            self._known.update(zip(some, self._tokenizer.tokenize(some).to_list(), strict=True))


class _Rows(list):
    def to_list(self) -> list[list[int]]:
        return list(self)


class ConversationRows:
    """Stands in the place of a preprocessor in `ExampleBatches`: conversations as tokens, of which replies are learned.

    Args:
        tokenizer: The tokenizer, with the control tokens of the format.
        chat_format: How conversations are written.
        max_length: Most tokens that the model takes; longer conversations are dropped.

    Attributes:
        dropped: The conversations left out by `short_enough`, see `recipes.common.errors.BadLines`.
    """

    def __init__(self, tokenizer: Any, chat_format: ChatFormat, max_length: int) -> None:
        self.chat_format, self.max_length = chat_format, max_length
        self.dropped = BadLines("skip")
        self._tokens = _TokensOfMany(tokenizer)

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
        # all texts at once, which is much faster: the first pass only finds out which there are
        for conversation in conversations:
            self._ids_and_mask(conversation.messages)
        self._tokens.look_up()
        rows = [self._ids_and_mask(conversation.messages) for conversation in conversations]
        return [ids for ids, _ in rows], [mask for _, mask in rows]

    def _ids_and_mask(self, messages: list[dict[str, str]]) -> tuple[list[int], list[bool]]:
        tokens = self._tokens
        ids = tokenize_chat(tokens, messages, self.chat_format, add_reply=False)
        mask = [False] * len(ids)
        for number, message in enumerate(messages):
            if message["role"] != "assistant":
                continue
            # the reply is what the conversation up to it has beyond the one that asks for it
            before = tokenize_chat(tokens, messages[:number], self.chat_format) if number else []
            after = tokenize_chat(tokens, messages[: number + 1], self.chat_format, add_reply=False)
            start = next((at for at, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1]), None)
            start = len(before) if start is None else start
            mask[start : len(after)] = [True] * (len(after) - start)
        return ids, mask

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
