"""`compare`: choices, what is checked before anything begins, runs in processes, which are small scripts here."""

import csv
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from recipes import compare
from recipes.common import processes, varied_runs
from recipes.common.config import parse, setting
from recipes.common.errors import ConfigError, RecipeError, RunFolderError
from recipes.common.processes import run_all, threads_each
from recipes.common.run_folder import RunFolder
from recipes.common.varied_runs import main_metric, numbers_of, read_choices

WORDS = ["language_model", "--vary", "model.options.position.kind=rotary,alibi", "--model.options.num_layers", "1"]

# writes what a run leaves; the loss of alibi is higher by 0.5 and a little noise; learned positions fail
SCRIPT = """
import json, os, pathlib, re, shutil, sys
config = pathlib.Path(sys.argv[1])
text = config.read_text()
seed = int(re.search(r"seed: (\\d+)", text)[1])
if "learned" in text:
    sys.exit("no such positions")
print("threads", os.environ["OMP_NUM_THREADS"])
folder = pathlib.Path(re.search(r"run_folder: (.*)", text)[1])
folder.mkdir(parents=True)
shutil.copy(config, folder / "config.yaml")
loss = 1 + seed / 10 + (0.5 + seed / 100 if "alibi" in text else 0)
(folder / "metrics.csv").write_text(f"epoch,loss,val_nll\\n0,2,3\\n1,1,{loss}\\n")
results = {"parameters": 7, "validation_bits_per_character": loss, "note": "x", "training_seconds": 1.5}
(folder / "results.json").write_text(json.dumps(results))
"""


@pytest.fixture
def scripted(monkeypatch):
    """Runs are the script; a list of those that were started."""
    started = []

    def command(module, *words):
        assert module == "recipes.language_model" and words[0] == "--config"
        started.append(words[1])
        return [sys.executable, "-S", "-c", SCRIPT, words[1]]

    monkeypatch.setattr(varied_runs, "python_command", command)
    monkeypatch.setattr(processes, "_BETWEEN", 0.01)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    return started


def run(folder, *words):
    return compare.main(parse(compare.CompareConfig, [*WORDS, "--folder", str(folder), *words]))


def test_choices():
    choices = read_choices(["a.b=1,null", "c=[x, y],{k: 1}"])
    assert [choice.values for choice in choices] == [
        {"a.b": first, "c": second} for first in (1, None) for second in (["x", "y"], {"k": 1})
    ]
    assert choices[1].label == '1, {"k": 1}'
    assert len({choice.folder for choice in choices}) == 4
    assert all("/" not in choice.folder and " " not in choice.folder for choice in choices)
    assert read_choices(["lr=1e-3"])[0].folder == "lr=0.001" and read_choices([])[0].values == {}
    # what reads as another type is quoted
    alike = read_choices(['k=1,"1",null,"null",true,"true",x', "b=[y, z],'y, z'"])
    assert len({choice.label for choice in alike}) == len({choice.folder for choice in alike}) == 14
    assert [choice.label for choice in read_choices(['k=1,"1",x'])] == ["1", '"1"', "x"]
    for wrong, message in (("a", "KEY=VALUE"), ("a=", "values"), ("a=1,1", "twice"), ("a=[", "not valid YAML")):
        with pytest.raises(ConfigError, match=message):
            read_choices([wrong])
    with pytest.raises(ConfigError, match="a is given twice"):
        read_choices(["a=1", "a=2"])


def test_numbers_of_results():
    results = {"accuracy": 0.5, "ok": True, "n": None, "BLEU": {"value": 3.0, "signature": "x"}, "de": {"f1": 1}}
    assert numbers_of(results) == {"accuracy": 0.5, "BLEU": 3.0, "de.f1": 1}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--vary", "model.presett=a"], "unknown key model.presett; did you mean model.preset"),
        (["--vary", "training.epochs=many"], "training.epochs: value 'many' is not allowed"),
        (["--vary", "model.options.position.kind=rotatory"], "rotatory"),
        (["--vary", "training.warmup_steps=1,1.5"], r"1.5: training.warmup_steps must be a whole number"),
        (["--vary", "training.seed=1,2"], "run_folder and training.seed must not be varied"),
        (["--run_folder", "x"], "run_folder and training.seed must not be varied"),
        (["--trainin.epochs", "1"], "unknown key --trainin.epochs"),
    ],
)
def test_mistakes_are_found_before_anything_begins(tmp_path, scripted, words, message):
    config = parse(compare.CompareConfig, ["language_model", *words, "--folder", str(tmp_path / "runs")])
    with pytest.raises(ConfigError, match=message):
        compare.main(config)
    assert not (tmp_path / "runs").exists() and not scripted


