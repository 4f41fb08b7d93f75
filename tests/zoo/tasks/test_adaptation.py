"""Low-rank updates and 8-bit weights: what trains, what is reported, what is saved."""

import gc
import json
import warnings
import weakref

import keras
import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from zoo import Seq2SeqLM  # noqa: E402
from zoo.tasks import MaskedLM, TextClassifier  # noqa: E402


def values(task):
    return {weight.path: np.array(weight) for weight in task.weights}


def test_lora_trains_updates_and_head_alone(make_task, texts, tmp_path):
    model = make_task(TextClassifier, labels=2, head_dropout=0.0)
    before, expected = values(model), model.predict(texts[:4])
    report = model.enable_lora(2, targets=("query", "up"))
    # 16 x 2 and 2 x 16 for the query, 16 x 2 and 2 x 32 for the feed-forward, head of 16 x 2 and its bias
    assert report.trainable_parameters == 64 + 96 + 34
    assert report.total_parameters == sum(part.size for part in before.values()) + 64 + 96
    assert [path.split("/")[-1] for path in report.layers] == ["query", "up"] and "block_0" in report.layers[0]
    assert str(report).startswith("LoRA of rank 2 on 2 layers: 194 of ")
    # nothing has changed yet
    np.testing.assert_allclose(model.predict(texts[:4]), expected, rtol=1e-5)
    model.compile(keras.optimizers.Adam(0.05), run_eagerly=True)
    y = [int("alpha" in text) for text in texts[:16]]
    # in the first step only one of the two factors changes, the other one is zero
    model.fit(texts[:16], y, batch_size=8, verbose=0)
    after = values(model)
    changed = {path for path in before if not np.array_equal(before[path], after[path])}
    assert changed and all("/head/" in path or path.startswith("head/") for path in changed)
    assert all(np.abs(after[path]).max() > 0 for path in after if "lora" in path)
    adapted = model.predict(texts[:4])
    assert np.abs(adapted - expected).max() > 1e-3
    # files keep the updates apart
    model.save_to_preset(tmp_path / "preset")
    model.save(tmp_path / "model.keras")
    loaded = TextClassifier.from_preset(tmp_path / "preset")
    assert _paths(loaded.trainable_weights) == _paths(model.trainable_weights)
    np.testing.assert_allclose(loaded.predict(texts[:4]), adapted, rtol=1e-3, atol=1e-5)
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded.predict(texts[:4]), adapted, rtol=1e-3, atol=1e-5)
    for ours, theirs in zip(loaded.trainable_variables, model.trainable_variables, strict=True):
        assert ours.path.split("/")[-2:] == theirs.path.split("/")[-2:]
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    # both go on alike
    for each in (model, loaded):
        each.run_eagerly = True
        each.fit(texts[:8], y[:8], batch_size=8, shuffle=False, verbose=0)
    np.testing.assert_allclose(loaded.predict(texts[:4]), model.predict(texts[:4]), rtol=1e-2, atol=1e-4)
    # merged in memory: the same numbers, no updates, and all weights train again
    adapted = model.predict(texts[:4])
    model.merge_lora()
    np.testing.assert_allclose(model.predict(texts[:4]), adapted, rtol=1e-3, atol=1e-5)
    assert {weight.path for weight in model.weights} == set(before)
    assert len(model.trainable_variables) == len(make_task(TextClassifier, labels=2).trainable_variables)
    model.save(tmp_path / "merged.keras")
    loaded = keras.models.load_model(tmp_path / "merged.keras")
    np.testing.assert_allclose(loaded.predict(texts[:4]), adapted, rtol=1e-3, atol=1e-5)
    with pytest.raises(ValueError, match="merge_lora.. needs active low-rank updates: call enable_lora.. first"):
        model.merge_lora()
    assert model.enable_lora(3).rank == 3


