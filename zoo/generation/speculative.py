"""Speculative decoding: a small model proposes, the large one checks several tokens in one pass."""

from typing import Any

from keras import ops

from layers.fusion import update_slice
from zoo.generation.loop import Loop, empty_texts, end_lengths, texts_of, token_log_probabilities
from zoo.generation.random import draw, uniforms


class SpeculativeDecoding(Loop):
    """Speculative decoding: draws from the distribution of the target model, with fewer passes of it.

    In each round the draft model proposes `lookahead` tokens one by one. The target model reads the last token and all
    proposals but the last in one pass, which gives its distributions p at the positions of the proposals. A proposal x
    drawn from q is accepted with probability `min(1, p(x) / q(x))`. The first rejected proposal is replaced by a draw
    from `max(0, p - q)`, normalised. Accepted and replaced tokens have the distribution p. The sampler's restrictions
    and the processors act on both models.

    The algorithm of the paper draws an extra token from p after the accepted ones. Here the last proposal is checked
    instead; the expected number of tokens per pass of the target is the same. The random numbers at a position are then
    a function of (seed, stream, position). So the text of a row depends neither on `lookahead` nor on the other rows.
    All rows of a batch advance together, by the smallest number of accepted tokens of a row that is not done.

    `inputs` takes in addition `draft_state` and `draft_constants`. The numbers are `(3, max_new_tokens + lookahead,
    batch)`: for proposing, keeping and replacing. The result holds in addition `rounds`, the number of passes of the
    target model.

    Args:
        step: `step(token_ids (rows, lookahead), index, state, constants) -> (logits (rows, lookahead, vocabulary),
            state)`: feeds tokens at `index, index + 1, ...` to the target model. Feeding an index again overwrites it
            and everything after it.
        draft_step: The draft model's step for one token, see `zoo.generation.decode`. It overwrites in the same way.
        settings: Settings with a sampler that defines `weights`, and with `lookahead`, the number of proposals per
            round. Both states need room for `lookahead` tokens more than are generated.

    Reference:
        Leviathan et al. 2023, "Fast inference from Transformers via speculative decoding", algorithm 1 and
        equation 1.
    """

    def __init__(self, step: Any, draft_step: Any, settings: Any) -> None:
        super().__init__(step, settings)
        self.draft_step = draft_step
        self.lookahead: int = settings.lookahead

    def inputs(  # type: ignore[override]  # with what only this loop needs
        self, *, draft_state: Any, draft_constants: Any, seed: Any, streams: Any, **given: Any
    ) -> dict[str, Any]:
        count = self.settings.max_new_tokens + self.lookahead
        return {
            **super().inputs(seed=seed, streams=streams, **given),
            "draft_state": draft_state,
            "draft_constants": draft_constants,
            "numbers": ops.stack([uniforms(seed, streams, count, purpose) for purpose in range(3)]),
        }

    def start(self, inputs: dict[str, Any]) -> dict[str, Any]:
        first_tokens, settings = inputs["first_tokens"], self.settings
        moved = ("state", "draft_state", "first_tokens")
        return {
            "fixed": {name: inputs[name] for name in inputs if name not in moved},
            "moving": {
                **empty_texts(first_tokens, settings.max_new_tokens + self.lookahead, settings.pad_id),
                "done": inputs["length_limit"] <= 0,
                "tokens": first_tokens,
                "rounds": ops.convert_to_tensor(0, dtype="int32"),
                "state": inputs["state"],
                "draft_state": inputs["draft_state"],
            },
        }

    def advance_once(self, fixed: dict[str, Any], moving: dict[str, Any]) -> dict[str, Any]:
        position = moving["position"]
        numbers = ops.slice(
            fixed["numbers"],
            (0, position, 0),
            (3, self.lookahead, ops.shape(fixed["numbers"])[2]),
        )
        proposals, draft_weights, draft_state, output = self._propose(fixed, moving, numbers[0])
        fed = ops.concatenate([ops.expand_dims(moving["tokens"], 1), proposals[:, :-1]], axis=1)
        logits, state = self.step(fed, fixed["first_index"] + position, moving["state"], fixed["constants"])
        logits = ops.cast(logits, "float32")
        target_weights = self._target_weights(logits, fixed, output, position)
        tokens, valid = _check(proposals, draft_weights, target_weights, ops.transpose(numbers[1]), numbers[2])
        return {
            **self._accept(fixed, moving, tokens, valid, logits, output),
            "rounds": moving["rounds"] + 1,
            "state": state,
            "draft_state": draft_state,
        }

    def _propose(self, fixed: dict[str, Any], moving: dict[str, Any], numbers: Any) -> tuple[Any, Any, Any, Any]:
        """Proposals `(batch, lookahead)`, their distributions, the draft's state, and the output with the proposals."""
        position, sampler = moving["position"], self.settings.sampler
        token, draft_state, output = moving["tokens"], moving["draft_state"], moving["output"]
        proposals, weights = [], []
        for place in range(self.lookahead):
            logits, draft_state = self.draft_step(
                token, fixed["first_index"] + position + place, draft_state, fixed["draft_constants"]
            )
            logits = self._process(ops.cast(logits, "float32"), fixed, output, position + place)
            weights.append(_normalised(sampler.weights(logits)))
            token = draw(weights[-1], numbers[place])
            output = update_slice(output, (position + place, 0), ops.expand_dims(token, 0))
            proposals.append(token)
        return ops.stack(proposals, axis=1), ops.stack(weights, axis=1), draft_state, output

    def _process(self, logits: Any, fixed: dict[str, Any], output: Any, position: Any) -> Any:
        if not self.settings.processors:
            return logits
        return self.process(logits, fixed, ops.transpose(output), position)

    def _target_weights(self, logits: Any, fixed: dict[str, Any], output: Any, position: Any) -> Any:
        if self.settings.processors:
            places = range(self.lookahead)
            processed = [self._process(logits[:, place], fixed, output, position + place) for place in places]
            logits = ops.stack(processed, axis=1)
        flat = ops.reshape(logits, (-1, logits.shape[-1]))
        return ops.reshape(_normalised(self.settings.sampler.weights(flat)), ops.shape(logits))

    def _accept(
        self, fixed: dict[str, Any], moving: dict[str, Any], tokens: Any, valid: Any, logits: Any, output: Any
    ) -> dict[str, Any]:
        """Moves all rows on by the largest number of tokens that every row has, or has ended within."""
        settings, position, places = self.settings, moving["position"], range(self.lookahead)
        gained = token_log_probabilities(logits, tokens)
        texts = ops.transpose(output)
        ends, alive = [], [ops.logical_not(moving["done"])]
        for place in places:
            end = end_lengths(tokens[:, place], texts, position + place, settings.end_ids, settings.stop_sequences)
            ends.append(ops.where(alive[-1], end, 0))
            ended = ops.logical_or(ends[-1] > 0, position + place + 1 >= fixed["length_limit"])
            alive.append(ops.logical_and(alive[-1], ops.logical_not(ended)))
        # only the first `valid` tokens of a row are decided
        going_on = ops.take_along_axis(ops.stack(alive, axis=1), ops.expand_dims(valid, 1), axis=1)[:, 0]
        count = ops.min(ops.where(going_on, valid, self.lookahead))

        result = dict(moving)
        columns, gains = [], []
        for place in places:
            now = ops.logical_and(alive[place], place < count)
            columns.append(ops.where(now, tokens[:, place], settings.pad_id))
            end = ops.where(now, ends[place], 0)
            result["lengths"] = result["lengths"] + ops.cast(now, "int32")
            result["end_lengths"] = result["end_lengths"] + end
            result["finished"] = ops.logical_or(result["finished"], end > 0)
            gains.append(ops.where(now, gained[:, place], 0.0))
            result["log_probabilities"] = result["log_probabilities"] + gains[-1]
        columns = ops.stack(columns, axis=0)
        result["tokens"] = ops.take(columns, count - 1, axis=0)
        result["output"] = update_slice(moving["output"], (position, 0), columns)
        result["gained"] = update_slice(moving["gained"], (position, 0), ops.stack(gains, axis=0))
        result["position"] = position + count
        ended = ops.logical_or(result["finished"], position + count >= fixed["length_limit"])
        result["done"] = ops.logical_or(moving["done"], ended)
        return result

    def result(self, carry: dict[str, Any]) -> dict[str, Any]:
        moving = carry["moving"]
        most = self.settings.max_new_tokens
        texts = texts_of({**moving, **{name: moving[name][:most] for name in ("output", "gained")}})
        return {**texts, "rounds": moving["rounds"]}


