"""What cannot train on several devices is said before the first step."""

import json
import os
import subprocess
import sys

import keras
import pytest
from distributed_runs import ROOT, needs_jax

from zoo import distribution


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("mirorred", "distribution must be one of mirrored, data, fsdp, model"),
        ({"data": 0}, "axes 'data' or 'fsdp', and 'model', with sizes of at least 1"),
        ({"batch": 2}, "axes 'data' or 'fsdp'"),
        ({"data": 2, "fsdp": 2}, "axes 'data' or 'fsdp'"),
        ({}, "axes 'data' or 'fsdp'"),
        (4, "distribution must be one of"),
    ],
)
def test_unknown_distribution(given, message):
    with pytest.raises(ValueError, match=message):
        distribution.use(given)


def test_the_backend_must_be_able():
    backend = keras.backend.backend()
    given, needed = ("mirrored", "tensorflow") if backend != "tensorflow" else ("data", "jax")
    with pytest.raises(ValueError, match=f"needs KERAS_BACKEND={needed}, got '{backend}'"):
        distribution.use(given)


@pytest.mark.skipif(keras.backend.backend() == "jax", reason="of other backends")
@pytest.mark.parametrize("given", [None, "mirrored"])
def test_several_processes_need_jax(monkeypatch, given):
    """Or each of them would train by itself."""
    monkeypatch.setenv("KERAS_DISTRIBUTION_NUM_PROCESSES", "2")
    if given is None or keras.backend.backend() == "tensorflow":
        with pytest.raises(ValueError, match="Several processes need KERAS_BACKEND=jax"):
            distribution.use(given)


def errors_of(code, **variables):
    """What each block of a program raises, in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3", **variables}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stderr[-4000:]
    return json.loads(result.stdout.splitlines()[-1])


BEGINNING = """
import json, keras, numpy as np, tensorflow as tf
found = {}
def caught(name, function):
    try:
        function()
        found[name] = "nothing"
    except Exception as error:
        found[name] = f"{type(error).__name__}: {error}"
"""
MODEL = """
import zoo
from zoo import distribution
def model():
    sizes = {"hidden_dim": 8, "num_layers": 1, "max_length": 8, "attention": zoo.AttentionConfig(2), "dropout": 0.0}
    return zoo.CausalLM(zoo.Backbone.from_config(zoo.TransformerConfig("decoder", 10, **sizes)))
ids = np.ones((6, 4), "int32")
data = ({"token_ids": ids, "padding_mask": ids > 0}, ids)
"""
TENSORFLOW = """
processor = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(processor, [tf.config.LogicalDeviceConfiguration()] * 2)
"""


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="of TensorFlow")
def test_what_tensorflow_cannot():
    code = f"""{BEGINNING}{TENSORFLOW}{MODEL}
several = tf.distribute.MultiWorkerMirroredStrategy()
def train_in(strategy):
    with strategy.scope():
        made = model()
        made.compile()
caught("workers", lambda: train_in(several))
distribution.use("mirrored")
before = model()
caught("outside", before.compile)
def jit():
    with distribution.scope():
        model().compile(jit_compile=True)
caught("jit", jit)
def experts():
    feed_forward = zoo.FeedForwardConfig(8, num_experts=2, experts_per_token=1)
    config = zoo.TransformerConfig("decoder", 10, hidden_dim=8, num_layers=1, max_length=8, feed_forward=feed_forward)
    with distribution.scope():
        zoo.CausalLM(zoo.Backbone.from_config(config)).compile()
caught("experts", experts)
def accumulated():
    with distribution.scope():
        model().compile(keras.optimizers.Adam(gradient_accumulation_steps=2))
caught("accumulated", accumulated)
def half():
    keras.config.set_dtype_policy("mixed_float16")
    with distribution.scope():
        model().compile()
caught("half", half)
keras.config.set_dtype_policy("float32")
def counted():
    with distribution.scope():
        made = model()
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=None)
        made.compile(loss=loss)
    made.fit(*data, verbose=0)
caught("counted", counted)
def generated():
    with distribution.scope():
        made = model()
        made.compile()
    made.fit(iter([data]), verbose=0)
caught("generated", generated)
def split():
    with distribution.scope():
        made = model()
        made.compile()
    made.fit(*data, validation_split=0.5, verbose=0)
caught("split", split)
def drops():
    from layers import Dropout
    strategy = distribution.chosen()
    with strategy.scope():
        layer = Dropout(0.5)
        layer.build((8, 64))
    run = tf.function(lambda: strategy.run(lambda: layer(tf.ones((8, 64)), training=True)))
    one, two = (value.numpy() for value in strategy.experimental_local_results(run()))
    three, four = (value.numpy() for value in strategy.experimental_local_results(run()))
    found["dropout"] = [bool((one != two).any()), bool((one != three).any()), bool((two != four).any())]
