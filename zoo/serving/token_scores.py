"""How probable the tokens of a text are, as answers of completions and of chats say it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

# What is said of a token that the model never writes.
LEAST = -9999.0
# What a worker says of a token: its number, what it adds to the text, its log-probability (None before the first token
# of a text, of which none is known), and the same of the most probable ones of its place.
TokenScore = dict[str, Any]


def score_of(
    token_id: int, log_probability: float | None, best: Sequence[tuple[int, float]], spellings: Sequence[bytes]
) -> TokenScore:
    """Returns what a worker says of a token.

    Args:
        token_id: Its number.
        log_probability: Its log-probability.
        best: Numbers and log-probabilities of the most probable tokens of its place.
        spellings: What each token of the model adds to a text.
    """
    return {
        "id": token_id,
        "bytes": spellings[token_id],
        "log_probability": _said(log_probability),
        "best": [{"id": each, "bytes": spellings[each], "log_probability": _said(value)} for each, value in best],
    }


def _said(log_probability: float | None) -> float | None:
    """A log-probability as JSON can have it, which has no infinity."""
    if log_probability is None or math.isnan(log_probability):
        return None
    return max(log_probability, LEAST)


def scores_of(piece: dict[str, Any]) -> list[TokenScore]:
    """Returns the tokens of a piece of a text, with those of the prompt before it.

    Args:
        piece: An answer of a worker.
    """
    before = [dict(score) for score in piece.get("scores_before", ())]
    # where tokens begin with spaces, texts do not: the first token has fewer bytes
    missing = sum(len(score["bytes"]) for score in before) - len(piece.get("before", "").encode())
    for score in before:
        start = score["bytes"][: max(missing, 0)]
        if start.isspace():
            left = score["bytes"][len(start) :]
            # it is the same token among the most probable ones
            score["best"] = [{**e, "bytes": left} if e["id"] == score["id"] else e for e in score["best"]]
            score["bytes"] = left
            missing -= len(start)
        elif score["bytes"]:
            break
    return [*before, *piece.get("scores", ())]


def as_content(scores: Sequence[TokenScore], best: int) -> dict[str, Any]:
    """Returns the field `logprobs` of a chat's answer.

    Args:
        scores: The tokens of the answer.
        best: Number of most probable tokens that were asked for.

    Reference:
        https://platform.openai.com/docs/api-reference/chat/object, "logprobs"
    """

    def described(score: TokenScore) -> dict[str, Any]:
        spelled = list(score["bytes"]) or None
        return {"token": name_of(score), "logprob": score["log_probability"], "bytes": spelled}

    content = [
        {**described(score), "top_logprobs": [described(each) for each in score["best"][:best]]} for score in scores
    ]
    return {"content": content, "refusal": None}


def as_lists(scores: Sequence[TokenScore], best: int, before: bytes = b"") -> dict[str, Any]:
    """Returns the field `logprobs` of a completion.

    The most probable tokens of a place are told with the token that the text has, which may be none of them.

    Args:
        scores: The tokens of the text.
        best: Number of most probable tokens that were asked for.
        before: What of the text stands before these tokens.

    Reference:
        https://platform.openai.com/docs/api-reference/completions/object, "logprobs"
    """
    offsets, text = [], before
    for score in scores:
        # within a character: where it begins
        offsets.append(len(text.decode("utf-8", "ignore")))
        text += score["bytes"]
    return {
        "tokens": [name_of(score) for score in scores],
        "token_logprobs": [score["log_probability"] for score in scores],
        "top_logprobs": [_best(score, best) for score in scores],
        "text_offset": offsets,
    }


def _best(score: TokenScore, best: int) -> dict[str, float] | None:
    if score["log_probability"] is None:
        return None
    # of tokens of one name the most probable one counts, and comes first
    told: dict[str, float] = {}
    for each in [*score["best"][:best], score]:
        told.setdefault(name_of(each), each["log_probability"])
    return told


def name_of(score: TokenScore) -> str:
    r"""Returns the text of a token; parts of characters as bytes, and tokens without a text by their numbers.

    Example:

    >>> name_of({"id": 7, "bytes": b"\xe4\xbd"})
    'bytes:\\xe4\\xbd'
    """
    if not score["bytes"]:
        return f"token_id:{score['id']}"
    try:
        return score["bytes"].decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in score["bytes"])
