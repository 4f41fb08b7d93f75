"""The arguments of a task beside its adapter: what changes predictions comes back with the low-rank updates."""

import dataclasses
import json
import warnings

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

import zoo  # noqa: E402
from zoo import CausalLM, MaskedLM, TextClassifier, TextEmbedder, TokenClassifier  # noqa: E402
from zoo.tasks.adapter_options import OPTIONS_FILE  # noqa: E402
from zoo.tokenizers import ChatFormat, SentencePieceTokenizer, Turn, save_huggingface, tokenize_chat  # noqa: E402

PAIRS = (["alpha beta", "kappa", "omega theta"], ["gamma", "delta beta", "alpha"])
# another head than that of a new classifier in every way
CLASSIFIER = {
    "labels": ["toxic", "rude"],
    "problem": "multi_label",
    "pairs": True,
    "pooling": "mean",
    "hidden_activation": "gelu",
    "inner_norm": True,
    "temperature": 2.5,
    "threshold": (0.2, 0.7),
    "sequence_length": 20,
    "truncate": True,
}


def adapted(task, seed=0):
    """The task with updates that are not zero."""
    task.enable_lora(2, targets=["query", "up"])
    for update in task.backbone.adapters.updates("default").values():
        update.lora_b.assign(np.random.default_rng(seed).normal(size=update.lora_b.shape))
    return task


@pytest.fixture(scope="module")
def folders(make_task, tmp_path_factory):
    """A base model, and an adapter of a classifier on it."""
    folder = tmp_path_factory.mktemp("adapters")
    base = make_task(MaskedLM)
    base.save_to_preset(folder / "base")
    task = TextClassifier(base.backbone, base.tokenizer, **CLASSIFIER)
    task.run_eagerly = True
    adapted(task).save_adapter(folder / "classifier", base_model=str(folder / "base"))
    return folder, task


def changed(folder, path, **options):
    """A copy of an adapter with other options; None removes the file."""
    path.mkdir()
    for file in (folder / "classifier").iterdir():
        (path / file.name).write_bytes(file.read_bytes())
    values = json.loads((path / OPTIONS_FILE).read_text())
    values["options"].update(options)
    (path / OPTIONS_FILE).write_text(json.dumps(values))
    return path


def test_a_classifier_comes_back_whole(folders):
    folder, task = folders
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing starts untrained
        loaded = zoo.Task.from_preset(folder / "classifier")
    assert type(loaded) is TextClassifier and loaded.options() == task.options()
    assert (loaded.temperature, loaded.threshold) == (2.5, (0.2, 0.7))
    np.testing.assert_allclose(loaded.predict(PAIRS), task.predict(PAIRS), rtol=1e-5)
    assert loaded.classify(PAIRS) == task.classify(PAIRS)
    assert zoo.Backbone.from_preset(folder / "classifier").adapters.active == ("default",)


def test_what_the_user_gives_wins(folders):
    folder, task = folders
    load = TextClassifier.from_preset
    renamed = load(folder / "classifier", labels=["a", "b"], temperature=1.0, head_dropout=0.3)
    assert (renamed.labels.names, renamed.temperature, renamed.head.dropout) == (["a", "b"], 1.0, 0.3)
    assert renamed.threshold == task.threshold
    np.testing.assert_array_equal(renamed.head.projection.kernel, task.head.projection.kernel)
    # other probabilities, for which nothing was fitted
    other = load(folder / "classifier", problem="single_label")
    assert (other.temperature, other.threshold) == (1.0, 0.5)
    with pytest.warns(
        UserWarning, match="the head of this task for other labels than those given: it starts untrained"
    ):
        more = load(folder / "classifier", labels=3)
    assert (len(more.labels), more.threshold, more.pooling) == (3, 0.5, "mean")
    # another task has the backbone and what holds for any text
    with pytest.warns(UserWarning, match="no weights for the head of this task"):
        tagger = TokenClassifier.from_preset(folder / "classifier", labels=2)
    assert (tagger.longest, tagger.preprocessor.truncate, tagger.temperature) == (20, True, 1.0)
    assert tagger.backbone.adapters.active == ("default",)


