"""Scores in pieces against formulas written in NumPy (float64); run with KERAS_BACKEND=jax or torch too."""

import keras
import numpy as np
import pytest
from keras import ops

from zoo.backbones.output_map import OutputMap
from zoo.training import Perplexity, TokenAccuracy, TokenCount, TokenCrossEntropy, TokenNegativeLogLikelihood
from zoo.training import vocabulary_pieces as pieces
from zoo.training.token_scores import Scoring, TokenTargets

pytestmark = pytest.mark.backends

BATCH, LENGTH, DIM, VOCABULARY = 3, 7, 4, 11
BACKEND = keras.backend.backend()
MAPS = {
    "kernel": {},
    "bias": {"bias": True},
    "soft cap, scale": {"bias": True, "soft_cap": 1.5, "scale": 0.7},
    "frozen": {"bias": True, "trains": False},
}


@pytest.fixture(autouse=True)
def tokens_of_pieces(monkeypatch):
    """Pieces of any number of tokens."""
    monkeypatch.setattr(pieces, "LEAST_TOKENS_AT_A_TIME", 1)


def problem(seed=0):
    generator = np.random.default_rng(seed)
    vectors = generator.normal(size=(BATCH, LENGTH, DIM))
    kernel, bias = generator.normal(size=(VOCABULARY, DIM)), generator.normal(size=VOCABULARY)
    labels = generator.integers(0, VOCABULARY, (BATCH, LENGTH))
    weights = generator.random((BATCH, LENGTH)) * (generator.random((BATCH, LENGTH)) > 0.3)
    return [x.astype("float32") for x in (vectors, kernel, bias)], labels.astype("int32"), weights.astype("float32")


def expected(tensors, labels, weights, smoothing, *, bias=False, soft_cap=None, scale=1.0, trains=True):
    """Mean loss, log-likelihoods, hits, and gradients by vectors, kernel and bias, by the textbook's formulas."""
    vectors, kernel, offset = (x.astype("float64") for x in tensors)
    z = scale * vectors @ kernel.T + (offset if bias else 0)
    slope = np.ones_like(z)
    if soft_cap is not None:
        slope = 1 / np.cosh(z / soft_cap) ** 2
        z = soft_cap * np.tanh(z / soft_cap)
    log_probabilities = z - np.log(np.exp(z).sum(-1, keepdims=True))
    target = np.eye(VOCABULARY)[labels] * (1 - smoothing) + smoothing / VOCABULARY
    share = weights / np.count_nonzero(weights)
    by_z = (np.exp(log_probabilities) - target) * share[..., None] * slope
    return {
        "loss": -((target * log_probabilities).sum(-1) * share).sum(),
        "log_likelihoods": np.take_along_axis(log_probabilities, labels[..., None], -1)[..., 0],
        "hits": (z.argmax(-1) == labels).astype("float64"),
        "vectors": scale * by_z @ kernel,
        "kernel": scale * np.einsum("blv,bld->vd", by_z, vectors) if trains else None,
        "bias": by_z.sum((0, 1)) if bias and trains else None,
    }


def value_and_gradients(function, tensors):
    """Value of a scalar function and its gradients by a list of tensors; None where there is none."""
    tensors = [ops.convert_to_tensor(tensor) for tensor in tensors]
    if BACKEND == "jax":
        import jax

        return jax.value_and_grad(lambda values: function(*values))(tensors)
    if BACKEND == "torch":
        tensors = [tensor.clone().requires_grad_() for tensor in tensors]
        value = function(*tensors)
        value.backward()
        return value.detach(), [tensor.grad for tensor in tensors]
    import tensorflow as tf

    with tf.GradientTape() as tape:
        tape.watch(tensors)
        value = function(*tensors)
    return value, tape.gradient(value, tensors)


def compiled(function, jit_compile=False):
    if BACKEND == "jax":
        import jax

        return jax.jit(function)
    if BACKEND == "torch":
        return function
    import tensorflow as tf

    return tf.function(function, jit_compile=jit_compile, autograph=False)


def mean_loss(labels, weights, smoothing=0.0, *, bias=False, soft_cap=None, scale=None, trains=True):
    """The loss as a function of vectors, kernel and bias; its second result are the scores."""

    def scored(vectors, kernel, offset):
        output_map = OutputMap(kernel, offset if bias else None, scale, soft_cap, trains)
        scoring = Scoring(smoothing, with_hits=True)
        scores = pieces.score_in_pieces(vectors, output_map, TokenTargets(labels, weights), scoring, with_gradient=True)
        return TokenCrossEntropy(smoothing)(labels, scores, sample_weight=weights), scores

    return scored


