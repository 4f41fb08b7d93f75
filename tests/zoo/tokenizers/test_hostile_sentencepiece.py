"""SentencePiece models that end the C++ library which reads them: refused before it is given them."""

import base64
import json
import random
import struct

import pytest
from sentencepiece import sentencepiece_model_pb2

from zoo.tokenizers import load_huggingface, save_huggingface
from zoo.tokenizers.sentencepiece_check import parse_model

CHARSMAP = "precompiled_charsmap"


def units_of(unit, texts=b"\0a\0"):
    """A character map whose trie has the same unit everywhere."""
    return struct.pack("<I", 1024) + struct.pack("<I", unit) * 256 + texts


def with_unit(charsmap, place, unit):
    return charsmap[: 4 + 4 * place] + struct.pack("<I", unit) + charsmap[8 + 4 * place :]


def sized(charsmap, size):
    return struct.pack("<I", size) + charsmap[4:]


@pytest.fixture(scope="module")
def model(trained):
    model = sentencepiece_model_pb2.ModelProto.FromString(trained["unigram"].proto)
    assert len(model.normalizer_spec.precompiled_charsmap) > 100_000
    return model


@pytest.fixture(scope="module")
def values(trained, tmp_path_factory):
    folder = tmp_path_factory.mktemp("json")
    save_huggingface(trained["unigram"], folder, before=[], after=[])
    values = json.loads((folder / "tokenizer.json").read_text())
    assert values["normalizer"]["normalizers"][0]["type"] == "Precompiled"
    return values


@pytest.fixture
def load(model, values, tmp_path):
    """`load(form, charsmap, change)`: reads the model from a `spiece.model` or a `tokenizer.json` that was changed."""

    def read(form, charsmap=None, piece=None):
        path = tmp_path / form
        if form == "spiece.model":
            changed = sentencepiece_model_pb2.ModelProto.FromString(model.SerializeToString())
            if charsmap is not None:
                changed.normalizer_spec.precompiled_charsmap = charsmap
            if piece is not None:
                changed.pieces[20].piece = piece
            path.write_bytes(changed.SerializeToString())
        else:
            changed = json.loads(json.dumps(values))
            if charsmap is not None:
                changed["normalizer"]["normalizers"][0][CHARSMAP] = base64.b64encode(charsmap).decode()
            if piece is not None:
                changed["model"]["vocab"][20][0] = piece
            path.write_text(json.dumps(changed))
        return load_huggingface(tmp_path)

    return read


FORMS = ("spiece.model", "tokenizer.json")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda old: b"x", "must begin with the size of its trie"),
        (lambda old: sized(old, 0), "must begin with the size of its trie"),
        (lambda old: sized(old, 1023), "must begin with the size of its trie"),
        (lambda old: sized(old, 2**31), "must begin with the size of its trie"),
        (lambda old: sized(old, 2**32 - 1024), "must begin with the size of its trie"),
        (lambda old: sized(old, len(old) - 4), "must begin with the size of its trie"),
        (lambda old: sized(old, 1024), "must hold replacements in UTF-8|leads outside itself"),
        (lambda old: old[:-1] + b"x", "must end with a NUL"),
        (lambda old: old[:3000], "must begin with the size of its trie"),
        (lambda old: units_of(0xFFFFFFFF), "has a trie that leads outside itself"),
        (lambda old: units_of(0x7FFFFFFF), "has a trie that leads outside itself"),
        (lambda old: units_of(0x3FF), "has a trie that leads outside itself|must point to its"),
        (lambda old: with_unit(old, 0, 0x7FFFFFFF), "has a trie that leads outside itself"),
        (lambda old: units_of(0x100 | 1 << 10), "must point to its 3 bytes of replacements"),
        (lambda old: units_of(0, b"\xff\0"), "must hold replacements in UTF-8"),
        (lambda old: sized(old, 2**31)[::-1], "must begin with the size of its trie"),
    ],
)
def test_character_maps(load, model, form, change, message):
    with pytest.raises(ValueError, match=f"{form}: .*{CHARSMAP} .*({message})"):
        load(form, charsmap=change(model.normalizer_spec.precompiled_charsmap))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "piece",
    ["x" * 1_000_000, "x" * 2049, "\u2581" * 700, "", "a\0b"],
    ids=["megabyte", "2049 bytes", "2100 bytes", "empty", "NUL"],
)
def test_pieces(load, form, piece):
    name = "pieces" if form == "spiece.model" else "model.vocab"
    with pytest.raises(ValueError, match=rf"{form}: .*{name}\[20\].* must have") as caught:
        load(form, piece=piece)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("form", FORMS)
