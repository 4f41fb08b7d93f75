"""What is not known, does not fit or could hold code is an error that names it."""

import dataclasses
import json
import re
import struct
import sys
import types

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from zoo import (
    AttentionConfig,
    Backbone,
    EmbeddingConfig,
    FeedForwardConfig,
    MaskedLM,
    NormConfig,
    PositionConfig,
    TransformerConfig,
)
from zoo.huggingface import is_huggingface, load_backbone, read_config, task_of, write_backbone
from zoo.huggingface.config_reader import ConfigReader
from zoo.huggingface.family import get_family
from zoo.huggingface.writing import differences
from zoo.storage import fetch


def change_tensors(folder, change):
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


@pytest.mark.parametrize(
    ("case", "changes", "message"),
    [
        (
            "bert_base",
            {"model_type": "bird"},
            "model_type must be that of a supported family, got 'bird'.*Supported are albert",
        ),
        ("bert_base", {"model_type": "mamba"}, "nearest by name is 'mamba2', which is another architecture unless"),
        ("bert_base", {"rope_theta": 3}, "has keys that are not known here: rope_theta=3"),
        ("bert_base", {"vocab_size": None}, "lacks 'vocab_size'"),
        ("bert_base", {"hidden_act": "mish"}, "hidden_act must be one of .*'gelu_new'.* got 'mish'"),
        ("albert_masked_lm", {"is_encoder_decoder": True}, "is_encoder_decoder must be one of .False,..* got True"),
        ("llama", {"tie_encoder_decoder": True}, "tie_encoder_decoder must be one of .False,..* got True"),
        (
            "gpt_oss",
            {"quantization_config": {"quant_method": "aqlm"}},
            r"quantization_config.quant_method must be one of \['awq', .*got 'aqlm'",
        ),
        ("bert_base", {"is_decoder": True}, "is_decoder must be one of .False,..* got True"),
        ("bert_base", {"position_embedding_type": "relative_key"}, "position_embedding_type must be one of"),
        ("bert_base", {"pruned_heads": {"0": [1]}}, "pruned_heads must be empty"),
        (
            "bert_base",
            {"num_attention_heads": 5},
            "config.json: num_attention_heads must be a divisor of hidden_size=16",
        ),
        (
            "gpt2",
            {"scale_attn_by_inverse_layer_idx": 2},
            "scale_attn_by_inverse_layer_idx must be true or false, got 2",
        ),
        ("m2m_100", {"d_model": 15}, "d_model must be even, and above 2, for pairs of features, got 15"),
        ("llama", {"rope_parameters": {"rope_type": "spiral"}}, "rope_type must be one of .*'yarn'.* got 'spiral'"),
        (
            "llama",
            {"rope_parameters": {"rope_type": "linear"}},
            "rope_parameters.factor must be given with rope_parameters.rope_type='linear', got None",
        ),
        (
            "llama",
            {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "phase": 1}},
            "rope_parameters.phase must be left out with rope_parameters.rope_type='linear', .*, got 1",
        ),
        (
            "llama",
            {"rope_parameters": {"rope_type": "default", "factor": 2.0}},
            "rope_parameters.factor must be left out with rope_parameters.rope_type='default', got 2.0",
        ),
        ("qwen2", {"layer_types": ["chunked", "chunked"]}, "layer_types must be 'full_attention' or"),
        ("qwen3_next", {"layer_types": []}, "layer_types must have an entry for each of 4 layers, got 0"),
        ("modernbert_masked_lm", {"attention_dropout": 0.1}, "attention_dropout must be one of"),
        (
            "qwen2",
            {"layer_types": ["full_attention"] * 3},
            "layer_types must have an entry for each of 2 layers, got 3",
        ),
        ("gemma2", {"sliding_window": []}, "config.json: sliding_window must be an integer from 0 to"),
        (
            "gemma2",
            {"sliding_window": 0},
            "config.json: sliding_window must be an integer of at least 1 or null, got 0",
        ),
        ("modernbert_masked_lm", {"rope_parameters": {"full_attention": 3}}, "rope_parameters.* must be an object or"),
        (
            "llama",
            {"partial_rotary_factor": 0.5, "rope_parameters": {}},
            "partial_rotary_factor must be 1 in this family, got 0.5",
        ),
        (
            "gpt_neox",
            {"rotary_pct": 1e-9, "rope_parameters": {}},
            "partial_rotary_factor must be a number that gives one of the 8 entries of a head, got 1e-09",
        ),
        ("gpt_neox", {"rope_theta": 3.0}, "rope_theta must be rotary_emb_base=10000.0, which the library reads, got"),
        ("gptj", {"rotary_dim": 3}, "rotary_dim must be an even number of the 8 entries of a head, got 3"),
        ("gptj", {"rotary_dim": 0}, "config.json: rotary_dim must be an integer of at least 1, got 0"),
        ("codegen", {"rotary_dim": 10}, "rotary_dim must be an even number of the 8 entries of a head, got 10"),
        (
            "gpt_neo",
            {"attention_types": [[["global"], 10**12]]},
            "attention_types must be lists of types for num_layers=3 layers in all, got",
        ),
        (
            "gpt_neo",
            {"attention_types": [["global", 3]]},
            "attention_types must be lists of a list of texts and",
        ),
        ("gpt_neo", {"attention_types": [[["globe"], 3]]}, "attention_types must be lists of 'global' and 'local'"),
        ("gpt_neo", {"attention_layers": ["global"] * 3}, "attention_layers must be .'global', 'local', 'local'. as"),
        ("gpt_neo", {"window_size": 0}, "window_size must be an integer from 1 to"),
        ("gpt_bigcode", {"num_key_value_heads": 2}, "num_key_value_heads must be 1 with multi_query=True, got 2"),
        ("gpt_bigcode", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx must be one of"),
        ("gpt_bigcode", {"multi_query": False}, "num_key_value_heads must be 2 with multi_query=False, got 1"),
        ("stablelm", {"qk_layernorm": True}, "qk_layernorm must be one of .False"),
        ("stablelm", {"hidden_dropout": 0.1}, "hidden_dropout must be one of .0.0"),
        (
            "stablelm",
            {"partial_rotary_factor": 0.4, "rope_parameters": {}},
            "partial_rotary_factor must be a number that gives an even number of the 8 entries of a head, got 0.4",
        ),
        ("stablelm", {"head_dim": 16}, "head_dim must be hidden_size / num_attention_heads = 8, got 16"),
        ("exaone4", {"layer_types": None, "sliding_window_pattern": "LLLG"}, "must be an integer of at least 1 where"),
        (
            "exaone4_full",
            {"layer_types": ["sliding_attention"] * 2},
            "sliding_window must be a number where layer_types=.'sliding_attention', .*, got None",
        ),
        ("gemma3", {"layer_types": None, "sliding_window_pattern": 0}, "sliding_window_pattern must be an integer of"),
        ("gemma", {"hidden_activation": "silu"}, "hidden_activation must be that of hidden_act or null, got 'silu'"),
        ("gemma", {"use_bidirectional_attention": True}, "use_bidirectional_attention must be one of .None, False"),
        ("mixtral", {"num_local_experts": 10**9}, "num_local_experts must be an integer of at least 1, got 1000000000"),
        ("gemma3", {"model_type": "gemma3"}, "got 'gemma3'. Of this one the text model alone is supported, saved as"),
        (
            "gemma3",
            {"rope_parameters": {"sliding_attention": {"rope_type": "linear", "factor": 2.0}}},
            "rope_parameters.sliding_attention must be without scaling, or with that of full_attention, got",
        ),
        ("gemma3", {"rope_parameters": {"rope_theta": {}}}, "rope_parameters must be an object with the keys"),
        ("smollm3", {"no_rope_layers": [1, 0]}, "no_rope_layers must be a list with an entry for each of 3 layers"),
        ("smollm3", {"no_rope_layers": [1, 0, 3]}, "no_rope_layers must be a list of 0 and 1, or null, got"),
        ("gpt_oss", {"swiglu_alpha": 1.0}, "swiglu_alpha must be one of .1.702"),
        ("qwen2_moe", {"mlp_only_layers": ["0"]}, "mlp_only_layers must be a list of integers or null, got"),
        ("qwen3_moe", {"num_experts": 0}, "num_experts must be an integer of at least 1, got 0"),
        ("opt", {"word_embed_proj_dim": 12}, r"embed_tokens.weight has shape .48, 10. in model.safetensors"),
        (
            "falcon_new",
            {"parallel_attn": False},
            "parallel_attn must be true with new_decoder_architecture, got False",
        ),
        (
            "falcon",
            {"num_ln_in_parallel_attn": 2},
            "num_ln_in_parallel_attn must be 1 or null without new_decoder_architecture, got 2",
        ),
        ("falcon_alibi", {"hidden_size": 3}, "hidden_size must be a multiple of num_attention_heads=4, got 3"),
        ("falcon", {"num_ln_in_parallel_attn": 3}, "num_ln_in_parallel_attn must be 1 or 2 or null, got 3"),
        ("bloom", {"n_embed": 12}, "hidden_size must be n_embed=12, which is the same, got 16"),
        (
            "bloom",
            {"apply_residual_connection_post_layernorm": True},
            "apply_residual_connection_post_layernorm must be",
        ),
        ("mpt", {"attn_config": {"alibi": False}}, "alibi must be one of .True"),
        ("mpt", {"attn_config": {"clip_qkv": -1}}, "clip_qkv must be a number above 0 or null, got -1"),
        ("helium", {"head_dim": 6}, "head_dim must be hidden_size / num_attention_heads=4, got 6"),
        ("granitemoe", {"mlp_bias": True}, "mlp_bias must be one of .False"),
        ("nemotron", {"norm_eps": 0}, "norm_eps must be a number above 0, got 0"),
        (
            "olmo3",
            {"rope_parameters": {"sliding_attention": {"rope_type": "linear", "factor": 2.0}}},
            "rope_parameters.sliding_attention must be without scaling, or with that of full_attention, got",
        ),
        ("mpt", {"no_bias": False}, "no_bias must be one of .True"),
        ("cohere2", {"use_parallel_block": False}, "use_parallel_block must be one of .True"),
        ("granite", {"residual_multiplier": 0}, "residual_multiplier must be a number above 0, got 0"),
        ("phi", {"qk_layernorm": 1}, "qk_layernorm must be true or false, got 1"),
        ("phi3", {"attention_bias": True}, "attention_bias must be one of .False"),
        ("starcoder2", {"norm_type": "rms_norm"}, "norm_type must be one of .'layer_norm'"),
        ("t5", {"feed_forward_proj": "gated-relu-x"}, "feed_forward_proj must be"),
        ("t5", {"is_gated_act": True}, "is_gated_act must be one of .False,"),
        ("bart", {"decoder_attention_heads": 3}, "decoder_attention_heads must be a divisor of d_model=16"),
        ("albert_classifier", {"inner_group_num": 2}, "inner_group_num must be one of .1,.* got 2"),
        ("bart", {"normalize_before": True}, "normalize_before must be one of"),
    ],
)
def test_configurations(copy, case, changes, message):
    with pytest.raises(ValueError, match=message):
        load_backbone(copy(case, **changes))


