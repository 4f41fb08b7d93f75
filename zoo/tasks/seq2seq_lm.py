"""Sequence to sequence: one text in, another text out."""

import functools
import os
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np

from zoo.backbones.backbone import Backbone
from zoo.generation import MappedTexts, TextGenerator, TextScorer
from zoo.preprocessing.rows import as_sequence, as_text, as_texts, require_count, require_same_length
from zoo.preprocessing.seq2seq_lm import Seq2SeqLMPreprocessor
from zoo.tasks.raw_batches import row_count
from zoo.tasks.task import Task
from zoo.training.losses import TokenCrossEntropy


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class Seq2SeqLM(Task):
    """An encoder-decoder that maps a text to a text, for example a sentence to its translation.

    Args:
        backbone: An encoder-decoder backbone.
        tokenizer: Tokenizer with start, end and padding token, joint for both sides.
        decoder_start_token: The token that decoding starts with. None: the tokenizer's start token. Where it is
            another, the tokenizer's start token begins the texts of both sides, as in BART: sources are `<s> x </s>`,
            and targets `<s> y </s>` behind a `</s>` that decoding starts with.

    Call arguments:
        inputs: `{"encoder_token_ids", "encoder_padding_mask", "decoder_token_ids", "decoder_padding_mask"}`, ids
            integers and masks true where a token is real, `(batch, encoder_length)` and `(batch, decoder_length)`.
            The source ends with the end token; the decoder input begins with the token that decoding starts with.
        training: Whether dropout is active.

    Returns:
        Logits of the next target token, `(batch, decoder_length, vocabulary)`.

    Raises:
        ValueError: If the backbone is no encoder-decoder, the tokenizer has more tokens than the backbone, or lacks
            `decoder_start_token`.

    Example:

    >>> model = Seq2SeqLM.from_preset("runs/dates/model")
    >>> model.generate(["4 May 1999"])
    ['1999-05-04']

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.
    """

    def __init__(
        self, backbone: Backbone, tokenizer: Any = None, *, decoder_start_token: str | None = None, **kwargs: Any
    ):
        if getattr(backbone.config, "architecture", "encoder_decoder") != "encoder_decoder":
            raise ValueError(
                f"Seq2SeqLM needs an encoder-decoder backbone, got architecture={backbone.config.architecture!r}."
            )
        super().__init__(backbone, tokenizer, **kwargs)
        self.decoder_start_token = decoder_start_token
        start_id = None if tokenizer is None else tokenizer.start_id
        self.decoder_start_id = start_id
        if decoder_start_token is not None and tokenizer is not None:
            self.decoder_start_id = tokenizer.token_to_id(decoder_start_token)
        self.adds_start_token = start_id != self.decoder_start_id and start_id is not None
        preprocessor = Seq2SeqLMPreprocessor(tokenizer, decoder_start_token=decoder_start_token)
        self.scorer = TextScorer(self)
        self.generator = TextGenerator(backbone, MappedTexts(preprocessor.for_backbone(backbone.config)))
        self.built = True

    def options(self) -> dict[str, Any]:
        return {"decoder_start_token": self.decoder_start_token}

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
        """Returns the number of tokens of each text with those that are added, `(batch,)`."""
        return self.text_ids(x).row_lengths()

    truncation_hint = "Shorten it, or pass truncate=True to generate()."

    @property
    def added_tokens(self) -> str:
        return "start and end token" if self.adds_start_token else "end token"

    def special_tokens(self) -> dict[str, int | None]:
        """Returns the ids of the tokens that stand around a source, and around a target."""
        around = super().special_tokens()
        return around if self.adds_start_token else {**around, "start_id": None}

    def text_ids(self, texts: Any) -> Any:
        """Returns the token ids of whole texts, of sources or of targets, with start and end token; a graph function.

        Args:
            texts: String tensor `(batch,)`.

        Returns:
            Ragged int32 `(batch, None)`.
        """
        from zoo.tokenizers import add_start_end

        return add_start_end(self._require_tokenizer("Text input").tokenize(texts), **self.special_tokens())

    def predict_texts(self, x: Any, batch_size: int) -> list[str]:
        """Returns what `generate` makes of the texts."""
        return self.generate(as_sequence(x, "x"), batch_size=batch_size)

    def encode_source(self, texts: Any, multiple: int = 1) -> tuple[Any, Any]:
        """Returns padded source ids and their mask, the added tokens included; a graph function.

        Args:
            texts: String tensor `(batch,)`.
            multiple: The length is rounded up to a multiple of this.
        """
        from zoo.tokenizers import to_dense

        return to_dense(self.text_ids(texts), self.pad_id, multiple)

    def preprocess(self, x: Any, y: Any, sample_weight: Any = None) -> tuple[dict[str, Any], Any, Any]:
        """Returns token-level inputs, labels and weights of texts, for teacher forcing.

        Args:
            x: Sources, string tensor `(batch,)`.
            y: Targets, string tensor `(batch,)`.
            sample_weight: Weight of each pair, `(batch,)`; None for 1.

        Returns:
            `(inputs, labels, weights)`, see the call arguments; `labels` `(batch, decoder_length)` is the target
            with the tokens that are added to it, `weights` that of the pair for its tokens and 0 for padding.
        """
        import tensorflow as tf

        from zoo.tokenizers import add_start_end, to_dense

        source_ids, source_mask = self.encode_source(x)
        target = self.text_ids(y)
        labels, mask = to_dense(target, self.pad_id)
        decoder_ids, _ = to_dense(
            add_start_end(target[:, :-1], self.generator.prompts.preprocessor.require_decoder_start(), None),
            self.pad_id,
        )
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
        preprocessor = self.generator.prompts.preprocessor
        preprocessor.require_tokenizer("score()")
        require_count(batch_size, "batch_size")
        if not len(as_sequence(sources, "sources")) and not len(as_sequence(targets, "targets")):
            return np.zeros((0,), "float32")
        examples = preprocessor.examples(sources, targets, names=("sources", "targets", "sample_weight"))
        return self.scorer.rows(
            examples.lengths, lambda rows: preprocessor.collate(*examples.take(rows)[:3]), batch_size
        )

    @property
    def pad_id(self) -> int:
        """What fills rows behind their end."""
        return self.generator.prompts.preprocessor.pad_id

    @functools.wraps(TextGenerator.generate)
    def generate(self, *arguments: Any, **options: Any) -> Any:
        return self.generator.generate(*arguments, **options)

    @functools.wraps(TextGenerator.stream)
    def stream(self, *arguments: Any, **options: Any) -> Iterator[Any]:
        return self.generator.stream(*arguments, **options)

    @functools.wraps(TextGenerator.generate_tokens)
    def generate_tokens(self, *arguments: Any, **options: Any) -> dict[str, Any]:
        return self.generator.generate_tokens(*arguments, **options)

    def export(self, directory: str | os.PathLike, **options: Any) -> None:
        """Writes a SavedModel that takes strings and returns strings, see `zoo.export.seq2seq.export_seq2seq`.

        Args:
            directory: Where to.
            **options: Arguments of `export_seq2seq`: how texts are generated, as for `generate`.
        """
        from zoo.export.seq2seq import export_seq2seq

        export_seq2seq(self, directory, **options)
