"""Texts that a model reads as a whole, which may come as tokens, and the number of tokens that it has read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from starlette.requests import Request

from zoo.serving.disconnects import all_or_none, unless_gone
from zoo.serving.problems import Problem
from zoo.serving.row_arrays import padded
from zoo.serving.server_state import ServerState
from zoo.serving.worker_client import WorkerClient


async def read_texts(
    request: Request, worker: WorkerClient, endpoint: str, inputs: Mapping[str, Any]
) -> tuple[dict[str, np.ndarray], int]:
    """Returns the outputs of an endpoint for texts, and the number of tokens that the model has read.

    Earlier exports do not tell it: it is 0.

    Args:
        request: The request; what is asked ends with its client.
        worker: The model.
        endpoint: One of those whose names begin with `serve`.
        inputs: The texts, by the names of its inputs.
    """
    state: ServerState = request.app.state.server
    counting = "tokens" + endpoint.removeprefix("serve")
    endpoints = [endpoint, *([counting] if counting in worker.about["endpoints"] else [])]
    client = state.client_of(request)
    asked = (worker.call(name, dict(inputs), state.limits.seconds, client) for name in endpoints)
    outputs, *counted = await unless_gone(request, all_or_none(asked))
    return outputs, sum(int(each["lengths"].sum()) for each in counted)


async def read_tokens(
    request: Request, worker: WorkerClient, rows: Sequence[Sequence[int]]
) -> tuple[dict[str, np.ndarray], int]:
    """Returns the vectors of texts that come as token ids, and the number of tokens that the model has read.

    The special tokens of the model may stand around the ids, or not.

    Args:
        request, worker: As for `read_texts`.
        rows: The ids of each text.

    Raises:
        Problem: If the export takes no token ids, or the model has no such tokens.
    """
    state: ServerState = request.app.state.server
    described = worker.about["endpoints"].get("embed_tokens")
    if described is None:
        raise Problem(422, "input must be a text or a list of texts: this model takes no token ids.")
    facts = described["properties"]
    require_known(worker, [token for row in rows for token in row])
    bare = [without_special(row, facts) for row in rows]
    call = worker.call("embed_tokens", {"token_ids": padded(bare)}, state.limits.seconds, state.client_of(request))
    outputs = await unless_gone(request, call)
    added = sum(facts[name] is not None for name in ("start_id", "end_id"))
    return outputs, sum(min(len(row) + added, facts["max_length"]) for row in bare)


def without_special(token_ids: Sequence[int], facts: Mapping[str, Any]) -> list[int]:
    """Returns the ids of a text without the tokens that stand around each.

    Args:
        token_ids: The ids.
        facts: The properties of the endpoint `tokens` or `embed_tokens`.
    """
    start, end = facts["start_id"], facts["end_id"]
    ids = list(token_ids)
    ids = ids[1:] if start is not None and ids[:1] == [start] else ids
    return ids[:-1] if end is not None and ids[-1:] == [end] else ids


def require_known(worker: WorkerClient, token_ids: Sequence[int]) -> None:
    """Raises a `Problem` if the model has no token of a number: it would end all texts of its batch."""
    endpoints = worker.about["endpoints"]
    count = endpoints["advance" if "advance" in endpoints else "tokens"]["properties"]["vocabulary_size"]
    if max(token_ids, default=0) >= count:
        raise Problem(422, f"Tokens must be numbers from 0 to {count - 1} with this model.")
