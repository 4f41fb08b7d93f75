"""Decoding with your own step function: from first tokens to token ids."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from zoo.generation.request import GenerationOptions


def decode(
    step: Callable[[Any, Any, Any, Any], tuple[Any, Any]],
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
    """Generates tokens until every row has ended or reached its limit.

    The loop is one `keras.ops.while_loop` over tensors of fixed shapes. It runs on TensorFlow (eagerly, in a
    `tf.function`, with and without XLA, in a SavedModel) and on JAX, and ends as soon as all rows are finished.
    `step` is called once for each position. The last generated token is not fed to it.

    A row is finished when it has generated an end token or `length_limit` tokens. From then on `pad_id` is its input
    and output, and its result does not change. The result of a row does not depend on the other rows, on the size of
    the batch or, with `streams`, on its index. This assumes that `step` computes the same logits for a row in any
    batch; matrix products may differ in the last bits between batch sizes.

    Args:
        step: Callable `step(token_ids, index, state, constants) -> (logits, state)`. Takes the tokens `(rows,)` int32
            at position `index` (int32 scalar). Returns the logits `(rows, vocabulary)` of position `index + 1` and the
            new state, of the same structure, shapes and types. `rows` is `batch`, or `batch * num_beams` with beams.
        state: Nested dict, list or tuple of tensors with the batch on axis 0, which depend on the generated tokens
            (caches). Beam search repeats it for every beam and reorders it.
        constants: The same kind of structure for tensors that do not change (an encoder's output, masks). Beam search
            repeats it and never reorders it.
        first_tokens: Integer tensor `(batch,)`: the start tokens, or the last tokens of the prompts.
        first_index: Integer or int32 scalar: the position of the first tokens.
        max_new_tokens: Length of the output, an integer of at least 1. On TensorFlow also an int32 scalar that is
            computed from the shape of a tensor, so that one program serves every length.
        sampler: A `Sampler`, a name or a dictionary, see `get_sampler`. A sampler that reads hidden states needs
            another `step`, see `ContrastiveSearch`.
        end_ids: Id or ids of tokens that end a row. With an empty sequence only the limit ends it.
        pad_id: Id that fills the output after the end.
        length_limit: Integer tensor `(batch,)`, the largest number of tokens to generate for each row, end token
            included. It is at most `max_new_tokens`. With 0 or less nothing is generated, and the row takes no step.
            None: `max_new_tokens` for all rows.
        seed: Integer in [0, 2**32) or integer scalar tensor, for random samplers. The same seed gives the same random
            numbers on every backend, with and without XLA.
        streams: Integer tensor `(batch,)`, for random samplers: the stream of random numbers of each row. The numbers
            of a row are a function of (seed, stream, number of tokens generated before), see `uniforms`. None: the
            row's index in the batch, so that equal prompts in a batch get different texts. To repeat row 3 of a batch
            alone, pass `streams=[3]`.
        processors: Logit processors, applied in this order before the sampler chooses; see `get_processors`.
        stop_sequences: Ids and sequences of ids that end a row when they have been generated. Those in the prompt do
            not count.
        prompt: Integer tensor `(batch, prompt_length)` with the tokens of the prompts, the first tokens included, for
            the processors; padded on the left with -1. None: no prompt.
        prompt_hidden: For `Contrastive`, the hidden states of the prompt without its last token. None if the prompt has
            one token.

    Returns:
        Dict of tensors:

        * `token_ids`, int32 `(batch, max_new_tokens)`: the generated tokens, without the first tokens, with the end.
        * `lengths`, int32 `(batch,)`: the number of generated tokens, with the end.
        * `end_lengths`, int32 `(batch,)`: the number of tokens of the end: 1 for an end token, more for a stop
          sequence, 0 if the limit cut the text.
        * `finished`, bool `(batch,)`: whether the text has an end.
        * `log_probabilities`, float32 `(batch,)`: log P of the generated tokens under the model's own distribution,
          before processors, temperature and restrictions.

        * `running_log_probabilities`, float32 `(batch, max_new_tokens)`: those of the first tokens, up to each one;
          behind the end all of them.

        With `Beam` these are the values of the best hypothesis, and log-probabilities are those after the processors.
        `beams` then holds a dict of all hypotheses, see `BeamSearch`.

    Raises:
        ValueError: If `max_new_tokens`, `end_ids`, `pad_id` or the number of rows of a tensor is not allowed.
        TypeError: If `sampler` is not a sampler.

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
