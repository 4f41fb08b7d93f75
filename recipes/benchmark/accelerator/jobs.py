"""What a process of the benchmark measures: one or more jobs, and the rows that it answers with."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np

from recipes.benchmark.accelerator.shapes import Shape, training_operations

# What the lines of rows begin with, on the standard output of a process.
MARK = "row of the benchmark: "
# Share of the tokens that a masked language model predicts.
_MASKED = 0.15


@dataclasses.dataclass(frozen=True)
class Job:
    """One measurement; a module that measures reads the fields that it needs.

    Args:
        name: What the row says.
        shape: The model.
        goal: Of training: "causal", "text" (causal, on real text that is tokenized on the way), "masked", "classes",
            "seq2seq" or "lora".
        batch_size: Rows.
        length: Tokens of a row; of a prompt in generation.
        dropout: Rate of all dropouts of the model.
        steps: Number of steps that are timed, after `warm` others.
        warm: Number of steps before.
        new_tokens: Tokens that are generated per row.
        kernels: Whether to trace a few steps and list the kernels by time.
        mask: Of attention: words of "causal", "padding", "lengths" (the same padding, as lengths of rows), "window",
            "packed" and "grouped" (fewer heads of keys).
        num_heads, head_dim: Of attention.
        tests: Files and folders with tests to run.
    """

    name: str
    shape: Shape | None = None
    goal: str = ""
    batch_size: int = 1
    length: int = 1
    dropout: float = 0.0
    steps: int = 0
    warm: int = 0
    new_tokens: int = 0
    kernels: bool = False
    mask: str = ""
    num_heads: int = 1
    head_dim: int = 1
    tests: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Job:
        """Returns the job whose fields JSON holds."""
        shape = values["shape"] and Shape(**values["shape"])
        return cls(**{**values, "shape": shape, "tests": tuple(values["tests"])})

    @property
    def lengths(self) -> np.ndarray:
        """Number of tokens of each row: all of them for a decoder, else from half of the length to the whole."""
        if self.shape.architecture == "decoder":
            return np.full(self.batch_size, self.length)
        return np.linspace(self.length // 2, self.length, self.batch_size).astype(int)

    @property
    def tokens(self) -> int:
        """Number of tokens of a batch that are no padding, on both sides of an encoder-decoder."""
        return int(self.lengths.sum()) * (2 if self.shape.architecture == "encoder_decoder" else 1)

    @property
    def masked_tokens(self) -> int:
        """Number of tokens of a row that a masked language model predicts."""
        return max(1, round(_MASKED * float(self.lengths.mean())))

    @property
    def operations(self) -> float:
        """Floating-point operations that a training step needs."""
        scored = {"classes": 0, "masked": self.batch_size * self.masked_tokens}.get(self.goal, int(self.lengths.sum()))
        return training_operations(self.shape, self.lengths.tolist(), scored=scored, frozen=self.goal == "lora")

    def batch(self, index: int) -> dict[str, np.ndarray]:
        """Returns a batch of random tokens.

        Args:
            index: Its number. The same number gives the same batch.

        Returns:
            `token_ids` and `labels`, int32 `(batch_size, length)`, where labels are the next tokens; `padding_mask`,
            booleans; `classes`, `(batch_size,)`; and `masked_positions`, `(batch_size, masked_tokens)`, ascending.
        """
        generator = np.random.default_rng(index)
        ids = generator.integers(4, self.shape.vocabulary_size, (self.batch_size, self.length + 1)).astype("int32")
        order = np.argsort(
            generator.random((self.batch_size, self.length)) + (np.arange(self.length) >= self.lengths[:, None]), axis=1
        )
        return {
            "token_ids": ids[:, :-1],
            "labels": ids[:, 1:],
            "padding_mask": np.arange(self.length) < self.lengths[:, None],
            "classes": generator.integers(0, 2, self.batch_size).astype("int32"),
            "masked_positions": np.sort(order[:, : self.masked_tokens], axis=1).astype("int32"),
        }


def say(row: dict[str, Any]) -> None:
    """Hands a row to the process that has started this one.

    Args:
        row: Plain values, with `kind`: "device", "row", "kernels", "progress" or "done".
    """
    # what was printed before, such as the dots of pytest, may not have ended its line
    print("\n" + MARK + json.dumps(row), flush=True)


class UnavailableError(Exception):
    """A job cannot be done on this machine; the message is a sentence that says what is missing."""


def training_row(job: Job, *, seconds: float, first_step: float, peak_bytes: int, loss: float) -> dict[str, Any]:
    """Returns the row of a training job.

    Args:
        job: The job.
        seconds: Of `job.steps` steps.
        first_step: Seconds until the first step was done, which is compiled in them.
        peak_bytes: Most memory of the process so far.
        loss: The last one.
    """
    return {
        "tokens_per_second": job.tokens * job.steps / seconds,
        "operations_per_second": job.operations * job.steps / seconds,
        "first_step_seconds": first_step,
        "peak_bytes": peak_bytes,
        "loss": loss,
    }


def generation_row(job: Job, *, seconds: float, first_call: float, peak_bytes: int) -> dict[str, Any]:
    """Returns the row of a generating job.

    Args:
        job: The job.
        seconds: Of one call.
        first_call: Seconds of the first call, which is compiled in them.
        peak_bytes: Most memory of the process so far.
    """
    return {
        "tokens_per_second": job.batch_size * job.new_tokens / seconds,
        "first_step_seconds": first_call,
        "peak_bytes": peak_bytes,
    }
