"""Texts of `generate(engine="openvino")` against those that Keras computes."""

import importlib.util

import numpy as np
import pytest

pytest.importorskip("openvino", reason="the extra openvino_genai is not installed")
pytest.importorskip("nncf", reason="the extra openvino_genai is not installed")

import keras  # noqa: E402

if keras.backend.backend() != "tensorflow":
    pytest.skip("OpenVINO is called by TensorFlow's programs", allow_module_level=True)

import zoo  # noqa: E402
from zoo.generation import Beam, Contrastive, GenerationOptions  # noqa: E402
from zoo.openvino_genai import engines  # noqa: E402

TEXTS = ["alpha", "beta gamma kappa", "omega theta alpha beta"]


@pytest.fixture(autouse=True)
def graphs(tmp_path_factory, monkeypatch):
    home = tmp_path_factory.getbasetemp() / "keras"
    monkeypatch.setenv("KERAS_HOME", str(home))
    return home / "zoo_openvino"


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sampler": {"name": "sample", "temperature": 1.3, "top_p": 0.9}, "num_results": 2, "seed": 7},
        {"sampler": Beam(num_beams=3, num_results=2), "return_scores": True},
        {"processors": [{"name": "repetition_penalty", "penalty": 1.4}], "stop": ["beta"], "strip_prompt": True},
    ],
)
def test_texts_are_those_of_keras(tiny_llama, options):
    given = {"max_new_tokens": 12, **options}
    expected = tiny_llama.generate(TEXTS, jit_compile=False, **given)
    found = tiny_llama.generate(TEXTS, engine="openvino", **given)
    if "return_scores" in options:
        np.testing.assert_allclose(found[1], expected[1], rtol=1e-4, atol=1e-4)
        expected, found = expected[0], found[0]
    assert found == expected
    assert len(set(map(str, expected))) == len(TEXTS)


def test_streams_and_ids(tiny_llama):
    expected = tiny_llama.generate(TEXTS[1], max_new_tokens=9, jit_compile=False)
    streams = [tiny_llama.stream(TEXTS[1], max_new_tokens=9, chunk=2, engine="openvino") for _ in range(2)]
    pieces = [[next(stream) for stream in streams] for _ in range(2)]  # side by side
    for number, stream in enumerate(streams):
        assert "".join([*(each[number] for each in pieces), *stream]) == expected
    prompts = [[5], [7, 4, 9]]
    given = {"max_new_tokens": 5, "end_ids": ()}
    found = tiny_llama.generate_tokens(prompts, engine={"name": "openvino"}, **given)
    np.testing.assert_array_equal(
        found["token_ids"], tiny_llama.generate_tokens(prompts, jit_compile=False, **given)["token_ids"]
    )


def test_keys_and_values_live_as_long_as_somebody_writes(tiny_llama):
    given = {"max_new_tokens": 9, "engine": "openvino"}
    expected = tiny_llama.generate(TEXTS[1], **given)
    requests = tiny_llama.generator.engines.engine(
        "openvino", GenerationOptions(9, jit_compile=False)
    ).backbone._requests
    assert not requests
    streams = [tiny_llama.stream(TEXTS[1], **given) for _ in range(6)]
    assert ["".join(stream) for stream in streams] == [expected] * 6
    assert not requests
    left = tiny_llama.stream(TEXTS[1], chunk=1, **given)
    next(left)
    assert len(requests) == 1
    del left
    assert not requests


