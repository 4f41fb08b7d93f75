"""Sizes of the models that are measured, and the operations of a training step. Every library makes them of this."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class Shape:
    """Sizes of a model.

    Args:
        preset: The preset of this library that has the other choices.
        architecture: "decoder", "encoder" or "encoder_decoder", which has `num_layers` on each side.
        vocabulary_size, hidden_dim, intermediate_dim, num_layers, num_heads, num_key_value_heads: Sizes.
        gated: Whether the position-wise network has three kernels in place of two.
    """

    preset: str
    architecture: str
    vocabulary_size: int
    hidden_dim: int
    intermediate_dim: int
    num_layers: int
    num_heads: int
    num_key_value_heads: int
    gated: bool = False

    def tiny(self) -> Shape:
        """Returns the same kind of model with two layers of heads of 8, for a test."""
        heads = 2 * self.num_heads // self.num_key_value_heads
        return dataclasses.replace(
            self,
            vocabulary_size=512,
            hidden_dim=8 * heads,
            intermediate_dim=32,
            num_layers=2,
            num_heads=heads,
            num_key_value_heads=2,
        )


SHAPES = {
    "gpt2_small": Shape("gpt2_small", "decoder", 50257, 768, 3072, 12, 12, 12),
    "bert_base": Shape("bert_base_uncased", "encoder", 30522, 768, 3072, 12, 12, 12),
    "t5_small": Shape("t5_small", "encoder_decoder", 32128, 512, 2048, 6, 8, 8),
    "smollm2_135m": Shape("smollm2_135m", "decoder", 49152, 576, 1536, 30, 9, 3, gated=True),
}


def training_operations(shape: Shape, lengths: Sequence[int], *, scored: int, frozen: bool = False) -> float:
    """Returns the floating-point operations that a training step needs: 6 N + 12 L d T per token.

    N is the number of weights in matrix products. Biases, norms and look-ups in the embedding are left out (0.1 % in
    GPT-2 small). Scores of attention count in full even if the order is causal, as is common. Padding does not.

    Args:
        shape: The model.
        lengths: Number of tokens of each row; of each side of each row in an encoder-decoder.
        scored: Number of tokens whose logits the loss needs.
        frozen: Whether the weights do not train, as with LoRA: then their gradients, 2 N per token, are not needed.

    Example:

    >>> training_operations(SHAPES["gpt2_small"], [1024], scored=1024) / 1024 / 1e6
    854.4...
    """
    width, layers = shape.hidden_dim, shape.num_layers
    key_value_dim = width // shape.num_heads * shape.num_key_value_heads
    attention = 2 * width * width + 2 * width * key_value_dim
    block = attention + (3 if shape.gated else 2) * width * shape.intermediate_dim
    tokens, pairs = sum(lengths), sum(length * length for length in lengths)
    # a decoder beside an encoder attends twice
    blocks, attentions = (2 * block + attention, 3) if shape.architecture == "encoder_decoder" else (block, 1)
    products = layers * blocks * tokens + shape.vocabulary_size * width * scored
    return (4 if frozen else 6) * products + 12 * layers * width * pairs * attentions
