"""Retrieval: files of BEIR, groups and labels; search; scores beside scikit-learn's."""

import json

import numpy as np
import pytest
from sklearn.metrics import label_ranking_average_precision_score, ndcg_score

from recipes.common.data.retrieval import Retrieval, open_beir, read_beir, retrieval_of_groups, retrieval_of_labels
from recipes.common.errors import BadLines, ConfigError, DataError
from recipes.common.evaluation.evaluation import results_of
from recipes.common.evaluation.search import curves_of, order, retrieval_metrics, search, tfidf, tfidf_search
from recipes.embed import EvaluationConfig


def write(folder, relevance="query-id\tcorpus-id\tscore\nq1\td2\t2\nq1\td1\t1\nq2\td1\t0\nq3\td3\t1\n"):
    texts = {"q1": "where is rome", "q2": "what is an oak", "q3": "who wrote hamlet"}
    (folder / "queries.jsonl").write_text("".join(json.dumps({"_id": k, "text": v}) + "\n" for k, v in texts.items()))
    documents = [("d1", "Rome", "a city"), ("d2", "", "rome is in italy"), ("d3", "Hamlet", "")]
    lines = [json.dumps({"_id": name, "title": title, "text": text}) for name, title, text in documents]
    (folder / "corpus.jsonl").write_text("\n".join(lines))
    (folder / "test.tsv").write_text(relevance)
    return tuple(str(folder / name) for name in ("queries.jsonl", "corpus.jsonl", "test.tsv"))


def test_files_of_beir(tmp_path, capsys):
    files = write(tmp_path)
    retrieval = read_beir(*files, BadLines("raise"))
    assert retrieval.relevant == {"q1": {"d2": 2.0, "d1": 1.0}, "q3": {"d3": 1.0}}
    assert retrieval.documents == {"d1": "Rome a city", "d2": "rome is in italy", "d3": "Hamlet"}
    assert list(retrieval.queries) == ["q1", "q3"] and "1 queries without a relevant doc" in capsys.readouterr().out
    (tmp_path / "corpus.tsv").write_text("d1\ta\nd2\tb\nd3\tc\n")
    assert read_beir(files[0], str(tmp_path / "corpus.tsv"), files[2], BadLines("raise")).documents["d3"] == "c"
    config = EvaluationConfig(queries=files[0], corpus=files[1], relevance=files[2])
    assert open_beir(config, "raise") == retrieval and open_beir(EvaluationConfig(), "raise") is None
    with pytest.raises(ConfigError, match="evaluation.corpus must be given with the other files of a search, got null"):
        open_beir(EvaluationConfig(queries="q.jsonl"), "raise")


def test_spaces_around_ids_and_titles_of_an_array(tmp_path):
    queries, _, relevance = write(tmp_path, "q1 \t d1\t1\n")
    corpus = tmp_path / "corpus.json"
    corpus.write_text(json.dumps([{"_id": "d1 ", "title": "Rome", "text": "a city"}]))
    retrieval = read_beir(queries, str(corpus), relevance, BadLines("raise"))
    assert (retrieval.documents, retrieval.relevant) == ({"d1": "Rome a city"}, {"q1": {"d1": 1.0}})


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("q1\td9\t1", r"test\.tsv:1: unknown id: 'd9' is in neither .*queries.jsonl nor .*corpus.jsonl"),
        ("q1\td1\tmuch", r"test\.tsv:1: no relevance: the field must hold a number of at least 0, got 'much'"),
        ("q1\td1", r"test\.tsv:1: wrong number of columns"),
        ("q1\td1\t0", "names no relevant document"),
    ],
)
def test_bad_files_name_their_place(tmp_path, line, message):
    files = write(tmp_path, line + "\n")
    with pytest.raises(DataError, match=message):
        read_beir(*files, BadLines("raise"))
    (tmp_path / "corpus.jsonl").write_text('{"_id": "d1", "text": "a"}\n{"_id": "d1", "text": "b"}\n')
    with pytest.raises(DataError, match=r"corpus\.jsonl:2: id given twice: 'd1'"):
        read_beir(*files, BadLines("raise"))


