"""Memory of the attention paths, read off the sizes of all tensors in their graphs, loops included."""

import keras
import numpy as np
import pytest

from layers.attention import AttentionMask, attend

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="reads the graphs of TensorFlow, which has no fused kernel"
)

HEADS, DIM = 2, 8


def largest_tensor(length, path, mask, bias=None):
    """Entries of the largest tensor in the graph of a forward and backward pass."""
    import tensorflow as tf

    @tf.function(input_signature=[tf.TensorSpec((1, HEADS, length, DIM))] * 3)
    def gradients(query, key, value):
        with tf.GradientTape() as tape:
            tape.watch([query, key, value])
            output = attend(query, key, value, mask, scale=0.3, path=path, bias=bias)
            loss = tf.reduce_sum(output * output)
        return tape.gradient(loss, [query, key, value])

    graph = gradients.get_concrete_function().graph.as_graph_def(add_shapes=True)
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    sizes = [
        int(np.prod([axis.size for axis in shape.dim]))
        for node in nodes
        for shape in node.attr["_output_shapes"].list.shape
        if not shape.unknown_rank
    ]
    assert any(node.op == "StatelessWhile" or node.op == "While" for node in nodes) == (path == "blocked")
    return max(sizes)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("path", "mask", "power"),
    [
        ("plain", {}, 2),
        ("blocked", {}, 1),
        ("blocked", {"causal": True}, 1),
        ("blocked", {"causal": True, "window": (512, 0)}, 1),
        ("banded", {"causal": True, "window": (31, 0)}, 1),
        ("banded", {"block_size": 64}, 1),
    ],
)
def test_growth_with_the_length(path, mask, power):
    # long enough for the plain path to have all of its runs of queries and for the blocks to have their full length
    sizes = [largest_tensor(length, path, AttentionMask(**mask)) for length in (16384, 32768)]
    if power == 2:
        assert sizes[1] / sizes[0] == pytest.approx(4, rel=0.01)
    else:
        # not at all while a block of scores is the largest tensor
        assert sizes[1] / sizes[0] <= 2.02
        assert sizes[1] < HEADS * 32768**2 / 100


def test_a_bias_of_the_distance_is_never_a_matrix(kernels):
    sizes = [
        largest_tensor(length, "blocked", AttentionMask(causal=True), kernels.BiasOfDistance(HEADS))
        for length in (16384, 32768)
    ]
    assert sizes[1] / sizes[0] <= 2.02 and sizes[1] < HEADS * 32768**2 / 100
