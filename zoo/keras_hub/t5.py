"""KerasHub's T5 and its version 1.1."""

import dataclasses
from typing import Any, ClassVar

from zoo.config import (
    AttentionConfig,
    EmbeddingConfig,
    FeedForwardConfig,
    NormConfig,
    PositionConfig,
    TransformerConfig,
)
from zoo.keras_hub.family import Arguments, Place, Table, register_backbone
from zoo.storage import quote

# of the training; nothing in the model is bound to it
MAX_LENGTH = 512
APPROXIMATE = {
    "module": "builtins",
    "class_name": "function",
    "config": "keras_hub>gelu_approximate",
    "registered_name": "function",
}
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "silu": "silu", "gelu_tanh": APPROXIMATE}


@register_backbone
@dataclasses.dataclass(frozen=True)
class T5Arguments(Arguments):
    """`keras_hub.models.T5Backbone`."""

    vocabulary_size: int
    num_layers: int
    num_heads: int
    hidden_dim: int
    intermediate_dim: int
    key_value_dim: int | None = None
    dropout: float = 0.1
    activation: str | dict[str, Any] = "relu"
    use_gated_activation: bool = True
    layer_norm_epsilon: float = 1e-6
    tie_embedding_weights: bool = True

    class_name: ClassVar[str] = "T5Backbone"

    @property
    def table(self) -> Table:  # type: ignore[override]  # a constant in the base class
        table: dict[str | tuple[str, ...], str | Place] = {
            "token_embedding": "token_embedding",
            "output_projection": "token_embedding/reverse_embeddings",
        }
        inner = {"gate": "input_projector", "up": "gate_projector"}
        inner = inner if self.use_gated_activation else {"up": "input_projector"}
        for side in ("encoder", "decoder"):
            ours, theirs = f"{side}.{{}}", f"{side}/{{}}"
            for part in ("attention", "cross_attention") if side == "decoder" else ("attention",):
                name = "self_attention" if part == "attention" else part
                table[f"{ours}.{part}_norm"] = f"{theirs}/{name}_layer_norm"
                for projection in ("query", "key", "value", "output"):
                    table[f"{ours}.{part}.{projection}"] = f"{theirs}/{name}/{projection}_projector"
            table[f"{ours}.feed_forward_norm"] = f"{theirs}/layer_norm"
            table |= {f"{ours}.feed_forward.{part}": f"{theirs}/{name}" for part, name in inner.items()}
            table[f"{ours}.feed_forward.down"] = f"{theirs}/output_projector"
            table[f"{side}.position"] = f"{side}/0/self_attention/relative_attention_bias"
            table[f"{side}.final_norm"] = f"{side}_output_layer_norm"
        return table

    @staticmethod
    def variables(theirs: Any) -> dict[str, Any]:
        # the norms have no names there, and both tables of distances the same
        found: dict[str, Any] = {}
        named: set[int] = set()
        for side in ("encoder", "decoder"):
            for index, layer in enumerate(getattr(theirs, f"{side}_transformer_layers")):
                parts = {name: getattr(layer, name, None) for name in _NORMS}
                leaves = {f"{name}/weight": norm.weight for name, norm in parts.items() if norm is not None}
                for part in ("self_attention", "cross_attention"):
                    bias = getattr(getattr(layer, part, None), "relative_attention_bias", None)
                    if bias is not None:
                        leaves[f"{part}/relative_attention_bias"] = bias
                named |= {id(leaf) for leaf in leaves.values()}
                start = f"transformer_{side}_layer_{index}/"
                leaves |= {
                    leaf.path.removeprefix(start): leaf
                    for leaf in layer.weights
                    if leaf.path.startswith(start) and id(leaf) not in named
                }
                named |= {id(leaf) for leaf in leaves.values()}
                found |= {f"{side}/{index}/{name}": leaf for name, leaf in leaves.items()}
        return found | {leaf.path: leaf for leaf in theirs.weights if id(leaf) not in named}

    def config(self) -> TransformerConfig:
        activation = next((ours for ours, theirs in ACTIVATIONS.items() if theirs == self.activation), None)
        if activation is None:
            raise ValueError(f"activation must be one of {list(ACTIVATIONS.values())}, got {quote(self.activation)}.")
        is_tied = self.tie_embedding_weights
        return TransformerConfig(
            "encoder_decoder",
            self.vocabulary_size,
            hidden_dim=self.hidden_dim,
            num_layers=self.num_layers,
            max_length=MAX_LENGTH,
            attention=AttentionConfig(
                self.num_heads, head_dim=self.key_value_dim, use_bias=False, scale=1.0, dropout=self.dropout
            ),
            position=PositionConfig("relative_bias", num_buckets=32, max_distance=128),
            norm=NormConfig("rms", "pre", epsilon=self.layer_norm_epsilon),
            feed_forward=FeedForwardConfig(
                self.intermediate_dim, activation, gated=self.use_gated_activation, use_bias=False
            ),
            embedding=EmbeddingConfig(tie_output=is_tied, output_scale=self.hidden_dim**-0.5 if is_tied else None),
            dropout=self.dropout,
        )

    @classmethod
    def of(cls, config: TransformerConfig) -> "T5Arguments":
        network = config.feed_forward
        return cls(
            vocabulary_size=config.vocabulary_size,
            num_layers=config.num_layers,
            num_heads=config.attention.num_heads,
            hidden_dim=config.hidden_dim,
            intermediate_dim=network.intermediate_dim,
            key_value_dim=config.head_dim,
            dropout=config.dropout,
            activation=ACTIVATIONS[network.activation],
            use_gated_activation=network.gated,
            layer_norm_epsilon=config.norm.epsilon,
            tie_embedding_weights=config.embedding.tie_output,
        )


_NORMS = ("self_attention_layer_norm", "cross_attention_layer_norm", "layer_norm")
