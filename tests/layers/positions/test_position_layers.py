"""What every position layer owes: configuration, files, compiled and dynamic shapes, gradients."""

import inspect

import keras
import numpy as np
import pytest

from layers import MultiHeadAttention
from layers import positions as position_layers
from layers.positions import (
    ALiBi,
    LearnedPositionEmbedding,
    PositionEncoding,
    RelativePositionBias,
    RotaryEmbedding,
    ShawRelativePositions,
    SinusoidalPositionEncoding,
    XPos,
    make_position,
    position_class,
    position_kinds,
    register_position,
)

LONGROPE = {
    "kind": "longrope",
    "short_factor": [1.0, 1.0, 1.5, 2.0],
    "long_factor": [1.0, 2.0, 4.0, 8.0],
    "factor": 4.0,
    "original_max_position_embeddings": 8,
}
LAYERS = {
    "sinusoidal": lambda **kwargs: SinusoidalPositionEncoding(8, base=100.0, **kwargs),
    "sinusoidal_concatenated": lambda **kwargs: SinusoidalPositionEncoding(
        8, layout="concatenated", offset=2, **kwargs
    ),
    "learned": lambda **kwargs: LearnedPositionEmbedding(32, 8, embeddings_initializer="random_normal", **kwargs),
    "rotary": lambda **kwargs: RotaryEmbedding(8, base=500.0, **kwargs),
    "rotary_interleaved_partial": lambda **kwargs: RotaryEmbedding(8, layout="interleaved", rotary_dim=4, **kwargs),
    "rotary_longrope": lambda **kwargs: RotaryEmbedding(8, scaling=LONGROPE, **kwargs),
    "xpos": lambda **kwargs: XPos(8, scale_base=16.0, **kwargs),
    "relative_bias": lambda **kwargs: RelativePositionBias(
        3, num_buckets=8, max_distance=20, bidirectional=False, **kwargs
    ),
    "alibi": lambda **kwargs: ALiBi(3, bias_max=4.0, **kwargs),
}


@keras.saving.register_keras_serializable("position_tests")
class ShawAttention(keras.layers.Layer):
    """The smallest attention around relative keys and values."""

    def __init__(self, relative, **kwargs):
        super().__init__(**kwargs)
        self.relative = relative

    def build(self, *shapes):
        if not self.relative.built:
            self.relative.build()
        self.built = True

    def call(self, x, positions):
        x = keras.ops.transpose(x, (0, 2, 1, 3))
        weights = keras.ops.softmax(self.relative.key_bias(x, positions, positions))
        return self.relative.value_context(weights, positions, positions)

    def get_config(self):
        return {**super().get_config(), "relative": keras.saving.serialize_keras_object(self.relative)}

    @classmethod
    def from_config(cls, config):
        return cls(keras.saving.deserialize_keras_object(config.pop("relative")), **config)


LAYERS["shaw"] = lambda **kwargs: ShawAttention(ShawRelativePositions(8, 3, **kwargs), **kwargs)


def apply(layer, x, positions):
    if isinstance(layer, RotaryEmbedding | ShawAttention):
        return layer(x, positions)
    if layer.acts_on_embeddings():
        return layer(positions)
    return layer(positions, positions)


def model_of(layer):
    """Of dynamic batch and length."""
    x, positions = keras.Input((None, 2, 8)), keras.Input((None,), dtype="int32")
    return keras.Model([x, positions], apply(layer, x, positions))


def inputs(numbers, batch=2, length=11):
    positions = np.arange(length) + np.arange(batch)[:, None]
    return [numbers.normal(size=(batch, length, 2, 8)).astype("float32"), positions.astype("int32")]


def test_every_encoding_is_found_by_name_and_acts_at_one_side():
    classes = {
        getattr(position_layers, name)
        for name in position_layers.__all__
        if isinstance(getattr(position_layers, name), type) and name != "PositionEncoding"
    }
    # Only the package's own: other tests of the same process register theirs.
    own = {kind for kind in position_kinds() if position_class(kind).__module__.startswith("layers.")}
    assert {position_class(kind) for kind in own} >= classes
    on_embeddings = {kind for kind in own if position_class(kind).acts_on_embeddings()}
    assert on_embeddings == {"sinusoidal", "learned"}
    assert all(position_class(kind).acts_in_attention() != (kind in on_embeddings) for kind in own)


def test_names_of_encodings():
    with pytest.raises(ValueError, match="kind must be one of 'alibi'.* got 'rotari'. Did you mean 'rotary'"):
        position_class("rotari")
    with pytest.raises(ValueError, match="kind must be a new name .* got 'alibi'"):
        register_position("alibi")(XPos)
    with pytest.raises(TypeError, match="must decorate a subclass of PositionEncoding"):
        register_position("dense")(keras.layers.Dense)
    sizes = {"num_heads": 3, "head_dim": 8, "dim": 24, "max_length": 16, "bidirectional": True}
    made = {kind: make_position(kind, sizes) for kind in ("alibi", "rotary", "learned", "sinusoidal", "xpos")}
    assert made["alibi"].num_heads == 3 and made["rotary"].head_dim == 8 and made["learned"].max_length == 16
    assert make_position("rotary", sizes, base=5.0).base == 5.0


