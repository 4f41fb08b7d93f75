"""Rows of token ids in, token ids out; what generation is asked for, and the engine that does it."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from zoo.generation.checks import is_integer, require_count
from zoo.generation.defaults import GenerationDefaults
from zoo.generation.engine import Engine
from zoo.generation.grammar_session import GrammarEngine, require_followed
from zoo.generation.grammars import Grammar
from zoo.generation.prompt_lookup import PromptLookup
from zoo.generation.request import GenerationOptions, proposals_of, room, split_stops
from zoo.generation.token_masks import TextMask, TokenMasks, spellings_of
from zoo.preprocessing.rows import shorten

# The `draft` that needs no model.
PROMPT_LOOKUP = "prompt_lookup"


class TokenGenerator:
    """Continues rows of token ids with a model.

    Args:
        task: The task: its `backbone` decodes, its `preprocessor` makes prompts of texts.
        engines: What makes the engines of other programs: `engines.engine(engine, options, **absent)` returns the one
            that an argument `engine` names, or raises an error about one of the arguments.
    """

    def __init__(self, task: Any, engines: Any) -> None:
        self._task = task
        self.backbone: Any = task.backbone
        self.engine: Engine = Engine(task.backbone)
        # the draft that was used last, with its engine
        self._drafted: tuple[Any, Engine] | None = None
        self._looking_up: Engine | None = None
        # the tokenizer, and what knows its tokens, of the last text that followed a grammar
        self._following: tuple[Any, TokenMasks, GrammarEngine] | None = None
        self.engines: Any = engines

    def generate_tokens(
        self,
        prompts: Sequence[Sequence[int]] | None = None,
        *,
        source: Sequence[Sequence[int]] | None = None,
        sampler: Any = None,
        max_length: int | None = None,
        max_new_tokens: int | None = None,
        stop_sequences: Any = None,
        end_ids: Any = None,
        pad_id: int | None = None,
        processors: Any = None,
        seed: int = 0,
        streams: Any = None,
        draft: Any = None,
        lookahead: int | None = None,
        engine: Any = None,
        jit_compile: bool | None = None,
    ) -> dict[str, Any]:
        """Continues rows of token ids, as one batch; needs no TensorFlow.

        Args:
            prompts: Token ids of each row, at least one, start token included. With a source the default is the token
                that decoding starts with.
            source: Token ids of the source of each row, for an encoder-decoder.
            sampler, max_length, max_new_tokens, processors, seed, draft, lookahead, engine, jit_compile: As for
                `generate`.
            stop_sequences: Ids and sequences of ids that end a row in addition to `end_ids`. Default as the task's
                `generation` says, or none.
            end_ids: Id or ids that end a row; none: `()`. Default as the task's `generation` says, or the end token of
                the tokenizer.
            pad_id: What fills rows behind their end. Default the padding token of the tokenizer, or 0.
            streams: Stream of random numbers of each row, see `zoo.generation.decode`.

        Returns:
            What `zoo.generation.decode` returns, in NumPy arrays.
        """
        chosen = self.chosen(
            sampler=sampler,
            processors=processors,
            stop=stop_sequences,
            max_length=max_length,
            max_new_tokens=max_new_tokens,
            end_ids=end_ids,
        )
        stops, sequences = split_stops(chosen.stop)
        if stops:
            raise ValueError(f"stop_sequences must be ids and lists of ids, got {shorten(stops)}.")
        preprocessor = self.preprocessor
        settings = self.options(
            **chosen.options(),
            **({} if pad_id is None else {"pad_id": pad_id}),
            stop_sequences=sequences,
            lookahead=proposals_of(draft, lookahead),
            jit_compile=False if jit_compile is None and engine is not None else jit_compile,
        )
        if preprocessor.takes_beginnings != (source is not None):
            wanted = "token ids for each row of an encoder-decoder" if source is None else "None with a decoder"
            raise ValueError(f"source must be {wanted}, got {shorten(source)}.")
        for name, given in (("prompts", prompts), ("source", source), ("streams", streams)):
            if given is not None and not hasattr(given, "__len__"):
                raise ValueError(f"{name} must be a list with an entry per row, got {shorten(given)}.")
        if prompts is None:
            if source is None:
                raise ValueError("prompts must hold token ids for each row, got None.")
            prompts = [[preprocessor.require_decoder_start()]] * len(source)
        for name, given in (("source", source), ("streams", streams)):
            if given is not None and len(given) != len(prompts):
                raise ValueError(f"{name} must have as many rows as prompts ({len(prompts)}), got {len(given)}.")
        _check_ids("source", () if source is None else source, self.backbone.config.vocabulary_size)
        for row, ids in enumerate(() if source is None else source):
            if not 0 < len(ids) <= self.longest:
                raise ValueError(f"source[{row}] must have from 1 to {self.longest} tokens, got {len(ids)}.")
        _check_ids("prompts", prompts, self.backbone.config.vocabulary_size)
        longest = chosen.max_length or self.longest
        lengths = np.array([len(prompt) for prompt in prompts], "int64")
        source_lengths = None
        if source is not None and chosen.max_length is None and chosen.max_new_tokens is None:
            source_lengths = np.array([len(row) for row in source], "int64")
        limits = room(lengths, source_lengths, longest, preprocessor.start_tokens)
        for row in np.flatnonzero(limits < 1):
            raise ValueError(f"prompts[{row}] must be shorter than {longest} tokens, got {lengths[row]}.")
        decoding = self.engine_with(draft) if engine is None else self.engines.engine(engine, settings, draft=draft)
        session = decoding.begin(prompts, settings, source=source, limits=limits, seed=seed, streams=streams)
        return session.advance().result()

    @property
    def defaults(self) -> GenerationDefaults:
        """What the task says of generation."""
        return self._task.generation_defaults

    def chosen(self, **given: Any) -> GenerationDefaults:
        """Returns what generation depends on: what was given, else the default of the task, else "greedy".

        Args:
            **given: `sampler`, `processors`, `stop`, `max_length` and `max_new_tokens`, None where they are not given.
        """
        return self.defaults.replaced(self.longest, **given)

    def options(
        self, *, max_length: int | None = None, max_new_tokens: int | None = None, **options: Any
    ) -> GenerationOptions:
        """Returns checked options of generation, with the end token and lengths of this model.

        Args:
            max_length, max_new_tokens: As for `generate`.
            **options: Further fields of `zoo.generation.GenerationOptions`.

        Raises:
            ValueError: If an argument is out of range.
        """
        preprocessor, longest = self.preprocessor, self.longest
        # so many of the longest stand before the first generated token at least
        fewest = 1 - preprocessor.start_tokens
        if max_length is not None:
            longest = require_count("max_length", max_length, fewest + 1, longest)
        new = longest - fewest
        if max_new_tokens is not None:
            new = min(require_count("max_new_tokens", max_new_tokens), new)
        end_id = None if preprocessor.tokenizer is None else preprocessor.tokenizer.end_id
        options = {"end_ids": () if end_id is None else end_id, "pad_id": preprocessor.pad_id, **options}
        return GenerationOptions(max_new_tokens=new, **options)

    @property
    def preprocessor(self) -> Any:
        """The preprocessor of the task, which a loaded file replaces."""
        return self._task.preprocessor

    @property
    def longest(self) -> int:
        """Most tokens of a row."""
        return self.preprocessor.sequence_length

    def engine_with(self, draft: Any) -> Engine:
        """Returns the engine of this model alone, or with what proposes tokens.

        Args:
            draft: As for `generate`.

        Raises:
            TypeError, ValueError: If it is nothing that proposes, or a model that does not fit this one.
        """
        if draft is None:
            return self.engine
        if draft == PROMPT_LOOKUP:
            if self._looking_up is None:
                self._looking_up = Engine(self.backbone, PromptLookup(self.backbone.config.vocabulary_size))
            return self._looking_up
        other: TokenGenerator | None = getattr(draft, "generator", None)
        if other is None:
            raise TypeError(f"draft must be a task that writes texts or {PROMPT_LOOKUP!r}, got {shorten(draft)}.")
        if other.preprocessor.takes_beginnings != self.preprocessor.takes_beginnings:
            raise ValueError(
                f"draft must be a {type(self._task).__name__} as the model is, got a {type(draft).__name__}."
            )
        sizes = [(one.backbone.config.vocabulary_size, one.longest) for one in (self, other)]
        if sizes[0][0] != sizes[1][0] or sizes[0][1] > sizes[1][1]:
            raise ValueError(
                f"draft must have vocabulary_size={sizes[0][0]} and a max_length of at least {sizes[0][1]} as the "
                f"model has, got {sizes[1][0]} and {sizes[1][1]}."
            )
        tokenizers = [one.preprocessor.tokenizer for one in (self, other)]
        vocabularies = [tokenizer and tokenizer.get_vocabulary() for tokenizer in tokenizers]
        if vocabularies[0] != vocabularies[1]:
            raise ValueError("draft must have the tokenizer of the model, got one with other tokens.")
        drafted = self._drafted
        if drafted is None or drafted[0] is not other.backbone:
            drafted = self._drafted = other.backbone, Engine(self.backbone, other.backbone)
        return drafted[1]

    def following(self, grammar: Any, options: GenerationOptions) -> tuple[GrammarEngine, Callable[[], TextMask]]:
        """Returns the engine of texts that follow a grammar, and what makes the mask of one.

        Args:
            grammar: As for `generate`.
            options: The settings of the generation, which name the tokens that end a text.

        Raises:
            TypeError, ValueError: If it is no grammar, none that texts of this model can follow, or none that they can
                with these settings.
        """
        if not isinstance(grammar, Grammar):
            raise TypeError(f"grammar must be one of zoo.generation, such as JSONSchema(...), got {shorten(grammar)}.")
        if not self.backbone.decodes_rows:
            raise ValueError(
                "grammar must be None with this model: it takes a decoder without recurrence, of positions that do not "
                "depend on the length of the whole text."
            )
        require_followed(options)
        tokenizer = self.preprocessor.require_tokenizer("grammar")
        if self._following is None or self._following[0] is not tokenizer:
            masks = TokenMasks(spellings_of(tokenizer, self.backbone.config.vocabulary_size))
            self._following = tokenizer, masks, GrammarEngine(self.backbone)
        _, masks, engine = self._following
        return engine, functools.partial(masks.begin, grammar.lark, options.end_ids)


def _check_ids(name: str, rows: Sequence[Sequence[int]], vocabulary_size: int) -> None:
    """Raises a ValueError that names the first row that is no list, or the first entry that is no id."""
    for row, ids in enumerate(rows):
        if not hasattr(ids, "__len__"):
            raise ValueError(f"{name}[{row}] must be a list of token ids, got {shorten(ids)}.")
        for place, token_id in enumerate(ids):
            if not is_integer(token_id) or not 0 <= token_id < vocabulary_size:
                raise ValueError(
                    f"{name}[{row}][{place}] must be an id from 0 to {vocabulary_size - 1}, got {shorten(token_id)}."
                )
