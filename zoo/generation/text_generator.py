"""Texts in, texts out: the same for models that continue texts and for those that map them to others."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from zoo.generation.checks import is_integer, require_count
from zoo.generation.defaults import GenerationDefaults
from zoo.generation.engine import Engine
from zoo.generation.request import (
    GenerationCache,
    GenerationOptions,
    Request,
    make_request,
    room,
    split_stops,
    streams_of,
    with_results,
)
from zoo.generation.session import Session
from zoo.generation.texts import TextSession
from zoo.preprocessing.rows import as_text, as_texts, shorten
from zoo.preprocessing.token_rows import map_by_length


class TextGenerator:
    """Writes texts with a model: in batches, as a stream, as a function of a SavedModel.

    Args:
        task: The task: its `backbone` decodes, its `preprocessor` makes prompts of texts.
    """

    def __init__(self, task: Any) -> None:
        self._task = task
        self.backbone = task.backbone
        self.engine = Engine(task.backbone)
        # the draft that was used last, with its engine
        self._drafted: tuple[Any, Engine] | None = None

    def generate(
        self,
        texts: str | Sequence[str],
        *,
        sampler: Any = None,
        max_length: int | None = None,
        max_new_tokens: int | None = None,
        stop: Any = None,
        processors: Any = None,
        beginnings: str | Sequence[str] | None = None,
        strip_prompt: bool = False,
        truncate: bool | None = None,
        num_results: int | None = None,
        return_scores: bool = False,
        seed: int = 0,
        batch_size: int = 32,
        draft: Any = None,
        lookahead: int = 4,
        cache: GenerationCache | None = None,
        return_cache: bool = False,
        jit_compile: bool = True,
    ) -> Any:
        """Writes a text for each text: its continuation, or with an encoder-decoder what it is mapped to.

        Texts of similar length share a batch; the result of each is its own, whatever the others are. Of `sampler`,
        `processors`, `stop`, and the two lengths together, those that are None are what the task's `generation` says.

        Args:
            texts: One text or many: prompts, or sources of an encoder-decoder.
            sampler: "greedy", "sample", "beam", "contrastive", a dictionary such as `{"name": "sample", "top_p": 0.9}`,
                or a `Sampler`. Default "greedy".
            max_length: Most tokens of prompt and continuation together, or of an output with its end token. Default the
                `max_length` of the model; where no length is given, an output is at most 50 tokens longer than its
                source.
            max_new_tokens: Most tokens that are generated. Default what `max_length` leaves.
            stop: What ends a text in addition to the end tokens: a string, or a list of strings, token ids and lists of
                token ids. A stop is not part of the text. (With beam search, strings cut the text at its end only.)
            processors: List of logit processors, see `zoo.generation.get_processors`. The text that they look at is the
                prompt with its continuation, or the output without its source.
            beginnings: With an encoder-decoder what each output begins with: one text, or one per source.
            strip_prompt: Whether to return what was generated without the prompt or beginning.
            truncate: Whether longer texts are cut, instead of being an error; default as the preprocessor does it. A
                prompt keeps its end, so that `max_new_tokens` more tokens fit, or else a quarter of `max_length`; never
                less than a quarter of `max_length` is kept. A source keeps its beginning.
            num_results: Number of results for each text; the result for a text is then a list, the best first with
                `Beam`, different draws with samplers that draw. Default one that is no list, or as many as
                `Beam(num_results=...)` says.
            return_scores: Whether to return scores too: the length-normalised log-probabilities of `Beam`, otherwise
                log-probabilities of the generated tokens under the model. A stop string is noticed some tokens late,
                and the score counts these; a stop of token ids is exact.
            seed: Seed of a random sampler, from 0 to 2**32 - 1; the same seed gives the same texts.
            batch_size: Texts per batch.
            draft: A smaller model with the same tokenizer that proposes tokens (speculative decoding): the same
                distribution of texts in less time. With samplers that define `weights`.
            lookahead: Tokens that the draft proposes at a time.
            cache: What an earlier call returned: `texts` (or `beginnings` with an encoder-decoder, whose sources are
                given again) are then put behind the results of that call, without computing these again. All rows
                form one batch.
            return_cache: Whether to return a cache too. Excludes beam search, stop strings and `num_results`.
            jit_compile: Whether XLA compiles the loop: seconds once per shape, then twice as fast.

        Returns:
            One text, or a list of as many as were given (with several results a list of lists); with `return_scores`
            or `return_cache` a tuple of this, the scores (one number, `(number,)` or `(number, num_results)`) and
            the cache.

        Raises:
            ValueError: If a text leaves no room or has no token (naming the row), an argument is out of range, or
                there is no tokenizer.

        Example:

        >>> model.generate("Once upon a time", max_new_tokens=40, sampler={"name": "sample", "temperature": 0.8})
        'Once upon a time there was a ...'
        """
        single, rows = _as_rows(texts)
        require_count("batch_size", batch_size)
        chosen = self.chosen(
            sampler=sampler, processors=processors, stop=stop, max_length=max_length, max_new_tokens=max_new_tokens
        )
        stops, sequences = split_stops(chosen.stop)
        options = self.options(
            **chosen.options(),
            stop_sequences=sequences,
            lookahead=0 if draft is None else require_count("lookahead", lookahead),
            jit_compile=jit_compile,
        )
        options, repeats, per_text = with_results(options, num_results)
        if return_cache and (stops or per_text is not None):
            raise ValueError(
                "return_cache must be False with stop strings, which can end a text within a token, and with several "
                "results, got True."
            )
        if cache is not None and repeats > 1:
            raise ValueError(f"num_results must be None or 1 with a cache, got {num_results}.")
        request = make_request(
            self.preprocessor,
            rows,
            beginnings,
            most=options.max_new_tokens,
            max_length=chosen.max_length,
            max_new_tokens=chosen.max_new_tokens,
            truncate=truncate,
            cache=cache,
        )
        # a cache has its rows in the order of the texts
        batches = None if cache is not None or return_cache else batch_size
        given = {"options": options, "seed": seed, "cache": cache}
        results, session = self._run(self._engine_with(draft), request, repeats, stops, batches, given)
        texts, scores = _by_text(results, [b""] * len(rows) if strip_prompt else request.before, repeats, per_text)
        answer = [texts, *([scores] if return_scores else [])]
        if single:
            answer = [texts[0], *([scores[0] if per_text else float(scores[0])] if return_scores else [])]
        if return_cache:
            answer.append(session and session.cache())
        return answer[0] if len(answer) == 1 else tuple(answer)

    def stream(
        self,
        texts: str | Sequence[str],
        *,
        chunk: int = 4,
        sampler: Any = None,
        max_length: int | None = None,
        max_new_tokens: int | None = None,
        stop: Any = None,
        processors: Any = None,
        beginnings: str | Sequence[str] | None = None,
        strip_prompt: bool = False,
        truncate: bool | None = None,
        seed: int = 0,
        draft: Any = None,
        lookahead: int = 4,
        jit_compile: bool = True,
    ) -> Iterator[Any]:
        """Writes texts piece by piece.

        The pieces joined are what `generate` returns for the same arguments. No piece ends within a character.

        Args:
            texts: One text or many, which form one batch.
            chunk: Tokens between two pieces, at least 1.
            sampler: As for `generate`, but not beam search.
            max_length, max_new_tokens, stop, processors, beginnings, truncate, seed, draft, lookahead, jit_compile: As
                for `generate`.
            strip_prompt: Whether to leave out the prompt, which otherwise is the first piece.

        Returns:
            An iterator of pieces; for many texts of lists with one piece per text, "" where there is nothing new.

        Example:

        >>> for piece in model.stream("Once upon a time", max_new_tokens=40):
        ...     print(piece, end="", flush=True)
        """
        require_count("chunk", chunk)
        single, rows = _as_rows(texts)
        chosen = self.chosen(
            sampler=sampler, processors=processors, stop=stop, max_length=max_length, max_new_tokens=max_new_tokens
        )
        stops, sequences = split_stops(chosen.stop)
        lookahead = 0 if draft is None else require_count("lookahead", lookahead)
        settings = self.options(
            **chosen.options(), stop_sequences=sequences, lookahead=lookahead, jit_compile=jit_compile
        )
        if not settings.sampler.incremental:
            raise ValueError(
                f"sampler must write texts from left to right for stream(), got {settings.sampler!r}: use generate(), "
                'or pass sampler="greedy".'
            )
        request = make_request(
            self.preprocessor,
            rows,
            beginnings,
            most=settings.max_new_tokens,
            max_length=chosen.max_length,
            max_new_tokens=chosen.max_new_tokens,
            truncate=truncate,
        )
        if not rows:
            return iter(())
        engine, every = self._engine_with(draft), np.arange(len(rows))
        session = engine.begin(**request.take(every), options=settings, seed=seed)
        first = [b"" if strip_prompt else text for text in request.before]
        texts = TextSession(session, self.preprocessor, stops)
        pieces = texts.pieces([text.decode("utf-8", "replace") for text in first], chunk)
        return (piece[0] for piece in pieces) if single else pieces

    def _run(
        self,
        engine: Engine,
        request: Request,
        repeats: int,
        stops: list[str],
        batch_size: int | None,
        given: dict[str, Any],
    ) -> tuple[list[tuple[list[bytes], np.ndarray]], Session | None]:
        """Generates to the end; returns texts and scores of each run, and the last session.

        Args:
            engine: The engine.
            request: The rows.
            repeats: Runs of each row; run k of row r has the number `r * repeats + k`.
            stops: Stop strings.
            batch_size: Runs per batch, of similar length; None for one batch in the order of the rows.
            given: Further arguments of `Engine.begin`.
        """
        session = None

        def write(numbers: np.ndarray) -> list[tuple[list[bytes], np.ndarray]]:
            nonlocal session
            rows, places = numbers // repeats, numbers % repeats
            session = engine.begin(**request.take(rows), streams=streams_of(rows, places), **given)
            return TextSession(session, self.preprocessor, stops).finish()

        lengths = np.repeat(request.lengths, repeats)
        if batch_size is not None:
            results = map_by_length(write, lengths, batch_size)
        else:
            results = write(np.arange(len(lengths))) if len(lengths) else []
        return results, session

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
        lookahead: int = 4,
        jit_compile: bool = True,
    ) -> dict[str, Any]:
        """Continues rows of token ids, as one batch; needs no TensorFlow.

        Args:
            prompts: Token ids of each row, at least one, start token included. With a source the default is the token
                that decoding starts with.
            source: Token ids of the source of each row, for an encoder-decoder.
            sampler, max_length, max_new_tokens, processors, seed, draft, lookahead, jit_compile: As for `generate`.
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
            lookahead=0 if draft is None else lookahead,
            jit_compile=jit_compile,
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
        session = self._engine_with(draft).begin(
            prompts, settings, source=source, limits=limits, seed=seed, streams=streams
        )
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

    def _engine_with(self, draft: Any) -> Engine:
        """The engine of this model alone, or with the draft model, which is checked."""
        if draft is None:
            return self.engine
        other: TextGenerator | None = getattr(draft, "generator", None)
        if other is None:
            raise TypeError(f"draft must be a task that writes texts, got {type(draft).__name__}.")
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


def _as_rows(texts: str | Sequence[str]) -> tuple[bool, list[bytes]]:
    """Whether it is one text, and the texts in UTF-8."""
    single = isinstance(texts, (str, bytes))
    return single, [as_text(texts, "texts")] if single else as_texts(texts, "texts")


def _by_text(
    results: list[tuple[list[bytes], np.ndarray]], before: list[bytes], repeats: int, per_text: int | None
) -> tuple[list[Any], np.ndarray]:
    """Texts and scores of each row: one `(rows,)`, or `per_text` of them `(rows, per_text)`."""
    count = per_text or 1
    texts, scores = [], np.zeros((len(before), count), "float32")
    for row, prompt in enumerate(before):
        runs = results[row * repeats : (row + 1) * repeats]
        whole = [(prompt + text).decode("utf-8", "replace") for written, _ in runs for text in written]
        texts.append(whole[:count])
        scores[row] = np.concatenate([values for _, values in runs])[:count]
    return (texts, scores) if per_text else ([row[0] for row in texts], scores[:, 0])
