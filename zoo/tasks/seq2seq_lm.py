"""Sequence to sequence: one text in, another text out."""

import os
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from zoo.backbones.backbone import Backbone
from zoo.generation import Sampler, compiled, decode, get_sampler, pad_batch, pad_length
from zoo.tasks.raw_data import as_sequence, as_text, as_texts, require_count, require_same_length
from zoo.tasks.task import Task
from zoo.tasks.text_model import row_count
from zoo.training.losses import TokenCrossEntropy

# The paper lets an output be at most this many tokens longer than its input (Vaswani et al. 2017, section 6.1).
EXTRA_LENGTH = 50


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class Seq2SeqLM(Task):
    """An encoder-decoder that maps a text to a text, for example a sentence to its translation.

    Args:
        backbone: An encoder-decoder backbone.
        tokenizer: Tokenizer with start, end and padding token, joint for both sides.

    Call arguments:
        inputs: `{"encoder_token_ids", "encoder_padding_mask", "decoder_token_ids", "decoder_padding_mask"}`, ids
            integers and masks true where a token is real, `(batch, encoder_length)` and `(batch, decoder_length)`.
            The source ends with the end token; the decoder input begins with the start token.
        training: Whether dropout is active.

    Returns:
        Logits of the next target token, `(batch, decoder_length, vocabulary)`.

    Raises:
        ValueError: If the backbone is no encoder-decoder, or the tokenizer has more tokens than the backbone.

    Example:

    >>> model = Seq2SeqLM.from_preset("runs/dates/model")
    >>> model.generate(["4 May 1999"])
    ['1999-05-04']

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.
    """

    def __init__(self, backbone: Backbone, tokenizer: Any = None, **kwargs: Any):
        if getattr(backbone.config, "architecture", "encoder_decoder") != "encoder_decoder":
            raise ValueError(
                f"Seq2SeqLM needs an encoder-decoder backbone, got architecture={backbone.config.architecture!r}."
            )
        super().__init__(backbone, tokenizer, **kwargs)
        self._programs: dict[Any, Any] = {}
        self.built = True

    def call(self, inputs: dict[str, Any], training: bool | None = None) -> Any:
        outputs = self.backbone(inputs, training=training)
        return self.backbone.logits(outputs["decoder_sequence_output"])

    def default_optimizer(self) -> keras.optimizers.Optimizer:
        """Returns Adam with rate 1e-4, the paper's beta and epsilon, and gradients clipped to norm 1."""
        return keras.optimizers.Adam(1e-4, beta_2=0.98, epsilon=1e-9, global_clipnorm=1.0)

    def default_loss(self) -> TokenCrossEntropy:
        """Returns `TokenCrossEntropy(label_smoothing=0.1)`."""
        return TokenCrossEntropy(label_smoothing=0.1)

    def check_targets(self, y: Any, x: Any, name: str, x_name: str) -> Any:
        """Returns target texts as a string tensor `(rows,)`; arguments as in the base."""
        count = row_count(x)
        if y is None:
            raise ValueError(f"{name} must hold one target text per source text: {count} in {x_name}, none in {name}.")
        texts = as_texts(y, name)
        require_same_length(count, len(texts), x_name, name, "target text", "source text")
        targets = self.string_tensor(texts)
        self.row_lengths(targets, name)
        return targets

    def token_lengths(self, x: Any) -> Any:
        """Returns the number of tokens of each text with its end token, `(batch,)`."""
        return self._require_tokenizer("Text input").tokenize(x).row_lengths() + 1

    added_tokens = "end token"
    truncation_hint = "Shorten it, or pass truncate=True to generate()."

    def predict_texts(self, x: Any, batch_size: int) -> list[str]:
        """Returns what `generate` makes of the texts."""
        return self.generate(as_sequence(x, "x"), batch_size=batch_size)

    def encode_source(self, texts: Any, multiple: int = 1) -> tuple[Any, Any]:
        """Returns padded source ids and their mask, the end token included.

        Args:
            texts: String tensor `(batch,)`.
            multiple: The length is rounded up to a multiple of this.
        """
        from zoo.tokenizers import add_start_end, to_dense

        tokenizer = self._require_tokenizer("Text input")
        return to_dense(add_start_end(tokenizer.tokenize(texts), None, tokenizer.end_id), tokenizer.pad_id, multiple)

    def preprocess(self, x: Any, y: Any, sample_weight: Any = None) -> tuple[dict[str, Any], Any, Any]:
        """Returns token-level inputs, labels and weights of texts, for teacher forcing.

        Args:
            x: Sources, string tensor `(batch,)`.
            y: Targets, string tensor `(batch,)`.
            sample_weight: Weight of each pair, `(batch,)`; None for 1.

        Returns:
            `(inputs, labels, weights)`, see the call arguments; `labels` `(batch, decoder_length)` is the target
            with the end token, `weights` that of the pair for its tokens and 0 for padding.
        """
        import tensorflow as tf

        from zoo.tokenizers import add_start_end, to_dense

        tokenizer = self._require_tokenizer("Text input")
        source_ids, source_mask = self.encode_source(x)
        target = tokenizer.tokenize(y)
        labels, mask = to_dense(add_start_end(target, None, tokenizer.end_id), tokenizer.pad_id)
        decoder_ids, _ = to_dense(add_start_end(target, tokenizer.start_id, None), tokenizer.pad_id)
        inputs = {
            "encoder_token_ids": source_ids,
            "encoder_padding_mask": source_mask,
            "decoder_token_ids": decoder_ids,
            "decoder_padding_mask": mask,
        }
        weights = tf.cast(mask, tf.float32)
        if sample_weight is not None:
            weights *= tf.cast(sample_weight, tf.float32)[:, tf.newaxis]
        return inputs, labels, weights

    @staticmethod
    def length_limit(encoder_padding_mask: Any) -> Any:
        """Returns how many tokens each row may generate: 50 more than its source has, `(batch,)`.

        Args:
            encoder_padding_mask: `(batch, length)`.

        Reference:
            Vaswani et al. 2017, section 6.1.
        """
        return ops.sum(ops.cast(encoder_padding_mask, "int32"), axis=1) + EXTRA_LENGTH

    def generate_tokens(
        self,
        encoder_token_ids: Any,
        encoder_padding_mask: Any,
        *,
        sampler: Sampler,
        max_new_tokens: int,
        length_limit: Any = None,
        seed: Any = 0,
        streams: Any = None,
    ) -> dict[str, Any]:
        """Decodes on token level with key-value caches.

        Args:
            encoder_token_ids: `(batch, length)`.
            encoder_padding_mask: True where a token is real, `(batch, length)`.
            sampler: How tokens are chosen.
            max_new_tokens: Length of the output, end token included.
            length_limit: Most tokens for each row, `(batch,)`. Default: 50 more than the source has.
            seed: Seed of a random sampler.
            streams: Stream of random numbers of each row, see `zoo.generation.decode`.

        Returns:
            What `zoo.generation.decode` returns.
        """
        tokenizer = self._require_tokenizer("Generation")
        if length_limit is None:
            length_limit = self.length_limit(encoder_padding_mask)
        inputs = {"encoder_token_ids": encoder_token_ids, "encoder_padding_mask": encoder_padding_mask}
        # no row may generate more than this: caches for short sources are short
        longest = ops.shape(encoder_token_ids)[1] + EXTRA_LENGTH
        if isinstance(longest, int):
            max_new_tokens = min(max_new_tokens, longest)
        else:
            max_new_tokens = ops.minimum(max_new_tokens, longest)
        state, constants = self.backbone.start_decoding(inputs, max_new_tokens)
        return decode(
            self.backbone.decode_step,
            state,
            constants,
            first_tokens=ops.full((ops.shape(encoder_token_ids)[0],), tokenizer.start_id, dtype="int32"),
            first_index=0,
            max_new_tokens=max_new_tokens,
            sampler=sampler,
            end_ids=tokenizer.end_id,
            pad_id=tokenizer.pad_id,
            length_limit=length_limit,
            seed=seed,
            streams=streams,
        )

    def program(self, sampler: Sampler, max_new_tokens: int, jit_compile: bool) -> Any:
        """Returns `generate_tokens` compiled: `(ids, mask, length_limit, seed, streams) -> dictionary`.

        Args:
            sampler: How tokens are chosen.
            max_new_tokens: Length of the output.
            jit_compile: Whether XLA compiles it.
        """
        key = (sampler, max_new_tokens, jit_compile)
        if key not in self._programs:

            def generate(ids: Any, mask: Any, length_limit: Any, seed: Any, streams: Any) -> dict[str, Any]:
                return self.generate_tokens(
                    ids,
                    mask,
                    sampler=sampler,
                    max_new_tokens=max_new_tokens,
                    length_limit=length_limit,
                    seed=seed,
                    streams=streams,
                )

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

    def generate(
        self,
        texts: str | Sequence[str],
        *,
        sampler: str | dict | Sampler = "greedy",
        max_length: int | None = None,
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
            batch_size: Texts per batch.
            seed: Seed of a random sampler; the same seed gives the same texts.
            truncate: Whether longer sources are cut to the length of the model, instead of being an error.
            jit_compile: Whether XLA compiles the decoding loop: seconds once per shape, then twice as fast.

        Returns:
            One text, or a list of as many as were given.

        Raises:
            ValueError: If a text is longer than the model (naming the row), or there is no tokenizer.

        Example:

        >>> model.generate("A dog runs.", sampler={"name": "beam", "num_beams": 5})
        'Ein Hund rennt.'
        """
        if isinstance(texts, (str, bytes)):
            return self.generate(
                [texts], sampler=sampler, max_length=max_length, seed=seed, truncate=truncate, jit_compile=jit_compile
            )[0]
        tokenizer = self._require_tokenizer("generate()")
        require_count(batch_size, "batch_size")
        sampler = get_sampler(sampler)
        program = self.program(sampler, self._output_length(max_length), jit_compile)
        sources = as_texts(texts, "texts")
        results: list[str] = [""] * len(sources)
        for rows, ids, mask in self._source_batches(sources, batch_size, truncate):
            outputs = self._run(program, ids, mask, seed, rows)
            for row, text in zip(rows, tokenizer.detokenize(outputs).numpy(), strict=True):
                results[row] = text.decode("utf-8")
        return results

    def _output_length(self, max_length: int | None) -> int:
        longest = self.longest
        return longest if max_length is None else require_count(max_length, "max_length", 1, longest)

    def _run(self, program: Any, ids: Any, mask: Any, seed: int, rows: np.ndarray) -> np.ndarray:
        limits = self.length_limit(mask)
        streams = ops.convert_to_tensor(rows, dtype="int32")
        ids, mask, limits, streams = pad_batch((ids, mask, limits, streams))
        outputs = program(ids, mask, limits, ops.convert_to_tensor(seed, dtype="int64"), streams)
        return ops.convert_to_numpy(outputs["token_ids"])[: len(rows)]

    def _source_batches(
        self, texts: list[bytes], batch_size: int, truncate: bool
    ) -> Iterator[tuple[np.ndarray, Any, Any]]:
        """Yields row numbers, ids and mask of batches of texts of similar length, padded to few shapes."""
        tokenizer, longest = self.tokenizer, self.longest
        lengths = self.row_lengths(self.string_tensor(texts), "texts", truncate)
        order = np.argsort(lengths, kind="stable")
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            ids, mask = self.encode_source([texts[row] for row in rows])
            if truncate and ids.shape[1] > longest:
                # the end token takes the last place of a text that is cut
                cut = np.asarray(ids)[:, :longest].copy()
                cut[np.asarray(mask)[:, longest], -1] = tokenizer.end_id
                ids, mask = ops.convert_to_tensor(cut), mask[:, :longest]
            yield rows, *self.pad_source(ids, mask)

    def pad_source(self, ids: Any, mask: Any) -> tuple[Any, Any]:
        """Returns source ids and mask padded to one of few lengths, at most the longest that the model takes.

        Args:
            ids: `(batch, length)`, length at most the model's `max_length`.
            mask: `(batch, length)`.
        """
        longest = self.longest
        return pad_length(ids, value=self.tokenizer.pad_id)[:, :longest], pad_length(mask, value=False)[:, :longest]

    def score(
        self, sources: str | Sequence[str], targets: str | Sequence[str], *, batch_size: int = 32
    ) -> float | np.ndarray:
        """Returns the log-likelihood of each target given its source.

        Args:
            sources: One source text or many.
            targets: One target text, or one per source.
            batch_size: Pairs per batch.

        Returns:
            Sums of log-probabilities (natural logarithm) over the target's tokens and its end token: one number, or
            `(number,)`.

        Raises:
            ValueError: If there are not as many targets as sources, or a text is longer than the model.
        """
        singles = [isinstance(texts, (str, bytes)) for texts in (sources, targets)]
        if all(singles):
            pair = ([as_text(sources, "sources")], [as_text(targets, "targets")])
            return float(self.score(*pair, batch_size=batch_size)[0])
        self._require_tokenizer("score()")
        require_count(batch_size, "batch_size")
        x = self.check_inputs(sources, "sources")
        y = self.check_targets(targets, x, "targets", "sources")
        if not len(x):
            return np.zeros((0,), "float32")
        batches = self._batches((x, y, None), batch_size)
        return np.concatenate([ops.convert_to_numpy(self.score_tokens(*batch)) for batch in batches])

    def score_tokens(self, inputs: dict[str, Any], labels: Any, mask: Any) -> Any:
        """Returns the log-likelihood of each row's labels on token level, `(batch,)`.

        Args:
            inputs: See the call arguments.
            labels: `(batch, decoder_length)`.
            mask: 1 or true where a label counts, `(batch, decoder_length)`.
        """
        from zoo.generation import score

        return score(self(inputs, training=False), labels, mask)["log_probabilities"]

    def export(self, directory: str | os.PathLike, *, sampler: str | dict | Sampler = "greedy", **options: Any) -> None:
        """Writes a SavedModel that takes strings and returns strings, see `zoo.export.export_seq2seq`.

        Args:
            directory: Where to.
            sampler: How tokens are chosen, fixed in the export.
            **options: Further arguments of `export_seq2seq`.
        """
        from zoo.export import export_seq2seq

        export_seq2seq(self, directory, sampler=get_sampler(sampler), **options)
