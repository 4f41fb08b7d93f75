"""What generation depends on, and what it leaves behind."""

import dataclasses
from typing import Any

import numpy as np

from zoo.generation.checks import as_ids, as_sequences
from zoo.generation.processors import get_processors
from zoo.generation.samplers import Contrastive, Greedy, Sample, Sampler, get_sampler


@dataclasses.dataclass(frozen=True)
class GenerationOptions:
    """What a compiled program of generation depends on.

    Args:
        max_new_tokens: Most tokens that any row generates, at least 1.
        sampler: How tokens are chosen, see `get_sampler`.
        processors: Logit processors, see `get_processors`.
        stop_sequences: Ids and sequences of ids that end a text.
        end_ids: Id or ids of end tokens; none: `()`.
        pad_id: What fills outputs behind their end.
        lookahead: Proposals per round of a draft model; 0 without one.
        jit_compile: Whether XLA compiles the loop.

    Raises:
        ValueError: If an argument is out of range, or a draft model stands beside a sampler that it cannot serve.
    """

    max_new_tokens: int
    sampler: Sampler | str | dict = "greedy"
    processors: Any = ()
    stop_sequences: Any = ()
    end_ids: Any = ()
    pad_id: int = 0
    lookahead: int = 0
    jit_compile: bool = True

    def __post_init__(self):
        normal = {
            "sampler": get_sampler(self.sampler),
            "processors": get_processors(self.processors),
            "stop_sequences": as_sequences("stop_sequences", self.stop_sequences),
            "end_ids": as_ids("end_ids", self.end_ids),
        }
        for name, value in normal.items():
            object.__setattr__(self, name, value)
        if not isinstance(self.lookahead, int) or isinstance(self.lookahead, bool) or self.lookahead < 0:
            raise ValueError(f"`lookahead` must be an integer of at least 0. Received: {self.lookahead!r}")
        if self.lookahead and not isinstance(self.sampler, (Greedy, Sample)):
            raise ValueError(f"A draft model works with Greedy() and Sample(...). Received: {self.sampler!r}")

    @property
    def slack(self) -> int:
        """Positions beyond the generated tokens that caches must have room for."""
        return max(self.lookahead, int(isinstance(self.sampler, Contrastive)))


@dataclasses.dataclass(frozen=True, eq=False)
class GenerationCache:
    """What `generate` leaves behind so that texts can be continued: their tokens, and keys and values of these.

    Attributes:
        token_ids: The tokens of each row, prompt and generated, without an end.
        state: The state of the backbone.
        starts: Where each row begins in the caches.
        known: How many tokens of each row the caches hold.
        capacity: Number of positions of the caches.
    """

    token_ids: list
    state: Any
    starts: np.ndarray
    known: np.ndarray
    capacity: int
