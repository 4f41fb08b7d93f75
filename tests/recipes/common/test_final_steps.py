"""Steps after the results of a run: which fail alone, in which order, and what is said of them."""

from __future__ import annotations

import json

import pytest

from recipes import distill, exposure_bias, prefer, translate
from recipes.common import finish as finishing
from recipes.common.config import run_recipe
from recipes.common.errors import DataError
from recipes.common.final_steps import FinalSteps, UnfinishedError
from recipes.common.run_folder import RunFolder, has_ended


def fail(*arguments, **options):
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("error", "has_traceback"), [(OSError("full"), False), (DataError("bad"), False), (KeyError("a bug"), True)]
)
def test_a_step_that_fails_costs_no_other(error, has_traceback, capsys):
    def raise_it():
        raise error

    done = []
    steps = FinalSteps("runs/a")
    for name, step in (("first", lambda: done.append(1)), ("plot", raise_it), ("last", lambda: done.append(2))):
        steps.add(name, step)
    assert not done
    steps.run()
    said = capsys.readouterr().err
    assert (done, steps.failed) == ([1, 2], ["plot"])
    assert f"plot failed: {type(error).__name__}" in said and ("Traceback" in said) == has_traceback
    with pytest.raises(UnfinishedError, match="plot.*runs/a"):
        steps.raise_failed()


def test_interruptions_are_no_failures():
    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        FinalSteps("a").attempt("plot", interrupt)


def test_a_run_that_is_killed_in_its_final_steps_has_not_ended(tiny_llama, tmp_path):
    def interrupt(path):
        raise KeyboardInterrupt

    config = translate.TranslateConfig(run_folder=str(tmp_path / "run"), export=False)
    with RunFolder(tmp_path / "run", config) as run:
        run.draw("loss.png", interrupt)
        with pytest.raises(KeyboardInterrupt):
            outcome = finishing.Outcome(tiny_llama, {"loss": 0.5}, lambda served: [], [])
            finishing.finish(run, "translate", outcome, 0.0)
    assert json.loads((tmp_path / "run" / "results.json").read_text())["loss"] == 0.5
    assert not has_ended(tmp_path / "run", config)


def test_a_run_within_another_one_has_a_model_though_its_steps_fail(tmp_path, monkeypatch, capsys):
    def train(config):
        raise UnfinishedError(f"plots/loss.png failed, in {config.run_folder}")

    monkeypatch.setattr(distill.language_model, "main", train)
    monkeypatch.setattr(prefer.finetune, "main", train)
    monkeypatch.setattr(translate, "main", train)
    for recipe, make, name in (
        (distill.DistillConfig, distill.train_teacher, "teacher"),
        (prefer.PreferConfig, prefer.train_start, "start"),
    ):
        config = recipe(run_folder=str(tmp_path / name))
        with RunFolder(config.run_folder, config) as run:
            assert make(config, run) == str(tmp_path / name / name / "model")
        assert run.final_steps.failed == [name] and "loss.png failed" in capsys.readouterr().err
    steps = FinalSteps(tmp_path)
    models = exposure_bias.train_small_models(exposure_bias.ExposureBiasConfig(run_folder=str(tmp_path)), steps)
    assert steps.failed == list(models) == list(exposure_bias.FEEDINGS)


def test_a_command_with_a_failed_step_has_a_status_of_its_own(capsys):
    def main(config):
        steps = FinalSteps(config.run_folder)
        steps.attempt("plots/loss.png", fail)
        steps.raise_failed()

    with pytest.raises(SystemExit) as stop:
        run_recipe(main, translate.TranslateConfig, "translate", [])
    assert stop.value.code == 1 and "plots/loss.png" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("where", "name"),
    [
        ("export_model", "export"),
        ("save_adapter", "adapter"),
        ("model_card", "model_card.md"),
        ("write_inspection", "inspect.html"),
        ("write_report", "report.html"),
        (None, "plots/loss.png"),
        (None, "samples"),
    ],
)
def test_results_come_first(where, name, tiny_llama, tmp_path, monkeypatch):
    """Whatever fails after them; what does not fail is written, and the same command does the rest."""
    config = translate.TranslateConfig(run_folder=str(tmp_path / "run"))
    found = {}

    def fail_late(*arguments, **options):
        found.update(json.loads((tmp_path / "run" / "results.json").read_text()))
        fail()

    others = {"save_adapter", "write_inspection", "export_model"} - {where}
    for other in others:
        monkeypatch.setattr(finishing, other, lambda *arguments, **options: 10**6)
    if where is not None:
        monkeypatch.setattr(finishing, where, fail_late)

    def finish(run):
        outcome = finishing.Outcome(tiny_llama, {"loss": 0.5}, lambda served: [], ["alpha"])
        return finishing.finish(run, "translate", outcome, 0.0)

    with RunFolder(tmp_path / "run", config) as run:
        if name.startswith("plots"):
            run.draw("loss.png", lambda path: fail_late())
        elif where is None:
            run.final_steps.attempt(name, fail)
            found["loss"] = 0.5
        with pytest.raises(UnfinishedError, match=name):
            finish(run)
    assert found["loss"] == 0.5
    written = {path.name for path in (tmp_path / "run").iterdir()}
    assert written >= {"results.json", "model_card.md", "report.html"} - {name}
    assert json.loads((tmp_path / "run" / "results.json").read_text())["failed"] == [name]
    assert not has_ended(tmp_path / "run", config)

    monkeypatch.undo()
    for other in {*others, "export_model"}:
        monkeypatch.setattr(finishing, other, lambda *arguments, **options: 10**6)
    with RunFolder(tmp_path / "run", config) as run:
        assert finish(run)["export_megabytes"] == 1.0
    assert "failed" not in json.loads((tmp_path / "run" / "results.json").read_text())
    assert has_ended(tmp_path / "run", config)
