"""Learning rates by layer, against formulas in NumPy; saved, and entered again."""

import keras
import numpy as np
import pytest

from zoo import AttentionConfig, Backbone, FeedForwardConfig, TextClassifier, TransformerConfig
from zoo.training import PerUpdate, WithWarmup, layer_decay_factors, scale_learning_rates


def classifier(architecture="encoder"):
    config = TransformerConfig(
        architecture,
        vocabulary_size=11,
        hidden_dim=4,
        num_layers=3,
        max_length=5,
        attention=AttentionConfig(num_heads=1),
        feed_forward=FeedForwardConfig(4),
        pooler=architecture == "encoder",
    )
    return TextClassifier(Backbone.from_config(config), labels=2, decoder_start_id=0 if "_" in architecture else None)


@pytest.mark.parametrize("architecture", ["encoder", "encoder_decoder"])
def test_factors(architecture):
    task = classifier(architecture)
    factors = layer_decay_factors(task, 0.5)
    assert factors.keys() == {weight.path for weight in task.weights}
    for path, factor in factors.items():
        block = path.partition("block_")[2][:1]
        is_embedding = "token_embedding" in path or "positions" in path or "embedding_norm" in path
        # three blocks in each stack
        expected = 0.5 ** (3 - int(block)) if block else 0.5**4 if is_embedding else 1.0
        assert factor == expected, path
    assert {0.5**power for power in range(5)} == set(factors.values())
    for decay in (0.0, 1.1):
        with pytest.raises(ValueError, match=f"decay must be above 0 and at most 1, got {decay}"):
            layer_decay_factors(task, decay)


def adamw(weight, gradients, rates, decay):
    """Loshchilov and Hutter 2019, algorithm 2, with the decay of Keras before the step."""
    first = second = 0.0
    for step, (gradient, rate) in enumerate(zip(gradients, rates, strict=True), 1):
        weight = weight - rate * decay * weight
        first, second = 0.9 * first + 0.1 * gradient, 0.99 * second + 0.01 * gradient**2
        weight = weight - rate * first / (1 - 0.9**step) / (np.sqrt(second / (1 - 0.99**step)) + 1e-8)
    return weight


@pytest.mark.parametrize("every", [1, 2])
def test_updates_and_weight_decay(every):
    generator = np.random.default_rng(0)
    weights = [
        keras.Variable(generator.normal(size=size), dtype="float32", name=name)
        for name, size in (("low", (3, 2)), ("high", (2,)), ("plain", (2, 2)))
    ]
    before = [np.array(weight, "float64") for weight in weights]
    factors = {"low": 0.25, "high": 1.0, "plain": 0.5}
    schedule = WithWarmup(0.1, 3)
    optimizer = keras.optimizers.AdamW(
        PerUpdate(schedule, every) if every > 1 else schedule,
        weight_decay=0.2,
        beta_2=0.99,
        epsilon=1e-8,
        global_clipnorm=3.0,
        gradient_accumulation_steps=every if every > 1 else None,
    )
    optimizer = scale_learning_rates(optimizer, factors)
    optimizer.exclude_from_weight_decay([weights[2]])
    gradients = [[generator.normal(size=weight.shape) for weight in weights] for _ in range(4 * every)]
    for batch in gradients:
        optimizer.apply([keras.ops.convert_to_tensor(part, "float32") for part in batch], weights)
    means = [
        [np.mean([batch[index] for batch in gradients[at : at + every]], axis=0) for index in range(3)]
        for at in range(0, 4 * every, every)
    ]
    clipped = []
    for batch in means:
        norm = np.sqrt(sum(np.sum(part**2) for part in batch))
        clipped.append([part * min(1, 3.0 / norm) for part in batch])
    for index, (weight, old) in enumerate(zip(weights, before, strict=True)):
        rates = [factors[weight.path] * 0.1 * min(1, step / 3) for step in range(1, 5)]
        decay = 0.0 if index == 2 else 0.2
        expected = adamw(old, [batch[index] for batch in clipped], rates, decay)
        np.testing.assert_allclose(np.array(weight), expected, rtol=1e-5, atol=1e-6)


def test_muon_and_its_second_decay():
    weight, vector = (
        keras.Variable(np.ones(shape, "float32"), name=name) for name, shape in (("matrix", (3, 2)), ("vector", 2))
    )
    plain = keras.optimizers.Muon(0.1, weight_decay=0.5, adam_weight_decay=0.25)
    optimizer = scale_learning_rates(plain, {"matrix": 0.5, "vector": 0.1})
    optimizer.apply([keras.ops.zeros((3, 2)), keras.ops.zeros(2)], [weight, vector])
    np.testing.assert_allclose(weight, 1 - 0.1 * 0.5 * 0.5, rtol=1e-6)
    np.testing.assert_allclose(vector, 1 - 0.1 * 0.1 * 0.25, rtol=1e-6)


def test_low_rank_updates_learn_as_their_layers_do():
    task = classifier()
    optimizer = keras.optimizers.AdamW(0.1)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    task.compile(scale_learning_rates(optimizer, layer_decay_factors(task, 0.5)))
    task.enable_lora(1, targets=["query"])
    rates = dict(zip((weight.path for weight in task.trainable_weights), task.optimizer._rates, strict=True))
    assert [rate for path, rate in rates.items() if "lora_" in path] == [0.125, 0.125, 0.25, 0.25, 0.5, 0.5]
    # and what is left out of the weight decay stays so
    bias = next(weight for weight in task.trainable_weights if weight.path.endswith("bias"))
    assert not task.optimizer._use_weight_decay(bias)
    assert task.optimizer._use_weight_decay(task.head.projection.kernel)


def test_what_does_not_fit():
    with pytest.raises(ValueError, match="factors must have one for each weight that trains, got none for other"):
        scale_learning_rates(keras.optimizers.SGD(0.1), {}).build([keras.Variable(1.0, name="other")])
    optimizer = keras.optimizers.SGD(0.1)
    optimizer.build([keras.Variable(1.0)])
    with pytest.raises(ValueError, match="optimizer must not be built yet, got a SGD that is"):
        scale_learning_rates(optimizer, {})
    scaled = scale_learning_rates(keras.optimizers.SGD(0.1), {"a": 0.5})
    with pytest.raises(ValueError, match="optimizer must be one of .*, got a LayerwiseSGD"):
        scale_learning_rates(scaled, {})
    # files of compiled models
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(scaled))
    assert type(again) is type(scaled) and again.get_config() == scaled.get_config()
