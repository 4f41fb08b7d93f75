"""Choices of the parts of a Transformer: attention, norms, feed-forward, embedding."""

import dataclasses
from typing import Any

import keras

from layers.constructor_arguments import constructor_arguments
from layers.feed_forward import FeedForward
from layers.norm_makers import norm_class
from layers.router import check_groups
from zoo.config.checks import (
    in_pattern,
    require,
    require_in_use,
    require_pattern,
    require_positive,
    require_rates,
    require_types,
    shorten,
)


@dataclasses.dataclass(frozen=True)
class AttentionConfig:
    """The choices of `layers.MultiHeadAttention`.

    Args:
        num_heads: Number of query heads.
        num_key_value_heads: Number of key-value heads; None for `num_heads`.
        head_dim: Width of a head; None for `hidden_dim // num_heads`.
        value_head_dim: Width of a head's values; None for `head_dim`.
        latent_dim: Width of the latent from which keys and values of self-attention are projected (DeepSeek), see
            `layers.attention.Latents`; None to project them from the inputs.
        shared_key_dim: With `latent_dim`, width of the part of the keys that all heads share.
        query_latent_dim: Width of the latent from which queries are projected; None to project them from the inputs.
        use_bias: Whether the projections have biases: True, False or the names of those with a bias. With `latent_dim`,
            "latent" names the projections to the latents and the shared key.
        scale: Factor on the scores; None for `head_dim ** -0.5`.
        scale_by_layer: Whether the factor is divided by the number of the layer, counted from 1 (Mistral's GPT-2).
        logit_soft_cap: Soft cap on the scores; None for none.
        query_key_norm: Kind of the norm on queries and keys; None for none. If it is the kind of the model's norm, it
            has the same options.
        query_key_norm_scope: "head" for a norm of each head with shared weights, "per_head" for a norm of each head
            with its own weights (Cohere), "width" for one norm of all heads together (OLMo 2).
        projection_limit: Limit to which queries, keys and values are clipped on both sides (MPT, OLMo: `clip_qkv`), see
            `layers.MultiHeadAttention`; None for none.
        weighting: Attention weights in place of the softmax: the name under which an `AttentionWeighting` or a function
            is registered with Keras, for example "my_project>softpick"; None for the softmax.
        sinks: Whether each head has an attention sink.
        output_gate: Whether heads are gated before the output projection.
        window: Sliding window `(left, right)`, see `layers.MultiHeadAttention`; None for none.
        window_layers: A repeating pattern of the layers that have the window, for example `(True, False)` for every
            other layer; None for all layers.
        dropout: Rate of the dropout on attention weights.
        global_tokens: Which tokens of an encoder see all tokens and are seen by all in spite of the window, with
            projections of their own (Longformer): "given" for those of the input `global_mask` alone, "first" for the
            first of each text where none are given; None for no such tokens. The decoder of an encoder-decoder has
            no window then.
    """

    num_heads: int = 8
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    value_head_dim: int | None = None
    latent_dim: int | None = None
    shared_key_dim: int | None = None
    query_latent_dim: int | None = None
    use_bias: bool | tuple[str, ...] = True
    scale: float | None = None
    scale_by_layer: bool = False
    logit_soft_cap: float | None = None
    query_key_norm: str | None = None
    query_key_norm_scope: str = "head"
    projection_limit: float | None = None
    weighting: str | None = None
    sinks: bool = False
    output_gate: bool = False
    window: tuple[int | None, int | None] | None = None
    window_layers: tuple[bool, ...] | None = None
    dropout: float = 0.0
    global_tokens: str | None = None

    def __post_init__(self) -> None:
        require_types(self, "attention.")
        require_positive(self, "attention.", "num_heads", "head_dim", "scale", "logit_soft_cap", "projection_limit")
        require_positive(self, "attention.", "value_head_dim", "latent_dim", "shared_key_dim", "query_latent_dim")
        self._require_latents()
        heads = self.num_key_value_heads
        require(
            heads is None or (heads >= 1 and self.num_heads % heads == 0),
            "attention.num_key_value_heads",
            heads,
            f"None or a divisor of num_heads={self.num_heads}",
        )
        if self.query_key_norm is not None:
            _require_norm("attention.query_key_norm", self.query_key_norm)
        require(
            self.query_key_norm != "batch",
            "attention.query_key_norm",
            self.query_key_norm,
            "a norm of each position for itself",
        )
        require(
            self.weighting is None or keras.saving.get_registered_object(self.weighting) is not None,
            "attention.weighting",
            self.weighting,
            "a name that is registered with Keras, 'package>name'",
        )
        scopes = ("head", "per_head", "width") if self.query_key_norm else ("head",)
        scope = self.query_key_norm_scope
        require(scope in scopes, "attention.query_key_norm_scope", scope, f"one of {scopes}")
        require(
            scope != "per_head" or "weight_axes" in constructor_arguments(norm_class(self.query_key_norm)),
            "attention.query_key_norm_scope",
            scope,
            f"'head' or 'width' with attention.query_key_norm={self.query_key_norm!r}: 'layer' and 'rms' have weights "
            "for each head",
        )
        require_rates(self, "attention.", "dropout")
        require(
            all(side is None or side >= 0 for side in self.window or ()),
            "attention.window",
            self.window,
            "a pair of numbers of positions of at least 0, or None for no limit",
        )
        require_in_use(self, "attention.", ("window_layers", self.window is not None, "where there is no window"))
        require_pattern("attention.window_layers", self.window_layers)
        if self.global_tokens is not None:
            self._require_window_alone()

    def _require_window_alone(self) -> None:
        kinds = (None, "given", "first")
        require(self.global_tokens in kinds, "attention.global_tokens", self.global_tokens, f"one of {kinds}")
        allowed = "a pair of numbers with attention.global_tokens"
        require(self.window is not None and None not in self.window, "attention.window", self.window, allowed)
        others = ("window_layers", "latent_dim", "logit_soft_cap", "query_key_norm", "projection_limit", "weighting")
        rules = [(name, False, "with attention.global_tokens") for name in (*others, "sinks")]
        require_in_use(self, "attention.", *rules)

    def _require_latents(self) -> None:
        heads, size = (None, self.num_heads), self.shared_key_dim
        if self.latent_dim is None:
            rules = [(name, False, "without latent_dim") for name in ("shared_key_dim", "query_latent_dim")]
            return require_in_use(self, "attention.", *rules)
        require(size is not None, "attention.shared_key_dim", size, "given with latent_dim")
        allowed = f"a number above shared_key_dim={size} with latent_dim"
        require(self.head_dim is not None and self.head_dim > size, "attention.head_dim", self.head_dim, allowed)
        kept, allowed = self.num_key_value_heads, f"None or num_heads={self.num_heads} with latent_dim"
        require(kept in heads, "attention.num_key_value_heads", kept, allowed)
        norm, limit = self.query_key_norm, self.projection_limit
        require(norm is None, "attention.query_key_norm", norm, "None with latent_dim, whose latents have norms")
        require(limit is None, "attention.projection_limit", limit, "None with latent_dim")

    def has_bias(self, name: str) -> bool:
        """Returns whether the projection of this name has a bias."""
        return self.use_bias if isinstance(self.use_bias, bool) else name in self.use_bias

    def has_window(self, index: int) -> bool:
        """Returns whether the layer of this number has the window."""
        return self.window is not None and in_pattern(self.window_layers, index)


