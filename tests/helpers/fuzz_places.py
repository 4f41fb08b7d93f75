"""What an error names inside a file: the key that was changed, another place, or nothing."""

import json
import re
from pathlib import Path

ABSENT = object()
# what is wrong inside a file that has no keys
POSITION = re.compile(
    r"\[\d+\]|\b(line|column|char|byte|position|offset|row|id) \d|\d+ bytes|\bheader\b|\w_spec\.\w|pieces"
    r"|must be an object|must be a list|no HDF5 file|: /\w|\['|\w_token=|\.(weight|bias)\b|\.num_\w"
)


def place_of(text: str, seed: dict, original: bytes, folder: Path) -> str:
    """What an error names inside a file: "key" for what was changed, else "place"; nothing if it names none."""
    name = Path(seed["file"]).name
    if name not in text:
        return ""
    text = re.sub(rf"{re.escape(str(folder))}\S*?(?=[:,'\s]|$)", "", text)
    content = (folder / seed["file"]).read_bytes()
    before, after = _json_of(original, name), _json_of(content, name)
    changed = {str(key) for path in _differing(before, after) for key in path[-2:] if isinstance(key, str)}
    words = set(re.findall(r"[\w.<>|\[\]#▁/-]+", text))
    words |= {word.strip("./") for word in words} | {part for word in words for part in word.split(".")}
    if (
        words & changed
        or any(f".{key} must be" in text for key in changed)
        or any(key[:60] in text for key in changed if len(key) > 3)
    ):
        return "key"
    if POSITION.search(text):
        return "place"
    keys = _keys(before) | _keys(after)
    for other in folder.rglob("*"):
        if other.suffix in (".json", ".safetensors") and other.is_file():
            keys |= _keys(_json_of(other.read_bytes(), other.name))
    return "place" if words & {key for key in keys if len(key) > 2} else ""


def _keys(value: object) -> set[str]:
    found, waiting = set(), [value]
    while waiting:
        entry = waiting.pop()
        if isinstance(entry, dict):
            found.update(entry)
        if isinstance(entry, (dict, list)):
            waiting += entry.values() if isinstance(entry, dict) else entry
    return found


def _json_of(content: bytes, name: str) -> object:
    if name.endswith(".safetensors"):
        content = content[8 : 8 + int.from_bytes(content[:8], "little")]
    elif not name.endswith(".json"):
        return None
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def _differing(before: object, after: object, path: tuple = ()) -> list[tuple]:
    if isinstance(before, dict) and isinstance(after, dict):
        keys = dict.fromkeys((*before, *after))
        pairs = ((key, before.get(key, ABSENT), after.get(key, ABSENT)) for key in keys)
        return [place for key, old, new in pairs for place in _differing(old, new, (*path, key))]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = enumerate(zip(before, after, strict=True))
        return [place for index, pair in pairs for place in _differing(*pair, (*path, index))]
    if isinstance(before, (dict, list)) or isinstance(after, (dict, list)):
        return [path]  # comparing nests as deep as they do
    return [] if (type(before), before) == (type(after), after) else [path]
