"""Writes quantized/<case>/: tiny models of the Transformers library with weights in few bits, and what they compute.

The weights are packed and unpacked by the packages that define the forms. What the models compute, the Transformers
library computes with the unpacked weights. Run it where these are installed (made with torch 2.13.0, transformers
5.24.0, bitsandbytes 0.50.2, compressed-tensors 0.20.1; auto-gptq 0.7.1 and autoawq 0.2.9 need only be unpacked, in a
folder each, as single files of theirs are loaded):

    python -P tests/reference/quantized.py path/to/auto_gptq path/to/awq
"""

import dataclasses
import importlib.util
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bitsandbytes.functional
import numpy as np
import safetensors.torch
import torch
import transformers
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from transformers.integrations.finegrained_fp8 import Fp8Dequantize

FOLDER = Path(__file__).with_name("quantized")
SHAPE = {
    "vocab_size": 48,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 16,
    "tie_word_embeddings": True,
}
Tensors = dict[str, torch.Tensor]


def module_of(path: Path) -> Any:
    """Loads one file of a package, without the package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def gptq(weight: torch.Tensor, bits: int, group_size: int, shuffled: bool = False) -> tuple[Tensors, torch.Tensor]:
    """By the layer of AutoGPTQ, which also computes with what it has packed."""
    linear_of = module_of(Path(sys.argv[1], "nn_modules", "qlinear", "qlinear_cuda.py")).QuantLinear
    outputs, inputs = weight.shape
    generator = torch.Generator().manual_seed(1)
    group_of = torch.arange(inputs) // group_size
    if shuffled:
        group_of = group_of[torch.randperm(inputs, generator=generator)]
    groups = inputs // group_size
    scales = torch.stack([weight[:, group_of == group].abs().amax(1) for group in range(groups)], 1) / 2 ** (bits - 1)
    zeros = torch.randint(1, 2**bits, (outputs, groups), generator=generator).float()
    codes = torch.clamp(torch.round(weight / scales[:, group_of]) + zeros[:, group_of], 0, 2**bits - 1)
    linear = torch.nn.Linear(inputs, outputs, bias=False)
    linear.weight.data = ((codes - zeros[:, group_of]) * scales[:, group_of]).half().float()
    layer = linear_of(bits, group_size, inputs, outputs, bias=False, weight_dtype=torch.float32)
    layer.pack(linear, scales.clone(), zeros.clone(), group_of.int())
    layer.scales = layer.scales.half()
    tensors = {name: tensor.clone() for name, tensor in layer.state_dict().items() if name != "bias"}
    layer.scales = layer.scales.float()
    return tensors, layer(torch.eye(inputs)).T.detach()


def awq(weight: torch.Tensor, group_size: int) -> tuple[Tensors, torch.Tensor]:
    """Packed in the order that AutoAWQ's layer packs in; unpacked by its function."""
    unpack = module_of(Path(sys.argv[2], "utils", "packing_utils.py")).dequantize_gemm
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    grouped = weight.T.reshape(-1, group_size, weight.shape[0])
    low, high = grouped.amin(1), grouped.amax(1)
    scales = ((high - low).clamp(min=1e-5) / 15).half()
    zeros = torch.clamp(-torch.round(low / scales.float()), 0, 15)
    wide = [each.repeat_interleave(group_size, 0) for each in (scales.float(), zeros)]
    codes = torch.clamp(torch.round(weight.T / wide[0]) + wide[1], 0, 15)

    def pack(values: torch.Tensor) -> torch.Tensor:
        columns = values.int().reshape(len(values), -1, 8)[:, :, order]
        return sum(columns[:, :, place] << (4 * place) for place in range(8)).int().contiguous()

    tensors = {"qweight": pack(codes), "qzeros": pack(zeros), "scales": scales}
    return tensors, unpack(tensors["qweight"], tensors["qzeros"], scales.float(), 4, group_size).T


def four_bits(weight: torch.Tensor, kind: str, nested: bool) -> tuple[Tensors, torch.Tensor]:
    codes, state = bitsandbytes.functional.quantize_4bit(
        weight.bfloat16(), blocksize=64, compress_statistics=nested, quant_type=kind
    )
    described = {f"weight.{name}": tensor for name, tensor in state.as_dict(packed=True).items()}
    return {"weight": codes, **described}, bitsandbytes.functional.dequantize_4bit(codes, state).float()


def eight_bits(weight: torch.Tensor) -> tuple[Tensors, torch.Tensor]:
    codes, largest, _ = bitsandbytes.functional.int8_vectorwise_quant(weight.half())
    tensors = {"weight": codes, "SCB": largest, "weight_format": torch.tensor(0, dtype=torch.uint8)}
    return tensors, bitsandbytes.functional.int8_vectorwise_dequant(codes, largest)


