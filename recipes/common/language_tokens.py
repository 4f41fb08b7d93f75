"""One text to several target languages: sources begin with a token that names the language of the target."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from recipes.common.errors import ConfigError
from recipes.common.parallel_text import TextPair
from recipes.common.text_lines import BadLines, OnError
from recipes.common.text_metrics import translation_scores

NO_LANGUAGE_TOKEN = "no language token"


class LanguageTokenPairs:
    """Pairs of texts whose sources begin with a language token, such as `<2de> A small dog.`.

    Args:
        pairs: Iterable of `TextPair`s, to be iterated over as often as this object is.
        tokens: The tokens; one stands before each source, with white space behind it.
        on_error: "raise" stops at the first source without one; "skip" leaves such pairs out and accounts for them.

    Attributes:
        bad_lines: The lines skipped by the latest iteration, those that `pairs` itself skipped included.

    Raises:
        ConfigError: A token is empty, holds white space or is given twice.
        DataError: While iterating: a source begins with no token, and what `pairs` raises.

    Source: Johnson et al. 2017, "Google's Multilingual Neural Machine Translation System", section 3.

    Example:

    >>> pairs = LanguageTokenPairs([TextPair("<2de> one", "eins", "a.tsv:1")], ["<2de>", "<2fr>"])
    >>> next(iter(pairs)).target
    'eins'
    """

    def __init__(self, pairs: Iterable[TextPair], tokens: Sequence[str], on_error: OnError = "raise"):
        for token in tokens:
            if token.split() != [token] or list(tokens).count(token) > 1:
                raise ConfigError(
                    f"data.language_tokens must be different ones without white space, got {list(tokens)}"
                )
        self._pairs, self._tokens = pairs, tuple(tokens)
        self.bad_lines = BadLines(on_error)

    def __iter__(self) -> Iterator[TextPair]:
        self.bad_lines.clear()
        for pair in self._pairs:
            if language_token(pair.source) in self._tokens:
                yield pair
            else:
                detail = f"{pair.source[:40]!r} begins with none of {', '.join(self._tokens)}"
                self.bad_lines.add(NO_LANGUAGE_TOKEN, pair.origin, detail)
        skipped = getattr(self._pairs, "bad_lines", None)
        if skipped is not None:
            self.bad_lines.extend(skipped)


def language_token(source: str) -> str:
    """Returns what a source begins with, up to the first white space.

    Args:
        source: A source text.

    Example:

    >>> language_token("<2de> A small dog.")
    '<2de>'
    """
    return source.split(maxsplit=1)[0] if source.strip() else ""


def scores_by_language(
    sources: Sequence[str], outputs: Sequence[str], references: Sequence[str], tokens: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Returns the scores of the translations into each language, by its token; languages without a text are left out.

    Args:
        sources: Texts, each with its token.
        outputs: Their translations.
        references: The right ones.
        tokens: The tokens.
    """
    results = {}
    for token in tokens:
        rows = [index for index, source in enumerate(sources) if language_token(source) == token]
        if rows:
            chosen = ([texts[index] for index in rows] for texts in (outputs, references))
            results[token] = {"sentences": len(rows), **translation_scores(*chosen)}
    return results
