"""That the version of Keras which is installed has what `layers/keras_internals.py` uses beyond its public names."""

import ast
import functools
import inspect
from pathlib import Path

import keras
import numpy as np
import pytest

from layers import keras_internals
from layers.keras_internals import (
    CALLBACK_STATE,
    ModelHooks,
    OptimizerHooks,
    are_overwritten,
    batches_seen,
    clip_gradients,
    compiled_loss,
    copy_exclusions,
    function_of,
    has_value,
    index_of,
    initialize,
    is_evaluated_by_fit,
    is_inferring_shapes,
    mask_of,
    model_strategy,
    moments_of,
    muon_leaves_to_adamw,
    new_variables,
    optimizer_strategy,
    overwrite,
    replace_clip_gradients,
    replace_loss_mean,
    replace_update_weights,
    schedule_of,
    set_model_strategy,
    set_value_and_layout,
    share_of_loss,
    stateless_scope,
    stored_kernel,
    sublayers,
    take_gradients_as_sums,
    takes_logits,
    uncast_values,
    unlocked,
    update_weights,
    value_and_layout,
    with_cast_weights,
)

pytestmark = pytest.mark.backends
ROOT = Path(__file__).parents[1]
TESTED = set()


def needs(*names):
    """A test of functions of the file; when it fails, it says which version of Keras they do not fit."""
    TESTED.update(name.__name__ for name in names)

    def decorate(test):
        @functools.wraps(test)
        def named(*arguments, **options):
            try:
                test(*arguments, **options)
            except Exception as error:
                functions = ", ".join(name.__name__ for name in names)
                raise AssertionError(
                    f"layers/keras_internals.py: {functions} does not fit Keras {keras.__version__} "
                    f"on {keras.backend.backend()}: {error!r}"
                ) from error

        return named

    return decorate


on_tensorflow = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="of TensorFlow's trainer alone")


def built(kind=keras.optimizers.Adam, **options):
    """An optimizer of one weight, and the weight."""
    variable = keras.Variable(np.ones((2, 2)), dtype="float32")
    optimizer = kind(0.5, **options)
    optimizer.build([variable])
    return optimizer, variable


@needs(sublayers)
def test_sublayers():
    inner = keras.layers.Dense(2)
    block = keras.Sequential([inner, keras.layers.Dropout(0.1)])
    model = keras.Sequential([keras.Input((3,)), block])
    assert sublayers(model)[0] is model and inner in sublayers(model)
    inside = sublayers(model, recursive=False, include_self=False)
    assert block in inside and inner not in inside and model not in inside


@needs(mask_of)
def test_mask_of():
    embedded = keras.layers.Embedding(4, 2, mask_zero=True)(np.array([[1, 0]]))
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(mask_of(embedded)), [[True, False]])
    assert mask_of(keras.ops.ones((2,))) is None


@needs(unlocked)
def test_unlocked():
    layer = keras.layers.Dense(2)
    layer.build((None, 3))
    extra = keras.Variable(np.ones(2), name="extra")
    with pytest.raises(ValueError):
        layer.extra = extra
    with unlocked(layer):
        layer.extra = extra
    assert any(variable is extra for variable in layer.weights)
    with pytest.raises(ValueError):
        layer.another = keras.Variable(np.ones(2))


@needs(stored_kernel)
def test_stored_kernel():
    layer = keras.layers.Dense(4)
    layer.build((None, 8))
    assert stored_kernel(layer) is layer.weights[0]
    layer.quantize("int8")
    assert stored_kernel(layer).dtype == "int8"


@needs(uncast_values)
def test_values_in_the_type_of_their_variables():
    found = []

    class Layer(keras.layers.Layer):
        def build(self, shape):
            self.kernel = self.add_weight(shape=(2,))

        def call(self, inputs):
            found.extend([self.kernel.value, *uncast_values([self.kernel])])
            return inputs

    Layer(dtype="mixed_bfloat16")(np.ones((1, 2)))
    assert [keras.backend.standardize_dtype(value.dtype) for value in found] == ["bfloat16", "float32"]


