"""The words of a batch of conversations: which roles say them, and what the format drops of them; graph functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from zoo.tokenizers.chat.tool_style import SYSTEM_WITH_TOOLS
from zoo.tokenizers.chat.turn import STRIPS, Turn
from zoo.tokenizers.special_tokens import escape
from zoo.tokenizers.tensors import as_utf8, import_tensorflow, row_ids

if TYPE_CHECKING:
    import tensorflow as tf


def checked_kinds(chat_format: Any, roles: tf.RaggedTensor, add_reply: bool) -> tf.RaggedTensor:
    """Returns the number of each role among those of the format, ragged int32 `(batch, None)`.

    A conversation that the format does not allow, see `ChatFormat.check`, is an `InvalidArgumentError`, which names the
    rows.

    Args:
        chat_format: The `ChatFormat`.
        roles: Ragged `tf.string` `(batch, None)`.
        add_reply: Whether a reply is asked for.
    """
    tf = import_tensorflow()
    names = list(chat_format.written_turns)
    kinds = tf.fill(tf.shape(roles.values), -1)
    for number, name in enumerate(names):
        kinds = tf.where(roles.values == name, number, kinds)
    kinds = roles.with_values(kinds)
    user, assistant = names.index("user"), names.index("assistant")
    is_system = is_of(kinds.values, names, ("system", SYSTEM_WITH_TOOLS))
    has_system = begins_with_system(chat_format, kinds)
    places = tf.ragged.range(kinds.row_lengths(), row_splits_dtype=kinds.row_splits.dtype).values
    rows = row_ids(kinds.row_splits)
    flat = kinds.values
    known = (flat >= 0) & (~is_system | (places == 0))
    shown = [name for name in names if "." not in name]
    rules = [
        ("at least one message", kinds.row_lengths() > 0),
        (f"the roles {', '.join(shown)} only, system at the beginning", _all(kinds, known)),
    ]
    if chat_format.alternates:
        # messages of tools with turns of their own do not count
        takes_turns = (flat != -1) & is_of(flat, names, ("user", "assistant"))
        before = tf.cumsum(tf.cast(takes_turns, tf.int32), exclusive=True)
        first = tf.gather(tf.concat([before, [0]], axis=0), kinds.row_starts())
        expected = tf.where((before - tf.gather(first, rows)) % 2 == 0, user, assistant)
        rules.append(("user and assistant in turns", _all(kinds, (flat == expected) | ~takes_turns)))
        if add_reply:
            last = kinds[:, -1:].to_tensor(-1, shape=[None, 1])[:, 0]
            rules.append(("a message of the user at the end", is_of(last, names, ("user", "tool"))))
    if chat_format.system_place != "turn":
        needed = has_system if chat_format.default_system is None else tf.ones_like(has_system)
        any_user = tf.reduce_any(kinds.with_values(flat == user), axis=1)
        rules.append(("a message of the user, which takes up the system message", ~needed | any_user))
    checks = []
    for rule, allowed in rules:
        wrong = tf.where(~allowed)[:, 0]
        message = f"A conversation must have {rule}; rows and roles:"
        shown = as_utf8(tf.strings.reduce_join(tf.gather(roles, wrong), axis=1, separator=" "))
        checks.append(tf.debugging.Assert(tf.equal(tf.size(wrong), 0), [message, wrong, shown]))
    with tf.control_dependencies([check for check in checks if check is not None]):
        return kinds.with_values(tf.identity(flat))


def is_of(kinds: tf.Tensor, names: Sequence[str], chosen: Sequence[str]) -> tf.Tensor:
    """Returns which kinds are those of some roles, bool of the same shape.

    Args:
        kinds: Numbers of roles.
        names: All roles in the order of their numbers.
        chosen: The roles; those that the format does not have are the kind of no message.
    """
    tf = import_tensorflow()
    found = tf.zeros(tf.shape(kinds), tf.bool)
    for number in (names.index(role) for role in chosen if role in names):
        found |= kinds == number
    return found


def begins_with_system(chat_format: Any, kinds: tf.RaggedTensor) -> tf.Tensor:
    """Returns which conversations begin with a system message, bool `(batch,)`."""
    first = kinds[:, :1].to_tensor(-1, shape=[None, 1])[:, 0]
    return is_of(first, list(chat_format.written_turns), ("system", SYSTEM_WITH_TOOLS))


def _all(kinds: tf.RaggedTensor, allowed: tf.Tensor) -> tf.Tensor:
    return import_tensorflow().reduce_all(kinds.with_values(allowed), axis=1)


def written_words(turn: Turn, words: tf.Tensor) -> tf.Tensor:
    """Returns what a turn writes of words: without thoughts and white space that it drops; `tf.string` `(count,)`."""
    if turn.thoughts_end:
        tf = import_tensorflow()
        behind = tf.strings.regex_replace(words, f"(?s)^.*{escape(turn.thoughts_end)}", "")
        words = tf.where(has_thoughts(turn, words), stripped(behind, turn.thoughts_strips), words)
    return stripped(words, turn.strips)


def has_thoughts(turn: Turn, words: tf.Tensor) -> tf.Tensor:
    """Returns which words hold what ends thoughts, bool `(count,)`."""
    tf = import_tensorflow()
    if not turn.thoughts_end:
        return tf.zeros(tf.shape(words), tf.bool)
    return tf.strings.regex_full_match(words, f"(?s).*{escape(turn.thoughts_end)}.*")


def stripped(words: tf.Tensor, strips: str) -> tf.Tensor:
    """Returns words without white space at their ends, of the kinds of `STRIPS`."""
    tf = import_tensorflow()
    left, right = STRIPS[strips]
    if left:
        words = tf.strings.regex_replace(words, f"^[{left}]+", "")
    return tf.strings.regex_replace(words, f"[{right}]+$", "") if right else words
