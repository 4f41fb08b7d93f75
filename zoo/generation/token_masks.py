"""Which tokens may come next in a text that follows a grammar: masks of the library llguidance."""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from zoo.lark import deep_thread, llguidance

# Grammars of a vocabulary that are kept compiled.
MOST_GRAMMARS = 16
# Most states of the automaton of a grammar's words, of up to 2 KB each: a short expression can have millions.
_MOST_STATES = 2**15
# What llguidance says of a place where no token fits.
_NO_TOKEN = "NoExtensionBias"
# All tokens that spell what may come next are allowed, and not only those that a tokenizer would choose.
_ALL_SPELLINGS = '\n%llguidance {"no_forcing": true}\n'


def reason_of(said: str) -> str:
    """Returns what llguidance says of a grammar, without the places and lines of the grammar that it shows."""
    reason = re.split(r"\n +\d+ \| |\n<backtrace>|\n<non-verbose/>", said)[0]
    return re.split(r"\nerror: |failed to compile JSON schema: ", reason)[-1].strip()


def spellings_of(tokenizer: Any, vocabulary_size: int) -> list[bytes]:
    """Returns what each token of a model adds to a text.

    Args:
        tokenizer: The tokenizer.
        vocabulary_size: Number of tokens of the model, which may have others than those of the tokenizer.
    """
    spellings = tokenizer.spellings[:vocabulary_size]
    return [*spellings, *[b""] * (vocabulary_size - len(spellings))]


