"""Tokenizes each distinct word of a batch once, by SentencePiece models whose tokens end where words end."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.tokenizers.distinct import Tokens, tokens_of_words
from zoo.tokenizers.known_words import KnownWords
from zoo.tokenizers.sentencepiece_operations import SentencePieceOperations
from zoo.tokenizers.spaced_words import words_at_spaces
from zoo.tokenizers.tensors import import_tensorflow

if TYPE_CHECKING:
    import tensorflow as tf

_SPACE = "\u2581"
_APART = f"(?s)[^{_SPACE}](?:.*[^{_SPACE}])?"


def splits_at_spaces(model: Any) -> bool:
    """Whether a model gives the same tokens to a text and to its words.

    So it is with BPE where no token holds a space behind another character: no merge goes over such a place, and merges
    on both sides of it do not depend on each other. Normalization must leave all characters alone, and unknown ones
    must be spelled by bytes, else those of neighbouring words would become one token.

    Args:
        model: A `ModelProto`.
    """
    normalizer, trainer = model.normalizer_spec, model.trainer_spec
    if trainer.model_type != trainer.BPE or not trainer.byte_fallback or trainer.treat_whitespace_as_suffix:
        return False
    if normalizer.precompiled_charsmap or normalizer.remove_extra_whitespaces or not normalizer.escape_whitespaces:
        return False
    return not any(re.search(f"[^{_SPACE}]{_SPACE}| ", piece.piece) for piece in model.pieces)


class SentencePieceWords:
    """Tokenizes texts by their distinct words; a word that is one token is looked up.

    Args:
        operations: The model as operations.
        model: The same model, a `ModelProto` for which `splits_at_spaces` holds.

    Attributes:
        resource: What a SavedModel must track, besides that of `operations`.
    """

    def __init__(self, operations: SentencePieceOperations, model: Any) -> None:
        tf = import_tensorflow()
        self._operations = operations
        self._adds_space = model.normalizer_spec.add_dummy_prefix
        texts = [piece.piece.replace(_SPACE, " ") for piece in model.pieces]
        if self._adds_space:
            texts = [text[1:] for text in texts if text.startswith(" ")]
        with tf.init_scope(), tf.device("CPU:0"):
            ids = operations.tokenize(tf.constant(texts, tf.string, shape=[len(texts)]))
            is_token = np.flatnonzero(ids.row_lengths().numpy() == 1)
            first = ids.values.numpy()[ids.row_starts().numpy()[is_token]]
        self._known = KnownWords([texts[place].encode("utf-8") for place in is_token], first)
        self.resource: Any = self._known.resource

    def tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """`tf.string` `(batch,)` to ragged int32 ids `(batch, None)`."""
        tf = import_tensorflow()
        # The model itself puts a space before each word, if before texts.
        words, places, row_splits, _ = words_at_spaces(texts, _APART, keeps_space=not self._adds_space)
        ids = self._known.tokenize(words, lambda others: self._operations.tokenize(tf.gather(words, others)))
        return tokens_of_words(Tokens(ids), places, row_splits, None).ids