@dataclasses.dataclass(frozen=True)
class NormConfig:
    """The norms of a model, and their placement.

    Args:
        kind: "layer", "rms", "scale", "dynamic_tanh" or "batch"; or the name under which your own norm is registered
            with Keras, for example "my_project>group_norm".
        placement: "post", "pre", "sandwich", "res_post" or "parallel", see `layers.TransformerBlock`.
        epsilon: Added to the variance.
        unit_offset: Whether the factor of "rms" or "layer" is stored minus one.
        use_bias: Whether "layer" has an offset.
        final: Whether a norm follows the last block; None for a norm with all placements but "post".
        embedding: Whether a norm follows the embedding.
        first_attention: With "pre", whether there is a norm before the attention of the first block. ModernBERT has
            none.
        shared: With "parallel", whether the sublayers share their norm (GPT-J) or have one each (GPT-NeoX).
        options: Further arguments of the norm, for example `{"alpha": 0.8}` for "dynamic_tanh".
    """

    kind: str = "layer"
    placement: str = "post"
    epsilon: float = 1e-6
    unit_offset: bool = False
    use_bias: bool = True
    final: bool | None = None
    embedding: bool = False
    first_attention: bool = True
    shared: bool = True
    options: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        require_types(self, "norm.")
        require_positive(self, "norm.", "epsilon")
        _require_norm("norm.kind", self.kind)
        placements = ("post", "pre", "sandwich", "res_post", "parallel")
        require(self.placement in placements, "norm.placement", self.placement, f"one of {placements}")
        for choice, name, options_of in (
            ("kind", "unit_offset", ("rms", "layer")),
            ("kind", "use_bias", ("layer",)),
            ("placement", "first_attention", ("pre",)),
            ("placement", "shared", ("parallel",)),
        ):
            chosen = getattr(self, choice)
            where = f"with norm.{choice}={chosen!r}: it is an option of {' and '.join(map(repr, options_of))}"
            require_in_use(self, "norm.", (name, chosen in options_of, where))
        names = constructor_arguments(norm_class(self.kind)).keys() - {
            "epsilon",
            "unit_offset",
            "center",
            "weight_axes",
        }
        for name, value in (self.options or {}).items():
            allowed = f"left out with norm.kind={self.kind!r}, which has the options {sorted(names)}"
            require(name in names, f"norm.options[{shorten(name)}]", value, allowed)

    def of_kind(self, kind: str) -> "NormConfig":
        """Returns the configuration of another kind of norm, with the choices that both kinds have.

        Args:
            kind: The kind. Choices that it does not have are set to their defaults.

        Raises:
            ValueError: If the kind is unknown.

        Example:

        >>> NormConfig("layer", use_bias=False).of_kind("rms").use_bias
        True
        """
        options = self.options if kind == self.kind else None
        return dataclasses.replace(
            self,
            kind=kind,
            unit_offset=self.unit_offset and kind in ("rms", "layer"),
            use_bias=self.use_bias or kind != "layer",
            options=options,
        )

    def layer_options(self) -> dict[str, Any]:
        """Returns the arguments of the norm, without its epsilon."""
        options = dict(self.options or {})
        if self.unit_offset:
            options["unit_offset"] = True
        if not self.use_bias:
            options["center"] = False
        return options


