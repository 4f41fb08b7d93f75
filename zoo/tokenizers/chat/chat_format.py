"""How a family of models writes a conversation, as plain data."""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from zoo.storage import to_dataclass
from zoo.tokenizers.chat.calls import THOUGHTS, ReplyReader
from zoo.tokenizers.chat.checks import NO_TOOLS, check_conversation, check_tools
from zoo.tokenizers.chat.pieces import render
from zoo.tokenizers.chat.tool_messages import without_tools
from zoo.tokenizers.chat.tool_style import CALLED, SYSTEM_WITH_TOOLS, ToolStyle, get_tool_style
from zoo.tokenizers.chat.turn import DATE, Message, Turn, common_prefix, turn_values, units


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
        tools: How tools, calls and results are written; None for a format without.

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
    tools: ToolStyle | None = None

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
        if self.tools is not None:
            self._check_style(self.tools)

    def _check_style(self, style: ToolStyle) -> None:
        if not isinstance(style, ToolStyle):
            raise ValueError(f"tools must be a ToolStyle, got {style!r:.80}.")
        if (style.place == "system" or style.environment) and "system" not in self.turns:
            raise ValueError("tools must not need the role 'system' in a format without, got a style that needs it.")
        if missing := [token for token in style.special_tokens if token not in self.special_tokens]:
            raise ValueError(f"special_tokens must hold those of tools, {missing} missing: use with_tools().")
        if "tool" in self.turns:
            raise ValueError("turns must not have the role 'tool' with a style of tools.")
        if self.alternates and ("tool" in style.turns) != (CALLED in style.turns):
            raise ValueError(
                f"turns of tools must have both or neither of 'tool' and {CALLED!r} where user and assistant take "
                f"turns, got {sorted(style.turns)}."
            )
        if style.environment and self.system_place != "turn":
            raise ValueError(f"system_place must be 'turn' with the environment of tools, got {self.system_place!r}.")
        if "tool" not in style.turns and self.system_place == "last_user":
            # results are words of the user, and would take up the system message
            raise ValueError("system_place must not be 'last_user' with tools that have no turn 'tool'.")

    def with_tools(self, style: Any) -> ChatFormat:
        """Returns the same format with a style of tools.

        Args:
            style: A name in `TOOL_STYLES`, or a `ToolStyle`. The model must have learnt it.

        Raises:
            ValueError: If it is neither, or needs a role that the format does not have.

        Example:

        >>> CHAT_FORMATS["chatml"].with_tools("hermes").tools.arguments
        'arguments'
        """
        style = get_tool_style(style)
        tokens = tuple(token for token in style.special_tokens if token not in self.special_tokens)
        return dataclasses.replace(self, tools=style, special_tokens=(*self.special_tokens, *tokens))

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
        style = None if parsed.tools is None else ToolStyle.from_dict(parsed.tools, "chat_format: tools")
        named = {role: to_dataclass(Turn, turn, f"chat_format: turns.{role}") for role, turn in dict(turns).items()}
        return cls(**{**vars(parsed), "turns": named, "special_tokens": tuple(parsed.special_tokens), "tools": style})

    def to_dict(self) -> dict[str, Any]:
        """Returns the choices that differ from their defaults, as values for JSON."""
        values = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value != field.default:
                values[field.name] = value
        values["turns"] = {role: turn_values(turn) for role, turn in self.turns.items()}
        if self.last_reply is not None:
            values["last_reply"] = turn_values(self.last_reply)
        if self.tools is not None:
            values["tools"] = self.tools.to_dict()
        return json.loads(json.dumps(values))

    def today(self, text: str) -> str:
        """Returns a text of the format with today's date in its place."""
        if self.date is None or DATE not in text:
            return text
        return text.replace(DATE, datetime.datetime.now().strftime(self.date))

    @property
    def written_turns(self) -> dict[str, Turn]:
        """The turns of all messages that `plain_messages` returns: those of the format, and those of its tools."""
        if self.tools is None:
            return dict(self.turns)
        turns = {**self.turns, **self.tools.turns}
        if self.tools.environment:
            system = self.turns["system"]
            # behind the header, which ends with a control token and line breaks
            parts = units(system.before, self.special_tokens)
            cut = max((place + 1 for place, unit in enumerate(parts) if unit in self.special_tokens), default=0)
            while cut < len(parts) and parts[cut] == "\n":
                cut += 1
            before = "".join([*parts[:cut], self.tools.environment, *parts[cut:]])
            turns[SYSTEM_WITH_TOOLS] = dataclasses.replace(system, before=before)
        return turns

    @property
    def texts(self) -> list[str]:
        """All texts of the format."""
        turns = [*self.written_turns.values(), *([] if self.last_reply is None else [self.last_reply])]
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

    def check(
        self, messages: Any, name: str = "messages", add_reply: bool = True, tools: Sequence[Any] | None = None
    ) -> None:
        """Checks a conversation.

        Args:
            messages: The conversation.
            name: Name of the conversation, for the error message.
            add_reply: Whether a reply is asked for.
            tools: The tools that the model may call, in OpenAI's form.

        Raises:
            ValueError: No messages, an unknown role or key, roles that do not take turns, content that is not a `str`,
                or a call, a result or tools that the format cannot write. The message names conversation and message.
        """
        check_conversation(self, messages, name, add_reply, tools)

    def plain_messages(
        self,
        messages: Any,
        name: str = "messages",
        add_reply: bool = True,
        tools: Sequence[Any] | None = None,
    ) -> list[Message]:
        """Checks a conversation and returns it as messages with `role` and `content` alone, which graph functions take.

        Args:
            messages, name, add_reply, tools: As for `check`.

        Raises:
            ValueError: As for `check`.
        """
        self.check(messages, name, add_reply, tools)
        return without_tools(self, messages, tools)

    def render(self, messages: Sequence[Message], add_reply: bool = True, tools: Sequence[Any] | None = None) -> str:
        """Returns a conversation as one text, for display. To tokenize a conversation use `tokenize_chat`.

        Args:
            messages: Mappings with `role` and `content`, and with a style of tools calls (`tool_calls`) and results.
            add_reply: Whether to add the text that asks for a reply.
            tools: The tools that the model may call, in OpenAI's form.

        Raises:
            ValueError: As for `check`.
        """
        return render(self, [self.plain_messages(messages, add_reply=add_reply, tools=tools)], add_reply)[0]

    def reply_reader(self, tools: Sequence[Any] | None, most_calls: int | None = None) -> ReplyReader:
        """Returns what reads a reply, piece by piece, too.

        Args:
            tools: The tools that it may call, in OpenAI's form; None if they are not known, see `ReplyReader`.
            most_calls: Most calls that are read; None for all.

        Raises:
            ValueError: If the format has no style of tools.

        Example:

        >>> reader = CHAT_FORMATS["chatml"].with_tools("hermes").reply_reader(tools)
        >>> reader.add("One moment.\\n<tool_")
        ('One moment.', [])
        """
        if self.tools is None:
            raise ValueError(f"reading a reply needs a style of tools: {NO_TOOLS}.")
        names = None if tools is None else {tool["function"]["name"] for tool in tools}
        thinks = self.reply.rstrip().endswith(THOUGHTS)
        return ReplyReader(self.tools, names, most_calls, thinks)

    def read_reply(self, text: str, tools: Sequence[Any] | None) -> dict[str, Any]:
        """Returns a reply as a message: its words, and the tools that it calls.

        The message may be added to the conversation, before the results of the calls.

        Args:
            text: What the model wrote.
            tools: The tools that it may call, in OpenAI's form; a call of another one stays text. None if they are not
                known: calls that stand between texts of the style count, whatever they call.

        Returns:
            `{"role": "assistant", "content": ..., "tool_calls": [...]}`; no calls are left out, and words that are none
            are None beside calls. Arguments are a text in JSON.

        Raises:
            ValueError: If the format has no style of tools.

        Example:

        >>> chat_format = CHAT_FORMATS["chatml"].with_tools("hermes")
        >>> chat_format.read_reply('<tool_call>{"name": "now", "arguments": {}}</tool_call>', tools)
        {'role': 'assistant', 'content': None, 'tool_calls': [{'id': 'k3v...', 'type': 'function', ...}]}
        """
        check_tools(self, tools)
        words, calls = self.reply_reader(tools).read(text)
        if not calls:
            return {"role": "assistant", "content": words}
        return {"role": "assistant", "content": words or None, "tool_calls": [call.to_dict() for call in calls]}


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
    tools: dict[str, Any] | None = None
