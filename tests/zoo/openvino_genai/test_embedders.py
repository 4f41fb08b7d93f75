"""Embedders and cross-encoders for OpenVINO GenAI: its pipelines return what `embed` and `rank` return."""

import importlib.util
import json

import keras
import numpy as np
import pytest

pytest.importorskip("tensorflow")
if importlib.util.find_spec("openvino_genai") is None:
    pytest.skip("the extra openvino_genai is not installed", allow_module_level=True)

import openvino_genai  # noqa: E402

from zoo import (  # noqa: E402
    AttentionConfig,
    Backbone,
    EmbeddingConfig,
    FeedForwardConfig,
    MaskedLM,
    NormConfig,
    PositionConfig,
    TextClassifier,
    TextEmbedder,
    TransformerConfig,
)
from zoo.tokenizers import ByteLevelBPETokenizer, WordPieceTokenizer  # noqa: E402

EXACT = {"INFERENCE_PRECISION_HINT": "f32"}
# Sums of float32 in another order.
CLOSE = {"rtol": 1e-4, "atol": 1e-5}
POOLINGS = openvino_genai.TextEmbeddingPipeline.PoolingType


def backbone(tokenizer, architecture="encoder", num_segments=0, **choices):
    keras.utils.set_random_seed(0)
    config = TransformerConfig(
        architecture,
        vocabulary_size=tokenizer.vocabulary_size,
        hidden_dim=32,
        num_layers=1,
        max_length=24,
        embedding=EmbeddingConfig(num_segments=num_segments),
        dropout=0.0,
        initializer_range=0.5,
        **{"attention": AttentionConfig(num_heads=2), "feed_forward": FeedForwardConfig(48), **choices},
    )
    return Backbone.from_config(config)


@pytest.fixture(scope="module")
def word_pieces(texts):
    return WordPieceTokenizer.train(texts, vocabulary_size=60, lowercase=True)


@pytest.fixture(scope="module")
def byte_pairs(texts):
    return ByteLevelBPETokenizer.train(texts, vocabulary_size=300)


def exported(task, folder, **options):
    task.export(folder, format="openvino_genai", **options)
    about = json.loads((folder / "signature.json").read_text())
    (name,) = about["pipeline"]
    arguments = about["pipeline"][name]
    given = "".join(f", {key}={value!r}".replace("'", '"') for key, value in arguments.items())
    assert f'openvino_genai.{name}("{folder}", "CPU"{given})' in (folder / "model_card.md").read_text()
    return getattr(openvino_genai, name), arguments


def test_vectors_of_an_encoder(word_pieces, texts, tmp_path):
    options = {"projections": [{"units": 8, "activation": "tanh"}], "prompts": {"query": "alpha "}, "truncate": True}
    task = TextEmbedder(backbone(word_pieces, num_segments=2), word_pieces, normalize=False, **options)
    pipeline, arguments = exported(task, tmp_path / "export")
    assert arguments == {"normalize": False, "query_instruction": "alpha "}
    rows = [*texts[:3], "Grüße, 你好", " ".join(texts[:20])]
    expected = task.embed(rows)
    # pooling is in the graph: no way of the pipeline changes the vectors
    for pooling in (POOLINGS.CLS, POOLINGS.MEAN):
        opened = pipeline(tmp_path / "export", "CPU", pooling_type=pooling, **arguments, **EXACT)
        np.testing.assert_allclose(opened.embed_documents(rows), expected, **CLOSE)
    np.testing.assert_allclose(opened.embed_query(texts[0]), task.embed(texts[0], prompt="query"), **CLOSE)
    exported(task, tmp_path / "export", weights="int8")
    small = np.array(pipeline(tmp_path / "export", "CPU", **arguments).embed_documents(rows))
    assert 1e-5 < np.abs(small - expected).max() < 0.1


def test_vectors_of_a_decoder(byte_pairs, texts, tmp_path):
    choices = {"position": PositionConfig("rotary"), "norm": NormConfig("rms", placement="pre")}
    task = TextEmbedder(backbone(byte_pairs, "decoder", **choices), byte_pairs, pooling="last", width=16)
    pipeline, arguments = exported(task, tmp_path / "export")
    assert arguments == {}
    found = pipeline(tmp_path / "export", "CPU", **EXACT).embed_documents(texts[:4])
    np.testing.assert_allclose(found, task.embed(texts[:4]), **CLOSE)


@pytest.mark.parametrize("problem", ["multi_label", "regression"])
def test_scores_of_pairs(problem, word_pieces, byte_pairs, texts, tmp_path):
    if problem == "multi_label":
        made, options = backbone(word_pieces, num_segments=2), {"labels": ["fits"], "temperature": 2.0}
        task = TextClassifier(made, word_pieces, problem=problem, pairs=True, truncate=True, **options)
    else:
        options = {"labels": 1, "pair_separators": 2, "truncate": True}
        task = TextClassifier(backbone(byte_pairs), byte_pairs, problem=problem, pairs=True, **options)
    pipeline, arguments = exported(task, tmp_path / "export")
    documents = [*texts[1:5], " ".join(texts[:20])]
    expected = task.rank(texts[0], documents)
    found = pipeline(tmp_path / "export", "CPU", top_n=5, **arguments, **EXACT).rerank(texts[0], documents)
    assert [index for index, _ in found] == [index for index, *_ in expected]
    scores = np.array([score for _, score, _ in expected])
    scores = scores if problem == "multi_label" else 1 / (1 + np.exp(-scores))
    np.testing.assert_allclose([score for _, score in found], scores, **CLOSE)


def test_what_is_refused(word_pieces, tmp_path):
    encoder, export = backbone(word_pieces), tmp_path / "export"
    experts = backbone(word_pieces, feed_forward=FeedForwardConfig(48, num_experts=2))
    query_norms = AttentionConfig(2, use_bias=False, query_key_norm="rms")
    qwen = backbone(
        word_pieces,
        "decoder",
        attention=query_norms,
        position=PositionConfig("rotary"),
        norm=NormConfig("rms", placement="pre"),
        feed_forward=FeedForwardConfig(48, activation="silu", gated=True, use_bias=False),
    )
    pairs = {"problem": "multi_label", "labels": ["fits"], "pairs": True, "hidden_activation": None}
    refused = {
        "takes pairs of texts with one label or value": TextClassifier(encoder, word_pieces, labels=2, pairs=True),
        "reads a Qwen3 as a language model": TextClassifier(qwen, word_pieces, projection_bias=False, **pairs),
        "cannot hold a MaskedLM: its pipelines take a CausalLM, a TextEmbedder": MaskedLM(encoder, word_pieces),
        "it has experts": TextEmbedder(experts, word_pieces),
    }
    for reason, task in refused.items():
        with pytest.raises(ValueError, match=reason):
            task.export(export, format="openvino_genai")
    assert not list(tmp_path.iterdir())
