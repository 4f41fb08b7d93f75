"""Decoder-only language models: GPT-2, and the Llama line with its choices."""

from typing import Any

from zoo.config import (
    AttentionConfig,
    EmbeddingConfig,
    FeedForwardConfig,
    NormConfig,
    PositionConfig,
    TransformerConfig,
)
from zoo.presets.registry import register_preset


def gpt2_config(
    vocabulary_size: int,
    hidden_dim: int,
    num_layers: int,
    num_heads: int,
    max_length: int,
    *,
    activation: str = "gelu_tanh",
    use_bias: bool = True,
    dropout: float = 0.1,
) -> TransformerConfig:
    """Returns the configuration of a GPT-2: pre-norm, learned positions, output tied to the embedding.

    Args:
        vocabulary_size, hidden_dim, num_layers, max_length, dropout: See `TransformerConfig`.
        num_heads: Number of attention heads.
        activation: Activation of the position-wise network.
        use_bias: Whether projections and norms have biases.

    Example:

    >>> gpt2_config(50257, 768, 12, 12, 1024).feed_forward.intermediate_dim
    3072
    """
    return TransformerConfig(
        "decoder",
        vocabulary_size,
        hidden_dim=hidden_dim,
        num_layers=num_layers,
        max_length=max_length,
        attention=AttentionConfig(num_heads, use_bias=use_bias, dropout=dropout),
        position=PositionConfig("learned"),
        norm=NormConfig("layer", "pre", epsilon=1e-5, use_bias=use_bias),
        feed_forward=FeedForwardConfig(4 * hidden_dim, activation, use_bias=use_bias),
        dropout=dropout,
        initializer_range=0.02,
        scale_residual_initializer=True,
    )


def llama_config(
    vocabulary_size: int,
    hidden_dim: int,
    intermediate_dim: int,
    num_layers: int,
    num_heads: int,
    num_key_value_heads: int,
    max_length: int,
    *,
    base: float = 10000.0,
    scaling: dict[str, Any] | None = None,
    epsilon: float = 1e-5,
    tie_output: bool = False,
    dropout: float = 0.0,
    **attention: Any,
) -> TransformerConfig:
    """Returns the configuration of a Llama: RMS pre-norm, SwiGLU, rotary positions, grouped queries, no biases.

    Args:
        vocabulary_size, hidden_dim, num_layers, max_length, dropout: See `TransformerConfig`.
        intermediate_dim: Width of the gated network.
        num_heads, num_key_value_heads: Numbers of heads.
        base, scaling: Of the rotary positions, see `PositionConfig`.
        epsilon: Epsilon of the norms.
        tie_output: Whether the output projection is the transposed embedding.
        **attention: Further choices of `AttentionConfig`.

    Example:

    >>> llama_config(32000, 2048, 5632, 22, 32, 4, 2048).head_dim
    64
    """
    return TransformerConfig(
        "decoder",
        vocabulary_size,
        hidden_dim=hidden_dim,
        num_layers=num_layers,
        max_length=max_length,
        attention=AttentionConfig(
            num_heads,
            num_key_value_heads=num_key_value_heads,
            **{"use_bias": False, "dropout": dropout, **attention},
        ),
        position=PositionConfig("rotary", base=base, scaling=scaling),
        norm=NormConfig("rms", "pre", epsilon=epsilon),
        feed_forward=FeedForwardConfig(intermediate_dim, "silu", gated=True, use_bias=False),
        embedding=EmbeddingConfig(tie_output=tie_output),
        dropout=dropout,
        initializer_range=0.02,
    )


GPT2 = 'Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", table 2'
# name: hidden_dim, num_layers, num_heads, parameters
GPT2_SIZES = {
    "small": (768, 12, 12, 124_439_808),
    "medium": (1024, 24, 16, 354_823_168),
    "large": (1280, 36, 20, 774_030_080),
    "xl": (1600, 48, 25, 1_557_611_200),
}
for size, (width, layers, heads, parameters) in GPT2_SIZES.items():
    register_preset(
        f"gpt2_{size}",
        gpt2_config(50257, width, layers, heads, 1024),
        f"GPT-2 {size}.",
        GPT2,
        parameters,
        "hf://openai-community/gpt2" + ("" if size == "small" else f"-{size}"),
    )

