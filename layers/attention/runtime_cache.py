"""Key-value caches that are not in the graph, because a runtime keeps them as a state of its own."""

from typing import Any

from keras import ops

from layers.attention.cache import CacheLayout, CachePlan, column
from layers.fusion import sizes


class RuntimeCache(CacheLayout):
    """Tells queries which entries they see, and leaves it to a runtime to put the old ones before the new ones.

    The runtime appends new entries behind the old ones. Rows may begin with padding: the slots before entry 0 of a row
    have numbers below zero. So rows of different lengths end together, as in a batch that is padded on the left. The
    index of a write is the number of the first new entry of each row, `(batch,)`.

    The attention must be one that knows the old entries, see `layers.fusion.GraphForms.attention`: `extend` returns the
    new ones alone.

    No model is saved with it: a writer puts it in the place of a model's own while it traces the graph.

    Example:

    >>> cache = {"key": np.zeros((1, 1, 5, 1)), "value": np.zeros((1, 1, 5, 1))}  # of its shapes, the slots are read
    >>> RuntimeCache().plan(cache, new=1, index=np.array([5, 3])).entries  # the second row has two slots of padding
    [[0, 1, 2, 3, 4, 5], [-2, -1, 0, 1, 2, 3]]
    """

    def plan(self, cache: dict[str, Any], new: Any, index: Any, count: Any = None) -> CachePlan:
        slots = sizes(cache["key"])[2]
        return CachePlan(ops.arange(slots + new) - slots + column(index))

    def extend(self, cache: dict[str, Any], key: Any, value: Any, plan: CachePlan) -> tuple[Any, Any, dict[str, Any]]:
        return key, value, {"key": key, "value": value}
