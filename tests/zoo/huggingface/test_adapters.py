"""Adapters of the PEFT library, read and written: see tests/reference/adapters.py."""

import dataclasses
import json
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
from keras import ops
from safetensors import safe_open
from safetensors.numpy import save_file

import zoo
from zoo.huggingface import adapter_config, load_task
from zoo.tasks import adapter_reader

ADAPTERS = Path(__file__).parents[2] / "reference" / "adapters"
TASKS = {
    "albert_masked_lm": zoo.MaskedLM,
    "bart": zoo.Seq2SeqLM,
    "bert_classifier": zoo.TextClassifier,
    "bert_question_answerer": zoo.QuestionAnswerer,
    "bert_token_classifier": zoo.TokenClassifier,
    "gpt2": zoo.CausalLM,
    "gpt2_scaled": zoo.CausalLM,
    "gpt_neox": zoo.CausalLM,
    "gpt_neox_sequential": zoo.CausalLM,
    "llama": zoo.CausalLM,
    "llama_biases": zoo.CausalLM,
    "llama_classifier": zoo.TextClassifier,
    "mistral": zoo.CausalLM,
    "mixtral": zoo.CausalLM,
    "nomic_bert_token_classifier": zoo.TokenClassifier,
    "phi3": zoo.CausalLM,
    "qwen3": zoo.CausalLM,
    "roberta_classifier": zoo.TextClassifier,
    "t5": zoo.Seq2SeqLM,
}
# layers that the file has as one become several: with the same factors they are one again
WEIGHTS, CONFIG = adapter_config.WEIGHTS_FILE, adapter_config.CONFIG_FILE


def tensors_of(folder):
    with safe_open(folder / WEIGHTS, "np") as file:
        return {name: file.get_tensor(name) for name in file.keys()}


def logits_of(task, inputs):
    logits = ops.convert_to_numpy(task(inputs))
    mask = inputs.get("padding_mask", inputs.get("decoder_padding_mask"))
    return logits[mask] if logits.ndim == 3 else logits


def check(task, inputs, expected):
    actual = logits_of(task, inputs)
    mask = inputs.get("padding_mask", inputs.get("decoder_padding_mask"))
    expected = expected[mask] if expected.ndim == 3 else expected
    np.testing.assert_allclose(actual, expected, atol=2e-5 * np.abs(expected).max())


@pytest.fixture(scope="module")
def expected():
    """`expected(case)`: the outputs of the model of a case with its adapter."""
    return lambda case: np.load(ADAPTERS / case / "golden.npz")["outputs"]


@pytest.fixture(scope="module")
def llama():
    """A task without adapters; a test leaves it so."""
    task = load_task(zoo.CausalLM, ADAPTERS.parent / "huggingface" / "llama")
    yield task
    assert not len(task.backbone.adapters)


@pytest.fixture
def changed(tmp_path):
    """`changed(case, tensors=None, **keys)`: a copy of an adapter with other keys and tensors; None removes one."""

    def change(case, tensors=None, **keys):
        folder = tmp_path / "changed"
        shutil.copytree(ADAPTERS / case, folder)
        values = {**json.loads((folder / CONFIG).read_text()), **keys}
        (folder / CONFIG).write_text(json.dumps(values))
        found = {**tensors_of(folder), **(tensors or {})}
        save_file({name: tensor for name, tensor in found.items() if tensor is not None}, folder / WEIGHTS)
        return folder

    return change


