"""`fit` and `evaluate` of tasks that predict tokens without all logits at a time; run with KERAS_BACKEND=jax too."""

import keras
import numpy as np
import pytest
from keras import ops

from zoo import (
    AttentionConfig,
    Backbone,
    EmbeddingConfig,
    FeedForwardConfig,
    NormConfig,
    RecurrentConfig,
    Transformer,
    TransformerConfig,
)
from zoo.backbones.output_map import OutputMap
from zoo.tasks import CausalLM, MaskedLM, Seq2SeqLM
from zoo.training import Perplexity, TokenAccuracy, TokenCount, TokenCrossEntropy, TokenNegativeLogLikelihood
from zoo.training import vocabulary_pieces as pieces
from zoo.training.token_scores import TokenScores

pytestmark = pytest.mark.backends

BACKEND = keras.backend.backend()
BATCH, LENGTH, VOCABULARY = 4, 6, 61
# two tokens of 24 in a piece
SMALL = 2 * VOCABULARY
LOGITS = BATCH * LENGTH * VOCABULARY
EMBEDDINGS = {
    "tied": EmbeddingConfig(),
    "tied with bias": EmbeddingConfig(output_bias=True),
    "untied": EmbeddingConfig(tie_output=False),
    "untied with bias": EmbeddingConfig(tie_output=False, output_bias=True),
    "soft cap and scale": EmbeddingConfig(output_scale=0.5, logit_soft_cap=2.0),
    "factor": EmbeddingConfig(factor_dim=4),
}


def make(task_class=CausalLM, embedding="tied", *, remat=False):
    keras.utils.set_random_seed(3)
    architecture = task_class.architectures[0]
    config = TransformerConfig(
        architecture,
        vocabulary_size=VOCABULARY,
        hidden_dim=8,
        num_layers=1,
        max_length=12,
        attention=AttentionConfig(2),
        feed_forward=FeedForwardConfig(12),
        norm=NormConfig(placement="pre"),
        embedding=EMBEDDINGS[embedding],
        dropout=0.0,
        remat=remat,
    )
    return randomized(task_class(Backbone.from_config(config)))


def randomized(task):
    generator = np.random.default_rng(7)
    for weight in task.weights:
        if keras.backend.is_float_dtype(weight.dtype):
            weight.assign(weight + ops.cast(generator.normal(0, 0.4, weight.shape), weight.dtype))
    return task


def recurrent():
    keras.utils.set_random_seed(3)
    config = RecurrentConfig(vocabulary_size=VOCABULARY, embedding_dim=8, hidden_dim=8, dropout=0.0)
    return randomized(Seq2SeqLM(Backbone.from_config(config)))


def batch(task):
    generator = np.random.default_rng(5)
    ids, labels = (generator.integers(1, VOCABULARY, (BATCH, LENGTH)).astype("int32") for _ in range(2))
    mask = np.arange(LENGTH) < np.array([[6], [3], [5], [1]])
    weights = mask * generator.random((BATCH, LENGTH))
    inputs = {"token_ids": ids, "padding_mask": mask}
    if isinstance(task, Seq2SeqLM):
        inputs = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in inputs.items()}
    return inputs, labels, weights.astype("float32")


def run(task, loss, metrics=(), *, validate=False, weight=1.0, **options):
    """The logs of two epochs of two steps, and the weights behind them; all tokens weigh `weight` times as much."""
    inputs, labels, weights = batch(task)
    weights = weights * np.float32(weight)
    task.compile(keras.optimizers.SGD(0.5), loss, weighted_metrics=[*metrics], **options)
    held_out = {"validation_data": (inputs, labels, weights)} if validate else {}
    data = {"sample_weight": weights, "shuffle": False, "verbose": 0, **held_out}
    logs = task.fit(inputs, labels, batch_size=2, epochs=2, **data).history
    return logs, [ops.convert_to_numpy(weight) for weight in task.weights]


def keras_loss():
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