@pytest.mark.sampled(1)
@pytest.mark.parametrize("options", [{}, {"labels": 3}])
@pytest.mark.parametrize("end", ["merge_lora", "remove_adapters"])
def test_what_updates_had_frozen_trains_again_after_loading(make_task, texts, tmp_path, options, end):
    """The gradient tape of TensorFlow sees what was made to be trained, whatever was trained when it was loaded."""
    model = make_task(TextClassifier, labels=2)
    model.enable_lora(2)
    model.save_to_preset(tmp_path / "preset")
    model.save(tmp_path / "model.keras")
    loaded = [keras.models.load_model(tmp_path / "model.keras")] if not options else []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # another head starts untrained
        loaded.append(TextClassifier.from_preset(tmp_path / "preset", **options))
    for task in loaded:
        getattr(task, end)(*(["default"] if end == "remove_adapters" else []))
        before = values(task)
        task.compile(keras.optimizers.Adam(0.05), run_eagerly=True)
        task.fit(texts[:8], [0, 1] * 4, batch_size=8, verbose=0)
        after = values(task)
        unchanged = [path for path, value in before.items() if np.array_equal(value, after[path])]
        trained = {weight.path for weight in task.trainable_weights}
        assert len(trained) > 10 and not trained.intersection(unchanged)


def test_quantized_weights_do_not_train_in_silence(make_task, texts):
    model = make_task(TextClassifier, labels=2)
    model.quantize("int8")
    y = [0, 1, 0, 1]
    for train in (model.fit, model.train_on_batch):
        with pytest.raises(ValueError, match="needs weights that can train; these are stored in int8. Train before"):
            train(texts[:4], y)
    assert np.isfinite(model.evaluate(texts[:4], y, verbose=0)[0])
    model.enable_lora(2)
    before = model.predict(texts[:4])
    model.compile(keras.optimizers.Adam(0.1), run_eagerly=True)
    model.fit(texts[:4], y, verbose=0)
    assert np.abs(model.predict(texts[:4]) - before).max() > 1e-4
    with pytest.raises(ValueError, match="must not be quantized for merge_lora.*int8"):
        model.merge_lora()
    # in the other order the same
    adapted = make_task(TextClassifier, labels=2)
    adapted.set_weights(make_task(TextClassifier, labels=2).get_weights())
    adapted.enable_lora(2)
    adapted.quantize("int8")
    assert sum("lora" in weight.path for weight in adapted.trainable_weights) == 4


def test_quantized_weights_are_not_held_in_floating_point_too(make_task, tmp_path, monkeypatch):
    model = make_task(TextClassifier, labels=2)
    model.enable_lora(2)
    replaced = [weakref.ref(weight) for weight in model.backbone.weights if weight.path.endswith("/kernel")]
    model.quantize("int8")
    gc.collect()
    assert replaced and all(weight() is None for weight in replaced)
    model.save_to_preset(tmp_path / "preset")
    made, make = [], keras.Variable._deferred_initialize
    monkeypatch.setattr(keras.Variable, "_deferred_initialize", lambda self: (made.append(self.path), make(self))[1])
    loaded = TextClassifier.from_preset(tmp_path / "preset")
    assert not [path for path in made if path.endswith(("kernel", "embeddings"))]
    assert sum("lora" in weight.path for weight in loaded.trainable_weights) == 4


@pytest.mark.sampled(1)
@pytest.mark.parametrize("mode", ["int8", pytest.param("int4", marks=pytest.mark.slow)])
def test_updates_of_quantized_weights_are_kept(make_task, texts, tmp_path, mode):
    model = make_task(TextClassifier, labels=2, head_dropout=0.0)
    model.compile(keras.optimizers.Adam(0.1), run_eagerly=True)
    model.train_on_batch(texts[:4], [0, 1, 0, 1])
    model.quantize(mode)
    model.save(tmp_path / "quantized.keras")
    with warnings.catch_warnings():
        # the optimizer is of the variables that are left
        warnings.filterwarnings("error", message="Skipping variable loading")
        keras.models.load_model(tmp_path / "quantized.keras")
    model.enable_lora(2, targets=["query", "value", "up"])
    model.fit(texts[:4], [0, 1, 0, 1], epochs=2, verbose=0)
    expected = model.predict(texts[:8])
    model.save(tmp_path / "model.keras")
    model.save_to_preset(tmp_path / "preset")
    for loaded in (
        keras.models.load_model(tmp_path / "model.keras"),
        TextClassifier.from_preset(tmp_path / "preset"),
    ):
        np.testing.assert_allclose(loaded.predict(texts[:8]), expected, rtol=1e-5, atol=1e-6)
        assert sum("lora" in weight.path for weight in loaded.weights) == 6
        after = dict(zip(_paths(loaded.weights), loaded.weights, strict=True))
        for path, value in zip(_paths(model.weights), model.weights, strict=True):
            np.testing.assert_array_equal(value, after[path])


