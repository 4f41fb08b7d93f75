"""What `evaluate` and `generate` make of data and models, also of those that do not fit; no model is trained.

That `evaluate` finds the scores that a run has found is tested in test_recipes.py.
"""

import dataclasses
import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import sacrebleu

import zoo
from recipes import (
    classify,
    distill,
    embed,
    evaluate,
    finetune,
    generate,
    language_model,
    rerank,
    summarize,
    tag,
    translate,
)
from recipes.common.config import parse
from recipes.common.data.labelled_text import unknown_labels
from recipes.common.errors import ConfigError, DataError, RunFolderError
from recipes.common.evaluation.evaluation import Evaluation, mean_of
from recipes.common.evaluation.evaluations import evaluate_tags
from recipes.common.evaluation.generated_texts import evaluate_summaries, evaluate_translation
from recipes.common.evaluation.held_out import HeldOut
from recipes.common.evaluation.intervals import compare_models, table
from recipes.common.run_folder import RunFolder
from recipes.common.runner import Recipe
from recipes.common.saved_models import load_task
from recipes.common.training.windowed import count_cut_sources
from zoo.preprocessing import Seq2SeqLMPreprocessor, TokenClassifierPreprocessor
from zoo.preprocessing.labels import Labels
from zoo.storage import find_reader
from zoo.tokenizers.chat import get_chat_format


@pytest.fixture(autouse=True)
def found(monkeypatch):
    """Most models here are in no file."""
    monkeypatch.setattr(zoo.storage, "find_reader", lambda path: None)
    monkeypatch.setattr(evaluate, "require_trained", lambda path: None)


def test_labels_that_the_model_cannot_give(capsys):
    rows = [(["DET", "NOUN"], "a:1"), (["B-PER"], "a:3")]
    assert unknown_labels(["DET", "NOUN", "B-PER"], rows, "tag") == {}
    assert capsys.readouterr().out == ""
    assert unknown_labels(["DET", "NOUN"], rows, "tag") == {"unknown_tags": 1}
    said = "the model does not know the tags ['B-PER'], first at a:3; it knows ['DET', 'NOUN']\n"
    assert capsys.readouterr().out == said
    with pytest.raises(DataError, match=r"the model knows none of the tags .*first at a:1; it knows \['O'\]"):
        unknown_labels(["O"], rows, "tag")


def scores_of(folder, *words):
    config = parse(evaluate.EvaluateConfig, ["m", *words, "--output", str(folder / "scores"), "--resamples", "100"])
    return evaluate.main(config)["models"]["m"]


class Tagger(zoo.TokenClassifier):
    """Has tags, and is asked for nothing else."""

    def __init__(self):
        pass

    labels = Labels(["DET", "NOUN"])


class TaggerWithoutNames(Tagger):
    labels = Labels(3)

    def predict(self, texts):
        return [np.eye(3)[[0, 2]], np.eye(3)[[1]]]


class Classifier(zoo.TextClassifier):
    """Has labels without names."""

    def __init__(self):
        pass

    labels = Labels(2)
    preprocessor = SimpleNamespace(
        problem="single_label", pairs=False, truncate=False, labels_of=lambda values, threshold: values
    )
    threshold = None

    def predict(self, texts):
        return [0, 1, 1, 0]


class ClassifierOfSeveral(Classifier):
    labels = Labels(3)
    preprocessor = SimpleNamespace(**{**vars(Classifier.preprocessor), "problem": "multi_label"})

    def predict(self, texts):
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
    config = parse(evaluate.EvaluateConfig, ["m", "--data.test", str(tmp_path / "a.conll")])
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
    words = ["--data.label_separator", ","] if model is ClassifierOfSeveral else []
    scores = scores_of(tmp_path, "--data.test", str(tmp_path / "a.tsv"), *words)
    assert {name: scores[name] for name in expected} == expected


@pytest.fixture
def reader_of_words(tiny_tokenizer, monkeypatch):
    """Taggers that read 5 tokens of a sentence, those at its start and end among them."""
    preprocessor = TokenClassifierPreprocessor(tiny_tokenizer, labels=3, sequence_length=5, truncate=True)
    monkeypatch.setattr(Tagger, "preprocessor", preprocessor, raising=False)


