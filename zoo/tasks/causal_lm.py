"""Causal language model: continues texts."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, Self

import keras
import numpy as np

from zoo.export import Endpoint, Field
from zoo.inspect.row import Row, is_token_level, next_ids
from zoo.preprocessing import CausalLMPreprocessor
from zoo.preprocessing.rows import as_text, as_texts, require_count, require_same_length, shorten, string_tensor
from zoo.preprocessing.token_rows import checked_lengths
from zoo.tasks.attention_endpoint import attention_endpoint
from zoo.tasks.generative_task import TEXTS, GenerativeTask
from zoo.tokenizers import ChatFormat
from zoo.tokenizers.chat import tokenize_chat
from zoo.training.losses import TokenCrossEntropy


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class CausalLM(GenerativeTask):
    """A causal language model: a decoder that predicts each token of a text from the tokens before it.

    A training text is a start token, its tokens and an end token. A prompt is a start token and its tokens. Start and
    end token are left out if the tokenizer has none.

    Args:
        backbone: A decoder-only backbone.
        preprocessor: A `CausalLMPreprocessor`; a tokenizer; or None for use on token level.
        **options: Arguments of `CausalLMPreprocessor` where none is given: `add_start_token`, `sequence_length` and
            `truncate`; and `name`, `dtype` and `trainable`.

    Call arguments:
        inputs: `{"token_ids", "padding_mask"}`, `(batch, length)`, the mask true where a token is real; for packed
            texts also `"sequence_ids"` and `"positions"`.
        training: Whether dropout is active.

    Returns:
        Logits of the next token, `(batch, length, vocabulary)`.

    Raises:
        ValueError: If the backbone is not a decoder, if the tokenizer has more tokens than the backbone, or if
            `add_start_token` is true and the tokenizer has no start token.

    Example:

    >>> model = CausalLM.from_preset("path/to/model")
    >>> model.fit(texts, epochs=3, packed=True)
    >>> model.generate("Once upon a time", max_new_tokens=40)
    'Once upon a time there was a ...'
    >>> model.generate([{"role": "user", "content": "Tell me a story."}])
    'Once upon a time ...'

    Reference:
        Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.
    """

    preprocessor_class = CausalLMPreprocessor
    architectures = ("decoder",)

    def call(self, inputs: dict[str, Any], training: bool | None = None) -> Any:
        return self.outputs_of(self.backbone(inputs, training=training), inputs, training)

    def row_of(self, text: Any, target: Any = None) -> Row:
        """Returns the row of a text without an end token, or of a conversation. The first token is not predicted."""
        if is_token_level(text):
            row = super().row_of(text, target)
        else:
            ids = self._ids_of(text)
            row = super().row_of({"token_ids": np.array([ids], "int32").reshape(1, -1)}, target)
        sequences = row.inputs.get("sequence_ids", [None])[0]
        return row._replace(targets=next_ids(row.inputs["token_ids"][0], sequences))

    def _ids_of(self, text: Any) -> list[int]:
        """The token ids of a text, or of a conversation, which asks for a reply unless it ends with one."""
        preprocessor = self.preprocessor
        tokenizer = preprocessor.require_tokenizer("inspect()")
        if isinstance(text, (list, tuple)):
            if not text or not all(isinstance(message, Mapping) for message in text):
                raise TypeError(
                    'text must be a string, or a list of messages such as {"role": "user", "content": "Hello"}, got '
                    f"{shorten(text)}."
                )
            is_answered = text[-1].get("role") == "assistant"
            ids = tokenize_chat(tokenizer, text, add_reply=not is_answered)
        else:
            ids = preprocessor.text_ids(string_tensor([as_text(text, "text")]), end=False).to_list()[0]
        if len(ids) > self.longest and not preprocessor.truncate:
            raise ValueError(
                f"text must have at most {self.longest} tokens, as many as the model takes, got {len(ids)}."
            )
        return ids[: self.longest]

    def with_hidden(self, inputs: dict[str, Any], training: bool | None = None) -> tuple[Any, Any]:
        """Returns logits, and the last hidden states `(batch, length, hidden_dim)` from which they are computed.

        Args:
            inputs, training: As for the call.
        """
        hidden = self.backbone(inputs, training=training)
        return self.backbone.logits(hidden), hidden

    @classmethod
    def from_preset(cls, preset: str | os.PathLike[str], *, chat_format: Any = None, **choices: Any) -> Self:
        """Returns the model of a preset, see `Task.from_preset`.

        Args:
            preset: See `Task.from_preset`.
            chat_format: The format of conversations: a `zoo.tokenizers.ChatFormat`, or a name in
                `zoo.tokenizers.CHAT_FORMATS`. Default that of the tokenizer.
            **choices: See `Task.from_preset`.

        Raises:
            ValueError: As for `Task.from_preset`, or if the tokenizer lacks a control token of the format.

        Example:

        >>> model = CausalLM.from_preset("path/to/base", chat_format="chatml")
        >>> model.generate([{"role": "user", "content": "Hello"}])
        """
        task = super().from_preset(preset, **choices)
        if chat_format is not None:
            task.chat_format = chat_format
        return task

    @property
    def chat_format(self) -> ChatFormat | None:
        """The format of conversations; None for a model without one. It may be set, also by name."""
        return self.preprocessor.require_tokenizer("chat_format").chat_format

    @chat_format.setter
    def chat_format(self, chat_format: Any) -> None:
        preprocessor = self.preprocessor
        tokenizer = preprocessor.require_tokenizer("chat_format").with_chat_format(chat_format)
        self.preprocessor = type(preprocessor)(tokenizer, **preprocessor.options())

    def default_loss(self) -> TokenCrossEntropy:
        """Returns `TokenCrossEntropy()`."""
        return TokenCrossEntropy()

    def score(
        self,
        texts: Sequence[str],
        prompts: Sequence[str] | None = None,
        *,
        with_end: bool = False,
        batch_size: int = 32,
    ) -> np.ndarray:
        """Returns the log-likelihood of each text, given its prompt.

        Prompt and text are tokenized together. The score counts the tokens from the first one that differs from the
        tokens of the prompt alone. Without a start token, the first token has no probability and counts as 0.

        Args:
            texts: Texts, or continuations of the prompts.
            prompts: One prompt per text. Default none.
            with_end: Whether the end token counts too, which scores the text as complete.
            batch_size: Texts per batch.

        Returns:
            Sums of log-probabilities (natural logarithm), `(number,)`.

        Raises:
            ValueError: If there are not as many prompts as texts, or if prompt and text are longer than the model
                allows.

        Example:

        >>> model.score([" cold.", " hot."], prompts=["Ice is", "Ice is"])
        array([-3.1, -5.9], dtype=float32)
        """
        import tensorflow as tf

        preprocessor = self.preprocessor
        preprocessor.require_tokenizer("score()")
        texts = as_texts(texts, "texts")
        prompts = [b""] * len(texts) if prompts is None else as_texts(prompts, "prompts")
        require_same_length(len(texts), len(prompts), "texts", "prompts", "prompt", "text")
        require_count(batch_size, "batch_size")
        texts, prompts = string_tensor(texts), string_tensor(prompts)
        whole = tf.strings.join([prompts, texts])
        lengths = preprocessor.training_counts(preprocessor.text_ids(whole)).numpy()
        preprocessor.check_fits(whole, lengths, "texts", truncate=False)

        def batch_of(rows: np.ndarray) -> tuple[Any, Any, Any]:
            return preprocessor.score_batch(tf.gather(prompts, rows), tf.gather(texts, rows), with_end)

        return self.scorer.rows(lengths, batch_of, batch_size)

    def attention_endpoint(self) -> Endpoint:
        """Returns the endpoint `attention`, see `zoo.tasks.attention_endpoint`."""
        return attention_endpoint(self, (TEXTS,), self.preprocessor.tokens)

    def score_endpoint(self) -> Endpoint:
        def score(prompts: Any, texts: Any) -> Any:
            inputs, labels, mask = self.preprocessor.score_batch(prompts, texts)
            return self.scorer.tokens(checked_lengths(inputs, self.longest), labels, mask)

        prompts = Field("prompts", ("batch",), "string", "what stands before each text, may be empty")
        texts = Field("texts", ("batch",), "string", "what is scored")
        output = Field("log_likelihoods", ("batch",), "float32", "sums over the tokens of each text, natural logarithm")
        return Endpoint(score, (prompts, texts), (output,), "How likely each text is, given its prompt.")