def test_weights_that_do_not_fit(copy):
    with pytest.raises(ValueError, match=r"layer.2.attention.self.query.weight \(16, 16\) is not in model.safetensors"):
        load_backbone(copy("bert_base", num_hidden_layers=3))
    folder = copy("bert_classifier", num_hidden_layers=1)
    with pytest.raises(ValueError, match="layer.1.output.dense.weight .* the model has no place for it"):
        load_backbone(folder)
    folder = copy("gpt2", n_positions=20)
    with pytest.raises(ValueError, match=r"wpe.weight has shape \(24, 16\) in model.safetensors, .* needs \(20, 16\)"):
        load_backbone(folder)


def test_tied_weights_that_differ(copy):
    folder = copy("gpt2")
    change_tensors(folder, lambda tensors: tensors.update({"lm_head.weight": tensors["transformer.wte.weight"].copy()}))
    load_backbone(folder)
    change_tensors(folder, lambda tensors: tensors.update({"lm_head.weight": tensors["transformer.wte.weight"] + 1}))
    with pytest.raises(ValueError, match="lm_head.weight in model.safetensors must be the same as wte.weight"):
        load_backbone(folder)


def test_constants_of_old_files_are_passed_over(copy, golden):
    folder, (inputs, expected) = copy("gpt2"), golden("gpt2")
    masks = {f"transformer.h.{index}.attn.bias": np.ones((1, 1, 24, 24), "float32") for index in range(2)}
    change_tensors(folder, lambda tensors: tensors.update(masks))
    backbone = load_backbone(folder)
    logits = np.asarray(backbone.logits(backbone(inputs)))
    np.testing.assert_allclose(logits[0], expected["logits"][0], atol=2e-5)