def test_tags_without_names(tmp_path, monkeypatch, reader_of_words):
    (tmp_path / "a.conll").write_text("alpha\t0\nbeta\t1\n\niota\t1\n")
    monkeypatch.setattr(evaluate, "load_task", lambda *arguments: TaggerWithoutNames.__new__(TaggerWithoutNames))
    scores = scores_of(tmp_path, "--data.test", str(tmp_path / "a.conll"))
    assert scores["accuracy"] == round(2 / 3, 4) and "unknown_tags" not in scores and scores["words_unseen"] == 0


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
    words = ["--options", options]
    message = "options must not hold (return|num)_|sampler: num_results must be null"
    with pytest.raises(ConfigError, match=message):
        evaluate.main(parse(evaluate.EvaluateConfig, ["none", *words, "--data.test", "dates"]))
    if "return" in options:
        with pytest.raises(ConfigError, match=message):
            generate.main(parse(generate.GenerateConfig, ["--model", "none", *words, "--texts", "x"]))


def test_a_source_without_its_language_token_is_not_translated_in_silence(tmp_path, monkeypatch):
    (tmp_path / "a.tsv").write_text("<2de> one\teins\ntwo\tdeux\n")
    for module in (evaluate, generate):
        monkeypatch.setattr(module, "load_task", lambda *arguments: Translator.__new__(Translator))
    config = parse(evaluate.EvaluateConfig, ["m", "--data.test", str(tmp_path / "a.tsv")])
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


def test_models_that_name_no_task(tmp_path, monkeypatch):
    monkeypatch.setattr(zoo.storage, "find_reader", find_reader)
    (tmp_path / "config.json").write_text('{"format_version": 1, "task": "load_policy"}', encoding="utf-8")
    with pytest.raises(DataError):
        load_task(str(tmp_path))


class Predictions(Classifier):
    """Knows what it says of each text."""

    labels = Labels(["bad", "good"])

    def __init__(self, wrong):
        self.wrong = wrong

    def predict(self, texts):
        number = [int(text.split()[1]) for text in texts]
        return [("bad", "good")[(n % 2) ^ (n % self.wrong == 0)] for n in number]


@pytest.fixture
def reviews(tmp_path, monkeypatch):
    """A run of recipes.classify with keys of its own, and models by the end of their names."""
    rows = [json.dumps({"said": f"text {n}", "mood": ("bad", "good")[n % 2]}) for n in range(200)]
    (tmp_path / "held.jsonl").write_text("\n".join(rows) + "\n")
    config = classify.ClassifyConfig(run_folder=str(tmp_path / "run"))
    data = {"train": ["no.jsonl"], "validation": ["no.jsonl"], "test": [str(tmp_path / "held.jsonl")]}
    data = dataclasses.replace(config.data, **data, text_columns=["said"], label_column="mood")
    with RunFolder(tmp_path / "run", dataclasses.replace(config, data=data)) as run:
        run.data.save()
    models = {"run": 50, "good": 49, "poor": 4}
    made = {name: Predictions.__new__(Predictions) for name in models}
    for name, model in made.items():
        model.__init__(models[name])
    monkeypatch.setattr(evaluate, "load_task", lambda path, kind: made[path.rpartition("/")[2]])
    return tmp_path


def test_a_run_brings_its_data_and_models_are_compared_on_them(reviews, capsys):
    words = [str(reviews / "run"), "good", "hf://x/poor", "--output", str(reviews / "scores")]
    results = evaluate.main(parse(evaluate.EvaluateConfig, words))
    models = results["models"]
    assert list(models) == ["run", "good", "poor"] and results["recipe"] == "classify"
    assert models["run"]["accuracy"] == 0.98 and models["run"]["examples"] == 200
    low, high = models["run"]["intervals"]["accuracy"]
    assert low < 0.98 < high and high - low == pytest.approx(2 * 1.96 * np.sqrt(0.98 * 0.02 / 200), abs=0.015)
    by_model = {(each["score"], each["model"]): each for each in results["comparisons"]}
    same, worse = by_model["accuracy", "good"], by_model["accuracy", "poor"]
    assert same["verdict"] == "noise" and worse["verdict"] == "lower" and worse["difference"] == pytest.approx(-0.23)
    assert worse["interval"][0] < -0.23 < worse["interval"][1] < 0
    # no resample is as far from the mean; two models are compared with the first
    assert worse["p_corrected"] == pytest.approx(2 / 1001)
    rows = [json.loads(line) for line in (reviews / "scores" / "predictions.jsonl").read_text().splitlines()]
    outputs = {"run": "bad", "good": "bad", "poor": "good"}
    assert len(rows) == 200 and rows[4] == {"text": "text 4", "reference": "bad", "outputs": outputs}
    assert (reviews / "scores" / "comparison.png").stat().st_size > 5000
    assert "| accuracy | poor | 0.75 |" in (reviews / "scores" / "table.md").read_text()
    assert json.loads((reviews / "scores" / "results.json").read_text()) == results
    assert "outputs: {'run': 'good'" in capsys.readouterr().out


