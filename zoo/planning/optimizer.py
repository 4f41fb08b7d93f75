"""What an optimizer holds for each weight that trains, and what it computes.

The optimizer of Keras itself says which variables it would make. Those of the shape of their weight lie on devices as
it does; others, such as the row and column means of Adafactor, are whole on each.
"""

import contextlib
import functools
import math
from typing import Any

import keras
import numpy as np

from layers.keras_internals import muon_leaves_to_adamw
from zoo.planning.job import Job, optimizer_named
from zoo.planning.kernels import Weight
from zoo.planning.model import ModelShape


def numbers_of_optimizer(shape: ModelShape, job: Job) -> float:
    """Returns the number of values that an optimizer holds on one device, without accumulated gradients.

    Args:
        shape: The model.
        job: The training.

    Example:

    >>> config = zoo.preset_config("gpt2_small")
    >>> shape = model_shape(without_values(config))
    >>> numbers_of_optimizer(shape, Job(config, 8, 1024)) == 2 * shape.parameters
    True
    """
    kind, held = optimizer_named(job.optimizer), 0
    for weight in shape.weights:
        if weight.trains:
            sizes = dict(zip(_SIZES, weight.variable.shape, strict=False))
            small, kept = tuple(sizes), weight.kept(job.along_data)
            for made in _made_for(kind, small, _name_of(weight)):
                held += kept if made == small else math.prod(sizes.get(size, size) for size in made)
    return held


# layers that are alike have the same weights, and a search for a mesh asks for the same ones again
@functools.lru_cache(maxsize=4096)
def _made_for(kind: type, small: tuple[int, ...], path: str) -> list[tuple[int, ...]]:
    """The shapes of what an optimizer makes for a weight of a small shape; names decide as well."""
    optimizer, shapes = _new(kind), []
    optimizer.add_variable = lambda shape, *_, **__: shapes.append(tuple(shape))
    optimizer.add_variable_from_reference = lambda reference_variable, *_, **__: shapes.append(
        tuple(reference_variable.shape)
    )
    # a weight without a value is no variable of TensorFlow
    *scopes, own_name = path.split("/")
    with contextlib.ExitStack() as stack:
        for scope in scopes:
            stack.enter_context(keras.name_scope(scope))
        optimizer.build([keras.Variable(np.zeros(small, "float32"), name=own_name)])
    return shapes


# Sizes of the axes of a small weight in the place of a large one, which tell the axes from each other; an optimizer
# makes none of them of its own.
_SIZES = (11, 13, 17, 19, 23, 29)


def _new(kind: type) -> Any:
    # as recipes make it: the projection to the vocabulary learns like an embedding
    options = {"exclude_layers": ["embedding", "output_projection"]} if kind is keras.optimizers.Muon else {}
    return kind(**options)


def _name_of(weight: Weight) -> str:
    """The path without numbers of blocks."""
    return "/".join("block" if part.startswith("block_") else part for part in weight.variable.path.split("/"))


def operations_of_optimizer(shape: ModelShape, job: Job) -> float:
    """Returns the operations of the optimizer's own products on one device: those of Muon.

    Each of its steps to an orthogonal matrix multiplies a matrix of n rows and m columns, n the smaller number, three
    times (Jordan et al. 2024, "Muon"): by its own transpose, that by itself, and that by the matrix. Others have none.

    Args:
        shape: The model.
        job: The training.
    """
    kind = optimizer_named(job.optimizer)
    if kind is not keras.optimizers.Muon:
        return 0.0
    optimizer = _new(kind)
    total = 0.0
    for weight in shape.weights:
        if weight.trains and not muon_leaves_to_adamw(optimizer, weight.variable):
            n, m = sorted(weight.variable.shape)
            total += optimizer.ns_steps * (4 * n * n * m + 2 * n**3)
    return total
