"""The loss against formulas written in NumPy (float64), against Keras, and inside `fit`."""

import keras
import numpy as np
import pytest
from keras import ops

from zoo.training.losses import TokenCrossEntropy, smoothed_cross_entropy


def reference_losses(labels, logits, label_smoothing=0.0):
    """Cross-entropy with an explicit target distribution, in float64."""
    logits = np.asarray(logits, "float64")
    log_probabilities = logits - logits.max(-1, keepdims=True)
    log_probabilities -= np.log(np.exp(log_probabilities).sum(-1, keepdims=True))
    vocabulary_size = logits.shape[-1]
    target = np.eye(vocabulary_size)[labels] * (1 - label_smoothing) + label_smoothing / vocabulary_size
    return -(target * log_probabilities).sum(-1)


def random_batch(batch=3, length=5, vocabulary_size=11, scale=3.0, seed=0):
    generator = np.random.default_rng(seed)
    logits = generator.normal(size=(batch, length, vocabulary_size)) * scale
    labels = generator.integers(0, vocabulary_size, (batch, length)).astype("int32")
    weights = (np.arange(length) < generator.integers(1, length + 1, (batch, 1))).astype("float32")
    return labels, logits.astype("float32"), weights


def gradient(function, value):
    """Gradient of a scalar function as a tensor of the present backend."""
    value = ops.convert_to_tensor(value)
    if keras.backend.backend() == "jax":
        import jax

        return jax.grad(function)(value)
    import tensorflow as tf

    with tf.GradientTape() as tape:
        tape.watch(value)
        result = function(value)
    return tape.gradient(result, value)


def compiled(function, jit_compile=False):
    if keras.backend.backend() == "jax":
        import jax

        return jax.jit(function)
    import tensorflow as tf

    return tf.function(function, jit_compile=jit_compile)


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1, 0.6])
def test_is_the_weighted_sum_over_the_number_of_tokens(label_smoothing):
    labels, logits, weights = random_batch()
    expected = (reference_losses(labels, logits, label_smoothing) * weights).sum() / (weights > 0).sum()
    loss = TokenCrossEntropy(label_smoothing)(labels, logits, sample_weight=weights)
    np.testing.assert_allclose(loss, expected, rtol=1e-6)  # float32


def test_without_weights_all_tokens_count():
    labels, logits, _ = random_batch()
    expected = reference_losses(labels, logits, 0.1).mean()
    np.testing.assert_allclose(TokenCrossEntropy(0.1)(labels, logits), expected, rtol=1e-6)


def test_label_smoothing_of_one_token_by_hand():
    # Uniform logits over 4 classes: any target has cross-entropy log 4. One logit more by log 3: softmax 1/2 and 1/6.
    assert float(TokenCrossEntropy(0.2)([[0]], [[[0.0, 0.0, 0.0, 0.0]]])) == pytest.approx(np.log(4))
    expected = -(0.8 + 0.05) * np.log(1 / 2) - 3 * 0.05 * np.log(1 / 6)
    assert float(TokenCrossEntropy(0.2)([[0]], [[[np.log(3), 0.0, 0.0, 0.0]]])) == pytest.approx(expected)


def test_equals_keras_categorical_cross_entropy_with_label_smoothing():
    labels, logits, weights = random_batch(seed=1)
    one_hot, both = np.eye(11, dtype="float32")[labels], []
    for reduction in ("sum", "mean_with_sample_weight"):
        theirs = keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1, reduction=reduction)
        both.append(theirs(one_hot, logits, sample_weight=weights))
        ours = TokenCrossEntropy(0.1, reduction=reduction)(labels, logits, sample_weight=weights)
        np.testing.assert_allclose(ours, both[-1], rtol=1e-6)
    ours = TokenCrossEntropy(0.1)(labels, logits, sample_weight=weights)
    np.testing.assert_allclose(ours, both[0] / (weights > 0).sum(), rtol=1e-6)


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@pytest.mark.parametrize("mode", ["eager", "graph", "xla"])
def test_gradient_is_that_of_the_formula(label_smoothing, mode):
    labels, logits, weights = random_batch()
    loss = TokenCrossEntropy(label_smoothing)

    def gradient_of_loss(logits):
        return gradient(lambda value: loss(labels, value, sample_weight=weights), logits)

    function = gradient_of_loss if mode == "eager" else compiled(gradient_of_loss, jit_compile=mode == "xla")
    result = ops.convert_to_numpy(function(ops.convert_to_tensor(logits)))
    probabilities = np.exp(logits.astype("float64") - logits.max(-1, keepdims=True))
    probabilities /= probabilities.sum(-1, keepdims=True)
    target = np.eye(11)[labels] * (1 - label_smoothing) + label_smoothing / 11
    expected = (probabilities - target) * weights[..., None] / (weights > 0).sum()
    np.testing.assert_allclose(result, expected, atol=1e-7)  # float32, values up to 0.1
    assert not result[weights == 0].any()


