"""Tables of weights whose tensors are not simply kernels and biases, against NumPy."""

import keras
import numpy as np
import pytest
from small_transformers import TOLERANCE, array, made, token_ids

from zoo import AttentionConfig, EmbeddingConfig, FeedForwardConfig, NormConfig, PositionConfig
from zoo.huggingface import load_backbone, write_backbone
from zoo.huggingface.weights import Stored, named_layers, table_rows

EXPERTS, WIDTH, INNER = 3, 16, 6


@pytest.fixture(scope="module")
def experts():
    return made(
        "decoder",
        num_layers=1,
        attention=AttentionConfig(num_heads=4, head_dim=5, sinks=True),
        feed_forward=FeedForwardConfig(INNER, "silu", gated=True, num_experts=EXPERTS, shared_intermediate_dim=8),
    )


def tensors_of(backbone, table):
    """Tensors by name, after a round trip that begins with other weights."""
    layers = named_layers(backbone)
    names = {name.replace("{}", "0") for ours in table for name in ([ours] if isinstance(ours, str) else ours)}
    rows = table_rows({name: layer for name, layer in layers.items() if name in names}, table)
    tensors = {row.name: row.write() for row in rows}
    assert {row.name: row.shape for row in rows} == {name: tensor.shape for name, tensor in tensors.items()}
    before = backbone.get_weights()
    for row in rows:
        row.read(np.zeros(row.shape, "float32"))
    assert not all(np.array_equal(*both) for both in zip(before, backbone.get_weights(), strict=True))
    for row in rows:
        row.read(tensors[row.name])
    for first, second in zip(before, backbone.get_weights(), strict=True):
        np.testing.assert_array_equal(first, second)
    return tensors


def test_queries_keys_and_values_head_by_head(experts):
    names = tuple(f"decoder.{{}}.attention.{name}" for name in ("query", "key", "value"))
    tensors = tensors_of(experts, {names: Stored("layers.{}.query_key_value", groups=4)})
    attention = experts.decoder.blocks[0].attention
    parts = [getattr(attention, f"{name}_projection") for name in ("query", "key", "value")]
    for head in range(4):
        for place, part in enumerate(parts):
            rows, columns = slice((3 * head + place) * 5, (3 * head + place + 1) * 5), slice(head * 5, head * 5 + 5)
            kernel, bias = array(part.kernel)[:, columns], array(part.bias)[columns]
            np.testing.assert_array_equal(tensors["layers.0.query_key_value.weight"][rows], kernel.T)
            np.testing.assert_array_equal(tensors["layers.0.query_key_value.bias"][rows], bias)


def test_one_tensor_per_expert(experts):
    gate, down = (f"decoder.{{}}.feed_forward.experts.{name}" for name in ("gate", "down"))
    table = {gate: "layers.{}.experts.{}.w1", down: Stored("layers.{}.experts.{}.w2", transposed=False)}
    tensors, network = tensors_of(experts, table), experts.decoder.blocks[0].feed_forward
    assert len(tensors) == 4 * EXPERTS
    for expert in range(EXPERTS):
        name = f"layers.0.experts.{expert}"
        np.testing.assert_array_equal(tensors[f"{name}.w1.weight"], array(network.gate_kernel)[expert].T)
        np.testing.assert_array_equal(tensors[f"{name}.w1.bias"], array(network.gate_bias)[expert, 0])
        np.testing.assert_array_equal(tensors[f"{name}.w2.weight"], array(network.down_kernel)[expert])


def test_experts_of_width_one():
    """A kernel of one row is no bias, which has an axis of size 1 there."""
    network = FeedForwardConfig(1, "silu", gated=True, num_experts=EXPERTS)
    names = {part: f"decoder.{{}}.feed_forward.experts.{part}" for part in ("up", "down")}
    tensors = tensors_of(made("decoder", num_layers=1, feed_forward=network), {ours: ours for ours in names.values()})
    shapes = {name.split("experts.")[1]: tensor.shape for name, tensor in tensors.items()}
    assert shapes == {
        **{"up.weight": (EXPERTS, 1, WIDTH), "up.bias": (EXPERTS, 1)},
        **{"down.weight": (EXPERTS, WIDTH, 1), "down.bias": (EXPERTS, WIDTH)},
    }


