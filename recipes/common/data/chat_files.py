"""Files of conversations in the formats that people publish: OpenAI's messages, ShareGPT, Alpaca."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import zoo
from recipes.common.data.text_files import read_objects
from recipes.common.errors import BadLines, ConfigError, shown

Format = Literal["auto", "messages", "sharegpt", "alpaca"]
BAD_MESSAGES = "not a conversation"
# the names in `zoo.tokenizers.CHAT_FORMATS`, which is not asked before it is needed
CHAT_FORMATS = "chatml, qwen2.5, smollm2, llama2, llama3, llama3.1, gemma, gemma3, mistral, phi3, plain, zephyr"

# the roles of ShareGPT
_ROLES = {"human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "system": "system"}
# what tells the formats apart, and what belongs to a row besides; keys that change what was said, but are not read
_KEYS = {
    "messages": ("messages",),
    "sharegpt": ("conversations",),
    "alpaca": ("instruction", "output"),
}
_UNREAD = ("tools", "functions", "function_call", "history", "images", "audios", "videos")


class Conversation(NamedTuple):
    """Messages `{"role", "content"}`, the last by the assistant, and where they stand."""

    messages: list[dict[str, str]]
    origin: str

    @property
    def given(self) -> list[dict[str, str]]:
        """What a model is given of it: all but the last reply."""
        return self.messages[:-1]


def read_conversations(
    files: Sequence[str],
    bad: BadLines,
    *,
    chat_format: zoo.tokenizers.ChatFormat,
    file_format: Format = "auto",
    key: str | None = None,
) -> list[Conversation]:
    """Returns the conversations of JSON files: JSON lines, or one array in a `.json` file, plain or gzip-compressed.

    * messages (OpenAI): `{"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]}`;
    * sharegpt: `{"conversations": [{"from": "human", "value": "..."}, {"from": "gpt", "value": "..."}]}`, where `from`
      is human, gpt or system, perhaps with `"system"`;
    * alpaca: `{"instruction": "...", "input": "...", "output": "..."}`, where the input may be missing or empty and
      otherwise follows the instruction behind an empty line, perhaps with `"system"`.

    Other keys, such as `"id"`, are not looked at; of those that change what was said (`"tools"`, `"history"`) a value
    is an error.

    Args:
        files: Paths.
        bad: Where bad rows are noted.
        chat_format: How conversations are written, which not all can be.
        file_format: The format; "auto" recognises that of each row by its keys.
        key: Key of the list of messages where it is another one, with "messages" and "sharegpt".

    Raises:
        DataError: A missing or bad file, or a row that is no conversation of this format with a reply at its end.
        ConfigError: If `key` is given without a format that has one.
    """
    if key is not None and file_format not in ("messages", "sharegpt"):
        raise ConfigError(f"data.key must be null with data.format {file_format!r}, got {key!r}")
    keys = {name: of_format if key is None else (key,) for name, of_format in _KEYS.items()}
    conversations = []
    for file in files:
        for record, origin in read_objects(file, bad):
            try:
                name = _format_of(record, keys) if file_format == "auto" else file_format
                messages = _messages(record, name, keys[name])
                check_conversation(messages, chat_format)
            except ValueError as error:
                bad.add(BAD_MESSAGES, origin, str(error))
            else:
                conversations.append(Conversation(messages, origin))
    return conversations


def check_conversation(messages: Any, chat_format: zoo.tokenizers.ChatFormat) -> None:
    """Raises a ValueError for a value that is not a conversation of a format with a reply at its end.

    Args:
        messages: The messages.
        chat_format: How conversations are written.
    """
    if not isinstance(messages, list) or len(messages) < 2:
        raise ValueError("a list of at least two messages is needed")
    for number, message in enumerate(messages, 1):
        fields = [message.get(name) for name in ("role", "content")] if isinstance(message, dict) else []
        if not all(isinstance(field, str) for field in fields) or not fields:
            raise ValueError(f"message {number} must be {{'role': text, 'content': text}}, got {shown(message)}")
    chat_format.check(messages, add_reply=False)
    if messages[-1]["role"] != "assistant" or not messages[-1]["content"].strip():
        raise ValueError("the last message is not a reply of the assistant")


def _format_of(record: Mapping[str, Any], keys: Mapping[str, Sequence[str]]) -> str:
    """The format whose keys a row has."""
    # a part of the keys of a format is enough to be suspected of it
    found = [name for name, of_format in keys.items() if any(key in record for key in of_format)]
    if len(found) == 1 and all(key in record for key in keys[found[0]]):
        return found[0]
    known = "; ".join(f"{name}: {', '.join(map(repr, of_format))}" for name, of_format in keys.items())
    what = "of one format" if len(found) < 2 else f"of one format and not of {' and '.join(found)}"
    raise ValueError(f"the row must have the keys {what} ({known}), got {shown(sorted(record), 300)}")


def _messages(record: Mapping[str, Any], name: str, keys: Sequence[str]) -> Any:
    missing = [key for key in keys if key not in record]
    if missing:
        raise ValueError(f"key missing: {missing[0]!r}; the row has the keys {shown(sorted(record), 300)}")
    unread = next((key for key in _UNREAD if record.get(key) not in (None, "", [], {})), None)
    if unread is not None:
        raise ValueError(f"the value of {unread!r} is not read, got {shown(record[unread])}")
    return _READERS[name](record, *keys)


def _of_sharegpt(record: Mapping[str, Any], key: str) -> Any:
    turns = record[key]
    if not isinstance(turns, list):
        return turns
    messages = _system(record)
    for number, turn in enumerate(turns, 1):
        values = [turn.get(name) for name in ("from", "value")] if isinstance(turn, dict) else []
        if not values or not all(isinstance(value, str) for value in values) or turn.keys() != {"from", "value"}:
            raise ValueError(f"message {number} must be {{'from': text, 'value': text}}, got {shown(turn)}")
        speaker, words = values
        if speaker not in _ROLES:
            raise ValueError(f"message {number}: 'from' must be one of {', '.join(_ROLES)}, got {shown(speaker)}")
        messages.append({"role": _ROLES[speaker], "content": words})
    return messages


def _of_alpaca(record: Mapping[str, Any], instruction: str, output: str) -> list[dict[str, str]]:
    given = record.get("input")
    texts = (record[instruction], "" if given is None else given, record[output])
    for name, text in zip((instruction, "input", output), texts, strict=True):
        if not isinstance(text, str):
            raise ValueError(f"{name!r} must be a text, got {shown(text)}")
    asked = f"{texts[0]}\n\n{texts[1]}" if texts[1].strip() else texts[0]
    return [*_system(record), {"role": "user", "content": asked}, {"role": "assistant", "content": texts[2]}]


def _system(record: Mapping[str, Any]) -> list[dict[str, str]]:
    """The system message that stands beside the turns."""
    system = record.get("system")
    if system in (None, ""):
        return []
    if not isinstance(system, str):
        raise ValueError(f"'system' must be a text, got {shown(system)}")
    return [{"role": "system", "content": system}]


def _of_messages(record: Mapping[str, Any], key: str) -> Any:
    if _system(record):
        raise ValueError(f"'system' must be the first of {key!r}, got {shown(record['system'])} beside them")
    return record[key]


_READERS: dict[str, Callable[..., Any]] = {"messages": _of_messages, "sharegpt": _of_sharegpt, "alpaca": _of_alpaca}
