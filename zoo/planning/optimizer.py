"""What an optimizer holds for each weight that trains, and what it computes.

The optimizer of Keras itself says which variables it would make. Those of the shape of their weight lie on devices as
it does; others, such as the row and column means of Adafactor, are whole on each.
"""

import math
from typing import Any

import keras

from zoo.planning.job import Job, optimizer_named
from zoo.planning.kernels import Weight
from zoo.planning.model import ModelShape


def numbers_of_optimizer(shape: ModelShape, job: Job) -> float:
    """Returns how many numbers an optimizer holds on one device, accumulated gradients not included.

    Args:
        shape: The model.
        job: The training.

    Example:

    >>> config = zoo.preset_config("gpt2_small")
    >>> shape = model_shape(without_values(config))
    >>> numbers_of_optimizer(shape, Job(config, 8, 1024)) == 2 * shape.parameters
    True
    """
    held, known = 0, {}
    for weight in shape.weights:
        if weight.trains:
            # layers that are alike have the same weights, and names decide as well
            key = (weight.variable.shape, weight.part, _name_of(weight))
            if key not in known:
                known[key] = _numbers(job.optimizer, weight)
            held += known[key]
    return held


def _numbers(name: str, weight: Weight) -> float:
    """Numbers that an optimizer holds for a weight on one device: it is asked to make them, and none is made."""
    optimizer, shapes = _new(name), []
    optimizer.add_variable = lambda shape, *_, **__: shapes.append(tuple(shape))
    optimizer.add_variable_from_reference = lambda reference_variable, *_, **__: shapes.append(
        tuple(reference_variable.shape)
    )
    # on TensorFlow the key would be that of the value, which would be made for it
    optimizer._var_key = id
    optimizer.build([weight.variable])
    own = tuple(weight.variable.shape)
    return sum(weight.part if shape == own else math.prod(shape) for shape in shapes)


def _new(name: str) -> Any:
    kind = optimizer_named(name)
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
    if optimizer_named(job.optimizer) is not keras.optimizers.Muon:
        return 0.0
    optimizer = _new(job.optimizer)
    total = 0.0
    for weight in shape.weights:
        if weight.trains and not optimizer._should_use_adamw(weight.variable):
            n, m = sorted(weight.variable.shape)
            total += optimizer.ns_steps * (4 * n * n * m + 2 * n**3)
    return total
