"""Sequence to sequence: one text in, another text out."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from zoo.export import Endpoint, Field
from zoo.preprocessing import Seq2SeqLMPreprocessor
from zoo.preprocessing.rows import as_sequence, as_text, require_count
from zoo.tasks.attention_endpoint import seq2seq_attention_endpoint
from zoo.tasks.generative_task import GenerativeTask
from zoo.training.losses import TokenCrossEntropy


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class Seq2SeqLM(GenerativeTask):
    """An encoder-decoder that maps a text to a text, for example a sentence to its translation.

    Args:
        backbone: An encoder-decoder backbone.
        preprocessor: A `Seq2SeqLMPreprocessor`; a tokenizer with start, end and padding token; or None for use on token
            level.
        **options: Arguments of `Seq2SeqLMPreprocessor` where none is given: `decoder_start_token`, `sequence_length`
            and `truncate`; and `name`, `dtype` and `trainable`.

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

    preprocessor_class = Seq2SeqLMPreprocessor
    architectures = ("encoder_decoder",)

    def call(self, inputs: dict[str, Any], training: bool | None = None) -> Any:
        hidden = self.backbone(inputs, training=training)["decoder_sequence_output"]
        return self.token_head(self.backbone.output_vectors(hidden), training)

    def with_hidden(self, inputs: dict[str, Any], training: bool | None = None) -> tuple[Any, Any]:
        """Returns logits, and the decoder's last hidden states `(batch, decoder_length, hidden_dim)`.

        Args:
            inputs, training: As for the call.
        """
        hidden = self.backbone(inputs, training=training)["decoder_sequence_output"]
        return self.backbone.logits(hidden), hidden

    def default_optimizer(self) -> keras.optimizers.Optimizer:
        """Returns Adam with rate 1e-4, the paper's beta and epsilon, and gradients clipped to norm 1."""
        return keras.optimizers.Adam(1e-4, beta_2=0.98, epsilon=1e-9, global_clipnorm=1.0)

    def default_loss(self) -> TokenCrossEntropy:
        """Returns `TokenCrossEntropy(label_smoothing=0.1)`."""
        return TokenCrossEntropy(label_smoothing=0.1)

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
        preprocessor = self.preprocessor
        preprocessor.require_tokenizer("score()")
        require_count(batch_size, "batch_size")
        if not len(as_sequence(sources, "sources")) and not len(as_sequence(targets, "targets")):
            return np.zeros((0,), "float32")
        examples = preprocessor.examples(sources, targets, names=("sources", "targets", "sample_weight"))
        return self.scorer.rows(
            examples.lengths, lambda rows: preprocessor.collate(*examples.take(rows)[:3]), batch_size
        )

    def attention_endpoint(self) -> Endpoint:
        """Returns the endpoint `attention`, see `zoo.tasks.attention_endpoint`."""
        return seq2seq_attention_endpoint(self)

    def score_endpoint(self) -> Endpoint:
        def score(sources: Any, targets: Any) -> Any:
            return self.scorer.tokens(*self.preprocessor.training_batch(sources, targets))

        sources = Field("sources", ("batch",), "string", "source texts")
        targets = Field("targets", ("batch",), "string", "a target text for each source")
        output = Field("log_likelihoods", ("batch",), "float32", "sums over target and end token, natural logarithm")
        return Endpoint(score, (sources, targets), (output,), "How likely each target is, given its source.")