def test_files_that_have_changed_since_the_run_are_not_evaluated_in_silence(reviews):
    held = reviews / "held.jsonl"
    with held.open("a") as file:
        file.write(json.dumps({"said": "text 1", "mood": "good"}) + "\n")

    def examples(*words):
        words = [*words, "--output", str(reviews / "scores")]
        models = evaluate.main(parse(evaluate.EvaluateConfig, words))["models"]
        return [scores["examples"] for scores in models.values()]

    with pytest.raises(RunFolderError, match=r"(?s)--data.test.*data.test: .*held.jsonl had 7,190 bytes.*now 7,225"):
        examples(str(reviews / "run"))
    assert examples(str(reviews / "run"), "--data.test", str(held)) == [201]
    # a second run has read another state of the file, and is given the rows of the first
    config = parse(classify.ClassifyConfig, ["--config", str(reviews / "run" / "config.yaml")])
    RunFolder(reviews / "good", dataclasses.replace(config, run_folder=str(reviews / "good"))).close()
    (reviews / "good" / "data.json").write_text('{"files": {}, "rows": {}}')
    held.write_text("\n".join(held.read_text().splitlines()[:200]) + "\n")
    stored = json.loads((reviews / "run" / "data.json").read_text())
    stored["files"][str(held)]["sha256"] = "0" * 64
    (reviews / "good" / "data.json").write_text(json.dumps(stored))
    assert examples(str(reviews / "run"), str(reviews / "good")) == [200, 200]
    with pytest.raises(RunFolderError, match="held.jsonl had"):
        examples(str(reviews / "good"), str(reviews / "run"))


def test_keys_given_override_those_of_the_run(reviews):
    (reviews / "other.tsv").write_text("text\tlabel\ntext 3\tgood\ntext 5\tbad\n")
    columns = ["--data.text_columns", "text", "--data.label_column", "label", "--data.header", "true"]

    def scores(*words):
        words = [str(reviews / "run"), *words, "--output", str(reviews / "scores")]
        return evaluate.main(parse(evaluate.EvaluateConfig, words))["models"]["run"]

    assert scores("--data.test", str(reviews / "other.tsv"), *columns)["accuracy"] == 0.5
    with pytest.raises(ConfigError, match="data.header must be null with a named data set"):
        scores("--data.test", "date_languages", "--data.header", "true")
    # of a run whose own data are named, too
    config = classify.ClassifyConfig(run_folder=str(reviews / "good"))
    RunFolder(reviews / "good", config).close()
    words = [str(reviews / "good"), "--data.text_columns", "said", "--output", str(reviews / "scores")]
    with pytest.raises(ConfigError, match=r"data.text_columns must be \['1'\] with a named data set"):
        evaluate.main(parse(evaluate.EvaluateConfig, words))
    shutil.rmtree(reviews / "good")
    with pytest.raises(ConfigError, match="unknown key --data.tset; did you mean --data.test"):
        scores("--data.tset", "x.tsv")
    with pytest.raises(ConfigError, match="data.validation is not read with split 'test'"):
        scores("--data.validation", "x.tsv")
    with pytest.raises(DataError, match="no.jsonl"):
        scores("--split", "validation")
    with pytest.raises(ConfigError, match="recipes.tag trains a TokenClassifier, this model is a Predictions"):
        scores("--recipe", "tag", "--data.test", "date_parts")
    with pytest.raises(ConfigError, match="data.test must be given: no run of recipes.classify names it"):
        evaluate.main(evaluate.EvaluateConfig(["good"]))
    with pytest.raises(ConfigError, match="recipe must be one of translate, .*, got 'convert'"):
        scores("--recipe", "convert")
    RunFolder(reviews / "good", translate.TranslateConfig()).close()
    with pytest.raises(ConfigError, match="models must be of one recipe, these are of classify, translate"):
        evaluate.main(evaluate.EvaluateConfig([str(reviews / name) for name in ("run", "good")]))