def test_updates_in_half_precision_leave_the_kernels_as_they_are(make_task, texts, tmp_path):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = make_task(TextClassifier, labels=2, head_dropout=0.0)
        model.enable_lora(2, targets=["query"])
        (layer,) = (layer for layer in model._flatten_layers() if getattr(layer, "updates", None))
        update = layer.updates["default"]
        update.lora_b.assign(np.random.default_rng(0).normal(size=update.lora_b.shape))
        kernel, product = np.array(layer.kernel), np.matmul(update.lora_a, update.lora_b)
        model.save(tmp_path / "model.keras")
        loaded = keras.models.load_model(tmp_path / "model.keras")
        for ours, theirs in zip(loaded.weights, model.weights, strict=True):
            np.testing.assert_array_equal(ours, theirs)
        model.merge_lora()
        # alpha is the rank; added in float32
        np.testing.assert_allclose(layer.kernel, kernel + product, rtol=1e-6, atol=1e-6)
    finally:
        keras.config.set_dtype_policy(before)


class OwnLoss(keras.losses.Loss):
    """A loss that is not registered."""

    def call(self, y_true, y_pred):
        return keras.ops.mean(keras.ops.square(y_pred), axis=-1)


class OwnRate(keras.optimizers.schedules.LearningRateSchedule):
    """A schedule that is not registered."""

    def __call__(self, step):
        return 0.1

    def get_config(self):
        return {}


def test_what_compile_was_given_is_kept(make_task, texts):
    model = make_task(TextClassifier, labels=2)
    model.compile(keras.optimizers.SGD(OwnRate()), OwnLoss(), metrics=[lambda y, p: p[:, 0]], run_eagerly=True)
    model.fit(texts[:4], [0, 1, 0, 1], verbose=0)
    old = model.optimizer
    model.enable_lora(2)
    assert isinstance(model.loss, OwnLoss) and model.optimizer is not old and model.run_eagerly
    assert len(model.optimizer._trainable_variables) == len(model.trainable_variables)
    model.fit(texts[:4], [0, 1, 0, 1], verbose=0)
    model.merge_lora()
    assert np.isfinite(model.fit(texts[:4], [0, 1, 0, 1], verbose=0).history["loss"][0])


@pytest.mark.parametrize("is_scaled", [False, True])
def test_exclusions_from_weight_decay_are_kept(make_task, is_scaled):
    model = make_task(TextClassifier, labels=2)
    optimizer = keras.optimizers.SGD(0.1, weight_decay=0.5)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    model.compile(keras.optimizers.LossScaleOptimizer(optimizer) if is_scaled else optimizer)
    model.enable_lora(2)
    kernel, bias = model.head.projection.kernel, model.head.projection.bias
    bias.assign([1.0, 2.0])
    before = np.array(kernel)
    model.optimizer.apply([keras.ops.zeros_like(variable) for variable in model.trainable_variables])
    # rate times decay are 0.05
    np.testing.assert_allclose(kernel, 0.95 * before, rtol=1e-5)
    np.testing.assert_array_equal(bias, [1.0, 2.0])


def test_alpha_scales_the_updates(make_task, texts):
    outputs = []
    for alpha in (None, 4.0):
        model = make_task(MaskedLM)
        model.enable_lora(2, alpha=alpha, targets=["value"])
        layer = model.backbone.encoder.blocks[0].attention.value_projection
        layer.updates["default"].lora_a.assign(np.full((16, 2), 0.1))
        layer.updates["default"].lora_b.assign(np.full((2, 16), 0.1) * (2 if alpha is None else 1))
        outputs.append(model.fill_mask("alpha <mask>")[0][0][1])
    # alpha of twice the rank does what updates twice as large do
    np.testing.assert_allclose(outputs[0], outputs[1], rtol=1e-4)


