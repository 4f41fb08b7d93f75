"""From strings to token-level batches and back: the same eagerly, in `tf.data` and in a SavedModel."""

from zoo.preprocessing.batching import map_by_length, padded_length
from zoo.preprocessing.bio import decode_bio, encode_bio
from zoo.preprocessing.masking import chosen_positions, mask_tokens

__all__ = ["chosen_positions", "decode_bio", "encode_bio", "map_by_length", "mask_tokens", "padded_length"]
