"""Samplers: small immutable values that say how the next tokens are chosen; those that choose one by one."""

import dataclasses
from typing import Any, ClassVar

from keras import ops

from zoo.generation.checks import Register, is_of_rows, plain_fields, require_own_equality
from zoo.generation.filters import MinP, Temperature, TopK, TopP, TypicalP
from zoo.generation.loop import TokenByToken
from zoo.generation.processors import LogitProcessor
from zoo.generation.random import draw

register_sampler: Register = Register("sampler")


@dataclasses.dataclass(frozen=True, eq=False)
class Sampler:
    """Base class of samplers, which choose the next tokens.

    A subclass is a frozen dataclass whose fields are plain values, so that samplers compare by value and can be written
    as JSON. It defines `weights` (the distribution to draw from), or `choose`, or its own loop with `make_loop`.

    Attributes:
        needs_numbers: Whether `choose` reads random numbers. If False, the result is deterministic.
        needs_hidden: Whether the loop reads hidden states, see `ContrastiveSearch`.
        incremental: Whether generated tokens never change. Otherwise texts cannot be streamed or continued.
        extra_positions: Number of cache positions that the loop fills beyond the generated tokens.

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

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # each of them is called by the next one of `Sampler`, but perhaps not by that of another base class
        for place, name in enumerate(_STEPS):
            for later in _STEPS[place + 1 :]:
                first, last = _owner(cls, name), _owner(cls, later)
                if last is not Sampler and cls.__mro__.index(first) < cls.__mro__.index(last):
                    raise TypeError(
                        f"{cls.__name__} must define {later}() besides {name}() of {first.__name__}, which {later}() "
                        f"of {last.__name__} need not call."
                    )

    def weights(self, logits: Any) -> Any:
        """Returns the distribution that tokens are drawn from; it need not be normalised.

        Args:
            logits: float32 `(batch, vocabulary)`, processed.

        Returns:
            float32 `(batch, vocabulary)`, at least 0. At least one weight of each row must be above 0.
        """
        raise NotImplementedError(f"{type(self).__name__} must define weights(), choose() or make_loop().")

    def choose(self, logits: Any, numbers: Any) -> Any:
        """Returns the next tokens, `(batch,)` int32.

        Args:
            logits: float32 `(batch, vocabulary)`, processed.
            numbers: float32 `(batch,)`, uniform in (0, 1), the only source of randomness; None if `needs_numbers` is
                false.
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
        """Returns a sampler, and the number of times to run it for each text, to get `count` different results.

        Args:
            count: Number of results, at least 1.

        Raises:
            ValueError: If the sampler cannot give this number of results.
        """
        if count > 1 and not self.needs_numbers:
            raise ValueError(f"num_results must be 1 with {self!r}, which has one result, got {count}.")
        return self, count

    @property
    def num_texts(self) -> int | None:
        """Number of results of each text without `with_results`; None for a single result instead of a list."""
        return None

    def normalisation(self, lengths: Any) -> Any:
        """Returns by what the log-probabilities of texts are divided in their scores, float32: by 1.

        Args:
            lengths: Numbers of generated tokens, with the end, of any shape.
        """
        return ops.ones(ops.shape(lengths), "float32")

    @property
    def has_weights(self) -> bool:
        """Whether the sampler has a known distribution, which speculative decoding needs."""
        owner = _owner(type(self), "weights")
        # a class that chooses otherwise need not follow the weights that it inherits
        return owner is not Sampler and all(issubclass(owner, _owner(type(self), name)) for name in _STEPS[1:])

    @property
    def row_settings(self) -> dict[str, float | int] | None:
        """The settings of a `SampleByRow` that chooses as this sampler does; None where there are none."""
        return None

    def get_config(self) -> dict[str, Any]:
        """Returns the fields as a dictionary of JSON values."""
        return plain_fields(self)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Sampler":
        """Returns the sampler that `get_config` describes; an unknown name raises a TypeError."""
        return cls(**config)


# The methods of which a sampler defines some, the first to be called last.
_STEPS = ("weights", "choose", "make_loop")


def _owner(cls: type, name: str) -> type:
    """The class that defines a method of another class."""
    return next(owner for owner in cls.__mro__ if name in vars(owner))


@register_sampler("greedy")
@dataclasses.dataclass(frozen=True)
class Greedy(Sampler):
    """Chooses the most probable token. Ties go to the lowest id."""

    needs_numbers: ClassVar[bool] = False

    def choose(self, logits: Any, numbers: Any) -> Any:
        return ops.cast(ops.argmax(logits, axis=-1), "int32")

    def weights(self, logits: Any) -> Any:
        return ops.one_hot(ops.argmax(logits, axis=-1), logits.shape[-1], dtype="float32")

    @property
    def row_settings(self) -> dict[str, float | int] | None:
        # a subclass may choose otherwise
        return {"temperature": 0.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0} if type(self) is Greedy else None


