"""Decoders as one graph that keeps keys and values: logits of each call are those of the whole text in Python."""

import keras
import numpy as np
import pytest

pytest.importorskip("tensorflow")
openvino = pytest.importorskip("openvino", reason="the extra openvino_genai is not installed")

from zoo import (  # noqa: E402
    AttentionConfig,
    Backbone,
    EmbeddingConfig,
    FeedForwardConfig,
    NormConfig,
    PositionConfig,
    RecurrentConfig,
    TransformerConfig,
)
from zoo.openvino_genai.stateful import is_plain, require_stateful, stateful_model  # noqa: E402

# Sums of float32 in another order, of logits of a size up to 10.
CLOSE = {"rtol": 1e-4, "atol": 1e-4}
GROUPED = AttentionConfig(num_heads=4, num_key_value_heads=2)
WHOLE = AttentionConfig(num_heads=4)
CASES = {
    "rotary": {"position": PositionConfig("rotary"), "attention": GROUPED},
    "sinusoidal": {"position": PositionConfig("sinusoidal"), "attention": GROUPED},
    "learned": {"position": PositionConfig("learned"), "embedding": EmbeddingConfig(tie_output=False)},
    "alibi": {"position": PositionConfig("alibi")},
    "relative_bias": {"position": PositionConfig("relative_bias"), "attention": GROUPED},
    "window": {
        "position": PositionConfig("rotary", layout="interleaved"),
        "attention": AttentionConfig(4, 2, window=(3, 0), window_layers=(True, False)),
    },
    "soft_cap": {"position": PositionConfig("rotary"), "attention": AttentionConfig(4, 1, logit_soft_cap=5.0)},
    "latents": {
        "position": PositionConfig("rotary"),
        "attention": AttentionConfig(4, head_dim=12, value_head_dim=8, latent_dim=16, shared_key_dim=4),
    },
}


def backbone(attention=WHOLE, embedding=None, max_length=32, **choices):
    keras.utils.set_random_seed(0)
    config = TransformerConfig(
        "decoder",
        vocabulary_size=53,
        hidden_dim=32,
        num_layers=2,
        max_length=max_length,
        attention=attention,
        embedding=embedding or EmbeddingConfig(),
        norm=NormConfig(placement="pre"),
        feed_forward=choices.pop("feed_forward", FeedForwardConfig(48)),
        dropout=0.0,
        initializer_range=0.5,
        **choices,
    )
    return Backbone.from_config(config)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", CASES)
def test_logits_of_rows_that_begin_come_and_go(name):
    model = backbone(**CASES[name])
    layouts = [type(block.attention.cache_layout) for block in model.decoder.blocks]
    graph = stateful_model(model)
    assert [type(block.attention.cache_layout) for block in model.decoder.blocks] == layouts
    types = {port.get_any_name(): port.get_element_type().to_string() for port in graph.inputs}
    assert types == {"input_ids": "i64", "attention_mask": "i64", "position_ids": "i64", "beam_idx": "i32"}
    assert [port.get_any_name() for port in graph.outputs] == ["logits"] and len(graph.get_sinks()) == 4
    # continuous batching finds its attention by this operation, and looks at no mask
    kinds = [node.get_type_name() for node in graph.get_ops()]
    assert kinds.count("ScaledDotProductAttention") == (2 if is_plain(model) else 0)
    assert is_plain(model) == (name in ("rotary", "sinusoidal", "learned"))

    options = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}
    request = openvino.Core().compile_model(graph, "CPU", options).create_infer_request()
    ids, padding = np.random.default_rng(0).integers(0, 53, (3, 12)), [0, 5, 2]
    mask = np.array([[0] * pad + [1] * (12 - pad) for pad in padding])
    positions = np.maximum(mask.cumsum(axis=1) - mask, 0)

    def expected(row, end, more=()):
        text = np.concatenate([ids[row, padding[row] : end], more]).astype("int32")[None]
        return np.asarray(model.logits(model({"token_ids": text, "padding_mask": np.ones_like(text, "bool")})))[0]

    for start, end in ((0, 7), (7, 8), (8, 12)):
        inputs = (ids[:, start:end], mask[:, :end], positions[:, start:end], np.arange(3, dtype="int32"))
        logits = request.infer(dict(zip(types, inputs, strict=True)))["logits"]
        for row, pad in enumerate(padding):
            first = max(start, pad)
            np.testing.assert_allclose(logits[row, first - start :], expected(row, end)[first - pad :], **CLOSE)
    # a beam that was the last row goes on twice, and the second row has ended
    rows, new = [2, 0, 2], np.array([[3], [4], [5]])
    inputs = (new, np.pad(mask[rows], ((0, 0), (0, 1)), constant_values=1), mask[rows].sum(axis=1)[:, None])
    logits = request.infer(dict(zip(types, (*inputs, np.array(rows, "int32")), strict=True)))["logits"]
    for place, row in enumerate(rows):
        np.testing.assert_allclose(logits[place, -1], expected(row, 12, new[place])[-1], **CLOSE)


@pytest.mark.parametrize("position", [PositionConfig("rotary"), PositionConfig("sinusoidal")], ids=lambda c: c.kind)
def test_positions_of_long_texts_in_half_precision(position):
    """An angle of position 1,000 in bfloat16 is wrong by up to two radians; a cosine by 0.002."""
    model = backbone(position=position, max_length=1024)
    hooks = model.decoder.blocks[0].attention.position_hooks()
    graph = stateful_model(model)
    assert not {"prepare", "call"} & (vars(hooks).keys() | vars(model.decoder.position or hooks).keys())
    assert not {"Sin", "Cos"} & {node.get_type_name() for node in graph.get_ops()}
    ids = np.random.default_rng(0).integers(0, 53, (1, 1024))
    inputs = (ids, np.ones_like(ids), np.arange(1024)[None], np.zeros(1, "int32"))
    request = openvino.Core().compile_model(graph, "CPU", {"INFERENCE_PRECISION_HINT": "bf16"}).create_infer_request()
    logits = request.infer(dict(zip(("input_ids", "attention_mask", "position_ids", "beam_idx"), inputs, strict=True)))
    text = ids.astype("int32")
    expected = np.asarray(model.logits(model({"token_ids": text, "padding_mask": np.ones_like(text, "bool")})))
    errors = np.abs(logits["logits"] - expected)[0].mean(axis=-1) / np.abs(expected).mean()
    # as close at the end as at the beginning
    assert errors[-256:].mean() < 1.5 * errors[:256].mean() < 0.1


@pytest.mark.parametrize(
    ("choices", "reason"),
    [
        ({"position": PositionConfig("shaw")}, r"its positions \(shaw\) change pairs"),
        ({"attention": AttentionConfig(4, sinks=True)}, "its attention has sinks"),
        ({"feed_forward": FeedForwardConfig(48, num_experts=4)}, "it has experts"),
    ],
)
def test_what_has_no_such_graph(choices, reason):
    with pytest.raises(ValueError, match=f"'openvino_genai' cannot hold this model: {reason}"):
        require_stateful(backbone(**choices))


@pytest.mark.parametrize(
    "config",
    [
        TransformerConfig("encoder_decoder", 27, 16, 1, max_length=16, attention=AttentionConfig(2)),
        RecurrentConfig(27, embedding_dim=8, hidden_dim=12, encoder_dim=10),
    ],
)
def test_other_architectures(config):
    with pytest.raises(ValueError, match=r"it is a (Transformer|Recurrent.*) that is no decoder"):
        require_stateful(Backbone.from_config(config))
