"""Conversations: how models write them, as token ids, and the templates of Hugging Face."""

from zoo.tokenizers.chat.chat_format import ChatFormat, Message, Turn
from zoo.tokenizers.chat.encoding import ChatTokens, chat_tokens, require_chat_format, tokenize_chat
from zoo.tokenizers.chat.formats import CHAT_FORMATS
from zoo.tokenizers.chat.pieces import as_ragged, render
from zoo.tokenizers.chat.templates import chat_format_of
from zoo.tokenizers.chat.writing import write_template

__all__ = [
    "CHAT_FORMATS",
    "ChatFormat",
    "ChatTokens",
    "Message",
    "Turn",
    "as_ragged",
    "chat_format_of",
    "chat_tokens",
    "render",
    "require_chat_format",
    "tokenize_chat",
    "write_template",
]
