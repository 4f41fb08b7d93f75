"""What a task does in generation where an argument is not given."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from zoo.generation.checks import as_ids, require_count
from zoo.generation.processors import get_processors
from zoo.generation.request import split_stops
from zoo.generation.samplers import get_sampler
from zoo.preprocessing.rows import shorten


@dataclasses.dataclass(frozen=True)
class GenerationDefaults:
    """Default arguments of `generate`, stored in a model and its files as JSON values.

    Args:
        sampler: Name of a sampler, or a dictionary of its name and arguments.
        processors: List of dictionaries that describe logit processors.
        stop: Stop strings, token ids and lists of token ids.
        max_length, max_new_tokens: As for `generate`. If one of them is passed to `generate`, both defaults are
            ignored. `max_length` is limited by that of the model.
        end_ids: All ids that end a text, in place of the tokenizer's end token. They are not part of the text.

    Example:

    >>> GenerationDefaults.of({"sampler": {"name": "sample", "top_p": 0.9}, "end_ids": [2, 7]}, 32000).end_ids
    [2, 7]
    """

    sampler: Any = None
    processors: Any = None
    stop: Any = None
    max_length: int | None = None
    max_new_tokens: int | None = None
    end_ids: Any = None

    @classmethod
    def of(cls, values: Mapping[str, Any] | None, vocabulary_size: int) -> "GenerationDefaults":
        """Returns the checked defaults that a dictionary describes.

        Args:
            values: The dictionary; None is an empty one.
            vocabulary_size: Number of tokens of the model.

        Raises:
            ValueError: If a key is unknown, or `generate` does not take a value.
        """
        names = [field.name for field in dataclasses.fields(cls)]
        if not isinstance({} if values is None else values, Mapping):
            raise ValueError(f"generation must be a dictionary, got {shorten(values)}.")
        others = sorted(set(values or {}) - set(names), key=str)
        if others:
            raise ValueError(f"The keys of generation must be among {names}, got {shorten(others)}.")
        try:
            # a copy that nobody else can change, as files have it
            plain = json.loads(json.dumps(dict(values or {})))
        except (TypeError, ValueError) as error:
            raise ValueError(f"generation must hold JSON values, got {shorten(values)}.") from error
        defaults = cls(**plain)
        try:
            defaults._check(vocabulary_size)
        except (TypeError, ValueError) as error:
            raise ValueError(f"generation: {error}") from error
        return defaults

    def _check(self, vocabulary_size: int) -> None:
        get_sampler("greedy" if self.sampler is None else self.sampler)
        get_processors(self.processors)
        split_stops(self.stop)
        for name in ("max_length", "max_new_tokens"):
            if getattr(self, name) is not None:
                require_count(name, getattr(self, name))
        beyond = [index for index in as_ids("end_ids", self.end_ids or ()) if index >= vocabulary_size]
        if beyond:
            raise ValueError(
                f"end_ids must be ids below the vocabulary size of {vocabulary_size}, got {shorten(beyond)}."
            )

    def to_dict(self) -> dict[str, Any]:
        """Returns the dictionary that `of` takes, without entries that are None."""
        return json.loads(json.dumps({name: value for name, value in vars(self).items() if value is not None}))

    def replaced(
        self, longest: int, *, max_length: int | None = None, max_new_tokens: int | None = None, **given: Any
    ) -> "GenerationDefaults":
        """Returns the defaults with given arguments in their place, and "greedy" if there is no sampler.

        Args:
            longest: Largest number of tokens of a row of the model.
            max_length, max_new_tokens: Given lengths, or None.
            **given: Other given fields, or None.
        """
        fields = {"sampler": "greedy", **vars(self)}
        fields |= {name: value for name, value in given.items() if value is not None}
        if fields["sampler"] is None:
            fields["sampler"] = "greedy"
        if max_length is not None or max_new_tokens is not None:
            fields |= {"max_length": max_length, "max_new_tokens": max_new_tokens}
        elif self.max_length is not None:
            fields["max_length"] = min(self.max_length, longest)
        return GenerationDefaults(**fields)

    def options(self) -> dict[str, Any]:
        """Returns the arguments of `TextGenerator.options`, without stops and without those that are None."""
        return {name: value for name, value in vars(self).items() if value is not None and name != "stop"}