def test_lora_of_a_sequence_to_sequence_model(untrained, copied):
    untrained.compile(keras.optimizers.Adam(0.05), "auto", run_eagerly=True)
    untrained.fit(copied[:4], copied[:4], verbose=0)
    report = untrained.enable_lora(2)
    # query and value of the encoder's attention, and of the decoder's two
    assert len(report.layers) == 6
    assert all("lora" in weight.path for weight in untrained.trainable_variables)
    # a task that was compiled goes on with a fresh optimizer
    assert untrained.compiled and int(untrained.optimizer.iterations) == 0
    before = values(untrained)
    untrained.fit(copied[:4], copied[:4], verbose=0)
    after = values(untrained)
    assert {path.split("/")[-1] for path in after if not np.array_equal(before[path], after[path])} == {"lora_b"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank": 2, "targets": ["querry"]}, "got 'querry'. Did you mean 'query'.* There are: down, "),
        ({"rank": 2, "targets": ["query", "gate"]}, "targets must be names of layers, got 'gate'"),
        ({"rank": 2, "targets": 3}, "targets must be a name of layers or a list of names, got 3"),
        ({"rank": 2, "targets": "query", "blocks": 0}, "blocks must be a list of integers from -1 to 0, got 0"),
        ({"rank": 2, "targets": "all", "dropout": "0.1"}, "dropout must be a number of at least 0 .* got '0.1'"),
        ({"rank": 2, "alpha": "3"}, "alpha must be a finite number above 0, got '3'"),
        ({"rank": 0}, "rank must be an integer of at least 1, got 0"),
        ({"rank": 2, "alpha": 0}, "alpha must be a finite number above 0, got 0"),
        ({"rank": 2, "alpha": float("inf")}, "alpha must be a finite number above 0, got inf"),
    ],
)
def test_wrong_arguments_of_lora(make_task, options, message):
    model = make_task(TextClassifier, labels=2)
    count = len(model.trainable_variables)
    with pytest.raises(ValueError, match=message):
        model.enable_lora(**options)
    assert len(model.trainable_variables) == count


def test_chosen_blocks(make_task):
    model = make_task(MaskedLM, config={"num_layers": 3})
    assert {path.split("/")[1] for path in model.enable_lora(2, targets=["all"], blocks=[0, -1]).layers} == {
        "block_0",
        "block_2",
    }
    assert all("lora" in weight.path for weight in model.trainable_variables if "block_" in weight.path)
    with pytest.raises(ValueError, match=r"blocks must be a list of integers from -3 to 2, got \[3\]"):
        model.enable_lora(2, blocks=[3], name="other")