def test_constants_are_those_of_the_configuration(copy):
    folder, name = copy("roformer_masked_lm"), "roformer.encoder.embed_positions.weight"
    change_tensors(folder, lambda tensors: tensors.update({name: tensors[name] + 1e-3}))
    wanted = r"embed_positions.weight in model.safetensors must be the constant of shape"
    with pytest.raises(ValueError, match=wanted):
        load_backbone(folder)
    change_tensors(folder, lambda tensors: tensors.update({name: tensors[name].astype("int32")}))
    with pytest.raises(ValueError, match=wanted):
        load_backbone(folder)


def test_rounded_frequencies(copy, tmp_path):
    def round_them(tensors):
        for name in [name for name in tensors if name.endswith("inv_freq")]:
            rounded[name.replace("*", "0")] = tensors.pop(name).astype("float16").astype("float32")
        tensors.update(rounded)

    folder, rounded = copy("esm_masked_lm"), {}
    change_tensors(folder, round_them)
    backbone = load_backbone(folder)
    assert backbone.config.position.options == {"frequency_dtype": "float16"}
    write_backbone(backbone, tmp_path / "written", model_type="esm")
    assert read_config(tmp_path / "written") == backbone.config
    change_tensors(folder, lambda tensors: tensors.update({name: 2 * rounded[name] for name in rounded}))
    with pytest.raises(ValueError, match="inv_freq in model.safetensors must be the constant of shape"):
        load_backbone(folder)