@needs(with_cast_weights)
def test_weights_of_a_layer_that_casts_its_inputs():
    """In the layer itself as within others, in half precision and in float32."""

    class Inner(keras.layers.Layer):
        def __init__(self, **options):
            super().__init__(**options)
            self.autocast, self.found = False, []

        def build(self, shape):
            self.kernel = self.add_weight(shape=(2,))

        @with_cast_weights
        def call(self, inputs, state=None):
            self.found.append([keras.backend.standardize_dtype(each.dtype) for each in (self.kernel.value, state)])
            return inputs

    class Outer(keras.layers.Layer):
        def __init__(self, inner, **options):
            super().__init__(**options)
            self.inner = inner

        def call(self, inputs):
            return self.inner(inputs, state=np.ones(3, "float32"))

    for policy, expected in (("mixed_bfloat16", "bfloat16"), ("float32", "float32")):
        inner, x = Inner(dtype=policy), np.ones((1, 2), "float32")
        inner(x, state=np.ones(3, "float32"))
        Outer(inner, dtype="mixed_bfloat16")(x)
        assert inner.found == [[expected, "float32"]] * 2


@needs(is_inferring_shapes)
def test_calls_that_find_shapes():
    found = []

    class Layer(keras.layers.Layer):
        def call(self, inputs):
            found.append(is_inferring_shapes())
            return inputs

    layer = Layer()
    layer(keras.Input((2,)))
    layer(np.zeros((1, 2), "float32"))
    assert found == [True, False] and not is_inferring_shapes()


@needs(new_variables, stateless_scope, has_value, initialize, overwrite)
def test_variables_without_values():
    found = []
    with new_variables(found), keras.StatelessScope(initialize_variables=False) as scope:
        assert stateless_scope() is scope
        layer, other = keras.layers.Dense(2, kernel_initializer="ones"), keras.layers.Dense(1)
        layer.build((None, 3))
        other.build((None, 1))
    assert stateless_scope() is None
    assert [variable.path for variable in found] == [variable.path for variable in (*layer.weights, *other.weights)]
    kernel, bias = layer.weights
    assert not has_value(kernel) and kernel.shape == (3, 2)
    initialize(kernel, np.full((3, 2), 5.0, "float32"))
    initialize(bias)
    assert has_value(kernel) and keras.ops.convert_to_numpy(kernel).sum() == 30
    assert has_value(bias) and not keras.ops.convert_to_numpy(bias).any()
    # what Keras would do at the next call of a layer must not undo it
    for variable in other.weights:
        initialize(variable)
    assert keras.ops.convert_to_numpy(layer(np.ones((1, 3), "float32"))).tolist() == [[15.0, 15.0]]
    with keras.StatelessScope():
        overwrite(kernel, np.zeros((3, 2), "float32"))
    assert not keras.ops.convert_to_numpy(kernel).any()


@needs(value_and_layout, set_value_and_layout)
def test_what_holds_a_value():
    first, second = (keras.Variable(np.full(2, value), dtype="float32") for value in (1.0, 2.0))
    value, layout = value_and_layout(second)
    assert layout is None
    set_value_and_layout(first, value)
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(first), [2, 2])


@needs(share_of_loss)
def test_share_of_loss():
    assert float(share_of_loss(keras.ops.convert_to_tensor(3.0))) == 3.0


@needs(takes_logits)
def test_takes_logits():
    for loss in (keras.losses.BinaryCrossentropy, keras.losses.CategoricalCrossentropy, keras.metrics.AUC):
        assert takes_logits(loss(from_logits=True)), loss
        assert not takes_logits(loss()), loss
    assert takes_logits(keras.losses.MeanSquaredError())


@needs(function_of)
def test_function_of():
    def distance(y_true, y_pred):
        return abs(y_true - y_pred)

    assert function_of(keras.metrics.MeanMetricWrapper(distance)) is distance
    assert function_of(keras.metrics.Mean()) is None


@needs(compiled_loss)
def test_compiled_loss():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", loss=None)
    assert compiled_loss(model) is None
    model.compile("sgd", loss="mean_squared_error")
    loss = compiled_loss(model)(np.array([[1.0]], "float32"), np.array([[3.0]], "float32"), None)
    assert float(loss) == 4.0


@needs(replace_loss_mean)
def test_replace_loss_mean():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mean_squared_error", run_eagerly=True)
    replace_loss_mean(model, keras.metrics.Sum("loss"))
    x, y = np.zeros((3, 2), "float32"), np.array([1.0, 1.0, 4.0], "float32")
    # the batches have 2 rows and 1
    assert model.evaluate(x, y, batch_size=2, verbose=0) == pytest.approx(2 * 1 + 1 * 16)


@needs(batches_seen)
def test_batches_seen():
    optimizer, weight = keras.optimizers.SGD(0.1, gradient_accumulation_steps=2), keras.Variable([1.0])
    for _ in range(3):
        optimizer.apply([keras.ops.ones(1)], [weight])
    assert int(batches_seen(optimizer)) == 3 and int(optimizer.iterations) == 1


