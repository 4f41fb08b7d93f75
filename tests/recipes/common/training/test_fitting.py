"""What recipes make of the keys of `training`, against formulas."""

import dataclasses
import json
import sys
from types import SimpleNamespace

import keras
import numpy as np
import pytest

import zoo
from recipes.common.config import parse
from recipes.common.errors import ConfigError, RecipeError, RunFolderError
from recipes.common.training import fitting, optimizers
from recipes.common.training.callbacks import check_callbacks, make_callbacks
from recipes.common.training.fitting import TrainingConfig
from recipes.common.training.optimizers import check_optimizer, make_schedule
from recipes.tag import TagConfig
from recipes.translate import TranslateConfig
from zoo.training import OPTIMIZERS
from zoo.training.state_folder import StateFolder

T = np.arange(1, 61, dtype="float64")


def learning_rates(**options):
    """Those of 60 updates, of a training of 50."""
    schedule = make_schedule(dataclasses.replace(TrainingConfig(), **options), 50)
    return [float(schedule(step)) for step in range(60)]


@pytest.mark.parametrize(
    ("width", "saved", "updates", "trained", "expected"),
    [
        (768, True, (), True, 5.2e-5),  # BERT base
        (384, True, (), True, 1.04e-4),
        (576, True, ("default",), True, 6.9e-4),
        # no more than new weights take
        (384, True, ("default",), True, 1e-3),
        (16, True, (), True, 1e-3),
        # new weights alone
        (768, False, (), True, 1e-3),
        (768, True, (), False, 1e-3),
    ],
)
def test_usual_learning_rates(width, saved, updates, trained, expected):
    config = SimpleNamespace(hidden_dim=width)
    adapters, weights = SimpleNamespace(active=updates), ["kernel"] if trained else []
    task = SimpleNamespace(backbone=SimpleNamespace(config=config, adapters=adapters, trainable_weights=weights))
    training = TagConfig().training
    assert training.learning_rate is None
    assert optimizers.usual_learning_rate(training, task, saved) == pytest.approx(expected, rel=0.01)
    # other optimizers have other rates
    assert optimizers.usual_learning_rate(dataclasses.replace(training, optimizer="sgd"), task, saved) == 1e-3


def test_a_final_rate_above_the_usual_one():
    backbone = SimpleNamespace(config=SimpleNamespace(hidden_dim=768), adapters=SimpleNamespace(active=()))
    task = SimpleNamespace(backbone=SimpleNamespace(**vars(backbone), trainable_weights=["kernel"]))
    training = dataclasses.replace(TagConfig().training, final_learning_rate=1e-4)
    with pytest.raises(ConfigError, match=r"training.final_learning_rate must be at most 5.2e-05.* got 0.0001"):
        fitting.compile_model(task, SimpleNamespace(start="runs/base"), training, 10)


@pytest.mark.parametrize("final", [0.0, 0.1])
@pytest.mark.parametrize("warmup", [1, 2, 10])
@pytest.mark.parametrize(
    ("name", "shape"), [("linear", lambda p: 1 - p), ("cosine", lambda p: np.cos(np.pi * p / 2) ** 2)]
)
def test_warm_up_and_decay(name, shape, warmup, final):
    progress = np.clip((T - warmup) / (50 - warmup), 0, 1)
    expected = np.where(T <= warmup, 2.0 * T / warmup, final + (2.0 - final) * shape(progress))
    found = learning_rates(schedule=name, learning_rate=2.0, warmup_steps=warmup, final_learning_rate=final)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_a_warm_up_as_a_share_and_none_at_all():
    assert learning_rates(warmup_steps=0.2) == learning_rates(warmup_steps=10)
    assert learning_rates(warmup_steps=0)[0] == pytest.approx(0.001) and learning_rates(warmup_steps=0)[49] < 1e-9
    with pytest.raises(ConfigError, match="training.warmup_steps must be below the 50 updates .* got 50"):
        learning_rates(warmup_steps=50)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((1, 1), ", on one device, the only one that JAX sees: training.distribution divides nothing"),
        ((4, 1), ", on devices along the axes fsdp 4, model 1, of 1 process"),
    ],
)
def test_the_log_says_what_several_devices_are(monkeypatch, sizes, expected):
    """A flag of XLA that is missing, or a driver, leaves one device; the run goes on, and may resume on more."""
    layouts = SimpleNamespace(data_size=sizes[0], model_size=sizes[1], divides_along_data=True)
    monkeypatch.setattr(zoo.distribution, "ModelLayouts", SimpleNamespace)
    monkeypatch.setattr(zoo.distribution, "chosen", lambda: layouts)
    assert fitting._devices() == expected


