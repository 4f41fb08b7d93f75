"""Every task on token level, the same numbers on every backend: run with KERAS_BACKEND=jax too. Needs no TensorFlow."""

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
    PositionConfig,
    TransformerConfig,
)
from zoo.generation import Beam, MinimumLength, Sample
from zoo.tasks import CausalLM, MaskedLM, QuestionAnswerer, Seq2SeqLM, TextClassifier, TextEmbedder, TokenClassifier

pytestmark = pytest.mark.backends

VOCABULARY, LENGTHS = 17, (6, 4, 1)
ENCODER = {"embedding": EmbeddingConfig(num_segments=2), "position": PositionConfig("learned"), "pooler": True}
MODERN = {"norm": NormConfig(kind="rms", placement="pre"), "position": PositionConfig("rotary")}
TASKS = {
    "classifier": (TextClassifier, "encoder", ENCODER, {"labels": 3, "head_dropout": 0.0}),
    "tagger": (TokenClassifier, "encoder", ENCODER, {"labels": 3, "head_dropout": 0.0}),
    "answerer": (QuestionAnswerer, "encoder", ENCODER, {}),
    "masked": (MaskedLM, "encoder", ENCODER, {}),
    "embedder": (TextEmbedder, "encoder", ENCODER, {}),
    "causal": (CausalLM, "decoder", MODERN, {}),
    "seq2seq": (Seq2SeqLM, "encoder_decoder", MODERN, {}),
}


def make(name):
    task_class, architecture, choices, options = TASKS[name]
    config = TransformerConfig(
        architecture,
        vocabulary_size=VOCABULARY,
        hidden_dim=8,
        num_layers=1,
        max_length=24,
        attention=AttentionConfig(2),
        feed_forward=FeedForwardConfig(12),
        dropout=0.0,
        **choices,
    )
    task = task_class(Backbone.from_config(config), **options)
    generator = np.random.default_rng(7)
    for weight in task.weights:
        if len(weight.shape) > 1:
            weight.assign(generator.normal(0, 0.6, weight.shape))
    return task


def batch(name):
    """Inputs, labels and weights, on token level."""
    generator = np.random.default_rng(3)
    ids = generator.integers(1, VOCABULARY, (3, 6)).astype("int32")
    mask = np.arange(6) < np.array(LENGTHS)[:, None]
    others = generator.integers(1, VOCABULARY, (3, 6)).astype("int32")
    inputs = {"token_ids": ids, "padding_mask": mask}
    weights = mask.astype("float32")
    if name == "seq2seq":
        sides = {f"{side}_{key}": value for side in ("encoder", "decoder") for key, value in inputs.items()}
        return {**sides, "decoder_token_ids": others}, ids, weights
    if name == "causal":
        return inputs, others, weights
    inputs["segment_ids"] = (np.arange(6) > 2) * np.ones((3, 1), "int32")
    if name == "masked":
        return {**inputs, "mask_positions": np.array([[0, 3], [2, 0], [0, 0]], "int32")}, others[:, :2], weights[:, :2]
    if name == "tagger":
        positions = np.array([[1, 3, 4], [0, 2, -1], [0, -1, -1]], "int32")
        labels = np.array([[0, 1, 2], [1, 1, 0], [2, 0, 0]], "int32")
        return {**inputs, "word_positions": positions}, labels, (positions >= 0).astype("float32")
    if name == "answerer":
        return inputs, np.array([[1, 3], [0, 0], [0, 0]], "int32"), np.ones(3, "float32")
    if name == "embedder":
        pair = {f"{part}_{key}": value for part in ("first", "second") for key, value in inputs.items()}
        return {**pair, "second_token_ids": others}, np.zeros((3,), "float32"), None
    return inputs, np.array([0, 2, 1], "int32"), np.ones(3, "float32")


# the first output, their weighted sum and the losses of two steps; written with TensorFlow
GOLDEN = {
    "classifier": [1.417682, 1.310758, 1.4467, 1.062496],
    "tagger": [0.940636, -0.184284, 1.314207, 0.921345],
    "answerer": [-2.815857, -7.207301, 1.801692, 1.140557],
    "masked": [1.21231, 1.417463, 4.393345, 3.626819],
    "embedder": [-0.373259, 0.238891, 0.94358, 0.247911],
    "causal": [2.3355, 5.706858, 4.122806, 3.475173],
    "seq2seq": [1.337375, 1.785085, 4.087964, 3.347629],
}


