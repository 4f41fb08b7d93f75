"""KerasHub's Phi-3."""

import dataclasses
from typing import Any, ClassVar

from zoo.config import TransformerConfig
from zoo.config.checks import require
from zoo.keras_hub.decoders import GATED_BLOCK, GatedArguments
from zoo.keras_hub.family import Table, register_backbone


@register_backbone
@dataclasses.dataclass(frozen=True)
class Phi3Arguments(GatedArguments):
    """`keras_hub.models.Phi3Backbone`."""

    max_sequence_length: int = 4096
    pretraining_sequence_length: int = 4096
    rope_scaling_type: str | None = None
    rope_scaling_short_factor: list[float] | None = None
    rope_scaling_long_factor: list[float] | None = None

    class_name: ClassVar[str] = "Phi3Backbone"
    table: ClassVar[Table] = {
        ours: theirs.replace("self_attention/", "attention/")
        .replace("self_attention_layernorm", "pre_attention_layernorm")
        .replace("feedforward_layernorm", "post_attention_layernorm")
        for ours, theirs in GATED_BLOCK.items()
    }

    def scaling(self) -> dict[str, Any] | None:
        kind = self.rope_scaling_type
        require(kind in (None, "su"), "rope_scaling_type", kind, "null or 'su'")
        if kind is None:
            return None
        return {
            "kind": "longrope",
            "short_factor": self.rope_scaling_short_factor,
            "long_factor": self.rope_scaling_long_factor,
            "factor": max(1.0, self.max_sequence_length / self.pretraining_sequence_length),
            "original_max_position_embeddings": self.pretraining_sequence_length,
        }

    def config(self) -> TransformerConfig:
        return dataclasses.replace(super().config(), max_length=self.max_sequence_length)

    @classmethod
    def more(cls, config: TransformerConfig) -> dict[str, Any]:
        scaling, length = config.position.scaling or {}, {"max_sequence_length": config.max_length}
        if scaling.get("kind") != "longrope":
            return length
        return {
            **length,
            "pretraining_sequence_length": scaling["original_max_position_embeddings"],
            "rope_scaling_type": "su",
            "rope_scaling_short_factor": list(scaling["short_factor"]),
            "rope_scaling_long_factor": list(scaling["long_factor"]),
        }