def test_no_epoch_was_the_best(tmp_path, monkeypatch):
    """A validation that was never finite leaves no best weights: an error that says so, not one about a file."""
    monkeypatch.setattr(
        zoo.training,
        "TrainingState",
        lambda folder, *arguments, **options: SimpleNamespace(
            resumed=False, initial_epoch=0, best_weights_path=folder / "best.safetensors"
        ),
    )
    model = SimpleNamespace(fit=lambda *arguments, **options: SimpleNamespace(history={"loss": [1.0]}))
    run = SimpleNamespace(path=tmp_path, folder=lambda name: tmp_path / name)
    config = dataclasses.replace(TrainingConfig(), weights="best")
    with pytest.raises(RecipeError, match="training.weights 'best': val_loss was finite after no epoch"):
        fitting.train(model, run, config, SimpleNamespace(dataset=None), None, curves={})


def test_schedules_of_keras_behind_a_warm_up():
    options = {"decay_steps": 10, "decay_rate": 0.5}
    found = learning_rates(schedule="ExponentialDecay", schedule_options=options, learning_rate=2.0, warmup_steps=5)
    np.testing.assert_allclose(found, np.where(T <= 5, 2 * T / 5, 2 * 0.5 ** ((T - 6) / 10)), rtol=1e-6)
    found = learning_rates(schedule="constant", learning_rate=2.0, warmup_steps=4)
    np.testing.assert_allclose(found, np.minimum(T / 4, 1) * 2)
    assert dataclasses.replace(TrainingConfig(), schedule="ExponentialDecay").may_be_longer
    assert not TrainingConfig().may_be_longer
    # which callbacks may set
    assert make_schedule(dataclasses.replace(TrainingConfig(), schedule="constant", warmup_steps=0), 50) == 0.001
    shape = {"decay": "one_minus_sqrt"}
    found = learning_rates(schedule="warmup_stable_decay", schedule_options=shape, warmup_steps=10, learning_rate=1.0)
    np.testing.assert_allclose(found, np.where(T <= 10, T / 10, 1 - np.sqrt(np.clip((T - 40) / 10, 0, 1))), atol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"optimizer": "adamm"}, "training.optimizer must be one of adadelta, .*, got 'adamm'; did you mean adam"),
        (
            {"optimizer": "lion", "epsilon": 1e-3},
            "training.epsilon must be 1e-08 with optimizer 'lion', which has none",
        ),
        (
            {"optimizer": "sgd", "optimizer_options": {"momentun": 0.9}},
            "training.optimizer_options must be among momentum, .*, got 'momentun'; did you mean momentum",
        ),
        (
            {"optimizer_options": {"global_clipnorm": 1}},
            "training.optimizer_options must not hold global_clipnorm: that is training.clip_norm",
        ),
        ({"optimizer": "sgd", "optimizer_options": {"momentum": 3.0}}, "training.optimizer_options: .*momentum"),
        ({"optimizer_options": {"clipvalue": 1.0}}, "training.optimizer_options: Only one of"),
        ({"schedule": "cosin"}, "training.schedule must be one of constant, .*, got 'cosin'; did you mean cosine"),
        ({"schedule_options": {"alpha": 0.1}}, "training.schedule_options of 'cosine' must be empty, got 'alpha'"),
        ({"schedule": "PolynomialDecay"}, "training.schedule_options: .*decay_steps"),
        ({"decay_share": 0.3}, "training.decay_share must be 0.2 with cosine, got 0.3"),
        ({"schedule": "constant", "final_learning_rate": 0.1}, "training.final_learning_rate must be 0 with constant"),
        ({"warmup_steps": 1.5}, "training.warmup_steps must be a whole number, or a share below 1, got 1.5"),
    ],
)
def test_optimizers_and_schedules_that_do_not_fit(options, message):
    with pytest.raises(ConfigError, match=message):
        check_optimizer(dataclasses.replace(TrainingConfig(), **options), TrainingConfig())


