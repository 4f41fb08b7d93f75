"""GGUF files that are written: read back, and beside what llama.cpp's converter makes of the same model."""

import dataclasses
import json
import math
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf_files import converted
from keras import ops
from safetensors.numpy import load_file

import zoo
from zoo.gguf.header import read_gguf
from zoo.gguf.read_tensor import read_tensor
from zoo.gguf.writing import WEIGHTS
from zoo.huggingface import read_config
from zoo.tokenizers import ByteLevelBPETokenizer, SentencePieceTokenizer, WordPieceTokenizer

REFERENCE = Path(__file__).parents[2] / "reference" / "huggingface"
TEXTS = ["a small dog", "two small cats and a dog", "नमस्ते 你好 مرحبا สวัสดี"] * 20
# by case: llama.cpp's name, and what it has no key for
CASES = {
    "llama": ("llama", {"position": {"scaling": {"factor": 8.0, "original_max_position_embeddings": 8192}}}),
    "llama_biases": ("llama", {}),
    "granite": ("granite", {}),
    "olmo2": ("olmo2", {}),
    "deepseek_v2": (
        "deepseek2",
        {
            "attention": {"use_bias": False, "scale": 6**-0.5 * (0.0707 * math.log(4) + 1) ** 2},
            "feed_forward": {"expert_groups": None, "groups_per_token": None},
            "position": {"scaling": {"mscale": 0.707, "mscale_all_dim": 0.707, "beta_fast": 20.0}},
        },
    ),
    "deepseek_v3": ("deepseek2", {}),
    "lfm2": ("lfm2", {"mixer": {"use_bias": False}}),
    "cohere": ("command-r", {}),
    "gpt2": ("gpt2", {}),
    "gemma": ("gemma", {}),
    "phi_tied": ("phi2", {"feed_forward": {"activation": "gelu_tanh"}}),
    "phi3": ("phi3", {}),
    "stablelm": ("stablelm", {}),
    "glm": ("chatglm", {}),
    "glm4": ("glm4", {}),
    "exaone4_full": ("exaone4", {}),
    "gpt_bigcode": ("starcoder", {}),
    "gpt_neox": ("gptneox", {}),
    "nemotron": ("nemotron", {}),
    "bloom": ("bloom", {}),
    "mpt": ("mpt", {"attention": {"scale": None}}),
    "olmo": ("olmo", {}),
    "olmoe": ("olmoe", {"attention": {"projection_limit": None}}),
    "falcon": ("falcon", {}),
    "falcon_new": ("falcon", {"feed_forward": {"activation": "gelu"}}),
}


def changed(config, changes):
    """A configuration with other values, also of dictionaries in it."""
    values = {}
    for name, value in changes.items():
        old = getattr(config, name)
        if isinstance(value, dict):
            value = {**old, **value} if isinstance(old, dict) else changed(old, value)
        values[name] = value
    return dataclasses.replace(config, **values)


def model_of(case, changes=None):
    tokenizer = ByteLevelBPETokenizer.train(TEXTS, 300, end_token="<end>")
    config = changed(read_config(REFERENCE / case), {**CASES[case][1], **(changes or {}), "vocabulary_size": 300})
    model = zoo.CausalLM(zoo.Backbone.from_config(config), tokenizer)
    generator = np.random.default_rng(0)
    for weight in model.backbone.weights:
        weight.assign(weight + generator.normal(0, 0.2, weight.shape))
    return model


def logits(model):
    token_ids = np.array([[1, 5, 9, 40, 33, 2, 7, 7, 21]])
    return ops.convert_to_numpy(
        model.backbone.logits(model.backbone({"token_ids": token_ids, "padding_mask": token_ids > 0}))
    )