def _require_norm(argument: str, kind: str) -> None:
    try:
        norm_class(kind)
    except ValueError:
        kinds = (
            "one of 'layer', 'rms', 'scale', 'dynamic_tanh', 'batch', or a layer registered with Keras, 'package>name'"
        )
        require(False, argument, kind, kinds)


@dataclasses.dataclass(frozen=True)
class FeedForwardConfig:
    """The position-wise feed-forward network, or a mixture of experts.

    Args:
        intermediate_dim: Width of the inner layer, or of that of each expert.
        activation: Name of the activation, see `layers.FeedForward`.
        gated: Whether the activation gates a second projection (GLU family).
        use_bias: Whether the projections have biases.
        gate_limit: Limit of both factors of a gated network (gpt-oss), see `layers.FeedForward`; None for none.
        up_offset: Added to the projection that is multiplied with the activation, see `layers.FeedForward`.
        dropout: Rate of the dropout on the inner layer.
        num_experts: Number of experts, see `layers.MixtureOfExperts`; None for one network for all tokens.
        experts_per_token, normalize_weights, capacity_factor, load_balance_weight, scoring, bias_update_rate,
            weight_scale, expert_groups, groups_per_token, z_loss_weight, router_bias, shared_intermediate_dim,
            shared_gate: Options of the experts.
        expert_layers: A repeating pattern of the layers that have experts; the others have one network for all tokens.
            None for all layers.
        dense_intermediate_dim: Width of the inner layer in layers without experts; None for `intermediate_dim`.
        layers: A repeating pattern of the layers that have a feed-forward network, for example `(False,)` for none
            (Mamba 2); None for all layers.
    """

    intermediate_dim: int = 2048
    activation: str = "relu"
    gated: bool = False
    use_bias: bool = True
    gate_limit: float | None = None
    up_offset: float = 0.0
    dropout: float = 0.0
    num_experts: int | None = None
    experts_per_token: int = 2
    normalize_weights: bool | None = None
    capacity_factor: float | None = None
    load_balance_weight: float = 0.01
    scoring: str = "softmax"
    bias_update_rate: float | None = None
    weight_scale: float = 1.0
    expert_groups: int | None = None
    groups_per_token: int | None = None
    z_loss_weight: float = 0.0
    router_bias: bool = False
    shared_intermediate_dim: int | None = None
    shared_gate: bool = False
    expert_layers: tuple[bool, ...] | None = None
    dense_intermediate_dim: int | None = None
    layers: tuple[bool, ...] | None = None

    def __post_init__(self) -> None:
        require_types(self, "feed_forward.")
        require_positive(self, "feed_forward.", "intermediate_dim", "num_experts", "capacity_factor", "gate_limit")
        require_positive(self, "feed_forward.", "shared_intermediate_dim", "dense_intermediate_dim")
        require_positive(self, "feed_forward.", "weight_scale")
        require_rates(self, "feed_forward.", "dropout")
        rules = [(name, self.gated, "without feed_forward.gated") for name in ("gate_limit", "up_offset")]
        require_in_use(self, "feed_forward.", *rules)
        self._require_layers()
        for name in ("load_balance_weight", "bias_update_rate", "z_loss_weight"):
            require((getattr(self, name) or 0) >= 0, f"feed_forward.{name}", getattr(self, name), "at least 0")
        scorings = ("softmax", "sigmoid")
        require(self.scoring in scorings, "feed_forward.scoring", self.scoring, f"one of {scorings}")
        if self.num_experts is not None:
            chosen, allowed = self.experts_per_token, f"from 1 to num_experts={self.num_experts}"
            require(1 <= chosen <= self.num_experts, "feed_forward.experts_per_token", chosen, allowed)
            self._require_other_networks()
            return
        of_network = constructor_arguments(FeedForward) | {"layers": None}
        of_experts = [field.name for field in dataclasses.fields(self) if field.name not in of_network]
        rules = [(name, False, "without feed_forward.num_experts") for name in of_experts]
        require_in_use(self, "feed_forward.", *rules)

    def _require_layers(self) -> None:
        require_pattern("feed_forward.layers", self.layers)
        if self.layers is None:
            return
        rules = [("expert_layers", False, "with feed_forward.layers")]
        if True not in self.layers:
            names = [field.name for field in dataclasses.fields(self) if field.name != "layers"]
            rules = [(name, False, "where feed_forward.layers has no layer") for name in names]
        require_in_use(self, "feed_forward.", *rules)

    def _require_other_networks(self) -> None:
        try:
            check_groups(self.num_experts, self.experts_per_token, self.expert_groups, self.groups_per_token)
        except ValueError as error:
            raise ValueError(f"feed_forward.{error}") from error
        require_pattern("feed_forward.expert_layers", self.expert_layers)
        has_shared, is_pattern = self.shared_intermediate_dim is not None, self.expert_layers is not None
        require_in_use(
            self,
            "feed_forward.",
            ("shared_gate", has_shared, "without feed_forward.shared_intermediate_dim"),
            ("dense_intermediate_dim", is_pattern, "without feed_forward.expert_layers"),
        )

    def has_network(self, index: int) -> bool:
        """Returns whether the layer of this number has a feed-forward network."""
        return in_pattern(self.layers, index)

    def has_experts(self, index: int) -> bool:
        """Returns whether the layer of this number has experts."""
        return self.num_experts is not None and self.has_network(index) and in_pattern(self.expert_layers, index)


