"""What each weight of a layer is for, from which follows how several devices share it."""

from typing import NamedTuple


class Role(NamedTuple):
    """How devices may share the weights of a layer.

    A layer says it of all its weights by an attribute `weight_role`, or of its own weights and sublayers, each by its
    name, by an attribute `weight_roles`.

    Args:
        name: "columns": the outputs of a projection are shared, as those of queries, keys, values, gate and up.
            "rows": its inputs are, as those of the output of attention and of down; what is then added up is whole.
            "vocabulary": the tokens of an embedding are, or of a projection to logits ("output_vocabulary").
            "whole": each device has all of it: norms, positions, and what is small.
        parts: Number of equal parts that must stay whole: heads. None for any.
        else_whole: Whether each device has all of it where the devices do not divide the parts, as with fewer heads of
            keys and values than devices; otherwise that is an error.
        where: What the parts are, for the error.

    Reference:
        Shoeybi et al. 2019, "Megatron-LM", section 3 (columns, then rows).
    """

    name: str
    parts: int | None = None
    else_whole: bool = False
    where: str = ""


COLUMNS = Role("columns")
ROWS = Role("rows")
VOCABULARY = Role("vocabulary")
OUTPUT_VOCABULARY = Role("output_vocabulary")
WHOLE = Role("whole")
