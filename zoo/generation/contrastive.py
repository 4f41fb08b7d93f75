"""Contrastive search: probable tokens that do not repeat what the text says already."""

import dataclasses
from typing import Any, ClassVar

from keras import ops

from layers.fusion import update_slice
from zoo.generation.checks import require_count, require_number
from zoo.generation.loop import Loop, add_tokens, empty_texts, repeat_rows, take_rows, texts_of
from zoo.generation.samplers import Sampler, register_sampler


@register_sampler("contrastive")
@dataclasses.dataclass(frozen=True)
class Contrastive(Sampler):
    """Contrastive search: a probable token whose hidden state is unlike those of the earlier tokens.

    The next token maximises `(1 - alpha) * p(v) - alpha * max_j cos(h_v, h_j)` over the `top_k` most probable tokens v.
    `h_v` is the hidden state of the model after v, and `h_j` are those of all earlier tokens. Each step runs the model
    on `top_k` candidates.

    Args:
        top_k: Number of candidates, at least 1.
        alpha: Weight of the penalty, in [0, 1]; 0 is greedy search.

    Raises:
        ValueError: If an argument is out of range.

    Reference:
        Su et al. 2022, "A contrastive framework for neural text generation", equation 5.
    """

    top_k: int = 4
    alpha: float = 0.6

    needs_numbers: ClassVar[bool] = False
    needs_hidden: ClassVar[bool] = True
    # a candidate is fed before it is known whether it is needed
    extra_positions: ClassVar[int] = 1

    def __post_init__(self) -> None:
        require_count("top_k", self.top_k)
        require_number("alpha", self.alpha, least=0, most=1)

    def make_loop(self, step: Any, settings: Any) -> Loop:
        return ContrastiveSearch(step, settings)


class ContrastiveSearch(Loop):
    """The loop of `Contrastive`.

    The state must be a dict, and the step must set its entry `hidden` `(rows, hidden_dim)` to the hidden states of the
    tokens that it was fed. The inputs hold in addition `prompt_hidden` `(batch, prompt_length - 1, hidden_dim)`, the
    hidden states of the prompt without its last token, or None where it is this token alone. Every generated token is
    fed, also the last one.
    """

    def start(self, inputs: dict[str, Any]) -> dict[str, Any]:
        first_tokens, settings = inputs["first_tokens"], self.settings
        logits, state = self.step(first_tokens, inputs["first_index"], inputs["state"], inputs["constants"])
        batch, length = ops.shape(first_tokens)[0], settings.max_new_tokens
        # no more candidates than there are tokens
        count = min(settings.sampler.top_k, logits.shape[-1])
        known = [ops.expand_dims(_directions(state["hidden"]), 1)]
        if inputs["prompt_hidden"] is not None:
            known = [_directions(inputs["prompt_hidden"]), *known]
        unknown = ops.zeros((batch, length, ops.shape(known[0])[2]), dtype="float32")
        token_mask = [
            inputs["prompt"][:, :-1] >= 0,
            ops.ones((batch, 1), dtype="bool"),
            ops.zeros((batch, length), dtype="bool"),
        ]
        return {
            "fixed": {
                "constants": repeat_rows(inputs["constants"], count),
                "prompt": inputs["prompt"],
                "first_index": inputs["first_index"],
                "length_limit": inputs["length_limit"],
                "known": ops.convert_to_tensor(ops.shape(inputs["prompt"])[1], dtype="int32"),
            },
            "moving": {
                **empty_texts(first_tokens, length, settings.pad_id),
                "done": inputs["length_limit"] <= 0,
                "tokens": first_tokens,
                "logits": ops.cast(logits, "float32"),
                "directions": ops.concatenate([*known, unknown], axis=1),
                "token_mask": ops.concatenate(token_mask, axis=1),
                "state": state,
            },
        }

    def advance_once(self, fixed: dict[str, Any], moving: dict[str, Any]) -> dict[str, Any]:
        settings, position, logits = self.settings, moving["position"], moving["logits"]
        count, alpha = min(settings.sampler.top_k, logits.shape[-1]), settings.sampler.alpha
        processed = logits
        if settings.processors:
            processed = self.process(logits, fixed, ops.transpose(moving["output"]), position)
        probabilities, candidates = ops.top_k(ops.softmax(processed, axis=-1), count)
        candidates = ops.cast(candidates, "int32")

        following, state = self.step(
            ops.reshape(candidates, (-1,)),
            fixed["first_index"] + 1 + position,
            repeat_rows(moving["state"], count),
            fixed["constants"],
        )
        directions = ops.reshape(_directions(state["hidden"]), (-1, count, moving["directions"].shape[2]))
        cosines = ops.einsum("bkd,bld->bkl", directions, moving["directions"])
        likeness = ops.max(ops.where(ops.expand_dims(moving["token_mask"], 1), cosines, float("-inf")), axis=-1)
        scores = (1.0 - alpha) * probabilities - alpha * likeness
        # a forbidden token has no probability, however new it is
        best = ops.cast(ops.argmax(ops.where(probabilities > 0, scores, float("-inf")), axis=-1), "int32")
        rows = ops.arange(ops.shape(best)[0], dtype="int32") * count + best
        state, following, direction = take_rows(
            (state, following, ops.reshape(directions, (-1, directions.shape[2]))), rows
        )
        place = fixed["known"] + position
        chosen = ops.take_along_axis(candidates, ops.expand_dims(best, 1), axis=1)[:, 0]
        here = ops.arange(ops.shape(moving["token_mask"])[1], dtype="int32") == place
        return {
            **add_tokens(moving, chosen, logits, fixed["length_limit"], settings),
            "logits": ops.cast(following, "float32"),
            "directions": update_slice(moving["directions"], (0, place, 0), ops.expand_dims(direction, 1)),
            "token_mask": ops.logical_or(moving["token_mask"], here),
            "state": state,
        }

    def result(self, carry: dict[str, Any]) -> dict[str, Any]:
        return texts_of(carry["moving"])


def _directions(hidden: Any) -> Any:
    hidden = ops.cast(hidden, "float32")
    return hidden / ops.maximum(ops.norm(hidden, axis=-1, keepdims=True), 1e-12)
