"""Learning-rate schedules against formulas written in NumPy, update by update."""

import keras
import numpy as np
import pytest

from zoo.training.schedules import InverseSquareRoot, PerUpdate, WarmupLinear, WarmupStableDecay


def learning_rates(schedule, updates):
    """Learning rates of the updates 1, 2, ... (Keras' steps 0, 1, ...)."""
    return np.array([float(schedule(step)) for step in range(updates)])


T = np.arange(1, 61, dtype="float64")


def test_inverse_square_root_is_equation_3_of_the_paper():
    schedule = InverseSquareRoot.from_model_dim(512, warmup_steps=20)
    expected = 512**-0.5 * np.minimum(T**-0.5, T * 20**-1.5)
    np.testing.assert_allclose(learning_rates(schedule, 60), expected, rtol=1e-6)  # float32


def test_inverse_square_root_of_the_base_model_has_the_known_peak():
    schedule = InverseSquareRoot.from_model_dim(512, warmup_steps=4000)
    assert schedule.peak == pytest.approx(6.9877e-4, rel=1e-4)
    assert float(schedule(3999)) == pytest.approx(schedule.peak, rel=1e-6)
    assert InverseSquareRoot.from_model_dim(512, 4000, factor=2.0).peak == pytest.approx(2 * schedule.peak)


def test_inverse_square_root_by_its_peak():
    expected = 0.005 * np.where(T <= 20, T / 20, np.sqrt(20 / T))
    np.testing.assert_allclose(learning_rates(InverseSquareRoot(0.005, 20), 60), expected, rtol=1e-6)


@pytest.mark.parametrize("final", [0.0, 0.1])
@pytest.mark.parametrize("warmup_steps", [0, 10])
def test_warmup_then_decay(final, warmup_steps):
    progress = np.clip((T - warmup_steps) / (50 - warmup_steps), 0, 1)
    expected = np.where(T <= warmup_steps, 2.0 * T / max(warmup_steps, 1), final + (2.0 - final) * (1 - progress))
    schedule = WarmupLinear(2.0, warmup_steps, total_steps=50, final=final)
    np.testing.assert_allclose(learning_rates(schedule, 60), expected, atol=1e-6)
    assert (learning_rates(schedule, 60)[49:] == np.float32(final)).all()


@pytest.mark.parametrize(
    ("decay", "shape"),
    [
        ("linear", lambda p: 1 - p),
        ("cosine", lambda p: (1 + np.cos(np.pi * p)) / 2),
        ("one_minus_sqrt", lambda p: 1 - np.sqrt(p)),
    ],
)
def test_warmup_stable_decay(decay, shape):
    schedule = WarmupStableDecay(3.0, warmup_steps=5, stable_steps=30, decay_steps=10, final=0.5, decay=decay)
    expected = np.where(T <= 5, 3.0 * T / 5, 0.5 + 2.5 * shape(np.clip((T - 35) / 10, 0, 1)))
    np.testing.assert_allclose(learning_rates(schedule, 60), expected, atol=1e-6)
    assert (expected[5:35] == 3.0).all()


@pytest.mark.parametrize(
    "schedule",
    [
        InverseSquareRoot(0.005, 2000),
        WarmupLinear(0.1, 3, 9, final=0.01),
        WarmupStableDecay(0.1, 3, 4, 5, final=0.01, decay="cosine"),
        PerUpdate(InverseSquareRoot(0.1, 5), 4),
    ],
    ids=lambda schedule: type(schedule).__name__,
)
def test_reloads_from_its_config(schedule):
    optimizer = keras.optimizers.Adam(schedule)
    again = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))._learning_rate
    assert type(again) is type(schedule)
    np.testing.assert_array_equal(learning_rates(again, 15), learning_rates(schedule, 15))


def test_per_update_with_accumulated_gradients():
    # Each batch's gradient is 1, so the weight falls by the sum of the learning rates of the updates.
    schedule = WarmupLinear(1.0, warmup_steps=4, total_steps=100)
    for wrapped, expected in ((PerUpdate(schedule, 2), 0.25 + 0.5 + 0.75), (schedule, 0.5 + 1.0 + 94 / 96)):
        weight = keras.Variable(0.0)
        optimizer = keras.optimizers.SGD(wrapped, gradient_accumulation_steps=2)
        for _ in range(6):
            optimizer.apply([keras.ops.ones(())], [weight])
        # The second case shows why: Keras counts batches, so the warm-up takes half as many updates.
        assert float(weight.value) == pytest.approx(-expected, rel=1e-6)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: InverseSquareRoot(0.0, 10), "peak must be a finite number above 0"),
        (lambda: InverseSquareRoot(0.1, 0), "warmup_steps must be an integer of at least 1"),
        (lambda: InverseSquareRoot(0.1, 2.5), "warmup_steps must be an integer"),
        (lambda: InverseSquareRoot.from_model_dim(0, 10), "model_dim must be"),
        (lambda: WarmupLinear(0.1, 10, 10), "total_steps must be an integer of at least 11"),
        (lambda: WarmupLinear(0.1, 1, 10, final=-1.0), "final must be a finite number of at least 0"),
        (lambda: WarmupStableDecay(0.1, 1, 1, 0), "decay_steps must be"),
        (lambda: WarmupStableDecay(0.1, 1, 1, 1, decay="exponential"), "got 'exponential'"),
        (lambda: PerUpdate(InverseSquareRoot(0.1, 5), 0), "gradient_accumulation_steps must be"),
    ],
)
def test_wrong_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()
