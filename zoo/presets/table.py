"""Presets as a table to be read: shape, size, positions, norm, source."""

from collections.abc import Mapping
from typing import Any

from zoo.config import TransformerConfig
from zoo.presets.registry import Preset

HEADER = ("name", "kind", "layers x width", "heads", "parameters", "positions", "norm", "source")


def preset_table(presets: Mapping[str, Preset]) -> str:
    """Returns a table of presets, one line each, smallest of each kind first.

    Args:
        presets: Presets by name; the weights of those that do not say their number are counted.

    Example:

    >>> print(preset_table({"gpt2_small": get_preset("gpt2_small")}))
    name        kind     layers x width  heads  parameters   positions  norm       source
    gpt2_small  decoder  12 x 768        12     124,439,808  learned    pre layer  Radford et al. 2019, ...
    """
    rows = []
    for name, preset in presets.items():
        size = preset.parameter_count() if preset.parameters is None else preset.parameters
        kind, *columns = _describe(preset.config)
        shape, heads, positions, norm = columns
        rows.append((kind, size, (name, kind, shape, heads, f"{size:,}", positions, norm, preset.paper)))
    lines = [HEADER, *(line for _, _, line in sorted(rows))]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADER) - 1)]
    right = HEADER.index("parameters")

    def aligned(line: tuple[str, ...]) -> str:
        cells = [
            cell.rjust(width) if column == right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=False))
        ]
        return "  ".join([*cells, line[-1]])

    return "\n".join(map(aligned, lines))


def _describe(config: Any) -> tuple[str, str, str, str, str]:
    """Kind, shape, heads, positions and norm of a configuration."""
    layers = str(config.num_layers)
    if config.num_decoder_layers not in (None, config.num_layers):
        layers += f"+{config.num_decoder_layers}"
    shape = f"{layers} x {config.hidden_dim}"
    if not isinstance(config, TransformerConfig):
        return "recurrent", shape, "", config.cell, ""
    heads = str(config.attention.num_heads)
    if config.attention.num_key_value_heads not in (None, config.attention.num_heads):
        heads += f"/{config.attention.num_key_value_heads}"
    positions = config.position.kind + (" (scaled)" if config.position.scaling else "")
    return config.architecture, shape, heads, positions, f"{config.norm.placement} {config.norm.kind}"