def test_gradient_against_finite_differences():
    labels, logits, weights = random_batch(batch=2, length=2, vocabulary_size=5)
    loss = TokenCrossEntropy(0.1, dtype="float64")
    logits = ops.cast(logits, "float64")
    if ops.dtype(logits) != "float64":
        pytest.skip("this backend has no float64")
    result = ops.convert_to_numpy(gradient(lambda value: loss(labels, value, sample_weight=weights), logits))
    step = 1e-5
    for index in np.ndindex(*result.shape):
        shift = np.zeros(result.shape)
        shift[index] = step
        up, down = (loss(labels, logits + sign * shift, sample_weight=weights) for sign in (1, -1))
        # Central differences: error of the order step**2 plus rounding 1e-16 / step.
        assert result[index] == pytest.approx(float(up - down) / (2 * step), abs=1e-9)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_logits_are_computed_in_float32(dtype):
    labels, logits, weights = random_batch(vocabulary_size=3000)
    half = ops.cast(logits, dtype)
    exact = ops.convert_to_numpy(ops.cast(half, "float32"))
    loss = TokenCrossEntropy(0.1)
    result = loss(labels, half, sample_weight=weights)
    assert ops.dtype(result) == "float32"
    expected = (reference_losses(labels, exact, 0.1) * weights).sum() / (weights > 0).sum()
    np.testing.assert_allclose(result, expected, rtol=1e-6)  # far below the 2**-8 of bfloat16
    assert ops.dtype(gradient(lambda value: loss(labels, value, sample_weight=weights), half)) == dtype


def test_huge_and_tiny_logits_stay_finite():
    logits = np.array([[[1e30, -1e30, 0.0], [88.0, -200.0, -300.0], [0.0, 0.0, -1e30]]], "float32")
    losses = smoothed_cross_entropy(np.array([[0, 1, 2]]), logits)
    np.testing.assert_allclose(losses, [[0.0, 288.0, 1e30]], rtol=1e-6)


def test_batch_without_tokens_has_loss_and_gradient_zero():
    labels, logits, weights = random_batch()
    loss = TokenCrossEntropy(0.1)
    assert float(loss(labels, logits, sample_weight=0 * weights)) == 0
    gradients = gradient(lambda value: loss(labels, value, sample_weight=0 * weights), logits)
    assert not ops.convert_to_numpy(gradients).any()
    assert float(loss(labels[:0], logits[:0])) == 0


@pytest.mark.parametrize("label", [-1, 11])
def test_label_out_of_range(label):
    labels, logits, _ = random_batch()
    labels[1, 2] = label
    with pytest.raises(ValueError, match=r"y_true must hold labels from 0 to 10, .* got labels from"):
        TokenCrossEntropy()(labels, logits)
    losses = compiled(lambda labels, logits: smoothed_cross_entropy(labels, logits))(
        ops.convert_to_tensor(labels), ops.convert_to_tensor(logits)
    )
    losses = ops.convert_to_numpy(losses)
    assert np.isnan(losses[1, 2]) and np.isnan(losses).sum() == 1


def test_wrong_arguments():
    with pytest.raises(ValueError, match="label_smoothing must be at least 0 and below 1, got 1.0"):
        TokenCrossEntropy(1.0)
    with pytest.raises(ValueError, match=r"got the shapes \(3, 5, 11\) and"):
        TokenCrossEntropy()(np.zeros((3, 5, 11)), np.zeros((3, 5, 11), "float32"))


def test_reloads_from_its_config():
    loss = TokenCrossEntropy(0.1, name="cross_entropy")
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(loss))
    assert isinstance(again, TokenCrossEntropy)
    assert again.get_config() == loss.get_config()
    assert again.label_smoothing == 0.1 and again.reduction == "sum_over_batch_size"