def test_recipes_that_cannot_be_compared():
    for recipe, message in (("langauge_model", "did you mean 'language_model'"), ("chat", "must have the keys")):
        with pytest.raises(ConfigError, match=message):
            compare.main(compare.CompareConfig(recipe))
    with pytest.raises(ConfigError, match="recipe: No module named 'nobody'"):
        compare.main(compare.CompareConfig("nobody.knows"))


def test_runs_tables_and_more_seeds(tmp_path, scripted, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        patch.setattr(compare, "draw", lambda *arguments: None)  # takes a second
        rows = run(tmp_path, "--seeds", "2")
    assert len(scripted) == 4
    first, second = rows
    assert (first["mean"], first["runs"], first["deviation"]) == pytest.approx((1.05, 2, 0.0707), abs=1e-3)
    assert second["difference"] == pytest.approx(0.505) and second["verdict"] == "higher"
    log = next((tmp_path / "logs").glob("*/seed_1.log")).read_text()
    assert log == f"threads {threads_each(2)}\n"
    # those that have ended are used; so few differ too little from each other
    assert "4 runs, of which 0 have ended" in capsys.readouterr().out
    rows = run(tmp_path, "--seeds", "3")
    assert "6 runs, of which 4 have ended" in capsys.readouterr().out and len(scripted) == 6
    assert rows[1]["difference"] == pytest.approx(0.51) and rows[1]["p"] == rows[1]["p_corrected"] < 0.01
    text = (tmp_path / "table.md").read_text()
    assert "| alibi | 3 | 7 | 2 | 1.61 ± 0.11 | +0.51 [+0.49, +0.53] | " in text and "Holm" not in text
    assert "at least 2.5 times" in text
    with open(tmp_path / "runs.csv", encoding="utf-8") as file:
        table = list(csv.DictReader(file))
    assert [row["model.options.position.kind"] for row in table] == ["rotary"] * 3 + ["alibi"] * 3
    assert table[-1]["validation_bits_per_character"] == "1.72" and table[-1]["seed"] == "2"
    assert json.loads((tmp_path / "comparison.json").read_text())[0]["values"] == pytest.approx([1, 1.1, 1.2])
    assert all((tmp_path / name).stat().st_size > 5000 for name in ("comparison.png", "curves.png"))
    # a folder of runs with other keys is not mixed with these
    with pytest.raises(RunFolderError, match="belongs to a run with another config.*\n  training.epochs: 6 there, 7"):
        run(tmp_path, "--training.epochs", "7")
    with pytest.raises(ConfigError, match="metric must be among parameters, validation_bits.*, got 'accuracy'"):
        run(tmp_path, "--metric", "accuracy")
    assert len(scripted) == 6


def test_a_run_that_fails_is_reported_and_the_others_go_on(tmp_path, scripted, capsys):
    varied = ["--vary", "model.options.position.kind=learned,rotary,alibi"]
    config = parse(compare.CompareConfig, [WORDS[0], *varied, "--seeds", "1", "--folder", str(tmp_path)])
    with pytest.raises(RecipeError, match="1 of 3 runs failed: .*learned/seed_0; the same command tries them again"):
        compare.main(config)
    said = capsys.readouterr()
    assert "    no such positions" in said.err + said.out
    table = (tmp_path / "table.md").read_text()
    assert "| learned | 0 |  |  | failed |" in table and "| alibi | 1 | 7 | 2 | 1.5 |" in table
    assert "One seed each: nothing tells these differences from noise" in table


def test_results_that_some_runs_do_not_have(tmp_path, scripted, monkeypatch, capsys):
    monkeypatch.setattr(compare, "draw", lambda *arguments: None)
    script = SCRIPT.replace('"note": "x"', '**({"f9": 1} if "alibi" in text else {})')
    monkeypatch.setattr(
        varied_runs, "python_command", lambda module, *words: [sys.executable, "-S", "-c", script, words[1]]
    )
    (row, other) = run(tmp_path, "--seeds", "1", "--metric", "f9")
    assert (row["runs"], other["runs"]) == (0, 1) and "| rotary | 0 | 7 | 2 | no value |" in (
        tmp_path / "table.md"
    ).read_text()
    said = capsys.readouterr()
    assert "rotary/seed_0: metric must be among parameters, validation_bits" in (said.out + said.err).replace(
        "kind=", ""
    )
    # a name that none has is an error at the end, and the numbers are there
    with pytest.raises(ConfigError, match="metric must be among parameters, .*f9, got 'f8'"):
        run(tmp_path / "new", "--seeds", "1", "--metric", "f8")
    assert "| alibi | 1 | 7 | 2 | 1.5 |" in (tmp_path / "new" / "table.md").read_text()
    # the same command resumes where the only run that has ended lacks it
    shutil.rmtree(next((tmp_path / "runs").glob("*alibi")))
    assert run(tmp_path, "--seeds", "1", "--metric", "f9")[1]["runs"] == 1
    assert len((tmp_path / "new" / "runs.csv").read_text().splitlines()) == 3


def test_the_result_that_a_recipe_is_known_by():
    assert main_metric([{"accuracy": 1, "entity_f1": 1}, {"accuracy": 1}]) == "accuracy"
    assert main_metric([{"validation_nll_per_token": 1, "teacher_perplexity": 2}]) == "validation_nll_per_token"
    assert main_metric([{"f9": 1}, {"f1": 1}]) == "f1" and main_metric([]) is None
    with pytest.raises(ConfigError, match="metric must be given, of a, b"):
        compare.check_metrics([], [{"a": 1}, {"b": 1}])


@dataclasses.dataclass(frozen=True)
class OwnTraining:
    seed: int = setting(3, "Seed.")


@dataclasses.dataclass(frozen=True)
class OwnConfig:
    """A recipe of one's own."""

    path: str = setting(help="A key without a default.", offers="paths")
    run_folder: str = setting("runs/own", "Folder.")
    training: OwnTraining = OwnTraining()
    export: bool = setting(True, "Export.", may_change=True)


def test_runs_of_a_recipe_of_ones_own(tmp_path):
    def runs(*words):
        config = parse(compare.CompareConfig, ["own.recipe", "--vary", "path=a,b", "--seeds", "1", *words])
        return compare.make_runs(config, "own.recipe", OwnConfig, tmp_path, read_choices(config.vary))

    first, second = runs()
    assert (first.config.path, second.config.path, first.seed, first.config.export) == ("a", "b", 3, False)
    (tmp_path / "own.yaml").write_text("export: true\n")
    assert all(run.config.export for run in runs("--config", str(tmp_path / "own.yaml")))
    # a run that has not been trained begins anew, with whatever config
    with RunFolder(first.config.run_folder, dataclasses.replace(first.config, path="wrong")) as folder:
        assert len(runs()) == 2
        folder.write_text("results.json", "{}")
    with pytest.raises(RunFolderError, match="belongs to a run with another config.*\n  path: 'wrong' there, 'a' now"):
        runs()


def test_runs_that_have_ended_with_other_data_are_not_compared(tmp_path, monkeypatch):
    """The results of a run are those of its data; a file that has changed since would give others."""
    monkeypatch.chdir(tmp_path)
    config = parse(compare.CompareConfig, ["own.recipe", "--vary", "path=a.txt,b.txt", "--seeds", "1"])

    def runs():
        return compare.make_runs(config, "own.recipe", OwnConfig, tmp_path, read_choices(config.vary))

    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text(name)
    for run in runs():
        with RunFolder(run.config.run_folder, run.config) as folder:
            folder.write_text("results.json", '{"accuracy": 0.5}')
    assert [run.numbers() for run in runs()] == 2 * [{"accuracy": 0.5}]
    (tmp_path / "b.txt").write_text("other text")
    with pytest.raises(RunFolderError, match="read data that have changed.*\n  path: b.txt had 5 bytes.*now 10"):
        runs()


@dataclasses.dataclass
class Sleeper:
    """A command that does not end."""

    name: str
    log: object
    steps: int = 1

    def steps_done(self):
        return 0

    def command(self):
        script = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
        return [sys.executable, "-S", "-c", script]


def test_an_interruption_ends_all_processes(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "_BETWEEN", 0.01)
    runs = [Sleeper(name, tmp_path / f"{name}.log") for name in "ab"]
    script = "import os, sys, time; pid = int(sys.argv[1]); time.sleep(0.3); os.kill(pid, 15)"
    killer = subprocess.Popen([sys.executable, "-S", "-c", script, str(os.getpid())])
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        run_all(runs, 2)
    killer.wait()
    assert signal.getsignal(signal.SIGTERM) == before
    for each in runs:
        pid = each.log.read_text().split()
        if pid:  # unless it was ended before it had begun
            deadline = time.monotonic() + 60
            while os.path.exists(f"/proc/{pid[0]}") and time.monotonic() < deadline:
                time.sleep(0.01)
            assert not os.path.exists(f"/proc/{pid[0]}")
