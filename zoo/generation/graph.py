"""Generation from texts to texts as a graph function, for a SavedModel."""

import dataclasses
from collections.abc import Callable
from typing import Any

from zoo.generation.programs import compiled, pad_batch
from zoo.generation.request import EXTRA_LENGTH, before_texts, room, split_stops, streams_of, with_results
from zoo.generation.texts import continuations, cut_at_stops
from zoo.preprocessing.token_rows import dense, padded_length


def graph_function(
    generator: Any,
    *,
    sampler: Any = None,
    processors: Any = None,
    stop: Any = None,
    max_length: int | None = None,
    max_new_tokens: int | None = None,
    strip_prompt: bool = False,
    truncate: bool | None = None,
    num_results: int | None = None,
    **options: Any,
) -> Callable[[Any, Any, Any], tuple[Any, Any]]:
    """Returns generation as a function of tensors: `(texts, seed, max_new_tokens) -> (texts, scores)`.

    Texts are a string tensor `(batch,)`; seed and number of tokens are scalars, of which the latter can only be smaller
    than the one given here, and 0 is this one. A text that is too long is an `InvalidArgumentError` that names the
    rows, unless such texts are cut. Texts and scores are `(batch,)`; with several results `(batch, num_results)`.

    Args:
        generator: The `TextGenerator`.
        sampler, processors, stop, max_length, max_new_tokens, strip_prompt, truncate, num_results: As for
            `TextGenerator.generate`, as are the scores.
        **options: Further fields of `zoo.generation.GenerationOptions`.
    """
    import tensorflow as tf

    preprocessor = generator.preprocessor
    truncate = preprocessor.truncate if truncate is None else truncate
    chosen = generator.chosen(
        sampler=sampler, processors=processors, stop=stop, max_length=max_length, max_new_tokens=max_new_tokens
    )
    max_length, max_new_tokens = chosen.max_length, chosen.max_new_tokens
    limited = max_length is not None or max_new_tokens is not None
    stops, sequences = split_stops(chosen.stop)
    settings = generator.options(**chosen.options(), stop_sequences=sequences, **options)
    settings, repeats, per_text = with_results(settings, num_results)
    longest, start = generator.longest if max_length is None else max_length, preprocessor.start_tokens
    width = per_text or 1

    def decode(tokens: Any, source: Any, limits: Any, streams: Any, seed: Any) -> Any:
        most = settings.max_new_tokens
        if source and not limited:
            # no more tokens than any row of the batch may generate
            most = tf.minimum(most, tf.shape(source["encoder_token_ids"])[1] + EXTRA_LENGTH)
        fitting = dataclasses.replace(settings, max_new_tokens=most)
        return generator.engine.decode(tokens, source, limits, streams, seed, fitting)

    program = compiled(decode, settings.jit_compile)

    def generate(texts: Any, seed: Any, most: Any) -> tuple[Any, Any]:
        rows = tf.shape(texts)[0]
        prompts, sources = preprocessor.prompts(texts, None, truncate, longest, max_new_tokens)
        lengths = tf.cast(prompts.row_lengths(), tf.int32)
        source, source_lengths = {}, None
        checks = [_check_seed(seed)]
        if sources is None:
            what = f"A prompt must have at least 1 token and leave room for another below {longest}"
            checks += _check_lengths(lengths, 1, longest - 1, what)
        else:
            source_lengths = tf.cast(sources.row_lengths(), tf.int32)
            what = f"A text has more tokens than the model takes ({generator.longest})"
            checks += _check_lengths(source_lengths, 0, generator.longest, what)
        with tf.control_dependencies([check for check in checks if check is not None]):
            most = tf.where(most > 0, tf.minimum(most, settings.max_new_tokens), settings.max_new_tokens)
            limits = tf.minimum(room(lengths, None if limited else source_lengths, longest, start), most)
            if sources is not None:
                ids, mask = dense(sources, preprocessor.pad_id, generator.longest)
                source = {"encoder_token_ids": tf.cast(ids, tf.int32), "encoder_padding_mask": mask}
        tokens = _left_padded(prompts, lengths) if sources is None else prompts.to_tensor(shape=(None, 1))
        # run k of text r has the number r * repeats + k
        numbers = tf.range(rows * repeats)
        batch = (tokens, source, limits)
        if repeats > 1:
            batch = tf.nest.map_structure(lambda tensor: tf.gather(tensor, numbers // repeats), batch)
        streams = streams_of(numbers // repeats, numbers % repeats)
        outputs = program(*pad_batch((*batch, streams)), seed)
        generated, scores = _results(outputs, rows, width)
        every = tf.repeat(tf.range(rows), width)
        new = continuations(preprocessor.tokenizer, tf.gather(prompts, every)[:, start:], generated)
        new = cut_at_stops(new, stops)
        if not strip_prompt:
            new = tf.strings.join([tf.gather(before_texts(texts, None, sources), every), new])
        shape = (-1, width) if per_text else (-1,)
        return tf.reshape(new, shape), tf.reshape(scores, shape)

    # traced once, by whichever endpoint comes first; XLA compiles it once, too
    signature = [((None,), "string"), ((), "int64"), ((), "int32")]
    return compiled(generate, jit_compile=False, signature=signature)


def _results(outputs: dict[str, Any], rows: Any, width: int) -> tuple[Any, Any]:
    """The generated tokens without ends, ragged `(rows * width, None)`, and scores `(rows * width,)`."""
    import tensorflow as tf

    parts = {**outputs, "scores": outputs["log_probabilities"]}
    if "beams" in outputs:
        parts = {name: tensor[:, :width] for name, tensor in outputs["beams"].items()}
        parts = {
            name: tf.reshape(tensor, tf.concat([[-1], tf.shape(tensor)[2:]], axis=0)) for name, tensor in parts.items()
        }
    names = ("token_ids", "lengths", "end_lengths", "scores")
    # rows behind them were added to the batch
    token_ids, lengths, end_lengths, scores = (parts[name][: rows * width] for name in names)
    return tf.RaggedTensor.from_tensor(token_ids, lengths=lengths - end_lengths), scores


def _left_padded(prompts: Any, lengths: Any) -> Any:
    """Ragged prompts as ids `(batch, width)`, with -1 before them."""
    import tensorflow as tf

    width = tf.cast(padded_length(tf.reduce_max(tf.concat([lengths, [2]], axis=0))), tf.int32)
    mask = tf.range(width) >= width - lengths[:, tf.newaxis]
    positions = tf.cast(tf.where(mask), tf.int32)
    shape = tf.stack([tf.shape(lengths)[0], width])
    return tf.tensor_scatter_nd_update(tf.fill(shape, -1), positions, prompts.values)


def _check_seed(seed: Any) -> Any:
    import tensorflow as tf

    message = "seed must be an integer from 0 to 2**32 - 1, got"
    return tf.debugging.Assert((seed >= 0) & (seed < 2**32), [message, seed])


def _check_lengths(lengths: Any, least: int, most: int, what: str) -> list:
    """Assertions that all lengths are from `least` to `most`."""
    import tensorflow as tf

    rows = tf.where((lengths > most) | (lengths < least))[:, 0]
    message = f"{what}; rows and their tokens:"
    return [tf.debugging.Assert(tf.equal(tf.size(rows), 0), [message, rows, tf.gather(lengths, rows)])]