@pytest.mark.sampled(8)
@pytest.mark.parametrize("case", TASKS)
def test_outputs_of_the_library_and_back(case, reference, golden, expected, tmp_path):
    inputs, _ = golden(case)
    task = load_task(TASKS[case], reference / case)
    before = logits_of(task, inputs)
    report = task.load_adapter(ADAPTERS / case, "first")
    assert report.layers == tuple(task.backbone.adapters["first"].layers) and report.trainable_parameters
    check(task, inputs, expected(case))
    family = json.loads((reference / case / "config.json").read_text())["model_type"]
    assert task.save_adapter(tmp_path / "adapter", "first", model_type=family, base_model="owner/name") == family
    ours, theirs = tensors_of(tmp_path / "adapter"), tensors_of(ADAPTERS / case)
    theirs.pop("base_model.model.lm_head.base_layer.weight", None)  # of the model itself
    assert set(ours) == set(theirs)
    for name, tensor in theirs.items():
        np.testing.assert_allclose(ours[name], tensor, rtol=1e-6, err_msg=name)
    config = json.loads((tmp_path / "adapter" / CONFIG).read_text())
    assert config["base_model_name_or_path"] == "owner/name"
    if task.backbone.adapters["first"].weights:
        with pytest.raises(ValueError, match="'first' cannot be removed: it replaces . weights of the model, such as"):
            task.remove_adapters("first")
        with pytest.raises(ValueError, match="'first' cannot be deactivated: it replaces . weights"):
            task.activate_adapters()
        task.merge_lora()
        check(task, inputs, expected(case))
        task = load_task(TASKS[case], reference / case)
    else:
        task.remove_adapters("first")
    if not config["modules_to_save"]:
        np.testing.assert_array_equal(logits_of(task, inputs), before)
    task.load_adapter(tmp_path / "adapter")
    check(task, inputs, expected(case))


def test_names_are_as_short_as_they_can_be(reference, tmp_path):
    task = load_task(zoo.TextClassifier, reference / "bert_classifier")
    task.enable_lora(2, targets=["query", "output"])
    task.enable_lora(2, alpha=4.5, targets="value", blocks=[1], dropout=0.2, name="other")
    for name in ("default", "other"):
        task.save_adapter(tmp_path / name, name)
    configs = [json.loads((tmp_path / name / CONFIG).read_text()) for name in ("default", "other")]
    # "dense" would mean those of the feed-forward network and the pooler too
    names = ["bert.encoder.layer.0.attention.output.dense", "bert.encoder.layer.1.attention.output.dense", "query"]
    assert configs[0]["target_modules"] == names and configs[0]["modules_to_save"] == ["classifier"]
    assert configs[1]["target_modules"] == ["bert.encoder.layer.1.attention.self.value"]
    assert (configs[1]["lora_alpha"], configs[1]["lora_dropout"], configs[1]["task_type"]) == (4.5, 0.2, "SEQ_CLS")


def test_the_named_updates_are_saved_whichever_are_active(reference, tmp_path):
    task, generator = load_task(zoo.TextClassifier, reference / "bert_classifier"), np.random.default_rng(0)
    for name in ("a", "b"):
        task.enable_lora(2, alpha=3.0, targets="query", name=name)
        for update in task.backbone.adapters.updates(name).values():
            update.lora_a.assign(generator.normal(size=update.lora_a.shape))
            update.lora_b.assign(generator.normal(size=update.lora_b.shape))
    update = task.backbone.adapters.updates("b")["encoder/block_0/attention/query"]
    for active in (["a"], ["a", "b"], []):
        task.activate_adapters(*active)
        task.save_adapter(tmp_path / "adapter", "b")
        tensors = tensors_of(tmp_path / "adapter")
        prefix = "base_model.model.bert.encoder.layer.0.attention.self.query.lora_"
        np.testing.assert_array_equal(tensors[f"{prefix}A.weight"], np.transpose(update.lora_a))
        np.testing.assert_array_equal(tensors[f"{prefix}B.weight"], np.transpose(update.lora_b))
    with pytest.raises(ValueError, match="'c'"):
        task.save_adapter(tmp_path / "adapter", "c")


def test_parts_of_heads_that_the_file_has_not(reference, tmp_path):
    task = load_task(zoo.TextClassifier, reference / "roberta_classifier")
    task.enable_lora(1)
    task.save_adapter(tmp_path / "adapter")
    tensors = tensors_of(tmp_path / "adapter")
    del tensors["base_model.model.classifier.dense.weight"]
    save_file(tensors, tmp_path / "adapter" / WEIGHTS)
    with pytest.raises(ValueError, match="classifier.dense.weight is missing"):
        task.load_adapter(tmp_path / "adapter", "other")
    del tensors["base_model.model.classifier.dense.bias"]
    save_file(tensors, tmp_path / "adapter" / WEIGHTS)
    with pytest.warns(UserWarning, match="The adapter has no weights for classifier.dense, which stay as they are"):
        task.load_adapter(tmp_path / "adapter", "other")


