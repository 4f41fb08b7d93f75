"""Losses, metrics and gradients are those of all data in one batch; run with KERAS_BACKEND=jax too."""

import operator

import keras
import numpy as np
import pytest
from keras import ops

import zoo
from zoo.counts import CountedMean, counting_batch
from zoo.distribution.accumulation import weigh_accumulated
from zoo.distribution.model import DistributedModel
from zoo.training import Distiller, TokenAccuracy, TokenCount, TokenCrossEntropy, TokenNegativeLogLikelihood

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.backends

# a step on JAX, one operation after the other, takes longer than to compile it
EAGERLY = keras.backend.backend() != "jax"
ROWS, VOCABULARY, LENGTHS = 7, 13, np.array([6, 1, 3, 3, 6, 3, 1])


def make(kind, **options):
    keras.utils.set_random_seed(1)
    architecture = kind.architectures[0]
    config = zoo.TransformerConfig(
        architecture,
        VOCABULARY,
        hidden_dim=8,
        num_layers=1,
        max_length=8,
        attention=zoo.AttentionConfig(2),
        dropout=0.0,
    )
    task = kind(zoo.Backbone.from_config(config), **options)
    for weight in task.trainable_weights:
        weight.assign(weight + np.random.default_rng(2).normal(0, 0.3, weight.shape))
    return task


def token_data(kind, labels=VOCABULARY, weigh=True):
    generator = np.random.default_rng(3)
    ids = generator.integers(1, VOCABULARY, (ROWS, LENGTHS.max())).astype("int32")
    mask = np.arange(LENGTHS.max()) < LENGTHS[:, np.newaxis]
    inputs = {"token_ids": ids, "padding_mask": mask}
    if kind is zoo.Seq2SeqLM:
        inputs = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in inputs.items()}
    y = generator.integers(0, labels, ids.shape).astype("int32")
    # of rows, as `sample_weight` of texts is
    weights = mask * (np.array([[1.0], [3.0], [0.5], [2.0], [1.0], [4.0], [0.0]]) if weigh else 1.0)
    return inputs, y, weights.astype("float32")


def batches(data, size, order=range(ROWS)):
    """Batches of rows that are as long as their longest."""
    order = list(order)

    def generate():
        for start in range(0, ROWS, size):
            rows = order[start : start + size]
            cut = (rows, slice(LENGTHS[rows].max()))
            yield keras.tree.map_structure(operator.itemgetter(cut), data)

    specs = keras.tree.map_structure(lambda part: tf.TensorSpec((None, None, *part.shape[2:]), part.dtype), data)
    return tf.data.Dataset.from_generator(generate, output_signature=specs)


TASKS = {
    "causal": (zoo.CausalLM, {}, "sparse_categorical_crossentropy"),
    "seq2seq": (zoo.Seq2SeqLM, {}, "sparse_categorical_crossentropy"),
    "masked": (zoo.MaskedLM, {}, keras.losses.sparse_categorical_crossentropy),
    "tags": (zoo.TokenClassifier, {"labels": ["a", "b", "c"], "head_dropout": 0.0}, "sparse_categorical_crossentropy"),
    "replaced": (zoo.ReplacedTokenDetector, {}, "binary_crossentropy"),
}


