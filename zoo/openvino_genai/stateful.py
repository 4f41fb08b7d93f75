"""A decoder as one graph of OpenVINO that keeps keys and values as its state, as OpenVINO GenAI asks."""

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from layers.attention.runtime_cache import RuntimeCache
from layers.fusion import portable_operations
from layers.positions.base import PositionHooks
from zoo.openvino_genai.attention import attention_class
from zoo.openvino_genai.conversion import converted
from zoo.openvino_genai.positions import positions_as_tables

INPUTS = ("input_ids", "attention_mask", "position_ids")
LOGITS, BEAMS = "logits", "beam_idx"
# What stands for attention in the graph that is traced. No layer of a model has such an operation.
_ATTENTION = "PyFunc"


def require_stateful(backbone: Any) -> None:
    """Raises a ValueError if a backbone has no form with keys and values as a state.

    Args:
        backbone: The backbone of a causal language model.
    """
    reason = why_not_stateful(backbone)
    if reason is not None:
        raise ValueError(
            f"The format 'openvino_genai' cannot hold this model: {reason}. The format 'openvino' leaves the caches "
            "to the caller, and a SavedModel (format='tf_saved_model') holds every model."
        )


def why_not_stateful(backbone: Any) -> str | None:
    """Returns why a backbone has no such form, as a sentence; None if it has one.

    Args:
        backbone: The backbone of a causal language model.
    """
    config = backbone.config
    if getattr(config, "architecture", None) != "decoder":
        return f"it is a {type(backbone).__name__} that is no decoder"
    if not backbone.decodes_rows:
        return "its positions depend on the length of the whole text, which a step does not know"
    if config.mixer is not None:
        return "it has layers without attention, whose state is no key and value of each token"
    for attention in backbone.decoder.attentions.values():
        hooks = type(attention.position_hooks())
        if hooks.on_pairs is not PositionHooks.on_pairs or hooks.on_output is not PositionHooks.on_output:
            return (
                f"its positions ({config.position_in_attention.kind}) change pairs of queries and keys, or the results"
            )
        if attention.weighting is not None:
            return "its attention has weights of its own in the place of the softmax"
        if attention.has_sinks:
            return "its attention has sinks"
    if any(config.feed_forward.has_experts(index) for index in range(config.num_layers)):
        return "it has experts, whose results in OpenVINO change with the padding of a batch"
    return None


def is_plain(backbone: Any) -> bool:
    """Returns whether attention is a softmax of products in causal order, without bias, window or bound of scores.

    Paged caches (continuous batching) compute this alone: they look at no mask.

    Args:
        backbone: The backbone.
    """
    return all(
        attention.window is None
        and attention.block_size is None
        and attention.latents is None
        and attention.logit_soft_cap is None
        and type(attention.position_hooks()).score_bias is PositionHooks.score_bias
        for attention in backbone.decoder.attentions.values()
    )


def stateful_model(backbone: Any, last_alone: bool = False) -> Any:
    """Returns a decoder as an `openvino.Model` that keeps keys and values as its state.

    Its inputs are `input_ids` and `position_ids`, int64 `(batch, length)`; `attention_mask`, int64 `(batch, length of
    the text so far)`, 0 where a row is padded on the left; and `beam_idx`, int32 `(batch,)`, the row of the last call
    that each row goes on from. Its output is `logits`, float32 `(batch, length, vocabulary)`.

    Args:
        backbone: The backbone.
        last_alone: Whether there are logits of the last position alone, `(batch, 1, vocabulary)`.

    Raises:
        ValueError: If it has no such form.
    """
    require_stateful(backbone)
    model = _converted(backbone, last_alone)
    soft_caps = [block.attention.logit_soft_cap for block in backbone.decoder.layers_in_order()]
    _insert_state(model, None if is_plain(backbone) else soft_caps)
    return model


def _traced(backbone: Any, last_alone: bool) -> Any:
    """The function of the inputs, in which attention is an operation without a meaning."""
    import tensorflow as tf
    from keras import ops

    def attention(query: Any, key: Any, value: Any, mask: Any, *, scale: float, bias: Any = None, **others: Any) -> Any:
        drawn = mask.drawn
        addend = -ops.cast(drawn.penalty, "float32")
        if bias is not None:
            if callable(bias):
                query_length, key_length = ops.shape(mask.query_positions)[-1], ops.shape(mask.key_positions)[-1]
                bias = bias(mask.positions_of_queries(query_length), mask.positions_of_keys(key_length))
            addend = addend + ops.cast(bias, "float32")
        inputs = [query, key, value, addend, tf.constant(scale, tf.float32)]
        (result,) = tf.raw_ops.PyFunc(input=inputs, token="attention", Tout=[tf.float32])
        result.set_shape((*query.shape[:3], value.shape[3]))
        return result

    def logits(input_ids: Any, attention_mask: Any, position_ids: Any) -> dict[str, Any]:
        length, whole = tf.shape(input_ids)[1], tf.shape(attention_mask)[1]
        # those of padding on the left have no meaning, so the last one says where a row is
        first = tf.cast(position_ids[:, -1], tf.int32) - (length - 1)
        positions = first[:, None] + tf.range(length)
        caches = [dict.fromkeys(("key", "value"), tf.zeros((1, 1, whole - length, 1)))] * backbone.config.num_layers
        with portable_operations(attention=attention), _kept_by_runtime(backbone), positions_as_tables(backbone):
            hidden, _ = backbone.decoder(
                backbone.embed(input_ids),
                caches=caches,
                cache_index=first,
                positions=positions,
                padding_mask=tf.cast(attention_mask, tf.bool),
                training=False,
            )
            return {LOGITS: ops.cast(backbone.logits(hidden[:, -1:] if last_alone else hidden), "float32")}

    specs = [tf.TensorSpec((None, None), tf.int64, name) for name in INPUTS]
    return tf.function(logits, input_signature=specs, autograph=False).get_concrete_function()