def test_a_model_that_is_not_there_is_said_before_any_is_evaluated(reviews, monkeypatch):
    monkeypatch.setattr(zoo.storage, "find_reader", find_reader)
    for name in ("run", "other"):
        (reviews / name / "model").mkdir(parents=True)
        (reviews / name / "model" / "config.json").write_text("{}")
    monkeypatch.setattr(evaluate, "load_task", None)
    models = [str(reviews / "run"), str(reviews / "other"), str(reviews / "rum")]
    with pytest.raises(ConfigError, match="models: There is no preset '.*rum' and no such directory"):
        evaluate.main(evaluate.EvaluateConfig(models))


def searched_without_similarities():
    objective = embed.ObjectiveConfig("in_batch_negatives")
    return embed.EmbedConfig(objective=objective, evaluation=embed.EvaluationConfig(queries="no", corpus="no"))


@pytest.mark.parametrize(
    ("recipe", "kind", "source", "key", "reason"),
    [
        ("translate", zoo.Seq2SeqLM, translate.TranslateConfig(), "max_length", "it says what models are trained on"),
        ("summarize", zoo.Seq2SeqLM, summarize.SummarizeConfig(), "max_text_length", "it says what models"),
        ("finetune", zoo.CausalLM, finetune.FinetuneConfig(), "loss", "it says what models are trained on"),
        ("finetune", zoo.CausalLM, finetune.FinetuneConfig(), "packing", "it says what models are trained on"),
        ("rerank", zoo.TextClassifier, rerank.RerankConfig(), "negatives", "it says what models are trained on"),
        ("rerank", zoo.TextClassifier, rerank.RerankConfig(), "highest", "data.label_column is null"),
        ("embed", zoo.TextEmbedder, searched_without_similarities(), "label_column", "rows without similarities"),
        ("embed", zoo.TextEmbedder, searched_without_similarities(), "highest", "no data have a similarity"),
        ("tag", zoo.TokenClassifier, tag.TagConfig(), "word_column", "texts with spans have no columns"),
    ],
)
def test_keys_that_are_not_read(recipe, kind, source, key, reason):
    class Model(kind):
        def __init__(self):
            pass

    data = dataclasses.replace(source.data, test=["a.jsonl"])
    held_out = HeldOut(source, source, None, data, {"test", key}, "test", {})
    with pytest.raises(ConfigError, match=f"data.{key} is not read here: .*{reason}.*; got"):
        evaluate.RECIPES[recipe].evaluated(Model.__new__(Model), held_out)


@pytest.mark.parametrize(("split", "given"), [("test", {"test"}), ("validation", set())])
def test_rows_that_are_asked_for_take_the_place_of_the_search_of_the_run(tmp_path, monkeypatch, split, given):
    (tmp_path / "pairs.tsv").write_text("where is rome\tin Italy\nwhere is bern\tin Switzerland\n")
    asked = []

    class Embedder(zoo.TextEmbedder):
        def __init__(self):
            pass

    def searched(task, retrieval):
        asked.append(list(retrieval.queries.values()))
        return Evaluation([], [], {})

    monkeypatch.setattr(embed, "evaluate_search", searched)
    source = searched_without_similarities()
    data = dataclasses.replace(source.data, **{split: [str(tmp_path / "pairs.tsv")]})
    held_out = HeldOut(source, source, None, data, given, split, {})
    embed.main.evaluated(Embedder.__new__(Embedder), held_out)
    assert asked == [["where is rome", "where is bern"]]


def test_a_header_of_a_named_data_set_of_pairs():
    class Embedder(zoo.TextEmbedder):
        def __init__(self):
            pass

    source = embed.EmbedConfig()
    held_out = HeldOut(source, source, None, dataclasses.replace(source.data, header=True), {"header"}, "test", {})
    with pytest.raises(ConfigError, match="data.header must be null with a named data set"):
        embed.main.evaluated(Embedder.__new__(Embedder), held_out)


class Chat(zoo.CausalLM):
    """Has a chat format of its own, and is asked for nothing else."""

    def __init__(self):
        self.name_of_format, self.backbone = "phi3", SimpleNamespace(config=SimpleNamespace(max_length=80))

    @property
    def chat_format(self):
        return get_chat_format(self.name_of_format)

    @chat_format.setter
    def chat_format(self, name):
        self.name_of_format = name


