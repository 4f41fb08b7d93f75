"""Resumed training equals uninterrupted training, whatever interrupts it."""

import contextlib
import errno
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import keras
import numpy as np
import pytest
import safetensors.numpy

tf = pytest.importorskip("tensorflow", reason="the data of these tests is a tf.data.Dataset")

from zoo.storage import load_weights, tensors  # noqa: E402
from zoo.tasks import TextClassifier  # noqa: E402
from zoo.training import state as state_module  # noqa: E402
from zoo.training import state_folder  # noqa: E402
from zoo.training.resumable_data import ResumableBatches  # noqa: E402
from zoo.training.state import TrainingState  # noqa: E402

_PROGRAM = Path(__file__).with_name("tiny_training.py")
_specification = importlib.util.spec_from_file_location("tiny_training", _PROGRAM)
tiny_training = importlib.util.module_from_spec(_specification)
_specification.loader.exec_module(tiny_training)
train, TinyData = tiny_training.train, tiny_training.TinyData


class Crash(Exception):
    pass


class CrashAt(keras.callbacks.Callback):
    """Raises an error at a point of the training: "batch" or "epoch", at its end."""

    def __init__(self, what, epoch, batch=None):
        super().__init__()
        self.what, self.epoch, self.batch = what, epoch, batch

    def on_epoch_begin(self, epoch, logs=None):
        self.current = epoch

    def on_train_batch_end(self, batch, logs=None):
        if self.what == "batch" and (self.current, batch) == (self.epoch, self.batch):
            raise Crash

    def on_epoch_end(self, epoch, logs=None):
        if self.what == "epoch" and epoch == self.epoch:
            raise Crash


@pytest.fixture(scope="module")
def finished_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("uninterrupted") / "run"


@pytest.fixture(scope="module")
def uninterrupted(finished_folder):
    return train(finished_folder, keep=3)


@pytest.fixture
def finished(tmp_path, finished_folder, uninterrupted):
    """A copy of the folder of a run that has ended."""
    shutil.copytree(finished_folder, tmp_path, dirs_exist_ok=True)
    return tmp_path


def last_state(folder):
    return max(path for path in (folder / "checkpoints").iterdir() if path.is_dir())


def assert_same_run(result, expected):
    assert result["history"] == expected["history"]
    assert result["csv"] == expected["csv"]
    assert result["weights"] == expected["weights"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("crash", "entry"),
    [
        (CrashAt("batch", 0, 0), (0, 0)),  # before any save but the first
        (CrashAt("batch", 0, 3), (0, 2)),  # in the middle of the accumulation of gradients
        (CrashAt("batch", 1, 6), (1, 6)),  # at the last batch of an epoch
        (CrashAt("epoch", 1), (1, 6)),  # the log has the row of the epoch, the state does not
    ],
    ids=["first batch", "within an epoch", "last batch", "end of an epoch"],
)
def test_resumed_equals_uninterrupted_bit_for_bit(tmp_path, uninterrupted, crash, entry):
    with pytest.raises(Crash):
        train(tmp_path, callbacks_after=[crash])
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="Your input ran out of data")
        result = train(tmp_path)
    assert result["started"][0] == entry
    assert_same_run(result, uninterrupted)


def test_data_of_unknown_cardinality_and_a_new_model(tmp_path, uninterrupted):
    """Keras would run the step once more to find the end of the data; metrics of a new model have no variables yet."""

    def data():
        data = TinyData()
        del data.dataset.cardinality
        assert int(data.dataset.cardinality()) == tf.data.UNKNOWN_CARDINALITY
        return data

    with pytest.raises(Crash):
        train(tmp_path, data=data(), fresh=True, callbacks_after=[CrashAt("batch", 0, 4)])
    result = train(tmp_path, data=data(), fresh=True)
    assert result["started"][0] == (0, 4)
    assert_same_run(result, uninterrupted)


