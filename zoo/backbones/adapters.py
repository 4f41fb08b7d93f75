"""Low-rank updates (LoRA) of a backbone: sets of them, each under a name, added, switched, merged and described."""

import dataclasses
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import keras

from layers.dense import Dense, LowRankUpdate, require_dora_mode
from layers.keras_internals import sublayers
from zoo.distribution.layouts import laid_out

# What `enable_lora` adapts unless it is told otherwise (Hu et al. 2022, section 4.2).
DEFAULT_TARGETS = ("query", "value")


@dataclasses.dataclass(frozen=True)
class LoraReport:
    """The result of `enable_lora`: the adapted layers, and the number of weights that are trained.

    Args:
        layers: Paths of the layers.
        rank: Rank of the updates.
        trainable_parameters: Number of weights that are trained.
        total_parameters: Number of all weights.
        dora: Whether the updates set the norms of the columns too.
    """

    layers: tuple[str, ...]
    rank: int
    trainable_parameters: int
    total_parameters: int
    dora: bool = False

    def __str__(self) -> str:
        share = 100 * self.trainable_parameters / self.total_parameters
        return (
            f"{'DoRA' if self.dora else 'LoRA'} of rank {self.rank} on {len(self.layers)} layers: "
            f"{self.trainable_parameters:,} of {self.total_parameters:,} weights train ({share:.2f} %)."
        )


@dataclasses.dataclass
class Adapter:
    """Low-rank updates that belong together, as plain values.

    Args:
        layers: Rank and alpha of the update of each layer, by the layer's path within the backbone.
        dropout: Rate at which inputs of updates are dropped in training.
        active: Whether the layers add the updates to their outputs.
        trainable: Whether the updates train.
        dora: Whether the updates set the norms of the columns of the kernels too, see `layers.dense.LowRankUpdate`.
        weights: Paths of weights of the backbone itself that train with the updates.
    """

    layers: Mapping[str, tuple[int, float]]
    dropout: float = 0.0
    active: bool = True
    trainable: bool = True
    dora: bool = False
    weights: Sequence[str] = ()