def test_a_head_on_a_task(folders, make_task, tmp_path):
    folder, task = folders
    options = {**CLASSIFIER, "labels": ["good", "bad"], "temperature": 4.0, "threshold": 0.9}
    other = make_task(TextClassifier, **options)
    with pytest.raises(ValueError, match="problem must be 'multi_label' for the head in .*, got 'single_label'"):
        make_task(TextClassifier, **{**options, "problem": "single_label", "threshold": 0.5}).load_adapter(
            folder / "classifier"
        )
    other.load_adapter(folder / "classifier", "updates", head=False)
    assert (other.labels.names, other.temperature, other.threshold) == (["good", "bad"], 4.0, 0.9)
    other.load_adapter(folder / "classifier")
    assert (other.labels.names, other.temperature, other.threshold) == (["toxic", "rude"], 2.5, (0.2, 0.7))
    # without the file nothing is known to have been fitted to this head
    unknown = changed(folder, tmp_path / "unknown")
    (unknown / OPTIONS_FILE).unlink()
    other.load_adapter(unknown, "unknown")
    assert (other.labels.names, other.temperature, other.threshold) == (["toxic", "rude"], 1.0, 0.5)
    with pytest.warns(UserWarning, match=r"is of a TextClassifier with pooling='mean' \(here 'max'\)"):
        make_task(TextClassifier, **{**options, "pooling": "max"}).load_adapter(folder / "classifier")


