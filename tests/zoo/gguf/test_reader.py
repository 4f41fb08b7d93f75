"""Models in GGUF files compute what they compute in a folder of the Transformers library."""

import json
import shutil
from pathlib import Path

import gguf
import numpy as np
import pytest
from fuzz_gguf import Parts
from gguf_files import TOKENS, stretched, write_gguf
from keras import ops

import zoo
from zoo.huggingface import load_backbone
from zoo.huggingface.config_reader import ConfigReader
from zoo.huggingface.family import get_family

REFERENCE = Path(__file__).parents[2] / "reference" / "huggingface"
# long, middle and short waves
_LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
_ROPE = {"rope_theta": 2e7, "rope_type": "llama3", "factor": 8.0, **_LLAMA3}
_FULL = {"use_sliding_window": None, "sliding_window": None, "layer_types": None, "max_window_layers": None}
_YARN = {
    **{"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8, "mscale": 0.7, "mscale_all_dim": 0.7}
}
_FACTORS = {
    "rope_factors_long.weight": np.array([1.5, 3.0], "float32"),
    "rope_factors_short.weight": np.array([1.0, 1.2], "float32"),
}
# by case: the architecture; changes of the folder, for what llama.cpp has no key for; further keys and tensors
CASES = {
    "llama": ("llama", {"rope_parameters": _ROPE}, {}, {"rope_freqs.weight": stretched(2e7, 4, 8.0)}),
    # as converters write it of models without experts
    "llama_biases": ("llama", {}, {"expert_count": 0}, {}),
    "granite": (
        "granite",
        {},
        {"attention.scale": 0.3, "embedding_scale": 3.0, "residual_scale": 0.5, "logit_scale": 4.0, "expert_count": 0},
        {},
    ),
    "smollm3": ("smollm3", {**_FULL, "no_rope_layers": None, "no_rope_layer_interval": None}, {}, {}),
    "qwen2": ("qwen2", _FULL, {}, {}),
    "qwen3": ("qwen3", _FULL, {}, {}),
    "qwen3_moe": ("qwen3moe", _FULL, {}, {}),
    "mixtral": ("llama", {"sliding_window": None}, {}, {}),
    "gemma": ("gemma", {}, {}, {}),
    "gemma2": (
        "gemma2",
        {"query_pre_attn_scalar": 6},
        {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0, "attention.sliding_window": 3},
        {},
    ),
    "gemma3": (
        "gemma3",
        {"query_pre_attn_scalar": 6, "layer_types": None},
        {
            "attention.sliding_window": 3,
            "final_logit_softcapping": 5.0,
            "rope.freq_base": 500.0,
            "rope.freq_base_swa": 50.0,
            "rope.scaling.type": "linear",
            "rope.scaling.factor": 4.0,
        },
        {},
    ),
    "olmo2": ("olmo2", {}, {}, {}),
    "stablelm": ("stablelm", {}, {}, {}),
    "stablelm_parallel": ("stablelm", {"hidden_act": "silu"}, {}, {}),
    "glm": ("chatglm", {}, {}, {}),
    "glm4": ("glm4", {}, {}, {}),
    "exaone4_full": ("exaone4", {}, {}, {}),
    "gpt_bigcode": ("starcoder", {}, {}, {}),
    "starcoder2": ("starcoder2", {"hidden_act": "gelu_pytorch_tanh", "sliding_window": None}, {}, {}),
    "phi_tied": ("phi2", {"hidden_act": "gelu_new"}, {}, {}),
    "phi3": ("phi3", {}, {"attention.sliding_window": 5, "rope.scaling.original_context_length": 30}, _FACTORS),
    "gpt2": ("gpt2", {}, {}, {}),
    "gpt_oss": ("gpt-oss", {"swiglu_limit": 7.0}, {"attention.sliding_window": 4}, {}),
    "gpt_neox": ("gptneox", {}, {}, {}),
    "gpt_neox_sequential": ("gptneox", {"hidden_act": "gelu"}, {}, {}),
    "nemotron": ("nemotron", {}, {}, {}),
    "granitemoe": (
        "granitemoe",
        {},
        {"attention.scale": 0.3, "embedding_scale": 3.0, "residual_scale": 0.5, "logit_scale": 4.0},
        {},
    ),
    "ernie4_5": ("ernie4_5", {}, {}, {}),
    "bloom": ("bloom", {}, {}, {}),
    "mpt": (
        "mpt",
        {"attn_config": {"clip_qkv": 0.5}},
        {"attention.clamp_kqv": 0.5, "attention.max_alibi_bias": 8.0},
        {},
    ),
    "deepseek_v3": ("deepseek2", {}, {}, {}),
    "olmo": ("olmo", {}, {"attention.clamp_kqv": 0.5}, {}),
    "olmoe": ("olmoe", {"clip_qkv": None}, {}, {}),
    "falcon": ("falcon", {}, {}, {}),
    "falcon_new": ("falcon", {"activation": "gelu", "multi_query": False}, {}, {}),
    "cohere": ("command-r", {}, {"logit_scale": 0.3}, {}),
    "bert_masked_lm": ("bert", {"hidden_act": "gelu"}, {"pooling_type": 2}, {}),
    "nomic_bert_masked_lm": ("nomic-bert", {"hidden_act": "silu"}, {"pooling_type": 1}, {}),
}
ENCODERS = ("bert", "nomic-bert")
OF_T5 = {"relative_attention_max_distance": 128, "scale_decoder_outputs": None}


@pytest.fixture
def written(tmp_path):
    """`written(case)`: the folder of a case without what a file cannot say, and the file."""

    def write(case, **options):
        architecture, changes, keys, tensors = CASES[case]
        folder, path = tmp_path / case, tmp_path / f"{case}.gguf"
        shutil.copytree(REFERENCE / case, folder)
        values = {**json.loads((folder / "config.json").read_text()), **changes}
        values = {key: value for key, value in values.items() if value is not None or key not in changes}
        (folder / "config.json").write_text(json.dumps(values))
        write_gguf(folder, path, architecture, keys, **options, **tensors)
        return folder, path

    return write


def logits(source):
    backbone = load_backbone(source) if source.is_dir() else zoo.Backbone.from_preset(str(source))
    token_ids = np.array([[1, 5, 9, 40, 33, 2, 7, 7, 21]])
    return ops.convert_to_numpy(backbone.logits(backbone({"token_ids": token_ids, "padding_mask": token_ids > 0})))


@pytest.mark.sampled(12)
@pytest.mark.parametrize("case", [case for case in CASES if CASES[case][0] not in ENCODERS])
def test_logits_are_those_of_the_folder(case, written):
    folder, path = written(case)
    np.testing.assert_allclose(logits(path), logits(folder), atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("case", [case for case in CASES if CASES[case][0] in ENCODERS])
def test_embedders(case, written):
    """Hidden states are those of the folder; vectors are pooled as the file says, with length 1."""
    folder, path = written(case)
    token_ids = np.array([[1, 5, 9, 2, 7], [3, 8, 0, 0, 0]])
    inputs = {"token_ids": token_ids, "padding_mask": token_ids > 0}
    model, expected = zoo.TextEmbedder.from_preset(str(path)), load_backbone(folder)
    hidden = ops.convert_to_numpy(expected(inputs))
    np.testing.assert_allclose(model.backbone(inputs), hidden, atol=2e-5, rtol=2e-5)
    mask = (token_ids > 0)[..., None]
    pooled = hidden[:, 0] if case == "bert_masked_lm" else (hidden * mask).sum(1) / mask.sum(1)
    pooled /= np.linalg.norm(pooled, axis=-1, keepdims=True)
    np.testing.assert_allclose(model(inputs), pooled, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("case", ["t5", "t5_gated", "umt5"])
def test_encoder_decoders(case, written, monkeypatch):
    # those of version 1.1 and of UMT5 have an output of their own
    changes = OF_T5 if case == "t5" else OF_T5 | {"tie_word_embeddings": False}
    monkeypatch.setitem(CASES, case, ("t5", changes, {}, {}))
    folder, path = written(case)
    token_ids = np.array([[1, 5, 9, 2, 7], [3, 8, 0, 0, 0]])
    inputs = {f"{side}_token_ids": token_ids for side in ("encoder", "decoder")}
    inputs |= {f"{side}_padding_mask": token_ids > 0 for side in ("encoder", "decoder")}
    found, expected = zoo.Backbone.from_preset(str(path)), load_backbone(folder)
    for name, hidden in expected(inputs).items():
        np.testing.assert_allclose(found(inputs)[name], hidden, atol=2e-5, rtol=2e-5)
    hidden = expected(inputs)["decoder_sequence_output"]
    np.testing.assert_allclose(found.logits(hidden), expected.logits(hidden), atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("older", [False, True])
def test_latents_and_groups_of_experts(older, tmp_path):
    """DeepSeek V2 as files of today have it, and as those had it that were made before llama.cpp kept latents."""
    changes = {"attention_bias": False, "rope_parameters": {"rope_theta": 100.0, **_YARN}}
    values = json.loads((REFERENCE / "deepseek_v2" / "config.json").read_text()) | changes
    config = get_family("deepseek_v2").read(ConfigReader(values))
    model = zoo.CausalLM(zoo.Backbone.from_config(config))
    generator = np.random.default_rng(0)
    for weight in model.backbone.weights:
        weight.assign(weight + generator.normal(0, 0.2, weight.shape))
    folder, path = tmp_path / "model", tmp_path / "a.gguf"
    model.save_to_huggingface(folder)
    (folder / "config.json").write_text(json.dumps(values))
    write_gguf(folder, path, "deepseek2", older=older)
    np.testing.assert_allclose(logits(path), logits(folder), atol=2e-5, rtol=2e-5)


def test_scores_of_experts_that_a_file_does_not_name(written):
    folder, path = written("deepseek_v3", older=True)
    np.testing.assert_allclose(logits(path), logits(folder), atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"expert_gating_func": 3}, r"expert_gating_func must be 1 \(softmax\) or 2 \(sigmoid\), got 3"),
        ({"expert_gating_func": 1}, "expert_weights_norm must be false where experts are chosen by a softmax"),
        ({"attention.key_length_mla": 4}, "attention.key_length_mla must be above 4, .*, got 4"),
    ],
)
def test_what_is_no_deepseek(keys, message, written, monkeypatch):
    monkeypatch.setitem(CASES, "deepseek_v3", ("deepseek2", {}, keys, {}))
    with pytest.raises(ValueError, match=f"deepseek_v3.gguf: deepseek2.{message}"):
        zoo.Backbone.from_preset(str(written("deepseek_v3", older=True)[1]))


@pytest.mark.parametrize(
    ("case", "shapes"),
    [
        ("deepseek_v3", {"blk.0.attn_k_b.weight": (2, 6, 4), "blk.0.attn_v_b.weight": (2, 5, 7)}),
        ("granitemoe", {"blk.0.ffn_gate_exps.weight": (4, 96), "blk.0.ffn_up_exps.weight": (4, 96)}),
        ("gpt_oss", {"blk.0.ffn_down_exps.weight": (96,)}),
    ],
)
def test_parts_that_do_not_fit(case, shapes, written, monkeypatch):
    architecture, changes, keys, _ = CASES[case]
    tensors = {name: np.zeros(shape, "float32") for name, shape in shapes.items()}
    monkeypatch.setitem(CASES, case, (architecture, changes, keys, tensors))
    with pytest.raises(ValueError, match=f"it must have {', '.join(shapes)} in shapes that fit each other, got"):
        zoo.Backbone.from_preset(str(written(case)[1]))


@pytest.mark.parametrize(
    ("case", "key", "message"),
    [
        ("qwen3_moe", "qwen3moe.expert_count", "must be at most 4, for which it has weights, got 2147483647"),
        ("qwen3_moe", "qwen3moe.block_count", "must fit its .* tensors"),
        ("t5", "t5.decoder_block_count", "must fit its .* tensors"),
    ],
)
def test_counts_that_ask_for_much(case, key, message, written, monkeypatch):
    monkeypatch.setitem(CASES, "t5", ("t5", OF_T5, {}, {}))
    _, path = written(case)
    parts = Parts(path.read_bytes())
    next(entry for entry in parts.metadata if entry[0] == key)[2] = 2**31 - 1
    path.write_bytes(parts.packed())
    with pytest.raises(ValueError, match=f"{key} {message}"):
        zoo.Backbone.from_preset(str(path))


def test_a_file_in_parts(written):
    folder, path = written("qwen3", split=7)
    parts = sorted(path.parent.glob("qwen3-*.gguf"))
    assert len(parts) > 2
    np.testing.assert_allclose(logits(parts[0]), logits(folder), atol=2e-5, rtol=2e-5)
    with pytest.raises(ValueError, match="it is part 2 of .*; give the first one"):
        zoo.Backbone.from_preset(str(parts[1]))
    parts[-1].unlink()
    with pytest.raises(FileNotFoundError, match=parts[-1].name):
        zoo.Backbone.from_preset(str(parts[0]))


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_1", "BF16"])
def test_weights_of_few_bits(kind, tmp_path):
    """A weight is off by half a step of its block, and by what 16 bits do to the step."""
    config = zoo.preset_config(
        "llama_tiny",
        vocabulary_size=48,
        hidden_dim=64,
        num_layers=1,
        attention={"num_heads": 2, "num_key_value_heads": 1, "head_dim": 32},
        feed_forward={"intermediate_dim": 96},
    )
    model = zoo.CausalLM(zoo.Backbone.from_config(config))
    model.save_to_huggingface(tmp_path / "model")
    write_gguf(tmp_path / "model", tmp_path / "a.gguf", "llama", kind=gguf.GGMLQuantizationType[kind])
    found = zoo.Backbone.from_preset(str(tmp_path / "a.gguf"))
    steps = {"Q8_0": 1 / 127, "Q4_1": 2 / 15, "BF16": 2**-7}[kind]
    for ours, expected in zip(found.weights, model.backbone.weights, strict=True):
        expected = ops.convert_to_numpy(expected)
        off = np.abs(ops.convert_to_numpy(ours) - expected).max()
        assert off <= 0.57 * steps * np.abs(expected).max(), ours.path
        assert len(expected.shape) == 1 or off > 0


def test_windows_of_olmo_3_are_refused(written, monkeypatch):
    monkeypatch.setitem(CASES, "olmo2", ("olmo2", {}, {"attention.sliding_window": 4}, {}))
    with pytest.raises(ValueError, match="olmo2.attention.sliding_window must be left out: .* OLMo 2 is supported"):
        zoo.Backbone.from_preset(str(written("olmo2")[1]))


def test_another_architecture_is_refused(written):
    _, path = written("llama")
    path.write_bytes(path.read_bytes().replace(b"\x05\0\0\0\0\0\0\0llama", b"\x05\0\0\0\0\0\0\0xlama", 1))
    with pytest.raises(ValueError, match=r"llama.gguf: general.architecture must be one of .*, got 'xlama'"):
        zoo.Backbone.from_preset(str(path))


SAMPLING = {
    "general.sampling.temp": 0.6,
    "general.sampling.top_k": 20,
    "general.sampling.top_p": 0.95,
    "general.sampling.penalty_repeat": 1.25,
    "general.sampling.penalty_last_n": -1,
    "tokenizer.ggml.eot_token_id": 5,
}


def written_with(written, keys):
    source, path = written("llama")
    merged = {"tokens": [*TOKENS[:46], TOKENS[0] + TOKENS[1], "<end>"], "merges": [f"{TOKENS[0]} {TOKENS[1]}"]}
    write_gguf(source, path, "llama", keys, tokenizer=merged)
    return path


def test_settings_of_generation(written, recwarn):
    model = zoo.CausalLM.from_preset(str(written_with(written, SAMPLING)))
    assert model.generation == {
        "end_ids": [47, 5],
        "sampler": {"name": "sample", "top_k": 20, "temperature": 0.6, "top_p": 0.95},
        "processors": [{"name": "repetition_penalty", "penalty": 1.25}],
    }
    assert not [each for each in recwarn if "generate()" in str(each.message)]


def test_settings_that_draw_nothing(written):
    path = written_with(written, {"general.sampling.temp": 0.0, "general.sampling.top_k": 40})
    assert "sampler" not in (zoo.CausalLM.from_preset(str(path)).generation or {})


@pytest.mark.parametrize(
    "keys",
    [
        {"top_k": -1, "temp": 1.0},
        {"top_p": 1.5, "temp": 1.0},
        {"min_p": -1.0, "temp": 1.0},
        {"penalty_repeat": 1.5, "penalty_last_n": 0, "temp": 1.0},
        {"penalty_repeat": 0.0, "temp": 1.0},
    ],
    ids=str,
)
def test_settings_that_are_off(keys, written, recwarn):
    path = written_with(written, {f"general.sampling.{name}": value for name, value in keys.items()})
    generation = zoo.CausalLM.from_preset(str(path)).generation
    assert generation == {"sampler": {"name": "sample", "top_k": None}} or generation == {"sampler": {"name": "sample"}}
    assert not [each for each in recwarn if "generate()" in str(each.message)]


def test_a_temperature_below_zero_draws_nothing(written):
    path = written_with(written, {"general.sampling.temp": -1.0})
    assert "sampler" not in (zoo.CausalLM.from_preset(str(path)).generation or {})


def test_settings_without_a_counterpart_are_named(written):
    """llama.cpp looks back at 64 tokens, and can draw in ways that nothing here stands for."""
    keys = {"penalty_repeat": 1.5, "penalty_last_n": 64, "mirostat": 2, "mirostat_tau": 5.0, "xtc_probability": 0.0}
    path = written_with(written, {f"general.sampling.{name}": value for name, value in keys.items()})
    with pytest.warns(UserWarning, match=r"general\.sampling\.mirostat=2, general\.sampling\.penalty_last_n=64"):
        zoo.CausalLM.from_preset(str(path))


def test_a_setting_of_another_type(written):
    path = written_with(written, {"general.sampling.top_k": "many"})
    with pytest.raises(ValueError, match=r"general\.sampling\.top_k .*'many'"):
        zoo.CausalLM.from_preset(str(path))
