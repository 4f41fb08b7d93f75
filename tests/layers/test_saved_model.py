import keras
import numpy as np
import pytest
from keras import ops

from layers.attention.scores import make_scored_attention
from layers.dropout import Dropout
from layers.embeddings import SegmentEmbedding, TokenEmbedding
from layers.feed_forward import FeedForward
from layers.mixers import ConvolutionMixer
from layers.mixture_of_experts import MixtureOfExperts
from layers.norm_makers import make_norm
from layers.recurrent import RecurrentEncoder


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="SavedModels of other backends need TensorFlow")
def test_all_layers_with_unknown_sizes_in_a_saved_model(tmp_path):
    """One model of all of them: the same numbers in Keras and in the SavedModel, for sizes that it has not seen."""
    import tensorflow as tf

    keras.utils.set_random_seed(0)
    token_ids = keras.Input((None,), dtype="int32", name="token_ids")
    mask = keras.Input((None,), dtype="bool", name="mask")
    embedding = TokenEmbedding(50, 8, scale=True, factor_dim=4)
    x = embedding(token_ids) + SegmentEmbedding(2, 8)(token_ids % 2)
    for kind in ("layer", "rms", "scale", "dynamic_tanh", "batch"):
        x = make_norm(kind)(x)
    for layer in (FeedForward(16, "gelu", gated=True, dropout=0.1), Dropout(0.3)):
        x = x + layer(x)
    for layer in (
        MixtureOfExperts(4, 8),
        MixtureOfExperts(4, 8, experts_per_token=1, capacity_factor=1.0),
        ConvolutionMixer(3),
        ConvolutionMixer(2, separable=False, causal=True),
        RecurrentEncoder(bidirectional=True),
    ):
        x = x + layer(x, mask=mask)
    for kind, options in {"additive": {"units": 6}, "scaled_dot": {}, "bilinear": {}, "distance": {}}.items():
        x = x + make_scored_attention(kind, **options)(x, x, mask=mask)[0]
    model = keras.Model([token_ids, mask], x)
    model.export(str(tmp_path / "model"), verbose=False)
    served = tf.saved_model.load(str(tmp_path / "model"))
    generator = np.random.default_rng(0)
    for batch, length in ((1, 1), (3, 7)):
        ids = generator.integers(0, 50, (batch, length)).astype("int32")
        real = np.arange(length) < generator.integers(1, length + 1, (batch, 1))
        expected = ops.convert_to_numpy(model([ids, real]))
        np.testing.assert_allclose(served.serve([ids, real]), expected, rtol=1e-4, atol=1e-5)
        assert np.all(np.isfinite(expected)) and np.abs(expected).max() > 0.1
