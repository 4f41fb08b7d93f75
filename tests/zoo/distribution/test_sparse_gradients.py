"""A batch that has a token several times: clipping and updates see the gradient of its row, which is their sum."""

import keras
import numpy as np
import pytest

from zoo.backbones import Backbone
from zoo.config import AttentionConfig, TransformerConfig
from zoo.tasks import TextClassifier

CLIPPING = [{"clipnorm": 0.05}, {"global_clipnorm": 0.05}, {"clipvalue": 0.01}]


def make():
    keras.utils.set_random_seed(0)
    config = TransformerConfig(
        "encoder", 12, hidden_dim=8, num_layers=1, max_length=8, attention=AttentionConfig(2), dropout=0.0
    )
    task = TextClassifier(Backbone.from_config(config), labels=2, head_dropout=0.0)
    task({"token_ids": np.ones((1, 4), "int32"), "padding_mask": np.ones((1, 4), bool)})
    return task


def batch():
    ids = np.array([[3, 3, 5, 3], [3, 7, 7, 3], [3, 5, 0, 0]], "int32")
    return {"token_ids": ids, "padding_mask": ids > 0}, np.array([0, 1, 1])


def dense_gradients(task):
    import tensorflow as tf

    inputs, labels = batch()
    with tf.GradientTape() as tape:
        losses = keras.losses.sparse_categorical_crossentropy(labels, task(inputs, training=True), from_logits=True)
        loss = tf.reduce_mean(losses)
    found = tape.gradient(loss, [weight.value for weight in task.trainable_weights])
    assert sum(isinstance(gradient, tf.IndexedSlices) for gradient in found) >= 1
    return [np.asarray(tf.convert_to_tensor(gradient)) for gradient in found]


def clip(gradients, clipnorm=None, global_clipnorm=None, clipvalue=None):
    if clipvalue:
        return [np.clip(gradient, -clipvalue, clipvalue) for gradient in gradients]
    norms = [np.sqrt((gradient.astype("float64") ** 2).sum()) for gradient in gradients]
    if global_clipnorm:
        norms, clipnorm = [np.sqrt(sum(norm**2 for norm in norms))] * len(norms), global_clipnorm
    return [gradient * clipnorm / max(norm, clipnorm) for gradient, norm in zip(gradients, norms, strict=True)]


@pytest.fixture(autouse=True)
def only_tensorflow():
    if keras.backend.backend() != "tensorflow":
        pytest.skip("other backends have no sparse gradients")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("clipping", CLIPPING, ids=lambda clipping: next(iter(clipping)))
def test_clipping(clipping, jit_compile):
    task = make()
    before = [np.asarray(weight) for weight in task.trainable_weights]
    changes = clip(dense_gradients(task), **clipping)
    task.compile(keras.optimizers.SGD(1.0, **clipping), jit_compile=jit_compile)
    task.train_on_batch(*batch())
    for weight, first, change in zip(task.trainable_weights, before, changes, strict=True):
        np.testing.assert_allclose(np.asarray(weight), first - change, atol=2e-6, err_msg=weight.path)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda inner: keras.optimizers.LossScaleOptimizer(inner, initial_scale=8.0),
        lambda inner: keras.optimizers.MultiOptimizer(keras.optimizers.OptimizerMap(inner)),
    ],
    ids=["loss_scale", "multi"],
)
def test_clipping_of_an_optimizer_within_another_one(wrap):
    task = make()
    before = [np.asarray(weight) for weight in task.trainable_weights]
    changes = clip(dense_gradients(task), clipnorm=0.05)
    inner = keras.optimizers.SGD(1.0, clipnorm=0.05)
    task.compile(wrap(inner))
    task.train_on_batch(*batch())
    for weight, first, change in zip(task.trainable_weights, before, changes, strict=True):
        np.testing.assert_allclose(np.asarray(weight), first - change, atol=2e-6, err_msg=weight.path)


@pytest.mark.parametrize(
    "kind",
    [
        keras.optimizers.Adam,
        lambda rate: keras.optimizers.Adam(rate, amsgrad=True),
        keras.optimizers.Adagrad,
        keras.optimizers.Adadelta,
        keras.optimizers.Adafactor,
        keras.optimizers.Adamax,
        keras.optimizers.Ftrl,
        keras.optimizers.Lamb,
        keras.optimizers.Lion,
        keras.optimizers.Nadam,
        keras.optimizers.RMSprop,
        lambda rate: keras.optimizers.SGD(rate, momentum=0.9, nesterov=True),
    ],
)
def test_updates(kind):
    """The same optimizer of Keras with dense gradients is the reference."""
    import tensorflow as tf

    reference, task = make(), make()
    plain = kind(0.1)
    plain.build(reference.trainable_weights)
    task.compile(kind(0.1))
    for _ in range(2):
        plain.apply([tf.constant(gradient) for gradient in dense_gradients(reference)], reference.trainable_weights)
        task.train_on_batch(*batch())
    found, wanted = (np.asarray(of.trainable_weights[0]) for of in (task, reference))
    np.testing.assert_allclose(found, wanted, atol=2e-4)
