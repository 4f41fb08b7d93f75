"""Where served models are: which names and versions a folder holds."""

from __future__ import annotations

import re
from pathlib import Path

SAVED_MODEL_FILE = "saved_model.pb"
# As in `zoo.export.versions`; larger ones fit into no message.
_NUMBER = re.compile("[0-9]{1,18}")


def find_versions(folder: Path) -> dict[str, dict[int, Path]]:
    """Returns the folders of exports by name and version.

    A folder is one of four: an export itself, which is version 1 of a model of the folder's name (of a run folder's,
    where the export is its `export`); a model, with a folder for each version; a folder of models; or a run folder,
    whose `export` is one of the others.

    Args:
        folder: The folder.

    Returns:
        `{name: {version: folder}}`; models without a version are left out, those that cannot be read have none.

    Raises:
        NotADirectoryError: If there is no such folder.

    Example:

    >>> find_versions(Path("models"))
    {'dates': {1: PosixPath('models/dates/1'), 2: PosixPath('models/dates/2')}}
    """
    if not folder.is_dir():
        raise NotADirectoryError(f"models must be a folder with exported models, got {str(folder)!r}, which is none")
    if (folder / SAVED_MODEL_FILE).is_file():
        name = folder.resolve().parent.name if folder.resolve().name == "export" else folder.resolve().name
        return {name: {1: folder}}
    own = _versions(folder)
    if own:
        return {folder.resolve().name: own}
    found: dict[str, dict[int, Path]] = {}
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith(".") or not entry.is_dir():
            continue
        try:
            versions = {1: entry} if (entry / SAVED_MODEL_FILE).is_file() else _versions(entry)
        except OSError:
            found[entry.name] = {}
            continue
        if versions:
            found[entry.name] = versions
    exports = folder / "export"
    # a run folder, and no folder of models of which one is called so
    return find_versions(exports) if set(found) <= {"export"} and exports.is_dir() else found


def _versions(folder: Path) -> dict[int, Path]:
    """The versions of a model: folders whose names are numbers, which hold a whole export.

    Not those of `zoo.export.versions`: what answers requests starts without Keras.
    """
    return {
        int(entry.name): entry
        for entry in sorted(folder.iterdir())
        if _NUMBER.fullmatch(entry.name) and (entry / SAVED_MODEL_FILE).is_file()
    }
