"""Directories with weights in few bits: as the packages that define the forms unpack them."""

import json
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest

from zoo import Backbone, CausalLM
from zoo.huggingface import load_backbone, write_backbone
from zoo.huggingface.config_reader import ConfigReader
from zoo.huggingface.family import get_family
from zoo.huggingface.quantized import dequantized
from zoo.huggingface.quantized.packed import unpack_integers
from zoo.storage import TensorFiles, open_checkpoint, write_tensors

QUANTIZED = Path(__file__).parents[2] / "reference" / "quantized"


def number(code, scale):
    """As the specification has it: a sign, two bits of exponent, one of mantissa; the scale is a power of 2."""
    sign, exponent, mantissa = (-1) ** (code >> 3), (code >> 1) & 3, code & 1
    magnitude = mantissa * 0.5 if exponent == 0 else 2.0 ** (exponent - 1) * (1 + 0.5 * mantissa)
    return sign * magnitude * 2.0 ** (scale - 127)


def packed(rng, experts, outputs, inputs):
    """Codes `(experts, outputs, inputs)` in bytes, scales, and the numbers, `(experts, inputs, outputs)`."""
    codes = rng.integers(0, 16, (experts, outputs, inputs))
    scales = rng.integers(122, 128, (experts, outputs, inputs // 32))
    numbers = np.vectorize(number)(codes, np.repeat(scales, 32, axis=-1))
    blocks = (codes[..., 0::2] + 16 * codes[..., 1::2]).reshape(experts, outputs, -1, 16)
    return blocks.astype("uint8"), scales.astype("uint8"), numbers.swapaxes(1, 2).astype("float32")


def test_published_experts(reference, tmp_path):
    # the golden model, wider: inputs come in blocks of 32
    values = json.loads((reference / "gpt_oss" / "config.json").read_text()) | {"hidden_size": 32}
    values["intermediate_size"] = 64
    backbone = Backbone.from_config(get_family("gpt_oss").read(ConfigReader(values)))
    folder, rng, expected = tmp_path / "model", np.random.default_rng(0), {}
    write_backbone(backbone, folder, model_type="gpt_oss")
    with open_checkpoint(folder) as files:
        tensors = {name: np.array(files.get(name)) for name in files.shapes}
    for name in [name for name in tensors if ".experts." in name and not name.endswith("bias")]:
        experts, inputs, outputs = tensors.pop(name).shape
        tensors[f"{name}_blocks"], tensors[f"{name}_scales"], expected[name] = packed(rng, experts, outputs, inputs)
    write_tensors(folder / "model.safetensors", tensors)
    values["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}
    (folder / "config.json").write_text(json.dumps(values))
    write_backbone(load_backbone(folder), tmp_path / "again", model_type="gpt_oss")
    assert len(expected) == 4
    with open_checkpoint(tmp_path / "again") as files:
        for name, numbers in expected.items():
            np.testing.assert_array_equal(files.get(name), numbers)


def test_blocks_and_scales_must_fit():
    settings = {"quantization_config": {"quant_method": "mxfp4"}}
    shapes = {"up_blocks": (2, 3, 1, 8), "up_scales": (2, 3, 1)}
    with pytest.raises(ValueError, match=r"up_blocks must have shape \(experts, outputs, groups, 16\)"):
        dequantized(TensorFiles(shapes, shapes.get, "a file"), settings)
    shapes = {"up_blocks": (2, 3, 1, 16), "up_scales": (2, 3, 1)}
    files, _ = dequantized(TensorFiles(shapes, lambda name: np.zeros(shapes[name], "float32"), "a file"), settings)
    assert dict(files.shapes) == {"up": (2, 32, 3)}
    with pytest.raises(ValueError, match="blocks of MXFP4 must hold uint8, got float32"):
        files.get("up")
    files, _ = dequantized(TensorFiles(shapes, lambda name: np.full(shapes[name], 255, "uint8"), "a file"), settings)
    with pytest.raises(ValueError, match="scales of MXFP4 must be below 255, which stands for NaN"):
        files.get("up")


@pytest.mark.parametrize("case", sorted(path.name for path in QUANTIZED.iterdir()))
def test_models_compute_what_they_do_with_weights_that_the_package_unpacked(case):
    golden = np.load(QUANTIZED / case / "golden.npz")
    model = CausalLM.from_preset(QUANTIZED / case)
    ids = golden["ids"]
    logits = model({"token_ids": ids, "padding_mask": np.ones_like(ids, bool)})
    # results are of size 1
    np.testing.assert_allclose(keras.ops.convert_to_numpy(logits), golden["logits"], atol=2e-6)


def test_a_quantized_model_is_written_as_numbers(tmp_path):
    model = load_backbone(QUANTIZED / "nf4")
    write_backbone(model, tmp_path / "model")
    assert "quantization_config" not in json.loads((tmp_path / "model" / "config.json").read_text())
    again = load_backbone(tmp_path / "model")
    for one, other in zip(model.weights, again.weights, strict=True):
        np.testing.assert_array_equal(keras.ops.convert_to_numpy(one), keras.ops.convert_to_numpy(other))


def copied(case, folder, change=None, **settings):
    """A copy of a case with other settings and tensors."""
    shutil.copytree(QUANTIZED / case, folder)
    values = json.loads((folder / "config.json").read_text())
    values["quantization_config"] |= settings
    (folder / "config.json").write_text(json.dumps(values))
    if change is not None:
        with open_checkpoint(folder) as files:
            tensors = {name: np.array(files.get(name)) for name in files.shapes}
        change(tensors)
        write_tensors(folder / "model.safetensors", tensors)
    return folder


PLACE = "model.layers.0.mlp.up_proj"


def test_settings_must_be_there(tmp_path):
    for case in ("awq", "nf4", "int8", "float8", "compressed_integers"):
        folder = copied(case, tmp_path / case)
        values = json.loads((folder / "config.json").read_text())
        del values["quantization_config"]
        (folder / "config.json").write_text(json.dumps(values))
        with pytest.raises(ValueError, match="quantization_config is missing, and .*layers.0.* is a part"):
            load_backbone(folder)


def other(name, make):
    """A change of one tensor."""

    def change(tensors):
        tensors[f"{PLACE}.{name}"] = make(tensors[f"{PLACE}.{name}"])

    return change


def without(name):
    return lambda tensors: tensors.pop(f"{PLACE}.{name}")


@pytest.mark.parametrize(
    ("case", "settings", "said"),
    [
        ("awq", {"quant_method": "aqlm"}, r"quant_method must be one of \['awq', .*'mxfp4'\], got 'aqlm'"),
        ("awq", {"version": "gemv"}, r"quantization_config of \w+: version.*gemm.*gemv"),
        ("awq", {"bits": 8}, r"quantization_config of \w+: bits.*4.*8"),
        ("awq", {"of_mine": 1}, r"quantization_config of \w+: of_mine is not known"),
        ("gptq_4_bits", {"bits": 5}, r"quantization_config of \w+: bits.*5"),
        ("gptq_4_bits", {"bits": 8}, "_proj.qzeros must have shape"),
        ("gptq_4_bits", {"checkpoint_format": "marlin"}, r"quantization_config of \w+: checkpoint_format.*marlin"),
        ("gptq_4_bits", {"dynamic": {"+:.*": {"bits": 8}}}, "quantization_config.dynamic must be null or empty"),
        ("float8", {"weight_block_size": [64, 32]}, r"weight_scale_inv must have shape"),
        ("float8", {"weight_block_size": [0, 32]}, "weight_block_size must be at least 1"),
        ("compressed_bytes", {"format": "marlin-24"}, r"quantization_config of \S+: format.*marlin-24"),
        ("compressed_bytes", {"sparsity_config": {"format": "sparse-24-bitmask"}}, "sparsity_config.format"),
        ("compressed_bytes", {"transform_config": {"config_groups": {"u": {}}}}, "transform_config"),
        ("compressed_integers", {"config_groups": {"group_0": {"weights": {"num_bits": 3}}}}, r"num_bits \[3\]"),
        ("nf4", {"llm_int8_has_fp16_weight": True}, "llm_int8_has_fp16_weight"),
    ],
)
def test_settings_that_are_refused(case, settings, said, tmp_path):
    with pytest.raises(ValueError, match=said) as error:
        load_backbone(copied(case, tmp_path / "model", **settings))
    assert "config.json" in str(error.value)


@pytest.mark.parametrize(
    ("case", "change", "said"),
    [
        ("awq", without("scales"), "lacks .*up_proj.scales"),
        ("awq", other("scales", lambda scales: scales[:, :-8]), "up_proj.scales must have shape"),
        ("awq", other("scales", lambda scales: scales.astype("int32")), "scales must hold float16"),
        ("awq", other("scales", lambda scales: scales * np.nan), r"scales must be finite numbers, got nan at \[0, 0\]"),
        ("awq", other("qweight", lambda words: words.astype("int64")), "packed integers must hold int32"),
        ("gptq_4_bits", other("g_idx", lambda groups: groups + 1), "g_idx must name groups from 0 to 1, got 1 to 2"),
        ("gptq_4_bits", other("g_idx", lambda groups: groups.astype("float32")), "g_idx must hold int32"),
        (
            "gptq_4_bits",
            other("qweight", lambda words: words[:, :-1]),
            "outputs that fill words of 32 bits, got 95 of 4",
        ),
        ("nf4", other("weight", lambda codes: codes[:-1]), "up_proj.weight must have 3072 bytes"),
        ("nf4", without("weight.absmax"), "lacks .*absmax"),
        ("nf4", without("weight.quant_state.bitsandbytes__nf4"), "up_proj.weight"),
        (
            "nf4",
            other("weight.quant_state.bitsandbytes__nf4", lambda text: np.frombuffer(b'{"shape": [1e9]}', "uint8")),
            "bitsandbytes__nf4.*missing",
        ),
        ("int8", other("weight_format", lambda layout: layout + 1), "weight_format must be 0"),
        ("int8", other("SCB", lambda largest: largest[1:]), "up_proj.SCB must have shape"),
        ("float8", other("weight", lambda numbers: numbers.astype("float16")), "weights must hold float8_e4m3fn"),
        ("float8", without("weight"), "up_proj.weight"),
        ("compressed_integers", without("weight_shape"), "lacks .*weight_shape"),
        ("compressed_integers", other("weight_shape", lambda shape: shape + 1), "must fit .*weight_shape"),
        (
            "compressed_integers",
            other("weight_shape", lambda shape: shape * np.inf),
            "weight_shape must hold int32 or int64",
        ),
        ("compressed_floats", other("weight_scale", lambda scales: scales[:-1]), "weight_scale must have shape"),
    ],
)
def test_damaged_parts(case, change, said, tmp_path):
    with pytest.raises(ValueError, match=said):
        load_backbone(copied(case, tmp_path / "model", change))


@pytest.mark.parametrize("bits", range(1, 9))
def test_integers_across_words(bits):
    """As one binary number, of which each integer has its bits."""
    generator = np.random.default_rng(bits)
    words = generator.integers(0, 2**32, (5, 2), dtype="uint64").astype("uint32").view("int32")
    found = unpack_integers(words, bits)
    for column in range(2):
        number = sum(int(word) << (32 * place) for place, word in enumerate(words[:, column].view("uint32")))
        assert found[:, column].tolist() == [number >> (bits * place) & (2**bits - 1) for place in range(160 // bits)]


def test_second_form_of_gptq_and_no_groups(tmp_path):
    """It has zero points as they are; without g_idx groups follow one another."""
    with open_checkpoint(QUANTIZED / "gptq_8_bits") as files:
        values = json.loads((QUANTIZED / "gptq_8_bits" / "config.json").read_text())
        expected = dequantized(files, values)[0].get(f"{PLACE}.weight")

    def change(tensors):
        for name in [name for name in tensors if name.endswith("qzeros")]:
            tensors[name] = (tensors[name].view("uint8") + np.uint8(1)).view("int32")
        for name in [name for name in tensors if name.endswith("g_idx")]:
            del tensors[name]

    folder = copied("gptq_8_bits", tmp_path / "model", change, checkpoint_format="gptq_v2", group_size=-1)
    with open_checkpoint(folder) as files:
        values = json.loads((folder / "config.json").read_text())
        np.testing.assert_array_equal(dequantized(files, values)[0].get(f"{PLACE}.weight"), expected)


def test_blocks_at_the_edge_and_one_scale():
    """Blocks of 2 x 2 of a weight of 3 x 3; and one scale for all."""
    numbers = np.arange(9).reshape(3, 3).astype("float8_e4m3fn")
    scales = np.array([[1, 2], [3, 4]], "float32")
    tensors = {"a.weight": numbers, "a.weight_scale_inv": scales, "b.weight": numbers}
    files = TensorFiles({name: tensor.shape for name, tensor in tensors.items()}, tensors.get, "a file")
    found, _ = dequantized(files, {"quantization_config": {"quant_method": "fp8", "weight_block_size": [2, 2]}})
    np.testing.assert_array_equal(found.get("a.weight"), [[0, 1, 4], [3, 4, 10], [18, 21, 32]])
    assert found.get("b.weight") is numbers
    tensors["a.weight_scale_inv"] = np.array(2, "float32")
    files = TensorFiles({name: tensor.shape for name, tensor in tensors.items()}, tensors.get, "a file")
    found, _ = dequantized(files, {"quantization_config": {"quant_method": "fp8"}})
    np.testing.assert_array_equal(found.get("a.weight"), 2 * np.arange(9).reshape(3, 3))


def test_a_shape_that_the_bytes_do_not_fill():
    """It is refused before anything of its size is made, and before weights are counted by it."""
    state = {"quant_type": "nf4", "blocksize": 65536, "dtype": "float16", "shape": [65536, 1000]}
    tensors = {
        "up.weight": np.zeros((3, 1), "uint8"),
        "up.weight.absmax": np.zeros(1000, "float32"),
        "up.weight.quant_map": np.zeros(16, "float32"),
        "up.weight.quant_state.bitsandbytes__nf4": np.frombuffer(json.dumps(state).encode(), "uint8"),
    }
    files = TensorFiles({name: tensor.shape for name, tensor in tensors.items()}, tensors.get, "a file")
    with pytest.raises(ValueError, match=r"up.weight must have 32768000 bytes for shape \[65536, 1000\], got 3"):
        dequantized(files, {"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}})


def test_blocks_of_a_weight_with_few_outputs():
    """One row of blocks of 4 inputs, the last of 2: not three groups of equal size."""
    tensors = {
        "up.weight": np.ones((2, 10), "float8_e4m3fn"),
        "up.weight_scale": np.array([[1, 2, 3]], "float32"),
        "down.weight": np.ones((2, 6), "float8_e4m3fn"),
        "down.weight_scale": np.array([[1, 2]], "float32"),
    }
    files = TensorFiles({name: tensor.shape for name, tensor in tensors.items()}, tensors.get, "a file")
    weights = {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [4, 4]}
    settings = {"format": "float-quantized", "config_groups": {"group_0": {"weights": weights}}}
    found, _ = dequantized(files, {"quantization_config": {"quant_method": "compressed-tensors", **settings}})
    np.testing.assert_array_equal(found.get("up.weight"), [[1, 1, 1, 1, 2, 2, 2, 2, 3, 3]] * 2)
    np.testing.assert_array_equal(found.get("down.weight"), [[1, 1, 1, 1, 2, 2]] * 2)


def test_biases_of_zeros_beside_packed_weights(tmp_path):
    """As older packages write them; others are an error."""

    def change(tensors, value):
        names = [name.removesuffix("qweight") for name in tensors if name.endswith(".qweight")]
        tensors |= {f"{name}bias": np.full(tensors[f"{name}scales"].shape[1], value, "float16") for name in names}

    expected = load_backbone(QUANTIZED / "gptq_4_bits")
    found = load_backbone(copied("gptq_4_bits", tmp_path / "zeros", lambda tensors: change(tensors, 0)))
    for one, other in zip(expected.weights, found.weights, strict=True):
        np.testing.assert_array_equal(keras.ops.convert_to_numpy(one), keras.ops.convert_to_numpy(other))
    with pytest.raises(ValueError, match="mlp.up_proj.bias .* the model has no place for it"):
        load_backbone(copied("gptq_4_bits", tmp_path / "ones", lambda tensors: change(tensors, 1)))
