"""Groups of texts that belong together for training, single texts for use; what is put before them by name."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from zoo.preprocessing.encoder import EncoderPreprocessor, check_groups
from zoo.preprocessing.labels import as_numbers
from zoo.preprocessing.rows import row_count, shorten
from zoo.preprocessing.token_rows import require_all

# anchor, positive and at most eight negatives
PARTS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
# what training takes: how many texts a row may have, and whether it has a similarity
OBJECTIVES = {
    "in_batch_negatives": tuple(range(2, len(PARTS) + 1)),
    "triplet": (3,),
    "cosine_regression": (2,),
    "cosent": (2,),
}
WITH_SIMILARITIES = ("cosine_regression", "cosent")


@keras.saving.register_keras_serializable("keras_transformer_zoo")
class TextEmbedderPreprocessor(EncoderPreprocessor):
    """Preprocessing of text embedding: single texts for inference, groups of texts for training.

    Args:
        tokenizer: The tokenizer; None for use on token level.
        objective: "in_batch_negatives": training rows are `(anchor, positive)` or `(anchor, positive, negative, ...)`
            without targets, at most ten texts. "triplet": `(anchor, positive, negative)` without targets.
            "cosine_regression": `(first, second)` with their similarity from -1 to 1. "cosent": `(first, second)` with
            a similarity on any scale.
        prompts: Strings that are put before a text, by name: `{"query": "query: ", "document": "passage: "}`.
        default_prompt: The name of the default prompt; None for none.
        training_prompts: The name of the prompt of each text of a training row, None for none. The last one is also
            that of all further texts. Default "query" and "document" if both exist, else `default_prompt`.
        **options: `sequence_length`, `truncate` and `segments`, see `EncoderPreprocessor`.

    Raises:
        ValueError: If an argument is out of range, or there is no such prompt.

    Example:

    >>> inputs, labels, weights = preprocessor.training_batch((questions, answers))
    >>> sorted(inputs)
    ['first_padding_mask', 'first_token_ids', 'second_padding_mask', 'second_token_ids']

    Reference:
        Wang et al. 2022, "Text Embeddings by Weakly-Supervised Contrastive Pre-training", section 4.2 (prompts).
    """

    trains_on_groups = True

    def __init__(
        self,
        tokenizer: Any = None,
        *,
        objective: str = "in_batch_negatives",
        prompts: dict[str, str] | None = None,
        default_prompt: str | None = None,
        training_prompts: Sequence[str | None] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(tokenizer, **options)
        if objective not in OBJECTIVES:
            raise ValueError(f"objective must be one of {tuple(OBJECTIVES)}, got {objective!r}.")
        self.objective = objective
        self.prompts = dict(prompts or {})
        for name, prompt in self.prompts.items():
            if not isinstance(name, str) or not name or not isinstance(prompt, str):
                raise ValueError(f"prompts must map names to texts, got {shorten(name)}: {shorten(prompt)}.")
        self.default_prompt = self._require_prompt(default_prompt, "default_prompt")
        self.training_prompts = None if training_prompts is None else list(training_prompts)
        if self.training_prompts is not None and not 1 <= len(self.training_prompts) <= len(PARTS):
            raise ValueError(f"training_prompts must hold 1 to {len(PARTS)} names, got {len(self.training_prompts)}.")
        for index, name in enumerate(self.training_prompts or ()):
            self._require_prompt(name, f"training_prompts[{index}]")

    def _require_prompt(self, name: Any, what: str) -> Any:
        if name is not None and name not in self.prompts:
            raise ValueError(f"{what} must be None or one of the prompts {sorted(self.prompts)}, got {name!r}.")
        return name

    @property
    def has_similarities(self) -> bool:
        """Whether rows for training have a similarity."""
        return self.objective in WITH_SIMILARITIES

    # Prompts.

    def with_prompt(self, name: str | None) -> "TextEmbedderPreprocessor":
        """Returns a preprocessor that puts a prompt before each text.

        Args:
            name: Name of the prompt; None for the default one, "" for none.

        Raises:
            ValueError: If there is no such prompt.
        """
        if name is None:
            return self
        return self.replace(default_prompt=self._require_prompt(name or None, "prompt"))

    def training_prompt(self, index: int) -> str | None:
        """Returns the name of the prompt of a text of a training row.

        Args:
            index: Number of the text in its row, from 0.
        """
        names = self.training_prompts
        if names is None:
            names = ["query", "document"] if {"query", "document"} <= set(self.prompts) else [self.default_prompt]
        return names[min(index, len(names) - 1)]

    def _prompted(self, texts: Any, name: str | None) -> Any:
        import tensorflow as tf

        prompt = self.prompts.get(name, "")
        return tf.strings.join([prompt, texts]) if prompt else texts

    # Rows.

    def check_training_rows(self, x: Any, name: str) -> tuple[Any, ...]:
        """Returns groups of texts as string tensors."""
        return check_groups(x, name, OBJECTIVES[self.objective])

    def check_targets(self, y: Any, x: Any, name: str, x_name: str) -> Any:
        """Returns similarities `(rows,)` where the objective needs them; arguments as in the base."""
        if not self.has_similarities:
            return super().check_targets(y, x, name, x_name)
        count = row_count(x)
        if y is None:
            raise ValueError(f"{name} must hold one similarity per row, got None for {count} in {x_name}.")
        values = as_numbers(y, count, 1, name, x_name)[:, 0]
        wrong: Any = np.flatnonzero(np.abs(values) > 1) if self.objective == "cosine_regression" else []
        if len(wrong):
            raise ValueError(f"{name}[{wrong[0]}] must be a cosine from -1 to 1, got {values[wrong[0]]}.")
        return values

    def targets(self, y: Any) -> Any:
        import tensorflow as tf

        if not self.has_similarities:
            return super().targets(y)
        if y is None:
            raise ValueError(f"A dataset for {self.task_name} must hold (x, y), texts and similarities; got x alone.")
        y = tf.cast(y, tf.float32)
        if y.shape.rank == 2 and y.shape[1] == 1:
            y = y[:, 0]
        if y.shape.rank not in (None, 1):
            raise ValueError(
                f"A dataset for {self.task_name} must hold one similarity per row, got similarities of the shape "
                f"{tuple(y.shape)} for a batch."
            )
        if self.objective == "cosent":
            return require_all(tf.math.is_finite(y), y, "Every similarity must be finite; rows and values:")
        return require_all(tf.abs(y) <= 1, y, "Every similarity must be a cosine from -1 to 1; rows and values:")

    def tokens(self, x: Any) -> Any:
        return super().tokens(self._prompted(x, self.default_prompt))

    def training_tokens(self, x: Any) -> Any:
        """As `tokens`, with the prompts of training."""
        columns = (self._prompted(column, self.training_prompt(index)) for index, column in enumerate(x))
        return super().tokens(tuple(columns))

    def token_counts(self, tokens: Any) -> Any:
        """Returns the tokens of each text; for a group those of its longest."""
        import tensorflow as tf

        parts = tokens if isinstance(tokens, tuple) else (tokens,)
        return tf.reduce_max(tf.stack([super(TextEmbedderPreprocessor, self).token_counts(part) for part in parts]), 0)

    def check_lengths(self, x: Any, tokens: Any, lengths: np.ndarray, name: str) -> None:
        if not isinstance(tokens, tuple):
            return super().check_lengths(x, tokens, lengths, name)
        for index, (column, part) in enumerate(zip(x, tokens, strict=True)):
            self.check_fits(column, np.asarray(self.token_counts(part)), f"{name}[{index}]")
        return None

    def collate(self, tokens: Any, targets: Any, sample_weight: Any, seed: Any = None) -> tuple[Any, Any, Any]:
        """Returns inputs of groups of texts.

        Labels are the similarities; where there are none, a number per text `(batch, texts)`, the same for texts of
        the batch that the model sees as the same.
        """
        import tensorflow as tf

        inputs = {
            f"{part}_{name}": value
            for part, ids in zip(PARTS, tokens, strict=False)
            for name, value in self.inputs(ids).items()
        }
        if targets is not None:
            return inputs, targets, sample_weight
        rows = [tf.strings.as_string(self.packed(ids)[0]) for ids in tokens]
        texts = tf.concat([tf.strings.reduce_join(row, axis=-1, separator=" ") for row in rows], axis=0)
        numbers = tf.unique(texts).idx
        return inputs, tf.transpose(tf.reshape(numbers, [len(tokens), -1])), sample_weight