def test_resumed_twice_and_once_within_the_resumed_epoch(tmp_path, uninterrupted):
    for crash in (CrashAt("batch", 1, 4), CrashAt("batch", 1, 0)):
        # The resumed epoch begins with batch 4, so its first batch is number 5.
        with pytest.raises(Crash):
            train(tmp_path, callbacks_after=[crash])
    result = train(tmp_path)
    assert result["started"][0] == (1, 4)
    assert_same_run(result, uninterrupted)


def test_several_steps_per_execution(tmp_path, uninterrupted):
    # Executions end after the batches 3, 6 and 7, or after 6 and 7 when the epoch is entered at 3.
    with pytest.raises(Crash):
        train(tmp_path, steps_per_execution=3, callbacks_after=[CrashAt("batch", 1, 5)])
    result = train(tmp_path, steps_per_execution=3)
    assert result["started"][0] == (1, 3)
    assert_same_run(result, uninterrupted)


def test_a_finished_run_stays_as_it_is(finished, uninterrupted):
    assert_same_run(train(finished), uninterrupted)


def test_early_stopping_is_not_undone_by_the_same_command(tmp_path):
    class Worse(keras.callbacks.Callback):
        def on_test_end(self, logs=None):
            logs["loss"] = 10.0  # Keras shares one dict among the callbacks, but not with `fit`.

        def on_epoch_end(self, epoch, logs=None):
            logs["val_loss"] = 10.0 + epoch

    first = train(tmp_path, callbacks_before=[Worse()], patience=1)
    assert len(first["history"]["loss"]) == 2
    again = train(tmp_path, patience=1)
    assert again["started"] == []
    assert_same_run(again, first)


def test_a_stop_within_an_epoch_is_gone_on_from(tmp_path, uninterrupted):
    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.stop_training = batch == 4

    train(tmp_path, callbacks_before=[Stop()])
    result = train(tmp_path)
    assert result["started"][0] == (0, 5)
    assert_same_run(result, uninterrupted)


def test_kill_while_saving(tmp_path, uninterrupted):
    process = subprocess.run(
        [sys.executable, str(_PROGRAM), str(tmp_path), "--kill_in_save", "7"],
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        timeout=300,
    )
    assert process.returncode == -signal.SIGKILL, process.stderr.decode()
    assert any(path.name.endswith(".incomplete") for path in (tmp_path / "checkpoints").iterdir())
    result = train(tmp_path)
    assert result["started"][0] == (1, 2)
    assert_same_run(result, uninterrupted)
    assert not any(path.name.endswith(".incomplete") for path in (tmp_path / "checkpoints").iterdir())


@pytest.mark.sampled(1)
@pytest.mark.parametrize("limit", ["bytes of a file", "no space"])
def test_full_disk_while_saving_leaves_the_previous_state(tmp_path, uninterrupted, monkeypatch, limit):
    import resource

    write_tensors, saves = state_folder.write_tensors, []

    def write_on_full_disk(path, tensors):
        saves.append(path)
        if len(saves) < 7:
            write_tensors(path, tensors)
        elif limit == "no space":
            path.write_bytes(b"half")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        else:
            soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
            try:
                write_tensors(path, tensors)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    monkeypatch.setattr(state_folder, "write_tensors", write_on_full_disk)
    with pytest.raises(OSError, match=r"Could not write .*epoch-00001-batch-00000004 .* is unharmed"):
        train(tmp_path)
    monkeypatch.undo()
    checkpoints = [path.name for path in (tmp_path / "checkpoints").iterdir() if path.is_dir()]
    assert checkpoints == ["epoch-00001-batch-00000002"]
    assert_same_run(train(tmp_path), uninterrupted)


