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
from zoo.presets.catalogue import register_listed


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


register_listed("gpt2_small", gpt2_config(50257, 768, 12, 12, 1024))
register_listed("gpt2_medium", gpt2_config(50257, 1024, 24, 16, 1024))
register_listed("gpt2_large", gpt2_config(50257, 1280, 36, 20, 1024))
register_listed("gpt2_xl", gpt2_config(50257, 1600, 48, 25, 1024))

LLAMA3_SCALING = {
    "kind": "llama3",
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
register_listed("llama_3_8b", llama_config(128256, 4096, 14336, 32, 32, 8, 8192, base=500000.0))
register_listed(
    "llama_3.2_1b",
    llama_config(128256, 2048, 8192, 16, 32, 8, 131072, base=500000.0, scaling=LLAMA3_SCALING, tie_output=True),
)
register_listed("tinyllama_1.1b", llama_config(32000, 2048, 5632, 22, 32, 4, 2048))
register_listed("smollm2_135m", llama_config(49152, 576, 1536, 30, 9, 3, 8192, base=100000.0, tie_output=True))
register_listed(
    "qwen2.5_0.5b",
    llama_config(
        *(151936, 896, 4864, 24, 14, 2, 32768),
        base=1e6,
        epsilon=1e-6,
        tie_output=True,
        use_bias=("query", "key", "value"),
    ),
)
register_listed(
    "qwen3_0.6b",
    llama_config(
        *(151936, 1024, 3072, 28, 16, 8, 40960),
        base=1e6,
        epsilon=1e-6,
        tie_output=True,
        head_dim=128,
        query_key_norm="rms",
    ),
)
register_listed(
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
)
