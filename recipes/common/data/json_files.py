"""JSON objects of files, one a line or all in one array, and where they stand."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from recipes.common.data.lines import Line
from recipes.common.errors import BadLines, DataError, shown

BAD_JSON = "not a JSON object"

# half of a pair that stands for one character, which JSON can write but no text can hold
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_SPACE = re.compile(r"[ \t\r\n]*")


def objects_of_lines(lines: Iterable[Line], bad: BadLines) -> Iterator[tuple[dict[str, Any], str]]:
    """Yields the objects of JSON lines with their places, `FILE:line`.

    Args:
        lines: Lines that hold something.
        bad: Where lines that hold something else are noted.
    """
    for text, origin, *_ in lines:
        try:
            record = parse_json(text)
            _check_text(record, text)
        except (ValueError, RecursionError) as error:
            bad.add(BAD_JSON, origin, _problem(error))
            continue
        if isinstance(record, dict):
            yield record, origin
        else:
            bad.add(BAD_JSON, origin, f"but a {type(record).__name__}")


def begins_array(lines: Iterable[Line]) -> bool:
    """Returns whether the first line that is not empty begins an array.

    Args:
        lines: The lines of a file.
    """
    first = next((line.text for line in lines if line.text is None or line.text.strip()), None)
    return first is not None and first.lstrip().startswith("[")


def objects_of_array(path: Path, lines: Iterable[Line], bad: BadLines) -> Iterator[tuple[dict[str, Any], str]]:
    """Yields the objects of a file that is one JSON array, with the lines where they begin, `FILE:line`.

    Of several that begin in one line, the others have their number in that line: `FILE:line (2)`.

    Args:
        path: The file.
        lines: Its lines.
        bad: Where entries that are no objects are noted.

    Raises:
        DataError: If the array itself is broken, with the line: where the next entry begins is not known then.
    """
    texts = []
    for line in lines:
        if line.text is None:
            raise DataError(f"{line.origin}: {line.problem}")
        texts.append(line.text)
    text, decoder = "\n".join(texts), json.JSONDecoder(object_pairs_hook=_with_each_key_once)
    number, counted, nth = 1, 0, 0
    place, closing = _SPACE.match(text, text.index("[") + 1).end(), False
    while True:
        passed = text.count("\n", counted, place)
        number, counted, nth = number + passed, place, 1 if passed else nth + 1
        origin = f"{path}:{number}" if nth == 1 else f"{path}:{number} ({nth})"
        if text.startswith("]", place) and not closing:
            break
        try:
            record, end = decoder.raw_decode(text, place)
            place = _SPACE.match(text, end).end()
            if text[place : place + 1] not in (",", "]"):
                raise json.JSONDecodeError("Expecting ',' or ']'", text, place)
        except (ValueError, RecursionError) as error:
            line = error.lineno if isinstance(error, json.JSONDecodeError) else number
            raise DataError(f"{path}:{line}: the array of JSON is broken: {_problem(error)}") from error
        try:
            _check_text(record, text[counted:end])
        except ValueError as error:
            bad.add(BAD_JSON, origin, str(error))
        else:
            if isinstance(record, dict):
                yield record, origin
            else:
                bad.add(BAD_JSON, origin, f"but a {type(record).__name__}")
        closing = text[place] == ","
        if not closing:
            break
        place = _SPACE.match(text, place + 1).end()
    rest = _SPACE.match(text, place + 1).end()
    if rest < len(text):
        raise DataError(f"{path}:{1 + text.count(chr(10), 0, rest)}: there is more behind the array of JSON")


def parse_json(text: str) -> Any:
    """Returns the value of a JSON text.

    Args:
        text: The text.

    Raises:
        ValueError: If it is no JSON, or an object in it has a key twice.
    """
    return json.loads(text, object_pairs_hook=_with_each_key_once)


def _with_each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        twice, count = Counter(key for key, _ in pairs).most_common(1)[0]
        raise ValueError(f"the key {shown(twice)} stands {count} times in one object")
    return record


def _check_text(record: Any, text: str) -> None:
    """Raises a ValueError for half a character."""
    if _SURROGATE.search(text):
        json.dumps(record, ensure_ascii=False).encode("utf-8")


def _problem(error: Exception) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)
