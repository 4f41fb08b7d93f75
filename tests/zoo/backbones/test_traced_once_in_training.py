"""Training steps whose layers are traced once: as those that trace each layer, on every backend."""

import contextlib
import functools

import keras
import numpy as np
import pytest
from small_transformers import VOCABULARY, made, token_ids

from layers import TransformerBlock
from layers.dropout import Dropout
from layers.keras_internals import is_inferring_shapes, sublayers, unlocked
from zoo import AttentionConfig, CausalLM, FeedForwardConfig, NormConfig, Seq2SeqLM
from zoo.backbones import traced_once
from zoo.training import TokenCrossEntropy

pytestmark = pytest.mark.backends
ON_TENSORFLOW = keras.backend.backend() == "tensorflow"
# of `compile`, for programs in which layers are traced once; without XLA, JAX computes each operation at once
IN_PROGRAMS = {"jit_compile": not ON_TENSORFLOW}
ROWS, LENGTH = 6, 9
EXPERTS = FeedForwardConfig(
    8,
    gated=True,
    num_experts=4,
    experts_per_token=2,
    expert_layers=(False, True),
    load_balance_weight=0.1,
    bias_update_rate=0.01,
    scoring="sigmoid",
)
# choices, and how many structures the layers have
KINDS = {
    "dropout": ({"num_layers": 3, "dropout": 0.3, "attention": AttentionConfig(4, dropout=0.2)}, 1),
    "remat": ({"num_layers": 3, "dropout": 0.3, "remat": True}, 1),
    "drop path": ({"num_layers": 3, "drop_path": 0.5, "dropout": 0.0}, 3),
    "experts": ({"num_layers": 4, "dropout": 0.1, "feed_forward": EXPERTS}, 2),
    "batch norms": ({"num_layers": 3, "dropout": 0.1, "norm": NormConfig("batch", "pre")}, 1),
    "groups": ({"num_layers": 4, "dropout": 0.1, "layer_groups": 2}, 1),
    "local": ({"num_layers": 3, "dropout": 0.1, "attention": AttentionConfig(4, window=(2, 0))}, 1),
    "low rank": ({"num_layers": 3, "dropout": 0.1}, 1),
    "frozen": ({"num_layers": 4, "dropout": 0.1}, 2),
    "both sides": ({"num_layers": 3, "dropout": 0.1}, 2),
}


@pytest.fixture
def traces(monkeypatch):
    """The blocks whose `call` runs for more than shapes, in order."""
    called, plain = [], TransformerBlock.call

    @functools.wraps(plain)
    def call(self, *arguments, **options):
        if not is_inferring_shapes():
            called.append(self)
        return plain(self, *arguments, **options)

    monkeypatch.setattr(TransformerBlock, "call", call)
    return called


@pytest.fixture
def each_layer(monkeypatch):
    """A function that returns options of `compile` for steps in which each layer is called by itself.

    TensorFlow runs one operation after the other; on JAX that takes longer than to compile programs, which trace each
    layer.
    """

    def options():
        if ON_TENSORFLOW:
            return {"run_eagerly": True}
        monkeypatch.setattr(traced_once, "_builds_program", lambda tensors: False)
        return {"jit_compile": True}

    return options


def trained(kind, dtype="float32", **options):
    """Losses of two epochs, and all weights after them."""
    keras.utils.set_random_seed(3)
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(dtype)
    try:
        is_pair = kind == "both sides"
        backbone = made("encoder_decoder" if is_pair else "decoder", **KINDS[kind][0])
        model = (Seq2SeqLM if is_pair else CausalLM)(backbone)
    finally:
        keras.config.set_dtype_policy(before)
    if kind == "low rank":
        model.enable_lora(2, dropout=0.2)
    if kind == "frozen":
        for block in backbone.decoder.blocks[:2]:
            block.trainable = False
    ids, mask = token_ids(ROWS, LENGTH), np.arange(LENGTH) < np.array([9, 9, 7, 5, 9, 3])[:, None]
    inputs = {"token_ids": ids, "padding_mask": mask}
    if is_pair:
        inputs = {f"{side}_{name}": x for side in ("encoder", "decoder") for name, x in inputs.items()}
    model.compile(keras.optimizers.SGD(0.05, global_clipnorm=1.0), TokenCrossEntropy(), **options)
    labels = np.roll(ids, -1, axis=1) % VOCABULARY
    history = model.fit(
        inputs, labels, sample_weight=mask.astype("float32"), batch_size=3, epochs=2, shuffle=False, verbose=0
    )
    return history.history["loss"], [keras.ops.convert_to_numpy(weight) for weight in model.weights]


