"""Checkpoints of llama2.c: the order of their weights, and damaged ones are errors."""

import os
import struct
from pathlib import Path

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


@pytest.mark.skipif(not os.environ.get("ZOO_DATA"), reason="needs the data folder: set ZOO_DATA")
def test_both_forms_of_the_tokenizer(tmp_path):
    pytest.importorskip("tensorflow_text")
    from zoo import Backbone, CausalLM, Task
    from zoo.tokenizers import Tokenizer
    from zoo.tokenizers.llama2c import load_llama2c_tokenizer

    folder = Path(os.environ["ZOO_DATA"]) / "checkpoints" / "stories260K"
    texts = ["Once upon a time, there was a little girl.", "Zoë", "a\nb", "", "Lily’s 12 dogs"]
    model, binary = (load_llama2c_tokenizer(folder / f"tok512.{ending}") for ending in ("model", "bin"))
    assert binary.get_vocabulary() == model.get_vocabulary()
    assert binary.tokenize(texts).to_list() == model.tokenize(texts).to_list()
    assert (binary.start_id, binary.end_id) == (model.start_id, model.end_id) == (1, 2)
    task = Task.from_preset(folder / "stories260K.bin", load_weights=False)
    assert type(task) is CausalLM and task.tokenizer.source == str(folder / "tok512.model")
    write(tmp_path / "model.bin", SIZES, numbers_of(SIZES))
    with pytest.raises(FileNotFoundError, match="needs a tokenizer of 10 tokens beside it, .* there is none: pass"):
        Tokenizer.from_preset(tmp_path / "model.bin")
    content = (folder / "tok512.bin").read_bytes()
    (tmp_path / "tokenizer.bin").write_bytes(content)
    with pytest.raises(FileNotFoundError, match="there is tokenizer.bin: pass tokenizer="):
        Tokenizer.from_preset(tmp_path / "model.bin")
    for damaged, message in ((content[:-1], "token 511 .* is cut off"), (content[:99], "token 6 .* is cut off")):
        (tmp_path / "tokenizer.bin").write_bytes(damaged)
        with pytest.raises(ValueError, match=f"tokenizer.bin: {message}"):
            load_llama2c_tokenizer(tmp_path / "tokenizer.bin")
    assert Backbone.from_preset(tmp_path / "model.bin", max_length=3).config.max_length == 3
    with pytest.raises(ValueError, match="must be among .'dropout', 'max_length'., got 'hidden_dim'"):
        Backbone.from_preset(tmp_path / "model.bin", hidden_dim=3)
    assert Backbone.from_preset(tmp_path / "model.bin", load_weights=False, hidden_dim=32).config.hidden_dim == 32
    chosen = CausalLM.from_preset(folder / "stories260K.bin", load_weights=False, num_layers=1)
    assert chosen.backbone.config.num_layers == 1