def test_several_by_name(llama, golden, expected, tmp_path):
    inputs, plain = golden("llama")
    llama.load_adapter(ADAPTERS / "llama", "first")
    llama.enable_lora(2, targets=["query", "up"], name="second")
    for update in llama.backbone.adapters.updates("second").values():
        update.lora_b.assign(np.random.default_rng(0).normal(size=update.lora_b.shape))
    both = logits_of(llama, inputs)
    llama.activate_adapters("first")
    check(llama, inputs, expected("llama"))
    llama.activate_adapters()
    check(llama, inputs, plain["logits"])
    llama.save_adapter(tmp_path / "second", "second")
    llama.remove_adapters("second")
    llama.activate_adapters("first")
    llama.load_adapter(tmp_path / "second", "again")
    np.testing.assert_allclose(logits_of(llama, inputs), both, rtol=1e-5, atol=1e-5)
    assert not any("first" in weight.path for weight in llama.trainable_weights)
    with pytest.raises(ValueError, match="name must be another than those of .*'again'"):
        llama.load_adapter(tmp_path / "second", "again")
    with pytest.raises(ValueError, match="The name of an adapter must be one of .*'again'.*, got 'default'"):
        llama.save_adapter(tmp_path / "none")
    llama.remove_adapters("first", "again")
    with pytest.raises(ValueError, match=r"no low-rank updates, got 'default': call enable_lora\(\) or load_adapter"):
        llama.save_adapter(tmp_path / "none")


def test_on_quantized_weights(reference, golden, tmp_path):
    inputs, _ = golden("gpt2")
    task, other = (load_task(zoo.CausalLM, reference / "gpt2") for _ in range(2))
    task.load_adapter(ADAPTERS / "gpt2")
    for each in (task, other):
        each.quantize("int8")
    other.load_adapter(ADAPTERS / "gpt2")
    np.testing.assert_allclose(logits_of(other, inputs), logits_of(task, inputs), rtol=1e-5, atol=1e-5)
    assert other.save_adapter(tmp_path / "adapter") == "gpt2"
    ours, theirs = tensors_of(tmp_path / "adapter"), tensors_of(ADAPTERS / "gpt2")
    for name, tensor in theirs.items():
        np.testing.assert_array_equal(ours[name], tensor)


def test_heads_on_quantized_weights(reference, golden, tmp_path):
    inputs, _ = golden("roberta_classifier")
    task = load_task(zoo.TextClassifier, reference / "roberta_classifier")
    task.quantize("int8")
    with pytest.raises(ValueError, match="head.dense must not be quantized to be replaced, got int8: load the adapter"):
        task.load_adapter(ADAPTERS / "roberta_classifier")
    task.load_adapter(ADAPTERS / "roberta_classifier", head=False)
    assert task.save_adapter(tmp_path / "adapter") == "roberta"
    loaded = load_task(zoo.TextClassifier, reference / "roberta_classifier")
    loaded.load_adapter(tmp_path / "adapter")
    loaded.quantize("int8")
    np.testing.assert_allclose(logits_of(loaded, inputs), logits_of(task, inputs), rtol=1e-5, atol=1e-5)