def test_each_model_reads_the_rows_of_the_first_run_in_its_own_way(tmp_path, monkeypatch):
    talk = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    (tmp_path / "talks.jsonl").write_text(json.dumps({"messages": talk}) + "\n")
    for name, chat_format, length in (("a", "chatml", 64), ("b", "llama3", 48)):
        data = finetune.DataConfig(["x.jsonl"], ["y.jsonl"], test=[str(tmp_path / "talks.jsonl")], max_length=length)
        data = dataclasses.replace(data, chat_format=chat_format)
        RunFolder(tmp_path / name, finetune.FinetuneConfig(str(tmp_path / name), data)).close()

    def load(*arguments):
        model = Chat.__new__(Chat)
        Chat.__init__(model)
        return model

    seen = []

    def evaluated(task, conversations, max_length, **options):
        seen.append((task.name_of_format, max_length))
        return Evaluation([{"messages": talk}], ["Hello"], {})

    monkeypatch.setattr(evaluate, "load_task", load)
    monkeypatch.setattr(finetune, "evaluate_replies", evaluated)

    def read(*words):
        seen.clear()
        models = [str(tmp_path / "a"), str(tmp_path / "b"), "other"]
        evaluate.main(parse(evaluate.EvaluateConfig, [*models, *words, "--output", str(tmp_path / "scores")]))
        return seen

    assert read() == [("chatml", 64), ("llama3", 48), ("phi3", 80)]
    assert read("--data.chat_format", "zephyr", "--data.max_length", "72") == [("zephyr", 72)] * 3
    with pytest.raises(ConfigError, match="data.max_length must be at most the model's max_length=80, got 96"):
        read("--data.max_length", "96")


def test_a_student_is_evaluated_as_its_kind_and_searches_as_the_first_run_says(tmp_path, monkeypatch):
    seen = []

    def evaluated(recipe, task, given):
        seen.append((recipe.name, given))
        return Evaluation([], [], {})

    monkeypatch.setattr(Recipe, "evaluated", evaluated)
    monkeypatch.setattr(evaluate, "load_task", lambda *arguments: None)
    monkeypatch.setattr(evaluate, "saved_kind", lambda path: "CausalLM")
    words = ["--output", str(tmp_path / "scores")]
    student = distill.DistillConfig(str(tmp_path / "student"), data=distill.DataConfig(unit="line"))
    student = dataclasses.replace(student, training=distill.DistillTrainingConfig(length=48))
    teacher = language_model.LanguageModelConfig(str(tmp_path / "teacher"))
    for name, config in (("student", student), ("teacher", teacher)):
        RunFolder(tmp_path / name, config).close()
    evaluate.main(parse(evaluate.EvaluateConfig, [str(tmp_path / "student"), str(tmp_path / "teacher"), *words]))
    (recipe, first), (_, second) = seen
    assert recipe == "language_model" and (first.config.training.length, second.config.training.length) == (48, 64)
    assert first.data == second.data and (first.data.unit, first.data.train) == ("line", ["date_lines"])

    seen.clear()
    for name, search in (("a", embed.EvaluationConfig(queries="q.tsv")), ("b", embed.EvaluationConfig())):
        RunFolder(tmp_path / name, embed.EmbedConfig(str(tmp_path / name), evaluation=search)).close()
    evaluate.main(parse(evaluate.EvaluateConfig, [str(tmp_path / "a"), str(tmp_path / "b"), "other", *words]))
    assert [given.source.evaluation.queries for _, given in seen] == ["q.tsv"] * 3


class Writer(zoo.Seq2SeqLM):
    """Writes what it is told."""

    def __init__(self):
        pass

    def generate(self, texts, **options):
        return options["outputs"]


@pytest.fixture
def writer(tiny_tokenizer, monkeypatch):
    """A model that reads 4 tokens of a source, its end token among them."""
    preprocessor = Seq2SeqLMPreprocessor(tiny_tokenizer, sequence_length=4, truncate=False)
    monkeypatch.setattr(Writer, "preprocessor", preprocessor, raising=False)
    return Writer.__new__(Writer)


def test_sources_that_are_cut_are_counted(writer, tiny_tokenizer, capsys):
    sources = ["alpha", "alpha beta iota kappa gamma alpha beta", "beta", "alpha beta iota kappa"]
    added = 1 + writer.preprocessor.adds_start_token
    cut = sum(len(tiny_tokenizer.tokenize(source)) + added > 4 for source in sources)
    assert 0 < cut < 4
    found = evaluate_translation(writer, sources, sources, outputs=sources)
    assert found.scores["sources_cut"] == cut and f"{cut} of 4 sources" in capsys.readouterr().out
    summaries = evaluate_summaries(writer, sources, [(text,) for text in sources], outputs=sources)
    assert summaries.scores["sources_cut"] == cut
    assert count_cut_sources("test", writer, sources[:1]) == 0