@needs(are_overwritten)
def test_variables_that_an_optimizer_overwrites():
    scale, weight = keras.Variable([1.0]), keras.Variable([1.0])
    scale.overwrite_with_gradient = True
    optimizer = keras.optimizers.SGD(0.1)
    assert are_overwritten(optimizer, [scale, weight]) == [True, False]
    optimizer.build([weight, scale])
    assert are_overwritten(optimizer, None) == [False, True]
    optimizer.apply([keras.ops.ones(1) * 3, keras.ops.ones(1) * 3])
    assert float(scale[0]) == 3 and float(weight[0]) == pytest.approx(0.7)


@needs(model_strategy, optimizer_strategy)
def test_no_strategy():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    assert model_strategy(model) is None
    optimizer, default = keras.optimizers.SGD(), object()
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        assert optimizer_strategy(optimizer, default) is tf.distribute.get_strategy()
    else:
        assert optimizer_strategy(optimizer, default) is default


@on_tensorflow
@needs(set_model_strategy, model_strategy, ModelHooks)
def test_strategy_of_a_model():
    import tensorflow as tf

    seen = []

    class Model(ModelHooks):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(1)

        def call(self, inputs):
            return self.dense(inputs)

        def batch_to_build_on(self, iterator):
            batch = next(next(iter(iterator))[-1])
            seen.append(batch)
            return batch

    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    with strategy.scope():
        model = Model()
        model.compile("sgd", "mean_squared_error")
    assert model_strategy(model) is strategy
    model.fit(np.ones((4, 2)), np.ones((4, 1)), verbose=0)
    assert len(seen) == 1
    assert set_model_strategy(model, None) is strategy and model_strategy(model) is None
    assert model.distribute_strategy is tf.distribute.get_strategy()


@needs(schedule_of)
def test_schedule_of():
    schedule = keras.optimizers.schedules.CosineDecay(0.1, 10)
    assert schedule_of(keras.optimizers.Adam(schedule)) is schedule
    assert schedule_of(keras.optimizers.Adam(0.1)) is None


@needs(copy_exclusions)
def test_copy_exclusions():
    variables = [keras.Variable(np.ones(2), dtype="float32", name=name) for name in ("kernel", "bias", "scale")]
    optimizer = keras.optimizers.SGD(0.0, weight_decay=0.5)
    optimizer.exclude_from_weight_decay(var_list=[variables[2]], var_names=["bias"])
    fresh = keras.optimizers.SGD.from_config({**optimizer.get_config(), "learning_rate": 1.0})
    copy_exclusions(optimizer, fresh)
    fresh.build(variables)
    fresh.apply([keras.ops.zeros(2)] * 3)
    means = [float(keras.ops.mean(variable.value)) for variable in variables]
    assert means[0] < 1 and means[1:] == [1, 1]


@needs(moments_of, index_of)
def test_moments_of():
    optimizer, variable = built()
    gradient = keras.ops.full((2, 2), 2.0)
    optimizer.apply([gradient])
    first, second = moments_of(optimizer, variable)
    np.testing.assert_allclose(keras.ops.convert_to_numpy(first), 0.1 * 2.0, rtol=1e-6)
    np.testing.assert_allclose(keras.ops.convert_to_numpy(second), 0.001 * 4.0, rtol=1e-5)
    assert index_of(optimizer, variable) == 0


@needs(muon_leaves_to_adamw)
def test_muon_leaves_to_adamw():
    optimizer = keras.optimizers.Muon()
    matrix, vector = (keras.Variable(np.ones(shape), name="kernel") for shape in ((3, 2), (3,)))
    assert muon_leaves_to_adamw(optimizer, vector) and not muon_leaves_to_adamw(optimizer, matrix)


@needs(replace_update_weights, update_weights, replace_clip_gradients, clip_gradients)
def test_steps_of_an_optimizer_are_replaced():
    called = []

    def update(optimizer, *arguments):
        called.append("update")
        update_weights(optimizer, *arguments)

    def clip(optimizer, gradients):
        called.append("clip")
        return clip_gradients(optimizer, gradients)

    optimizer, variable = built(keras.optimizers.SGD, clipvalue=1.0)
    replace_update_weights(optimizer, update)
    replace_clip_gradients(optimizer, clip)
    optimizer.apply([keras.ops.full((2, 2), 8.0)])
    assert called == ["clip", "update"]
    np.testing.assert_allclose(keras.ops.convert_to_numpy(variable), 0.5)


