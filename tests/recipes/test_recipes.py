"""Each recipe on small files: a run leaves everything; an interrupted one ends with the losses of an uninterrupted one.

`test_translate.py` kills a process; here the interruption is an exception, after which nothing of the run is saved.
"""

import csv
import importlib
import json

import numpy as np
import pytest

from recipes.common.config import parse
from recipes.common.errors import ConfigError, DataError
from zoo.training import TrainingState

ENCODER = [
    *("--model.preset", "modern_encoder_tiny"),
    *(
        "--model.options",
        '{"num_layers": 1, "hidden_dim": 16, "feed_forward": {"intermediate_dim": 16}, "attention": {"num_heads": 2}}',
    ),
    *("--tokenizer.vocabulary_size", "60"),
    *("--training.batch_size", "8"),
    *("--training.epochs", "2"),
]
DECODER = [
    *("--model.preset", "llama_shakespeare"),
    *("--training.epochs", "2"),
    *("--training.batch_size", "8"),
    *("--training.warmup_steps", "2"),
]


def write(folder, recipe, extra=""):
    """Small training and validation files of a recipe, `extra` in the former; returns the options that name them."""
    generator = np.random.default_rng(0)
    names = []
    for part, count in (("train", 64), ("validation", 12)):
        numbers = generator.integers(0, 30, (count, 2))
        sums = [(f"{a} plus {b}", a + b) for a, b in numbers]
        if recipe == "classify":
            lines = [f"{text}\t{'even' if total % 2 == 0 else 'odd'}" for text, total in sums]
        elif recipe == "embed":
            lines = [f"{text}\t{b} plus {a}\t{total % 2}" for (text, total), (a, b) in zip(sums, numbers, strict=True)]
        elif recipe == "tag":
            lines = [
                "\n".join(f"{w}\t{'O' if w == 'plus' else 'B-N'}" for w in text.split()) + "\n" for text, _ in sums
            ]
        elif recipe == "finetune":
            lines = [
                json.dumps(
                    {
                        "messages": [
                            {"role": "user", "content": text},
                            {"role": "assistant", "content": str(total)},
                        ]
                    }
                )
                for text, total in sums
            ]
        elif recipe == "summarize":
            lines = [json.dumps({"source": [text, "and so on"], "target": [str(total)]}) for text, total in sums]
        else:
            lines = [f"{text} is {total}" for text, total in sums]
        suffix = {"classify": "tsv", "embed": "tsv", "tag": "conll", "finetune": "jsonl", "summarize": "jsonl"}
        path = folder / f"{part}.{suffix.get(recipe, 'txt')}"
        path.write_text("\n".join(lines) + "\n" + (extra if part == "train" else ""), encoding="utf-8")
        names += [f"--data.{part}", str(path)]
    return names


OPTIONS = {
    "classify": ENCODER,
    "tag": ENCODER,
    "embed": ENCODER,
    "pretrain_masked_lm": [*ENCODER, "--data.unit", "line", "--masking.whole_words", "true"],
    "language_model": [
        *DECODER,
        *("--model.options", '{"num_layers": 1, "hidden_dim": 16, "feed_forward": {"intermediate_dim": 16}}'),
        *("--training.batches_per_epoch", "8", "--training.length", "16"),
        *("--prompts", "1", "2 plus", "--new_tokens", "8"),
    ],
    "finetune": [
        *DECODER,
        *("--model.options", '{"num_layers": 1, "hidden_dim": 16, "max_length": 48}'),
        *("--tokenizer.vocabulary_size", "300", "--new_tokens", "6", "--training.samples", "1"),
    ],
    "summarize": [
        *("--model.options", '{"num_layers": 1, "hidden_dim": 16, "dropout": 0.1}'),
        *("--tokenizer.vocabulary_size", "40", "--training.tokens_per_batch", "256", "--training.epochs", "2"),
        *("--training.warmup_steps", "2", "--training.samples", "1", "--training.number_of_buckets", "2"),
    ],
}
MEASURES = {
    "classify": ("accuracy", "TF-IDF + logistic regression"),
    "tag": ("accuracy", "entity_f1"),
    "embed": ("spearman",),
    "pretrain_masked_lm": ("validation_pseudo_perplexity",),
    "language_model": ("validation_nll_per_token", "validation_bits_per_character"),
    "finetune": ("exact_match", "validation_nll_per_reply_token"),
    "summarize": ("rougeL",),
}


def run(recipe, folder, name, *more, extra=""):
    module = importlib.import_module(f"recipes.{recipe}")
    (config_class,) = [
        kind for key, kind in vars(module).items() if key.endswith("Config") and hasattr(kind, "run_folder")
    ]
    arguments = [*write(folder, recipe, extra), *OPTIONS[recipe], "--run_folder", str(folder / name), *more]
    return module.main(parse(config_class, arguments))


def losses(folder):
    with open(folder / "metrics.csv", encoding="utf-8") as file:
        return [{key: float(value) for key, value in row.items() if "loss" in key} for row in csv.DictReader(file)]


