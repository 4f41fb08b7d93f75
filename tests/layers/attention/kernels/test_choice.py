"""Which path attention takes, and what it says when it cannot take one."""

import keras
import numpy as np
import pytest
from keras import ops

from layers.attention import AttentionMask, MultiHeadAttention, attend, choose_path, path_up_to
from layers.attention.kernels import dispatch
from layers.dropout import Dropout

ON_TENSORFLOW = keras.backend.backend() == "tensorflow"


def tensors(query_length=10, key_length=None, batch=1, heads=8, key_value_heads=8, dim=64):
    key_length = query_length if key_length is None else key_length
    query = keras.KerasTensor((batch, heads, query_length, dim))
    key = keras.KerasTensor((batch, key_value_heads, key_length, dim))
    return query, key, key


WINDOW = AttentionMask(window=(128, 128))
CAUSAL = AttentionMask(causal=True)


@pytest.mark.skipif(not ON_TENSORFLOW, reason="with a fused kernel, that comes first")
def test_choice_by_length_on_tensorflow():
    def path(length, mask=None, heads=8, **options):
        return choose_path(*tensors(length, heads=heads, key_value_heads=heads), mask, **options).path

    assert path(128) == path(128, CAUSAL) == path(2048) == "plain"
    assert path(65536) == path(65536, CAUSAL) == "blocked"
    # what needs all weights, or draws on each of them, is left on the plain path
    assert path(65536, return_weights=True) == path(65536, dropout=lambda weights: weights) == "plain"
    # a chunk of 128 queries sees 384 keys
    assert path(512, WINDOW) == "plain"
    assert path(768, WINDOW) == path(65536, WINDOW, dropout=lambda weights: weights) == "banded"
    assert path(65536, AttentionMask(window=(128, None))) == "blocked"
    assert path(65536, AttentionMask(causal=True, block_size=64)) == "banded"
    # a prompt on its way into a cache has positions, which keep it from the banded path: 1 GiB of scores
    at = {"query_positions": np.arange(8192), "key_positions": np.arange(8192)}
    assert path(8192, AttentionMask(causal=True, window=(511, 0), **at), heads=4) == "blocked"
    assert path(8192, AttentionMask(causal=True, window=(7000, 0), **at), heads=4) == "plain"
    assert path(8192, AttentionMask(causal=True, **at), heads=4) == path(8192, CAUSAL, heads=4) == "plain"
    assert path(None) == path(None, CAUSAL) == "plain"
    assert path(None, WINDOW) == "banded"
    assert path(None, AttentionMask(window=(1000, 0))) == "banded"


def test_dropped_weights_are_not_all_held_on_an_accelerator(monkeypatch):
    def path(length):
        return choose_path(*tensors(length, batch=32, heads=12, key_value_heads=12), CAUSAL, dropout=Dropout(0.1)).path

    assert path(1024) == "plain" and path(4096) == "blocked"
    monkeypatch.setattr(dispatch, "has_accelerator", lambda: True)
    assert path(128) == "plain" and path(1024) == "blocked"


def test_a_window_that_no_sequence_is_much_longer_than_is_not_cut_into_chunks():
    # a chunk of 128 queries sees 384 keys, of causal ones 64 queries 192
    expected = "plain" if ON_TENSORFLOW else "auto"
    assert path_up_to(WINDOW, 767) == path_up_to(AttentionMask(causal=True, window=(128, 0)), 383) == expected
    assert path_up_to(WINDOW, 768) == path_up_to(AttentionMask(causal=True, window=(128, 0)), 384) == "auto"
    assert path_up_to(CAUSAL, 16) == path_up_to(AttentionMask(window=(128, None)), 16) == "auto"
    assert path_up_to(WINDOW, None) == "auto"


def test_the_reason_is_told():
    choice = choose_path(*tensors(4096), WINDOW)
    assert choice == ("banded", "a query sees few of the 4096 keys") and choice.reason == choice[1]
    assert choose_path(*tensors(10), path="blocked") == ("blocked", "asked for")


@pytest.mark.skipif(ON_TENSORFLOW, reason="TensorFlow has no fused kernel")
def test_fused_kernel_where_it_can(monkeypatch):
    if keras.backend.backend() == "jax":
        # that of a processor holds all scores, and is slower
        assert choose_path(*tensors(128)).path == choose_path(*tensors(128), CAUSAL).path == "plain"
        assert choose_path(*tensors(10), path="fused").path == "fused"
        monkeypatch.setattr(keras.distribution, "list_devices", lambda *arguments: ["gpu:0"])
    assert choose_path(*tensors(128)).path == choose_path(*tensors(128), CAUSAL).path == "fused"
    for name, value in {"soft_cap": 2.0, "sinks": np.zeros(8), "bias": np.zeros((1, 8, 10, 10))}.items():
        assert choose_path(*tensors(10), **{name: value}).path == "plain"
        with pytest.raises(ValueError, match=f"the fused kernel has no {name}"):
            choose_path(*tensors(10), path="fused", **{name: value})


