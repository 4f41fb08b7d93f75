"""Learning rates that differ by layer: lower ones near the input, for fine-tuning."""

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras

from layers.keras_internals import OptimizerHooks, copy_exclusions, index_of, schedule_of
from zoo.backbones.weight_paths import EMBEDDINGS, depth_of, weight_path
from zoo.training.one_kernel import apply_adam, has_one_kernel, one_update


def layer_decay_factors(task: keras.Model, decay: float) -> dict[str, float]:
    """Returns the factor on each weight's learning rate in layer-wise learning-rate decay.

    The factor is 1 for the head and everything after the blocks, `decay` for the last block of a stack, `decay ** 2`
    for the block before it, and so on. It is `decay ** (blocks + 1)` for embeddings and everything before the first
    block; with two stacks, `blocks` is the larger number. An output projection that is tied to the embedding has the
    factor of the embedding.

    Args:
        task: A task on a Transformer.
        decay: The factor from layer to layer, above 0 and at most 1.

    Returns:
        The factor of each weight by its path, for `scale_learning_rates`.

    Raises:
        ValueError: If `decay` is out of range, or the model has no blocks.

    Example:

    >>> factors = layer_decay_factors(classifier, 0.9)
    >>> optimizer = scale_learning_rates(keras.optimizers.AdamW(1e-4), factors)

    Reference:
        Howard and Ruder 2018, "Universal Language Model Fine-tuning", section 3.2 (discriminative fine-tuning);
        Clark et al. 2020, "ELECTRA", section 3.1 and table 7 (0.8 and 0.9 for models of 12 and 24 blocks).
    """
    if not 0 < decay <= 1:
        raise ValueError(f"decay must be above 0 and at most 1, got {decay!r}.")
    levels = {variable.path: depth_of(weight_path(task, variable)) for variable in task.weights}
    blocks: dict[str, int] = {}
    for level in levels.values():
        if isinstance(level, tuple):
            stack, number = level
            blocks[stack] = max(blocks.get(stack, 0), number + 1)
    if not blocks:
        raise ValueError(f"The model must have blocks for rates that differ by layer, got a {type(task).__name__}.")
    most = max(blocks.values())

    def factor(level: tuple[str, int] | str) -> float:
        if isinstance(level, tuple):
            return decay ** (blocks[level[0]] - level[1])
        return decay ** (most + 1) if level == EMBEDDINGS else 1.0

    return {path: factor(level) for path, level in levels.items()}


def scale_learning_rates(
    optimizer: keras.optimizers.Optimizer, factors: Mapping[str, float]
) -> keras.optimizers.Optimizer:
    """Returns an optimizer that multiplies the learning rate of each weight by its own factor.

    Decoupled weight decay is multiplied too, because it is proportional to the learning rate. Clipping and gradient
    accumulation do not change.

    Args:
        optimizer: A Keras optimizer that has not been built.
        factors: The factor of each trainable weight by its path. Weights that are added to a layer later, such as
            low-rank updates, have the factor of the layer.

    Raises:
        ValueError: If the optimizer is built or of another library. On PyTorch, where Keras optimizers update all
            weights at once. In `fit`, if a weight has no factor.

    Example:

    >>> scale_learning_rates(keras.optimizers.AdamW(1e-4), layer_decay_factors(classifier, 0.9))
    """
    kind = type(optimizer)
    if kind not in OPTIMIZERS:
        known = ", ".join(sorted(each.__name__ for each in OPTIMIZERS))
        raise ValueError(f"optimizer must be one of {known}, got a {kind.__name__}.")
    if optimizer.built:
        raise ValueError(f"optimizer must not be built yet, got a {kind.__name__} that is.")
    if keras.backend.backend() == "torch":
        raise ValueError("Rates that differ by layer need the backend tensorflow or jax, got torch.")
    config = optimizer.get_config()
    if schedule_of(optimizer) is not None:
        config["learning_rate"] = schedule_of(optimizer)  # one of one's own need not be registered
    del config["name"]
    scaled = _layerwise(kind)(**config, rate_factors=dict(factors))
    keep_exclusions(optimizer, scaled)
    return scaled


