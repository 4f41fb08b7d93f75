"""Random changes of GGUF files: of their metadata and of what they say of tensors."""

import dataclasses
import functools
import random
import re
import struct
import tempfile
from pathlib import Path
from typing import Any

# forms of numbers by their types; 8 are strings and 9 arrays
FORMS = dict(enumerate("BbHhIif?")) | {10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
NUMBERS = (0, 1, 2, 3, 7, 48, 255, 10**4, 10**7, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, -1)
FLOATS = (0.0, -1.0, 1e-30, 1e30, float("nan"), float("inf"), 0.5, 1.0)
TEXTS = ("", "x", "none", "linear", "yarn", "llama", "gpt2", "é", "\0", "x" * 100_000)


class Parts:
    """A file in parts: `metadata` as `[key, type, value]`, `tensors` as `[name, sizes, type, offset]`, and `data`."""

    def __init__(self, content: bytes) -> None:
        self._content, self._place = content, 8
        tensors, values = self._numbers("QQ")
        self.metadata = []
        for _ in range(values):
            key, (kind,) = self._text(), self._numbers("I")
            self.metadata.append([key, kind, self._value(kind)])
        self.tensors: list[list[Any]] = []
        for _ in range(tensors):
            name, (axes,) = self._text(), self._numbers("I")
            if axes > 100:
                raise ValueError(f"{name!r} cannot have {axes} axes.")
            sizes = self._numbers("Q" * axes)
            self.tensors.append([name, sizes, *self._numbers("IQ")])
        self.data = content[-(-self._place // 32) * 32 :]

    def packed(self) -> bytes:
        """Returns the file."""
        content = struct.pack("<4sIQQ", b"GGUF", 3, len(self.tensors), len(self.metadata))
        for key, kind, value in self.metadata:
            content += _packed_text(key) + struct.pack("<I", kind) + _packed(kind, value)
        for name, sizes, kind, offset in self.tensors:
            shape = struct.pack(f"<I{len(sizes)}Q", len(sizes), *(size % 2**64 for size in sizes))
            content += _packed_text(name) + shape + struct.pack("<IQ", kind, offset)
        return content + bytes(-len(content) % 32) + self.data

    def values(self) -> dict[str, Any]:
        """Returns what it says, by keys and names of tensors."""
        tensors = {name: repr(rest) for name, *rest in self.tensors}
        # NaN is not equal to itself
        return {key: repr((kind, value)) for key, kind, value in self.metadata} | tensors

    def _numbers(self, form: str) -> tuple[Any, ...]:
        found = struct.unpack_from("<" + form, self._content, self._place)
        self._place += struct.calcsize("<" + form)
        return found

    def _text(self) -> str:
        (length,) = self._numbers("Q")
        (found,) = self._numbers(f"{length}s")
        return found.decode("utf-8", "surrogateescape")

    def _value(self, kind: int) -> Any:
        if kind in FORMS:
            return self._numbers(FORMS[kind])[0]
        if kind == STRING:
            return self._text()
        if kind != ARRAY:
            raise ValueError(f"There is no type {kind}.")
        kind, count = self._numbers("IQ")
        if count > len(self._content):
            raise ValueError(f"There are no {count} values.")
        return kind, [self._value(kind) for _ in range(count)]


def _packed_text(text: str) -> bytes:
    content = text.encode("utf-8", "surrogateescape")
    return struct.pack("<Q", len(content)) + content


def _packed(kind: int, value: Any) -> bytes:
    if kind == STRING:
        return _packed_text(value)
    if kind == ARRAY:
        inner, entries = value
        return struct.pack("<IQ", inner, len(entries)) + b"".join(_packed(inner, entry) for entry in entries)
    return struct.pack("<" + FORMS[kind], value)


def mutate_gguf(content: bytes, rng: random.Random) -> bytes:
    """Returns a file whose metadata or tensors are others.

    Args:
        content: The file.
        rng: Source of all choices.
    """
    parts = Parts(content)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        if rng.random() < 0.3 and parts.tensors:
            _change_tensor(parts.tensors, rng)
        elif parts.metadata:
            _change_value(parts.metadata, rng)
    return parts.packed()


def _change_value(metadata: list[list[Any]], rng: random.Random) -> None:
    # those of the architecture more often than the tokens
    own = [entry for entry in metadata if not entry[0].startswith(("general.", "tokenizer."))]
    entry = rng.choice(own if own and rng.random() < 0.7 else metadata)
    key, kind, value = entry
    choice = rng.randrange(10)
    if choice == 0:
        metadata.remove(entry)
    elif choice == 1:
        entry[0] = rng.choice((f"{key}_", "x", "", key.upper()))
    elif choice == 2:
        entry[1:] = rng.choice(
            ([STRING, "x"], [6, rng.choice(FLOATS)], [7, True], [ARRAY, (5, [1, 2, 3])], [5, -1], [ARRAY, (STRING, [])])
        )
    elif kind == STRING:
        entry[2] = rng.choice((*TEXTS, value * 2, value[:-1]))
    elif kind == ARRAY:
        inner, entries = value
        place = rng.randrange(len(entries) + 1)
        entry[2] = inner, rng.choice((entries[:place], entries[place:], entries * 2, entries[::-1], []))
    elif kind in (6, 12):
        entry[2] = rng.choice((*FLOATS, -value, value * 1000))
    elif kind == 7:
        entry[2] = not value
    else:
        bits = 8 * struct.calcsize(FORMS[kind])
        changed = rng.choice((*NUMBERS, value + 1, value - 1, value * 2, value // 2, value * 1000)) % 2**bits
        entry[2] = changed - 2**bits if FORMS[kind].islower() and changed >= 2 ** (bits - 1) else changed


def _change_tensor(tensors: list[list[Any]], rng: random.Random) -> None:
    entry = rng.choice(tensors)
    name, sizes, kind, offset = entry
    choice = rng.randrange(8)
    if choice == 0:
        tensors.remove(entry)
    elif choice == 1:
        entry[0] = rng.choice((f"{name}x", "x", "", name.replace(".0.", ".99."), name.replace("weight", "bias")))
    elif choice == 2:
        entry[2] = rng.choice((0, 1, 2, 8, 24, 30, 99))
    elif choice == 3:
        entry[3] = rng.choice((0, offset + 32, 2**62, offset + 1))
    elif choice == 4:
        entry[0] = rng.choice(tensors)[0]
    else:  # mostly as many numbers in another shape
        first, *rest = sizes
        joined = (first * rest[0], *rest[1:]) if rest else (first, 1)
        halved = (first // 2 or 1, 2, *rest)
        entry[1] = rng.choice((sizes[::-1], joined, (*sizes, 1), (1, *sizes), halved, (first + 1, *rest), (0, *rest)))


@functools.lru_cache
def names_in_library(content: bytes) -> tuple[frozenset[str], frozenset[str]]:
    """Returns what the Transformers library, or a `TransformerConfig`, calls the fields of a file, and its tensors.

    Args:
        content: A file that can be read.
    """
    from zoo.gguf.config import config_of
    from zoo.gguf.header import read_gguf
    from zoo.gguf.tensors import places_of
    from zoo.huggingface.config_reader import ConfigReader
    from zoo.huggingface.family import get_family

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gguf"
        path.write_bytes(content)
        header = read_gguf(path)
        values = config_of(header)
        family = get_family(values["model_type"])
        config = family.read(ConfigReader(values, (), str(path)))
        parts = [config, *(part for part in vars(config).values() if dataclasses.is_dataclass(part))]
        ours = {field.name for part in parts for field in dataclasses.fields(part)}
        names = places_of(header, family, config)
        # those of layers that there are not, too
        names = {re.sub(r"\.\d+\.", f".{index}.", name, count=1) for name in names for index in range(60)}
        return frozenset(ours | set(values)), frozenset(names)