def small_model(policy="float32", vocabulary_size=7, seed=3):
    keras.utils.set_random_seed(seed)
    return keras.Sequential(
        [
            keras.Input((None,), dtype="int32"),
            keras.layers.Embedding(vocabulary_size, 8, dtype=policy),
            keras.layers.Dense(vocabulary_size, dtype=policy),
        ]
    )


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_training_in_mixed_precision(policy):
    keras.config.set_dtype_policy(policy)
    try:
        model = small_model(policy)
        model.compile(keras.optimizers.Adam(0.05), TokenCrossEntropy())
        inputs = np.random.default_rng(0).integers(0, 7, (16, 6))
        history = model.fit(inputs, inputs, sample_weight=np.ones((16, 6)), batch_size=4, epochs=20, verbose=0)
    finally:
        keras.config.set_dtype_policy("float32")
    assert history.history["loss"][0] > 1.5 and history.history["loss"][-1] < 0.1


def one_hot_model(seed=3):
    # Without an embedding: Keras takes the norm of the sparse gradient of an embedding before adding up its duplicates.
    keras.utils.set_random_seed(seed)
    return keras.Sequential([keras.Input((None, 7)), keras.layers.Dense(8), keras.layers.Dense(7)])


def next_token_batch():
    tokens = np.random.default_rng(0).integers(0, 7, (8, 6))
    weights = np.tile([1.0, 1.0, 1.0, 1.0, 0.0, 0.0], (8, 1))
    return np.eye(7, dtype="float32")[tokens], (tokens + 1) % 7, weights


def test_accumulating_two_half_batches_equals_one_batch():
    # With equally many tokens in both halves, the mean of the two means is the mean over all.
    inputs, labels, weights = next_token_batch()
    results = []
    for accumulation, batch_size in ((None, 8), (2, 4)):
        model = one_hot_model()
        # SGD, because Adam's first step is the sign of the gradient, whatever its size.
        optimizer = keras.optimizers.SGD(0.5, global_clipnorm=0.1, gradient_accumulation_steps=accumulation)
        model.compile(optimizer, TokenCrossEntropy(0.1))
        model.fit(inputs, labels, sample_weight=weights, batch_size=batch_size, shuffle=False, verbose=0)
        results.append(model.get_weights())
        assert int(optimizer.iterations) == 1
    for full, accumulated in zip(*results, strict=True):
        np.testing.assert_allclose(accumulated, full, atol=1e-7)  # float32 sums in another order


def test_accumulated_batches_weigh_the_same_whatever_their_tokens():
    # In a plain Keras model: the mean over batches of means over tokens, not the mean over tokens as in a task.
    inputs, labels, weights = next_token_batch()
    weights[4:, 1:] = 0
    accumulated, by_hand = one_hot_model(), one_hot_model()
    optimizer = keras.optimizers.SGD(0.5, gradient_accumulation_steps=2)
    accumulated.compile(optimizer, TokenCrossEntropy())
    accumulated.fit(inputs, labels, sample_weight=weights, batch_size=4, shuffle=False, verbose=0)
    # Scaling the weights of each half to the same sum makes one full batch of it, which is divided by all tokens.
    by_hand.compile(keras.optimizers.SGD(0.5), TokenCrossEntropy())
    tokens = weights.sum()
    weights[:4] *= tokens / 2 / weights[:4].sum()
    weights[4:] *= tokens / 2 / weights[4:].sum()
    by_hand.fit(inputs, labels, sample_weight=weights, batch_size=8, shuffle=False, verbose=0)
    for first, second in zip(accumulated.get_weights(), by_hand.get_weights(), strict=True):
        np.testing.assert_allclose(first, second, atol=1e-7)


def test_global_clipnorm_bounds_the_update():
    inputs, labels, weights = next_token_batch()
    model = one_hot_model()
    before = model.get_weights()
    model.compile(keras.optimizers.SGD(1.0, global_clipnorm=0.01), TokenCrossEntropy())
    model.fit(inputs, labels, sample_weight=weights, batch_size=8, verbose=0)
    change = np.sqrt(sum(((new - old) ** 2).sum() for new, old in zip(model.get_weights(), before, strict=True)))
    assert change == pytest.approx(0.01, rel=1e-4)
