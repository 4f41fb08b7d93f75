"""Rows of texts as the endpoints of exports take them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

# Settings of a request that are inputs of `advance` by the same name.
_SETTINGS = ("temperature", "top_k", "top_p", "min_p", "presence_penalty", "frequency_penalty", "min_tokens")
# Those that exports of earlier versions lack.
ROW_INPUTS = {*_SETTINGS, "written", "bias_ids", "biases", "allowed", "alternatives"}


def padded(rows: Sequence[Sequence[float]], fill: int = -1, dtype: str = "int32") -> np.ndarray:
    """Returns rows of numbers, such as token ids, as an array.

    Args:
        rows: At least one row.
        fill: What stands behind the numbers of a row.
        dtype: Type of the array.
    """
    array = np.full((len(rows), max(1, *map(len, rows))), fill, dtype)
    for row, numbers in enumerate(rows):
        array[row, : len(numbers)] = numbers
    return array


def row_inputs(writings: Sequence[Any], limits: Sequence[int], size: int) -> dict[str, Any]:
    """Returns the inputs of `advance` but for the steps and the state.

    Args:
        writings: The texts that are being written, each a `zoo.serving.writing.Writing`.
        limits: Most tokens of each.
        size: Number of rows; those behind the texts rest.
    """
    requests = [writing.request for writing in writings]
    tokens = [[*writing.request.prompt[-1:], *writing.tokens] for writing in writings]
    columns = {
        "token_ids": [row[-1] for row in tokens],
        "index": [len(request.prompt) + len(row) - 2 for request, row in zip(requests, tokens, strict=True)],
        "places": [len(row) - 1 for row in tokens],
        "limits": list(limits),
        "seeds": [request.seed for request in requests],
        "streams": [request.stream for request in requests],
        **{name: [getattr(request, name) for request in requests] for name in _SETTINGS},
    }
    resting: list[list[int]] = [[]] * (size - len(writings))
    # only penalties need to know what has been written
    written = [
        writing.tokens if writing.request.presence_penalty or writing.request.frequency_penalty else []
        for writing in writings
    ]
    biased = [request.logit_bias for request in requests]
    allowed = _allowed([writing.mask for writing in writings], size)
    alternatives = max((request.alternatives for request in requests if request.tells_tokens), default=0)
    return {
        **{name: values + [0] * len(resting) for name, values in columns.items()},
        "end_ids": padded([writing.end_ids for writing in writings] + resting),
        "written": padded(written + resting),
        "bias_ids": padded([list(biases) for biases in biased] + resting),
        "biases": padded([list(biases.values()) for biases in biased] + resting, fill=0, dtype="float32"),
        "allowed": allowed,
        "alternatives": alternatives,
    }


def most_probable_tokens(result: Mapping[str, Any]) -> list[list[list[tuple[int, float]]]]:
    """Returns the most probable tokens of each place of each row, with their log-probabilities.

    Args:
        result: Outputs of `advance` or `score_tokens`, with `alternative_ids` and `alternative_log_probabilities`.
    """
    ids, values = (np.asarray(result[f"alternative_{name}"]).tolist() for name in ("ids", "log_probabilities"))
    return [
        [[pair for pair in zip(*place, strict=True) if pair[0] >= 0] for place in zip(*row, strict=True)]
        for row in zip(ids, values, strict=True)
    ]


def _allowed(masks: Sequence[Any], size: int) -> np.ndarray:
    """The tokens that each row may go on with: no words where all may go on with all."""
    words = max((len(mask.allowed) for mask in masks if mask is not None), default=0)
    allowed = np.full((size, words), -1, "int32")
    for row, mask in enumerate(masks):
        if mask is not None:
            allowed[row] = mask.allowed
    return allowed
