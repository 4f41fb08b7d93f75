"""Headers of GGUF files: what the writer of llama.cpp wrote, and files that are damaged."""

import random
import struct

import gguf
import numpy as np
import pytest
from fuzz_mutations import mutate_bytes
from gguf_files import add_tokenizer

import zoo
from zoo.gguf.header import read_gguf
from zoo.gguf.read_tensor import read_tensor

VALUES = {
    "a.uint8": ("add_uint8", 255),
    "a.int8": ("add_int8", -7),
    "a.uint16": ("add_uint16", 65535),
    "a.int32": ("add_int32", -(2**31)),
    "a.uint64": ("add_uint64", 2**63),
    "a.float32": ("add_float32", 0.25),
    "a.float64": ("add_float64", 0.1),
    "a.bool": ("add_bool", True),
    "a.string": ("add_string", "नमस्ते 你好 مرحبا สวัสดี"),
    "a.strings": ("add_array", ["x", "", "ü"]),
    "a.integers": ("add_array", [1, 2, 3]),
}


@pytest.fixture
def path(tmp_path):
    """A file with values and tensors of all kinds."""
    writer = gguf.GGUFWriter(str(tmp_path / "a.gguf"), "llama")
    for key, (method, value) in VALUES.items():
        getattr(writer, method)(key, value)
    add_tokenizer(writer, merges=["! !"])
    writer.add_tensor("matrix", np.arange(64, dtype="float32").reshape(2, 32))
    writer.add_tensor("half", np.arange(6, dtype="float16"))
    quantized = gguf.quants.quantize(np.arange(64, dtype="float32").reshape(2, 32), gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("quantized", quantized, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tmp_path / "a.gguf"


def test_values_and_tensors(path):
    header = read_gguf(path)
    for key, (_, value) in VALUES.items():
        found = header.metadata[key]
        assert (list(found) if isinstance(value, list) else found) == value, key
    tensors = {name: read_tensor(tensor) for name, tensor in header.tensors.items()}
    np.testing.assert_array_equal(tensors["matrix"], np.arange(64).reshape(2, 32))
    np.testing.assert_array_equal(tensors["half"], np.arange(6))
    # 8 bits of the largest number of a block of 32
    assert np.abs(tensors["quantized"] - np.arange(64).reshape(2, 32)).max() <= 63 / 127 / 2
    np.testing.assert_array_equal(read_tensor(header.tensors["quantized"], 1), tensors["quantized"][1])


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "F16", "BF16", "TQ1_0", "TQ2_0"])
def test_types_of_numbers(kind, tmp_path):
    numbers = np.random.default_rng(0).normal(size=(3, 256)).astype("float32")
    kind = gguf.GGMLQuantizationType[kind]
    writer = gguf.GGUFWriter(str(tmp_path / "a.gguf"), "llama")
    stored = gguf.quants.quantize(numbers, kind)
    writer.add_tensor("x", stored, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    tensor = read_tensor(read_gguf(tmp_path / "a.gguf").tensors["x"])
    np.testing.assert_array_equal(np.asarray(tensor, "float32"), gguf.quants.dequantize(stored, kind))


def test_types_that_are_no_floats_are_refused(tmp_path):
    writer = gguf.GGUFWriter(str(tmp_path / "a.gguf"), "llama")
    writer.add_tensor("x", np.arange(6, dtype="int8"))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    tensor = read_gguf(tmp_path / "a.gguf").tensors["x"]
    with pytest.raises(ValueError, match=r"a.gguf: tensor 'x' must be of a type .*, got I8"):
        read_tensor(tensor)


def changed(path, place, content):
    data = bytearray(path.read_bytes())
    data[place : place + len(content)] = content
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("place", "content", "message"),
    [
        (4, struct.pack("<I", 1), r"version must be one of \(2, 3\), got 1"),
        (4, struct.pack(">I", 3), "big-endian"),
        (8, struct.pack("<Q", 2**60), "tensor_count must fit the .* bytes that are left"),
        (16, struct.pack("<Q", 2**60), "metadata_kv_count must fit"),
        (24, struct.pack("<Q", 2**62), "key 0 must fit"),
    ],
)
def test_numbers_that_ask_for_much(path, place, content, message):
    changed(path, place, content)
    with pytest.raises(ValueError, match=message) as caught:
        read_gguf(path)
    assert str(path) in str(caught.value)


def test_the_end_is_missing(path):
    whole = path.read_bytes()
    for length in range(4, len(whole), 97):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match="a.gguf"):
            read_gguf(path)


def test_damaged_files_are_errors_that_say_so(path):
    """Whatever a file says, it is read or refused: no other error, and no memory for what is not there."""
    generator, whole = random.Random(0), path.read_bytes()
    refused = 0
    for _ in range(400):
        path.write_bytes(b"GGUF" + mutate_bytes(whole, generator)[4:])
        try:
            header = read_gguf(path)
            for tensor in header.tensors.values():
                read_tensor(tensor)
        except ValueError:
            refused += 1
    assert 50 < refused < 400


def test_what_is_no_model_is_refused(path):
    with pytest.raises(ValueError, match="llama.block_count"):
        zoo.CausalLM.from_preset(str(path))
