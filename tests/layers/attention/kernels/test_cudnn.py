"""What cuDNN is asked for on a GPU, read where there is none."""

import keras
import numpy as np
import pytest

if keras.backend.backend() != "jax":
    pytest.skip("the kernels of cuDNN are called by JAX", allow_module_level=True)

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from without_gpu import believe_in_cudnn, compute_by_xla, squares_in  # noqa: E402

from layers.attention import AttentionMask, MultiHeadAttention, attend, choose_path  # noqa: E402
from layers.attention.kernels import fused  # noqa: E402
from layers.dropout import Dropout, WeightDropout  # noqa: E402

pytestmark = pytest.mark.backends
LENGTH = 96
LENGTHS = np.array([96, 40], "int32")
REAL = np.arange(LENGTH) < LENGTHS[:, None]
SEGMENTS = np.repeat(np.arange(6), 16)[None].repeat(2, 0)
# by what the mask says: what the kernel is told
MASKS = {
    "none": ({}, {}),
    "causal": ({"causal": True}, {"is_causal": True}),
    "window": ({"causal": True, "window": (7, 0)}, {"is_causal": True, "local_window_size": (7, 0)}),
    "causal lengths": ({"causal": True, "key_lengths": LENGTHS}, {"is_causal": True}),
    "window lengths": (
        {"causal": True, "window": (7, 0), "key_lengths": LENGTHS},
        {"is_causal": True, "local_window_size": (7, 0)},
    ),
    "lengths": ({"key_lengths": LENGTHS}, {"key_value_seq_lengths": LENGTHS}),
}
# what it has no words for, which is a tensor of this shape
TENSORS = {
    "padding": ({"key_padding_mask": REAL}, (2, 1, LENGTH, LENGTH)),
    "segments": ({"query_segment_ids": SEGMENTS, "key_segment_ids": SEGMENTS}, (2, 1, LENGTH, LENGTH)),
    "causal segments": (
        {"causal": True, "query_segment_ids": SEGMENTS, "key_segment_ids": SEGMENTS},
        (2, 1, LENGTH, LENGTH),
    ),
    "prefix": ({"causal": True, "prefix_length": LENGTHS // 2}, (2, 1, LENGTH, LENGTH)),
}


def tensors(dtype="bfloat16", heads=4, key_value_heads=2, length=LENGTH, dim=16):
    generator = np.random.default_rng(0)
    return [
        jnp.asarray(generator.normal(size=(2, each, length, dim)), dtype) for each in (heads, *[key_value_heads] * 2)
    ]


def loss(mask, **options):
    def run(query, key, value):
        output = attend(query, key, value, mask, scale=0.25, **options).astype("float32")
        # what stands at padding has no meaning
        return (output * REAL[:, None, :, None] * jnp.cos(jnp.arange(output.size).reshape(output.shape))).sum()

    return run


@pytest.mark.parametrize("name", [*MASKS, *TENSORS])
def test_what_it_is_told_and_what_comes_out(name, monkeypatch):
    facts = MASKS.get(name) or TENSORS[name]
    mask = AttentionMask(**facts[0])
    inputs = tensors("float32")
    expected = jax.value_and_grad(loss(mask, path="plain"), (0, 1, 2))(*inputs)
    asked = compute_by_xla(monkeypatch)
    result = jax.value_and_grad(loss(mask, path="fused"), (0, 1, 2))(*inputs)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=2e-4, atol=2e-5), result, expected)
    (told,) = asked
    assert told.pop("scale") == 0.25
    if name in MASKS:
        lengths = facts[1].get("key_value_seq_lengths")
        np.testing.assert_array_equal(told.pop("key_value_seq_lengths", None), lengths)
        assert told == {key: value for key, value in facts[1].items() if key != "key_value_seq_lengths"}
    else:
        assert told.pop("mask").shape == facts[1] and not told


def test_a_row_without_any_token(monkeypatch):
    compute_by_xla(monkeypatch)
    mask = AttentionMask(key_lengths=np.array([0, 5], "int32"))
    output = attend(*tensors("float32"), mask, scale=0.25)
    assert np.all(output[0] == 0) and np.all(np.isfinite(output)) and np.any(output[1] != 0)
    gradients = jax.grad(lambda *x: attend(*x, mask, scale=0.25).sum(), (0, 1, 2))(*tensors("float32"))
    assert all(np.all(np.isfinite(each)) and np.all(np.asarray(each[0]) == 0) for each in gradients)


