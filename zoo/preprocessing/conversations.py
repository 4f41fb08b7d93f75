"""Conversations to learn from: which of their tokens count, and rows of whole ones that do not see each other."""

import bisect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from zoo.columns import is_list, listed
from zoo.preprocessing.rows import as_sequence, as_texts, require_same_length, string_tensor
from zoo.tokenizers.chat import as_ragged, chat_tokens, require_chat_format
from zoo.tokenizers.tensors import repeat

LOSS_ON = ("replies", "all")


def are_conversations(x: Any) -> bool:
    """Whether something is a list of conversations, or a single one.

    Args:
        x: Anything that `fit` may be given.
    """
    x = listed(x)
    if not is_list(x) or not len(x):
        return False
    first = x[0]
    if is_list(first) and len(first):
        first = first[0]
    return isinstance(first, Mapping)


def check_conversations(tokenizer: Any, x: Any, name: str, loss_on: str) -> dict[str, Any]:
    """Returns conversations as ragged string tensors "roles" and "contents", `(batch, None)`; eager.

    Args:
        tokenizer: A tokenizer with a chat format.
        x: Lists of messages, mappings with "role" and "content", and with a style of tools calls and results.
        name: Name of the argument.
        loss_on: What is learned: "replies" or "all".

    Raises:
        TypeError, ValueError: If something is no conversation of the format, or has no reply to learn, naming it.
    """
    x = listed(x)
    if isinstance(x[0], Mapping):
        raise TypeError(f"{name} must be a list of conversations, got one conversation: put it in a list.")
    chat_format = require_chat_format(tokenizer, "A conversation")
    plain = []
    for row, messages in enumerate(as_sequence(x, name, "conversations")):
        plain.append(chat_format.plain_messages(messages, f"{name}[{row}]", add_reply=False))
        if loss_on == "replies" and not any(message["role"] == "assistant" for message in messages):
            raise ValueError(f"{name}[{row}] must hold a message of 'assistant' to learn, got none.")
    roles, contents = as_ragged(plain)
    return {"roles": roles, "contents": contents}


def conversation_tokens(tokenizer: Any, x: Mapping[str, Any], loss_on: str) -> dict[str, Any]:
    """Returns ragged "ids", int32, and which of them are "learned", bool, `(batch, None)`; a graph function.

    Args:
        tokenizer: A tokenizer with a chat format.
        x: What `check_conversations` returned.
        loss_on: "replies" for what the model writes itself when it is asked for a reply, up to what ends its turn;
            "all" for every token but the first, which nothing comes before.
    """
    import tensorflow as tf

    tokens = chat_tokens(tokenizer, x["roles"], x["contents"], add_reply=False, learned=loss_on == "replies")
    learned = tokens.learned
    if learned is None:
        learned = tokens.ids.with_values(tf.ones_like(tokens.ids.values, tf.bool))
    return {"ids": tokens.ids, "learned": learned}


def reply_tokens(preprocessor: Any, prompts: Sequence[Any], replies: Sequence[str]) -> dict[str, Any]:
    """Returns ragged "ids", int32, and which of them are of the reply, "learned", bool, `(rows, None)`; eager.

    Of conversations that is what the model writes itself as the last reply, up to what ends its turn. Of texts it is
    what the prompt alone does not have, up to the end token; the reply follows the prompt without anything between.

    Args:
        preprocessor: A `CausalLMPreprocessor` with a tokenizer.
        prompts: Texts, or conversations that end before the reply.
        replies: A reply for each.

    Raises:
        TypeError, ValueError: If something is no text, or no conversation of the format, naming it.

    Example:

    >>> reply_tokens(model.preprocessor, ["Ice is"], [" cold."])["learned"].to_list()
    [[False, False, True, True, True]]
    """
    import tensorflow as tf

    require_same_length(len(prompts), len(replies), "prompts", "replies", "reply", "prompt")
    if are_conversations(prompts):
        talks = [
            [*messages, {"role": "assistant", "content": reply}]
            for messages, reply in zip(prompts, replies, strict=True)
        ]
        tokenizer = preprocessor.require_tokenizer("A conversation")
        tokens = conversation_tokens(tokenizer, check_conversations(tokenizer, talks, "prompts", "replies"), "replies")
        ids, flags = tokens["ids"], tokens["learned"].to_list()
        # earlier replies belong to the prompt
        learned = [_last_run(row) for row in flags]
    else:
        before = string_tensor(as_texts(prompts, "prompts"))
        ids = preprocessor.text_ids(tf.strings.join([before, string_tensor(as_texts(replies, "replies"))]))
        pairs = zip(ids.to_list(), preprocessor.text_ids(before, end=False).to_list(), strict=True)
        learned = [_not_shared(row, prompt) for row, prompt in pairs]
    values = [flag for row in learned for flag in row]
    return {"ids": ids, "learned": ids.with_values(tf.constant(values, tf.bool, [len(values)]))}


