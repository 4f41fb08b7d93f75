"""Decoding of rows that come and go: each has an index of its own, so that a server fills the places of ended texts."""

import dataclasses
from typing import Any

import keras
from keras import ops

from layers.fusion import update_slice
from zoo.generation.alternatives import MOST_ALTERNATIVES, most_probable
from zoo.generation.loop import TokenByToken
from zoo.generation.request import GenerationOptions
from zoo.generation.row_adjustments import RowAdjustments
from zoo.generation.samplers import SampleByRow

_ALTERNATIVES = ("alternative_ids", "alternative_log_probabilities")


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
        written: Any,
        presence_penalty: Any,
        frequency_penalty: Any,
        bias_ids: Any,
        biases: Any,
        min_tokens: Any,
        allowed: Any,
        alternatives: Any,
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
            temperature, top_k, top_p, min_p: See `SampleByRow`, all `(rows,)`.
            written, presence_penalty, frequency_penalty, bias_ids, biases, min_tokens, allowed: See `RowAdjustments`.
            alternatives: Number of most probable tokens that are told of each place, int32 scalar, at most
                `MOST_ALTERNATIVES`.
            steps: Most tokens, int32 scalar.

        Returns:
            `token_ids` and `log_probabilities` of what is new, `(rows, steps)`, -1 and 0 behind an end; its `lengths`
            `(rows,)`, an end token included; `ended`, whether the last token is one, bool `(rows,)`; the `state`; and
            of the most probable tokens `alternative_ids` and `alternative_log_probabilities`, `(rows, steps,
            alternatives)`, from the logits of the model, without adjustments and temperature. A row that goes on has
            its last token not fed, and `lengths` more positions in the caches.
        """
        settings = (ops.expand_dims(values, 1) for values in (temperature, top_k, top_p, min_p))
        options = GenerationOptions(steps, SampleByRow(*settings), end_ids=end_ids, jit_compile=False)
        adjust = RowAdjustments(
            written, places, presence_penalty, frequency_penalty, bias_ids, biases, min_tokens, end_ids, allowed
        )
        whole = ["slots" not in tensor.shape for tensor in self.tensors]
        loop = _RowLoop(self.backbone.decode_step, options, adjust, alternatives, self.packed(whole))
        inputs = loop.inputs(
            state=self.packed(state),
            constants={},
            first_tokens=ops.cast(token_ids, "int32"),
            first_index=index,
            length_limit=limits - places,
            seed=seeds,
            streams=streams,
            prompt=ops.zeros((ops.shape(token_ids)[0], 0), dtype="int32"),
            first_place=places,
        )
        texts = loop.advance(loop.start(inputs))["moving"]
        is_text = ops.arange(steps, dtype="int32") < ops.expand_dims(texts["lengths"], 1)
        return {
            "token_ids": ops.where(is_text, ops.transpose(texts["output"]), -1),
            "log_probabilities": ops.transpose(texts["gained"]),
            "lengths": texts["lengths"],
            "ended": texts["finished"],
            **{name: ops.transpose(texts[name], (1, 0, 2))[:, :, :alternatives] for name in _ALTERNATIVES},
            "state": keras.tree.flatten(texts["state"]),
        }

    def packed(self, state: Any) -> Any:
        """Returns the state as the backbone takes it.

        Args:
            state: A tensor for each of `tensors`.
        """
        return keras.tree.pack_sequence_as(self._tree, list(state))


class _RowLoop(TokenByToken):
    """Chooses tokens after adjustments of each row, and notes the most probable ones where they are asked for.

    Args:
        step, settings: As for any loop.
        adjust: The adjustments.
        alternatives: Number of most probable tokens.
        whole: Which tensors of the state each token changes as a whole, in the structure of the state.
    """

    def __init__(self, step: Any, settings: Any, adjust: RowAdjustments, alternatives: Any, whole: Any) -> None:
        super().__init__(step, settings)
        self._adjust, self._alternatives, self._whole = adjust, alternatives, whole

    def advance_once(self, fixed: dict[str, Any], moving: dict[str, Any]) -> dict[str, Any]:
        done = moving["done"]

        def rested(is_whole: bool, before: Any, after: Any) -> Any:
            """Rows that rest are fed on; what that writes into slots is overwritten before it is seen."""
            rests = ops.reshape(done, (-1, *([1] * (len(after.shape) - 1))))
            return ops.where(rests, before, after) if is_whole else after

        moved = super().advance_once(fixed, moving)
        states = (self._whole, moving["state"], moved["state"])
        return {**moved, "state": keras.tree.map_structure(rested, *states)}

    def start(self, inputs: dict[str, Any]) -> dict[str, Any]:
        carry = super().start(inputs)
        shape = (self.settings.max_new_tokens, ops.shape(inputs["first_tokens"])[0], MOST_ALTERNATIVES)
        carry["moving"]["alternative_ids"] = ops.full(shape, -1, dtype="int32")
        carry["moving"]["alternative_log_probabilities"] = ops.zeros(shape, dtype="float32")
        return carry

    def noted(self, logits: Any, moving: dict[str, Any]) -> dict[str, Any]:
        before = tuple(moving[name] for name in _ALTERNATIVES)

        def with_best() -> Any:
            best, place = most_probable(logits), (moving["position"], 0, 0)
            return tuple(update_slice(a, place, ops.expand_dims(b, 0)) for a, b in zip(before, best, strict=True))

        # the rows of a batch of which no text asks for them do not pay for those of others
        return dict(zip(_ALTERNATIVES, ops.cond(self._alternatives > 0, with_best, lambda: before), strict=True))

    def choose(self, logits: Any, fixed: dict[str, Any], moving: dict[str, Any]) -> Any:
        logits = self._adjust(logits, ops.transpose(moving["output"]), moving["position"])
        return super().choose(logits, fixed, moving)


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
