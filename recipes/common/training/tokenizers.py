"""The tokenizer of a run: trained once on its texts, and found again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import zoo
from recipes.common.config import setting
from recipes.common.errors import ConfigError, errors_of, shown
from recipes.common.run_folder import RunFolder


@dataclasses.dataclass(frozen=True)
class TokenizerConfig:
    """The tokenizer; recipes derive from it, with defaults of their own."""

    kind: Literal["characters", "bytes", "byte_level_bpe", "bpe", "unigram", "wordpiece"] = setting(
        "bpe", "Kind of tokenizer. bpe and unigram are SentencePiece models."
    )
    vocabulary_size: int = setting(
        8000,
        "Largest number of tokens in the vocabulary, including special tokens (not for characters and bytes).",
        least=1,
        most=10**7,
    )
    character_coverage: float = setting(
        1.0, "Share of the characters in the text that get their own token (bpe, unigram).", least=0.98, most=1
    )
    split_digits: bool = setting(False, "Whether each digit is a separate token (bpe, unigram).")
    lowercase: bool = setting(False, "Whether text is lower-cased (wordpiece).")


_KINDS_WITH = {
    "character_coverage": ("bpe", "unigram"),
    "split_digits": ("bpe", "unigram"),
    "lowercase": ("wordpiece",),
}


def load_or_train_tokenizer(
    config: TokenizerConfig,
    run: RunFolder,
    texts: Callable[[], Iterable[str]],
    *,
    mask_token: str | None = None,
    end_token: str = "<|endoftext|>",
    special_tokens: Sequence[str] = (),
) -> zoo.tokenizers.Tokenizer:
    """Returns the run's tokenizer, trained on the texts if the run has none yet.

    Args:
        config: The configuration.
        run: The run folder, which keeps it.
        texts: Gives the training texts.
        mask_token: The token that hides others, for a masked language model.
        end_token: The token that ends texts, of byte_level_bpe and bytes.
        special_tokens: Further special tokens.

    Raises:
        ConfigError: If an option is not one of its kind, or the texts do not allow the configuration.
    """
    for name, kinds in _KINDS_WITH.items():
        value, default = getattr(config, name), TokenizerConfig.__dataclass_fields__[name].default
        if config.kind not in kinds and value != default:
            raise ConfigError(
                f"tokenizer.{name} must be {shown(default)} with kind {config.kind!r}, got {shown(value)}"
            )
    if run.tokenizer.is_dir():
        return zoo.tokenizers.Tokenizer.load(run.tokenizer)
    print(f"training a tokenizer: {config.kind}")
    with errors_of("tokenizer"):
        try:
            tokenizer = _train(config, texts(), mask_token, end_token, special_tokens)
        except zoo.tokenizers.sentencepiece_training.VocabularyTooLargeError as error:
            smaller = dataclasses.replace(config, vocabulary_size=error.largest)
            tokenizer = _train(smaller, texts(), mask_token, end_token, special_tokens)
    largest = tokenizer.vocabulary_size
    if largest < config.vocabulary_size and config.kind not in ("characters", "bytes"):
        print(f"tokenizer: the texts allow {largest} tokens, vocabulary_size is {config.vocabulary_size}")
    with zoo.storage.replace_folder(run.tokenizer, lambda old: False, "tokenizer") as folder:
        tokenizer.save(folder)
    return tokenizer


def _train(
    config: TokenizerConfig, texts: Iterable[str], mask_token: str | None, end_token: str, special_tokens: Sequence[str]
) -> zoo.tokenizers.Tokenizer:
    size = config.vocabulary_size
    special_tokens = [*special_tokens, *([] if mask_token is None else [mask_token])]
    if config.kind == "characters":
        return zoo.tokenizers.character_tokenizer(texts)
    if config.kind in ("bpe", "unigram"):
        tokenizer = zoo.tokenizers.SentencePieceTokenizer.train(
            texts,
            size,
            model_type=config.kind,
            character_coverage=config.character_coverage,
            split_digits=config.split_digits,
            special_tokens=special_tokens,
        )
        roles = {"mask_token": mask_token, "special_tokens": special_tokens}
        return zoo.tokenizers.SentencePieceTokenizer.from_config({**tokenizer.get_config(), **roles})
    if config.kind == "wordpiece":
        # which has a mask token in any case
        return zoo.tokenizers.WordPieceTokenizer.train(texts, size, lowercase=config.lowercase)
    options = {"end_token": end_token, "mask_token": mask_token, "special_tokens": special_tokens}
    if config.kind == "byte_level_bpe":
        return zoo.tokenizers.ByteLevelBPETokenizer.train(texts, size, **options)
    # nothing is merged, so nothing is learned
    vocabulary = [end_token, *special_tokens, *zoo.tokenizers.byte_alphabet.byte_characters()]
    return zoo.tokenizers.ByteLevelBPETokenizer(vocabulary, [], pad_token=end_token, start_token=end_token, **options)
