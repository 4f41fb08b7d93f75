"""Trains WordPiece and byte-level BPE vocabularies by the `tokenizers` library."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import ModuleType
from typing import Any

from zoo.tokenizers.split_patterns import PATTERNS
from zoo.tokenizers.text_reader import TextReader

WORDPIECE_SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_PRIVATE = 0xF0000  # first code point of the private planes


def train_wordpiece(
    texts: Iterable[str | bytes],
    vocabulary_size: int,
    *,
    lowercase: bool,
    special_tokens: Sequence[str],
    min_frequency: int,
    strip_accents: bool | None = None,
    clean_text: bool = True,
    split_ideographs: bool = True,
) -> list[str]:
    """Returns a vocabulary. See `WordPieceTokenizer.train` for arguments and errors.

    The library's own trainer for WordPiece numbers the characters inside words in a random order, on which ties depend.
    So this trains BPE, which is what that trainer does too, on words whose characters but the first are replaced by
    characters of the private planes, one for one.
    """
    tokenizers = _import_tokenizers()
    special = [*WORDPIECE_SPECIAL_TOKENS, *special_tokens]
    normalizer = tokenizers.normalizers.BertNormalizer(
        clean_text=clean_text,
        handle_chinese_chars=split_ideographs,
        strip_accents=strip_accents,
        lowercase=lowercase,
    )
    splitter = tokenizers.pre_tokenizers.BertPreTokenizer()
    inside: dict[str, str] = {}  # the private character for each

    def hide(word: str) -> str:
        return word[0] + "".join(inside.setdefault(part, chr(_PRIVATE + len(inside))) for part in word[1:])

    def words(reader: TextReader) -> Iterator[str]:
        for text in reader:
            yield " ".join(hide(word) for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text)))

    trained = tokenizers.Tokenizer(tokenizers.models.BPE())
    trained.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocabulary_size, min_frequency=min_frequency, special_tokens=special, show_progress=False
    )
    _train(trained, trainer, texts, vocabulary_size, special, words)
    shown = {private: character for character, private in inside.items()}
    vocabulary = trained.get_vocab()
    return [
        token if token in special else "##" * (token[0] in shown) + "".join(shown.get(part, part) for part in token)
        for token in sorted(vocabulary, key=vocabulary.get)
    ]


def train_byte_level_bpe(
    texts: Iterable[str | bytes],
    vocabulary_size: int,
    *,
    split: Sequence[str],
    special_tokens: Sequence[str],
    min_frequency: int,
    add_prefix_space: bool,
    normalization: str | None,
) -> tuple[list[str], list[tuple[str, str]]]:
    """Returns vocabulary and merges. See `ByteLevelBPETokenizer.train` for arguments and errors."""
    tokenizers = _import_tokenizers()
    pre_tokenizers = tokenizers.pre_tokenizers
    for name in split:
        if name not in PATTERNS:
            raise ValueError(f"split must be one of {sorted(PATTERNS)}, got {name!r}.")
    trained = tokenizers.Tokenizer(tokenizers.models.BPE())
    if normalization is not None:
        trained.normalizer = tokenizers.normalizers.NFC()
    trained.pre_tokenizer = pre_tokenizers.Sequence(
        [
            *(pre_tokenizers.Split(tokenizers.Regex(PATTERNS[name]), "isolated") for name in split),
            pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space, use_regex=False),
        ]
    )
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocabulary_size,
        min_frequency=min_frequency,
        special_tokens=list(special_tokens),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    _train(trained, trainer, texts, vocabulary_size, [*special_tokens, *range(256)])
    model = json.loads(trained.to_str())["model"]
    return sorted(model["vocab"], key=model["vocab"].get), [tuple(pair) for pair in model["merges"]]


def _import_tokenizers() -> ModuleType:
    try:
        import tokenizers
        import tokenizers.models
        import tokenizers.normalizers
        import tokenizers.pre_tokenizers
        import tokenizers.trainers
    except ImportError as error:
        raise ImportError("Training this tokenizer needs the library tokenizers: pip install tokenizers") from error
    return tokenizers


def _train(
    trained: Any,
    trainer: Any,
    texts: Iterable[str | bytes],
    vocabulary_size: int,
    needed: Sequence[Any],
    prepare: Callable[[TextReader], Iterator[str]] = iter,
) -> None:
    if isinstance(texts, (str, bytes)):
        raise TypeError(f"texts must be an iterable of texts, got a single {type(texts).__name__}.")
    if vocabulary_size <= len(needed):
        raise ValueError(
            f"vocabulary_size must be above {len(needed)}, the number of special tokens and of those that every "
            f"vocabulary has, got {vocabulary_size!r}."
        )
    reader = TextReader(texts)
    try:
        trained.train_from_iterator(prepare(reader), trainer)
    except Exception:
        if reader.failure is not None:
            raise reader.failure from None
        raise
    if reader.failure is not None:
        raise reader.failure
    if not reader.has_text:
        raise ValueError(f"texts holds no text: {reader.rows} rows, all empty or white space.")
    if trained.get_vocab_size() > vocabulary_size:
        raise ValueError(
            f"vocabulary_size must be at least {trained.get_vocab_size()} for the characters and special tokens of "
            f"these texts, got {vocabulary_size}."
        )