class Adapters:
    """The adapters of a backbone by name.

    While there are any, the backbone's own weights do not train, but for those that an adapter names.

    Args:
        backbone: The backbone.
    """

    def __init__(self, backbone: keras.Model) -> None:
        self._backbone = backbone
        self._known: dict[str, Adapter] = {}
        # the backbone's own variables with whether they trained before
        self._trained: list[tuple[Any, bool]] = []
        # factors that were frozen; kept, so that no new one can be taken for them
        self._frozen: list[Any] = []

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, name: Any) -> bool:
        return name in self._known

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __getitem__(self, name: str) -> Adapter:
        """Returns the description of an adapter.

        Raises:
            ValueError: If there is none of this name.
        """
        if name not in self._known:
            if not self._known:
                raise ValueError(
                    f"The model has no low-rank updates, got {name!r}: call enable_lora() or load_adapter()."
                )
            raise ValueError(f"The name of an adapter must be one of {list(self._known)}, got {name!r}.")
        return self._known[name]

    @property
    def active(self) -> tuple[str, ...]:
        """Names of those whose updates are added."""
        return tuple(name for name, adapter in self._known.items() if adapter.active)

    def add(
        self,
        name: str,
        layers: Mapping[str, tuple[int, float | None]],
        dropout: float = 0.0,
        dora: bool = False,
        weights: Sequence[str] = (),
    ) -> None:
        """Adds an adapter, active and trainable; those that are there stay as active as they are and stop training.

        Args:
            name: Its name.
            layers: Rank and alpha (None: the rank) of the update of each layer, by the layer's path.
            dropout: Rate at which inputs of updates are dropped in training.
            dora: Whether the updates set the norms of the columns of the kernels too.
            weights: Paths of weights of the backbone itself that train with the updates.

        Raises:
            ValueError: If the name is taken or no name, there are no layers, a number is out of range, or a weight is
                quantized or is trained by another adapter; nothing is changed then.
        """
        if not isinstance(name, str) or not name.isidentifier():
            raise ValueError(f"name must be a name of letters, digits and underscores, got {name!r}.")
        if name in self._known:
            raise ValueError(f"name must be another than those of {list(self._known)}, got {name!r}.")
        if not layers:
            raise ValueError("layers must hold at least one layer, got none.")
        known = dict(self.candidates())
        for path in layers:
            if path not in known:
                raise ValueError(f"layers must be among {', '.join(known)}, got {path!r}.")
        self._check_weights(layers, weights)
        if not self._known:
            self._trained = [(variable, variable.trainable) for variable in self._backbone.variables]
        added = {}
        try:
            with laid_out(self._backbone):
                for path, (rank, alpha) in layers.items():
                    added[path] = known[path].add_update(name, rank, alpha, dropout, dora)
        except BaseException:
            for path in added:
                known[path].remove_updates([name])
            raise
        for adapter in self._known.values():
            adapter.trainable = False
        described = {path: (update.rank, update.alpha) for path, update in added.items()}
        self._known[name] = Adapter(described, dropout, dora=dora, weights=tuple(weights))
        self._apply()

    def freeze(self, variables: Collection[Any]) -> None:
        """Excludes variables from training, whatever is added, activated or taken away later.

        Args:
            variables: Variables of the backbone, factors of updates among them.
        """
        chosen = {id(variable) for variable in variables}
        self._trained = [(variable, trains and id(variable) not in chosen) for variable, trains in self._trained]
        self._frozen += [variable for variable in variables if is_factor(variable)]
        for variable in variables:
            variable.trainable = False

    def activate(self, names: Collection[str], trainable: Collection[str] = ()) -> None:
        """Makes the layers add the updates of some adapters and of no others.

        Args:
            names: Names of adapters; none for the backbone alone.
            trainable: Those of them that train.

        Raises:
            ValueError: If there is none of a name, one that is not active is to train, or one that trained weights of
                the backbone is to rest.
        """
        for name in (*names, *trainable):
            self[name]  # raises
        left = sorted(set(trainable) - set(names))
        if left:
            raise ValueError(f"trainable must be among the active adapters {list(names)}, got {left} too.")
        for name in set(self._known) - set(names):
            self._require_no_weights(name, "deactivated")
        for name, adapter in self._known.items():
            adapter.active, adapter.trainable = name in names, name in trainable
        self._apply()

    def remove(self, names: Collection[str], *, merge: bool = False) -> None:
        """Takes adapters away; with the last one, what trained before trains again.

        Args:
            names: Names of adapters.
            merge: Whether to add their updates to the kernels first.

        Raises:
            ValueError: If there is none of a name, a kernel that is to be changed is quantized, or one is to be changed
                that updates with DoRA that are left depend on; nothing is changed then.
        """
        of_layers: dict[str, list[str]] = {}
        for name in names:
            if not merge:
                self._require_no_weights(name, "removed")
            for path in self[name].layers:
                of_layers.setdefault(path, []).append(name)
        known = dict(self.candidates())
        for path, chosen in of_layers.items() if merge else ():
            if known[path].quantization_mode is not None:
                raise ValueError(
                    f"Kernels must not be quantized for merge_lora(), got {path} in {known[path].quantization_mode}."
                )
            known[path].require_mergeable(chosen)
        for path, chosen in of_layers.items():
            known[path].remove_updates(chosen, merge=merge)
        for name in names:
            del self._known[name]
        self._apply()

    def updates(self, name: str) -> dict[str, LowRankUpdate]:
        """Returns the updates of an adapter by the paths of their layers."""
        known = dict(self.candidates())
        return {path: known[path].updates[name] for path in self[name].layers}

    def config(self) -> dict[str, Any]:
        """Returns what `restore` takes, plain values."""
        return {
            name: {
                **dataclasses.asdict(adapter),
                "layers": {path: list(of) for path, of in adapter.layers.items()},
                "weights": list(adapter.weights),
            }
            for name, adapter in self._known.items()
        }

    def restore(self, config: Mapping[str, Mapping[str, Any]]) -> None:
        """Adds adapters as they were saved, for weights that are loaded afterwards.

        Args:
            config: What `config` returned.
        """
        for name, values in config.items():
            self.add(name, values["layers"], values["dropout"], values.get("dora", False), values.get("weights", ()))
        names = [name for name, values in config.items() if values["active"]]
        if config:
            self.activate(names, [name for name in names if config[name]["trainable"]])

    def minimum_weight_count(self, config: Mapping[str, Mapping[str, Any]]) -> int:
        """Returns how many weights adapters would have.

        Args:
            config: What `config` returned.

        Raises:
            ValueError: If a layer is not there.
        """
        units = {path: layer.units for path, layer in self.candidates()}
        sizes = {path: layer.input_spec.axes[-1] + layer.units for path, layer in self.candidates()}
        total = 0
        for adapter in config.values():
            for path, (rank, _) in adapter["layers"].items():
                if path not in sizes:
                    raise ValueError(f"layers must be among {', '.join(sizes)}, got {path!r}.")
                total += rank * sizes[path] + (units[path] if adapter.get("dora") else 0)
        return total

    def require_quantizable(self, mode: str) -> None:
        """Raises a ValueError if adapters cannot work on kernels that are stored in fewer bits.

        Args:
            mode: "int8" or "int4".
        """
        for path, layer in self.candidates():
            if any(update.dora for update in layer.updates.values()):
                require_dora_mode(path, mode)
        trained = {path for adapter in self._known.values() for path in adapter.weights}
        for path, variable in self._own_weights().items():
            if path in trained and variable.name in ("kernel", "embeddings"):
                raise ValueError(f"{path} trains as part of an adapter, got {mode}: call merge_lora() first.")

    def quantize(self, mode: str) -> None:
        """Stores the kernels of adapted layers in fewer bits; Keras leaves out layers that have layers.

        Args:
            mode: "int8" or "int4".
        """
        for _, layer in self.candidates():
            if layer.updates and layer.quantization_mode is None:
                layer.quantize(mode)
        # kernels in floating point that are replaced must not be kept
        held = {id(variable) for variable in self._backbone.variables}
        self._trained = [(variable, trains) for variable, trains in self._trained if id(variable) in held]

    def candidates(self) -> Iterator[tuple[str, Dense]]:
        """Returns the layers that can be adapted, each once, with their paths within the backbone."""
        start = len(self._backbone.path) + 1
        for layer in sublayers(self._backbone):
            if isinstance(layer, Dense) and layer.built:
                yield layer.path[start:], layer

    def _own_weights(self) -> dict[str, Any]:
        """The weights of the backbone that belong to no update, by their paths."""
        start = len(self._backbone.path) + 1
        return {weight.path[start:]: weight for weight in self._backbone.weights if not is_factor(weight)}

    def _check_weights(self, layers: Collection[str], weights: Sequence[str]) -> None:
        own = self._own_weights()
        updated = {path for adapter in self._known.values() for path in adapter.layers} | set(layers)
        trained = {path: name for name, adapter in self._known.items() for path in adapter.weights}
        for path in weights:
            if path not in own:
                raise ValueError(f"weights must be paths of weights of the backbone, got {path!r}.")
            if path in trained:
                raise ValueError(f"weights must not be those of another adapter, got {path}, of {trained[path]!r}.")
            if path.removesuffix("/kernel") in updated:
                raise ValueError(f"weights must not be of layers that have low-rank updates, got {path}.")
            if "float" not in own[path].dtype:
                raise ValueError(f"weights must not be quantized to be trained, got {path} in {own[path].dtype}.")

    def _require_no_weights(self, name: str, what: str) -> None:
        weights = self[name].weights
        if weights:
            raise ValueError(
                f"The adapter {name!r} cannot be {what}: it replaces {len(weights)} weights of the model, such as "
                f"{weights[0]}. Merge it, or load the model again."
            )

    def _apply(self) -> None:
        """Tells layers and variables what the descriptions say."""
        known = dict(self.candidates())
        for layer in known.values():
            layer.active_updates = tuple(name for name in layer.updates if self._known[name].active)
        if not self._known:
            for variable, trains in self._trained:
                variable.trainable = trains
            self._trained, self._frozen = [], []
            return
        trained = {path for adapter in self._known.values() if adapter.trainable for path in adapter.weights}
        start = len(self._backbone.path) + 1
        for variable, trains in self._trained:
            variable.trainable = trains and variable.path[start:] in trained
        frozen = set(map(id, self._frozen))
        for name, adapter in self._known.items():
            for path in adapter.layers:
                for variable in known[path].updates[name].variables:
                    if is_factor(variable):
                        variable.trainable = adapter.trainable and id(variable) not in frozen


def is_factor(variable: Any) -> bool:
    """Returns whether a variable is a factor or magnitude of a low-rank update, which no architecture has by itself.

    Args:
        variable: A variable of a layer.
    """
    return variable.name.startswith("lora_")


def active_variables(model: keras.Model) -> list[Any]:
    """Returns the variables of a model without those of updates that are not active: what its outputs depend on.

    Args:
        model: The model.
    """
    idle = {
        id(variable)
        for layer in sublayers(model)
        if isinstance(layer, Dense)
        for name, update in layer.updates.items()
        if name not in layer.active_updates
        for variable in update.variables
    }
    return [variable for variable in model.variables if id(variable) not in idle]


def size_of(variable: Any) -> int:
    """Returns how many numbers a variable holds.

    Args:
        variable: The variable.
    """
    return math.prod(variable.shape)
