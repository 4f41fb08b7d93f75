"""Tokenizers: texts to token ids and back, with equal ids eagerly, in `tf.data` and in a SavedModel."""

from zoo.tokenizers.base import Tokenizer
from zoo.tokenizers.byte_level_bpe import ByteLevelBPETokenizer
from zoo.tokenizers.characters import character_tokenizer
from zoo.tokenizers.chat import (
    CHAT_FORMATS,
    TOOL_STYLES,
    ChatFormat,
    ToolStyle,
    Turn,
    chat_format_of,
    tokenize_chat,
)
from zoo.tokenizers.huggingface import load_huggingface, save_huggingface
from zoo.tokenizers.marian import MarianTokenizer
from zoo.tokenizers.sentencepiece import SentencePieceTokenizer
from zoo.tokenizers.wordpiece import WordPieceTokenizer

__all__ = [
    "CHAT_FORMATS",
    "TOOL_STYLES",
    "ByteLevelBPETokenizer",
    "ChatFormat",
    "MarianTokenizer",
    "SentencePieceTokenizer",
    "Tokenizer",
    "ToolStyle",
    "Turn",
    "WordPieceTokenizer",
    "character_tokenizer",
    "chat_format_of",
    "load_huggingface",
    "save_huggingface",
    "tokenize_chat",
]