def by_formula(logits, y):
    """Cross-entropy and hits of each token."""
    logits = np.asarray(logits, "float64")
    if logits.shape[-1] == 1:
        logits = np.concatenate([np.zeros_like(logits), logits], axis=-1)
    log_probabilities = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return -np.take_along_axis(log_probabilities, y[..., np.newaxis], -1)[..., 0], logits.argmax(-1) == y


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("loss", ["ours", "by name"])
def test_a_mean_is_over_the_tokens_of_all_batches(name, loss):
    kind, options, by_name = TASKS[name]
    task = make(kind, **options)
    data = token_data(kind, 2 if name == "replaced" else len(options.get("labels", range(VOCABULARY))))
    inputs, y, weights = data
    losses, hits = by_formula(ops.convert_to_numpy(task(inputs)), y)
    if name == "replaced":
        data = (inputs, y[..., np.newaxis], weights)
    # without the label smoothing of a Seq2SeqLM
    given = TokenCrossEntropy() if name == "seq2seq" else "auto"
    given = given if loss == "ours" else by_name
    task.compile(keras.optimizers.SGD(0.0), given, weighted_metrics=["accuracy"], run_eagerly=EAGERLY)
    # weights scale losses; metrics are weighted means
    expected = [(losses * weights).sum() / (weights > 0).sum(), (hits * weights).sum() / weights.sum()]
    for size, order in ((1, range(ROWS)), (2, reversed(range(ROWS))), (3, range(ROWS)), (ROWS, range(ROWS))):
        found = task.evaluate(batches(data, size, order), verbose=0)
        np.testing.assert_allclose(found, expected, rtol=2e-5, err_msg=str(size))
    history = task.fit(batches(data, 2), validation_data=batches(data, 3), verbose=0).history
    for prefix in ("", "val_"):
        found = [history[f"{prefix}{key}"][0] for key in ("loss", "accuracy")]
        np.testing.assert_allclose(found, expected, rtol=2e-5, err_msg=prefix)


def test_compiled_and_scored_in_pieces():
    task, data = make(zoo.CausalLM), token_data(zoo.CausalLM)
    inputs, y, weights = data
    losses, _ = by_formula(ops.convert_to_numpy(task(inputs)), y)
    task.compile(keras.optimizers.SGD(0.0))
    found = [task.evaluate(inputs, y, sample_weight=weights, batch_size=size, verbose=0) for size in (1, 3, ROWS)]
    np.testing.assert_allclose(found, [(losses * weights).sum() / (weights > 0).sum()] * 3, rtol=2e-5)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("loss", ["auto", "by name"])
def test_accumulated_batches_are_one_batch(loss):
    data, given = token_data(zoo.CausalLM), loss if loss == "auto" else TASKS["causal"][2]
    results = []
    for size, steps in ((ROWS, None), (2, 4), (4, 2), (1, 7)):
        task = make(zoo.CausalLM)
        optimizer = keras.optimizers.SGD(0.5, global_clipnorm=0.1, gradient_accumulation_steps=steps)
        task.compile(optimizer, given, run_eagerly=EAGERLY)
        for _ in range(2):
            task.fit(*data[:2], sample_weight=data[2], batch_size=size, shuffle=False, verbose=0)
        assert int(optimizer.iterations) == 2
        results.append([ops.convert_to_numpy(weight) for weight in task.weights])
    for accumulated in results[1:]:
        for one, several in zip(results[0], accumulated, strict=True):
            np.testing.assert_allclose(several, one, atol=2e-6)


def square_data(kind):
    """As many rows as tokens, so that weights of rows have the size of those of columns."""
    inputs, y, _ = token_data(kind, weigh=False)
    inputs, y = keras.tree.map_structure(operator.itemgetter(slice(0, 6)), (inputs, y))
    return inputs, y % 2, np.array([1.0, 3.0, 0.5, 2.0, 1.0, 0.0], "float32")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", TASKS)
