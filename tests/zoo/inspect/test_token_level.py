"""Inspections on token level, on every backend: run with KERAS_BACKEND=jax too. Needs no TensorFlow."""

import contextvars
import warnings

import keras
import numpy as np
import pytest
from keras import ops

import zoo
from zoo.inspect import Capture

VOCABULARY = 19
IDS, TARGET_IDS = np.array([[3, 7, 7, 11, 5]]), np.array([[1, 9, 4]])
ONE = {"token_ids": IDS}
TWO = {"encoder_token_ids": IDS, "decoder_token_ids": TARGET_IDS}


def make(name, dtype="float32", **choices):
    keras.utils.set_random_seed(0)
    if name == "recurrent":
        options = {"attention": "current_state", "input_feeding": True, "readout": "attentional"}
        backbone = zoo.Backbone.from_config(zoo.RecurrentConfig(VOCABULARY, embedding_dim=6, hidden_dim=8, **options))
    else:
        architecture = {"causal": "decoder", "seq2seq": "encoder_decoder"}.get(name, "encoder")
        parts = {
            "hidden_dim": 8,
            "num_layers": 2,
            "max_length": 16,
            "attention": zoo.AttentionConfig(num_heads=2),
            "norm": zoo.NormConfig(placement="pre"),
            "feed_forward": zoo.FeedForwardConfig(8),
            "dropout": 0.0,
            "initializer_range": 0.7,
        }
        config = zoo.TransformerConfig(architecture, vocabulary_size=VOCABULARY, **{**parts, **choices})
        backbone = zoo.backbones.Transformer(config, dtype=dtype)
    kinds = {"causal": zoo.CausalLM, "masked": zoo.MaskedLM, "tagger": zoo.TokenClassifier}
    options = {"labels": 3} if name == "tagger" else {}
    return kinds.get(name, zoo.Seq2SeqLM)(backbone, dtype=dtype, **options)


@pytest.mark.parametrize("name", ["causal", "masked", "tagger", "seq2seq", "recurrent"])
def test_token_level(name):
    task = make(name)
    text = TWO if name in ("seq2seq", "recurrent") else ONE
    found = task.inspect(text, top_k=VOCABULARY)
    last = TARGET_IDS if text is TWO else IDS
    assert found.tokens == tuple(map(str, last[0])) and found.token_ids.tolist() == last[0].tolist()
    for weights in (found.attention, found.source_attention, found.cross_attention):
        if weights is not None:
            np.testing.assert_allclose(weights.sum(axis=-1), 1, rtol=1e-4)
    assert (found.cross_attention is not None) == (text is TWO)
    inputs = {**text, **{key.replace("token_ids", "padding_mask"): value > 0 for key, value in text.items()}}
    logits = ops.convert_to_numpy(task(inputs, training=False))[0]
    shares = np.exp(logits - logits.max(axis=-1, keepdims=True))
    shares /= shares.sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(found.choice_probabilities[-1], np.sort(shares, axis=-1)[:, ::-1], rtol=1e-3, atol=1e-6)
    assert found.choice_probabilities.shape[0] == (1 if name == "recurrent" else 3)
    targets = {"masked": IDS[0], "tagger": None}.get(name, last[0][1:])
    if targets is not None:
        expected = shares[np.arange(len(targets)), targets]
        np.testing.assert_allclose(found.probabilities[: len(targets)], expected, rtol=1e-3)
    check_gradients(task, found, text)


def check_gradients(task, found, text, tolerance=0.03):
    """Gradient times input is the slope along the embedding."""
    stacks = {found.last_stack: found.gradients}
    if text is TWO:
        stacks["encoder"] = found.source_gradients
    row = task.row_of(text)
    best = int(ops.convert_to_numpy(task.decisions(task(row.inputs), found.tokens).scores)[0, 0].argmax())
    chosen = best if row.targets is None else int(row.targets[0])
    for stack, gradients in stacks.items():

        def slope(step, stack=stack, gradients=gradients):
            values = []
            for factor in (1 - step, 1 + step):
                factors = np.ones((1, gradients.shape[1], 1), "float32")
                factors[0, 0] = factor
                with Capture((), {f"{stack}.embeddings": lambda x, factors=factors: x * ops.cast(factors, x.dtype)}):
                    scores = task.decisions(task(row.inputs, training=False), found.tokens).scores
                values.append(float(ops.convert_to_numpy(scores)[0, 0, chosen]))
            return (values[1] - values[0]) / (2 * step)

        # two steps, so that what the third derivative adds goes away; short ones, so that no expert changes
        expected = (4 * slope(0.001) - slope(0.002)) / 3
        scale = max(np.abs(gradients).max(), 0.1)
        np.testing.assert_allclose(gradients[0, 0], expected, atol=tolerance * scale)


