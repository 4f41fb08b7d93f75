"""Keys of models that read long texts in windows."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

import zoo
from recipes.common.config import setting
from recipes.common.training.encoder_recipe import EncoderModelConfig, print_cut


@dataclasses.dataclass(frozen=True)
class WindowedModelConfig(EncoderModelConfig):
    """The model: a new one by preset and options, or a saved one by start_from, and which of its weights train."""

    sequence_length: int | None = setting(
        None, "Largest number of tokens of a text, or of a window. null: as many as the model takes.", least=1
    )
    stride: int | None = setting(
        None,
        "Number of tokens that neighbouring windows of a long text share, at most half of a window. "
        "null: long texts are cut.",
        least=0,
    )


def length_options(model: WindowedModelConfig) -> dict[str, Any]:
    """Returns the arguments of a task that say what becomes of long texts.

    Args:
        model: The configuration.
    """
    lengths = {} if model.sequence_length is None else {"sequence_length": model.sequence_length}
    return {**lengths, "stride": model.stride, "truncate": model.stride is None}


def count_cut(name: str, preprocessor: Any, texts: Any, what: str = "examples") -> int:
    """Returns how many texts, or pairs, of data that the model is to label are cut, and says so.

    Args:
        name: The part of the data.
        preprocessor: The preprocessor of the task.
        texts: What its `predict` takes.
        what: What each of them is.
    """
    if not preprocessor.truncate:
        return 0
    lengths = preprocessor.lengths(preprocessor.check_rows(texts, name)).numpy()
    count = int(np.count_nonzero(lengths > preprocessor.sequence_length))
    print_cut(name, count, len(lengths), what, preprocessor)
    return count


def count_cut_sources(name: str, task: zoo.Seq2SeqLM, sources: Sequence[str]) -> int:
    """Returns how many sources an encoder-decoder cuts as it generates with `truncate=True`, and says so.

    Args:
        name: The part of the data.
        task: The model.
        sources: The sources.
    """
    return count_cut(name, task.preprocessor.replace(truncate=True), list(sources), "sources")


def count_cut_questions(
    name: str, preprocessor: zoo.preprocessing.QuestionAnswererPreprocessor, questions: Sequence[str]
) -> int:
    """Returns how many questions are cut, and says so: contexts are read in windows, questions are not.

    Args:
        name: The part of the data.
        preprocessor: The preprocessor of the task.
        questions: The questions.
    """
    longest = preprocessor.longest_question
    if longest is None or not preprocessor.truncate:
        return 0
    lengths = preprocessor.tokenizer.tokenize(list(questions)).row_lengths().numpy()
    count = int(np.count_nonzero(lengths > longest))
    if count:
        print(f"{name}: {count} of {len(lengths)} questions ({count / len(lengths):.1%}) are cut at {longest} tokens")
    return count


def count_unseen_words(name: str, preprocessor: zoo.preprocessing.TokenClassifierPreprocessor, inputs: Any) -> int:
    """Returns how many words a model does not see, and says so, see `seen_words`.

    Args:
        name: The part of the data.
        preprocessor: The preprocessor of the task.
        inputs: Texts, or lists of words.
    """
    seen = seen_words(preprocessor, inputs)
    count = int(np.count_nonzero(~seen))
    print_cut(name, count, len(seen), "words", preprocessor)
    return count


def seen_words(preprocessor: zoo.preprocessing.TokenClassifierPreprocessor, inputs: Any) -> np.ndarray:
    """Returns whether the model sees each word of all texts, one text after the other, `(words,)`.

    It does not see words that are cut off, nor those of which no token is made (control characters).

    Args:
        preprocessor: The preprocessor of the task.
        inputs: Texts, or lists of words.
    """
    rows = preprocessor.rows(inputs, "inputs")
    counts = rows.tokens["first"].row_lengths().numpy()

    def seen(numbers: np.ndarray) -> list[np.ndarray]:
        places = preprocessor.inputs(rows.take(numbers).tokens)["word_positions"].numpy()
        return [row[:count] >= 0 for row, count in zip(places, counts[numbers], strict=True)]

    # windows of a text follow each other, each with words of its own
    return np.concatenate(zoo.preprocessing.map_by_length(seen, rows.lengths, 256))
