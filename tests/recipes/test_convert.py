"""Conversion of saved models between the files of libraries."""

import numpy as np
import pytest
import safetensors

import zoo
from recipes import convert, generate
from recipes.common.config import parse
from recipes.common.errors import ConfigError
from recipes.common.saved_models import load_task


def run(*words):
    return convert.main(parse(convert.ConvertConfig, convert.with_names([str(word) for word in words])))


def weights(folder, kind=None):
    return [np.asarray(weight) for weight in load_task(str(folder), kind).weights]


def test_around_all_libraries(tiny_llama, tmp_path, capsys):
    pytest.importorskip("keras_hub")
    tiny_llama.save_to_preset(tmp_path / "preset")
    run(tmp_path / "preset", tmp_path / "transformers")
    assert "a CausalLM of 2,416 parameters, in the files of Transformers, model_type " in capsys.readouterr().out
    run(tmp_path / "transformers", tmp_path / "hub", "--format", "keras_hub")
    assert "in the files of KerasHub, LlamaBackbone" in capsys.readouterr().out
    run(tmp_path / "hub", tmp_path / "again")
    for found, expected in zip(weights(tmp_path / "again"), tiny_llama.weights, strict=True):
        np.testing.assert_array_equal(found, np.asarray(expected))
    vocabulary = load_task(str(tmp_path / "again")).tokenizer.get_vocabulary()
    assert vocabulary == tiny_llama.tokenizer.get_vocabulary()


def test_tasks_without_a_recipe_of_their_own(tiny_tokenizer, tmp_path, capsys):
    config = zoo.preset_config(
        *("encoder_tiny",),
        **{"vocabulary_size": tiny_tokenizer.vocabulary_size, "hidden_dim": 16, "num_layers": 1, "max_length": 20},
        attention={"num_heads": 2},
        feed_forward={"intermediate_dim": 32},
    )
    for kind in (zoo.QuestionAnswerer, zoo.ReplacedTokenDetector):
        kind(zoo.Backbone.from_config(config), tiny_tokenizer).save_to_preset(tmp_path / kind.__name__)
        run(tmp_path / kind.__name__, tmp_path / f"{kind.__name__}-again", "--format", "zoo")
        assert f"a {kind.__name__} of " in capsys.readouterr().out
    words = ["--model", str(tmp_path / "ReplacedTokenDetector"), "--texts", "a"]
    ((row,),) = [generate.main(parse(generate.GenerateConfig, words))]
    assert all(set(token) == {"text", "start", "end", "probability"} for token in row["output"])
    words = ["--model", str(tmp_path / "QuestionAnswerer"), "--texts", "a"]
    with pytest.raises(ConfigError, match="a QuestionAnswerer has answer"):
        generate.main(parse(generate.GenerateConfig, words))


def test_adapters(tiny_llama, tmp_path, capsys):
    tiny_llama.save_to_preset(tmp_path / "preset")
    task = load_task(str(tmp_path / "preset"))
    task.enable_lora(1)
    for update in task.backbone.adapters.updates("default").values():
        update.lora_b.assign(np.ones(update.lora_b.shape))
    task.save_to_preset(tmp_path / "adapted")
    run(tmp_path / "adapted", tmp_path / "again", "--format", "adapter")
    assert "in the files of PEFT, model_type llama" in capsys.readouterr().out
    # with the model that it names: merged
    task.save_adapter(tmp_path / "adapter", base_model=str(tmp_path / "preset"))
    run(tmp_path / "adapter", tmp_path / "merged", "--format", "transformers")
    task.merge_lora()
    for found, expected in zip(weights(tmp_path / "merged", "CausalLM"), task.weights, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)
    with pytest.raises(ConfigError, match=r"format 'adapter' needs a model with one active adapter, got \[\]"):
        run(tmp_path / "preset", tmp_path / "none", "--format", "adapter")


def test_dtypes(tiny_llama, tmp_path):
    """As asked, or as they came: through the files of this project too."""
    tiny_llama.save_to_preset(tmp_path / "preset")
    run(tmp_path / "preset", tmp_path / "half", "--dtype", "bfloat16")
    run(tmp_path / "half", tmp_path / "ours")
    run(tmp_path / "ours", tmp_path / "again")
    run(tmp_path / "ours", tmp_path / "float32", "--dtype", "float32")
    for name, expected in (("half", "BF16"), ("again", "BF16"), ("float32", "F32")):
        with safetensors.safe_open(tmp_path / name / "model.safetensors", "np") as file:
            assert {file.get_slice(key).get_dtype() for key in file.keys()} == {expected}
    with pytest.raises(
        ConfigError, match="dtype must be null with the format 'zoo', .* got 'float16'; --format transformers"
    ):
        run(tmp_path / "half", tmp_path / "none", "--dtype", "float16")


def test_refusals(tiny_llama, tmp_path):
    tiny_llama.save_to_preset(tmp_path / "preset")
    with pytest.raises(ConfigError, match="target must be another folder than the source"):
        run(tmp_path / "preset", tmp_path / "preset")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="exists and is no"):
        run(tmp_path / "preset", tmp_path / "full")


def test_to_the_hub(tiny_llama, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        type(tiny_llama), "push", lambda self, address, format, dtype: f"{address}@{format}{dtype or ''}"
    )
    tiny_llama.save_to_preset(tmp_path / "preset")
    assert run(tmp_path / "preset", "hf://me/model") == "hf://me/model@huggingface"
    words = ("--dtype", "float16")
    assert run(tmp_path / "preset", "hf://me/model", *words) == "hf://me/model@huggingfacefloat16"
    assert run(tmp_path / "preset", "hf://me/model", "--format", "zoo") == "hf://me/model@preset"
    assert (
        "hf://me/model@preset: a CausalLM of 2,416 parameters, in the files of this project" in capsys.readouterr().out
    )
    with pytest.raises(ConfigError, match="must not be 'keras_hub' for a model of the hub, got 'keras_hub'"):
        run(tmp_path / "preset", "hf://me/model", "--format", "keras_hub")
