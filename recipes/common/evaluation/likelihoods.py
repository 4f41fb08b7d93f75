"""Evaluations by likelihood: of running text, of hidden tokens, of the replies of conversations."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import zoo
from recipes.common import batching
from recipes.common.data.chat_data import short_conversations
from recipes.common.data.chat_files import Conversation
from recipes.common.errors import BadLines, ConfigError, errors_of
from recipes.common.evaluation.evaluation import Evaluation, mean_of
from recipes.common.evaluation.text_metrics import bits_per_character, exact_match, perplexity

# numbers of the logits of a batch
_MOST_LOGITS = 1 << 26
_LONGEST_WINDOW = 1024
# characters of the pieces of a text, and how many pieces there are at least where it is not too short
_SHORTEST_PIECE, _LONGEST_PIECE, _PIECES = 32, 500, 100


def evaluate_language_model(
    task: zoo.CausalLM, documents: list[str], *, length: int | None = None, packed: bool = False
) -> Evaluation:
    """Returns the perplexity of a language model on text that it reads in windows, and its bits per character.

    The rows are pieces of the text, the same ones whatever the tokens of a model; a token belongs to the piece in which
    it begins. So bits per character are tested between models of different tokenizers.

    Args:
        task: The model.
        documents: The text.
        length: Tokens of a window; None for as many as the model takes, 1024 at most.
        packed: Whether documents do not see each other, see `PackedDocuments`.

    Raises:
        ConfigError: If the model takes fewer tokens.
    """
    most = task.backbone.config.max_length
    if length is not None and length > most:
        raise ConfigError(f"length must be at most the model's max_length={most}, got {length}")
    length = length or min(most, _LONGEST_WINDOW)
    options = {"length": length, "batch_size": batch_size_of(task, length)}
    ids, starts, _ = task.tokenizer.tokenize_with_offsets(documents)
    batches: Any
    if packed:
        batches = batching.PackedDocuments(task, documents, **options)
    else:
        batches = batching.TokenWindows(ids.values.numpy(), **options)
    batches.start_epoch(0)
    labels, nlls = (np.concatenate(parts) for parts in zip(*_token_nlls(task, batches.dataset), strict=True))
    pieces = cut_into_pieces(documents)
    # of documents that are packed the start token is fed, and the end token is predicted
    places = [
        _places(row, of_document, task if packed else None) for row, of_document in zip(starts, pieces, strict=True)
    ]
    first = np.cumsum([0, *map(len, pieces)])
    piece_of_token = np.concatenate([row + begin for row, begin in zip(places, first[:-1], strict=True)])
    if not packed:
        piece_of_token = piece_of_token[1:]  # the first token of all is not predicted
    texts = [piece for of_document in pieces for piece in of_document]
    sums, tokens = (np.bincount(piece_of_token, weights, len(texts)).tolist() for weights in (nlls, np.ones(len(nlls))))
    return _evaluation(
        [{"text": text} for text in texts],
        sums,
        tokens,
        "token",
        guessed=labels,
        characters=list(map(len, texts)),
        lost=int(task.tokenizer.lost_characters(documents).sum()),
        counts={"window": length},
    )


def cut_into_pieces(documents: Sequence[str]) -> list[list[str]]:
    """Returns pieces of documents of 500 characters and the rest of a word, shorter ones of a short text.

    Args:
        documents: The documents.

    Example:

    >>> [len(pieces) for pieces in cut_into_pieces(["a " * 8000, "b"])]
    [32, 1]
    """
    size = max(_SHORTEST_PIECE, min(_LONGEST_PIECE, sum(map(len, documents)) // _PIECES))
    pieces = re.compile(rf".{{1,{size}}}\S{{0,32}}", re.DOTALL)
    return [pieces.findall(document) for document in documents]


def _places(starts: Any, pieces: Sequence[str], packs: Any) -> np.ndarray:
    """The piece of each token of a document, told by the character at which it begins."""
    ends = np.cumsum(list(map(len, pieces)))
    places = np.minimum(np.searchsorted(ends, starts.numpy(), side="right"), len(pieces) - 1)
    if packs is None:
        return places
    places = places if packs.preprocessor.adds_start_token else places[1:]
    return places if packs.tokenizer.end_id is None else np.append(places, len(pieces) - 1)


def batch_size_of(task: Any, length: int) -> int:
    """Returns how many rows are fed at once, such that their logits fit.

    Args:
        task: The model.
        length: Tokens of a row.
    """
    return max(1, min(32, _MOST_LOGITS // (length * task.backbone.config.vocabulary_size)))


def _token_nlls(task: Any, batches: Any) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Labels of batches, and their negative log-likelihoods."""
    for batch in batches:
        inputs, labels, weights = tf.nest.map_structure(lambda leaf: leaf.numpy(), batch)
        mask = weights > 0
        some = mask.any(axis=1)  # the last batch is filled up
        inputs, labels, mask = tf.nest.map_structure(lambda leaf, some=some: leaf[some], (inputs, labels, mask))
        with errors_of("data"):
            logits = task.predict_on_batch(inputs)
        log_probabilities = keras.ops.convert_to_numpy(
            zoo.generation.score(logits, labels, mask)["token_log_probabilities"]
        )
        yield labels[mask], -log_probabilities[mask].astype("float64")


