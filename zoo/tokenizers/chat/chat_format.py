"""How a family of models writes a conversation, as plain data."""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from zoo.storage import to_dataclass
from zoo.tokenizers.chat.pieces import render
from zoo.tokenizers.chat.turn import DATE, Message, Turn, common_prefix, units


@dataclasses.dataclass(frozen=True)
class ChatFormat:
    r"""The format of conversations of a model: fixed text around the content of each message.

    A format is data, not a program. It separates the content of messages from control tokens, so that a message cannot
    contain control tokens. It is the same in Python and in the graph of an export.

    Args:
        turns: The format of the messages of each role.
        start: Text at the beginning of every conversation.
        reply: Text that asks for a reply of the assistant.
        special_tokens: The control tokens in these texts. A tokenizer must have them.
        default_system: System message of a conversation that does not begin with one; None for no such message.
        system_place: Place of the system message: "turn" for a separate turn, "first_user" or "last_user" for the
            beginning of the user's first or last turn.
        strips_whole_turn: Whether a user's turn with the system message is stripped as a whole, so that white space
            between the two is kept.
        last_reply: Format of a reply that ends a conversation, if it differs from that of earlier replies. A last reply
            that contains its own thoughts is written with the `before` of earlier replies and the `after` of this one.
        alternates: Whether `user` and `assistant` must take turns, `user` first.
        date: `strftime` format of today's date, which replaces `"{date}"` in the texts; None for texts without a date.
            A SavedModel uses the date of its export.

    Raises:
        ValueError: If two choices exclude each other.

    Example:

    >>> CHAT_FORMATS["chatml"].render([{"role": "user", "content": "Hello"}])
    '<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n'
    """

    turns: Mapping[str, Turn]
    start: str = ""
    reply: str = ""
    special_tokens: tuple[str, ...] = ()
    default_system: str | None = None
    system_place: Literal["turn", "first_user", "last_user"] = "turn"
    strips_whole_turn: bool = False
    last_reply: Turn | None = None
    alternates: bool = False
    date: str | None = None

    def __post_init__(self) -> None:
        if missing := {"user", "assistant"} - set(self.turns):
            raise ValueError(f"turns must have the roles 'user' and 'assistant', {sorted(missing)} missing.")
        if "" in self.turns:
            raise ValueError("turns must not have the role '', which fills conversations of a batch.")
        if self.default_system is not None and "system" not in self.turns:
            raise ValueError(f"default_system must be None without the role 'system', got {self.default_system!r}.")
        if self.system_place not in ("turn", "first_user", "last_user"):
            raise ValueError(f"system_place must be 'turn', 'first_user' or 'last_user', got {self.system_place!r}.")
        for role, turn in self.turns.items():
            if not isinstance(turn, Turn):
                raise ValueError(f"turns[{role!r}] must be a Turn, got {turn!r:.80}.")
        if isinstance(self.special_tokens, str):
            raise ValueError(f"special_tokens must be a tuple of tokens, got {self.special_tokens!r:.80}.")
        object.__setattr__(self, "special_tokens", tuple(self.special_tokens))
        if "" in self.special_tokens:
            raise ValueError("special_tokens must not hold an empty token.")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ChatFormat:
        """Returns the format that `to_dict` described.

        Raises:
            ValueError: If a key is missing, unknown, or has a value of another type.
        """
        values = dict(values)
        turns = values.get("turns")
        if isinstance(turns, Mapping):
            values["turns"] = {}
        parsed = to_dataclass(_Plain, values, "chat_format")
        named = {role: to_dataclass(Turn, turn, f"chat_format: turns.{role}") for role, turn in dict(turns).items()}
        return cls(**{**vars(parsed), "turns": named, "special_tokens": tuple(parsed.special_tokens)})

    def to_dict(self) -> dict[str, Any]:
        """Returns the choices that differ from their defaults, as values for JSON."""
        values = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value != field.default:
                values[field.name] = value
        values["turns"] = {role: _turn_values(turn) for role, turn in self.turns.items()}
        if self.last_reply is not None:
            values["last_reply"] = _turn_values(self.last_reply)
        return json.loads(json.dumps(values))

    def today(self, text: str) -> str:
        """Returns a text of the format with today's date in its place."""
        if self.date is None or DATE not in text:
            return text
        return text.replace(DATE, datetime.datetime.now().strftime(self.date))

    @property
    def texts(self) -> list[str]:
        """All texts of the format."""
        turns = [*self.turns.values(), *([] if self.last_reply is None else [self.last_reply])]
        return [self.start, self.reply, *(text for turn in turns for text in (turn.before, turn.after))]

    def split_reply(self, turn: Turn) -> tuple[tuple[str, str], tuple[str, str]]:
        """Returns the text that asks for a reply and the rest of its beginning; its end and the text after.

        Args:
            turn: The format of the reply.
        """
        asked, begun = units(self.reply, self.special_tokens), units(turn.before, self.special_tokens)
        cut = len("".join(common_prefix(asked, begun)))
        token, _ = self.end_of_turn
        place = -1 if token is None else turn.after.find(token)
        end = len(turn.after) if place < 0 else place + len(token)
        return (turn.before[:cut], turn.before[cut:]), (turn.after[:end], turn.after[end:])

    @property
    def end_of_turn(self) -> tuple[str | None, str | None]:
        """The end of an answer: a control token, or a stop string; the other one is None.

        It is the beginning of the text after a reply that ends a conversation.
        """
        after = (self.last_reply or self.turns["assistant"]).after.strip()
        for token in sorted(self.special_tokens, key=len, reverse=True):
            if after.startswith(token):
                return token, None
        places = [after.find(token) for token in self.special_tokens if token in after]
        stop = after[: min(places, default=len(after))].strip()
        return None, stop or None

    def check(self, messages: Any, name: str = "messages", add_reply: bool = True) -> None:
        """Checks a conversation.

        Args:
            messages: The conversation.
            name: Name of the conversation, for the error message.
            add_reply: Whether a reply is asked for.

        Raises:
            ValueError: No messages, an unknown role or key, roles that do not take turns, or content that is not a
                `str`. The message names conversation and message.
        """
        if not isinstance(messages, Sequence) or isinstance(messages, (str, bytes)):
            raise ValueError(f"{name} must be a list of messages, got {messages!r:.80}.")
        if not messages:
            raise ValueError(f"{name} must hold at least one message, got {messages!r}.")
        for place, message in enumerate(messages):
            if not isinstance(message, Mapping) or message.keys() != {"role", "content"}:
                raise ValueError(f"{name}[{place}] must have the keys 'role' and 'content', got {message!r:.200}.")
            role, content = message["role"], message["content"]
            if not isinstance(content, str):
                raise ValueError(f"{name}[{place}]['content'] must be a str, got {content!r:.200}.")
            try:
                content.encode()
            except UnicodeEncodeError as error:
                raise ValueError(f"{name}[{place}]['content'] must be a text that UTF-8 can hold: {error}.") from error
            if not isinstance(role, str) or role not in self.turns:
                raise ValueError(f"{name}[{place}]['role'] must be one of {sorted(self.turns)}, got {role!r:.80}.")
            if role == "system" and place > 0:
                raise ValueError(
                    f"{name}[{place}]['role'] must not be 'system' behind the first message, got 'system'."
                )
        roles = [message["role"] for message in messages]
        turns = [(place, role) for place, role in enumerate(roles) if role != "system"]
        for turn, (place, role) in enumerate(turns) if self.alternates else ():
            expected = ("user", "assistant")[turn % 2]
            if role != expected:
                raise ValueError(
                    f"{name}[{place}]['role'] must be {expected!r}, got {role!r}: user and assistant must take turns."
                )
        if add_reply and self.alternates and roles[-1] != "user":
            raise ValueError(f"{name}[{len(roles) - 1}]['role'] must be 'user' where a reply is asked for.")
        has_system = roles[0] == "system" or self.default_system is not None
        if has_system and self.system_place != "turn" and "user" not in roles:
            raise ValueError(f"{name} must hold a message of 'user', which takes up the system message, got none.")

    def render(self, messages: Sequence[Message], add_reply: bool = True) -> str:
        """Returns a conversation as one text, for display. To tokenize a conversation use `tokenize_chat`.

        Args:
            messages: Mappings with `role` and `content`.
            add_reply: Whether to add the text that asks for a reply.

        Raises:
            ValueError: As for `check`.
        """
        self.check(messages, add_reply=add_reply)
        return render(self, [messages], add_reply)[0]


@dataclasses.dataclass(frozen=True)
class _Plain:
    """The fields of a `ChatFormat` as JSON has them; turns are read by themselves."""

    turns: dict[str, Any]
    start: str = ""
    reply: str = ""
    special_tokens: list[str] = dataclasses.field(default_factory=list)
    default_system: str | None = None
    system_place: Literal["turn", "first_user", "last_user"] = "turn"
    strips_whole_turn: bool = False
    last_reply: Turn | None = None
    alternates: bool = False
    date: str | None = None


def _turn_values(turn: Turn) -> dict[str, str]:
    return {name: value for name, value in vars(turn).items() if value}
