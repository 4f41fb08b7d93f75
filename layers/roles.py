"""The role of each weight of a layer, which determines how several devices share it."""

from typing import NamedTuple


class Role(NamedTuple):
    """How devices may share the weights of a layer.

    A layer has one role for all its weights in the attribute `weight_role`, or a role for each of its weights and
    sublayers by name in the attribute `weight_roles`.

    Args:
        name: What is divided among the devices. "columns": the outputs of a projection, as in the query, key, value,
            gate and up projections. "rows": the inputs of a projection, as in the output projection of attention and
            the down projection; its results are summed over devices. "vocabulary": the tokens of an embedding.
            "output_vocabulary": the tokens of a projection to logits. "whole": nothing, each device has all of it, as
            with norms, positions and small weights.
        parts: Number of equal parts, such as heads, that must not be divided. None for any division.
        else_whole: Whether each device has the whole weight if the number of devices does not divide `parts`, as with
            fewer key-value heads than devices. If False, this is an error.
        where: Name of the parts, for the error message.

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
