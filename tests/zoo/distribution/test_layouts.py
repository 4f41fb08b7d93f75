"""Each weight of every model has a role, from which follows how devices share it."""

import keras
import numpy as np
import pytest

import zoo
from layers import FeedForward, MultiHeadAttention
from layers.roles import COLUMNS, ROWS, WHOLE, Role
from zoo.distribution.layouts import own_replicas, partition_of, partitions_of, roles_of
from zoo.storage.deferred import shapes_only


def made(config):
    with shapes_only():
        return zoo.Backbone.from_config(config)


def partitions(model, devices):
    return {weight.path.partition("/")[2]: partition for weight, partition in partitions_of(model, devices)}


def llama(**options):
    sizes = {"hidden_dim": 16, "num_layers": 1, "max_length": 8}
    return zoo.TransformerConfig(
        "decoder",
        20,
        **sizes,
        attention=zoo.AttentionConfig(4, **{"num_key_value_heads": 2, "use_bias": True, **options}),
        feed_forward=zoo.FeedForwardConfig(32, "silu", gated=True),
        norm=zoo.NormConfig("rms", "pre"),
        embedding=zoo.EmbeddingConfig(tie_output=False),
        position=zoo.PositionConfig("rotary"),
    )


def test_decoder_is_shared_as_in_megatron():
    """Shoeybi et al. 2019, section 3: columns of what comes first, rows of what follows, one sum per sublayer."""
    found = partitions(made(llama()), 2)
    block = "decoder/block_0"
    expected = {"token_embedding/table/embeddings": ("model", None), "output_projection/kernel": (None, "model")}
    for name in ("attention/query", "attention/key", "attention/value", "feed_forward/gate", "feed_forward/up"):
        expected |= {f"{block}/{name}/kernel": (None, "model"), f"{block}/{name}/bias": ("model",)}
    for name in ("attention/output", "feed_forward/down"):
        expected |= {f"{block}/{name}/kernel": ("model", None), f"{block}/{name}/bias": (None,)}
    for name in ("attention_norm", "feed_forward_norm"):
        expected[f"{block}/{name}/scale"] = (None,)
    expected["decoder/final_norm/scale"] = (None,)
    found.pop("output_projection/bias", None)
    assert found == expected


def test_fewer_heads_of_keys_than_devices_are_on_all_of_them():
    found = partitions(made(llama()), 4)
    assert found["decoder/block_0/attention/query/kernel"] == (None, "model")
    assert found["decoder/block_0/attention/key/kernel"] == (None, None)
    assert found["decoder/block_0/attention/value/bias"] == (None,)


def test_heads_that_the_devices_do_not_divide():
    with pytest.raises(ValueError, match="'model' of the mesh must divide the 4 heads of .*query/kernel, got 3"):
        partitions(made(llama()), 3)


def test_all_devices_have_a_part_of_each_expert():
    config = zoo.TransformerConfig(
        "decoder",
        20,
        hidden_dim=16,
        num_layers=1,
        max_length=8,
        attention=zoo.AttentionConfig(4),
        # a number of experts that the devices need not divide
        feed_forward=zoo.FeedForwardConfig(32, num_experts=5, shared_intermediate_dim=8, gated=True),
    )
    found = partitions(made(config), 2)
    experts = "decoder/block_0/feed_forward"
    for name in ("gate", "up"):
        assert found[f"{experts}/{name}_kernel"] == found[f"{experts}/{name}_bias"] == (None, None, "model")
    assert found[f"{experts}/down_kernel"] == (None, "model", None)
    assert found[f"{experts}/down_bias"] == (None, None, None)
    assert found[f"{experts}/router/kernel"] == (None, None)
    assert found[f"{experts}/shared_experts/down/kernel"] == ("model", None)


def test_vocabulary_of_any_size():
    """GPT-2 has 50,257 tokens, 29 * 1,733."""
    weight = keras.Variable(np.zeros((29, 8)))
    assert partition_of(weight, Role("vocabulary"), 29) == ("model", None)
    assert partition_of(weight, Role("vocabulary"), 4) == (None, "model")
    assert partition_of(weight, Role("vocabulary"), 3) == (None, None)
    transposed = keras.Variable(np.zeros((8, 29)))
    assert partition_of(transposed, Role("output_vocabulary"), 29) == (None, "model")
    assert partition_of(transposed, Role("output_vocabulary"), 4) == ("model", None)


