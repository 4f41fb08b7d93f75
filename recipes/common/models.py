"""What a run starts from: its tokenizer, trained on its data or an existing one, and a model, new or saved."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, TypeVar

import zoo
from recipes.common.config import setting
from recipes.common.errors import ConfigError, DataError, errors_of, shown
from recipes.common.run_folder import RunFolder
from zoo.backbones import Backbone
from zoo.config import least_weights
from zoo.generation import Sampler, get_sampler
from zoo.presets import preset_config
from zoo.storage import find_reader, replace_folder
from zoo.tasks import Task
from zoo.tokenizers import ByteLevelBPETokenizer, SentencePieceTokenizer, Tokenizer, WordPieceTokenizer
from zoo.tokenizers.byte_alphabet import byte_characters
from zoo.tokenizers.characters import character_tokenizer
from zoo.tokenizers.sentencepiece_training import VocabularyTooLargeError

AnyTask = TypeVar("AnyTask", bound=Task)

# by the end of the name: beyond all models, and what would take longer to build than anybody waits
_MOST_BEAMS = 256
_MOST = {"num_layers": 1000, "num_decoder_layers": 1000, "max_length": 1 << 20, "": 1 << 24}

TASKS = (
    *("CausalLM", "MaskedLM", "QuestionAnswerer", "ReplacedTokenDetector", "Seq2SeqLM", "TextClassifier"),
    *("TextEmbedder", "TokenClassifier"),
)


@dataclasses.dataclass(frozen=True)
class TokenizerConfig:
    """The tokenizer; recipes derive from it, with defaults of their own."""

    kind: Literal["characters", "bytes", "byte_level_bpe", "bpe", "unigram", "wordpiece"] = setting(
        "bpe", "bpe and unigram are SentencePiece models."
    )
    vocabulary_size: int = setting(
        8000, "Most tokens, special ones included (not characters and bytes).", least=1, most=10**7
    )
    character_coverage: float = setting(
        1.0, "Share of the characters that get a token of their own (bpe, unigram).", least=0.98, most=1
    )
    split_digits: bool = setting(False, "Whether each digit is a token of its own (bpe, unigram).")
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
) -> Tokenizer:
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
            raise ConfigError(f"tokenizer.{name} must be {default!r} with kind {config.kind!r}, got {value!r}")
    if run.tokenizer.is_dir():
        return Tokenizer.load(run.tokenizer)
    print(f"training a tokenizer: {config.kind}")
    with errors_of("tokenizer"):
        try:
            tokenizer = _train(config, texts(), mask_token, end_token, special_tokens)
        except VocabularyTooLargeError as error:
            smaller = dataclasses.replace(config, vocabulary_size=error.largest)
            tokenizer = _train(smaller, texts(), mask_token, end_token, special_tokens)
    largest = tokenizer.vocabulary_size
    if largest < config.vocabulary_size and config.kind not in ("characters", "bytes"):
        print(f"tokenizer: the texts allow {largest} tokens, vocabulary_size is {config.vocabulary_size}")
    with replace_folder(run.tokenizer, lambda old: False, "tokenizer") as folder:
        tokenizer.save(folder)
    return tokenizer


def _train(
    config: TokenizerConfig, texts: Iterable[str], mask_token: str | None, end_token: str, special_tokens: Sequence[str]
) -> Tokenizer:
    size = config.vocabulary_size
    special_tokens = [*special_tokens, *([] if mask_token is None else [mask_token])]
    if config.kind == "characters":
        return character_tokenizer(texts)
    if config.kind in ("bpe", "unigram"):
        tokenizer = SentencePieceTokenizer.train(
            texts,
            size,
            model_type=config.kind,
            character_coverage=config.character_coverage,
            split_digits=config.split_digits,
            special_tokens=special_tokens,
        )
        roles = {"mask_token": mask_token, "special_tokens": special_tokens}
        return SentencePieceTokenizer.from_config({**tokenizer.get_config(), **roles})
    if config.kind == "wordpiece":
        # which has a mask token in any case
        return WordPieceTokenizer.train(texts, size, lowercase=config.lowercase)
    options = {"end_token": end_token, "mask_token": mask_token, "special_tokens": special_tokens}
    if config.kind == "byte_level_bpe":
        return ByteLevelBPETokenizer.train(texts, size, **options)
    # nothing is merged, so nothing is learned
    vocabulary = [end_token, *special_tokens, *byte_characters()]
    return ByteLevelBPETokenizer(vocabulary, [], pad_token=end_token, start_token=end_token, **options)


def check_architecture(preset: str, options: dict[str, Any]) -> None:
    """Checks the choices of a model before data are read, and that this machine can hold it.

    Args:
        preset: Name of the architecture.
        options: Choices that differ from the preset.

    Raises:
        ConfigError: If there is no such preset or choice, a number is beyond all models, or the weights with their
            gradients and the optimizer's two moments need more than the memory of this machine.
    """
    if "vocabulary_size" in options:
        raise ConfigError("model.options must not hold vocabulary_size: the tokenizer decides about it")
    with errors_of("model"):
        config = preset_config(preset, **options)
        sizes = least_weights(config)
    for name, value in _numbers(config.to_dict()):
        most = next((most for end, most in _MOST.items() if name.endswith(end)))
        if value > most:
            raise ConfigError(f"model.options: {name} must be at most {most:,}, got {shown(value)}")
    needed, memory = 16 * sum(sizes.values()), os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > memory:
        raise ConfigError(
            f"model.options: {', '.join(sizes)} take at least {needed / 1e9:,.0f} GB in training, this machine has "
            f"{memory / 1e9:,.0f} GB"
        )


def _numbers(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, int]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _numbers(value, f"{prefix}{name}.")
        for number in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(number, int):
                yield prefix + name, number


def make_sampler(description: dict[str, Any] | str) -> Sampler:
    """Returns the sampler of the key `sampler`.

    Args:
        description: What `get_sampler` takes.

    Raises:
        ConfigError: If there is no such sampler, one of its options is out of range, or it has lists of results.
    """
    with errors_of("sampler"):
        sampler = get_sampler(description)
    beams = getattr(sampler, "num_beams", 1)
    if beams > _MOST_BEAMS:
        raise ConfigError(f"sampler: num_beams must be at most {_MOST_BEAMS}, got {beams}")
    if sampler.num_texts is not None:
        raise ConfigError(f"sampler: num_results must be null, one text is made of each, got {sampler.num_texts}")
    return sampler


def make_task(
    kind: type[AnyTask], preset: str, tokenizer: Tokenizer, options: dict[str, Any], **task_options: Any
) -> AnyTask:
    """Returns a task with initial weights, and says how large it is.

    Args:
        kind: The class.
        preset: Name of the architecture.
        tokenizer: The tokenizer, which decides about the size of the vocabulary.
        options: Choices that differ from the preset.
        **task_options: Arguments of the task.

    Raises:
        ConfigError: If there is no such preset or choice.
    """
    with errors_of("model"):
        config = preset_config(preset, vocabulary_size=tokenizer.vocabulary_size, **options)
        task = kind(Backbone.from_config(config), tokenizer, **task_options)
    print(f"{preset}: {task.count_params():,} parameters")
    return task


def load_task(directory: str, kind: str | None = None) -> Task:
    """Returns the task of a saved model.

    Args:
        directory: What `from_preset` takes.
        kind: One of `TASKS`; None for the kind that was saved.

    Raises:
        ConfigError: If there is no such kind.
        DataError: If there is no saved model.
    """
    if kind not in (None, *TASKS):
        raise ConfigError(f"task must be one of {', '.join(TASKS)}, got {kind!r}")
    try:
        name = kind or _saved_kind(directory)
        if name not in TASKS:
            raise ValueError(f"{directory}: task must be one of {', '.join(TASKS)}, got {shown(name)}.")
        return getattr(zoo, name).from_preset(directory)
    except (OSError, ValueError) as error:
        raise DataError(str(error)) from error


def _saved_kind(directory: str) -> str:
    """The task that a model says that it is of."""
    reader, source = find_reader(directory)
    return reader.task_of(source)


def start_from(kind: type[AnyTask], directory: str, **task_options: Any) -> AnyTask:
    """Returns a task on the backbone and tokenizer of a saved model, and says how large it is.

    Args:
        kind: The class.
        directory: What `from_preset` takes; of a model of the same kind or another, whose head is left. Active low-rank
            updates are merged.
        **task_options: Arguments of the task.

    Raises:
        ConfigError: If there is no such model, its backbone does not fit the task, or its weights are quantized.
    """
    with errors_of("model.start_from"):
        task = kind.from_preset(directory, **task_options)
    if task.adaptation.mode is not None:
        # low-rank updates of quantized weights could train, but not be saved
        raise ConfigError(
            f"model.start_from must be a model whose weights can train, those of {directory} are stored in "
            f"{task.adaptation.mode}"
        )
    adapters = task.backbone.adapters
    if adapters.active:
        print(f"low-rank updates are merged: {', '.join(adapters.active)}")
        task.merge_lora()
    if len(adapters):
        task.remove_adapters(*adapters)  # those that were not active
    print(f"{directory}: {task.count_params():,} parameters")
    return task


def require_texts_alone(options: dict[str, Any], *names: str) -> None:
    """Checks that `generate` is not asked for more than its caller has a place for.

    Args:
        options: The key `options`: arguments of `generate`.
        *names: Arguments that must not be given, or be false.

    Raises:
        ConfigError: If one is given, naming it.

    Example:

    >>> require_texts_alone({"max_length": 64}, "return_scores", "return_cache")
    """
    for name in names:
        if options.get(name):
            raise ConfigError(f"options must not hold {name}: only texts are used, got {shown(options[name])}")


def language_tokens_of(task: Task) -> list[str]:
    """Returns the tokens by which a translation model is told the language, such as `<2de>`; none if it has one only.

    These are the control tokens of its tokenizer that have no other role. The sentinels of T5 are none.

    Args:
        task: The task.
    """
    tokenizer = task.tokenizer
    roles = (tokenizer.pad_id, tokenizer.start_id, tokenizer.end_id, tokenizer.unknown_id, tokenizer.mask_id)
    further = (token for token in tokenizer.special_tokens if tokenizer.token_to_id(token) not in roles)
    return [token for token in further if not re.fullmatch(r"<extra_id_\d+>", token)]