VARIANTS = {
    "remat": {"remat": True},
    "shared": {"layer_groups": 1, "embedding": zoo.EmbeddingConfig(factor_dim=4)},
    "experts": {"feed_forward": zoo.FeedForwardConfig(8, num_experts=3)},
    "window": {"attention": zoo.AttentionConfig(num_heads=4, num_key_value_heads=2, window=(1, 0))},
    "rotary": {"position": zoo.PositionConfig("rotary"), "norm": zoo.NormConfig("rms", placement="pre")},
    "post": {"norm": zoo.NormConfig(placement="post")},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_variants(name):
    task = make("causal", **VARIANTS[name])
    found = task.inspect(ONE, top_k=VOCABULARY)
    logits = ops.convert_to_numpy(task({"token_ids": IDS, "padding_mask": IDS > 0}, training=False))[0]
    shares = np.exp(logits - logits.max(axis=-1, keepdims=True))
    shares /= shares.sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(found.choice_probabilities[-1], np.sort(shares, axis=-1)[:, ::-1], rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(found.attention.sum(axis=-1), 1, rtol=1e-4)
    assert len(found.attention) == 2 and len(found.norms) == 3
    if name == "window":
        assert found.attention.shape[1] == 4 and not np.tril(found.attention, -2).any()
    check_gradients(task, found, ONE)


@pytest.mark.parametrize("name", ["causal", "masked", "tagger"])
def test_lens_through_a_narrow_output(name):
    """A separate map leads from hidden states to the width of the table, for the tasks that use it."""
    task = make(name, embedding=zoo.EmbeddingConfig(factor_dim=4, factor_output=True))
    found = task.inspect(ONE, top_k=3, gradients=False)
    row = task.row_of(ONE)
    with Capture(["encoder.hidden", "decoder.hidden"]) as points:
        task(row.inputs, training=False)
    stack = f"{found.last_stack}.hidden"
    for layer, hidden in enumerate(points[stack]):
        # the model with this layer as its last
        last = {stack: lambda x, hidden=hidden: hidden}
        with Capture([], last):
            scores = task.decisions(task(row.inputs, training=False), found.tokens).scores
        best = np.sort(np.exp(ops.convert_to_numpy(scores)[0]), axis=-1)[:, :-4:-1]
        np.testing.assert_allclose(found.choice_probabilities[layer], best, rtol=1e-3)


@pytest.mark.parametrize("change", ["bfloat16", "int8", "lora"])
def test_other_weights(change):
    # without kinks, over which rounding would lead
    options = {"feed_forward": zoo.FeedForwardConfig(8, "gelu")}
    task = make("causal", dtype="mixed_bfloat16" if change == "bfloat16" else "float32", **options)
    if change == "int8":
        task.quantize("int8")
    if change == "lora":
        task.enable_lora(2)
        for weight in task.trainable_weights:
            weight.assign(weight + 0.3)
    found = task.inspect(ONE, top_k=VOCABULARY)
    logits = ops.cast(task({"token_ids": IDS, "padding_mask": IDS > 0}, training=False), "float32")
    shares = ops.convert_to_numpy(ops.softmax(logits, axis=-1))[0]
    # the probabilities that a call leads to; in 16 bits the kernel that gives weights rounds otherwise
    rtol = 0.05 if change == "bfloat16" else 1e-3
    np.testing.assert_allclose(found.choice_probabilities[-1].max(axis=-1), shares.max(axis=-1), rtol=rtol)
    np.testing.assert_allclose(found.attention.sum(axis=-1), 1, rtol=0.02)
    assert np.isfinite(found.gradients).all() and np.abs(found.gradients).max() > 0
    if change == "lora":
        check_gradients(task, found, ONE)
        return
    # rounded numbers have no slope: those of the same model in float32
    expected = make("causal", **options).inspect(ONE).gradients
    assert np.linalg.norm(found.gradients - expected) < 0.25 * np.linalg.norm(expected)


def test_padding_is_left_out():
    task = make("causal")
    mask = np.array([[False] * 2 + [True] * 5 + [False]])
    padded = {"token_ids": np.pad(IDS, ((0, 0), (2, 1))), "padding_mask": mask}
    found, alone = task.inspect(padded, gradients=False), task.inspect(ONE, gradients=False)
    assert found.tokens == alone.tokens
    np.testing.assert_array_equal(found.attention, alone.attention)
    with pytest.raises(ValueError, match=r"text\['token_ids'\] must have the shape \(1, length\), got \(2, 5\)"):
        task.inspect({"token_ids": np.repeat(IDS, 2, axis=0)})
    with pytest.raises(ValueError, match="text must have at least one token, got none in token_ids"):
        task.inspect({"token_ids": IDS, "padding_mask": np.zeros((1, 5), bool)})
    with pytest.raises(ValueError, match=r"inspect\(\) needs a tokenizer"):
        task.inspect("a text")
    with pytest.raises(ValueError, match=r"text\['token_ids'\] must have 4 positions, as many as padding_mask, got 5"):
        task.inspect({"token_ids": IDS, "padding_mask": np.ones((1, 4), bool)})


def test_ids_that_the_model_does_not_take():
    task = make("causal")
    with pytest.raises(ValueError, match="text must have token_ids, got encoder_padding_mask, encoder_token_ids"):
        task.inspect({"encoder_token_ids": IDS, "encoder_padding_mask": IDS > 0})
    for wrong in (-1, VOCABULARY):
        with pytest.raises(ValueError, match=rf"\['token_ids'\] must have ids from 0 to {VOCABULARY - 1}, got {wrong}"):
            task.inspect({"token_ids": np.array([[3, wrong]])})
    longest = task.backbone.config.max_length
    with pytest.raises(ValueError, match=rf"text\['token_ids'\] must have at most {longest} tokens, got {longest + 1}"):
        task.inspect({"token_ids": np.ones((1, longest + 1), int)})
    # padding is not read
    padded = np.array([[3, 4, -1]])
    assert task.inspect({"token_ids": padded, "padding_mask": padded >= 0}, gradients=False).tokens == ("3", "4")


def test_positions_of_tokens_are_no_places():
    task = make("seq2seq")
    numbers = {"encoder_positions": np.arange(6)[None], "decoder_positions": np.array([[0, 1, 2, 0]])}
    padded = {name: np.pad(value, ((0, 0), (0, 1))) for name, value in TWO.items()}
    masks = {name.replace("token_ids", "padding_mask"): value > 0 for name, value in padded.items()}
    found, alone = task.inspect({**padded, **masks, **numbers}), task.inspect(TWO)
    assert found.rows == alone.rows and found.places.tolist() == [0, 1, 2]
    np.testing.assert_allclose(found.cross_attention, alone.cross_attention, atol=1e-6)
    np.testing.assert_allclose(found.gradients, alone.gradients, atol=1e-4)


def test_texts_that_share_a_row():
    """The last token of a text has no target: what follows is another text."""
    task = make("causal")
    found = task.inspect({**ONE, "sequence_ids": np.array([[0, 0, 0, 1, 1]])}, gradients=False)
    assert found.targets == ("7", "7", None, "5", None)
    numbers = {"encoder_sequence_ids": np.array([[0, 0, 0, 1, 1]]), "decoder_sequence_ids": np.array([[0, 1, 1]])}
    found = make("seq2seq").inspect({**TWO, **numbers}, gradients=False)
    assert found.targets == (None, "4", None) and not found.cross_attention[..., 0, 3:].any()


def test_words_to_label():
    task = make("tagger")
    found = task.inspect({**ONE, "word_positions": np.array([[3, 1, -1]])})
    assert found.places.tolist() == [3, 1] and found.rows == ("11", "7")
    with pytest.raises(ValueError, match="text must have at least one word to label, got none"):
        task.inspect({**ONE, "word_positions": np.array([[-1, -1]])})


def test_captures_end_and_replace_each_other():
    backbone = make("masked").backbone
    inputs = {"token_ids": IDS, "padding_mask": IDS > 0}
    plain = ops.convert_to_numpy(backbone(inputs))
    with Capture() as outer:
        with Capture(["encoder.hidden"], {"encoder.hidden": lambda x: x * 0}) as inner:
            ops.convert_to_numpy(backbone(inputs))
        assert "encoder.hidden" not in outer
        again = ops.convert_to_numpy(backbone(inputs))
    assert all(not ops.convert_to_numpy(x).any() for x in inner["encoder.hidden"])
    assert len(outer["encoder.hidden"]) == 3 and len(outer["encoder.attention"]) == 2
    np.testing.assert_allclose(again, plain, atol=1e-6)
    backbone(inputs)
    assert len(outer["encoder.hidden"]) == 3


def test_a_capture_begins_anew_and_is_not_opened_within_itself():
    backbone = make("masked").backbone
    found = Capture(["encoder.hidden"])
    for _ in range(2):
        with found:
            backbone({"token_ids": IDS, "padding_mask": IDS > 0})
            with pytest.raises(RuntimeError, match="A capture is open already: open another Capture within it"):
                found.__enter__()
        assert len(found["encoder.hidden"]) == 3
    # left in another context than it was opened in, it is not open either
    contextvars.copy_context().run(found.__enter__)
    with pytest.raises(ValueError, match="different Context"):
        found.__exit__(None, None, None)
    with found:
        pass


def operations(backbone):
    """The operations of a compiled call, in their order."""
    inputs = {"token_ids": IDS, "padding_mask": IDS > 0}
    if keras.backend.backend() == "jax":
        import jax

        return str(jax.make_jaxpr(lambda: backbone(inputs))())
    import tensorflow as tf

    return [
        operation.type
        for operation in tf.function(lambda: backbone(inputs)).get_concrete_function().graph.get_operations()
    ]


def test_models_that_keras_builds_at_their_first_call():
    """Keras runs such a call once more to find shapes. That is no pass by a point, and nothing in it is kept."""
    backbone = make("masked").backbone
    inputs = {"token_ids": IDS, "padding_mask": IDS > 0}

    class Around(keras.Model):
        def __init__(self):
            super().__init__()
            self.backbone, self.head = backbone, keras.layers.Dense(3)

        def call(self, inputs):
            return self.head(self.backbone(inputs))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with Capture(changes={"encoder.embeddings": lambda x: x * 0}) as found:
            Around()(inputs)
    with Capture() as again:
        backbone(inputs)
    assert len(found["encoder.hidden"]) == 3 and len(found["encoder.attention"]) == 2
    assert np.abs(ops.convert_to_numpy(found["encoder.hidden"][0] - again["encoder.hidden"][0])).max() > 0


def test_points_cost_nothing_outside_of_a_capture(monkeypatch):
    backbone = make("masked").backbone
    with_points = operations(backbone)
    with Capture(["encoder.attention"]):
        assert operations(backbone) != with_points
    monkeypatch.setattr("zoo.backbones.stack.point", lambda name, tensor, **options: tensor)
    monkeypatch.setattr("zoo.backbones.stack.is_captured", lambda name: False)
    assert operations(backbone) == with_points


def test_changes_that_would_be_ignored():
    backbone = make("masked").backbone
    inputs = {"token_ids": IDS, "padding_mask": IDS > 0}
    doubled = {"encoder.attention": lambda x: x * 2}
    with pytest.raises(ValueError, match="points that may be changed, got 'encoder.attention'"):
        with Capture(changes=doubled):
            backbone(inputs)
    for changes in (doubled, {"encoder.embedings": lambda x: x}):
        with pytest.raises(ValueError, match=f"it did not pass {next(iter(changes))}"):
            with Capture([], changes):
                backbone(inputs)
    # an error within stays what it is
    with pytest.raises(KeyError, match="mine"):
        with Capture([], doubled):
            raise KeyError("mine")


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="other backends cannot tell")
def test_changes_that_would_be_compiled():
    """A compiled function would go on with the changes when the capture has ended."""
    import tensorflow as tf

    backbone = make("masked").backbone
    inputs = {"token_ids": tf.constant(IDS), "padding_mask": tf.constant(IDS > 0)}
    plain = ops.convert_to_numpy(backbone(inputs))
    zeros = {"encoder.hidden": lambda x: x * 0}
    function = tf.function(backbone)
    with pytest.raises(ValueError, match="changes must not be compiled .* got 'encoder.hidden' in a function"):
        with Capture([], zeros):
            function(inputs)
    with pytest.raises(ValueError, match="changes must not be compiled"):
        with Capture([], zeros):
            backbone.predict(inputs, verbose=0)
    np.testing.assert_allclose(function(inputs), plain, atol=1e-6)

    # what is inside of a function is meant for it, and keeping alone changes nothing
    @tf.function
    def changed():
        with Capture([], zeros):
            return backbone(inputs)

    assert np.abs(changed() - plain).max() > 0.1
    with Capture(["encoder.hidden"]):
        tf.function(backbone)(inputs)
