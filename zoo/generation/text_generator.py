"""Texts in, texts out: the same for models that continue texts and for those that map them to others."""

from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np

from zoo.generation.chat import Conversations, Texts, read_asked
from zoo.generation.checks import as_seed, require_count
from zoo.generation.engine import Engine
from zoo.generation.grammar_session import GrammarEngine, GrammarSession
from zoo.generation.grammars import Grammar
from zoo.generation.request import GenerationCache, Request, proposals_of, split_stops, streams_of, with_results
from zoo.generation.session import Session
from zoo.generation.texts import TextSession
from zoo.generation.token_generator import TokenGenerator
from zoo.preprocessing.token_rows import map_by_length


class TextGenerator(TokenGenerator):
    """Generates texts with a model: in batches, as a stream, or as a function of a SavedModel.

    Args:
        task: The task. Its `backbone` decodes, and its `preprocessor` makes prompts from texts.
    """

    def generate(
        self,
        texts: str | Sequence[Any],
        *,
        sampler: Any = None,
        max_length: int | None = None,
        max_new_tokens: int | None = None,
        stop: Any = None,
        processors: Any = None,
        tools: Sequence[Any] | None = None,
        beginnings: str | Sequence[str] | None = None,
        strip_prompt: bool = False,
        truncate: bool | None = None,
        num_results: int | None = None,
        return_scores: bool = False,
        seed: int = 0,
        batch_size: int = 32,
        draft: Any = None,
        lookahead: int | None = None,
        cache: GenerationCache | None = None,
        return_cache: bool = False,
        grammar: Grammar | None = None,
        engine: Any = None,
        jit_compile: bool | None = None,
    ) -> Any:
        """Generates a text for each text: its continuation, or with an encoder-decoder its output.

        A chat model answers a conversation, a list of messages `{"role": ..., "content": ...}`. The result is the
        answer alone, without the end of its turn. Strings in a message that look like control tokens are plain text.

        Texts of similar length share a batch, and the result of each does not depend on the others. If `sampler`,
        `processors`, `stop` or both lengths are None, the task's `generation` defaults are used.

        Args:
            texts: One text or many: prompts, or sources of an encoder-decoder. With a `CausalLM` whose tokenizer has a
                `chat_format` also one conversation or a list of conversations.
            sampler: "greedy", "sample", "beam", "contrastive", a dictionary such as `{"name": "sample", "top_p": 0.9}`,
                or a `Sampler`. Default "greedy".
            max_length: Largest number of tokens of prompt and continuation together, or of an output with its end
                token. Default the `max_length` of the model. If no length is given, an output is at most 50 tokens
                longer than its source.
            max_new_tokens: Largest number of generated tokens. Default: up to `max_length`.
            stop: Further ends of a text besides the end tokens: a string, or a list of strings, token ids and lists of
                token ids. A stop is not part of the text. With beam search, a string is only cut from the end of the
                text.
            processors: List of logit processors, see `zoo.generation.get_processors`. They see the prompt with its
                continuation, or the output without its source.
            tools: With conversations, the tools that the model may call, in OpenAI's form: `{"type": "function",
                "function": {"name": ..., "description": ..., "parameters": <JSON schema>}}`. The chat format must have
                a style of tools. `chat_format.read_reply(answer, tools)` tells words and calls of an answer from each
                other.
            beginnings: With an encoder-decoder, the beginning of each output: one text, or one per source.
            strip_prompt: Whether to return the generated text without the prompt or beginning. An answer is always
                without its conversation.
            truncate: Whether to cut texts that are too long, instead of raising an error. Default that of the
                preprocessor. The end of a prompt is kept, with room for `max_new_tokens`, or for a quarter of
                `max_length` if that is not given; at least a quarter of `max_length` is kept. The beginning of a source
                is kept.
            num_results: Number of results for each text. The result for a text is then a list: with `Beam` the best
                first, with random samplers different draws. Default one result that is not a list, or the number of
                `Beam(num_results=...)`.
            return_scores: Whether to return scores too: the length-normalised log-probabilities of `Beam`, else
                log-probabilities of the generated tokens under the model. The end of a text counts: its end token, or
                the tokens up to the one with which a stop is complete. Nothing behind it counts. A text with which no
                token of its `grammar` can go on has no end token, and none counts.
            seed: Seed of a random sampler, from 0 to 2**32 - 1. The same seed gives the same texts.
            batch_size: Texts per batch.
            draft: A smaller model with the same tokenizer that proposes tokens (speculative decoding). The distribution
                of texts is the same, in less time. "prompt_lookup" proposes what followed the last tokens earlier in
                the text, see `zoo.generation.PromptLookup`. The sampler must define `weights`.
            lookahead: Number of tokens proposed at a time. Default 4; None without a draft.
            cache: The cache of an earlier call. `texts` must then continue the results of that call, which are not
                computed again unless weights have changed since. With an encoder-decoder `beginnings` continue them,
                and the same sources are given again. All rows form one batch.
            return_cache: Whether to return a cache too. Not with beam search, stop strings or `num_results`.
            grammar: What generated texts follow, such as `zoo.generation.JSONSchema(schema)`; None for nothing. Only
                with a decoder, greedy or random sampling, and without processors, draft and caches. A text that comes
                to `max_new_tokens` is cut, and then need not be one of the grammar.
            engine: "openvino" lets OpenVINO compute the steps of a `CausalLM`, on the processor and with the TensorFlow
                backend. The results are the same up to rounding. The first call makes a graph of the weights, which
                takes up to a minute and is kept in the folder of Keras. `{"name": "openvino", "weights": "int8"}` (or
                "int4") holds matrices in few bits. Not with a draft, a grammar, caches, XLA and `Contrastive`. Default:
                Keras.
            jit_compile: Whether XLA compiles the loop. This takes seconds once per shape, and makes the loop about
                twice as fast. Default True; False on PyTorch, where XLA is not available, and with a grammar, where the
                loop is in Python, unless the backend is JAX.

        Returns:
            One text, or a list with one text per input (a list of lists with several results). With `return_scores` or
            `return_cache` a tuple of the texts, the scores (one number, `(number,)` or `(number, num_results)`) and the
            cache.

        Raises:
            ValueError: If a text leaves no room or has no token (the message names the row), if a message is invalid
                (it names conversation and message), if an argument is out of range, or if there is no tokenizer or chat
                format.

        Example:

        >>> model.generate("Once upon a time", max_new_tokens=40, sampler={"name": "sample", "temperature": 0.8})
        'Once upon a time there was a ...'
        """
        asked = read_asked(texts, self.preprocessor, tools)
        require_count("batch_size", batch_size)
        chosen = self.chosen(
            sampler=sampler, processors=processors, stop=stop, max_length=max_length, max_new_tokens=max_new_tokens
        )
        chosen = asked.ending(chosen)
        stops, sequences = split_stops(chosen.stop)
        options = self.options(
            **chosen.options(),
            stop_sequences=sequences,
            lookahead=proposals_of(draft, lookahead),
            jit_compile=_compiles(jit_compile, grammar, engine),
        )
        options, repeats, per_text = with_results(options, num_results)
        if return_cache and (stops or per_text is not None):
            raise ValueError(
                "return_cache must be False with stop strings, which can end a text within a token, and with several "
                "results, got True."
            )
        if return_cache and not options.sampler.incremental:
            raise ValueError(
                "return_cache must be False with a sampler that does not keep the caches of its results, got True with "
                f'{options.sampler!r}: pass sampler="greedy".'
            )
        if cache is not None and repeats > 1:
            raise ValueError(f"num_results must be None or 1 with a cache, got {num_results}.")
        if grammar is not None and (cache is not None or return_cache):
            raise ValueError("cache must be None and return_cache False with a grammar.")
        if return_cache and isinstance(asked, Conversations):
            raise ValueError("return_cache must be False with conversations, got True.")
        request = asked.request(
            self.preprocessor,
            beginnings=beginnings,
            most=options.max_new_tokens,
            max_length=chosen.max_length,
            max_new_tokens=chosen.max_new_tokens,
            truncate=truncate,
            cache=cache,
        )
        # a cache has its rows in the order of the texts
        batches = None if cache is not None or return_cache else batch_size
        given = {"options": options, "seed": as_seed(seed)}
        if engine is not None:
            decoding = self.engines.engine(
                engine, options, draft=draft, grammar=grammar, cache=cache, return_cache=return_cache
            )
        elif grammar is None:
            decoding, given["cache"] = self.engine_with(draft), cache
        else:
            decoding, given["mask"] = self.following(grammar, options)
        results, session = self._run(decoding, asked, request, repeats, stops, batches, given)
        before = [b""] * len(request.before) if strip_prompt else request.before
        texts, scores = _by_text(results, before, repeats, per_text)
        answer = [texts, *([scores] if return_scores else [])]
        if asked.single:
            answer = [texts[0], *([scores[0] if per_text else float(scores[0])] if return_scores else [])]
        if return_cache:
            answer.append(session and session.cache())
        return answer[0] if len(answer) == 1 else tuple(answer)

    def stream(
        self,
        texts: str | Sequence[Any],
        *,
        chunk: int = 4,
        sampler: Any = None,
        max_length: int | None = None,
        max_new_tokens: int | None = None,
        stop: Any = None,
        processors: Any = None,
        tools: Sequence[Any] | None = None,
        beginnings: str | Sequence[str] | None = None,
        strip_prompt: bool = False,
        truncate: bool | None = None,
        seed: int = 0,
        draft: Any = None,
        lookahead: int | None = None,
        grammar: Grammar | None = None,
        engine: Any = None,
        jit_compile: bool | None = None,
    ) -> Iterator[Any]:
        """Generates texts piece by piece.

        The concatenated pieces equal the result of `generate` for the same arguments. No piece ends within a character.

        Args:
            texts: One text or conversation, or many, which form one batch.
            chunk: Number of tokens between two pieces, at least 1.
            sampler: As for `generate`, but not beam search.
            max_length, max_new_tokens, stop, processors, tools, beginnings, truncate, seed, draft, lookahead, grammar,
                engine, jit_compile: As for `generate`.
            strip_prompt: Whether to leave out the prompt, which otherwise is the first piece.

        Raises:
            RuntimeError: Of the iterator, if the weights of the model change between two pieces.

        Returns:
            An iterator of pieces. For many texts, each item is a list with one piece per text, "" if there is nothing
            new.

        Example:

        >>> for piece in model.stream("Once upon a time", max_new_tokens=40):
        ...     print(piece, end="", flush=True)
        """
        require_count("chunk", chunk)
        asked = read_asked(texts, self.preprocessor, tools)
        chosen = self.chosen(
            sampler=sampler, processors=processors, stop=stop, max_length=max_length, max_new_tokens=max_new_tokens
        )
        chosen = asked.ending(chosen)
        stops, sequences = split_stops(chosen.stop)
        lookahead = proposals_of(draft, lookahead)
        settings = self.options(
            **chosen.options(),
            stop_sequences=sequences,
            lookahead=lookahead,
            jit_compile=_compiles(jit_compile, grammar, engine),
        )
        if not settings.sampler.incremental:
            raise ValueError(
                f"sampler must write texts from left to right for stream(), got {settings.sampler!r}: use generate(), "
                'or pass sampler="greedy".'
            )
        request = asked.request(
            self.preprocessor,
            beginnings=beginnings,
            most=settings.max_new_tokens,
            max_length=chosen.max_length,
            max_new_tokens=chosen.max_new_tokens,
            truncate=truncate,
        )
        given = {"options": settings, "seed": as_seed(seed)}
        if engine is not None:
            decoding = self.engines.engine(engine, settings, draft=draft, grammar=grammar)
        elif grammar is None:
            decoding = self.engine_with(draft)
        else:
            decoding, given["mask"] = self.following(grammar, settings)
        if not request.prompts:
            return iter(())
        every = np.arange(len(request.prompts))
        session = decoding.begin(**request.take(every), streams=every, **given)
        session.watch_weights()
        first = [b"" if strip_prompt else text for text in request.before]
        texts = TextSession(session, self.preprocessor, stops, asked.edges)
        pieces = texts.pieces([text.decode("utf-8", "replace") for text in first], chunk)
        return (piece[0] for piece in pieces) if asked.single else pieces

    def _run(
        self,
        engine: Engine | GrammarEngine,
        asked: Texts | Conversations,
        request: Request,
        repeats: int,
        stops: list[str],
        batch_size: int | None,
        given: dict[str, Any],
    ) -> tuple[list[tuple[list[bytes], np.ndarray]], Session | GrammarSession | None]:
        """Generates to the end; returns texts and scores of each run, and the last session.

        Args:
            engine: The engine.
            asked: What it is asked for.
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
            return TextSession(session, self.preprocessor, stops, asked.edges).finish()

        lengths = np.repeat(request.lengths, repeats)
        if batch_size is not None:
            results = map_by_length(write, lengths, batch_size)
        else:
            results = write(np.arange(len(lengths))) if len(lengths) else []
        return results, session


def _compiles(jit_compile: bool | None, grammar: Grammar | None, engine: Any) -> bool | None:
    """Whether XLA compiles: not programs of a single step, unless the backend knows no others, nor those of others."""
    if jit_compile is None and engine is not None:
        return False
    return keras.backend.backend() == "jax" if jit_compile is None and grammar is not None else jit_compile


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