def test_several_adapters_are_stacked_switched_and_merged(make_task, texts, tmp_path):
    model = make_task(TextClassifier, labels=2, head_dropout=0.0)
    model.run_eagerly = True
    kernels = {path: layer for path, layer in model.backbone.adapters.candidates() if layer.name in ("query", "up")}
    before = {path: np.array(layer.kernel) for path, layer in kernels.items()}
    expected, random = {(): model.predict(texts[:4])}, np.random.default_rng(0)
    products = {}
    for name, target in (("first", "query"), ("second", "up"), ("third", "query")):
        report = model.enable_lora(2, alpha=4.0, targets=[target], name=name)
        # the newest alone trains
        assert all(f"update_{name}" in weight.path or "head" in weight.path for weight in model.trainable_weights)
        ((path, update),) = model.backbone.adapters.updates(name).items()
        assert report.layers == (path,)
        update.lora_b.assign(random.normal(size=update.lora_b.shape))
        products[name] = path, 2 * np.matmul(update.lora_a, update.lora_b)
    for names in ((), ("first",), ("second", "third"), ("first", "second", "third")):
        model.activate_adapters(*names)
        found = model.predict(texts[:4])
        assert not names or np.abs(found - expected[()]).max() > 1e-3
        np.testing.assert_allclose(model.predict(texts[:4]), found)
        expected[names] = found
        plain = make_task(TextClassifier, labels=2, head_dropout=0.0)
        plain.run_eagerly = True
        plain.set_weights([weight for weight in model.weights if "lora" not in weight.path])
        for path, layer in plain.backbone.adapters.candidates():
            added = sum(product for name, (of, product) in products.items() if name in names and of == path)
            layer.kernel.assign(layer.kernel + added)
        np.testing.assert_allclose(plain.predict(texts[:4]), found, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(expected[()], expected.pop(()))
    model.activate_adapters("second", "third", trainable=["third"])
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    loaded.run_eagerly = True
    np.testing.assert_array_equal(loaded.predict(texts[:4]), model.predict(texts[:4]))
    assert _paths(loaded.trainable_weights) == _paths(model.trainable_weights)
    loaded.activate_adapters("first")
    np.testing.assert_allclose(loaded.predict(texts[:4]), expected[("first",)], rtol=1e-5)
    model.merge_lora()
    np.testing.assert_allclose(model.predict(texts[:4]), expected[("second", "third")], rtol=1e-4, atol=1e-6)
    assert list(model.backbone.adapters) == ["first"]
    model.remove_adapters("first")
    assert not any("lora" in path for path in _paths(model.weights))
    assert all(weight.trainable for weight in model.weights if "pooler" not in weight.path)
    for path, layer in kernels.items():
        added = sum(product for name, (of, product) in products.items() if name != "first" and of == path)
        np.testing.assert_allclose(layer.kernel, before[path] + added, rtol=1e-5, atol=1e-6)


def test_magnitudes_train_and_are_saved(make_task, texts, tmp_path):
    """DoRA, Liu et al. 2024. The layer itself is tested in tests/layers/test_dense.py."""
    model = make_task(TextClassifier, labels=2, head_dropout=0.0)
    expected = model.predict(texts[:4])
    report = model.enable_lora(2, targets=("query", "up"), dora=True)
    # as in test_lora_trains_updates_and_head_alone, and a number for each of 16 and 32 outputs
    assert report.trainable_parameters == 64 + 96 + 34 + 16 + 32
    assert str(report).startswith("DoRA of rank 2 on 2 layers: 242 of ")
    assert model.backbone.parameter_count() == make_task(TextClassifier, labels=2).backbone.parameter_count()
    np.testing.assert_allclose(model.predict(texts[:4]), expected, rtol=1e-4)
    before = values(model)
    model.compile(keras.optimizers.Adam(0.05), run_eagerly=True)
    model.fit(texts[:16], [int("alpha" in text) for text in texts[:16]], batch_size=8, verbose=0)
    after = values(model)
    changed = {path for path in before if not np.array_equal(before[path], after[path])}
    assert {path for path in after if "lora" in path} < changed
    assert all("lora" in path or "head" in path for path in changed)
    adapted = model.predict(texts[:4])
    model.save_to_preset(tmp_path / "preset")
    model.save(tmp_path / "model.keras")
    for loaded in (TextClassifier.from_preset(tmp_path / "preset"), keras.models.load_model(tmp_path / "model.keras")):
        assert loaded.backbone.adapters["default"].dora
        assert _paths(loaded.trainable_weights) == _paths(model.trainable_weights)
        np.testing.assert_allclose(loaded.predict(texts[:4]), adapted, rtol=1e-3, atol=1e-5)
        loaded.merge_lora()
        np.testing.assert_allclose(loaded.predict(texts[:4]), adapted, rtol=1e-3, atol=1e-5)
        assert set(_paths(loaded.weights)) == {path.partition("/")[2] for path in before if "lora" not in path}


def test_presets_of_earlier_versions_have_no_magnitudes(make_task, texts, tmp_path):
    model = make_task(TextClassifier, labels=2)
    model.enable_lora(2)
    model.save_to_preset(tmp_path / "preset")
    path = tmp_path / "preset" / "config.json"
    config = json.loads(path.read_text())
    assert config["options"]["adapters"]["default"].pop("dora") is False
    path.write_text(json.dumps(config))
    np.testing.assert_allclose(
        TextClassifier.from_preset(tmp_path / "preset").predict(texts[:4]), model.predict(texts[:4]), rtol=1e-5
    )
    config["options"]["adapters"]["default"]["dora"] = "yes"
    path.write_text(json.dumps(config))
    with pytest.raises(ValueError, match="options.adapters.default.dora must be true or false, got 'yes'"):
        TextClassifier.from_preset(tmp_path / "preset")


def test_modules_to_save_train_beside_updates(make_task, texts, tmp_path):
    model = make_task(TextClassifier, labels=2, head_dropout=0.0)
    before = values(model)
    model.enable_lora(2, targets="query", modules_to_save=["token_embedding", "block_0/attention_norm", "down"])
    assert len([weight for weight in model.backbone.trainable_weights if "lora" not in weight.path]) == 1 + 2 + 2
    model.compile(keras.optimizers.Adam(0.05), run_eagerly=True)
    model.fit(texts[:16], [0, 1] * 8, batch_size=8, verbose=0)
    after = values(model)
    changed = {path.split("/", 1)[1] for path in before if not np.array_equal(before[path], after[path])}
    inside = ("token_embedding", "attention_norm", "/down/")
    assert changed - {"projection/kernel", "projection/bias"} == {
        path.split("/", 1)[1] for path in before if any(part in path for part in inside)
    }
    adapted = model.predict(texts[:4])
    model.save_to_preset(tmp_path / "preset")
    model.save(tmp_path / "model.keras")
    for loaded in (TextClassifier.from_preset(tmp_path / "preset"), keras.models.load_model(tmp_path / "model.keras")):
        assert _paths(loaded.trainable_weights) == _paths(model.trainable_weights)
        np.testing.assert_allclose(loaded.predict(texts[:4]), adapted, rtol=1e-3, atol=1e-5)
    with pytest.raises(ValueError, match="embeddings trains as part of an adapter, got int8: call merge_lora.. first"):
        model.quantize("int8")
    model.enable_lora(2, targets="query", name="other")
    assert not any("embedding" in weight.path for weight in model.trainable_weights)
    model.activate_adapters("default", "other", trainable=["default"])
    assert any("embedding" in weight.path for weight in model.trainable_weights)
    model.freeze("token_embedding")
    model.activate_adapters("default", "other", trainable=["default"])
    assert not any("embedding" in weight.path for weight in model.trainable_weights)
    model.merge_lora()
    assert len(model.backbone.adapters) == 0


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ("final_norm", "modules_to_save must be names of parts of the backbone, got 'final_norm'"),
        (["token_embeding"], "Did you mean 'token_embedding'"),
        ([["query"]], r"The parts of a model must be given by their names, got \['query'\]"),
        (["head"], "modules_to_save must be parts of the backbone, got 'head': the head trains anyway"),
        (["query"], "weights must not be of layers that have low-rank updates, got .*query/kernel"),
        (["block_0/attention_norm"], "weights must not be those of another adapter, got .*, of 'first'"),
    ],
)
def test_modules_that_cannot_be_saved(make_task, parts, message):
    model = make_task(TextClassifier, labels=2)
    model.enable_lora(2, targets="value", modules_to_save=["block_0/attention_norm"], name="first")
    with pytest.raises(ValueError, match=message):
        model.enable_lora(2, targets="query", modules_to_save=parts)
    assert list(model.backbone.adapters) == ["first"]
    quantized = make_task(TextClassifier, labels=2)
    quantized.quantize("int8")
    with pytest.raises(ValueError, match="weights must not be quantized to be trained, got .*embeddings in int8"):
        quantized.enable_lora(2, modules_to_save=["token_embedding"])