def test_lengths_of_a_memory_count_with_the_causal_order(monkeypatch):
    """Queries may go on behind the end of the memory, whose padding the order does not hide from them."""
    generator = np.random.default_rng(0)
    inputs, memory = generator.normal(size=(2, 2, 6, 16)).astype("float32")
    layer, lengths = MultiHeadAttention(2, 8, causal=True), np.array([2, 5], "int32")
    expected = layer(inputs, memory, padding_mask=np.arange(6) < lengths[:, None])
    asked = compute_by_xla(monkeypatch)
    np.testing.assert_allclose(layer(inputs, memory, lengths=lengths), expected, atol=1e-5)
    assert len(asked) == 1


@pytest.mark.parametrize("name", MASKS)
def test_no_tensor_of_all_pairs(name, monkeypatch):
    believe_in_cudnn(monkeypatch)
    mask = AttentionMask(**MASKS[name][0])
    program = jax.make_jaxpr(jax.grad(loss(mask), (0, 1, 2)))(*tensors())
    assert "dot_product_attention_fwd" in str(program) and "dot_product_attention_bwd" in str(program)
    assert squares_in(program, LENGTH) == []


@pytest.mark.parametrize("name", [*MASKS, *TENSORS])
def test_no_tensor_of_all_pairs_where_weights_are_dropped(name, monkeypatch):
    """cuDNN takes the seed of its dropout when a program is compiled, so weights are dropped in blocks."""
    believe_in_cudnn(monkeypatch)
    length = 2200
    options = dict((MASKS.get(name) or TENSORS[name])[0])
    for each in ("key_padding_mask", "query_segment_ids", "key_segment_ids"):
        if each in options:
            options[each] = np.resize(options[each], (2, length))
    mask, inputs = AttentionMask(**options), tensors(length=length)

    def run(*inputs):
        dropout = WeightDropout(Dropout(0.1, seed=1))
        return attend(*inputs, mask, scale=0.25, dropout=dropout).astype("float32").sum()

    assert squares_in(jax.make_jaxpr(jax.grad(run, (0, 1, 2)))(*inputs), length) == []


def test_a_large_mask_is_computed_in_blocks(monkeypatch):
    believe_in_cudnn(monkeypatch)
    mask = AttentionMask(**TENSORS["causal segments"][0])
    path, reason = choose_path(*tensors(), mask)
    assert path == "fused" and "cuDNN" in reason and "tensor" in reason
    monkeypatch.setattr(fused, "MOST_MASK_BYTES", 2 * 2 * LENGTH**2 - 1)
    monkeypatch.setattr("layers.attention.kernels.dispatch.MOST_MASK_BYTES", 2 * 2 * LENGTH**2 - 1)
    assert choose_path(*tensors(), mask).path == "blocked"
    with pytest.raises(ValueError, match="takes this mask as a tensor, which would have 0 MiB"):
        choose_path(*tensors(), mask, path="fused")
    path, reason = choose_path(*tensors(), AttentionMask(causal=True, window=(4, 0)))
    assert path == "fused" and "cuDNN" in reason and "causal order and window" in reason


@pytest.mark.parametrize(
    ("options", "mask", "reason"),
    [
        ({"dtype": "float32"}, {}, "computes in float16 and bfloat16, not in float32"),
        ({"dim": 12}, {}, "multiple of 8 up to 256, not 12"),
        ({"dim": 264}, {}, "multiple of 8 up to 256, not 264"),
        ({"length": 95}, {"window": (3, None)}, r"even numbers of queries and keys only, not for \(95, 95\)"),
    ],
)
def test_what_it_does_not_take(options, mask, reason, monkeypatch):
    believe_in_cudnn(monkeypatch)
    assert choose_path(*tensors(**options), AttentionMask(**mask)).path == "plain"
    with pytest.raises(ValueError, match=reason):
        choose_path(*tensors(**options), AttentionMask(**mask), path="fused")


def test_long_windows_without_a_word_are_cut_into_bands(monkeypatch):
    believe_in_cudnn(monkeypatch)
    long = [keras.KerasTensor((2, 4, 4096, 64), "bfloat16")] * 3
    assert choose_path(*long, AttentionMask(window=(64, 64))).path == "banded"
    assert choose_path(*long, AttentionMask(window=(64, 0), causal=True)).path == "fused"
    assert choose_path(*long, AttentionMask(window=(64, 64), key_lengths=LENGTHS)).path == "banded"
