"""Seconds of an update, devices, and the search, by figures that are easy to follow."""

import dataclasses

import pytest

import zoo
from zoo.planning import (
    DEVICES,
    Duration,
    Job,
    device_of,
    duration_of,
    hours_between_failures,
    memory_of,
    model_shape,
    operations_of,
    smallest_mesh,
    traffic_of,
    without_values,
)
from zoo.planning.duration import bandwidth_of
from zoo.planning.traffic import summed

CONFIG = zoo.preset_config("gpt2_small", vocabulary_size=50_304, max_length=1024)


@pytest.fixture(scope="module")
def backbone():
    return without_values(CONFIG)


def test_ring():
    """Four devices that hold 100 bytes each pass on a quarter three times to add up, three times to hand round."""
    assert summed(100.0, 4) == 3 * 25 + 3 * 25
    assert summed(100.0, 1) == 0


@pytest.mark.parametrize(
    ("axis", "data", "model", "expected"),
    [
        ("data", 8, 1, 450e9),  # one machine
        ("data", 16, 1, 400e9),  # two, each with 8 network cards of 50 GB/s
        ("data", 8, 8, 50e9),  # one device of each machine
        ("data", 2, 4, 450e9),
        ("data", 4, 4, 100e9),
        ("model", 8, 8, 450e9),
        ("model", 1, 16, 400e9),
    ],
)
def test_bandwidth(axis, data, model, expected):
    assert bandwidth_of(axis, Job(CONFIG, 64, 1024, data=data, model=model), device_of("h100")) == expected


def test_seconds(backbone):
    shape, job = model_shape(backbone), Job(CONFIG, 64, 1024, data=8)
    device = device_of("h100")
    found = duration_of(shape, job, device, share_of_peak=0.4, latency=0)
    assert found.products == pytest.approx(operations_of(shape, job).of_device / (0.4 * 989e12))
    assert found.optimizer == pytest.approx(28 * shape.parameters / 3.35e12)
    assert found.gradients == pytest.approx(traffic_of(shape, job)["data"].bytes / 450e9)
    assert found.activations == 0
    slow = duration_of(shape, job, device, share_of_peak=0.4, latency=1e-3)
    collectives = traffic_of(shape, job)["data"].collectives
    assert slow.gradients - found.gradients == pytest.approx(collectives * 2 * 3 * 1e-3)
    in_float32 = duration_of(shape, dataclasses.replace(job, dtype="float32"), device, share_of_peak=0.4)
    assert in_float32.products == pytest.approx(found.products * 989 / 494)


def test_bottleneck_and_overlap():
    found = Duration(products=3.0, optimizer=0.5, gradients=4.0, activations=1.0)
    assert found.bottleneck == "gradients"
    assert found.seconds == 8.5
    assert found.seconds_at_least == 5.5


def test_failures():
    """419 in 54 days on 16,384 devices is one in three hours."""
    assert hours_between_failures(16384) == pytest.approx(54 * 24 / 419)
    assert hours_between_failures(1) / 24 / 365 == pytest.approx(5.8, abs=0.1)


def test_figures_are_replaced():
    device = device_of("h100", memory=94e9, link=300e9)
    assert (device.memory, device.link, device.operations) == (94e9, 300e9, 989e12)
    assert DEVICES["h100"].memory == 80e9


@pytest.mark.parametrize(
    ("name", "figures", "message"),
    [
        ("h10", {}, "device must be one of a100, .*, got 'h10'. Did you mean 'h100'?"),
        ("h100", {"memry": 1e9}, "Figures of a device must be of .*, got 'memry'. Did you mean 'memory'?"),
        ("h100", {"memory": 0}, "memory of a device must be a number above 0, got 0"),
        ("h100", {"name": "mine"}, "must be of operations, .*, got 'name'"),
    ],
)
def test_unknown_devices(name, figures, message):
    with pytest.raises(ValueError, match=message):
        device_of(name, **figures)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"data": 0}, "data must be an integer of at least 1, got 0"),
        ({"model": True}, "model must be an integer of at least 1, got True"),
        ({"dtype": "int8"}, "dtype must be one of float32, .*, got 'int8'"),
        ({"attention": "fast"}, "attention must be 'scores' or 'flash', got 'fast'"),
        ({"data": 8, "accumulation": 9}, "at most the 64 rows of a batch, got 8 \\* 9"),
    ],
)
def test_jobs_that_cannot_be(options, message):
    with pytest.raises(ValueError, match=message):
        Job(CONFIG, 64, 1024, **options)


def test_devices_that_do_not_divide_the_heads(backbone):
    with pytest.raises(ValueError, match="'model' of the mesh must divide the 12 heads of .*, got 5"):
        model_shape(backbone, 5)


def test_recurrent_models_are_not_planned():
    with pytest.raises(TypeError, match="must be a TransformerConfig to be planned, got RecurrentConfig"):
        without_values(zoo.RecurrentConfig(vocabulary_size=100))


def test_smallest_mesh(backbone):
    """No mesh with fewer devices fits, by trying all of them."""
    job, device = Job(CONFIG, 24, 1024), device_of("h100", memory=9e9)
    found = smallest_mesh(backbone, job, device)

    def fits(data, model):
        on = dataclasses.replace(job, data=data, model=model)
        return memory_of(model_shape(backbone, model), on).peak <= 0.9 * 9e9

    assert found.devices > 1 and fits(found.data, found.model)
    fewer = [(data, model) for model in (1, 2, 3, 4, 6, 12) for data in range(1, 25) if data * model < found.devices]
    assert not any(fits(*mesh) for mesh in fewer)


def test_nothing_fits(backbone):
    with pytest.raises(ValueError, match="No mesh of at most 16384 devices fits into 90% of the 0.1 GB of h100: with"):
        smallest_mesh(backbone, Job(CONFIG, 24, 1024), device_of("h100", memory=1e8))
    with pytest.raises(ValueError, match="No mesh of at most 4 devices"):
        smallest_mesh(backbone, Job(CONFIG, 24, 1024), device_of("h100", memory=1.5e9), most_devices=4)
