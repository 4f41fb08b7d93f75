"""Parts of a task that do not train, chosen by their position in the model."""

import dataclasses
import difflib
from collections.abc import Sequence
from typing import Any

from zoo.backbones.adapters import size_of
from zoo.backbones.weight_paths import EMBEDDINGS, depth_of, weight_path


@dataclasses.dataclass(frozen=True)
class FreezeReport:
    """The result of `freeze`: the frozen parts, and the number of weights that are trained.

    Args:
        parts: The frozen parts.
        frozen_parameters: Number of their weights.
        trainable_parameters: Number of weights that are trained.
        total_parameters: Number of all weights.
    """

    parts: tuple[str, ...]
    frozen_parameters: int
    trainable_parameters: int
    total_parameters: int

    def __str__(self) -> str:
        share = 100 * self.trainable_parameters / self.total_parameters
        return (
            f"frozen: {', '.join(self.parts)} ({self.frozen_parameters:,} weights); {self.trainable_parameters:,} of "
            f"{self.total_parameters:,} weights train ({share:.2f} %)."
        )


def freeze(task: Any, parts: Sequence[str]) -> FreezeReport:
    """Excludes parts of a task from training. Saved files do not store this: a loaded model trains as a whole.

    Args:
        task: The task.
        parts: Names of layers or paths of nested layers: "backbone", "encoder", "decoder", "block_0" (of each stack),
            "encoder/block_0", "attention", "head" and so on; or "embeddings" for everything before the first block. An
            output projection that is tied to the token embedding is frozen with it.

    Returns:
        A `FreezeReport`. It prints as one line.

    Raises:
        ValueError: If a part is unknown (the message suggests the nearest), if none of its weights is trained, or if
            no weight would be left to train. Nothing is changed then.

    Example:

    >>> print(freeze(model, ["embeddings", "block_0"]))
    frozen: embeddings, block_0 (24,031,488 weights); 85,450,752 of 109,482,240 weights train (78.05 %).
    """
    if isinstance(parts, str) or not parts:
        raise ValueError(f"parts must be names of parts of the model, got {parts!r}.")
    trainable = {id(variable) for variable in task.trainable_weights}
    frozen: dict[int, Any] = {}
    for part, found in weights_of_parts(task, parts).items():
        if not any(id(variable) in trainable for variable in found):
            raise ValueError(f"parts must have weights that train, got {part!r}, which has none.")
        frozen |= {id(variable): variable for variable in found}
    stopped = [variable for key, variable in frozen.items() if key in trainable]
    if len(stopped) == len(trainable):
        raise ValueError(f"parts must leave weights that train, got {list(parts)}, which is all of them.")
    # with those that rest below low-rank updates, which train again when the last of these is taken away
    task.backbone.adapters.freeze(frozen.values())
    return FreezeReport(
        tuple(parts),
        sum(size_of(variable) for variable in stopped),
        sum(size_of(variable) for variable in task.trainable_weights),
        sum(size_of(variable) for variable in task.weights),
    )


def weights_of_parts(task: Any, parts: Sequence[str]) -> dict[str, list[Any]]:
    """Returns the weights of some parts of a task.

    Args:
        task: The task.
        parts: Their names, see `freeze`.

    Raises:
        ValueError: If a part is unknown, or no name.
    """
    for part in parts:
        if not isinstance(part, str):
            raise ValueError(f"The parts of a model must be given by their names, got {part!r}.")
    places = [(weight_path(task, variable).split("/"), variable) for variable in task.weights]
    weights = {part: [variable for place, variable in places if _is_in(place, part)] for part in parts}
    for part, found in weights.items():
        if not found:
            raise ValueError(_unknown(part, places))
    return weights


def _is_in(place: list[str], part: str) -> bool:
    if part == EMBEDDINGS:
        return depth_of("/".join(place)) == EMBEDDINGS
    names = part.split("/")
    return any(place[at : at + len(names)] == names for at in range(len(place)))


def _unknown(part: str, places: list[tuple[list[str], Any]]) -> str:
    # names of weights themselves, such as kernel, are the least of what one means
    names = dict.fromkeys([EMBEDDINGS, *(name for place, _ in places for name in place[:-1])])
    near = difflib.get_close_matches(part, names, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"parts must be names of parts of the model, got {part!r}.{hint} There are: {', '.join(names)}."
