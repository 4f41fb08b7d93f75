"""What is answered where a request cannot be: a status, a reason in plain words, and when to come again."""

from __future__ import annotations

from zoo.serving.served_models import NoSuchModelError, NotReadyError
from zoo.serving.worker_client import WorkerError

# Seconds after which it is worth to come again.
RETRY_SECONDS = 1
_STATUS = {"invalid": 422, "busy": 429, "late": 504, "failed": 500, "gone": 503}


class Problem(Exception):
    """A request that is refused.

    Args:
        status: Status of HTTP.
        reason: What was wrong, in words that show nothing of other requests, files or code.
        closes: Whether the connection is closed behind the answer.
    """

    def __init__(self, status: int, reason: str, closes: bool = False) -> None:
        super().__init__(reason)
        self.status, self.reason, self.closes = status, reason, closes

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the answer."""
        if self.status == 401:
            return {"WWW-Authenticate": "Bearer"}
        closing = {"Connection": "close"} if self.closes else {}
        return {"Retry-After": str(RETRY_SECONDS), **closing} if self.status in (429, 503) else closing


def problem_of(error: Exception) -> Problem:
    """Returns how an error is answered; of those that are not foreseen nothing is told."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, NoSuchModelError):
        return Problem(404, str(error.args[0]))
    if isinstance(error, NotReadyError):
        return Problem(503, str(error))
    if isinstance(error, WorkerError):
        return Problem(_STATUS[error.kind], str(error))
    return Problem(500, "The server could not answer.")
