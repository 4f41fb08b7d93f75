"""Layers of one structure are traced once, and each computes with its own weights."""

import functools
import gc
import weakref

import keras
import numpy as np
import pytest
from keras import ops
from small_transformers import array, below, made, token_ids

tf = pytest.importorskip("tensorflow")

from layers import TransformerBlock  # noqa: E402
from layers.capture import Capture  # noqa: E402
from zoo import AttentionConfig, CausalLM, FeedForwardConfig, NormConfig, PositionConfig  # noqa: E402
from zoo.backbones import traced_once  # noqa: E402

pytestmark = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="of TensorFlow")
IDS, MASK = token_ids(2, 9), below([9, 6], 9)


@pytest.fixture
def traces(monkeypatch):
    """The blocks whose `call` runs, in order."""
    called, plain = [], TransformerBlock.call

    @functools.wraps(plain)
    def call(self, *arguments, **options):
        called.append(self)
        return plain(self, *arguments, **options)

    monkeypatch.setattr(TransformerBlock, "call", call)
    return called


def compiled(backbone, jit_compile=False):
    """The outputs in a graph."""
    function = tf.function(
        lambda ids, mask: backbone({"token_ids": ids, "padding_mask": mask}), autograph=False, jit_compile=jit_compile
    )
    return array(ops.cast(function(tf.constant(IDS), tf.constant(MASK)), "float32"))


def eager(backbone):
    return array(ops.cast(backbone({"token_ids": IDS, "padding_mask": MASK}), "float32"))


WINDOWS = AttentionConfig(4, window=(2, 0), window_layers=(True, False, False))
KINDS = {
    "alike": ({"num_layers": 5}, 1),
    "local and global": ({"num_layers": 6, "attention": WINDOWS}, 2),
    "dense and experts": (
        {
            "num_layers": 4,
            "feed_forward": FeedForwardConfig(
                8, gated=True, num_experts=4, experts_per_token=2, expert_layers=(False, True)
            ),
        },
        2,
    ),
    "bases by layer": (
        {"num_layers": 4, "attention": WINDOWS, "position": PositionConfig("rotary", local_base=100.0)},
        2,
    ),
    "shared bias": ({"num_layers": 4, "position": "relative_bias"}, 1),
    "shared weights": ({"num_layers": 4, "layer_groups": 2}, 1),
    "remat": ({"num_layers": 4, "remat": True}, 1),
    "norms after": ({"num_layers": 3, "norm": NormConfig("rms", "sandwich")}, 1),
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_graph_computes_what_the_layers_do(traces, kind, jit_compile):
    options, structures = KINDS[kind]
    backbone = made("decoder", **options)
    expected = eager(backbone)
    traces.clear()
    found = compiled(backbone, jit_compile)
    np.testing.assert_allclose(found[MASK], expected[MASK], atol=2e-5, rtol=2e-5)
    assert len(traces) == structures
    # another graph of the same shapes traces nothing, and new weights count
    for weight in backbone.trainable_weights:
        weight.assign(weight * 1.25)
    expected = eager(backbone)
    traces.clear()
    np.testing.assert_allclose(compiled(backbone)[MASK], expected[MASK], atol=5e-5, rtol=5e-5)
    assert not traces


def test_encoder_and_decoder(traces):
    backbone = made("encoder_decoder", num_layers=3)
    sides = {"token_ids": IDS, "padding_mask": MASK}
    inputs = {f"{side}_{name}": x for side in ("encoder", "decoder") for name, x in sides.items()}
    expected = array(backbone(inputs)["decoder_sequence_output"])
    traces.clear()
    function = tf.function(lambda inputs: backbone(inputs)["decoder_sequence_output"], autograph=False)
    found = array(function({name: tf.constant(x) for name, x in inputs.items()}))
    np.testing.assert_allclose(found[MASK], expected[MASK], atol=5e-5, rtol=5e-5)
    assert len(traces) == 2


def test_a_layer_with_updates_or_fewer_bits_has_a_function_of_its_own(traces):
    model = CausalLM(made("decoder", num_layers=4))
    backbone = model.backbone
    backbone.decoder.blocks[1].attention.query_projection.add_update("own", rank=2)
    for update in backbone.decoder.blocks[1].attention.query_projection.updates.values():
        update.lora_b.assign(np.random.default_rng(0).normal(size=update.lora_b.shape))
    backbone.decoder.blocks[2].feed_forward.up.quantize("int8")
    expected = eager(backbone)
    traces.clear()
    np.testing.assert_allclose(compiled(backbone)[MASK], expected[MASK], atol=2e-5, rtol=2e-5)
    assert [backbone.decoder.blocks.index(block) for block in traces] == [0, 1, 2]
    # without the update it is as the others
    backbone.decoder.blocks[1].attention.query_projection.active_updates = ()
    expected = eager(backbone)
    np.testing.assert_allclose(compiled(backbone)[MASK], expected[MASK], atol=2e-5, rtol=2e-5)


def test_captures_call_the_layers(traces):
    backbone = made("decoder", num_layers=3)
    inputs = {"token_ids": tf.constant(IDS), "padding_mask": tf.constant(MASK)}

    @tf.function(autograph=False)
    def captured():
        with Capture(["decoder.attention"]) as found:
            backbone(inputs)
        return found["decoder.attention"]

    assert len(captured()) == len(traces) == 3


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "bfloat16"])
def test_weights_are_rounded_where_a_layer_does(dtype):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(dtype)
    try:
        backbone = made("decoder", num_layers=3)
    finally:
        keras.config.set_dtype_policy(before)
    expected = eager(backbone)
    # the same operations in the same order; XLA and graphs keep no more bits between them
    np.testing.assert_allclose(compiled(backbone)[MASK], expected[MASK], atol=0.03 * np.abs(expected).max())


