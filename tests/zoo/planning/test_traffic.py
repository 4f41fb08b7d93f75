"""Bytes that devices send, by counting them layer by layer."""


import pytest

import zoo
from zoo.planning import Job, model_shape, traffic_of, without_values

CONFIG = zoo.preset_config("llama_3_8b", num_layers=4)


@pytest.fixture(scope="module")
def backbone():
    return without_values(CONFIG)


def test_one_device_sends_nothing(backbone):
    found = traffic_of(model_shape(backbone), Job(CONFIG, 8, 256))
    assert found == {"data": (0, 0), "model": (0, 0)}
