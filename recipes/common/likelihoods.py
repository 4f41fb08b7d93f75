"""Evaluations by likelihood: of running text, of hidden tokens, of the replies of conversations."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from keras import ops

import zoo
from recipes.common.chat_data import short_enough
from recipes.common.chat_files import Conversation
from recipes.common.errors import BadLines, errors_of
from recipes.common.evaluations import Evaluation
from recipes.common.packed_documents import PackedDocuments
from recipes.common.significance import mean_of
from recipes.common.text_metrics import exact_match, perplexity
from recipes.common.token_windows import TokenWindows
from zoo.generation.score import TextScorer, score
from zoo.preprocessing import EVALUATION_SEED

# numbers of the logits of a batch
_MOST_LOGITS = 1 << 26
_LONGEST_WINDOW = 1024


def evaluate_language_model(
    task: zoo.CausalLM, documents: list[str], *, length: int | None = None, packed: bool = False
) -> Evaluation:
    """Returns the perplexity of a language model on rows of tokens that follow each other.

    Args:
        task: The model.
        documents: The text.
        length: Tokens of a row; None for as many as the model takes, 1024 at most.
        packed: Whether documents do not see each other, see `PackedDocuments`.
    """
    length = length or min(task.backbone.config.max_length, _LONGEST_WINDOW)
    options = {"length": length, "batch_size": _batch_size(task, length)}
    batches: Any
    if packed:
        batches = PackedDocuments(task, documents, **options)
    else:
        batches = TokenWindows(task.tokenizer.tokenize(documents).values.numpy(), **options)
    batches.start_epoch(0)
    scorer, rows, sums = TextScorer(task), [], []
    for inputs, labels, weights in batches.dataset:
        some = np.flatnonzero(weights.numpy().any(axis=1))
        sums += _likelihoods(scorer, inputs, labels, weights, some)
        rows += _token_rows(task, labels.numpy()[some], weights.numpy()[some])
    return _evaluation(rows, sums, "token", characters=sum(map(len, documents)), scores={"window": length})


def _batch_size(task: Any, length: int) -> int:
    return max(1, min(32, _MOST_LOGITS // (length * task.backbone.config.vocabulary_size)))


def _likelihoods(scorer: TextScorer, inputs: Any, labels: Any, weights: Any, rows: np.ndarray) -> list[float]:
    """Sums of the negative log-likelihoods of some rows of a batch."""

    def batch_of(places: np.ndarray) -> tuple[Any, Any, Any]:
        chosen = rows[places]
        return tf.nest.map_structure(lambda leaf: np.asarray(leaf)[chosen], (inputs, labels, weights))

    return (-scorer.rows([1] * len(rows), batch_of, len(rows))).tolist() if len(rows) else []


def _token_rows(task: Any, labels: np.ndarray, weights: np.ndarray) -> list[dict[str, Any]]:
    ids = [row[mask > 0].tolist() for row, mask in zip(labels, weights, strict=True)]
    texts = task.tokenizer.detokenize(tf.ragged.constant(ids, tf.int32)).numpy()
    return [
        {"text": text.decode("utf-8", "replace"), "tokens": len(row), "ids": _digest(row)}
        for text, row in zip(texts, ids, strict=True)
    ]


def _digest(ids: Sequence[int]) -> str:
    """Tells tokens from others: models are compared where they guess the same ones."""
    return hashlib.sha256(np.asarray(ids, "int64").tobytes()).hexdigest()[:16]


def _evaluation(
    rows: list[dict[str, Any]],
    sums: Sequence[float],
    unit: str,
    *,
    scores: dict[str, Any],
    characters: int | None = None,
) -> Evaluation:
    tokens = [row["tokens"] for row in rows]
    nll = sum(sums) / max(1, sum(tokens))
    outputs = [round(total / max(1, count), 4) for total, count in zip(sums, tokens, strict=True)]
    results = {
        **scores,
        f"{unit}s": sum(tokens),
        f"nll_per_{unit}": round(nll, 4),
        "perplexity": perplexity(nll),
    }
    if characters is not None:
        results["bits_per_character"] = round(sum(sums) / math.log(2) / max(1, characters), 4)
    return Evaluation(rows, outputs, results, {f"nll_per_{unit}": mean_of(sums, tokens)})


def evaluate_masked_lm(task: zoo.MaskedLM, texts: list[str], batch_size: int = 32) -> Evaluation:
    """Returns likelihood and accuracy of hidden tokens, always the same ones of the same texts.

    Args:
        task: The model, which says how many are hidden.
        texts: The texts.
        batch_size: Texts of a batch.
    """
    rows, sums, hits = [], [], []
    for start in range(0, len(texts), batch_size):
        some = texts[start : start + batch_size]
        with errors_of("data"):
            inputs, labels, weights = task.preprocessor.training_batch(tf.constant(some), seed=EVALUATION_SEED)
            logits = task.predict_on_batch(inputs)
        labels, weights = labels.numpy(), weights.numpy() > 0
        sums += (-ops.convert_to_numpy(score(logits, labels, weights)["log_probabilities"])).tolist()
        hits += ((np.asarray(logits).argmax(axis=-1) == labels) & weights).sum(axis=1).tolist()
        for text, ids, mask in zip(some, labels, weights, strict=True):
            rows.append({"text": text, "tokens": int(mask.sum()), "ids": _digest(ids[mask])})
    tokens = [row["tokens"] for row in rows]
    accuracy = {"texts": len(texts), "token_accuracy": round(sum(hits) / max(1, sum(tokens)), 4)}
    evaluation = _evaluation(rows, sums, "hidden_token", scores=accuracy)
    return Evaluation(
        evaluation.rows,
        evaluation.outputs,
        evaluation.scores,
        {**evaluation.measures, "token_accuracy": mean_of(hits, tokens)},
    )


def evaluate_replaced_tokens(task: zoo.ReplacedTokenDetector, texts: list[str]) -> Evaluation:
    """Returns what the task's own `evaluate` does; there are no scores of single texts.

    Args:
        task: The model.
        texts: The texts.
    """
    with errors_of("data"):
        logs = task.evaluate(texts, return_dict=True, verbose=0)
    scores = {"texts": len(texts), **{name: round(float(value), 4) for name, value in logs.items()}}
    return Evaluation([{"text": text} for text in texts], [None] * len(texts), scores)


def evaluate_replies(
    task: zoo.CausalLM, conversations: Sequence[Conversation], max_length: int | None = None, **options: Any
) -> Evaluation:
    """Returns exact match and likelihood of the replies of a chat model.

    Args:
        task: The model.
        conversations: The conversations, whose last messages are the right replies.
        max_length: Most tokens of a conversation; None for as many as the model takes. Longer ones are left out.
        **options: Arguments of `generate`.
    """
    longest, dropped = max_length or task.backbone.config.max_length, BadLines("skip")
    preprocessor = task.preprocessor.replace(sequence_length=longest, loss_on="replies")
    kept = short_enough(conversations, preprocessor, longest, dropped)
    examples = preprocessor.examples([talk.messages for talk in kept])
    tokens = np.zeros(len(kept))

    def batch_of(places: np.ndarray) -> tuple[Any, Any, Any]:
        some = examples.take(places)
        inputs, labels, weights = preprocessor.collate(some.tokens, some.targets, None)
        tokens[places] = weights.numpy().sum(axis=1)
        return inputs, labels, weights

    size = _batch_size(task, int(max(examples.lengths)))
    sums = (-TextScorer(task).rows(examples.lengths, batch_of, size)).tolist()
    asked = [talk.messages[:-1] for talk in kept]
    with errors_of("options"):
        outputs = [answer.strip() for answer in task.generate(asked, **options)]
    replies = [talk.messages[-1]["content"].strip() for talk in kept]
    nll = sum(sums) / max(1.0, tokens.sum())
    scores = {
        "conversations": len(kept),
        "too_long": dropped.total,
        "exact_match": round(exact_match(outputs, replies), 4),
        "nll_per_reply_token": round(nll, 4),
        "perplexity": perplexity(nll),
    }
    same = [output == reply for output, reply in zip(outputs, replies, strict=True)]
    measures = {"exact_match": mean_of(same), "nll_per_reply_token": mean_of(sums, tokens.tolist())}
    rows = [{"messages": before, "reference": reply} for before, reply in zip(asked, replies, strict=True)]
    return Evaluation(rows, outputs, scores, measures)
