"""Each recipe once on sentences in Chinese, Russian, Arabic, Hindi and Thai: all that needs words finds them."""

import io
import json
import logging
import sys
from types import SimpleNamespace

import pytest
import tensorflow as tf
from tiny_recipes import RECIPES, ROWS, SENTENCES, STARTED, jsonl, run

import zoo
from recipes import apply, chat
from recipes.common.config import parse
from recipes.common.corpus import exported_model
from zoo.export.endpoint import describe
from zoo.tokenizers import ByteLevelBPETokenizer

pytestmark = pytest.mark.usefixtures("without_xla", "eagerly")


@pytest.fixture(scope="module")
def writer(tmp_path_factory):
    """A decoder that chats."""
    texts = [row.text for row in ROWS]
    tokenizer = ByteLevelBPETokenizer.train(texts, 300, special_tokens=["<|im_start|>"], end_token="<|im_end|>")
    config = zoo.TransformerConfig(
        "decoder",
        tokenizer.vocabulary_size,
        hidden_dim=8,
        num_layers=3,
        max_length=160,
        attention=zoo.AttentionConfig(num_heads=1),
        feed_forward=zoo.FeedForwardConfig(8),
        dropout=0.0,
    )
    folder = tmp_path_factory.mktemp("writer") / "model"
    zoo.CausalLM(zoo.Backbone.from_config(config), tokenizer.with_chat_format("chatml")).save_to_preset(folder)
    return folder


# they train as language_model does; tests/recipes/test_translate.py has a run
SLOW = ("finetune", "summarize", "translate")


@pytest.mark.parametrize("recipe", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in RECIPES])
def test_recipe(recipe, tmp_path, caplog):
    with caplog.at_level(logging.WARNING, logger="zoo.inspect.plots"):
        results = run(recipe, tmp_path)
    folder = tmp_path / "run"
    assert json.loads((folder / "results.json").read_text(encoding="utf-8")) == results
    card = (folder / "model_card.md").read_text(encoding="utf-8")
    # a picture says in one line which characters no font has
    lines = [record.getMessage() for record in caplog.records]
    assert all("no font of this system has them" in line for line in lines)
    assert len({line.split(":")[0] for line in lines}) == len(lines)
    if recipe == "classify":
        # words of every script tell the classes apart
        assert results["TF-IDF + logistic regression"]["accuracy"] == 1.0
    elif recipe == "tag":
        assert results["test_sentences"] == len(ROWS)
    elif recipe == "answer":
        assert 0 <= results["f1"] <= 100
    elif recipe == "embed":
        # a name finds the one sentence that it is part of
        assert results["recall@1, TF-IDF"] == 1.0
    elif recipe == "rerank":
        assert results["ndcg@10 before"] == 1.0
    elif recipe in ("translate", "summarize"):
        name, signature = {"translate": ("sacreBLEU", "tok:"), "summarize": ("rouge_signature", "tok:unicode")}[recipe]
        assert signature in str(results[name]) and signature in card
    assert (folder / "report.html").exists()


@pytest.mark.parametrize("recipe", STARTED)
def test_recipe_that_begins_with_a_model(recipe, writer, tmp_path):
    results = run(recipe, tmp_path, f"--{STARTED[recipe][0]}", str(writer))
    assert json.loads((tmp_path / "run" / "results.json").read_text(encoding="utf-8")) == results
    if recipe == "prefer":
        samples = (tmp_path / "run" / "samples" / "test.tsv").read_text(encoding="utf-8")
        assert all(row.name in samples for row in ROWS) and 0 <= results["test_win_rate"] <= 1
    else:
        assert results["task"] == "CausalLM" and results["validation_nll_per_token"] > 0


def test_chat(writer, monkeypatch):
    # one of each script, in the encoding of the terminal
    text = " ".join(row.name for row in ROWS[::8])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(f"{text}\n".encode()), "utf-8"))
    options = {"max_new_tokens": 2, "jit_compile": False}
    messages = chat.main(chat.ChatConfig(model=str(writer), options=options, system=ROWS[0].name))
    assert [message["content"] for message in messages[:2]] == [ROWS[0].name, text]
    assert messages[2]["content"] == zoo.CausalLM.from_preset(writer).generate(messages[:2], **options)


def test_apply(tmp_path, monkeypatch):
    """An export that returns its texts."""
    fields = (zoo.export.Field("texts", ("batch",), "string"),), (zoo.export.Field("output", ("batch",), "string"),)
    folder = tmp_path / "model"
    folder.mkdir()
    described = describe({"serve": zoo.export.Endpoint(tf.identity, *fields)})
    (folder / "signature.json").write_text(json.dumps(described), encoding="utf-8")
    (folder / "saved_model.pb").touch()
    loaded = lambda texts: {"output": texts}, {}, {}, ["output"]  # noqa: E731
    monkeypatch.setattr(exported_model, "_load", lambda *arguments: loaded)
    (tmp_path / "a.jsonl").write_text(jsonl({"имя": row.text} for row in ROWS), encoding="utf-8")
    options = ["--input", str(tmp_path / "a.jsonl"), "--keys", '{"texts": "имя"}', "--output", str(tmp_path / "out")]
    index = apply.main(parse(apply.ApplyConfig, [str(folder), *options]))
    assert index["records"] == len(ROWS)
    lines = (tmp_path / "out" / "00000.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["output"] for line in lines] == [row.text for row in ROWS] and ROWS[0].text in lines[0]


def test_perfect_outputs_have_perfect_scores(monkeypatch, tmp_path):
    """Of every script alone, what equals its reference has all points, and what nearly does has many."""
    from recipes.common.evaluation.evaluations import evaluate_answers
    from recipes.common.evaluation.generated_texts import evaluate_summaries, evaluate_translation

    class Model:
        def __init__(self, outputs):
            self.outputs = outputs

        def generate(self, texts, **options):
            return self.outputs

        def answer(self, questions, contexts, top_k):
            return [[SimpleNamespace(text=text)] for text in self.outputs]

    Model.preprocessor = None
    monkeypatch.setattr("recipes.common.evaluation.generated_texts.count_cut_sources", lambda *arguments: 0)
    monkeypatch.setattr("recipes.common.evaluation.evaluations.count_cut_questions", lambda *arguments: 0)
    for script in SENTENCES:
        rows = [row.text for row in ROWS if row.script == script]
        near = [rows[0], *(text[: len(text) // 2] + text[len(text) // 2 + 2 :] for text in rows[1:])]
        for outputs, least in ((rows, 99.99), (near, 20)):
            bleu = evaluate_translation(Model(outputs), rows, rows, language=script).scores
            rouge = evaluate_summaries(Model(outputs), rows, [(text,) for text in rows]).scores
            questions = [SimpleNamespace(question="?", context=text, answers=[(text, 0)]) for text in rows]
            answers = evaluate_answers(Model(outputs), questions, script).scores
            for value in (bleu["sacreBLEU"]["value"], bleu["chrF2"]["value"], rouge["rougeL"], answers["f1"]):
                assert value >= least, (script, outputs == rows)
