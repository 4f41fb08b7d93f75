"""What all decoding loops share: the carried tensors, stopping and going on."""

from typing import Any

import keras
from keras import ops

from zoo.generation.logit_processor import Context, process


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

    def __init__(self, step: Any, settings: Any):
        self.step = step
        self.settings = settings

    def start(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Returns the carried value before the first step.

        Args:
            inputs: Tensors `state`, `constants`, `first_tokens`, `first_index`, `length_limit`, `prompt` and, for
                samplers that draw, `numbers`.
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

    def process(self, logits: Any, prompt: Any, generated: Any, position: Any) -> Any:
        """Returns logits `(rows, vocabulary)` after the processors; arguments as in `Context`."""
        settings = self.settings
        return process(
            settings.processors,
            logits,
            Context(prompt, generated, position, settings.end_ids, settings.stop_sequences),
        )


def repeat_rows(structure: Any, count: int) -> Any:
    """Returns a nested structure of tensors with each row `count` times in a row."""
    return keras.tree.map_structure(lambda tensor: ops.repeat(tensor, count, axis=0), structure)


def take_rows(structure: Any, rows: Any) -> Any:
    """Returns the `rows` of each tensor of a nested structure."""
    return keras.tree.map_structure(lambda tensor: ops.take(tensor, rows, axis=0), structure)
