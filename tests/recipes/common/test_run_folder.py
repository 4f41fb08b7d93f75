from __future__ import annotations

import dataclasses
import hashlib
import operator
import signal
import subprocess
import sys

import pytest

from recipes.common.config import parse, paths_in, setting
from recipes.common.errors import RunFolderError
from recipes.common.recipe_modules import config_class_of, find_recipe
from recipes.common.run_folder import RunFolder, data_paths, find_run, has_ended

TRAINING_RECIPES = (
    *("answer", "classify", "distill", "embed", "finetune", "language_model", "prefer", "pretrain_masked_lm"),
    *("rerank", "summarize", "tag", "translate"),
)


@dataclasses.dataclass(frozen=True)
class Config:
    """A config."""

    seed: int = setting(1, "Seed.")
    train: list[str] = setting([], "Files.", offers="paths")
    verbose: int = setting(1, "How much to print.", may_change=True)


def test_new_folder_holds_the_config(tmp_path):
    with RunFolder(tmp_path / "runs" / "a", Config(seed=3)) as run:
        assert not run.resumed
        assert parse(Config, ["--config", str(run.config_yaml)]) == Config(seed=3)


def test_same_config_resumes(tmp_path):
    with RunFolder(tmp_path, Config(train=["a"])):
        pass
    with RunFolder(tmp_path, Config(train=["a"])) as run:
        assert run.resumed


def save_state(folder, name="epoch-00000-batch-00000200"):
    (folder / "checkpoints" / "state" / name).mkdir(parents=True)


def test_changed_keys_are_listed(tmp_path):
    RunFolder(tmp_path, Config()).close()
    save_state(tmp_path)
    with pytest.raises(RunFolderError) as error:
        RunFolder(tmp_path, Config(seed=2, train=["b"], verbose=0))
    message = str(error.value)
    assert "seed: 1 in the folder, 2 now" in message
    assert "train: [] in the folder, ['b'] now" in message
    assert "verbose" not in message
    # The refused start has neither changed the config nor kept the lock.
    with RunFolder(tmp_path, Config()) as run:
        assert run.resumed


def test_harmless_key_may_change_and_is_stored(tmp_path):
    RunFolder(tmp_path, Config()).close()
    with RunFolder(tmp_path, Config(verbose=2)) as run:
        assert run.resumed
        assert parse(Config, ["--config", str(run.config_yaml)]).verbose == 2


def test_a_run_is_found_by_its_folder_or_its_model(tmp_path):
    assert find_run(tmp_path) is None
    with RunFolder(tmp_path, Config()) as run:
        run.write_text("results.json", '{"accuracy": 0.5}')
    for path in (tmp_path, tmp_path / "model"):
        assert find_run(path) == (tmp_path, __name__, {"accuracy": 0.5})
    save_state(tmp_path)
    # the results of a run that goes on are not known
    RunFolder(tmp_path, Config()).close()
    assert find_run(tmp_path).results
    RunFolder(tmp_path, Config(verbose=2)).close()
    assert find_run(tmp_path).results is None


def test_config_of_another_version(tmp_path):
    (tmp_path / "config.yaml").write_text("sead: 1\n")
    with pytest.raises(RunFolderError, match="another version of the recipe.*config.yaml:1: unknown key sead"):
        RunFolder(tmp_path, Config())


def test_foreign_folder_is_refused(tmp_path):
    (tmp_path / "thesis.doc").write_text("x")
    with pytest.raises(RunFolderError, match="holds 'thesis.doc' but no config.yaml"):
        RunFolder(tmp_path, Config())
    assert not (tmp_path / "config.yaml").exists()


def test_path_of_a_file_is_refused(tmp_path):
    (tmp_path / "a").write_text("x")
    with pytest.raises(RunFolderError, match="is a file"):
        RunFolder(tmp_path / "a", Config())


def test_folder_killed_before_the_first_save_is_new(tmp_path):
    (tmp_path / "run.lock").touch()
    (tmp_path / ".config.yaml.abcdef_7.incomplete").mkdir()
    with RunFolder(tmp_path, Config()) as run:
        assert not run.resumed


def test_second_run_is_refused_until_the_first_is_closed(tmp_path):
    with RunFolder(tmp_path, Config()):
        with pytest.raises(RunFolderError, match="in use by another process"):
            RunFolder(tmp_path, Config())
    RunFolder(tmp_path, Config()).close()


def test_a_killed_process_leaves_no_lock(tmp_path):
    # what a run does to the folder, without the seconds that importing TensorFlow takes
    program = (
        "import sys, time, filelock\n"
        "lock = filelock.FileLock(sys.argv[1])\n"
        "lock.acquire()\n"
        "print('held', flush=True)\n"
        "time.sleep(60)\n"
    )
    RunFolder(tmp_path, Config()).close()
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "run.lock")], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "held\n"
        with pytest.raises(RunFolderError, match="in use by another process"):
            RunFolder(tmp_path, Config())
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
    with RunFolder(tmp_path, Config()) as run:
        assert run.resumed


