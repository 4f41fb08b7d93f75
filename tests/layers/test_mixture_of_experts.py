import math

import keras
import numpy as np
import pytest
from keras import ops

from layers.mixture_of_experts import MixtureOfExperts
from layers.router import Router


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def built(rng, dim=6, **options):
    layer = MixtureOfExperts(**{"num_experts": 5, "intermediate_dim": 7, **options})
    layer.build((None, None, dim))
    layer.set_weights([rng.normal(size=weight.shape) * 0.7 for weight in layer.weights])
    return layer


def value(variable):
    return None if variable is None else ops.convert_to_numpy(variable).astype("float64")


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def expert(layer, index, x):
    """What the expert of that index makes of one vector (or of several, one per row)."""

    def project(x, kernel, bias):
        return x @ value(kernel)[index] + (0 if bias is None else value(bias)[index, 0])

    def activation(x):
        return {"silu": x * sigmoid(x), "relu": np.maximum(x, 0)}[layer.activation]

    hidden = project(x, layer.up_kernel, layer.up_bias)
    if layer.gated:
        hidden = hidden * activation(project(x, layer.gate_kernel, layer.gate_bias))
    else:
        hidden = activation(hidden)
    return project(hidden, layer.down_kernel, layer.down_bias)


def reference(layer, inputs, mask):
    """Outputs, share of dropped assignments and load-balancing loss, one token after the other."""
    tokens = inputs.reshape(-1, inputs.shape[-1]).astype("float64")
    real = np.flatnonzero(mask.reshape(-1))
    logits = tokens @ value(layer.router.kernel)
    probabilities = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    chosen = np.argsort(-probabilities, axis=-1)[:, : layer.router.experts_per_token]
    outputs = np.zeros_like(tokens)
    loads, dropped, assigned = np.zeros(layer.num_experts), 0, np.zeros(layer.num_experts)
    capacity = math.inf
    if layer.capacity_factor is not None:
        capacity = math.ceil(layer.capacity_factor * layer.router.experts_per_token * len(tokens) / layer.num_experts)
    for choice in range(layer.router.experts_per_token):
        for token in real:
            index = chosen[token, choice]
            weight = probabilities[token, index]
            if layer.router.normalize_weights:
                weight = weight / probabilities[token, chosen[token]].sum()
            assigned[index] += 1
            if loads[index] == capacity:
                dropped += 1
                continue
            loads[index] += 1
            outputs[token] += weight * expert(layer, index, tokens[token])
    shares = assigned / max(assigned.sum(), 1)
    loss = layer.router.load_balance_weight * layer.num_experts * np.sum(shares * probabilities[real].mean(0))
    return outputs.reshape(inputs.shape), dropped / max(assigned.sum(), 1), loss


CONFIGURATIONS = {
    "dropless": {},
    "switch": {"experts_per_token": 1, "gated": False, "activation": "relu", "capacity_factor": 0.4},
    "top-2 with capacity": {"capacity_factor": 0.5, "use_bias": True},
    "dropless, weights not normalized": {"normalize_weights": False, "use_bias": True, "gated": False},
    "every expert": {"experts_per_token": 5},
    "three of five, little room": {"experts_per_token": 3, "capacity_factor": 0.3},
}


@pytest.fixture(params=CONFIGURATIONS)
def layer(request, rng):
    return built(rng, load_balance_weight=0.3, **CONFIGURATIONS[request.param])


@pytest.fixture
def batch(rng):
    inputs = rng.normal(size=(4, 9, 6)).astype("float32")
    mask = np.arange(9) < np.array([9, 4, 0, 1])[:, None]
    inputs[~mask] = np.nan  # whatever padding holds
    return inputs, mask


def test_formula(layer, batch):
    expected, dropped, loss = reference(layer, *batch)
    outputs = ops.convert_to_numpy(layer(batch[0], mask=batch[1], training=True))
    np.testing.assert_allclose(outputs, expected, rtol=1e-4, atol=1e-5)
    assert np.all(outputs[~batch[1]] == 0)
    np.testing.assert_allclose(layer.losses, [loss], rtol=1e-5)
    if layer.capacity_factor is not None:
        np.testing.assert_allclose(layer.dropped_share, dropped, rtol=1e-6)
        assert 0 < dropped < 1


