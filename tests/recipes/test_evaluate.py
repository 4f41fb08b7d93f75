"""What `evaluate` and `generate` say to data that do not fit the model; no model is trained."""

from types import SimpleNamespace

import pytest

import zoo
from recipes import evaluate, generate
from recipes.common.config import parse
from recipes.common.errors import ConfigError, DataError
from recipes.common.labelled_text import unknown_labels
from recipes.common.models import load_task
from zoo.preprocessing.labels import Labels


def test_labels_that_the_model_cannot_give(capsys):
    rows = [(["DET", "NOUN"], "a:1"), (["B-PER"], "a:3")]
    assert unknown_labels(["DET", "NOUN", "B-PER"], rows, "tag") == {}
    assert capsys.readouterr().out == ""
    assert unknown_labels(["DET", "NOUN"], rows, "tag") == {"unknown_tags": 1}
    said = "the model does not know the tags ['B-PER'], first at a:3; it knows ['DET', 'NOUN']\n"
    assert capsys.readouterr().out == said
    with pytest.raises(DataError, match=r"the model knows none of the tags .*first at a:1; it knows \['O'\]"):
        unknown_labels(["O"], rows, "tag")


class Tagger(zoo.TokenClassifier):
    """Has tags, and is asked for nothing else."""

    def __init__(self):
        pass

    labels = Labels(["DET", "NOUN"])


class TaggerWithoutNames(Tagger):
    labels = Labels(3)

    def tag(self, texts):
        return [[0, 2], [1]]


class Classifier(zoo.TextClassifier):
    """Has labels without names."""

    def __init__(self):
        pass

    labels = Labels(2)
    preprocessor = SimpleNamespace(problem="single_label", pairs=False)

    def classify(self, texts):
        return [0, 1, 1, 0]


class ClassifierOfSeveral(Classifier):
    labels = Labels(3)
    preprocessor = SimpleNamespace(problem="multi_label", pairs=False)

    def classify(self, texts):
        return [[0, 2], [1], [], [2]]


class Translator(zoo.Seq2SeqLM):
    """Has language tokens, and is asked for nothing else."""

    def __init__(self):
        pass

    tokenizer = SimpleNamespace(
        **{"special_tokens": ["<pad>", "<s>", "<2de>", "<2fr>"], "pad_id": 0, "start_id": 1, "end_id": None},
        **{"unknown_id": None, "mask_id": None, "token_to_id": ["<pad>", "<s>", "<2de>", "<2fr>"].index},
    )


def test_tags_of_another_set_stop_the_evaluation(tmp_path, monkeypatch):
    (tmp_path / "a.conll").write_text("Al\tB-PER\n")
    monkeypatch.setattr(evaluate, "load_task", lambda *arguments: Tagger.__new__(Tagger))
    config = parse(evaluate.EvaluateConfig, ["--model", "m", "--data", str(tmp_path / "a.conll")])
    with pytest.raises(DataError, match="the model knows none of the tags"):
        evaluate.main(config)


@pytest.mark.parametrize(
    ("model", "labels", "expected"),
    [
        (Classifier, ["0", "1", "0", "0"], {"accuracy": 0.75}),
        (ClassifierOfSeveral, ["0,2", "1", "0", "2"], {"exact_match": 0.75}),
        (Classifier, ["0", "1", "0", "LABEL_1"], {"accuracy": 0.5, "unknown_labels": 1}),
    ],
)
def test_labels_without_names(tmp_path, monkeypatch, model, labels, expected):
    (tmp_path / "a.tsv").write_text("".join(f"text {row}\t{label}\n" for row, label in enumerate(labels)))
    monkeypatch.setattr(evaluate, "load_task", lambda *arguments: model.__new__(model))
    words = ["--model", "m", "--data", str(tmp_path / "a.tsv"), "--label_separator", ","]
    scores = evaluate.main(parse(evaluate.EvaluateConfig, words if model is ClassifierOfSeveral else words[:4]))
    assert {name: scores[name] for name in expected} == expected


def test_tags_without_names(tmp_path, monkeypatch):
    (tmp_path / "a.conll").write_text("one\t0\ntwo\t1\n\nthree\t1\n")
    monkeypatch.setattr(evaluate, "load_task", lambda *arguments: TaggerWithoutNames.__new__(TaggerWithoutNames))
    scores = evaluate.main(parse(evaluate.EvaluateConfig, ["--model", "m", "--data", str(tmp_path / "a.conll")]))
    assert scores["accuracy"] == round(2 / 3, 4) and "unknown_tags" not in scores


@pytest.mark.parametrize(
    "options",
    [
        '{"return_scores": true}',
        '{"return_cache": true}',
        '{"num_results": 2}',
        '{"sampler": {"name": "beam", "num_results": 2}}',
    ],
)
def test_options_that_return_more_than_a_text(options):
    words = ["--model", "none", "--options", options]
    message = "options must not hold (return|num)_|sampler: num_results must be null"
    with pytest.raises(ConfigError, match=message):
        evaluate.main(parse(evaluate.EvaluateConfig, [*words, "--data", "dates"]))
    if "return" in options:
        with pytest.raises(ConfigError, match=message):
            generate.main(parse(generate.GenerateConfig, [*words, "--texts", "x"]))


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
    monkeypatch.setattr(generate, "apply", lambda task, texts, options: texts)
    for given, texts in (([], ["one"]), (["[de]"], ["[de] one"])):
        words = ["--model", "m", "--texts", *texts, "--language_tokens", *given]
        assert [row["text"] for row in generate.main(parse(generate.GenerateConfig, words))] == texts
    words = ["--model", "m", "--texts", "one", "--language_tokens", "[de]"]
    with pytest.raises(ConfigError, match=r"texts must begin with one of \[de\] each, got 'one'"):
        generate.main(parse(generate.GenerateConfig, words))
    monkeypatch.setattr(generate, "load_task", lambda *arguments: Classifier.__new__(Classifier))
    with pytest.raises(ConfigError, match=r"language_tokens must be null for a Classifier, got \['\[de\]'\]"):
        generate.main(parse(generate.GenerateConfig, words))


def test_models_that_name_no_task(tmp_path):
    (tmp_path / "config.json").write_text('{"format_version": 1, "task": "load_policy"}', encoding="utf-8")
    with pytest.raises(DataError):
        load_task(str(tmp_path))