@pytest.mark.sampled(8)
@pytest.mark.parametrize("case", CASES)
def test_what_is_written(case, tmp_path):
    model = model_of(case)
    zoo.gguf.write_gguf(model, tmp_path / "a.gguf", "float32")
    header = read_gguf(tmp_path / "a.gguf")
    assert header.metadata["general.architecture"] == CASES[case][0]
    back = zoo.CausalLM.from_preset(str(tmp_path / "a.gguf"))
    np.testing.assert_allclose(logits(back), logits(model), atol=2e-5, rtol=2e-5)
    assert back.tokenizer.tokenize(TEXTS).to_list() == model.tokenizer.tokenize(TEXTS).to_list()
    # names and order of features as llama.cpp's converter has them
    model.save_to_huggingface(tmp_path / "model")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    expected = converted(config, load_file(tmp_path / "model" / "model.safetensors"), CASES[case][0])
    found = {name: read_tensor(tensor) for name, tensor in header.tensors.items() if not name.startswith("rope_")}
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        np.testing.assert_array_equal(found[name], tensor, err_msg=name)


@pytest.mark.parametrize("weights", WEIGHTS)
def test_weights_of_few_bits(weights, tmp_path):
    wide = {"hidden_dim": 64, "attention": {"num_heads": 2, "num_key_value_heads": 1, "head_dim": 32}}
    model = model_of("granite", {**wide, "feed_forward": {"intermediate_dim": 96}})
    zoo.gguf.write_gguf(model, tmp_path / "a.gguf", weights)
    kinds = {name: tensor.kind for name, tensor in read_gguf(tmp_path / "a.gguf").tensors.items()}
    import gguf

    assert kinds["blk.0.ffn_up.weight"] == gguf.GGMLQuantizationType[WEIGHTS[weights]]
    assert kinds["blk.0.attn_norm.weight"] == gguf.GGMLQuantizationType.F32
    assert kinds["token_embd.weight"] not in (2, 3, 6, 7)  # 4 or 5 bits
    bits = {"float32": 24, "float16": 11, "bfloat16": 8}.get(weights) or int(weights[1])
    back = zoo.Backbone.from_preset(str(tmp_path / "a.gguf"))
    for ours, theirs in zip(model.backbone.weights, back.weights, strict=True):
        ours = ops.convert_to_numpy(ours)
        assert np.abs(ours - ops.convert_to_numpy(theirs)).max() <= 2.0 ** (1 - bits) * np.abs(ours).max(), theirs.path


def test_low_rank_updates_are_merged(tmp_path):
    model = model_of("granite")
    model.enable_lora(2)
    for weight in model.trainable_variables:
        weight.assign(weight + 0.1)
    expected = logits(model)
    zoo.gguf.write_gguf(model, tmp_path / "a.gguf", "float32")
    np.testing.assert_allclose(logits(zoo.CausalLM.from_preset(str(tmp_path / "a.gguf"))), expected, atol=2e-5)


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_sentencepiece_models(kind, tmp_path):
    import io

    import sentencepiece

    stream = io.BytesIO()
    options = {"byte_fallback": True, "normalization_rule_name": "identity", "remove_extra_whitespaces": False}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS),
        model_writer=stream,
        model_type=kind,
        vocab_size=300,
        minloglevel=2,
        **(options if kind == "bpe" else {"hard_vocab_limit": False, "byte_fallback": True}),
    )
    tokenizer = SentencePieceTokenizer(stream.getvalue(), start_token="<s>", end_token="</s>")
    model = zoo.CausalLM(model_of("gemma").backbone, tokenizer)
    model.export(tmp_path / "out", format="gguf", weights="float32")
    back = zoo.CausalLM.from_preset(str(tmp_path / "out" / "model.gguf"))
    texts = [*TEXTS[:3], "  spaces\n and ﬁ \U0001f642", ""]
    assert back.tokenizer.tokenize(texts).to_list() == tokenizer.tokenize(texts).to_list()
    assert (back.tokenizer.start_id, back.tokenizer.end_id) == (1, 2)
    metadata = read_gguf(tmp_path / "out" / "model.gguf").metadata
    assert metadata["tokenizer.ggml.model"] == {"bpe": "llama", "unigram": "t5"}[kind]


