"""The loop of samplers that choose one token after the other and keep one text per row."""

from typing import Any

from keras import ops

from zoo.generation.loop import Loop
from zoo.generation.score import token_log_probabilities
from zoo.generation.selection import end_lengths


class TokenByToken(Loop):
    """One hypothesis per row, for every sampler that has a method `choose`."""

    def start(self, inputs: dict[str, Any]) -> dict[str, Any]:
        first_tokens = inputs["first_tokens"]
        return {
            "fixed": {name: inputs[name] for name in inputs if name not in ("state", "first_tokens")},
            "moving": {
                **empty_texts(first_tokens, self.settings.max_new_tokens, self.settings.pad_id),
                "done": inputs["length_limit"] <= 0,
                "tokens": first_tokens,
                "state": inputs["state"],
            },
        }

    def advance_once(self, fixed: dict[str, Any], moving: dict[str, Any]) -> dict[str, Any]:
        position = moving["position"]
        logits, state = self.step(
            moving["tokens"], fixed["first_index"] + position, moving["state"], fixed["constants"]
        )
        logits = ops.cast(logits, "float32")
        chosen = self.choose(logits, fixed, moving)
        return {**add_tokens(moving, chosen, logits, fixed["length_limit"], self.settings), "state": state}

    def choose(self, logits: Any, fixed: dict[str, Any], moving: dict[str, Any]) -> Any:
        """Returns the next tokens `(batch,)`, from the processed logits."""
        settings, position = self.settings, moving["position"]
        if settings.processors:
            logits = self.process(logits, fixed["prompt"], ops.transpose(moving["output"]), position)
        numbers = ops.take(fixed["numbers"], position, axis=0) if "numbers" in fixed else None
        return settings.sampler.choose(logits, numbers)

    def result(self, carry: dict[str, Any]) -> dict[str, Any]:
        return texts_of(carry["moving"])


def empty_texts(first_tokens: Any, length: Any, pad_id: int) -> dict[str, Any]:
    """Returns the moving values of texts without a token: their output is `(length, batch)`."""
    nothing = ops.zeros_like(first_tokens)
    return {
        "position": ops.convert_to_tensor(0, dtype="int32"),
        "output": ops.full((length, ops.shape(first_tokens)[0]), pad_id, dtype="int32"),
        "lengths": nothing,
        "end_lengths": nothing,
        "finished": ops.cast(nothing, "bool"),
        "log_probabilities": ops.cast(nothing, "float32"),
    }


def add_tokens(moving: dict[str, Any], chosen: Any, logits: Any, length_limit: Any, settings: Any) -> dict[str, Any]:
    """Returns the moving values after one more token for each row that is not done.

    Args:
        moving: The values before.
        chosen: Int32 `(batch,)`.
        logits: The model's own, `(batch, vocabulary)`.
        length_limit: `(batch,)`.
        settings: The settings of the loop.
    """
    position, alive = moving["position"], ops.logical_not(moving["done"])
    gained = token_log_probabilities(logits, chosen)
    ends = end_lengths(chosen, ops.transpose(moving["output"]), position, settings.end_ids, settings.stop_sequences)
    ends = ops.where(alive, ends, 0)
    chosen = ops.where(alive, chosen, settings.pad_id)
    finished = ops.logical_or(moving["finished"], ends > 0)
    return {
        **moving,
        "position": position + 1,
        "tokens": chosen,
        "output": ops.slice_update(moving["output"], (position, 0), ops.expand_dims(chosen, 0)),
        "lengths": moving["lengths"] + ops.cast(alive, "int32"),
        "end_lengths": moving["end_lengths"] + ends,
        "finished": finished,
        "log_probabilities": moving["log_probabilities"] + ops.where(alive, gained, 0.0),
        "done": ops.logical_or(moving["done"], ops.logical_or(ends > 0, position + 1 >= length_limit)),
    }


def texts_of(moving: dict[str, Any]) -> dict[str, Any]:
    """Returns the texts in the form that `decode` describes."""
    names = ("lengths", "end_lengths", "finished", "log_probabilities")
    return {"token_ids": ops.transpose(moving["output"]), **{name: moving[name] for name in names}}
