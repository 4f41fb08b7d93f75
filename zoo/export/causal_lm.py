"""A language model as a SavedModel: prompts in, texts out."""

import os
from collections.abc import Callable
from typing import Any

from keras import ops

from zoo.export.generation import generation_endpoints
from zoo.export.saved_model import Endpoint, require_tensorflow, save_endpoints
from zoo.preprocessing.token_rows import checked_lengths


def export_causal_lm(task: Any, directory: str | os.PathLike, *, seed: int = 0, **options: Any) -> None:
    """Writes a `CausalLM` as a SavedModel.

    A process that imports only `tensorflow` and `tensorflow_text` loads it with `tf.saved_model.load(directory)` and
    has, for any batch size:

    * `serve(texts)`: string tensor `(batch,)` to string tensor `(batch,)`, the same as `task.generate` gives with the
      same arguments;
    * `generate(texts, seed, max_new_tokens)`: the same with a seed from 0 to 2**32 - 1, int64, and a number of tokens,
      int32, up to that of the export; 0 is that of the export;
    * `score(prompts, texts)`: two string tensors `(batch,)` to log-likelihoods `(batch,)`;
    * `forward(token_ids, padding_mask)`: logits `(batch, length, vocabulary)`.

    Each is a signature of the same name too, with outputs "texts", "log_likelihoods" and "logits"; `serve` is also
    "serving_default". A text longer than the model is an `InvalidArgumentError` that names the rows, unless
    `truncate` is true.

    The caches have room for `max_new_tokens` from the beginning: give it for a model that takes long texts.

    Args:
        task: The `CausalLM`, with a tokenizer.
        directory: Where to; replaced if it holds a SavedModel.
        seed: Seed of `serve`.
        **options: `sampler`, `processors`, `stop`, `max_length`, `max_new_tokens`, `strip_prompt`, `truncate` and
            `jit_compile` as for `CausalLM.generate`.

    Raises:
        ValueError: If the backend is not TensorFlow, the task has no tokenizer, or an argument is out of range.
        FileExistsError: If the directory exists and holds no SavedModel.
    """
    require_tensorflow()
    prompts, texts = (((name, (None,), "string"),) for name in ("prompts", "texts"))
    tokens = (("token_ids", (None, None), "int32"), ("padding_mask", (None, None), "bool"))
    endpoints = {
        **generation_endpoints(task, seed, options),
        "score": Endpoint(_score(task), prompts + texts, "log_likelihoods"),
        "forward": Endpoint(_forward(task), tokens, "logits"),
    }
    save_endpoints(task, directory, endpoints)


def _score(task: Any) -> Callable[[Any, Any], Any]:
    def score(prompts: Any, texts: Any) -> Any:
        inputs, labels, mask = task.preprocessor.score_batch(prompts, texts)
        return task.scorer.tokens(checked_lengths(inputs, task.longest), labels, mask)

    return score


def _forward(task: Any) -> Callable[[Any, Any], Any]:
    def forward(token_ids: Any, padding_mask: Any) -> Any:
        logits = task({"token_ids": token_ids, "padding_mask": padding_mask}, training=False)
        return ops.cast(logits, "float32")

    return forward
