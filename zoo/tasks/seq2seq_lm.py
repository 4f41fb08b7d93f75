"""Sequence-to-sequence model: maps a text to another text."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from zoo.export import Endpoint, Field
from zoo.inspect.row import Row, is_token_level, next_ids, without_padding
from zoo.preprocessing import Seq2SeqLMPreprocessor
from zoo.preprocessing.rows import as_sequence, as_text, require_count
from zoo.tasks.attention_endpoint import seq2seq_attention_endpoint
from zoo.tasks.generative_task import GenerativeTask
from zoo.training.losses import TokenCrossEntropy


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class Seq2SeqLM(GenerativeTask):
    """A sequence-to-sequence model: an encoder-decoder that maps a text to a text, for example to its translation.

    Args:
        backbone: An encoder-decoder backbone.
        preprocessor: A `Seq2SeqLMPreprocessor`; a tokenizer with start, end and padding token; or None for use on token
            level.
        **options: Arguments of `Seq2SeqLMPreprocessor` where none is given: `decoder_start_token`, `sequence_length`
            and `truncate`; and `name`, `dtype` and `trainable`.

    Call arguments:
        inputs: `{"encoder_token_ids", "encoder_padding_mask", "decoder_token_ids", "decoder_padding_mask"}`. Token ids
            are integers, masks are true where a token is real. Shapes are `(batch, encoder_length)` and
            `(batch, decoder_length)`. The source ends with the end token, and the decoder input begins with the
            decoder's start token.
        training: Whether dropout is active.

    Returns:
        Logits of the next target token, `(batch, decoder_length, vocabulary)`.

    Raises:
        ValueError: If the backbone is not an encoder-decoder, or if the tokenizer has more tokens than the backbone or
            lacks `decoder_start_token`.

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
        return self.outputs_of(hidden, inputs, training)

    def row_of(self, text: Any, target: Any = None) -> Row:
        """Returns the row of a source with its target. Every token of the target is predicted."""
        if is_token_level(text):
            row = super().row_of(text, target)
            sequences = row.inputs.get("decoder_sequence_ids", [None])[0]
            return row._replace(targets=next_ids(row.inputs["decoder_token_ids"][0], sequences))
        as_text(text, "text")
        preprocessor = self.preprocessor
        if target is None:
            written = self.generate(text, jit_compile=False)
            target = written if isinstance(written, str) else written[0]
            # a text may have more tokens than the model wrote it with
            preprocessor = preprocessor.replace(truncate=True)
        rows = preprocessor.examples([text], [target], names=("text", "target", "sample_weight"))
        inputs, labels, _ = preprocessor.collate(*rows[:3])
        row = without_padding({name: np.asarray(value) for name, value in inputs.items()})
        count = row.inputs["decoder_token_ids"].shape[1]
        return row._replace(targets=np.asarray(labels, "int64")[0, :count])

    def with_hidden(self, inputs: dict[str, Any], training: bool | None = None) -> tuple[Any, Any]:
        """Returns logits, and the decoder's last hidden states `(batch, decoder_length, hidden_dim)`.

        Args:
            inputs, training: As for the call.
        """
        hidden = self.backbone(inputs, training=training)["decoder_sequence_output"]
        return self.backbone.logits(hidden), hidden

    def default_optimizer(self) -> keras.optimizers.Optimizer:
        """Returns Adam with rate 1e-4, betas and epsilon of Vaswani et al. 2017, and gradients clipped to norm 1."""
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
            ValueError: If there are not as many targets as sources, or a text is longer than the model allows.
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
