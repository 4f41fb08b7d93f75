"""What all preprocessors share: rows of strings, checked once, tokenized once, made batches."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import keras
import numpy as np

from layers.constructor_arguments import ConfigFromArguments, constructor_arguments
from zoo.preprocessing.examples import Examples, RowReader
from zoo.preprocessing.rows import as_texts, require_count, shorten, string_tensor
from zoo.preprocessing.token_rows import checked_lengths, checked_weights
from zoo.signatures import signature_of
from zoo.storage import find_reader

# Seed of what evaluation draws at random: the same in every call.
EVALUATION_SEED = 1


class Preprocessor(ConfigFromArguments):
    """Base class of preprocessors: strings to token-level batches.

    `check_rows` checks the inputs of the user, and `tokens` tokenizes them. `inputs` makes a batch for inference,
    `collate` one for training. Rows are padded to one of few lengths (`padded_length`). All methods after `check_rows`
    use TensorFlow operations only, so the same code runs eagerly, in `tf.data` and in a SavedModel.

    A subclass defines `tokens`, `token_counts`, `inputs` and `collate`. It defines `check_rows` if its rows are not
    single texts, and `check_targets` and `targets` if it has targets. It keeps each argument of its constructor as the
    attribute of its name, see `layers.ConfigFromArguments`.

    Args:
        tokenizer: The tokenizer; None for a task that is only used on token level.
        sequence_length: Largest number of tokens of a row, added tokens included. None for the largest number of the
            backbone, which a task sets. Without a task, None allows texts of any length.
        truncate: Whether longer rows are cut. Otherwise they are an error that names the row.

    Raises:
        ValueError: If an argument is out of range.

    Example:

    >>> preprocessor = TextClassifierPreprocessor(tokenizer, labels=["bad", "good"], sequence_length=128)
    >>> preprocessor(["a fine film"])["token_ids"].shape
    (1, 8)
    """

    # how an error says what tokenizing adds, and what to do about a text that is too long
    added_tokens = "special tokens"
    truncation_hint = "Shorten it, or pass truncate=True to the preprocessor."
    # number of axes of the strings of one row: 0 for a text, 1 for a list of words
    row_rank = 0
    # names of the texts of a row, which an export takes
    text_names: Sequence[str] = ("texts",)
    # whether rows for training are groups of texts
    trains_on_groups = False
    # whether a batch for training depends on random numbers
    draws_random = False
    # the task that makes such preprocessors; the class of a task says so
    task_class: ClassVar[type | None] = None
    # whether there is a `packed_dataset` of texts end to end
    packs_texts = False

    def __init__(self, tokenizer: Any = None, *, sequence_length: int | None = None, truncate: bool = False) -> None:
        if sequence_length is not None:
            require_count(sequence_length, "sequence_length")
        if not isinstance(truncate, bool):
            raise ValueError(f"truncate must be True or False, got {truncate!r}.")
        self.tokenizer = tokenizer
        self.sequence_length = sequence_length
        self.truncate = truncate

    # What a subclass defines.

    def options(self) -> dict[str, Any]:
        """Returns the arguments of the constructor other than the tokenizer, as plain values."""
        names = (name for name in constructor_arguments(type(self)) if name != "tokenizer")
        return {name: self.stored_argument(name) for name in names}

    def check_rows(self, x: Any, name: str) -> Any:
        """Returns checked inputs as string tensors with one row per example; eager.

        Args:
            x: What the user passed.
            name: Name of the argument.

        Raises:
            TypeError, ValueError: If a row is not text. The message names the row.
        """
        return string_tensor(as_texts(x, name))

    def check_training_rows(self, x: Any, name: str) -> Any:
        """As `check_rows`. Override it if training takes other rows than inference."""
        return self.check_rows(x, name)

    def check_targets(self, y: Any, x: Any, name: str, x_name: str) -> Any:
        """Returns checked targets as a tensor with one row per example, or None for no targets; eager.

        Args:
            y: What the user passed.
            x: Checked inputs.
            name: Name of the argument.
            x_name: Name of the argument with the inputs.

        Raises:
            TypeError, ValueError: If a row is invalid. The message names the row.
        """
        if y is not None:
            raise ValueError(f"{name} must be None: {self.task_name} learns from the texts alone, got {shorten(y)}.")
        return None

    def tokens(self, x: Any) -> Any:
        """Returns the tokens of checked inputs, ragged tensors with one row per example; a graph function.

        Args:
            x: As `check_rows` returns it.
        """
        raise NotImplementedError

    def token_counts(self, tokens: Any) -> Any:
        """Returns the number of tokens of each row, added tokens included; a graph function.

        Args:
            tokens: What `tokens` returned.
        """
        raise NotImplementedError

    def training_tokens(self, x: Any) -> Any:
        """As `tokens`, for training. Override it if training tokenizes a text differently."""
        return self.tokens(x)

    def training_counts(self, tokens: Any) -> Any:
        """As `token_counts`, for the result of `training_tokens`."""
        return self.token_counts(tokens)

    def check_lengths(self, x: Any, tokens: Any, lengths: np.ndarray, name: str) -> None:
        """Raises a ValueError that names the first row that is too long, unless such rows are cut; eager.

        Args:
            x: Checked inputs.
            tokens: Their tokens.
            lengths: Number of tokens of each row.
            name: Name of the argument.
        """
        self.check_fits(x, lengths, name)

    def targets(self, y: Any) -> Any:
        """Returns the targets for `collate`; a graph function.

        Args:
            y: The result of `check_targets`, or targets of a dataset.
        """
        if y is not None:
            raise ValueError(
                f"A dataset for {self.task_name} must hold texts alone, from which it learns, got targets too: "
                f"{shorten(y)}."
            )
        return None

    def inputs(self, tokens: Any) -> dict[str, Any]:
        """Returns token-level inputs for inference, padded; a graph function.

        Args:
            tokens: What `tokens` returned.
        """
        raise NotImplementedError

    def collate(self, tokens: Any, targets: Any, sample_weight: Any, seed: Any = None) -> tuple[Any, Any, Any]:
        """Returns token-level `(inputs, labels, sample_weight)` for training, padded; a graph function.

        Args:
            tokens: What `training_tokens` returned.
            targets: What `targets` returned.
            sample_weight: Weight of each row `(batch,)`, or None.
            seed: An integer, for the same random choices in every call. None for new choices in each call.
        """
        raise NotImplementedError

    def class_weights(self, weights: Mapping[Any, float]) -> np.ndarray:
        """Returns the weight of each label, float32 `(labels,)`.

        Args:
            weights: By the label's name or number.
        """
        raise ValueError(
            "class_weight must be None for a task that does not give each text or word one of its labels, got "
            f"{shorten(weights)}."
        )

    # What tasks and users call.

    def __call__(self, x: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Returns token-level inputs of raw rows; with `y` or `sample_weight` the triple for training.

        Args:
            x: What `predict` of the task takes; with `y` what its `fit` takes.
            y: Targets, or None.
            sample_weight: Weight of each row, or None.

        In `tf.data`, as in `dataset.batch(32).map(preprocessor)`, the same for batches of strings. Random choices are
        then the same in each epoch: `training_batch` makes new ones.

        Raises:
            TypeError, ValueError: If a row is wrong or too long, naming it.
        """
        if _is_symbolic(x):
            return self._in_graph(x, y, sample_weight)
        if y is None and sample_weight is None:
            return self.inputs(self.rows(x, "x").tokens)
        return self.collate(*self.examples(x, y, sample_weight)[:3], EVALUATION_SEED)

    def _in_graph(self, x: Any, y: Any, sample_weight: Any) -> Any:
        shapes = [part.shape for part in keras.tree.flatten(x)]
        if () in shapes:
            raise ValueError(
                "x must hold batches of rows in a dataset, got single rows of the shape (): "
                "dataset.batch(32).map(preprocessor); fit() takes the dataset as it is."
            )
        if y is None and sample_weight is None:
            return self.inference_batch(x)
        return self.training_batch(x, y, sample_weight, EVALUATION_SEED)

    def inference_batch(self, x: Any) -> dict[str, Any]:
        """Returns token-level inputs of a batch of strings; a graph function.

        A row that is too long raises an `InvalidArgumentError` that names the row.

        Args:
            x: As `check_rows` returns it.
        """
        return checked_lengths(self.inputs(self.tokens(x)), self.sequence_length)

    def inference_rows(self, x: Any) -> tuple[dict[str, Any], Any]:
        """Returns `inference_batch`, and the number of the text that each row is from; a graph function.

        The numbers are ascending; None where each text is one row.

        Args:
            x: As `check_rows` returns it.
        """
        return self.inference_batch(x), None

    def training_batch(self, x: Any, y: Any = None, sample_weight: Any = None, seed: Any = None) -> Any:
        """Returns token-level `(inputs, labels, sample_weight)` of a batch of strings; a graph function.

        Args:
            x: As `check_training_rows` returns it.
            y: Targets: as `check_targets` returns them, or strings; None where the task has none.
            sample_weight: Weight of each row, `(batch,)`, or None.
            seed: See `collate`.
        """
        weights = checked_weights(sample_weight)
        inputs, labels, weights = self.collate(self.training_tokens(x), self.targets(y), weights, seed)
        return checked_lengths(inputs, self.sequence_length), labels, weights

    def lengths(self, x: Any) -> Any:
        """Returns the number of tokens of each row of checked inputs before truncation; a graph function."""
        return self.token_counts(self.tokens(x))

    @signature_of(RowReader.rows)
    def rows(self, x: Any, name: str) -> Examples:
        return RowReader(self).rows(x, name)

    @signature_of(RowReader.examples)
    def examples(self, *arguments: Any, **options: Any) -> Examples:
        return RowReader(self).examples(*arguments, **options)

    @signature_of(RowReader.check_fits)
    def check_fits(self, *arguments: Any, **options: Any) -> None:
        RowReader(self).check_fits(*arguments, **options)

    def for_backbone(self, config: Any) -> Self:
        """Returns the preprocessor with missing options set from the configuration of a backbone.

        Args:
            config: The configuration of the backbone.

        Raises:
            ValueError: If the texts do not fit the backbone.
        """
        if self.tokenizer is not None and self.tokenizer.vocabulary_size > config.vocabulary_size:
            raise ValueError(
                f"backbone.vocabulary_size must be at least {self.tokenizer.vocabulary_size}, the number of tokens in "
                f"{self.tokenizer.source or 'the tokenizer'}, got {config.vocabulary_size}."
            )
        length = config.max_length if self.sequence_length is None else self.sequence_length
        return self.replace(sequence_length=require_count(length, "sequence_length", 1, config.max_length))

    def replace(self, **options: Any) -> Self:
        """Returns a preprocessor with the same tokenizer.

        Args:
            **options: Arguments of the constructor in place of its own.
        """
        return type(self)(self.tokenizer, **{**self.options(), **options})

    def special_tokens(self) -> dict[str, int | None]:
        """Returns the ids of the tokens that are added around a text, None for none."""
        tokenizer = self.require_tokenizer("Text input")
        return {
            "start_id": None if tokenizer.adds_start is False else tokenizer.start_id,
            "end_id": None if tokenizer.adds_end is False else tokenizer.end_id,
        }

    @property
    def pad_id(self) -> int:
        """The id that fills rows: that of the padding token, or else any id, which the masks hide."""
        pad_id = None if self.tokenizer is None else self.tokenizer.pad_id
        return 0 if pad_id is None else pad_id

    def require_tokenizer(self, what: str) -> Any:
        """Returns the tokenizer.

        Args:
            what: What needs it, for the error.

        Raises:
            ValueError: If there is none.
        """
        if self.tokenizer is None:
            raise ValueError(
                f"{what} needs a tokenizer: {self.task_name}(backbone, tokenizer), or "
                f"{self.task_name}.from_preset(..., tokenizer=...) where the files have none."
            )
        return self.tokenizer

    @property
    def task_name(self) -> str:
        """The task that it is for, for errors."""
        return type(self).__name__.removesuffix("Preprocessor")

    @classmethod
    def from_preset(cls, preset: str | os.PathLike[str], *, tokenizer: Any = "auto", **options: Any) -> Self:
        """Returns the preprocessor of a saved task, without reading weights.

        Args:
            preset: See `Task.from_preset`.
            tokenizer: The tokenizer to use in place of that of the files, which is "auto".
            **options: Arguments that replace those of the files.

        Raises:
            ValueError: If there is no such model, or it cannot be used for a task with this preprocessor.

        Example:

        >>> TextClassifierPreprocessor.from_preset("path/to/model")(["a fine film"])["token_ids"].shape
        (1, 8)
        """
        if cls.task_class is None:
            raise ValueError(f"from_preset() needs the preprocessor of a task, got {cls.__name__}.")
        reader, source = find_reader(preset, weights=False)
        preprocessor = reader.load_preprocessor(cls.task_class, source, tokenizer, options)
        if not isinstance(preprocessor, cls):
            raise ValueError(f"{os.fspath(preset)} has a {type(preprocessor).__name__}, not a {cls.__name__}.")
        return preprocessor

    def get_config(self) -> dict[str, Any]:
        """Returns the configuration for `from_config`, tokenizer included."""
        tokenizer = None if self.tokenizer is None else keras.saving.serialize_keras_object(self.tokenizer)
        return {"tokenizer": tokenizer, **self.options()}


def _is_symbolic(x: Any) -> bool:
    """Whether something is made of tensors of a graph, as functions of `tf.data` are given."""
    import tensorflow as tf

    parts = x if isinstance(x, tuple) else (x,)
    parts = [part.flat_values if isinstance(part, tf.RaggedTensor) else part for part in parts]
    return any(tf.is_symbolic_tensor(part) for part in parts)