def assert_same(found, expected):
    np.testing.assert_allclose(found[0], expected[0], rtol=2e-5)
    for value, other in zip(found[1], expected[1], strict=True):
        np.testing.assert_allclose(value, other, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_same_losses_and_weights(traces, kind, each_layer):
    found = trained(kind, **IN_PROGRAMS)
    options, structures = KINDS[kind]
    if kind == "remat" and ON_TENSORFLOW:
        structures = options["num_layers"]  # each layer is traced
    assert len(traces) == structures
    assert_same(found, trained(kind, **each_layer()))


@pytest.mark.skipif(not ON_TENSORFLOW, reason="XLA is an option there alone")
@pytest.mark.parametrize("kind", ["dropout", "experts", "batch norms"])
def test_steps_of_xla_trace_each_layer(traces, kind, each_layer):
    """It takes what a function with gradients is given for constants, and would compile each step anew."""
    found = trained(kind, jit_compile=True)
    assert len(traces) == KINDS[kind][0]["num_layers"]
    assert_same(found, trained(kind, **each_layer()))


@pytest.mark.skipif(not ON_TENSORFLOW, reason="tapes")
@pytest.mark.parametrize("has_gradients", [True, False])
def test_functions_of_xla_with_and_without_a_tape(traces, has_gradients):
    """Also where layers are not told that they are trained; without gradients, those of one structure are one."""
    import tensorflow as tf

    model = made("decoder", num_layers=3)
    ids = token_ids(ROWS, LENGTH)

    @tf.function(jit_compile=True)
    def computed(ids):
        with tf.GradientTape() if has_gradients else contextlib.nullcontext() as tape:
            total = tf.reduce_sum(model({"token_ids": ids, "padding_mask": tf.ones_like(ids, tf.bool)}) ** 2)
        return tape.gradient(total, model.trainable_variables) if has_gradients else total

    model({"token_ids": ids, "padding_mask": np.ones_like(ids, "bool")})
    traces.clear()
    found = computed(tf.constant(ids))
    assert len(traces) == (3 if has_gradients else 1)
    assert not has_gradients or all(gradient is not None for gradient in found)


def test_half_precision(each_layer):
    """Weights are rounded within a layer, as they are without a function, and not before."""
    losses, weights = trained("local", "mixed_bfloat16", **IN_PROGRAMS)
    expected, _ = trained("local", **each_layer())
    np.testing.assert_allclose(losses, expected, rtol=0.02)
    assert all(weight.dtype.name != "bfloat16" for weight in weights)


def test_dropout_differs_between_layers_and_steps():
    """Seeds are values that go in, and come out."""
    seeds = []
    backbone = made("decoder", **KINDS["dropout"][0])
    model = CausalLM(backbone)
    model.compile(keras.optimizers.SGD(0.0), TokenCrossEntropy(), **IN_PROGRAMS)
    ids = token_ids(ROWS, LENGTH)
    inputs = {"token_ids": ids, "padding_mask": np.ones_like(ids, "bool")}
    for _ in range(3):
        model.train_on_batch(inputs, ids)
        states = [weight for weight in model.non_trainable_variables if "seed" in weight.path]
        seeds.append([tuple(keras.ops.convert_to_numpy(state).tolist()) for state in states])
    assert len(states) >= 9 and all(len(set(column)) == 3 for column in zip(*seeds, strict=True))


def _enable_lora(model):
    model.enable_lora(2, dropout=0.2)


def _freeze(model):
    for block in model.backbone.decoder.blocks[:2]:
        block.trainable = False


def _quantize(model):
    model.enable_lora(2)
    model.quantize("int8")


def trained_around(change, **options):
    """Losses and answers before and after a change of a model whose layers have been traced, and all weights."""
    keras.utils.set_random_seed(3)
    model = CausalLM(made("decoder", num_layers=3, dropout=0.1))
    ids = token_ids(ROWS, LENGTH)
    inputs = {"token_ids": ids, "padding_mask": np.ones_like(ids, "bool")}
    found = []
    for step in (lambda _: None, change):
        step(model)
        model.compile(keras.optimizers.SGD(0.05), TokenCrossEntropy(), **options)
        found += [model.train_on_batch(inputs, ids) for _ in range(2)]
        found.append(model.predict_on_batch(inputs))
    return found + [keras.ops.convert_to_numpy(weight) for weight in model.weights]


@pytest.mark.parametrize("change", [_enable_lora, _freeze, _quantize])
def test_changes_after_the_first_trace(change, each_layer):
    found = trained_around(change, **IN_PROGRAMS)
    expected = trained_around(change, **each_layer())
    assert len(found) == len(expected)
    for value, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(value, other, atol=2e-5, rtol=1e-4)


def _add_updates(model, alphas):
    for block, alpha in zip(model.backbone.decoder.blocks, alphas, strict=True):
        query = block.attention.query_projection
        if query.updates:
            query.remove_updates(["default"])
        update = query.add_update("default", 2, alpha=alpha)
        update.lora_b.assign(np.random.default_rng(4).normal(size=update.lora_b.shape))


def _compiled_outputs(model, inputs):
    model.compile(jit_compile=True)
    return model.predict_on_batch(inputs)


@pytest.mark.parametrize("alphas", [[(2.0, 20.0)], [(2.0, 2.0), (20.0, 20.0)]], ids=["of layers", "one after another"])
def test_factors_of_low_rank_updates(alphas):
    """`alpha` is no weight; PEFT's adapters may have one for each module."""
    model = CausalLM(made("decoder", num_layers=2))
    ids = token_ids(ROWS, LENGTH)
    inputs = {"token_ids": ids, "padding_mask": np.ones_like(ids, "bool")}
    for each in alphas:
        _add_updates(model, each)
        np.testing.assert_allclose(
            _compiled_outputs(model, inputs), keras.ops.convert_to_numpy(model(inputs)), atol=2e-4, rtol=2e-4
        )


def test_rates_of_dropout_that_are_changed():
    model = CausalLM(made("decoder", num_layers=2, dropout=0.5))
    ids = token_ids(ROWS, LENGTH)
    inputs = {"token_ids": ids, "padding_mask": np.ones_like(ids, "bool")}
    losses = []
    for _ in range(2):
        model.compile(keras.optimizers.SGD(0.0), TokenCrossEntropy(), **IN_PROGRAMS)
        losses.append((model.train_on_batch(inputs, ids), model.test_on_batch(inputs, ids)))
        for layer in sublayers(model):
            if isinstance(layer, Dropout):
                layer.rate = 0.0
    (dropped, before), (kept, after) = losses
    assert before == pytest.approx(after) == pytest.approx(kept, rel=1e-4) != pytest.approx(dropped, rel=1e-3)


class Scaled(keras.layers.Layer):
    """A layer of a user, without a configuration."""

    def __init__(self, inner, factor):
        super().__init__()
        self.inner, self.factor = inner, factor

    def call(self, inputs):
        return self.factor * self.inner(inputs)


def test_layers_without_a_configuration():
    model = CausalLM(made("decoder", num_layers=2))
    for factor, block in enumerate(model.backbone.decoder.blocks):
        with unlocked(block):
            block.feed_forward = Scaled(block.feed_forward, np.float32(factor))
    ids = token_ids(ROWS, LENGTH)
    inputs = {"token_ids": ids, "padding_mask": np.ones_like(ids, "bool")}
    expected = keras.ops.convert_to_numpy(model(inputs))
    np.testing.assert_allclose(_compiled_outputs(model, inputs), expected, atol=2e-4, rtol=2e-4)


@pytest.mark.filterwarnings("ignore:.*does not support masking")
@pytest.mark.parametrize("position", ["rotary", "none"])
def test_masks_of_keras(position):
    """`Embedding(mask_zero=True)` hides padding in a program as elsewhere."""
    stack = made("encoder", position).encoder
    ids = token_ids(ROWS, LENGTH) * (np.arange(LENGTH) < np.array([9, 9, 7, 5, 9, 3])[:, None])
    model = keras.Sequential([keras.layers.Embedding(VOCABULARY, 16, mask_zero=True), stack])
    expected = keras.ops.convert_to_numpy(model(ids))
    model.compile(jit_compile=True)
    np.testing.assert_allclose(model.predict_on_batch(ids)[ids > 0], expected[ids > 0], atol=2e-5, rtol=2e-5)