def test_graphs_follow_the_weights_and_are_kept(tiny_llama, tmp_path, monkeypatch, graphs):
    tiny_llama.save_to_preset(tmp_path / "model")
    model = zoo.CausalLM.from_preset(tmp_path / "model")
    before = model.generate(TEXTS, max_new_tokens=6, engine="openvino")
    assert before == model.generate(TEXTS, max_new_tokens=6, jit_compile=False)
    model.enable_lora(2)
    generator = np.random.default_rng(0)
    for variable in model.trainable_variables:
        variable.assign(generator.normal(0, 0.5, variable.shape))
    after = model.generate(TEXTS, max_new_tokens=6, engine="openvino")
    assert after == model.generate(TEXTS, max_new_tokens=6, jit_compile=False) != before
    for weights in ("int8", "int4"):
        assert len(model.generate(TEXTS, max_new_tokens=6, engine={"name": "openvino", "weights": weights})) == 3
    # another process finds the graph; no more than a few are kept
    monkeypatch.setattr(engines, "stateful_model", None)
    again = zoo.CausalLM.from_preset(tmp_path / "model")
    assert again.generate(TEXTS, max_new_tokens=6, engine="openvino") == before
    assert len(list(graphs.glob("*/*.xml"))) <= engines.MOST_KEPT


def test_graphs_follow_the_factors_of_updates(tiny_llama, tmp_path, monkeypatch):
    """Of which no weight says anything."""
    tiny_llama.save_to_preset(tmp_path)
    model, made = zoo.CausalLM.from_preset(tmp_path), []
    monkeypatch.setattr(engines, "_graph", lambda *given: made.append(engines._key(*given)))
    monkeypatch.setattr(engines, "OpenVINODecoder", lambda backbone, path: backbone)
    held = engines.OpenVINOEngines(model)
    for alpha in (2.0, 8.0):
        model.enable_lora(2, alpha=alpha)
        for variable in model.trainable_variables:
            variable.assign(keras.ops.full(variable.shape, 0.1))
        for _ in range(2):
            held.engine(engines.OpenVINO(), engines.GenerationOptions(2, end_ids=2, jit_compile=False))
        model.remove_adapters("default")
    assert len(set(made)) == len(made) == 2


def test_graphs_of_others_are_not_run(tiny_llama, tmp_path, monkeypatch):
    folder = tmp_path / "graphs"
    monkeypatch.setattr(engines, "kept_graphs", lambda: folder)
    monkeypatch.setattr(engines, "stateful_model", None)
    with pytest.raises(TypeError):
        engines._graph(tiny_llama, engines.OpenVINO())
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o777)
    with pytest.raises(ValueError, match=r"must be one of this user .*graphs has the mode 777: `chmod go-w`"):
        engines._graph(tiny_llama, engines.OpenVINO())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "vllm"}, "engine must be None, 'openvino', .* got 'vllm'"),
        ({"engine": {"name": "openvino", "bits": 8}}, "engine must be None, 'openvino', .* got {'name': 'op"),
        ({"engine": {"name": "openvino", "weights": "int2"}}, "engine.weights must be one of .* got 'int2'"),
        ({"jit_compile": True}, "jit_compile must be left out with engine='openvino', got True"),
        ({"draft": "prompt_lookup"}, "draft must be left out with engine='openvino', got 'prompt_lookup'"),
        ({"return_cache": True}, "return_cache must be left out with engine='openvino', got True"),
        ({"grammar": zoo.generation.Regex("[a-z]+")}, "grammar must be left out with engine='openvino'"),
        ({"sampler": Contrastive()}, "sampler must not read hidden states with engine='openvino'"),
    ],
)
def test_what_is_refused(tiny_llama, options, message):
    with pytest.raises(ValueError, match=message):
        tiny_llama.generate(TEXTS, max_new_tokens=2, **{"engine": "openvino", **options})


def test_models_that_have_no_such_form(untrained, tiny_llama, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="^engine must be None with this model, got 'openvino': it is a .* no decoder"):
        untrained.generate("alpha", engine="openvino")
    tiny_llama.save_to_preset(tmp_path)
    half = zoo.CausalLM.from_preset(tmp_path, dtype="bfloat16")
    with pytest.raises(ValueError, match="^engine='openvino' needs a model that computes in float32.* bfloat16"):
        half.generate("alpha", engine="openvino")
    half.quantize("int8")
    with pytest.raises(ValueError, match="^engine='openvino' needs a model that is not quantized"):
        half.generate("alpha", engine="openvino")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"^engine='openvino' needs openvino, nncf: pip install .*\[openvino\]"):
        tiny_llama.generate("alpha", engine="openvino")
