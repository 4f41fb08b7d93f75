"""Each recipe on small files: a run leaves everything, and what resumes it; one is killed and resumed.

What all recipes share of a resume is tested in tests/zoo/training/test_state.py. What a recipe has of its own are its
batches and its model: so the batches of each are entered in the middle of an epoch, and the saved state is looked at.
"""

import csv
import importlib
import itertools
import json
import multiprocessing
import os
import re
import signal
import time
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import zoo
from recipes import evaluate, tag
from recipes.common.config import parse, run_recipe
from recipes.common.errors import ConfigError, DataError
from zoo.storage import open_tensors

pytestmark = pytest.mark.usefixtures("without_xla")

ROOT = Path(__file__).parents[2]
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


# what a file system takes as a name, and patterns, addresses, shells and Markdown take for something else
UNUSUAL = "~-* ?%20#{a,b}]\n$HOME;'\"|:ü語\U0001f642 "
SUFFIXES = {
    **dict.fromkeys(("classify", "embed", "translate"), "tsv"),
    **dict.fromkeys(("answer", "finetune", "summarize"), "jsonl"),
    **dict.fromkeys(("language_model", "pretrain_masked_lm"), "txt"),
    "tag": "conll",
}


def write(folder, recipe, extra=b""):
    """Small training and validation files of a recipe, `extra` in the former; returns the options that name them."""
    generator = np.random.default_rng(0)
    names = []
    # three batches of eight; one that is killed has eight batches
    for part, count in (("train", 64 if recipe == "translate" else 24), ("validation", 6)):
        numbers = generator.integers(0, 30, (count, 2))
        sums = [(f"{a} plus {b}", a + b) for a, b in numbers]
        if recipe == "classify":
            lines = [f"{text}\t{'even' if total % 2 == 0 else 'odd'}" for text, total in sums]
        elif recipe == "translate":
            lines = [f"{text}\t{total}" for text, total in sums]
        elif recipe == "embed":
            lines = [f"{text}\t{b} plus {b}\t{total % 2}" for (text, total), (a, b) in zip(sums, numbers, strict=True)]
        elif recipe == "tag":
            lines = [
                "\n".join(f"{w}\t{'O' if w == 'plus' else 'B-N'}" for w in text.split()) + "\n" for text, _ in sums
            ]
        elif recipe == "answer":
            lines = [
                json.dumps(
                    {
                        "question": f"what is {a if total % 3 else 'this'}?",
                        "context": f"{a} plus {b}",
                        "answers": [{"text": str(a), "answer_start": 0}] * int(total % 3 > 0),
                    }
                )
                for (_, total), (a, b) in zip(sums, numbers, strict=True)
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
        path = folder / f"{part}.{SUFFIXES[recipe]}"
        path.write_bytes("\n".join(lines).encode() + b"\n" + (extra if part == "train" else b""))
        names += [f"--data.{part}", str(path)]
    return names


OPTIONS = {
    "classify": ENCODER,
    "tag": ENCODER,
    "embed": ENCODER,
    "answer": ENCODER,
    "pretrain_masked_lm": [*ENCODER, "--data.unit", "line", "--masking.whole_words", "true"],
    "language_model": [
        *DECODER,
        *("--model.options", '{"num_layers": 1, "hidden_dim": 16, "feed_forward": {"intermediate_dim": 16}}'),
        *("--training.batches_per_epoch", "3", "--training.length", "16"),
        *("--prompts", "1", "2 plus", "--new_tokens", "8"),
    ],
    "finetune": [
        *DECODER,
        *("--model.options", '{"num_layers": 1, "hidden_dim": 16, "max_length": 48}'),
        *("--tokenizer.vocabulary_size", "300", "--new_tokens", "6", "--training.samples", "1"),
    ],
    "summarize": [
        # untrained models write as much as they may
        *("--model.options", '{"num_layers": 1, "hidden_dim": 16, "dropout": 0.1}', "--data.max_summary_length", "8"),
        *("--tokenizer.vocabulary_size", "40", "--training.tokens_per_batch", "192", "--training.epochs", "2"),
        *("--training.warmup_steps", "2", "--training.samples", "1", "--training.number_of_buckets", "2"),
    ],
}
# most of the inputs of the second epoch are the model's own
OPTIONS["translate"] = [
    *("--model.preset", "rnnsearch", "--model.options"),
    json.dumps(
        {
            **{"embedding_dim": 16, "hidden_dim": 16, "readout_dim": 16, "dropout": 0.1, "reset_after": True},
            **{"feeding": "scheduled_sampling", "schedule": "linear", "schedule_slope": 0.06, "schedule_minimum": 0.1},
        }
    ),
    *("--tokenizer.vocabulary_size", "24", "--training.tokens_per_batch", "128", "--training.epochs", "2"),
    *("--training.warmup_steps", "2", "--training.samples", "1", "--training.number_of_buckets", "2"),
]
MEASURES = {
    "answer": ("f1", "exact_match_without_answer"),
    "classify": ("accuracy", "calibration", "TF-IDF + logistic regression"),
    "tag": ("accuracy", "entity_f1"),
    "embed": ("spearman",),
    "pretrain_masked_lm": ("validation_pseudo_perplexity",),
    "language_model": ("validation_nll_per_token", "validation_bits_per_character"),
    "finetune": ("exact_match", "validation_nll_per_reply_token"),
    "summarize": ("rougeL",),
    "translate": ("sacreBLEU", "chrF2"),
}


def command_of(recipe, folder, name, *more, extra=b""):
    """The recipe, the class of its configuration and its arguments."""
    module = importlib.import_module(f"recipes.{recipe}")
    (config_class,) = [
        kind for key, kind in vars(module).items() if key.endswith("Config") and hasattr(kind, "run_folder")
    ]
    options = OPTIONS[recipe]
    if "--model.start_from" in more:  # which brings model and tokenizer
        keys = [place for place, word in enumerate(options) if word.startswith("--")] + [len(options)]
        given = [options[start:end] for start, end in itertools.pairwise(keys)]
        options = [word for words in given if not words[0].startswith(("--model.", "--tokenizer.")) for word in words]
    arguments = [*write(folder, recipe, extra), *options, "--run_folder", str(folder / name), *more]
    return module.main, config_class, arguments


def run(recipe, folder, name, *more, extra=b""):
    main, config_class, arguments = command_of(recipe, folder, name, *more, extra=extra)
    return main(parse(config_class, arguments))


@pytest.fixture(scope="module")
def processes():
    """Makes processes that have the recipe imported already, by forking one that has done nothing else."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["zoo", "recipes.translate"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
        # the first process starts the one that is forked
        first = context.Process(target=int)
        first.start()
        first.join()
    return context.Process


def kill_in_second_epoch(processes, recipe, folder, name, *more):
    """Runs a recipe in a process that is killed as soon as a state within the second epoch is saved."""
    main, config_class, arguments = command_of(recipe, folder, name, *more)
    process = processes(target=run_recipe, args=(main, config_class, recipe, arguments))
    process.start()
    deadline = time.monotonic() + 240
    while not any(state.name > "epoch-00001-batch-00000000" for state in states_of(folder / name)):
        assert process.is_alive() and time.monotonic() < deadline
        time.sleep(0.005)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL


def states_of(folder):
    return list((folder / "checkpoints" / "state").glob("epoch-?????-batch-????????"))


def losses(folder):
    with open(folder / "metrics.csv", encoding="utf-8") as file:
        return [{key: float(value) for key, value in row.items() if "loss" in key} for row in csv.DictReader(file)]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of the files and of the "run" of a recipe, its results and the last state; each is run once."""
    runs = {}

    def finish(recipe):
        if recipe not in runs:
            folder, states = tmp_path_factory.mktemp(recipe) / UNUSUAL, []
            folder.mkdir()

            class RecordedState(zoo.training.TrainingState):
                def __init__(self, *arguments, **options):
                    super().__init__(*arguments, **options)
                    states.append(self)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(zoo.training, "TrainingState", RecordedState)
                results = run(recipe, folder, "run")
            (state,) = states
            runs[recipe] = folder, results, state
        return runs[recipe]

    return finish


@pytest.mark.sampled(2)
@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize(
    "recipe",
    [
        # trains and writes as translate does
        pytest.param(recipe, marks=[pytest.mark.slow] * (recipe == "summarize"))
        for recipe in OPTIONS
        if recipe != "translate"
    ],
)
def test_recipe(recipe, finished):
    folder, results, state = finished(recipe)
    check_run(folder / "run", recipe, results)
    assert (folder / "run" / "export" / "run" / "1" / "saved_model.pb").exists()
    check_evaluation(folder / "run", recipe, results)
    batches = [batches_of(state.data, 1, skip) for skip in (0, state.data.number_of_batches // 2, 0)]
    assert len(batches[0]) == state.data.number_of_batches > 2
    for first, second in zip(batches[0], batches[2], strict=True):
        keras.tree.map_structure(np.testing.assert_array_equal, first, second)
    for first, second in zip(batches[0][len(batches[0]) // 2 :], batches[1], strict=True):
        keras.tree.map_structure(np.testing.assert_array_equal, first, second)
    (saved,) = states_of(folder / "run")
    with open_tensors(saved / "tensors.safetensors") as tensors:
        expected = {name for group in state._groups().values() for name in group}
        assert expected <= set(tensors.keys()) and len(expected) > 10


def check_run(folder, recipe, results):
    assert json.loads((folder / "results.json").read_text()) == results
    for measure in MEASURES[recipe]:
        assert measure in results
    assert (folder / "plots" / "loss.png").stat().st_size > 5000
    assert (folder / "model" / "config.json").exists()
    assert all((folder / name).stat().st_size > 5000 for name in ("inspect.html", "report.html"))
    assert results["parameters"] > 1000 and len(losses(folder)) == 2
    card = (folder / "model_card.md").read_text()
    assert card.startswith("---\nlibrary_name: keras") and recipe in card and MEASURES[recipe][0] in card
    scores, use = card.split("## Use")
    assert "{" not in scores
    versions = list(zoo.export.versions(folder / "export" / folder.name))
    assert len(versions) == use.count(f'served = tf.saved_model.load("export/{folder.name}/1")') <= 1
    # there is no test set
    has_test = recipe not in ("language_model", "pretrain_masked_lm")
    assert results.get("test_is_validation", False) is has_test
    assert ("The test data are the validation data" in card) is has_test
    assert "error" not in results.get("calibration", {})


def check_evaluation(folder, recipe, results):
    """`evaluate` finds what the run has found."""
    words = [str(folder), "--output", str(folder.parent / "scores"), "--resamples", "100", "--shown", "1"]
    scores = evaluate.main(parse(evaluate.EvaluateConfig, words))["models"][folder.name]
    for measure in MEASURES[recipe]:
        name = measure.removeprefix("validation_")
        if name in scores:
            assert scores[name] == results[measure]
    known = {"pretrain_masked_lm": "nll_per_hidden_token", "language_model": "nll_per_token"}
    score = known.get(recipe, MEASURES[recipe][0])
    low, high = scores["intervals"][score]
    value = scores[score]["value"] if isinstance(scores[score], dict) else scores[score]
    assert low - 1e-3 <= value <= high + 1e-3 or recipe == "translate"
    assert len((folder.parent / "scores" / "predictions.jsonl").read_text().splitlines()) >= 4


def batches_of(data, epoch, skip):
    data.start_epoch(epoch, skip)
    return [keras.tree.map_structure(np.asarray, batch) for batch in data.dataset]


@pytest.mark.slow
def test_a_killed_run_ends_as_an_uninterrupted_one(tmp_path, processes, capsys):
    """kill -9 in the second epoch of a model with dropout and a counter of its own; the same command resumes."""
    options = ("--training.save_every", "2", "--export", "false")
    results = run("translate", tmp_path, "whole", *options)
    check_run(tmp_path / "whole", "translate", results)
    check_evaluation(tmp_path / "whole", "translate", results)
    kill_in_second_epoch(processes, "translate", tmp_path, "killed", *options)
    assert not (tmp_path / "killed" / "results.json").exists()
    capsys.readouterr()
    run("translate", tmp_path, "killed", *options)
    # a busy machine may have killed it a little later
    assert "resuming in epoch" in capsys.readouterr().out
    columns = [(tmp_path / name / "metrics.csv").read_text().splitlines()[0] for name in ("whole", "killed")]
    assert columns[0] == columns[1]
    for row, expected in zip(losses(tmp_path / "killed"), losses(tmp_path / "whole"), strict=True):
        # the last bits may differ with the order in which threads add up
        assert row == pytest.approx(expected, rel=1e-4)
    outputs = [(tmp_path / name / "samples" / "test.tsv").read_text() for name in ("whole", "killed")]
    assert outputs[0] == outputs[1]
    states = []

    def order(key):
        """Names without the number that Keras gives to the next model of a process; seed generators in their order."""
        number = re.search(r"seed_generator_(\d+)", key)
        return re.sub(r"(seed_generator|adam|recurrent_seq2_seq)_\d+", r"\1", key), int(number[1]) if number else 0

    for name in ("whole", "killed"):
        (folder,) = states_of(tmp_path / name)
        described = json.loads((folder / "state.json").read_text())
        # times, and the number of digits that they have in the log
        described["history"].pop("tokens_per_second")
        for _, callback in described["callbacks"]:
            callback.pop("file_size", None)
        with open_tensors(folder / "tensors.safetensors") as tensors:
            states.append((described, {key: tensors.get_tensor(key) for key in sorted(tensors.keys(), key=order)}))
    for key in ("epoch", "batch", "step", "finished", "callbacks"):
        assert states[0][0][key] == states[1][0][key]
    names = [[order(key)[0] for key in tensors] for _, tensors in states]
    assert names[0] == names[1]
    for value, other in zip(states[0][1].values(), states[1][1].values(), strict=True):
        np.testing.assert_allclose(value, other, rtol=1e-3, atol=1e-5)
    # the probability of a true token went on to fall
    (counter,) = [key for key in states[1][1] if key.endswith("sampling/batches")]
    assert int(states[1][1][counter]) == 16


@pytest.mark.parametrize(
    ("recipe", "line", "message"),
    [
        ("classify", b"no label", r"train\.tsv:25: wrong number of columns"),
        ("embed", b"a\tb\tvery", r"train\.tsv:25: no label: the field must hold a number, got 'very'"),
        ("embed", b"a\tb\t7", r"train\.tsv:25: number out of range: 7.0 is not from 0 to 1.0"),
        ("answer", b'{"question": "x", "context": "y", "answers": 3}', "25: answers that do not fit"),
        ("tag", b"word", r"train\.conll:\d+: wrong number of columns"),
        (
            "finetune",
            b'{"messages": [{"role": "user", "content": "x"}]}',
            "25: not a conversation: a list of at least two",
        ),
        (
            "finetune",
            b'{"messages": [{"role": "user", "content": "x"}, {"role": "bot", "content": "y"}]}',
            "25: .*'bot'",
        ),
        ("summarize", b'{"source": "x", "target": []}', "25: no text or no summary"),
        ("translate", b"no tab", r"train\.tsv:65: wrong number of columns: 1 instead of 2"),
        ("language_model", b"caf\xe9", r"train\.txt:25:4: undecodable byte: byte 4 of the line \(0xe9\) is not UTF-8"),
        ("pretrain_masked_lm", b"\xff", r"train\.txt:25:1: undecodable byte"),
    ],
)
def test_bad_rows_stop_the_run_or_are_counted(recipe, line, message, tmp_path, monkeypatch, capsys):
    with pytest.raises(DataError, match=message):
        run(recipe, tmp_path, "run", extra=line)

    class Trained(Exception):
        """The data have been read and the model has been made."""

    def fit(*arguments, **options):
        raise Trained

    monkeypatch.setattr(keras.Model, "fit", fit)
    with pytest.raises(Trained):
        run(recipe, tmp_path, "skipping", "--data.on_error", "skip", extra=line)
    place = re.search(r"skipped 1: .* 1 \(\S*/train\.\w+:(\d+)", capsys.readouterr().out)
    assert place and int(place[1]) >= 25


def test_tags_and_labels_that_do_not_fit(tmp_path):
    with pytest.raises(ConfigError, match="label_separator and model.problem 'multi_label' must be given together"):
        run("classify", tmp_path, "run", "--model.problem", "multi_label")
    with pytest.raises(ConfigError, match="chat_format must be one of"):
        run("finetune", tmp_path, "run", "--data.chat_format", "telegram")
    with pytest.raises(ConfigError, match=r"warmup_steps must be below the 6 updates of the training, got 99"):
        run("classify", tmp_path, "other", "--training.warmup_steps", "99")
    with pytest.raises(ConfigError, match="data must be texts with spans .* or words with tags"):
        files = ["--data.train", "a.jsonl", "--data.validation", "b.conll"]
        tag.main(parse(tag.TagConfig, [*files, "--run_folder", str(tmp_path / "tag")]))
    with pytest.raises(ConfigError, match="training.class_weights must be null with model.problem 'regression'"):
        weights = ("--training.class_weights", "balanced", "--model.problem", "regression")
        run("classify", tmp_path, "other", *weights)
    with pytest.raises(ConfigError, match="tune_thresholds must be false with model.problem 'single_label'"):
        run("classify", tmp_path, "other", "--tune_thresholds", "true")


def test_spans_that_are_longer_than_those_of_the_training_data(tmp_path, monkeypatch, capsys):
    """A model of spans knows the tag of a second word, also where no text that it is trained with has one."""
    rows = {"train": [("Ann went home", 3), ("nobody went", 0)], "validation": [("Ann Lee went home", 7)]}
    for part, texts in rows.items():
        spans = [[{"start": 0, "end": end, "label": "PER"}] if end else [] for _, end in texts]
        lines = [json.dumps({"text": text, "spans": of}) for (text, _), of in zip(texts, spans, strict=True)]
        (tmp_path / f"{part}.jsonl").write_text("\n".join(lines))

    class Begun(Exception):
        pass

    def begin(task, *_, **__):
        assert task.labels.strings == ["B-PER", "I-PER", "O"]
        raise Begun

    monkeypatch.setattr(tag, "train_encoder_task", begin)
    files = [f"--data.{part}={tmp_path / part}.jsonl" for part in rows]
    with pytest.raises(Begun):
        tag.main(parse(tag.TagConfig, [*files, *ENCODER, "--run_folder", str(tmp_path / "run")]))
    assert "no row has" not in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.usefixtures("eagerly")
def test_spans_windows_and_weights(tmp_path):
    """Spans of characters of raw texts that are longer than the model, rare tags weighted."""
    rows = [f"sum {a}plus{a + 1}. " * (1 + a % 2) for a in range(10, 18)]
    for part, some in (("train", rows), ("validation", rows[:2])):
        spans = [[{"start": at, "end": at + 2, "label": "N"} for at in range(4, len(row), 14)] for row in some]
        lines = [json.dumps({"text": row, "spans": of}) for row, of in zip(some, spans, strict=True)]
        (tmp_path / f"{part}.jsonl").write_text("\n".join(lines))
    arguments = [
        *("--data.train", str(tmp_path / "train.jsonl"), "--data.validation", str(tmp_path / "validation.jsonl")),
        *("--data.split", "kinds", "--model.sequence_length", "12", "--model.stride", "4", *ENCODER),
        *("--training.class_weights", "balanced", "--run_folder", str(tmp_path / "run")),
        *("--training.epochs", "1", "--export", "false"),
    ]
    results = tag.main(parse(tag.TagConfig, arguments))
    assert {"span_f1", "span_f1_by_label", "calibration"} <= set(results)
    header, *errors = (tmp_path / "run" / "errors.tsv").read_text().splitlines()
    assert header.startswith("confidence\twhich\tlabel")
    confidences = [float(line.split("\t")[0]) for line in errors]
    assert confidences == sorted(confidences, reverse=True)
    assert (tmp_path / "run" / "plots" / "reliability.png").stat().st_size > 5000
    tagger = zoo.TokenClassifier.from_preset(tmp_path / "run")
    assert tagger.preprocessor.stride == 4 and tagger.temperature == pytest.approx(
        results["calibration"]["temperature"], abs=1e-4
    )


@pytest.mark.slow
def test_several_labels_and_values(tmp_path):
    # none, one or two labels each
    rows = [
        json.dumps({"text": f"{a} plus {b}", "labels": sorted({f"has {n}" for n in (a, b) if n > 1}), "sum": a + b})
        for a in range(5)
        for b in range(5)
    ]
    for part, count in (("train", 12), ("validation", 1)):
        (tmp_path / f"{part}.jsonl").write_text("\n".join(rows * count) + "\n")
    files = ["--data.train", str(tmp_path / "train.jsonl"), "--data.validation", str(tmp_path / "validation.jsonl")]
    common = [*files, "--data.text_columns", "text", "--training.learning_rate", "0.02"]
    common += ["--tokenizer.vocabulary_size", "25", "--training.epochs", "4"]
    results = run(
        "classify",
        tmp_path,
        "several",
        *common,
        *("--data.label_column", "labels", "--data.label_separator", ","),
        *("--model.problem", "multi_label", "--model.pooling", "max", "--training.class_weights", "balanced"),
        *("--tune_thresholds", "true"),
    )
    assert set(results["thresholds"]) == {"has 2", "has 3", "has 4"}
    assert results["micro_f1"] > 0.95 and results["macro_f1"] > 0.95 and results["exact_match"] > 0.9
    assert results["TF-IDF + logistic regression"]["micro_f1"] > 0.95
    classifier = zoo.TextClassifier.from_preset(tmp_path / "several" / "model")
    assert classifier.classify(["3 plus 2", "4 plus 4", "0 plus 1"]) == [["has 2", "has 3"], ["has 4"], []]
    served = tf.saved_model.load(str(tmp_path / "several" / "export" / "several" / "1"))
    probabilities = served.serve(["3 plus 2", "0 plus 1"])["probabilities"].numpy()
    assert (probabilities > list(results["thresholds"].values())).tolist() == [
        [True, True, False],
        [False, False, False],
    ]
    options = ("--data.label_column", "sum", "--model.problem", "regression", "--export", "false")
    results = run("classify", tmp_path, "values", *common, *options)
    assert results["pearson"] > 0.8 and results["spearman"] > 0.8 and results["mean_absolute_error"] < 1.5
    assert results["TF-IDF + ridge regression"]["pearson"] > 0.8


@pytest.mark.usefixtures("eagerly")
def test_masked_lm_to_classifier_to_commands(tmp_path, finished, capsys):
    start = ["--model.start_from", str(finished("pretrain_masked_lm")[0] / "run"), "--model.freeze", "embeddings"]
    run("classify", tmp_path, "run", *start, "--export", "false", "--training.epochs", "1")
    model = str(tmp_path / "run" / "model")

    def command(name, *arguments):
        module = importlib.import_module(f"recipes.{name}")
        config_class = getattr(module, f"{name.capitalize()}Config")
        return module.main(parse(config_class, ["--model", model, *arguments]))

    rows = command("generate", "--texts", "1 plus 2", "3 plus 3")
    assert [row["text"] for row in rows] == ["1 plus 2", "3 plus 3"]
    assert {row["output"] for row in rows} <= {"even", "odd"}
    with pytest.raises(ConfigError, match="options must be empty for a TextClassifier of recipes.classify"):
        evaluate.main(evaluate.EvaluateConfig([model], options={"sampler": "beam"}))
    assert (command("export", "--output", str(tmp_path / "served")) / "saved_model.pb").exists()
    assert "a TextClassifier with the endpoints" in capsys.readouterr().out
    with pytest.raises(DataError, match="no saved model"):
        model = str(tmp_path)
        command("generate", "--texts", "x")
    with pytest.raises(ConfigError, match="task must be one of CausalLM"):
        command("generate", "--texts", "x", "--task", "Chatbot")


def test_list_of_recipes():
    from recipes.command.lists import recipes

    assert {"translate", *OPTIONS, "rerank", "generate", "evaluate", "export", "benchmark"} <= set(recipes())
    assert all(line.endswith((".", ":")) or ":" in line for line in recipes().values())
