"""gpt-oss is published with experts of four bits per number."""

import json

import numpy as np
import pytest

from zoo import Backbone
from zoo.huggingface import load_backbone, write_backbone
from zoo.huggingface.config_reader import ConfigReader
from zoo.huggingface.family import get_family
from zoo.storage import TensorFiles, open_checkpoint, write_tensors
from zoo.storage.mxfp4 import unpack_mxfp4


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
    shapes = {"up_blocks": (2, 3, 1, 8), "up_scales": (2, 3, 1)}
    with pytest.raises(ValueError, match=r"up_blocks must have shape \(experts, outputs, groups, 16\)"):
        unpack_mxfp4(TensorFiles(shapes, shapes.get, "a file"))
    shapes = {"up_blocks": (2, 3, 1, 16), "up_scales": (2, 3, 1)}
    files = unpack_mxfp4(TensorFiles(shapes, lambda name: np.zeros(shapes[name], "float32"), "a file"))
    assert dict(files.shapes) == {"up": (2, 32, 3)}
    with pytest.raises(ValueError, match="up_blocks and up_scales must hold bytes, got float32, float32"):
        files.get("up")