def test_paths_and_texts(tmp_path):
    with RunFolder(tmp_path, Config()) as run:
        assert run.folder("checkpoints").is_dir()
        assert not run.export.exists() and not run.tokenizer.exists()
        assert run.write_text("samples/new/epoch_1.txt", "a\n").read_text() == "a\n"


@pytest.mark.parametrize("state", [None, "epoch-00000-batch-00000000"])
def test_a_run_that_failed_before_it_had_trained_is_begun_anew(tmp_path, capsys, state):
    """A first command with a mistake leaves no folder that refuses the corrected one."""
    with RunFolder(tmp_path, Config()) as run:
        run.write_text("tokenizer/tokenizer.json", "{}")
        run.write_text("thesis.txt", "mine")
    if state:
        save_state(tmp_path, state)
    with RunFolder(tmp_path, Config(seed=2)) as run:
        assert not run.resumed and not run.tokenizer.exists() and not (tmp_path / "checkpoints").exists()
        assert parse(Config, ["--config", str(run.config_yaml)]).seed == 2
    assert "nothing has been trained here, so the run begins anew" in capsys.readouterr().out
    # what is not of a run stays
    assert (tmp_path / "thesis.txt").exists()
    with RunFolder(tmp_path, Config(seed=2)) as run:
        assert run.resumed


@pytest.mark.parametrize("state", [None, "epoch-00000-batch-00000000", "epoch-00000-batch-00000001"])
def test_a_tokenizer_that_nothing_was_trained_with_is_not_kept(tmp_path, capsys, state):
    """The same command may have other data: a file that was put right."""
    with RunFolder(tmp_path, Config()) as run:
        run.write_text("tokenizer/tokenizer.json", "{}")
    if state:
        save_state(tmp_path, state)
    is_trained = state is not None and state.endswith("1")
    with RunFolder(tmp_path, Config()) as run:
        assert run.resumed and run.tokenizer.exists() == is_trained
    assert ("the run begins anew" in capsys.readouterr().out) == (not is_trained)


@dataclasses.dataclass(frozen=True)
class Training:
    """Training."""

    epochs: int = setting(5, "Epochs.")
    decays: bool = setting(False, "Whether the learning rate depends on how many there are.")

    @property
    def may_be_longer(self):
        return not self.decays


@dataclasses.dataclass(frozen=True)
class TrainedConfig:
    """A config of a training."""

    training: Training = Training()


def test_fewer_epochs_than_have_been_begun_are_refused(tmp_path):
    RunFolder(tmp_path, TrainedConfig()).close()
    save_state(tmp_path, "epoch-00003-batch-00000200")
    with pytest.raises(RunFolderError, match="training.epochs must be at least 4, as many as have been .* got 3"):
        RunFolder(tmp_path, TrainedConfig(Training(3)))
    # the refused start has not changed the config
    assert parse(TrainedConfig, ["--config", str(tmp_path / "config.yaml")]).training.epochs == 5
    for epochs in (4, 9):
        with RunFolder(tmp_path, TrainedConfig(Training(epochs))) as run:
            assert run.resumed
    RunFolder(tmp_path / "decays", TrainedConfig(Training(5, decays=True))).close()
    save_state(tmp_path / "decays", "epoch-00003-batch-00000200")
    with pytest.raises(RunFolderError, match="training.epochs: 5 in the folder, 9 now"):
        RunFolder(tmp_path / "decays", TrainedConfig(Training(9, decays=True)))


def test_what_killed_processes_left_half_written_goes(tmp_path):
    RunFolder(tmp_path, Config()).close()
    for place in (".results.json.abcdefg7", "samples/.test.tsv.abcdefg7", ".model.7"):
        (tmp_path / f"{place}.incomplete").mkdir(parents=True)
        (tmp_path / f"{place}.incomplete" / "config.json").write_text("{")
    # killed between the two renames of a replacement
    set_aside = tmp_path / ".export.abcdefg7.incomplete" / "old"
    set_aside.mkdir(parents=True)
    (set_aside / "saved_model.pb").touch()
    RunFolder(tmp_path, Config()).close()
    assert not [path for path in tmp_path.rglob(".*")]
    assert (tmp_path / "export" / "saved_model.pb").exists()


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "a").touch()
    with pytest.raises(RunFolderError, match="run_folder: cannot make .*a/b"):
        RunFolder(tmp_path / "a" / "b", Config())


def test_a_run_within_another_is_not_lost_for_a_key_that_changes_no_result(tmp_path, capsys):
    with RunFolder(tmp_path, Config(verbose=2)) as run:
        save_state(tmp_path)
        run.write_text("results.json", "{}")
    assert has_ended(tmp_path, Config()) and has_ended(tmp_path, Config(verbose=2))
    assert find_run(tmp_path).results == {} and "begins anew" not in capsys.readouterr().out
    assert not has_ended(tmp_path, Config(seed=2))
    assert find_run(tmp_path) is None and "begins anew" in capsys.readouterr().out


