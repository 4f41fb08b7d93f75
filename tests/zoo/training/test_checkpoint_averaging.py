"""Averages of weights against NumPy; which files are kept, also after a resume."""

import keras
import numpy as np
import pytest

from zoo.storage import average_weights, load_weights, save_weights
from zoo.training.checkpoint_averaging import CheckpointAveraging
from zoo.training.losses import TokenCrossEntropy


def make_model(seed=0):
    keras.utils.set_random_seed(seed)
    model = keras.Sequential(
        [keras.Input((None,)), keras.layers.Embedding(5, 3), keras.layers.Dropout(0.1), keras.layers.Dense(5)]
    )
    model.compile(keras.optimizers.SGD(0.5), TokenCrossEntropy())
    return model


INPUTS = np.random.default_rng(0).integers(0, 5, (8, 4))


def train(model, callback, epochs, initial_epoch=0):
    """Two updates per epoch. Returns the weights after each update."""
    weights = []
    record = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: weights.append(model.get_weights()))
    model.fit(
        INPUTS,
        INPUTS,
        batch_size=4,
        epochs=epochs,
        initial_epoch=initial_epoch,
        verbose=0,
        shuffle=False,
        callbacks=[callback, record],
    )
    return weights


def assert_average(paths, expected_weights):
    model = make_model(seed=9)
    average_weights(paths, model)
    variables = [weights.dtype == "float32" for weights in model.get_weights()]
    assert any(variables)
    for index, weights in enumerate(model.get_weights()):
        if variables[index]:
            expected = np.mean([each[index] for each in expected_weights], axis=0, dtype="float64")
            np.testing.assert_array_equal(weights, expected.astype("float32"))


def test_average_of_the_last_epochs(tmp_path):
    averaging = CheckpointAveraging(tmp_path / "weights", keep=3)
    weights = train(make_model(), averaging, epochs=4)
    assert [path.name for path in averaging.paths] == [f"weights-step-{step:09d}.safetensors" for step in (4, 6, 8)]
    assert_average(averaging.paths, [weights[3], weights[5], weights[7]])


def test_average_of_the_last_intervals(tmp_path):
    averaging = CheckpointAveraging(tmp_path, keep=2, every_steps=3)
    weights = train(make_model(), averaging, epochs=5)
    assert_average(averaging.paths, [weights[5], weights[8]])


def test_continues_after_a_resume_and_drops_a_course_that_was_given_up(tmp_path):
    model = make_model()
    train(model, CheckpointAveraging(tmp_path, keep=3), epochs=3)
    stale = tmp_path / "weights-step-000000099.safetensors"
    save_weights(stale, make_model(seed=5))
    (tmp_path / ".weights-step-000000009.safetensors.abcdefg1.incomplete").mkdir()
    averaging = CheckpointAveraging(tmp_path, keep=3)
    assert stale in averaging.paths
    train(model, averaging, epochs=4, initial_epoch=3)
    steps = [int(path.stem.removeprefix("weights-step-")) for path in averaging.paths]
    assert steps == [4, 6, 8]
    assert len(list(tmp_path.iterdir())) == 3


def test_average_is_taken_in_float64(tmp_path):
    # In float32, 1 + 2**-24 is 1, so adding the small values one by one would lose them.
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
    paths = []
    for index, value in enumerate([1.0] + [2.0**-24] * 3):
        model.set_weights([np.full((1, 1), value, "float32")])
        paths.append(tmp_path / f"{index}.safetensors")
        save_weights(paths[-1], model)
    average_weights(paths, model)
    assert model.get_weights()[0].item() == np.float32((1 + 3 * 2.0**-24) / 4)


def test_low_rank_factors_are_not_averaged(tmp_path):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    model.layers[0].enable_lora(1)
    paths = [tmp_path / "1.safetensors", tmp_path / "2.safetensors"]
    for path in paths:
        save_weights(path, model)
    with pytest.raises(ValueError, match="model must have no low-rank updates where 2 files are averaged, got .*lora"):
        average_weights(paths, model)
    model.layers[0].bias.assign([1.0, 2.0, 3.0])
    average_weights(paths[:1], model)
    np.testing.assert_array_equal(model.layers[0].bias, np.zeros(3))


def test_integers_get_the_last_value(tmp_path):
    class Counter(keras.layers.Layer):
        def build(self, input_shape):
            self.count = self.add_weight(shape=(), dtype="int32", initializer="zeros", trainable=False)

        def call(self, inputs):
            # a new tensor: an output that is the input itself makes a circle in Keras's graph of layers
            return inputs + 1.0

    model = keras.Sequential([keras.Input((1,)), Counter()])
    for value in (3, 8):
        model.set_weights([np.array(value, "int32")])
        save_weights(tmp_path / f"{value}.safetensors", model)
    average_weights([tmp_path / "8.safetensors", tmp_path / "3.safetensors"], model)
    assert model.get_weights()[0] == 3


def test_save_and_load_weights(tmp_path):
    model, other = make_model(0), make_model(1)
    save_weights(tmp_path / "new folder" / "weights.safetensors", model)
    load_weights(tmp_path / "new folder" / "weights.safetensors", other)
    for first, second in zip(model.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_array_equal(first, second)


def test_files_that_do_not_fit(tmp_path):
    model = make_model()
    save_weights(tmp_path / "good.safetensors", model)
    save_weights(tmp_path / "other.safetensors", keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)]))
    (tmp_path / "damaged.safetensors").write_bytes(b"half")
    before = model.get_weights()
    with pytest.raises(ValueError, match="`paths` is empty"):
        average_weights([], model)
    with pytest.raises(ValueError, match="other.safetensors does not fit the model"):
        average_weights([tmp_path / "good.safetensors", tmp_path / "other.safetensors"], model)
    with pytest.raises(ValueError, match="damaged.safetensors is damaged"):
        average_weights([tmp_path / "damaged.safetensors"], model)
    with pytest.raises(FileNotFoundError):
        average_weights([tmp_path / "none.safetensors"], model)
    for first, second in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("arguments", [{"keep": 0}, {"every_steps": 0}])
def test_wrong_arguments(tmp_path, arguments):
    with pytest.raises(ValueError, match=next(iter(arguments))):
        CheckpointAveraging(tmp_path, **arguments)