@pytest.mark.parametrize("positions", [[(99_999, 0), (100_000, 0)], [(1, 99_999_999), (1, 100_000_000)]], ids=str)
def test_numbers_of_more_digits_come_later(tmp_path, positions):
    folder = state_folder.StateFolder(tmp_path, keep=1)
    for epoch, batch in positions:
        values = {"callbacks": [], "number_of_batches": 10**9, "finished": False, "epoch": epoch, "batch": batch}
        folder.write(epoch, batch, {"step": np.zeros(1)}, values)
    assert (folder.latest().values["epoch"], folder.latest().values["batch"]) == positions[1]
    assert state_folder.saved_position(tmp_path) == positions[1]
    assert len(list(tmp_path.iterdir())) == 1


def test_texts_with_names_of_labels_are_entered_within_an_epoch(tmp_path, make_task):
    """What a resume does before its first step; the metrics of a new task have no variables yet."""
    texts, labels = ["alpha beta", "omega", "kappa"], ["good", "bad", "good"]
    data = ResumableBatches(3, lambda epoch: tf.data.Dataset.from_tensor_slices((texts, labels)).batch(1))

    def start():
        task = make_task(TextClassifier, labels=["bad", "good"])
        task.compile(keras.optimizers.SGD(0.1), weighted_metrics=["accuracy"], run_eagerly=True)
        task.optimizer.build(task.trainable_variables)
        task.history = keras.callbacks.History()
        state = TrainingState(tmp_path, data)
        state.set_model(task)
        return task, state

    task, state = start()
    task.test_on_batch(texts[:2], labels[:2])
    variables = {name: variable for group in state._groups().values() for name, variable in group.items()}
    variables.update(tensors.name_variables(task.metrics_variables, "metrics/"))
    values = {"callbacks": [], "number_of_batches": 3, "finished": False, "epoch": 0, "batch": 2}
    state_folder.StateFolder(tmp_path).write(0, 2, variables, {**values, "history": {}, "best": None})
    resumed, state = start()
    state.on_train_begin()
    state.on_epoch_begin(0)
    assert len(task.metrics_variables) > 2
    for variable, expected in zip(resumed.metrics_variables, task.metrics_variables, strict=True):
        np.testing.assert_array_equal(variable, expected)
    assert [x.numpy().tolist() for x, _ in data.dataset] == [[b"kappa"]]


def test_keeps_the_last_states_and_the_best_weights(finished):
    folder = finished / "checkpoints"
    assert sorted(path.name for path in folder.iterdir()) == [
        "best.safetensors",
        "epoch-00002-batch-00000004",
        "epoch-00002-batch-00000006",
        "epoch-00003-batch-00000000",
    ]
    with safetensors.safe_open(folder / "best.safetensors", "np") as file:
        metadata = file.metadata()
    validation = np.genfromtxt(finished / "metrics.csv", delimiter=",", names=True)["val_loss"]
    assert int(metadata["epoch"]) == validation.argmin()
    assert float(metadata["value"]) == pytest.approx(validation.min(), rel=1e-12)
    model = tiny_training.tiny_model(seed=99)
    load_weights(folder / "best.safetensors", model)
    data = TinyData(3)
    data.start_epoch(0)
    assert model.evaluate(data.dataset, verbose=0, return_dict=True)["loss"] == pytest.approx(validation.min())


def test_the_lowest_loss_decides_between_epochs_with_equal_values(tmp_path):
    losses = (0.5, 0.2, 0.3)

    class Level(keras.callbacks.Callback):
        stop_before = None

        def on_epoch_begin(self, epoch, logs=None):
            if epoch == self.stop_before:
                raise KeyboardInterrupt

        def on_epoch_end(self, epoch, logs=None):
            logs.update(level=1.0, val_loss=losses[epoch])

    level = Level()
    for stop_before in (2, None):  # resumed before the last epoch
        level.stop_before = stop_before
        with contextlib.suppress(KeyboardInterrupt):
            train(tmp_path, callbacks_before=[level], monitor="level", mode="max")
        with safetensors.safe_open(tmp_path / "checkpoints" / "best.safetensors", "np") as file:
            assert file.metadata() == {"epoch": "1", "monitor": "level", "value": "1.0"}


