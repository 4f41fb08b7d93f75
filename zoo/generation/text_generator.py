"""Texts in, texts out: the same for models that continue texts and for those that map them to others."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from zoo.generation.engine import Engine
from zoo.generation.options import GenerationCache, GenerationOptions
from zoo.generation.session import Session
from zoo.generation.text_request import make_request
from zoo.generation.texts import PieceWriter, cut_at_stops, split_stops
from zoo.preprocessing.rows import as_text, as_texts, require_count
from zoo.preprocessing.token_rows import map_by_length

# Tokens between two looks at the texts for stop strings.
STOP_INTERVAL = 16
# The stream of random numbers of result k of row r is k * FIRST_RESULTS + r.
FIRST_RESULTS = 1 << 24


class TextGenerator:
    """Writes texts with a model: in batches, as a stream, as a function of a SavedModel.

    Args:
        backbone: A backbone that decodes.
        prompts: What texts are to the model, `ContinuedTexts` or `MappedTexts`.
    """

    def __init__(self, backbone: Any, prompts: Any):
        self.backbone = backbone
        self.prompts = prompts
        self.engine = Engine(backbone)
        # the draft that was used last, with its engine
        self._drafted: tuple[Any, Engine] | None = None

    def generate(
        self,
        texts: str | Sequence[str],
        *,
        sampler: Any = "greedy",
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

        Texts of similar length share a batch; the result of each is its own, whatever the others are.

        Args:
            texts: One text or many: prompts, or sources of an encoder-decoder.
            sampler: "greedy", "sample", "beam", "contrastive", a dictionary such as `{"name": "sample", "top_p": 0.9}`,
                or a `Sampler`.
            max_length: Most tokens of prompt and continuation together, or of an output with its end token. Default the
                `max_length` of the model. Never more than 50 more than the source has.
            max_new_tokens: Most tokens that are generated. Default what `max_length` leaves.
            stop: What ends a text in addition to the end token: a string, or a list of strings, token ids and lists of
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
                log-probabilities of the generated tokens under the model.
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
        single = isinstance(texts, (str, bytes))
        rows = [as_text(texts, "texts")] if single else as_texts(texts, "texts")
        require_count(batch_size, "batch_size")
        stops, sequences = split_stops(stop)
        options = self.options(
            sampler=sampler,
            max_length=max_length,
            max_new_tokens=max_new_tokens,
            stop_sequences=sequences,
            processors=processors,
            lookahead=0 if draft is None else require_count(lookahead, "lookahead"),
            jit_compile=jit_compile,
        )
        options, repeats, results_per_text = _results(options, num_results)
        if return_cache and (stops or results_per_text is not None):
            raise ValueError(
                "return_cache must be False with stop strings, which can end a text within a token, and with several "
                "results, got True."
            )
        if cache is not None and repeats > 1:
            raise ValueError(f"num_results must be None or 1 with a cache, got {num_results}.")
        request = make_request(
            self.prompts, rows, beginnings, options.max_new_tokens, max_length, max_new_tokens, truncate, cache
        )
        engine, left = self._engine_with(draft), [None]
        if cache is not None or return_cache:
            batch_size = max(len(rows), 1)

        def write(numbers: np.ndarray) -> list[tuple[list[bytes], np.ndarray]]:
            order = np.argsort(numbers) if cache is not None or return_cache else np.arange(len(numbers))
            numbers = numbers[order]
            texts, places = numbers // repeats, numbers % repeats
            chosen = request.take(texts)
            session = engine.begin(
                *chosen[:1], options, **chosen[1], seed=seed, streams=places * FIRST_RESULTS + texts, cache=cache
            )
            written = self._finish(session, chosen[0], stops, options)
            left[0] = session.cache() if return_cache else None
            back = np.argsort(order)
            return [(written[0][place], written[1][place]) for place in back]

        results = map_by_length(write, np.repeat(request.lengths, repeats), batch_size)
        before = [b""] * len(rows) if strip_prompt else request.before
        outputs, scores = [], []
        for row in range(len(rows)):
            parts = results[row * repeats : (row + 1) * repeats]
            whole = [(before[row] + text).decode("utf-8", "replace") for part in parts for text in part[0]]
            scores.append(np.concatenate([part[1] for part in parts]))
            outputs.append(whole[0] if results_per_text is None else whole)
        width = results_per_text or 1
        scores = np.array([row[:width] for row in scores], "float32").reshape(len(rows), width)
        scores = scores[:, 0] if results_per_text is None else scores
        answer = [outputs[0] if single else outputs]
        if return_scores:
            answer.append((float(scores[0]) if results_per_text is None else scores[0]) if single else scores)
        if return_cache:
            answer.append(left[0])
        return answer[0] if len(answer) == 1 else tuple(answer)

    def stream(
        self,
        texts: str | Sequence[str],
        *,
        chunk: int = 4,
        beginnings: str | Sequence[str] | None = None,
        strip_prompt: bool = False,
        truncate: bool | None = None,
        stop: Any = None,
        seed: int = 0,
        draft: Any = None,
        lookahead: int = 4,
        **options: Any,
    ) -> Iterator[Any]:
        """Writes texts piece by piece.

        The pieces joined are what `generate` returns for the same arguments. No piece ends within a character.

        Args:
            texts: One text or many, which form one batch.
            chunk: Tokens between two pieces, at least 1.
            beginnings, strip_prompt, truncate, stop, seed, draft, lookahead: As for `generate`. The prompt is the first
                piece unless `strip_prompt` is true.
            **options: `sampler` (but beam search), `max_length`, `max_new_tokens`, `processors` and `jit_compile` as
                for `generate`.

        Returns:
            An iterator of pieces; for many texts of lists with one piece per text, "" where there is nothing new.

        Example:

        >>> for piece in model.stream("Once upon a time", max_new_tokens=40):
        ...     print(piece, end="", flush=True)
        """
        require_count(chunk, "chunk")
        single = isinstance(texts, (str, bytes))
        rows = [as_text(texts, "texts")] if single else as_texts(texts, "texts")
        stops, sequences = split_stops(stop)
        lookahead = 0 if draft is None else require_count(lookahead, "lookahead")
        settings = self.options(stop_sequences=sequences, lookahead=lookahead, **options)
        if not settings.sampler.incremental:
            raise ValueError(
                f"sampler must write texts from left to right for stream(), got {settings.sampler!r}: use generate()."
            )
        limits = (options.get("max_length"), options.get("max_new_tokens"))
        request = make_request(self.prompts, rows, beginnings, settings.max_new_tokens, *limits, truncate, None)
        if not rows:
            return iter(())
        prompts, arguments = request.take(np.arange(len(rows)))
        session = self._engine_with(draft).begin(prompts, settings, **arguments, seed=seed)
        pieces = self._pieces(session, prompts, stops, chunk)
        first = [text.decode("utf-8", "replace") for text in request.before]

        def all_pieces() -> Iterator[Any]:
            if not strip_prompt and any(first):
                yield first
            yield from pieces

        return (piece[0] for piece in all_pieces()) if single else all_pieces()

    def generate_tokens(
        self,
        prompts: Sequence[Sequence[int]] | None = None,
        *,
        source: Sequence[Sequence[int]] | None = None,
        seed: int = 0,
        streams: Any = None,
        draft: Any = None,
        lookahead: int = 4,
        **options: Any,
    ) -> dict[str, Any]:
        """Continues rows of token ids, as one batch; needs no TensorFlow.

        Args:
            prompts: Token ids of each row, at least one, start token included. With a source the default is the token
                that decoding starts with.
            source: Token ids of the source of each row, for an encoder-decoder.
            seed: Seed of a random sampler.
            streams: Stream of random numbers of each row, see `zoo.generation.decode`.
            draft, lookahead: As for `generate`.
            **options: See `options`.

        Returns:
            What `zoo.generation.decode` returns, in NumPy arrays.
        """
        settings = self.options(lookahead=0 if draft is None else lookahead, **options)
        if prompts is None:
            prompts = [[self.prompts.preprocessor.require_decoder_start()]] * len(source)
        longest = options.get("max_length") or self.longest
        limits = []
        for row, prompt in enumerate(prompts):
            limits.append(self.prompts.room(len(prompt), None if source is None else len(source[row]), longest))
            if limits[-1] < 1:
                raise ValueError(f"prompts[{row}] has {len(prompt)} tokens, which leaves no room below {longest}.")
        session = self._engine_with(draft).begin(
            prompts, settings, source=source, limits=limits, seed=seed, streams=streams
        )
        return session.advance().result()

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
        fewest, longest = self.prompts.fewest_before, self.longest
        if max_length is not None:
            longest = require_count(max_length, "max_length", fewest + 1, longest)
        new = longest - fewest
        if max_new_tokens is not None:
            new = min(require_count(max_new_tokens, "max_new_tokens"), new)
        preprocessor = self.prompts.preprocessor
        end_id = None if preprocessor.tokenizer is None else preprocessor.tokenizer.end_id
        options = {"end_ids": () if end_id is None else end_id, "pad_id": preprocessor.pad_id, **options}
        return GenerationOptions(max_new_tokens=new, **options)

    @property
    def longest(self) -> int:
        """Most tokens of a row."""
        return self.prompts.preprocessor.sequence_length

    def _finish(
        self, session: Session, prompts: list, stops: list[str], options: GenerationOptions
    ) -> tuple[list[list[bytes]], np.ndarray]:
        """Generates to the end; the texts of each row's results, and their scores."""
        if not stops or not options.sampler.incremental:
            session.advance()
        while not session.is_done:
            whole, _ = self._texts(session.advance(STOP_INTERVAL), prompts)
            session.stop((cut_at_stops(whole, stops) != whole).numpy())
        whole, scores = self._texts(session, prompts)
        texts = cut_at_stops(whole, stops).numpy().tolist()
        width = scores.shape[1]
        return [texts[row * width : (row + 1) * width] for row in range(len(prompts))], scores

    def _texts(self, session: Session, prompts: list, without: int = 0) -> tuple[Any, np.ndarray]:
        """What was generated, string tensor `(rows * results,)`, and scores `(rows, results)`.

        Args:
            session: The session.
            prompts: Token ids of the prompts.
            without: How many of the last tokens are left out.
        """
        import tensorflow as tf

        generated, scores = session.texts()
        repeated = [prompt for prompt in prompts for _ in range(scores.shape[1])]
        flat = [ids[: len(ids) - without] if without else ids for row in generated for ids in row]
        ragged = (tf.ragged.constant(rows, dtype=tf.int32, ragged_rank=1) for rows in (repeated, flat))
        return self.prompts.decode(*ragged), scores

    def _pieces(self, session: Session, prompts: list, stops: list[str], chunk: int) -> Iterator[list[str]]:
        writers = [PieceWriter(stops) for _ in prompts]
        ended = np.zeros(len(prompts), "bool")
        while not ended.all():
            session.advance(chunk)
            whole, unstable = self._texts(session, prompts)[0], self.prompts.unstable_tokens
            stable = self._texts(session, prompts, unstable)[0] if unstable else whole
            cut = cut_at_stops(whole, stops)
            now = (cut != whole).numpy() | session.done
            session.stop(now)
            pieces = []
            for row, writer in enumerate(writers):
                if ended[row]:
                    pieces.append("")
                elif now[row]:
                    pieces.append(writer.finish(cut[row].numpy()))
                else:
                    pieces.append(writer.add(_common(cut[row].numpy(), stable[row].numpy())))
            ended |= now
            if any(pieces):
                yield pieces

    def _engine_with(self, draft: Any) -> Engine:
        if draft is None:
            return self.engine
        other: TextGenerator = draft.generator
        sizes = [(one.backbone.config.vocabulary_size, one.longest) for one in (self, other)]
        if sizes[0][0] != sizes[1][0] or sizes[0][1] > sizes[1][1]:
            raise ValueError(
                f"draft must have vocabulary_size={sizes[0][0]} and a max_length of at least {sizes[0][1]} as the "
                f"model has, got {sizes[1][0]} and {sizes[1][1]}."
            )
        tokenizers = [one.prompts.preprocessor.tokenizer for one in (self, other)]
        vocabularies = [tokenizer and tokenizer.get_vocabulary() for tokenizer in tokenizers]
        if vocabularies[0] != vocabularies[1]:
            raise ValueError("draft must have the tokenizer of the model; the tokens of this one are others.")
        if self._drafted is None or self._drafted[0] is not other.backbone:
            self._drafted = other.backbone, Engine(self.backbone, other.backbone)
        return self._drafted[1]


def _results(options: GenerationOptions, num_results: int | None) -> tuple[GenerationOptions, int, int | None]:
    """The options, how often each text is run, and how many results it has: None for one that is no list."""
    if num_results is None:
        return options, 1, options.sampler.num_texts
    count = require_count(num_results, "num_results", 1, 127)
    sampler, repeats = options.sampler.with_results(count)
    return dataclasses.replace(options, sampler=sampler), repeats, count


def _common(first: bytes, second: bytes) -> bytes:
    """What two texts begin with."""
    length = min(len(first), len(second))
    same = next((place for place in range(length) if first[place] != second[place]), length)
    return first[:same]