@pytest.mark.parametrize("parts", [2, 4])
def test_parts_of_a_batch_have_blocks_of_their_own(layer, batch, parts, monkeypatch):
    """As on several devices, of which the third here has padding only."""
    monkeypatch.setattr("layers.mixture_of_experts.batch_parts", lambda rows: parts)
    test_formula(layer, batch)


def test_formula_without_mask(layer, rng):
    inputs = rng.normal(size=(3, 5, 6)).astype("float32")
    expected, _, _ = reference(layer, inputs, np.ones((3, 5), bool))
    np.testing.assert_allclose(layer(inputs, training=True), expected, rtol=1e-4, atol=1e-5)


def test_rows_do_not_depend_on_the_batch_at_inference(rng):
    """A capacity is for training: with it one row would take the room of another, and a long call that of a step."""
    layer = built(rng, capacity_factor=0.3)
    inputs = rng.normal(size=(3, 5, 6)).astype("float32")
    outputs = ops.convert_to_numpy(layer(inputs))
    layer.capacity_factor = None
    expected, _, _ = reference(layer, inputs, np.ones((3, 5), bool))
    np.testing.assert_allclose(outputs, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(1, 1), (1, 2), (1, 3), (2, 4), (7, 11)])
def test_every_expert_alone_takes_all_tokens(shape, rng):
    """The most unequal loads there are, for which the dropless layout must still have room."""
    layer = built(rng, num_experts=4, experts_per_token=1, normalize_weights=True)
    for index in range(4):
        layer.router.kernel.assign(np.eye(4)[[index]] * 100 * np.ones((6, 1)))
        inputs = rng.uniform(0.1, 1, size=(*shape, 6)).astype("float32")
        np.testing.assert_allclose(layer(inputs), expert(layer, index, inputs), rtol=1e-4, atol=1e-5)


def test_any_loads_fit_without_drops(rng):
    for _ in range(8):
        num_experts = int(rng.integers(1, 7))
        layer = built(rng, num_experts=num_experts, experts_per_token=int(rng.integers(1, num_experts + 1)))
        layer.router.kernel.assign(rng.normal(size=(6, num_experts)) * 10)  # far from balanced
        inputs = rng.normal(0.5, 1, size=(2, int(rng.integers(1, 20)), 6)).astype("float32")
        expected, _, _ = reference(layer, inputs, np.ones(inputs.shape[:2], bool))
        np.testing.assert_allclose(layer(inputs), expected, rtol=1e-3, atol=1e-4)


def test_padding_takes_no_capacity(rng):
    layer = built(rng, capacity_factor=1.0)
    inputs = rng.normal(size=(1, 8, 6)).astype("float32")
    mask = np.array([[False] * 4 + [True] * 4])
    doubled = np.concatenate([inputs[:, :4] * 0, inputs[:, 4:]], axis=1)
    # four tokens, each with room for ceil(2 * 8 / 5) = 4 at every expert: nothing is dropped
    expected, dropped, _ = reference(layer, inputs, mask)
    assert dropped == 0
    np.testing.assert_allclose(layer(doubled, mask=mask, training=True), expected, rtol=1e-4, atol=1e-5)


def test_padding_only(layer):
    inputs, mask = np.ones((2, 3, 6), "float32"), np.zeros((2, 3), bool)
    np.testing.assert_array_equal(layer(inputs, mask=mask, training=True), np.zeros((2, 3, 6)))
    np.testing.assert_array_equal(layer.losses, [0.0])


@pytest.mark.parametrize("options", [{}, {"capacity_factor": 1.0}, {"num_experts": 1, "experts_per_token": 1}])
def test_no_tokens(options, rng):
    layer = built(rng, **options)
    for shape in ((0, 3, 6), (2, 0, 6)):
        for training in (False, True):
            assert value(layer(np.zeros(shape, "float32"), training=training)).shape == shape
            assert np.isfinite([value(loss) for loss in layer.losses]).all()


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="sizes that only the run knows")
@pytest.mark.parametrize("jit_compile", [False, True])
def test_no_tokens_in_a_graph_of_any_size(jit_compile, rng):
    import tensorflow as tf

    layer = built(rng)
    graph = tf.function(layer, input_signature=[tf.TensorSpec((None, None, 6))], jit_compile=jit_compile)
    for shape in ((0, 3, 6), (2, 0, 6), (2, 3, 6)):
        inputs = rng.normal(size=shape).astype("float32")
        np.testing.assert_allclose(value(graph(inputs)), value(layer(inputs)), atol=1e-5)