# float32: four steps at a rate of 0.5 from a loss of 5, with sums of another order. Two programs of XLA on JAX differ
# by up to 3e-6 in weights of 0.2 with AVX-512 and by up to 1e-5 with SSE 4.2 (`--xla_cpu_max_isa` chooses).
def assert_same(ours, theirs, rtol=1e-5, atol=2e-5):
    for name in theirs[0]:
        np.testing.assert_allclose(ours[0][name], theirs[0][name], rtol=rtol, err_msg=name)
    for a, b in zip(ours[1], theirs[1], strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)


@pytest.fixture
def scored(monkeypatch):
    """Pieces of two tokens; a list that gets an entry for each program that computes scores in pieces."""
    monkeypatch.setattr(pieces, "LOGITS_AT_A_TIME", SMALL)
    monkeypatch.setattr(pieces, "LEAST_TOKENS_AT_A_TIME", 1)
    calls = []
    from zoo.tasks import token_head

    def counted(*arguments, **options):
        calls.append(options)
        return pieces.score_in_pieces(*arguments, **options)

    monkeypatch.setattr(token_head, "score_in_pieces", counted)
    return calls


@pytest.mark.parametrize("make_task", [make, lambda: make(MaskedLM), lambda: make(Seq2SeqLM), recurrent])
def test_fit_as_with_the_cross_entropy_of_keras(scored, make_task):
    theirs = run(make_task(), keras_loss(), validate=True)
    assert not scored
    ours = run(make_task(), TokenCrossEntropy(), validate=True)
    assert scored
    assert_same(ours, theirs)


@pytest.mark.parametrize("embedding", [name for name in EMBEDDINGS if name != "tied"])
def test_heads(scored, embedding):
    theirs = run(make(embedding=embedding), keras_loss())
    ours = run(make(embedding=embedding), TokenCrossEntropy())
    assert scored
    assert_same(ours, theirs)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="XLA is an option there alone")
def test_fit_with_xla(scored):
    assert_same(run(make(), TokenCrossEntropy(), jit_compile=True), run(make(), keras_loss(), jit_compile=True))
    assert scored


def test_fit_step_by_step(scored):
    assert_same(run(make(), TokenCrossEntropy(), run_eagerly=True), run(make(), keras_loss()))
    assert scored


# JAX has no products of float16 on a processor
@pytest.mark.parametrize("policy", ["mixed_bfloat16", *(["mixed_float16"] if BACKEND == "tensorflow" else [])])
def test_half_precision(scored, policy):
    keras.config.set_dtype_policy(policy)
    try:
        theirs = run(make(embedding="untied with bias"), keras_loss())
        ours = run(make(embedding="untied with bias"), TokenCrossEntropy())
    finally:
        keras.config.set_dtype_policy("float32")
    assert scored
    # eight bits of gradients up to 1, four steps at a rate of 0.5
    assert_same(ours, theirs, rtol=0.02, atol=0.03)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="no products of float16 on a processor")
@pytest.mark.parametrize("weight", [1e-6, 1e5])
def test_size_of_weights_in_float16(scored, weight):
    """A loss that divides by the weights: their size changes nothing, also where float16 does not hold it."""
    keras.config.set_dtype_policy("mixed_float16")
    reduction = "mean_with_sample_weight"
    try:
        theirs = run(make(), keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=reduction))
        ours = run(make(), TokenCrossEntropy(reduction=reduction), weight=weight)
    finally:
        keras.config.set_dtype_policy("float32")
    assert scored
    assert_same(ours, theirs, rtol=0.01, atol=0.01)


def test_blocks_that_are_computed_again(scored):
    theirs = run(make(remat=True), keras_loss())
    ours = run(make(remat=True), TokenCrossEntropy())
    assert scored
    assert_same(ours, theirs)


class Smoothed(keras.losses.Loss):
    def call(self, y_true, y_pred):
        target = ops.one_hot(ops.cast(y_true, "int32"), VOCABULARY)
        return keras.losses.categorical_crossentropy(target, y_pred, from_logits=True, label_smoothing=0.2)


def test_label_smoothing(scored):
    theirs = run(make(), Smoothed())
    ours = run(make(), TokenCrossEntropy(0.2))
    assert scored
    assert_same(ours, theirs)


