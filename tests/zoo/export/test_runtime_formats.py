"""Exports for ONNX Runtime, LiteRT and OpenVINO, run by processes that know only NumPy and the runtime."""

import importlib.util
import json
import subprocess
import sys

import keras
import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from zoo import (  # noqa: E402
    AttentionConfig,
    Backbone,
    CausalLM,
    FeedForwardConfig,
    NormConfig,
    PositionConfig,
    QuestionAnswerer,
    RecurrentConfig,
    Seq2SeqLM,
    TextClassifier,
    TextEmbedder,
    TokenClassifier,
    TransformerConfig,
)
from zoo.export import RUNTIME_FORMATS  # noqa: E402

FORMATS = [
    pytest.param(
        name,
        marks=pytest.mark.skipif(
            any(importlib.util.find_spec(package) is None for package in packages),
            reason=f"the extra {name} is not installed",
        ),
    )
    for name, packages in RUNTIME_FORMATS.items()
]
LABELS = ["bad", "good", "so-so"]
# Sums of float32 in another order, of logits of a size up to 10.
CLOSE = {"rtol": 1e-4, "atol": 2e-5}
NEW_TOKENS = 8

# Reads folders and rows, writes what the endpoints give.
CLIENT = """
import importlib.util, json, sys
import numpy as np

request = json.load(sys.stdin)
results = {}
for name, (folder, rows) in request.items():
    spec = importlib.util.spec_from_file_location("run_model", folder + "/run_model.py")
    runner = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(runner)
    model = runner.ExportedModel(threads=1)
    if "forward" in model.endpoints:
        fields = {field["name"]: field["dtype"] for field in model.endpoints["forward"]["inputs"]}
        outputs = model("forward", **{key: np.array(rows[key], kind) for key, kind in fields.items()})
        results[name] = {key: value.tolist() for key, value in outputs.items()}
    else:
        results[name] = runner.generate(model, **rows)
        for wrong in ([], [[]]):
            try:
                runner.generate(model, wrong, **{key: rows[key] for key in rows if key == "sources"})
            except ValueError as error:
                assert "must have" in str(error), error
            else:
                raise AssertionError(wrong)
assert not {"tensorflow", "keras", "zoo", "layers"} & set(sys.modules)
print(json.dumps(results))
"""


def decoder(tokenizer, **choices):
    keras.utils.set_random_seed(0)
    config = TransformerConfig(
        "decoder",
        vocabulary_size=tokenizer.vocabulary_size,
        hidden_dim=16,
        num_layers=2,
        max_length=32,
        feed_forward=FeedForwardConfig(32),
        norm=NormConfig(placement="pre"),
        dropout=0.0,
        initializer_range=0.7,
        **choices,
    )
    return CausalLM(Backbone.from_config(config), tokenizer)


@pytest.fixture(scope="module")
def encoders(make_task):
    def made(task_class, activation, **options):
        return make_task(task_class, config={"feed_forward": FeedForwardConfig(24, activation)}, **options)

    return {
        "classifier": made(TextClassifier, "gelu", labels=LABELS),
        "tagger": made(TokenClassifier, "gelu_tanh", labels=["O", "B-X", "I-X"], seed=2),
        "embedder": made(TextEmbedder, "relu", seed=3),
        "answerer": made(QuestionAnswerer, "silu", seed=4),
    }


@pytest.fixture(scope="module")
def writers(tiny_tokenizer, trained):
    keras.utils.set_random_seed(1)
    recurrent = RecurrentConfig(tiny_tokenizer.vocabulary_size, embedding_dim=8, hidden_dim=12, encoder_dim=10)
    return {
        # caches of a window, and of the whole text
        "window": decoder(
            tiny_tokenizer,
            attention=AttentionConfig(num_heads=2, num_key_value_heads=1, window=(5, 0), window_layers=(True, False)),
            position=PositionConfig("rotary"),
        ),
        "copies": trained,
        "recurrent": Seq2SeqLM(Backbone.from_config(recurrent), tiny_tokenizer),
    }


def rows_of(name, task, texts):
    """What the endpoints are called with, and what Python gives for it."""
    if not hasattr(task, "generate"):
        inputs = {"token_ids": None}
        columns = (texts, texts[::-1]) if name == "answerer" else texts
        preprocessor = task.preprocessor
        tokens = preprocessor.tokens(preprocessor.check_rows(columns, "x"))
        if name == "answerer":
            tokens = preprocessor.windows(tokens)
        inputs = dict(preprocessor.inputs(tokens))
        inputs.pop("word_positions", None)
        return {key: np.asarray(value).tolist() for key, value in inputs.items()}, task(inputs, training=False)
    prompts, sources = task.preprocessor.prompts(tf.constant(texts), None, False, task.longest, NEW_TOKENS)
    given = {"prompts": prompts.to_list()} if sources is None else {"sources": sources.to_list()}
    named = {"prompts": "prompts", "sources": "source"}
    made = task.generate_tokens(
        **{named[key]: value for key, value in given.items()}, max_new_tokens=NEW_TOKENS, jit_compile=False
    )
    written = [
        row[: length - end].tolist()
        for row, length, end in zip(made["token_ids"], made["lengths"], made["end_lengths"], strict=True)
    ]
    return {**given, "max_new_tokens": NEW_TOKENS}, written