def float8(weight: torch.Tensor, block: int) -> tuple[Tensors, torch.Tensor]:
    rows, columns = (side // block for side in weight.shape)
    largest = weight.reshape(rows, block, columns, block).abs().amax((1, 3))
    scales = largest / torch.finfo(torch.float8_e4m3fn).max
    wide = scales.repeat_interleave(block, 0).repeat_interleave(block, 1)
    codes = (weight / wide).to(torch.float8_e4m3fn)
    return {"weight": codes, "weight_scale_inv": scales}, Fp8Dequantize(None)._dequantize_one(codes, scales)


def compressed(weight: torch.Tensor, form: str, **arguments: Any) -> tuple[Tensors, torch.Tensor]:
    """By the compressor of a form."""
    weights = QuantizationArgs(**arguments)
    scheme = QuantizationScheme(targets=["Linear"], weights=weights, format=form)
    size = {"channel": weight.shape[1], "tensor": weight.numel(), "group": weights.group_size}[weights.strategy]
    grouped = weight.reshape(-1, size)
    low, high = grouped.amin(1).clamp(max=0), grouped.amax(1).clamp(min=0)
    whole = {4: 15, 8: 255}[weights.num_bits]
    if weights.type == "float":
        scales, zeros = torch.maximum(-low, high) / 448, torch.zeros(len(low))
    elif weights.symmetric:
        scales, zeros = torch.maximum(-low, high) / (whole / 2), torch.zeros(len(low))
    else:
        scales = (high - low) / whole
        zeros = torch.clamp(torch.round(-(whole + 1) / 2 - low / scales), -(whole + 1) // 2, whole // 2)
    shape = (1,) if weights.strategy == "tensor" else (weight.shape[0], -1)
    dtype = torch.float8_e4m3fn if weights.type == "float" else torch.int8
    tensors = {"weight": weight, "weight_scale": scales.reshape(shape)}
    tensors["weight_zero_point"] = zeros.reshape(shape).to(dtype)
    compressor = BaseCompressor.get_value_from_registry(form)
    packed = compressor.compress(tensors, scheme)
    found = compressor.decompress(dict(packed), scheme)["weight"].float()
    return {name: tensor.contiguous() for name, tensor in packed.items()}, found


def group_of(form: str, **weights: Any) -> dict[str, Any]:
    """What a configuration says of a form of compressed-tensors."""
    return {
        "quant_method": "compressed-tensors",
        "format": form,
        "quantization_status": "compressed",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": None}},
        "ignore": ["lm_head"],
    }


@dataclasses.dataclass(frozen=True)
class Case:
    """How weights are packed, and what the configuration says of it."""

    pack: Callable[[torch.Tensor], tuple[Tensors, torch.Tensor]]
    settings: dict[str, Any]


def gptq_settings(bits: int, group_size: int, **others: Any) -> dict[str, Any]:
    return {"quant_method": "gptq", "bits": bits, "group_size": group_size, **others}


PACKED = {"num_bits": 4, "type": "int", "symmetric": False, "strategy": "group", "group_size": 32}
CHANNELS = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "channel"}
WHOLE = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel"}
CASES = {
    "gptq_4_bits": Case(lambda w: gptq(w, 4, 32, shuffled=True), gptq_settings(4, 32, desc_act=True, sym=False)),
    "gptq_3_bits": Case(lambda w: gptq(w, 3, 32), gptq_settings(3, 32, checkpoint_format="gptq")),
    "gptq_8_bits": Case(lambda w: gptq(w, 8, 32), gptq_settings(8, 32)),
    "awq": Case(lambda w: awq(w, 32), {"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm"}),
    "nf4": Case(
        lambda w: four_bits(w, "nf4", nested=True),
        {
            "quant_method": "bitsandbytes",
            "load_in_4bit": True,
            "bnb_4bit_quant_type": "nf4",
            "bnb_4bit_use_double_quant": True,
            "bnb_4bit_compute_dtype": "bfloat16",
        },
    ),
    "fp4": Case(lambda w: four_bits(w, "fp4", nested=False), {"load_in_4bit": True, "llm_int8_threshold": 6.0}),
    "int8": Case(eight_bits, {"quant_method": "bitsandbytes", "load_in_8bit": True}),
    "float8": Case(lambda w: float8(w, 32), {"quant_method": "fp8", "weight_block_size": [32, 32], "fmt": "e4m3"}),
    "compressed_integers": Case(
        lambda w: compressed(w, "pack-quantized", **PACKED), group_of("pack-quantized", **PACKED)
    ),
    "compressed_floats": Case(
        lambda w: compressed(w, "float-quantized", **CHANNELS), group_of("float-quantized", **CHANNELS)
    ),
    "compressed_bytes": Case(lambda w: compressed(w, "int-quantized", **WHOLE), group_of("int-quantized", **WHOLE)),
}


def make(name: str, case: Case) -> None:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**SHAPE)
    model = transformers.LlamaForCausalLM(config).eval()
    model.model.embed_tokens.weight.data = model.model.embed_tokens.weight.data.half().float()
    tensors = {"model.embed_tokens.weight": model.model.embed_tokens.weight.data.half()}
    for path, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and path != "lm_head":
            packed, unpacked = case.pack(module.weight.data)
            module.weight.data = unpacked.float()
            tensors |= {f"{path}.{part}": tensor for part, tensor in packed.items()}
        elif path.endswith("norm"):
            tensors[f"{path}.weight"] = module.weight.data.half()
    folder = FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    config.save_pretrained(folder)
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**values, "quantization_config": case.settings}, indent=2) + "\n")
    tensors = {name: tensor.clone().contiguous() for name, tensor in tensors.items()}
    safetensors.torch.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    ids = torch.randint(0, SHAPE["vocab_size"], (2, 9), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        logits = model(ids).logits
    np.savez(folder / "golden.npz", ids=ids.numpy().astype("int32"), logits=logits.numpy())
    print(name, sum(path.stat().st_size for path in folder.iterdir()), "bytes")


if __name__ == "__main__":
    for name, case in CASES.items():
        make(name, case)