def test_the_same_piece_twice(load, model, form):
    name = "pieces" if form == "spiece.model" else "model.vocab"
    with pytest.raises(ValueError, match=rf"{form}: .*{name}\[20\] must be unique, got .* a second time"):
        load(form, piece=model.pieces[19].piece)


@pytest.mark.parametrize("form", FORMS)
def test_what_was_not_changed_loads(load, trained, form):
    texts = ["a small dog runs", "\ufb01 \uff46 \u00fc"]
    expected = trained["unigram"].tokenize(texts).to_list()
    assert load(form).tokenize(texts).to_list() == expected
    assert load(form, piece="x" * 2048).vocabulary_size == trained["unigram"].vocabulary_size


def look_up(units, length, text):
    """A look-up as Darts-clone does it, with the bounds that it does not test; the values that are found."""
    found = []
    offset = lambda unit: (unit >> 10) << ((unit & 512) >> 6)  # noqa: E731
    place = offset(units[0])
    for byte in text:
        place ^= byte
        assert place < len(units)
        unit = units[place]
        if unit & (2**31 | 255) != byte:
            break
        place ^= offset(unit)
        assert place < len(units)
        if unit & 256:
            found.append(units[place] & (2**31 - 1))
            assert found[-1] < length
    return found


def split_map(charsmap):
    """The units of the trie, and the number of bytes of the replacements."""
    size = int.from_bytes(charsmap[:4], "little")
    return struct.unpack_from(f"<{size // 4}I", charsmap, 4), len(charsmap) - 4 - size


def test_maps_that_pass_never_lead_outside(model):
    """Changed bytes: what the check lets through stays inside its bounds for every text that was tried."""
    rng = random.Random(0)
    original = model.normalizer_spec.precompiled_charsmap
    texts = [chr(code).encode() for code in [*range(1, 0x300, 5), *range(0x300, 0xD800, 97), *range(0xE000, 0x11000)]]
    units = split_map(original)
    assert sum(bool(look_up(*units, text)) for text in texts) > 500
    passed = refused = 0
    changed = sentencepiece_model_pb2.ModelProto.FromString(model.SerializeToString())
    for _ in range(30):
        charsmap = bytearray(original)
        for _ in range(rng.choice((1, 3, 30))):
            charsmap[rng.randrange(4, len(charsmap))] = rng.randrange(256)
        changed.normalizer_spec.precompiled_charsmap = bytes(charsmap)
        try:
            parse_model(changed.SerializeToString())
        except ValueError as error:
            assert CHARSMAP in str(error)
            refused += 1
        else:
            passed += 1
            units = split_map(charsmap)
            for text in rng.sample(texts, 300):
                look_up(*units, text)
    assert passed > 2 and refused > 2


@pytest.mark.parametrize("name", ["unk_surface", "unk_piece", "bos_piece", "pad_piece"])
def test_texts_of_the_trainer(model, name):
    changed = sentencepiece_model_pb2.ModelProto.FromString(model.SerializeToString())
    setattr(changed.trainer_spec, name, "x" * 1_000_000)
    with pytest.raises(ValueError, match=f"trainer_spec.{name} must have at most 2048 characters, got 'xxx"):
        parse_model(changed.SerializeToString())


def test_the_map_of_the_way_back(model):
    changed = sentencepiece_model_pb2.ModelProto.FromString(model.SerializeToString())
    changed.denormalizer_spec.precompiled_charsmap = units_of(0xFFFFFFFF)
    with pytest.raises(ValueError, match="denormalizer_spec.precompiled_charsmap has a trie that leads outside itself"):
        parse_model(changed.SerializeToString())


def test_a_piece_that_is_no_utf_8(model):
    text = model.pieces[20].piece.encode("utf-8")
    field = b"\n" + bytes([len(text)])
    damaged = model.SerializeToString().replace(field + text, field + b"\xff" * len(text), 1)
    with pytest.raises(ValueError, match=r"pieces\[20\].piece must be UTF-8, got b'"):
        parse_model(damaged)
