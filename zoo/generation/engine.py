"""Decoding on token level, the same for decoders, encoder-decoders and recurrent models: prompts are continued."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from keras import ops

from zoo.generation.compile import next_power_of_two
from zoo.generation.decode import loop_inputs
from zoo.generation.options import GenerationCache, GenerationOptions
from zoo.generation.programs import Programs
from zoo.generation.random import seed_tensor, uniforms
from zoo.generation.session import Session
from zoo.generation.speculative import SpeculativeDecoding
from zoo.preprocessing.token_rows import padded_length

# New tokens that caches have room for at first; they are doubled when a text is longer.
FIRST_ROOM = 256


class Engine:
    """Continues prompts with a backbone.

    Every model continues a prompt. The prompt of a decoder is a text; that of an encoder-decoder is the token that
    decoding starts with, and its source goes into the encoder.

    Args:
        backbone: A backbone that decodes, see `zoo.backbones.backbone.Backbone`.
        draft: Backbone of the draft model of speculative decoding, or None.

    Example:

    >>> session = Engine(backbone).begin([[1, 17, 4]], GenerationOptions(20, end_ids=2))
    >>> session.advance().generated()
    [[9, 33, 8]]
    """

    def __init__(self, backbone: Any, draft: Any = None):
        self.backbone = backbone
        self.draft = draft
        self._programs = Programs(
            lambda: [*self.backbone.variables, *(self.draft.variables if self.draft is not None else ())]
        )

    def begin(
        self,
        prompts: Sequence[Sequence[int]],
        options: GenerationOptions,
        *,
        source: Sequence[Sequence[int]] | None = None,
        limits: Sequence[int] | None = None,
        seed: Any = 0,
        streams: Sequence[int] | None = None,
        cache: GenerationCache | None = None,
    ) -> Session:
        """Feeds prompts to the model, each in one pass, and returns a session that generates.

        Batch, lengths and number of new tokens are rounded up, so that few programs are compiled.

        Args:
            prompts: Token ids of each row, at least one; with a cache the whole text, what is cached included.
            options: How to generate.
            source: For an encoder-decoder the token ids of each row's source.
            limits: Most tokens that each row may generate. Default `options.max_new_tokens`.
            seed: Seed of a random sampler.
            streams: Stream of random numbers of each row; default its number.
            cache: What a session left behind; rows in the same order.

        Raises:
            ValueError: If there is no prompt, or one is empty.
        """
        for row, prompt in enumerate(prompts):
            if not len(prompt):
                raise ValueError(f"prompts[{row}] must have at least 1 token to continue, got none.")
        if not len(prompts):
            raise ValueError("prompts must hold at least one row, got none.")
        count = len(prompts)
        batch = next_power_of_two(count)
        limits = np.minimum([options.max_new_tokens] * count if limits is None else limits, options.max_new_tokens)
        rounded = dataclasses.replace(options, max_new_tokens=padded_length(max(int(limits.max()), 1)))
        lengths = np.array([len(prompt) for prompt in prompts])
        width = 1 if lengths.max() == 1 else padded_length(int(lengths.max()))
        tokens = np.full((batch, width), -1, "int32")
        for row, prompt in enumerate(prompts):
            tokens[row, width - len(prompt) :] = prompt
        inputs = {} if source is None else self._source(source, batch, options.pad_id)
        capacity = width + min(rounded.max_new_tokens, FIRST_ROOM) + options.slack
        if self.draft is not None:
            self._require_rewinding(capacity)
        state, fed = None, width
        if cache is not None and not options.sampler.needs_hidden:
            state, fed = self._continued(cache, batch, lengths, width, capacity)
        rows = [limits, range(count) if streams is None else streams]
        rows = [np.pad(np.asarray(values, "int32"), (0, batch - count)) for values in rows]
        arguments = [ops.convert_to_tensor(array) for array in (tokens, *rows)]
        carry = self._start_program(rounded, capacity, fed, arguments, seed, inputs, state)
        return Session(self, options, rounded, carry, lengths, width, capacity, prompts)

    def decode(
        self, tokens: Any, source: Mapping[str, Any], limits: Any, seed: Any, options: GenerationOptions
    ) -> dict[str, Any]:
        """The whole generation as one graph function of tensors of unknown sizes, as an export needs it.

        Args:
            tokens: Prompts `(batch, length)`, padded on the left with -1.
            source: For an encoder-decoder `encoder_token_ids` and `encoder_padding_mask`, `(batch, source_length)`.
            limits: Most tokens for each row, `(batch,)`.
            seed: Seed, an integer scalar.
            options: How to generate, without a draft.

        Returns:
            What `zoo.generation.decode` returns.
        """
        capacity = ops.shape(tokens)[1] + options.max_new_tokens + options.slack
        streams = ops.arange(ops.shape(tokens)[0], dtype="int32")
        loop = self.loop(options)
        return loop.result(
            loop.advance(self._start(loop, options, capacity, None, tokens, limits, streams, seed, source))
        )

    def loop(self, options: GenerationOptions) -> Any:
        """Returns the loop of the options."""
        if options.lookahead:
            return SpeculativeDecoding(self._check, self.draft.decode_step, options)
        return options.sampler.make_loop(
            self._step_with_hidden if options.sampler.needs_hidden else self.backbone.decode_step, options
        )

    def advance(self, options: GenerationOptions, carry: Any, until: int) -> Any:
        """Runs the compiled loop until `until` tokens have been generated or all rows are done."""

        def run(carry: Any, until: Any) -> Any:
            return self.loop(options).advance(carry, until)

        goal = ops.convert_to_tensor(until, dtype="int32")
        return self._programs.run(("advance", options), run, options.jit_compile, carry, goal)

    def grow(self, carry: Any, capacity: int) -> Any:
        """Returns the carried value with caches of another capacity."""
        moving = dict(carry["moving"])
        for name, backbone in (("state", self.backbone), ("draft_state", self.draft)):
            if name in moving:
                known = {key: value for key, value in moving[name].items() if key != "hidden"}
                moving[name] = {**moving[name], **backbone.resize_state(known, capacity)}
        return {**carry, "moving": moving}

    def _step_with_hidden(self, token_ids: Any, index: Any, state: Any, constants: Any) -> tuple[Any, Any]:
        state = {name: value for name, value in state.items() if name != "hidden"}
        hidden, state = self.backbone.advance(ops.expand_dims(token_ids, 1), index, state, constants)
        return self.backbone.logits(hidden)[:, 0], {**state, "hidden": hidden[:, 0]}

    def _check(self, token_ids: Any, index: Any, state: Any, constants: Any) -> tuple[Any, Any]:
        hidden, state = self.backbone.advance(token_ids, index, state, constants)
        return self.backbone.logits(hidden), state

    def _require_rewinding(self, capacity: int) -> None:
        if not (self.backbone.can_rewind(capacity) and self.draft.can_rewind(capacity)):
            raise ValueError(
                "draft must be None where caches forget, since proposals are taken back: recurrent states, and caches "
                f"of attention windows shorter than the text ({capacity} positions)."
            )

    def _source(self, source: Sequence[Sequence[int]], batch: int, pad_id: int) -> dict[str, Any]:
        longest = max(len(row) for row in source)
        width = padded_length(longest, self.backbone.config.max_length)
        token_ids, mask = np.full((batch, width), pad_id, "int32"), np.zeros((batch, width), "bool")
        for row, ids in enumerate(source):
            token_ids[row, : len(ids)], mask[row, : len(ids)] = ids, True
        return {
            "encoder_token_ids": ops.convert_to_tensor(token_ids),
            "encoder_padding_mask": ops.convert_to_tensor(mask),
        }

    def _continued(
        self, cache: GenerationCache, batch: int, lengths: np.ndarray, width: int, capacity: int
    ) -> tuple[Any, int]:
        """The cached state, moved so that all rows end together, and how many tokens to feed."""
        fed = padded_length(int((lengths - cache.known).max()))
        if fed >= width:
            return None, width
        shift = np.zeros((batch,), "int32")
        shift[: len(lengths)] = width - lengths - cache.starts
        state = self.backbone.resize_state(cache.state, capacity, shift)
        return (None, width) if state is None else (state, fed)

    def _start_program(
        self,
        options: GenerationOptions,
        capacity: int,
        fed: int,
        arguments: list,
        seed: Any,
        source: dict[str, Any],
        state: Any,
    ) -> Any:
        def start(tokens: Any, limits: Any, streams: Any, seed: Any, source: Any, *state: Any) -> Any:
            loop = self.loop(options)
            return self._start(loop, options, capacity, fed, tokens, limits, streams, seed, source, *state)

        key = ("start", options, capacity, fed)
        states = () if state is None else (state,)
        return self._programs.run(key, start, options.jit_compile, *arguments, seed_tensor(seed), source, *states)

    def _start(
        self,
        loop: Any,
        options: GenerationOptions,
        capacity: Any,
        fed: int | None,
        tokens: Any,
        limits: Any,
        streams: Any,
        seed: Any,
        source: Mapping[str, Any],
        state: Any = None,
    ) -> Any:
        """Feeds the last `fed` tokens but one (None: all) and starts the loop, which feeds the last one itself."""
        width = ops.shape(tokens)[1]
        first = 0 if fed is None else width - fed
        ids = ops.maximum(tokens, 0)
        inputs = dict(source)
        if tokens.shape[1] != 1:
            inputs["padding_mask"] = tokens >= 0
        elif not source:
            inputs["padding_mask"] = ops.ones_like(tokens, dtype="bool")
        fresh, constants = self.backbone.start_decoding(inputs, capacity)
        state, hidden = fresh if state is None else state, None
        if tokens.shape[1] != 1:
            hidden, state = self.backbone.advance(ids[:, first:-1], first, state, constants)
        text = tokens
        if source:
            # the token that decoding starts with is no part of the text that processors look at
            beginning = ops.expand_dims(ops.argmax(ops.cast(tokens >= 0, "int32"), axis=1), 1)
            text = ops.where(ops.arange(width, dtype="int32") == ops.cast(beginning, "int32"), -1, tokens)
        arguments = loop_inputs(options, state, constants, ids[:, -1], width - 1, limits, seed, streams, text, hidden)
        if options.lookahead:
            draft_state, draft_constants = self.draft.start_decoding(inputs, capacity)
            if tokens.shape[1] != 1:
                _, draft_state = self.draft.advance(ids[:, :-1], 0, draft_state, draft_constants)
            count = options.max_new_tokens + options.lookahead
            numbers = ops.stack([uniforms(seed, streams, count, purpose) for purpose in range(3)])
            arguments.update(draft_state=draft_state, draft_constants=draft_constants, numbers=numbers)
        return loop.start(arguments)
