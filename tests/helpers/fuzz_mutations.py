"""Random changes of files: of bytes, of JSON, of safetensors headers, of SentencePiece models."""

import base64
import json
import random
import struct
from collections.abc import Iterator
from typing import Any

from fuzz_gguf import mutate_gguf
from fuzz_hostile import hostile

# what a value becomes
ODD = [
    *(None, True, False, 0, 1, -1, 2, 7, 10**7, 10**9, 2**63, -(2**63), 10**30, 0.5, -0.0, 1e308),
    *("", "x", "0", "..", "/"),
    *("../../etc/passwd", "é", "\0", [], [[]], {}, {"": 0}, [None], ["x"], [1, 2, 3], {"type": "x"}, {"content": ""}),
    *("x" * 100_000, list(range(3000)), {str(index): index for index in range(3000)}),
]


def mutate(content: bytes, name: str, rng: random.Random) -> bytes:
    """Returns other content for a file.

    Args:
        content: What is in it.
        name: Its name.
        rng: Source of all choices.
    """
    if rng.random() < 0.35 and (found := hostile(content, name, rng)) is not None:
        return found
    if name.endswith(".json") and rng.random() < 0.85:
        return mutate_json(content, rng)
    if name.endswith(".safetensors") and rng.random() < 0.6:
        return mutate_safetensors(content, rng)
    if name.endswith(".model") and rng.random() < 0.6:
        return mutate_proto(content, rng)
    if name.endswith(".gguf") and rng.random() < 0.85:
        return mutate_gguf(content, rng)
    return mutate_bytes(content, rng)