def test_functions_keep_no_program_alive(monkeypatch):
    """A graph and its tensors are gone when nobody uses it; the oldest functions are given up."""
    monkeypatch.setattr(traced_once, "_MOST_FUNCTIONS", 3)
    backbone = made("decoder", num_layers=2)
    graphs = []
    for length in range(4, 9):

        @tf.function(autograph=False)
        def run(ids):
            graphs.append(weakref.ref(tf.compat.v1.get_default_graph()))
            return backbone({"token_ids": ids, "padding_mask": ids >= 0})

        run(tf.constant(token_ids(1, length)))
        del run
    gc.collect()
    assert len(graphs) == 5 and not [graph for graph in graphs if graph() is not None]
    assert len(backbone.decoder._call_once._functions) == 3


def test_a_layer_of_a_decoding_step_has_few_operations():
    """Masks, angles and places in caches are made once for all layers, not within each."""
    config = {
        "norm": NormConfig("rms", "pre"),
        "position": "rotary",
        "dropout": 0.0,
        "attention": AttentionConfig(4, num_key_value_heads=2, use_bias=False),
        "feed_forward": FeedForwardConfig(24, activation="silu", gated=True, use_bias=False),
    }
    decoder = made("decoder", num_layers=3, **config).decoder
    caches = decoder.make_caches(1, 16)

    @tf.function(autograph=False, jit_compile=True)
    def step(x, index, start):
        positions = (index + tf.range(1))[None] - start[:, None]
        return decoder(x, caches=caches, cache_index=index, positions=positions, training=False)

    step(tf.zeros((1, 1, decoder.config.hidden_dim)), tf.constant(5), tf.constant([2]))
    (function,) = decoder._call_once._functions.values()
    operations = function.run.graph.get_operations()
    assert len(operations) <= 120, sorted(operation.type for operation in operations)
    facts = {"Cos", "Sin", "Range", "LessEqual", "GreaterEqual", "SelectV2", "Any", "BroadcastTo", "Shape", "Pack"}
    assert not facts & {operation.type for operation in operations}