@register_sampler("sample")
@dataclasses.dataclass(frozen=True)
class Sample(Sampler):
    """Draws tokens from the model's distribution, with a temperature and cut to its most probable tokens.

    The logits pass `Temperature`, `TopK`, `TopP`, `MinP` and `TypicalP` in this order, after all other processors. For
    another order, pass these as processors of `Sample()`. The most probable token is always kept; with `typical_p`, the
    most typical one.

    Args:
        temperature: See `Temperature`. For the limit 0 use `Greedy`.
        top_k: See `TopK`; None keeps all tokens.
        top_p: See `TopP`; 1 keeps all tokens.
        min_p: See `MinP`; 0 keeps all tokens.
        typical_p: See `TypicalP`; 1 keeps all tokens.

    Raises:
        ValueError: If an argument is out of range.

    Example:

    >>> Sample(temperature=0.8, top_k=50)
    Sample(temperature=0.8, top_k=50, top_p=1.0, min_p=0.0, typical_p=1.0)
    """

    temperature: Any = 1.0
    top_k: Any = None
    top_p: Any = 1.0
    min_p: Any = 0.0
    typical_p: float = 1.0

    def __post_init__(self) -> None:
        # they check the arguments
        self._filters()
        if self.top_k is not None:
            TopK(self.top_k)

    @property
    def row_settings(self) -> dict[str, float | int] | None:
        if type(self) is not Sample or self.typical_p != 1:
            return None
        names = ("temperature", "top_p", "min_p")
        return {**{name: float(getattr(self, name)) for name in names}, "top_k": self.top_k or 0}

    def weights(self, logits: Any) -> Any:
        # no temperature makes the logits overflow
        logits = logits - ops.max(logits, axis=-1, keepdims=True)
        if is_of_rows(self.top_k):
            return _weights(self._filtered(TopK(self.top_k)(logits)))
        if self.top_k is None or self.top_k >= logits.shape[-1]:
            return _weights(self._filtered(logits))
        # the others act on what is left: fewer numbers to look at
        best, token_ids = ops.top_k(logits, self.top_k)
        rows = ops.broadcast_to(
            ops.expand_dims(ops.arange(ops.shape(logits)[0], dtype="int32"), 1), ops.shape(token_ids)
        )
        indices = ops.reshape(ops.stack([rows, ops.cast(token_ids, "int32")], axis=-1), (-1, 2))
        return ops.scatter(indices, ops.reshape(_weights(self._filtered(best)), (-1,)), ops.shape(logits))

    def _filters(self) -> tuple[LogitProcessor, ...]:
        return Temperature(self.temperature), TopP(self.top_p), MinP(self.min_p), TypicalP(self.typical_p)

    def _filtered(self, logits: Any) -> Any:
        for processor in self._filters():
            logits = processor(logits, None)
        return logits


@dataclasses.dataclass(frozen=True, eq=False)
class SampleByRow(Sample):
    """`Sample`, or `Greedy` where the temperature is 0, with settings that are tensors `(rows, 1)`: those of each row.

    A single row of settings is for all rows. Tokens whose probabilities are equal up to the rounding of float32 sums
    can be cut otherwise than by `Sample`, which computes with numbers.

    Args:
        temperature: float32; 0 for the most probable token, whatever the other settings are.
        top_k: int32; 0 keeps all tokens.
        top_p: float32; 1 keeps all tokens.
        min_p: float32; 0 keeps all tokens.
    """

    def choose(self, logits: Any, numbers: Any) -> Any:
        best = Greedy().choose(logits, numbers)
        draws = self.temperature[:, 0] > 0.0
        return ops.cond(
            ops.any(draws), lambda: ops.where(draws, draw(self.weights(logits), numbers), best), lambda: best
        )


def _weights(logits: Any) -> Any:
    return ops.exp(logits - ops.max(logits, axis=-1, keepdims=True))


_NAMES_OF_KERAS_HUB = {
    "random": "'sample'",
    "top_k": "{'name': 'sample', 'top_k': 5}",
    "top_p": "{'name': 'sample', 'top_p': 0.1}",
}


def get_sampler(identifier: Any) -> Sampler:
    """Returns the sampler for a name, a configuration or a sampler.

    Args:
        identifier: A `Sampler` (returned as it is), one of the names "greedy", "sample", "beam" and
            "contrastive" (default arguments), or a dictionary with the key "name" and arguments, as in a YAML file.

    Raises:
        ValueError: For a name that does not exist, or an argument that the sampler does not have or lacks.
        TypeError: For any other object.

    Example:

    >>> get_sampler({"name": "beam", "num_beams": 5})
    Beam(num_beams=5, length_penalty=0.6, num_results=None, length_offset=5, early_stopping='never')
    """
    if isinstance(identifier, Sampler):
        require_own_equality("sampler", identifier)
        return identifier
    if isinstance(identifier, str):
        if identifier in _NAMES_OF_KERAS_HUB:
            raise ValueError(
                f"sampler must be one of the names {register_sampler.names}, got {identifier!r} of KerasHub: use "
                f"{_NAMES_OF_KERAS_HUB[identifier]}."
            )
        identifier = {"name": identifier}
    if not isinstance(identifier, dict):
        raise TypeError(
            f"sampler must be a Sampler, one of the names {register_sampler.names}, or a dictionary with the key "
            f"'name', got {identifier!r}."
        )
    return register_sampler.make(identifier)
