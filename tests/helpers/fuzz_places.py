"""What an error names of a file that was changed: the key, a position in it, another key, or the file alone."""

import io
import itertools
import json
import re
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from fuzz_gguf import Parts, names_in_library

ABSENT = object()
# our names of keys that errors show
OURS = {
    **{"eos_token": "end_token", "sep_token": "end_token", "bos_token": "start_token", "cls_token": "start_token"},
    **{"unk_token": "unknown_token", "hidden_size": "hidden_dim", "vocab_size": "vocabulary_size"},
}
SPECS = ("normalizer_spec", "denormalizer_spec", "trainer_spec")


def place_of(text: str, seed: dict, original: bytes, folder: Path) -> str:
    """What an error names, where it names the changed file.

    "key" is the very key (tensor, field, line) that was changed; "position" a byte, line, entry or tensor that the file
    has; "other" another key that it has, or our name of the key. "file" is the file alone, where the change has no key:
    bytes of a file without keys, a size, a checksum. Where it has one and the error names none of these, the result is
    empty.

    Args:
        text: The error.
        seed: The case, with the path of its `file`.
        original: What was in the file before.
        folder: Where the changed file is.
    """
    name = Path(seed["file"]).name
    if name not in text:
        return ""
    content = (folder / seed["file"]).read_bytes()
    # names of files and folders are no keys, though they may be spelled alike
    text = re.sub(rf"{re.escape(str(folder))}[^\s:,']*", "", text)
    for path in sorted(folder.rglob("*"), key=lambda path: -len(path.name)):
        # what a folder is called is a key, too ("tokenizer"), where no file in it is named
        text = text.replace(f"{path.name}/" if path.is_dir() else path.name, "")
    changed = set(_changed_keys(name, original, content))
    if any(names_key(text, key) for key in changed):
        return "key"
    if _says_that_it_is_another_file(text):
        return "file"
    if "the number of tokens in" in text:  # too many for the backbone, whichever they are
        return "other"
    if _names_position(text, name, original, content, folder):
        return "position"
    keys = _keys(_values(name, original)) | _keys(_values(name, content))
    if name.endswith(".gguf"):
        # a name of the architecture is a part of other keys
        keys |= names_in_library(original)[0] | {key.partition(".")[2] for key in keys}
    keys |= {OURS[key] for key in keys & set(OURS)}
    if any(names_key(text, key) if len(key) > 2 else f"[{key!r}]" in text for key in keys):
        return "other"
    return "" if changed else "file"


def names_key(text: str, key: str) -> bool:
    """Whether a text names a key as a key, and not a word of prose that is spelled alike.

    Args:
        text: The text.
        key: The key.
    """
    if not key:
        return "''" in text
    cut = key[:60]
    if cut not in text:  # a million keys may have changed
        return not cut.isprintable() and repr(cut)[1:-1] in text
    word, end = re.escape(cut), r"(?![\w-])" if len(key) <= 60 else ""
    before = rf"(?:[.\[('\"]|[:;,] | has | have no |^){word}{end}"
    after = rf"(?<![\w-]){word}{end}(?=[=.\[]\S| must| is missing| is not known| for )"
    return re.search(f"{before}|{after}", text) is not None


def _says_that_it_is_another_file(text: str) -> bool:
    return "it is not the file that was saved" in text


def _changed_keys(name: str, before: bytes, after: bytes) -> Iterator[str]:
    old, new = _values(name, before), _values(name, after)
    if old is None or new is None:
        return
    if name.endswith(".txt"):  # what a line holds is its key: a token
        tokens = set(before.split(b"\n")) ^ set(after.split(b"\n"))
        yield from (token.decode("utf-8", "replace") for token in tokens if token)
    if name.endswith(".model"):
        yield from set(_pieces(before)) ^ set(_pieces(after))
    for path in _differing(old, new):
        yield from [key for key in path if isinstance(key, str)][-2:]
        # an entry of a list by its number
        yield from (f"[{index}]" for index in path[:1] if isinstance(index, int))
        yield from (f"{key}[{index}]" for key, index in itertools.pairwise(path) if isinstance(index, int))


def _values(name: str, content: bytes) -> Any:
    """What is in a file, by keys; None where it has none or cannot be read."""
    try:
        if name.endswith(".safetensors"):
            return _of_json(content[8 : 8 + int.from_bytes(content[:8], "little")])
        if name.endswith(".json"):
            return _of_json(content)
        if name.endswith(".model"):
            return _of_proto(content)
        if name.endswith(".txt"):
            return {f"line {number}": line for number, line in enumerate(content.split(b"\n"), 1)}
        if name.endswith(".h5"):
            return _of_h5(content)
        if name.endswith(".gguf"):
            return Parts(content).values()
        if name.endswith(".bin"):
            names = ("dim", "hidden_dim", "n_layers", "n_heads", "n_kv_heads", "vocab_size", "max_seq_len")
            return dict(zip(names, struct.unpack_from("<7i", content), strict=True))
    except (ValueError, RecursionError, struct.error, OSError, RuntimeError, KeyError, TypeError):
        pass
    return None