def test_intervals_of_texts(writer):
    references = [f"the {word} dog runs over the green hill" for word in ("red", "big", "old", "shy", "wet", "sad")]
    outputs = {"a": [*references[:5], "a cat"], "b": references[:1] + ["a cat sleeps here now"] * 5}
    sources = [str(number) for number in range(6)]
    found = {name: evaluate_translation(writer, sources, references, outputs=texts) for name, texts in outputs.items()}
    scores, comparisons = compare_models(found, resamples=200)
    for name, texts in outputs.items():
        assert scores[name]["sacreBLEU"]["value"] == sacrebleu.corpus_bleu(texts, [references]).score
        assert scores[name]["exact_match"]["value"] == np.mean(np.array(texts) == np.array(references))
    verdicts = {each["score"]: each["verdict"] for each in comparisons}
    assert verdicts == dict.fromkeys(("exact_match", "sacreBLEU", "chrF2"), "lower")
    for name in ("sacreBLEU", "chrF2"):
        low, high = scores["a"][name]["interval"]
        assert 0 < low < scores["a"][name]["value"] < high <= 100
        # the difference has an interval of its own
        (difference,) = (each for each in comparisons if each["score"] == name)
        assert difference["interval"][0] < difference["difference"] < difference["interval"][1] < 0
    summaries = evaluate_summaries(writer, ["x", "y"], [("a b", "c"), ("d",)], outputs=["c", "e"])
    assert summaries.scores["rougeL"] == 50.0 and summaries.rows[0]["reference"] == ["a b", "c"]


def test_a_score_that_the_first_model_lacks_has_no_baseline():
    def evaluation(**scores):
        return Evaluation([{}] * 4, [""] * 4, {}, {name: mean_of(values) for name, values in scores.items()})

    models = {"a": evaluation(accuracy=[1, 0, 1, 0]), "b": evaluation(accuracy=[1, 1, 1, 0], reward=[1, 0, 0, 0])}
    rows = {tuple(line.split(" | ")[:2]): line for line in table(*compare_models(models)).splitlines()}
    assert rows["| accuracy", "a"].endswith("| baseline |")
    assert rows["| reward", "b"].endswith("|  |  |  |")


def test_words_that_are_cut_are_counted(reader_of_words, capsys):
    tagger = Tagger.__new__(Tagger)
    words = ("alpha", "beta", "iota", "kappa", "gamma")
    tagger.labels, tagger.predict = Labels(["B-X", "I-X", "O"]), lambda texts: [np.eye(3)[[2] * len(texts[0])]]
    tagger.preprocessor = tagger.preprocessor.replace(labels=["B-X", "I-X", "O"])
    pieces = [len(tagger.preprocessor.tokenizer.tokenize(word)) for word in words]
    room = 5 - tagger.preprocessor.lengths(tagger.preprocessor.check_rows([["alpha"]], "x")).numpy()[0] + pieces[0]
    unseen = sum(before >= room for before in np.cumsum([0, *pieces[:-1]]))
    assert 0 < unseen < 5
    found = evaluate_tags(tagger, [SimpleNamespace(words=words, tags=["O"] * 5, origin="f:1")])
    assert found.scores["words_unseen"] == unseen and f"{unseen} of 5 words" in capsys.readouterr().out


def test_entities_of_sentences_add_up(reader_of_words):
    sentences = [
        SimpleNamespace(words=("a", "b"), tags=("B-X", "I-X"), origin="f:1"),
        SimpleNamespace(words=("c", "d"), tags=("B-X", "O"), origin="f:4"),
    ]
    tagger = Tagger.__new__(Tagger)
    tagger.labels, tagger.predict = Labels(["B-X", "I-X", "O"]), lambda texts: [np.eye(3)[[0, 2]]] * 2
    tagger.preprocessor = tagger.preprocessor.replace(labels=["B-X", "I-X", "O"])
    evaluation = evaluate_tags(tagger, sentences)
    scores, _ = compare_models({"m": evaluation}, resamples=100)
    for name in ("accuracy", "entity_f1"):
        assert scores["m"][name]["value"] == evaluation.scores[name]
    assert evaluation.scores["entity_f1"] == 0.5
