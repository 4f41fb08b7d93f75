"""A SavedModel that takes strings and returns strings: tokenizer, cached decoding and detokenizer in the graph."""

import os
from typing import Any

from zoo.export.generation import generation_endpoints
from zoo.export.saved_model import Endpoint, require_tensorflow, save_endpoints


def export_seq2seq(task: Any, directory: str | os.PathLike, *, seed: int = 0, **options: Any) -> None:
    """Writes a `Seq2SeqLM` as a SavedModel.

    A process that imports only `tensorflow` and `tensorflow_text` loads it with `tf.saved_model.load(directory)` and
    has, for any batch size:

    * `serve(texts)`: string tensor `(batch,)` to string tensor `(batch,)`, the same as `task.generate` gives with the
      same arguments;
    * `generate(texts, seed, max_new_tokens)`: the same with a seed from 0 to 2**32 - 1, int64, and a number of tokens,
      int32, up to that of the export; 0 is that of the export;
    * `score(sources, targets)`: two string tensors `(batch,)` to log-likelihoods `(batch,)`;
    * `forward(encoder_token_ids, encoder_padding_mask, decoder_token_ids, decoder_padding_mask)`: logits `(batch,
      decoder_length, vocabulary)`.

    Each is a signature of the same name too, with outputs "texts", "log_likelihoods" and "logits"; `serve` is also
    "serving_default". A text longer than the model is an `InvalidArgumentError` that names the rows, unless `truncate`
    is true.

    Args:
        task: The `Seq2SeqLM`, with a tokenizer.
        directory: Where to; replaced if it holds a SavedModel.
        seed: Seed of `serve`.
        **options: `sampler`, `processors`, `stop`, `max_length`, `max_new_tokens`, `truncate` and `jit_compile` as for
            `Seq2SeqLM.generate`.

    Raises:
        ValueError: If the backend is not TensorFlow, or the task has no tokenizer.
        FileExistsError: If the directory exists and holds no SavedModel.
    """
    tf = require_tensorflow()

    def score(sources: Any, targets: Any) -> Any:
        return task.scorer.tokens(*task.preprocessor.training_batch(sources, targets))

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
            **generation_endpoints(task, seed, options),
            "score": Endpoint(score, pair, "log_likelihoods"),
            "forward": Endpoint(forward, token_level, "logits"),
        },
    )