def test_metrics_are_those_of_the_logits(scored):
    task = make()
    metrics = [TokenNegativeLogLikelihood(), Perplexity(), TokenAccuracy(), TokenCount()]
    task.compile(loss=TokenCrossEntropy(0.2), weighted_metrics=metrics, metrics=[TokenAccuracy("unweighted")])
    inputs, labels, weights = batch(task)
    found = task.evaluate(inputs, labels, sample_weight=weights, batch_size=2, return_dict=True, verbose=0)
    assert [options["with_gradient"] for options in scored] == [False] * len(scored) != []
    logits = task.predict(inputs, verbose=0)
    assert logits.shape == (BATCH, LENGTH, VOCABULARY)
    log_probabilities = logits - np.log(np.exp(logits.astype("float64")).sum(-1, keepdims=True))
    nll = np.average(-np.take_along_axis(log_probabilities, labels[..., None], -1)[..., 0], weights=weights)
    hits = logits.argmax(-1) == labels
    wanted = {
        "negative_log_likelihood": nll,
        "perplexity": np.exp(nll),
        "token_accuracy": np.average(hits, weights=weights),
        "tokens": weights.sum(),
        "unweighted": hits.mean(),
    }
    for name, value in wanted.items():
        assert found[name] == pytest.approx(value, rel=1e-5), name


def sizes_of_program(task, data):
    """Numbers of entries of all tensors in the program of a training step, loops included."""
    if BACKEND == "jax":
        import jax

        task.optimizer.build(task.trainable_variables)
        task._symbolic_build(data_batch=data)
        groups = (task.trainable_variables, task.non_trainable_variables, task.optimizer.variables)
        state = tuple([variable.value for variable in group] for group in (*groups, task.metrics_variables))
        return set(_sizes_of_jaxpr(jax.make_jaxpr(task.train_step)(state, data).jaxpr))
    import tensorflow as tf

    task.optimizer.build(task.trainable_variables)
    step = tf.function(task.train_step, autograph=False)
    graph = step.get_concrete_function(keras.tree.map_structure(tf.constant, data)).graph.as_graph_def(add_shapes=True)
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    return {
        int(np.prod([axis.size for axis in shape.dim]))
        for node in nodes
        for shape in node.attr["_output_shapes"].list.shape
        if not shape.unknown_rank
    }


def _sizes_of_jaxpr(jaxpr):
    for equation in jaxpr.eqns:
        yield from (int(np.prod(variable.aval.shape)) for variable in equation.outvars)
        for part in keras.tree.flatten([*equation.params.values()]):
            inner = getattr(part, "jaxpr", part)
            if hasattr(inner, "eqns"):
                yield from _sizes_of_jaxpr(inner)


@pytest.mark.skipif(BACKEND == "torch", reason="there are no programs")
@pytest.mark.parametrize("task_class", [CausalLM, MaskedLM, Seq2SeqLM])
def test_no_tensor_holds_all_logits(scored, task_class):
    largest = {}
    for loss in (keras_loss(), TokenCrossEntropy(0.1)):
        task = make(task_class)
        task.compile("sgd", loss, weighted_metrics=[TokenAccuracy(), Perplexity()])
        sizes = sizes_of_program(task, batch(task))
        largest[type(loss)] = LOGITS in sizes
        # nor anything else that grows with both; weights of the optimizer and of the model are smaller
        assert (max(sizes) >= LOGITS) == largest[type(loss)]
    assert list(largest.values()) == [True, False]


class Doubled(CausalLM):
    def call(self, inputs, training=None):
        return 2.0 * super().call(inputs, training)


class OwnLoss(TokenCrossEntropy):
    def call(self, y_true, y_pred):
        return super().call(y_true, 2.0 * y_pred)


class OwnMetric(Perplexity):
    def update_state(self, y_true, y_pred, sample_weight=None):
        super().update_state(y_true, 2.0 * y_pred, sample_weight)


