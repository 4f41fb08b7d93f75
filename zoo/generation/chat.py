"""What generation is asked for: texts, or conversations, whose answers end where a turn ends."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from zoo.columns import is_list, listed
from zoo.generation.checks import as_ids
from zoo.generation.defaults import GenerationDefaults
from zoo.generation.request import Request, make_request, room
from zoo.preprocessing.rows import as_text, as_texts, shorten
from zoo.tokenizers.chat import ChatFormat, as_ragged, require_chat_format
from zoo.tokenizers.chat.turn import units


@dataclasses.dataclass(frozen=True)
class AnswerEdges:
    """What a format writes around the words of an answer, which a model writes too.

    Args:
        begins: Texts of which an answer may begin with one.
        ends: What stands between the words and the end of the turn.
        anew: Whether an answer behind a control token begins as a text of its own does.

    Example:

    >>> AnswerEdges.of(CHAT_FORMATS["llama2"])
    AnswerEdges(begins=(' ',), ends=' ', anew=True)
    """

    begins: tuple[str, ...] = ()
    ends: str = ""
    anew: bool = False

    @classmethod
    def of(cls, chat_format: ChatFormat) -> "AnswerEdges":
        """Returns the edges of the answers of a format; control tokens are no text."""
        turn = chat_format.turns["assistant"]
        begins, ends = [], ""
        for each in (chat_format.last_reply or turn, turn):
            (_, begun), (ended, _) = chat_format.split_reply(each)
            plain, ending = ("".join(_plain(text, chat_format)) for text in (begun, ended))
            ends = ends or (ending if chat_format.end_of_turn[0] is not None else "")
            if plain and plain not in begins:
                begins.append(plain)
        # of two that a text begins with, the longer one is cut
        return cls(tuple(sorted(begins, key=len, reverse=True)), ends, anew=True)

    def cut(self, answers: Any) -> Any:
        """Returns answers without these texts; a string tensor to another."""
        import tensorflow as tf

        if self.begins:
            answers = tf.strings.regex_replace(answers, f"^(?:{'|'.join(map(re.escape, self.begins))})", "")
        return tf.strings.regex_replace(answers, f"{re.escape(self.ends)}$", "") if self.ends else answers


def _plain(text: str, chat_format: ChatFormat) -> list[str]:
    return [unit for unit in units(text, chat_format.special_tokens) if unit not in chat_format.special_tokens]


class Texts:
    """Texts that are to be continued, or mapped to others.

    Args:
        texts: One text or many.
    """

    edges: AnswerEdges = AnswerEdges()

    def __init__(self, texts: str | Sequence[str]) -> None:
        self.single: bool = isinstance(texts, (str, bytes))
        self.rows: list[bytes] = [as_text(texts, "texts")] if self.single else as_texts(texts, "texts")

    def ending(self, chosen: GenerationDefaults) -> GenerationDefaults:
        """Returns what generation depends on, with all that ends a text."""
        return chosen

    def request(self, preprocessor: Any, **options: Any) -> Request:
        """Returns the rows as token ids, see `make_request`."""
        return make_request(preprocessor, self.rows, **options)


class Conversations:
    """Conversations that are to be answered.

    Args:
        messages: One conversation, a list of messages, or a list of conversations.
        preprocessor: The preprocessor of the task.
        tools: The tools that the model may call, in OpenAI's form; None for none.

    Raises:
        ValueError: If something is no conversation of the tokenizer's format, naming conversation and message.
    """

    def __init__(self, messages: Sequence[Any], preprocessor: Any, tools: Sequence[Any] | None = None) -> None:
        self._tokenizer = require_chat(preprocessor, "A conversation")
        self.single: bool = any(isinstance(entry, Mapping) for entry in messages)
        rows = [messages] if self.single else list(messages)
        chat_format = self._tokenizer.chat_format
        self.rows: list[Sequence[Any]] = [
            chat_format.plain_messages(conversation, self._name(row), tools=tools)
            for row, conversation in enumerate(rows)
        ]
        self.edges: AnswerEdges = AnswerEdges.of(self._tokenizer.chat_format)

    def _name(self, row: int) -> str:
        return "messages" if self.single else f"messages[{row}]"

    def ending(self, chosen: GenerationDefaults) -> GenerationDefaults:
        """Returns what generation depends on, with all that ends an answer."""
        return with_end_of_turn(chosen, self._tokenizer)

    def request(
        self,
        preprocessor: Any,
        *,
        most: int,
        max_length: int | None = None,
        max_new_tokens: int | None = None,
        truncate: bool | None = None,
        **others: Any,
    ) -> Request:
        """Returns the conversations as token ids.

        Args:
            preprocessor: The preprocessor of the task.
            most: Most tokens that a row may generate.
            max_length, max_new_tokens, truncate: As for `TextGenerator.generate`.
            **others: What texts alone can have, None.

        Raises:
            ValueError: If a conversation is too long, naming it, or something is given that texts alone can have.
        """
        for name, value in others.items():
            if value is not None:
                raise ValueError(f"{name} must be None with conversations, got {shorten(value)}.")
        longest = preprocessor.sequence_length if max_length is None else max_length
        truncate = preprocessor.truncate if truncate is None else truncate
        keep = preprocessor.kept_tokens(longest, max_new_tokens) if truncate else None
        prompts = preprocessor.chat_ids(*as_ragged(self.rows), keep)
        lengths = np.asarray(prompts.row_lengths())
        for row in np.flatnonzero((lengths >= longest) | (lengths < 1)):
            raise ValueError(
                f"{self._name(row)} must have at least 1 token and leave room for one more below "
                f"max_length={longest}, got {lengths[row]}. Leave out its first messages, or pass truncate=True to "
                "keep its end."
            )
        limits = np.minimum(room(lengths, None, longest, preprocessor.start_tokens), most)
        return Request(prompts.to_list(), None, limits, lengths, [b""] * len(self.rows))


def read_asked(texts: Any, preprocessor: Any, tools: Sequence[Any] | None = None) -> Texts | Conversations:
    """Returns what generation is asked for.

    Args:
        texts: One text or many; a conversation, which is a list of messages, or many.
        preprocessor: The preprocessor of the task.
        tools: The tools that a model may call in its answers; None for none.

    Raises:
        TypeError, ValueError: If it is neither, naming the row.
    """
    texts = listed(texts)
    if is_list(texts) and any(_is_of_messages(entry) for entry in texts):
        return Conversations(texts, preprocessor, tools)
    if tools is not None:
        raise ValueError(f"tools must be None with texts, got {shorten(tools)}: give a conversation.")
    return Texts(texts)


def _is_of_messages(entry: Any) -> bool:
    """Whether an entry of a list is a message or a conversation."""
    if is_list(entry):
        return not len(entry) or any(isinstance(message, Mapping) for message in entry)
    return isinstance(entry, Mapping)


def require_chat(preprocessor: Any, what: str) -> Any:
    """Returns the tokenizer of a preprocessor that takes conversations.

    Args:
        preprocessor: The preprocessor.
        what: What needs it, for the error.

    Raises:
        ValueError: If the task does not take conversations, or its tokenizer has no chat format.
    """
    if not preprocessor.takes_conversations:
        raise ValueError(f"{what} cannot be used with a {preprocessor.task_name}, which takes texts: use a CausalLM.")
    tokenizer = preprocessor.require_tokenizer(what)
    require_chat_format(tokenizer, what)
    return tokenizer


def with_end_of_turn(chosen: GenerationDefaults, tokenizer: Any) -> GenerationDefaults:
    """Returns what generation depends on, with the end of a turn among what ends a text.

    Args:
        chosen: What it depends on for texts.
        tokenizer: The tokenizer, which has a chat format.
    """
    token, string = tokenizer.chat_format.end_of_turn
    if token is not None:
        ends = chosen.end_ids
        if ends is None:
            ends = () if tokenizer.end_id is None else tokenizer.end_id
        end = tokenizer.token_to_id(token)
        ends = as_ids("end_ids", ends)
        return dataclasses.replace(chosen, end_ids=ends if end in ends else (*ends, end))
    if string is None:
        return chosen
    stops = [] if chosen.stop is None else [chosen.stop] if isinstance(chosen.stop, (str, bytes)) else [*chosen.stop]
    return dataclasses.replace(chosen, stop=[*stops, string])


def given_messages(roles: Any, contents: Any) -> tuple[Any, Any]:
    """Returns roles and contents of conversations without what fills them up: ragged string tensors; a graph function.

    Args:
        roles, contents: String tensors `(batch, messages)`; what has the role "" is left out.
    """
    import tensorflow as tf

    given = roles != ""
    return tf.ragged.boolean_mask(roles, given), tf.ragged.boolean_mask(contents, given)