def mutate_bytes(content: bytes, rng: random.Random) -> bytes:
    """Returns content with changed, missing, added or repeated bytes."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 5, 30))):
        place = rng.randrange(len(data)) if data else 0
        kind = rng.randrange(8)
        if kind < 3 and data:
            data[place] = rng.choice((rng.randrange(256), data[place] ^ (1 << rng.randrange(8)), 0, 255))
        elif kind == 3:
            del data[place:]
        elif kind == 4:
            del data[place : place + rng.choice((1, 4, 100))]
        elif kind == 5:
            data[place:place] = bytes(rng.randrange(256) for _ in range(rng.choice((1, 4, 100))))
        elif kind == 6:
            data[place : place + 8] = struct.pack("<q", rng.choice((0, -1, 10**9, 2**40, 2**62)))
        elif data:
            end = place + rng.choice((1, 16, 1000))
            data[place:place] = data[place:end] * rng.choice((1, 3, 50))
    return bytes(data)


def places_in(value: Any, path: tuple = ()) -> Iterator[tuple]:
    """Yields the path of keys of each value in a value."""
    yield path
    if isinstance(value, (dict, list)):
        for key, entry in list(value.items() if isinstance(value, dict) else enumerate(value)):
            yield from places_in(entry, (*path, key))


def mutate_json(content: bytes, rng: random.Random) -> bytes:
    """Returns JSON in which values are others, missing, or of another kind."""
    value = json.loads(content)
    places = list(places_in(value))
    # the few choices as often as the many tokens
    shallow = [place for place in places if len(place) <= 2] or places
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        *parents, last = rng.choice(rng.choice((shallow, shallow, places)) or [()]) or (None,)
        if last is None:
            return json.dumps(rng.choice(ODD)).encode()
        parent = value
        try:
            for key in parents:
                parent = parent[key]
            old = parent[last]
        except (KeyError, IndexError, TypeError):
            continue
        if isinstance(parent, str):
            continue  # an earlier change put a text there
        kind = rng.randrange(9)
        if kind == 0:
            del parent[last]
        elif kind == 1 and isinstance(parent, dict):
            parent[rng.choice(("x", "", "é", "x" * 1000, last + "_"))] = parent.pop(last)
        elif kind == 2 and isinstance(old, (int, float)) and not isinstance(old, bool):
            parent[last] = rng.choice((old + 1, old - 1, -old, old * 1000, old * 10**7, old / 3, str(old), [old]))
        elif kind == 3 and isinstance(old, list):
            parent[last] = rng.choice((old[::-1], old * 3, old[: len(old) // 2], [old], dict(enumerate(old[:3]))))
        elif kind == 4 and isinstance(old, dict):
            parent[last] = rng.choice(([old], list(old), {key: None for key in old}, {**old, "x": 1}))
        elif kind == 5 and isinstance(old, str):
            texts = (old * 2, old[:-1], old.upper(), "x" * 1_000_000, old + "\0", f"../{old}", "\ud800")
            try:  # a map of characters
                data = mutate_bytes(base64.b64decode(old, validate=True), rng) if len(old) > 1000 else b""
            except ValueError:
                data = b""
            parent[last] = base64.b64encode(data).decode() if data else rng.choice(texts)
        else:
            parent[last] = rng.choice(ODD)
    text = json.dumps(value)
    if rng.random() < 0.05:
        deep = rng.choice((20, 500, 100_000))
        text = text[:-1] + ', "deep": ' + "[" * deep + "]" * deep + "}"
    if rng.random() < 0.05:
        text = text.replace(": ", rng.choice((": NaN, ", ": 1e999, ", ": Infinity", ": 9" + "9" * 5000)), 1)
    return text.encode("utf-8", "surrogatepass")


def mutate_safetensors(content: bytes, rng: random.Random) -> bytes:
    """Returns a safetensors file with another header."""
    size = struct.unpack("<Q", content[:8])[0]
    header = mutate_json(content[8 : 8 + size], rng)
    length = len(header) if rng.random() < 0.9 else rng.choice((0, 2**63, len(header) + 1, 10**9))
    return struct.pack("<Q", length) + header + content[8 + size :]


def mutate_proto(content: bytes, rng: random.Random) -> bytes:
    """Returns a SentencePiece model with other pieces, options or character map."""
    from sentencepiece import sentencepiece_model_pb2

    model = sentencepiece_model_pb2.ModelProto.FromString(content)
    for _ in range(rng.choice((1, 1, 2, 5))):
        kind, index = rng.randrange(9), rng.randrange(len(model.pieces))
        if kind < 3 and model.normalizer_spec.precompiled_charsmap:
            charsmap = bytearray(model.normalizer_spec.precompiled_charsmap)
            if rng.random() < 0.7:
                for _ in range(rng.choice((1, 4, 100, 5000))):
                    charsmap[rng.randrange(len(charsmap))] = rng.randrange(256)
            else:
                charsmap = bytearray(mutate_bytes(bytes(charsmap), rng))
            model.normalizer_spec.precompiled_charsmap = bytes(charsmap)
        elif kind == 3:
            model.pieces[index].piece = rng.choice(("", "x" * 10**6, "\0", "a", "▁", "<unk>", "x" * 3000, "<0x41>"))
        elif kind == 4:
            model.pieces[index].score = rng.choice((float("nan"), float("inf"), -1e38, 3e38, 0.0))
        elif kind == 5:
            model.pieces[index].type = rng.choice((1, 2, 3, 4, 5, 6))
        elif kind == 6:
            spec = model.trainer_spec
            name = rng.choice(("unk_id", "bos_id", "eos_id", "pad_id", "vocab_size", "model_type"))
            setattr(spec, name, rng.choice((1, 2, 3, 4)) if name == "model_type" else rng.choice((-1, 0, 5, 10**9)))
        elif kind == 7:
            spec = rng.choice((model.trainer_spec, model.normalizer_spec))
            flags = [field.name for field in spec.DESCRIPTOR.fields if field.cpp_type == field.CPPTYPE_BOOL]
            name = rng.choice(flags)
            setattr(spec, name, not getattr(spec, name))
        else:
            del model.pieces[index : None if rng.random() < 0.3 else index + 1]
    return model.SerializeToString()
