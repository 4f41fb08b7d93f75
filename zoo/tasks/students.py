"""A smaller task with some of the layers of another one, to be trained as its student."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import keras

from zoo.backbones.backbone import Backbone, default_policy
from zoo.config import FeedForwardConfig, TransformerConfig
from zoo.config.checks import in_pattern
from zoo.preprocessing.rows import require_count


def every_other(number: int) -> list[int]:
    """Returns the indices of every other layer, beginning with the first.

    Args:
        number: Number of layers.

    Reference:
        Sanh et al. 2019, "DistilBERT", section 2 ("taking one layer out of two").
    """
    return list(range(0, number, 2))


def keep_layers(task: Any, layers: Sequence[int], decoder_layers: Sequence[int] | None = None) -> Any:
    """Returns a copy of a task with fewer layers. The weights are copied.

    Args:
        task: A task on a Transformer.
        layers: Indices of the layers to keep, from 0, ascending: in the only stack, or in the encoder.
        decoder_layers: Indices of the decoder layers to keep, for an encoder-decoder. Default all.

    Returns:
        A task of the same class, with the same preprocessor.

    Raises:
        ValueError: If an index is out of range, if the weights are adapted or quantized, or if layers cannot be removed
            because they share weights or depend on their index.

    Example:

    >>> student = keep_layers(teacher, every_other(teacher.backbone.config.num_layers))

    Reference:
        Sanh et al. 2019, "DistilBERT", section 2; Shleifer and Rush 2020, "Pre-trained Summarization Distillation",
        section 3.1 (shrink and fine-tune).
    """
    config = task.backbone.config
    if not isinstance(config, TransformerConfig):
        raise ValueError(f"task must have a Transformer, got a {type(config).__name__}.")
    task.adaptation.require_own("keep_layers()")
    if task.adaptation.mode is not None or len(task.backbone.adapters):
        raise ValueError("task must have neither quantized weights nor low-rank updates: call merge_lora() first.")
    kept = {"layers": _checked("layers", layers, config.num_layers)}
    if config.architecture == "encoder_decoder":
        number = config.num_decoder_layers or config.num_layers
        given = range(number) if decoder_layers is None else decoder_layers
        kept["decoder_layers"] = _checked("decoder_layers", given, number)
    elif decoder_layers is not None:
        raise ValueError(f"decoder_layers must be None with one stack, got {list(decoder_layers)}.")
    with default_policy(task.dtype_policy):
        backbone = Backbone.from_config(_smaller(config, kept))
        backbone.origin = task.backbone.origin
        student = type(task)(backbone, task.preprocessor, **task.own_options())
    _copy(task, student, kept)
    return student


def _checked(name: str, layers: Sequence[int], number: int) -> list[int]:
    numbers = [require_count(layer, f"an entry of {name}", 0, number - 1) for layer in layers]
    if not numbers or numbers != sorted(set(numbers)):
        raise ValueError(f"{name} must be at least one number of a layer, ascending, got {list(layers)}.")
    return numbers


def _smaller(config: TransformerConfig, kept: dict[str, list[int]]) -> TransformerConfig:
    """The configuration with the layers that are kept; layers of several kinds stay of the kind that they are of."""
    layers = kept["layers"]
    for name, differs in (
        ("layer_groups", config.layer_groups is not None),
        ("residual_scale", config.residual_scale == "deep_norm"),
        ("attention.scale_by_layer", config.attention.scale_by_layer),
        ("norm.first_attention=False", not config.norm.first_attention and layers[0] != 0),
    ):
        if differs:
            raise ValueError(f"layers of a model with {name} cannot be left out: their results depend on all layers.")
    position = config.position_in_attention
    patterns = (
        ("attention", "window_layers", config.attention.window_layers),
        ("feed_forward", "expert_layers", config.feed_forward.expert_layers),
        ("feed_forward", "layers", config.feed_forward.layers),
        ("mixer", "layers", None if config.mixer is None else config.mixer.layers),
        ("position" if config.attention_position is None else "attention_position", "layers", position.layers),
    )
    without = {"feed_forward": FeedForwardConfig(layers=(False,)), "mixer": None}
    parts = {}
    for part, name, pattern in patterns:
        if pattern is None:
            continue
        if "decoder_layers" in kept:
            raise ValueError(f"layers of an encoder-decoder with {part}.{name} cannot be left out.")
        chosen = tuple(in_pattern(pattern, layer) for layer in layers)
        if name == "layers" and part in without and True not in chosen:
            parts[part] = without[part]
        else:
            parts[part] = dataclasses.replace(getattr(config, part), **{name: chosen})
    numbers = {"num_layers": len(layers)}
    if "decoder_layers" in kept:
        numbers["num_decoder_layers"] = len(kept["decoder_layers"])
    return dataclasses.replace(config, **numbers, **parts)


def _copy(task: Any, student: Any, kept: dict[str, list[int]]) -> None:
    pairs = [(_outside_blocks(task), _outside_blocks(student))]
    stacks = [stack for stack in ("encoder", "decoder") if getattr(task.backbone, stack) is not None]
    for stack, numbers in zip(stacks, kept.values(), strict=True):
        old, new = (getattr(each.backbone, stack).blocks for each in (task, student))
        pairs += [(old[number].weights, block.weights) for number, block in zip(numbers, new, strict=True)]
    for old, new in pairs:
        for source, target in zip(old, new, strict=True):
            target.assign(keras.ops.cast(source, target.dtype))


def _outside_blocks(task: Any) -> list[Any]:
    stacks = (task.backbone.encoder, task.backbone.decoder)
    blocks = [block for stack in stacks if stack is not None for block in stack.blocks]
    inside = {id(weight) for block in blocks for weight in block.weights}
    return [weight for weight in task.weights if id(weight) not in inside]