def _evaluation(
    rows: list[dict[str, Any]],
    sums: Sequence[float],
    tokens: Sequence[float],
    unit: str,
    *,
    guessed: Any,
    counts: dict[str, Any],
    characters: Sequence[int] | None = None,
    lost: int = 0,
) -> Evaluation:
    """Negative log-likelihoods of rows, by token and, where characters are counted, in bits by character."""
    outputs = [{"tokens": int(count), "nll": round(total, 4)} for total, count in zip(sums, tokens, strict=True)]
    metrics = {f"nll_per_{unit}": mean_of(sums, tokens)}
    others: dict[str, Any] = {"perplexity": perplexity(metrics[f"nll_per_{unit}"].value)}
    if characters is not None:
        metrics[bits_per_character(lost)] = mean_of(np.asarray(sums) / math.log(2), characters)
    if lost:
        others["lost_characters"] = lost
    tells = hashlib.sha256(np.asarray(guessed, "int64").tobytes()).hexdigest()[:16]
    counts = {**counts, f"{unit}s": int(sum(tokens))}
    return Evaluation(rows, outputs, counts, metrics, others, {f"nll_per_{unit}": tells})


def evaluate_masked_lm(task: zoo.MaskedLM, texts: list[str]) -> Evaluation:
    """Returns likelihood and accuracy of hidden tokens, always the same ones of the same texts.

    Args:
        task: The model, which says how many are hidden.
        texts: The texts.
    """
    sums, tokens, hits, guessed = [], [], [], []
    batch_size = batch_size_of(task, task.preprocessor.sequence_length)
    for start in range(0, len(texts), batch_size):
        some = texts[start : start + batch_size]
        with errors_of("data"):
            batch = task.preprocessor.training_batch(tf.constant(some), seed=zoo.preprocessing.EVALUATION_SEED)
            inputs, labels, weights = tf.nest.map_structure(lambda leaf: leaf.numpy(), batch)
            logits = task.predict_on_batch(inputs)
        weights = weights > 0
        sums += (
            -keras.ops.convert_to_numpy(zoo.generation.score(logits, labels, weights)["log_probabilities"])
        ).tolist()
        hits += ((np.asarray(logits).argmax(axis=-1) == labels) & weights).sum(axis=1).tolist()
        tokens += weights.sum(axis=1).tolist()
        guessed.append(labels[weights])
    evaluation = _evaluation(
        [{"text": text} for text in texts],
        sums,
        tokens,
        "hidden_token",
        guessed=np.concatenate(guessed),
        counts={"texts": len(texts)},
    )
    (tells,) = evaluation.guessed.values()
    return dataclasses.replace(
        evaluation,
        metrics={**evaluation.metrics, "token_accuracy": mean_of(hits, tokens)},
        guessed={**evaluation.guessed, "token_accuracy": tells},
    )


def evaluate_replaced_tokens(task: zoo.ReplacedTokenDetector, texts: list[str]) -> Evaluation:
    """Returns what the task's own `evaluate` does; there are no scores of single texts.

    Args:
        task: The model.
        texts: The texts.
    """
    with errors_of("data"):
        logs = task.evaluate(texts, return_dict=True, verbose=0)
    scores = {name: round(float(value), 4) for name, value in logs.items()}
    rows = [{"text": text} for text in texts]
    return Evaluation(rows, [None] * len(texts), {"texts": len(texts)}, others=scores)


def evaluate_replies(
    task: zoo.CausalLM,
    conversations: Sequence[Conversation],
    max_length: int | None = None,
    *,
    loss_on: str = "replies",
    generates: bool = True,
    **options: Any,
) -> Evaluation:
    """Returns exact match and likelihood of the replies of a chat model; what ends a reply is part of it.

    Args:
        task: The model.
        conversations: The conversations, whose last messages are the right replies.
        max_length: Most tokens of a conversation; None for as many as the model takes. Longer ones are left out.
        loss_on: Tokens whose likelihood is measured: "replies" or "all".
        generates: Whether the model replies too, to the last message but one; else outputs are likelihoods.
        **options: Arguments of `generate`.
    """
    longest, dropped = max_length or task.backbone.config.max_length, BadLines("skip")
    preprocessor = task.preprocessor.replace(sequence_length=longest, loss_on=loss_on)
    kept = short_conversations(conversations, preprocessor, longest, dropped)
    examples = preprocessor.examples([talk.messages for talk in kept])
    tokens, guessed = np.zeros(len(kept)), {}

    def batch_of(places: np.ndarray) -> tuple[Any, Any, Any]:
        some = examples.take(places)
        inputs, labels, weights = preprocessor.collate(some.tokens, some.targets, None)
        is_learned = weights.numpy() > 0
        tokens[places] = is_learned.sum(axis=1)
        for place, row, mask in zip(places.tolist(), labels.numpy(), is_learned, strict=True):
            guessed[place] = row[mask]
        return inputs, labels, weights

    size = batch_size_of(task, int(max(examples.lengths)))
    sums = (-zoo.generation.TextScorer(task).rows(examples.lengths, batch_of, size)).tolist()
    asked = [talk.messages[:-1] for talk in kept]
    replies = [talk.messages[-1]["content"].strip() for talk in kept]
    learned = [[each["content"] for each in talk.messages if each["role"] == "assistant"] for talk in kept]
    is_of_replies = loss_on == "replies"
    evaluation = _evaluation(
        [{"messages": before, "reference": reply} for before, reply in zip(asked, replies, strict=True)],
        sums,
        tokens.tolist(),
        "reply_token" if is_of_replies else "token",
        guessed=np.concatenate([guessed[place] for place in range(len(kept))]),
        counts={"conversations": len(kept), "too_long": dropped.total},
        characters=[sum(map(len, contents)) for contents in learned] if is_of_replies else None,
        lost=int(task.tokenizer.lost_characters([text for texts in learned for text in texts]).sum()),
    )
    if not generates:
        return evaluation
    with errors_of("options"):
        outputs = [answer.strip() for answer in task.generate(asked, **options)]
    metrics = {"exact_match": exact_match(outputs, replies), **evaluation.metrics}
    return dataclasses.replace(evaluation, outputs=outputs, metrics=metrics)