def test_loss_is_its_factor_at_balance_and_only_in_training(rng):
    layer = built(rng, num_experts=4, experts_per_token=1, load_balance_weight=0.2, dim=4)
    layer.router.kernel.assign(np.eye(4))
    inputs = np.eye(4, dtype="float32")[None] * 3  # token i prefers expert i
    layer(inputs, training=True)
    np.testing.assert_allclose(layer.losses, [0.2], rtol=1e-6)
    layer(inputs)
    assert layer.losses == []
    unbalanced = np.ones((1, 4, 1), "float32") * np.array([9, 0, 0, 0], "float32")
    layer(unbalanced, training=True)
    assert float(layer.losses[0]) > 0.79  # near 0.2 * 4, what one expert for all costs


@pytest.mark.sampled(2)
def test_gradients_in_float64(layer, batch, rng, check_gradients):
    layer = MixtureOfExperts.from_config({**layer.get_config(), "dtype": "float64"})
    layer.build((None, None, 6))
    layer.set_weights([rng.normal(size=weight.shape) * 0.7 for weight in layer.weights])
    inputs, mask = np.nan_to_num(batch[0])[:2, :4], batch[1][:2, :4]
    factors = rng.normal(size=inputs.shape)
    # top-k is constant nearly everywhere, so that differences are right but in unlucky cases
    check_gradients(lambda x: ops.sum(layer(x, mask=mask) * factors), inputs)


@pytest.mark.parametrize("jit_compile", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize("capacity_factor", [None, 0.8])
def test_one_step_of_training(capacity_factor, jit_compile, batch, rng):
    """The same numbers with and without XLA, in a graph of unknown sizes; router and every expert get a gradient."""
    inputs, mask = np.nan_to_num(batch[0]), batch[1]
    layer = built(rng, capacity_factor=capacity_factor, load_balance_weight=0.3)
    before = layer.get_weights()
    _, _, loss = reference(layer, inputs, mask)
    outputs = ops.convert_to_numpy(layer(inputs, mask=mask, training=True))
    symbols = [keras.Input((None, 6)), keras.Input((None,), dtype="bool")]
    model = keras.Model(symbols, layer(symbols[0], mask=symbols[1]))
    model.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=jit_compile)
    measured = model.train_on_batch([inputs, mask], inputs)
    # Keras leaves padding out of its losses where a mask was passed to the last layer
    np.testing.assert_allclose(measured, np.mean((outputs - inputs)[mask] ** 2) + loss, rtol=1e-5)
    for old, weight in zip(before, layer.trainable_weights, strict=False):
        changes = np.abs(old - ops.convert_to_numpy(weight))
        assert np.all(changes.reshape(len(changes), -1).max(axis=1) > 0), weight.path


def test_capacity_leaves_the_router_trainable_with_one_expert(rng):
    assert not MixtureOfExperts(4, 8, experts_per_token=1).router.normalize_weights
    assert MixtureOfExperts(4, 8, experts_per_token=2).router.normalize_weights


def test_experts_start_like_single_networks_and_differ():
    for initializer in ("glorot_uniform", keras.initializers.GlorotUniform(seed=3)):
        layer = MixtureOfExperts(3, 80, kernel_initializer=initializer)
        layer.build((None, None, 40))
        kernels = value(layer.up_kernel)
        limit = np.sqrt(6 / (40 + 80))
        assert 0.95 * limit < np.abs(kernels).max() <= limit
        assert np.abs(kernels[0] - kernels[1]).max() > 0.1 and np.abs(kernels[1] - kernels[2]).max() > 0.1