@pytest.mark.parametrize("recipe", OPTIONS)
def test_recipe(recipe, tmp_path, monkeypatch):
    results = run(recipe, tmp_path, "whole")
    folder = tmp_path / "whole"
    assert json.loads((folder / "results.json").read_text()) == results
    for measure in MEASURES[recipe]:
        assert measure in results
    assert (folder / "plots" / "loss.png").stat().st_size > 5000
    assert (folder / "export" / "saved_model.pb").exists() and (folder / "model" / "config.json").exists()
    assert results["parameters"] > 1000 and len(losses(folder)) == 2

    class Interrupted(Exception):
        pass

    on_batch_end = TrainingState.on_train_batch_end

    def interrupt(self, batch, logs=None):
        on_batch_end(self, batch, logs)
        if self._epoch == 1 and self._batch == 4:
            raise Interrupted

    options = ("--export", "false", "--training.save_every", "2")
    with monkeypatch.context() as patch:
        patch.setattr(TrainingState, "on_train_batch_end", interrupt)
        with pytest.raises(Interrupted):
            run(recipe, tmp_path, "interrupted", *options)
    assert len(losses(tmp_path / "interrupted")) == 1
    run(recipe, tmp_path, "interrupted", *options)
    for row, expected in zip(losses(tmp_path / "interrupted"), losses(folder), strict=True):
        # the last bits may differ with the order in which threads add up
        assert row == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("recipe", "line", "message"),
    [
        ("classify", "no label", r"train\.tsv:65: wrong number of columns"),
        ("embed", "a\tb\tvery", r"train\.tsv:65: no label: a number is needed"),
        ("tag", "word", r"train\.conll:\d+: wrong number of columns"),
        ("finetune", '{"messages": [{"role": "user", "content": "x"}]}', "65: not a conversation: the last message"),
        ("summarize", '{"source": "x", "target": []}', "65: no text or no summary"),
    ],
)
def test_bad_rows_stop_the_run_or_are_counted(recipe, line, message, tmp_path, capsys):
    with pytest.raises(DataError, match=message):
        run(recipe, tmp_path, "run", extra=line)
    options = ("--data.on_error", "skip", "--export", "false", "--training.epochs", "1")
    run(recipe, tmp_path, "skipping", *options, extra=line)
    assert "skipped 1: " in capsys.readouterr().out


def test_tags_and_labels_that_do_not_fit(tmp_path):
    with pytest.raises(ConfigError, match="label_separator and model.problem 'multi_label' must be given together"):
        run("classify", tmp_path, "run", "--model.problem", "multi_label")
    with pytest.raises(ConfigError, match="chat_format must be one of"):
        run("finetune", tmp_path, "run", "--data.chat_format", "telegram")
    with pytest.raises(ConfigError, match=r"warmup_steps must be below the 16 updates of the training, got 99"):
        run("classify", tmp_path, "other", "--training.warmup_steps", "99")


def test_several_labels_and_values(tmp_path):
    for part in ("train", "validation"):
        (tmp_path / f"{part}.jsonl").write_text(
            "".join(
                json.dumps({"text": f"{a} plus {b}", "labels": [f"has {n}" for n in (a, b) if n > 2], "sum": a + b})
                + "\n"
                for a in range(5)
                for b in range(5)
            )
        )
    files = ["--data.train", str(tmp_path / "train.jsonl"), "--data.validation", str(tmp_path / "validation.jsonl")]
    common = [*files, "--data.text_columns", "text", "--training.epochs", "1", "--export", "false"]
    common += ["--tokenizer.vocabulary_size", "25"]
    results = run(
        "classify",
        tmp_path,
        "several",
        *common,
        *("--data.label_column", "labels", "--data.label_separator", ",", "--model.problem", "multi_label"),
    )
    assert {"micro_f1", "macro_f1", "exact_match"} <= set(results)
    results = run(
        "classify", tmp_path, "values", *common, "--data.label_column", "sum", "--model.problem", "regression"
    )
    assert {"mean_absolute_error", "pearson", "spearman"} <= set(results)


def test_masked_lm_to_classifier_to_commands(tmp_path, capsys):
    run("pretrain_masked_lm", tmp_path, "pretrained", "--export", "false", "--training.epochs", "1")
    start = ["--model.start_from", str(tmp_path / "pretrained" / "model")]
    run("classify", tmp_path, "run", *start, "--export", "false", "--training.epochs", "1")
    model = str(tmp_path / "run" / "model")

    def command(name, *arguments):
        module = importlib.import_module(f"recipes.{name}")
        config_class = getattr(module, f"{name.capitalize()}Config")
        return module.main(parse(config_class, ["--model", model, *arguments]))

    rows = command("generate", "--texts", "1 plus 2", "3 plus 3")
    assert [row["text"] for row in rows] == ["1 plus 2", "3 plus 3"]
    assert {row["output"] for row in rows} <= {"even", "odd"}
    scores = command("evaluate", "--data", str(tmp_path / "validation.tsv"))
    assert scores["examples"] == 12 and 0 <= scores["accuracy"] <= 1
    assert (command("export", "--output", str(tmp_path / "served")) / "saved_model.pb").exists()
    assert "a TextClassifier with the endpoints" in capsys.readouterr().out
    with pytest.raises(DataError, match="no saved model"):
        model = str(tmp_path)
        command("generate", "--texts", "x")
    with pytest.raises(ConfigError, match="task must be one of CausalLM"):
        command("generate", "--texts", "x", "--task", "Chatbot")


def test_list_of_recipes():
    from recipes.__main__ import recipes

    assert {"translate", *OPTIONS, "generate", "evaluate", "export", "benchmark"} <= set(recipes())
    assert all(line.endswith((".", ":")) or ":" in line for line in recipes().values())
