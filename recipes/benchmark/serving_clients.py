"""The clients of the benchmark `serving`, as Locust runs them: they ask what a plan holds, and check each answer.

The plan and the file for what they found are named by the environment variables ZOO_SERVING_PLAN and ZOO_SERVING_FOUND.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import time
from pathlib import Path
from typing import Any

from locust import FastHttpUser, events, task
from locust.exception import StopUser

PLAN = json.loads(Path(os.environ["ZOO_SERVING_PLAN"]).read_text(encoding="utf-8"))
FIRST = "first byte"
_counts = {"wrong": 0, "tokens": 0}
_times = {"began": time.monotonic(), "ended": 0.0}


class Client(FastHttpUser):
    """Asks one text after the other, in an order of its own."""

    network_timeout = 600.0

    def on_start(self) -> None:
        """Begins."""
        self._random = random.Random(id(self))

    @task
    def ask(self) -> None:
        """Asks for a text."""
        number = self._random.randrange(len(PLAN["asked"]))
        body = PLAN["asked"][number]
        began = time.perf_counter()
        first, answer, failure = None, None, None
        try:
            with self.client.post(PLAN["path"], json=body, stream=True, catch_response=True, name="all") as response:
                # each answer is reported below, when it is complete
                response.request_meta["request_type"] = "headers"
                beginning = b"".join(itertools.islice(response.iter_content(1, decode_content=False), 1))
                first = time.perf_counter()
                content = beginning + b"".join(response.iter_content(1 << 16, decode_content=False))
                if response.status_code != 200:
                    raise ConnectionError(f"status {response.status_code}")
                response.success()
            answer = _read(content, bool(body.get("stream")))
        except StopUser:
            raise
        except Exception as error:
            failure = error
        _times["ended"] = time.monotonic()
        self._report("answer", time.perf_counter() - began, failure)
        if failure is None:
            self._report(FIRST, (first or began) - began, None)
            if not _equal(answer["said"], PLAN["expected"][number]):
                _counts["wrong"] += 1
            _counts["tokens"] += answer["tokens"]

    def _report(self, name: str, seconds: float, failure: Exception | None) -> None:
        fields = {"request_type": "ASK", "name": name, "response_time": 1000 * seconds, "response_length": 0}
        self.environment.events.request.fire(**fields, exception=failure, context={})


def _read(content: bytes, is_stream: bool) -> dict[str, Any]:
    """What an answer says, and how many tokens were written for it."""
    if is_stream:
        lines = [line.removeprefix("data: ") for line in content.decode().split("\n") if line.startswith("data: ")]
        if lines[-1] != "[DONE]":
            raise ConnectionError("a stream ended early")
        pieces = [json.loads(line) for line in lines[:-1]]
        text = "".join(choice["text"] for piece in pieces for choice in piece["choices"])
        usage = pieces[-1].get("usage") or {}
        return {"said": text, "tokens": usage.get("completion_tokens", 0)}
    answer = json.loads(content)
    if "predictions" in answer:
        [row] = answer["predictions"]
        return {"said": row["probabilities"] if isinstance(row, dict) else row, "tokens": 0}
    if "data" in answer:
        return {"said": answer["data"][0]["embedding"], "tokens": 0}
    return {"said": answer["choices"][0]["text"], "tokens": (answer.get("usage") or {}).get("completion_tokens", 0)}


def _equal(said: Any, expected: Any) -> bool:
    if isinstance(expected, str):
        return said == expected
    return len(said) == len(expected) and all(
        abs(one - other) <= PLAN["tolerance"] for one, other in zip(said, expected, strict=True)
    )


@events.test_start.add_listener
def _begin(**_: Any) -> None:
    _times["began"] = _times["ended"] = time.monotonic()


@events.quitting.add_listener
def _write(environment: Any, **_: Any) -> None:
    answers, first = (environment.stats.get(name, "ASK") for name in ("answer", FIRST))
    seconds = max(_times["ended"] - _times["began"], 1e-9)
    good = answers.num_requests - answers.num_failures
    found = {
        "requests": answers.num_requests,
        "errors": answers.num_failures,
        "wrong": _counts["wrong"],
        "seconds": seconds,
        "per_second": good / seconds,
        "tokens_per_second": _counts["tokens"] / seconds,
        "milliseconds": _percentiles(answers),
        "first_milliseconds": _percentiles(first),
        "kinds_of_errors": {str(error.error): error.occurrences for error in environment.stats.errors.values()},
    }
    Path(os.environ["ZOO_SERVING_FOUND"]).write_text(json.dumps(found), encoding="utf-8")


def _percentiles(stats: Any) -> dict[str, float]:
    return {str(percent): float(stats.get_response_time_percentile(percent / 100) or 0) for percent in (50, 95, 99)}
