"""Which layers of a backbone an adapter is for: by their names, their blocks, or their paths."""

import difflib
from collections.abc import Mapping, Sequence

from layers.dense import Dense


def choose_layers(
    candidates: Mapping[str, Dense], targets: str | Sequence[str], blocks: Sequence[int] | None = None
) -> tuple[str, ...]:
    """Returns the paths of the layers that targets mean.

    Args:
        candidates: Layers that can be adapted, by their paths.
        targets: One or several names of layers ("query", "key", "value", "output", "gate", "up", "down", ...), "all"
            for each layer of the blocks, or paths.
        blocks: Numbers of the blocks to adapt, counted from 0, negative ones from the last; None for all.

    Raises:
        ValueError: If a target matches no layer (naming the nearest), or a block is not there.

    Example:

    >>> choose_layers(dict(backbone.adapters.candidates()), "query", blocks=[-1])
    ('decoder/block_5/attention/query',)
    """
    targets = (targets,) if isinstance(targets, str) else targets
    if not isinstance(targets, Sequence) or not targets:
        raise ValueError(f"targets must be a name of layers or a list of names, got {targets!r}.")
    if blocks is not None:
        candidates = _in_blocks(candidates, blocks)
    chosen: dict[str, None] = {}
    for target in targets:
        matches = [
            path
            for path, layer in candidates.items()
            if target in (path, layer.name) or (target == "all" and _block_of(path) is not None)
        ]
        if not matches:
            names = sorted({layer.name for layer in candidates.values()})
            near = difflib.get_close_matches(str(target), names, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ValueError(
                f"targets must be names of layers, got {target!r}.{hint} There are: {', '.join(names)}, all."
            )
        chosen |= dict.fromkeys(matches)
    return tuple(chosen)


def _block_of(path: str) -> int | None:
    """The number of the block that a layer is in; None for one outside of all."""
    names = [part for part in path.split("/") if part.startswith("block_")]
    return int(names[0].removeprefix("block_")) if names else None


def _in_blocks(candidates: Mapping[str, Dense], blocks: Sequence[int]) -> dict[str, Dense]:
    """The layers that are in some blocks of their stack, each stack counted by itself."""
    counts: dict[str, int] = {}
    for path in candidates:
        block = _block_of(path)
        if block is not None:
            stack = path.partition("/block_")[0]
            counts[stack] = max(counts.get(stack, 0), block + 1)
    most = max(counts.values(), default=0)
    is_list = isinstance(blocks, Sequence) and not isinstance(blocks, str)
    if not is_list or not all(isinstance(block, int) and -most <= block < most for block in blocks):
        raise ValueError(f"blocks must be a list of integers from {-most} to {most - 1}, got {blocks!r}.")
    chosen = {}
    for path, layer in candidates.items():
        block = _block_of(path)
        if block is None:
            continue
        count = counts[path.partition("/block_")[0]]
        if block in blocks or block - count in blocks:
            chosen[path] = layer
    return chosen
