"""Generation with a decoder-only model on token level: the compiled programs, and the caches that these work on."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from zoo.generation.compile import compiled, next_power_of_two
from zoo.generation.decode import loop_inputs
from zoo.generation.options import GenerationCache, GenerationOptions
from zoo.generation.random import seed_tensor, uniforms
from zoo.generation.session import Session
from zoo.generation.speculative import SpeculativeDecoding

# New tokens that caches have room for at first; they are doubled when a text is longer.
FIRST_ROOM = 256


class Generator:
    """Makes and keeps the compiled programs that generate with a decoder-only backbone.

    Args:
        backbone: Backbone with `start_decoding`, `advance`, `decode_step` and `logits`.
        draft: Backbone of the draft model of speculative decoding, or None.
    """

    def __init__(self, backbone: Any, draft: Any = None):
        self.backbone = backbone
        self.draft = draft
        self._programs: dict[Any, Any] = {}

    def begin(
        self,
        prompts: Sequence[Sequence[int]],
        options: GenerationOptions,
        *,
        limits: Sequence[int] | None = None,
        seed: int = 0,
        streams: Sequence[int] | None = None,
        cache: GenerationCache | None = None,
    ) -> Session:
        """Feeds prompts to the model, each in one pass, and returns a session that generates.

        Args:
            prompts: Token ids of each row, at least one; with a cache the whole text, what is cached included.
            options: What the program depends on.
            limits: Most tokens that each row may generate. Default `options.max_new_tokens`.
            seed: Seed of a random sampler.
            streams: Stream of random numbers of each row; default its number.
            cache: What a session left behind; rows in the same order.

        Raises:
            ValueError: If there is no prompt, or one is empty.
        """
        for row, prompt in enumerate(prompts):
            if not len(prompt):
                raise ValueError(f"prompts[{row}] has no token: without a start token there is nothing to go on from.")
        if not len(prompts):
            raise ValueError("prompts must hold at least one row.")
        count = len(prompts)
        lengths = np.array([len(prompt) for prompt in prompts])
        length, batch = bucket(int(lengths.max())), next_power_of_two(count)
        tokens = np.full((batch, length), -1, "int32")
        for row, prompt in enumerate(prompts):
            tokens[row, length - len(prompt) :] = prompt
        capacity = length + min(options.max_new_tokens, FIRST_ROOM) + options.slack
        state, fed = self._make_state(batch, capacity), length
        if cache is not None:
            state, fed = self._continued(cache, state, lengths, length, capacity)
        if options.sampler.needs_hidden:
            state, fed = self._make_state(batch, capacity), length  # the hidden states are not kept
        padded = [
            np.pad(np.asarray(values, "int32"), (0, batch - count))
            for values in (
                [options.max_new_tokens] * count if limits is None else limits,
                range(count) if streams is None else streams,
            )
        ]
        arguments = [state, *(ops.convert_to_tensor(array, dtype="int32") for array in (tokens, *padded))]
        arguments.append(seed_tensor(seed))
        if options.lookahead:
            arguments.append(self._make_state(batch, capacity, self.draft))
        carry = self._program("start", options, capacity, fed)(*arguments)
        return Session(self, options, carry, lengths, length, capacity, prompts)

    def generate_tokens(self, tokens: Any, mask: Any, options: GenerationOptions, limits: Any, seed: Any) -> dict:
        """The whole generation as one graph function for tensors of unknown shapes, as an export needs it.

        Args:
            tokens: Prompts `(batch, length)`, padded on the left.
            mask: True where a token is real.
            options: See `GenerationOptions`; no draft.
            limits: Most tokens for each row, `(batch,)`.
            seed: Seed, an integer scalar.

        Returns:
            What `zoo.generation.decode` returns.
        """
        capacity = ops.shape(tokens)[1] + options.max_new_tokens + options.slack
        state, _ = self.backbone.start_decoding({"padding_mask": mask}, capacity)
        loop = self.loop(options)
        tokens = ops.where(mask, tokens, -1)
        streams = ops.arange(ops.shape(tokens)[0], dtype="int32")
        return loop.result(
            loop.advance(self._start(loop, options, capacity, None, state, tokens, limits, streams, seed))
        )

    def loop(self, options: GenerationOptions) -> Any:
        """Returns the loop of the options."""
        backbone = self.backbone
        if options.lookahead:

            def check(token_ids: Any, index: Any, state: Any, constants: Any) -> tuple[Any, Any]:
                hidden, state = backbone.advance(token_ids, index, state, constants)
                return backbone.logits(hidden), state

            return SpeculativeDecoding(check, self.draft.decode_step, options)
        if options.sampler.needs_hidden:

            def step_with_hidden(token_ids: Any, index: Any, state: Any, constants: Any) -> tuple[Any, Any]:
                state = {name: value for name, value in state.items() if name != "hidden"}
                hidden, state = backbone.advance(ops.expand_dims(token_ids, 1), index, state, constants)
                return backbone.logits(hidden)[:, 0], {**state, "hidden": hidden[:, 0]}

            return options.sampler.make_loop(step_with_hidden, options)
        return options.sampler.make_loop(backbone.decode_step, options)

    def advance(self, options: GenerationOptions, carry: Any, until: int) -> Any:
        """Runs the compiled loop until `until` tokens have been generated or all rows are done."""
        return self._program("advance", options)(carry, ops.convert_to_tensor(until, dtype="int32"))

    def grow(self, options: GenerationOptions, carry: Any, capacity: int) -> Any:
        """Returns the carried value with caches of another capacity."""
        moving = dict(carry["moving"])
        for name, backbone in (("state", self.backbone), ("draft_state", self.draft)):
            if name in moving:
                rows = keras.tree.flatten(moving[name])[0].shape[0]
                moving[name] = {**moving[name], **_moved(moving[name], self._make_state(rows, capacity, backbone))}
        return {**carry, "moving": moving}

    def _make_state(self, batch: int, capacity: int, backbone: Any = None) -> Any:
        mask = ops.ones((batch, 1), dtype="bool")
        state = (backbone or self.backbone).start_decoding({"padding_mask": mask}, capacity)[0]
        if self.draft is not None and any(cache.shape[2] != capacity for cache in keras.tree.flatten(state)):
            raise ValueError(
                "A draft model needs caches of all positions, to take back proposals: attention windows shorter than "
                f"the text ({capacity} positions) have caches that forget."
            )
        return state

    def _continued(
        self, cache: GenerationCache, state: Any, lengths: np.ndarray, length: int, capacity: int
    ) -> tuple[Any, int]:
        """The cached keys and values, moved so that all rows end together, and how many tokens to feed."""
        fed = bucket(int((lengths - cache.known).max()))
        old, new = keras.tree.flatten(cache.state), keras.tree.flatten(state)
        held = {(before.shape[2], after.shape[2]) for before, after in zip(old, new, strict=True)}
        # caches of a window keep the last tokens only, which are gone where another row was longer
        if fed >= length or held != {(cache.capacity, capacity)}:
            return state, length
        shift = np.zeros((new[0].shape[0],), "int32")
        shift[: len(lengths)] = length - lengths - cache.starts
        return _moved(cache.state, state, shift), fed

    def _program(self, kind: str, options: GenerationOptions, capacity: int = 0, fed: int = 0) -> Any:
        # adapters and quantization replace variables
        variables = self._variables()
        key = (kind, options, capacity, fed, tuple(map(id, variables)))
        if key not in self._programs:
            loop = self.loop(options)

            def start(state: Any, tokens: Any, limits: Any, streams: Any, seed: Any, *draft_state: Any) -> Any:
                return self._start(loop, options, capacity, fed, state, tokens, limits, streams, seed, *draft_state)

            function = start if kind == "start" else loop.advance
            self._programs[key] = compiled(function, options.jit_compile, variables=self._variables, exact_shapes=True)
        return self._programs[key]

    def _variables(self) -> list:
        return [*self.backbone.variables, *(self.draft.variables if self.draft is not None else ())]

    def _start(
        self,
        loop: Any,
        options: GenerationOptions,
        capacity: Any,
        fed: int | None,
        state: Any,
        tokens: Any,
        limits: Any,
        streams: Any,
        seed: Any,
        draft_state: Any = None,
    ) -> Any:
        """Feeds the last `fed` tokens but one (None: all) and starts the loop; the loop feeds the last one itself."""
        mask = tokens >= 0
        ids = ops.maximum(tokens, 0)
        length = ops.shape(tokens)[1]
        first = 0 if fed is None else length - fed
        _, constants = self.backbone.start_decoding({"padding_mask": mask}, capacity)
        hidden, state = self.backbone.advance(ids[:, first:-1], first, state, constants)
        inputs = loop_inputs(options, state, constants, ids[:, -1], length - 1, limits, seed, streams, tokens, hidden)
        if options.lookahead:
            _, draft_constants = self.draft.start_decoding({"padding_mask": mask}, capacity)
            _, draft_state = self.draft.advance(ids[:, :-1], 0, draft_state, draft_constants)
            count = options.max_new_tokens + options.lookahead
            numbers = ops.stack([uniforms(seed, streams, count, purpose) for purpose in range(3)])
            inputs.update(draft_state=draft_state, draft_constants=draft_constants, numbers=numbers)
        return loop.start(inputs)


def bucket(length: int) -> int:
    """Rounds a length up so that few programs are compiled: to multiples of 16, or of an eighth of long ones."""
    multiple = max(16, next_power_of_two(length) // 8)
    return -(-length // multiple) * multiple


def _moved(old: Any, new: Any, shift: np.ndarray | None = None) -> Any:
    """Copies caches `(rows, heads, capacity, width)` into larger ones, row b by `shift[b]` positions to the right."""

    def move(before: Any, after: Any) -> Any:
        if shift is None:
            if before.shape == after.shape:
                return before
            return ops.slice_update(after, (0,) * len(before.shape), before)
        places = np.arange(after.shape[2])[None] - shift[:, None]
        places = np.clip(places, 0, before.shape[2] - 1)[:, None, :, None].astype("int32")
        return ops.take_along_axis(before, ops.convert_to_tensor(places), axis=2)

    return keras.tree.map_structure(move, {name: old[name] for name in new}, new)
