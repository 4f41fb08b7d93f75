import gc
import weakref

import keras
import numpy as np
import pytest
from keras import ops

from zoo.generation import Beam, Greedy, Sample, compiled, decode, next_power_of_two, pad_batch
from zoo.generation.compiled_functions import CompiledFunctions

needs_tensorflow = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="is about tf.function")
SAMPLERS = [Sample(0.9, top_k=5, top_p=0.9), Sample(1.1, top_p=0.9, min_p=0.01), Beam(3, 0.6)]
END, PAD = 1, 0


def generator_of(model, sampler):
    """A function of tensors: row numbers, limits and seed in, result out."""

    def generate(rows, limits, seed):
        batch = ops.shape(rows)[0]
        state = {"layers": [{"tokens": ops.zeros((batch, model.capacity), dtype="int32")}]}
        first_tokens = ops.zeros_like(limits)
        return decode(
            model.step, state, {"row": rows}, first_tokens, 0, 8, sampler, END, PAD, length_limit=limits, seed=seed
        )

    return generate


def arguments(batch, seed=3):
    return (
        ops.arange(batch, dtype="float32"),
        ops.convert_to_tensor([8, 3, 0, 8, 5, 8, 8, 1][:batch], dtype="int32"),
        ops.convert_to_tensor(seed, dtype="int32"),
    )


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_compiled_equals_eager(prefix_model, assert_same, sampler):
    generate = generator_of(prefix_model(7, capacity=9, seed=1), sampler)
    assert_same(compiled(generate)(*arguments(6)), generate(*arguments(6)))


@pytest.mark.sampled(1)
@needs_tensorflow
@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_graph_of_unknown_batch_size(prefix_model, assert_same, sampler):
    import tensorflow as tf

    generate = generator_of(prefix_model(7, capacity=9, seed=1), sampler)
    signature = [tf.TensorSpec([None]), tf.TensorSpec([None], tf.int32), tf.TensorSpec([], tf.int32)]
    graph = tf.function(generate, input_signature=signature)
    for batch in (1, 6):
        assert_same(graph(*arguments(batch)), generate(*arguments(batch)))
    assert graph.experimental_get_tracing_count() == 1


@needs_tensorflow
def test_saved_model_with_compiled_loop(prefix_model, assert_same, tmp_path):
    """Padding outside, XLA inside, any batch size; what an export does."""
    import tensorflow as tf

    generate = generator_of(prefix_model(7, capacity=9, seed=1), Beam(2, 1.0))
    program = compiled(generate)

    @tf.function(input_signature=[tf.TensorSpec([None]), tf.TensorSpec([None], tf.int32), tf.TensorSpec([], tf.int32)])
    def serve(rows, limits, seed):
        result = program(*pad_batch((rows, limits)), seed)
        return tf.nest.map_structure(lambda tensor: tensor[: tf.shape(rows)[0]], result)

    module = tf.Module()
    module.serve = serve
    tf.saved_model.save(module, str(tmp_path / "model"))
    loaded = tf.saved_model.load(str(tmp_path / "model"))
    for batch in (6, 1, 0):
        assert_same(loaded.serve(*arguments(batch)), generate(*arguments(batch)))


@needs_tensorflow
def test_rows_added_by_padding_cost_no_step(prefix_model):
    model = prefix_model(7, capacity=9, seed=1)
    generate = generator_of(model, Greedy())
    rows, limits, seed = arguments(5)
    limits = ops.minimum(limits, 2)
    generate(*pad_batch((rows, limits)), seed)
    assert model.calls <= 2


def test_later_changes_of_variables_are_seen():
    variable = keras.Variable(2.0)
    function = compiled(lambda x: x * variable, variables=[variable])
    x = ops.convert_to_tensor([1.0, 3.0])
    assert ops.convert_to_numpy(function(x)).tolist() == [2.0, 6.0]
    variable.assign(5.0)
    assert ops.convert_to_numpy(function(x)).tolist() == [5.0, 15.0]


def test_without_xla():
    function = compiled(lambda x: {"sum": ops.sum(x)}, jit_compile=False)
    assert float(function(ops.ones((3,)))["sum"]) == 3.0


@pytest.mark.parametrize("count, size", [(0, 1), (1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (1000, 1024), (1025, 2048)])
def test_next_power_of_two(count, size):
    assert next_power_of_two(count) == size
    assert int(next_power_of_two(ops.convert_to_tensor(count, dtype="int32"))) == size


def test_pad_batch():
    padded = pad_batch({"ids": np.ones((3, 2), "int32"), "masks": [np.ones((3,), bool)]})
    assert ops.convert_to_numpy(padded["ids"]).tolist() == [[1, 1], [1, 1], [1, 1], [0, 0]]
    assert ops.convert_to_numpy(padded["masks"][0]).tolist() == [True, True, True, False]
    whole = ops.ones((4, 2))
    assert pad_batch(whole) is whole


@needs_tensorflow
def test_padding_in_a_graph_of_unknown_shapes():
    import tensorflow as tf

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)])
    def pad(ids):
        return pad_batch(ids)

    assert pad(tf.ones((3, 5), tf.int32)).shape == (4, 5)
    assert pad(tf.ones((0, 0), tf.int32)).shape == (1, 0)
    assert pad(tf.ones((1, 2), tf.int32)).numpy().tolist() == [[1, 1]]


def test_programs_hold_on_to_their_variables():
    """Variables that replace others must not be taken for them, whatever their addresses."""
    variables = [keras.Variable(1.0)]
    programs = CompiledFunctions(lambda: list(variables))
    first = weakref.ref(variables[0])

    def value(x):
        return x * variables[0]

    one = ops.convert_to_tensor(1.0)
    assert float(programs.run("value", value, False, one)) == 1.0
    for number in range(2, 30):
        variables[0] = keras.Variable(float(number))
        gc.collect(1)
        assert float(programs.run("value", value, False, one)) == number
        assert first() is not None
    variables[0].assign(-1.0)
    assert float(programs.run("value", value, False, one)) == -1.0
    few = CompiledFunctions(lambda: list(variables), most=2)
    for size in (1, 2, 3, 2):
        few.run("value", value, False, ops.ones(size))
    assert len(few) == 2
