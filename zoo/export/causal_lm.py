"""A language model as a SavedModel: prompts in, texts out."""

import os
from collections.abc import Callable
from typing import Any

from keras import ops

from zoo.export.saved_model import Endpoint, require_tensorflow, save_endpoints
from zoo.generation import GenerationOptions, Sampler, compiled, pad_batch
from zoo.generation.texts import continuations, cut_at_stops, without_ends

# Prompts are padded to a multiple of this, so that XLA compiles few programs.
PROMPT_MULTIPLE = 16


def export_causal_lm(
    task: Any,
    directory: str | os.PathLike,
    *,
    sampler: Sampler,
    processors: tuple = (),
    stop: Any = None,
    max_length: int | None = None,
    max_new_tokens: int | None = None,
    strip_prompt: bool = False,
    truncate: bool = False,
    seed: int = 0,
    jit_compile: bool = True,
) -> None:
    """Writes a `CausalLM` as a SavedModel.

    A process that imports only `tensorflow` and `tensorflow_text` loads it with `tf.saved_model.load(directory)` and
    has, for any batch size:

    * `generate(texts)`, also called `serve`: string tensor `(batch,)` to string tensor `(batch,)`, the same as
      `task.generate` gives with the same arguments;
    * `score(prompts, texts)`: two string tensors `(batch,)` to log-likelihoods `(batch,)`;
    * `forward(token_ids, padding_mask)`: logits `(batch, length, vocabulary)`.

    Each is a signature of the same name too, with outputs "texts", "log_likelihoods" and "logits"; `generate` is also
    "serving_default". A text longer than the model is an `InvalidArgumentError` that names the rows.

    The caches have room for `max_new_tokens` from the beginning: give it for a model that takes long texts.

    Args:
        task: The `CausalLM`, with a tokenizer.
        directory: Where to; replaced if it holds a SavedModel.
        sampler: How tokens are chosen.
        processors: Logit processors.
        stop, max_length, max_new_tokens, strip_prompt, truncate, seed, jit_compile: As for `CausalLM.generate`.

    Raises:
        ValueError: If the backend is not TensorFlow, the task has no tokenizer, or an argument is out of range.
        FileExistsError: If the directory exists and holds no SavedModel.
    """
    tf = require_tensorflow()
    from zoo.tasks.text_generation import split_stops

    tokenizer = task._require_tokenizer("export()")
    stops, sequences = split_stops(stop)
    options = task.generation_options(
        sampler=sampler,
        processors=processors,
        stop_sequences=sequences,
        max_length=max_length,
        max_new_tokens=max_new_tokens,
        jit_compile=jit_compile,
    )
    longest = task.longest if max_length is None else max_length
    keep = task.prompt_room(options, max_length) if truncate else None
    program = _program(task, options)

    def generate(texts: Any) -> Any:
        prompts = task.prompt_ids(texts, keep)
        what = f"A prompt must have at least 1 token and leave room for another below {longest}"
        lengths = tf.cast(_checked(prompts.row_lengths(), longest - 1, what), tf.int32)
        limits = tf.minimum(longest - lengths, options.max_new_tokens)
        tokens, mask = _padded_on_the_left(prompts, lengths)
        outputs = program(*pad_batch((tokens, mask, limits)), tf.constant(seed, tf.int64))
        generated = without_ends(outputs, tf.shape(lengths)[0])
        new = cut_at_stops(continuations(tokenizer, prompts, generated), stops)
        return new if strip_prompt else tf.strings.join([texts, new])

    strings = [(name, (None,), "string") for name in ("prompts", "texts")]
    tokens = (("token_ids", (None, None), "int32"), ("padding_mask", (None, None), "bool"))
    serve = Endpoint(generate, (strings[1],), "texts")
    endpoints = {
        "generate": serve,
        "serve": serve,
        "score": Endpoint(_score(task), tuple(strings), "log_likelihoods"),
        "forward": Endpoint(_forward(task), tokens, "logits"),
    }
    save_endpoints(task, directory, endpoints)


def _program(task: Any, options: GenerationOptions) -> Any:
    """The compiled generation: `(tokens, mask, limits, seed) -> outputs`."""
    generator = task.generator()
    return compiled(
        lambda tokens, mask, limits, number: generator.generate_tokens(tokens, mask, options, limits, number),
        options.jit_compile,
        signature=[((None, None), "int32"), ((None, None), "bool"), ((None,), "int32"), ((), "int64")],
    )


def _score(task: Any) -> Callable[[Any, Any], Any]:
    def score(prompts: Any, texts: Any) -> Any:
        import tensorflow as tf

        inputs, labels, mask = task.score_inputs(prompts, texts)
        lengths = tf.reduce_sum(tf.cast(inputs["padding_mask"], tf.int32), axis=1)
        what = f"A text has more tokens than the model takes ({task.longest})"
        with tf.control_dependencies([_checked(tf.maximum(lengths, 1), task.longest, what)]):
            return task.score_tokens(inputs["token_ids"], inputs["padding_mask"], labels, mask)

    return score


def _forward(task: Any) -> Callable[[Any, Any], Any]:
    def forward(token_ids: Any, padding_mask: Any) -> Any:
        logits = task({"token_ids": token_ids, "padding_mask": padding_mask}, training=False)
        return ops.cast(logits, "float32")

    return forward


def _checked(lengths: Any, most: int, what: str) -> Any:
    """The lengths, if all are from 1 to `most`."""
    import tensorflow as tf

    rows = tf.where((lengths > most) | (lengths < 1))[:, 0]
    message = f"{what}; rows and their tokens:"
    assertion = tf.debugging.Assert(tf.equal(tf.size(rows), 0), [message, rows, tf.gather(lengths, rows)])
    with tf.control_dependencies([assertion] if assertion is not None else []):
        return tf.identity(lengths)


def _padded_on_the_left(prompts: Any, lengths: Any) -> tuple[Any, Any]:
    """Tokens and mask `(batch, width)` of ragged prompts."""
    import tensorflow as tf

    width = tf.reduce_max(tf.concat([lengths, [1]], axis=0))
    width = (width + PROMPT_MULTIPLE - 1) // PROMPT_MULTIPLE * PROMPT_MULTIPLE
    mask = tf.range(width) >= width - lengths[:, tf.newaxis]
    positions = tf.cast(tf.where(mask), tf.int32)
    return tf.scatter_nd(positions, prompts.values, tf.stack([tf.shape(lengths)[0], width])), mask
