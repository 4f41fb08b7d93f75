"""What a model is evaluated on: a part of the data of a run, or of data that somebody chose."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Set
from pathlib import Path
from typing import Any

from recipes.common.corpus.shards import held_out_texts, is_corpus
from recipes.common.data.account import changed_files
from recipes.common.data.data_sets import Parts, Source, files_of, is_name, refuse_file_keys
from recipes.common.data.plain_text import PLAIN, read_plain
from recipes.common.errors import ConfigError, DataError, RunFolderError
from recipes.common.saved_models import make_sampler

# why a key is not read
OF_TRAINING = "it says what models are trained on"
# keys of `data` that say how a model reads and writes, not where rows come from: each run has its own
_OF_THE_MODEL = ("chat_format", "language_tokens", "max_length", "max_summary_length")


@dataclasses.dataclass(frozen=True)
class HeldOut:
    """What a model is evaluated on.

    Args:
        config: The config of its run; None where it is not one of a run.
        source: The config of the first run of those that are evaluated, which says what is measured; None for none.
        folder: The folder of its run.
        data: The group `data` of a config of the recipe.
        given: The keys of it that somebody chose for this evaluation.
        split: "train", "validation" or "test".
        options: Arguments of `generate` that differ from those of the run.
        length: Tokens of a window of a language model; None for those of training.
    """

    config: Any
    source: Any
    folder: Path | None
    data: Any
    given: Set[str]
    split: str
    options: dict[str, Any]
    length: int | None = None

    @property
    def is_asked_for(self) -> bool:
        """Whether somebody chose these rows: other data than those of the run, or another part than the test set."""
        return self.split != "test" or not {"test", "validation"}.isdisjoint(self.given)

    def decoding(self) -> dict[str, Any]:
        """Returns how a run decodes, unless the options say it; a model that is not one of a run decodes as it says."""
        description = self.options.get("sampler") or getattr(self.config, "sampler", None)
        return {**self.options, **({} if description is None else {"sampler": make_sampler(description)})}

    def refuse(self, *names: str, because: str) -> None:
        """Raises a `ConfigError` for keys of `data` that somebody chose, and that are not read.

        Args:
            *names: The keys.
            because: Why they are not.
        """
        for name in names:
            if name in self.given:
                raise ConfigError(f"data.{name} is not read here: {because}; got {getattr(self.data, name)!r}")


def data_for(data: Any, own: Any, given: Collection[str]) -> Any:
    """Returns the data of an evaluation as one of several models takes them: the rows of all, in its own format.

    Args:
        data: The group `data` that says where the rows are.
        own: That of the model's run, or a default one.
        given: The keys that somebody chose for this evaluation.
    """
    names = [name for name in _OF_THE_MODEL if hasattr(own, name) and name not in given]
    return dataclasses.replace(data, **{name: getattr(own, name) for name in names})


def open_rows(held_out: HeldOut, source: Source, *, describes_files: Collection[str] = ()) -> tuple[list[Any], int]:
    """Returns the rows of a part of the data, and how many were left out; the validation set stands for a test set.

    Args:
        held_out: Where they are.
        source: How rows are read.
        describes_files: See `recipes.common.data.data_sets.refuse_file_keys`.

    Raises:
        DataError: If there is no such part.
        ConfigError: If a key was chosen that says how files are read, and they are those of a named data set.
        RunFolderError: If the files of the run have changed since it has read them.
    """
    data, split = held_out.data, held_out.split
    parts = {"test": ("test", "validation") if hasattr(data, "test") else ("validation",)}.get(split, (split,))
    # the limit of a run is that of its own rows
    whole = dataclasses.replace(data, limit=None) if "limit" not in held_out.given else data
    for part in parts:
        # another part of the data set that is asked for, not that part of another
        of = split if getattr(data, split, None) else part
        files, is_own = files_of(data, of), held_out.given.isdisjoint({part, split})
        if is_name(files):
            refuse_file_keys(data, held_out.given, describes_files)
        elif files and is_own:
            _require_unchanged(held_out, part, files)
        rows, bad = Parts(data if is_own else whole, source).open(part, of)
        if rows is not None:
            if part != parts[0]:
                print(f"{' '.join(files)}: there is no {split} set; this is the {part} set")
            return rows, bad.total
    raise DataError(f"data.{split} must be given: {' '.join(data.train)} has no {split} set")


def open_text(held_out: HeldOut) -> tuple[list[str], int]:
    """Returns the documents of a part of running text, and how many were left out; see `open_rows`.

    Args:
        held_out: Where they are: also in prepared corpora, which hold texts for the validation.
    """
    data = held_out.data
    if held_out.split != "train" and not data.validation and all(map(is_corpus, data.train)):
        return held_out_texts(data.train), 0
    source = Source(PLAIN, lambda files, bad: read_plain(files, bad, unit=data.unit, key=data.text_key))
    return open_rows(held_out, source)


def _require_unchanged(held_out: HeldOut, part: str, files: list[str]) -> None:
    """The data of a run are those that it has read: scores of others, under its name, would not be its own."""
    # other models are given the rows of the first run, whatever they have read themselves
    is_own = held_out.folder is not None and held_out.config == held_out.source
    changed = changed_files(held_out.folder, {f"data.{part}": files}) if is_own else []
    if changed:
        raise RunFolderError(
            f"the run in {str(held_out.folder)!r} has read data that have changed since; put the old files back, or "
            f"name what to evaluate on by --data.{held_out.split}:\n" + "\n".join(changed)
        )
