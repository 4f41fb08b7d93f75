"""Plans of trainings where not all weights train, with other optimizers, and of models with experts."""

import dataclasses
import math

import keras
import pytest

import zoo
from zoo.planning import Job, memory_of, model_shape, numbers_of_optimizer, operations_of, traffic_of, without_values
from zoo.storage.deferred import shapes_only

CONFIG = zoo.TransformerConfig(
    "decoder",
    1000,
    hidden_dim=64,
    num_layers=3,
    max_length=128,
    attention=zoo.AttentionConfig(4, use_bias=False),
    norm=zoo.NormConfig("rms", "pre"),
    position=zoo.PositionConfig("rotary"),
    feed_forward=zoo.FeedForwardConfig(128, use_bias=False),
    embedding=zoo.EmbeddingConfig(tie_output=False),
)
TOKENS = 8 * 128


def shape_of(config=CONFIG, rank=None, freeze=()):
    backbone = without_values(config)
    with shapes_only():
        task = zoo.CausalLM(backbone)
        if rank:
            task.enable_lora(rank)
        if freeze:
            task.freeze(*freeze)
    return model_shape(backbone)


def test_low_rank_updates():
    """Hu et al. 2022, section 4.1: of a 64 x 64 kernel 2 * 4 * 64 numbers train, of query and value."""
    shape, job = shape_of(rank=4), Job(CONFIG, 8, 128, dtype="float32")
    updates = 3 * 2 * 2 * 4 * 64
    assert shape.trainable == shape.trainable_of_device == updates
    assert numbers_of_optimizer(shape, job) == 2 * updates
    memory = memory_of(shape, job)
    assert memory.gradients == 4 * updates and memory.optimizer == 8 * updates
    # what sends gradients sends those of the updates
    assert traffic_of(shape, dataclasses.replace(job, data=4))["data"].bytes == 2 * 3 / 4 * 4 * updates
    # each frozen product has one gradient, by its inputs; query, key, value of the first layer have none
    kernels, first, output = 3 * (4 * 64 * 64 + 2 * 64 * 128), 3 * 64 * 64, 64 * 1000
    scores = 3 * 3 * 128 * 2 * 2 * 64
    # the first factors of the first layer have no gradient by their inputs either
    of_updates = 3 * updates - 2 * 4 * 64
    products = 2 * (2 * kernels - first + 2 * output + of_updates)
    assert operations_of(shape, job).model == TOKENS * (products + scores)


def test_frozen_layers_have_no_backward_pass():
    shape, job = shape_of(freeze=["embeddings", "block_0", "block_1"]), Job(CONFIG, 8, 128, dtype="float32")
    layer, output, scores = 4 * 64 * 64 + 2 * 64 * 128, 64 * 1000, 128 * 4 * 64
    inputs = 3 * 64 * 64
    forward = 2 * (2 * layer) + 2 * scores
    # the last layer: its query, key and value have gradients of weights alone
    last = 2 * (3 * layer - inputs) + 3 * scores
    assert operations_of(shape, job).model == TOKENS * (forward + last + 2 * 3 * output)
    whole = memory_of(shape_of(), job)
    assert memory_of(shape, job).activations < 0.6 * whole.activations


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sgd", 0),
        ("adam", 2),
        ("adamw", 2),
        ("lion", 1),
        ("rmsprop", 1),
    ],
)
def test_numbers_of_optimizers(name, expected):
    shape = shape_of()
    assert numbers_of_optimizer(shape, Job(CONFIG, 8, 128, optimizer=name)) == expected * shape.parameters


def test_adafactor_has_rows_and_columns():
    """Shazeer and Stern 2018, algorithm 4; Keras also makes a velocity, which it uses for vectors alone."""
    shape = shape_of()
    found = numbers_of_optimizer(shape, Job(CONFIG, 8, 128, optimizer="adafactor"))
    matrices = [weight.variable.shape for weight in shape.weights if len(weight.variable.shape) == 2]
    factored = sum(sum(size) for size in matrices)
    assert found in (factored + shape.parameters, factored + shape.parameters - sum(map(math.prod, matrices)))


@pytest.mark.parametrize("name", ["adam", "adafactor", "sgd", "muon", "lion", "nadam", "ftrl"])
def test_numbers_are_those_that_keras_makes(name):
    """Against an optimizer with values, but for its scalars."""
    backbone = zoo.Backbone.from_config(CONFIG)
    kind = {kind.__name__.lower(): kind for kind in zoo.training.OPTIMIZERS}[name]
    options = {"exclude_layers": ["embedding", "output_projection"]} if kind is keras.optimizers.Muon else {}
    optimizer = kind(**options)
    optimizer.build(backbone.trainable_variables)
    made = sum(math.prod(variable.shape) for variable in optimizer.variables if len(variable.shape))
    assert numbers_of_optimizer(model_shape(backbone), Job(CONFIG, 8, 128, optimizer=name)) == made


def test_rows_of_experts():
    """Blocks of the mean load, rounded up: 4 experts have at most 7 of them; with a capacity one each."""
    network = zoo.FeedForwardConfig(48, num_experts=4, experts_per_token=2, gated=True, use_bias=False)
    config = dataclasses.replace(CONFIG, feed_forward=network)
    capped = dataclasses.replace(config, feed_forward=dataclasses.replace(network, capacity_factor=1.25))
    job = Job(config, 8, 128)
    plain, with_capacity = shape_of(config), shape_of(capped)
    assert plain.layers[0].experts.rows(TOKENS) == 7 * TOKENS * 2 // 4
    assert with_capacity.layers[0].experts.rows(TOKENS) == 4 * 1.25 * TOKENS * 2 // 4
    needed, capped_needed = (
        operations_of(plain, job),
        operations_of(with_capacity, dataclasses.replace(job, config=capped)),
    )
    assert needed.model == capped_needed.model
    rows = 3 * 3 * 2 * 3 * 64 * 48
    assert needed.computed - capped_needed.computed == pytest.approx(rows * TOKENS * 2 * (7 / 4 - 1.25))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"optimizer": "adan"}, "optimizer must be one of adadelta, .*, got 'adan'"),
        ({"length": 129}, "length must be at most the 128 positions of the model .*, got 129"),
        ({"compiler": "gpu"}, "compiler must be 'accelerator' or 'cpu', got 'gpu'"),
        ({"compiler": "cpu", "remat": True}, "compiler must be 'accelerator' with remat .*, got 'cpu'"),
    ],
)
def test_jobs_that_cannot_be(options, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(Job(CONFIG, 8, 128), **options)