def test_sigmoid_with_bias_and_shared_experts(rng):
    """DeepSeek-V3, equations 12 to 16, one token after the other."""
    layer = built(
        rng,
        scoring="sigmoid",
        bias_update_rate=0.5,
        weight_scale=2.5,
        shared_intermediate_dim=14,
        load_balance_weight=0.2,
    )
    inputs = rng.normal(size=(2, 4, 6)).astype("float32")
    mask = np.array([[True] * 4, [True, True, False, False]])
    bias, shared = value(layer.router.balance_bias), layer.shared_experts
    assert shared.intermediate_dim == 14
    scores = sigmoid(inputs.astype("float64") @ value(layer.router.kernel))
    expected, loads, normalized = np.zeros(inputs.shape), np.zeros(5), []
    for index in np.argwhere(mask):
        x, score = inputs[tuple(index)], scores[tuple(index)]
        chosen = np.argsort(-(score + bias))[:2]
        loads[chosen] += 1
        normalized.append(score / score.sum())
        routed = sum(score[e] / score[chosen].sum() * expert(layer, e, x) for e in chosen)
        expected[tuple(index)] = 2.5 * routed + ops.convert_to_numpy(shared(x[None]))[0]
    outputs = ops.convert_to_numpy(
        layer(np.where(mask[..., None], inputs, np.float32("nan")), mask=mask, training=True)
    )
    np.testing.assert_allclose(outputs, expected, rtol=1e-4, atol=1e-5)
    assert np.abs(np.argsort(-scores) - np.argsort(-(scores + bias))).max() > 0  # the bias decides something
    np.testing.assert_allclose(layer.losses, [0.2 * 5 * np.sum(loads / 12 * np.mean(normalized, axis=0))], rtol=1e-5)
    np.testing.assert_allclose(value(layer.router.balance_bias), bias + 0.5 * np.sign(loads.mean() - loads), rtol=1e-6)
    layer(inputs)
    np.testing.assert_allclose(value(layer.router.balance_bias), bias + 0.5 * np.sign(loads.mean() - loads), rtol=1e-6)
    assert all(weight is not layer.router.balance_bias for weight in layer.trainable_weights)


