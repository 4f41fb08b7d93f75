"""The decoding loop: one step after the other over tensors of fixed shapes, until all rows are done."""

from typing import Any

import keras
from keras import ops

from layers.fusion import update_slice
from zoo.generation.processors import Context, ends_with, process
from zoo.generation.random import uniforms


class Loop:
    """A decoding loop that can be left and entered again: `result(advance(start(...)))`.

    The carried value is `{"fixed": ..., "moving": ...}`, nested dicts of tensors: it can cross the border of a compiled
    function, and its state can be replaced by one with larger caches in between.

    Args:
        step: The step function of the protocol, see `zoo.generation.decode`.
        settings: `zoo.generation.GenerationOptions`.
    """

    # rows of the state per row of the batch
    width = 1

    def __init__(self, step: Any, settings: Any) -> None:
        self.step = step
        self.settings = settings

    def inputs(
        self,
        *,
        state: Any,
        constants: Any,
        first_tokens: Any,
        first_index: Any,
        length_limit: Any,
        seed: Any,
        streams: Any,
        prompt: Any,
        prompt_hidden: Any = None,
        first_place: Any = 0,
    ) -> dict[str, Any]:
        """Returns what the loop starts from.

        Args:
            first_index: Also one per row, `(batch,)`.
            seed: Also one per row, `(batch,)`.
            first_place: Number of random numbers that each row has used before, `(batch,)`, or 0.
            **others: As for `zoo.generation.decode`, all given.
        """
        sampler, most = self.settings.sampler, self.settings.max_new_tokens
        inputs = {
            "state": state,
            "constants": constants,
            "first_tokens": first_tokens,
            "first_index": ops.cast(first_index, "int32"),
            "length_limit": ops.clip(ops.cast(length_limit, "int32"), 0, most),
            "prompt": ops.cast(prompt, "int32"),
        }
        if sampler.needs_hidden:
            inputs["prompt_hidden"] = prompt_hidden
        if sampler.needs_numbers:
            inputs["numbers"] = uniforms(seed, streams, most, first=first_place)
        return inputs

    def start(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Returns the carried value before the first step.

        Args:
            inputs: What `inputs` returned.
        """
        raise NotImplementedError

    def advance_once(self, fixed: dict[str, Any], moving: dict[str, Any]) -> dict[str, Any]:
        """Returns what moves after one more step."""
        raise NotImplementedError

    def result(self, carry: dict[str, Any]) -> dict[str, Any]:
        """Returns what `decode` returns."""
        raise NotImplementedError

    def advance(self, carry: dict[str, Any], until: Any = None) -> dict[str, Any]:
        """Steps until all rows are done, or `until` tokens have been generated.

        Args:
            carry: What `start` or the last `advance` returned.
            until: Int32 scalar; None goes to the end.
        """
        fixed, moving = carry["fixed"], carry["moving"]

        def unfinished(moving: dict[str, Any]) -> Any:
            going = ops.logical_not(ops.all(moving["done"]))
            return going if until is None else ops.logical_and(going, moving["position"] < until)

        moving = ops.while_loop(unfinished, lambda moving: (self.advance_once(fixed, moving),), (moving,))[0]
        return {"fixed": fixed, "moving": moving}

    def index(self, fixed: dict[str, Any], moving: dict[str, Any]) -> Any:
        """Returns the position of the next tokens to feed: of all rows, or of each; those that are done rest."""
        first = fixed["first_index"]
        return first + (moving["lengths"] if len(first.shape) else moving["position"])

    def process(self, logits: Any, fixed: dict[str, Any], generated: Any, position: Any) -> Any:
        """Returns logits `(rows, vocabulary)` after the processors.

        Args:
            logits: Those of the model.
            fixed: What does not move: of it the prompts `(rows, prompt_length)` and the limits `(batch,)`.
            generated, position: As in `Context`.
        """
        settings = self.settings
        limits = ops.repeat(fixed["length_limit"], self.width)
        return process(
            settings.processors,
            logits,
            Context(fixed["prompt"], generated, position, settings.end_ids, settings.stop_sequences, limits),
        )


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
        index = self.index(fixed, moving)
        logits, state = self.step(moving["tokens"], index, moving["state"], fixed["constants"])
        logits = ops.cast(logits, "float32")
        chosen = self.choose(logits, fixed, moving)
        added = add_tokens(moving, chosen, logits, fixed["length_limit"], self.settings)
        return {**added, **self.noted(logits, moving), "state": state}

    def noted(self, logits: Any, moving: dict[str, Any]) -> dict[str, Any]:
        """Returns what else moves with a step, see `start`: nothing, unless a subclass keeps more of the logits."""
        return {}

    def choose(self, logits: Any, fixed: dict[str, Any], moving: dict[str, Any]) -> Any:
        """Returns the next tokens `(batch,)`, from the processed logits."""
        settings, position = self.settings, moving["position"]
        if settings.processors:
            logits = self.process(logits, fixed, ops.transpose(moving["output"]), position)
        numbers = ops.take(fixed["numbers"], position, axis=0) if "numbers" in fixed else None
        return settings.sampler.choose(logits, numbers)

    def result(self, carry: dict[str, Any]) -> dict[str, Any]:
        return texts_of(carry["moving"])


def empty_texts(first_tokens: Any, length: Any, pad_id: int) -> dict[str, Any]:
    """Returns the moving values of texts without a token.

    Their output is `(length, batch)`, and so are the log-probabilities of its tokens, "gained".
    """
    nothing = ops.zeros_like(first_tokens)
    return {
        "position": ops.convert_to_tensor(0, dtype="int32"),
        "output": ops.full((length, ops.shape(first_tokens)[0]), pad_id, dtype="int32"),
        "gained": ops.zeros((length, ops.shape(first_tokens)[0]), dtype="float32"),
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
    gained = ops.where(alive, token_log_probabilities(logits, chosen), 0.0)
    ends = end_lengths(chosen, ops.transpose(moving["output"]), position, settings.end_ids, settings.stop_sequences)
    ends = ops.where(alive, ends, 0)
    chosen = ops.where(alive, chosen, settings.pad_id)
    finished = ops.logical_or(moving["finished"], ends > 0)
    return {
        **moving,
        "position": position + 1,
        "tokens": chosen,
        "output": update_slice(moving["output"], (position, 0), ops.expand_dims(chosen, 0)),
        "lengths": moving["lengths"] + ops.cast(alive, "int32"),
        "end_lengths": moving["end_lengths"] + ends,
        "finished": finished,
        "log_probabilities": moving["log_probabilities"] + gained,
        "gained": update_slice(moving["gained"], (position, 0), ops.expand_dims(gained, 0)),
        "done": ops.logical_or(moving["done"], ops.logical_or(ends > 0, position + 1 >= length_limit)),
    }


def texts_of(moving: dict[str, Any]) -> dict[str, Any]:
    """Returns the texts in the form that `decode` describes."""
    names = ("lengths", "end_lengths", "finished", "log_probabilities")
    return {
        "token_ids": ops.transpose(moving["output"]),
        "running_log_probabilities": ops.cumsum(ops.transpose(moving["gained"]), axis=1),
        **{name: moving[name] for name in names},
    }


def is_one_of(token_ids: Any, ids: Any) -> Any:
    """Returns a bool tensor of the shape of `token_ids`: whether each is among the ids.

    Args:
        token_ids: Int32 `(...)`.
        ids: Python integers; or those of each row, int32 `(rows, ids)`, of which negative ones do not count.
    """
    if ops.is_tensor(ids):
        return ops.any(ops.expand_dims(token_ids, -1) == ids, axis=-1)
    result = ops.zeros_like(token_ids, dtype="bool")
    for token_id in ids:
        result = ops.logical_or(result, token_ids == token_id)
    return result


def end_lengths(tokens: Any, texts: Any, count: Any, end_ids: Any, stop_sequences: tuple[tuple[int, ...], ...]) -> Any:
    """Returns how many tokens of the end each text has when a token is added to it.

    Args:
        tokens: The added tokens, int32 `(...)`.
        texts: The generated tokens before them, `(..., length)`.
        count: How many of these there are, an int32 scalar.
        end_ids: Ids of end tokens, see `is_one_of`.
        stop_sequences: Tuple of tuples of ids.

    Returns:
        Int32 tensor `(...)`: 1 behind an end token, the length of the longest stop sequence that is complete, 0 where
        the text goes on.
    """
    result = ops.cast(is_one_of(tokens, end_ids), "int32")
    for sequence in stop_sequences:
        complete = ops.logical_and(tokens == sequence[-1], ends_with(texts, count, sequence[:-1]))
        result = ops.where(complete, ops.maximum(result, len(sequence)), result)
    return result


def token_log_probabilities(logits: Any, labels: Any) -> Any:
    """Returns the log-probability of each label under the softmax of its logits, without a second full-size tensor.

    Args:
        logits: Float tensor `(..., vocabulary)`.
        labels: Integer tensor `(...)` with values in [0, vocabulary).

    Returns:
        float32 tensor `(...)`.
    """
    logits = ops.cast(logits, "float32")
    chosen = ops.take_along_axis(logits, ops.expand_dims(labels, -1), axis=-1)
    return ops.squeeze(chosen, -1) - ops.logsumexp(logits, axis=-1)


def repeat_rows(structure: Any, count: int) -> Any:
    """Returns a nested structure of tensors with each row `count` times in a row."""
    return keras.tree.map_structure(lambda tensor: ops.repeat(tensor, count, axis=0), structure)


def take_rows(structure: Any, rows: Any) -> Any:
    """Returns the `rows` of each tensor of a nested structure."""
    return keras.tree.map_structure(lambda tensor: ops.take(tensor, rows, axis=0), structure)
