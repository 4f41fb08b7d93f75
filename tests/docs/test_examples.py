"""The scripts of docs/examples, with data that can be learned in a moment."""

import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

tf = pytest.importorskip("tensorflow")
pytest.importorskip("tensorflow_text")

import zoo  # noqa: E402

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"
pytestmark = pytest.mark.pages


def run(name, folder, *words):
    """Returns what a script prints."""
    command = [sys.executable, str(EXAMPLES / name), *map(str, words)]
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_each_is_short_and_plain():
    scripts = sorted(EXAMPLES.glob("*.py"))
    assert [script.stem for script in scripts] == ["chat_by_lora", "classify", "pretrain_and_search", "translate"]
    for script in scripts:
        text = script.read_text("utf-8")
        assert len(text.splitlines()) <= 120 and "recipes" not in text
        assert f"    python docs/examples/{script.name} " in text


@pytest.mark.slow
def test_classify(tmp_path):
    rng = random.Random(0)
    words = {"bad": ["dull", "poor", "weak", "slow"], "good": ["fine", "warm", "wise", "deft"]}
    rows = []
    for label in ("bad", "good") * 100:
        thing, first, second = rng.choice(["film", "plot", "cast"]), *rng.choices(words[label], k=2)
        rows.append(f"the {thing} is {first} and {second}\t{label}")
    (tmp_path / "train.tsv").write_text("\n".join(rows[:160]), "utf-8")
    (tmp_path / "held_out.tsv").write_text("\n".join(rows[160:]), "utf-8")
    printed = run("classify.py", tmp_path, "train.tsv", "held_out.tsv", "--epochs", 3)
    assert "accuracy 1.000 on 40 rows" in printed
    # again from the model that it has saved, whose head is replaced
    printed = run(
        "classify.py",
        tmp_path,
        "train.tsv",
        "held_out.tsv",
        "--epochs",
        1,
        "--model",
        "classifier/preset",
        "--output",
        "b",
    )
    assert float(re.search(r"accuracy ([\d.]+)", printed)[1]) > 0.9
    model = zoo.TextClassifier.from_preset(tmp_path / "b" / "preset")
    served = tf.saved_model.load(tmp_path / "b" / "export" / "1")
    texts = ["the plot is dull and weak", "the cast is wise and warm"]
    assert model.classify(texts) == [each.decode() for each in served.serve(tf.constant(texts))["label"].numpy()]


@pytest.mark.slow
def test_translate(tmp_path):
    numbers = "null eins zwei drei vier".split(), "zero one two three four".split()
    rng = random.Random(0)
    rows = [[rng.randrange(5) for _ in range(rng.randint(1, 3))] for _ in range(400)]
    for side, name in enumerate(("de", "en")):
        lines = [" ".join(numbers[side][digit] for digit in row) for row in rows]
        (tmp_path / f"train.{name}").write_text("\n".join(lines[:380]), "utf-8")
        (tmp_path / f"test.{name}").write_text("\n".join(lines[380:]), "utf-8")
    files = ["train.de", "train.en", "test.de", "test.en"]
    printed = run("translate.py", tmp_path, *files, "--epochs", 1, "--vocabulary_size", 60)
    assert "361 pairs" in printed and printed.rstrip().splitlines()[-1].startswith("BLEU = ")
    assert (tmp_path / "translator.png").read_bytes()[:4] == b"\x89PNG"
    model = zoo.Task.from_preset(tmp_path / "translator" / "preset")
    served = tf.saved_model.load(tmp_path / "translator" / "export" / "1")
    beam = zoo.Beam(num_beams=4)
    text = model.generate("eins zwei", sampler=beam, jit_compile=False)
    assert served.serve(tf.constant(["eins zwei"])).numpy()[0].decode() == text


@pytest.mark.slow
def test_chat_by_lora(tmp_path):
    from zoo.tokenizers import ByteLevelBPETokenizer

    names = ["ant", "bee", "cow", "dog", "emu", "fox", "gnu", "hen", "ibex", "jay"]
    rows = [[{"role": "user", "content": f"{name}?"}, {"role": "assistant", "content": name * 2}] for name in names]
    lines = [json.dumps({"messages": row}) for row in rows]
    (tmp_path / "conversations.jsonl").write_text("\n".join(lines), "utf-8")
    tokenizer = ByteLevelBPETokenizer.train(lines, 300)
    config = zoo.preset_config("llama_shakespeare", num_layers=1, vocabulary_size=tokenizer.vocabulary_size)
    zoo.CausalLM(zoo.Backbone.from_config(config), tokenizer).save_to_preset(tmp_path / "base")
    options = ["--chat_format", "plain", "--max_new_tokens", 4, "--epochs", 4]
    printed = run("chat_by_lora.py", tmp_path, "base", "conversations.jsonl", *options)
    before, after = map(float, re.search(r"([\d.]+) nats per token before, ([\d.]+) after", printed).groups())
    assert after < before and "LoRA of rank 8" in printed
    assert (tmp_path / "adapter" / "adapter_config.json").exists()


@pytest.mark.slow
def test_pretrain_and_search(tmp_path):
    rng = random.Random(0)
    topics = [["sea", "storm", "ship", "wave", "sail"], ["tree", "leaf", "root", "moss", "bark"]]
    sentences = [" ".join(rng.choice(topics[place // 2 % 2]) for _ in range(12)) + "." for place in range(400)]
    (tmp_path / "text.txt").write_text("\n".join(sentences), "utf-8")
    words = ["text.txt", "--query", "storm sail", "--epochs", 1, "--vocabulary_size", 60]
    printed = run("pretrain_and_search.py", tmp_path, *words)
    assert "'pretrained'" in printed and len(re.findall("^- ", printed, re.M)) == 3
    model = zoo.TextEmbedder.from_preset(tmp_path / "search" / "embedder")
    served = tf.saved_model.load(tmp_path / "search" / "export" / "1")
    vectors = served.serve(tf.constant(["storm at sea"])).numpy()
    assert abs(vectors - model.embed(["storm at sea"])).max() < 1e-5
