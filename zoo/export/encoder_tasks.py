"""SavedModels of the tasks on one stack: classifiers, taggers, embedders, masked language models."""

import os
from typing import Any

from zoo.export.saved_model import Endpoint, require_tensorflow, save_endpoints
from zoo.preprocessing import split_words
from zoo.preprocessing.rows import require_count


def export_text_classifier(task: Any, directory: str | os.PathLike) -> None:
    """Writes a `TextClassifier` as a SavedModel.

    A process that imports only `tensorflow` and `tensorflow_text` loads it with `tf.saved_model.load(directory)` and
    has `serve(texts)`, or `serve(first_texts, second_texts)` for pairs: string tensors `(batch,)` to a dictionary of
    "probabilities" `(batch, labels)` and "label" `(batch,)` strings. For several labels there is "has_label" `(batch,
    labels)` (probability at least 0.5) in place of "label"; a regression has "values" `(batch, labels)` alone.
    `label_names()` gives the labels, strings `(labels,)`. Both are signatures too; `serve` is also "serving_default".
    A text longer than the model is an `InvalidArgumentError`, unless the task truncates.

    Args:
        task: The `TextClassifier`, with a tokenizer.
        directory: Where to; replaced if it holds a SavedModel.

    Raises:
        ValueError: If the backend is not TensorFlow, or the task has no tokenizer.
        FileExistsError: If the directory exists and holds no SavedModel.
    """
    tf = require_tensorflow()
    task.preprocessor.require_tokenizer("export()")
    names = task.labels.strings

    def serve(*texts: Any) -> dict[str, Any]:
        inputs = task.preprocessor.inference_batch(texts if task.preprocessor.pairs else texts[0])
        values = task.probabilities(task(inputs, training=False))
        if task.preprocessor.problem == "regression":
            return {"values": values}
        if task.preprocessor.problem == "multi_label":
            return {"probabilities": values, "has_label": values >= 0.5}
        return {"probabilities": values, "label": tf.gather(tf.constant(names), tf.argmax(values, axis=-1))}

    arguments = ("first_texts", "second_texts") if task.preprocessor.pairs else ("texts",)
    save_endpoints(
        task,
        directory,
        {
            "serve": Endpoint(serve, tuple((name, (None,), "string") for name in arguments)),
            "label_names": Endpoint(lambda: tf.constant(names), (), "label_names"),
        },
    )


def export_token_classifier(task: Any, directory: str | os.PathLike) -> None:
    """Writes a `TokenClassifier` as a SavedModel.

    A process that imports only `tensorflow` and `tensorflow_text` has, for any batch size:

    * `serve(texts)`: string tensor `(batch,)`, split into words as the task does it, to a dictionary of "words" and
      "tags", strings `(batch, words)`, "probabilities" `(batch, words, labels)`, and "starts" and "ends", the place of
      each word in the bytes of its text, int64 `(batch, words)`. Behind the last word of a text stand "", "", 0 and 0.
    * `tag_words(words, counts)`: words `(batch, words)` and their number in each row, int32 `(batch,)`, to the same
      without places.
    * `label_names()`: the labels in the order of the probabilities, strings `(labels,)`.

    Each is a signature too; `serve` is also "serving_default". A text longer than the model is an
    `InvalidArgumentError`, unless the task truncates.

    Args:
        task: The `TokenClassifier`, with a tokenizer.
        directory: Where to; replaced if it holds a SavedModel.

    Raises:
        ValueError: If the backend is not TensorFlow, or the task has no tokenizer.
        FileExistsError: If the directory exists and holds no SavedModel.
    """
    tf = require_tensorflow()
    task.preprocessor.require_tokenizer("export()")
    names = task.labels.strings

    def tag(words: Any) -> dict[str, Any]:
        inputs = task.preprocessor.inference_batch(words)
        values = task.probabilities(task(inputs, training=False), inputs["word_positions"])
        tags = tf.gather(tf.constant(names), tf.argmax(values, axis=-1))
        width = tf.shape(values)[1]
        is_word = tf.sequence_mask(words.row_lengths(), width)
        return {
            "words": words.to_tensor("", shape=tf.stack([-1, width])),
            "tags": tf.where(is_word, tags, ""),
            "probabilities": values * tf.cast(is_word, values.dtype)[:, :, tf.newaxis],
        }

    def serve(texts: Any) -> dict[str, Any]:
        words, starts, ends = split_words(texts, task.preprocessor.split)
        outputs = tag(words)
        shape = tf.shape(outputs["words"])
        return {**outputs, "starts": starts.to_tensor(0, shape=shape), "ends": ends.to_tensor(0, shape=shape)}

    def tag_words(words: Any, counts: Any) -> dict[str, Any]:
        return tag(tf.RaggedTensor.from_tensor(words, lengths=tf.cast(counts, tf.int64)))

    save_endpoints(
        task,
        directory,
        {
            "serve": Endpoint(serve, (("texts", (None,), "string"),)),
            "tag_words": Endpoint(tag_words, (("words", (None, None), "string"), ("counts", (None,), "int32"))),
            "label_names": Endpoint(lambda: tf.constant(names), (), "label_names"),
        },
    )