def test_magnitudes_and_what_else_is_done_to_the_weights(make_task, texts, tmp_path):
    model = make_task(TextClassifier, labels=2, head_dropout=0.0)
    model.enable_lora(2, targets="query", dora=True)
    model.enable_lora(2, targets="query", name="other")
    before = values(model)
    with pytest.raises(ValueError, match=r"query that are merged must include 'default', got \['other'\]"):
        model.merge_lora("other")
    with pytest.raises(ValueError, match="query must be in floating point or int8 for DoRA, got int4"):
        model.quantize("int4")
    with pytest.raises(ValueError, match="query must be in floating point or int8 for DoRA, got int4"):
        model.backbone.quantize("int4")
    assert all(np.array_equal(value, before[path]) for path, value in values(model).items())
    model.merge_lora()
    model.quantize("int8")
    model.enable_lora(2, targets=["query", "up"], dora=True)
    model.compile(keras.optimizers.Adam(0.05), run_eagerly=True)
    model.fit(texts[:8], [0, 1] * 4, batch_size=8, verbose=0)
    expected = model.predict(texts[:4])
    model.save_to_preset(tmp_path / "preset")
    np.testing.assert_allclose(TextClassifier.from_preset(tmp_path / "preset").predict(texts[:4]), expected, rtol=1e-5)