@contextlib.contextmanager
def _kept_by_runtime(backbone: Any) -> Iterator[None]:
    attentions = list(backbone.decoder.attentions.values())
    layouts = [attention.cache_layout for attention in attentions]
    try:
        for attention in attentions:
            attention.cache_layout = RuntimeCache()
        yield
    finally:
        for attention, layout in zip(attentions, layouts, strict=True):
            attention.cache_layout = layout


def _converted(backbone: Any, last_alone: bool) -> Any:
    """The graph of OpenVINO, with its weights, in which attention sees the new keys and values alone."""
    from openvino.frontend.tensorflow import ConversionExtension

    def attention(node: Any) -> Any:
        return attention_class()([node.get_input(place) for place in range(5)]).outputs()

    return converted(_traced(backbone, last_alone), LOGITS, ConversionExtension(_ATTENTION, attention))


def _insert_state(model: Any, soft_caps: list[float | None] | None) -> None:
    """Puts the keys and values of earlier calls before the new ones.

    Args:
        model: The graph.
        soft_caps: For attention that is to be written as products and a softmax, the bound of the scores of each layer.
    """
    import openvino
    from openvino import opset13
    from openvino._offline_transformations import apply_make_stateful_transformation

    def integers(*values: int) -> Any:
        return opset13.constant(np.array(values, "int64"))

    beams = opset13.parameter(openvino.PartialShape([-1]), openvino.Type.i32, name=BEAMS)
    beams.output(0).get_tensor().set_names({BEAMS})
    parameters, results = [beams], []
    nodes = [node for node in model.get_ordered_ops() if node.get_type_name() == "Attention"]
    for layer, node in enumerate(nodes):
        query, *pair, addend, scale = (node.input_value(place) for place in range(5))
        heads = query.get_partial_shape()[1].get_length()
        whole = []
        for kind, new in zip(("key", "value"), pair, strict=True):
            _, own_heads, _, width = (size.get_length() if size.is_static else -1 for size in new.get_partial_shape())
            shape = openvino.PartialShape([-1, own_heads, -1, width])
            past = opset13.parameter(shape, openvino.Type.f32, name=f"past_key_values.{layer}.{kind}")
            past.output(0).get_tensor().set_names({past.get_friendly_name()})
            entries = opset13.concat([opset13.gather(past, beams, opset13.constant(np.int64(0))), new], axis=2)
            result = opset13.result(entries)
            result.output(0).get_tensor().set_names({f"present.{layer}.{kind}"})
            parameters.append(past)
            results.append(result)
            if own_heads != heads:  # the form in which runtimes recognise groups of heads
                grouped = opset13.unsqueeze(entries, opset13.constant(np.int64(2)))
                wide = opset13.broadcast(
                    grouped, integers(1, 1, heads // own_heads, 1, 1), broadcast_spec="BIDIRECTIONAL"
                )
                entries = opset13.reshape(wide, integers(0, heads, -1, width), special_zero=True)
            whole.append(entries)
        if soft_caps is None:
            attended = opset13.scaled_dot_product_attention(query, *whole, addend, scale)
        else:
            scores = opset13.multiply(opset13.matmul(query, whole[0], False, True), scale)
            if soft_caps[layer] is not None:
                cap = opset13.constant(np.float32(soft_caps[layer]))
                scores = opset13.multiply(opset13.tanh(opset13.divide(scores, cap)), cap)
            weights = opset13.softmax(opset13.add(scores, addend), -1)
            attended = opset13.matmul(weights, whole[1], False, False)
        node.output(0).replace(attended.output(0))
    model.add_parameters(parameters)
    model.add_results(results)
    model.validate_nodes_and_infer_types()
    pairs = [f"{layer}.{kind}" for layer in range(len(nodes)) for kind in ("key", "value")]
    apply_make_stateful_transformation(model, {f"past_key_values.{name}": f"present.{name}" for name in pairs})
    # a state begins without entries, for as many rows as there are texts
    shape = opset13.shape_of(model.input(INPUTS[0]), output_type="i64")
    rows = opset13.gather(shape, integers(0), opset13.constant(np.int64(0)))
    for node in model.get_ops():
        if node.get_type_name() == "ReadValue":
            _, heads, _, width = node.get_output_partial_shape(0)
            sizes = opset13.concat([rows, integers(heads.get_length(), 0, width.get_length())], axis=0)
            node.set_arguments([opset13.broadcast(opset13.constant(np.float32(0)), sizes)])
    model.validate_nodes_and_infer_types()
