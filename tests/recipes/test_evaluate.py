"""What `evaluate` and `generate` say to data that do not fit the model; no model is trained."""

from types import SimpleNamespace

import pytest

import zoo
from recipes import evaluate, generate
from recipes.common.config import parse
from recipes.common.errors import ConfigError, DataError


def test_labels_that_the_model_cannot_give(capsys):
    rows = [(["DET", "NOUN"], "a:1"), (["B-PER"], "a:3")]
    assert evaluate.unknown_labels(["DET", "NOUN", "B-PER"], rows, "tag") == {}
    assert capsys.readouterr().out == ""
    assert evaluate.unknown_labels(["DET", "NOUN"], rows, "tag") == {"unknown_tags": 1}
    said = "the model does not know the tags ['B-PER'], first at a:3; it knows ['DET', 'NOUN']\n"
    assert capsys.readouterr().out == said
    with pytest.raises(DataError, match=r"the model knows none of the tags .*first at a:1; it knows \['O'\]"):
        evaluate.unknown_labels(["O"], rows, "tag")


class Tagger(zoo.TokenClassifier):
    """Has tags, and is asked for nothing else."""

    def __init__(self):
        pass

    labels = SimpleNamespace(names=["DET", "NOUN"])


class Translator(zoo.Seq2SeqLM):
    """Has language tokens, and is asked for nothing else."""

    def __init__(self):
        pass

    tokenizer = SimpleNamespace(special_tokens=["<pad>", "<s>", "<2de>", "<2fr>"])


def test_tags_of_another_set_stop_the_evaluation(tmp_path, monkeypatch):
    (tmp_path / "a.conll").write_text("Al\tB-PER\n")
    monkeypatch.setattr(evaluate, "load_task", lambda *arguments: Tagger.__new__(Tagger))
    config = parse(evaluate.EvaluateConfig, ["--model", "m", "--data", str(tmp_path / "a.conll")])
    with pytest.raises(DataError, match="the model knows none of the tags"):
        evaluate.main(config)


def test_a_source_without_its_language_token_is_not_translated_in_silence(tmp_path, monkeypatch):
    (tmp_path / "a.tsv").write_text("<2de> one\teins\ntwo\tdeux\n")
    for module in (evaluate, generate):
        monkeypatch.setattr(module, "load_task", lambda *arguments: Translator.__new__(Translator))
    config = parse(evaluate.EvaluateConfig, ["--model", "m", "--data", str(tmp_path / "a.tsv")])
    with pytest.raises(DataError, match=r"a\.tsv:2: no language token: 'two' begins with none of <2de>, <2fr>"):
        evaluate.main(config)
    config = parse(generate.GenerateConfig, ["--model", "m", "--texts", "<2de> one", "two"])
    with pytest.raises(ConfigError, match="texts must begin with one of <2de>, <2fr> each, got 'two'"):
        generate.main(config)
