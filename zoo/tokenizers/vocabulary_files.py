"""The vocabulary files of WordPiece and byte-level BPE: `vocab.txt`, `vocab.json` and `merges.txt`."""

from __future__ import annotations

import os
from collections.abc import Mapping

from zoo.storage import parse_json, quote, require_type
from zoo.tokenizers.sentencepiece_check import check_tokens


def in_order_of_ids(ids: Mapping[str, int], name: str = "vocabulary") -> list[str]:
    """Returns the tokens in the order of their ids.

    Args:
        ids: Id of each token.
        name: Their name in errors.

    Raises:
        ValueError: The ids are not 0, 1, 2, ..., or a token is empty, has a NUL, or is too long.
    """
    tokens = sorted(ids, key=ids.get)
    check_tokens(tokens, name)
    for index, token in enumerate(tokens):
        if ids[token] != index:
            raise ValueError(f"{name}[{quote(token)}] must be {index}, as ids are 0, 1, 2, ..., got {ids[token]}.")
    return tokens


def read_vocabulary(content: bytes, source: str | os.PathLike[str]) -> dict[str, int]:
    """Returns the ids of the tokens that a `vocab.json` holds.

    Args:
        content: Content of the file.
        source: Name of the file, for errors.

    Raises:
        ValueError: The file is not a JSON object from tokens to ids.
    """
    vocabulary = parse_json(content, str(source))
    require_type(vocabulary, dict[str, int], f"{source}: the object from tokens to ids")
    return vocabulary


def read_tokens(content: bytes, source: str | os.PathLike[str]) -> list[str]:
    """Returns the tokens that a `vocab.txt` holds, one per line.

    Args:
        content: Content of the file.
        source: Name of the file, for errors.

    Raises:
        ValueError: It is not UTF-8.
    """
    return [line.removesuffix("\r") for line in _lines(content, source)]


def read_merges(content: bytes, source: str | os.PathLike[str]) -> list[tuple[str, str]]:
    """Returns the pairs of tokens that a `merges.txt` holds, the first merged first.

    Args:
        content: Content of the file.
        source: Name of the file, for errors.

    Raises:
        ValueError: A line does not hold two tokens.
    """
    lines = _lines(content, source)
    start = 1 if lines and lines[0].startswith("#version") else 0
    merges = []
    for number, line in enumerate(lines[start:], start + 1):
        pair = tuple(line.removesuffix("\r").split(" "))
        if len(pair) != 2 or "" in pair:
            raise ValueError(f"{source}: line {number} must be two tokens and a space between, got {quote(line)}.")
        merges.append(pair)
    return merges


def _lines(content: bytes, source: str | os.PathLike[str]) -> list[str]:
    try:
        lines = content.decode("utf-8").split("\n")  # splitlines would split at characters that are tokens
    except UnicodeDecodeError as error:
        number = content.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{source}: line {number} must be UTF-8: {error}.") from error
    if lines[-1] == "":
        lines.pop()
    return lines