def test_names_that_are_written_out_are_those_of_keras():
    assert set(optimizers.OPTIMIZERS) == set(optimizers.optimizers())
    assert set(optimizers.SCHEDULE_NAMES) == {*optimizers.SCHEDULES, *optimizers.keras_schedules()}


@pytest.mark.slow
def test_each_optimizer_of_keras_trains_with_rates_by_layer():
    architecture = zoo.TransformerConfig(
        "decoder",
        vocabulary_size=5,
        hidden_dim=4,
        num_layers=1,
        attention=zoo.AttentionConfig(num_heads=1, use_bias=False),
        feed_forward=zoo.FeedForwardConfig(4, use_bias=False),
    )
    model = zoo.CausalLM(zoo.Backbone.from_config(architecture))
    weights = model.trainable_weights
    for kind in OPTIMIZERS:
        config = dataclasses.replace(
            TrainingConfig(), optimizer=kind.__name__, weight_decay=0.1, layer_decay=0.5, warmup_steps=0
        )
        check_optimizer(config, TrainingConfig())
        before = [np.array(weight) for weight in weights]
        optimizer = fitting.make_optimizer(config, 10, model)
        optimizer.apply([keras.ops.ones(weight.shape) for weight in weights], weights)
        for weight, old in zip(weights, before, strict=True):
            step = np.abs(np.array(weight) - old).mean()
            assert np.isfinite(step) and step > 0, (kind, weight.path)


def test_states_of_callbacks_of_ones_own_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(zoo.inspect, "plot_curves", lambda *arguments, **options: None)
    monkeypatch.setattr(zoo.distribution, "move_to_one_device", lambda model: True)
    monkeypatch.setattr(zoo.storage, "average_weights", lambda *arguments: None)
    kept, given = [], []

    def state(folder, batches, callbacks, **options):
        kept.extend(callbacks)
        return SimpleNamespace(resumed=False, initial_epoch=0, seconds=2.5)

    def fit(*arguments, callbacks, **options):
        given.extend(callbacks)
        return SimpleNamespace(history={"loss": [1.0]})

    monkeypatch.setattr(zoo.training, "TrainingState", state)
    backbone = SimpleNamespace(adapters={})
    model = SimpleNamespace(fit=fit, save_to_preset=lambda directory: None, backbone=backbone)
    run = SimpleNamespace(path=tmp_path, folder=lambda name: tmp_path / name, draw=lambda *arguments, **options: None)
    callbacks = ["keras.callbacks.TerminateOnNaN", {"class": "keras.callbacks.ReduceLROnPlateau", "patience": 3}]
    config = dataclasses.replace(TrainingConfig(), callbacks=callbacks)
    assert fitting.train(model, run, config, SimpleNamespace(dataset=None), None, curves={}) == 2.5
    names = [type(callback).__name__ for callback in given]
    assert names.index("Throughput") < names.index("TerminateOnNaN") < names.index("CheckpointAveraging")
    # which must be the last
    assert given[-1].initial_epoch == 0 and kept == given[names.index("ReduceLROnPlateau") : -1]
    assert kept[0].patience == 3


def test_other_data_on_a_resume_are_one_message(tmp_path):
    """Rows were added to a file of the data, whose name is the same."""

    def train(batches, **options):
        run = SimpleNamespace(path=tmp_path, folder=lambda name: tmp_path / name)
        config = dataclasses.replace(TrainingConfig(), **options)
        fitting.train(SimpleNamespace(), run, config, SimpleNamespace(number_of_batches=batches), None, curves={})

    kinds = ["CSVLogger", "TensorBoard"]
    values = {"callbacks": [(kind, {}) for kind in kinds], "number_of_batches": 7, "finished": False}
    StateFolder(tmp_path / "checkpoints" / "state").write(1, 0, {}, values)
    with pytest.raises(RunFolderError, match="was saved with data of 7 batches per epoch, but `data` has 8: resume"):
        train(8)
    log = {"class": "keras.callbacks.CSVLogger", "filename": str(tmp_path / "a.csv")}
    with pytest.raises(RunFolderError, match=r"CSVLogger\(.*a\.csv'\) would overwrite its file"):
        train(7, callbacks=[log])


