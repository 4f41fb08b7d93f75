"""What a run starts from: new and saved models, which of their weights train, and keys that have no effect."""

import json
import shutil
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import yaml

import zoo
from recipes import classify, finetune, translate
from recipes.common.config import parse
from recipes.common.data.labelled_text import LabelledText
from recipes.common.errors import ConfigError, DataError
from recipes.common.finish import Outcome, finish
from recipes.common.run_folder import RunFolder
from recipes.common.saved_models import load_task, make_sampler
from recipes.common.training.fitting import save_adapter
from recipes.common.training.models import LoraConfig, ModelConfig, check_model, make_or_load_task
from recipes.common.training.tokenizers import TokenizerConfig
from recipes.evaluate import find_subjects

CHARACTERS = TokenizerConfig(kind="characters")
NEW = ModelConfig("llama_shakespeare", {"num_layers": 2, "hidden_dim": 8, "max_length": 8})


def make(run, kind=zoo.CausalLM, model=NEW, **options):
    return make_or_load_task(kind, model, CHARACTERS, run, lambda: ["abc", "cab"], **options)


@pytest.fixture
def run(tmp_path):
    return SimpleNamespace(tokenizer=tmp_path / "tokenizer")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The run folder of a small language model, the model, and one with 8-bit weights."""
    folder = tmp_path_factory.mktemp("models")
    task = make(SimpleNamespace(tokenizer=folder / "tokenizer"))
    task.save_to_preset(folder / "run" / "model")
    task.quantize("int8")
    task.save_to_preset(folder / "int8")
    return folder


def test_a_run_folder_is_a_start(run, saved, capsys):
    found = [make(run, model=ModelConfig(start_from=str(saved / name))) for name in ("run", "run/model")]
    assert "parameters" in capsys.readouterr().out
    for weight, other in zip(*(task.get_weights() for task in found), strict=True):
        np.testing.assert_array_equal(weight, other)
    # choices that change no weights are replaced, others are refused
    options = {"dropout": 0.5, "max_length": 16}
    task = make(run, model=ModelConfig(options=options, start_from=str(saved / "run")))
    assert (task.backbone.config.dropout, task.backbone.config.max_length) == (0.5, 16)
    np.testing.assert_array_equal(task.get_weights()[0], found[0].get_weights()[0])
    with pytest.raises(ConfigError, match=r"model.start_from: .*brings its own configuration.* \['num_layers'\] too"):
        make(run, model=ModelConfig(options={"num_layers": 1}, start_from=str(saved / "run")))


@pytest.mark.parametrize(
    ("kind", "words", "expected"),
    [
        (finetune.FinetuneConfig, [], {"max_length": 96}),
        (finetune.FinetuneConfig, ["--model.options.dropout", "0.1"], {"max_length": 96, "dropout": 0.1}),
        (finetune.FinetuneConfig, ["--model.options", "{}"], {}),
        # a saved model is as it is but for what is given, in whatever order, be it what a new model would have
        (finetune.FinetuneConfig, ["--model.start_from", "x"], {}),
        (finetune.FinetuneConfig, ["--model.options.dropout", "0.1", "--model.start_from", "x"], {"dropout": 0.1}),
        (finetune.FinetuneConfig, ["--model.start_from", "x", "--model.options.max_length", "96"], {"max_length": 96}),
        (classify.ClassifyConfig, ["--model.start_from", "x", "--model.options.dropout", "0.2"], {"dropout": 0.2}),
        (
            classify.ClassifyConfig,
            ["--model.options.feed_forward.kind", "plain"],
            {"num_layers": 2, "hidden_dim": 128, "feed_forward": {"intermediate_dim": 256, "kind": "plain"}},
        ),
        # what a recipe chooses is for its preset
        (translate.TranslateConfig, ["--model.preset", "rnnsearch"], {}),
        (translate.TranslateConfig, ["--model.options.dropout", "0", "--model.preset", "rnnsearch"], {"dropout": 0}),
    ],
)
def test_choices_are_those_that_were_given(kind, words, expected):
    config = parse(kind, words)
    assert config.model.choices == expected
    # as one that is varied
    *others, name, value = words or ["--model.options", "null"]
    varied = parse(kind, others, values={name.removeprefix("--"): yaml.safe_load(value)})
    assert varied == config


def test_a_run_that_has_no_model_yet(tmp_path):
    """It was interrupted, or goes on."""
    RunFolder(tmp_path / "run", classify.ClassifyConfig()).close()
    path = str(tmp_path / "run")
    for asked in (
        lambda: check_model(parse(classify.ClassifyConfig, ["--model.start_from", path])),
        lambda: load_task(path),
        lambda: find_subjects([path]),
    ):
        with pytest.raises(DataError, match="run is the folder of a run that has no model yet: its training has not"):
            asked()


def test_updates_on_8_bit_weights_below_a_head_that_trains(run, saved, tmp_path, capsys):
    lora = LoraConfig(rank=2, alpha=4.0, dropout=0.1, targets=["query", "up"], blocks=[-1])
    model = ModelConfig(start_from=str(saved / "run"), lora=lora, quantize="int8", rematerialize=True)
    task = make(run, zoo.TextClassifier, model, labels=["no", "yes"])
    said = capsys.readouterr().out
    assert "int8 weights in" in said and "LoRA of rank 2 on 2 layers" in said
    # in float32
    names = [weight.path for weight in task.trainable_weights]
    assert len(names) == 6 and sum("lora_" in name for name in names) == 4
    assert sum("block_1/" in name for name in names) == 4
    assert all(weight.dtype == "float32" for weight in task.trainable_weights)
    assert {weight.dtype for weight in task.backbone.token_embedding.weights} == {"int8", "float32"}
    assert all(block.remat for block in task.backbone.decoder.blocks)
    # the head is found in floats again
    task.save_to_preset(tmp_path / "model")
    loaded = zoo.TextClassifier.from_preset(tmp_path / "model")
    np.testing.assert_allclose(loaded.predict(["abc", "ca"]), task.predict(["abc", "ca"]), rtol=1e-5, atol=1e-6)
    assert [weight.dtype for weight in loaded.weights] == [weight.dtype for weight in task.weights]
    # and so are the updates alone, beside the model that the run started from
    run.path = tmp_path / "run"
    save_adapter(task, run)
    assert "adapter: the low-rank updates alone, read by this project" in capsys.readouterr().out
    start = ModelConfig(start_from=str(tmp_path / "run" / "adapter"))
    assert not len(make(run, zoo.TextClassifier, start).backbone.adapters)
    assert "low-rank updates are merged: default" in capsys.readouterr().out
    again = zoo.TextClassifier.from_preset(saved / "run", labels=["no", "yes"])
    again.quantize("int8", head=False)
    again.load_adapter(tmp_path / "run" / "adapter")
    np.testing.assert_allclose(again.predict(["abc", "ca"]), task.predict(["abc", "ca"]), rtol=1e-5, atol=1e-6)


def test_a_head_that_is_made_anew_is_said_by_the_key(run, saved, capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make(run, zoo.TextClassifier, ModelConfig(start_from=str(saved / "run")), labels=["no", "yes"])
    model = saved / "run" / "model"
    line = f"model.start_from: {model} has no weights for the head of this task: it starts untrained.\n"
    assert capsys.readouterr().err == line


def test_an_adapter_has_what_was_fitted_after_the_training(saved, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(saved)
    with RunFolder(tmp_path / "run", classify.ClassifyConfig(export=False)) as run:
        task = make(run, zoo.TextClassifier, ModelConfig(start_from="run", lora=LoraConfig(rank=2)), labels=["a", "b"])
        task.temperature = 3.0
        finish(run, "classify", Outcome(task, {}, lambda served: [], []), 0.0)
        # wherever it is read
        monkeypatch.chdir(tmp_path)
        again = zoo.Task.from_preset(tmp_path / "run" / "adapter")
        assert again.temperature == 3.0 and again.labels.strings == ["a", "b"]
        np.testing.assert_allclose(again.predict(["abc", "ca"]), task.predict(["abc", "ca"]), rtol=1e-5, atol=1e-6)
        for start, base in (("hf://owner/name", "owner/name"), ("hf://owner/name@main", "hf://owner/name@main")):
            run.start = start
            save_adapter(task, run)
            config = json.loads((tmp_path / "run" / "adapter" / "adapter_config.json").read_text())
            assert config["base_model_name_or_path"] == base
        # of a new model nobody could load them
        shutil.rmtree(tmp_path / "run" / "adapter")
        run.start = None
        save_adapter(task, run)
        assert not (tmp_path / "run" / "adapter").exists() and "not written alone" in capsys.readouterr().out


def test_a_classifier_keeps_its_pooling_and_dropout(run, saved, tmp_path):
    start = {"start_from": str(saved / "run")}
    options = {"labels": ["a", "b"], "pooling": "max", "head_dropout": 0.3}
    make(run, zoo.TextClassifier, ModelConfig(**start), **options).save_to_preset(tmp_path / "classifier")
    examples = [LabelledText(("abc",), label, "x:1") for label in "ab"]

    def head(**given):
        config = classify.ClassifyConfig(model=classify.ClassifierConfig(**given))
        task = classify.make_model(config, run, examples)
        return task.pooling, task.head.dropout

    begun = {"start_from": str(tmp_path / "classifier")}
    assert head(**begun) == ("max", 0.3) and head(pooling="last", **begun) == ("last", 0.3)
    assert head(**start) == ("mean", 0.1)
    with pytest.raises(ConfigError, match="model.start_from: .*nowhere"):
        head(start_from="nowhere")


def test_parts_that_do_not_train(run, saved, capsys):
    start = {"start_from": str(saved / "run")}
    task = make(run, model=ModelConfig(freeze=["embeddings", "block_0", "block_1/attention"], **start))
    assert "frozen: embeddings, block_0, block_1/attention" in capsys.readouterr().out
    paths = [weight.path for weight in task.trainable_weights]
    assert paths and all("block_1/" in path or "final_norm" in path for path in paths)
    assert not any("/attention/" in path for path in paths)
    for part, message in (
        ("blok_0", "model.freeze: parts must be names of parts of the model, got 'blok_0'. Did you mean 'block_0'"),
        ("backbone", "model.freeze: parts must leave weights that train"),
    ):
        with pytest.raises(ConfigError, match=message):
            make(run, model=ModelConfig(freeze=[part], **start))
    # low-rank updates have frozen it already
    with pytest.raises(ConfigError, match="model.freeze: parts must have weights that train, got 'embeddings'"):
        make(run, model=ModelConfig(freeze=["embeddings"], lora=LoraConfig(rank=1), **start))


def test_weights_that_cannot_train_are_no_start(run, saved):
    start = {"start_from": str(saved / "int8")}
    with pytest.raises(ConfigError, match=r"model.start_from must be a model whose weights can train.*stored in int8"):
        make(run, model=ModelConfig(**start))
    with pytest.raises(ConfigError, match="model.start_from: .*(int8|quantized)"):
        make(run, zoo.TextClassifier, ModelConfig(**start), labels=2)
    task = make(run, model=ModelConfig(quantize="int8", lora=LoraConfig(rank=1), **start))
    assert all("lora_" in weight.path for weight in task.trainable_weights)


@pytest.mark.parametrize(
    ("kind", "words", "message"),
    [
        (
            classify.ClassifyConfig,
            ["--model.start_from", "x", "--tokenizer.kind", "wordpiece"],
            "tokenizer.kind must be 'bpe' with model.start_from, whose model and tokenizer are taken, got 'wordpiece'",
        ),
        (
            translate.TranslateConfig,
            ["--model.start_from", "x", "--model.preset", "rnnsearch"],
            "model.preset must be 'transformer_tiny' with model.start_from",
        ),
        (
            finetune.FinetuneConfig,
            ["--model.lora.targets", "key"],
            "model.lora.targets must be ['query', 'value'] without model.lora.rank, got ['key']",
        ),
        (
            finetune.FinetuneConfig,
            ["--model.lora.alpha", "4"],
            "model.lora.alpha must be null without model.lora.rank, got 4.0",
        ),
        (finetune.FinetuneConfig, ["--model.quantize", "int8"], "model.quantize must be null without model.lora.rank"),
        (
            finetune.FinetuneConfig,
            ["--model.quantize", "int4", "--model.lora.rank", "2"],
            "model.quantize must be 'int8', got 'int4'",
        ),
        (
            classify.ClassifyConfig,
            ["--model.lora.rank", "2", "--training.weights", "average", "--training.average_checkpoints", "3"],
            "training.average_checkpoints must be 1 with model.lora.rank, got 3",
        ),
    ],
)
def test_keys_without_effect(kind, words, message):
    with pytest.raises(ConfigError) as error:
        check_model(parse(kind, words))
    assert message in str(error.value)


def test_language_tokens_that_a_saved_model_does_not_know(untrained, capsys):
    with pytest.raises(
        ConfigError, match=r"data.language_tokens must be tokens of the model, which has \[\], got '<2de>'"
    ):
        translate.require_language_tokens(untrained, ["<2de>"])
    translate.require_language_tokens(untrained, [])
    assert not capsys.readouterr().out


def test_samplers_with_lists_of_results():
    assert make_sampler({"name": "beam", "num_beams": 4}).num_beams == 4
    with pytest.raises(ConfigError, match="sampler: num_results must be null, one text is made of each, got 2"):
        make_sampler({"name": "beam", "num_beams": 4, "num_results": 2})
