"""The corpora that a run trains from: found, checked against each other and against the model."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import zoo
from recipes.common.config import differences
from recipes.common.corpus.output_folder import WORK_FOLDER
from recipes.common.corpus.shards import TOKENIZER_FOLDER, Corpus, fingerprint, held_out_texts, is_corpus
from recipes.common.data.data_sets import Parts, Source, open_parts, refuse_file_keys
from recipes.common.data.plain_text import PLAIN, read_plain
from recipes.common.errors import BadLines, ConfigError, DataError, RunFolderError, shown
from recipes.common.run_folder import RunFolder, trained

TRAIN_HELP = "Text files (or .gz), JSON lines, Parquet files, a data set, or corpora of recipes.prepare_text."
_CORPORA_FILE = "corpora.json"
# of text files whose documents are all in the memory, which takes several times as much
_MOST_BYTES = 1 << 30
WEIGHTS_HELP = (
    "Share of each corpus in the training; each has its own passes. Empty: each pass has all rows of all corpora."
)


def open_corpora(config: Any, run: RunFolder) -> list[Corpus]:
    """Returns the corpora that `data.train` names; none where it names files or a data set.

    Args:
        config: The configuration of a recipe, with the groups `data` and `tokenizer`.
        run: Its run folder.

    Raises:
        ConfigError: If corpora and files are mixed, a corpus is not complete, or a key has no effect with corpora.
        DataError: If the corpora differ in their tokenizers or the lengths of their rows.
        RunFolderError: If the run has been trained on other rows.
    """
    data = config.data
    unfinished = next((name for name in data.train if Path(name, WORK_FOLDER).is_dir() and not is_corpus(name)), None)
    if unfinished is not None:
        raise ConfigError(
            f"data.train: {unfinished} is not complete; the command of recipes.prepare_text that began it goes on"
        )
    found = [is_corpus(name) for name in data.train]
    if not any(found):
        if data.weights:
            raise ConfigError(f"data.weights must be [] without prepared corpora in data.train, got {data.weights}")
        return []
    if not all(found):
        raise ConfigError(f"data.train must name prepared corpora alone, or none, got {shown(data.train, 300)}")
    if not data.validation:
        refuse_file_keys(data, ["unit"])
    changed = [name for name in differences(type(config)(), config) if name.startswith("tokenizer.")]
    if changed:
        raise ConfigError(f"{changed[0]} must not be given with a prepared corpus, whose tokenizer is taken")
    corpora = [Corpus(name) for name in data.train]
    for corpus in corpora[1:]:
        for name in ("tokenizer", "length", "start_id"):
            if corpus.index[name] != corpora[0].index[name]:
                raise DataError(
                    f"{corpus.path} and {corpora[0].path} must have the same {name}, got {corpus.index[name]} and "
                    f"{corpora[0].index[name]}"
                )
    _remember(corpora, run)
    return corpora


def open_running_text(data: Any, corpora: Sequence[Corpus], run: RunFolder) -> tuple[list[str], list[str]]:
    """Returns the documents of training and validation as text; those of the training not where they are prepared.

    Args:
        data: The group `data` of a configuration.
        corpora: What `open_corpora` has found.
        run: The run folder.

    Raises:
        ConfigError, DataError: If there is no validation set, and see `open_parts`.
    """

    def read(files: Sequence[str], bad: BadLines) -> list[str]:
        size = sum(os.path.getsize(file) for file in files if os.path.isfile(file))
        if size > _MOST_BYTES:
            raise DataError(
                f"{files[0]} and others have {size:,} bytes, more than the {_MOST_BYTES:,} that are read into the "
                "memory: recipes.prepare_text makes a corpus of them, from which the training reads what it needs"
            )
        return read_plain(files, bad, unit=data.unit, key=data.text_key)

    if not corpora:
        train, validation = open_parts(data, Source(PLAIN, read), account=run.data)
        return train, validation
    for name, default in (("deduplicate", False), ("validation_share", None), ("limit", None)):
        if getattr(data, name) != default:
            raise ConfigError(
                f"data.{name} must be {shown(default)} with prepared corpora, whose rows are not read here, got "
                f"{shown(getattr(data, name))}"
            )
    if not data.validation:
        return [], held_out_texts(data.train)
    return [], Parts(data, Source(PLAIN, read)).open("validation")[0]


def _remember(corpora: Sequence[Corpus], run: RunFolder) -> None:
    """Notes in a run what its corpora hold; raises a `RunFolderError` if it has been trained on other rows."""
    held = [hashlib.sha256("".join(s["sha256"] for s in each.index["shards"]).encode()).hexdigest() for each in corpora]
    path = run.path / _CORPORA_FILE
    if run.resumed and path.is_file() and trained(run.path) is not None:
        before = json.loads(path.read_text(encoding="utf-8"))
        changed = [str(corpus.path) for corpus, old, new in zip(corpora, before, held, strict=False) if old != new]
        if changed:
            raise RunFolderError(
                f"data.train: {changed[0]} holds other rows than {str(run.path)!r} was trained on; name another run "
                "folder"
            )
    run.write_text(_CORPORA_FILE, json.dumps(held))


def adopt_tokenizer(corpora: Sequence[Corpus], run: RunFolder) -> None:
    """Copies the tokenizer of the corpora to a run that has none yet.

    Args:
        corpora: The corpora.
        run: The run folder.
    """
    if not run.tokenizer.is_dir():
        with zoo.storage.replace_folder(run.tokenizer, lambda old: False, "tokenizer") as folder:
            zoo.tokenizers.Tokenizer.load(corpora[0].path / TOKENIZER_FOLDER).save(folder)


def check_tokenizer(corpora: Sequence[Corpus], tokenizer: zoo.tokenizers.Tokenizer) -> None:
    """Checks that the model reads the ids of the corpora as they were written.

    Args:
        corpora: The corpora.
        tokenizer: The tokenizer of the model.

    Raises:
        ConfigError: If it is another one.
    """
    path: Path = corpora[0].path
    if fingerprint(tokenizer) != corpora[0].index["tokenizer"]:
        raise ConfigError(
            f"data.train: {path} was prepared with another tokenizer ({corpora[0].load_tokenizer().vocabulary_size} "
            f"tokens) than that of the model ({tokenizer.vocabulary_size} tokens): prepare the text with the latter"
        )