@pytest.mark.parametrize("name", TASKS)
def test_outputs_and_losses(name):
    task = make(name)
    inputs, labels, weights = batch(name)
    outputs = np.asarray(ops.convert_to_numpy(task(inputs)), "float64")
    outputs = np.where(outputs < -1e8, 0.0, outputs)  # of padding
    places = np.arange(outputs.size)
    summary = [outputs.ravel()[0], (outputs * np.cos(places).reshape(outputs.shape)).sum()]
    task.compile(keras.optimizers.SGD(0.1))
    losses = task.fit(inputs, labels, sample_weight=weights, batch_size=3, epochs=2, verbose=0).history["loss"]
    np.testing.assert_allclose([*summary, *losses], GOLDEN[name], rtol=1e-4, atol=1e-5)


# of `torch.nn.Module`, which every layer is on PyTorch
MODULE_NAMES = """add_module apply bfloat16 buffers children cpu cuda double eval extra_repr float forward get_buffer
get_extra_state get_parameter get_submodule half ipu load_state_dict modules mtia named_buffers named_children
named_modules named_parameters parameters register_backward_hook register_buffer register_forward_hook
register_forward_pre_hook register_full_backward_hook register_module register_parameter requires_grad_
set_extra_state set_submodule share_memory state_dict to to_empty train type xpu zero_grad""".split()


def ours(kind):
    """Classes of this library that are made of one of Keras."""
    for made in kind.__subclasses__():
        yield from ours(made)
        if made.__module__.partition(".")[0] in ("layers", "zoo"):
            yield made


def test_no_class_hides_what_pytorch_calls():
    """`fit` asks for the `parameters()` of a module, for example."""
    hidden = {kind.__name__: name for kind in ours(keras.layers.Layer) for name in MODULE_NAMES if name in vars(kind)}
    assert hidden == {}


SAMPLERS = {"greedy": ("greedy", ()), "sample": (Sample(1.1, top_k=9), (MinimumLength(4),)), "beam": (Beam(2), ())}
# written with TensorFlow
TOKENS = {
    "greedy": [[6, 16, 6, 16, 6, 16], [6, 6, 16, 6, 16, 6], [15, 15, 15, 7, 8, 8]],
    "sample": [[6, 6, 6, 12, 6, 5], [0, 6, 5, 0, 15, 4], [8, 0, 0, 0, 11, 15]],
    "beam": [[6, 16, 6, 16, 6, 16], [6, 6, 16, 6, 16, 6], [15, 15, 15, 7, 8, 8]],
}


@pytest.mark.parametrize(
    "sampler", ["beam", *(pytest.param(name, marks=pytest.mark.slow) for name in ("greedy", "sample"))]
)
def test_sequence_to_sequence_generation(sampler):
    task, (inputs, _, _) = make("seq2seq"), batch("seq2seq")
    chosen, processors = SAMPLERS[sampler]
    options = {"sampler": chosen, "processors": processors, "max_new_tokens": 6, "end_ids": 2, "seed": 4}
    source = [row[:length] for row, length in zip(np.asarray(inputs["encoder_token_ids"]), LENGTHS, strict=True)]
    result = task.generate_tokens([[1]] * 3, source=source, **options)
    assert ops.convert_to_numpy(result["token_ids"]).tolist() == TOKENS[sampler]


def test_greedy_is_the_most_probable():
    """Without cache, batch and loop."""
    task, (inputs, _, _) = make("seq2seq"), batch("seq2seq")
    source = inputs["encoder_token_ids"], inputs["encoder_padding_mask"]
    rows = [row[:length] for row, length in zip(np.asarray(source[0]), LENGTHS, strict=True)]
    result = task.generate_tokens([[1]] * 3, source=rows, max_new_tokens=5)
    for row, length in enumerate(LENGTHS):
        written = ops.convert_to_numpy(result["token_ids"])[row].tolist()
        alone = {
            "encoder_token_ids": source[0][row : row + 1, :length],
            "encoder_padding_mask": source[1][row : row + 1, :length],
            "decoder_token_ids": np.array([[1, *written[:-1]]]),
            "decoder_padding_mask": np.ones((1, 5), "bool"),
        }
        assert ops.convert_to_numpy(task(alone))[0].argmax(axis=-1).tolist() == written
