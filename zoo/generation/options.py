"""What generation depends on, and what it leaves behind."""

import dataclasses
from typing import Any

import numpy as np
from keras import ops

from zoo.generation.checks import as_ids, as_sequences, require_count
from zoo.generation.processors import get_processors
from zoo.generation.sampler import Sampler
from zoo.generation.samplers import get_sampler


@dataclasses.dataclass(frozen=True)
class GenerationOptions:
    """What a compiled program of generation depends on: the settings of its loop.

    Args:
        max_new_tokens: Most tokens that any row generates, at least 1; for a loop also an int32 scalar that follows
            from the shape of a tensor.
        sampler: How tokens are chosen, see `get_sampler`.
        processors: Logit processors, see `get_processors`.
        stop_sequences: Ids and sequences of ids that end a text.
        end_ids: Id or ids of end tokens; none: `()`.
        pad_id: What fills outputs behind their end.
        lookahead: Proposals per round of a draft model; 0 without one.
        jit_compile: Whether XLA compiles the loop.

    Raises:
        ValueError: If an argument is out of range, or `lookahead` is given with a sampler that a draft cannot serve.
    """

    max_new_tokens: Any
    sampler: Sampler | str | dict = "greedy"
    processors: Any = ()
    stop_sequences: Any = ()
    end_ids: Any = ()
    pad_id: int = 0
    lookahead: int = 0
    jit_compile: bool = True

    def __post_init__(self):
        if not ops.is_tensor(self.max_new_tokens):
            require_count("max_new_tokens", self.max_new_tokens)
        normal = {
            "sampler": get_sampler(self.sampler),
            "processors": get_processors(self.processors),
            "stop_sequences": as_sequences("stop_sequences", self.stop_sequences),
            "end_ids": as_ids("end_ids", self.end_ids),
            "pad_id": as_ids("pad_id", self.pad_id)[0],
            "lookahead": require_count("lookahead", self.lookahead, 0),
        }
        for name, value in normal.items():
            object.__setattr__(self, name, value)
        if self.lookahead and not self.sampler.has_weights:
            raise ValueError(
                f"sampler must define weights() where a draft model proposes, as Greedy() and Sample(...) do, got "
                f"{self.sampler!r}."
            )

    @property
    def slack(self) -> int:
        """Positions beyond the generated tokens that caches must have room for."""
        return max(self.lookahead, self.sampler.extra_positions)


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