def test_all_that_is_saved_can_be_read_without_this_package(finished):
    tensors = safetensors.numpy.load_file(last_state(finished) / "tensors.safetensors")
    state = json.loads((last_state(finished) / "state.json").read_text())
    assert (state["epoch"], state["batch"], state["finished"]) == (3, 0, False)
    # 21 batches, two to an update.
    assert state["step"] == 10
    assert [int(tensor) for name, tensor in tensors.items() if name.endswith("/iteration")] == [21]
    for ending, shape in (("embeddings", (9, 6)), ("seed_generator_state", (2,)), ("accumulator", (9, 6))):
        assert any(name.endswith(ending) and tensor.shape == shape for name, tensor in tensors.items()), ending


def test_seconds_are_those_of_all_processes(tmp_path, monkeypatch):
    """By a clock on which every batch takes a second."""
    now = [100.0]

    class Tick(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            now[0] += 1.0

    monkeypatch.setattr(state_module.time, "monotonic", lambda: now[0])
    with pytest.raises(Crash):
        train(tmp_path, callbacks_before=[Tick()], callbacks_after=[CrashAt("batch", 1, 4)])
    # saved after the 4 batches of an epoch of 7: the one that crashed is lost
    assert json.loads((last_state(tmp_path) / "state.json").read_text())["seconds"] == 11.0
    now[0] += 1000.0
    train(tmp_path, callbacks_before=[Tick()])
    assert json.loads((last_state(tmp_path) / "state.json").read_text())["seconds"] == 21.0
    callbacks = [keras.callbacks.EarlyStopping(), keras.callbacks.CSVLogger(tmp_path / "metrics.csv", append=True)]
    state = TrainingState(tmp_path / "checkpoints", TinyData(), callbacks)
    assert state.seconds == 21.0


def test_mixed_float16_keeps_the_loss_scale(tmp_path):
    keras.config.set_dtype_policy("mixed_float16")
    try:
        expected = train(tmp_path / "one")
        with pytest.raises(Crash):
            train(tmp_path / "two", callbacks_after=[CrashAt("batch", 1, 4)])
        result = train(tmp_path / "two")
    finally:
        keras.config.set_dtype_policy("float32")
    names = safetensors.numpy.load_file(last_state(tmp_path / "two") / "tensors.safetensors").keys()
    assert any("dynamic_scale" in name for name in names)
    assert_same_run(result, expected)


def test_another_model_is_refused_with_a_list_of_the_variables(finished):
    with pytest.raises(ValueError, match="does not fit the model") as error:
        train(finished, width=5)
    message = str(error.value)
    assert "embeddings: (9, 5) F32 in the model, (9, 6) F32 in the file" in message
    assert "kernel: (5, 9) F32 in the model, (6, 9) F32 in the file" in message


def test_more_layers_than_in_the_file(tmp_path):
    def model(layers):
        return keras.Sequential([keras.Input((2,)), *(keras.layers.Dense(2) for _ in range(layers))])

    path = tmp_path / "weights.safetensors"
    tensors.write_tensors(path, tensors.name_variables(model(2).weights))
    tensors.read_variables(path, tensors.name_variables(model(2).weights))  # dense_2, dense_3 now
    with pytest.raises(ValueError) as error:
        tensors.read_variables(path, tensors.name_variables(model(3).weights))
    assert str(error.value).count("in the model, not in the file") == 2
    with pytest.raises(ValueError) as error:
        tensors.read_variables(path, tensors.name_variables(model(1).weights))
    assert str(error.value).count("in the file, not in the model") == 2


def test_other_data_or_callbacks_are_refused(finished):
    with pytest.raises(ValueError, match=r"data of 7 batches per epoch, but `data` has 8"):
        train(finished, data=TinyData(8))
    with pytest.raises(ValueError, match=r"with `callbacks` \['EarlyStopping', 'CSVLogger'\], but now they are \[\]"):
        TrainingState(finished / "checkpoints", TinyData())


def test_damaged_state_is_reported(finished):
    path = last_state(finished) / "tensors.safetensors"
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(ValueError, match="tensors.safetensors is damaged"):
        train(finished)
    path.with_name("state.json").write_text("{")
    with pytest.raises(ValueError, match=r"is damaged .* Remove that folder"):
        train(finished)


def test_a_log_that_lost_rows_is_reported(finished):
    (finished / "metrics.csv").write_text("")
    with pytest.raises(ValueError, match=r"metrics.csv has 0 bytes, but had \d+"):
        train(finished)


def test_a_loss_that_is_not_finite_is_not_saved(tmp_path):
    class Break(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 4:
                self.model.layers[-1].bias.assign(np.full(9, np.nan))

    with pytest.raises(ValueError, match=r"The loss is nan in epoch 0, batch 6; no state is saved"):
        train(tmp_path, callbacks_before=[Break()])
    assert (tmp_path / "checkpoints/epoch-00000-batch-00000004").is_dir()


def fit(state, data, callbacks, **options):
    return tiny_training.reset_model().fit(data.dataset, callbacks=callbacks, shuffle=False, verbose=0, **options)


def test_wrong_use_in_fit(tmp_path):
    early_stopping, data = keras.callbacks.EarlyStopping("loss"), TinyData()
    state = TrainingState(tmp_path / "order", data, [early_stopping])
    with pytest.raises(ValueError, match="EarlyStopping must stand before TrainingState"):
        fit(state, data, [state, early_stopping])
    state = TrainingState(tmp_path / "epoch", data)
    with pytest.raises(ValueError, match="give initial_epoch=state.initial_epoch"):
        fit(state, data, [state], initial_epoch=1, epochs=2)
    state = TrainingState(tmp_path / "monitor", data, monitor="bleu")
    with pytest.raises(ValueError, match="monitor must be in the logs, which have .*loss.*, got 'bleu'"):
        fit(state, data, [state])
    data = TinyData()
    data.number_of_batches = 9
    state = TrainingState(tmp_path / "batches", data)
    with pytest.raises(ValueError, match="ended after 7 batches, but the data says that it has 9"):
        fit(state, data, [state])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"save_every": 0}, "save_every must be .* got 0"),
        ({"keep": 0}, "keep must be at least 1, got 0"),
        ({"mode": "auto"}, "mode must be .* got 'auto'"),
        (
            {"callbacks": [keras.callbacks.LambdaCallback()]},
            "callbacks must be of .*got .*LambdaCallback",
        ),
        ({"callbacks": [keras.callbacks.CSVLogger("metrics.csv")]}, "append=True"),
    ],
)
def test_wrong_arguments(tmp_path, arguments, message):
    with pytest.raises(ValueError, match=message):
        TrainingState(tmp_path, TinyData(), **arguments)


@pytest.mark.parametrize("dtype", ["bool", "uint32", "int64", "float16", "bfloat16", "float32", "float64"])
def test_tensors_of_all_dtypes_come_back_as_they_were(tmp_path, dtype):
    import ml_dtypes  # noqa: F401  (registers bfloat16 with NumPy)

    values = np.arange(6).reshape(2, 3).astype(dtype)
    tensors.write_tensors(tmp_path / "file", {"a": values, "empty": values[:0], "scalar": values[1, 1]})
    with tensors.open_tensors(tmp_path / "file") as file:
        assert list(file.offset_keys()) == ["a", "empty", "scalar"]
        for name, expected in (("a", values), ("empty", values[:0]), ("scalar", values[1, 1])):
            np.testing.assert_array_equal(file.get_tensor(name), expected)
            assert file.get_tensor(name).dtype == dtype