def test_early_stopping_does_not_keep_what_was_not_better():
    early = ["--training.patience", "2", "--export", "false"]
    with pytest.raises(ConfigError, match="training.weights must be 'best' with training.patience 2: training stops"):
        fitting.prepare(parse(TranslateConfig, early))
    for words in (["--training.weights", "best"], ["--training.average_checkpoints", "3"]):
        fitting.prepare(parse(TranslateConfig, [*early, *words]))


def test_what_is_said_of_a_resumed_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(zoo.inspect, "plot_curves", lambda *arguments, **options: None)
    monkeypatch.setattr(zoo.distribution, "move_to_one_device", lambda model: True)
    monkeypatch.setattr(zoo.storage, "average_weights", lambda *arguments: None)
    model = SimpleNamespace(
        fit=lambda *arguments, **options: SimpleNamespace(history={"loss": [1.0]}),
        save_to_preset=lambda directory: None,
        backbone=SimpleNamespace(adapters={}),
    )
    run = SimpleNamespace(path=tmp_path, folder=lambda name: tmp_path / name, draw=lambda *arguments, **options: None)
    for epoch, said in (
        (2, "resuming in epoch 3\n"),
        (5, "all 5 epochs have been trained\n"),
        # what TrainingState says of a run that stopped early
        (sys.maxsize, "the training was stopped by a callback (training.patience), and does not go on\n"),
    ):
        state = SimpleNamespace(resumed=True, initial_epoch=epoch, seconds=1.0)
        monkeypatch.setattr(zoo.training, "TrainingState", lambda *arguments, state=state, **options: state)
        fitting.train(model, run, TrainingConfig(), SimpleNamespace(dataset=None), None, curves={})
        assert capsys.readouterr().out.startswith(said + "trains in float32, ")


def test_callbacks_of_ones_own(tmp_path, monkeypatch):
    (tmp_path / "own_callbacks.py").write_text(
        "import keras\n\n\nclass Count(keras.callbacks.Callback):\n    def __init__(self, every=1):\n"
        "        super().__init__()\n        self.every = every\n\nnot_one = 3\n"
    )
    (tmp_path / "broken_callbacks.py").write_text("raise RuntimeError('no network')\n")
    monkeypatch.syspath_prepend(tmp_path)
    given = ["own_callbacks.Count", {"class": "own_callbacks.Count", "every": 3}]
    # as a file and as a command line give them
    words = ["--training.callbacks", "own_callbacks.Count", "{class: own_callbacks.Count, every: 3}"]
    assert parse(TagConfig, words).training.callbacks == given
    assert parse(TagConfig, ["--training.callbacks", json.dumps(given)]).training.callbacks == given
    check_callbacks(given)
    assert [callback.every for callback in make_callbacks(given)] == [1, 3]
    for callback, message in (
        ("own_callback.Count", r"training.callbacks: own_callback.Count: the module own_callback cannot be imported"),
        ("broken_callbacks.Count", r"broken_callbacks cannot be imported .* \(RuntimeError: no network\)"),
        ("own_callbacks.Counts", r"own_callbacks has no Counts; did you mean Count"),
        ("own_callbacks.not_one", r"own_callbacks.not_one must be a subclass of keras.callbacks.Callback, got 3"),
        ({"class": "own_callbacks.Count", "evry": 3}, r"own_callbacks.Count takes \(every=1\): .*evry"),
        ({"every": 3}, r"training.callbacks must hold import paths such as my_module.MyCallback"),
        ("Count", r"training.callbacks must hold import paths"),
    ):
        with pytest.raises(ConfigError, match=message):
            check_callbacks([callback])