@dataclasses.dataclass(frozen=True)
class EmbeddingConfig:
    """Token and segment embedding, and the projection back to the vocabulary.

    Args:
        scale: Whether embeddings are multiplied by `sqrt(hidden_dim)`, or the factor itself (Granite).
        dropout: Rate of the dropout on the embedding; None for the `dropout` of the model.
        factor_dim: Width of the table of a factorised embedding; None for an embedding without factors.
        factor_bias: Whether the linear map from `factor_dim` to `hidden_dim` has a bias.
        factor_after_norm: Whether segments, positions, norm and dropout of the embedding come before this map, in the
            width `factor_dim` (ALBERT, ELECTRA).
        factor_output: Whether a separate linear map leads from hidden states back to `factor_dim` (OPT), in place of
            the transposed map.
        num_segments: Number of segment ids; 0 for no segment embedding.
        tie_output: Whether the output projection is the transposed embedding.
        output_bias: Whether the output projection has a bias.
        output_scale: Factor on the last hidden state before the output projection; None for none.
        logit_soft_cap: Soft cap on the logits; None for none.
        output_dim: Width of the vectors that an untied output projection takes; None for `hidden_dim`. The head of a
            masked language model leads from hidden states to this width (RemBERT).
        token_dropout: Id of the mask token of an encoder whose mask tokens have no embedding, while those of the other
            tokens are scaled by how many there are (ESM), see `layers.embeddings.with_token_dropout`; None for no such
            token.
    """

    scale: bool | float = False
    dropout: float | None = None
    factor_dim: int | None = None
    factor_bias: bool = False
    factor_after_norm: bool = False
    factor_output: bool = False
    num_segments: int = 0
    tie_output: bool = True
    output_bias: bool = False
    output_scale: float | None = None
    logit_soft_cap: float | None = None
    output_dim: int | None = None
    token_dropout: int | None = None

    def __post_init__(self) -> None:
        require_types(self, "embedding.")
        require_positive(self, "embedding.", "factor_dim", "output_dim", "output_scale", "logit_soft_cap")
        where, has_factors = "without embedding.factor_dim", self.factor_dim is not None
        rules = [(name, has_factors, where) for name in ("factor_bias", "factor_after_norm", "factor_output")]
        where = "with embedding.factor_after_norm"
        rules += [(name, not self.factor_after_norm, where) for name in ("scale", "token_dropout")]
        is_own = not self.tie_output and not self.factor_output
        rules.append(("output_dim", is_own, "with embedding.tie_output or embedding.factor_output"))
        require_in_use(self, "embedding.", *rules)
        is_positive = isinstance(self.scale, bool) or self.scale > 0
        require(is_positive, "embedding.scale", self.scale, "True, False or a number above 0")
        require(self.num_segments >= 0, "embedding.num_segments", self.num_segments, "at least 0")
        mask_id = self.token_dropout
        require(mask_id is None or mask_id >= 0, "embedding.token_dropout", mask_id, "None or the id of a token")
        require(0 <= (self.dropout or 0) < 1, "embedding.dropout", self.dropout, "None or in [0, 1)")
