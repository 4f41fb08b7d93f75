"""What a sampler is: a small immutable value that says how the next tokens are chosen."""

import dataclasses
from typing import Any, ClassVar

from zoo.generation.categorical import draw
from zoo.generation.token_by_token import TokenByToken


@dataclasses.dataclass(frozen=True)
class Sampler:
    """How the next tokens are chosen.

    A subclass is a frozen dataclass whose fields are plain values, so that it compares by value and goes through JSON.
    It defines `weights` (the distribution to draw from) or `choose`, or brings a loop of its own with `make_loop`.

    Attributes:
        needs_numbers: Whether `choose` reads random numbers. Without them the result is certain.
        needs_hidden: Whether the loop reads hidden states, see `ContrastiveSearch`.
        incremental: Whether a token stays once it has been generated. Otherwise texts cannot be streamed or continued.
        extra_positions: How many positions of a cache the loop fills beyond the generated tokens.

    Example:

    >>> @dataclasses.dataclass(frozen=True)
    ... class Flat(Sampler):
    ...     margin: float = 2.0
    ...
    ...     def weights(self, logits):
    ...         return ops.cast(logits >= ops.max(logits, axis=-1, keepdims=True) - self.margin, "float32")
    >>> model.generate("Once upon a time", sampler=Flat(), seed=3)
    """

    needs_numbers: ClassVar[bool] = True
    needs_hidden: ClassVar[bool] = False
    incremental: ClassVar[bool] = True
    extra_positions: ClassVar[int] = 0

    def weights(self, logits: Any) -> Any:
        """Returns the distribution that tokens are drawn from; it need not be normalised.

        Args:
            logits: float32 `(batch, vocabulary)`, processed.

        Returns:
            float32 `(batch, vocabulary)`, 0 for what is never drawn, at least one weight of each row above 0.
        """
        raise NotImplementedError(f"{type(self).__name__} must define weights(), choose() or make_loop().")

    def choose(self, logits: Any, numbers: Any) -> Any:
        """Returns the next tokens, `(batch,)` int32.

        Args:
            logits: float32 `(batch, vocabulary)`, processed.
            numbers: float32 `(batch,)`, uniform in (0, 1), the only source of chance; None if `needs_numbers` is false.
        """
        return draw(self.weights(logits), numbers)

    def make_loop(self, step: Any, settings: Any) -> Any:
        """Returns the `zoo.generation.loop.Loop` that decodes with this sampler.

        Args:
            step: The step function, see `zoo.generation.decode`.
            settings: `zoo.generation.GenerationOptions`.
        """
        return TokenByToken(step, settings)

    def with_results(self, count: int) -> tuple["Sampler", int]:
        """Returns a sampler, and how often to run it for each text, to get `count` different results.

        Args:
            count: Number of results, at least 1.

        Raises:
            ValueError: If the sampler cannot give so many.
        """
        if count > 1 and not self.needs_numbers:
            raise ValueError(f"num_results must be 1 with {self!r}, which has one result, got {count}.")
        return self, count

    @property
    def num_texts(self) -> int | None:
        """How many results each text has without `with_results`; None for a single one that is no list."""
        return None

    @property
    def has_weights(self) -> bool:
        """Whether the distribution is known, as speculative decoding needs it."""
        return type(self).weights is not Sampler.weights

    def get_config(self) -> dict[str, Any]:
        """Returns the fields as a dictionary of JSON values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Sampler":
        """Returns the sampler that `get_config` describes; an unknown name raises a TypeError."""
        return cls(**config)
