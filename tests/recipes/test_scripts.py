"""Each recipe once on sentences in Chinese, Russian, Arabic, Hindi and Thai: all that needs words finds them."""

import importlib
import io
import json
import logging
import sys
from types import SimpleNamespace

import pytest
import tensorflow as tf

import zoo
from recipes import apply, chat
from recipes.common.config import parse
from recipes.common.corpus import exported_model
from zoo.export.endpoint import describe
from zoo.tokenizers import ByteLevelBPETokenizer

pytestmark = pytest.mark.usefixtures("without_xla", "eagerly")

# of each script: sentences with a name in the middle, good ones and bad ones
SENTENCES = {
    "zh": ("{}喜欢这部电影。", "{}不喜欢这本书。", ("李明", "王芳", "北京", "小红")),
    "ru": ("{} любит этот фильм.", "{} ругает эту книгу.", ("Иван", "Мария", "Москва", "Ольга")),
    "ar": ("{} يحب هذا الفيلم.", "{} يكره هذا الكتاب.", ("أحمد", "مريم", "القاهرة", "خالد")),
    "hi": ("{} को यह फ़िल्म पसंद है।", "{} को यह किताब नापसंद है।", ("राम", "सीता", "दिल्ली", "मोहन")),
    "th": ("{}ชอบหนังเรื่องนี้", "{}เกลียดหนังสือเล่มนี้", ("สมชาย", "มาลี", "กรุงเทพ", "วิชัย")),
}
ROWS = [
    SimpleNamespace(text=form.format(name), name=name, label=label, script=script)
    for script, (good, bad, names) in SENTENCES.items()
    for name in names
    for form, label in ((good, "好"), (bad, "плохо"))
]
TINY = '{"num_layers": 1, "hidden_dim": 16, "feed_forward": {"intermediate_dim": 16}, "attention": {"num_heads": 2}}'
ENCODER = [
    *("--model.preset", "modern_encoder_tiny", "--model.options", TINY, "--tokenizer.vocabulary_size", "260"),
    *("--training.batch_size", "20", "--training.epochs", "1"),
]
DECODER = [
    *(
        "--model.preset",
        "llama_shakespeare",
        "--model.options",
        '{"num_layers": 1, "hidden_dim": 16, "max_length": 160}',
    ),
    *("--training.batch_size", "20", "--training.epochs", "1", "--training.warmup_steps", "1"),
]
SEQ2SEQ = [
    *("--model.options", '{"num_layers": 1, "hidden_dim": 16, "max_length": 96}', "--data.max_length", "96"),
    *("--tokenizer.vocabulary_size", "160", "--training.tokens_per_batch", "2048", "--training.epochs", "1"),
    *("--training.warmup_steps", "1", "--training.samples", "1", "--training.number_of_buckets", "1"),
]


def jsonl(rows):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def spans(row):
    return [{"start": row.text.index(row.name), "end": row.text.index(row.name) + len(row.name), "label": "имя"}]


def answered(row):
    start = row.text.index(row.name)
    return {"question": "谁？", "context": row.text, "answers": [{"text": row.name, "answer_start": start}]}


def said(row):
    talk = [{"role": "user", "content": row.text}, {"role": "assistant", "content": row.name}]
    return {"messages": talk}


def preferred(row):
    return {"prompt": row.text, "chosen": row.name, "rejected": row.label}


# for each recipe its data, their suffix and its options
RECIPES = {
    "classify": ("".join(f"{row.text}\t{row.label}\n" for row in ROWS), "tsv", ENCODER),
    "tag": (jsonl({"text": row.text, "spans": spans(row)} for row in ROWS), "jsonl", ENCODER),
    "answer": (jsonl(map(answered, ROWS)), "jsonl", ENCODER),
    "embed": (
        "".join(f"{row.name}\t{row.text}\n" for row in ROWS[::2]),
        "tsv",
        [*ENCODER, "--objective.name", "in_batch_negatives"],
    ),
    "rerank": (
        "".join(f"{row.name}\t{row.text}\n" for row in ROWS[::2]),
        "tsv",
        [*ENCODER, "--data.negatives", "1", "--evaluation.candidates", "4"],
    ),
    "pretrain_masked_lm": (
        "".join(f"{row.text}\n" for row in ROWS),
        "txt",
        [*ENCODER, "--data.unit", "line", "--masking.whole_words", "true"],
    ),
    "language_model": (
        "".join(f"{row.text}\n" for row in ROWS),
        "txt",
        [*DECODER, "--training.batches_per_epoch", "2", "--training.length", "24", "--new_tokens", "4"],
    ),
    "finetune": (
        jsonl(map(said, ROWS)),
        "jsonl",
        [*DECODER, "--tokenizer.vocabulary_size", "400", "--new_tokens", "4", "--training.samples", "1"],
    ),
    "translate": ("".join(f"{row.text}\t{row.name}\n" for row in ROWS), "tsv", SEQ2SEQ),
    "summarize": (
        jsonl({"source": row.text, "target": row.name} for row in ROWS),
        "jsonl",
        [
            *(word.replace("data.max_length", "data.max_text_length") for word in SEQ2SEQ),
            *("--data.max_summary_length", "12", "--sampler", '{"name": "greedy"}'),
        ],
    ),
}


# recipes that begin with a model: the key that names it, and the same
STARTED = {
    "prefer": (
        "model.start_from",
        jsonl(map(preferred, ROWS)),
        "jsonl",
        [*("--training.batch_size", "20", "--training.epochs", "1", "--training.samples", "1", "--new_tokens", "4")],
    ),
    "distill": (
        "teacher.start_from",
        "".join(f"{row.text}\n" for row in ROWS),
        "txt",
        [
            *("--data.unit", "line", "--training.length", "24", "--training.batches_per_epoch", "2"),
            *("--training.batch_size", "4", "--training.epochs", "1"),
        ],
    ),
}


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


def run(recipe, folder, *more):
    """The results of a recipe whose training data are its test data."""
    module = importlib.import_module(f"recipes.{recipe}")
    (config_class,) = [
        kind for key, kind in vars(module).items() if key.endswith("Config") and hasattr(kind, "run_folder")
    ]
    text, suffix, options = RECIPES[recipe] if recipe in RECIPES else STARTED[recipe][1:]
    path = folder / f"data.{suffix}"
    path.write_text(text, encoding="utf-8")
    files = ["--data.train", str(path), "--data.validation", str(path)]
    where = ["--run_folder", str(folder / "run"), "--export", "false"]
    return module.main(parse(config_class, [*files, *options, *where, *more]))


# they train as language_model and translate do
SLOW = ("finetune", "summarize")


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
    from recipes.common.evaluation.evaluations import evaluate_answers, evaluate_summaries, evaluate_translation

    class Model:
        def __init__(self, outputs):
            self.outputs = outputs

        def generate(self, texts, **options):
            return self.outputs

        def answer(self, questions, contexts):
            return [SimpleNamespace(text=text) for text in self.outputs]

    monkeypatch.setattr("recipes.common.evaluation.evaluations.count_cut_sources", lambda *arguments: 0)
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