class _Vocabulary:
    """The tokens as llguidance takes them, with one more that ends texts: models may have none, or several."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, spellings: Sequence[bytes]) -> None:
        self.tokens = [*spellings, b""]
        self.eos_token_id = len(spellings)
        self.special_token_ids = [index for index, spelling in enumerate(self.tokens) if not spelling]


class TokenMasks:
    """Says which tokens of a vocabulary may come next in texts that follow grammars.

    Args:
        spellings: What each token adds to a text, see `Tokenizer.spellings`. One that adds nothing comes up in no text.

    Example:

    >>> masks = TokenMasks([b"", b"a", b"b", b"ab"])
    >>> text = masks.begin('start: "ab" "b"?', end_ids=(0,))
    >>> text.allowed
    array([10], dtype=int32)
    >>> text.accept(3)
    >>> text.allowed, text.may_end, text.must_end
    (array([5], dtype=int32), True, False)

    Reference:
        Willard and Louf 2023, "Efficient guided generation for large language models", section 3 (masks of a
        vocabulary); https://github.com/guidance-ai/llguidance.
    """

    def __init__(self, spellings: Sequence[bytes]) -> None:
        self._count = len(spellings)
        self._tokenizer: Any = llguidance().LLTokenizer(_Vocabulary(spellings))
        # no text in UTF-8 has the byte ff, with which llguidance spells special tokens
        self._spelled: np.ndarray = bits(
            np.array([spelling != b"" and b"\xff" not in spelling for spelling in spellings])
        )
        self._automata: Any = functools.lru_cache(MOST_GRAMMARS)(lambda grammar: _Automaton(self._compile, grammar))

    def begin(self, grammar: str, end_ids: Sequence[int] = ()) -> TextMask:
        """Returns the mask of a text that follows a grammar, at its beginning.

        Args:
            grammar: The grammar, in llguidance's notation of Lark.
            end_ids: Tokens that may end the text when it is one of the grammar.

        Raises:
            ValueError: If no text of these tokens can follow it. The message has what llguidance says, and may show
                parts of the grammar.
        """
        ends = np.zeros(self._count, "bool")
        ends[list(end_ids)] = True
        mask = TextMask(self._automata(grammar), self._count, self._spelled, bits(ends))
        if mask.must_end and not mask.may_end:
            raise ValueError("grammar must have a text that these tokens spell, got one without.")
        return mask

    def _compile(self, grammar: str) -> Any:
        """What begins the texts of a grammar; or why there are none, which may take as long to find out."""
        with deep_thread() as thread:
            matcher = thread.submit(self._matcher, grammar).result()
        return _unfollowable(matcher) if matcher.is_error() else matcher

    def _matcher(self, grammar: str) -> Any:
        limits = llguidance().LLParserLimits(max_lexer_states=_MOST_STATES, verbose_errors=False)
        return llguidance().LLMatcher(self._tokenizer, grammar + _ALL_SPELLINGS, log_level=0, limits=limits)


class _Automaton:
    """What begins the texts of a grammar.

    Texts that follow it add states to it, which others find. So many texts can use up those that it may have, of which
    each alone needs few: then a fresh one takes its place.

    Args:
        compile: Function from the grammar to what begins its texts, or to the reason why there are none.
        grammar: The grammar.
    """

    def __init__(self, compile: Callable[[str], Any], grammar: str) -> None:
        self._compile, self._grammar = compile, grammar
        self._lock = threading.Lock()
        self._matcher, self._texts = compile(grammar), 0

    def begin(self) -> Any:
        """Returns the beginning of a text; raises the ValueError of a grammar without texts."""
        if isinstance(self._matcher, ValueError):
            raise ValueError(*self._matcher.args)  # a new one: each raise adds its frames to an error
        with self._lock:
            self._texts += 1
            return self._matcher.deep_copy()

    def begin_anew(self) -> Any:
        """Returns the same with none of the states of other texts; None if there are no others."""
        with self._lock:
            if self._texts == 1:
                return None
            self._matcher, self._texts = self._compile(self._grammar), 1
            return self._matcher.deep_copy()


class TextMask:
    """What may come next in a text that follows a grammar.

    Args:
        automaton: What begins the texts of the grammar.
        count: Number of tokens.
        spelled: Tokens that spell something, see `bits`.
        ends: Tokens that may end the text. They are no part of it, even if they spell something.

    Attributes:
        allowed: The tokens that may come next, int32 `(words,)`: token t is the bit t % 32 of the word t // 32.
        may_end: Whether the text is one of the grammar.
        must_end: Whether no token can go on with it.
    """

    def __init__(self, automaton: _Automaton, count: int, spelled: np.ndarray, ends: np.ndarray) -> None:
        self._automaton, self._count, self._spelled, self._ends = automaton, count, spelled, ends
        self._tokens: list[int] = []
        self._matcher = automaton.begin()
        self._go_on()

    def accept(self, token_id: int) -> None:
        """Goes on with a token.

        Args:
            token_id: One of the allowed tokens, none that ends the text.

        Raises:
            ValueError: If it is none of them, or if llguidance cannot follow the grammar any further, as that takes
                more states than it may have. The mask is of no use then.
        """
        self._tokens.append(token_id)
        self._go_on(token_id)

    def _go_on(self, *token_ids: int) -> None:
        """Goes on with tokens; with all of them anew if other texts have left no states for them."""
        try:
            self._follow(token_ids)
        except ValueError:
            matcher = self._automaton.begin_anew()
            if matcher is None:
                raise
            self._matcher = matcher
            self._follow(self._tokens)

    def _follow(self, token_ids: Sequence[int]) -> None:
        for token_id in token_ids:
            if not self._matcher.consume_token(token_id):
                raise _unfollowable(self._matcher)
        self._look()

    def _look(self) -> None:
        # with the token of llguidance's own that ends texts, which may need a word more
        words = np.zeros(self._count // 32 + 1, "int32")
        self._matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
        # a place where no token fits is an error to llguidance, too
        if self._matcher.is_error() and not self._matcher.get_error().startswith(_NO_TOKEN):
            raise _unfollowable(self._matcher)
        going_on = words[: len(self._spelled)] & self._spelled & ~self._ends
        self.may_end: bool = self._matcher.is_accepting()
        self.must_end: bool = not going_on.any()
        self.allowed: np.ndarray = going_on | self._ends if self.may_end else going_on


def _unfollowable(matcher: Any) -> ValueError:
    return ValueError(f"grammar cannot be followed: {reason_of(matcher.get_error())}.")


def bits(flags: np.ndarray) -> np.ndarray:
    """Returns flags as int32 words: flag t is the bit t % 32 of the word t // 32.

    Args:
        flags: Bools `(count,)`.

    Example:

    >>> bits(np.array([True, False, True]))
    array([5], dtype=int32)
    """
    packed = np.packbits(np.pad(flags, (0, -len(flags) % 32)), bitorder="little")
    return packed.view("<i4").astype("int32")
