"""What every task that writes texts shares: how its tokens are chosen, and what ends a text."""

from typing import Any

from zoo.generation import GenerationOptions
from zoo.preprocessing.rows import as_text, require_count
from zoo.tasks.task import Task


class TextGeneration(Task):
    """A task that writes texts, with samplers, logit processors and stops."""

    # how many of the `max_length` tokens stand before the first generated one at least
    fewest_tokens_before = 0

    @property
    def pad_id(self) -> int:
        """What fills rows behind their end: the padding token, or else any token, which the masks hide."""
        pad_id = None if self.tokenizer is None else self.tokenizer.pad_id
        return 0 if pad_id is None else pad_id

    def generation_options(
        self, *, max_length: int | None = None, max_new_tokens: int | None = None, **options: Any
    ) -> GenerationOptions:
        """Returns checked options of generation, with the end token and lengths of this model.

        Args:
            max_length: Most tokens of a text; with a decoder-only model its prompt counts too. Default the
                `max_length` of the model.
            max_new_tokens: Most tokens that are generated.
            **options: Further fields of `zoo.generation.GenerationOptions`.

        Raises:
            ValueError: If an argument is out of range.
        """
        fewest = self.fewest_tokens_before
        longest = self.longest
        if max_length is not None:
            longest = require_count(max_length, "max_length", fewest + 1, longest)
        new = longest - fewest
        if max_new_tokens is not None:
            new = min(require_count(max_new_tokens, "max_new_tokens"), new)
        end_id = None if self.tokenizer is None else self.tokenizer.end_id
        options = {"end_ids": () if end_id is None else end_id, "pad_id": self.pad_id, **options}
        return GenerationOptions(max_new_tokens=new, **options)


def split_stops(stop: Any) -> tuple[list[str], list[Any]]:
    """Returns stop strings, and token ids and sequences of these.

    Args:
        stop: A string, or a list of strings, token ids and lists of token ids; None for none.

    Raises:
        ValueError: If a string is empty.
    """
    if stop is None:
        return [], []
    strings, sequences = [], []
    for place, value in enumerate([stop] if isinstance(stop, (str, bytes)) else stop):
        if not isinstance(value, (str, bytes)):
            sequences.append(value)
        elif not value:
            raise ValueError(f"stop[{place}] must not be empty.")
        else:
            strings.append(as_text(value, f"stop[{place}]").decode())
    return strings, sequences