@pytest.mark.parametrize("scoring", ["softmax", "sigmoid"])
def test_experts_of_the_best_groups(scoring, rng):
    router = Router(6, 2, scoring, False, 2.5, 0.0, expert_groups=3, groups_per_token=2)
    inputs = rng.normal(size=(7, 8)).astype("float32")
    router.build(inputs.shape)
    router.balance_bias.assign(0.3 * rng.normal(size=6))
    weights, assignments = router(inputs)
    scores = inputs.astype("float64") @ value(router.kernel)
    scores = sigmoid(scores) if scoring == "sigmoid" else np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    for token, row in enumerate(scores):
        biased = row + value(router.balance_bias)
        # both experts of a group count with sigmoids
        groups = [biased[2 * group : 2 * group + 2] for group in range(3)]
        marks = [group.sum() if scoring == "sigmoid" else group.max() for group in groups]
        worst = int(np.argmin(marks))
        allowed = [expert for expert in range(6) if expert // 2 != worst]
        best = sorted(allowed, key=lambda expert: -biased[expert])[:2]
        np.testing.assert_allclose(value(weights)[token], 2.5 * row[best], rtol=1e-5)
        np.testing.assert_array_equal(value(assignments)[:, token].argmax(-1), best)


def test_shared_gate_router_bias_limit_and_offset(rng):
    """gpt-oss and Qwen 2, one token after the other."""
    options = {"activation": "silu", "use_bias": True, "gate_limit": 0.6, "up_offset": 1.0, "router_bias": True}
    layer = built(rng, shared_intermediate_dim=4, shared_gate=True, **options)
    inputs = rng.normal(size=(1, 4, 6)).astype("float32")

    def network(x, kernels, biases):
        gate, up, down = (value(kernel) for kernel in kernels)
        gate_bias, up_bias, down_bias = (value(bias).reshape(-1) for bias in biases)
        gate, up = np.minimum(x @ gate + gate_bias, 0.6), np.clip(x @ up + up_bias, -0.6, 0.6)
        return (gate * sigmoid(gate) * (up + 1)) @ down + down_bias

    expected = []
    for x in inputs[0].astype("float64"):
        logits = x @ value(layer.router.kernel) + value(layer.router.bias)
        chosen = np.argsort(-logits)[:2]
        weights = np.exp(logits[chosen]) / np.exp(logits[chosen]).sum()  # the softmax over the chosen
        parts, total = ("gate", "up", "down"), 0
        for index, weight in zip(chosen, weights, strict=True):
            kernels = [getattr(layer, f"{part}_kernel")[index] for part in parts]
            total += weight * network(x, kernels, [getattr(layer, f"{part}_bias")[index] for part in parts])
        dense = [getattr(layer.shared_experts, part) for part in parts]
        shared = network(x, [part.kernel for part in dense], [part.bias for part in dense])
        expected.append(total + sigmoid(x @ value(layer.shared_gate.kernel)) * shared)
    np.testing.assert_allclose(ops.convert_to_numpy(layer(inputs))[0], expected, rtol=1e-4, atol=1e-5)
    again = MixtureOfExperts.from_config(layer.get_config())
    again.build((None, None, 6))
    again.set_weights(layer.get_weights())
    np.testing.assert_array_equal(again(inputs), layer(inputs))


def test_loss_on_the_logits(rng):
    """ST-MoE, equation 5."""
    layer = built(rng, load_balance_weight=0.0, z_loss_weight=0.1)
    inputs, mask = rng.normal(size=(2, 4, 6)).astype("float32"), np.array([[True] * 4, [True, False, False, False]])
    layer(inputs, mask=mask, training=True)
    logits = inputs[mask].astype("float64") @ value(layer.router.kernel)
    np.testing.assert_allclose(layer.losses, [0.1 * np.mean(np.log(np.exp(logits).sum(-1)) ** 2)], rtol=1e-5)
    layer(inputs, mask=mask)
    assert layer.losses == []


def test_biases_start_as_asked_for():
    layer = MixtureOfExperts(3, 6, use_bias=True, bias_initializer="ones", shared_intermediate_dim=6)
    layer.build((None, None, 6))
    biases = [weight for weight in layer.weights if "bias" in weight.path]
    assert len(biases) == 6 and all(np.all(value(bias) == 1) for bias in biases)


@pytest.mark.parametrize("initializer", ["glorot_uniform", keras.initializers.GlorotUniform(seed=3)])
def test_kernels_of_one_shape_start_different(initializer):
    layer = MixtureOfExperts(3, 6, kernel_initializer=initializer)
    layer.build((None, None, 6))
    kernels = [
        value(kernel)[index] for kernel in (layer.gate_kernel, layer.up_kernel, layer.down_kernel) for index in range(3)
    ]
    correlations = np.corrcoef([kernel.ravel() for kernel in kernels])
    assert np.abs(correlations - np.eye(9)).max() < 0.8  # 36 random numbers each


def test_layer_contract(layer, rng, check_layer):
    # Close probabilities may be ordered differently in half precision, so the router's choices are made clear.
    layer.router.kernel.assign(layer.router.kernel * 5)
    inputs = np.eye(6, dtype="float32")[None] * np.ones((2, 1, 1), "float32")
    check_layer(layer, inputs)


def test_layer_contract_with_all_choices(rng, check_layer):
    options = {"scoring": "sigmoid", "bias_update_rate": 0.1, "shared_intermediate_dim": 7, "z_loss_weight": 0.1}
    layer = built(rng, name="all_choices", use_bias=True, **options)
    layer.router.kernel.assign(layer.router.kernel * 5)
    check_layer(layer, np.eye(6, dtype="float32")[None] * np.ones((2, 1, 1), "float32"))


def test_router_computes_in_float32():
    layer = MixtureOfExperts(4, 8, dtype="mixed_bfloat16")
    assert layer.router.compute_dtype == "float32"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_experts": 0}, "num_experts must be at least 1, got 0"),
        ({"intermediate_dim": 0}, "intermediate_dim must be at least 1, got 0"),
        ({"experts_per_token": 5}, "experts_per_token must be from 1 to num_experts=4, got 5"),
        ({"capacity_factor": 0.0}, "capacity_factor must be above 0, or None for no limit, got 0.0"),
        ({"load_balance_weight": -1.0}, "load_balance_weight must be at least 0, got -1.0"),
        ({"expert_groups": 3}, "expert_groups must be a divisor of num_experts=4, got 3"),
        ({"expert_groups": 4, "groups_per_token": 1}, "groups_per_token must be from 2, for experts_per_token=2, to"),
        ({"groups_per_token": 1}, "groups_per_token must be None without expert_groups, got 1"),
        ({"scoring": "tanh"}, "scoring must be one of 'softmax', 'sigmoid', got 'tanh'"),
        ({"z_loss_weight": -1.0}, "z_loss_weight must be at least 0, got -1.0"),
        ({"weight_scale": 0.0}, "weight_scale must be above 0, got 0.0"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1, got 1.0"),
        ({"activation": "swiglu"}, "activation must be one of 'relu'.*got 'swiglu'"),
    ],
)
def test_errors(options, message):
    with pytest.raises(ValueError, match=message):
        MixtureOfExperts(**{"num_experts": 4, "intermediate_dim": 8, **options})
