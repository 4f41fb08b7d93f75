"""The embedding recipe beyond its defaults: groups of texts, widths, prompts, search; keys that do not fit."""

import dataclasses
import json

import keras
import numpy as np
import pytest

import zoo
from recipes import embed
from recipes.common.config import parse
from recipes.common.data.data_sets import Splits
from recipes.common.data.labelled_text import LabelledText
from recipes.common.data.retrieval import retrieval_of_groups
from recipes.common.data.text_groups import TextGroup
from recipes.common.errors import ConfigError, DataError
from recipes.common.evaluation.search_evaluations import EmbeddingScores, similarity_baseline
from recipes.common.run_folder import RunFolder
from zoo.tokenizers import SentencePieceTokenizer

pytestmark = pytest.mark.usefixtures("without_xla", "eagerly")

PAIRS = ["--objective.name", "in_batch_negatives"]
FILES = ["--data.train", "a.tsv", "--data.validation", "b.tsv"]
PROMPTS = {"query": "0 plus ", "document": ""}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Rows with a query, a list of one positive, and a negative; pairs with a similarity."""
    folder, sums = tmp_path_factory.mktemp("embed"), [(a, b) for a in range(5) for b in range(5) if a < b]
    rows = [{"query": f"{a} plus {b}", "pos": [f"{b} plus {a}"], "neg": f"{a} plus {b + 5}"} for a, b in sums]
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "similar.tsv").write_text("".join(f"{a} plus {b}\t{b} plus {a}\t{a + b}\n" for a, b in sums))
    return folder


def test_keys_reach_the_model_and_its_loss(files, tmp_path, monkeypatch):
    tiny = {"num_layers": 1, "hidden_dim": 16, "feed_forward": {"intermediate_dim": 16}, "attention": {"num_heads": 2}}
    words = [
        *("--data.train", str(files / "train.jsonl"), "--data.validation", str(files / "train.jsonl")),
        *("--data.text_columns", "query", "pos", "neg", "--model.prompts", json.dumps(PROMPTS), "--model.width", "8"),
        *(*PAIRS, "--objective.scale", "30", "--objective.symmetric", "true", "--objective.widths", "8", "4"),
        *("--model.options", json.dumps(tiny), "--tokenizer.vocabulary_size", "20", "--training.batch_size", "5"),
    ]
    fitted = []

    class Fitted(Exception):
        """The data have been read and the model has been made."""

    def fit(self, x, **options):
        fitted.extend([self, next(iter(x))])
        raise Fitted

    monkeypatch.setattr(keras.Model, "fit", fit)
    with pytest.raises(Fitted):
        embed.main(parse(embed.EmbedConfig, [*words, "--run_folder", str(tmp_path / "run")]))
    task, (inputs, labels, _) = fitted
    options = {"width": 8, "prompts": PROMPTS, "objective": "in_batch_negatives", "pooling": "mean"}
    assert task.options().items() >= options.items() and labels.shape == (5, 3) and "third_token_ids" in inputs
    assert task.loss.widths == [8, 4] and (task.loss.loss.scale, task.loss.loss.symmetric) == (30.0, True)


def test_scores_of_each_width(files, tmp_path):
    data = embed.DataConfig([str(files / "train.jsonl")], [str(files / "train.jsonl")], text_columns=["query", "pos"])
    data = dataclasses.replace(data, highest=9.0)
    objective = embed.ObjectiveConfig("in_batch_negatives")
    evaluation = embed.EvaluationConfig(similarity=[str(files / "similar.tsv")])
    config = embed.EmbedConfig(data=data, objective=objective, evaluation=evaluation)
    train, _, test = embed.open_data(config)
    pairs, retrieval = embed.open_evaluation(config, test)
    assert (
        embed.training_columns(config, train)[0][1][0] == "1 plus 0"
        and embed.training_columns(config, train)[1] is None
    )
    tokenizer = SentencePieceTokenizer.train(["0 plus 1", "2 plus 2"], vocabulary_size=12)
    backbone = zoo.preset_config("modern_encoder_tiny", vocabulary_size=12, num_layers=1, hidden_dim=64)
    task = zoo.TextEmbedder(zoo.Backbone.from_config(backbone), tokenizer, prompts=PROMPTS, width=16)
    run = RunFolder(tmp_path, config)
    scores = EmbeddingScores(task, run, [16, 4])
    results = scores.of_pairs(pairs, 9.0) | scores.of_search(retrieval) | similarity_baseline(pairs, ["0 plus 1"])
    for width in ("", ", width 64", ", width 4"):
        assert {f"{name}{width}" for name in ("ndcg@10", "mrr@10", "recall@1", "spearman")} <= set(results)
    assert {"ndcg@10, TF-IDF", "spearman, TF-IDF"} <= set(results) and "mean_absolute_error" not in results
    assert (results["queries"], results["documents"], results["test_pairs"]) == (10, 10, 10)
    assert (results["queries_cut"], results["documents_cut"], results["test_texts_cut"]) == (0, 0, 0)
    run.final_steps.run()
    for name in ("search", "widths", "agreement"):
        assert (run.plots / f"{name}.png").stat().st_size > 5000
    # each column has its prompt, and vectors are cut and of length 1
    queries, documents = retrieval.columns()
    vectors = [task.embed(texts, prompt=name) for texts, name in ((queries, "query"), (documents, "document"))]
    best = [list(retrieval.documents)[place] for place in (vectors[0] @ vectors[1].T).argmax(1)]
    first = np.mean([name in retrieval.relevant[query] for query, name in zip(retrieval.queries, best, strict=True)])
    assert results["recall@1"] == pytest.approx(first) and vectors[0].shape == (10, 16)


def test_texts_that_are_cut_are_counted(tmp_path, capsys):
    """With the prompt of their column, which takes tokens as well."""
    tokenizer = SentencePieceTokenizer.train(["0 plus 1", "2 plus 2"], vocabulary_size=12)
    longest = max(len(tokenizer.tokenize(text)) for text in ("q: 1 plus 1", "1 plus 1"))
    backbone = zoo.preset_config("modern_encoder_tiny", vocabulary_size=12, num_layers=1, hidden_dim=64)
    options = {"prompts": {"query": "0 plus 0 plus 0: ", "document": ""}, "truncate": True, "sequence_length": longest}
    task = zoo.TextEmbedder(zoo.Backbone.from_config(backbone), tokenizer, **options)
    groups = [("1 plus 1", "2 plus 2"), ("1", "0 plus 1 plus 2 plus 1 plus 2"), ("2", "0")]
    run = RunFolder(tmp_path, embed.EmbedConfig())
    results = EmbeddingScores(task, run).of_search(retrieval_of_groups(groups), baseline=False)
    assert (results["queries_cut"], results["documents_cut"]) == (3, 1)
    assert "test: 3 of 3 queries (100.0%) are cut at" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--objective.margin", "2"], "objective.margin must be 1.0 with objective 'cosine_regression', got 2"),
        ([*PAIRS, "--objective.distance", "cosine"], "objective.distance must be 'euclidean' with objective 'in_batch"),
        (
            [*FILES, "--objective.name", "triplet"],
            r"data.text_columns must name 3 columns for 'triplet', got \['1', '2'\]",
        ),
        (
            [*PAIRS, *FILES, "--data.label_column", "4"],
            "data.label_column must be '3' with objective 'in_batch",
        ),
        ([*PAIRS, "--data.highest", "5"], "data.highest must be 1.0 where no data have a similarity, got 5.0"),
        (["--evaluation.similarity", "stsb"], "evaluation.similarity must be empty with objective 'cosine_regression'"),
        (["--evaluation.similarity_columns", "1", "2"], "evaluation.similarity_columns must name three"),
        (
            [*PAIRS, "--evaluation.similarity", "stsb", "--evaluation.similarity_columns", "1", "2", "4"],
            "evaluation.similarity_columns must be '1', '2', '3' with the name of a data set in evaluation.similarity",
        ),
        (["--data.header", "true"], "data.header must be null with a named data set, got true"),
        (["--data.text_columns", "a", "b"], r"data.text_columns must be \['1', '2'\] with a named data set, .*\['a', "),
    ],
)
def test_keys_that_do_not_fit(words, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        embed.main(parse(embed.EmbedConfig, [*words, "--run_folder", str(tmp_path / "run")]))
    assert not (tmp_path / "run").exists()


def test_a_set_with_neither_part_that_could_be_measured(monkeypatch, capsys):
    pair = LabelledText(("a", "b"), 1.0, "here")
    sets = {"of_training": lambda: Splits([pair], None), "of_two": lambda: Splits([], [pair])}
    monkeypatch.setattr(embed, "LABELLED", sets)
    config = parse(embed.EmbedConfig, [*PAIRS, "--evaluation.similarity", "of_two"])
    group = TextGroup(("a", "b"), "here")
    assert embed.open_evaluation(config, [group])[0] == [pair]
    assert "of_two: there is no test set; this is the validation set" in capsys.readouterr().out
    config = parse(embed.EmbedConfig, [*PAIRS, "--evaluation.similarity", "of_training"])
    with pytest.raises(DataError, match="evaluation.similarity: of_training has neither a test nor a validation set"):
        embed.open_evaluation(config, [group])


def test_widths_that_do_not_fit(tmp_path):
    loss = embed.make_loss(embed.ObjectiveConfig("cosent", scale=7.0, widths=[8]), 16)
    assert loss.loss.scale == 7.0 and loss.widths == [8]
    with pytest.raises(ConfigError, match=r"objective.widths must be different numbers from 1 to 15, got \[16\]"):
        embed.make_loss(embed.ObjectiveConfig(widths=[16]), 16)
    words = ["--objective.name", "triplet", "--data.train", "date_writings"]
    with pytest.raises(DataError, match="date_writings has 2 texts in a row, too few for a triplet"):
        embed.main(parse(embed.EmbedConfig, [*words, "--run_folder", str(tmp_path / "run")]))