@pytest.mark.sampled(6)
@pytest.mark.parametrize("limit", [1, 30, 44, 10**6])  # a token, 2, 4 and all tokens in a piece: 21, 11, 6 and 1 pieces
@pytest.mark.parametrize("choices", MAPS.values(), ids=MAPS)
def test_losses_scores_and_gradients(monkeypatch, limit, choices):
    monkeypatch.setattr(pieces, "LOGITS_AT_A_TIME", limit)
    tensors, labels, weights = problem()
    right = expected(tensors, labels, weights, 0.1, **choices)
    scored = mean_loss(labels, weights, 0.1, **choices)
    loss, gradients = value_and_gradients(lambda *values: scored(*values)[0], tensors)
    _, scores = scored(*map(ops.convert_to_tensor, tensors))
    np.testing.assert_allclose(ops.convert_to_numpy(loss), right["loss"], rtol=1e-6)
    for name in ("log_likelihoods", "hits"):
        values = ops.convert_to_numpy(ops.stop_gradient(getattr(scores, name)))
        np.testing.assert_allclose(values, right[name], rtol=1e-5, atol=1e-6)
    for name, gradient in zip(("vectors", "kernel", "bias"), gradients, strict=True):
        if right[name] is None:
            assert gradient is None or not ops.convert_to_numpy(gradient).any()
        else:
            np.testing.assert_allclose(ops.convert_to_numpy(gradient), right[name], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("memory", [None, 64 * 4 * 40, 10**9])  # 2, 4 and all tokens in a piece
def test_the_memory_of_an_accelerator_says_how_many_tokens_a_piece_has(monkeypatch, memory):
    monkeypatch.setattr(pieces, "memory_of_accelerator", lambda: memory)
    test_losses_scores_and_gradients(monkeypatch, 30, MAPS["soft cap, scale"])


def test_few_pieces_on_an_accelerator(monkeypatch):
    """GPT-2 small, 32 rows of 1,024 tokens on a GPU of 80 GB: 128 pieces took a fifth of a step."""
    monkeypatch.setattr(pieces, "LEAST_TOKENS_AT_A_TIME", 256)
    assert -(-32 * 1024 // pieces.tokens_at_a_time(50257)) == 128
    assert -(-32 * 1024 // pieces.tokens_at_a_time(50257, 80e9)) == 6
    # logits of a piece, in float32 and several copies, take little of a small memory
    for memory in (4e9, 24e9, 141e9):
        assert 4 * 50257 * pieces.tokens_at_a_time(50257, memory) <= memory / 16


@pytest.mark.skipif(BACKEND != "jax", reason="elsewhere no devices have parts of a batch")
@pytest.mark.parametrize("limit", [1, 44, 10**6])  # of 7 tokens one, four and all in a piece
def test_pieces_of_each_part_of_a_batch(monkeypatch, limit):
    monkeypatch.setattr(pieces, "batch_parts", lambda rows: BATCH)
    test_losses_scores_and_gradients(monkeypatch, limit, MAPS["soft cap, scale"])
    test_losses_scores_and_gradients(monkeypatch, limit, MAPS["frozen"])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_compiled(monkeypatch, jit_compile, smoothing):
    monkeypatch.setattr(pieces, "LOGITS_AT_A_TIME", 44)
    tensors, labels, weights = problem(1)
    right = expected(tensors, labels, weights, smoothing, bias=True)
    scored = mean_loss(labels, weights, smoothing, bias=True)
    function = compiled(lambda *values: value_and_gradients(lambda *v: scored(*v)[0], values), jit_compile)
    loss, gradients = function(*map(ops.convert_to_tensor, tensors))
    np.testing.assert_allclose(ops.convert_to_numpy(loss), right["loss"], rtol=1e-6)
    for name, gradient in zip(("vectors", "kernel", "bias"), gradients, strict=True):
        np.testing.assert_allclose(ops.convert_to_numpy(gradient), right[name], rtol=1e-5, atol=1e-7)


def test_products_in_half_precision_and_sums_in_float32(monkeypatch):
    monkeypatch.setattr(pieces, "LOGITS_AT_A_TIME", 44)
    tensors, labels, weights = problem(2)
    halves = [ops.cast(tensor, "bfloat16") for tensor in tensors[:2]]
    rounded = [*(ops.convert_to_numpy(ops.cast(half, "float32")) for half in halves), tensors[2]]
    right = expected(rounded, labels, weights, 0.1, bias=True)
    scored = mean_loss(labels, weights, 0.1, bias=True)
    loss, gradients = value_and_gradients(lambda *values: scored(*values)[0], [*halves, tensors[2]])
    assert ops.dtype(loss) == "float32"
    # eight bits: 0.4 % of logits up to 5
    np.testing.assert_allclose(ops.convert_to_numpy(loss), right["loss"], rtol=0.01)
    for name, gradient in zip(("vectors", "kernel", "bias"), gradients, strict=True):
        assert ops.dtype(gradient) == ("float32" if name == "bias" else "bfloat16")
        gradient = ops.convert_to_numpy(ops.cast(gradient, "float32"))
        np.testing.assert_allclose(gradient, right[name], atol=0.02 * np.abs(right[name]).max())


@pytest.mark.sampled(3)
@pytest.mark.parametrize("reduction", ["sum", "mean", "sum_over_batch_size", "mean_with_sample_weight"])
@pytest.mark.parametrize("with_weights", [False, True])
def test_reductions(reduction, with_weights):
    tensors, labels, weights = problem(3)
    weights = weights if with_weights else None
    vectors, kernel, _ = map(ops.convert_to_tensor, tensors)
    output_map = OutputMap(kernel, None, None, None, trains=True)
    targets = TokenTargets(labels, weights)
    scores = pieces.score_in_pieces(vectors, output_map, targets, Scoring(0.0, True), with_gradient=False)
    theirs = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=reduction)
    logits = (tensors[0] @ tensors[1].T).astype("float32")
    is_mean = reduction in ("mean", "sum_over_batch_size")
    right = theirs(labels, logits, sample_weight=weights) * (
        weights.size / np.count_nonzero(weights) if with_weights and is_mean else 1.0
    )
    ours = TokenCrossEntropy(reduction=reduction)(labels, scores, sample_weight=weights)
    np.testing.assert_allclose(ops.convert_to_numpy(ours), ops.convert_to_numpy(right), rtol=1e-6)


def test_metrics_take_scores():
    tensors, labels, weights = problem(4)
    right = expected(tensors, labels, weights, 0.0)
    vectors, kernel, _ = map(ops.convert_to_tensor, tensors)
    output_map = OutputMap(kernel, None, None, None, trains=True)
    scores = pieces.score_in_pieces(
        vectors, output_map, TokenTargets(labels, weights), Scoring(0.0, True), with_gradient=False
    )
    nll = -(right["log_likelihoods"] * weights).sum() / weights.sum()
    wanted = [
        (TokenNegativeLogLikelihood(), nll),
        (Perplexity(), np.exp(nll)),
        (TokenAccuracy(), (right["hits"] * weights).sum() / weights.sum()),
        (TokenCount(), weights.sum()),
    ]
    for metric, value in wanted:
        metric.update_state(labels, scores, sample_weight=weights)
        assert float(metric.result()) == pytest.approx(value, rel=1e-5), metric.name


def test_label_out_of_range():
    tensors, labels, weights = problem(5)
    labels[1, 2] = VOCABULARY
    scored = mean_loss(labels, weights)
    with pytest.raises(ValueError, match=r"labels from 0 to 10.*to 11"):
        scored(*map(ops.convert_to_tensor, tensors))
    if BACKEND == "torch":
        return
    function = compiled(lambda labels, *values: mean_loss(labels, weights)(*values)[0])
    assert np.isnan(ops.convert_to_numpy(function(*map(ops.convert_to_tensor, (labels, *tensors)))))


@pytest.mark.sampled(2)
@pytest.mark.skipif(BACKEND != "tensorflow", reason="elsewhere shapes are known")
@pytest.mark.parametrize("limit", [44, 10**6])  # several pieces; one
@pytest.mark.parametrize("jit_compile", [False, True])
def test_numbers_of_tokens_that_are_not_known(monkeypatch, jit_compile, limit):
    import tensorflow as tf

    monkeypatch.setattr(pieces, "LOGITS_AT_A_TIME", limit)
    tensors, labels, weights = problem(6)
    shapes = [(None, None, DIM), (VOCABULARY, DIM), (VOCABULARY,), (None, None), (None, None)]
    kinds = ["float32", "float32", "float32", "int32", "float32"]
    signature = [tf.TensorSpec(*spec) for spec in zip(shapes, kinds, strict=True)]

    @tf.function(input_signature=signature, jit_compile=jit_compile)
    def function(vectors, kernel, bias, labels, weights):
        scored = mean_loss(labels, weights, bias=True)
        return value_and_gradients(lambda *values: scored(*values)[0], [vectors, kernel, bias])

    for rows in (3, 1):
        given = [tensors[0][:rows], *tensors[1:], labels[:rows], weights[:rows]]
        loss, gradients = function(*map(tf.constant, given))
        right = expected([given[0], *tensors[1:]], *given[3:], 0.0, bias=True)
        np.testing.assert_allclose(loss, right["loss"], rtol=1e-6)
        for name, gradient in zip(("vectors", "kernel", "bias"), gradients, strict=True):
            np.testing.assert_allclose(gradient, right[name], rtol=1e-5, atol=1e-7)
    # a batch without tokens
    empty = [tensors[0][:0], *tensors[1:], labels[:0], weights[:0]]
    if not jit_compile:
        assert float(function(*map(tf.constant, empty))[0]) == 0
