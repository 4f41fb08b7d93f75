"""Multi-head attention in SavedModels, with LoRA, and quantized."""

import h5py
import keras
import numpy as np
import pytest
from keras import ops

from layers import (
    ALiBi,
    DisentangledPositions,
    FeedForward,
    MultiHeadAttention,
    RelativePositionBias,
    RMSNorm,
    RotaryEmbedding,
    ShawRelativePositions,
    TransformerBlock,
)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


@pytest.mark.slow
@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="SavedModels of other backends need TensorFlow")
def test_all_kinds_in_a_saved_model(tmp_path):
    """One model of them: the same numbers in Keras and in the SavedModel, for sizes that it has not seen."""
    import tensorflow as tf

    keras.utils.set_random_seed(0)
    inputs, memory = keras.Input((None, 8), name="inputs"), keras.Input((None, 6), name="memory")
    mask = keras.Input((None,), dtype="bool", name="mask")
    x = inputs
    for options in (
        {"causal": True, "position": RotaryEmbedding(4), "num_key_value_heads": 1, "query_norm": RMSNorm()},
        {"window": (2, 3), "position": ALiBi(2)},
        {"window": (600, 0), "dropout": 0.3},
        {"block_size": 3, "sinks": True, "output_gate": True},
        {"path": "blocked", "causal": True, "position": RelativePositionBias(2, bidirectional=False)},
        {"position": ShawRelativePositions(4, 3), "logit_soft_cap": 5.0},
    ):
        x = x + MultiHeadAttention(2, 4, **options)(x, padding_mask=mask)
    context, weights = MultiHeadAttention(2, 4)(x, memory, return_weights=True)
    model = keras.Model([inputs, memory, mask], [x + context, weights])
    model.export(str(tmp_path / "model"), verbose=False)
    served = tf.saved_model.load(str(tmp_path / "model"))
    for batch, length, memory_length in ((1, 1, 2), (3, 11, 5)):
        real = np.arange(length) < np.random.default_rng(1).integers(1, length + 1, (batch, 1))
        arrays = [normal(batch, length, 8), normal(batch, memory_length, 6), real]
        for output, expected in zip(served.serve(arrays), model(arrays), strict=True):
            np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-5)


def test_lora_trains_the_projections_only():
    layer = MultiHeadAttention(2, 4, num_key_value_heads=1)
    x = normal(2, 5, 8)
    before = ops.convert_to_numpy(layer(x))
    for projection in (layer.query_projection, layer.key_projection, layer.value_projection, layer.output_projection):
        projection.trainable = False
        projection.add_update("default", 2)
    # updates start at zero
    np.testing.assert_allclose(ops.convert_to_numpy(layer(x)), before, rtol=1e-6, atol=1e-6)
    names = [variable.name for variable in layer.trainable_variables]
    assert sorted(names) == ["lora_a"] * 4 + ["lora_b"] * 4
    update = layer.query_projection.updates["default"]
    update.lora_b.assign(np.ones(update.lora_b.shape))
    assert np.abs(ops.convert_to_numpy(layer(x)) - before).max() > 1e-3


def test_int8_weights():
    layer = MultiHeadAttention(4, 16)
    x = normal(2, 6, 64)
    model = keras.Sequential([keras.Input((None, 64)), layer])
    before = ops.convert_to_numpy(model(x))
    model.quantize("int8")
    assert keras.backend.standardize_dtype(layer.query_projection._kernel.dtype) == "int8"
    after = ops.convert_to_numpy(model(x))
    # inputs and kernels are rounded to 1/127 of their largest entries: noise of about a hundredth
    assert 0 < np.abs(after - before).max() < 0.05 * np.abs(before).max()


@pytest.mark.parametrize("in_blocks", [False, True])
def test_a_position_that_layers_share_is_one_after_loading(tmp_path, in_blocks):
    position, inputs = RelativePositionBias(2), keras.Input((6, 8))
    layers = [MultiHeadAttention(2, 4, position=position) for _ in range(2)]
    if in_blocks:
        layers = [TransformerBlock(layer, FeedForward(8)) for layer in layers]
    model = keras.Model(inputs, layers[1](layers[0](inputs)))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    x = normal(2, 6, 8)
    np.testing.assert_allclose(loaded(x), model(x), atol=1e-6)
    assert len(loaded.weights) == len(model.weights)
    first, second = (layer.attention if in_blocks else layer for layer in loaded.layers[1:])
    assert first.position is second.position


@pytest.mark.parametrize(
    ("position", "of_position"),
    [(ShawRelativePositions(4, 3), ["vars/0", "vars/1"]), (DisentangledPositions(8, 4, 6), ["table/vars/0"])],
    ids=["shaw", "disentangled"],
)
def test_names_of_stored_weights(position, of_position, tmp_path):
    """Those of files of earlier versions: Keras names weights by the first attribute that leads to them, by name."""
    inputs = keras.Input((None, 8))
    model = keras.Model(inputs, TransformerBlock(MultiHeadAttention(2, 4, position=position), FeedForward(8))(inputs))
    model.save_weights(tmp_path / "model.weights.h5")
    stored = []
    with h5py.File(tmp_path / "model.weights.h5") as file:
        file.visititems(lambda name, item: stored.append(name) if isinstance(item, h5py.Dataset) else None)
    found = sorted(name.partition("/attention/")[2] for name in stored if "/attention/" in name)
    projections = [
        f"{part}_projection/vars/{index}" for part in ("key", "output", "query", "value") for index in (0, 1)
    ]
    assert found == sorted([*projections, *(f"position/{name}" for name in of_position)])
