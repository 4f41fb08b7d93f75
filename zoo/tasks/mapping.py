"""What an encoder-decoder does with source texts: a text for each."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from keras import ops

from zoo.generation import GenerationOptions, Sampler, compiled, decode, pad_batch, pad_length
from zoo.generation.texts import cut_at_stops, without_ends
from zoo.preprocessing.rows import as_text, as_texts, require_count
from zoo.tasks.text_generation import TextGeneration, split_stops

# The paper lets an output be at most this many tokens longer than its input (Vaswani et al. 2017, section 6.1).
EXTRA_LENGTH = 50


class TextMapping(TextGeneration):
    """A task that maps texts to texts, with an encoder-decoder backbone.

    A subclass defines `encode_source` and sets `decoder_start_id` and `_programs`.
    """

    def generate(
        self,
        texts: str | Sequence[str],
        *,
        sampler: str | dict | Sampler = "greedy",
        max_length: int | None = None,
        stop: Any = None,
        processors: Any = None,
        batch_size: int = 32,
        seed: int = 0,
        truncate: bool = False,
        jit_compile: bool = True,
    ) -> str | list[str]:
        """Maps texts to texts.

        Texts of similar length share a batch; the result of each is its own, whatever the others are.

        Args:
            texts: One text or many.
            sampler: "greedy", "sample", "beam", a dictionary such as `{"name": "beam", "num_beams": 5}` or a `Sampler`.
            max_length: Most tokens of an output, end token included. Default the `max_length` of the model; never more
                than 50 more than the source has.
            stop: What ends an output beside the end token: a string, or a list of strings, token ids and lists of token
                ids. A stop is not part of the text. Strings cut the text when it is complete, token ids end it.
            processors: List of logit processors, see `zoo.generation.get_processors`; the text that they look at is the
                output, without its source.
            batch_size: Texts per batch.
            seed: Seed of a random sampler; the same seed gives the same texts.
            truncate: Whether longer sources are cut to the length of the model, instead of being an error.
            jit_compile: Whether XLA compiles the decoding loop: seconds once per shape, then twice as fast.

        Returns:
            One text, or a list of as many as were given.

        Raises:
            ValueError: If a text is longer than the model (naming the row), an argument is out of range, or there is
                no tokenizer.

        Example:

        >>> model.generate("A dog runs.", sampler={"name": "beam", "num_beams": 5})
        'Ein Hund rennt.'
        """
        tokenizer = self._require_tokenizer("generate()")
        single = isinstance(texts, (str, bytes))
        sources = [as_text(texts, "texts")] if single else as_texts(texts, "texts")
        require_count(batch_size, "batch_size")
        stops, sequences = split_stops(stop)
        options = {"max_length": max_length, "processors": processors, "stop_sequences": sequences}
        program = self.program(sampler, None, jit_compile, **options)
        results: list[str] = [""] * len(sources)
        for rows, ids, mask in self._source_batches(sources, batch_size, truncate):
            streams = ops.convert_to_tensor(rows, dtype="int32")
            padded = pad_batch((ids, mask, self.length_limit(mask), streams))
            outputs = program(*padded[:3], ops.convert_to_tensor(seed, dtype="int64"), padded[3])
            generated = tokenizer.detokenize(without_ends(outputs, len(rows)))
            for row, text in zip(rows, cut_at_stops(generated, stops).numpy(), strict=True):
                results[row] = text.decode("utf-8", "replace")
        return results[0] if single else results

    def generate_tokens(
        self,
        encoder_token_ids: Any,
        encoder_padding_mask: Any,
        *,
        length_limit: Any = None,
        seed: Any = 0,
        streams: Any = None,
        start_id: int | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Decodes on token level with key-value caches.

        Args:
            encoder_token_ids: `(batch, length)`.
            encoder_padding_mask: True where a token is real, `(batch, length)`.
            length_limit: Most tokens for each row, `(batch,)`. Default: 50 more than the source has.
            seed: Seed of a random sampler.
            streams: Stream of random numbers of each row, see `zoo.generation.decode`.
            start_id: The token that decoding starts with. Default `decoder_start_id`.
            **options: See `generation_options`.

        Returns:
            What `zoo.generation.decode` returns.
        """
        settings = self.generation_options(**options)
        if length_limit is None:
            length_limit = self.length_limit(encoder_padding_mask)
        start_id = self._decoder_start() if start_id is None else start_id
        return self._decode(settings, encoder_token_ids, encoder_padding_mask, length_limit, seed, streams, start_id)

    def generation_options(self, **options: Any) -> GenerationOptions:
        settings = super().generation_options(**options)
        if settings.sampler.needs_hidden:
            raise ValueError(f"An encoder-decoder has no prompt to contrast with, as {settings.sampler!r} does.")
        return settings

    def program(
        self, sampler: str | dict | Sampler, max_new_tokens: int | None, jit_compile: bool = True, **options: Any
    ) -> Any:
        """Returns `generate_tokens` compiled: `(ids, mask, length_limit, seed, streams) -> dictionary`.

        Args:
            sampler: How tokens are chosen.
            max_new_tokens: Length of the output. None: the `max_length` of the model.
            jit_compile: Whether XLA compiles it.
            **options: Further ones, see `generation_options`.
        """
        settings = self.generation_options(
            sampler=sampler, max_new_tokens=max_new_tokens, jit_compile=jit_compile, **options
        )
        # adapters and quantization replace variables
        key = (settings, tuple(map(id, self.backbone.variables)))
        if key not in self._programs:

            def generate(ids: Any, mask: Any, length_limit: Any, seed: Any, streams: Any) -> dict[str, Any]:
                return self._decode(settings, ids, mask, length_limit, seed, streams, self._decoder_start())

            self._programs[key] = compiled(
                generate,
                jit_compile,
                variables=lambda: self.backbone.variables,
                signature=[
                    ((None, None), "int32"),
                    ((None, None), "bool"),
                    ((None,), "int32"),
                    ((), "int64"),
                    ((None,), "int32"),
                ],
            )
        return self._programs[key]

    def _decoder_start(self) -> int:
        if self.decoder_start_id is None:
            raise ValueError(
                "There is no token that decoding starts with: the tokenizer has no start token, and the task no "
                "decoder_start_token."
            )
        return self.decoder_start_id

    def _decode(
        self,
        options: GenerationOptions,
        token_ids: Any,
        padding_mask: Any,
        length_limit: Any,
        seed: Any,
        streams: Any,
        start_id: int,
    ) -> dict[str, Any]:
        inputs = {"encoder_token_ids": token_ids, "encoder_padding_mask": padding_mask}
        # no row may generate more than this: caches for short sources are short
        longest = ops.shape(token_ids)[1] + EXTRA_LENGTH
        new = options.max_new_tokens
        new = min(new, longest) if isinstance(longest, int) else ops.minimum(new, longest)
        state, constants = self.backbone.start_decoding(inputs, new)
        return decode(
            self.backbone.decode_step,
            state,
            constants,
            first_tokens=ops.full((ops.shape(token_ids)[0],), start_id, dtype="int32"),
            first_index=0,
            max_new_tokens=new,
            sampler=options.sampler,
            end_ids=options.end_ids,
            pad_id=options.pad_id,
            length_limit=length_limit,
            seed=seed,
            streams=streams,
            processors=options.processors,
            stop_sequences=options.stop_sequences,
        )

    @staticmethod
    def length_limit(encoder_padding_mask: Any) -> Any:
        """Returns how many tokens each row may generate: 50 more than its source has, `(batch,)`.

        Args:
            encoder_padding_mask: `(batch, length)`.

        Reference:
            Vaswani et al. 2017, section 6.1.
        """
        return ops.sum(ops.cast(encoder_padding_mask, "int32"), axis=1) + EXTRA_LENGTH

    def encode_source(self, texts: Any, multiple: int = 1) -> tuple[Any, Any]:
        """Returns padded source ids and their mask, `(batch, length)`; a graph function.

        Args:
            texts: String tensor `(batch,)`.
            multiple: The length is rounded up to a multiple of this.
        """
        raise NotImplementedError

    def pad_source(self, ids: Any, mask: Any) -> tuple[Any, Any]:
        """Returns source ids and mask padded to one of few lengths, at most the longest that the model takes.

        Args:
            ids: `(batch, length)`, length at most the model's `max_length`.
            mask: `(batch, length)`.
        """
        longest = self.longest
        return pad_length(ids, value=self.pad_id)[:, :longest], pad_length(mask, value=False)[:, :longest]

    def _source_batches(
        self, texts: list[bytes], batch_size: int, truncate: bool
    ) -> Iterator[tuple[np.ndarray, Any, Any]]:
        """Yields row numbers, ids and mask of batches of texts of similar length, padded to few shapes."""
        longest = self.longest
        lengths = self.row_lengths(self.string_tensor(texts), "texts", truncate)
        order = np.argsort(lengths, kind="stable")
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            ids, mask = self.encode_source([texts[row] for row in rows])
            if truncate and ids.shape[1] > longest:
                # the end token takes the last place of a text that is cut
                cut = np.asarray(ids)[:, :longest].copy()
                cut[np.asarray(mask)[:, longest], -1] = self.tokenizer.end_id
                ids, mask = ops.convert_to_tensor(cut), mask[:, :longest]
            yield rows, *self.pad_source(ids, mask)