def _paths(weights):
    """Paths without the name of the model, which Keras numbers."""
    return [weight.path.partition("/")[2] for weight in weights]


def test_wrong_names_of_adapters(make_task):
    model = make_task(TextClassifier, labels=2)
    model.enable_lora(2)
    for name, message in (
        ("default", "another than those of .'default'.*"),
        ("a b", "a name of letters"),
        (3, "got 3"),
    ):
        with pytest.raises(ValueError, match=f"name must be {message}" if name != 3 else message):
            model.enable_lora(2, name=name)
    for act in (model.activate_adapters, model.remove_adapters, model.merge_lora):
        with pytest.raises(ValueError, match=r"must be one of \['default'\], got 'other'"):
            act("other")
    with pytest.raises(ValueError, match="trainable must be among the active adapters"):
        model.activate_adapters(trainable=["default"])


def test_dropout_of_updates_in_training_only(make_task):
    model = make_task(MaskedLM)
    model.enable_lora(2, dropout=0.5, targets=["query"])
    ((_, update),) = model.backbone.adapters.updates("default").items()
    update.lora_b.assign(np.ones(update.lora_b.shape))
    inputs = keras.ops.ones((1, 4, 16))
    expected = np.ones((1, 4, 16)) @ np.array(update.lora_a) @ np.ones((2, 16))
    np.testing.assert_allclose(update(inputs), expected, rtol=1e-5)
    drawn = np.array(update(inputs, training=True))
    # with half of the inputs, doubled: other sums in each of the four rows
    assert len(np.unique(drawn.round(5))) > 1 and np.abs(drawn - expected).max() > 1e-3


def test_int8(make_task, texts, tmp_path):
    model = make_task(TextClassifier, labels=2)
    expected = model.predict(texts[:16])
    weights = model.weights
    before = sum(4 * weight.numpy().size for weight in weights)
    report = model.quantize("int8")
    assert report.mode == "int8" and report.bytes_before == before
    # dense layers of the block (6), pooler, head, token and segment embedding
    assert len(report.layers) == 10, report.layers
    sizes = {"int8": 1, "float32": 4, "uint32": 4}
    assert report.bytes_after == sum(sizes[weight.dtype] * int(np.prod(weight.shape)) for weight in model.weights)
    assert report.bytes_after < 0.45 * before and "int8 weights in 10 layers" in str(report)
    quantized = model.predict(texts[:16])
    # 8 bits of weights and activations: some hundredths, not zero
    assert 0 < np.abs(quantized - expected).max() < 0.1
    model.save_to_preset(tmp_path / "preset")
    model.save(tmp_path / "model.keras")
    for loaded in (
        TextClassifier.from_preset(tmp_path / "preset"),
        keras.models.load_model(tmp_path / "model.keras"),
    ):
        assert sum(weight.dtype == "int8" for weight in loaded.weights) == 10
        np.testing.assert_allclose(loaded.predict(texts[:16]), quantized, rtol=1e-4, atol=1e-6)
    with pytest.raises(ValueError, match="is quantized already: .* once"):
        model.quantize("int8")


def test_int8_of_a_tied_projection(make_task):
    model = make_task(MaskedLM)
    expected = dict(model.fill_mask("alpha <mask> beta", top_k=27)[0])
    model.quantize("int8")
    quantized = dict(model.fill_mask("alpha <mask> beta", top_k=27)[0])
    assert quantized.keys() == expected.keys()
    assert 0 < max(abs(quantized[token] - expected[token]) for token in expected) < 0.1


def test_int8_generation(trained, copied):
    model = Seq2SeqLM.from_config(trained.get_config())
    model.set_weights(trained.get_weights())
    report = model.quantize()
    assert len(report.layers) > 10
    generated = model.generate(copied, jit_compile=False)
    assert np.mean([one == other for one, other in zip(generated, copied, strict=True)]) > 0.8


def test_quantizers_that_no_file_holds(make_task):
    with pytest.raises(TypeError, match="unexpected keyword argument 'filters'"):
        make_task(TextClassifier, labels=2).quantize("int8", filters="query")


def test_wrong_mode(make_task):
    with pytest.raises(ValueError, match=r"mode must be one of \('int8', 'int4'\), got 'int7'"):
        make_task(TextClassifier, labels=2).quantize("int7")
