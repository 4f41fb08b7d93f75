"""Sequence to sequence: one text in, another text out."""

import os
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from zoo.backbones.backbone import Backbone
from zoo.generation import Sampler, compiled, decode, get_sampler, pad_batch, pad_length
from zoo.tasks.task import Task
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

    def compile(self, optimizer: Any = "auto", loss: Any = "auto", **kwargs: Any) -> None:
        """Configures training; what is left out gets a default.

        Args:
            optimizer: Default Adam with rate 1e-4 and gradients clipped to norm 1.
            loss: Default `TokenCrossEntropy(label_smoothing=0.1)`.
            **kwargs: Passed on to `keras.Model.compile`.
        """
        if optimizer == "auto":
            optimizer = keras.optimizers.Adam(1e-4, beta_2=0.98, epsilon=1e-9, global_clipnorm=1.0)
        if loss == "auto":
            loss = TokenCrossEntropy(label_smoothing=0.1)
        super().compile(optimizer=optimizer, loss=loss, **kwargs)

    def fit(self, x: Any = None, y: Any = None, batch_size: int | None = None, **kwargs: Any) -> Any:
        """Trains, on texts or on token-level batches.

        Args:
            x: Source texts (list or array of strings), or anything that `keras.Model.fit` takes on token level.
            y: Target texts, where `x` holds texts.
            batch_size: Rows per batch for texts and arrays. Default 32.
            **kwargs: Passed on to `keras.Model.fit`; `validation_data` may be a pair of text lists.
        """
        if not self.compiled:
            self.compile()
        if _is_texts(x):
            x, y = self._text_dataset(x, y, batch_size or 32, shuffle=kwargs.get("shuffle", True)), None
            batch_size, kwargs["shuffle"] = None, False
        validation = kwargs.get("validation_data")
        if isinstance(validation, tuple) and len(validation) == 2 and _is_texts(validation[0]):
            kwargs["validation_data"] = self._text_dataset(*validation, kwargs.pop("validation_batch_size", None) or 32)
        return super().fit(x, y, batch_size=batch_size, **kwargs)

    def evaluate(self, x: Any = None, y: Any = None, batch_size: int | None = None, **kwargs: Any) -> Any:
        """Computes the loss and metrics, on texts or on token-level batches; arguments as for `fit`."""
        if not self.compiled:
            self.compile()
        if _is_texts(x):
            x, y, batch_size = self._text_dataset(x, y, batch_size or 32), None, None
        return super().evaluate(x, y, batch_size=batch_size, **kwargs)

    def encode_source(self, texts: Any, multiple: int = 1) -> tuple[Any, Any]:
        """Returns padded source ids and their mask, the end token included.

        Args:
            texts: String tensor `(batch,)`.
            multiple: The length is rounded up to a multiple of this.
        """
        from zoo.tokenizers import add_start_end, to_dense

        tokenizer = self._require_tokenizer("Text input")
        return to_dense(add_start_end(tokenizer.tokenize(texts), None, tokenizer.end_id), tokenizer.pad_id, multiple)

    def preprocess(self, sources: Any, targets: Any) -> tuple[dict[str, Any], Any, Any]:
        """Returns token-level inputs, labels and sample weights of texts, for teacher forcing.

        Args:
            sources: String tensor `(batch,)`.
            targets: String tensor `(batch,)`.

        Returns:
            `(inputs, labels, sample_weight)`, see the call arguments; `labels` `(batch, decoder_length)` is the target
            with the end token, `sample_weight` 1 for its tokens and 0 for padding.
        """
        from zoo.tokenizers import add_start_end, to_dense

        tokenizer = self._require_tokenizer("Text input")
        source_ids, source_mask = self.encode_source(sources)
        target = tokenizer.tokenize(targets)
        labels, mask = to_dense(add_start_end(target, None, tokenizer.end_id), tokenizer.pad_id)
        decoder_ids, _ = to_dense(add_start_end(target, tokenizer.start_id, None), tokenizer.pad_id)
        inputs = {
            "encoder_token_ids": source_ids,
            "encoder_padding_mask": source_mask,
            "decoder_token_ids": decoder_ids,
            "decoder_padding_mask": mask,
        }
        return inputs, labels, ops.cast(mask, "float32")

    def _text_dataset(self, sources: Any, targets: Any, batch_size: int, shuffle: bool = False) -> Any:
        import tensorflow as tf

        if targets is None or len(sources) != len(targets):
            raise ValueError(
                f"y must hold one target text per source text: {len(sources)} in x, "
                f"{'none' if targets is None else len(targets)} in y."
            )
        self._check_lengths(sources, "x")
        self._check_lengths(targets, "y")
        dataset = tf.data.Dataset.from_tensor_slices((list(sources), list(targets)))
        if shuffle:
            dataset = dataset.shuffle(len(sources))
        return dataset.batch(batch_size).map(self.preprocess, num_parallel_calls=tf.data.AUTOTUNE).prefetch(2)

    def _check_lengths(self, texts: Sequence[str], argument: str) -> np.ndarray:
        tokenizer, longest = self._require_tokenizer("Text input"), self.backbone.config.max_length
        lengths = tokenizer.tokenize(list(texts)).row_lengths().numpy() + 1
        too_long = np.flatnonzero(lengths > longest)
        if len(too_long):
            row = int(too_long[0])
            raise ValueError(
                f"{argument}[{row}] has {lengths[row]} tokens with its end token, the model takes at most "
                f"max_length={longest} ({len(too_long)} of {len(texts)} texts are too long): {str(texts[row])[:80]!r}. "
                "Shorten it, or pass truncate=True to generate()."
            )
        return lengths

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
        if isinstance(texts, str):
            return self.generate(
                [texts], sampler=sampler, max_length=max_length, seed=seed, truncate=truncate, jit_compile=jit_compile
            )[0]
        tokenizer = self._require_tokenizer("generate()")
        sampler = get_sampler(sampler)
        program = self.program(sampler, self._output_length(max_length), jit_compile)
        results: list[str] = [""] * len(texts)
        for rows, ids, mask in self._source_batches(texts, batch_size, truncate):
            outputs = self._run(program, ids, mask, seed, rows)
            for row, text in zip(rows, tokenizer.detokenize(outputs).numpy(), strict=True):
                results[row] = text.decode("utf-8")
        return results

    def _output_length(self, max_length: int | None) -> int:
        longest = self.backbone.config.max_length
        if max_length is None:
            return longest
        if not 1 <= max_length <= longest:
            raise ValueError(f"max_length must be from 1 to the model's {longest}, got {max_length!r}.")
        return max_length

    def _run(self, program: Any, ids: Any, mask: Any, seed: int, rows: np.ndarray) -> np.ndarray:
        limits = self.length_limit(mask)
        streams = ops.convert_to_tensor(rows, dtype="int32")
        ids, mask, limits, streams = pad_batch((ids, mask, limits, streams))
        outputs = program(ids, mask, limits, ops.convert_to_tensor(seed, dtype="int64"), streams)
        return ops.convert_to_numpy(outputs["token_ids"])[: len(rows)]

    def _source_batches(
        self, texts: Sequence[str], batch_size: int, truncate: bool
    ) -> Iterator[tuple[np.ndarray, Any, Any]]:
        """Yields row numbers, ids and mask of batches of texts of similar length, padded to few shapes."""
        if not len(texts):
            return
        tokenizer, longest = self.tokenizer, self.backbone.config.max_length
        if truncate:
            lengths = np.minimum(tokenizer.tokenize(list(texts)).row_lengths().numpy() + 1, longest)
        else:
            lengths = self._check_lengths(texts, "texts")
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
        longest = self.backbone.config.max_length
        return pad_length(ids, value=self.tokenizer.pad_id)[:, :longest], pad_length(mask, value=False)[:, :longest]

    def score(self, sources: Sequence[str], targets: Sequence[str], *, batch_size: int = 32) -> np.ndarray:
        """Returns the log-likelihood of each target given its source.

        Args:
            sources: Source texts.
            targets: Target texts, one per source.
            batch_size: Pairs per batch.

        Returns:
            Sums of log-probabilities (natural logarithm) over the target's tokens and its end token, `(number,)`.

        Raises:
            ValueError: If there are not as many targets as sources, or a text is longer than the model.
        """
        dataset = self._text_dataset(sources, targets, batch_size)
        scores = [ops.convert_to_numpy(self.score_tokens(*batch)) for batch in dataset]
        return np.concatenate(scores) if scores else np.zeros((0,), "float32")

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


def _is_texts(x: Any) -> bool:
    if isinstance(x, (list, tuple)):
        return len(x) > 0 and isinstance(x[0], (str, bytes))
    return isinstance(x, np.ndarray) and x.dtype.kind in "OSU"