def _last_run(flags: list[bool]) -> list[bool]:
    """The same with the last true values in a row alone."""
    end = len(flags) - flags[::-1].index(True) if True in flags else 0
    begin = end
    while begin and flags[begin - 1]:
        begin -= 1
    return [begin <= place < end for place in range(len(flags))]


def _not_shared(row: list[int], prompt: list[int]) -> list[bool]:
    shared = next((place for place, (a, b) in enumerate(zip(row, prompt, strict=False)) if a != b), None)
    shared = min(len(row), len(prompt)) if shared is None else shared
    return [place >= shared for place in range(len(row))]


def whole_rows(lengths: Sequence[int], length: int) -> list[list[int]]:
    """Returns rows of sequences that together are at most so long: each, the longest first, into the fullest row.

    Args:
        lengths: Length of each sequence.
        length: Length of a row.

    Returns:
        The numbers of the sequences of each row, ascending.

    Raises:
        ValueError: If a sequence is longer than a row.

    Example:

    >>> whole_rows([5, 3, 4, 2, 3], length=8)
    [[0, 1], [2, 4], [3]]

    Reference:
        Johnson 1973, "Near-optimal bin packing algorithms" (best fit decreasing); Krell et al. 2021, "Efficient
        sequence packing without cross-contamination", section 3.1.
    """
    lengths = np.asarray(lengths, "int64")
    if len(lengths) and lengths.max() > length:
        raise ValueError(f"lengths must be at most length={length}, got {int(lengths.max())}.")
    rows: list[list[int]] = []
    # room left and number of each row, ascending
    room: list[tuple[int, int]] = []
    for number in np.argsort(-lengths, kind="stable").tolist():
        size = int(lengths[number])
        place = bisect.bisect_left(room, (size, -1))
        left, row = (length, len(rows)) if place == len(room) else room.pop(place)
        if row == len(rows):
            rows.append([])
        rows[row].append(number)
        bisect.insort(room, (left - size, row))
    return [sorted(row) for row in rows]


def packed_rows(
    tokens: Mapping[str, Any], weights: Any, members: Any, length: int, pad_id: int
) -> tuple[dict[str, Any], Any, Any]:
    """Returns rows of conversations that do not see each other, as token-level inputs, labels and weights.

    `sequence_ids` tell the conversations of a row apart and `positions` count from the beginning of each, so the model
    computes for each what it computes for it alone; a graph function.

    Args:
        tokens: "ids" and "learned" of all conversations, see `conversation_tokens`.
        weights: Weight of each conversation, float32 `(conversations,)`; None for 1.
        members: Numbers of the conversations of each row, ragged int64 `(batch, None)`, see `whole_rows`.
        length: Tokens of a row; of a conversation all tokens but the last are fed.
        pad_id: What fills rows behind their end.

    Returns:
        Inputs `token_ids`, `padding_mask`, `sequence_ids` and `positions`, labels and weights, all `(batch, length)`.

    Reference:
        Krell et al. 2021, "Efficient sequence packing without cross-contamination", section 3.2 (masks and positions).
    """
    import tensorflow as tf

    ids, learned = (tf.gather(tokens[name], members.values) for name in ("ids", "learned"))
    counts = ids[:, :-1].row_lengths()
    splits = tf.concat([[0], tf.cumsum(counts)], axis=0)
    splits = tf.gather(splits, members.row_splits)
    counted = tf.cast(learned[:, 1:].values, tf.float32)
    if weights is not None:
        counted *= repeat(tf.gather(weights, members.values), counts)
    numbers = tf.ragged.range(members.row_lengths()).values

    def padded(values: Any, filler: int) -> Any:
        rows = tf.RaggedTensor.from_row_splits(values, splits, validate=False)
        return rows.to_tensor(tf.cast(filler, values.dtype), shape=[None, length])

    inputs = {
        "token_ids": padded(ids[:, :-1].values, pad_id),
        "padding_mask": tf.sequence_mask(splits[1:] - splits[:-1], length),
        "sequence_ids": padded(tf.cast(repeat(numbers, counts), tf.int32), -1),
        "positions": padded(tf.cast(tf.ragged.range(counts).values, tf.int32), 0),
    }
    return inputs, padded(ids[:, 1:].values, pad_id), padded(counted, 0)
