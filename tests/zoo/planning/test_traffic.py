"""Bytes that devices send, by counting them layer by layer."""

import dataclasses

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


def test_gradients_are_added_up_along_data(backbone):
    """Of matrices in the type of products; of the embedding, the projection to logits and 9 norms in float32."""
    shape = model_shape(backbone)
    job = Job(CONFIG, 8, 256, data=8)
    others = 2 * 128256 * 4096 + 9 * 4096
    found = traffic_of(shape, job)
    assert found["model"] == (0, 0)
    assert found["data"].bytes == pytest.approx(2 * 7 / 8 * (2 * (shape.parameters - others) + 4 * others))
    twice = traffic_of(shape, dataclasses.replace(job, batch_size=16, accumulation=2))
    assert twice["data"].bytes == pytest.approx(2 * found["data"].bytes)


def test_vectors_are_added_up_along_model(backbone):
    """In each of 4 layers 2 on the way forward and 2 back; on processors those of query, key, value and of gate, up."""
    job = Job(CONFIG, 8, 256, model=8)
    vectors, numbers = 2 * 8 * 256 * 4096, 4 * 8 * 256 * 6
    found = traffic_of(model_shape(backbone, 8), job)["model"]
    assert found.bytes == pytest.approx(2 * 7 / 8 * (vectors * (4 * 4 + 2) + numbers))
    on_processors = dataclasses.replace(job, compiler="cpu", dtype="float32")
    more = traffic_of(model_shape(backbone, 8), on_processors)["model"]
    assert more.bytes == pytest.approx(2 * 7 / 8 * (2 * vectors * (4 * 7 + 2) + numbers))
    again = traffic_of(model_shape(backbone, 8), dataclasses.replace(job, remat=True))["model"]
    assert again.bytes - found.bytes == pytest.approx(2 * 7 / 8 * vectors * 4)


def test_a_vocabulary_that_devices_do_not_divide():
    """GPT-2 has 50,257 tokens: all logits are added up."""
    config = zoo.preset_config("gpt2_small")
    job = Job(config, 8, 256, model=4)
    shape = model_shape(without_values(config), 4)
    assert shape.output_is_shared_by_width
    even = zoo.preset_config("gpt2_small", vocabulary_size=50_304)
    divided = traffic_of(model_shape(without_values(even), 4), dataclasses.replace(job, config=even))
    more = traffic_of(shape, job)["model"].bytes - divided["model"].bytes
    assert more > 0.9 * 2 * 3 / 4 * 4 * 8 * 256 * 50_257