LLAMA3 = 'Grattafiori et al. 2024, "The Llama 3 Herd of Models"'
LLAMA3_SCALING = {
    "kind": "llama3",
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
register_preset(
    "llama_3_8b",
    llama_config(128256, 4096, 14336, 32, 32, 8, 8192, base=500000.0),
    "Llama 3 8B.",
    f"{LLAMA3}, table 3",
    8_030_261_248,
    "hf://meta-llama/Meta-Llama-3-8B",
)
register_preset(
    "llama_3.2_1b",
    llama_config(128256, 2048, 8192, 16, 32, 8, 131072, base=500000.0, scaling=LLAMA3_SCALING, tie_output=True),
    "Llama 3.2 1B: scaled rotary positions for long texts, tied output.",
    LLAMA3,
    1_235_814_400,
    "hf://meta-llama/Llama-3.2-1B",
)
register_preset(
    "tinyllama_1.1b",
    llama_config(32000, 2048, 5632, 22, 32, 4, 2048),
    "TinyLlama 1.1B: Llama 2 made small, grouped queries.",
    'Zhang et al. 2024, "TinyLlama"',
    1_100_048_384,
    "hf://TinyLlama/TinyLlama-1.1B-Chat-v1.0",
)
register_preset(
    "smollm2_135m",
    llama_config(49152, 576, 1536, 30, 9, 3, 8192, base=100000.0, tie_output=True),
    "SmolLM2 135M: a deep and narrow Llama, tied output.",
    'Ben Allal et al. 2025, "SmolLM2"',
    134_515_008,
    "hf://HuggingFaceTB/SmolLM2-135M",
)
register_preset(
    "qwen2.5_0.5b",
    llama_config(
        *(151936, 896, 4864, 24, 14, 2, 32768),
        base=1e6,
        epsilon=1e-6,
        tie_output=True,
        use_bias=("query", "key", "value"),
    ),
    "Qwen2.5 0.5B: a Llama with biases on queries, keys and values.",
    'Qwen Team 2024, "Qwen2.5 Technical Report"',
    494_032_768,
    "hf://Qwen/Qwen2.5-0.5B",
)
register_preset(
    "qwen3_0.6b",
    llama_config(
        *(151936, 1024, 3072, 28, 16, 8, 40960),
        base=1e6,
        epsilon=1e-6,
        tie_output=True,
        head_dim=128,
        query_key_norm="rms",
    ),
    "Qwen3 0.6B: a Llama with norms on queries and keys, heads wider than the model.",
    'Qwen Team 2025, "Qwen3 Technical Report"',
    596_049_920,
    "hf://Qwen/Qwen3-0.6B",
)
register_preset(
    "gemma_2_2b",
    TransformerConfig(
        "decoder",
        256000,
        hidden_dim=2304,
        num_layers=26,
        max_length=8192,
        attention=AttentionConfig(
            8,
            num_key_value_heads=4,
            head_dim=256,
            use_bias=False,
            scale=256**-0.5,
            logit_soft_cap=50.0,
            window=(4095, 0),  # its own position and 4,095 before
            window_layers=(True, False),
        ),
        position=PositionConfig("rotary"),
        norm=NormConfig("rms", "sandwich", epsilon=1e-6, unit_offset=True),
        feed_forward=FeedForwardConfig(9216, "gelu_tanh", gated=True, use_bias=False),
        embedding=EmbeddingConfig(scale=True, logit_soft_cap=30.0),
        dropout=0.0,
        initializer_range=0.02,
    ),
    "Gemma 2 2B: norms before and after, every other layer local, soft caps.",
    'Gemma Team 2024, "Gemma 2", table 1',
    2_614_341_888,
    "hf://google/gemma-2-2b",
)