drops()
print(json.dumps(found))
"""
    found = errors_of(code, KERAS_BACKEND="tensorflow")
    assert "Keras 3 does not train with tf.distribute.MultiWorkerMirroredStrategy" in found["workers"]
    assert "KERAS_BACKEND=jax with zoo.distribution.use('data')" in found["workers"]
    assert "made outside of zoo.distribution.scope()" in found["outside"]
    assert "jit_compile must be False with tf.distribute" in found["jit"]
    assert "mixture of experts does not train with tf.distribute" in found["experts"]
    assert "must not be mixed_float16" in found["half"]
    assert "gradient_accumulation_steps must be None with tf.distribute" in found["accumulated"]
    assert "must have a reduction" in found["counted"]
    assert "must be rows, arrays or a tf.data.Dataset" in found["generated"]
    assert "validation_split must be 0" in found["split"]
    # each replica drops others than its neighbour, and others than in the step before
    assert found["dropout"] == [True, True, True]


@pytest.mark.slow
@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="of TensorFlow")
def test_replicas_have_the_weights_of_one_device():
    """Whatever is done outside of the scope in which a model was made, and with losses that add up."""
    code = f"""{BEGINNING}{TENSORFLOW}{MODEL}
generator = np.random.default_rng(0)
ids = generator.integers(0, 10, (7, 4)).astype("int32")
# replicas with different numbers of tokens
weights = (np.arange(4) < generator.integers(1, 5, (7, 1))).astype("float32")
inputs = {{"token_ids": ids, "padding_mask": weights > 0}}
weights *= generator.uniform(0.5, 3, (7, 1)).astype("float32")
def in_scope(made):
    with distribution.scope():
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")
        made.compile(keras.optimizers.SGD(0.01), loss)
def low_rank(made):
    made.compile()
    made.enable_lora(2)
def by_name(made):
    with distribution.scope():
        made.compile(keras.optimizers.SGD(0.01), "sparse_categorical_crossentropy")
ways = {{"auto": lambda made: None, "sum": in_scope, "by name": by_name, "low rank": low_rank}}
ways |= {{"columns": by_name, "rows": by_name}}
def trained(name):
    prepare = ways[name]
    keras.utils.set_random_seed(0)
    with distribution.scope():
        made = model()
    prepare(made)
    labels, options = ids, {{"sample_weight": weights, "batch_size": 5}}
    if name == "columns":
        labels, options = ids[..., np.newaxis], {{"batch_size": 5}}
    if name == "rows":
        # as many of each replica as tokens
        options = {{"sample_weight": weights[:, 0], "batch_size": 8}}
    logs = made.fit(inputs, labels, **options, epochs=2, shuffle=False, verbose=0).history
    values = [np.asarray(weight) for weight in made.weights if not weight.path.endswith("key/bias")]
    # an epoch of sums is their mean over batches
    found = made.evaluate(inputs, labels, **options | {{"batch_size": 3}}, return_dict=True, verbose=0)
    values.append(np.array([*logs["loss"], found["loss"]]))
    strategy = made.distribute_strategy
    copies = [[copy.numpy() for copy in strategy.experimental_local_results(weight.value)] for weight in made.weights]
    return values, max(float(np.abs(each - first).max()) for first, *rest in copies for each in rest or [first])
tf.config.run_functions_eagerly(True)
one = {{name: trained(name)[0] for name in ways}}
tf.config.run_functions_eagerly(False)
distribution.use("mirrored")
for name in ways:
    def compare():
        values, apart = trained(name)
        found[name] = [max(float(np.abs(a - b).max()) for a, b in zip(values, one[name], strict=True)), apart]
    found[name + " error"] = None
    caught(name + " error", compare)
def made_outside():
    with distribution.scope():
        made = model()
    made.compile(keras.optimizers.Adam())
caught("optimizer", made_outside)
def overwritten():
    from zoo.distribution.replicas import add_gradients_first
    with distribution.scope():
        variable = keras.Variable([1.0])
        variable.overwrite_with_gradient = True
        optimizer = keras.optimizers.SGD()
        optimizer.build([variable])
        add_gradients_first(optimizer)
    def step():
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        optimizer.apply([tf.gather(tf.constant([[3.0], [2.0]]), replica)])
    tf.function(lambda: distribution.chosen().run(step))()
    found["overwritten"] = np.asarray(variable).tolist()