def test_layers_that_are_stored_as_one(reference, golden, tmp_path):
    inputs, _ = golden("phi3")
    task = load_task(zoo.CausalLM, reference / "phi3")
    task.enable_lora(2, targets=["query", "value", "up"], alpha=3.0)
    paths = list(task.backbone.adapters.updates("default"))
    task.remove_adapters("default")
    # another rank and another scale each
    layers = {path: (1 + index % 3, 2.0 + index) for index, path in enumerate(paths)}
    task.backbone.adapters.add("default", layers)
    generator = np.random.default_rng(0)
    for update in task.backbone.adapters.updates("default").values():
        # small: what is stored as one adds up in another order, and rounding grows with the updates
        update.lora_b.assign(generator.normal(0.0, 0.2, update.lora_b.shape))
    before = logits_of(task, inputs)
    assert task.save_adapter(tmp_path / "adapter", model_type="phi3") == "phi3"
    assert json.loads((tmp_path / "adapter" / CONFIG).read_text())["target_modules"] == ["gate_up_proj", "qkv_proj"]
    task.remove_adapters("default")
    report = task.load_adapter(tmp_path / "adapter")
    np.testing.assert_allclose(logits_of(task, inputs), before, rtol=1e-5, atol=1e-5)
    assert {path.split("/")[-1] for path in report.layers} == {"query", "key", "value", "gate", "up"}


def test_pairs_of_rotary_features_change_places(tmp_path):
    config = zoo.preset_config("llama_shakespeare", num_layers=1, vocabulary_size=32, hidden_dim=16, max_length=16)
    attention = dataclasses.replace(config.attention, num_heads=2, num_key_value_heads=1, head_dim=8)
    position = dataclasses.replace(config.position, layout="interleaved")
    config = dataclasses.replace(config, attention=attention, position=position)
    task = zoo.CausalLM(zoo.Backbone.from_config(config))
    task.save_to_huggingface(tmp_path / "model")
    task.enable_lora(2, targets=["query", "key"])
    for update in task.backbone.adapters.updates("default").values():
        update.lora_b.assign(np.random.default_rng(0).normal(size=update.lora_b.shape))
    assert task.save_adapter(tmp_path / "adapter") == "llama"
    inputs = {"token_ids": np.arange(8)[None], "padding_mask": np.ones((1, 8), bool)}
    expected = logits_of(task, inputs)
    loaded = load_task(zoo.CausalLM, tmp_path / "model")
    loaded.load_adapter(tmp_path / "adapter")
    np.testing.assert_allclose(logits_of(loaded, inputs), expected, rtol=1e-4, atol=1e-5)
    task.remove_adapters("default")
    task.load_adapter(tmp_path / "adapter")
    np.testing.assert_array_equal(logits_of(task, inputs), expected)


def test_models_of_no_family_have_their_own_names(make_task, texts, tmp_path):
    norm = zoo.NormConfig("rms", "post")
    task = make_task(zoo.TextClassifier, labels=2, config={"norm": norm}, pooling="max")
    task.enable_lora(2, targets=["query", "up"])
    for update in task.backbone.adapters.updates("default").values():
        update.lora_b.assign(np.random.default_rng(0).normal(size=update.lora_b.shape))
    before = task.predict(texts[:4])
    assert task.save_adapter(tmp_path / "adapter") is None
    names = set(tensors_of(tmp_path / "adapter"))
    assert "base_model.model.encoder.block_0.attention.query.lora_A.weight" in names
    assert "base_model.model.head.projection.bias" in names
    with pytest.raises(ValueError, match="it cannot express"):
        task.save_adapter(tmp_path / "adapter", model_type="bert")
    # an adapter is replaced, but not one with a model beside it
    task.save_adapter(tmp_path / "adapter")
    (tmp_path / "adapter" / "config.json").write_text("{}")
    with pytest.raises(FileExistsError, match="adapter exists and is no adapter of the PEFT library alone"):
        task.save_adapter(tmp_path / "adapter")
    (tmp_path / "adapter" / "config.json").unlink()
    loaded = make_task(zoo.TextClassifier, labels=2, config={"norm": norm}, pooling="max")
    loaded.head.projection.kernel.assign(0.0 * loaded.head.projection.kernel)
    loaded.load_adapter(tmp_path / "adapter", "mine")
    np.testing.assert_allclose(loaded.predict(texts[:4]), before, rtol=1e-5, atol=1e-6)


