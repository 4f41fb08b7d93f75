"""The layout of tokens in blocks of rows, each of one expert. Its shapes do not depend on the routing."""

import dataclasses
from typing import Any

from keras import ops

from layers.attention.slices import larger


@dataclasses.dataclass(frozen=True)
class AssignmentRows:
    """The rows of assignments of tokens to experts, in blocks of equal size.

    Args:
        slots: Row of each assignment, counted over all blocks, integers `(choice, token)`. An assignment without a row
            has the total number of rows.
        experts: Expert of each block `(blocks,)`; None if block e belongs to expert e.
        num_blocks: Number of blocks.
        block_size: Rows in a block, an integer or a scalar tensor.
    """

    slots: Any
    experts: Any
    num_blocks: int
    block_size: Any

    @property
    def has_slot(self) -> Any:
        """True where an assignment has a row, `(choice, token)`."""
        return self.slots < self.num_blocks * self.block_size


def assign_within_capacity(assignments: Any, capacity: Any) -> AssignmentRows:
    """Returns places with one block per expert, filled with assignments in their order until it is full.

    Args:
        assignments: `(choice, token, expert)`, 0 or 1.
        capacity: Number of rows of an expert, an integer or a scalar tensor.
    """
    num_experts = assignments.shape[-1]
    positions, _ = _order_within_experts(assignments)
    slots = ops.arange(num_experts, dtype="int32") * capacity + positions
    kept = assignments * ops.cast(positions < capacity, "int32")
    return AssignmentRows(_select_slots(slots, kept, num_experts * capacity), None, num_experts, capacity)


def assign_in_blocks(assignments: Any) -> AssignmentRows:
    """Returns places with as many blocks per expert as its assignments need. Its last block may have free rows.

    A block has as many rows as the mean load, rounded up. There are then fewer than `2 * num_experts` blocks for any
    loads: at most `num_experts` full ones, and fewer than `num_experts` that are partly filled.

    Args:
        assignments: `(choice, token, expert)`, 0 or 1.
    """
    num_experts = assignments.shape[-1]
    positions, loads = _order_within_experts(assignments)
    num_assignments = assignments.shape[0] * ops.shape(assignments)[1]
    block_size = (num_assignments + num_experts - 1) // num_experts
    num_blocks = 2 * num_experts - 1
    if isinstance(num_assignments, int):
        num_blocks = min(num_blocks, num_assignments)  # one token in a decoding step
    divisor = larger(block_size, 1)  # a batch without tokens has blocks without rows
    blocks_per_expert = (loads + divisor - 1) // divisor
    ends = ops.cumsum(blocks_per_expert)
    slots = (ends - blocks_per_expert) * block_size + positions
    experts = ops.sum(ops.expand_dims(ops.arange(num_blocks), 1) >= ends, axis=1)
    experts = ops.minimum(experts, num_experts - 1)
    return AssignmentRows(_select_slots(slots, assignments, num_blocks * block_size), experts, num_blocks, block_size)


def gather_blocks(tokens: Any, places: AssignmentRows) -> Any:
    """Returns the tokens copied to their rows. Free rows hold any token, which is not used.

    Args:
        tokens: `(tokens, dim)`.
        places: The rows of the tokens.

    Returns:
        `(blocks, rows, dim)`.
    """
    slots, num_slots = places.slots, places.num_blocks * places.block_size
    token_indices = ops.broadcast_to(ops.arange(ops.shape(slots)[1], dtype="int32"), ops.shape(slots))
    # one slot more, for assignments without a slot
    token_of_slot = ops.scatter_update(
        ops.zeros((num_slots + 1,), dtype="int32"), ops.reshape(slots, (-1, 1)), ops.reshape(token_indices, (-1,))
    )
    rows = ops.take(tokens, token_of_slot[:num_slots], axis=0)
    return ops.reshape(rows, (places.num_blocks, places.block_size, tokens.shape[-1]))


def combine(outputs: Any, slots: Any, weights: Any) -> Any:
    """Returns the weighted sum over the choices of each token. Assignments without a row add nothing.

    Args:
        outputs: `(blocks, rows, dim)`.
        slots: See `AssignmentRows`.
        weights: `(tokens, choices)`.

    Returns:
        `(tokens, dim)`.
    """
    rows = ops.reshape(outputs, (-1, outputs.shape[-1]))
    num_slots = ops.shape(rows)[0]
    total = 0
    for choice in range(weights.shape[-1]):
        slot = slots[choice]
        weight = ops.where(slot < num_slots, weights[:, choice], ops.cast(0, weights.dtype))
        row = ops.take(rows, ops.minimum(slot, num_slots - 1), axis=0)
        total = total + row * ops.cast(ops.expand_dims(weight, -1), rows.dtype)
    return total


def _order_within_experts(assignments: Any) -> tuple[Any, Any]:
    """The index of each assignment among those of its expert, and the number of assignments of each expert.

    Returns:
        Integers `(choice, token, expert)`, valid only where there is an assignment, and `(expert,)`.
    """
    flat = ops.reshape(assignments, (-1, assignments.shape[-1]))
    positions = ops.cumsum(flat, axis=0) - flat
    return ops.reshape(positions, ops.shape(assignments)), ops.sum(flat, axis=0)


def _select_slots(slots: Any, assignments: Any, num_slots: Any) -> Any:
    """The slot of each `(choice, token)`, picked from its slots for all experts; `num_slots` without an assignment."""
    assigned = ops.sum(assignments, axis=-1)
    return ops.sum(slots * assignments, axis=-1) + (1 - assigned) * num_slots
