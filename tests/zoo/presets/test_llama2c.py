"""Checkpoints of llama2.c: the order of their weights, and damaged ones are errors."""

import struct

import numpy as np
import pytest

from zoo.presets.llama2c import load_llama2c

SIZES = (8, 12, 2, 4, 2, 10, 6)


def numbers_of(sizes):
    width, inner, layers, heads, key_value_heads, vocabulary, length = sizes
    head = width // heads
    layer = 2 * width + 2 * width * width + 2 * width * head * key_value_heads + 3 * width * inner
    return abs(vocabulary) * width * (1 if vocabulary > 0 else 2) + layers * layer + width + length * head


def write(path, sizes, count):
    values = np.random.default_rng(0).normal(size=count).astype("<f4")
    path.write_bytes(struct.pack("<7i", *sizes) + values.tobytes())
    return values


def test_order_of_the_weights(tmp_path):
    sizes = (*SIZES[:5], -SIZES[5], SIZES[6])
    values = write(tmp_path / "model.bin", sizes, numbers_of(sizes))
    backbone = load_llama2c(tmp_path / "model.bin")
    assert not backbone.config.embedding.tie_output and backbone.config.max_length == 6
    table = np.asarray(backbone.token_embedding.table.embeddings)
    np.testing.assert_array_equal(table.reshape(-1), values[:80])
    np.testing.assert_array_equal(backbone.decoder.blocks[1].norms["attention"].scale, values[88:96])
    query = np.asarray(backbone.decoder.blocks[1].attention.query_projection.kernel)
    np.testing.assert_array_equal(query.T.reshape(-1), values[96 + 64 : 96 + 128])
    np.testing.assert_array_equal(np.asarray(backbone.output_projection.kernel).T.reshape(-1), values[-80:])


@pytest.mark.parametrize(
    ("sizes", "change", "message"),
    [
        (SIZES, 1, "must hold 1092 weights, as its header says, got 1093"),
        (SIZES, -1, "must hold 1092 weights, as its header says, got 1091"),
        ((0x616B3432, *SIZES[1:]), 0, "of a later version of llama2.c: export it with --version 0"),
        ((*SIZES[:4], 3, *SIZES[5:]), 0, "model.bin: n_kv_heads must be None or a divisor of n_heads=4, got 3"),
        ((-8, *SIZES[1:]), 0, "dim in the header of a checkpoint of llama2.c must be 1 to"),
    ],
)
def test_wrong_files(tmp_path, sizes, change, message):
    write(tmp_path / "model.bin", sizes, numbers_of(SIZES) + change)
    with pytest.raises(ValueError, match=message):
        load_llama2c(tmp_path / "model.bin")


def test_cut_files(tmp_path):
    write(tmp_path / "model.bin", SIZES, numbers_of(SIZES))
    content = (tmp_path / "model.bin").read_bytes()
    for length, message in ((-3, "no whole number of float32"), (10, "begins with 28 bytes, got 10")):
        (tmp_path / "cut.bin").write_bytes(content[:length])
        with pytest.raises(ValueError, match=message):
            load_llama2c(tmp_path / "cut.bin")