@pytest.mark.sampled(2)
@pytest.mark.skipif(not ON_TENSORFLOW, reason="only TensorFlow traces with sizes that are not known")
@pytest.mark.parametrize(
    ("options", "lengths", "xla"),
    [
        ({"causal": True, "window": (60, 0)}, [(40, 40)], True),
        # shorter and longer than a chunk with its window
        ({"causal": True, "window": (60, 0)}, [(40, 40), (110, 110)], False),
        ({"window": (2, 1)}, [(1, 1), (40, 40)], False),
        ({"window": (9, 30)}, [(2, 30), (30, 2), (40, 90)], False),
        ({"block_size": 5}, [(7, 7), (70, 70)], False),
    ],
)
def test_windows_where_the_length_is_not_known(kernels, options, lengths, xla):
    """Values and gradients, which XLA compiles for each length, are those of the plain path."""
    import tensorflow as tf

    mask = AttentionMask(**options)
    slopes = tf.constant([0.3, 0.6, -0.2, 1.0])

    def run(query, key, value, slopes, path):
        bias = kernels.BiasOfDistance(4)
        bias.slopes = np.ones((4, 1, 1))
        options = {"sinks": slopes}
        if not xla:
            options |= {"bias": bias, "soft_cap": 3.0, "dropout": lambda weights: weights * 0.5}
        with tf.GradientTape() as tape:
            tape.watch([query, key, value, slopes])
            output = attend(query, key, value, mask, scale=0.5, path=path, **options)
            total = tf.reduce_sum(tf.sin(output))
        return [output, *tape.gradient(total, [query, key, value, slopes])]

    signature = [tf.TensorSpec((None, heads, None, 4)) for heads in (4, 2, 2)]
    compiled = tf.function(lambda *x: run(*x, slopes, "auto"), input_signature=signature, jit_compile=xla)
    for queries, keys in lengths:
        arrays = [tf.constant(kernels.normal(2, h, n, 4)) for h, n in ((4, queries), (2, keys), (2, keys))]
        for actual, expected in zip(compiled(*arrays), run(*arrays, slopes, "plain"), strict=True):
            np.testing.assert_allclose(actual, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.skipif(not ON_TENSORFLOW, reason="only TensorFlow traces with sizes that are not known")
def test_a_batch_of_unknown_size_is_not_one_row():
    def path(length, mask=None, **options):
        return choose_path(*tensors(length, batch=None), mask, **options).path

    assert path(128) == path(1024) == "plain"
    assert path(2048) == path(2048, CAUSAL) == "blocked"  # 32 rows, as `fit` takes by default, of 128 MiB
    assert path(2048, return_weights=True) == path(2048, dropout=lambda weights: weights) == "plain"
    reason = choose_path(*tensors(2048, batch=None)).reason
    assert reason == "the scores would take 4.0 GiB for 32 rows; the batch size is not known"


@pytest.mark.parametrize(
    "options", [{}, {"causal": True}, {"window": (2, 0)}, {"window": (400, 400)}, {"block_size": 3}]
)
@pytest.mark.parametrize("path", ["auto", "plain", "blocked", "banded"])
def test_functional_model_of_unknown_length(kernels, options, path):
    if path == "banded" and not {"window", "block_size"} & set(options):
        pytest.skip("this path needs a window or blocks")
    inputs, mask = keras.Input((None, 8)), keras.Input((None,), dtype="bool")
    layer = MultiHeadAttention(2, 4, path=path, **options)
    model = keras.Model([inputs, mask], layer(inputs, padding_mask=mask))
    x, padding = kernels.normal(2, 7, 8), np.array([[True] * 7, [True] * 3 + [False] * 4])
    expected = layer(x, padding_mask=padding)
    np.testing.assert_allclose(
        ops.convert_to_numpy(model([x, padding])), ops.convert_to_numpy(expected), atol=1e-5, rtol=1e-5
    )


def test_functional_model_of_unknown_batch_and_long_length(kernels):
    x = keras.Input((3000, 8))
    assert MultiHeadAttention(2, 4)(x).shape == MultiHeadAttention(2, 4, path="blocked")(x).shape == (None, 3000, 8)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (tensors(10), {"path": "quantum"}, r"path must be one of \('auto', 'plain', .*got 'quantum'"),
        ((keras.KerasTensor((2, 10, 4)), *tensors(10)[1:]), {}, r"query must have shape .*\(2, 10, 4\)"),
        ((tensors(10, dim=32)[0], *tensors(10)[1:]), {}, "query and key must have the same head_dim.*32 and 64"),
        (
            (*tensors(10)[:2], tensors(10, key_value_heads=4)[2]),
            {},
            "key and value must have the same number of heads.*8 and 4",
        ),
        (tensors(10, key_value_heads=3), {}, "heads of query must be a multiple of the heads of key.*8 and 3"),
        (
            tensors(10),
            {"path": "banded"},
            "path must be 'auto' or 'plain' where the mask has no window .* got 'banded'",
        ),
        (
            tensors(10),
            {"path": "banded", "mask": CAUSAL},
            "path must be 'auto' or 'plain' where the mask has no window .* got 'banded'",
        ),
        (
            tensors(10),
            {"path": "banded", "mask": WINDOW, "bias": np.zeros((1, 1, 10, 10))},
            "the bias does not say that it depends on the distance alone",
        ),
        (
            tensors(10),
            {"path": "blocked", "return_weights": True},
            "never holds all weights, and return_weights is set",
        ),
        (tensors(10), {"path": "blocked", "dropout": lambda weights: weights}, "dropout=.* no method by_block"),
    ],
)
def test_errors(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        choose_path(*arguments, **options)


@pytest.mark.skipif(not ON_TENSORFLOW, reason="the others have one")
def test_no_fused_kernel_on_tensorflow():
    with pytest.raises(ValueError, match="the tensorflow backend has no fused kernel"):
        choose_path(*tensors(10), path="fused")
