"""The vocabulary files of byte-level BPE: `vocab.json` and `merges.txt`."""

from __future__ import annotations

from collections.abc import Mapping

from zoo.storage import parse_json, quote, require_type


def in_order_of_ids(ids: Mapping[str, int]) -> list[str]:
    """Returns the tokens in the order of their ids.

    Raises:
        ValueError: the ids are not 0, 1, 2, ...
    """
    tokens = sorted(ids, key=ids.get)
    for index, token in enumerate(tokens):
        if ids[token] != index:
            raise ValueError(
                f"The ids of the vocabulary must be 0, 1, 2, ...: {index} is missing or {ids[token]} twice."
            )
    return tokens


def read_vocabulary(content: bytes) -> dict[str, int]:
    """Returns the ids of the tokens that a `vocab.json` holds.

    Raises:
        ValueError: it is no JSON object from tokens to ids.
    """
    vocabulary = parse_json(content, "The vocabulary")
    require_type(vocabulary, dict[str, int], "The vocabulary: the object from tokens to ids")
    return vocabulary


def read_merges(content: bytes) -> list[tuple[str, str]]:
    """Returns the pairs of tokens that a `merges.txt` holds, the first merged first.

    Raises:
        ValueError: a line does not hold two tokens.
    """
    try:
        lines = content.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"The merges are not UTF-8: {error}.") from error
    if lines[-1] == "":
        lines.pop()
    start = 1 if lines and lines[0].startswith("#version") else 0
    merges = []
    for number, line in enumerate(lines[start:], start + 1):
        pair = tuple(line.removesuffix("\r").split(" "))
        if len(pair) != 2 or "" in pair:
            raise ValueError(f"Line {number} of the merges is {quote(line)}, not two tokens with a space between them.")
        merges.append(pair)
    return merges
