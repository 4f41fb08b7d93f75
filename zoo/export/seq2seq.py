"""A SavedModel that takes strings and returns strings: tokenizer, cached decoding and detokenizer in the graph."""

import os
from typing import Any

from zoo.export.saved_model import Endpoint, require_tensorflow, save_endpoints
from zoo.generation import Sampler, pad_batch
from zoo.generation.texts import cut_at_stops, without_ends
from zoo.preprocessing.token_rows import checked_lengths


def export_seq2seq(
    task: Any,
    directory: str | os.PathLike,
    *,
    sampler: Sampler,
    processors: tuple = (),
    stop: Any = None,
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
        processors: Logit processors.
        stop: As for `Seq2SeqLM.generate`.
        max_length: Most tokens of an output, end token included. Default the `max_length` of the model.
        seed: Seed of a random sampler.
        jit_compile: Whether XLA compiles the decoding loop.

    Raises:
        ValueError: If the backend is not TensorFlow, or the task has no tokenizer.
        FileExistsError: If the directory exists and holds no SavedModel.
    """
    tf = require_tensorflow()
    from zoo.tasks.text_generation import split_stops

    tokenizer = task._require_tokenizer("export()")
    longest = task.longest
    stops, sequences = split_stops(stop)
    options = {"max_length": max_length, "processors": processors, "stop_sequences": sequences}
    program = task.program(sampler, None, jit_compile, **options)

    def serve(texts: Any) -> Any:
        ids, mask = task.encode_source(texts)
        mask = checked_lengths({"padding_mask": mask}, longest)["padding_mask"]
        ids, mask = task.pad_source(ids, mask)
        batch = tf.shape(ids)[0]
        limits = task.length_limit(mask)
        padded = pad_batch((ids, mask, limits, tf.range(batch)))
        outputs = program(*padded[:3], tf.constant(seed, tf.int64), padded[3])
        return cut_at_stops(tokenizer.detokenize(without_ends(outputs, batch)), stops)

    def score(sources: Any, targets: Any) -> Any:
        inputs, labels, weights = task.preprocess(sources, targets)
        return task.score_tokens(checked_lengths(inputs, longest), labels, weights)

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

    token_level = tuple(
        (f"{side}_{name}", (None, None), dtype)
        for side in ("encoder", "decoder")
        for name, dtype in (("token_ids", "int32"), ("padding_mask", "bool"))
    )
    pair = (("sources", (None,), "string"), ("targets", (None,), "string"))
    save_endpoints(
        task,
        directory,
        {
            "serve": Endpoint(serve, (("texts", (None,), "string"),), "texts"),
            "score": Endpoint(score, pair, "log_likelihoods"),
            "forward": Endpoint(forward, token_level, "logits"),
        },
    )
