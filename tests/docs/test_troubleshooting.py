"""Each error of docs/guides/troubleshooting.md is provoked, and its message is the one on the page."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from page_code import agrees

pytest.importorskip("tensorflow_text")

import keras
import numpy as np

import zoo
from zoo.tokenizers import SentencePieceTokenizer

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guides" / "troubleshooting.md").read_text(encoding="utf-8")
SECTIONS = re.findall(r"^## (.*?)\n\n```text\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
TEXTS = ["a fine film", "a dull film", "fine actors", "dull actors"]


def new_classifier():
    return zoo.TextClassifier.from_preset(
        "modern_encoder_tiny",
        load_weights=False,
        tokenizer=SentencePieceTokenizer.train(TEXTS, vocabulary_size=22),
        labels=["bad", "good"],
        vocabulary_size=22,
        hidden_dim=16,
        num_layers=1,
        max_length=32,
        attention={"num_heads": 2},
        feed_forward={"intermediate_dim": 16},
    )


def message_of(function, *arguments, **options):
    with pytest.raises(Exception) as raised:
        function(*arguments, **options)
    return f"{raised.type.__name__}: {raised.value}"


def last_line(code, folder):
    """The last line that a process writes to stderr in a folder."""
    found = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=200)
    assert found.returncode, found.stdout
    return found.stderr.strip().splitlines()[-1]


def other_layers(folder, monkeypatch):
    (folder / "layers.py").write_text("mine = 1\n")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return last_line("import zoo", folder)


def preset_without_weights(folder, monkeypatch):
    return message_of(zoo.Seq2SeqLM.from_preset, "transformer_tiny")


def offline(folder, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder))
    return message_of(zoo.CausalLM.from_preset, "hf://owner/name")


def large_vocabulary(folder, monkeypatch):
    return message_of(SentencePieceTokenizer.train, TEXTS, vocabulary_size=8000)


def long_text(folder, monkeypatch):
    return message_of(new_classifier().predict, ["a fine film", "a fine film " * 20])


def strings_to_the_model(folder, monkeypatch):
    return message_of(new_classifier(), ["a fine film"])


def infinite_loss(folder, monkeypatch):
    model = new_classifier()
    model.compile(keras.optimizers.SGD(1e30))
    callbacks = [zoo.training.StopOnNonFiniteLoss()]
    return message_of(model.fit, TEXTS * 8, ["good", "bad"] * 16, callbacks=callbacks, batch_size=2, verbose=0)


def another_configuration(folder, monkeypatch):
    from recipes.common.config import parse
    from recipes.common.run_folder import RunFolder
    from recipes.tag import TagConfig

    monkeypatch.chdir(folder)
    words = ["--run_folder", "runs/mine", "--training.learning_rate"]
    with RunFolder("runs/mine", parse(TagConfig, [*words, "0.001"])) as run:
        # a state, as of a run that has begun
        (run.folder("checkpoints/state") / "epoch-00000-batch-00000001").mkdir()
    return message_of(RunFolder, "runs/mine", parse(TagConfig, [*words, "0.01"]))


def export(folder):
    new_classifier().export(folder / "served")
    return str(folder / "served")


def without_tensorflow_text(folder, monkeypatch):
    return last_line(f"import tensorflow as tf; tf.saved_model.load({export(folder)!r})", folder)


def deleted_variables(folder, monkeypatch):
    import tensorflow as tf

    path = export(folder)
    return message_of(lambda: tf.saved_model.load(path).serve(tf.constant(np.array(TEXTS))))


ERRORS = [
    other_layers,
    preset_without_weights,
    offline,
    large_vocabulary,
    long_text,
    strings_to_the_model,
    infinite_loss,
    another_configuration,
    without_tensorflow_text,
    deleted_variables,
]


def test_the_page_has_ten_errors():
    assert len(SECTIONS) == len(ERRORS) == 10


@pytest.mark.parametrize(
    ("provoke", "section"), zip(ERRORS, SECTIONS, strict=True), ids=lambda p: getattr(p, "__name__", "")
)
def test_error_has_the_message_of_the_page(provoke, section, tmp_path, monkeypatch):
    found, stated = provoke(tmp_path, monkeypatch), section[1].strip()
    assert agrees(found, stated) or agrees(found, f"...{stated}"), f"{found!r} is not {stated!r}"
