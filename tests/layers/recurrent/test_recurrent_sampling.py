"""Scheduled sampling: the published schedules, what is counted, what is saved."""

import keras
import numpy as np
import pytest

from layers.recurrent import ScheduledSampling

SCHEDULES = {
    "linear": ({"constant": 0.9, "slope": 0.1, "minimum": 0.25}, lambda i: max(0.25, 0.9 - 0.1 * i)),
    "exponential": ({"constant": 0.8}, lambda i: 0.8**i),
    "inverse_sigmoid": ({"constant": 3.0}, lambda i: 3 / (3 + np.exp(i / 3))),
}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_schedule_is_the_formula(schedule):
    options, formula = SCHEDULES[schedule]
    sampling = ScheduledSampling(schedule, **options)
    ids = np.zeros((2, 3), "int32")
    sampling.build(ids.shape)
    for batch in range(12):
        assert float(sampling.probability()) == pytest.approx(formula(batch), rel=1e-5)
        assert sampling(ids).shape == (2, 3)
    # far on, where the exponential of the formula would overflow
    sampling.batches.assign(1_000_000)
    assert float(sampling.probability()) == options.get("minimum", 0.0)
    assert ScheduledSampling.from_config(sampling.get_config()).get_config() == sampling.get_config()


def test_share_of_true_tokens():
    keras.utils.set_random_seed(0)
    sampling = ScheduledSampling("linear", constant=0.7, slope=1e-9)
    share = np.mean(np.asarray(sampling(np.zeros((100, 100), "int32"))))
    # 10,000 tosses: four standard deviations are 0.018
    assert share == pytest.approx(0.7, abs=0.018)


def test_count_is_saved(tmp_path):
    inputs = keras.Input((3,), dtype="int32")
    model = keras.Model(inputs, ScheduledSampling("exponential", 0.5)(inputs))
    for _ in range(2):
        model(np.zeros((1, 3), "int32"))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert float(loaded.layers[-1].probability()) == 0.25


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("cubic", 1.0), "schedule must be one of .* got 'cubic'"),
        (("linear", 0.0, 0.1), "constant must be above 0 with schedule='linear', got 0.0"),
        (("linear", 1.0), "slope must be above 0 and minimum in .* got 0.0 and 0.0"),
        (("exponential", 1.0), "constant must be above 0 and below 1 with schedule='exponential', got 1.0"),
        (("inverse_sigmoid", 0.5), "constant must be at least 1 with schedule='inverse_sigmoid', got 0.5"),
        (("exponential", 0.5, 0.1), "slope and minimum must be 0 with schedule='exponential', got 0.1 and 0.0"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        ScheduledSampling(*arguments)
