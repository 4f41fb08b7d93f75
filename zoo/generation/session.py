"""A batch of texts that are being generated: going on, stopping, results, continuing later."""

import weakref
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from zoo.generation.request import GenerationCache, GenerationOptions


class Session:
    """A batch of texts that are being generated.

    Attributes:
        is_done: Whether all rows are done.
    """

    def __init__(
        self,
        engine: Any,
        asked: GenerationOptions,
        rounded: GenerationOptions,
        carry: Any,
        prompts: Sequence[Sequence[int]],
        source: Sequence[Sequence[int]] | None,
        width: int,
        capacity: int,
    ) -> None:
        self._engine, self._asked, self._options, self._carry = engine, asked, rounded, carry
        self._prompts, self._source, self._width, self._capacity = prompts, source, width, capacity
        self._checksums: np.ndarray | None = None
        self._lengths = np.array([len(prompt) for prompt in prompts])

    @property
    def prompts(self) -> Sequence[Sequence[int]]:
        """Token ids of each row's prompt."""
        return self._prompts

    @property
    def incremental(self) -> bool:
        """Whether generated tokens never change."""
        return self._options.sampler.incremental

    @property
    def done(self) -> np.ndarray:
        """Which rows are done, bools `(rows,)`."""
        return ops.convert_to_numpy(self._carry["moving"]["done"])[: len(self._lengths)]

    @property
    def is_done(self) -> bool:
        return bool(self.done.all())

    @property
    def position(self) -> int:
        """Number of tokens of the longest row."""
        return int(ops.convert_to_numpy(self._carry["moving"]["position"]))

    @property
    def state(self) -> dict[str, Any]:
        """The state of the backbone."""
        return self._carry["moving"]["state"]

    def advance(self, count: int | None = None) -> "Session":
        """Generates `count` more tokens per row, or a few more with a draft.

        Args:
            count: Number of tokens, at least 1. None to generate until all rows are done.

        Returns:
            The session.

        Raises:
            RuntimeError: If the weights have changed since `watch_weights` was called.
        """
        if self._checksums is not None and not np.array_equal(self._checksums, self._engine.checksums(quick=True)):
            raise RuntimeError("The weights of the model must not change while it generates: begin again.")
        options = self._options
        goal = options.max_new_tokens if count is None else min(self.position + count, options.max_new_tokens)
        while not self.is_done and self.position < goal:
            room = self._capacity - self._width - options.extra_cache_slots
            if self.position >= room:
                room = min(2 * room, options.max_new_tokens)
                self._capacity = self._width + room + options.extra_cache_slots
                self._carry = self._engine.grow(self._carry, self._capacity)
            until = min(goal, room)
            self._carry = self._engine.advance(options, self._carry, until)
        return self

    def watch_weights(self) -> None:
        """Lets `advance` raise an error if weights change from now on, for sessions that others interrupt."""
        self._checksums = self._engine.checksums(quick=True)

    def stop(self, rows: Any) -> None:
        """Ends rows as they are.

        Args:
            rows: Bools, one per row.
        """
        done = self._carry["moving"]["done"]
        rows = np.pad(np.asarray(rows, "bool"), (0, done.shape[0] - len(self._lengths)))
        moving = {**self._carry["moving"], "done": ops.logical_or(done, ops.convert_to_tensor(rows))}
        self._carry = {**self._carry, "moving": moving}

    def result(self) -> dict[str, Any]:
        """Returns the result of `zoo.generation.decode` so far, as NumPy arrays."""
        result = self._engine.loop(self._options).result(self._carry)
        count = len(self._lengths)
        result = keras.tree.map_structure(
            lambda tensor: ops.convert_to_numpy(tensor)[:count] if len(tensor.shape) else ops.convert_to_numpy(tensor),
            result,
        )
        for part in (result, result.get("beams", {})):
            for name, filling in (("token_ids", self._asked.pad_id), ("running_log_probabilities", None)):
                if name in part:
                    part[name] = self._as_asked(part[name], filling)
        return result

    def _as_asked(self, values: np.ndarray, filling: int | None) -> np.ndarray:
        """The requested columns; the program may have more, or fewer if no row may have that many.

        Args:
            values: `(..., columns)`.
            filling: What fills further columns; None for the last one.
        """
        columns = self._asked.max_new_tokens
        missing = max(columns - values.shape[-1], 0)
        padding = [(0, 0)] * (values.ndim - 1) + [(0, missing)]
        options = {"mode": "edge"} if filling is None else {"constant_values": filling}
        return np.pad(values[..., :columns], padding, **options)

    def texts(self) -> tuple[list[list[list[int]]], np.ndarray]:
        """Returns the generated tokens of all results of each row so far, without an end, and their scores.

        Returns:
            The tokens `[row][result]`, and the scores `(rows, results)`: those of the sampler if it has any (`Beam`),
            else log-probabilities.
        """
        parts = self._results()
        rows = zip(parts["token_ids"], parts["lengths"] - parts["end_lengths"], strict=True)
        return [[ids[:length].tolist() for ids, length in zip(*row, strict=True)] for row in rows], parts["scores"]

    def scores_of_first(self, lengths: np.ndarray) -> np.ndarray:
        """Returns the scores of the first tokens of all results, `(rows, results)`.

        Args:
            lengths: Numbers of tokens, at least 1, `(rows, results)`.
        """
        running = self._results()["running_log_probabilities"]
        values = np.take_along_axis(running, lengths[..., np.newaxis] - 1, axis=-1)[..., 0]
        return values / ops.convert_to_numpy(self._options.sampler.normalisation(lengths))

    def _results(self) -> dict[str, np.ndarray]:
        """The results of each row, `(rows, results, ...)`, and their scores."""
        result = self.result()
        if "beams" in result:
            return result["beams"]
        parts = {name: values[:, np.newaxis] for name, values in result.items() if values.ndim}
        return {**parts, "scores": parts["log_probabilities"]}

    def generated(self) -> list[list[int]]:
        """Returns the generated tokens of each row so far, without an end."""
        result = self.result()
        lengths = result["lengths"] - result["end_lengths"]
        return [row[:length].tolist() for row, length in zip(result["token_ids"], lengths, strict=True)]

    def cache(self) -> GenerationCache:
        """Returns the cache with which the texts can be continued.

        Raises:
            ValueError: If the sampler is not incremental: `Beam` does not keep the caches of its results.
        """
        if not self._options.sampler.incremental:
            raise ValueError(
                "sampler must keep the caches of its results for texts to be continued, got "
                f"{self._options.sampler!r}, which does not."
            )
        token_ids = [[*prompt, *text] for prompt, text in zip(self._prompts, self.generated(), strict=True)]
        state = {name: value for name, value in self.state.items() if name != "hidden"}
        # the last generated token has not been fed
        known = np.minimum(self._lengths + np.maximum(self.result()["lengths"] - 1, 0), [len(ids) for ids in token_ids])
        starts, backbone = self._width - self._lengths, weakref.ref(self._engine.backbone)
        source = None if self._source is None else [list(row) for row in self._source]
        return GenerationCache(
            token_ids, state, starts, known, self._capacity, backbone, source, self._engine.checksums()
        )
