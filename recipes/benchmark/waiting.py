"""How long a request for a few tokens takes beside others for long texts, in the batch of a server.

`python -m recipes.benchmark waiting exported/1` writes texts with the continuous batch of the server, in one process
and without HTTP, and prints a table.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

import zoo
from recipes.common.config import setting
from recipes.common.errors import ConfigError
from zoo.serving.continuous_batch import ContinuousBatch
from zoo.serving.exported_model import ExportedModel
from zoo.serving.options import Batching
from zoo.serving.writing import WritingRequest, Written


@dataclasses.dataclass(frozen=True)
class Config:
    """Measures how long a short text takes beside long ones in the batch of a server."""

    model: str | None = setting(
        None, "Folder of the export of a language model, with its version.", words="first", offers="paths"
    )
    beside: list[int] = setting(
        [0, 1, 15, 16, 64], "Numbers of long texts; the first is what others are compared with.", least=0
    )
    long: int = setting(1000, "Tokens of a long text.", least=1)
    short: int = setting(8, "Tokens of the short text.", least=1)
    prompt: int = setting(16, "Tokens of each prompt, drawn at random.", least=1)
    rounds: int = setting(15, "Number of short texts that are timed beside the same long ones.", least=1)
    rows: int = setting(16, "Number of texts that are written together.", least=1)
    output: str = setting("runs/benchmark/waiting.json", "File for the figures.", offers="paths")

    def __post_init__(self) -> None:
        if self.model is None:
            raise ConfigError("model must be the folder of an export, got null")


def main(config: Config) -> list[dict[str, Any]]:
    """Runs the benchmark and prints the table.

    Args:
        config: The configuration.

    Returns:
        A row for each number of long texts: the seconds of each short text beside them, and their median.

    Raises:
        RuntimeError: If a text could not be written.
    """
    assert config.model is not None  # checked by the configuration
    model, rows = ExportedModel(config.model), []
    # shapes that are new are slow once
    _measure(model, config, max(config.beside))
    print("| long texts beside it | seconds | times as long as alone |\n| --- | --- | --- |")
    for number in config.beside:
        rows.append(_measure(model, config, number))
        seconds = rows[-1]["seconds"]
        print(f"| {number} | {seconds:.3f} | {seconds / rows[0]['seconds']:.1f} |")
    Path(config.output).parent.mkdir(parents=True, exist_ok=True)
    zoo.storage.write_text_atomically(config.output, json.dumps(rows, indent=2) + "\n")
    return rows


def _measure(model: ExportedModel, config: Config, number: int) -> dict[str, Any]:
    count = model.endpoints["forward"]["outputs"][0]["shape"][-1]
    generator = np.random.default_rng(0)
    ended: list[Written] = []

    def note(written: Written) -> None:
        if written.reason is not None:
            ended.append(written)

    def require_no_error() -> None:
        for written in ended:
            if written.error:
                raise RuntimeError(f"A text could not be written: {written.error}.")

    # a batch of its own, in which no state of an earlier measurement is left, and rows are not bound by their memory
    batching = Batching(rows=config.rows, prefix_bytes=2**30, state_bytes=2**60)
    with ContinuousBatch(model, batching) as batch:

        def begin(length: int, tell: Any) -> Any:
            prompt = generator.integers(0, count, config.prompt).tolist()
            return batch.write(WritingRequest(prompt, length, ignore_eos=True), tell)

        others = [begin(config.long, note) for _ in range(number)]
        while batch.load["writing"] + len(ended) < min(number, config.rows):
            time.sleep(0.01)
        seconds = []
        for _ in range(config.rounds):
            done = threading.Event()

            def tell(written: Written, done: threading.Event = done) -> None:
                note(written)
                if written.reason is not None:
                    done.set()

            started = time.perf_counter()
            begin(config.short, tell)
            done.wait()
            seconds.append(time.perf_counter() - started)
            require_no_error()
        for writing in others:
            writing.cancel()
    return {"beside": number, "seconds": statistics.median(seconds), "all": seconds}
