"""Positions as tables: what is looked up does not lose digits where a processor computes in half precision."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from layers.positions.base import PositionHooks
from layers.positions.sinusoidal import SinusoidalPositionEncoding

# A part of the names of nodes that look positions up, by which compression of weights leaves their tables alone.
TABLE = "position_table"


@contextlib.contextmanager
def positions_as_tables(backbone: Any) -> Iterator[None]:
    """Within it, graphs of a Transformer look up angles of positions that they would otherwise compute.

    OpenVINO computes in bfloat16 by default where a processor can. An angle of position 1,000 is then wrong by up to
    two radians. Cosines and sines themselves lose little by it. Positions beyond the end of the table are those of its
    last entry.

    Args:
        backbone: The backbone, a Transformer whose positions do not depend on the length of a text.

    Example:

    >>> with positions_as_tables(model.backbone):
    ...     function = tf.function(step, input_signature=specs).get_concrete_function()
    """
    count = backbone.config.max_length
    replaced: dict[int, tuple[Any, str]] = {}
    for stack in (backbone.encoder, backbone.decoder):
        if stack is None:
            continue
        for hooks in (attention.position_hooks() for attention in stack.attentions.values()):
            if type(hooks).prepare is not PositionHooks.prepare:
                replaced[id(hooks)] = hooks, "prepare"
        if isinstance(stack.position, SinusoidalPositionEncoding):
            replaced[id(stack.position)] = stack.position, "call"
    try:
        for owner, name in replaced.values():
            setattr(owner, name, _looked_up(getattr(owner, name), count))
        yield
    finally:
        for owner, name in replaced.values():
            vars(owner).pop(name, None)


def _looked_up(function: Callable[[Any], Any], count: int) -> Callable[..., Any]:
    """A function of positions with the values that `function` has for each of the first `count` positions."""
    import keras
    import tensorflow as tf

    def lookup(positions: Any, sequence_length: Any = None) -> Any:
        with tf.init_scope():
            tables = keras.tree.map_structure(np.asarray, function(np.arange(count)))
        with tf.name_scope(TABLE):
            places = tf.clip_by_value(positions, 0, count - 1)
            return keras.tree.map_structure(lambda table: tf.gather(tf.constant(table), places), tables)

    return lookup
