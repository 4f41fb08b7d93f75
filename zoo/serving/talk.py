"""Conversations of a served model: what is written of them, with tools, calls and results, and what answers call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import zoo
from zoo.serving.decoder_texts import DecoderTexts
from zoo.serving.tool_grammar import NO_TOOLS


class UnwritableError(ValueError):
    """A conversation that the model's chat format cannot write. The message holds no text of the user's."""


class Talk:
    """How a model is given conversations, and how its answers are read.

    Args:
        texts: The texts of the model, which has a chat format.

    Example:

    >>> Talk(texts).tokens({"messages": [{"role": "user", "content": "Hello"}]})
    [1, 872, 198, 9707, 2, 198, 1, 77091, 198]
    """

    def __init__(self, texts: DecoderTexts) -> None:
        self._texts = texts
        self._format = zoo.tokenizers.ChatFormat.from_dict(texts.properties["chat"]["format"])

    def tokens(self, request: Mapping[str, Any]) -> list[int]:
        """Returns the token ids of a conversation.

        Args:
            request: Has `messages`, and `tools` that the model may call.

        Raises:
            UnwritableError: If the chat format has no tools, or no message takes them up.
        """
        messages, tools = request["messages"], request.get("tools")
        is_plain = not tools and not any(message.keys() - {"role", "content"} for message in messages)
        if self._format.tools is None and not is_plain:
            raise UnwritableError(NO_TOOLS)
        try:
            plain = zoo.tokenizers.chat.without_tools(self._format, messages, tools)
        except ValueError as error:
            raise UnwritableError(f"{error}") from error
        return self._texts.chat_tokens(plain)

    def reader(self, request: Mapping[str, Any]) -> zoo.tokenizers.chat.ReplyReader | None:
        """Returns what reads the answer to a request; None where no tools may be called."""
        if not request.get("tools") or self._format.tools is None:
            return None
        return self._format.reply_reader(request["tools"], request.get("most_calls"))


def read_piece(reader: zoo.tokenizers.chat.ReplyReader, text: str, is_last: bool) -> tuple[str, list[dict[str, Any]]]:
    """Returns words and calls that are certain after a piece of an answer.

    Args:
        reader: What reads the answer.
        text: The piece.
        is_last: Whether it is the last one.
    """
    words, calls = reader.add(text)
    if is_last:
        more_words, more_calls = reader.finish()
        words, calls = words + more_words, calls + more_calls
    return words, [call.to_dict() for call in calls]
