"""What the comparison measures: models, batches, how much work a call is."""

from __future__ import annotations

import dataclasses
from typing import Literal


@dataclasses.dataclass(frozen=True)
class Work:
    """One row of the comparison.

    Args:
        job: What a call does: "train", "infer" or "generate".
        model: "decoder" (GPT-2), "encoder_decoder" (the Transformer of Vaswani et al. 2017) or "encoder" (BERT).
        batch_size: Rows.
        length: Tokens of a row, of an encoder-decoder on each side; of a prompt where the job is "generate".
        num_layers: Layers, of an encoder-decoder of each stack.
        hidden_dim, num_heads, intermediate_dim, vocabulary_size: Sizes.
        dropout: Rate of all dropouts; 0 where nothing is trained.
        new_tokens: Tokens that are generated after each prompt.
        beams: Beams of the search; 1 is greedy.
        unit: What is counted per second: "tokens" or "sequences".
    """

    job: Literal["train", "infer", "generate"]
    model: Literal["decoder", "encoder_decoder", "encoder"]
    batch_size: int
    length: int
    num_layers: int
    hidden_dim: int
    num_heads: int
    intermediate_dim: int
    vocabulary_size: int
    dropout: float = 0.0
    new_tokens: int = 0
    beams: int = 1
    unit: Literal["tokens", "sequences"] = "tokens"

    @property
    def items(self) -> int:
        """Tokens or sequences of a call."""
        if self.unit == "sequences":
            return self.batch_size
        per_row = self.new_tokens or self.length * (2 if self.model == "encoder_decoder" else 1)
        return self.batch_size * per_row

    @property
    def bytes_read(self) -> int:
        """Bytes of float32 weights that are read while tokens are generated: all of them for each token of a row."""
        layer = 4 * self.hidden_dim * self.hidden_dim + 2 * self.hidden_dim * self.intermediate_dim
        return 4 * self.new_tokens * (self.num_layers * layer + self.hidden_dim * self.vocabulary_size)


_GPT = Work("train", "decoder", 8, 256, 6, 384, 6, 1536, 8192)
_TINY = Work("train", "encoder_decoder", 128, 20, 4, 128, 4, 256, 10000, dropout=0.3)

WORKS = {
    "train_decoder_dropout": dataclasses.replace(_GPT, dropout=0.1),
    "train_decoder": _GPT,
    "train_encoder_decoder": _TINY,
    "infer_encoder": Work("infer", "encoder", 32, 128, 6, 384, 12, 1536, 30522, unit="sequences"),
    "generate": dataclasses.replace(_GPT, job="generate", batch_size=1, length=16, new_tokens=224),
    "generate_batch": dataclasses.replace(_GPT, job="generate", batch_size=8, length=16, new_tokens=224),
    "generate_beams": dataclasses.replace(_GPT, job="generate", batch_size=1, length=16, new_tokens=224, beams=4),
}
