"""One way to load: whoever knows a kind of files registers a reader, and `find_reader` asks them in turn."""

import os
from pathlib import Path
from typing import Any, ClassVar

from zoo.storage.deferred import shapes_only
from zoo.storage.errors import quote
from zoo.storage.folders import readable_folder
from zoo.storage.hub import OF_TOKENIZER, PATTERNS, PREFIX, WITHOUT_WEIGHTS, fetch
from zoo.storage.packages import PACKAGE, find_in_package

_READERS: list["Reader"] = []
_MOST_SHOWN = 12


def means_own(tokenizer: Any) -> bool:
    """Returns whether an argument `tokenizer` means that of the files, which is "auto".

    Args:
        tokenizer: The argument: "auto", a tokenizer, or None for none.

    Raises:
        ValueError: If it is another string.
    """
    if isinstance(tokenizer, str) and tokenizer != "auto":
        raise ValueError(
            "tokenizer must be a tokenizer (Tokenizer.from_preset reads one), 'auto' for that of the files, or None "
            f"for use on token level, got {tokenizer!r}."
        )
    return isinstance(tokenizer, str)


class Reader:
    """Base class of readers of one kind of models. A subclass defines all methods; `register_reader` registers it.

    `source` is the path that `find_reader` returned, or the given name for a reader of names.

    Attributes:
        looks_for: Description of the files by which it recognises its models, for error messages.
    """

    looks_for: ClassVar[str]

    def hint(self, name: str) -> str:
        """Returns a suggestion for an unknown name; an empty one by default.

        Args:
            name: The name.
        """
        return ""

    def accepts(self, source: Path) -> bool:
        """Returns whether a path is a model of this kind.

        Args:
            source: A path of a file or directory, which may not exist.
        """
        raise NotImplementedError

    def accepts_tokenizer(self, source: Path) -> bool:
        """Returns whether a path has a tokenizer that `load_tokenizer` reads; by default that of a model.

        Args:
            source: A path of a file or directory, which may not exist.
        """
        return self.accepts(source)

    def task_of(self, source: Path) -> str:
        """Returns the name of the task that a model was saved as.

        Raises:
            ValueError: If its files do not name a task.
        """
        raise NotImplementedError

    def load_task(self, kind: type, source: Path, load_weights: bool, tokenizer: Any, choices: dict[str, Any]) -> Any:
        """Returns a task: backbone, tokenizer, and a head where the files have one.

        Args:
            kind: The class of the task.
            source: The model.
            load_weights: Whether to load the weights.
            tokenizer: The tokenizer; "auto" for that of the files, if there is one, and None for none.
            choices: Arguments of the task, and replaced choices of the configuration.

        Raises:
            ValueError: If something is damaged or does not fit.
        """
        raise NotImplementedError

    def load_backbone(self, source: Path, load_weights: bool, choices: dict[str, Any]) -> Any:
        """Returns the backbone.

        Args:
            source: The model.
            load_weights: Whether to load the weights.
            choices: Replaced choices of the configuration.

        Raises:
            ValueError: If something is damaged or does not fit.
        """
        raise NotImplementedError

    def load_tokenizer(self, source: Path) -> Any:
        """Returns the tokenizer; None where there is none.

        Raises:
            ValueError: If a file is damaged.
        """
        raise NotImplementedError

    def load_preprocessor(self, kind: type, source: Path, tokenizer: Any, options: dict[str, Any]) -> Any:
        """Returns the preprocessor of a task; no weights are read.

        Args:
            kind: The class of the task.
            source: The model.
            tokenizer: The tokenizer; "auto" for that of the files, and None for none.
            options: Arguments in place of those that the files name.
        """
        with shapes_only():
            return self.load_task(kind, source, False, tokenizer, options).preprocessor


def register_reader(reader: Reader, last: bool = False) -> None:
    """Registers a reader.

    Args:
        reader: The reader.
        last: Whether it is asked after the others, because it accepts models that are theirs.
    """
    if last:
        _READERS.append(reader)
    else:
        _READERS.insert(0, reader)


def find_reader(
    preset: str | os.PathLike[str], *, tokenizer: bool = False, weights: bool = True
) -> tuple[Reader, Path]:
    """Returns the reader of a model, and the path of the model.

    Args:
        preset: A directory or file, `hf://owner/name` for a model of the hub, `package://name` for one in an installed
            package, or a name. The model of a run is found in
            the folder of the run.
        tokenizer: Whether a tokenizer alone is enough.
        weights: Whether weights are to be read, which are fetched only then from the hub.

    Raises:
        ValueError: If no reader accepts it. The message names what they look for.
    """
    name = os.fspath(preset)
    if name.startswith("kaggle://"):
        raise ValueError(
            f"preset must be a directory, hf://owner/name or a name of zoo.list_presets(), got {quote(name)}. "
            "kagglehub.model_download(...) downloads a preset of KerasHub from Kaggle and returns its directory."
        )
    needed = OF_TOKENIZER if tokenizer else PATTERNS if weights else WITHOUT_WEIGHTS
    if name.startswith(PREFIX):
        path = fetch(name, needed)
    elif name.startswith(PACKAGE):
        path = find_in_package(name)
    else:
        path = readable_folder(name)
    for reader in _READERS:
        if reader.accepts(path) or (tokenizer and reader.accepts_tokenizer(path)):
            return reader, path
    if any(reader.accepts_tokenizer(path) for reader in _READERS):
        hints = " It has a tokenizer alone, without a model: Tokenizer.from_preset() reads it."
    else:
        hints = "" if path.exists() else "".join(reader.hint(name) for reader in _READERS)
    # what accepts less than others is asked first, and is rarer
    looked_for = "; ".join(reader.looks_for for reader in reversed(_READERS))
    raise ValueError(f"{_found(name, path)}{hints} It must be {looked_for}.")


def _found(name: str, path: Path) -> str:
    """What there is instead of a model."""
    if path.is_dir():
        names = sorted(os.listdir(path))
        shown = ", ".join(map(quote, names[:_MOST_SHOWN])) or "nothing"
        more = f" and {len(names) - _MOST_SHOWN} more" if len(names) > _MOST_SHOWN else ""
        return f"{path} is no saved model: the directory holds {shown}{more}."
    if path.is_file():
        return f"{path} is no saved model, but another file."
    return f"There is no preset {quote(name)} and no such directory or file."