def answers(folder, tasks, texts, **options):
    """What a process of its own gives for each task, beside what Python gives."""
    request, expected = {}, {}
    folder.mkdir(exist_ok=True)
    for name, task in tasks.items():
        task.export(folder / name, **options)
        rows, expected[name] = rows_of(name, task, texts)
        request[name] = str(folder / name), rows
    result = subprocess.run(
        [sys.executable, "-c", CLIENT], input=json.dumps(request), capture_output=True, text=True, cwd=folder
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return json.loads(result.stdout), expected


@pytest.mark.parametrize("format", FORMATS)
def test_encoders_give_what_python_gives(encoders, odd_texts, tmp_path, format):
    texts = odd_texts[80:130]
    found, logits = answers(tmp_path, encoders, texts, format=format)
    classifier, tagger = encoders["classifier"], encoders["tagger"]
    expected = {
        "classifier": {"probabilities": keras.ops.softmax(logits["classifier"])},
        "tagger": {"probabilities": keras.ops.softmax(logits["tagger"])},
        "embedder": {"embeddings": logits["embedder"]},
        "answerer": {"logits": logits["answerer"]},
    }
    for name, outputs in expected.items():
        assert list(found[name]) == list(outputs)
        for key, value in outputs.items():
            np.testing.assert_allclose(found[name][key], value, **CLOSE)
            assert np.ptp(value) > 0.1
    np.testing.assert_allclose(found["classifier"]["probabilities"], classifier.predict(texts), **CLOSE)
    np.testing.assert_allclose(found["embedder"]["embeddings"], encoders["embedder"].embed(texts), **CLOSE)
    about = json.loads((tmp_path / "tagger/signature.json").read_text())
    assert about["format"] == format and about["default"] == "forward"
    properties = about["endpoints"]["forward"]["properties"]
    assert properties["labels"] == tagger.labels.strings and properties["max_length"] == 24
    assert any((tmp_path / "tagger/assets.extra").rglob("*.model"))
    assert about["agreement"]["forward"]["probabilities"]["largest_difference"] < 1e-4


@pytest.mark.parametrize("format", FORMATS)
def test_loops_write_what_generate_writes(writers, texts, tmp_path, format):
    # also a prompt without a word, and one that is as long as it may be
    some = ["", *texts[:30], "alpha " * 30]
    writers = dict(writers)
    if format == "litert":
        with pytest.raises(ValueError, match="'litert' cannot hold .* of this model, its converter says: .*TensorList"):
            writers.pop("recurrent").export(tmp_path / "recurrent", format=format)
    found, expected = answers(tmp_path, writers, some, format=format)
    for name in writers:
        assert found[name] == expected[name]
        assert len({str(row) for row in expected[name]}) > (3 if name == "recurrent" else 15)
    assert json.loads((tmp_path / "window/signature.json").read_text())["default"] == "prefill"


@pytest.mark.parametrize("format", FORMATS)
def test_weights_in_8_bits(mask_tokenizer, texts, tmp_path, format):
    keras.utils.set_random_seed(0)
    config = TransformerConfig(
        "encoder", mask_tokenizer.vocabulary_size, 128, num_layers=2, max_length=32, attention=AttentionConfig(4)
    )
    task = TextClassifier(Backbone.from_config(config), mask_tokenizer, labels=LABELS)
    sizes = {}
    for weights in ("int8", "float32"):
        found, logits = answers(tmp_path / weights, {"model": task}, texts[:30], format=format, weights=weights)
        folder = tmp_path / weights / "model"
        kinds = {".onnx", ".bin", ".tflite", ".xml"}
        sizes[weights] = sum(path.stat().st_size for path in folder.iterdir() if path.suffix in kinds)
        difference = np.abs(np.array(found["model"]["probabilities"]) - keras.ops.softmax(logits["model"])).max()
        # rounding to one of 255 steps (ONNX: 127) changes a product by one or two hundredths
        assert (1e-5 < difference < 0.05) if weights == "int8" else difference < 1e-5
        about = json.loads((folder / "signature.json").read_text())
        agreement = about["agreement"]["forward"]["probabilities"]
        assert about["weights"] == weights and agreement["largest_difference"] < 0.05
        assert 0 <= agreement["same_choice"] <= 1
    assert sizes["int8"] < 0.5 * sizes["float32"]


@pytest.mark.parametrize("format", FORMATS)
def test_backbones(encoder_config, tmp_path, format):
    keras.utils.set_random_seed(0)
    backbone = Backbone.from_config(encoder_config)
    backbone.export(tmp_path / "export", format=format)
    from zoo.export.run_model import ExportedModel

    ids = np.random.default_rng(0).integers(0, 27, (2, 5)).astype("int32")
    inputs = {"token_ids": ids, "padding_mask": np.ones((2, 5), "bool"), "segment_ids": ids % 2}
    found = ExportedModel(tmp_path / "export")("forward", **inputs)["hidden_states"]
    np.testing.assert_allclose(found, backbone(inputs), **CLOSE)
    with pytest.raises(ValueError, match="inputs of forward must be token_ids, padding_mask, segment_ids, got other"):
        ExportedModel(tmp_path / "export")("forward", other=ids)
    with pytest.raises(ValueError, match="endpoint must be one of forward, got 'serve'"):
        ExportedModel(tmp_path / "export")("serve")


@pytest.mark.parametrize("format", FORMATS[:1])
def test_files_that_differ_are_not_written(encoders, tmp_path, monkeypatch, format):
    from zoo.export.run_model import ExportedModel

    right = ExportedModel.__call__
    monkeypatch.setattr(
        ExportedModel,
        "__call__",
        lambda self, *names, **inputs: {key: value + 0.01 for key, value in right(self, *names, **inputs).items()},
    )
    with pytest.raises(ValueError, match=r"'probabilities' of the endpoint 'forward' differs from Python's by 0\.01"):
        encoders["classifier"].export(tmp_path / "export", format=format)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("format", FORMATS[:1])
def test_what_a_format_cannot_hold(make_task, encoders, writers, tmp_path, format):
    export = tmp_path / "export"
    with pytest.raises(ValueError, match="weights must be one of 'float32', 'int8', got 'int4'"):
        encoders["classifier"].export(export, format=format, weights="int4")
    with pytest.raises(ValueError, match="format must be one of 'tf_saved_model', 'onnx', .*, got 'torch'"):
        encoders["classifier"].export(export, format="torch")
    with pytest.raises(TypeError, match=r"CausalLM must be among format, .*max_new_tokens, got \['sampler'\]"):
        writers["window"].export(export, format=format, sampler="greedy")
    with pytest.raises(ValueError, match="texts are written in a loop"):
        writers["window"].export(export, format=format, strings=True)
    with pytest.raises(ValueError, match="what a TokenClassifier returns are places in texts"):
        encoders["tagger"].export(export, format=format, strings=True)
    with pytest.raises(ValueError, match="A SavedModel takes strings and has the weights of the model"):
        encoders["classifier"].export(export, weights="int8")
    quantized = make_task(TextClassifier, labels=LABELS)
    quantized.quantize("int8")
    with pytest.raises(ValueError, match="needs a model that is not quantized: its own tool quantizes"):
        quantized.export(export, format=format)
    half = decoder_in("mixed_bfloat16", writers["window"])
    with pytest.raises(ValueError, match="needs a model that computes in float32, this one computes in bfloat16"):
        half.export(export, format=format)
    with_rules = CausalLM(writers["window"].backbone, writers["window"].tokenizer, generation={"stop": ["eta"]})
    with pytest.raises(ValueError, match="is greedy, without the processors and stops"):
        with_rules.export(export, format=format)
    assert not list(tmp_path.iterdir())


def decoder_in(dtype, task):
    backbone = Backbone.from_config({**task.backbone.get_config(), "dtype": dtype, "name": "half"})
    return CausalLM(backbone, task.tokenizer, dtype=dtype)


def test_a_runtime_that_is_missing(encoders, tmp_path, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "ai_edge_litert" else found(name))
    with pytest.raises(ImportError, match=r"'litert' needs ai_edge_litert: pip install .*\[litert\]"):
        encoders["classifier"].export(tmp_path / "export", format="litert")


@pytest.mark.parametrize("format", FORMATS[:1])
def test_what_the_writer_of_onnx_leaves_out_is_still_wrong(format):
    """When this fails, `zoo.export.onnx` may use all steps of tf2onnx: give `optimize_graph` no `optimizers`."""
    import onnxruntime
    import tf2onnx

    @tf.function(input_signature=[tf.TensorSpec((None, None, 4), tf.float32, "x")])
    def split(x):
        rows, length = tf.unstack(tf.shape(x)[:2])
        flat = tf.matmul(tf.reshape(x, (-1, 4)), np.eye(4, dtype="float32"))
        wide = tf.reshape(flat, tf.stack([rows, length, 4]))
        shape = tf.shape(wide)
        return tf.reshape(wide, tf.stack([shape[0], shape[1], 2, 2]))

    model, _ = tf2onnx.convert.from_function(split, input_signature=split.input_signature, opset=18)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    with pytest.raises(onnxruntime.capi.onnxruntime_pybind11_state.Fail):
        session.run(None, {"x": np.ones((2, 3, 4), "float32")})


@pytest.mark.parametrize("format", FORMATS[:1])
def test_remainders_of_the_writer_of_onnx_are_still_wrong(format):
    """When this fails, `zoo.export.onnx` needs no `_floor_mod`."""
    import onnxruntime
    import tf2onnx

    @tf.function(input_signature=[tf.TensorSpec((None,), tf.int32, "x")])
    def remainder(x):
        return x % 5

    model, _ = tf2onnx.convert.from_function(remainder, input_signature=remainder.input_signature, opset=18)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    assert remainder(tf.constant([-3])).numpy().tolist() == [2]
    assert session.run(None, {"x": np.array([-3], "int32")})[0].tolist() == [-3]