@pytest.mark.parametrize(("wanted", "is_kept"), [(3, True), (5, True), (2, False)])
def test_a_run_within_another_of_other_epochs(tmp_path, wanted, is_kept):
    """One that is to be longer goes on; one that has been trained for longer cannot be made shorter."""
    with RunFolder(tmp_path, TrainedConfig(Training(3))) as run:
        save_state(tmp_path, "epoch-00003-batch-00000000")
        run.write_text("results.json", "{}")
    assert has_ended(tmp_path, TrainedConfig(Training(wanted))) == (wanted == 3)
    assert (find_run(tmp_path) is not None) == is_kept


def test_a_trained_model_without_its_checkpoints_is_not_trained_over(tmp_path):
    """Checkpoints of a run that has ended are removed to save space."""
    with RunFolder(tmp_path, Config()) as run:
        run.write_text("model/config.json", "{}")
        run.write_text("metrics.csv", "epoch\n")
    for config in (Config(), Config(seed=2)):
        with pytest.raises(RunFolderError, match="holds a trained model, but not the checkpoints to go on from"):
            RunFolder(tmp_path, config)
    assert (tmp_path / "metrics.csv").exists() and find_run(tmp_path) is not None


def changed_data(folder, file, text):
    """A run that has been trained on a file, which then has another content."""
    file.write_text("a\n")
    RunFolder(folder, Config(train=[str(file)])).close()
    save_state(folder)
    file.write_text(text)


def test_a_run_goes_on_with_the_data_that_it_was_trained_on(tmp_path):
    folder, file = tmp_path / "run", tmp_path / "a.tsv"
    changed_data(folder, file, "b\n")
    before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    with pytest.raises(RunFolderError) as error:
        RunFolder(folder, Config(train=[str(file)]))
    old, new = (hashlib.sha256(text).hexdigest()[:12] for text in (b"a\n", b"b\n"))
    message = str(error.value)
    assert f"train: {file} had 2 bytes (SHA-256 {old}), now 2 bytes (SHA-256 {new})" in message
    assert "put the old files back" in message and "name another folder" in message
    assert {path: path.read_bytes() for path in before} == before
    file.write_text("a\n")
    with RunFolder(folder, Config(train=[str(file)])) as run:
        assert run.resumed
    # a file that is gone is named by what reads it, and a copy of the same content is the same
    file.unlink()
    RunFolder(folder, Config(train=[str(file)])).close()


def test_a_file_with_the_name_of_a_data_set_is_none_of_the_data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sst2").write_text("a\n")
    assert data_paths(Config(train=["sst2"])) == {} and data_paths(Config(train=["./sst2"])) == {"train": ["./sst2"]}


def test_data_may_be_put_right_as_long_as_nothing_has_been_trained(tmp_path):
    file = tmp_path / "a.tsv"
    for text in ("a\n", "b\n"):
        file.write_text(text)
        RunFolder(tmp_path / "run", Config(train=[str(file)])).close()
    save_state(tmp_path / "run")
    RunFolder(tmp_path / "run", Config(train=[str(file)])).close()


def test_a_run_of_an_earlier_version_has_no_account(tmp_path):
    changed_data(tmp_path / "run", tmp_path / "a.tsv", "b\n")
    (tmp_path / "run" / "data.json").unlink()
    RunFolder(tmp_path / "run", Config(train=[str(tmp_path / "a.tsv")])).close()
    (tmp_path / "a.tsv").write_text("c\n")
    with pytest.raises(RunFolderError, match="a.tsv had 2 bytes"):
        RunFolder(tmp_path / "run", Config(train=[str(tmp_path / "a.tsv")]))


@pytest.mark.parametrize("name", TRAINING_RECIPES)
def test_every_recipe_that_reads_files_names_them(tmp_path, name):
    """What a run is compared by are all files that its config can name, apart from models and folders."""
    config_class = config_class_of(find_recipe(name))
    names = [name for name in paths_in(config_class()) if name.startswith(("data.", "evaluation."))]
    assert {"data.train", "data.validation"} <= set(names)
    files = {key: tmp_path / f"{number}.tsv" for number, key in enumerate(names)}
    values = {}
    for key, file in files.items():
        file.write_text("a\n")
        is_list = isinstance(operator.attrgetter(key)(config_class()), list)
        values[key] = [str(file)] if is_list else str(file)
    config = parse(config_class, ["--run_folder", str(tmp_path / "run")], values=values)
    RunFolder(tmp_path / "run", config).close()
    save_state(tmp_path / "run")
    for key, file in files.items():
        file.write_text("b\n")
        with pytest.raises(RunFolderError, match=f"{key}: {file}"):
            RunFolder(tmp_path / "run", config)
        file.write_text("a\n")
    RunFolder(tmp_path / "run", config).close()