def _normalised(weights: Any) -> Any:
    return weights / ops.sum(weights, axis=-1, keepdims=True)


def _check(proposals: Any, draft: Any, target: Any, keeping: Any, replacing: Any) -> tuple[Any, Any]:
    """Keeps and replaces proposals.

    Args:
        proposals: `(batch, lookahead)`.
        draft, target: Their distributions q and p, `(batch, lookahead, vocabulary)`.
        keeping: Uniform numbers `(batch, lookahead)`.
        replacing: Uniform numbers `(lookahead, batch)`.

    Returns:
        Tokens `(batch, lookahead)` and how many of each row are decided, `(batch,)`, at least 1.
    """
    lookahead = proposals.shape[1]
    column = ops.expand_dims(proposals, -1)
    probability = ops.take_along_axis(target, column, axis=-1)[..., 0]
    proposed = ops.take_along_axis(draft, column, axis=-1)[..., 0]
    kept = ops.cumprod(ops.cast(keeping * proposed < probability, "int32"), axis=1)
    count = ops.sum(kept, axis=1)
    place = ops.reshape(ops.minimum(count, lookahead - 1), (-1, 1, 1))
    target = ops.take_along_axis(target, place, axis=1)[:, 0]
    rest = ops.maximum(target - ops.take_along_axis(draft, place, axis=1)[:, 0], 0.0)
    # where rounding leaves nothing, p and q are the same
    rest = ops.where(ops.sum(rest, axis=-1, keepdims=True) > 0, rest, target)
    numbers = ops.take_along_axis(ops.transpose(replacing), place[:, :, 0], axis=1)[:, 0]
    replacement = ops.expand_dims(draw(rest, numbers), 1)
    tokens = ops.where(ops.arange(lookahead, dtype="int32") < ops.expand_dims(count, 1), proposals, replacement)
    return tokens, ops.minimum(count + 1, lookahead)