def test_groups_and_labels():
    # the second anchor is a document of the first; the last is its own positive
    found = retrieval_of_groups([("a", "b", "c"), ("b", "a"), ("a", "d"), ("e", "e")])
    assert {found.queries[name]: {found.documents[d] for d in ids} for name, ids in found.relevant.items()} == {
        "a": {"b", "d"},
        "b": {"a"},
    }
    assert sorted(found.documents.values()) == ["a", "b", "c", "d", "e"]
    vectors = np.eye(5)
    assert all(name not in ids for name, ids in search(found, vectors[:2], vectors).items())
    with pytest.raises(DataError, match="an anchor that differs from its positive"):
        retrieval_of_groups([("a", "a")])
    retrieval, candidates = retrieval_of_labels([("q", "x", 0), ("q", "y", 2), ("r", "x", 0)])
    assert retrieval.relevant == {"0": {"2": 2}} and candidates == {"0": ["1", "2"]}
    assert order(retrieval, np.ones((1, 1)), np.array([[1.0], [2.0]]), candidates) == {"0": ["2", "1"]}


def test_search_and_scores_are_those_of_scikit_learn():
    generator = np.random.default_rng(0)
    queries, documents = generator.normal(size=(300, 8)), generator.normal(size=(40, 8))
    grades = generator.integers(0, 4, (300, 40)) * (generator.random((300, 40)) < 0.1)
    grades[grades.sum(1) == 0, 3] = 1
    relevant = {f"q{i}": {f"d{j}": float(g) for j, g in enumerate(row) if g} for i, row in enumerate(grades)}
    retrieval = Retrieval(
        {f"q{i}": "" for i in range(300)},
        {f"d{j}": "" for j in range(40)},
        relevant,
    )
    found, scores = search(retrieval, queries, documents), queries @ documents.T
    assert found["q7"] == [f"d{j}" for j in np.argsort(-scores[7])]
    assert search(retrieval, queries, documents, 3)["q7"] == found["q7"][:3]
    measured = results_of(retrieval_metrics(found, relevant, (1, 10)))
    assert measured["ndcg@10"] == pytest.approx(ndcg_score(grades, scores, k=10), abs=1e-4)
    best = np.array([[grades[i, int(d[1:])] > 0 for d in found[f"q{i}"]] for i in range(300)])
    first = best.argmax(1) + 1
    assert measured["mrr@10"] == pytest.approx(np.where(first <= 10, 1 / first, 0).mean(), abs=1e-4)
    assert measured["recall@10"] == pytest.approx((best[:, :10].sum(1) / best.sum(1)).mean(), abs=1e-4)
    ranks, curve = curves_of(found, relevant, 20)
    assert curve[9] == pytest.approx(measured["ndcg@10"], abs=1e-4) and len(ranks) == len(curve) == 20
    # with one relevant document each, the mean average precision is the mean reciprocal rank
    single = np.eye(40)[generator.integers(0, 40, 300)]
    one = {f"q{i}": {f"d{row.argmax()}": 1.0} for i, row in enumerate(single)}
    everything = {name: ids[:10] for name, ids in found.items() if next(iter(one[name])) in ids[:10]}
    kept = [int(name[1:]) for name in everything]
    expected = label_ranking_average_precision_score(single[kept], scores[kept])
    measured = results_of(retrieval_metrics(everything, {name: one[name] for name in everything}))
    assert measured["mrr@10"] == pytest.approx(expected, abs=1e-4)


def test_words():
    retrieval = Retrieval({"q": "rome italy"}, {"d": "an oak", "e": "rome is in italy", "f": "italy"}, {"q": {"e": 1}})
    assert tfidf_search(retrieval)["q"][:2] == ["e", "f"]
    first, second = tfidf(["a b", "c"], ["a b"], ["b a"])
    assert first.multiply(second).sum() == pytest.approx(1)


@pytest.mark.parametrize(
    ("query", "documents"),
    [
        ("天气很好", ["我们昨天去了北京大学。", "今天天气很好，我们去公园。", "他在家里读书。"]),
        ("กินปลา", ["เขาไปโรงเรียน", "แมวกินปลา", "วันนี้ฝนตก"]),
        ("भाषा", ["वह घर गया।", "हिन्दी भाषा सुन्दर है।", "भारत बड़ा देश है।"]),
        ("дома", ["Мы были в лесу.", "Кот спит дома.", "Он читает книгу."]),
        ("Straße", ["das Haus am See", "die STRASSE nach Köln", "ein Baum"]),
    ],
)
def test_a_query_finds_the_document_that_it_is_part_of(query, documents):
    retrieval = Retrieval({"q": query}, dict(zip("abc", documents, strict=True)), {"q": {"b": 1}})
    assert tfidf_search(retrieval)["q"][0] == "b"
