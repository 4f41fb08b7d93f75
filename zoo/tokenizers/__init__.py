"""Tokenizers: text to token ids and back, the same eagerly, in `tf.data` and in a SavedModel."""

from zoo.tokenizers.base import Tokenizer
from zoo.tokenizers.byte_level_bpe import ByteLevelBPETokenizer
from zoo.tokenizers.huggingface import load_huggingface
from zoo.tokenizers.packing import add_start_end, to_dense
from zoo.tokenizers.sentencepiece import SentencePieceTokenizer
from zoo.tokenizers.wordpiece import WordPieceTokenizer

__all__ = [
    "ByteLevelBPETokenizer",
    "SentencePieceTokenizer",
    "Tokenizer",
    "WordPieceTokenizer",
    "add_start_end",
    "load_huggingface",
    "to_dense",
]