def _of_json(content: bytes) -> Any:
    # Python refuses to read numbers of thousands of digits, which do not hide the key
    return json.loads(content, parse_int=lambda digits: int(digits) if len(digits) < 1000 else digits)


def _of_proto(content: bytes) -> dict[str, Any] | None:
    from google.protobuf.message import DecodeError
    from sentencepiece import sentencepiece_model_pb2

    try:
        model = sentencepiece_model_pb2.ModelProto.FromString(content)
    except (DecodeError, UnicodeDecodeError):
        return None
    values: dict[str, Any] = {name: _fields(getattr(model, name)) for name in SPECS}
    # an entry that is there no more, or for the first time, is one of "pieces"
    pieces = [repr(_fields(piece)) for piece in model.pieces]
    return {**values, "pieces": pieces}


def _pieces(content: bytes) -> list[str]:
    from sentencepiece import sentencepiece_model_pb2

    return [piece.piece for piece in sentencepiece_model_pb2.ModelProto.FromString(content).pieces if piece.piece]


def _fields(message: Any) -> dict[str, Any]:
    return {field.name: repr(value) for field, value in message.ListFields()}


def _of_h5(content: bytes) -> dict[str, Any]:
    import h5py

    found: dict[str, Any] = {}
    with h5py.File(io.BytesIO(content), "r") as file:
        waiting = [("", file)]
        while waiting and len(found) < 2000:
            place, group = waiting.pop()
            for key in group:
                path = f"{place}/{key}"
                link = group.get(key, getlink=True)
                found[path] = type(link).__name__
                if isinstance(link, h5py.HardLink) and path.count("/") < 12:
                    item = group[key]
                    if isinstance(item, h5py.Group):
                        waiting.append((path, item))
                    else:
                        found[path] = f"{type(item).__name__} {item.dtype} {item.shape} {item.chunks}"
    return found


def _names_position(text: str, name: str, before: bytes, after: bytes, folder: Path) -> bool:
    """Whether a text names a byte, a line, an entry or a tensor that a file has."""
    most = max(len(before), len(after))
    if any(int(found) <= most for found in re.findall(r"\b(?:char|position|byte|offset) (\d{1,18})\b", text)):
        return True
    lines = max(before.count(b"\n"), after.count(b"\n")) + 1
    if any(int(found) <= lines for found in re.findall(r"\bline (\d{1,18})\b", text)):
        return True
    if name.endswith((".txt", "vocab.json")):
        entries = lines if name.endswith(".txt") else max(_length(before), _length(after))
        if any(int(found) < entries for found in re.findall(r"\b(?:vocabulary|merges)\[(\d{1,18})\]", text)):
            return True
    if name.endswith(".model") and (values := _values(name, after) or _values(name, before)):
        if any(int(found) < len(values["pieces"]) for found in re.findall(r"\bpieces\[(\d{1,18})\]", text)):
            return True
    # what does not fit shows at the tensors, of this file or of the one beside it that is named
    names = set(_tensors(folder, name, before))
    words = {word.strip(".,:;'()[]") for word in re.findall(r"\S+", text)}
    return any("." in word and word in names or "/" in word and _is_entry(word, names) for word in words)


def _is_entry(word: str, names: set[str]) -> bool:
    return any(entry == word or entry.startswith(f"{word}/") for entry in names if entry.startswith("/"))


def _length(content: bytes) -> int:
    values = _values("x.json", content)
    return len(values) if isinstance(values, (dict, list)) else 0


def _tensors(folder: Path, name: str, before: bytes) -> Iterable[str]:
    contents = [(path.name, path.read_bytes()) for path in folder.rglob("*") if path.suffix in (".safetensors", ".h5")]
    if name.endswith(".gguf"):
        yield from (name for name in _values(name, before) or ())
        yield from names_in_library(before)[1]
    for file, content in [*contents, (name, before)]:
        if file.endswith((".safetensors", ".h5")):
            values = _values(file, content)
            for key in values if isinstance(values, dict) else ():
                # errors leave out the prefix of the base model
                parts = key.split(".")
                yield from (".".join(parts[start:]) for start in range(3))


def _keys(value: object) -> set[str]:
    found, waiting = set(), [value]
    while waiting:
        entry = waiting.pop()
        if isinstance(entry, dict):
            found.update(entry)
        if isinstance(entry, (dict, list)):
            waiting += entry.values() if isinstance(entry, dict) else entry
    return found


def _differing(before: object, after: object, path: tuple = ()) -> list[tuple]:
    if isinstance(before, dict) and isinstance(after, dict):
        keys = dict.fromkeys((*before, *after))
        pairs = ((key, before.get(key, ABSENT), after.get(key, ABSENT)) for key in keys)
        return [place for key, old, new in pairs for place in _differing(old, new, (*path, key))]
    if isinstance(before, list) and isinstance(after, list):
        pairs = enumerate(zip(before, after, strict=False))
        same = [place for index, pair in pairs for place in _differing(*pair, (*path, index))]
        return same + [path] * (len(before) != len(after))
    if isinstance(before, (dict, list)) or isinstance(after, (dict, list)):
        return [path]  # comparing nests as deep as they do
    return [] if (type(before), before) == (type(after), after) else [path]