def test_from_preset_with_the_model_that_is_named(reference, golden, changed, tmp_path, tiny_tokenizer):
    inputs, _ = golden("bert_classifier")
    folder = changed("bert_classifier", base_model_name_or_path=str(reference / "bert_base"))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*starts untrained")  # the adapter has the head
        task = zoo.TextClassifier.from_preset(folder, tokenizer=tiny_tokenizer)
    assert len(task.labels) == 3 and task.backbone.adapters.active == ("default",)
    with pytest.warns(UserWarning, match="starts untrained"):
        other = zoo.TextClassifier.from_preset(reference / "bert_base", tokenizer=tiny_tokenizer, labels=3)
    other.load_adapter(folder)
    np.testing.assert_array_equal(logits_of(task, inputs), logits_of(other, inputs))
    (tmp_path / "nested").mkdir()
    config = {"peft_type": "LORA", "r": 2, "task_type": "SEQ_CLS", "base_model_name_or_path": str(folder)}
    (tmp_path / "nested" / CONFIG).write_text(json.dumps(config))
    (tmp_path / "nested" / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes())
    twice = zoo.Backbone.from_preset(tmp_path / "nested")
    assert twice.adapters.active == ("default", "default_2")
    (folder / CONFIG).write_text((tmp_path / "nested" / CONFIG).read_text())
    with pytest.raises(ValueError, match="adapters must be stacked at most 8 high"):
        zoo.Backbone.from_preset(folder)
    with pytest.raises(ValueError, match="must name the model, got None: load that first, then call load_adapter"):
        zoo.Task.from_preset(ADAPTERS / "albert_masked_lm")


def test_heads_of_adapters_of_others(reference, changed, tiny_tokenizer):
    """A single output is a value; an adapter without a head does not silence what is said of it."""
    weight, bias = (f"base_model.model.classifier.{name}" for name in ("weight", "bias"))
    one = {weight: np.ones((1, 16), "float32"), bias: np.zeros(1, "float32")}
    folder = changed("bert_classifier", one, base_model_name_or_path=str(reference / "bert_base"))
    task = zoo.Task.from_preset(folder, tokenizer=tiny_tokenizer)
    assert len(task.labels) == 1 and task.preprocessor.problem == "regression"
    save_file({name: tensor for name, tensor in tensors_of(folder).items() if name not in one}, folder / WEIGHTS)
    with pytest.warns(UserWarning, match="has no weights for this head .*: it starts untrained"):
        zoo.Task.from_preset(folder, tokenizer=tiny_tokenizer, labels=3)


def test_the_revision_of_the_model(monkeypatch):
    asked = []

    def find_reader(name):
        asked.append(name)
        raise ValueError("not here")

    monkeypatch.setattr("zoo.tasks.adapter_reader.find_reader", find_reader)
    for name, revision, expected in (
        ("hf://owner/name", "v2", ["hf://owner/name@v2"]),
        ("owner/name", "v2", ["owner/name", "hf://owner/name@v2"]),
        ("hf://owner/name@v1", None, ["hf://owner/name@v1"]),
        ("hf://owner/name@v1", "v2", []),
    ):
        config = adapter_config.AdapterConfig(base_model_name_or_path=name, revision=revision)
        with pytest.raises(
            ValueError, match="must have no revision where there is one" if not expected else "not here"
        ):
            adapter_reader._named_by(config, Path("adapter"))
        assert asked == expected
        asked.clear()