found["overwritten error"] = None
caught("overwritten error", overwritten)
def unweighted():
    with distribution.scope():
        made = model()
        made.compile(metrics=["accuracy"])
    made.evaluate(inputs, ids, verbose=0)
caught("unweighted", unweighted)
print(json.dumps(found))
"""
    found = errors_of(code, KERAS_BACKEND="tensorflow")
    assert found["overwritten"] == [3.0], found["overwritten error"]
    for way in ("auto", "sum", "by name", "low rank", "columns", "rows"):
        assert found[f"{way} error"] == "nothing", way
        assert found[way] == pytest.approx([0, 0], abs=2e-5), way
    assert "optimizer was made outside of the scope" in found["optimizer"]
    assert "metrics must be given as weighted_metrics" in found["unweighted"]


@needs_jax
def test_what_jax_cannot():
    code = f"""{BEGINNING}{MODEL}
caught("size", lambda: distribution.use({{"data": 3, "model": 2}}))
before = model()
before.compile()
distribution.use({{"data": 2, "model": 2}})
caught("before", lambda: before.fit(*data, verbose=0))
within = model()
within.compile()
caught("quantize", within.quantize)
caught("heads", lambda: zoo.Backbone.from_config(zoo.TransformerConfig(
    "decoder", 10, hidden_dim=12, num_layers=1, attention=zoo.AttentionConfig(3))))
within.enable_lora(2)
within.fit(*data, batch_size=4, verbose=0)
found["updates"] = sorted({{str(v.value.sharding.spec) for v in within.backbone.weights if "lora" in v.path}})
moments = [v for v in within.optimizer.variables if "lora_b" in v.path]
found["moments"] = [len(moments) > 0, sorted({{str(v.value.sharding.spec) for v in moments}})]
distribution.use("data")
caught("other", lambda: within.fit(*data, verbose=0))
distribution.use(None)
caught("after", lambda: within.fit(*data, verbose=0))
print(json.dumps(found))
"""
    found = errors_of(code, KERAS_BACKEND="jax", JAX_NUM_CPU_DEVICES="4")
    assert "as many devices as there are, got {'data': 3, 'model': 2} = 6 of 4 (of 1 process)" in found["size"]
    assert "JAX_NUM_CPU_DEVICES says how many it simulates" in found["size"]
    assert "made before zoo.distribution.use()" in found["before"]
    assert (
        "quantize() needs a distribution in which each device has all weights, without the axes 'model' and 'fsdp'"
        in found["quantize"]
    )
    assert "must divide the 3 heads" in found["heads"]
    assert any("model" in spec for spec in found["updates"])
    assert found["moments"][0] and any("model" in spec for spec in found["moments"][1])
    assert "made for another distribution" in found["after"]
    assert "made for another distribution" in found["other"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "given", {"tensorflow": ["mirrored"], "jax": ["data", "model"]}.get(keras.backend.backend(), [])
)
def test_what_is_not_fit_has_the_results_of_one_device(given):
    """With batches that the devices do not divide."""
    backend = keras.backend.backend()
    code = f"""{BEGINNING}{TENSORFLOW if backend == "tensorflow" else ""}{MODEL}
ids = np.random.default_rng(0).integers(0, 10, (3, 4)).astype("int32")
mask = np.arange(4) < [[1], [4], [2]]
inputs, weights = {{"token_ids": ids, "padding_mask": mask}}, mask.astype("float32")
def results():
    keras.utils.set_random_seed(0)
    with distribution.scope():
        made = model()
        made.compile(keras.optimizers.SGD(0.1), weighted_metrics=[zoo.training.TokenAccuracy()])
    values = [made.predict(inputs, verbose=0), made.predict_on_batch(inputs)]
    values += [made.train_on_batch(inputs, ids, weights)[0], made.test_on_batch(inputs, ids, weights)[0]]
    # of the model as before, on its devices
    values.append(made.evaluate(inputs, ids, sample_weight=weights, batch_size=3, verbose=0)[1])
    values.append(made.predict(inputs, batch_size=2, verbose=0))
    distribution.move_to_one_device(made)
    made.fit(inputs, ids, sample_weight=weights, batch_size=3, shuffle=False, verbose=0)
    values.append(made.predict(inputs, verbose=0))
    return [np.asarray(value) for value in values]
tf.config.run_functions_eagerly(True)
one = results()
tf.config.run_functions_eagerly(False)
distribution.use({given!r})
found["same"] = [float(np.abs(ours - theirs).max()) for ours, theirs in zip(results(), one, strict=True)]
print(json.dumps(found))
"""
    found = errors_of(code, KERAS_BACKEND=backend, JAX_NUM_CPU_DEVICES="2")
    assert found["same"] == pytest.approx([0] * 7, abs=1e-5)
