"""A SavedModel that takes strings and returns strings: tokenizer, cached decoding and detokenizer in the graph."""

import os
from typing import Any

from zoo.files import written_whole
from zoo.generation import Sampler, pad_batch


def export_seq2seq(
    task: Any,
    directory: str | os.PathLike,
    *,
    sampler: Sampler,
    max_length: int | None = None,
    seed: int = 0,
    jit_compile: bool = True,
) -> None:
    """Writes a `Seq2SeqLM` as a SavedModel.

    A process that imports only `tensorflow` and `tensorflow_text` loads it with `tf.saved_model.load(directory)` and
    has, for any batch size:

    * `serve(texts)`: string tensor `(batch,)` to string tensor `(batch,)`, the same as `task.generate` gives;
    * `score(sources, targets)`: two string tensors `(batch,)` to log-likelihoods `(batch,)`;
    * `forward(encoder_token_ids, encoder_padding_mask, decoder_token_ids, decoder_padding_mask)`: logits `(batch,
      decoder_length, vocabulary)`.

    Each is a signature of the same name too, with outputs "texts", "log_likelihoods" and "logits"; `serve` is also
    "serving_default". A text longer than the model is an `InvalidArgumentError`.

    Args:
        task: The `Seq2SeqLM`, with a tokenizer.
        directory: Where to; replaced if it holds a SavedModel.
        sampler: How tokens are chosen.
        max_length: Most tokens of an output, end token included. Default the `max_length` of the model.
        seed: Seed of a random sampler.
        jit_compile: Whether XLA compiles the decoding loop.

    Raises:
        ValueError: If the backend is not TensorFlow, or the task has no tokenizer.
        FileExistsError: If the directory exists and holds no SavedModel.
    """
    import keras

    if keras.backend.backend() != "tensorflow":
        raise ValueError(
            f"A SavedModel can be written with the TensorFlow backend only, this is {keras.backend.backend()!r}: save "
            "the model with save_to_preset() and load it with KERAS_BACKEND=tensorflow."
        )
    import tensorflow as tf

    tokenizer = task._require_tokenizer("export()")
    longest = task.backbone.config.max_length
    program = task.program(sampler, task._output_length(max_length), jit_compile)

    def require_length(mask: Any) -> Any:
        check = tf.debugging.assert_less_equal(
            tf.shape(mask)[1], longest, message=f"A text has more tokens than the model takes ({longest})."
        )
        with tf.control_dependencies([check]):
            return tf.identity(mask)

    def serve(texts: Any) -> Any:
        ids, mask = task.encode_source(texts)
        mask = require_length(mask)
        ids, mask = task.pad_source(ids, mask)
        batch = tf.shape(ids)[0]
        limits = task.length_limit(mask)
        padded = pad_batch((ids, mask, limits, tf.range(batch)))
        outputs = program(*padded[:3], tf.constant(seed, tf.int64), padded[3])
        return tokenizer.detokenize(outputs["token_ids"][:batch])

    def score(sources: Any, targets: Any) -> Any:
        inputs, labels, weights = task.preprocess(sources, targets)
        inputs["encoder_padding_mask"] = require_length(inputs["encoder_padding_mask"])
        inputs["decoder_padding_mask"] = require_length(inputs["decoder_padding_mask"])
        return task.score_tokens(inputs, labels, weights)

    def forward(
        encoder_token_ids: Any, encoder_padding_mask: Any, decoder_token_ids: Any, decoder_padding_mask: Any
    ) -> Any:
        inputs = {
            "encoder_token_ids": encoder_token_ids,
            "encoder_padding_mask": encoder_padding_mask,
            "decoder_token_ids": decoder_token_ids,
            "decoder_padding_mask": decoder_padding_mask,
        }
        return tf.cast(task(inputs, training=False), tf.float32)

    module = tf.Module()
    module.weights = [variable.value for variable in task.backbone.variables]
    module.resources = tokenizer.trackables
    module.serve = tf.function(serve, input_signature=[tf.TensorSpec((None,), tf.string, "texts")])
    module.score = tf.function(
        score,
        input_signature=[tf.TensorSpec((None,), tf.string, "sources"), tf.TensorSpec((None,), tf.string, "targets")],
    )
    module.forward = tf.function(
        forward,
        input_signature=[
            tf.TensorSpec((None, None), dtype, f"{side}_{name}")
            for side in ("encoder", "decoder")
            for name, dtype in (("token_ids", tf.int32), ("padding_mask", tf.bool))
        ],
    )
    signatures = {
        name: _named_output(getattr(module, name), output)
        for name, output in (("serve", "texts"), ("score", "log_likelihoods"), ("forward", "logits"))
    }
    signatures["serving_default"] = signatures["serve"]
    with written_whole(directory, lambda old: (old / "saved_model.pb").exists(), "SavedModel") as folder:
        tf.saved_model.save(module, str(folder), signatures=signatures)


def _named_output(function: Any, name: str) -> Any:
    import tensorflow as tf

    return tf.function(lambda *inputs: {name: function(*inputs)}, input_signature=function.input_signature)
