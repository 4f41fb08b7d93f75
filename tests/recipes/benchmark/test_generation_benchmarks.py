"""Benchmarks of generation: prompt lookup, and SavedModels; what they and that of loading refuse."""

import keras
import pytest
from small_writer import make_writer

import zoo
from recipes.benchmark import exported, grammars, loading, prompt_lookup
from recipes.common.config import parse
from recipes.common.errors import ConfigError, DataError


@pytest.fixture
def prompts(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("alpha beta\n\ngamma alpha beta gamma alpha\n", encoding="utf-8")
    return str(path)


needs_saved_models = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="SavedModels are TensorFlow's")
QUICK = {"batch_sizes": [1, 2], "max_new_tokens": 3, "rounds": 1, "jit_compile": False}


def check(rows, beams):
    assert [(row["beams"], row["batch_size"]) for row in rows] == [(each, size) for each in beams for size in (1, 2)]
    for row in rows:
        assert row["as_fast"] == row["python"] / row["exported"] > 0


@pytest.mark.slow
@needs_saved_models
def test_a_saved_model_beside_python(untrained, prompts, tmp_path):
    untrained.save_to_preset(tmp_path / "model")
    results = tmp_path / "results"
    config = exported.Config(prompts, str(tmp_path / "model"), beams=[1, 2], **QUICK, folder=str(results))
    check(exported.main(config), [1, 2])
    assert len((results / "results.md").read_text().splitlines()) == 2 + 4
    with pytest.raises(ConfigError, match="must hold at least 3 texts, got 2"):
        exported.main(exported.Config(prompts, str(tmp_path / "model"), batch_sizes=[3]))


# the benchmark runs in the test above, and exports of recurrent models are tested in zoo/export/test_serving_folder.py
@needs_saved_models
@pytest.mark.slow
def test_random_weights_of_a_recurrent_model(prompts, tmp_path, monkeypatch):
    read, size = zoo.Backbone.from_preset, {"embedding_dim": 8, "hidden_dim": 8, "readout_dim": 4}
    monkeypatch.setattr(zoo.Backbone, "from_preset", lambda *names, **choices: read(*names, **choices, **size))
    config = exported.Config(
        prompts, preset="rnnsearch", vocabulary_size=260, beams=[2], **QUICK, folder=str(tmp_path / "results")
    )
    check(exported.main(config), [2])


@needs_saved_models
def test_another_text_is_no_figure():
    with pytest.raises(ConfigError, match="the SavedModel writes 'b' where Python writes 'a'"):
        exported._measure({"python": lambda: ["a"], "exported": lambda: ["b"]}, 1)


@needs_saved_models
def test_what_writes_no_text(prompts):
    with pytest.raises(ConfigError, match="model or preset must be given, and not both"):
        exported.Config(prompts)
    with pytest.raises(ConfigError, match="model or preset must be given, and not both"):
        exported.Config(prompts, "model", "gpt_tiny")
    with pytest.raises(ConfigError, match="encoder_tiny has the architecture encoder, which writes no text"):
        exported.main(exported.Config(prompts, preset="encoder_tiny", vocabulary_size=260, batch_sizes=[1]))


@pytest.mark.slow
def test_tokens_of_a_pass(tiny_llama, prompts, tmp_path):
    tiny_llama.save_to_preset(tmp_path / "model")
    sizes = {"lookaheads": [2], "max_new_tokens": 8, "rounds": 1}
    config = prompt_lookup.Config(str(tmp_path / "model"), prompts, **sizes, folder=str(tmp_path / "results"))
    none, two = prompt_lookup.main(config)
    assert none["proposals"] == 0 and none["tokens_per_pass"] == 1.0 and none["times_as_fast"] == 1.0
    assert two["proposals"] == 2 and 1.0 <= two["tokens_per_pass"] <= 3.0
    with pytest.raises(ConfigError, match="prompts must be given with model"):
        prompt_lookup.Config(str(tmp_path / "model"))


def test_mistakes_are_said(tiny_llama, tmp_path):
    tiny_llama.save_to_preset(tmp_path / "model")
    saved = str(tmp_path / "model")
    with pytest.raises(DataError, match="file not found: nowhere.txt"):
        prompt_lookup.main(prompt_lookup.Config(saved, "nowhere.txt"))
    with pytest.raises(DataError, match="file not found: nowhere.txt"):
        exported.main(exported.Config("nowhere.txt", model=saved))
    with pytest.raises(ConfigError, match="preset: There is no preset 'nothing'"):
        prompt_lookup.main(prompt_lookup.Config(preset="nothing"))
    with pytest.raises(ConfigError, match="preset: There is no preset 'nothing'"):
        loading.main(loading.Config(preset="nothing", folder=str(tmp_path)))
    with pytest.raises(ConfigError, match="lookaheads must be at least 1, got "):
        parse(prompt_lookup.Config, ["--lookaheads", "0", "4"])
    with pytest.raises(ConfigError, match="batch_sizes must be at least 1, got "):
        parse(exported.Config, ["--model", saved, "--texts", "a.txt", "--batch_sizes", "0"])


@pytest.mark.slow
def test_masks_of_grammars(tmp_path):
    pytest.importorskip("llguidance", reason="the extra structured is not installed")
    make_writer().save_to_preset(tmp_path / "model")
    sizes = {"texts": 2, "most_tokens": 30, "max_new_tokens": 8}
    rows = grammars.main(grammars.Config(str(tmp_path / "model"), **sizes, folder=str(tmp_path / "results")))
    assert [row["grammar"] for row in rows][:2] == ["any object", "a record"]
    assert all(0 < row["mask_milliseconds"] <= row["slow_mask_milliseconds"] for row in rows)
    assert all(row["token_milliseconds"] > 0 for row in rows)
