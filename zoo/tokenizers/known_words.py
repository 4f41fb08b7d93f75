"""Words that are one token. They are looked up, without splitting or merging."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.tokenizers.tensors import import_tensorflow

if TYPE_CHECKING:
    import tensorflow as tf


class KnownWords:
    """A table of words that are one token.

    Args:
        words: Different strings.
        ids: The token that each is.

    Attributes:
        resource: What a SavedModel must track.
    """

    def __init__(self, words: Sequence[bytes], ids: Sequence[int]) -> None:
        tf = import_tensorflow()
        with tf.init_scope(), tf.device("CPU:0"):
            keys = tf.constant(list(words), tf.string, shape=[len(words)])
            content = tf.lookup.KeyValueTensorInitializer(keys, np.asarray(ids, np.int32))
            self.resource: Any = tf.lookup.StaticHashTable(content, default_value=-1)

    def tokenize(self, words: tf.Tensor, tokenize_others: Callable[[Any], Any]) -> tf.RaggedTensor:
        """Returns the tokens of each word.

        Args:
            words: `tf.string` `(words,)`.
            tokenize_others: Called with the places of the words that are not known, int64 `(others,)`. Returns their
                tokens, ragged int32 ids `(others, None)`.
        """
        tf = import_tensorflow()
        ids = self.resource.lookup(words)
        places = tf.where(ids < 0)
        others = tokenize_others(places[:, 0])
        # The tokens of the others stand behind those that are known.
        count = tf.size(ids, out_type=tf.int64)
        starts = tf.tensor_scatter_nd_update(tf.range(count), places, count + others.row_starts())
        lengths = tf.tensor_scatter_nd_update(tf.ones_like(starts), places, others.row_lengths())
        taken = tf.ragged.range(starts, starts + lengths)
        return taken.with_values(tf.gather(tf.concat([ids, others.values], axis=0), taken.values))
