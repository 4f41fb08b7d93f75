"""Every task with half-precision layers: weights in float32, near what float32 gives, trains, predicts, generates."""

import dataclasses

import keras
import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from zoo.backbones.backbone import default_policy  # noqa: E402
from zoo.tasks import CausalLM, MaskedLM, Seq2SeqLM, TextClassifier, TextEmbedder, TokenClassifier  # noqa: E402

DECODER = {"architecture": "decoder", "pooler": False, "initializer_range": 0.5}
CASES = {
    TextClassifier: {"labels": 2},
    TokenClassifier: {"labels": ["O", "B-X"]},
    MaskedLM: {},
    TextEmbedder: {},
    CausalLM: {},
    Seq2SeqLM: {},
}


@pytest.fixture
def make(make_task, encoder_config, tiny_config, tiny_tokenizer):
    from zoo import Backbone, EmbeddingConfig

    def build(task_class, policy):
        with default_policy(policy):
            if task_class is Seq2SeqLM:
                keras.utils.set_random_seed(0)
                config = dataclasses.replace(tiny_config, initializer_range=0.5)
                return Seq2SeqLM(Backbone.from_config(config), tiny_tokenizer)
            config = {**DECODER, "embedding": EmbeddingConfig()} if task_class is CausalLM else None
            return make_task(task_class, config=config, **CASES[task_class])

    return build


def columns(task_class, texts):
    """What `fit` takes."""
    if task_class is TextClassifier:
        return texts, [index % 2 for index in range(len(texts))]
    if task_class is TokenClassifier:
        words = [text.split() for text in texts]
        return words, [["B-X" if word == "beta" else "O" for word in row] for row in words]
    if task_class is TextEmbedder:
        return (texts, texts[::-1]), None
    return texts, texts if task_class is Seq2SeqLM else None


def numbers(task, texts):
    """What the task says of texts, as an array."""
    if isinstance(task, Seq2SeqLM):
        return task.score(texts, texts[::-1])
    if isinstance(task, CausalLM):
        return task.score(texts)
    if isinstance(task, MaskedLM):
        filled = task.fill_mask([f"{text} <mask>" for text in texts], top_k=27)
        return np.array([[dict(row[0])[token] for token in sorted(dict(row[0]))] for row in filled])
    if isinstance(task, TokenClassifier):
        return np.concatenate(task.predict(texts))
    return task.predict(texts)


@pytest.mark.parametrize(
    ("task_class", "policy"),
    [
        *((kind, "mixed_bfloat16") for kind in CASES),
        (TextClassifier, "mixed_float16"),
        pytest.param(Seq2SeqLM, "mixed_float16", marks=pytest.mark.slow),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_trains_and_predicts(make, texts, task_class, policy):
    task, full = make(task_class, policy), make(task_class, "float32")
    assert task.backbone.compute_dtype == policy.removeprefix("mixed_")
    assert {weight.dtype for weight in task.weights if weight.trainable} == {"float32"}
    for ours, theirs in zip(task.weights, full.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    actual, expected = numbers(task, texts[:8]), numbers(full, texts[:8])
    assert np.all(np.isfinite(actual))
    # 8 bits of the mantissa, 11 in float16: relative to the size of the numbers
    tolerance = 0.1 if policy == "mixed_bfloat16" else 0.02
    np.testing.assert_allclose(actual, expected, atol=tolerance * np.abs(expected).max())
    task.compile(keras.optimizers.SGD(1e-3), run_eagerly=True)
    x, y = columns(task_class, texts[:8])
    before = [np.array(weight) for weight in task.trainable_weights]
    loss = task.fit(x, y, batch_size=8, verbose=0).history["loss"][0]
    assert np.isfinite(loss) and all(np.isfinite(weight).all() for weight in task.get_weights())
    if policy == "mixed_bfloat16":  # in float16 the scale of the loss may have to fall first
        changed = [not np.array_equal(old, new) for old, new in zip(before, task.trainable_weights, strict=True)]
        assert np.mean(changed) > 0.5


@pytest.mark.parametrize("task_class", [CausalLM, Seq2SeqLM], ids=lambda kind: kind.__name__)
def test_generates(make, texts, task_class):
    task = make(task_class, "mixed_bfloat16")
    sampler = {"name": "sample", "temperature": 0.7}
    generated = task.generate(texts[:4], sampler=sampler, max_length=12, jit_compile=False)
    assert len(set(generated)) > 1 and all(isinstance(text, str) for text in generated)


def test_policy_of_a_preset(mask_tokenizer, texts, tmp_path):
    options = {"vocabulary_size": mask_tokenizer.vocabulary_size, "num_layers": 1, "labels": 2}
    before = keras.config.dtype_policy()
    task = TextClassifier.from_preset(
        "bert_tiny_uncased", load_weights=False, tokenizer=mask_tokenizer, dtype="mixed_bfloat16", **options
    )
    assert keras.config.dtype_policy() == before
    layers = [layer for layer in task._flatten_layers() if layer.weights]
    assert {layer.compute_dtype for layer in layers} == {"bfloat16"}
    task.save_to_preset(tmp_path / "preset")
    half, full = (TextClassifier.from_preset(tmp_path / "preset", dtype=dtype) for dtype in ("mixed_bfloat16", None))
    assert (half.compute_dtype, full.compute_dtype) == ("bfloat16", "float32")
    np.testing.assert_array_equal(half.predict(texts[:4]), task.predict(texts[:4]))
    with pytest.raises(ValueError):
        TextClassifier.from_preset(tmp_path / "preset", dtype="mixed_float7")
    assert keras.config.dtype_policy() == before