@needs(OptimizerHooks)
def test_optimizer_hooks():
    called = []

    class Rates(OptimizerHooks):
        def update_all(self, *arguments):
            called.append("update")
            super().update_all(*arguments)

        def decay_weights(self, variables):
            called.append("decay")
            super().decay_weights(variables)

    kind = type("WithHooks", (Rates, keras.optimizers.AdamW), {})
    optimizer, variable = built(kind, weight_decay=0.5)
    optimizer.apply([keras.ops.zeros((2, 2))])
    assert called == ["decay", "update"]
    np.testing.assert_allclose(keras.ops.convert_to_numpy(variable), 1 - 0.5 * 0.5)


@on_tensorflow
@needs(take_gradients_as_sums)
def test_gradients_that_are_sums():
    import tensorflow as tf

    strategy = tf.distribute.MirroredStrategy(["/cpu:0"])
    with strategy.scope():
        optimizer, variable = built(keras.optimizers.SGD)
        assert callable(optimizer._all_reduce_sum_gradients)
        take_gradients_as_sums(optimizer)
        strategy.run(tf.function(lambda: optimizer.apply([tf.ones((2, 2))])))
    np.testing.assert_allclose(keras.ops.convert_to_numpy(variable), 0.5)


@needs(is_evaluated_by_fit)
def test_evaluation_within_fit():
    seen = []

    class Model(keras.Sequential):
        def evaluate(self, *arguments, **options):
            seen.append(is_evaluated_by_fit(options))
            return super().evaluate(*arguments, **options)

    model = Model([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mean_squared_error")
    x, y = np.ones((4, 2)), np.ones((4, 1))
    model.fit(x, y, validation_data=(x, y), verbose=0)
    model.evaluate(x, y, verbose=0)
    assert seen == [True, False]


@pytest.mark.parametrize("kind", CALLBACK_STATE, ids=lambda kind: kind.__name__)
def test_state_of_callbacks(kind, tmp_path):
    """Each attribute is one that the class, or one of Keras that it extends, writes."""
    source = "".join(inspect.getsource(base) for base in kind.__mro__ if base.__module__.startswith("keras."))
    missing = [name for name in CALLBACK_STATE[kind] if f"self.{name} = " not in source]
    assert not missing, f"keras.callbacks.{kind.__name__} of Keras {keras.__version__} has no {missing}"


def test_each_function_has_a_test():
    public = {
        name
        for name, value in vars(keras_internals).items()
        if getattr(value, "__module__", "") == keras_internals.__name__ and not name.startswith("_")
    }
    assert public == TESTED


def private_names_of_keras():
    """Names with an underscore that classes of Keras and their objects have."""
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1), keras.layers.Embedding(2, 2)])
    model.compile("adam", "mean_squared_error")
    model.optimizer.build(model.trainable_variables)
    callback = keras.callbacks.ModelCheckpoint("best.weights.h5", save_weights_only=True)
    objects = [model, *model.layers, *model.weights, model.optimizer, keras.optimizers.Muon(), callback]
    objects += [keras.losses.MeanSquaredError(), keras.metrics.AUC(), keras.random.SeedGenerator(0)]
    names = {name for each in objects for name in (*dir(each), *vars(each))}
    return {name for name in names if name.startswith("_") and not name.startswith("__") and name != "_"}


def test_no_other_file_uses_private_names_of_keras():
    # and an argument that no signature has
    names, found = private_names_of_keras() | {"_use_cached_eval_dataset"}, []
    assert {"_flatten_layers", "_value", "_learning_rate", "_momentums", "_tracker"} <= names
    for package in ("layers", "zoo", "recipes"):
        for path in (ROOT / package).rglob("*.py"):
            if path.name == "keras_internals.py":
                continue
            tree = ast.parse(path.read_text(encoding="utf-8"))
            nodes = list(ast.walk(tree))
            functions = {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
            # ends of names of weights, such as "gate_kernel"
            calls = [node for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
            ends = [node.args for node in calls if node.func.attr in ("endswith", "removesuffix")]
            ends += [node.values for node in nodes if isinstance(node, ast.JoinedStr)]
            ends = {id(node) for group in ends for node in group}
            stored = {
                node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
            }
            for node in nodes:
                where = f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"
                if isinstance(node, ast.ImportFrom | ast.Import):
                    modules = [getattr(node, "module", None) or "", *(alias.name for alias in node.names)]
                    found += [f"{where} imports {name}" for name in modules if name.startswith("keras.src")]
                elif isinstance(node, ast.Attribute) and node.attr in names:
                    # an object of the file's own may have an attribute of that name
                    is_own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
                    if not (is_own and node.attr in functions | stored):
                        found.append(f"{where} uses {ast.unparse(node)}")
                elif isinstance(node, ast.Constant) and node.value in names and id(node) not in ends:
                    found.append(f"{where} names {node.value!r}")
    assert not found, "\n".join(found)