def keep_exclusions(optimizer: keras.optimizers.Optimizer, fresh: keras.optimizers.Optimizer) -> None:
    """Copies the exclusions from weight decay of an optimizer to another one, and to the one that it scales losses for.

    Args:
        optimizer: The optimizer with the exclusions of `exclude_from_weight_decay`.
        fresh: An optimizer of the same kind made from its configuration, which has no exclusions.
    """
    copy_exclusions(optimizer, fresh)
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        keep_exclusions(optimizer.inner_optimizer, fresh.inner_optimizer)


def _factor_of(path: str, factors: Mapping[str, float]) -> float:
    """The factor of a weight: its own, or that of all weights next to it, in the nearest layer that has some."""
    found, layer = {factors[path]} if path in factors else set(), path
    while layer and not found:
        layer = layer.rpartition("/")[0]
        found = {factor for other, factor in factors.items() if layer and other.startswith(layer + "/")}
    if len(found) != 1:
        raise ValueError(f"factors must have one for each weight that trains, got none for {path}.")
    return found.pop()


class _LayerwiseRates(OptimizerHooks):
    """What is put before an optimizer of Keras; see `scale_learning_rates`."""

    def __init__(self, *, rate_factors: Mapping[str, float], **options: Any) -> None:
        super().__init__(**options)
        # Keras and TensorFlow track what a dictionary holds
        self._rate_factors = tuple(rate_factors.items())

    def build(self, variables: Sequence[keras.Variable]) -> None:
        factors = dict(self._rate_factors)
        self._rates = [_factor_of(variable.path, factors) for variable in variables]
        super().build(variables)

    def update_all(self, *arguments: Any) -> None:
        with one_update():
            super().update_all(*arguments)

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        learning_rate = learning_rate * self._rates[index_of(self, variable)]
        if has_one_kernel(self):
            apply_adam(self, gradient, variable, learning_rate)
        else:
            super().update_step(gradient, variable, learning_rate)

    def decay_weights(self, variables: Sequence[Any]) -> None:
        groups: dict[float, list[Any]] = {}
        for variable in variables:
            groups.setdefault(self._rates[index_of(self, variable)], []).append(variable)
        for factor, group in groups.items():
            with self._scaled_decay(factor):
                super().decay_weights(group)

    @contextlib.contextmanager
    def _scaled_decay(self, factor: float) -> Iterator[None]:
        # Muon has a second one
        before = {name: getattr(self, name, None) for name in ("weight_decay", "adam_weight_decay")}
        before = {name: value for name, value in before.items() if value is not None}
        for name, value in before.items():
            setattr(self, name, value * factor)
        try:
            yield
        finally:
            for name, value in before.items():
                setattr(self, name, value)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "rate_factors": dict(self._rate_factors)}


@functools.cache
def _layerwise(kind: type[keras.optimizers.Optimizer]) -> type[keras.optimizers.Optimizer]:
    """The class of an optimizer with such rates, which files of compiled models name."""
    made = type(f"Layerwise{kind.__name__}", (_LayerwiseRates, kind), {"__doc__": _LayerwiseRates.__doc__})
    return keras.saving.register_keras_serializable("keras_transformer_zoo")(made)


# all of Keras, by class
OPTIMIZERS = tuple(
    kind
    for kind in vars(keras.optimizers).values()
    if isinstance(kind, type)
    and issubclass(kind, keras.optimizers.Optimizer)
    and kind is not keras.optimizers.Optimizer
    # these hold another optimizer
    and not kind.__name__.endswith(("LossScaleOptimizer", "MultiOptimizer"))
)
for _kind in OPTIMIZERS:
    _layerwise(_kind)
