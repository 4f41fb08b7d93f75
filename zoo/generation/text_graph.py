"""Generation from texts to texts as a graph function, for a SavedModel."""

from collections.abc import Callable
from typing import Any

from zoo.generation.compile import compiled, pad_batch
from zoo.generation.texts import cut_at_stops, split_stops, without_ends
from zoo.preprocessing.token_rows import dense


def graph_function(
    generator: Any,
    *,
    stop: Any = None,
    max_length: int | None = None,
    max_new_tokens: int | None = None,
    strip_prompt: bool = False,
    truncate: bool | None = None,
    **options: Any,
) -> Callable[[Any, Any, Any], Any]:
    """Returns generation as a function of tensors: `(texts, seed, max_new_tokens) -> texts`.

    Texts are a string tensor `(batch,)`; seed and number of tokens are scalars, of which the latter can only be smaller
    than the one given here, and 0 is this one. A text that is too long is an `InvalidArgumentError` that names the
    rows, unless such texts are cut.

    Args:
        generator: The `TextGenerator`.
        stop, max_length, max_new_tokens, strip_prompt, truncate: As for `TextGenerator.generate`.
        **options: Further fields of `zoo.generation.GenerationOptions`.
    """
    import tensorflow as tf

    prompter = generator.prompts
    preprocessor = prompter.preprocessor
    truncate = preprocessor.truncate if truncate is None else truncate
    stops, sequences = split_stops(stop)
    settings = generator.options(
        stop_sequences=sequences, max_length=max_length, max_new_tokens=max_new_tokens, **options
    )
    longest = generator.longest if max_length is None else max_length
    keep = prompter.keep(longest, max_new_tokens) if truncate else None

    def decode(tokens: Any, source: Any, limits: Any, seed: Any) -> Any:
        return generator.engine.decode(tokens, source, limits, seed, prompter.fitting(settings, source))

    program = compiled(decode, settings.jit_compile)

    def generate(texts: Any, seed: Any, max_new_tokens: Any) -> Any:
        prompts, sources = prompter.ids(texts, None, keep)
        lengths = tf.cast(prompts.row_lengths(), tf.int32)
        source, source_lengths = {}, None
        if sources is not None:
            source_lengths = tf.cast(sources.row_lengths(), tf.int32)
            what = f"A text has more tokens than the model takes ({generator.longest})"
            with tf.control_dependencies(_checks(source_lengths, 0, generator.longest, what)):
                ids, mask = dense(sources, preprocessor.pad_id, generator.longest)
            source = {"encoder_token_ids": tf.cast(ids, tf.int32), "encoder_padding_mask": mask}
        room = tf.cast(prompter.room(lengths, source_lengths, longest), tf.int32)
        what = f"A prompt must have at least 1 token and leave room for another below {longest}"
        checks = [] if sources is not None else _checks(lengths, 1, longest - 1, what)
        checks.append(
            tf.debugging.Assert(
                (seed >= 0) & (seed < 2**32), ["seed must be an integer from 0 to 2**32 - 1, got", seed]
            )
        )
        with tf.control_dependencies([check for check in checks if check is not None]):
            most = settings.max_new_tokens
            limits = tf.minimum(room, tf.where(max_new_tokens > 0, tf.minimum(max_new_tokens, most), most))
        tokens = prompter.left_padded(prompts, lengths)
        outputs = program(*pad_batch((tokens, source, limits)), seed)
        generated = without_ends(outputs, tf.shape(lengths)[0])
        new = cut_at_stops(prompter.decode(prompts, generated), stops)
        return new if strip_prompt else tf.strings.join([prompter.before(texts, None), new])

    return generate


def _checks(lengths: Any, least: int, most: int, what: str) -> list:
    """Assertions that all lengths are from `least` to `most`."""
    import tensorflow as tf

    rows = tf.where((lengths > most) | (lengths < least))[:, 0]
    message = f"{what}; rows and their tokens:"
    assertion = tf.debugging.Assert(tf.equal(tf.size(rows), 0), [message, rows, tf.gather(lengths, rows)])
    return [] if assertion is None else [assertion]
