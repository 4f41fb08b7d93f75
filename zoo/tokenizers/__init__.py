"""Tokenizers: text to token ids and back, the same eagerly, in `tf.data` and in a SavedModel."""

from zoo.tokenizers.base import Tokenizer
from zoo.tokenizers.packing import add_start_end, to_dense
from zoo.tokenizers.sentencepiece import SentencePieceTokenizer

__all__ = ["SentencePieceTokenizer", "Tokenizer", "add_start_end", "to_dense"]
