"""Saved models of any kind, and the keys by which they generate text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import zoo
from recipes.common.errors import ConfigError, DataError, errors_of, shown
from recipes.common.run_folder import find_run

TASKS = (
    *("CausalLM", "MaskedLM", "QuestionAnswerer", "ReplacedTokenDetector", "Seq2SeqLM", "TextClassifier"),
    *("TextEmbedder", "TokenClassifier"),
)
_MOST_BEAMS = 256


def make_sampler(description: dict[str, Any] | str) -> zoo.generation.Sampler:
    """Returns the sampler of the key `sampler`.

    Args:
        description: What `get_sampler` takes.

    Raises:
        ConfigError: If there is no such sampler, one of its options is out of range, or it has lists of results.
    """
    with errors_of("sampler"):
        sampler = zoo.generation.get_sampler(description)
    beams = getattr(sampler, "num_beams", 1)
    if beams > _MOST_BEAMS:
        raise ConfigError(f"sampler: num_beams must be at most {_MOST_BEAMS}, got {beams}")
    if sampler.num_texts is not None:
        raise ConfigError(f"sampler: num_results must be null, one text is made of each, got {sampler.num_texts}")
    return sampler


def load_task(directory: str, kind: str | None = None) -> zoo.Task:
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
    require_trained(directory)
    try:
        name = kind or saved_kind(directory)
        if name not in TASKS:
            raise ValueError(f"{directory}: task must be one of {', '.join(TASKS)}, got {shown(name)}.")
        return getattr(zoo, name).from_preset(directory)
    except (OSError, ValueError) as error:
        raise DataError(str(error)) from error


def require_trained(directory: str) -> None:
    """Checks that the folder of a run, where it is one, has the model already.

    Args:
        directory: What `from_preset` takes.

    Raises:
        DataError: If it has not.
    """
    run = find_run(directory) if Path(directory).is_dir() else None
    if run is not None and run.recipe is not None and not (run.path / "model").is_dir():
        raise DataError(f"{directory} is the folder of a run that has no model yet: its training has not ended")


def saved_kind(directory: str) -> str:
    """Returns the name of the task that is stored in a saved model.

    Args:
        directory: What `from_preset` takes.
    """
    reader, source = zoo.storage.find_reader(directory)
    return reader.task_of(source)


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


def language_tokens_of(task: zoo.Task) -> list[str]:
    """Returns the tokens by which a translation model is told the language, such as `<2de>`; none if it has one only.

    These are the control tokens of its tokenizer that have no other role. The sentinels of T5 are none.

    Args:
        task: The task.
    """
    tokenizer = task.tokenizer
    roles = (tokenizer.pad_id, tokenizer.start_id, tokenizer.end_id, tokenizer.unknown_id, tokenizer.mask_id)
    further = (token for token in tokenizer.special_tokens if tokenizer.token_to_id(token) not in roles)
    return [token for token in further if not re.fullmatch(r"<extra_id_\d+>", token)]
