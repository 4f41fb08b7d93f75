"""A request for generation: its options, and the texts as rows of token ids."""

import dataclasses
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from zoo.generation.checks import as_ids, as_sequences, is_of_rows, require_count
from zoo.generation.processors import get_processors
from zoo.generation.samplers import Sampler, get_sampler
from zoo.preprocessing.rows import as_text, as_texts, require_same_length, shorten, string_tensor

# The paper lets an output be at most this many tokens longer than its source (Vaswani et al. 2017, section 6.1).
EXTRA_LENGTH = 50
# The stream of random numbers of result k of text r is k * FIRST_RESULTS + r.
FIRST_RESULTS = 1 << 24


@dataclasses.dataclass(frozen=True)
class GenerationOptions:
    """The settings of a decoding loop, on which its compiled program depends.

    Args:
        max_new_tokens: Largest number of tokens to generate for a row, at least 1. For a loop also an int32 scalar that
            is computed from the shape of a tensor.
        sampler: How tokens are chosen, see `get_sampler`.
        processors: Logit processors, see `get_processors`.
        stop_sequences: Ids and sequences of ids that end a text.
        end_ids: Id or ids of end tokens; `()` for none. For a loop also those of each row, a tensor
            `(rows, ids)` filled up with -1.
        pad_id: Id that fills outputs after their end.
        lookahead: Number of proposals per round of a draft; 0 without a draft.
        jit_compile: Whether XLA compiles the loop. None for True on TensorFlow and JAX, False on PyTorch.

    Raises:
        ValueError: If an argument is out of range, or `lookahead` is given with a sampler that a draft cannot serve.
    """

    max_new_tokens: Any
    sampler: Sampler | str | dict[str, Any] = "greedy"
    processors: Any = ()
    stop_sequences: Any = ()
    end_ids: Any = ()
    pad_id: int = 0
    lookahead: int = 0
    jit_compile: bool | None = None

    def __post_init__(self) -> None:
        if not ops.is_tensor(self.max_new_tokens):
            require_count("max_new_tokens", self.max_new_tokens)
        normal = {
            "sampler": get_sampler(self.sampler),
            "processors": get_processors(self.processors),
            "stop_sequences": as_sequences("stop_sequences", self.stop_sequences),
            "end_ids": self.end_ids if is_of_rows(self.end_ids) else as_ids("end_ids", self.end_ids),
            "pad_id": as_ids("pad_id", self.pad_id)[0],
            "lookahead": require_count("lookahead", self.lookahead, 0),
        }
        if self.jit_compile is None:
            normal["jit_compile"] = keras.backend.backend() in ("tensorflow", "jax")
        for name, value in normal.items():
            object.__setattr__(self, name, value)
        if self.lookahead and not self.sampler.has_weights:
            raise ValueError(
                f"sampler must define weights() where a draft model proposes, as Greedy() and Sample(...) do, got "
                f"{self.sampler!r}."
            )

    @property
    def extra_cache_slots(self) -> int:
        """Number of positions beyond the generated tokens that caches must have room for."""
        return max(self.lookahead, self.sampler.extra_positions)


def proposals_of(draft: Any, lookahead: int | None) -> int:
    """Returns how many tokens a draft proposes at a time: 4 unless said otherwise, 0 without a draft.

    Args:
        draft: As for `TextGenerator.generate`.
        lookahead: As for `TextGenerator.generate`.

    Raises:
        ValueError: If there are proposals without a draft, or their number is below 1.
    """
    if draft is None:
        if lookahead is not None:
            raise ValueError(f"lookahead must be None where no draft proposes tokens, got {lookahead!r}.")
        return 0
    return 4 if lookahead is None else require_count("lookahead", lookahead)


def with_results(options: GenerationOptions, num_results: int | None) -> tuple[GenerationOptions, int, int | None]:
    """Returns the options, how often each text is run, and how many results it has: None for one that is no list.

    Args:
        options: The options.
        num_results: As for `TextGenerator.generate`.

    Raises:
        ValueError: If the number is out of range, or the sampler cannot give so many.
    """
    if num_results is None:
        return options, 1, options.sampler.num_texts
    count = require_count("num_results", num_results, 1, 127)
    sampler, repeats = options.sampler.with_results(count)
    return dataclasses.replace(options, sampler=sampler), repeats, count


def streams_of(rows: Any, places: Any) -> Any:
    """Returns the stream of random numbers of each result.

    Args:
        rows: Number of its text, of a tensor or array.
        places: Which of the results of this text it is.
    """
    return places * FIRST_RESULTS + rows


@dataclasses.dataclass(frozen=True, eq=False)
class GenerationCache:
    """The cache of a `generate` call, with which another call continues the texts: tokens, keys and values.

    Attributes:
        token_ids: The prompt and generated tokens of each row, without an end.
        state: The state of the backbone.
        starts: First position of each row in the caches.
        known: Number of tokens of each row in the caches.
        capacity: Number of positions of the caches.
        backbone: Weak reference to the backbone.
        sources: Token ids of each row's source; None for a decoder.
        checksums: Checksums of the weights that the state was computed with.
    """

    token_ids: list[Any]
    state: Any
    starts: np.ndarray
    known: np.ndarray
    capacity: int
    backbone: weakref.ref[Any]
    sources: list[list[int]] | None
    checksums: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class Request:
    """Rows that are to be continued.

    Attributes:
        prompts: Token ids of each row's prompt.
        sources: Token ids of each row's source, or None.
        limits: How many tokens each row may generate, int `(rows,)`.
        lengths: Number of tokens of prompt and source, int `(rows,)`.
        before: What stands before the generated text of each row, bytes.
    """

    prompts: list[list[int]]
    sources: list[list[int]] | None
    limits: np.ndarray
    lengths: np.ndarray
    before: list[bytes]

    def take(self, rows: Sequence[int]) -> dict[str, Any]:
        """Returns the arguments of `Engine.begin` that some rows need."""
        return {
            "prompts": [self.prompts[row] for row in rows],
            "source": None if self.sources is None else [self.sources[row] for row in rows],
            "limits": self.limits[rows],
        }