@pytest.mark.parametrize(
    ("case", "changes", "message"),
    [
        ("llama", {"peft_type": "IA3"}, "adapter_config.json: peft_type must be 'LORA', the only .* got 'IA3'"),
        ("llama", {"use_dora": True}, "lora_magnitude_vector is missing with use_dora True"),
        ("llama_biases", {"use_dora": False}, "lora_magnitude_vector must not be there with use_dora False"),
        ("llama", {"bias": "all"}, "bias must be 'none'"),
        ("llama", {"init_lora_weights": "pissa"}, "init_lora_weights must be one of .* got 'pissa'"),
        ("llama", {"target_parameters": ["w"]}, "target_parameters must be false or null"),
        ("llama", {"r": "3"}, "adapter_config.json: r must be an integer, got '3'"),
        ("llama", {"r": 8, "rank_pattern": {}}, "r or rank_pattern must have the rank 3 of "),
        ("llama", {"lora_alpha": 0}, r"lora_alpha must be above 0, got \[0\]"),
        ("llama", {"lora_dropout": 1.0}, "lora_dropout must be at least 0 and below 1, got 1.0"),
        ("llama", {"alpha_pattern": {"(a+)+b": 2}}, "alpha_pattern must have expressions .* none of which is repeated"),
        # what tries every way through a name, too
        ("llama", {"alpha_pattern": {".?" * 60 + "X": 2}}, "alpha_pattern must have expressions .* 3 repetitions"),
        ("llama", {"alpha_pattern": {"(.|.)" * 40 + "X": 2}}, "alpha_pattern must have expressions .* 3 groups"),
        ("llama", {"alpha_pattern": {"(": 2}}, r"alpha_pattern must have regular expressions, got '\('"),
        ("llama", {"target_modules": ["q_proj"]}, "target_modules must name .*, which has an update"),
        ("llama", {"target_modules": ["q_proj", "v_proj", "down_proj", "lm_head", "up_proj"]}, "which has no update"),
        ("mistral", {"modules_to_save": ["lm_head"]}, "embed_tokens.weight is a weight of the model itself"),
        ("mistral", {"modules_to_save": ["embed_tokens"]}, "lm_head.weight is a weight of the model itself"),
        (
            "mistral",
            {"modules_to_save": ["embed_tokens", "lm_head", "norm"]},
            "norm.weight is missing: modules_to_save",
        ),
    ],
)
def test_refused_configurations(llama, changed, case, changes, message):
    with pytest.raises(ValueError, match=message):
        llama.load_adapter(changed(case, **changes))


FIRST = "base_model.model.model.layers.0.self_attn.q_proj"


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({f"{FIRST}.lora_B.weight": None}, "q_proj.lora_B.weight is missing: an update has"),
        ({f"{FIRST}.lora_B.weight": np.ones((16, 2), "float32")}, r"must have the shape \(16, 3\), got \(16, 2\)"),
        ({f"{FIRST}.lora_A.weight": np.ones((3, 16), "int32")}, "must hold floating-point numbers, got int32"),
        (
            {"base_model.model.model.embed_tokens.lora_embedding_A": np.ones((3, 48), "float32")},
            "lora_embedding_A must be named base_model.model.MODULE",
        ),
        (
            {"base_model.model.model.embed_tokens.weight": np.ones((48, 16), "float32")},
            "is a weight of the model itself",
        ),
        (
            {"base_model.model.lm_head.base_layer.weight": np.ones((48, 16), "float32")},
            "must be the weight of the model",
        ),
        ({"base_model.model.score.weight": np.ones((3, 16), "float32")}, "a CausalLM has none: use head=False"),
        ({f"base_model.model.x.lora_{name}.weight": np.ones((3, 3), "float32") for name in "AB"}, "got x. There are: "),
    ],
)
def test_refused_tensors(llama, changed, tensors, message):
    with pytest.raises(ValueError, match=message) as caught:
        llama.load_adapter(changed("llama", tensors))
    assert "adapter_model.safetensors" in str(caught.value)


def test_pickled_files_are_not_read(llama, changed):
    folder = changed("llama")
    (folder / WEIGHTS).rename(folder / "adapter_model.bin")
    with pytest.raises(
        ValueError, match="has no adapter_model.safetensors, only .'adapter_model.bin'., which may hold"
    ):
        llama.load_adapter(folder)


def assign_gradients(task, inputs):
    """Gives trained weights of the backbone the gradient of the sum of squares of the logits, to be saved by name."""
    tf = pytest.importorskip("tensorflow")
    with tf.GradientTape() as tape:
        logits = task(inputs)
        if len(logits.shape) == 3:
            logits = logits[inputs["padding_mask"]]
        loss = tf.reduce_sum(tf.square(logits))
    gradients = tape.gradient(loss, [weight.value for weight in task.trainable_weights])
    for variable, gradient in zip(task.trainable_weights, gradients, strict=True):
        variable.assign(tf.convert_to_tensor(gradient))