def test_stacked_experts_whose_columns_take_turns(experts):
    gate, up = (f"decoder.{{}}.feed_forward.experts.{name}" for name in ("gate", "up"))
    options = {"transposed": False, "weight": "", "bias": "_bias"}
    tensors = tensors_of(experts, {(gate, up): Stored("layers.{}.gate_up_proj", groups=INNER, **options)})
    network = experts.decoder.blocks[0].feed_forward
    assert tensors["layers.0.gate_up_proj"].shape == (EXPERTS, WIDTH, 2 * INNER)
    for place, name in enumerate(("gate", "up")):
        kernel, bias = (array(getattr(network, f"{name}_{leaf}")) for leaf in ("kernel", "bias"))
        np.testing.assert_array_equal(tensors["layers.0.gate_up_proj"][..., place::2], kernel)
        np.testing.assert_array_equal(tensors["layers.0.gate_up_proj_bias"][..., place::2], bias[:, 0])
    transposed = tensors_of(experts, {(gate, up): "layers.{}.gate_up_proj"})["layers.0.gate_up_proj.weight"]
    kernels = np.concatenate([array(network.gate_kernel), array(network.up_kernel)], axis=-1)
    np.testing.assert_array_equal(transposed, kernels.transpose(0, 2, 1))


def test_router_shared_experts_and_sinks(experts):
    shared = "decoder.{}.feed_forward.shared"
    table = {
        "decoder.{}.feed_forward.router": "layers.{}.router",
        f"{shared}.up": "layers.{}.shared.up",
        "decoder.{}.attention.sinks": Stored("layers.{}.sinks", bias=""),
    }
    tensors, block = tensors_of(experts, table), experts.decoder.blocks[0]
    np.testing.assert_array_equal(tensors["layers.0.router.weight"], array(block.feed_forward.router.kernel).T)
    np.testing.assert_array_equal(
        tensors["layers.0.shared.up.weight"], array(block.feed_forward.shared_experts.up.kernel).T
    )
    np.testing.assert_array_equal(tensors["layers.0.sinks"], array(block.attention.sinks))


def test_groups_must_divide(experts):
    names = tuple(f"decoder.{{}}.attention.{name}" for name in ("query", "key", "value"))
    with pytest.raises(ValueError, match="decoder.0.attention.query must have a multiple of 7 outputs, got 20"):
        table_rows(named_layers(experts), {names: Stored("layers.{}.query_key_value", groups=7)})


@pytest.mark.parametrize(("rotary_dim", "norm", "family"), [(None, "rms", "qwen3"), (4, None, "phi3")])
def test_interleaved_pairs_are_written_as_half_split_ones(tmp_path, rotary_dim, norm, family):
    backbone = made(
        "decoder",
        PositionConfig("rotary", base=100.0, layout="interleaved", rotary_dim=rotary_dim),
        attention=AttentionConfig(4, 2, head_dim=6, use_bias=False, query_key_norm=norm),
        norm=NormConfig("rms", "pre"),
        feed_forward=FeedForwardConfig(24, "silu", gated=True, use_bias=False),
        embedding=EmbeddingConfig(),
        dropout=0.0,
    )
    # unless asked for one, it is written as a family that has such pairs, if there is one
    write_backbone(backbone, tmp_path / "written", model_type=family)
    again = load_backbone(tmp_path / "written")
    assert again.config.position.layout is None and again.config.position.rotary_dim == rotary_dim
    inputs = {"token_ids": token_ids(2, 7), "padding_mask": np.ones((2, 7), "bool")}
    np.testing.assert_allclose(array(again(inputs)), array(backbone(inputs)), **TOLERANCE)


def test_no_initial_weights_are_drawn(copy, reference, monkeypatch):
    """Nor later: Keras gives values to what waits for them when any layer is called symbolically."""

    def fail(*args, **kwargs):
        raise AssertionError("initial weights are drawn")

    for kind in ("TruncatedNormal", "RandomNormal", "GlorotUniform"):
        monkeypatch.setattr(getattr(keras.initializers, kind), "__call__", fail)
    backbone = load_backbone(reference / "bert_base")
    assert all(np.asarray(weight).shape == tuple(weight.shape) for weight in backbone.weights)
    with pytest.raises(ValueError, match="do not fit the configuration"):
        load_backbone(copy("bert_base", vocab_size=1000))
    keras.layers.Lambda(lambda x: x + 1)(keras.Input((1,)))
