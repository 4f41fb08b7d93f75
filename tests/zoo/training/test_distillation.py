"""Losses of distillation against NumPy, a student that learns from its teacher, layers that are kept."""

import dataclasses

import keras
import numpy as np
import pytest

import zoo
from zoo.tasks import every_other, keep_layers
from zoo.training import Distiller, HiddenCosine, SoftTargets, TokenCrossEntropy

RANDOM = np.random.default_rng(0)
TEACHER, STUDENT = RANDOM.normal(size=(2, 2, 3, 5))
WEIGHTS = np.array([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]])


def softmax(logits):
    return np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)


def test_soft_targets():
    p, q = softmax(TEACHER / 2), softmax(STUDENT / 2)
    losses = 4 * (p * np.log(p / q)).sum(axis=-1)
    loss = SoftTargets(temperature=2.0)
    np.testing.assert_allclose(loss(TEACHER, STUDENT, WEIGHTS), (losses * WEIGHTS).sum() / 3, rtol=1e-5)
    assert keras.losses.deserialize(keras.losses.serialize(loss)).temperature == 2.0
    np.testing.assert_allclose(loss(TEACHER, TEACHER), 0, atol=1e-6)
    with pytest.raises(ValueError, match="temperature must be above 0, got 0"):
        SoftTargets(0)


def test_hidden_cosine():
    cosines = (TEACHER * STUDENT).sum(axis=-1) / np.linalg.norm(TEACHER, axis=-1) / np.linalg.norm(STUDENT, axis=-1)
    loss = HiddenCosine()
    np.testing.assert_allclose(loss(TEACHER, STUDENT, WEIGHTS), ((1 - cosines) * WEIGHTS).sum() / 3, rtol=1e-5)
    assert keras.losses.deserialize(keras.losses.serialize(loss)).name == "hidden_cosine"


@pytest.fixture(scope="module")
def teacher(make_task):
    return make_task(zoo.MaskedLM, config={"num_layers": 4, "pooler": False})


def test_a_student_learns_from_its_teacher(teacher, tmp_path):
    student = keep_layers(teacher, every_other(4))
    assert student.backbone.config.num_layers == 2
    for stack, kept in ((student.backbone.encoder, (0, 2)),):
        for block, number in zip(stack.blocks, kept, strict=True):
            for weight, other in zip(block.weights, teacher.backbone.encoder.blocks[number].weights, strict=True):
                np.testing.assert_array_equal(weight, other)
    np.testing.assert_array_equal(
        student.backbone.token_embedding.weights[0], teacher.backbone.token_embedding.weights[0]
    )
    texts = ["alpha beta gamma kappa", "omega theta iota"] * 4
    inputs, labels, weights = teacher.preprocessor(texts, sample_weight=np.ones(8))
    distiller = Distiller(student, teacher, temperature=2.0, soft=5.0, hard=2.0, cosine=1.0)
    distiller.compile(keras.optimizers.Adam(0.01), TokenCrossEntropy(), run_eagerly=True)
    logs = distiller.test_on_batch(inputs, labels, weights, return_dict=True)
    (s_logits, s_hidden), (t_logits, t_hidden) = (task.with_hidden(inputs) for task in (student, teacher))
    assert logs["soft_loss"] == pytest.approx(float(SoftTargets(2.0)(t_logits, s_logits, weights)), rel=1e-4)
    assert logs["hard_loss"] == pytest.approx(float(TokenCrossEntropy()(labels, s_logits, weights)), rel=1e-4)
    cosine = float(HiddenCosine()(t_hidden, s_hidden, inputs["padding_mask"]))
    assert logs["cosine_loss"] == pytest.approx(cosine, rel=1e-4)
    expected = 5 * logs["soft_loss"] + 2 * logs["hard_loss"] + logs["cosine_loss"]
    assert logs["loss"] == pytest.approx(expected, rel=1e-4)
    before = [np.array(weight) for weight in teacher.weights]
    for _ in range(10):
        trained = distiller.train_on_batch(inputs, labels, weights, return_dict=True)
    assert distiller.test_on_batch(inputs, labels, weights, return_dict=True)["soft_loss"] < logs["soft_loss"]
    assert set(trained) == {"loss", "soft_loss", "hard_loss", "cosine_loss"}
    for weight, value in zip(teacher.weights, before, strict=True):
        np.testing.assert_array_equal(weight, value)
    # nothing of the teacher is a weight of it
    assert [id(weight) for weight in distiller.weights] == [id(weight) for weight in student.weights]
    distiller.save_to_preset(tmp_path / "small")
    assert zoo.MaskedLM.from_preset(tmp_path / "small").backbone.config.num_layers == 2


