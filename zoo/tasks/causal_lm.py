"""Language model: texts in, longer texts out."""

import functools
import os
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np

from zoo.backbones.backbone import Backbone
from zoo.generation import ContinuedTexts, TextGenerator, TextScorer
from zoo.preprocessing.causal_lm import CausalLMPreprocessor
from zoo.preprocessing.packing import packed_batches
from zoo.preprocessing.rows import (
    as_sequence,
    as_texts,
    is_dataset,
    require_count,
    require_same_length,
    string_tensor,
)
from zoo.tasks.raw_batches import CHECKED_AT_ONCE
from zoo.tasks.task import Task
from zoo.training.losses import TokenCrossEntropy


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class CausalLM(Task):
    """A decoder that predicts each token of a text from those before it.

    A training text is a start token, its tokens and an end token, as far as the tokenizer has these. A prompt is a
    start token and its tokens.

    Args:
        backbone: A decoder-only backbone.
        tokenizer: The tokenizer; None for use on token level.
        add_start_token: Whether texts begin with the tokenizer's start token. None: where it has one that is not its
            end token too (Llama: yes, GPT-2: no). An empty prompt has it in any case.

    Call arguments:
        inputs: `{"token_ids", "padding_mask"}`, `(batch, length)`, the mask true where a token is real; for packed
            texts also `"sequence_ids"` and `"positions"`.
        training: Whether dropout is active.

    Returns:
        Logits of the next token, `(batch, length, vocabulary)`.

    Raises:
        ValueError: If the backbone is no decoder, the tokenizer has more tokens than the backbone, or has no start
            token and `add_start_token` is true.

    Example:

    >>> model = CausalLM.from_preset("path/to/model")
    >>> model.fit(texts, epochs=3, packed=True)
    >>> model.generate("Once upon a time", max_new_tokens=40)
    'Once upon a time there was a ...'

    Reference:
        Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.
    """

    architectures = ("decoder",)

    def __init__(
        self, backbone: Backbone, tokenizer: Any = None, *, add_start_token: bool | None = None, **kwargs: Any
    ):
        if getattr(backbone.config, "architecture", None) != "decoder":
            raise ValueError(
                "CausalLM needs a decoder-only backbone, got "
                f"architecture={getattr(backbone.config, 'architecture', type(backbone.config).__name__)!r}."
            )
        super().__init__(backbone, tokenizer, **kwargs)
        if add_start_token not in (None, True, False):
            raise ValueError(f"add_start_token must be True, False or None, got {add_start_token!r}.")
        start_id = None if tokenizer is None else tokenizer.start_id
        if add_start_token and tokenizer is not None and start_id is None:
            raise ValueError("add_start_token=True needs a tokenizer with a start token.")
        self.add_start_token = add_start_token
        self.adds_start_token = add_start_token
        if add_start_token is None or tokenizer is None:
            self.adds_start_token = start_id is not None and start_id != tokenizer.end_id
        preprocessor = CausalLMPreprocessor(tokenizer, add_start_token=add_start_token)
        self.generator = TextGenerator(backbone, ContinuedTexts(preprocessor.for_backbone(backbone.config)))
        self.scorer = TextScorer(self)
        self.built = True

    def options(self) -> dict[str, Any]:
        return {"add_start_token": self.add_start_token}

    def call(self, inputs: dict[str, Any], training: bool | None = None) -> Any:
        return self.backbone.logits(self.backbone(inputs, training=training))

    # Training.

    def default_loss(self) -> TokenCrossEntropy:
        """Returns `TokenCrossEntropy()`."""
        return TokenCrossEntropy()

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int = 1,
        *,
        packed: Any = False,
        **kwargs,
    ) -> Any:
        """Trains, on texts or on token-level batches.

        Args:
            x: Texts (list, array, tensor or dataset of strings), or anything on token level that `keras.Model.fit`
                takes.
            y: Labels on token level.
            batch_size: Rows per batch. Default 32.
            epochs: Number of passes over the data.
            packed: Whether texts stand end to end in rows without padding, without seeing each other: True for rows of
                the model's `max_length`, or the length of a row. Otherwise each text is a row, and one that is longer
                than the model an error.
            **kwargs: As for `fit` of every task. With `packed`, `shuffle` acts on texts, and `sample_weight` and
                `validation_split` are not taken.

        Returns:
            The `keras.callbacks.History`.
        """
        if packed:
            for name in ("sample_weight", "validation_split"):
                if kwargs.get(name):
                    raise ValueError(f"{name} cannot be given with packed={packed!r}.")
            if y is not None:
                raise ValueError("y must be None with packed texts: the texts are their own labels.")
            x = self.packed_dataset(
                x, batch_size, self.longest if packed is True else packed, shuffle=kwargs.pop("shuffle", True)
            )
            batch_size, kwargs["shuffle"] = None, False
        return super().fit(x, y, batch_size, epochs, **kwargs)

    def packed_dataset(
        self, texts: Any, batch_size: int | None = None, length: int | None = None, shuffle: bool = True
    ) -> Any:
        """Returns texts end to end in rows of one length, see `zoo.preprocessing.packing.packed_batches`.

        Args:
            texts: List, array or tensor of strings, or a dataset of scalar strings.
            batch_size: Rows per batch. Default 32.
            length: Tokens per row. Default the model's `max_length`.
            shuffle: Whether the texts of a list are shuffled anew in each epoch; a dataset keeps its order.

        Returns:
            `tf.data.Dataset` of token-level batches.
        """
        import tensorflow as tf

        length = self.longest if length is None else require_count(length, "packed", 1, self.longest)
        batch_size = require_count(32 if batch_size is None else batch_size, "batch_size")
        self._require_tokenizer("Text input")
        options = {}
        if not is_dataset(texts):
            tensor = self.string_tensor(as_texts(texts, "x"))
            if not tensor.shape[0]:
                raise ValueError("x must hold at least one text, got none.")
            starts = range(0, tensor.shape[0], CHECKED_AT_ONCE)
            pairs = sum(int(tf.reduce_sum(self.token_lengths(tensor[at : at + CHECKED_AT_ONCE]))) for at in starts)
            options = {"shuffle": tensor.shape[0] if shuffle else 0, "count": pairs}
            texts = tf.data.Dataset.from_tensor_slices(tensor)
        return packed_batches(texts, self.text_ids, length, batch_size, self.pad_id, **options)

    def special_tokens(self) -> dict[str, int | None]:
        """Returns the ids of the tokens that stand around a prompt."""
        return {"start_id": super().special_tokens()["start_id"] if self.adds_start_token else None, "end_id": None}

    def text_ids(self, texts: Any, end: bool = True) -> Any:
        """Returns the token ids of whole texts, with start and end token; a graph function.

        Args:
            texts: String tensor `(batch,)`.
            end: Whether an end token is added, where the tokenizer has one.

        Returns:
            Ragged int32 `(batch, None)`.
        """
        from zoo.tokenizers import add_start_end

        tokenizer, start_id = self._require_tokenizer("Text input"), self.special_tokens()["start_id"]
        return add_start_end(tokenizer.tokenize(texts), start_id, tokenizer.end_id if end else None)

    def token_lengths(self, x: Any) -> Any:
        """Returns the number of tokens that are fed for each text: all but the last, `(batch,)`."""
        import tensorflow as tf

        return tf.maximum(self.text_ids(x).row_lengths() - 1, 0)

    added_tokens = "start token"
    truncation_hint = "Shorten it, or pass packed=True to fit(), which cuts texts into rows."

    def encode(self, x: Any, multiple: int = 1) -> dict[str, Any]:
        """Returns `token_ids` and `padding_mask` of texts with their start tokens; a graph function."""
        from zoo.tokenizers import to_dense

        token_ids, padding_mask = to_dense(self.text_ids(x, end=False), self.pad_id, multiple)
        return {"token_ids": token_ids, "padding_mask": padding_mask}

    def preprocess(self, x: Any, y: Any = None, sample_weight: Any = None) -> tuple[dict[str, Any], Any, Any]:
        """Returns token-level inputs, labels and weights of texts.

        Args:
            x: String tensor `(batch,)`.
            y: None: the texts are their own labels.
            sample_weight: Weight of each text, `(batch,)`; None for 1.

        Returns:
            `(inputs, labels, weights)`: inputs are all tokens but the last, labels all but the first, `(batch,
            length)`; weights are those of the texts, 0 for padding.
        """
        import tensorflow as tf

        if y is not None:
            raise ValueError("CausalLM learns from the texts alone: the dataset must not hold targets.")
        inputs, labels, mask = self.generator.prompts.preprocessor.shifted(self.text_ids(x))
        weights = tf.cast(mask, tf.float32)
        if sample_weight is not None:
            weights *= tf.cast(sample_weight, tf.float32)[:, tf.newaxis]
        return inputs, labels, weights

    def predict_texts(self, x: Any, batch_size: int) -> list[str]:
        """Returns what `generate` makes of the texts."""
        return self.generate(as_sequence(x, "x"), batch_size=batch_size)

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

    def score(
        self,
        texts: Sequence[str],
        prompts: Sequence[str] | None = None,
        *,
        with_end: bool = False,
        batch_size: int = 32,
    ) -> np.ndarray:
        """Returns the log-likelihood of each text, given its prompt.

        Prompt and text are tokenized together; what counts are the tokens from the first one on that the prompt alone
        does not have. Without a start token the first token of all has no probability and counts as 0.

        Args:
            texts: Texts, or continuations of the prompts.
            prompts: One prompt per text. Default none.
            with_end: Whether the end token counts too: the text as a whole one, not as a beginning.
            batch_size: Texts per batch.

        Returns:
            Sums of log-probabilities (natural logarithm), `(number,)`.

        Raises:
            ValueError: If there are not as many prompts as texts, or prompt and text are longer than the model.

        Example:

        >>> model.score([" cold.", " hot."], prompts=["Ice is", "Ice is"])
        array([-3.1, -5.9], dtype=float32)
        """
        import tensorflow as tf

        preprocessor = self.generator.prompts.preprocessor
        preprocessor.require_tokenizer("score()")
        texts = as_texts(texts, "texts")
        prompts = [b""] * len(texts) if prompts is None else as_texts(prompts, "prompts")
        require_same_length(len(texts), len(prompts), "texts", "prompts", "prompt", "text")
        require_count(batch_size, "batch_size")
        texts, prompts = string_tensor(texts), string_tensor(prompts)
        whole = tf.strings.join([prompts, texts])
        lengths = preprocessor.training_counts(preprocessor.text_ids(whole)).numpy()
        preprocessor.check_fits(whole, lengths, "texts")

        def batch_of(rows: np.ndarray) -> tuple[Any, Any, Any]:
            return preprocessor.score_batch(tf.gather(prompts, rows), tf.gather(texts, rows), with_end)

        return self.scorer.rows(lengths, batch_of, batch_size)

    def prompt_ids(self, texts: Any, keep: int | None = None) -> Any:
        """Returns the token ids of prompts, see `zoo.preprocessing.CausalLMPreprocessor`."""
        return self.generator.prompts.preprocessor.prompt_ids(texts, keep)

    def export(self, directory: str | os.PathLike, **options: Any) -> None:
        """Writes a SavedModel that takes strings and returns strings, see `zoo.export.causal_lm.export_causal_lm`.

        Args:
            directory: Where to.
            **options: Arguments of `export_causal_lm`: how texts are generated, as for `generate`.
        """
        from zoo.export.causal_lm import export_causal_lm

        export_causal_lm(self, directory, **options)