def test_an_export_for_programs(tmp_path):
    model = model_of("llama_biases")
    model.chat_format = "plain"
    model.export(tmp_path / "Small", format="gguf", weights="float16")
    assert sorted(path.name for path in (tmp_path / "Small").iterdir()) == [
        *("Modelfile", "model.gguf", "model_card.md", "signature.json")
    ]
    card = (tmp_path / "Small" / "model_card.md").read_text("utf-8")
    assert "ollama create small -f Modelfile" in card and "llama-server -m model.gguf --ctx-size 24" in card
    back = zoo.CausalLM.from_preset(str(tmp_path / "Small" / "model.gguf"))
    assert back.chat_format == model.chat_format
    model.export(tmp_path / "Small" / "1", format="gguf", weights="q8_0")  # a version
    card = (tmp_path / "Small" / "1" / "model_card.md").read_text("utf-8")
    assert card.startswith("# Small\n") and "ollama create small -f" in card
    model.export(tmp_path / "Small", format="gguf", weights="q8_0")  # replaced
    assert json.loads((tmp_path / "Small" / "signature.json").read_text())["weights"] == "q8_0"


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({}, {"weights": "int8"}, "weights must be one of .*, got 'int8'"),
        ({}, {"strings": True}, "strings must be left out with the format 'gguf', got True"),
        ({"attention": {"window": (3, 0)}}, {}, "cannot express attention.window"),
    ],
)
def test_what_is_refused(changes, options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        model_of("llama", changes).export(tmp_path / "out", format="gguf", **options)
    assert not (tmp_path / "out").exists()


def test_groups_of_experts_that_llama_cpp_chooses_in_another_way_are_refused(tmp_path):
    changes = {"feed_forward": {"expert_groups": 2, "groups_per_token": 1}}
    with pytest.raises(ValueError, match="'deepseek2' cannot express feed_forward.expert_groups"):
        zoo.gguf.write_gguf(model_of("deepseek_v2", changes), tmp_path / "a.gguf")


def test_what_an_architecture_has_no_tensor_for_is_refused(tmp_path):
    with pytest.raises(ValueError, match="'falcon' has no place for transformer.h.0.post_attention_layernorm"):
        zoo.gguf.write_gguf(model_of("falcon", {"norm": {"placement": "pre"}}), tmp_path / "a.gguf")


def test_other_tokenizers_are_refused(tmp_path):
    model = model_of("granite")
    words = WordPieceTokenizer.train(TEXTS, 60, lowercase=True)
    model = zoo.CausalLM(model.backbone, words)
    with pytest.raises(ValueError, match="byte-level BPE"):
        zoo.gguf.write_gguf(model, tmp_path / "a.gguf")
    with pytest.raises(ValueError, match="holds a CausalLM, this is a TextEmbedder"):
        zoo.gguf.write_gguf(zoo.TextEmbedder(zoo.Backbone.from_config(read_config(REFERENCE / "bert_base"))), tmp_path)


def test_settings_of_generation(tmp_path):
    model = model_of("llama_biases")
    sampler = {"name": "sample", "temperature": 0.5, "top_k": 7, "top_p": 0.75, "min_p": 0.125}
    penalty = {"name": "repetition_penalty", "penalty": 1.5}
    generation = {"sampler": sampler, "processors": [penalty], "end_ids": [model.tokenizer.end_id, 9]}
    model = zoo.CausalLM(model.backbone, model.tokenizer, generation=generation)
    zoo.gguf.write_gguf(model, tmp_path / "model.gguf")
    fields = gguf.GGUFReader(tmp_path / "model.gguf").fields
    found = {key.rpartition(".")[2]: field.contents() for key, field in fields.items() if "sampling" in key}
    assert found == {
        **{"temp": 0.5, "top_k": 7, "top_p": 0.75, "min_p": 0.125, "penalty_repeat": 1.5, "penalty_last_n": -1}
    }
    assert fields["tokenizer.ggml.eot_token_id"].contents() == 9
    assert zoo.CausalLM.from_preset(str(tmp_path / "model.gguf")).generation == model.generation


def test_settings_without_a_key(tmp_path):
    model = model_of("llama_biases")
    generation = {"sampler": {"name": "beam", "num_beams": 3, "length_offset": 0}, "max_new_tokens": 12}
    model = zoo.CausalLM(model.backbone, model.tokenizer, generation=generation)
    with pytest.warns(UserWarning, match="no keys for .*max_new_tokens=12, num_beams=3"):
        zoo.gguf.write_gguf(model, tmp_path / "model.gguf")
