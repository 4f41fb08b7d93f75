"""The reranking recipe: pairs with drawn negatives, labelled pairs, a first search by vectors; keys that do not fit."""

import json

import numpy as np
import pytest

import zoo
from recipes import evaluate, rerank
from recipes.common.config import parse
from recipes.common.errors import ConfigError, DataError
from zoo.tokenizers import SentencePieceTokenizer

pytestmark = pytest.mark.usefixtures("without_xla", "eagerly")

FILES = ["--data.train", "a.tsv", "--data.validation", "b.tsv"]
LABELS = ["--data.label_column", "3"]


def config_of(*words):
    return parse(rerank.RerankConfig, words)


def test_a_run(tmp_path):
    rows = [f"{a} plus {b}\t{b} plus {a}\n" for a in range(4) for b in range(4) if a < b]
    (tmp_path / "train.tsv").write_text("".join(rows))
    tiny = {"num_layers": 1, "hidden_dim": 16, "feed_forward": {"intermediate_dim": 16}, "attention": {"num_heads": 2}}
    tiny["max_length"] = 8
    results = rerank.main(
        config_of(
            *("--data.train", str(tmp_path / "train.tsv"), "--data.validation", str(tmp_path / "train.tsv")),
            *("--data.negatives", "1", "--evaluation.candidates", "4", "--model.options", json.dumps(tiny)),
            *("--tokenizer.vocabulary_size", "20", "--training.batch_size", "6", "--training.epochs", "1"),
            *("--run_folder", str(tmp_path / "run"), "--export", "false"),
        )
    )
    assert (results["queries"], results["candidates"], results["training_pairs"]) == (6, 4, 12)
    # no pair is whole: each of the two texts has 3 tokens at least, and there are those around them
    assert results["candidates_cut"] == 24
    assert {"ndcg@10 before", "ndcg@10 after", "mrr@10 before", "mrr@10 after", "recall@4"} <= set(results)
    assert json.loads((tmp_path / "run" / "results.json").read_text()) == results
    assert (tmp_path / "run" / "reranked.tsv").read_text().count("\n") == 7
    assert (tmp_path / "run" / "plots" / "reranking.png").stat().st_size > 5000
    scores = evaluate.main(evaluate.EvaluateConfig([str(tmp_path / "run")], output=str(tmp_path / "scores")))
    assert scores["models"]["run"]["ndcg@10"] == pytest.approx(results["ndcg@10 after"], abs=1e-4)
    task = zoo.TextClassifier.from_preset(tmp_path / "run")
    assert {ranked.index for ranked in task.rank("0 plus 1", ["1 plus 1", "1 plus 0"])} == {0, 1}


def test_labelled_pairs(tmp_path):
    rows = [("a b", "b", 3), ("a b", "a b c", 1), ("a b", "d", 0), ("d", "b", 0)]
    (tmp_path / "train.tsv").write_text("".join(f"{query}\t{text}\t{grade}\n" for query, text, grade in rows))
    files = ["--data.train", str(tmp_path / "train.tsv"), "--data.validation", str(tmp_path / "train.tsv")]
    config = config_of(*files, *LABELS, "--data.highest", "3", "--model.problem", "regression")
    train, _, test = rerank.open_data(config)
    pairs = rerank.pairs_of(config, train)
    np.testing.assert_allclose(rerank.targets_of(pairs, False), [1, 1 / 3, 0, 0])
    retrieval, candidates = rerank.open_evaluation(config, test)
    ordered = [[retrieval.documents[name] for name in names] for names in candidates.values()]
    assert ordered == [["a b c", "b", "d"]] and list(retrieval.queries.values()) == ["a b"]
    assert rerank.targets_of(pairs[1:3], True) == [["relevant"], []]
    with pytest.raises(DataError, match=r"train\.tsv:2: no label: .*'binary' it must be 0 or 3, got 1"):
        rerank.open_data(config_of(*files, *LABELS, "--data.highest", "3"))


def test_a_first_search_by_vectors(tmp_path):
    texts = {"queries.jsonl": [("q", "0 plus 1")], "corpus.jsonl": [(f"d{n}", f"{n} plus {n}") for n in range(3)]}
    for name, rows in texts.items():
        (tmp_path / name).write_text("".join(json.dumps({"_id": key, "text": text}) + "\n" for key, text in rows))
    (tmp_path / "relevance.tsv").write_text("query-id\tcorpus-id\tscore\nq\td1\t1\n")
    names = {"queries": "queries.jsonl", "corpus": "corpus.jsonl", "relevance": "relevance.tsv"}
    files = {name: str(tmp_path / file) for name, file in names.items()}
    tokenizer = SentencePieceTokenizer.train(["0 plus 1", "2 plus 2"], vocabulary_size=12)
    backbone = zoo.preset_config("modern_encoder_tiny", vocabulary_size=12, num_layers=1, hidden_dim=64)
    embedder = zoo.TextEmbedder(zoo.Backbone.from_config(backbone), tokenizer)
    embedder.save_to_preset(tmp_path / "embedder")
    evaluation = rerank.EvaluationConfig(**files, first_stage=str(tmp_path / "embedder"), candidates=2)
    found, candidates = rerank.open_evaluation(rerank.RerankConfig(evaluation=evaluation), [])
    scores = embedder.embed(list(found.documents.values())) @ embedder.embed("0 plus 1")
    assert candidates["q"] == [f"d{place}" for place in np.argsort(-scores)[:2]]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model.problem", "regression"], "model.problem must be 'binary' without data.label_column"),
        (["--data.highest", "2"], "data.highest must be 1.0 without data.label_column, got 2.0"),
        ([*FILES, "--data.text_columns", "1"], r"data.text_columns must name two columns at least, got \['1'\]"),
        ([*LABELS, *FILES, "--data.text_columns", "1"], "data.text_columns must name two columns with label_column"),
        ([*LABELS, "--data.negatives", "2"], "data.negatives must be 4 where rows have documents that are not"),
        (
            [*LABELS, "--evaluation.candidates", "9"],
            "evaluation.candidates must be 50 where labelled pairs are",
        ),
    ],
)
def test_keys_that_do_not_fit(words, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        rerank.main(config_of(*words, "--run_folder", str(tmp_path / "run")))