def export_text_embedder(task: Any, directory: str | os.PathLike) -> None:
    """Writes a `TextEmbedder` as a SavedModel.

    A process that imports only `tensorflow` and `tensorflow_text` has `serve(texts)`: string tensor `(batch,)` to
    vectors `(batch, hidden_dim)`; as a signature with the output "embeddings", also as "serving_default". A text longer
    than the model is an `InvalidArgumentError`, unless the task truncates.

    Args:
        task: The `TextEmbedder`, with a tokenizer.
        directory: Where to; replaced if it holds a SavedModel.

    Raises:
        ValueError: If the backend is not TensorFlow, or the task has no tokenizer.
        FileExistsError: If the directory exists and holds no SavedModel.
    """
    require_tensorflow()
    task.preprocessor.require_tokenizer("export()")

    def serve(texts: Any) -> Any:
        return task(task.preprocessor.inference_batch(texts), training=False)

    save_endpoints(task, directory, {"serve": Endpoint(serve, (("texts", (None,), "string"),), "embeddings")})


def export_masked_lm(task: Any, directory: str | os.PathLike, *, top_k: int = 5) -> None:
    """Writes a `MaskedLM` as a SavedModel.

    A process that imports only `tensorflow` and `tensorflow_text` has `serve(texts)`: string tensor `(batch,)` of texts
    in which the mask token is spelled out, to a dictionary of "tokens", strings, and "probabilities", both `(batch,
    masks, top_k)`, the likeliest first. A text with fewer masks than others has "" and 0 behind them. It is a signature
    too, also as "serving_default". A text longer than the model is an `InvalidArgumentError`, unless the task
    truncates.

    Args:
        task: The `MaskedLM`, with a tokenizer.
        directory: Where to; replaced if it holds a SavedModel.
        top_k: Number of tokens for each mask.

    Raises:
        ValueError: If the backend is not TensorFlow, the task has no tokenizer, or `top_k` is out of range.
        FileExistsError: If the directory exists and holds no SavedModel.
    """
    tf = require_tensorflow()
    tokenizer = task.preprocessor.require_tokenizer("export()")
    require_count(top_k, "top_k", 1, task.backbone.config.vocabulary_size)
    padding = task.backbone.config.vocabulary_size - tokenizer.vocabulary_size
    vocabulary = [*tokenizer.get_vocabulary(), *[""] * padding]

    def serve(texts: Any) -> dict[str, Any]:
        inputs = task.preprocessor.inference_batch(texts)
        token_ids, probabilities = task.best_tokens(task(inputs, training=False), top_k)
        is_mask = inputs["mask_positions"][:, :, tf.newaxis] >= 0
        return {
            "tokens": tf.where(is_mask, tf.gather(tf.constant(vocabulary), token_ids), ""),
            "probabilities": tf.where(is_mask, probabilities, 0.0),
        }

    save_endpoints(task, directory, {"serve": Endpoint(serve, (("texts", (None,), "string"),))})
