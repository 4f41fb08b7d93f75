"""Speculative decoding without a second model: what followed the last tokens before is proposed again."""

from collections.abc import Mapping
from typing import Any

from keras import ops

from layers.fusion import update_slice

# The logit of what is not proposed: its probability is 0 in float32, also at a high temperature.
_NEVER = -1e9


class PromptLookup:
    """A draft of speculative decoding that proposes the token that followed the same tokens earlier in the text.

    It searches the text for the last tokens, at most `longest_match` of them, and uses the latest place with the
    longest match. With an encoder-decoder it searches the source too. Texts that repeat parts of their prompt
    (summaries, corrections, answers about a passage, code) are generated in fewer passes of the model.

    The class has the methods of a backbone that decoding calls (`zoo.backbones.backbone.Backbone`). Its state is the
    text.

    Args:
        vocabulary_size: Vocabulary size of the model.
        longest_match: Largest number of tokens to compare.

    Example:

    >>> model.generate(prompt, draft="prompt_lookup", lookahead=8)

    Reference:
        Saxena 2023, "Prompt lookup decoding"; Yang et al. 2023, "Inference with reference: lossless acceleration of
        large language models", which copies spans in the same way.
    """

    active_variables: tuple[Any, ...] = ()

    def __init__(self, vocabulary_size: int, longest_match: int = 3) -> None:
        self.vocabulary_size = vocabulary_size
        self.longest_match = longest_match

    def start_decoding(self, inputs: Mapping[str, Any], capacity: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Returns the state, a text filled with -1, and the constants.

        Args:
            inputs: `padding_mask` of the prompts `(batch, length)` if they may be padded; `encoder_token_ids` and
                `encoder_padding_mask` of sources, `(batch, source_length)`.
            capacity: Number of positions of the text.
        """
        constants = {}
        if "padding_mask" in inputs:
            padding = ops.logical_not(inputs["padding_mask"])
            constants["padding"] = ops.sum(ops.cast(padding, "int32"), axis=1, keepdims=True)
        if "encoder_token_ids" in inputs:
            source = ops.cast(inputs["encoder_token_ids"], "int32")
            constants["source"] = ops.where(inputs["encoder_padding_mask"], source, -1)
        batch = ops.shape(next(iter(constants.values())))[0]
        return {"text": ops.full((batch, capacity), -1, dtype="int32")}, constants

    def advance(self, token_ids: Any, index: Any, state: Any, constants: Any) -> tuple[None, dict[str, Any]]:
        """Writes tokens `(batch, new)` at `index, index + 1, ...`. Returns None and the new state."""
        token_ids = ops.cast(token_ids, "int32")
        if "padding" in constants:
            places = index + ops.arange(ops.shape(token_ids)[1], dtype="int32")
            token_ids = ops.where(places < constants["padding"], -1, token_ids)
        return None, {"text": update_slice(state["text"], (0, index), token_ids)}

    def decode_step(self, token_ids: Any, index: Any, state: Any, constants: Any) -> tuple[Any, dict[str, Any]]:
        """Writes tokens `(batch,)` at `index`. Returns logits `(batch, vocabulary)` of the proposal, and the state."""
        _, state = self.advance(ops.expand_dims(token_ids, 1), index, state, constants)
        text, end = state["text"], ops.cast(index, "int32") + 1
        if "source" in constants:
            end = end + ops.shape(constants["source"])[1]
            text = ops.concatenate([constants["source"], text], axis=1)
        places = ops.arange(ops.shape(text)[1], dtype="int32")
        # how many tokens before each place are those before the end
        same, matched = ops.ones_like(text), ops.zeros_like(text)
        for distance in range(1, self.longest_match + 1):
            wanted = ops.take(text, ops.maximum(end - distance, 0), axis=1)[:, None]
            before = ops.pad(text, ((0, 0), (distance, 0)), constant_values=-1)[:, : ops.shape(text)[1]]
            same = same * ops.cast(ops.logical_and(before == wanted, wanted >= 0), "int32")
            matched = matched + same
        is_known = ops.logical_and(places < end, text >= 0)
        rank = ops.where(is_known, matched * ops.shape(text)[1] + places, -1)
        proposal = ops.take_along_axis(text, ops.argmax(rank, axis=1)[:, None], axis=1)
        ids = ops.arange(self.vocabulary_size, dtype="int32")
        return ops.where(ids == proposal, 0.0, _NEVER), state

    def can_rewind(self, capacity: int) -> bool:
        """Returns True: writing at an earlier index discards later tokens."""
        return True

    def resize_state(self, state: dict[str, Any], capacity: int) -> dict[str, Any]:
        """Returns the state with room for a longer text.

        Args:
            state: The state.
            capacity: Number of positions, not less than there were.
        """
        text = state["text"]
        return {"text": ops.pad(text, ((0, 0), (0, capacity - text.shape[1])), constant_values=-1)}
