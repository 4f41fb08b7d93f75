"""Decoding on token level, the same for decoders, encoder-decoders and recurrent models: prompts are continued."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from zoo.generation.checks import as_seed
from zoo.generation.checksums import Checksums
from zoo.generation.compiled_functions import CompiledFunctions, next_power_of_two
from zoo.generation.loop import Loop
from zoo.generation.request import GenerationCache, GenerationOptions
from zoo.generation.session import Session
from zoo.generation.speculative import SpeculativeDecoding
from zoo.preprocessing.token_rows import padded_length

# New tokens that caches have room for at first; they are doubled when a text is longer.
FIRST_ROOM = 256

# Scores per head of a pass over prompts from which on programs know the lengths, and with them whether attention is to
# be computed in pieces: 2 GiB with 128 heads, see `layers.attention.kernels.dispatch.choose_path`.
MANY_SCORES = 2**22


class Engine:
    """Continues prompts with a backbone.

    The prompt of a decoder is a text. The prompt of an encoder-decoder is the decoder's start token, and its source is
    read by the encoder.

    Args:
        backbone: A backbone that decodes, see `zoo.backbones.backbone.Backbone`.
        draft: The draft of speculative decoding: the backbone of a smaller model, a `zoo.generation.PromptLookup`, or
            None.

    Example:

    >>> session = Engine(backbone).begin([[1, 17, 4]], GenerationOptions(20, end_ids=2))
    >>> session.advance().generated()
    [[9, 33, 8]]
    """

    def __init__(self, backbone: Any, draft: Any = None) -> None:
        self.backbone = backbone
        self.draft = draft
        self._programs = CompiledFunctions(self._variables)
        self.checksums: Checksums = Checksums(backbone)

    def _variables(self) -> list[Any]:
        return [
            *self.backbone.active_variables,
            *(self.draft.active_variables if self.draft is not None else ()),
        ]

    # Batches of any sizes, step by step.

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
        """Feeds prompts to the model in one pass, and returns a session that generates.

        Batch size, lengths and number of new tokens are rounded up, so that few programs are compiled.

        Args:
            prompts: Token ids of each row, at least one per row. With a cache the whole text, cached tokens included.
            options: Settings of the generation.
            source: For an encoder-decoder the token ids of each row's source.
            limits: Largest number of tokens to generate for each row. Default `options.max_new_tokens`.
            seed: Seed of a random sampler.
            streams: Stream of random numbers of each row. Default the index of the row.
            cache: The cache of an earlier session, with the rows in the same order.

        Raises:
            ValueError: If there is no prompt, if one is empty, or if the cache belongs to another model or source.
        """
        if not len(prompts):
            raise ValueError("prompts must hold at least one row, got none.")
        for row, prompt in enumerate(prompts):
            if not len(prompt):
                raise ValueError(f"prompts[{row}] must have at least 1 token to continue, got none.")
        count = len(prompts)
        batch = next_power_of_two(count)
        most = options.max_new_tokens
        limits = np.minimum([most] * count if limits is None else limits, most)
        rounded = with_length(options, padded_length(max(int(limits.max()), 1)))
        lengths = np.array([len(prompt) for prompt in prompts])
        width = 1 if lengths.max() == 1 else padded_length(int(lengths.max()))
        capacity = width + min(rounded.max_new_tokens, FIRST_ROOM) + options.extra_cache_slots
        if options.lookahead:
            # caches grow up to this size, and those of a window forget from then on
            self.require_rewinding(width + rounded.max_new_tokens + options.extra_cache_slots)
        state, fed = self._continued(cache, options, source, batch, lengths, width, capacity)
        streams = range(count) if streams is None else streams
        rows = [np.pad(np.asarray(values, "int32"), (0, batch - count)) for values in (limits, streams)]
        arrays = [_padded(prompts, batch, width, -1, left=True), *rows]
        carry = self._run_start(
            rounded,
            capacity,
            fed,
            *map(ops.convert_to_tensor, arrays),
            as_seed(seed),
            {} if source is None else self._encoder_inputs(source, batch, options.pad_id),
            *(() if state is None else (state,)),
        )
        return Session(self, options, rounded, carry, prompts, source, width, capacity)

    def advance(self, options: GenerationOptions, carry: Any, until: int) -> Any:
        """Runs the compiled loop until `until` tokens have been generated, or all rows are done."""

        def run(carry: Any, until: Any, most: Any) -> Any:
            return self.loop(with_length(options, most)).advance(carry, until)

        key = ("advance", with_length(options, 1), carry["moving"]["done"].shape[0])
        numbers = (ops.convert_to_tensor(number, dtype="int32") for number in (until, options.max_new_tokens))
        exact = not shares_lengths(options)
        return self._programs.run(key, run, options.jit_compile, carry, *numbers, exact_shapes=exact)

    def grow(self, carry: Any, capacity: int) -> Any:
        """Returns the carried value with caches of another capacity."""
        moving = dict(carry["moving"])
        for name, backbone in (("state", self.backbone), ("draft_state", self.draft)):
            if name in moving:
                known = {key: value for key, value in moving[name].items() if key != "hidden"}
                moving[name] = {**moving[name], **backbone.resize_state(known, capacity)}
        return {**carry, "moving": moving}

    # The whole of it in a graph.

    def decode(
        self,
        tokens: Any,
        source: Mapping[str, Any],
        limits: Any,
        streams: Any,
        seed: Any,
        options: GenerationOptions,
    ) -> dict[str, Any]:
        """Generates in one graph function of tensors of unknown sizes, for exports.

        Args:
            tokens: Prompts `(batch, length)`, padded on the left with -1.
            source: For an encoder-decoder `encoder_token_ids` and `encoder_padding_mask`, `(batch, source_length)`.
            limits: Largest number of tokens to generate for each row, `(batch,)`.
            streams: Stream of random numbers of each row, `(batch,)`.
            seed: Seed, an integer scalar.
            options: Settings of the generation.

        Returns:
            The result of `zoo.generation.decode`.
        """
        loop = self.loop(options)
        capacity = ops.shape(tokens)[1] + options.max_new_tokens + options.extra_cache_slots
        return loop.result(loop.advance(self._start(loop, capacity, 0, tokens, limits, streams, seed, source)))

    def loop(self, options: GenerationOptions) -> Loop:
        """Returns the loop of the options."""
        if options.lookahead:
            return SpeculativeDecoding(self._feed, self.draft.decode_step, options)
        step = self._step_with_hidden if options.sampler.needs_hidden else self.backbone.decode_step
        return options.sampler.make_loop(step, options)

    def _step_with_hidden(self, token_ids: Any, index: Any, state: Any, constants: Any) -> tuple[Any, Any]:
        state = {name: value for name, value in state.items() if name != "hidden"}
        hidden, state = self.backbone.advance(ops.expand_dims(token_ids, 1), index, state, constants)
        return self.backbone.logits(hidden)[:, 0], {**state, "hidden": hidden[:, 0]}

    def _feed(self, token_ids: Any, index: Any, state: Any, constants: Any) -> tuple[Any, Any]:
        """Feeds several tokens per row, `(batch, new)`; logits `(batch, new, vocabulary)` and the new state."""
        hidden, state = self.backbone.advance(token_ids, index, state, constants)
        return self.backbone.logits(hidden), state

    # Steps of the beginning.

    def require_rewinding(self, capacity: int) -> None:
        """Raises a ValueError if proposals cannot be taken back within so many positions."""
        if not (self.backbone.can_rewind(capacity) and self.draft.can_rewind(capacity)):
            raise ValueError(
                "draft must be None with caches that cannot be rewound, because proposals may be rejected: recurrent "
                f"states, and caches of attention windows shorter than the text ({capacity} positions), got "
                f"{type(self.draft).__name__}."
            )

    def _encoder_inputs(self, source: Sequence[Sequence[int]], batch: int, pad_id: int) -> dict[str, Any]:
        width = padded_length(max(len(row) for row in source), self.backbone.config.max_length)
        lengths = np.pad([len(row) for row in source], (0, batch - len(source)))
        return {
            "encoder_token_ids": ops.convert_to_tensor(_padded(source, batch, width, pad_id)),
            "encoder_padding_mask": ops.convert_to_tensor(np.arange(width) < lengths[:, None]),
        }

    def _continued(
        self,
        cache: GenerationCache | None,
        options: GenerationOptions,
        source: Sequence[Sequence[int]] | None,
        batch: int,
        lengths: np.ndarray,
        width: int,
        capacity: int,
    ) -> tuple[Any, int]:
        """The cached state, moved so that all rows end together (None: start afresh), and how many tokens to feed."""
        if cache is None:
            return None, width
        if cache.backbone() is not self.backbone:
            raise ValueError("cache must be what this model returned, got one of another model.")
        for row, (known, given) in enumerate(zip(cache.sources or (), source or (), strict=True)):
            if not np.array_equal(known, given):
                raise ValueError(f"cache must be that of the same sources, got another one in row {row}.")
        # what was computed with weights that were trained or replaced since is computed again
        if options.sampler.needs_hidden or not np.array_equal(cache.checksums, self.checksums()):
            return None, width
        fed = padded_length(int((lengths - cache.known).max()))
        # caches of a window that have been written round and round are in no order
        if fed >= width or not self.backbone.can_rewind(cache.capacity):
            return None, width
        shift = np.zeros((batch,), "int32")
        shift[: len(lengths)] = width - lengths - cache.starts
        state = self.backbone.resize_state(cache.state, capacity, shift)
        return (None, width) if state is None else (state, fed)

    def _run_start(self, options: GenerationOptions, capacity: int, fed: int, *arguments: Any) -> Any:
        """Runs the compiled `_start` on tensors."""
        if keras.backend.backend() == "tensorflow":
            # a pass over prompts is large products: XLA takes seconds to compile them, and makes them no faster
            options = dataclasses.replace(options, jit_compile=False)
        tokens, _, _, _, source, *_ = arguments
        width = tokens.shape[1]
        sizes = {"most": options.max_new_tokens, "capacity": capacity, "first": width - fed}

        def start(sizes: dict[str, Any], *arguments: Any) -> Any:
            loop = self.loop(with_length(options, sizes["most"]))
            return self._start(loop, sizes["capacity"], sizes.get("first", 0), *arguments)

        scores = tokens.shape[0] * max([width * capacity, *(part.shape[1] ** 2 for part in source.values())])
        if not shares_lengths(options) or scores > MANY_SCORES:
            key = ("start", options, *sizes.values())
            return self._programs.run(key, functools.partial(start, sizes), options.jit_compile, *arguments)
        # a prompt of one token has nothing to feed; products of an unknown number of rows are slow
        known = width if self.backbone.unrolls_prompts else min(width, 2)
        sizes = {name: ops.convert_to_tensor(size, dtype="int32") for name, size in sizes.items() if size}
        key = ("start", with_length(options, 1), known, tokens.shape[0], *sizes)
        return self._programs.run(key, start, options.jit_compile, sizes, *arguments, exact_shapes=False)

    def _start(
        self,
        loop: Loop,
        capacity: Any,
        first: Any,
        tokens: Any,
        limits: Any,
        streams: Any,
        seed: Any,
        source: Mapping[str, Any],
        state: Any = None,
    ) -> Any:
        """Feeds the tokens from the `first` on but the last, and starts the loop, which feeds that one itself."""
        width = ops.shape(tokens)[1]
        has_more = tokens.shape[1] != 1
        ids = ops.maximum(tokens, 0)
        inputs = dict(source)
        if has_more or not source:
            inputs["padding_mask"] = tokens >= 0
        fresh, constants = self.backbone.start_decoding(inputs, capacity)
        state, hidden = fresh if state is None else state, None
        if has_more:
            hidden, state = self.backbone.advance(ids[:, first:-1], first, state, constants)
        given = {}
        if loop.settings.lookahead:
            draft_state, draft_constants = self.draft.start_decoding(inputs, capacity)
            if has_more:
                _, draft_state = self.draft.advance(ids[:, :-1], 0, draft_state, draft_constants)
            given = {"draft_state": draft_state, "draft_constants": draft_constants}
        return loop.start(
            loop.inputs(
                state=state,
                constants=constants,
                first_tokens=ids[:, -1],
                first_index=width - 1,
                length_limit=limits,
                seed=seed,
                streams=streams,
                prompt=_marked_first(tokens) if source else tokens,
                prompt_hidden=hidden,
                **given,
            )
        )


def shares_lengths(options: GenerationOptions) -> bool:
    """Whether texts of any length are generated by the same programs, as far as TensorFlow interprets them.

    XLA compiles one for each combination of lengths.
    """
    return keras.backend.backend() == "tensorflow" and not options.jit_compile


def with_length(options: GenerationOptions, most: Any) -> GenerationOptions:
    """Returns the options with another number of new tokens, which is a tensor where programs are for any number."""
    return dataclasses.replace(options, max_new_tokens=most)


def _padded(rows: Sequence[Sequence[int]], batch: int, width: int, value: int, left: bool = False) -> np.ndarray:
    """Rows of ids as int32 `(batch, width)`."""
    padded = np.full((batch, width), value, "int32")
    for row, ids in enumerate(rows):
        padded[row, width - len(ids) if left else 0 :][: len(ids)] = ids
    return padded


def _marked_first(tokens: Any) -> Any:
    """Prompts with -2 - id for their first token: the one that decoding starts with is no part of the text."""
    first = ops.expand_dims(ops.cast(ops.argmax(ops.cast(tokens >= 0, "int32"), axis=1), "int32"), 1)
    return ops.where(ops.arange(ops.shape(tokens)[1], dtype="int32") == first, -2 - tokens, tokens)
