"""One SentencePiece model as TensorFlow operations."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.tokenizers.tensors import import_tensorflow

if TYPE_CHECKING:
    import tensorflow as tf


class SentencePieceOperations:
    """Tokenizing and joining with one SentencePiece model, by TensorFlow operations.

    `tensorflow_text.SentencepieceTokenizer` leaves the model to the kernel that loaded it, so it is gone, in running
    input pipelines too, as soon as `tf.random.set_seed`, `keras.utils.set_random_seed` or
    `keras.backend.clear_session` empties the cache of kernels. A shared name keeps it; equal models share one.

    Args:
        proto: A serialized `ModelProto`.

    Attributes:
        resource: What a SavedModel must track.

    Raises:
        ValueError: TensorFlow can't load the model.
    """

    def __init__(self, proto: bytes) -> None:
        tf = import_tensorflow()
        from tensorflow_text.python.ops.sentencepiece_tokenizer import gen_sentencepiece_tokenizer as operations

        proto = with_normalization(proto)
        name = f"sentencepiece_{hashlib.sha256(proto).hexdigest()}"

        class SentencePieceModel(tf.saved_model.experimental.TrackableResource):  # type: ignore[name-defined]  # imported late
            def _create_resource(self) -> Any:
                return operations.sentencepiece_op(model=proto, shared_name=name)

        with tf.init_scope():
            self.resource: Any = SentencePieceModel(device="CPU:0")
            try:
                _ = self.resource.resource_handle  # reading it creates it
            except tf.errors.OpError as error:
                raise ValueError(f"TensorFlow can't load this SentencePiece model: {error.message}") from error
        self._operations = operations
        self._choices = {"nbest_size": 0, "alpha": 1.0, "add_bos": False, "add_eos": False, "reverse": False}

    def tokenize(self, texts: tf.Tensor, pieces: bool = False) -> tf.RaggedTensor:
        """`tf.string` `(batch,)` to ragged int32 ids `(batch, None)`.

        Args:
            texts: The texts.
            pieces: Whether the tokens themselves are returned, `tf.string`; in place of an unknown one what it is of.
        """
        tf = import_tensorflow()
        values, row_splits = self._operations.sentencepiece_tokenize_op(
            self.resource.resource_handle, texts, out_type=tf.string if pieces else tf.int32, **self._choices
        )
        return tf.RaggedTensor.from_row_splits(values, row_splits, validate=False)

    def tokenize_with_offsets(
        self, texts: tf.Tensor, pieces: bool = False
    ) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor]:
        """As `tokenize`, with the first byte of each token and the one after its last: flat int32 vectors."""
        tf = import_tensorflow()
        values, row_splits, starts, ends = self._operations.sentencepiece_tokenize_with_offsets_op(
            self.resource.resource_handle, texts, out_type=tf.string if pieces else tf.int32, **self._choices
        )
        return tf.RaggedTensor.from_row_splits(values, row_splits, validate=False), starts, ends

    def join(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Ragged int32 ids `(batch, None)` to `tf.string` `(batch,)`."""
        return self._operations.sentencepiece_detokenize_op(
            self.resource.resource_handle, ids.values, ids.row_splits, add_bos=False, add_eos=False, reverse=False
        )


def with_normalization(proto: bytes) -> bytes:
    """Returns a SentencePiece model with a compiled normalization, which changes no text where it had none.

    As the library loads a model without one, it writes a line to the standard error output ("precompiled_charsmap is
    empty. use identity normalization."), and the copy of it in TensorFlow Text has no log level that can be set.

    Args:
        proto: A serialized `ModelProto`.
    """
    from sentencepiece import sentencepiece_model_pb2

    model = sentencepiece_model_pb2.ModelProto.FromString(proto)
    if model.normalizer_spec.precompiled_charsmap:
        return proto
    # a trie of Darts-clone: its root leads to 256 units, which no byte is the label of, so that no look-up gets further
    units = np.full(512, 1 << 31, "<u4")
    units[0] = 256 << 10
    trie = units.tobytes()
    # no replacements
    model.normalizer_spec.precompiled_charsmap = len(trie).to_bytes(4, "little") + trie + b"\0"
    return model.SerializeToString(deterministic=True)
