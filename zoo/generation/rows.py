"""Decoding of rows that come and go: each has an index of its own, so that a server fills the places of ended texts."""

import dataclasses
from typing import Any

import keras
from keras import ops

from layers.fusion import update_slice
from zoo.generation.loop import token_log_probabilities
from zoo.generation.random import uniforms_at
from zoo.generation.row_sampling import choose_by_row


@dataclasses.dataclass(frozen=True)
class StateTensor:
    """A tensor of the state of decoding, whose rows are on axis 0.

    Args:
        name: Its name, unique in the state.
        shape: Its sizes; "rows" and "slots" are those that vary.
        dtype: Its type.
        most_slots: Number of slots that is enough for texts of any length; None where each position has its own.
    """

    name: str
    shape: tuple[int | str, ...]
    dtype: str
    most_slots: int | None


class RowDecoder:
    """Continues texts in the rows of a batch, of which each is at a place of its own, as functions of tensors.

    A row has an index, the number of its positions that the caches hold, and one token that is not fed yet. `begin`
    feeds the others of a prompt, in one pass or in several; `advance` writes some more tokens. State goes in and comes
    out, so that a server can put rows together, take them apart, and keep those of a prompt that comes again.

    Texts are those of `generate`, token for token: their random numbers are functions of (seed, stream, place).

    Args:
        backbone: A backbone that `decodes_rows`.

    Raises:
        ValueError: If it does not.

    Example:

    >>> decoder = RowDecoder(model.backbone)
    >>> state = decoder.begin(prompts[:, :-1], lengths - 1, ops.zeros_like(lengths), decoder.empty(4, capacity=64))
    >>> written = decoder.advance(state, prompts[:, -1], lengths - 1, ..., steps=8)

    Reference:
        Yu et al. 2022, "Orca: a distributed serving system for Transformer-based generative models", section 4.1
        (iteration-level scheduling).
    """

    def __init__(self, backbone: Any) -> None:
        if not backbone.decodes_rows:
            raise ValueError(
                "backbone must be a decoder whose rows can be at places of their own, without recurrence and positions "
                f"that depend on the length of the whole text, got a {type(backbone).__name__} of the architecture "
                f"{backbone.config.architecture!r}."
            )
        self.backbone = backbone
        # two sizes tell which axis has the slots, and whether they are limited
        large = backbone.config.max_length
        sizes = [self._shapes(capacity) for capacity in (1, 2, large, large + 1)]
        paths, self._tree = keras.tree.flatten_with_path(sizes[0]), sizes[0]
        self.tensors: tuple[StateTensor, ...] = tuple(
            _described("_".join(map(str, path)), *tensors)
            for (path, _), *tensors in zip(paths, *map(keras.tree.flatten, sizes), strict=True)
        )

    def _shapes(self, capacity: int) -> Any:
        """The state of one row as symbols, which take no memory."""
        return _Make(self._make, capacity)(keras.KerasTensor((1,), dtype="int32"))

    def _make(self, rows: Any, capacity: Any) -> Any:
        mask = ops.ones((rows, 1), dtype="bool")
        return self.backbone.start_decoding({"padding_mask": mask}, capacity)[0]

    def empty(self, rows: Any, capacity: Any) -> list[Any]:
        """Returns the state of rows without a token, a tensor for each of `tensors`.

        Args:
            rows: Number of rows.
            capacity: Number of positions that each has room for.
        """
        return keras.tree.flatten(self._make(rows, capacity))

    def begin(self, token_ids: Any, lengths: Any, index: Any, state: list[Any]) -> list[Any]:
        """Feeds tokens of prompts, all but the last one of each.

        Args:
            token_ids: int32 `(rows, length)`, padded on the right.
            lengths: Number of tokens of each row, int32 `(rows,)`; rows with 0 stay as they are.
            index: Number of tokens that each row has been fed, int32 `(rows,)`.
            state: The state, as `empty` or the last call returned it.

        Returns:
            The new state.
        """
        _, new = self.backbone.advance(ops.maximum(token_ids, 0), index, self.packed(state), {}, count=lengths)
        return keras.tree.flatten(new)

    def advance(
        self,
        state: list[Any],
        token_ids: Any,
        index: Any,
        places: Any,
        limits: Any,
        end_ids: Any,
        seeds: Any,
        streams: Any,
        temperature: Any,
        top_k: Any,
        top_p: Any,
        min_p: Any,
        steps: Any,
    ) -> dict[str, Any]:
        """Writes up to `steps` more tokens in each row, fewer where a row ends.

        Args:
            state: The state.
            token_ids: The token of each row that is not fed yet, int32 `(rows,)`.
            index: Number of tokens that each row has been fed, int32 `(rows,)`. There must be room for `steps` more, or
                as many as the limit of the row leaves.
            places: Number of tokens that each row has written, int32 `(rows,)`.
            limits: Most tokens that each row may write, int32 `(rows,)`: a row with no more left rests.
            end_ids: Ids that end each row, int32 `(rows, ids)`, filled up with -1.
            seeds: Seed of each row, int64 `(rows,)`, from 0 to 2**32 - 1.
            streams: Stream of random numbers of each row, int32 `(rows,)`; `generate` gives text r the stream r.
            temperature, top_k, top_p, min_p: See `choose_by_row`, all `(rows,)`.
            steps: Most tokens, int32 scalar.

        Returns:
            `token_ids` and `log_probabilities` of what is new, `(rows, steps)`, -1 and 0 behind an end; its `lengths`
            `(rows,)`, an end token included; `ended`, whether the last token is one, bool `(rows,)`; and the `state`.
            A row that goes on has its last token not fed, and `lengths` more positions in the caches.
        """
        token_ids, index = ops.cast(token_ids, "int32"), ops.cast(index, "int32")
        rows = ops.shape(token_ids)[0]
        ended = ops.zeros_like(token_ids, dtype="bool")
        zeros = ops.zeros_like(token_ids)
        carry = {
            "step": ops.convert_to_tensor(0, dtype="int32"),
            "tokens": token_ids,
            "lengths": zeros,
            "ended": ended,
            "written": ops.zeros((steps, rows), dtype="int32") - 1,
            "log_probabilities": ops.zeros((steps, rows), dtype="float32"),
            "state": self.packed(state),
        }

        def is_going(carry: dict[str, Any]) -> Any:
            room = places + carry["lengths"] < limits
            return ops.logical_and(room, ops.logical_not(carry["ended"]))

        def unfinished(carry: dict[str, Any]) -> Any:
            return ops.logical_and(carry["step"] < steps, ops.any(is_going(carry)))

        def advance_once(carry: dict[str, Any]) -> tuple[dict[str, Any]]:
            going, step = is_going(carry), carry["step"]
            # a row that rests writes where its next token will be, which nothing reads
            logits, new = self.backbone.decode_step(carry["tokens"], index + carry["lengths"], carry["state"], {})
            numbers = uniforms_at(seeds, streams, places + carry["lengths"])
            chosen = choose_by_row(logits, numbers, temperature, top_k, top_p, min_p)
            gained = token_log_probabilities(logits, chosen)
            ends = ops.any(ops.expand_dims(chosen, 1) == end_ids, axis=1)
            values = {
                "written": ops.where(going, chosen, -1),
                "log_probabilities": ops.where(going, gained, 0.0),
            }
            kept = {
                name: update_slice(carry[name], (step, 0), ops.expand_dims(value, 0)) for name, value in values.items()
            }
            return (
                {
                    "step": step + 1,
                    "tokens": ops.where(going, chosen, carry["tokens"]),
                    "lengths": carry["lengths"] + ops.cast(going, "int32"),
                    "ended": ops.logical_or(carry["ended"], ops.logical_and(going, ends)),
                    **kept,
                    "state": new,
                },
            )

        carry = ops.while_loop(unfinished, advance_once, (carry,))[0]
        return {
            "token_ids": ops.transpose(carry["written"]),
            "log_probabilities": ops.transpose(carry["log_probabilities"]),
            "lengths": carry["lengths"],
            "ended": carry["ended"],
            "state": keras.tree.flatten(carry["state"]),
        }

    def packed(self, state: Any) -> Any:
        """Returns the state as the backbone takes it.

        Args:
            state: A tensor for each of `tensors`.
        """
        return keras.tree.pack_sequence_as(self._tree, list(state))


class _Make(keras.Operation):
    """Makes a state, for shapes alone."""

    def __init__(self, make: Any, capacity: int) -> None:
        super().__init__()
        self._make, self._capacity = make, capacity

    def call(self, rows: Any) -> Any:
        return self._make(ops.shape(rows)[0], self._capacity)


def _described(name: str, short: Any, longer: Any, large: Any, larger: Any) -> StateTensor:
    """A tensor of the state, from its shapes for capacities of 1, 2, the model's length and one more."""
    axes = [axis for axis, (a, b) in enumerate(zip(short.shape, longer.shape, strict=True)) if a != b]
    shape: list[int | str] = ["rows", *large.shape[1:]]
    for axis in axes:
        shape[axis] = "slots"
    limited = axes and large.shape == larger.shape
    most = large.shape[axes[0]] if limited else None
    return StateTensor(name, tuple(shape), keras.backend.standardize_dtype(short.dtype), most)
