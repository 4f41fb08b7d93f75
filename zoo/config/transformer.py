"""The configuration of a Transformer."""

import dataclasses
from typing import Any, ClassVar, NamedTuple, Self

import keras

from zoo.config.checks import (
    count_in_pattern,
    in_pattern,
    require,
    require_in_use,
    require_positive,
    require_rates,
    require_types,
)
from zoo.config.components import AttentionConfig, EmbeddingConfig, FeedForwardConfig, NormConfig
from zoo.config.mixer import MixerConfig
from zoo.config.model import ModelConfig
from zoo.config.position import PositionConfig

ARCHITECTURES = ("encoder", "decoder", "encoder_decoder")


class InitialGains(NamedTuple):
    """Factors on the deviation of initial weights.

    Args:
        value: Of the value projections.
        feed_forward: Of the projections into the feed-forward network.
        output: Of the projections that end residual branches: attention's output and the network's last.
    """

    value: float = 1.0
    feed_forward: float = 1.0
    output: float = 1.0


@dataclasses.dataclass(frozen=True)
class TransformerConfig(ModelConfig):
    """A Transformer: encoder-only, decoder-only or encoder-decoder.

    Args:
        architecture: "encoder", "decoder" or "encoder_decoder".
        vocabulary_size: Number of tokens.
        hidden_dim: Width of the model (d_model).
        num_layers: Number of blocks of each stack.
        num_decoder_layers: Number of blocks of the decoder of an encoder-decoder; None for `num_layers`.
        decoder_num_heads: Number of query heads of that decoder; None for `attention.num_heads`.
        decoder_intermediate_dim: Inner width of the feed-forward networks of that decoder; None for
            `feed_forward.intermediate_dim`.
        layer_groups: Number of groups of consecutive layers that share one block (ALBERT); None for one block per
            layer. Each layer has its own key-value cache in any case.
        max_length: Longest sequence that the model is made for, in tokens.
        attention, position, norm, feed_forward, embedding: The choices of each part.
        attention_position: A second position encoding, which acts in attention while `position` acts on the embeddings
            (MPNet); None for none.
        mixer: What takes the place of attention in some or all layers of a decoder; None for attention in all.
        dropout: Rate of the dropout on sublayer outputs (residual dropout) and on the embedding.
        pooler: Whether an encoder has a pooler, `tanh(dense(first hidden state))` (BERT), see `Transformer.pool`.
        residual_scale: Factor on residual branches; "deep_norm" for that of DeepNorm, which depends on the number of
            blocks, together with its smaller initial weights (see `residual_factor` and `initial_gains`).
        branch_scale: Factor on the outputs of the sublayers, before they are added (Granite).
        layer_scale: Initial value of learned factors on the outputs of the sublayers (CaiT); None for no factors.
        drop_path: Rate at which the last block leaves out a sublayer for a row in training (stochastic depth); the
            rates of the other blocks grow linearly from 0.
        remat: Whether training computes the intermediate results of a block again in the backward pass, to save memory.
        initializer_range: Standard deviation of truncated-normal initial weights; None for Glorot-uniform weights, and
            embeddings with standard deviation `hidden_dim ** -0.5`.
        bias_initializer: Initial biases of the attention and feed-forward projections: the name of a Keras initializer,
            or a dictionary such as `{"class_name": "RandomNormal", "config": {"stddev": 0.02}}`.
        scale_residual_initializer: Whether the initial weights of the last projection of each residual branch are
            divided by the square root of the number of branches of the stack (GPT-2), see `initial_gains`.

    Raises:
        ValueError: If a choice is out of range. The message names it, its value and what is allowed.

    Example:

    >>> config = TransformerConfig("decoder", vocabulary_size=1000, hidden_dim=64, num_layers=2,
    ...                            norm=NormConfig(kind="rms", placement="pre"), position=PositionConfig("rotary"))
    >>> TransformerConfig.from_json(config.to_json()) == config
    True
    """

    kind: ClassVar[str] = "transformer"

    architecture: str
    vocabulary_size: int
    hidden_dim: int = 512
    num_layers: int = 6
    num_decoder_layers: int | None = None
    decoder_num_heads: int | None = None
    decoder_intermediate_dim: int | None = None
    layer_groups: int | None = None
    max_length: int = 512
    attention: AttentionConfig = AttentionConfig()
    position: PositionConfig = PositionConfig()
    norm: NormConfig = NormConfig()
    feed_forward: FeedForwardConfig = FeedForwardConfig()
    embedding: EmbeddingConfig = EmbeddingConfig()
    attention_position: PositionConfig | None = None
    mixer: MixerConfig | None = None
    dropout: float = 0.1
    pooler: bool = False
    residual_scale: float | str = 1.0
    branch_scale: float = 1.0
    layer_scale: float | None = None
    drop_path: float = 0.0
    remat: bool = False
    initializer_range: float | None = None
    bias_initializer: str | dict[str, Any] = "zeros"
    scale_residual_initializer: bool = False

    def __post_init__(self) -> None:
        require_types(self)
        require(self.architecture in ARCHITECTURES, "architecture", self.architecture, f"one of {ARCHITECTURES}")
        require_positive(
            self,
            "",
            "vocabulary_size",
            "hidden_dim",
            "num_layers",
            "num_decoder_layers",
            "decoder_num_heads",
            "decoder_intermediate_dim",
            "max_length",
            "initializer_range",
            "branch_scale",
            "layer_scale",
        )
        scale = self.residual_scale
        require(
            scale == "deep_norm" if isinstance(scale, str) else scale > 0,
            "residual_scale",
            scale,
            "above 0 or 'deep_norm'",
        )
        require(
            self.residual_scale == 1 or self.norm.placement == "post",
            "residual_scale",
            self.residual_scale,
            f"1.0 with norm.placement={self.norm.placement!r}: DeepNorm is defined for 'post'",
        )
        self._require_positions()
        self._require_groups()
        allowed = "None with residual_scale='deep_norm', which is defined for layers of two sublayers"
        layers = self.feed_forward.layers
        require(self.residual_scale != "deep_norm" or layers is None, "feed_forward.layers", layers, allowed)
        require(
            self.residual_scale != "deep_norm" or not self.scale_residual_initializer,
            "scale_residual_initializer",
            self.scale_residual_initializer,
            "False with residual_scale='deep_norm', which has initial weights of its own",
        )
        require(
            _is_initializer(self.bias_initializer),
            "bias_initializer",
            self.bias_initializer,
            "the name of an initializer of Keras, or its configuration",
        )
        require_rates(self, "", "dropout", "drop_path")
        has_decoder, where = self.architecture == "encoder_decoder", f"with architecture={self.architecture!r}"
        of_decoder = ("num_decoder_layers", "decoder_num_heads", "decoder_intermediate_dim")
        rules = [(name, has_decoder, where) for name in of_decoder]
        is_encoder = self.architecture == "encoder"
        rules.append(("mixer", self.architecture == "decoder", f"{where}: a mixer sees no later tokens"))
        require_in_use(self, "", *rules, ("pooler", is_encoder, where))
        rules = [(name, is_encoder, where) for name in ("output_dim", "token_dropout")]
        require_in_use(self.embedding, "embedding.", *rules)
        mask_id, size = self.embedding.token_dropout, self.vocabulary_size
        allowed = f"below vocabulary_size={size}"
        require(mask_id is None or mask_id < size, "embedding.token_dropout", mask_id, allowed)
        if self.attention.global_tokens is not None:
            self._require_global_tokens()
        self._require_decoder_heads()
        require(
            self.attention.head_dim is not None or self.hidden_dim % self.attention.num_heads == 0,
            "attention.num_heads",
            self.attention.num_heads,
            f"a divisor of hidden_dim={self.hidden_dim} where attention.head_dim is not given",
        )

    def has_mixer(self, index: int) -> bool:
        """Returns whether the layer of this number has the mixer in the place of attention."""
        return self.mixer is not None and in_pattern(self.mixer.layers, index)

    @property
    def position_in_attention(self) -> PositionConfig:
        """The position encoding that acts in attention."""
        return self.position if self.attention_position is None else self.attention_position

    def _require_positions(self) -> None:
        prefix, position = "position", self.position_in_attention
        if self.attention_position is not None:
            prefix = "attention_position"
            kind, allowed = position.kind, "that of an encoding that acts in attention alone"
            is_right = position.acts_in_attention() and not position.acts_on_embeddings()
            require(is_right, "attention_position.kind", kind, allowed)
            kind, allowed = self.position.kind, "that of an encoding of the embeddings alone with attention_position"
            is_right = self.position.acts_on_embeddings() and not self.position.acts_in_attention()
            require(is_right, "position.kind", kind, allowed)
        where, has_window = "without attention.window", self.attention.window is not None
        rules = [(name, has_window, where) for name in ("local_base", "local_scaling")]
        require_in_use(position, f"{prefix}.", *rules)

    def _require_global_tokens(self) -> None:
        kind, position = self.attention.global_tokens, self.position_in_attention
        allowed = f"None with architecture={self.architecture!r}"
        require(self.architecture != "decoder", "attention.global_tokens", kind, allowed)
        allowed = f"None with position.kind={position.kind!r}, which acts in attention"
        require(not position.acts_in_attention(), "attention.global_tokens", kind, allowed)

    def _require_decoder_heads(self) -> None:
        heads, groups = self.decoder_num_heads, self.attention.num_key_value_heads
        if heads is None:
            return
        require(
            groups is None or heads % groups == 0,
            "decoder_num_heads",
            heads,
            f"a multiple of attention.num_key_value_heads={groups}",
        )
        require(
            self.attention.head_dim is not None or self.hidden_dim % heads == 0,
            "decoder_num_heads",
            heads,
            f"a divisor of hidden_dim={self.hidden_dim} where attention.head_dim is not given",
        )

    def of_stack(self, stack: str) -> Self:
        """Returns the configuration with the heads, windows and feed-forward widths of one stack for both.

        Args:
            stack: "encoder" or "decoder".
        """
        attention, network = self.attention, self.feed_forward
        sizes = (self.decoder_num_heads, self.decoder_intermediate_dim)
        if stack == "encoder" or sizes == (None, None) and attention.global_tokens is None:
            return self
        if attention.global_tokens is not None:
            attention = dataclasses.replace(attention, global_tokens=None, window=None)
        return dataclasses.replace(
            self,
            decoder_num_heads=None,
            decoder_intermediate_dim=None,
            attention=dataclasses.replace(attention, num_heads=self.decoder_num_heads or attention.num_heads),
            feed_forward=dataclasses.replace(
                network, intermediate_dim=self.decoder_intermediate_dim or network.intermediate_dim
            ),
        )

    def _require_groups(self) -> None:
        if self.layer_groups is None:
            return
        layers = min(self.num_layers, self.num_decoder_layers or self.num_layers)
        allowed = f"None or from 1 to the {layers} layers of a stack"
        require(1 <= self.layer_groups <= layers, "layer_groups", self.layer_groups, allowed)
        for name, differs in (
            ("attention.window_layers", self.attention.window_layers is not None),
            ("position.layers", self.position_in_attention.layers is not None),
            ("feed_forward.expert_layers", self.feed_forward.expert_layers is not None),
            ("feed_forward.layers", self.feed_forward.layers is not None),
            ("attention.scale_by_layer", self.attention.scale_by_layer),
            ("norm.first_attention=False", not self.norm.first_attention),
            ("drop_path", self.drop_path > 0),
            ("mixer", self.mixer is not None),
        ):
            require(not differs, "layer_groups", self.layer_groups, f"None with {name}: layers of a group are the same")

    def block_of_layer(self, index: int, num_layers: int) -> int:
        """Returns the index of the block of a layer, which is that of its group if layers share blocks.

        Args:
            index: Index of the layer, from 0.
            num_layers: Number of layers of the stack.
        """
        return index if self.layer_groups is None else index * self.layer_groups // num_layers

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.attention.head_dim or self.hidden_dim // self.attention.num_heads

    @property
    def embedding_dim(self) -> int:
        """Width of the vectors to which positions and segments are added."""
        embedding = self.embedding
        return embedding.factor_dim if embedding.factor_after_norm else self.hidden_dim

    @property
    def output_dim(self) -> int:
        """Width of the vectors that the output projection, or the embedding in its place, takes."""
        embedding = self.embedding
        is_narrow = embedding.factor_dim is not None and (embedding.tie_output or embedding.factor_output)
        return embedding.factor_dim if is_narrow else embedding.output_dim or self.hidden_dim

    @property
    def embedding_factor(self) -> float:
        """The factor on embeddings."""
        scale = self.embedding.scale
        if isinstance(scale, bool):
            return self.hidden_dim**0.5 if scale else 1.0
        return float(scale)

    def residual_factor(self, stack: str) -> float:
        """Returns the factor on residual branches of a stack.

        Args:
            stack: "encoder" or "decoder".

        Reference:
            Wang et al. 2022, "DeepNet: Scaling Transformers to 1,000 Layers", figure 2 (alpha).
        """
        return self._deep_norm(stack)[0] if self.residual_scale == "deep_norm" else float(self.residual_scale)

    def initial_gains(self, stack: str) -> InitialGains:
        """Returns the factors on the initial weights of a stack.

        Args:
            stack: "encoder" or "decoder".

        Reference:
            Wang et al. 2022, "DeepNet", figure 2 (beta); Radford et al. 2019, "Language Models are Unsupervised
            Multitask Learners", section 2.3 (residual layers).
        """
        if self.residual_scale == "deep_norm":
            beta = self._deep_norm(stack)[1]
            return InitialGains(value=beta, feed_forward=beta, output=beta)
        if self.scale_residual_initializer:
            has_cross_attention = self.architecture == "encoder_decoder" and stack == "decoder"
            layers = (self.num_decoder_layers if stack == "decoder" else None) or self.num_layers
            branches = (2 if has_cross_attention else 1) * layers + count_in_pattern(self.feed_forward.layers, layers)
            return InitialGains(output=branches**-0.5)
        return InitialGains()

    def _deep_norm(self, stack: str) -> tuple[float, float]:
        layers = self.num_layers
        if self.architecture != "encoder_decoder":
            return (2 * layers) ** 0.25, (8 * layers) ** -0.25
        decoder_layers = self.num_decoder_layers or layers
        if stack == "decoder":
            return (3 * decoder_layers) ** 0.25, (12 * decoder_layers) ** -0.25
        depth = (layers**4 * decoder_layers) ** (1 / 16)
        return 0.81 * depth, 0.87 / depth


def _is_initializer(value: str | dict[str, Any]) -> bool:
    try:
        return isinstance(keras.initializers.get(value), keras.initializers.Initializer)
    except (ValueError, TypeError, KeyError, AttributeError):
        return False