@pytest.mark.parametrize("word", ["Infinity", '{"__float__": "Infinity"}'])
def test_infinite_numbers_of_older_and_newer_files(copy, word):
    folder = copy("mamba2")
    config = folder / "config.json"
    values = json.loads(config.read_text())
    config.write_text(json.dumps({**values, "time_step_limit": [0.0, "END"]}).replace('"END"', word))
    assert load_backbone(folder).config.mixer.step_limit == (0.0, None)
    config.write_text(json.dumps({**values, "layer_norm_epsilon": "END"}).replace('"END"', word))
    with pytest.raises(ValueError, match="layer_norm_epsilon must be"):
        load_backbone(folder)


def test_no_table_for_outputs(reference):
    with pytest.raises(ValueError, match="cls.predictions.decoder.weight must be that of a file with these weights"):
        MaskedLM.from_preset(reference / "rembert_classifier")


def test_names_of_old_files(copy, golden):
    def rename(tensors):
        for name in [name for name in tensors if "LayerNorm" in name]:
            tensors[name.replace("weight", "gamma").replace("bias", "beta")] = tensors.pop(name)

    folder = copy("bert_base")
    change_tensors(folder, rename)
    inputs, expected = golden("bert_base")
    mask = inputs["padding_mask"]
    np.testing.assert_allclose(np.asarray(load_backbone(folder)(inputs))[mask], expected["hidden"][mask], atol=2e-5)


def test_base_model_without_prefix(copy, golden):
    def rename(tensors):
        for name in list(tensors):
            tensors[name.removeprefix("transformer.")] = tensors.pop(name)

    folder = copy("gpt2")
    change_tensors(folder, rename)
    inputs, expected = golden("gpt2")
    mask = inputs["padding_mask"]
    np.testing.assert_allclose(np.asarray(load_backbone(folder)(inputs))[mask], expected["hidden"][mask], atol=2e-5)


@pytest.mark.parametrize("content", [b"", b"text", struct.pack("<Q", 1 << 60), struct.pack("<Q", 2) + b"{}" + b"x"])
def test_damaged_files(copy, content):
    folder = copy("bert_base")
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(ValueError, match="is damaged or is no safetensors file"):
        load_backbone(folder)


