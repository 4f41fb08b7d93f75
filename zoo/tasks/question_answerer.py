"""Question answering: finds the part of a context that answers a question."""

import math
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from zoo.backbones.backbone import Backbone
from zoo.export import Endpoint, Field
from zoo.inspect.row import Decisions
from zoo.preprocessing import QuestionAnswererPreprocessor
from zoo.preprocessing.rows import require_count
from zoo.tasks.encoder_task import EncoderTask
from zoo.tasks.heads import classification_head
from zoo.tasks.spans import EXCLUDED, Answer, best_spans, merge_in_graph, merge_windows
from zoo.training.span_losses import SpanAccuracy, SpanCrossEntropy


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class QuestionAnswerer(EncoderTask):
    """Extractive question answering: finds the answer to a question in a context.

    Each token has two logits, for being the first and for being the last token of the answer. The first token of a row
    stands for "no answer". Long contexts are read in overlapping windows. A span is scored in the window in which its
    first token has the most context on both sides.

    Args:
        backbone: An encoder; a decoder, in which tokens of the context see the question before them; or an
            encoder-decoder, whose decoder reads the same tokens.
        preprocessor: A `QuestionAnswererPreprocessor`; a tokenizer; or None for use on token level.
        hidden_activation: Activation of the head's inner layer; None for no inner layer.
        inner_bias: Whether the inner layer has a bias.
        inner_norm: Whether a layer norm follows the inner layer.
        projection_bias: Whether the last linear map of the head has a bias.
        head_dropout: Rate of the dropout before the last linear map.
        max_answer_length: Largest number of tokens of an answer.
        no_answer_threshold: There is no answer if the logit of "no answer" exceeds that of the best span by more than
            this. None: there is always an answer, unless the context is empty.
        decoder_start_id: See `EncoderTask`.
        separator_id: With `attention.global_tokens`, the id of the token behind the question, whose tokens are global
            where a call does not say others. Default the tokenizer's end token.
        **options: Arguments of `QuestionAnswererPreprocessor` where none is given: `stride`, `sequence_length` and
            `truncate`; and `name`, `dtype` and `trainable`.

    Call arguments:
        inputs: `{"token_ids", "padding_mask"}`, `(batch, length)`, optionally `"segment_ids"`.
        training: Whether dropout is active.

    Returns:
        Logits of first and last token, `(batch, length, 2)`, float32; -1e9 for padding.

    Raises:
        ValueError: If an argument is out of range.

    Example:

    >>> model = QuestionAnswerer.from_preset("path/to/model")
    >>> model.answer("Who wrote?", "Ada Lovelace, of London, wrote.")
    Answer(text='Ada Lovelace', start=0, end=12, score=0.97, no_answer=0.01)

    Reference:
        Devlin et al. 2019, "BERT", sections 4.2 and 4.3.
    """

    preprocessor_class = QuestionAnswererPreprocessor
    architectures = ("encoder", "decoder", "encoder_decoder")

    def __init__(
        self,
        backbone: Backbone,
        preprocessor: Any = None,
        *,
        hidden_activation: str | None = None,
        inner_bias: bool = True,
        inner_norm: bool = False,
        projection_bias: bool = True,
        head_dropout: float = 0.0,
        max_answer_length: int = 30,
        no_answer_threshold: float | None = None,
        decoder_start_id: int | str | None = None,
        separator_id: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(backbone, preprocessor, decoder_start_id=decoder_start_id, **options)
        size = backbone.config.vocabulary_size
        self.separator_id = None if separator_id is None else require_count(separator_id, "separator_id", 0, size - 1)
        self.max_answer_length = require_count(max_answer_length, "max_answer_length")
        self.no_answer_threshold = None if no_answer_threshold is None else float(no_answer_threshold)
        if no_answer_threshold is not None and not math.isfinite(self.no_answer_threshold):
            raise ValueError(f"no_answer_threshold must be a finite number or None, got {no_answer_threshold!r}.")
        choices = (hidden_activation, inner_bias, inner_norm, projection_bias, head_dropout)
        self.add_head(classification_head(self, 2, *choices))

    def own_options(self) -> dict[str, Any]:
        return {
            **super().own_options(),
            **self.head.task_options(),
            "max_answer_length": self.max_answer_length,
            "no_answer_threshold": self.no_answer_threshold,
            "separator_id": self.separator_id,
        }

    def global_tokens(self, inputs: dict[str, Any]) -> Any:
        """Returns the tokens before the first separator: those of the question (Beltagy et al. 2020, section 6.1)."""
        separator = getattr(self.tokenizer, "end_id", None) if self.separator_id is None else self.separator_id
        if separator is None:
            return None
        is_separator = ops.cast(ops.equal(inputs["token_ids"], separator), "int32")
        before = ops.equal(ops.cumsum(is_separator, axis=1), 0)
        has_one = ops.any(is_separator > 0, axis=1, keepdims=True)
        return ops.logical_and(ops.logical_and(before, has_one), ops.cast(inputs["padding_mask"], "bool"))

    def outputs_of(self, hidden: Any, inputs: dict[str, Any], training: bool | None = None) -> Any:
        logits = super().outputs_of(hidden, inputs, training)
        return ops.where(ops.expand_dims(ops.cast(inputs["padding_mask"], "bool"), -1), logits, EXCLUDED)

    def decisions(self, outputs: Any, tokens: Sequence[str]) -> Decisions:
        """Returns the probabilities of each token to be the first, and the last, of the answer."""
        return Decisions(ops.log_softmax(ops.transpose(outputs, (0, 2, 1)), axis=-1), tokens, ("start", "end"))

    # Training.

    def default_loss(self) -> SpanCrossEntropy:
        """Returns `SpanCrossEntropy()`."""
        return SpanCrossEntropy()

    def default_metrics(self) -> list[Any]:
        """Returns the accuracy of windows: the fraction in which both ends of the answer are right."""
        return [SpanAccuracy(name="accuracy")]

    # Use.

    def predict_texts(self, x: Any, batch_size: int) -> list[Answer]:
        """Returns the best answer to each question."""
        return [answers[0] for answers in self._best(x, 1, batch_size, "x")]

    def answer(self, questions: Any, contexts: Any, *, top_k: int | None = None, batch_size: int = 32) -> Any:
        """Returns the answers to questions.

        Args:
            questions: One question or many.
            contexts: The text to search, one per question.
            top_k: Number of answers to return for each question, the best first. None for the best alone.
            batch_size: Windows per batch.

        Returns:
            For each question an `Answer`: text, `start` and `end` in characters (end exclusive), its probability, and
            that of no answer. With `top_k` a list of at most `top_k` answers. For a single question its result alone.

        Raises:
            TypeError, ValueError: If a row is not text, or a question is too long. The message names the row.
        """
        if isinstance(questions, (str, bytes)) and isinstance(contexts, (str, bytes)):
            return self.answer([questions], [contexts], top_k=top_k, batch_size=batch_size)[0]
        best = self._best((questions, contexts), 1 if top_k is None else require_count(top_k, "top_k"), batch_size, "x")
        return [answers[0] for answers in best] if top_k is None else best

    def _best(self, x: Any, count: int, batch_size: int, name: str) -> list[list[Answer]]:
        preprocessor = self.preprocessor
        contexts = [text.decode("utf-8", "replace") for text in preprocessor.check_rows(x, name)[1].numpy()]
        if not contexts:
            return []
        rows = preprocessor.rows(x, name)
        windows = rows.tokens
        own, sizes = windows["own"].numpy(), windows["context"].row_lengths().numpy()
        offsets = preprocessor.context_offsets(windows).numpy()

        def spans(numbers: np.ndarray, inputs: dict[str, Any], logits: Any) -> list[dict[str, Any]]:
            most = min(count, logits.shape[1] * self.max_answer_length)
            parts = (part[numbers] for part in (offsets, own, sizes))
            found = best_spans(ops.convert_to_tensor(logits), *parts, self.max_answer_length, most)
            found = {key: ops.convert_to_numpy(value) for key, value in found.items()}
            return [{key: value[index] for key, value in found.items()} for index in range(len(numbers))]

        found = self.map_batches(spans, rows, batch_size)
        places = list(zip(windows["starts"].to_list(), windows["ends"].to_list(), strict=True))
        borders = np.searchsorted(rows.groups, np.arange(len(contexts) + 1))
        return [
            merge_windows(context, found[begin:end], places[begin:end], count, self.no_answer_threshold)
            for context, begin, end in zip(contexts, borders, borders[1:], strict=False)
        ]

    def result_fields(self) -> tuple[Field, ...]:
        return (Field("logits", ("batch", "length", 2), "float32", "of being the first and the last token"),)

    def results(self, outputs: Any) -> dict[str, Any]:
        return {"logits": outputs}

    def result_properties(self) -> dict[str, Any]:
        return {"max_answer_length": self.max_answer_length, "no_answer_threshold": self.no_answer_threshold}

    def endpoints(self) -> dict[str, Endpoint]:
        """Returns the endpoint `serve(questions, contexts)` of an export, for any batch size.

        It takes string tensors `(batch,)`. It returns "answers", strings `(batch,)`, "" for none; "starts" and "ends",
        byte offsets in the contexts, int64; "scores" and "no_answer", probabilities, float32. A question that is too
        long raises an `InvalidArgumentError`, unless the task truncates.
        """
        preprocessor = self.preprocessor

        def serve(questions: Any, contexts: Any) -> dict[str, Any]:
            tokens = preprocessor.checked_questions(preprocessor.tokens((questions, contexts), unit="bytes"))
            windows = preprocessor.windows(tokens)
            logits = ops.convert_to_tensor(self(preprocessor.inputs(windows), training=False))
            offsets, sizes = preprocessor.context_offsets(windows), windows["context"].row_lengths()
            found = best_spans(logits, offsets, windows["own"], sizes, self.max_answer_length)
            return merge_in_graph(contexts, found, windows, self.no_answer_threshold)

        outputs = (
            Field("answers", ("batch",), "string", "parts of the contexts, empty for no answer"),
            Field("starts", ("batch",), "int64", "where answers start, in bytes"),
            Field("ends", ("batch",), "int64", "where answers end, in bytes"),
            Field("scores", ("batch",), "float32", "probability of each answer"),
            Field("no_answer", ("batch",), "float32", "probability that there is none"),
        )
        return {"serve": Endpoint(serve, self.text_fields(), outputs, "Answers questions from contexts.")}
