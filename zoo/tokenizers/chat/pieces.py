"""Conversations as texts and control tokens, by the same operations eagerly, in `tf.data` and in a SavedModel."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from zoo.tokenizers.chat.tool_style import CALLED
from zoo.tokenizers.chat.turn import STRIPS, Message, Turn
from zoo.tokenizers.chat.words import begins_with_system, checked_kinds, has_thoughts, is_of, stripped, written_words
from zoo.tokenizers.tensors import import_tensorflow, repeat, row_ids

if TYPE_CHECKING:
    import tensorflow as tf

# From a text of a format to its pieces: texts with -1, and "" with the id of a control token.
Split = Callable[[str], list[tuple[str, int]]]
# The parts of a message in order. A reply is what a model writes when it is asked for one.
ASKS, BEGINS, BEFORE_SYSTEM, SYSTEM, AFTER_SYSTEM, WORDS, ENDS, FOLLOWS = range(8)
_PARTS = 8
_LEARNED = [part in (BEGINS, WORDS, ENDS) for part in range(_PARTS)]


class Pieces(NamedTuple):
    """The pieces of a batch of conversations, in order.

    Args:
        texts: `tf.string` `(pieces,)`; "" for a control token.
        control_ids: int32 `(pieces,)`: the id of a control token, -1 for a text.
        learned: bool `(pieces,)`: whether they belong to a reply.
        rows: int64 `(pieces,)`: the conversation that each belongs to.
        number: int64 scalar: how many conversations there are.
    """

    texts: tf.Tensor
    control_ids: tf.Tensor
    learned: tf.Tensor
    rows: tf.Tensor
    number: tf.Tensor


class _Texts:
    """The texts of a format, each split once, by numbers."""

    def __init__(self, chat_format: Any, split: Split) -> None:
        self._format, self._split = chat_format, split
        self._numbers = {"": 0}
        self.pieces: list[list[tuple[str, int]]] = [[]]

    def number(self, text: str) -> int:
        text = self._format.today(text)
        if text not in self._numbers:
            self._numbers[text] = len(self.pieces)
            self.pieces.append(self._split(text))
        return self._numbers[text]

    def of_turn(self, turn: Turn, is_reply: bool) -> list[int]:
        """The parts of a message but its words and what it takes up."""
        before, after = (turn.before, ""), ("", turn.after)
        if is_reply:
            before, after = self._format.split_reply(turn)
        numbers = [0] * _PARTS
        for part, text in ((ASKS, before[0]), (BEGINS, before[1]), (ENDS, after[0]), (FOLLOWS, after[1])):
            numbers[part] = self.number(text)
        return numbers


def pieces_of(
    chat_format: Any, roles: tf.RaggedTensor, contents: tf.RaggedTensor, add_reply: bool, split: Split
) -> Pieces:
    """Returns the pieces of conversations; a graph function.

    A conversation that the format does not allow is an `InvalidArgumentError`, which names the rows.

    Args:
        chat_format: The `ChatFormat`.
        roles, contents: Ragged `tf.string` `(batch, None)`.
        add_reply: Whether to end with the text that asks for a reply.
        split: Function that splits texts of the format.
    """
    tf = import_tensorflow()
    kinds = checked_kinds(chat_format, roles, add_reply)
    kinds, contents = _with_default_system(chat_format, kinds, contents)
    texts = _Texts(chat_format, split)
    parts, words = _parts_of_messages(chat_format, kinds, contents, add_reply, texts)
    start, reply = texts.number(chat_format.start), texts.number(chat_format.reply)

    if chat_format.system_place != "turn" and "system" in chat_format.turns:
        parts, words = _take_up_system(chat_format, kinds, contents, parts, words, texts)

    # words stand behind the texts of the format in one table
    count, first = tf.size(words), len(texts.pieces)
    parts = tf.where(parts < 0, first - 1 - parts, parts)
    flat = [piece for pieces in texts.pieces for piece in pieces]
    table = tf.concat([tf.constant([text for text, _ in flat], tf.string, [len(flat)]), words], axis=0)
    ids = tf.concat([tf.constant([index for _, index in flat], tf.int32, [len(flat)]), tf.fill([count], -1)], axis=0)
    lengths = tf.concat(
        [tf.constant([len(pieces) for pieces in texts.pieces], tf.int64), tf.ones([count], tf.int64)], 0
    )
    entries = tf.RaggedTensor.from_row_lengths(tf.range(tf.size(table)), lengths, validate=False)

    # the parts of all conversations in order
    number = kinds.nrows()
    splits = kinds.row_splits * _PARTS
    is_reply = is_of(kinds.values, list(chat_format.written_turns), ("assistant", CALLED))
    learned = tf.reshape(is_reply[:, tf.newaxis] & tf.constant(_LEARNED), [-1])
    coded = tf.reshape(parts, [-1]) * 2 + tf.cast(learned, tf.int32)
    order = [tf.fill([number, 1], 2 * start), tf.RaggedTensor.from_row_splits(coded, splits, validate=False)]
    order += [tf.fill([number, 1], 2 * reply)] if add_reply else []
    order = tf.concat(order, axis=1)
    found = tf.gather(entries, order.values // 2)
    counts = found.row_lengths()
    return Pieces(
        tf.gather(table, found.values),
        tf.gather(ids, found.values),
        repeat(order.values % 2 == 1, counts),
        repeat(row_ids(order.row_splits), counts),
        number,
    )


def _with_default_system(chat_format: Any, kinds: Any, contents: Any) -> tuple[Any, Any]:
    """The same with the default system message where there is none."""
    if chat_format.default_system is None:
        return kinds, contents
    tf = import_tensorflow()
    system = list(chat_format.written_turns).index("system")
    missing = tf.cast(~begins_with_system(chat_format, kinds), tf.int64)
    count = tf.reduce_sum(missing)

    def joined(value: Any, column: Any) -> Any:
        added = tf.RaggedTensor.from_row_lengths(tf.fill([count], value), missing, validate=False)
        return tf.concat([added, column], axis=1)

    return joined(system, kinds), joined(chat_format.today(chat_format.default_system), contents)


def _parts_of_messages(chat_format: Any, kinds: Any, contents: Any, add_reply: bool, texts: _Texts) -> tuple[Any, Any]:
    """Numbers of the texts of each message, int32 `(messages, parts)`, and its words as they are written."""
    tf = import_tensorflow()
    names, turns = list(chat_format.written_turns), list(chat_format.written_turns.values())
    assistant = names.index("assistant")
    kind, original = kinds.values, contents.values
    table = [texts.of_turn(turn, name in ("assistant", CALLED)) for name, turn in zip(names, turns, strict=True)]
    parts, words = tf.gather(tf.constant(table, tf.int32), kind), original
    # the words of message i are -(i + 1)
    own_words = -1 - tf.range(tf.size(kind))[:, tf.newaxis]
    for number, turn in enumerate(turns):
        if turn.strips or turn.thoughts_end:
            words = tf.where(kind == number, written_words(turn, original), words)
    last, is_words = chat_format.last_reply, tf.range(_PARTS) == WORDS
    if last is None or add_reply:
        return tf.where(is_words, own_words, parts), words
    ends = tf.gather(kinds.row_splits[1:] - 1, row_ids(kinds.row_splits))
    is_last = (kind == assistant) & (tf.range(tf.size(kind, tf.int64)) == ends)
    own = has_thoughts(turns[assistant], original)
    with_own = dataclasses.replace(last, before=turns[assistant].before)
    for turn, chosen in ((last, is_last & ~own), (with_own, is_last & own)):
        numbers = tf.constant(texts.of_turn(turn, True), tf.int32)
        parts = tf.where(chosen[:, tf.newaxis], numbers, parts)
    words = tf.where(is_last, tf.where(own, original, written_words(last, original)), words)
    return tf.where(is_words, own_words, parts), words


def _take_up_system(
    chat_format: Any, kinds: Any, contents: Any, parts: Any, words: Any, texts: _Texts
) -> tuple[Any, Any]:
    """The parts and words of messages where a turn of the user takes up the system message."""
    tf = import_tensorflow()
    names = list(chat_format.written_turns)
    turn, kind, rows = chat_format.turns["system"], kinds.values, row_ids(kinds.row_splits)
    places = tf.range(tf.size(kind))
    is_system, is_user = kind == names.index("system"), kind == names.index("user")
    if chat_format.system_place == "first_user":
        chosen = tf.reduce_min(kinds.with_values(tf.where(is_user, places, tf.int32.max)), axis=1)
    else:
        chosen = tf.reduce_max(kinds.with_values(tf.where(is_user, places, -1)), axis=1)
    has_system = tf.reduce_any(kinds.with_values(is_system), axis=1)
    takes = (places == tf.gather(chosen, rows)) & tf.gather(has_system, rows)
    systems = tf.gather(tf.cast(kinds.row_starts(), tf.int32), rows)
    after = tf.fill(tf.shape(kind), texts.number(turn.after))
    if chat_format.strips_whole_turn:
        left, right = STRIPS[chat_format.turns["user"].strips]
        kept = next(name for name, ends in STRIPS.items() if ends == ("", right))
        words = tf.where(takes, stripped(contents.values, kept), words)
        after = tf.where(words == "", texts.number(turn.after.rstrip() if right else turn.after), after)
    taken = {BEFORE_SYSTEM: texts.number(turn.before), SYSTEM: -1 - systems, AFTER_SYSTEM: after}
    columns = tf.unstack(tf.where(is_system[:, tf.newaxis], 0, parts), axis=1)
    for part, number in taken.items():
        columns[part] = tf.where(takes, number, columns[part])
    return tf.stack(columns, axis=1), words


def as_ragged(conversations: Sequence[Sequence[Message]]) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Returns roles and contents of conversations, ragged `tf.string` `(batch, None)`."""
    tf = import_tensorflow()
    flat = [message for messages in conversations for message in messages]
    lengths = tf.constant([len(messages) for messages in conversations], tf.int64, [len(conversations)])

    def column(key: str) -> Any:
        values = tf.constant([message[key].encode() for message in flat], tf.string, [len(flat)])
        return tf.RaggedTensor.from_row_lengths(values, lengths)

    return column("role"), column("content")


def render(chat_format: Any, conversations: Sequence[Sequence[Message]], add_reply: bool = True) -> list[str]:
    """Returns checked conversations as texts, see `ChatFormat.render`."""
    tf = import_tensorflow()
    with tf.device("CPU:0"):
        pieces = pieces_of(chat_format, *as_ragged(conversations), add_reply, lambda text: [(text, -1)])
        texts = tf.strings.unsorted_segment_join(pieces.texts, pieces.rows, pieces.number)
    return [text.decode("utf-8") for text in texts.numpy()]
