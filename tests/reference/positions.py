"""Writes positions.npz: what the Transformers library computes for positions.

Run it where `torch` and `transformers` are installed (made with torch 2.13.0, transformers 5.23.0):

    python tests/reference/positions.py
"""

import json
from pathlib import Path

import numpy as np
import torch
from transformers import LlamaConfig, T5Config
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.gptj.modeling_gptj import apply_rotary_pos_emb as rotate_interleaved
from transformers.models.gptj.modeling_gptj import create_sinusoidal_positions
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb as rotate_half_split
from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding
from transformers.models.t5.modeling_t5 import T5Attention

HEAD_DIM = 16
TRAINED = 64
POSITIONS = [0, 1, 5, 63, 64, 200]
LENGTHS = [10, 64, 65, 200]  # at which dynamic_ntk and longrope are evaluated
SHORT = [1.0, 1.05, 1.1, 1.2, 1.3, 1.5, 1.8, 2.0]
LONG = [1.0, 1.5, 2.0, 3.0, 4.5, 6.0, 7.5, 8.0]

YARN = {"kind": "yarn", "factor": 4.0, "original_max_position_embeddings": TRAINED}
LLAMA3 = {
    "kind": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": TRAINED,
}
LONGROPE = {
    "kind": "longrope",
    "short_factor": SHORT,
    "long_factor": LONG,
    "original_max_position_embeddings": TRAINED,
}

# name: (base, proportion of the head that is rotated, our `scaling`)
ROTARY = {
    "default": (10000.0, 1.0, None),
    "large_base": (500000.0, 1.0, None),
    "linear": (10000.0, 1.0, {"kind": "linear", "factor": 4.0}),
    "dynamic_ntk": (
        10000.0,
        1.0,
        {"kind": "dynamic_ntk", "factor": 2.0, "original_max_position_embeddings": TRAINED},
    ),
    "yarn": (10000.0, 1.0, YARN),
    "yarn_half_rotated": (10000.0, 0.5, YARN),
    "yarn_attention_factor": (10000.0, 1.0, {**YARN, "attention_factor": 1.5, "beta_fast": 16.0, "beta_slow": 2.0}),
    "yarn_magnitudes": (10000.0, 1.0, {**YARN, "mscale": 0.707, "mscale_all_dim": 1.2}),
    "yarn_not_truncated": (10000.0, 1.0, {**YARN, "truncate": False}),
    "yarn_every_pair_turns": (8.0, 1.0, YARN),
    "llama3": (500000.0, 1.0, LLAMA3),
    "llama3_half_rotated": (500000.0, 0.5, LLAMA3),
    "longrope": (10000.0, 1.0, {**LONGROPE, "factor": 4.0}),
    "longrope_attention_factor": (10000.0, 1.0, {**LONGROPE, "attention_factor": 1.25}),
    "proportional": (1000000.0, 0.25, {"kind": "proportional", "proportion": 0.25}),
}

BUCKETS = [(32, 128, True), (32, 128, False), (64, 256, True), (16, 20, True), (8, 50, False), (320, 800, True)]
ALIBI_HEADS = [1, 2, 3, 8, 12, 20, 32]


def llama_config(base, proportion, scaling):
    """A small configuration with our `scaling` under their names."""
    parameters = dict(scaling or {"kind": "default"})
    kind = parameters.pop("kind")
    parameters.pop("proportion", None)  # theirs is partial_rotary_factor
    if kind == "dynamic_ntk":
        kind = "dynamic"
        parameters.pop("original_max_position_embeddings")  # theirs is max_position_embeddings
    return LlamaConfig(
        hidden_size=2 * HEAD_DIM,
        num_attention_heads=2,
        head_dim=HEAD_DIM,
        max_position_embeddings=TRAINED,
        rope_parameters={
            "rope_type": kind,
            "rope_theta": base,
            "partial_rotary_factor": proportion,
            **parameters,
        },
    )


def rotary_case(base, proportion, scaling):
    config = llama_config(base, proportion, scaling)
    if scaling is None:
        rotary = LlamaRotaryEmbedding(config)
        return {"frequencies": rotary.inv_freq, "attention_scaling": torch.tensor(rotary.attention_scaling)}
    function = ROPE_INIT_FUNCTIONS[config.rope_parameters["rope_type"]]
    lengths = LENGTHS if scaling["kind"] in ("dynamic_ntk", "longrope") else [None]
    results = [function(config, "cpu", seq_len=length) for length in lengths]
    return {
        "frequencies": torch.stack([frequencies for frequencies, _ in results]).squeeze(0),
        "attention_scaling": torch.tensor(results[0][1]),
    }


def rotated_cases(x):
    """Whole rotations: half split with two scalings, and interleaved on a part of the features as in GPT-J."""
    positions = torch.tensor([POSITIONS])
    for name in ("default", "yarn"):
        cos, sin = LlamaRotaryEmbedding(llama_config(*ROTARY[name]))(x, positions)
        yield f"rotated/{name}", rotate_half_split(x, x, cos, sin, unsqueeze_dim=2)[0]
    table = create_sinusoidal_positions(256, HEAD_DIM // 2)[positions]
    sin, cos = torch.split(table, HEAD_DIM // 4, dim=-1)
    rotated, passed = x[..., : HEAD_DIM // 2], x[..., HEAD_DIM // 2 :]
    yield "rotated/interleaved_half", torch.cat([rotate_interleaved(rotated, sin, cos), passed], dim=-1)


def main():
    generator = torch.Generator().manual_seed(1)
    arrays = {}
    for name, case in ROTARY.items():
        for key, value in rotary_case(*case).items():
            arrays[f"rotary/{name}/{key}"] = value
    x = torch.randn((1, len(POSITIONS), 2, HEAD_DIM), generator=generator)
    arrays["rotated/x"] = x
    arrays.update(rotated_cases(x))

    arrays["marian"] = MarianSinusoidalPositionalEmbedding(40, 12).create_weight()

    distances = torch.arange(-1000, 1001)
    for num_buckets, max_distance, bidirectional in BUCKETS:
        buckets = T5Attention._relative_position_bucket(distances, bidirectional, num_buckets, max_distance)
        arrays[f"buckets/{num_buckets}_{max_distance}_{bidirectional}"] = buckets.to(torch.int16)
    for is_decoder in (False, True):
        config = T5Config(num_heads=3, d_model=12, d_kv=4, is_decoder=is_decoder)
        attention = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
        weight = torch.randn((32, 3), generator=generator)
        attention.relative_attention_bias.weight.data = weight
        name = "causal" if is_decoder else "bidirectional"
        arrays[f"t5/{name}/weight"] = weight
        arrays[f"t5/{name}/bias"] = attention.compute_bias(6, 20, past_seen_tokens=14)

    for num_heads in ALIBI_HEADS:
        bias = build_alibi_tensor(torch.ones((1, 9), dtype=torch.long), num_heads, torch.float32)
        arrays[f"alibi/{num_heads}"] = bias.reshape(num_heads, 9)

    cases = {
        "head_dim": HEAD_DIM,
        "positions": POSITIONS,
        "lengths": LENGTHS,
        "rotary": ROTARY,
        "buckets": BUCKETS,
        "alibi_heads": ALIBI_HEADS,
    }
    arrays = {name: np.asarray(value.detach()) for name, value in arrays.items()}
    path = Path(__file__).with_suffix(".npz")
    np.savez_compressed(path, cases=np.array(json.dumps(cases)), **arrays)
    print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
