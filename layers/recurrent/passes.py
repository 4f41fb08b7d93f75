"""How a `RecurrentDecoder` reads a whole target: at once, step by step, or partly from its own output.

All functions take the decoder, the embedded target `(batch, length, embedding_dim)` and the results of `decoder.start`.
They return the readouts `(batch, length, output_dim)` and the weights, `(batch, length, source_length)` or None.
"""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from layers.dropout import dropout_multiplier
from layers.recurrent.loop import Features, run_steps


def _multipliers(decoder: Any, like: Any, width: int, training: Any) -> Any:
    """Dropout factors of the decoder for a tensor `(batch, length, width)`, or None.

    Args:
        decoder: The decoder.
        like: A tensor `(batch, length, ...)`.
        width: Size of the last axis.
        training: Whether dropout is active.
    """
    if not training or not decoder.rate:
        return None
    shape = (*ops.shape(like)[:2], width)
    return dropout_multiplier(shape, decoder.rate, decoder.seed_generator, decoder.compute_dtype)


def _drop(decoder: Any, x: Any, training: bool | None) -> Any:
    factors = _multipliers(decoder, x, x.shape[-1], training)
    return x if factors is None else x * factors


def _layer_multipliers(decoder: Any, embedded: Any, training: bool | None) -> Any:
    return {
        f"layer_{index}": _multipliers(decoder, embedded, decoder.units, training)
        for index in range(1, len(decoder.recurrent_layers))
    }


def _by_layer(parts: Any) -> Any:
    return {int(name.removeprefix("layer_")): part for name, part in parts.items() if name.startswith("layer_")}


def read_at_once(
    decoder: Any, embedded: Any, state: dict[str, Any], constants: dict[str, Any], training: Any
) -> tuple[Any, Any]:
    """Computes all positions of each layer in one call, for decoders whose inputs do not depend on their outputs."""
    output = embedded = _drop(decoder, embedded, training)
    context, weights = constants.get("context"), None
    for index, layer in enumerate(decoder.recurrent_layers):
        if index:
            output = _drop(decoder, output, training)
        output, _ = layer(
            output,
            initial_state=state["layers"][index],
            context=None if index else context,
            training=training,
        )
    if decoder.attention is not None:
        steps = ops.arange(ops.shape(embedded)[1]) + 1
        context, weights = decoder.attend(output, constants, steps)
    elif context is not None:
        shape = (*ops.shape(embedded)[:2], context.shape[-1])
        context = ops.broadcast_to(ops.expand_dims(context, 1), shape)
    return decoder.readout(output, context, embedded), weights


def read_in_loop(
    decoder: Any, embedded: Any, state: dict[str, Any], constants: dict[str, Any], return_weights: bool, training: Any
) -> tuple[Any, Any]:
    """Computes position by position. What does not depend on the state is computed before or after the loop."""
    embedded = _drop(decoder, embedded, training)
    project, advance = decoder.make_advance(constants, embedded.shape[-1])
    features = Features(projected=project(embedded), **_layer_multipliers(decoder, embedded, training))

    def step(columns: Any, flat: Any) -> Any:
        carried, parts = keras.tree.pack_sequence_as(state, flat), features.split(columns)
        output, context, weights, layers = advance(parts["projected"], carried, _by_layer(parts))
        readout = None
        if decoder.input_feeding:
            readout = decoder.readout(output, context)
            results = {"readout": readout}
        else:
            results = {"output": output, "context": context}
        if return_weights:
            results["weights"] = weights
        return results, keras.tree.flatten(decoder.new_state(carried, layers, readout))

    results, _ = run_steps(step, features.joined, keras.tree.flatten(state))
    readout = results.get("readout")
    if readout is None:
        readout = decoder.readout(results["output"], results["context"], embedded)
    return readout, results.get("weights")


def read_own_output(
    decoder: Any,
    embedded: Any,
    state: dict[str, Any],
    constants: dict[str, Any],
    use_gold: Any,
    choose: Callable[[Any, Any], Any],
    numbers: Any,
    return_weights: bool,
    training: Any,
) -> tuple[Any, Any]:
    """Computes position by position, with inputs that are partly the model's own output; see `RecurrentDecoder`."""
    project, advance = decoder.make_advance(constants, embedded.shape[-1])
    first = ops.expand_dims(ops.arange(ops.shape(embedded)[1]) == 0, 0)
    gold = ops.logical_or(ops.cast(use_gold, "bool"), first)
    state = {**state, "fed": ops.zeros_like(embedded[:, 0])}
    features = Features(
        # in float32, because half precision would round the random numbers
        numbers=ops.expand_dims(ops.cast(numbers, "float32"), -1),
        gold=ops.expand_dims(ops.cast(gold, "float32"), -1),
        embedded=embedded,
        input=_multipliers(decoder, embedded, embedded.shape[-1], training),
        **_layer_multipliers(decoder, embedded, training),
    )

    def step(columns: Any, flat: Any) -> Any:
        carried, parts = keras.tree.pack_sequence_as(state, flat), features.split(columns)
        number, gold = parts.pop("numbers")[:, 0], parts.pop("gold") > 0.5
        parts = {name: ops.cast(part, decoder.compute_dtype) for name, part in parts.items()}
        token = ops.where(gold, parts["embedded"], carried["fed"]) * parts.get("input", 1)
        output, context, weights, layers = advance(project(token), carried, _by_layer(parts))
        readout = decoder.readout(output, context, token)
        new = decoder.new_state(carried, layers, readout)
        new["fed"] = ops.cast(ops.stop_gradient(choose(readout, number)), decoder.compute_dtype)
        results = {"readout": readout}
        if return_weights and weights is not None:
            results["weights"] = weights
        return results, keras.tree.flatten(new)

    results, _ = run_steps(step, features.joined, keras.tree.flatten(state))
    return results["readout"], results.get("weights")