def test_the_hooks_of_the_base_change_nothing(numbers):
    x, positions = inputs(numbers)
    encoding = PositionEncoding()
    prepared = encoding.prepare(positions)
    for changed in (
        encoding.on_embeddings(x, positions),
        encoding.on_queries(x, prepared),
        encoding.on_keys(x, prepared),
        encoding.on_output(x, None, positions, positions),
    ):
        assert changed is x
    assert encoding.score_bias(x, x, positions, positions, 1.0, None) is None
    assert not (encoding.depends_on_length or encoding.needs_weights or encoding.acts_in_attention())


def test_the_example_of_the_base_with_any_length(numbers):
    code = inspect.getdoc(PositionEncoding).split("```python\n")[1].split("```")[0]
    # other tests have a class and an encoding of these names
    code = code.replace("Recency", "RecencyOfTheExample").replace('"recency"', '"recency_of_the_example"')
    names = {"MultiHeadAttention": MultiHeadAttention, "PositionEncoding": PositionEncoding, "ops": keras.ops}
    exec(code, {**names, "register_position": register_position, "__name__": __name__})
    attention = MultiHeadAttention(2, 8, causal=True, position=position_class("recency_of_the_example")())
    entries = keras.Input((None, 8))
    x = numbers.normal(size=(2, 5, 8)).astype("float32")
    expected = keras.ops.convert_to_numpy(attention(x))
    result = keras.ops.convert_to_numpy(keras.Model(entries, attention(entries))(x))
    np.testing.assert_allclose(result, expected, atol=1e-5)


@pytest.mark.parametrize("name", LAYERS)
def test_configuration_round_trip(name):
    layer = LAYERS[name]()
    if name == "shaw":
        layer = layer.relative
    copy = type(layer).from_config(layer.get_config())
    assert copy.get_config() == layer.get_config()
    assert {"name", "trainable", "dtype"} < set(layer.get_config())


@pytest.mark.parametrize("name", LAYERS)
def test_keras_file_round_trip_and_dynamic_shapes(name, numbers, tmp_path):
    model = model_of(LAYERS[name]())
    model.save(tmp_path / "model.keras")
    reloaded = keras.models.load_model(tmp_path / "model.keras")
    for batch, length in ((2, 11), (3, 5)):
        data = inputs(numbers, batch, length)
        ours, theirs = (keras.ops.convert_to_numpy(one(data)) for one in (model, reloaded))
        np.testing.assert_array_equal(ours, theirs)
        assert ours.shape[0] == batch and length in ours.shape
        assert len(ours.shape) == len(model.output_shape)


@pytest.mark.parametrize("name", LAYERS)
def test_compiled_equals_eager(name, numbers):
    layer = LAYERS[name]()
    data = [keras.ops.convert_to_tensor(array) for array in inputs(numbers)]
    expected = keras.ops.convert_to_numpy(apply(layer, *data))
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        functions = [tf.function(lambda *a: apply(layer, *a), jit_compile=jit) for jit in (False, True)]
    elif keras.backend.backend() == "jax":
        import jax

        functions = [jax.jit(lambda *a: apply(layer, *a))]
    else:
        pytest.skip("needs a compiler: TensorFlow or JAX")
    for function in functions:
        np.testing.assert_allclose(keras.ops.convert_to_numpy(function(*data)), expected, atol=2e-6)


@pytest.mark.parametrize("name", ["rotary", "rotary_interleaved_partial", "rotary_longrope", "shaw"])
def test_gradient_of_the_input_is_that_of_finite_differences(name, numbers):
    if keras.backend.backend() != "tensorflow":
        pytest.skip("takes the gradient with TensorFlow")
    import tensorflow as tf

    layer = LAYERS[name](dtype="float64")
    x, positions = inputs(numbers, 1, 4)
    x = tf.constant(x, "float64")
    direction = tf.constant(numbers.normal(size=x.shape))
    with tf.GradientTape() as tape:
        tape.watch(x)
        total = tf.reduce_sum(apply(layer, x, positions) ** 3)
    gradient = tape.gradient(total, x)

    def total_at(step):
        return float(tf.reduce_sum(apply(layer, x + step * direction, positions) ** 3))

    numeric = (total_at(1e-5) - total_at(-1e-5)) / 2e-5
    np.testing.assert_allclose(float(tf.reduce_sum(gradient * direction)), numeric, rtol=1e-7)


@pytest.mark.parametrize("name", ["learned", "relative_bias", "shaw"])
def test_weights_learn(name, numbers):
    data = inputs(numbers)
    model = model_of(LAYERS[name]())
    model.compile(keras.optimizers.SGD(0.1), loss="mean_squared_error")
    before = [weight.copy() for weight in model.get_weights()]
    target = keras.ops.convert_to_numpy(model(data)) + 1.0
    model.fit(data, target, epochs=1, batch_size=2, verbose=0)
    for old, new in zip(before, model.get_weights(), strict=True):
        assert np.isfinite(new).all() and np.abs(new - old).max() > 0


@pytest.mark.parametrize("kind, sizes", [(LearnedPositionEmbedding, (8, 4)), (SinusoidalPositionEncoding, (4,))])
def test_vectors_are_no_positions(kind, sizes):
    layer = kind(*sizes)
    with pytest.raises(ValueError, match=r"positions must hold integers.* got shape \(None, 8, 4\) and dtype float32"):
        keras.Sequential([keras.Input((8,), dtype="int32"), keras.layers.Embedding(9, 4), layer])
    assert layer(keras.Input((8,), dtype="int32")).shape == (None, 8, 4)
