"""From strings to token-level batches and back: the same eagerly, in `tf.data` and in a SavedModel."""

from zoo.preprocessing.batching import map_by_length, padded_length

__all__ = ["map_by_length", "padded_length"]
