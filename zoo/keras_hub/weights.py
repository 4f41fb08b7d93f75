"""Which variables of KerasHub are which of ours."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from keras import ops

from zoo.huggingface.weights import Row, leaves_of, numbers_of, variable_of
from zoo.keras_hub.family import Place, Table


class Pair:
    """Variables of ours that are one of KerasHub's.

    Args:
        row: Ours.
        place: Where KerasHub has them.
        theirs: That variable.
    """

    def __init__(self, row: Row, place: Place, theirs: Any) -> None:
        self.row: Row = row
        self.place: Place = place
        self.theirs: Any = theirs

    def read(self, value: Any) -> None:
        """Gives ours the values of theirs.

        Args:
            value: The values of theirs.
        """
        value = value if isinstance(value, np.ndarray) else ops.convert_to_numpy(value)
        if self._is_turned():
            value = np.swapaxes(value, 0, 1)
        # theirs have an axis for the heads
        self.row.read(value.reshape(self.row.shape))

    def write(self, position_offset: int = 0) -> None:
        """Gives theirs the values of ours.

        Args:
            position_offset: How many rows of a table of positions no position looks up.
        """
        value, shape = self.row.write(), tuple(self.theirs.shape)
        if self.row.name.endswith(".position"):
            value = value[position_offset:]
        if self._is_turned():
            value = np.swapaxes(value.reshape(shape[1], shape[0], *shape[2:]), 0, 1)
        self.theirs.assign(value.reshape(shape))

    def _is_turned(self) -> bool:
        return self.place.heads_first and len(self.theirs.shape) == 3


def pairs_of(layers: Mapping[str, Any], table: Table, variables: Mapping[str, Any], class_name: str) -> list[Pair]:
    """Returns which variables are which; none is left over on either side.

    Args:
        layers: Ours by name, see `zoo.huggingface.weights.named_layers`.
        table: Where they are.
        variables: Theirs by path.
        class_name: Name of their class, for errors.

    Raises:
        ValueError: If one has no counterpart.
    """
    pairs, used, covered = [], set(), set()
    for names, place in table.items():
        names = (names,) if isinstance(names, str) else names
        place = Place(place) if isinstance(place, str) else place
        for number in numbers_of(names[0], layers):
            whole = [name.replace("{}", number) for name in names]
            if not set(whole) <= layers.keys():
                continue
            covered |= set(whole)
            parts, path = [layers[name] for name in whole], place.path.replace("{}", number)
            for leaf in leaves_of(whole[0], parts[0]):
                found = next((name for name in _names(path, leaf) if name in variables), None)
                if found is None:
                    raise ValueError(f"{class_name} has no place for the weights of {whole[0]} ({leaf}).")
                ours = tuple(variable_of(part, leaf) for part in parts)
                pairs.append(Pair(Row(whole[0], ours, False, place.groups), place, variables[found]))
                used.add(found)
    left = [*sorted(set(layers) - covered), *sorted(set(variables) - used)]
    if left:
        raise ValueError(f"{class_name} and the model must have the same weights; {', '.join(left)} is left.")
    return pairs


def _names(path: str, leaf: str) -> tuple[str, ...]:
    """What the variable of a layer may be called: classes without sublayers for it put the name together."""
    return f"{path}/{leaf}", f"{path}/weight", f"{path}_{leaf}", path