def test_a_pointer_of_git_lfs(copy):
    folder = copy("bert_base")
    (folder / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    with pytest.raises(ValueError, match="git lfs pull"):
        load_backbone(folder)


def test_the_tensor_that_is_cut_off_is_named(copy):
    path = copy("bert_base") / "model.safetensors"
    content = path.read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    last = max((name for name in header if name != "__metadata__"), key=lambda name: header[name]["data_offsets"])
    path.write_bytes(content[:-1])
    with pytest.raises(ValueError, match=rf"bytes, \d+ follow the header: {re.escape(last)} is not all there"):
        load_backbone(path.parent)
    path.write_bytes(content + b"x")
    with pytest.raises(ValueError, match=r"bytes, \d+ follow the header: those from byte \d+ on belong to no tensor.$"):
        load_backbone(path.parent)


def test_damaged_index(copy):
    folder = copy("qwen2")
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    name = sorted(index["weight_map"])[0]

    def write(file):
        path.write_text(json.dumps({**index, "weight_map": {**index["weight_map"], name: file}}))

    for file in ("../outside.safetensors", "absent.safetensors", "config.json", 3):
        write(file)
        with pytest.raises(ValueError, match="must be the name of a |must be a text, got 3"):
            load_backbone(folder)
    other = next(file for file in set(index["weight_map"].values()) if file != index["weight_map"][name])
    write(other)
    with pytest.raises(ValueError, match=f"weight_map.{name} must be the file that has this tensor"):
        load_backbone(folder)
    for content, message in (("{}", "is missing"), ('{"weight_map": {}}', "must name the file of each tensor, got {}")):
        path.write_text(content)
        with pytest.raises(ValueError, match=f"index.json: weight_map {message}"):
            load_backbone(folder)


def test_an_index_of_absent_files_where_no_weights_are_loaded(copy):
    folder = copy("qwen2")
    expected = load_backbone(folder).config
    for file in folder.glob("*.safetensors"):
        file.unlink()
        assert load_backbone(folder, load_weights=False).config == expected
    with pytest.raises(ValueError, match="index.json: weight_map.* must be the name of a file"):
        load_backbone(folder)


def test_an_index_beside_a_single_file_is_not_looked_at(copy):
    folder = copy("bert_base")
    expected = load_backbone(folder).weights
    shifted = {name: tensor + 1 for name, tensor in load_file(folder / "model.safetensors").items()}
    save_file(shifted, folder / "model-00001-of-00001.safetensors")
    index = {"weight_map": dict.fromkeys(shifted, "model-00001-of-00001.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    for found, weight in zip(load_backbone(folder).weights, expected, strict=True):
        np.testing.assert_array_equal(found, weight)


def test_what_is_a_model_of_the_library(copy, tmp_path):
    assert is_huggingface(copy("bert_base"))
    assert not is_huggingface(tmp_path / "absent")
    (tmp_path / "config.json").write_text('{"format_version": 1}')
    assert not is_huggingface(tmp_path)
    (tmp_path / "config.json").write_text("{")
    assert not is_huggingface(tmp_path)
    with pytest.raises(ValueError, match="config.json is not valid JSON"):
        load_backbone(tmp_path)


def test_replaced_choices(reference):
    assert load_backbone(reference / "llama", max_length=48, dropout=0.1).config.max_length == 48
    with pytest.raises(ValueError, match="must be among .'dropout'., got 'max_length'"):
        load_backbone(reference / "gpt2", max_length=48)
    with pytest.raises(ValueError, match="got 'max_lenght'. Did you mean 'max_length'"):
        load_backbone(reference / "llama", max_lenght=48)


def test_models_that_the_library_cannot_express(tmp_path):
    def model(**options):
        return Backbone.from_config(
            TransformerConfig(
                **{
                    "architecture": "decoder",
                    "vocabulary_size": 20,
                    "hidden_dim": 8,
                    "num_layers": 1,
                    "max_length": 8,
                    "attention": AttentionConfig(2, use_bias=False),
                    "position": PositionConfig("rotary"),
                    "norm": NormConfig("rms", "pre"),
                    "feed_forward": FeedForwardConfig(8, "silu", gated=True, use_bias=False),
                    "dropout": 0.0,
                    **options,
                }
            )
        )

    assert write_backbone(model(dropout=0.1), tmp_path / "model") == "llama"  # what changes training only is left out
    with pytest.raises(ValueError, match=r"llama: it cannot express position.kind='alibi'"):
        write_backbone(model(position=PositionConfig("alibi")), tmp_path / "other")
    pair = model(architecture="encoder_decoder", num_decoder_layers=1, position=PositionConfig("sinusoidal"))
    with pytest.raises(ValueError, match="t5: it cannot express .*position.kind='sinusoidal'"):
        write_backbone(pair, tmp_path / "other", model_type="t5")
    with pytest.raises(ValueError, match="llama: .*no place for the weights of decoder.0.attention.sinks"):
        write_backbone(model(attention=AttentionConfig(2, use_bias=False, sinks=True)), tmp_path / "other")
    with pytest.raises(ValueError, match="task of a 'bert' model must be one of .*, got 'CausalLM'"):
        write_backbone(model(), tmp_path / "other", model_type="bert")
    experts = FeedForwardConfig(8, "silu", gated=True, use_bias=False, num_experts=2)
    with pytest.raises(ValueError, match="llama: .*no place for the weights of decoder.0.feed_forward"):
        write_backbone(model(feed_forward=experts), tmp_path / "other", model_type="llama")
    assert not (tmp_path / "other").exists()
    # what is missing, not every family
    with pytest.raises(ValueError) as error:
        write_backbone(model(position=PositionConfig("alibi")), tmp_path / "other")
    assert len(str(error.value).splitlines()) <= 4 and "bert" not in str(error.value)


def test_rates_of_dropout_alone_are_not_compared():
    config = TransformerConfig("encoder", 20)
    embedding = EmbeddingConfig(dropout=0.3, token_dropout=4)
    other = dataclasses.replace(config, dropout=0.3, embedding=embedding)
    assert differences(config, other) == "embedding.token_dropout=4"


def test_rates_of_rembert_that_a_file_does_not_name(reference):
    values = json.loads((reference / "rembert_masked_lm" / "config.json").read_text())
    del values["hidden_dropout_prob"], values["attention_probs_dropout_prob"]
    config = get_family("rembert").read(ConfigReader(values))
    assert (config.dropout, config.attention.dropout) == (0.0, 0.0)


def test_never_overwrites_something_else(tmp_path, reference):
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(FileExistsError, match="is no model of the Transformers library: it will not be overwritten"):
        write_backbone(load_backbone(reference / "bert_base"), tmp_path)
    assert (tmp_path / "notes").read_text() == "mine"


def test_quantized_models_are_not_written(tmp_path, reference):
    backbone = load_backbone(reference / "gpt2")
    backbone.decoder.blocks[0].feed_forward.up.quantize("int8")
    with pytest.raises(ValueError, match="^decoder.0.feed_forward.up is quantized .int8.: [^\n]*$"):
        write_backbone(backbone, tmp_path / "model")


def test_fetching_from_the_hub(monkeypatch, tmp_path):
    (tmp_path / "config.json").touch()
    calls = []

    def snapshot_download(name, revision, allow_patterns, ignore_patterns):
        calls.append((name, revision, allow_patterns))
        return str(tmp_path)

    hub = types.SimpleNamespace(snapshot_download=snapshot_download)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    assert fetch("hf://owner/name") == tmp_path and fetch("hf://gpt2@v1.0") == tmp_path
    (first, none, patterns), (second, revision, _) = calls
    assert (first, none, second, revision) == ("owner/name", None, "gpt2", "v1.0")
    assert "*.safetensors" in patterns and not {"*.bin", "*.py", "*.h5", "*"} & set(patterns)
    for address in ("owner/name", "hf://", "hf://a/b/c", "hf://a b/c"):
        with pytest.raises(ValueError, match="must be hf://owner/name"):
            fetch(address)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ImportError, match="pip install huggingface_hub"):
        fetch("hf://owner/name")


def test_older_and_newer_forms_of_rotary_positions(copy, reference):
    newer = read_config(reference / "llama")
    older = {
        "rope_parameters": None,
        "rope_theta": 100.0,
        "rope_scaling": {
            "type": "llama3",
            "factor": 4.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 16,
        },
    }
    assert read_config(copy("llama", **older)) == newer


@pytest.mark.parametrize(
    ("case", "task"), [("bert_masked_lm", "MaskedLM"), ("bert_classifier", "TextClassifier"), ("t5", "Seq2SeqLM")]
)
def test_task_that_a_directory_names(copy, case, task):
    assert task_of(copy(case)) == task


def test_task_that_no_directory_names(copy):
    with pytest.raises(ValueError, match="config.json: architectures must name one of .*BertForMaskedLM.*'BertModel'"):
        task_of(copy("bert_base"))


def test_keys_of_all_configurations(copy):
    # older files have all of them
    usual = {"is_encoder_decoder": False, "is_decoder": False, "add_cross_attention": False, "tf_legacy_loss": False}
    changes = {**usual, "tie_encoder_decoder": False, "hidden_act": "gelu_accurate"}
    assert read_config(copy("albert_masked_lm", **changes)).feed_forward.activation == "gelu_tanh"


def test_another_projection_of_an_encoder(reference):
    values = json.loads((reference / "bert_masked_lm" / "config.json").read_text()) | {"tie_word_embeddings": False}
    family = get_family("bert")
    assert family.read(ConfigReader(values)).embedding.tie_output
    with pytest.raises(ValueError, match="tie_word_embeddings must be true with cls.predictions.decoder.weight in"):
        family.read(ConfigReader(values, ["cls.predictions.decoder.weight"]))