def test_a_weight_of_each_row_weighs_rows(name):
    kind, options, by_name = TASKS[name]
    task = make(kind, **options)
    inputs, y, of_rows = square_data(kind)
    losses, hits = by_formula(ops.convert_to_numpy(task(inputs)), y)
    labels = y[..., np.newaxis] if name == "replaced" else y
    expected = [losses.mean(axis=1) @ of_rows / 5, hits.mean(axis=1) @ of_rows / of_rows.sum()]
    for loss in (by_name, TokenCrossEntropy()) if name == "seq2seq" else (by_name, "auto"):
        task.compile(keras.optimizers.SGD(0.0), loss, weighted_metrics=["accuracy"], run_eagerly=EAGERLY)
        found = task.evaluate(inputs, labels, sample_weight=of_rows, batch_size=6, verbose=0)
        np.testing.assert_allclose(found, expected, rtol=2e-5, err_msg=str(loss))
    weights = of_rows[:, np.newaxis] if name == "masked" else of_rows
    history = task.fit(inputs, labels, sample_weight=weights, batch_size=3, verbose=0).history
    np.testing.assert_allclose(history["loss"], expected[:1], rtol=2e-5)
    for shape in ((6, 5), (6, 6, 2), (6, 1, 6)):
        with pytest.raises(ValueError, match="sample_weight must have the shape .*got .*" + ", ".join(map(str, shape))):
            task.train_on_batch(inputs, labels, np.ones(shape, "float32"))


def test_compiled_weights_of_rows_and_their_metrics():
    task = make(zoo.CausalLM)
    inputs, y, of_rows = square_data(zoo.CausalLM)
    losses, hits = by_formula(ops.convert_to_numpy(task(inputs)), y)
    task.compile(keras.optimizers.SGD(0.0), weighted_metrics=[TokenAccuracy()])
    found = task.evaluate(inputs, y, sample_weight=of_rows, verbose=0)
    mean = hits.mean(axis=1) @ of_rows / of_rows.sum()
    np.testing.assert_allclose(found, [losses.mean(axis=1) @ of_rows / 5, mean], rtol=2e-5)
    # in a model of Keras
    accuracy, loss = TokenAccuracy(), TokenCrossEntropy()
    logits = task(inputs)
    accuracy.update_state(y, logits, of_rows)
    found = [float(loss(y, logits, of_rows)), float(accuracy.result())]
    np.testing.assert_allclose(found, [losses.mean(axis=1) @ of_rows / 5, mean], rtol=2e-5)
    distiller = Distiller(task, make(zoo.CausalLM), soft=1.0, hard=1.0)
    distiller.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), run_eagerly=EAGERLY)
    logs = distiller.evaluate(inputs, y, sample_weight=of_rows, return_dict=True, verbose=0)
    np.testing.assert_allclose(logs["hard_loss"], losses.mean(axis=1) @ of_rows / 5, rtol=2e-5)
    tokens = of_rows[:, np.newaxis] * np.ones(y.shape, "float32")
    other = distiller.evaluate(inputs, y, sample_weight=tokens, return_dict=True, verbose=0)
    np.testing.assert_allclose(logs["soft_loss"], other["soft_loss"], rtol=2e-5)


def test_implicit_masks_are_divided_by_once():
    """Of `Embedding(mask_zero=True)`, with a loss by name and with ours."""

    class Masked(DistributedModel):
        def __init__(self):
            super().__init__()
            self.embedding = keras.layers.Embedding(5, 3, mask_zero=True)

        def call(self, inputs):
            return self.embedding(inputs)

    ids = np.array([[1, 2, 0, 0], [3, 4, 1, 0]])
    weights = np.array([[2.0, 0.0, 1.0, 1.0], [1.0, 3.0, 0.0, 1.0]], "float32")
    model, both = Masked(), weights * (ids > 0)
    losses, _ = by_formula(ops.convert_to_numpy(model(ids)), ids % 3)
    by_name = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    for loss in (by_name, TokenCrossEntropy()):
        model.compile("sgd", loss, run_eagerly=EAGERLY)
        found = model.compute_loss(ids, ids % 3, model(ids), weights)
        np.testing.assert_allclose(float(found), (losses * both).sum() / (both > 0).sum(), rtol=1e-5)


