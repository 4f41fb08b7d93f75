"""Decoding with your own step function: from first tokens to token ids."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from zoo.generation.request import GenerationOptions


def decode(
    step: Callable,
    state: Any,
    constants: Any,
    first_tokens: Any,
    first_index: Any,
    max_new_tokens: Any,
    sampler: Any,
    end_ids: Any,
    pad_id: int,
    length_limit: Any = None,
    seed: Any = 0,
    streams: Any = None,
    processors: Any = (),
    stop_sequences: Any = (),
    prompt: Any = None,
    prompt_hidden: Any = None,
) -> dict[str, Any]:
    """Generate tokens until every row has ended or reached its limit.

    The loop is one `keras.ops.while_loop` over tensors of fixed shapes. It runs on TensorFlow (eagerly, in a
    `tf.function`, with and without XLA, in a SavedModel) and on JAX, and ends as soon as all rows are finished.
    `step` is called once for each position until then; the last generated token is not fed any more.

    A row is finished when it has generated an end token or `length_limit` tokens; from then on it emits and is fed
    `pad_id`, and nothing of its result changes. The result of a row depends on the row alone: not on its neighbours,
    nor on the size of the batch, nor (with `streams`) on its place in it. This holds as far as `step` computes the same
    logits for a row in any company: matrix products may differ in the last bits between batch sizes.

    Args:
        step: Callable `step(token_ids, index, state, constants) -> (logits, state)`: takes the tokens `(rows,)` int32
            at position `index` (int32 scalar) and returns the logits `(rows, vocabulary)` of position `index + 1` and
            the new state, of the same structure, shapes and types. `rows` is `batch`, with beams `batch * num_beams`.
        state: Nested dict, list or tuple of tensors with the batch on axis 0: whatever depends on the tokens
            generated so far (caches). Beam search repeats it for every beam and reorders it.
        constants: Likewise, but fixed (an encoder's output, masks). Beam search repeats it and never reorders it.
        first_tokens: Integer tensor `(batch,)`: the start tokens, or the last tokens of the prompts.
        first_index: Integer or int32 scalar: the position of the first tokens.
        max_new_tokens: Length of the output, an integer of at least 1, or, on TensorFlow, an int32 scalar that
            follows from the shape of a tensor: one program then serves every length, at the cost of that length.
        sampler: A `Sampler`, a name or a dictionary, see `get_sampler`. One that reads hidden states asks more of the
            step, see `ContrastiveSearch`.
        end_ids: Id or ids of tokens that end a row; an empty sequence: only the limit ends it.
        pad_id: Id that fills the output behind the end.
        length_limit: Integer tensor `(batch,)`, the largest number of tokens to generate for each row (with the end
            token); above `max_new_tokens` means `max_new_tokens`; 0 or less: nothing is generated and the row
            costs no step. None: `max_new_tokens` for all rows.
        seed: Integer in [0, 2**32) or integer scalar tensor, for samplers that draw: the same seed gives the same
            random numbers on every backend, with and without XLA.
        streams: Integer tensor `(batch,)`, for samplers that draw: the stream of random numbers of each row. A row's
            numbers are a function of (seed, stream, number of tokens generated before), see `uniforms`. None: the row's
            index in the batch, so that equal prompts in one batch get different texts; to repeat row 3 of a batch
            alone, pass `streams=[3]`.
        processors: Logit processors, applied in this order before the sampler chooses; see `get_processors`.
        stop_sequences: Ids and sequences of ids that end a row, like an end token: generated tokens that spell one
            of them (the prompt does not count).
        prompt: Integer tensor `(batch, prompt_length)` with the tokens of the prompts, the first tokens included, for
            the processors; padded on the left with -1. None: no prompt.
        prompt_hidden: For `Contrastive`, the hidden states of the prompt without its last token. None where the prompt
            is that token alone.

    Returns:
        Dict of the tensors `token_ids` `(batch, max_new_tokens)` int32, the generated tokens with the end token and
        without the first tokens; `lengths` `(batch,)` int32, the number of generated tokens with those of the end;
        `end_lengths` `(batch,)` int32, how many tokens the end has: 1 for an end token, more for a stop sequence, 0
        where the limit cut the text; `finished` `(batch,)` bool, whether there is an end; `log_probabilities`
        `(batch,)` float32, log P of the generated tokens under the model's own distribution (before processors,
        temperature and restrictions).
        With `Beam` they are those of the best hypothesis, behind the processors, and `beams` holds a dict of all
        hypotheses, see `BeamSearch`.

    Raises:
        ValueError: If `max_new_tokens`, `end_ids`, `pad_id` or the number of rows of a tensor is not allowed.
        TypeError: If `sampler` is no sampler.

    Example:

    >>> table = keras.ops.eye(4)[[1, 2, 3, 0]] * 9                # token i is followed by i + 1
    >>> def step(token_ids, index, state, constants):
    ...     return keras.ops.take(table, token_ids, axis=0), state
    >>> decode(step, (), (), [0, 1], 0, 4, Greedy(), end_ids=3, pad_id=0)["token_ids"]
    [[1, 2, 3, 0], [2, 3, 0, 0]]
    """
    options = GenerationOptions(max_new_tokens, sampler, processors, stop_sequences, end_ids, pad_id)
    first_tokens = ops.cast(ops.convert_to_tensor(first_tokens), "int32")
    batch = ops.shape(first_tokens)[0]
    rows = {
        "length_limit": ops.full((batch,), max_new_tokens, "int32") if length_limit is None else length_limit,
        "streams": ops.arange(batch, dtype="int32") if streams is None else streams,
        "prompt": ops.zeros((batch, 0), "int32") if prompt is None else prompt,
    }
    state, constants = keras.tree.map_structure(ops.convert_to_tensor, (state, constants))
    given = {name: ops.convert_to_tensor(values) for name, values in rows.items()}
    given.update(state=state, constants=constants)
    _check_rows(first_tokens, given)
    if options.sampler.needs_hidden and prompt_hidden is None and given["prompt"].shape[1] != 1:
        raise ValueError(
            f"prompt_hidden must be given with {options.sampler!r}, which compares hidden states with those of the "
            "prompt, got None."
        )
    loop = options.sampler.make_loop(step, options)
    inputs = loop.inputs(
        first_tokens=first_tokens, first_index=first_index, seed=seed, prompt_hidden=prompt_hidden, **given
    )
    return loop.result(loop.advance(loop.start(inputs)))


def _check_rows(first_tokens: Any, structures: dict[str, Any]) -> None:
    """Every tensor must have the batch of `first_tokens` on axis 0, as far as the shapes are known now."""
    if len(first_tokens.shape) != 1:
        raise ValueError(f"first_tokens must have the shape (batch,), got {tuple(first_tokens.shape)}.")
    batch = first_tokens.shape[0]
    for name, structure in structures.items():
        for path, tensor in keras.tree.flatten_with_path(structure):
            shape = tuple(tensor.shape)
            if not shape or (batch is not None and shape[0] is not None and shape[0] != batch):
                where = "".join(f"[{key!r}]" for key in path)
                raise ValueError(
                    f"{name}{where} must have the batch ({batch} rows, as first_tokens) on axis 0, got the shape "
                    f"{shape}."
                )
