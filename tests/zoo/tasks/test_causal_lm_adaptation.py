"""Low-rank updates and 8-bit weights of language models: training, saving, serving."""

import keras
import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from zoo import (  # noqa: E402
    AttentionConfig,
    Backbone,
    CausalLM,
    FeedForwardConfig,
    NormConfig,
    PositionConfig,
    TransformerConfig,
)

OPTIONS = {"max_new_tokens": 6, "jit_compile": False}


@pytest.fixture
def model(tiny_tokenizer):
    keras.utils.set_random_seed(0)
    config = TransformerConfig(
        "decoder",
        vocabulary_size=tiny_tokenizer.vocabulary_size,
        hidden_dim=64,
        num_layers=1,
        max_length=24,
        attention=AttentionConfig(num_heads=4, num_key_value_heads=2),
        feed_forward=FeedForwardConfig(256, "silu", gated=True),
        norm=NormConfig(kind="rms", placement="pre"),
        position=PositionConfig("rotary"),
        dropout=0.0,
        initializer_range=0.3,
    )
    return CausalLM(Backbone.from_config(config), tiny_tokenizer)


def values(task):
    return {weight.path: np.array(weight) for weight in task.weights}


def served(directory, texts):
    loaded = tf.saved_model.load(str(directory))
    generated = [text.decode() for text in loaded.serve(tf.constant(texts)).numpy()]
    return generated, loaded.score(tf.constant([""] * len(texts)), tf.constant(texts)).numpy()


def test_lora_trains_updates_alone_and_they_are_saved_and_served(model, texts, tmp_path):
    some = texts[:6]
    before, first = values(model), (model.generate(some, **OPTIONS), model.score(some))
    report = model.enable_lora(2, targets=("query", "value", "down"))
    # 64 x 2 and 2 x 64 for the query, 64 x 2 and 2 x 32 for the value, 256 x 2 and 2 x 64 for the feed-forward
    assert report.trainable_parameters == 256 + 192 + 640
    np.testing.assert_allclose(model.score(some), first[1], rtol=1e-4)
    model.compile(keras.optimizers.Adam(0.05), run_eagerly=True)
    model.fit(texts[6:30], batch_size=12, epochs=2, verbose=0)
    after = values(model)
    assert all(np.array_equal(after[path], value) for path, value in before.items()), "all else stays"
    assert all(np.abs(after[path]).max() > 0 for path in set(after) - set(before))
    # programs that were compiled before see the updates
    generated, scores = model.generate(some, **OPTIONS), model.score(some)
    assert generated != first[0] and np.abs(scores - first[1]).max() > 0.5
    model.save_to_preset(tmp_path / "preset")
    model.save(tmp_path / "model.keras")
    model.save_to_huggingface(tmp_path / "llama")
    for loaded, has_updates in (
        # our own files go on where they were saved
        (CausalLM.from_preset(tmp_path / "preset"), True),
        (keras.models.load_model(tmp_path / "model.keras"), True),
        (CausalLM.from_preset(tmp_path / "llama"), False),
    ):
        assert any("lora" in weight.path for weight in loaded.weights) == has_updates
        np.testing.assert_allclose(loaded.score(some), scores, rtol=1e-3)
    model.export(tmp_path / "export", **OPTIONS)
    exported = served(tmp_path / "export", some)
    assert exported[0] == generated
    np.testing.assert_allclose(exported[1], scores, rtol=1e-4)


def test_lora_that_matches_nothing(model):
    with pytest.raises(ValueError, match="targets must be names of layers, got 'attn'"):
        model.enable_lora(2, targets=["query", "attn"])
    assert not any("lora" in weight.path for weight in model.weights)
    assert len(model.trainable_variables) == len(model.weights)


@pytest.mark.slow
def test_int8_is_close_smaller_and_served(model, texts, tmp_path):
    some = texts[:8]
    model.generate(some, **OPTIONS)
    scores = model.score(some)
    model.save_to_preset(tmp_path / "float")
    report = model.quantize("int8")
    # embedding, four projections of the attention, three of the feed-forward network
    assert len(report.layers) == 8 and report.bytes_after < 0.4 * report.bytes_before
    quantized, generated = model.score(some), model.generate(some, **OPTIONS)
    # sums of some four log-probabilities, each about 0.05 off
    assert 0 < np.abs(quantized - scores).max() < 0.6
    model.save_to_preset(tmp_path / "int8")
    sizes = [(tmp_path / name / "model.weights.h5").stat().st_size for name in ("int8", "float")]
    assert sizes[0] < 0.5 * sizes[1], sizes
    loaded = CausalLM.from_preset(tmp_path / "int8")
    np.testing.assert_allclose(loaded.score(some), quantized, rtol=1e-4)
    assert loaded.generate(some, **OPTIONS) == generated
    model.export(tmp_path / "export", **OPTIONS)
    exported = served(tmp_path / "export", some)
    assert exported[0] == generated
    np.testing.assert_allclose(exported[1], quantized, rtol=1e-4)
    variables = (tmp_path / "export" / "variables" / "variables.data-00000-of-00001").stat().st_size
    assert variables < 0.45 * report.bytes_before, "the integers are stored, not floats made of them"
    with pytest.raises(ValueError, match="is quantized .int8.: write a model before it is quantized"):
        model.save_to_huggingface(tmp_path / "huggingface")
