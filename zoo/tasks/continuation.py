"""What a language model does with prompts: whole texts, streams of pieces, continuations of both."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from zoo.generation import GenerationCache, GenerationOptions, Generator, Session
from zoo.generation.texts import PieceWriter, continuations, cut_at_stops
from zoo.preprocessing.rows import as_text, as_texts, require_count, require_same_length, shorten
from zoo.tasks.text_generation import TextGeneration, split_stops

# Tokens between two looks at the texts for stop strings.
STOP_INTERVAL = 16


class TextContinuation(TextGeneration):
    """A task that continues texts, with a decoder-only backbone.

    A subclass sets `adds_start_token`.
    """

    fewest_tokens_before = 1

    def generate(
        self,
        texts: str | Sequence[str],
        *,
        sampler: Any = "greedy",
        max_length: int | None = None,
        max_new_tokens: int | None = None,
        stop: Any = None,
        processors: Any = None,
        strip_prompt: bool = False,
        truncate: bool = False,
        seed: int = 0,
        batch_size: int = 32,
        draft: "TextContinuation | None" = None,
        lookahead: int = 4,
        cache: GenerationCache | None = None,
        return_cache: bool = False,
        jit_compile: bool = True,
    ) -> Any:
        """Continues texts.

        Prompts of similar length share a batch; the result of each is its own, whatever the others are.

        Args:
            texts: One prompt or many.
            sampler: "greedy", "sample", "beam", "contrastive", a dictionary such as `{"name": "sample", "top_p": 0.9}`,
                or a `Sampler`.
            max_length: Most tokens of prompt and continuation together. Default the `max_length` of the model.
            max_new_tokens: Most tokens of a continuation. Default what `max_length` leaves.
            stop: What ends a continuation beside the end token: a string, or a list of strings, token ids and lists of
                token ids. A stop is not part of the text. (With beam search, strings cut the text at its end only.)
            processors: List of logit processors, see `zoo.generation.get_processors`.
            strip_prompt: Whether to return the continuations without the prompts.
            truncate: Whether longer prompts lose their beginning, so that `max_new_tokens` more tokens fit, instead of
                being an error.
            seed: Seed of a random sampler; the same seed gives the same texts.
            batch_size: Prompts per batch.
            draft: A smaller model with the same tokenizer that proposes tokens (speculative decoding): the same
                distribution of texts in less time. With "greedy" and "sample".
            lookahead: Tokens that the draft proposes at a time.
            cache: What an earlier call returned: `texts` are then put behind the texts of that call, prompt and
                continuation, without computing these again. All rows form one batch.
            return_cache: Whether to return a cache too. Excludes beam search and stop strings.
            jit_compile: Whether XLA compiles the loop: seconds once per shape, then twice as fast.

        Returns:
            One text, or a list of as many as were given; with `return_cache` a tuple of this and the cache.

        Raises:
            ValueError: If a prompt leaves no room or has no token (naming the row), an argument is out of range, or
                there is no tokenizer.

        Example:

        >>> model.generate("Once upon a time", max_new_tokens=40, sampler={"name": "sample", "temperature": 0.8})
        'Once upon a time there was a ...'
        """
        single = isinstance(texts, (str, bytes))
        texts = [as_text(texts, "texts")] if single else as_texts(texts, "texts")
        require_count(batch_size, "batch_size")
        stops, sequences = split_stops(stop)
        if return_cache and stops:
            raise ValueError("return_cache excludes stop strings, which can end a text within a token: stop at tokens.")
        options = self.generation_options(
            sampler=sampler,
            max_length=max_length,
            max_new_tokens=max_new_tokens,
            stop_sequences=sequences,
            processors=processors,
            lookahead=0 if draft is None else require_count(lookahead, "lookahead"),
            jit_compile=jit_compile,
        )
        prompts, limits = self._prompts(texts, options, max_length, truncate, cache)
        results, left = [b""] * len(texts), None
        order = np.argsort([len(prompt) for prompt in prompts], kind="stable")
        if cache is not None or return_cache:
            order, batch_size = np.arange(len(texts)), max(len(texts), 1)
        for start in range(0, len(texts), batch_size):
            rows = order[start : start + batch_size]
            some = [prompts[row] for row in rows]
            session = self.generator(draft).begin(
                some, options, limits=[limits[row] for row in rows], seed=seed, streams=rows, cache=cache
            )
            for row, text in zip(rows, self._finish(session, some, stops, options), strict=True):
                results[row] = text if strip_prompt else texts[row] + text
            left = session.cache() if return_cache else None
        results = [text.decode("utf-8", "replace") for text in results]
        results = results[0] if single else results
        return (results, left) if return_cache else results

    def stream(self, text: str, *, chunk: int = 4, strip_prompt: bool = False, **options: Any) -> Iterator[str]:
        """Continues one text piece by piece.

        The pieces joined are what `generate` returns for the same arguments. No piece ends within a character.

        Args:
            text: The prompt.
            chunk: Tokens between two pieces, at least 1.
            strip_prompt: Whether to leave out the prompt, which is the first piece otherwise.
            **options: `sampler` (but beam search), `max_length`, `max_new_tokens`, `stop`, `processors`, `truncate`,
                `seed`, `draft`, `lookahead` and `jit_compile` as for `generate`.

        Returns:
            An iterator of texts.

        Example:

        >>> for piece in model.stream("Once upon a time", max_new_tokens=40):
        ...     print(piece, end="", flush=True)
        """
        require_count(chunk, "chunk")
        text = as_text(text, "text")
        stops, sequences = split_stops(options.pop("stop", None))
        draft, seed = options.pop("draft", None), options.pop("seed", 0)
        truncate, max_length = options.pop("truncate", False), options.pop("max_length", None)
        lookahead = require_count(options.pop("lookahead", 4), "lookahead")
        settings = self.generation_options(
            stop_sequences=sequences,
            max_length=max_length,
            lookahead=0 if draft is None else lookahead,
            **options,
        )
        if not settings.sampler.incremental:
            raise ValueError(f"stream() cannot show a text of {settings.sampler!r} before its end: use generate().")
        prompts, limits = self._prompts([text], settings, max_length, truncate, None)
        session = self.generator(draft).begin(prompts, settings, limits=limits, seed=seed)

        def pieces() -> Iterator[str]:
            if not strip_prompt:
                yield text.decode("utf-8", "replace")
            writer = PieceWriter(stops)
            while True:
                session.advance(chunk)
                whole = self._continuations(session, prompts)
                cut = cut_at_stops(whole, stops).numpy()[0]
                if session.is_done or len(cut) < len(whole.numpy()[0]):
                    last = writer.finish(cut)
                    if last:
                        yield last
                    return
                piece = writer.add(cut)
                if piece:
                    yield piece

        return pieces()

    def generate_tokens(
        self, prompts: Sequence[Sequence[int]], *, seed: int = 0, streams: Any = None, draft: Any = None, **options: Any
    ) -> dict[str, Any]:
        """Continues rows of token ids, as one batch; needs no TensorFlow.

        Args:
            prompts: Token ids of each row, at least one, start token included.
            seed: Seed of a random sampler.
            streams: Stream of random numbers of each row, see `zoo.generation.decode`.
            draft: As for `generate`.
            **options: See `generation_options`.

        Returns:
            What `zoo.generation.decode` returns, in NumPy arrays.
        """
        settings = self.generation_options(lookahead=0 if draft is None else options.pop("lookahead", 4), **options)
        longest = options.get("max_length") or self.longest
        limits = [longest - len(prompt) for prompt in prompts]
        if limits and min(limits) < 1:
            row = int(np.argmin(limits))
            raise ValueError(f"prompts[{row}] has {len(prompts[row])} tokens, which leaves no room below {longest}.")
        session = self.generator(draft).begin(prompts, settings, limits=limits, seed=seed, streams=streams)
        return session.advance().result()

    def prompt_ids(self, texts: Any, keep: int | None = None) -> Any:
        """Returns the token ids of prompts, with the start token; a graph function.

        Args:
            texts: String tensor `(batch,)`.
            keep: Most tokens of a prompt: longer ones lose their beginning, but not the start token.

        Returns:
            Ragged int32 `(batch, None)`.
        """
        import tensorflow as tf

        from zoo.tokenizers import add_start_end

        tokenizer = self._require_tokenizer("Text input")
        ids = tokenizer.tokenize(texts)
        if keep is not None:
            ids = ids[:, -(keep - int(self.adds_start_token)) :]
        if self.adds_start_token:
            return add_start_end(ids, tokenizer.start_id, None)
        if tokenizer.start_id is None:
            return ids
        # something must be fed
        empty = tf.cast(ids.row_lengths() == 0, tf.int64)
        start = tf.RaggedTensor.from_row_lengths(tf.repeat(tokenizer.start_id, tf.reduce_sum(empty)), empty)
        return tf.concat([start, ids], axis=1)

    def prompt_room(self, options: GenerationOptions, max_length: int | None) -> int:
        """Returns how many tokens a prompt keeps that is cut."""
        longest = self.longest if max_length is None else max_length
        return max(longest - options.max_new_tokens, 1 + int(self.adds_start_token))

    def _prompts(
        self, texts: list[bytes], options: GenerationOptions, max_length: int | None, truncate: bool, cache: Any
    ) -> tuple[list[list[int]], list[int]]:
        """Token ids of each row, and how many it may generate."""
        longest = self.longest if max_length is None else max_length
        tensor = self.string_tensor(texts)
        if cache is None:
            prompts = self.prompt_ids(tensor, self.prompt_room(options, max_length) if truncate else None).to_list()
        else:
            if truncate:
                raise ValueError("truncate=True has no meaning with a cache, whose texts are whole.")
            require_same_length(len(cache.token_ids), len(texts), "cache", "texts", "text")
            new = self._require_tokenizer("Text input").tokenize(tensor).to_list()
            prompts = [[*before, *after] for before, after in zip(cache.token_ids, new, strict=True)]
        limits = [min(longest - len(prompt), options.max_new_tokens) for prompt in prompts]
        for row, (prompt, limit) in enumerate(zip(prompts, limits, strict=True)):
            if not prompt:
                raise ValueError(f"texts[{row}] has no token, and the tokenizer no start token to go on from.")
            if limit < 1:
                raise ValueError(
                    f"texts[{row}] has {len(prompt)} tokens, but max_length={longest} must leave room for one more: "
                    f"{shorten(texts[row].decode('utf-8', 'replace'))}. Shorten it, or pass truncate=True "
                    "to keep its end."
                )
        return prompts, limits

    def _finish(self, session: Session, prompts: list, stops: list[str], options: GenerationOptions) -> list[bytes]:
        """Generates to the end; the continuations."""
        if not stops or not options.sampler.incremental:
            session.advance()
        while not session.is_done:
            whole = self._continuations(session.advance(STOP_INTERVAL), prompts)
            cut = cut_at_stops(whole, stops)
            session.stop((cut != whole).numpy())
        return cut_at_stops(self._continuations(session, prompts), stops).numpy().tolist()

    def _continuations(self, session: Session, prompts: list) -> Any:
        import tensorflow as tf

        ragged = (tf.ragged.constant(rows, dtype=tf.int32, ragged_rank=1) for rows in (prompts, session.generated()))
        return continuations(self.tokenizer, *ragged)

    def generator(self, draft: "TextContinuation | None" = None) -> Generator:
        """Returns what generates on token level; arguments as for `generate`."""
        if draft is not None:
            sizes = [(task.backbone.config.vocabulary_size, task.longest) for task in (self, draft)]
            if sizes[0][0] != sizes[1][0] or sizes[0][1] > sizes[1][1]:
                raise ValueError(
                    f"draft must have vocabulary_size={sizes[0][0]} and a max_length of at least {sizes[0][1]} as the "
                    f"model has, got {sizes[1][0]} and {sizes[1][1]}."
                )
            vocabularies = [task.tokenizer and task.tokenizer.get_vocabulary() for task in (self, draft)]
            if vocabularies[0] != vocabularies[1]:
                raise ValueError("draft must have the tokenizer of the model; the tokens of this one are others.")
        key = None if draft is None else id(draft.backbone)
        if key not in self._generators:
            self._generators[key] = Generator(self.backbone, None if draft is None else draft.backbone)
        return self._generators[key]
