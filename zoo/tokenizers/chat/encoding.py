"""Conversations as token ids. Only the format makes control tokens; a message that spells one stays text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from zoo.tokenizers.chat.chat_format import ChatFormat
from zoo.tokenizers.chat.pieces import Pieces, as_ragged, pieces_of
from zoo.tokenizers.chat.turn import Message, units
from zoo.tokenizers.special_tokens import RE2_SPACE
from zoo.tokenizers.tensors import import_tensorflow, repeat, row_ids

if TYPE_CHECKING:
    import tensorflow as tf


class ChatTokens(NamedTuple):
    """Tokens of a batch of conversations.

    Args:
        ids: Ragged int32 `(batch, None)`.
        learned: Which of them belong to a reply, ragged bool of the same shape, or None if it was not asked for.
    """

    ids: tf.RaggedTensor
    learned: tf.RaggedTensor | None


def require_chat_format(tokenizer: Any, what: str) -> ChatFormat:
    """Returns the chat format of a tokenizer.

    Args:
        tokenizer: The tokenizer.
        what: The operation that needs it, for the error.

    Raises:
        ValueError: If it has none; the error says why, and what to do.
    """
    if tokenizer.chat_format is None:
        why = tokenizer.no_chat_because or "its files name none"
        raise ValueError(
            f"{what} needs a tokenizer with a chat format, and this one has none: {why}. Give it one: "
            'from_preset(..., chat_format="chatml"), or tokenizer.with_chat_format(...), of a name in '
            "zoo.tokenizers.CHAT_FORMATS or a ChatFormat."
        )
    return tokenizer.chat_format


def tokenize_chat(
    tokenizer: Any, messages: Sequence[Message], add_reply: bool = True, tools: Sequence[Any] | None = None
) -> list[int]:
    """Tokenizes a conversation. Only the format produces control tokens; in a message they are plain text.

    Ids equal those of the rendered text with its control tokens, unless a message contains the text of one.

    Args:
        tokenizer: A tokenizer with a chat format.
        messages: Mappings with `role` and `content`.
        add_reply: Whether to add the text that asks for a reply.
        tools: The tools that the model may call, in OpenAI's form; None for none.

    Returns:
        The ids, start tokens of the format included.

    Raises:
        ValueError: The tokenizer has no chat format, or `messages` is not a conversation of it.

    Example:

    >>> tokenize_chat(tokenizer.with_chat_format("chatml"), [{"role": "user", "content": "Hello"}])
    [151644, 872, 198, 9707, 151645, 198, 151644, 77091, 198]
    """
    chat_format = require_chat_format(tokenizer, "tokenize_chat()")
    plain = chat_format.plain_messages(messages, add_reply=add_reply, tools=tools)
    return chat_tokens(tokenizer, *as_ragged([plain]), add_reply).ids.to_list()[0]


def chat_tokens(
    tokenizer: Any, roles: tf.RaggedTensor, contents: tf.RaggedTensor, add_reply: bool = True, learned: bool = False
) -> ChatTokens:
    """Tokenizes conversations; a graph function.

    Texts between two control tokens are tokenized as one, as they would be without the borders of the messages.

    Args:
        tokenizer: The tokenizer, which has a chat format.
        roles, contents: Ragged `tf.string` `(batch, None)`. A conversation that the format does not allow is an
            `InvalidArgumentError`, which names the rows.
        add_reply: Whether to end with the text that asks for a reply.
        learned: Whether to return which tokens belong to a reply: those that a model generates when it is asked for
            one, up to the end of its turn.
    """
    tf = import_tensorflow()
    chat_format = tokenizer.chat_format

    def split(text: str) -> list[tuple[str, int]]:
        pieces: list[tuple[str, int]] = []
        for unit in units(text, chat_format.special_tokens):
            if unit in chat_format.special_tokens:
                pieces.append(("", tokenizer.token_to_id(unit)))
            elif pieces and pieces[-1][1] < 0:
                pieces[-1] = (pieces[-1][0] + unit, -1)
            else:
                pieces.append((unit, -1))
        return pieces

    with tf.device("CPU:0"):
        pieces = pieces_of(chat_format, roles, contents, add_reply, split)
        return _joined(tokenizer, pieces, learned)


def _joined(tokenizer: Any, pieces: Pieces, learned: bool) -> ChatTokens:
    tf = import_tensorflow()
    is_control = pieces.control_ids >= 0
    counts = tf.cast(is_control, tf.int64)
    # a row has a text before each of its control tokens, and one behind the last
    places = tf.cumsum(counts, exclusive=True) + pieces.rows
    texts_of_rows = 1 + tf.math.unsorted_segment_sum(counts, pieces.rows, pieces.number)
    number = tf.reduce_sum(texts_of_rows)
    texts = tf.strings.unsorted_segment_join(pieces.texts, places, number)
    ends = tf.boolean_mask(places, is_control)[:, tf.newaxis]
    # the control token behind each text, -1 behind the last of a row
    control = tf.tensor_scatter_nd_update(tf.fill([number], -1), ends, tf.boolean_mask(pieces.control_ids, is_control))
    texts, dropped = _without_swallowed(tokenizer, texts, control, texts_of_rows)
    # the last text of a row has no control token behind it, so none stands before the first of the next
    is_first = tf.concat([[True], control[:-1] < 0], axis=0)[:number]
    ids, begins, stops = tokenizer.tokenize_parts(texts, is_first, unit="characters" if learned else None)
    flags = None
    if learned:
        flags = _learned(pieces, places, number, dropped, ids.with_values(begins), ids.with_values(stops))
    follows = tf.cast(control >= 0, tf.int64)

    def by_rows(values: Any, behind: Any) -> Any:
        behind = tf.RaggedTensor.from_row_lengths(tf.boolean_mask(behind, control >= 0), follows, validate=False)
        joined = tf.concat([values, behind], axis=1)
        splits = tf.concat([[0], tf.cumsum(texts_of_rows)], axis=0)
        splits = tf.gather(joined.row_splits, splits)
        return tf.RaggedTensor.from_row_splits(joined.values, splits, validate=False)

    if flags is None:
        return ChatTokens(by_rows(ids, control), None)
    learned_ends = tf.scatter_nd(ends, tf.cast(tf.boolean_mask(pieces.learned, is_control), tf.int32), [number]) > 0
    return ChatTokens(by_rows(ids, control), by_rows(ids.with_values(flags), learned_ends))


def _without_swallowed(tokenizer: Any, texts: Any, control: Any, texts_of_rows: Any) -> tuple[Any, Any]:
    """Texts without the white space that control tokens beside them swallow; characters dropped at their left."""
    tf = import_tensorflow()
    left, right = (
        [tokenizer.token_to_id(token) for token in tokens if token in tokenizer.chat_format.special_tokens]
        for tokens in (tokenizer.strip_left, tokenizer.strip_right)
    )
    dropped = tf.zeros(tf.shape(texts), tf.int32)
    if left:
        swallowed = tf.reduce_any(control[:, tf.newaxis] == tf.constant(left), axis=1)
        texts = tf.where(swallowed, tf.strings.regex_replace(texts, f"[{RE2_SPACE}]+$", ""), texts)
    if right:
        # the last text of a row has no control token behind it, so none stands before the first of the next
        before = tf.concat([[-1], control[:-1]], axis=0)
        swallowed = tf.reduce_any(before[:, tf.newaxis] == tf.constant(right), axis=1)
        rest = tf.where(swallowed, tf.strings.regex_replace(texts, f"^[{RE2_SPACE}]+", ""), texts)
        dropped = tf.strings.length(texts, "UTF8_CHAR") - tf.strings.length(rest, "UTF8_CHAR")
        texts = rest
    return texts, dropped


def _learned(pieces: Pieces, places: Any, number: Any, dropped: Any, begins: Any, stops: Any) -> Any:
    """Which tokens of the texts hold a character of a reply, bool `(tokens,)`."""
    tf = import_tensorflow()
    lengths = tf.strings.length(pieces.texts, "UTF8_CHAR")
    # characters of a reply before each one of all texts in a row
    seen = tf.concat([[0], tf.cumsum(tf.cast(repeat(pieces.learned, lengths), tf.int32))], axis=0)
    starts = tf.cumsum(tf.math.unsorted_segment_sum(lengths, places, number), exclusive=True) + dropped
    starts = tf.gather(starts, row_ids(begins.row_splits))
    last = tf.size(seen) - 1
    first = tf.minimum(starts + tf.cast(begins.values, tf.int32), last)
    behind = tf.minimum(starts + tf.cast(stops.values, tf.int32), last)
    return tf.gather(seen, behind) > tf.gather(seen, first)
