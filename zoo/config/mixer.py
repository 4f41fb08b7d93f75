"""The choices of the layers that take the place of attention."""

import dataclasses

from layers.constructor_arguments import constructor_arguments
from layers.gated_delta_rule import GatedDeltaRule
from layers.short_convolution import ShortConvolution
from layers.state_space import StateSpace
from zoo.config.checks import require, require_in_use, require_pattern, require_positive, require_types

# the layers by their kinds
MIXERS: dict[str, type] = {
    "gated_delta_rule": GatedDeltaRule,
    "short_convolution": ShortConvolution,
    "state_space": StateSpace,
}


@dataclasses.dataclass(frozen=True)
class MixerConfig:
    """What mixes the tokens in some layers of a decoder, in the place of attention.

    Args:
        kind: "short_convolution", see `layers.ShortConvolution`; "gated_delta_rule", see `layers.GatedDeltaRule`;
            "state_space", see `layers.StateSpace`.
        layers: A repeating pattern of the layers that have the mixer, for example `(True, True, False)`; the others
            have attention. None for all layers.
        kernel_size: Number of positions that a convolution sees.
        use_bias: Whether linear maps have biases; of short convolutions the convolution too. Not with gated delta
            rules.
        num_heads, num_key_heads, key_dim, value_dim, epsilon: Heads with states, their widths, and the epsilon of their
            norm.
        convolution_bias, step_limit: Options of state spaces.
    """

    kind: str
    layers: tuple[bool, ...] | None = None
    kernel_size: int = 3
    use_bias: bool = False
    num_heads: int | None = None
    num_key_heads: int | None = None
    key_dim: int | None = None
    value_dim: int | None = None
    epsilon: float = 1e-6
    convolution_bias: bool = True
    step_limit: tuple[float, float | None] = (0.0, None)

    def __post_init__(self) -> None:
        require_types(self, "mixer.")
        require(self.kind in MIXERS, "mixer.kind", self.kind, f"one of {tuple(MIXERS)}")
        require_positive(self, "mixer.", "kernel_size", "num_heads", "num_key_heads", "key_dim", "value_dim", "epsilon")
        arguments, where = constructor_arguments(MIXERS[self.kind]), f"with mixer.kind={self.kind!r}"
        names = {field.name for field in dataclasses.fields(self)} - {"kind", "layers"}
        require_in_use(self, "mixer.", *((name, name in arguments, where) for name in sorted(names)))
        for name in ("num_heads", "key_dim"):
            value = getattr(self, name)
            require(value is not None or name not in arguments, f"mixer.{name}", value, f"given {where}")
        heads = self.num_key_heads
        allowed = f"None or a divisor of num_heads={self.num_heads}"
        require(heads is None or self.num_heads % heads == 0, "mixer.num_key_heads", heads, allowed)
        least, greatest = self.step_limit
        is_range = least >= 0 and (greatest is None or greatest > least)
        allowed = "a number of at least 0 and a greater one, or None for the second"
        require(is_range, "mixer.step_limit", self.step_limit, allowed)
        require_pattern("mixer.layers", self.layers)
        allowed = "None, or a pattern with True for some layer"
        require(self.layers is None or True in self.layers, "mixer.layers", self.layers, allowed)

    def num_weights(self, hidden_dim: int) -> int:
        """Returns the number of weights of the linear maps of a layer.

        Args:
            hidden_dim: Width of the model.
        """
        if self.kind == "short_convolution":
            return 4 * hidden_dim**2
        keys = (self.num_key_heads or self.num_heads) * self.key_dim
        values = self.num_heads * (self.value_dim or self.key_dim)
        steps = (1 if self.kind == "state_space" else 2) * self.num_heads
        return hidden_dim * (2 * keys + 3 * values + steps)