def make_request(
    preprocessor: Any,
    texts: list[bytes],
    beginnings: str | Sequence[str] | None,
    *,
    most: int,
    max_length: int | None = None,
    max_new_tokens: int | None = None,
    truncate: bool | None = None,
    cache: GenerationCache | None = None,
) -> Request:
    """Returns the token ids of each row, and how many it may generate.

    Args:
        preprocessor: The preprocessor of the task.
        texts: The texts.
        beginnings, max_length, max_new_tokens, truncate, cache: As for `TextGenerator.generate`.
        most: Most tokens that a row may generate.

    Raises:
        ValueError: If a row is too long or has no token, naming it, or arguments do not go together.
    """
    tokenizer = preprocessor.require_tokenizer("Text input")
    longest = preprocessor.sequence_length if max_length is None else max_length
    if cache is not None:
        require_same_length(len(cache.token_ids), len(texts), "cache", "texts", "text")
        if truncate:
            raise ValueError("truncate must be False with a cache, whose texts are whole, got True.")
        truncate = False
    truncate = preprocessor.truncate if truncate is None else truncate
    if beginnings is not None and not preprocessor.takes_beginnings:
        raise ValueError(f"beginnings must be None: texts are continued as they are, got {shorten(beginnings)}.")
    tensor = string_tensor(texts)
    limited = max_length is not None or max_new_tokens is not None
    given = None if beginnings is None else string_tensor(_one_per_text(beginnings, len(texts)))
    prompts, sources = preprocessor.prompts(tensor, given, truncate, longest, max_new_tokens)
    before = before_texts(tensor, given, sources)
    if cache is not None:
        import tensorflow as tf

        cached = tf.ragged.constant(cache.token_ids, tf.int32, ragged_rank=1)
        prompts = tf.concat([cached, tokenizer.tokenize(before)], axis=1)
    preprocessor.check_prompts(tensor, prompts, sources, longest, truncate)
    lengths = np.asarray(prompts.row_lengths())
    source_lengths = None if sources is None else np.asarray(sources.row_lengths())
    likely = None if limited else source_lengths
    return Request(
        prompts.to_list(),
        None if sources is None else sources.to_list(),
        np.minimum(room(lengths, likely, longest, preprocessor.start_tokens), most),
        lengths if sources is None else lengths + source_lengths,
        before.numpy().tolist(),
    )


def before_texts(texts: Any, beginnings: Any, sources: Any) -> Any:
    """Returns the texts that precede the generated ones in a result, string tensor `(batch,)`; a graph function."""
    import tensorflow as tf

    if sources is None:
        return texts
    return tf.zeros_like(texts) if beginnings is None else beginnings


def room(lengths: Any, source_lengths: Any, longest: int, start_tokens: int) -> Any:
    """Returns how many tokens rows may generate, `(rows,)`; of arrays, or of tensors in a graph.

    Args:
        lengths: Tokens of the prompts.
        source_lengths: Tokens of the sources; None with a decoder, or where a length was asked for.
        longest: Most tokens of prompt and continuation, or of an output.
        start_tokens: How many tokens of a prompt are no text.

    Reference:
        Vaswani et al. 2017, section 6.1: no more than 50 more than the source has.
    """
    if source_lengths is not None:
        minimum = ops.minimum if ops.is_tensor(source_lengths) else np.minimum
        longest = minimum(source_lengths + EXTRA_LENGTH, longest)
    return longest - (lengths - start_tokens)


def _one_per_text(beginnings: str | Sequence[str], count: int) -> list[bytes]:
    if isinstance(beginnings, (str, bytes)):
        return [as_text(beginnings, "beginnings")] * count
    rows = as_texts(beginnings, "beginnings")
    require_same_length(count, len(rows), "texts", "beginnings", "beginning", "text")
    return rows


def split_stops(stop: Any) -> tuple[list[str], list[Any]]:
    """Returns stop strings, and token ids and sequences of these.

    Args:
        stop: A string, or a list of strings, token ids and lists of token ids; None for none.

    Raises:
        TypeError: If it is neither.
        ValueError: If a string is empty or not UTF-8.
    """
    if stop is None:
        return [], []
    if not isinstance(stop, (str, bytes, Iterable)):
        raise TypeError(f"stop must be a string, or a list of strings, token ids and lists of these, got {stop!r}.")
    strings, sequences = [], []
    for place, value in enumerate([stop] if isinstance(stop, (str, bytes)) else stop):
        if not isinstance(value, (str, bytes)):
            sequences.append(value)
        elif not value:
            raise ValueError(f"stop[{place}] must not be empty, got {value!r}.")
        else:
            try:
                strings.append(as_text(value, f"stop[{place}]").decode())
            except UnicodeDecodeError as error:
                raise ValueError(f"stop[{place}] must be a string in UTF-8, got {value!r}.") from error
    return strings, sequences
