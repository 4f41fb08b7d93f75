"""What nobody should give a recipe, and what it says: one line that names the key, before anything large is made."""

import json

import pytest

from recipes import classify, copy_and_reverse, embed, evaluate, generate, language_model, tag, translate
from recipes.common.config import parse
from recipes.common.data import labelled_text
from recipes.common.errors import DataError, RecipeError
from recipes.common.training import fitting

HUGE = '{"hidden_dim": 1000000000}'


def refused(main, kind, *words):
    """The error of a command line, which must be of one short line."""
    with pytest.raises(RecipeError) as error:
        main(parse(kind, words))
    message = str(error.value)
    # what a library says is cut at 600 characters
    assert "\n" not in message and len(message) < 650
    return message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ('{"hidden_dim": 1000000000}', "model.options: hidden_dim must be at most 16,777,216, got 1000000000"),
        ('{"num_layers": 10000000}', "model.options: num_layers must be at most 1,000, got 10000000"),
        ('{"max_length": 999999999}', "model.options: max_length must be at most 1,048,576, got 999999999"),
        ('{"feed_forward": {"intermediate_dim": 10000000000}}', "model.options: feed_forward.intermediate_dim must be"),
        ('{"hidden_dim": 1000000, "num_layers": 900}', "GB in training, this machine has"),
        ('{"vocabulary_size": 1000000000}', "model.options must not hold vocabulary_size"),
        ('{"hidden_dim": 1.5}', "model: "),
        ('{"hidden_dim": null}', "model: "),
        ('{"": 1}', "model: "),
        ('{"num_layers": [1, 2]}', "model: "),
    ],
)
def test_sizes_beyond_this_machine(tmp_path, options, message):
    for main, kind in ((translate.main, translate.TranslateConfig), (classify.main, classify.ClassifyConfig)):
        words = ["--run_folder", str(tmp_path / "run"), "--model.options", options]
        assert message in refused(main, kind, *words)
        assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--training.batch_size", "16000", "--training.length", "60000"], "training.batch_size must be at most"),
        (["--training.batch_size", "16000", "--training.batches_per_epoch", "90000"], "training.batch_size must be"),
        (["--sampler", '{"name": "beam", "num_beams": 1000000000}'], "sampler: num_beams must be at most 256"),
        (["--training.learning_rate", "nan"], "training.learning_rate: value 'nan' is not allowed"),
        (["--training.learning_rate", ".nan"], "training.learning_rate: value '.nan' is not allowed"),
        (["--training.seed", "-1"], "training.seed must be at least 0"),
        (["--training.seed", "99999999999"], "training.seed must be at least 0 and at most 4294967295"),
        (["--data.train", "/dev/zero", "--data.validation", "/dev/null"], "/dev/zero: it is a folder or a device"),
    ],
)
def test_language_model(tmp_path, words, message):
    words = ["--run_folder", str(tmp_path / "run"), *words]
    assert message in refused(language_model.main, language_model.LanguageModelConfig, *words)


def test_a_file_in_the_place_of_a_folder(tmp_path):
    (tmp_path / "file").write_text("x")
    folder = ["--run_folder", str(tmp_path / "file")]
    assert "is a file" in refused(tag.main, tag.TagConfig, *folder)
    assert "run_folder: " in refused(copy_and_reverse.main, copy_and_reverse.CopyConfig, *folder, "--tasks", "copy")


@pytest.mark.parametrize(
    "words", [["--longest", "0"], ["--width", "1000000000"], ["--seed", "-1"], ["--epochs", "0"], ["--examples", "1e9"]]
)
def test_numbers_of_a_report(words):
    assert words[0][2:] in refused(copy_and_reverse.main, copy_and_reverse.CopyConfig, *words)


def test_accumulation_without_an_update():
    config = fitting.TrainingConfig(epochs=2, accumulation_steps=30)
    with pytest.raises(RecipeError, match="accumulation_steps must be at most the 20 batches of the training, got 30"):
        fitting.make_optimizer(config, 10, None)


def test_labels_that_teach_nothing(tmp_path):
    for part in ("train", "validation"):
        (tmp_path / f"{part}.tsv").write_text("good\tyes\nfine\tyes\n")
    files = ["--data.train", str(tmp_path / "train.tsv"), "--data.validation", str(tmp_path / "validation.tsv")]
    words = [*files, "--run_folder", str(tmp_path / "run")]
    message = refused(classify.main, classify.ClassifyConfig, *words)
    assert message == "the training data must have two labels at least, got ['yes']"
    known = [f"label {number}" for number in range(10_000)]
    with pytest.raises(DataError) as error:
        labelled_text.require_known_labels(known, [(["x" * 10_000], "a.tsv:3")])
    assert len(str(error.value)) < 500


def test_commands_on_saved_models(tmp_path):
    missing = ["--model", str(tmp_path / "none")]
    assert "none" in refused(evaluate.main, evaluate.EvaluateConfig, missing[1], "--data.test", "dates")
    assert "none" in refused(generate.main, generate.GenerateConfig, *missing, "--texts", "x")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text(json.dumps({"a": 1}))
    broken = ["--model", str(tmp_path / "broken")]
    assert "broken" in refused(generate.main, generate.GenerateConfig, *broken, "--texts", "x")
    (tmp_path / "a.tsv").write_text("one\ttwo\t1\ntwo\tthree\t0\n")
    start = ["--model.start_from", str(tmp_path / "none"), "--run_folder", str(tmp_path / "run")]
    files = ["--data.train", str(tmp_path / "a.tsv"), "--data.validation", str(tmp_path / "a.tsv")]
    assert "model.start_from: " in refused(embed.main, embed.EmbedConfig, *start, *files)