@pytest.mark.parametrize("case", ["llama_biases", "mistral", "llama_classifier", "bert_token_classifier"])
def test_gradients_of_the_library(case, reference, golden, tmp_path):
    inputs, _ = golden(case)
    task = load_task(TASKS[case], reference / case)
    task.load_adapter(ADAPTERS / case)
    assign_gradients(task, inputs)
    family = json.loads((reference / case / "config.json").read_text())["model_type"]
    task.save_adapter(tmp_path / "adapter", model_type=family)
    found = np.load(ADAPTERS / case / "golden.npz")
    theirs = {name.removeprefix("gradient/"): found[name] for name in found if name.startswith("gradient/")}
    ours = tensors_of(tmp_path / "adapter")
    assert set(ours) == set(theirs)
    for name, gradient in theirs.items():
        np.testing.assert_allclose(ours[name], gradient, rtol=1e-3, atol=1e-4 * np.abs(gradient).max(), err_msg=name)


def test_tied_tables_are_saved_twice(reference, golden, tmp_path):
    """PEFT unties modules that it saves: the output projection has the same values there only if it is in the file."""
    inputs, _ = golden("qwen2")
    task = load_task(zoo.CausalLM, reference / "qwen2")
    task.enable_lora(2, modules_to_save=["token_embedding", "final_norm"])
    table, scale = (weight for weight in task.trainable_weights if "lora" not in weight.path)
    table.assign(table + np.random.default_rng(0).normal(size=table.shape))
    scale.assign(2 * scale)
    assert task.save_adapter(tmp_path / "adapter") == "qwen2"
    config = json.loads((tmp_path / "adapter" / CONFIG).read_text())
    # "norm" would mean those of the layers too
    assert config["modules_to_save"] == ["embed_tokens", "lm_head", "model.norm"]
    tensors = tensors_of(tmp_path / "adapter")
    np.testing.assert_array_equal(tensors["base_model.model.lm_head.weight"], table)
    loaded = load_task(zoo.CausalLM, reference / "qwen2")
    loaded.load_adapter(tmp_path / "adapter")
    np.testing.assert_array_equal(logits_of(loaded, inputs), logits_of(task, inputs))
    assert len(loaded.trainable_weights) == len(task.trainable_weights)
    for change in (tensors.pop, lambda name: tensors.update({name: np.zeros_like(table)})):
        change("base_model.model.lm_head.weight")
        save_file(tensors, tmp_path / "adapter" / WEIGHTS)
        with pytest.raises(
            ValueError, match="lm_head.weight must be in the file with the values of embed_tokens.weight"
        ):
            load_task(zoo.CausalLM, reference / "qwen2").load_adapter(tmp_path / "adapter")


@pytest.mark.parametrize(("case", "kind"), [("t5", zoo.Seq2SeqLM), ("bert_masked_lm", zoo.MaskedLM)])
def test_tied_tables_that_peft_would_untie(case, kind, reference, tmp_path):
    task = load_task(kind, reference / case)
    task.enable_lora(2, modules_to_save=["token_embedding"])
    with pytest.raises(ValueError, match="embed.* which is tied to other modules: PEFT|shared.* tied to other modules"):
        task.save_adapter(tmp_path / "adapter", model_type=case.partition("_")[0])


def test_modules_of_models_of_no_family(make_task, texts, tmp_path):
    norm = zoo.NormConfig("rms", "post")
    task = make_task(zoo.TextClassifier, labels=2, config={"norm": norm}, pooling="max")
    task.save_to_preset(tmp_path / "base")
    task.enable_lora(2, modules_to_save=["block_0/attention_norm", "down"])
    for weight in task.backbone.trainable_weights:
        weight.assign(weight + np.random.default_rng(0).normal(size=weight.shape))
    assert task.save_adapter(tmp_path / "adapter", base_model=str(tmp_path / "base")) is None
    loaded = zoo.TextClassifier.from_preset(tmp_path / "adapter")
    np.testing.assert_allclose(loaded.predict(texts[:4]), task.predict(texts[:4]), rtol=1e-5)