def test_accumulation_overwrites_with_the_largest():
    """As Keras has it for the scales of float8, whatever a batch counts."""
    scale, weight = keras.Variable([1.0]), keras.Variable([1.0])
    scale.overwrite_with_gradient = True
    optimizer = keras.optimizers.SGD(1.0, gradient_accumulation_steps=2)
    optimizer.build([scale, weight])
    weigh_accumulated(optimizer)
    for count, value in ((3.0, 2.0), (5.0, 1.5)):
        with counting_batch(ops.convert_to_tensor(count)):
            optimizer.apply([ops.convert_to_tensor([value]), ops.convert_to_tensor([value])])
    np.testing.assert_allclose(ops.convert_to_numpy(scale), [2.0])
    np.testing.assert_allclose(ops.convert_to_numpy(weight), [1.0 - (3 * 2.0 + 5 * 1.5) / 8], rtol=1e-6)


def rows_model(base=DistributedModel):
    class Model(base):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(3)

        def call(self, inputs):
            return self.dense(inputs)

    keras.utils.set_random_seed(0)
    model = Model()
    model.build((None, 4))
    return model


def rows_data():
    generator = np.random.default_rng(0)
    return generator.normal(size=(8, 4)).astype("float32"), generator.integers(0, 3, 8)


def test_accumulated_batches_are_one_batch_with_a_scaled_loss():
    """As Keras wraps optimizers for mixed_float16."""
    x, y = rows_data()
    results = []
    for size, steps in ((8, None), (2, 4)):
        model = rows_model()
        start = ops.convert_to_numpy(model(x))
        inner = keras.optimizers.SGD(0.5, gradient_accumulation_steps=steps)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.LossScaleOptimizer(inner, initial_scale=8.0), loss)
        model.fit(x, y, batch_size=size, shuffle=False, epochs=2, verbose=0)
        results.append([ops.convert_to_numpy(weight) for weight in model.weights])
    assert np.abs(ops.convert_to_numpy(model(x)) - start).max() > 0.01
    for one, several in zip(*results, strict=True):
        np.testing.assert_allclose(several, one, atol=1e-6)


def test_losses_without_a_reduction_are_averaged():
    x, y = rows_data()
    model = rows_model()
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=None))
    logits = ops.convert_to_numpy(model(x)).astype("float64")
    expected = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(8), y]
    assert model.evaluate(x, y, batch_size=3, verbose=0) == pytest.approx(expected.mean(), rel=1e-5)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("by", ["object", "function", "column"])
def test_weights_of_rows_are_those_of_keras(size, by):
    """With plain Keras and its own reduction; the rows do not fill the last batch."""
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(8, 4)).astype("float32"), generator.integers(0, 3, 8)
    weights = generator.uniform(0.1, 5, 8).astype("float32")

    def of_function(y_true, y_pred):
        return keras.losses.sparse_categorical_crossentropy(y_true, y_pred, from_logits=True)

    loss = of_function if by == "function" else keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    given = weights[:, np.newaxis] if by == "column" else weights
    results = []
    for kind in (DistributedModel, keras.Model):
        model = rows_model(kind)
        model.compile(
            keras.optimizers.SGD(0.2), loss, metrics=["accuracy"], weighted_metrics=["accuracy"], run_eagerly=EAGERLY
        )
        options = {"sample_weight": given, "batch_size": size, "verbose": 0}
        history = model.fit(x, y, shuffle=False, epochs=2, **options).history
        results.append([*history.values(), model.evaluate(x, y, **options), *model.get_weights()])
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_a_weight_scales_the_gradient_of_one_row():
    inputs = {"token_ids": np.array([[1, 2, 3]]), "padding_mask": np.ones((1, 3), "bool")}
    changes = []
    for options in ({}, {"sample_weight": np.array([3.0])}, {"class_weight": {"b": 3.0}}):
        for loss in ("auto", "sparse_categorical_crossentropy"):
            task = make(zoo.TextClassifier, labels=["a", "b"], head_dropout=0.0)
            before = task.get_weights()
            task.compile(keras.optimizers.SGD(0.1), loss, run_eagerly=EAGERLY)
            task.fit(inputs, np.array([1]), verbose=0, **options)
            changes.append([new - old for new, old in zip(task.get_weights(), before, strict=True)])
    for change, factor in zip(changes, (1, 1, 3, 3, 3, 3), strict=True):
        for found, once in zip(change, changes[0], strict=True):
            np.testing.assert_allclose(found, factor * once, rtol=1e-3, atol=1e-6)