def test_a_calibrated_model_with_the_head_of_another(folders, make_task, tmp_path):
    folder, _ = folders
    make_task(TextClassifier, **CLASSIFIER).save_to_preset(tmp_path / "calibrated")
    adapter = changed(folder, tmp_path / "adapter")
    (adapter / OPTIONS_FILE).unlink()
    config = json.loads((adapter / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = str(tmp_path / "calibrated")
    (adapter / "adapter_config.json").write_text(json.dumps(config))
    loaded = TextClassifier.from_preset(adapter)
    assert (loaded.temperature, loaded.threshold, loaded.labels.names) == (1.0, 0.5, ["toxic", "rude"])
    assert TextClassifier.from_preset(adapter, temperature=3.0).temperature == 3.0


def test_embedders_and_lengths(make_task, tmp_path):
    rotary = {"position": zoo.PositionConfig("rotary")}
    make_task(MaskedLM, config=rotary).save_to_preset(tmp_path / "base")
    prompts = {"prompts": {"query": "alpha ", "text": ""}, "default_prompt": "query"}
    shorter = zoo.Backbone.from_preset(tmp_path / "base", max_length=16)
    tokenizer = make_task(MaskedLM).tokenizer
    task = TextEmbedder(shorter, tokenizer, pooling="max", normalize=False, width=5, **prompts)
    task.run_eagerly = True
    adapted(task).save_adapter(tmp_path / "adapter", base_model=str(tmp_path / "base"))
    loaded = zoo.Task.from_preset(tmp_path / "adapter")
    loaded.run_eagerly = True
    assert loaded.options() == task.options() and loaded.backbone.config.max_length == loaded.longest == 16
    np.testing.assert_allclose(loaded.embed(["beta", "kappa"]), task.embed(["beta", "kappa"]), rtol=1e-5)
    assert TextEmbedder.from_preset(tmp_path / "adapter", max_length=40).longest == 40
    assert TextEmbedder.from_preset(tmp_path / "adapter", max_length=10, width=None).options() == {
        **task.options(),
        "sequence_length": 10,
        "width": None,
    }
    assert zoo.Backbone.from_preset(tmp_path / "adapter").config.max_length == 16
    with pytest.warns(UserWarning, match=r"with normalize=False \(here True\), pooling='max' \(here 'mean'\), width=5"):
        TextEmbedder(zoo.Backbone.from_preset(tmp_path / "base"), tokenizer).load_adapter(tmp_path / "adapter")


def test_on_a_model_that_was_saved_quantized(make_task, tmp_path):
    base = make_task(MaskedLM)
    base.quantize("int8", head=False)
    base.save_to_preset(tmp_path / "base")
    task = TextClassifier(base.backbone, base.tokenizer, labels=2)
    adapted(task).save_adapter(tmp_path / "adapter", base_model=str(tmp_path / "base"))
    loaded = zoo.Task.from_preset(tmp_path / "adapter")
    loaded.save_to_preset(tmp_path / "whole")
    whole = zoo.Task.from_preset(tmp_path / "whole")
    for one, other in zip(whole.weights, task.weights, strict=True):
        np.testing.assert_array_equal(one, other)


def test_conversations(encoder_config, mask_tokenizer, tmp_path):
    config = dataclasses.replace(encoder_config, architecture="decoder", pooler=False)
    config = dataclasses.replace(config, embedding=dataclasses.replace(config.embedding, num_segments=0))
    task = CausalLM(zoo.Backbone.from_config(config), mask_tokenizer)
    task.save_to_preset(tmp_path / "base")
    task.chat_format = ChatFormat({"user": Turn("alpha ", " beta"), "assistant": Turn(" kappa ", "")})
    adapted(task).save_adapter(tmp_path / "adapter", base_model=str(tmp_path / "base"))
    assert zoo.Task.from_preset(tmp_path / "adapter").chat_format == task.chat_format
    assert CausalLM.from_preset(tmp_path / "base").chat_format is None
    # beside an adapter of others there may be their tokenizer
    (tmp_path / "adapter" / OPTIONS_FILE).unlink()
    assert zoo.Task.from_preset(tmp_path / "adapter").chat_format is None
    save_huggingface(task.tokenizer, tmp_path / "adapter")
    loaded = zoo.Task.from_preset(tmp_path / "adapter")
    conversation = [{"role": "user", "content": "gamma"}]
    assert tokenize_chat(loaded.tokenizer, conversation) == tokenize_chat(task.tokenizer, conversation)
    other = SentencePieceTokenizer.train(["alpha beta gamma kappa"] * 4, vocabulary_size=16)
    save_huggingface(other.with_chat_format(task.chat_format), tmp_path / "adapter")
    with pytest.warns(UserWarning, match="has 16 tokens, others than the 27 .*: that of the model is used"):
        assert zoo.Task.from_preset(tmp_path / "adapter").chat_format is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": "warm"}, "options.temperature must be a number, got 'warm'"),
        ({"temperature": -1.0}, f"{OPTIONS_FILE}: temperature must be a finite number above 0"),
        ({"labels": 10**9}, "options.labels must be as many as the head in .* has outputs, 2, got 1000000000"),
        ({"color": 1}, "options of a TextClassifier must be among .*, got 'color'"),
        ({"preprocessor": "os.system"}, "needs the preprocessor 'os.system', which is not registered"),
    ],
)
def test_damaged_options(folders, tmp_path, options, message):
    with pytest.raises(ValueError, match=message) as caught:
        TextClassifier.from_preset(changed(folders[0], tmp_path / "changed", **options))
    assert OPTIONS_FILE in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": -1.0}, "temperature must be a finite number above 0, got -1.0"),
        ({"threshold": [0.5, 2.0]}, r"threshold must be from 0 to 1, got \[0.5, 2.0\]"),
        ({"labels": ["same", "same"]}, r"labels\[1\] must be unique, got .same., the same as labels\[0\]"),
    ],
)
def test_damaged_options_leave_a_task_as_it_was(folders, make_task, tmp_path, options, message):
    task = make_task(TextClassifier, **CLASSIFIER)
    before, kernel = task.options(), np.array(task.head.projection.kernel)
    with pytest.raises(ValueError, match=f"{OPTIONS_FILE}: {message}"):
        task.load_adapter(changed(folders[0], tmp_path / "changed", **options))
    assert task.options() == before and len(task.backbone.adapters) == 0
    np.testing.assert_array_equal(task.head.projection.kernel, kernel)
