"""Throughput, sample outputs and the stop on a loss that is not finite, in `fit`."""

import functools
import time

import keras
import numpy as np
import pytest

from zoo.training.callbacks import SampleOutputs, StopOnNonFiniteLoss, Throughput
from zoo.training.losses import TokenCrossEntropy
from zoo.training.metrics import TokenCount

INPUTS = np.random.default_rng(0).integers(0, 5, (12, 4))
WEIGHTS = np.tile([1.0, 1.0, 1.0, 0.0], (12, 1))


@functools.cache
def compiled(counts_tokens):
    """A model and its initial weights; its step is traced once for all tests."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((None,)), keras.layers.Embedding(5, 3), keras.layers.Dense(5)])
    model.compile("sgd", TokenCrossEntropy(), weighted_metrics=[TokenCount()] if counts_tokens else None)
    return model, model.get_weights()


def fit(callbacks, counts_tokens=False, epochs=2, batch_size=4, **options):
    model, weights = compiled(counts_tokens)
    model.set_weights(weights)
    model.optimizer.iterations.assign(0)
    callbacks = [make(model) if callable(make) else make for make in callbacks]
    return model.fit(
        INPUTS,
        INPUTS,
        sample_weight=WEIGHTS,
        batch_size=batch_size,
        epochs=epochs,
        callbacks=callbacks,
        verbose=0,
        **options,
    ).history


def test_throughput_counts_real_tokens_of_training_only():
    seconds = 0.05

    class Slow(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            time.sleep(seconds)

        def on_test_begin(self, logs=None):
            time.sleep(1.0)

    history = fit([Slow(), Throughput()], True, validation_data=(INPUTS, INPUTS, WEIGHTS))
    assert history["tokens"] == [36, 36]
    # The first batch (12 tokens) starts the clock; two more follow in at least 0.1 s, and far less than 1 s.
    for value in history["tokens_per_second"]:
        assert 24 / 1.0 < value <= 24 / (2 * seconds)


def test_throughput_of_a_single_batch_is_left_out():
    # as many columns in every log: an epoch of one batch has no time, which is said
    assert np.isnan(fit([Throughput()], True, batch_size=12)["tokens_per_second"]).all()


def test_throughput_needs_the_metric():
    with pytest.raises(ValueError, match=r"no metric 'tokens' .* weighted_metrics=\[TokenCount\(\)\]"):
        fit([Throughput()])


def test_samples_are_written_and_printed_after_each_validation(tmp_path, capsys):
    def sampler(model):
        return SampleOutputs(
            lambda: [f"{index} → {row}" for index, row in enumerate(model.predict(INPUTS[:2], verbose=0).argmax(-1))],
            tmp_path / "samples",
        )

    fit([sampler], epochs=3, validation_data=(INPUTS, INPUTS, WEIGHTS), validation_freq=2)
    (path,) = (tmp_path / "samples").iterdir()
    assert path.name == "epoch-0002.txt"
    lines = path.read_text().splitlines()
    assert len(lines) == 2 and lines[1].startswith("1 → [")
    assert lines[1] in capsys.readouterr().out


def test_samples_without_validation_or_folder(capsys):
    calls = []
    fit([SampleOutputs(lambda: calls.append(0) or ["a line"])], epochs=1)
    assert not calls
    fit([SampleOutputs(lambda: ["a line"], show=False)], epochs=1, validation_data=(INPUTS, INPUTS))
    assert "a line" not in capsys.readouterr().out
    fit([SampleOutputs(lambda: ["a line"])], epochs=1, validation_data=(INPUTS, INPUTS))
    assert "a line" in capsys.readouterr().out


class Break(keras.callbacks.Callback):
    def __init__(self, value):
        super().__init__()
        self.value = value

    def on_train_batch_end(self, batch, logs=None):
        if batch == 1:
            self.model.layers[-1].bias.assign(np.full(5, self.value))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_loss_that_is_not_finite_stops_the_training_at_once(value):
    with pytest.raises(FloatingPointError, match=r"training loss in epoch 1, batch 3, after 3 updates, is nan"):
        fit([Break(value), StopOnNonFiniteLoss()])


def test_a_validation_loss_that_is_not_finite_stops_the_training():
    with pytest.raises(FloatingPointError, match=r"validation loss, after 2 updates, is nan"):
        fit([Break(np.nan), StopOnNonFiniteLoss()], batch_size=6, validation_data=(INPUTS, INPUTS))


def test_a_finite_loss_stops_nothing():
    assert len(fit([StopOnNonFiniteLoss()])["loss"]) == 2


class Unread(float):
    """A number that a device has not computed yet; to read it would wait for the device."""

    reads = 0
    ready = False

    def is_ready(self):
        return self.ready

    def __float__(self):
        type(self).reads += 1
        return super().__float__()

    def __array__(self, *arguments, **options):
        type(self).reads += 1
        return np.asarray(super().__float__())


def test_no_number_is_read_before_the_device_has_computed_it():
    model, _ = compiled(True)
    callbacks = [Throughput(), StopOnNonFiniteLoss()]
    for callback in callbacks:
        callback.set_model(model)
        callback.set_params({"steps": 6})
        callback.on_train_begin()
        callback.on_epoch_begin(0)
    Unread.reads, reads = 0, []
    for batch in range(6):
        logs = {"tokens": Unread(3.0 * batch), "loss": Unread(1.0)}
        for callback in callbacks:
            callback.on_train_batch_end(batch, logs)
        reads.append(Unread.reads)
        logs["loss"].ready = True  # the device is one step behind
    # the tokens of the first and of the last batch; losses of the batch before
    assert reads == [1, 2, 3, 4, 5, 7]
    logs = {}
    for callback in callbacks:
        callback.on_epoch_end(0, logs)
    assert Unread.reads == 8 and logs["tokens_per_second"] > 0


def test_a_loss_that_comes_late_names_its_batch():
    model, _ = compiled(False)
    stop = StopOnNonFiniteLoss()
    stop.set_model(model)
    stop.on_train_begin()
    stop.on_epoch_begin(1)
    stop.on_train_batch_end(4, {"loss": Unread("nan")})
    with pytest.raises(FloatingPointError, match="training loss in epoch 2, batch 5, .* is nan"):
        stop.on_train_batch_end(5, {"loss": Unread(1.0)})
    stop.on_train_batch_end(6, {"loss": Unread("inf")})
    with pytest.raises(FloatingPointError, match="epoch 2, batch 7, .* is inf"):
        stop.on_test_begin()


@pytest.mark.parametrize("make", [StopOnNonFiniteLoss, Throughput])
def test_evaluate_takes_callbacks_of_training(make):
    model, _ = compiled(True)
    callback = make()
    for _ in range(2):
        assert model.evaluate(INPUTS, INPUTS, sample_weight=WEIGHTS, callbacks=[callback], verbose=0)
        fit([callback], True, epochs=1)


def test_throughput_of_an_epoch_without_batches():
    """As after a resume behind the last batch."""
    callback, logs = Throughput(), {}
    callback.on_epoch_begin(0)
    callback.on_test_begin()
    callback.on_epoch_end(0, logs)
    assert logs == {}