def test_a_weight_of_zero_leaves_a_row_out():
    model = rows_model()
    x, y = np.random.default_rng(0).normal(size=(5, 4)).astype("float32"), np.array([0, 1, 2, 0, 1])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    expected = model.evaluate(x[:3], y[:3], sample_weight=np.array([1.0, 2.0, 0.5]), verbose=0)
    weights = np.array([1.0, 2.0, 0.5, 0.0, 0.0])
    for size in (1, 2, 5):
        found = model.evaluate(x, y, sample_weight=weights, batch_size=size, verbose=0)
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_a_loss_that_divides_by_its_weights():
    """The choice of Keras's own reduction is kept, and is then the mean over all data."""
    data = token_data(zoo.CausalLM)
    task = make(zoo.CausalLM)
    losses, _ = by_formula(ops.convert_to_numpy(task(data[0])), data[1])
    loss = TokenCrossEntropy(reduction="mean_with_sample_weight")
    task.compile("sgd", loss, run_eagerly=EAGERLY)
    for size in (1, 4):
        found = task.evaluate(batches(data, size), verbose=0)
        np.testing.assert_allclose(found, (losses * data[2]).sum() / data[2].sum(), rtol=2e-5)


def test_parts_of_distillation():
    student, teacher = (make(zoo.CausalLM) for _ in range(2))
    for weight in teacher.weights:
        weight.assign(weight * 1.3)
    distiller = Distiller(student, teacher, soft=1.0, hard=0.5, cosine=2.0)
    distiller.compile("sgd", TokenCrossEntropy(), run_eagerly=EAGERLY)
    inputs, y, weights = token_data(zoo.CausalLM, weigh=False)
    # hidden states are compared at tokens that are no labels
    weights[0, :4] = 0
    logs = [
        distiller.evaluate(batches((inputs, y, weights), size), return_dict=True, verbose=0) for size in (1, 3, ROWS)
    ]
    assert set(logs[0]) == {"loss", "soft_loss", "hard_loss", "cosine_loss"}
    for name, value in logs[-1].items():
        # one minus a cosine near one is exact to the last digits of one
        rounding = {"cosine_loss": 3e-7}.get(name, 0)
        np.testing.assert_allclose([each[name] for each in logs], value, rtol=1e-5, atol=rounding, err_msg=name)
    losses, _ = by_formula(ops.convert_to_numpy(student(inputs)), y)
    np.testing.assert_allclose(logs[0]["hard_loss"], (losses * weights).sum() / weights.sum(), rtol=1e-5)


@pytest.mark.parametrize("begin", [2**24, 2**30])
def test_counts_do_not_stop_growing(begin):
    count, mean, accuracy = TokenCount(), CountedMean("mean"), TokenNegativeLogLikelihood()
    for each in (count.count, mean.count, mean.total, accuracy.count):
        each.high.assign(begin)
    update = count.stateless_update_state
    state, y, logits = (
        [variable.value for variable in count.variables],
        np.zeros((1, 1)),
        np.zeros((1, 1, 2), "float32"),
    )
    if keras.backend.backend() == "jax":
        import jax

        update = jax.jit(update)
    elif keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        update = tf.function(update)
    for _ in range(5):
        state = update(state, y, logits)
        mean.update_state(2.0)
        accuracy.update_state(y, logits)
    for variable, value in zip(count.variables, state, strict=True):
        variable.assign(value)
    assert float(count.result()) == begin + 5
    assert float(mean.count.value()) == begin + 5 and float(mean.total.value()) == begin + 10
    assert float(accuracy.count.value()) == begin + 5
    assert TokenAccuracy().result() == 0.0