@pytest.mark.parametrize(
    ("task_class", "loss", "metrics"),
    [
        (Doubled, TokenCrossEntropy(), []),
        (CausalLM, OwnLoss(), []),
        (CausalLM, TokenCrossEntropy(), [OwnMetric()]),
        (CausalLM, TokenCrossEntropy(), [keras.metrics.SparseTopKCategoricalAccuracy(3)]),
        (CausalLM, "sparse_categorical_crossentropy", [TokenAccuracy()]),
        (CausalLM, [TokenCrossEntropy()], []),
    ],
)
def test_all_else_sees_logits(scored, task_class, loss, metrics):
    logs, _ = run(make(task_class), loss, metrics)
    assert not scored and np.isfinite(logs["loss"]).all()


class Halved(Transformer):
    """Halves the logits, and says nothing of a map."""

    def score(self, vectors):
        return 0.5 * super().score(vectors)


class Mapped(Halved):
    """Says what its logits are, too."""

    def output_map(self):
        return OutputMap.of_layer(self.token_embedding.table, scale=0.5)


@pytest.mark.parametrize("backbone_class", [Halved, type("Mixed", (Halved, Transformer), {}), Mapped])
def test_backbones_with_logits_of_their_own(scored, backbone_class):
    def make_own():
        return randomized(CausalLM(backbone_class(make().backbone.config)))

    theirs = run(make_own(), keras_loss())
    ours = run(make_own(), TokenCrossEntropy())
    assert bool(scored) == (backbone_class is Mapped)
    assert_same(ours, theirs)


def test_a_step_leaves_nothing_behind(scored):
    task = make()
    run(task, TokenCrossEntropy())
    inputs, labels, _ = batch(task)
    assert not isinstance(task(inputs), TokenScores)
    task.compile(loss=keras_loss())
    del scored[:]
    task.train_on_batch(inputs, labels)
    assert not scored


def adapted(dropout=0.0):
    task = make(embedding="untied")
    projection = task.backbone.output_projection
    projection.add_update("default", rank=2, dropout=dropout)
    task.backbone.token_embedding.trainable = False
    generator = np.random.default_rng(0)
    for weight in projection.updates["default"].weights:
        if weight.name.startswith("lora"):
            weight.assign(generator.normal(0, 0.3, weight.shape))
    projection._kernel.trainable = False
    return task


def test_low_rank_updates_of_the_head(scored):
    theirs = run(adapted(), keras_loss())
    ours = run(adapted(), TokenCrossEntropy())
    assert scored
    assert_same(ours, theirs)


def test_what_is_no_map_of_floats_has_all_logits(scored):
    run(adapted(dropout=0.5), TokenCrossEntropy())
    quantized = make(embedding="untied")
    quantized.backbone.output_projection.quantize("int8")
    inputs, labels, weights = batch(quantized)
    quantized.compile(loss=TokenCrossEntropy())
    quantized.evaluate(inputs, labels, sample_weight=weights, verbose=0)
    assert not scored


@pytest.mark.parametrize("embedding", EMBEDDINGS)
def test_output_map_is_what_the_backbone_computes(embedding):
    backbone = make(embedding=embedding).backbone
    vectors = np.random.default_rng(0).normal(size=(1, 5, backbone.config.output_dim)).astype("float32")
    found = backbone.output_map()
    logits = (found.scale or 1.0) * vectors @ ops.convert_to_numpy(found.kernel).T
    if found.bias is not None:
        logits = logits + ops.convert_to_numpy(found.bias)
    if found.soft_cap is not None:
        logits = found.soft_cap * np.tanh(logits / found.soft_cap)
    np.testing.assert_allclose(ops.convert_to_numpy(backbone.score(vectors)), logits, rtol=1e-4, atol=1e-5)


def test_gradient_accumulation(scored):
    optimizers = [keras.optimizers.SGD(0.5, gradient_accumulation_steps=2) for _ in range(2)]
    results = []
    for optimizer, loss in zip(optimizers, (TokenCrossEntropy(), keras_loss()), strict=True):
        task = make()
        inputs, labels, weights = batch(task)
        task.compile(optimizer, loss)
        logs = task.fit(inputs, labels, sample_weight=weights, batch_size=1, epochs=1, shuffle=False, verbose=0).history
        results.append((logs, [ops.convert_to_numpy(weight) for weight in task.weights]))
    assert scored
    assert_same(*results)