def test_low_rank_updates_lie_beside_their_kernels():
    model = zoo.CausalLM(zoo.Backbone.from_config(llama()))
    model.enable_lora(2, targets=["query", "output"], dora=True)
    found = partitions(model.backbone, 2)
    updates = {path.split("/", 2)[2]: value for path, value in found.items() if "lora" in path}
    assert updates == {
        "attention/query/update_default/lora_a": (None, None),
        "attention/query/update_default/lora_b": (None, "model"),
        "attention/query/update_default/lora_magnitude": ("model",),
        "attention/output/update_default/lora_a": ("model", None),
        "attention/output/update_default/lora_b": (None, None),
        "attention/output/update_default/lora_magnitude": (None,),
    }


def in_model(*parts):
    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.parts = list(parts)

    return Model()


def test_a_weight_without_a_role():
    class Scaled(keras.layers.Layer):
        def build(self, shape):
            self.factor = self.add_weight(shape=(), name="factor")

    layer = Scaled()
    layer.build(None)
    with pytest.raises(ValueError, match="factor has no role: Scaled must name it in weight_roles"):
        roles_of(in_model(layer))


def test_a_weight_with_two_roles():
    class Wrapped(keras.layers.Layer):
        def __init__(self, layer, role):
            super().__init__()
            self.layer = layer
            self.weight_roles = {layer.name: role}

    dense = keras.layers.Dense(4, name="dense")
    dense.build((None, 4))
    with pytest.raises(ValueError, match="must have one role, got .*columns.* and .*rows"):
        roles_of(in_model(Wrapped(dense, COLUMNS), Wrapped(dense, ROWS)))
    attention = MultiHeadAttention(2, 4, name="attention")
    attention.build((None, None, 8))
    with pytest.raises(ValueError, match="attention must have one role"):
        roles_of(in_model(Wrapped(attention, WHOLE)))


def test_a_width_that_the_devices_do_not_divide():
    layer = FeedForward(6)
    layer.build((None, None, 8))
    with pytest.raises(ValueError, match="must divide the width 6 of .*up/kernel, got 4"):
        partitions_of(in_model(layer), 4)


@pytest.mark.parametrize(
    ("processes", "expected"),
    [
        ([[0, 0], [1, 1]], [[0], [1]]),
        ([[0], [1], [0], [1]], [[0, 2], [1, 3]]),  # as devices of a slice of TPUs may be numbered
        ([[0, 1], [0, 1]], [[0, 1], [0, 1]]),
        ([[0, 1], [2, 3]], [[0], [0], [1], [1]]),
    ],
)
def test_replicas_of_each_process(processes, expected):
    assert [own_replicas(np.array(processes), index) for index in range(len(expected))] == expected


def test_processes_that_have_a_part_of_a_replica():
    with pytest.raises(ValueError, match=r"got \{'data': 3, 'model': 2\} on 2 processes with 3 devices each"):
        own_replicas(np.array([[0, 0], [0, 1], [1, 1]]), 0)


@pytest.mark.slow
def test_all_presets():
    """Roles are complete, and what devices hold together is the model."""
    too_few = {}
    for name, preset in zoo.list_presets().items():
        backbone = made(preset.config)
        assert len(roles_of(backbone)) == len(backbone.weights), name
        try:
            shared = partitions_of(backbone, 2)
        except ValueError as error:
            assert "must divide the" in str(error)
            too_few[name] = str(error)
            continue
        whole = sum(int(np.prod(weight.shape)) for weight, _ in shared)
        part = sum(int(np.prod(weight.shape)) // (2 if "model" in axes else 1) for weight, axes in shared)
        for weight, axes in shared:
            assert len(axes) == len(weight.shape)
            assert all(size % 2 == 0 for size, axis in zip(weight.shape, axes, strict=True) if axis)
        if type(backbone).__name__ == "Transformer":
            assert part < 0.62 * whole, name
    print(too_few)
