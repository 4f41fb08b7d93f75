"""Every line of text below a folder, whatever the format of its files."""

from __future__ import annotations

import gzip
import zipfile
from collections.abc import Iterator
from pathlib import Path

_SUFFIXES = {".txt", ".csv", ".tsv", ".jsonl", ".conllu", ".conll", ".md", ".inp", ".en", ".de", ".fr"}


def text_files(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yields name and content of each text file below a folder, also of those that gzip or zip has compressed.

    Args:
        folder: The folder. Files whose name does not end as one of a text file does are left out.
    """
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.suffix == ".zip":
            with zipfile.ZipFile(path) as archive:
                for member in sorted(archive.namelist()):
                    if not member.endswith("/") and Path(member).name != ".DS_Store":
                        yield f"{name}/{member}", archive.read(member)
        elif path.suffix == ".gz" and Path(path.stem).suffix in _SUFFIXES:
            yield name, gzip.decompress(path.read_bytes())
        elif path.suffix in _SUFFIXES:
            yield name, path.read_bytes()


def distinct_lines(folder: Path) -> list[str]:
    """Returns each line of the text files below a folder once, in the order of their first appearance.

    Bytes that are not valid UTF-8 become U+FFFD. Line ends are the byte 10 alone, so that carriage returns and other
    separators stay in the text.

    Args:
        folder: The folder.

    Raises:
        FileNotFoundError: There is no text.

    Example:

    >>> lines = distinct_lines(Path("data"))
    """
    lines = {}
    for _, content in text_files(folder):
        lines.update(dict.fromkeys(content.decode("utf-8", "replace").split("\n")))
    if not lines:
        raise FileNotFoundError(f"there is no text file below {folder}")
    return list(lines)
