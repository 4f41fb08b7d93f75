"""Conversations: how models write them, as token ids, and the templates of Hugging Face."""

from zoo.tokenizers.chat.calls import ReplyReader, ToolCall
from zoo.tokenizers.chat.chat_format import ChatFormat
from zoo.tokenizers.chat.encoding import ChatTokens, chat_tokens, require_chat_format, tokenize_chat
from zoo.tokenizers.chat.formats import CHAT_FORMATS, get_chat_format
from zoo.tokenizers.chat.pieces import as_ragged, render
from zoo.tokenizers.chat.templates import chat_format_of
from zoo.tokenizers.chat.tool_messages import without_tools
from zoo.tokenizers.chat.tool_style import TOOL_STYLES, ToolStyle
from zoo.tokenizers.chat.turn import Message, Turn
from zoo.tokenizers.chat.writing import write_template

__all__ = [
    "CHAT_FORMATS",
    "TOOL_STYLES",
    "ChatFormat",
    "ChatTokens",
    "Message",
    "ReplyReader",
    "ToolCall",
    "ToolStyle",
    "Turn",
    "as_ragged",
    "chat_format_of",
    "chat_tokens",
    "get_chat_format",
    "render",
    "require_chat_format",
    "tokenize_chat",
    "without_tools",
    "write_template",
]