@pytest.mark.parametrize("hard", [0.0, 0.5])
def test_what_layers_add_counts_once(make_task, hard):
    feed_forward = zoo.FeedForwardConfig(8, num_experts=2)
    task = make_task(zoo.MaskedLM, config={"feed_forward": feed_forward})
    distiller = Distiller(task, task, soft=1.0, hard=hard)
    distiller.compile("adam", TokenCrossEntropy(), run_eagerly=True)
    inputs, labels, weights = task.preprocessor(["alpha beta gamma"], sample_weight=np.ones(1))
    outputs = distiller(inputs, training=True)
    added = sum(float(loss) for loss in task.losses)
    loss = distiller.compute_loss(inputs, labels, outputs, weights)
    parts = {mean.name: float(mean.result()) for mean in distiller.means}
    assert added > 0
    assert float(loss) == pytest.approx(parts["soft_loss"] + hard * parts.get("hard_loss", 0.0) + added, rel=1e-5)
    # a pooler without a use does not train
    assert task.backbone.pooler is not None
    assert [id(weight) for weight in distiller.trainable_weights] == [id(weight) for weight in task.trainable_weights]
    assert len(distiller.variables) == len(task.variables) > len(distiller.trainable_variables)


def test_hard_alone_does_not_ask_the_teacher(teacher):
    student = keep_layers(teacher, [0])
    distiller = Distiller(student, teacher, soft=0.0, hard=1.0)
    distiller._teacher = lambda: pytest.fail("it was asked")
    distiller.compile("adam", TokenCrossEntropy(), run_eagerly=True)
    inputs, labels, weights = teacher.preprocessor(["alpha beta gamma"], sample_weight=np.ones(1))
    assert set(distiller.test_on_batch(inputs, labels, weights, return_dict=True)) == {"loss", "hard_loss"}


def test_kept_layers_stay_of_their_kind(make_task):
    config = {
        "architecture": "decoder",
        "num_layers": 4,
        "pooler": False,
        "embedding": zoo.EmbeddingConfig(),
        "attention": zoo.AttentionConfig(num_heads=2, window=(4, 0), window_layers=(True, False)),
        "feed_forward": zoo.FeedForwardConfig(8, layers=(True, False)),
        "mixer": zoo.MixerConfig("short_convolution", (True, False)),
    }
    task = make_task(zoo.CausalLM, config=config)
    smaller = keep_layers(task, [1, 2]).backbone.config
    assert smaller.attention.window_layers == smaller.feed_forward.layers == smaller.mixer.layers == (False, True)
    smaller = keep_layers(task, [1, 3]).backbone.config
    assert (smaller.feed_forward, smaller.mixer) == (zoo.FeedForwardConfig(layers=(False,)), None)
    for layers, message in (
        ([2, 1], "layers must be at least one number of a layer, ascending"),
        ([], "at least one number"),
        ([4], "an entry of layers must be an integer from 0 to 3, got 4"),
    ):
        with pytest.raises(ValueError, match=message):
            keep_layers(task, layers)
    with pytest.raises(ValueError, match="decoder_layers must be None with one stack"):
        keep_layers(task, [0], [0])
    grouped = make_task(zoo.MaskedLM, config={"num_layers": 2, "layer_groups": 1})
    with pytest.raises(ValueError, match="layer_groups cannot be left out"):
        keep_layers(grouped, [0])


def test_what_does_not_go_together(teacher):
    student = keep_layers(teacher, [0])
    for options, message in (
        ({"soft": -1.0}, "soft must be at least 0, got -1.0"),
        ({"soft": 0.0, "hard": 0.0}, "must not all be 0"),
    ):
        with pytest.raises(ValueError, match=message):
            Distiller(student, teacher, **options)
    config = dataclasses.replace(teacher.backbone.config, hidden_dim=8)
    other = zoo.MaskedLM(zoo.Backbone.from_config(config), teacher.tokenizer)
    other.backbone.encoder.blocks[0].attention.query_projection.quantize("int8")
    with pytest.raises(ValueError, match=r"keep_layers\(\) needs weights that this task has quantized; .* int8"):
        keep_layers(other, [0])
    with pytest.raises(ValueError, match="cosine must be 0 where student and teacher are 8 and 16 wide, got 1.0"):
        Distiller(other, teacher, cosine=1.0)


def test_an_adapted_teacher_is_asked_as_it_is_now(make_task):
    student, teacher = (make_task(zoo.MaskedLM, seed=seed, config={"pooler": False}) for seed in (0, 1))
    distiller = Distiller(student, teacher, soft=1.0, hard=0.0)
    distiller.compile(keras.optimizers.SGD(0.0))
    batch = teacher.preprocessor(["alpha beta gamma"] * 2, sample_weight=np.ones(2))
    plain = distiller.evaluate(*batch[:2], sample_weight=batch[2], verbose=0, return_dict=True)["soft_loss"]
    teacher.enable_lora(2)
    for update in teacher.backbone.adapters.updates("default").values():
        update.lora_b.assign(RANDOM.normal(size=update.lora_b.shape))
    expected = float(SoftTargets(2.0)(teacher(batch[0]), student(batch[0]), batch[2]))
    assert abs(expected - plain) > 1e-3
    adapted = distiller.evaluate(*batch[:2], sample_weight=batch[2], verbose=0, return_dict=True)["soft_loss"]
    assert adapted == pytest.approx(expected, rel=1e-4)
