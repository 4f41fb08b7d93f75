"""Generation from texts to texts as graph functions, for a SavedModel."""

import dataclasses
from collections.abc import Callable
from typing import Any

from zoo.generation.chat import AnswerEdges, given_messages, require_chat, with_end_of_turn
from zoo.generation.compiled_functions import compiled, pad_batch
from zoo.generation.request import (
    EXTRA_LENGTH,
    GenerationOptions,
    before_texts,
    proposals_of,
    room,
    split_stops,
    streams_of,
    with_results,
)
from zoo.generation.samplers import SampleByRow, Sampler
from zoo.generation.texts import continuations, cut_at_stops, lengths_to_stops
from zoo.generation.token_generator import PROMPT_LOOKUP
from zoo.preprocessing.rows import shorten
from zoo.preprocessing.token_rows import padded_length, to_dense

_STRINGS = ((None,), "string")
_MESSAGES = ((None, None), "string")
_REQUEST = [((), "int64"), ((), "int32"), ((), "float32"), ((), "int32"), ((), "float32"), _STRINGS]


class GraphGenerator:
    """Generation as functions of tensors, for any batch size.

    The functions take the settings of a request as tensors:

    * `seed`: int64 scalar.
    * `max_new_tokens`: int32 scalar, at most the `max_new_tokens` given here; 0 for that number.
    * `temperature`, `top_k`, `top_p`: float32, int32 and float32 scalars that replace those of the sampler. Values
      below 0 change nothing. A temperature of 0 is greedy search. They are allowed with `Greedy()` and `Sample(...)`,
      without `typical_p` and without a draft.
    * `stop`: string tensor `(stops,)` of further stop strings. Empty strings are ignored.

    Results are texts and scores, `(batch,)`, or `(batch, num_results)` with several results. A text that is too long
    raises an `InvalidArgumentError` that names the rows, unless such texts are cut. So does a setting that is not
    allowed.

    Args:
        generator: The `TextGenerator`.
        sampler, processors, stop, max_length, max_new_tokens, strip_prompt, truncate, num_results: As for
            `TextGenerator.generate`, as are the scores.
        draft, lookahead: As for `TextGenerator.generate`, but the draft cannot be a model.
        **options: Further fields of `zoo.generation.GenerationOptions`.
    """

    def __init__(
        self,
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
        draft: str | None = None,
        lookahead: int | None = None,
        **options: Any,
    ) -> None:
        self._generator, self._preprocessor = generator, generator.preprocessor
        self._truncate = self._preprocessor.truncate if truncate is None else truncate
        self._chosen = generator.chosen(
            sampler=sampler, processors=processors, stop=stop, max_length=max_length, max_new_tokens=max_new_tokens
        )
        self._limited = self._chosen.max_length is not None or self._chosen.max_new_tokens is not None
        self._longest = self._chosen.max_length or generator.longest
        self._strip_prompt, self._num_results, self._options = strip_prompt, num_results, options
        if draft not in (None, PROMPT_LOOKUP):
            raise ValueError(f"draft must be None or {PROMPT_LOOKUP!r} here, got {shorten(draft)}.")
        self._engine = generator.engine_with(draft)
        if proposals := proposals_of(draft, lookahead):
            self._options = {**options, "lookahead": proposals}
            self._engine.require_rewinding(self._longest + proposals)
        # what conversations share with texts is traced and compiled once
        self._programs: list[tuple[Any, Callable[..., Any]]] = []

    def texts(self) -> Callable[..., tuple[Any, Any]]:
        """Returns `(texts, *request) -> (texts, scores)`; texts are a string tensor `(batch,)`."""
        import tensorflow as tf

        preprocessor, new = self._preprocessor, self._chosen.max_new_tokens
        write = self._writer(self._chosen, AnswerEdges())

        def generate(texts: Any, *request: Any) -> tuple[Any, Any]:
            prompts, sources = preprocessor.prompts(texts, None, self._truncate, self._longest, new)
            before = tf.zeros_like(texts) if self._strip_prompt else before_texts(texts, None, sources)
            return write(prompts, sources, before, *request)

        # traced once, by whichever endpoint comes first; XLA compiles it once, too
        return compiled(generate, jit_compile=False, signature=[_STRINGS, *_REQUEST])

    def chat(self) -> Callable[..., tuple[Any, Any]]:
        """Returns `(roles, contents, *request) -> (answers, scores)`.

        Roles and contents are string tensors `(batch, messages)`. Messages with the role "" are left out.

        Raises:
            ValueError: If the task does not take conversations, or its tokenizer has no chat format.
        """
        import tensorflow as tf

        preprocessor, new = self._preprocessor, self._chosen.max_new_tokens
        tokenizer = require_chat(preprocessor, "The endpoint chat")
        keep = preprocessor.kept_tokens(self._longest, new) if self._truncate else None
        write = self._writer(with_end_of_turn(self._chosen, tokenizer), AnswerEdges.of(tokenizer.chat_format))

        def chat(roles: Any, contents: Any, *request: Any) -> tuple[Any, Any]:
            prompts = preprocessor.chat_ids(*given_messages(roles, contents), keep)
            return write(prompts, None, tf.fill([prompts.nrows()], ""), *request)

        return compiled(chat, jit_compile=False, signature=[_MESSAGES, _MESSAGES, *_REQUEST])

    def _program(self, settings: Any) -> Callable[..., Any]:
        """Decoding with some settings."""
        import tensorflow as tf

        for known, program in self._programs:
            if known == settings:
                return program

        def decode(tokens: Any, source: Any, limits: Any, streams: Any, seed: Any, *adjustments: Any) -> Any:
            most = settings.max_new_tokens
            if source and not self._limited:
                # no more tokens than any row of the batch may generate
                most = tf.minimum(most, tf.shape(source["encoder_token_ids"])[1] + EXTRA_LENGTH)
            sampler = _Adjusted(settings.sampler, *adjustments) if _is_adjustable(settings) else settings.sampler
            fitting = dataclasses.replace(settings, max_new_tokens=most, sampler=sampler)
            return self._engine.decode(tokens, source, limits, streams, seed, fitting)

        self._programs.append((settings, compiled(decode, settings.jit_compile)))
        return self._programs[-1][1]

    def _writer(self, chosen: Any, edges: AnswerEdges) -> Callable[..., tuple[Any, Any]]:
        """Returns `(prompts, sources, before, *request) -> (texts, scores)`, of ragged ids."""
        import tensorflow as tf

        generator, preprocessor, longest = self._generator, self._preprocessor, self._longest
        stops, sequences = split_stops(chosen.stop)
        settings = generator.options(**chosen.options(), stop_sequences=sequences, **self._options)
        settings, repeats, per_text = with_results(settings, self._num_results)
        program, start, width = self._program(settings), preprocessor.start_tokens, per_text or 1

        def write(prompts: Any, sources: Any, before: Any, seed: Any, most: Any, *choices: Any) -> tuple[Any, Any]:
            *adjustments, stop = choices
            rows = tf.cast(prompts.nrows(), tf.int32)
            lengths = tf.cast(prompts.row_lengths(), tf.int32)
            source, source_lengths = {}, None
            checks = [_check_seed(seed), _check_stops(stop), *_check_adjustments(settings, *adjustments)]
            if sources is None:
                what = f"A prompt must have at least 1 token and leave room for another below {longest}"
                checks += _check_lengths(lengths, 1, longest - 1, what)
            else:
                source_lengths = tf.cast(sources.row_lengths(), tf.int32)
                what = f"A text has more tokens than the model takes ({generator.longest})"
                checks += _check_lengths(source_lengths, 0, generator.longest, what)
            with tf.control_dependencies([check for check in checks if check is not None]):
                most = tf.where(most > 0, tf.minimum(most, settings.max_new_tokens), settings.max_new_tokens)
                limits = tf.minimum(room(lengths, None if self._limited else source_lengths, longest, start), most)
                if sources is not None:
                    ids, mask = to_dense(sources, preprocessor.pad_id, generator.longest)
                    source = {"encoder_token_ids": tf.cast(ids, tf.int32), "encoder_padding_mask": mask}
            tokens = _left_padded(prompts, lengths) if sources is None else prompts.to_tensor(shape=(None, 1))
            # run k of text r has the number r * repeats + k
            numbers = tf.range(rows * repeats)
            batch = (tokens, source, limits)
            if repeats > 1:
                batch = tf.nest.map_structure(lambda tensor: tf.gather(tensor, numbers // repeats), batch)
            streams = streams_of(numbers // repeats, numbers % repeats)
            outputs = program(*pad_batch((*batch, streams)), seed, *adjustments)
            generated, scores, running = _results(outputs, rows * repeats)
            kept = scores.shape[1]
            every = tf.repeat(tf.range(rows * repeats), kept)
            given = tf.gather(prompts, every // repeats)[:, start:]
            whole = continuations(preprocessor.tokenizer, given, generated, edges.anew)
            every_stop = tf.concat([tf.constant(stops, tf.string), stop], axis=0)
            cut = cut_at_stops(whole, every_stop)
            # of what is behind a stop nothing counts
            lengths = lengths_to_stops(preprocessor.tokenizer, given, generated, whole, every_stop, edges.anew)
            lengths = tf.reshape(tf.maximum(lengths, 1), tf.shape(scores))
            of_first = tf.gather(running, lengths - 1, batch_dims=2) / settings.sampler.normalisation(lengths)
            scores = tf.where(tf.reshape(cut != whole, tf.shape(scores)), of_first, scores)
            new = tf.strings.join([tf.gather(before, every // repeats), edges.cut(cut)])
            new = tf.reshape(new, tf.shape(scores))
            if not settings.sampler.incremental:
                order = tf.argsort(scores, direction="DESCENDING", stable=True)[:, :width]
                new, scores = (tf.gather(values, order, batch_dims=1) for values in (new, scores))
            shape = (-1, width) if per_text else (-1,)
            return tf.reshape(new, shape), tf.reshape(scores, shape)

        return write


def _results(outputs: dict[str, Any], rows: Any) -> tuple[Any, Any, Any]:
    """The generated tokens without ends, ragged `(rows * results, None)`, and their scores `(rows, results)`.

    Args:
        outputs: Of all rows of the batch.
        rows: How many of them are no filling.

    Returns:
        The tokens, the scores, and the log-probabilities of the first tokens, `(rows, results, tokens)`.
    """
    import tensorflow as tf

    if "beams" in outputs:
        parts = outputs["beams"]
    else:
        parts = {name: tensor[:, tf.newaxis] for name, tensor in outputs.items() if tensor.shape.rank}
        parts["scores"] = parts["log_probabilities"]
    parts = {name: tensor[:rows] for name, tensor in parts.items()}
    token_ids = tf.reshape(parts["token_ids"], (-1, tf.shape(parts["token_ids"])[2]))
    lengths = tf.reshape(parts["lengths"] - parts["end_lengths"], (-1,))
    generated = tf.RaggedTensor.from_tensor(token_ids, lengths=lengths)
    return generated, parts["scores"], parts["running_log_probabilities"]


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


def _check_stops(stop: Any) -> Any:
    import tensorflow as tf

    # no character of a regular expression matches bytes that are none
    wrong = tf.where(~tf.strings.regex_full_match(stop, "(?s).*"))[:, 0]
    return tf.debugging.Assert(tf.equal(tf.size(wrong), 0), ["stop must be strings in UTF-8, is not at", wrong])


def _is_adjustable(settings: GenerationOptions) -> bool:
    """Whether a request may replace settings of the sampler."""
    return settings.sampler.row_settings is not None and not settings.lookahead


@dataclasses.dataclass(frozen=True, eq=False)
class _Adjusted(Sampler):
    """A sampler of which a request may replace settings, scalars of which a negative one changes nothing.

    Without any it is the sampler itself: `TopK` of a number takes a tenth of the time of one of a tensor.
    """

    sampler: Sampler
    temperature: Any
    top_k: Any
    top_p: Any

    def choose(self, logits: Any, numbers: Any) -> Any:
        import tensorflow as tf

        given = {"temperature": self.temperature, "top_k": self.top_k, "top_p": self.top_p, "min_p": tf.constant(-1.0)}
        own = self.sampler.row_settings

        def adjusted() -> Any:
            settings = {
                name: tf.where(value < 0, tf.cast(own[name], value.dtype), value) for name, value in given.items()
            }
            return SampleByRow(**{name: value[None, None] for name, value in settings.items()}).choose(logits, numbers)

        is_given = tf.reduce_any([value >= 0 for value in given.values()])
        return tf.cond(is_given, adjusted, lambda: self.sampler.choose(logits, numbers))


def _check_adjustments(settings: GenerationOptions, temperature: Any, top_k: Any, top_p: Any) -> list[Any]:
    """Assertions that a request asks for nothing that the sampler cannot do."""
    import tensorflow as tf

    given = [temperature, top_k, top_p]
    if not _is_adjustable(settings):
        who = "a draft" if settings.lookahead else type(settings.sampler).__name__
        is_none = (temperature < 0) & (top_k < 0) & (top_p < 0)
        message = f"temperature, top_k and top_p must be below 0, the settings of the export, with {who}, got"
        return [tf.debugging.Assert(is_none, [message, *given])]
    return [
        tf.debugging.Assert(
            tf.math.is_finite(temperature),
            ["temperature must be a number, below 0 for that of the export, got", temperature],
        ),
        tf.debugging.Assert(
            (top_p < 0) | ((top_p > 0) & (top_p <= 1)),
            ["top_p must be above 0 and at most 1, or below 0 for that of the export, got", top_p],
        ),
    ]


def _check_lengths(lengths: Any, least: int, most: int, what: str) -> list[Any]:
    """Assertions that all lengths are from `least` to `most`."""
    import tensorflow as tf

    rows = tf.where((lengths > most) | (lengths < least))[:, 0]
    message = f"{what}; rows and their tokens:"
    return [tf.debugging.Assert(tf.equal(tf.size(rows), 0), [message, rows, tf.gather(lengths, rows)])]
