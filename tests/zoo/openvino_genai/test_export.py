"""Exports for OpenVINO GenAI: its pipelines write what `generate` writes."""

import importlib.util
import json

import keras
import pytest

pytest.importorskip("tensorflow")
if importlib.util.find_spec("openvino_genai") is None:
    pytest.skip("the extra openvino_genai is not installed", allow_module_level=True)

import openvino  # noqa: E402
import openvino_genai  # noqa: E402

from zoo import (  # noqa: E402
    AttentionConfig,
    Backbone,
    CausalLM,
    FeedForwardConfig,
    NormConfig,
    PositionConfig,
    TransformerConfig,
)
from zoo.openvino_genai.positions import TABLE  # noqa: E402
from zoo.tokenizers import ByteLevelBPETokenizer  # noqa: E402

EXACT = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}
NEW_TOKENS = 8
QUESTION = [{"role": "user", "content": "alpha beta"}]


def language_model(tokenizer, position="rotary", **options):
    keras.utils.set_random_seed(0)
    config = TransformerConfig(
        "decoder",
        vocabulary_size=tokenizer.vocabulary_size,
        hidden_dim=64,
        num_layers=2,
        max_length=128,
        attention=AttentionConfig(num_heads=2, num_key_value_heads=1, use_bias=False),
        position=PositionConfig(position),
        feed_forward=FeedForwardConfig(64, activation="silu", gated=True, use_bias=False),
        norm=NormConfig("rms", placement="pre"),
        dropout=0.0,
        initializer_range=0.3,
    )
    return CausalLM(Backbone.from_config(config), tokenizer, **options)


@pytest.fixture(scope="module")
def tokenizer(texts):
    special = {"special_tokens": ["<|im_start|>", "<|im_end|>"], "end_token": "<|end|>", "pad_token": "<|end|>"}
    return ByteLevelBPETokenizer.train(texts, vocabulary_size=300, **special).with_chat_format("chatml")


@pytest.fixture(scope="module")
def model(tokenizer):
    return language_model(tokenizer)


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("genai") / "float32"
    model.export(folder, format="openvino_genai")
    return folder


def test_pipelines_write_what_generate_writes(model, folder, texts):
    prompts = [*texts[:5], "Grüße, 你好 😀"]
    expected = model.generate(prompts, max_new_tokens=NEW_TOKENS, strip_prompt=True)
    assert len(set(expected)) > 4
    pipeline = openvino_genai.LLMPipeline(folder, "CPU", **EXACT)
    plain = {"max_new_tokens": NEW_TOKENS, "apply_chat_template": False}
    assert [str(pipeline.generate(prompt, **plain)) for prompt in prompts] == expected
    assert pipeline.generate(prompts, **plain).texts == expected
    # with the chat template, which a text gets if there is one
    answer = model.generate(QUESTION, max_new_tokens=NEW_TOKENS)
    assert str(pipeline.generate(QUESTION[0]["content"], max_new_tokens=NEW_TOKENS)) == answer


def test_caches_as_state(model, folder, texts):
    expected = model.generate(texts[0], max_new_tokens=NEW_TOKENS, strip_prompt=True)
    pipeline = openvino_genai.LLMPipeline(folder, "CPU", ATTENTION_BACKEND="SDPA", **EXACT)
    assert str(pipeline.generate(texts[0], max_new_tokens=NEW_TOKENS, apply_chat_template=False)) == expected


def test_files(model, folder):
    about = json.loads((folder / "signature.json").read_text())
    assert (about["format"], about["weights"]) == ("openvino_genai", "float32")
    assert about["agreement"]["logits"]["largest_difference"] < 1e-4
    assert json.loads((folder / "config.json").read_text())["model_type"] == "llama"
    assert json.loads((folder / "generation_config.json").read_text())["eos_token_id"] == [0, 2]
    card = (folder / "model_card.md").read_text()
    assert f'openvino_genai.LLMPipeline("{folder}", "CPU")' in card and "ContinuousBatchingPipeline" in card
    assert "at most 128 tokens" in card
    model.export(folder, format="openvino_genai", weights="int8")  # in the place of the other
    small = json.loads((folder / "signature.json").read_text())
    assert small["weights"] == "int8" and small["agreement"]["logits"]["largest_difference"] > 1e-4
    # tables of positions are looked up like embeddings, and are not compressed like them
    graph = openvino.Core().read_model(folder / "openvino_model.xml")
    lookups = [
        node for node in graph.get_ops() if node.get_type_name() == "Gather" and TABLE in node.get_friendly_name()
    ]
    assert len(lookups) == 2
    assert {node.input_value(0).get_node().get_type_name() for node in lookups} == {"Constant"}
    assert {node.input_value(0).get_element_type().to_string() for node in lookups} == {"f32"}


def test_biases_are_not_left_out(tokenizer, texts, tmp_path):
    # by default the pipeline pages caches, which takes no biases: it must find out, and not write other texts
    model = language_model(tokenizer, "alibi", generation={"max_new_tokens": NEW_TOKENS})
    model.export(tmp_path / "export", format="openvino_genai")
    assert 'ATTENTION_BACKEND="SDPA"' in (tmp_path / "export/model_card.md").read_text()
    pipeline = openvino_genai.LLMPipeline(tmp_path / "export", "CPU", **EXACT)
    for text in texts[:3]:
        expected = model.generate(text, strip_prompt=True)
        assert str(pipeline.generate(text, apply_chat_template=False)) == expected


def test_weights_in_4_bits(model, tmp_path):
    model.export(tmp_path / "export", format="openvino_genai", weights="int4")
    assert (tmp_path / "export/openvino_model.bin").stat().st_size < 0.3 * 4 * model.backbone.parameter_count()
    assert str(openvino_genai.LLMPipeline(tmp_path / "export", "CPU").generate("alpha", max_new_tokens=2))


def test_what_is_refused(model, tokenizer, tmp_path, monkeypatch):
    export = tmp_path / "export"
    with pytest.raises(ValueError, match="weights must be one of 'float32', 'int8', 'int4', got 'q4_0'"):
        model.export(export, format="openvino_genai", weights="q4_0")
    with pytest.raises(ValueError, match="strings must be left out with the format 'openvino_genai', got True"):
        model.export(export, format="openvino_genai", strings=True)
    rules = {"processors": [{"name": "banned_tokens", "token_ids": [5]}]}
    with pytest.raises(ValueError, match="OpenVINO GenAI has nothing for bad_words_ids="):
        language_model(tokenizer, generation=rules).export(export, format="openvino_genai")
    right = tokenizer.tokenize
    monkeypatch.setattr(type(tokenizer), "tokenize", lambda self, texts, **options: right(texts, **options)[:, 1:])
    with pytest.raises(ValueError, match=r"gives other ids than the ByteLevelBPETokenizer of this model for the text"):
        model.export(export, format="openvino_genai")
    assert not list(tmp_path.iterdir())
