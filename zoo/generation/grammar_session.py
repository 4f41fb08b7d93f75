"""Texts that follow grammars: written token by token, as the program that knows the grammar is none of tensors."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from zoo.generation.checks import as_seed
from zoo.generation.checksums import Checksums
from zoo.generation.compiled_functions import CompiledFunctions, next_power_of_two
from zoo.generation.engine import FIRST_ROOM, shares_lengths
from zoo.generation.request import GenerationOptions
from zoo.generation.rows import RowDecoder
from zoo.generation.token_masks import TextMask
from zoo.preprocessing.rows import shorten
from zoo.preprocessing.token_rows import padded_length

# Settings of a row that `generate` leaves to processors: none.
_NO_ADJUSTMENTS = {"presence_penalty": "float32", "frequency_penalty": "float32", "min_tokens": "int32"}


class GrammarEngine:
    """Continues prompts with texts that follow grammars; what `Engine` is for others.

    Args:
        backbone: A backbone that `decodes_rows`.

    Raises:
        ValueError: If it does not.

    Example:

    >>> engine = GrammarEngine(model.backbone)
    >>> begin = functools.partial(TokenMasks(tokenizer.spellings).begin, Regex("[0-9]+").lark, (tokenizer.end_id,))
    >>> engine.begin([[1, 17, 4]], GenerationOptions(20, end_ids=2), begin).advance().texts()
    ([[[9, 33, 8]]], array([[-4.2]], dtype=float32))
    """

    def __init__(self, backbone: Any) -> None:
        self._backbone, self._decoder = backbone, RowDecoder(backbone)
        self.checksums: Checksums = Checksums(backbone)
        self._programs = CompiledFunctions(lambda: list(backbone.active_variables))

    def begin(
        self,
        prompts: Sequence[Sequence[int]],
        options: GenerationOptions,
        mask: Callable[[], TextMask],
        *,
        limits: Sequence[int],
        seed: Any = 0,
        streams: Sequence[int],
        source: None = None,
    ) -> "GrammarSession":
        """Feeds prompts to the model, and returns a session that generates.

        Args:
            prompts, limits, seed, streams: As for `Engine.begin`.
            options: Settings of the generation, which `require_followed` takes.
            mask: Returns the mask of a text at its beginning.
            source: None, as for a decoder.

        Raises:
            ValueError: If the seed is none.
        """
        return GrammarSession(self, prompts, options, mask, np.asarray(limits), as_seed(seed), streams)

    def empty(self, rows: int, capacity: int) -> list[Any]:
        """Returns the state of rows without a token."""
        return self._decoder.empty(rows, capacity)

    def feed(
        self, options: GenerationOptions, token_ids: np.ndarray, lengths: np.ndarray, state: list[Any]
    ) -> list[Any]:
        """Returns the state after tokens of prompts, padded on the right."""
        tensors = [ops.convert_to_tensor(each, dtype="int32") for each in (token_ids, lengths, 0 * lengths)]
        return self._run("begin", self._decoder.begin, options, len(lengths), *tensors, state)

    def step(self, options: GenerationOptions, inputs: dict[str, Any], state: list[Any]) -> dict[str, Any]:
        """Writes a token in each row, see `RowDecoder.advance`."""

        def run(inputs: dict[str, Any], state: list[Any]) -> dict[str, Any]:
            return self._decoder.advance(state, **inputs, alternatives=0, steps=1)

        return self._run("advance", run, options, inputs["index"].shape[0], inputs, state)

    def _run(self, name: str, run: Callable[..., Any], options: GenerationOptions, rows: int, *arguments: Any) -> Any:
        """Runs a program, as far as possible the same one for texts and caches of all lengths."""
        exact = not shares_lengths(options)
        return self._programs.run((name, rows), run, options.jit_compile, *arguments, exact_shapes=exact)

    def grown(self, state: list[Any], capacity: int) -> list[Any]:
        """Returns the state with caches of another capacity."""
        return keras.tree.flatten(self._backbone.resize_state(self._decoder.packed(state), capacity))


class GrammarSession:
    """A batch of texts that are being generated, each of which follows a grammar; what `Session` is for others.

    Attributes:
        prompts: Token ids of each row's prompt.
        done: Which rows are done, bools `(rows,)`.
    """

    # generated tokens never change
    incremental = True

    def __init__(
        self,
        engine: GrammarEngine,
        prompts: Sequence[Sequence[int]],
        options: GenerationOptions,
        mask: Callable[[], TextMask],
        limits: np.ndarray,
        seed: Any,
        streams: Sequence[int],
    ) -> None:
        self.prompts, self._engine, self._options = prompts, engine, options
        self._checksums: np.ndarray | None = None
        count = len(prompts)
        self._limits = np.minimum(limits, options.max_new_tokens)
        self._masks = [mask() for _ in prompts]
        self._texts: list[list[int]] = [[] for _ in prompts]
        self._ended = np.zeros(count, "bool")
        self._gained: list[list[float]] = [[] for _ in prompts]
        self.done: np.ndarray = (self._limits < 1) | [each.must_end for each in self._masks]
        self._rows = next_power_of_two(count)
        lengths = self._padded([len(prompt) - 1 for prompt in prompts])
        width = padded_length(int(lengths.max()))
        token_ids = np.zeros((self._rows, width), "int32")
        for row, prompt in enumerate(prompts):
            token_ids[row, : len(prompt) - 1] = prompt[:-1]
        self._capacity = width + 1 + min(padded_length(int(self._limits.max())), FIRST_ROOM)
        self._state = engine.empty(self._rows, self._capacity)
        if lengths.any():
            self._state = engine.feed(options, token_ids, lengths, self._state)
        ends = np.array([[*options.end_ids, -1]], "int32")
        settings = {name: np.full(self._rows, value) for name, value in options.sampler.row_settings.items()}
        self._fixed = {
            **{name: settings[name].astype("float32") for name in ("temperature", "top_p", "min_p")},
            "top_k": settings["top_k"].astype("int32"),
            "seeds": np.full(self._rows, ops.convert_to_numpy(seed)),
            "streams": self._padded(streams),
            "end_ids": np.repeat(ends, self._rows, axis=0),
            "written": np.full((self._rows, 1), -1, "int32"),
            "bias_ids": np.full((self._rows, 1), -1, "int32"),
            "biases": np.zeros((self._rows, 1), "float32"),
            **{name: np.zeros(self._rows, dtype) for name, dtype in _NO_ADJUSTMENTS.items()},
        }

    @property
    def is_done(self) -> bool:
        """Whether all rows are done."""
        return bool(self.done.all())

    def advance(self, count: int | None = None) -> "GrammarSession":
        """Generates `count` more tokens per row.

        Args:
            count: Number of tokens, at least 1. None to generate until all rows are done.

        Returns:
            The session.

        Raises:
            RuntimeError: If the weights have changed since `watch_weights` was called.
        """
        if self._checksums is not None and not np.array_equal(self._checksums, self._engine.checksums(quick=True)):
            raise RuntimeError("The weights of the model must not change while it generates: begin again.")
        while not self.is_done and count != 0:
            self._step()
            count = None if count is None else count - 1
        return self

    def watch_weights(self) -> None:
        """Lets `advance` raise an error if weights change from now on, for sessions that others interrupt."""
        self._checksums = self._engine.checksums(quick=True)

    def stop(self, rows: Any) -> None:
        """Ends rows as they are.

        Args:
            rows: Bools, one per row.
        """
        self.done = self.done | np.asarray(rows, "bool")

    def texts(self) -> tuple[list[list[list[int]]], np.ndarray]:
        """Returns the generated tokens of each row so far, without an end, and scores, as `Session.texts`."""
        words = [text[:-1] if ended else text for text, ended in zip(self._texts, self._ended, strict=True)]
        scores = np.array([[sum(gained)] for gained in self._gained], "float32")
        return [[list(text)] for text in words], scores

    def scores_of_first(self, lengths: np.ndarray) -> np.ndarray:
        """Returns the log-probabilities of the first tokens of each row, `(rows, 1)`.

        Args:
            lengths: Numbers of tokens, at least 1, `(rows, 1)`.
        """
        scores = [[sum(gained[:length])] for gained, [length] in zip(self._gained, lengths, strict=True)]
        return np.array(scores, "float32")

    def _padded(self, values: Sequence[int]) -> np.ndarray:
        """A number for each row of the program."""
        values = np.asarray(values, "int32")
        return np.pad(values, (0, self._rows - len(values)))

    def _step(self) -> None:
        """Writes a token in each row that is not done."""
        places = np.array([len(text) for text in self._texts])
        index = np.array([len(prompt) - 1 for prompt in self.prompts]) + places
        if index[~self.done].max() >= self._capacity:
            self._capacity += max(places.max(), FIRST_ROOM)
            self._state = self._engine.grown(self._state, self._capacity)
        last = [(text or prompt)[-1] for text, prompt in zip(self._texts, self.prompts, strict=True)]
        rows = {
            "token_ids": last,
            "index": index,
            "places": places,
            "limits": np.where(self.done, places, self._limits),
        }
        allowed = np.full((self._rows, len(self._masks[0].allowed)), -1, "int32")
        for row in np.flatnonzero(~self.done):
            allowed[row] = self._masks[row].allowed
        inputs = {**self._fixed, **{name: self._padded(values) for name, values in rows.items()}, "allowed": allowed}
        tensors = {name: ops.convert_to_tensor(array) for name, array in inputs.items()}
        result = self._engine.step(self._options, tensors, self._state)
        self._state = result["state"]
        ids, gained, ended = (
            ops.convert_to_numpy(result[name]) for name in ("token_ids", "log_probabilities", "ended")
        )
        for row in np.flatnonzero(~self.done):
            token, text, mask = int(ids[row, 0]), self._texts[row], self._masks[row]
            text.append(token)
            self._gained[row].append(float(gained[row, 0]))
            self._ended[row] = ended[row]
            if not ended[row]:
                mask.accept(token)
            self.done[row] = ended[row] or mask.must_end or len(text) >= self._limits[row]


def require_followed(options: GenerationOptions) -> None:
    """Raises a ValueError if texts cannot follow a grammar with these settings.

    Args:
        options: Settings of the generation: of samplers `Greedy` and `Sample`, and neither processors, stop sequences
            nor a draft.
    """
    if options.lookahead:
        raise ValueError("draft must be None with a grammar.")
    if options.processors:
        raise _refusal("processors", "be empty", list(options.processors), [])
    if options.stop_sequences:
        raise _refusal("stop", "hold strings alone", list(options.stop_sequences), [])
    if options.sampler.row_settings is None:
        raise _refusal("sampler", "be Greedy() or Sample(...) without typical_p", options.sampler, "greedy")


def _refusal(name: str, wanted: str, got: Any, instead: Any) -> ValueError:
    """The error of an argument that may be one of the model's generation, which nobody gave."""
    return ValueError(
        f"{name} must {wanted} with a grammar, got {shorten(got)}: pass {name}={instead!r} to do without what the "
        "model's generation says."
    )
