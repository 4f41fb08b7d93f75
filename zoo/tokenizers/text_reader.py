"""Reads the texts that a tokenizer is trained on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


class TextReader:
    """Checks texts on their way to a trainer, and keeps the first error, which a trainer may replace by another one.

    Attributes:
        rows: Number of texts read so far.
        has_text: Whether one of them is more than white space.
        failure: The error that ended the reading, or `None`.
    """

    def __init__(self, texts: Iterable[str | bytes]) -> None:
        self.texts = texts
        self.rows: int = 0
        self.has_text: bool = False
        self.failure: BaseException | None = None

    def __iter__(self) -> Iterator[str]:
        try:
            for row, text in enumerate(self.texts):
                text = self._check(text, row)
                self.rows += 1
                self.has_text = self.has_text or not text.isspace() and text != ""
                yield text
        except BaseException as failure:
            self.failure = failure
            raise

    @staticmethod
    def _check(text: str | bytes, row: int) -> str:
        try:
            if isinstance(text, bytes):
                return text.decode("utf-8")
            if isinstance(text, str):
                text.encode("utf-8")
                return text
        except UnicodeError as error:
            raise ValueError(f"texts[{row}] is not valid UTF-8: {error}.") from error
        raise TypeError(f"texts[{row}] must be str or bytes, got {text!r} of type {type(text).__name__}.")
