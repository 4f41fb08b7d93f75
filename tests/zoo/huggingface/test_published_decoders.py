"""Configurations with all the keys that files of published decoders have are read, and written to mean the same."""

import pytest

from zoo.huggingface.config_reader import ConfigReader
from zoo.huggingface.family import get_family
from zoo.huggingface.writing import effective

COMMON = {"architectures": ["Model"], "transformers_version": "4.50.0", "torch_dtype": "bfloat16", "use_cache": True}


def sizes(vocabulary, width, inner, layers, heads, key_value_heads, length):
    return {
        "vocab_size": vocabulary,
        "hidden_size": width,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": key_value_heads,
        "max_position_embeddings": length,
        "attention_dropout": 0.0,
        "initializer_range": 0.02,
    }


GEMMA = {"model_type": "gemma", "attention_bias": False, "head_dim": 256, "rms_norm_eps": 1e-6, "rope_theta": 10000.0}
NO_HEADS = ("num_key_value_heads", "attention_dropout")
PYTHIA = {key: value for key, value in sizes(50304, 768, 3072, 12, 12, None, 2048).items() if key not in NO_HEADS}
FALCON = {
    "model_type": "falcon",
    "alibi": False,
    "apply_residual_connection_post_layernorm": False,
    "attention_dropout": 0.0,
    "auto_map": {"AutoConfig": "configuration_falcon.FalconConfig"},
    "bias": False,
    "bos_token_id": 11,
    "eos_token_id": 11,
    "hidden_dropout": 0.0,
    "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-5,
    "parallel_attn": True,
    "vocab_size": 65024,
}
# name: (configuration, choices that it means)
PUBLISHED = {
    "gemma-2b": (
        {
            **GEMMA,
            **sizes(256000, 2048, 16384, 18, 8, 1, 8192),
            "hidden_act": "gelu",
            "hidden_activation": None,
            "rope_scaling": None,
        },
        {"feed_forward.activation": "gelu_tanh", "norm.unit_offset": True, "embedding.tie_output": True},
    ),
    "gemma-3-1b": (
        {
            **GEMMA,
            **sizes(262144, 1152, 6912, 26, 4, 1, 32768),
            "model_type": "gemma3_text",
            "attn_logit_softcapping": None,
            "cache_implementation": "hybrid",
            "eos_token_id": [1, 106],
            "final_logit_softcapping": None,
            "hidden_activation": "gelu_pytorch_tanh",
            "query_pre_attn_scalar": 256,
            "rope_local_base_freq": 10000,
            "rope_scaling": None,
            "rope_theta": 1000000,
            "sliding_window": 512,
            "sliding_window_pattern": 6,
        },
        {"attention.window": (511, 0), "position.base": 1e6, "position.local_base": 1e4},
    ),
    "pythia-160m": (
        {
            **PYTHIA,
            "model_type": "gpt_neox",
            "hidden_act": "gelu",
            "layer_norm_eps": 1e-5,
            "rotary_emb_base": 10000,
            "rotary_pct": 0.25,
            "tie_word_embeddings": False,
            "use_parallel_residual": True,
        },
        {"norm.placement": "parallel", "norm.shared": False, "position.rotary_dim": 16},
    ),
    "falcon-7b": (
        {
            **FALCON,
            "hidden_size": 4544,
            "multi_query": True,
            "new_decoder_architecture": False,
            "num_attention_heads": 71,
            "num_hidden_layers": 32,
        },
        {"norm.placement": "parallel", "norm.shared": True, "attention.num_key_value_heads": 1},
    ),
    "falcon-40b": (
        {
            **FALCON,
            "hidden_size": 8192,
            "new_decoder_architecture": True,
            "num_attention_heads": 128,
            "num_hidden_layers": 60,
            "num_kv_heads": 8,
        },
        {"norm.placement": "parallel", "norm.shared": False, "attention.num_key_value_heads": 8},
    ),
    "falcon-rw-1b": (
        {
            **FALCON,
            "alibi": True,
            "bias": True,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "hidden_size": 2048,
            "multi_query": False,
            "new_decoder_architecture": False,
            "num_attention_heads": 32,
            "num_hidden_layers": 24,
            "parallel_attn": False,
            "vocab_size": 50304,
        },
        {"norm.placement": "pre", "position.kind": "alibi", "position.options": {"slope_scale": 0.125}},
    ),
    "opt-350m": (
        {
            "model_type": "opt",
            "_remove_final_layer_norm": False,
            "activation_dropout": 0.0,
            "activation_function": "relu",
            "attention_dropout": 0.0,
            "do_layer_norm_before": False,
            "dropout": 0.1,
            "ffn_dim": 4096,
            "hidden_size": 1024,
            "init_std": 0.02,
            "layerdrop": 0.0,
            "max_position_embeddings": 2048,
            "num_attention_heads": 16,
            "num_hidden_layers": 24,
            "pad_token_id": 1,
            "prefix": "</s>",
            "vocab_size": 50272,
            "word_embed_proj_dim": 512,
        },
        {"embedding.factor_dim": 512, "embedding.factor_output": True, "norm.placement": "post", "norm.final": False},
    ),
    "mixtral-8x7b": (
        {
            **sizes(32000, 4096, 14336, 32, 32, 8, 32768),
            "model_type": "mixtral",
            "hidden_act": "silu",
            "num_experts_per_tok": 2,
            "num_local_experts": 8,
            "output_router_logits": False,
            "rms_norm_eps": 1e-5,
            "rope_theta": 1000000.0,
            "router_aux_loss_coef": 0.02,
            "sliding_window": None,
            "tie_word_embeddings": False,
        },
        {"feed_forward.num_experts": 8, "attention.window": None},
    ),
    "qwen1.5-moe-a2.7b": (
        {
            **sizes(151936, 2048, 5632, 24, 16, 16, 8192),
            "model_type": "qwen2_moe",
            "decoder_sparse_step": 1,
            "hidden_act": "silu",
            "max_window_layers": 21,
            "moe_intermediate_size": 1408,
            "norm_topk_prob": False,
            "num_experts": 60,
            "num_experts_per_tok": 4,
            "output_router_logits": False,
            "rms_norm_eps": 1e-6,
            "rope_theta": 1000000.0,
            "router_aux_loss_coef": 0.001,
            "shared_expert_intermediate_size": 5632,
            "sliding_window": 32768,
            "tie_word_embeddings": False,
            "use_sliding_window": False,
        },
        {"feed_forward.shared_intermediate_dim": 5632, "feed_forward.normalize_weights": False},
    ),
    "qwen3-30b-a3b": (
        {
            **sizes(151936, 2048, 6144, 48, 32, 4, 40960),
            "model_type": "qwen3_moe",
            "attention_bias": False,
            "decoder_sparse_step": 1,
            "head_dim": 128,
            "hidden_act": "silu",
            "max_window_layers": 48,
            "mlp_only_layers": [],
            "moe_intermediate_size": 768,
            "norm_topk_prob": True,
            "num_experts": 128,
            "num_experts_per_tok": 8,
            "output_router_logits": False,
            "rms_norm_eps": 1e-6,
            "rope_scaling": None,
            "rope_theta": 1000000.0,
            "router_aux_loss_coef": 0.001,
            "sliding_window": None,
            "tie_word_embeddings": False,
            "use_sliding_window": False,
        },
        {"feed_forward.num_experts": 128, "attention.query_key_norm": "rms"},
    ),
    "phi-2": (
        {
            **sizes(51200, 2560, 10240, 32, 32, 32, 2048),
            "model_type": "phi",
            "bos_token_id": 50256,
            "embd_pdrop": 0.0,
            "eos_token_id": 50256,
            "hidden_act": "gelu_new",
            "layer_norm_eps": 1e-5,
            "partial_rotary_factor": 0.4,
            "qk_layernorm": False,
            "resid_pdrop": 0.1,
            "rope_scaling": None,
            "rope_theta": 10000.0,
            "tie_word_embeddings": False,
        },
        {"norm.placement": "parallel", "position.rotary_dim": 32, "embedding.output_bias": True},
    ),
    "phi-3-mini-128k": (
        {
            **sizes(32064, 3072, 8192, 32, 32, 32, 131072),
            "model_type": "phi3",
            "attention_bias": False,
            "auto_map": {"AutoConfig": "configuration_phi3.Phi3Config"},
            "embd_pdrop": 0.0,
            "hidden_act": "silu",
            "original_max_position_embeddings": 4096,
            "resid_pdrop": 0.0,
            "rms_norm_eps": 1e-5,
            "rope_scaling": {"long_factor": [1.5] * 48, "short_factor": [1.0] * 48, "type": "longrope"},
            "rope_theta": 10000.0,
            "sliding_window": 262144,
            "tie_word_embeddings": False,
        },
        {"attention.window": (262143, 0), "position.rotary_dim": None},
    ),
    "olmo-2-7b": (
        {
            **sizes(100352, 4096, 11008, 32, 32, 32, 4096),
            "model_type": "olmo2",
            "attention_bias": False,
            "hidden_act": "silu",
            "rms_norm_eps": 1e-6,
            "rope_scaling": None,
            "rope_theta": 500000,
            "tie_word_embeddings": False,
        },
        {"norm.placement": "res_post", "attention.query_key_norm_scope": "width"},
    ),
    "granite-3-2b": (
        {
            **sizes(49155, 2048, 8192, 40, 32, 8, 131072),
            "model_type": "granite",
            "attention_bias": False,
            "attention_multiplier": 0.015625,
            "embedding_multiplier": 12.0,
            "hidden_act": "silu",
            "logits_scaling": 8.0,
            "mlp_bias": False,
            "residual_multiplier": 0.22,
            "rms_norm_eps": 1e-5,
            "rope_scaling": None,
            "rope_theta": 5000000.0,
            "tie_word_embeddings": True,
        },
        {"embedding.scale": 12.0, "embedding.output_scale": 0.125, "branch_scale": 0.22, "attention.scale": 0.015625},
    ),
    "command-r": (
        {
            **sizes(256000, 8192, 22528, 40, 64, 64, 8192),
            "model_type": "cohere",
            "attention_bias": False,
            "hidden_act": "silu",
            "layer_norm_eps": 1e-5,
            "logit_scale": 0.0625,
            "model_max_length": 131072,
            "pretraining_tp": 1,
            "rope_theta": 8000000.0,
            "use_qk_norm": False,
        },
        {"position.layout": "interleaved", "norm.use_bias": False, "embedding.tie_output": True},
    ),
    "smollm3-3b": (
        {
            **sizes(128256, 2048, 11008, 36, 16, 4, 65536),
            "model_type": "smollm3",
            "attention_bias": False,
            "hidden_act": "silu",
            "layer_types": ["full_attention"] * 36,
            "max_window_layers": 28,
            "mlp_bias": False,
            "no_rope_layer_interval": 4,
            "no_rope_layers": [1, 1, 1, 0] * 9,
            "pretraining_tp": 2,
            "rms_norm_eps": 1e-6,
            "rope_scaling": None,
            "rope_theta": 5000000.0,
            "sliding_window": None,
            "use_sliding_window": False,
        },
        {"position.layers": [True, True, True, False] * 9, "embedding.tie_output": True},
    ),
    "starcoder2-3b": (
        {
            **sizes(49152, 3072, 12288, 30, 24, 2, 16384),
            "model_type": "starcoder2",
            "activation_function": "gelu",
            "attention_softmax_in_fp32": True,
            "embedding_dropout": 0.1,
            "hidden_act": "gelu_pytorch_tanh",
            "layer_norm_epsilon": 1e-5,
            "mlp_type": "default",
            "norm_epsilon": 1e-5,
            "norm_type": "layer_norm",
            "residual_dropout": 0.1,
            "rope_theta": 999999.4420358813,
            "scale_attention_softmax_in_fp32": True,
            "scale_attn_weights": True,
            "sliding_window": 4096,
            "use_bias": True,
        },
        {"norm.kind": "layer", "feed_forward.gated": False, "attention.window": (4095, 0)},
    ),
    "gpt-oss-20b": (
        {
            **sizes(201088, 2880, 2880, 24, 64, 8, 131072),
            "model_type": "gpt_oss",
            "attention_bias": True,
            "experts_per_token": 4,
            "head_dim": 64,
            "hidden_act": "silu",
            "initial_context_length": 4096,
            "layer_types": ["sliding_attention", "full_attention"] * 12,
            "num_experts_per_tok": 4,
            "num_local_experts": 32,
            "output_router_logits": False,
            "rms_norm_eps": 1e-5,
            "rope_scaling": {
                "beta_fast": 32.0,
                "beta_slow": 1.0,
                "factor": 32.0,
                "original_max_position_embeddings": 4096,
                "rope_type": "yarn",
                "truncate": False,
            },
            "rope_theta": 150000,
            "router_aux_loss_coef": 0.9,
            "sliding_window": 128,
            "swiglu_limit": 7.0,
            "tie_word_embeddings": False,
        },
        {"attention.sinks": True, "feed_forward.gate_limit": 7.0, "feed_forward.up_offset": 1.0},
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_configuration_is_read_and_written(name):
    values, choices = PUBLISHED[name]
    family = get_family(values["model_type"])
    reader = ConfigReader({**COMMON, **values})
    config = family.read(reader)
    reader.finish()
    found = effective(config)
    assert {key: found[key] for key in choices} == choices
    again = ConfigReader(family.write(config))
    assert effective(family.read(again)) == found
    again.finish()


def test_missing_keys_of_deepseek_v3_mean_what_its_class_says():
    values = {key: value for key, value in sizes(48, 32, 24, 4, 2, 2, 64).items() if key != "max_position_embeddings"}
    config = get_family("deepseek_v3").read(ConfigReader(values))
    assert (config.max_length, config.feed_forward.weight_scale, config.feed_forward.num_experts) == (4096, 2.5, 256)
