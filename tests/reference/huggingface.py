"""Writes huggingface/<case>/: tiny models of the Transformers library with random weights, and what they compute.

Each folder is one that the library saved (`config.json` and safetensors) with `golden.npz`: inputs and outputs.
Run it where `torch` and `transformers` are installed (made with torch 2.13.0, transformers 5.23.0):

    python -P tests/reference/huggingface.py

(`-P` because the folder has a `tokenizers.py` of its own.)

Cases whose folder is there stay as they are. With a folder behind it, nothing is written: the models that were written
by this library into folders of the same names there are loaded and compared with the same outputs.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
import transformers

FOLDER = Path(__file__).with_name("huggingface")
VOCABULARY = 48
LENGTHS = (9, 6)
DECODER_LENGTHS = (5, 7)

BERT = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "max_position_embeddings": 24,
    "layer_norm_eps": 1e-3,
}
MPNET = {key: value for key, value in BERT.items() if key != "type_vocab_size"}
DEBERTA = {
    **MPNET,
    "relative_attention": True,
    "position_buckets": 4,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": "p2c|c2p",
}
# three layers, which share their weights
ALBERT = {**BERT, "num_hidden_layers": 3, "embedding_size": 10}
DISTILBERT = {
    "vocab_size": VOCABULARY,
    "dim": 16,
    "n_layers": 2,
    "n_heads": 4,
    "hidden_dim": 24,
    "max_position_embeddings": 24,
}
MODERNBERT = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 12,
    "max_position_embeddings": 24,
    "local_attention": 4,
    "norm_eps": 1e-3,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "cls_token_id": 1,
    "sep_token_id": 2,
}
LLAMA = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 24,
    "rms_norm_eps": 1e-3,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
MAMBA2 = {
    "vocab_size": VOCABULARY,
    "hidden_size": 10,
    "num_hidden_layers": 2,
    "num_heads": 4,
    "head_dim": 5,
    "state_size": 6,
    "n_groups": 2,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
# for three rows, one of them padded on the left, and 64 more tokens
DECODER = {**LLAMA, "num_key_value_heads": 1, "max_position_embeddings": 80, "pad_token_id": 0}
LONG = {"rows": "both", "greedy": 64}
GPT_NEOX = {key: value for key, value in DECODER.items() if key not in ("num_key_value_heads", "rms_norm_eps")}
EXPERTS = {**DECODER, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8}
YARN = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 100.0, "original_max_position_embeddings": 8}
LONGROPE = {"rope_type": "longrope", "rope_theta": 100.0, "short_factor": [1.0, 1.2], "long_factor": [1.5, 3.0]}
LATENT = {
    **DECODER,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "num_hidden_layers": 3,
    "kv_lora_rank": 6,
    "qk_nope_head_dim": 4,
    "qk_rope_head_dim": 2,
    "v_head_dim": 5,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 8,
    "routed_scaling_factor": 1.5,
}
OPT = {
    **{key: value for key, value in GPT_NEOX.items() if key != "intermediate_size"},
    "ffn_dim": 24,
    "max_position_embeddings": 80,
}
FALCON = {
    **{key: value for key, value in GPT_NEOX.items() if key != "intermediate_size"},
    "ffn_hidden_size": 24,
    "layer_norm_epsilon": 1e-3,
}
BLOOM = {"vocab_size": VOCABULARY, "hidden_size": 16, "n_layer": 2, "n_head": 4, "seq_length": 80, "pad_token_id": 0}
MPT = {"vocab_size": VOCABULARY, "d_model": 16, "n_layers": 2, "n_heads": 4, "max_seq_len": 80, "pad_token_id": 0}
COHERE = {
    **{key: value for key, value in DECODER.items() if key != "rms_norm_eps"},
    "layer_norm_eps": 1e-3,
    "logit_scale": 0.3,
    "rope_parameters": {"rope_type": "default", "rope_theta": 50.0},
}
GPTJ = {
    "vocab_size": VOCABULARY,
    "n_positions": 80,
    "n_embd": 16,
    "n_layer": 2,
    "n_head": 2,
    "n_inner": 24,
    "rotary_dim": 4,
    "layer_norm_epsilon": 1e-3,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
GPT_NEO = {
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 80,
    "hidden_size": 16,
    "num_layers": 3,
    "num_heads": 4,
    "attention_types": [[["global", "local"], 1], [["local"], 1]],
    "window_size": 3,
    "layer_norm_epsilon": 1e-3,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
GPT_BIGCODE = {key: value for key, value in GPTJ.items() if key != "rotary_dim"}
EUROBERT = {**DECODER, "rope_parameters": {"rope_type": "default", "rope_theta": 50.0}}
T5 = {
    "vocab_size": VOCABULARY,
    "d_model": 16,
    "d_kv": 6,
    "d_ff": 24,
    "num_layers": 2,
    "num_heads": 4,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 6,
}
BART = {
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 80,
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "scale_embedding": True,
    "pad_token_id": 1,
    "decoder_start_token_id": 2,
    "forced_eos_token_id": None,
}
LLAMA3_SCALING = {
    "rope_type": "llama3",
    "rope_theta": 100.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
ESM = {**MPNET, "pad_token_id": 1, "mask_token_id": 37}
LONGFORMER = {**BERT, "attention_window": 4, "pad_token_id": 1, "sep_token_id": 2}
REMBERT = {**BERT, "input_embedding_size": 10, "output_embedding_size": 20, "bos_token_id": 1, "eos_token_id": 2}
# parameters that are never trained
CONSTANTS = {"roformer.encoder.embed_positions.weight"}
# case: (class of the model, class of its configuration, choices, options of saving)
CASES = {
    "bert_masked_lm": ("BertForMaskedLM", "BertConfig", {**BERT, "hidden_act": "gelu_new"}, {}),
    "bert_classifier": ("BertForSequenceClassification", "BertConfig", {**BERT, "num_labels": 3}, {}),
    "bert_token_classifier": ("BertForTokenClassification", "BertConfig", {**BERT, "hidden_act": "relu"}, {}),
    "bert_base": ("BertModel", "BertConfig", BERT, {}),
    "roberta_masked_lm": ("RobertaForMaskedLM", "RobertaConfig", {**BERT, "type_vocab_size": 1}, {}),
    "roberta_classifier": (
        "RobertaForSequenceClassification",
        "RobertaConfig",
        {**BERT, "type_vocab_size": 1, "num_labels": 3},
        {},
    ),
    "distilbert_masked_lm": ("DistilBertForMaskedLM", "DistilBertConfig", DISTILBERT, {}),
    "distilbert_classifier": ("DistilBertForSequenceClassification", "DistilBertConfig", DISTILBERT, {}),
    "modernbert_masked_lm": ("ModernBertForMaskedLM", "ModernBertConfig", MODERNBERT, {}),
    "modernbert_classifier": (
        "ModernBertForSequenceClassification",
        "ModernBertConfig",
        {**MODERNBERT, "num_labels": 3, "classifier_pooling": "mean"},
        {},
    ),
    "gpt2": (
        "GPT2LMHeadModel",
        "GPT2Config",
        {
            "vocab_size": VOCABULARY,
            "n_positions": 24,
            "n_embd": 16,
            "n_layer": 2,
            "n_head": 4,
            "n_inner": 24,
            "layer_norm_epsilon": 1e-3,
            "bos_token_id": 0,
            "eos_token_id": 0,
        },
        {},
    ),
    "llama": (
        "LlamaForCausalLM",
        "LlamaConfig",
        {**LLAMA, "rope_parameters": LLAMA3_SCALING},
        {"dtype": torch.bfloat16},
    ),
    "llama_biases": (
        "LlamaForCausalLM",
        "LlamaConfig",
        {
            **LLAMA,
            "head_dim": 6,
            "attention_bias": True,
            "mlp_bias": True,
            "tie_word_embeddings": True,
            "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 50.0},
        },
        {},
    ),
    "llama_dynamic": (
        "LlamaForCausalLM",
        "LlamaConfig",
        {
            **LLAMA,
            "max_position_embeddings": 4,
            "rope_parameters": {"rope_type": "dynamic", "factor": 3.0, "rope_theta": 50.0},
        },
        {"dtype": torch.float16},
    ),
    "mistral": ("MistralForCausalLM", "MistralConfig", {**LLAMA, "sliding_window": 3}, {}),
    "qwen2": (
        "Qwen2ForCausalLM",
        "Qwen2Config",
        {
            **LLAMA,
            "tie_word_embeddings": True,
            "use_sliding_window": True,
            "sliding_window": 3,
            "max_window_layers": 1,
            "rope_parameters": {
                "rope_type": "yarn",
                "factor": 4.0,
                "rope_theta": 100.0,
                "original_max_position_embeddings": 8,
            },
        },
        {"max_shard_size": "8KB"},
    ),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", {**LLAMA, "head_dim": 8}, {}),
    "gemma2": (
        "Gemma2ForCausalLM",
        "Gemma2Config",
        {
            **LLAMA,
            "head_dim": 6,
            "query_pre_attn_scalar": 10,
            "sliding_window": 3,
            "attn_logit_softcapping": 2.0,
            "final_logit_softcapping": 3.0,
            "pad_token_id": 0,
        },
        {},
    ),
    "gemma": (
        "GemmaForCausalLM",
        "GemmaConfig",
        {**DECODER, "head_dim": 6, "hidden_act": "gelu", "attention_bias": True},
        LONG,
    ),
    "olmo2": ("Olmo2ForCausalLM", "Olmo2Config", {**DECODER, "num_key_value_heads": 2}, LONG),
    "olmo": (
        "OlmoForCausalLM",
        "OlmoConfig",
        {
            **{key: value for key, value in DECODER.items() if key != "rms_norm_eps"},
            "num_key_value_heads": 2,
            "clip_qkv": 0.5,
        },
        LONG,
    ),
    "olmo3": (
        "Olmo3ForCausalLM",
        "Olmo3Config",
        {
            **DECODER,
            "num_hidden_layers": 3,
            "num_key_value_heads": 2,
            "sliding_window": 4,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            "rope_parameters": {
                "full_attention": YARN,
                "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
            },
        },
        LONG,
    ),
    "lfm2": (
        "Lfm2ForCausalLM",
        "Lfm2Config",
        {
            **{key: value for key, value in DECODER.items() if key != "rms_norm_eps"},
            "num_hidden_layers": 3,
            "intermediate_size": 30,
            "block_multiple_of": 7,
            "block_ffn_dim_multiplier": 1.1,
            "layer_types": ["conv", "full_attention", "conv"],
            "conv_L_cache": 4,
            "conv_bias": True,
            "norm_eps": 1e-3,
            "tie_word_embeddings": False,
            "rope_parameters": {"rope_type": "default", "rope_theta": 100.0},
        },
        # with biases, padding on the left changes its rows: it becomes products of biases
        {"greedy": 64},
    ),
    "olmoe": (
        "OlmoeForCausalLM",
        "OlmoeConfig",
        {
            **DECODER,
            "num_key_value_heads": 2,
            "intermediate_size": 12,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "clip_qkv": 0.8,
        },
        LONG,
    ),
    "nemotron": (
        "NemotronForCausalLM",
        "NemotronConfig",
        {
            **{key: value for key, value in DECODER.items() if key != "rms_norm_eps"},
            "num_key_value_heads": 2,
            "head_dim": 8,
            "norm_eps": 1e-3,
        },
        LONG,
    ),
    "granitemoe": (
        "GraniteMoeForCausalLM",
        "GraniteMoeConfig",
        {
            **DECODER,
            "intermediate_size": 12,
            "num_local_experts": 4,
            "attention_multiplier": 0.3,
            "embedding_multiplier": 3.0,
            "logits_scaling": 4.0,
            "residual_multiplier": 0.5,
        },
        LONG,
    ),
    "ernie4_5": (
        "Ernie4_5ForCausalLM",
        "Ernie4_5Config",
        {**DECODER, "head_dim": 6, "tie_word_embeddings": False},
        LONG,
    ),
    "ernie4_5_biases": (
        "Ernie4_5ForCausalLM",
        "Ernie4_5Config",
        {**DECODER, "head_dim": 4, "num_hidden_layers": 1, "use_bias": True},
        {"rows": "both"},
    ),
    "helium": (
        "HeliumForCausalLM",
        "HeliumConfig",
        {**DECODER, "num_key_value_heads": 2, "head_dim": 4, "attention_bias": True, "mlp_bias": True},
        LONG,
    ),
    "phi3": (
        "Phi3ForCausalLM",
        "Phi3Config",
        {
            **DECODER,
            "num_attention_heads": 2,
            "sliding_window": 5,
            "original_max_position_embeddings": 30,  # shorter than what it writes
            "rope_parameters": {**LONGROPE, "partial_rotary_factor": 0.5},
        },
        LONG,
    ),
    # all rows are longer
    "phi3_long": (
        "Phi3ForCausalLM",
        "Phi3Config",
        {
            **DECODER,
            "num_attention_heads": 4,
            "original_max_position_embeddings": 4,
            "rope_parameters": {**LONGROPE, "attention_factor": 1.3},
        },
        {"rows": "both"},
    ),
    "phi": (
        "PhiForCausalLM",
        "PhiConfig",
        {**DECODER, "num_key_value_heads": 2, "layer_norm_eps": 1e-3, "qk_layernorm": True},
        LONG,
    ),
    "phi_tied": (
        "PhiForCausalLM",
        "PhiConfig",
        {
            **DECODER,
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
            "tie_word_embeddings": True,
            "hidden_act": "relu",
            "rope_parameters": {"rope_type": "default", "rope_theta": 50.0, "partial_rotary_factor": 0.75},
        },
        {"rows": "both"},
    ),
    "starcoder2": (
        "Starcoder2ForCausalLM",
        "Starcoder2Config",
        {**DECODER, "norm_epsilon": 1e-3, "sliding_window": 4, "tie_word_embeddings": False, "hidden_act": "relu"},
        LONG,
    ),
    "gptj": ("GPTJForCausalLM", "GPTJConfig", GPTJ, LONG),
    "codegen": (
        "CodeGenForCausalLM",
        "CodeGenConfig",
        {**GPTJ, "rotary_dim": 8, "n_inner": None, "activation_function": "relu", "tie_word_embeddings": True},
        LONG,
    ),
    "gpt_neo": ("GPTNeoForCausalLM", "GPTNeoConfig", {**GPT_NEO, "tie_word_embeddings": False}, {"greedy": 64}),
    "gpt_bigcode": ("GPTBigCodeForCausalLM", "GPTBigCodeConfig", GPT_BIGCODE, {"greedy": 64}),
    # keys and values of each head
    "gpt_bigcode_by_head": (
        "GPTBigCodeForCausalLM",
        "GPTBigCodeConfig",
        {
            **GPT_BIGCODE,
            "n_head": 4,
            "n_inner": None,
            "multi_query": False,
            "scale_attn_weights": False,
            "tie_word_embeddings": False,
        },
        {},
    ),
    "stablelm": (
        "StableLmForCausalLM",
        "StableLmConfig",
        {
            **GPT_NEOX,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "layer_norm_eps": 1e-3,
            "use_qkv_bias": True,
        },
        LONG,
    ),
    "stablelm_parallel": (
        "StableLmForCausalLM",
        "StableLmConfig",
        {
            **GPT_NEOX,
            "num_key_value_heads": 4,
            "use_parallel_residual": True,
            "tie_word_embeddings": True,
            "hidden_act": "gelu",
            "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 50.0, "partial_rotary_factor": 1.0},
        },
        {"rows": "both"},
    ),
    "glm": ("GlmForCausalLM", "GlmConfig", {**DECODER, "head_dim": 8, "num_key_value_heads": 2}, LONG),
    "glm4": (
        "Glm4ForCausalLM",
        "Glm4Config",
        {
            **DECODER,
            "head_dim": 8,
            "attention_bias": False,
            "tie_word_embeddings": True,
            "rope_parameters": {"rope_type": "default", "rope_theta": 50.0, "partial_rotary_factor": 0.75},
        },
        LONG,
    ),
    "exaone4": (
        "Exaone4ForCausalLM",
        "Exaone4Config",
        {
            **DECODER,
            "num_hidden_layers": 3,
            "num_key_value_heads": 2,
            "sliding_window": 4,
            "sliding_window_pattern": 2,
            "rope_parameters": LLAMA3_SCALING,
        },
        LONG,
    ),
    "exaone4_full": (
        "Exaone4ForCausalLM",
        "Exaone4Config",
        {**DECODER, "sliding_window": None, "layer_types": ["full_attention"] * 2, "tie_word_embeddings": True},
        {"rows": "both"},
    ),
    "gpt_neox": (
        "GPTNeoXForCausalLM",
        "GPTNeoXConfig",
        {**GPT_NEOX, "num_attention_heads": 2, "layer_norm_eps": 1e-3},
        LONG,
    ),
    "gpt_neox_sequential": (
        "GPTNeoXForCausalLM",
        "GPTNeoXConfig",
        {
            **GPT_NEOX,
            "attention_bias": False,
            "hidden_act": "gelu_fast",
            "use_parallel_residual": False,
            "tie_word_embeddings": True,
            "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 50.0, "partial_rotary_factor": 1.0},
        },
        LONG,
    ),
    "mixtral": (
        "MixtralForCausalLM",
        "MixtralConfig",
        {**DECODER, "head_dim": 6, "intermediate_size": 12, "sliding_window": 4, "num_local_experts": 5},
        LONG,
    ),
    "gemma3": (
        "Gemma3ForCausalLM",
        "Gemma3TextConfig",
        {
            **DECODER,
            "num_hidden_layers": 3,
            "head_dim": 6,
            "query_pre_attn_scalar": 10,
            "sliding_window": 3,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            "final_logit_softcapping": 5.0,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 500.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
            },
        },
        LONG,
    ),
    "granite": (
        "GraniteForCausalLM",
        "GraniteConfig",
        {
            **DECODER,
            "head_dim": 6,
            "mlp_bias": True,
            "attention_multiplier": 0.3,
            "embedding_multiplier": 3.0,
            "logits_scaling": 4.0,
            "residual_multiplier": 0.5,
        },
        LONG,
    ),
    "cohere": ("CohereForCausalLM", "CohereConfig", {**COHERE, "use_qk_norm": True, "num_key_value_heads": 2}, LONG),
    "cohere2": (
        "Cohere2ForCausalLM",
        "Cohere2Config",
        {**COHERE, "num_hidden_layers": 3, "sliding_window": 4, "sliding_window_pattern": 2},
        LONG,
    ),
    "smollm3": (
        "SmolLM3ForCausalLM",
        "SmolLM3Config",
        {
            **DECODER,
            "num_hidden_layers": 3,
            "no_rope_layer_interval": 2,
            "use_sliding_window": True,
            "sliding_window": 4,
            "attention_bias": True,
        },
        LONG,
    ),
    "qwen2_moe": (
        "Qwen2MoeForCausalLM",
        "Qwen2MoeConfig",
        {**EXPERTS, "num_hidden_layers": 3, "mlp_only_layers": [1], "shared_expert_intermediate_size": 12},
        LONG,
    ),
    "qwen3_moe": (
        "Qwen3MoeForCausalLM",
        "Qwen3MoeConfig",
        {**EXPERTS, "head_dim": 6, "norm_topk_prob": True, "use_sliding_window": True, "sliding_window": 4},
        LONG,
    ),
    "qwen3_next": (
        "Qwen3NextForCausalLM",
        "Qwen3NextConfig",
        {
            **EXPERTS,
            "num_hidden_layers": 4,
            "head_dim": 8,
            "layer_types": ["linear_attention", "full_attention", "linear_attention", "linear_attention"],
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "linear_key_head_dim": 3,
            "linear_value_head_dim": 5,
            "linear_conv_kernel_dim": 3,
            "mlp_only_layers": [2],
            "shared_expert_intermediate_size": 12,
        },
        LONG,
    ),
    # the library gives padding on the left the biases of the maps
    "mamba2": (
        "Mamba2ForCausalLM",
        "Mamba2Config",
        {**MAMBA2, "use_bias": True, "use_conv_bias": False, "layer_norm_epsilon": 1e-3},
        {"greedy": 64},
    ),
    # its cached steps have no limits, unlike whole texts
    "mamba2_limited": (
        "Mamba2ForCausalLM",
        "Mamba2Config",
        {**MAMBA2, "n_groups": 4, "conv_kernel": 3, "time_step_limit": [0.05, 0.4], "tie_word_embeddings": True},
        {"rows": "both"},
    ),
    "bamba": (
        "BambaForCausalLM",
        "BambaConfig",
        {
            **DECODER,
            "num_hidden_layers": 3,
            "attn_layer_indices": [1],
            "mamba_n_heads": 4,
            "mamba_n_groups": 2,
            "mamba_d_state": 6,
            "mamba_d_conv": 3,
            "attention_bias": True,
            "tie_word_embeddings": True,
            "rope_theta": 100.0,
        },
        LONG,
    ),
    "gpt_oss": (
        "GptOssForCausalLM",
        "GptOssConfig",
        {
            **DECODER,
            "head_dim": 6,
            "intermediate_size": 12,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "sliding_window": 4,
            "swiglu_limit": 1.5,
            "rope_parameters": {**YARN, "truncate": False},
        },
        LONG,
    ),
    # queries of a latent, experts in groups
    "deepseek_v2": (
        "DeepseekV2ForCausalLM",
        "DeepseekV2Config",
        {
            **LATENT,
            "q_lora_rank": 5,
            "attention_bias": True,
            "topk_method": "group_limited_greedy",
            "n_group": 2,
            "topk_group": 1,
            "rope_parameters": {**YARN, "mscale": 0.7, "mscale_all_dim": 1.0},
        },
        LONG,
    ),
    # a first layer without experts, which are chosen by their scores and a bias
    "deepseek_v3": (
        "DeepseekV3ForCausalLM",
        "DeepseekV3Config",
        {
            **LATENT,
            "q_lora_rank": None,
            "qk_rope_head_dim": 4,
            "n_group": 2,
            "topk_group": 1,
            "n_shared_experts": 2,
            "first_k_dense_replace": 1,
        },
        LONG,
    ),
    "opt": ("OPTForCausalLM", "OPTConfig", {**OPT, "word_embed_proj_dim": 10}, LONG),
    "opt_post": (
        "OPTForCausalLM",
        "OPTConfig",
        {**OPT, "do_layer_norm_before": False, "enable_bias": False, "tie_word_embeddings": False},
        LONG,
    ),
    "falcon": (
        "FalconForCausalLM",
        "FalconConfig",
        {**FALCON, "tie_word_embeddings": False, "rope_parameters": {"rope_type": "default", "rope_theta": 50.0}},
        LONG,
    ),
    # a norm for each sublayer, two keys for four queries
    "falcon_new": (
        "FalconForCausalLM",
        "FalconConfig",
        {**FALCON, "new_decoder_architecture": True, "num_kv_heads": 2, "activation": "relu"},
        LONG,
    ),
    "falcon_alibi": (
        "FalconForCausalLM",
        "FalconConfig",
        {**FALCON, "alibi": True, "bias": True, "multi_query": False, "parallel_attn": False},
        {**LONG, "attention": "sdpa"},  # "eager" adds the biases of positions twice
    ),
    "falcon_question_answerer": (
        "FalconForQuestionAnswering",
        "FalconConfig",
        {**FALCON, "new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1},
        {"rows": "both"},
    ),
    "bloom": ("BloomForCausalLM", "BloomConfig", {**BLOOM, "tie_word_embeddings": False}, LONG),
    # heads whose number is no power of two
    "bloom_token_classifier": (
        "BloomForTokenClassification",
        "BloomConfig",
        {**BLOOM, "hidden_size": 12, "n_head": 3, "layer_norm_epsilon": 1e-3},
        {"rows": "both"},
    ),
    "mpt": (
        "MptForCausalLM",
        "MptConfig",
        {**MPT, "attn_config": {"clip_qkv": 0.5, "softmax_scale": 0.4}, "layer_norm_epsilon": 1e-3},
        LONG,
    ),
    "mpt_untied": ("MptForCausalLM", "MptConfig", {**MPT, "n_heads": 2, "tie_word_embeddings": False}, LONG),
    "mpt_question_answerer": (
        "MptForQuestionAnswering",
        "MptConfig",
        {**MPT, "d_model": 12, "n_heads": 3},
        {"rows": "both"},
    ),
    "llama_classifier": (
        "LlamaForSequenceClassification",
        "LlamaConfig",
        {**DECODER, "num_labels": 3},
        {"rows": "both"},
    ),
    "phi_classifier": (
        "PhiForSequenceClassification",
        "PhiConfig",
        {**DECODER, "num_key_value_heads": None, "num_labels": 3},
        {"rows": "both"},
    ),
    "phi_token_classifier": ("PhiForTokenClassification", "PhiConfig", {**DECODER, "num_key_value_heads": 4}, {}),
    "gptj_classifier": (
        "GPTJForSequenceClassification",
        "GPTJConfig",
        {**GPTJ, "num_labels": 3, "tie_word_embeddings": True},
        {"rows": "both"},
    ),
    "gpt_neo_classifier": ("GPTNeoForSequenceClassification", "GPTNeoConfig", {**GPT_NEO, "num_labels": 3}, {}),
    "gpt_neo_token_classifier": (
        "GPTNeoForTokenClassification",
        "GPTNeoConfig",
        {**GPT_NEO, "intermediate_size": 20, "activation_function": "relu"},
        {},
    ),
    "gpt_bigcode_classifier": (
        "GPTBigCodeForSequenceClassification",
        "GPTBigCodeConfig",
        {**GPT_BIGCODE, "num_labels": 3},
        {},
    ),
    "gpt_bigcode_token_classifier": ("GPTBigCodeForTokenClassification", "GPTBigCodeConfig", GPT_BIGCODE, {}),
    "stablelm_classifier": (
        "StableLmForSequenceClassification",
        "StableLmConfig",
        {**GPT_NEOX, "num_attention_heads": 2, "num_key_value_heads": 2, "num_labels": 3},
        {"rows": "both"},
    ),
    "glm_token_classifier": ("GlmForTokenClassification", "GlmConfig", {**DECODER, "head_dim": 8}, {}),
    "gpt_neox_token_classifier": ("GPTNeoXForTokenClassification", "GPTNeoXConfig", GPT_NEOX, {"rows": "both"}),
    "qwen2_token_classifier": ("Qwen2ForTokenClassification", "Qwen2Config", DECODER, {}),
    "gpt2_scaled": (
        "GPT2LMHeadModel",
        "GPT2Config",
        {
            "vocab_size": VOCABULARY,
            "n_positions": 80,
            "n_embd": 12,
            "n_layer": 3,
            "n_head": 3,
            "n_inner": 20,
            "pad_token_id": 0,
            "scale_attn_by_inverse_layer_idx": True,
            "reorder_and_upcast_attn": True,
        },
        {"greedy": 64},
    ),
    "gpt2_classifier": (
        "GPT2ForSequenceClassification",
        "GPT2Config",
        {"vocab_size": VOCABULARY, "n_positions": 24, "n_embd": 16, "n_layer": 2, "n_head": 4, "pad_token_id": 0},
        {},
    ),
    "t5": ("T5ForConditionalGeneration", "T5Config", T5, {}),
    "t5_gated": (
        "T5ForConditionalGeneration",
        "T5Config",
        {**T5, "num_decoder_layers": 3, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
        {},
    ),
    "bart": (
        "BartForConditionalGeneration",
        "BartConfig",
        {
            "vocab_size": VOCABULARY,
            "max_position_embeddings": 24,
            "d_model": 16,
            "encoder_layers": 2,
            "decoder_layers": 1,
            "encoder_ffn_dim": 24,
            "decoder_ffn_dim": 24,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "scale_embedding": True,
        },
        {},
    ),
    # positions are counted without the padding
    "xlm-roberta_masked_lm": (
        "XLMRobertaForMaskedLM",
        "XLMRobertaConfig",
        {**BERT, "hidden_act": "gelu_new", "pad_token_id": 2},
        {"rows": "both"},
    ),
    # a pair to one number
    "xlm-roberta_cross_encoder": (
        "XLMRobertaForSequenceClassification",
        "XLMRobertaConfig",
        {**BERT, "type_vocab_size": 1, "num_labels": 1},
        {},
    ),
    # RoBERTa's structure under another name
    "camembert_masked_lm": ("CamembertForMaskedLM", "CamembertConfig", {**BERT, "type_vocab_size": 1}, {}),
    "camembert_classifier": (
        "CamembertForSequenceClassification",
        "CamembertConfig",
        {**BERT, "num_labels": 3, "pad_token_id": 3},
        {},
    ),
    "camembert_token_classifier": ("CamembertForTokenClassification", "CamembertConfig", BERT, {"rows": "both"}),
    "data2vec-text_masked_lm": (
        "Data2VecTextForMaskedLM",
        "Data2VecTextConfig",
        {**BERT, "type_vocab_size": 1},
        {"rows": "both"},
    ),
    "data2vec-text_question_answerer": ("Data2VecTextForQuestionAnswering", "Data2VecTextConfig", BERT, {}),
    # learned positions from 0 on
    "blenderbot": ("BlenderbotForConditionalGeneration", "BlenderbotConfig", BART, LONG),
    "blenderbot_unscaled": (
        "BlenderbotForConditionalGeneration",
        "BlenderbotConfig",
        {**BART, "scale_embedding": False, "pad_token_id": 0, "activation_function": "relu", "decoder_ffn_dim": 20},
        {"rows": "both"},
    ),
    # positions from the number after that of the padding token, counted without padding
    "m2m_100": ("M2M100ForConditionalGeneration", "M2M100Config", {**BART, "decoder_layers": 2}, LONG),
    "m2m_100_unscaled": (
        "M2M100ForConditionalGeneration",
        "M2M100Config",
        {**BART, "d_model": 12, "pad_token_id": 3, "scale_embedding": False, "activation_function": "gelu"},
        {"rows": "both"},
    ),
    "mt5": ("MT5ForConditionalGeneration", "MT5Config", {**T5, "num_decoder_layers": 1}, LONG),
    # positions of their own in each layer
    "umt5": (
        "UMT5ForConditionalGeneration",
        "UMT5Config",
        {**T5, "tie_word_embeddings": False, "initializer_factor": 0.5},
        LONG,
    ),
    "umt5_tied": (
        "UMT5ForConditionalGeneration",
        "UMT5Config",
        {**T5, "num_decoder_layers": 3, "feed_forward_proj": "relu"},
        {"rows": "both"},
    ),
    "umt5_classifier": ("UMT5ForSequenceClassification", "UMT5Config", {**T5, "num_labels": 3}, {"rows": "ended"}),
    "umt5_encoder": ("UMT5EncoderModel", "UMT5Config", {**T5, "is_encoder_decoder": False}, {"rows": "both"}),
    "mbart": ("MBartForConditionalGeneration", "MBartConfig", {**BART, "activation_function": "relu"}, LONG),
    "marian": (
        "MarianMTModel",
        "MarianConfig",
        {**BART, "activation_function": "swish", "decoder_layers": 2},
        LONG,
    ),
    # which tokens were replaced
    "electra_discriminator": (
        "ElectraForPreTraining",
        "ElectraConfig",
        {**BERT, "embedding_size": 10, "hidden_act": "silu"},
        {"rows": "both"},
    ),
    "electra_masked_lm": (
        "ElectraForMaskedLM",
        "ElectraConfig",
        {**BERT, "embedding_size": 12, "hidden_act": "relu"},
        {"rows": "both"},
    ),
    "electra_classifier": (
        "ElectraForSequenceClassification",
        "ElectraConfig",
        {**BERT, "embedding_size": 16, "num_labels": 3},
        {},
    ),
    "electra_token_classifier": ("ElectraForTokenClassification", "ElectraConfig", {**BERT, "embedding_size": 20}, {}),
    # with the table of its angles
    "roformer_masked_lm": (
        "RoFormerForMaskedLM",
        "RoFormerConfig",
        {**BERT, "embedding_size": 10, "hidden_act": "relu"},
        {"rows": "both"},
    ),
    "roformer_classifier": (
        "RoFormerForSequenceClassification",
        "RoFormerConfig",
        {**BERT, "hidden_act": "silu", "num_labels": 3},
        {},
    ),
    # mask tokens among the others
    "esm_masked_lm": (
        "EsmForMaskedLM",
        "EsmConfig",
        {**ESM, "position_embedding_type": "rotary", "rope_theta": 50.0, "token_dropout": True},
        {"rows": "both"},
    ),
    "esm_classifier": (
        "EsmForSequenceClassification",
        "EsmConfig",
        {**ESM, "emb_layer_norm_before": True, "num_labels": 3},
        {},
    ),
    # windows, and tokens that see all
    "longformer_masked_lm": (
        "LongformerForMaskedLM",
        "LongformerConfig",
        {**LONGFORMER, "hidden_act": "gelu_new"},
        {"rows": "both", "global": [0, 4]},
    ),
    "longformer_classifier": (
        "LongformerForSequenceClassification",
        "LongformerConfig",
        {**LONGFORMER, "type_vocab_size": 1, "num_labels": 3},
        {"global": [0]},
    ),
    # tables of other widths for inputs and outputs
    "rembert_masked_lm": (
        "RemBertForMaskedLM",
        "RemBertConfig",
        {**REMBERT, "hidden_act": "relu"},
        {"rows": "both"},
    ),
    "rembert_classifier": (
        "RemBertForSequenceClassification",
        "RemBertConfig",
        {**REMBERT, "num_labels": 3},
        {},
    ),
    "albert_masked_lm": ("AlbertForMaskedLM", "AlbertConfig", {**ALBERT, "num_hidden_groups": 2}, {"rows": "both"}),
    "albert_classifier": ("AlbertForSequenceClassification", "AlbertConfig", {**ALBERT, "num_labels": 3}, {}),
    "albert_token_classifier": (
        "AlbertForTokenClassification",
        "AlbertConfig",
        {**ALBERT, "embedding_size": 16, "num_hidden_groups": 3, "hidden_act": "relu"},
        {},
    ),
    # Llama's structure as an encoder
    "eurobert_masked_lm": ("EuroBertForMaskedLM", "EuroBertConfig", {**EUROBERT, "tie_word_embeddings": False}, {}),
    "eurobert_biased_masked_lm": (
        "EuroBertForMaskedLM",
        "EuroBertConfig",
        {**EUROBERT, "tie_word_embeddings": True, "mlp_bias": True, "attention_bias": True, "hidden_act": "gelu"},
        {"rows": "both"},
    ),
    "eurobert_classifier": (
        "EuroBertForSequenceClassification",
        "EuroBertConfig",
        {**EUROBERT, "num_labels": 3},
        {"rows": "both"},
    ),
    "eurobert_mean_classifier": (
        "EuroBertForSequenceClassification",
        "EuroBertConfig",
        {**EUROBERT, "num_labels": 3, "classifier_pooling": "mean"},
        {"rows": "both"},
    ),
    "eurobert_token_classifier": ("EuroBertForTokenClassification", "EuroBertConfig", {**EUROBERT, "head_dim": 6}, {}),
    "nomic_bert_masked_lm": (
        "NomicBertForMaskedLM",
        "NomicBertConfig",
        {**BERT, "head_dim": 6, "hidden_act": "gelu", "rope_parameters": {"rope_type": "default", "rope_theta": 30.0}},
        {"rows": "both"},
    ),
    "nomic_bert_classifier": ("NomicBertForSequenceClassification", "NomicBertConfig", {**BERT, "num_labels": 3}, {}),
    "nomic_bert_token_classifier": ("NomicBertForTokenClassification", "NomicBertConfig", BERT, {"rows": "both"}),
    "mpnet_masked_lm": ("MPNetForMaskedLM", "MPNetConfig", MPNET, {"rows": "both"}),
    "mpnet_classifier": ("MPNetForSequenceClassification", "MPNetConfig", {**MPNET, "num_labels": 3}, {}),
    "mpnet_token_classifier": ("MPNetForTokenClassification", "MPNetConfig", {**MPNET, "hidden_act": "relu"}, {}),
    # version 3: relative positions alone, in buckets
    "deberta-v2_masked_lm": (
        "DebertaV2ForMaskedLM",
        "DebertaV2Config",
        {**DEBERTA, "position_biased_input": False, "max_relative_positions": 8, "hidden_act": "relu"},
        {"rows": "both"},
    ),
    "deberta-v2_classifier": (
        "DebertaV2ForSequenceClassification",
        "DebertaV2Config",
        {**DEBERTA, "norm_rel_ebd": "none", "pos_att_type": "c2p", "num_labels": 3, "type_vocab_size": 2},
        {},
    ),
    "deberta-v2_token_classifier": (
        "DebertaV2ForTokenClassification",
        "DebertaV2Config",
        {**DEBERTA, "position_buckets": -1, "max_relative_positions": 5, "pos_att_type": ["p2c"]},
        {},
    ),
    "bart_uneven": (
        "BartForConditionalGeneration",
        "BartConfig",
        {**BART, "decoder_attention_heads": 2, "decoder_ffn_dim": 20, "scale_embedding": False},
        LONG,
    ),
    "bert_question_answerer": ("BertForQuestionAnswering", "BertConfig", {**BERT, "hidden_act": "silu"}, {}),
    "roberta_question_answerer": (
        "RobertaForQuestionAnswering",
        "RobertaConfig",
        {**BERT, "type_vocab_size": 1},
        {"rows": "both"},
    ),
    "xlm-roberta_question_answerer": ("XLMRobertaForQuestionAnswering", "XLMRobertaConfig", BERT, {}),
    "distilbert_question_answerer": (
        "DistilBertForQuestionAnswering",
        "DistilBertConfig",
        {**DISTILBERT, "activation": "relu"},
        {"rows": "both"},
    ),
    "modernbert_question_answerer": (
        "ModernBertForQuestionAnswering",
        "ModernBertConfig",
        {**MODERNBERT, "classifier_activation": "silu", "classifier_bias": True, "norm_bias": True},
        {"rows": "both"},
    ),
    "electra_question_answerer": ("ElectraForQuestionAnswering", "ElectraConfig", {**BERT, "embedding_size": 12}, {}),
    "albert_question_answerer": ("AlbertForQuestionAnswering", "AlbertConfig", ALBERT, {"rows": "both"}),
    "mpnet_question_answerer": ("MPNetForQuestionAnswering", "MPNetConfig", MPNET, {}),
    "deberta-v2_question_answerer": (
        "DebertaV2ForQuestionAnswering",
        "DebertaV2Config",
        {**DEBERTA, "position_biased_input": False, "type_vocab_size": 0},
        {"rows": "both"},
    ),
    # "transformer." stands before the names of the base model, in others "model."
    "llama_question_answerer": (
        "LlamaForQuestionAnswering",
        "LlamaConfig",
        {**DECODER, "head_dim": 6},
        {"rows": "both"},
    ),
    "mistral_question_answerer": ("MistralForQuestionAnswering", "MistralConfig", {**DECODER, "sliding_window": 4}, {}),
    "gpt2_question_answerer": (
        "GPT2ForQuestionAnswering",
        "GPT2Config",
        {"vocab_size": VOCABULARY, "n_positions": 24, "n_embd": 16, "n_layer": 2, "n_head": 4},
        {},
    ),
    "gptj_question_answerer": ("GPTJForQuestionAnswering", "GPTJConfig", {**GPTJ, "rotary_dim": 2}, {"rows": "both"}),
    "gpt_neo_question_answerer": ("GPTNeoForQuestionAnswering", "GPTNeoConfig", {**GPT_NEO, "window_size": 2}, {}),
    "exaone4_question_answerer": ("Exaone4ForQuestionAnswering", "Exaone4Config", DECODER, {"rows": "both"}),
    "gpt_neox_question_answerer": ("GPTNeoXForQuestionAnswering", "GPTNeoXConfig", GPT_NEOX, {"rows": "both"}),
    "opt_question_answerer": ("OPTForQuestionAnswering", "OPTConfig", {**OPT, "word_embed_proj_dim": 10}, {}),
    "roberta_token_classifier": ("RobertaForTokenClassification", "RobertaConfig", {**BERT, "type_vocab_size": 1}, {}),
    "distilbert_token_classifier": ("DistilBertForTokenClassification", "DistilBertConfig", DISTILBERT, {}),
    "modernbert_token_classifier": (
        "ModernBertForTokenClassification",
        "ModernBertConfig",
        MODERNBERT,
        {"rows": "both"},
    ),
    # the decoder is given the same tokens
    "bart_classifier": (
        "BartForSequenceClassification",
        "BartConfig",
        {**BART, "num_labels": 3, "decoder_start_token_id": 5},
        {"rows": "ended"},
    ),
    "mbart_classifier": ("MBartForSequenceClassification", "MBartConfig", {**BART, "num_labels": 3}, {"rows": "ended"}),
    "bart_question_answerer": ("BartForQuestionAnswering", "BartConfig", BART, {"rows": "ended"}),
    "t5_classifier": (
        "T5ForSequenceClassification",
        "T5Config",
        {**T5, "num_labels": 3, "num_decoder_layers": 1, "decoder_start_token_id": 0},
        {"rows": "ended"},
    ),
    "mt5_classifier": ("MT5ForSequenceClassification", "MT5Config", {**T5, "num_labels": 3}, {"rows": "ended"}),
    "t5_question_answerer": (
        "T5ForQuestionAnswering",
        "T5Config",
        {**T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "decoder_start_token_id": 0},
        {"rows": "ended"},
    ),
    # encoders alone
    "t5_token_classifier": (
        "T5ForTokenClassification",
        "T5Config",
        {**T5, "feed_forward_proj": "gated-silu", "decoder_start_token_id": 0},
        {"rows": "both"},
    ),
    "t5_encoder": ("T5EncoderModel", "T5Config", T5, {}),
    # its positions are in the file
    "pegasus": ("PegasusForConditionalGeneration", "PegasusConfig", {**BART, "scale_embedding": False}, LONG),
}


def below(lengths: tuple[int, ...]) -> torch.Tensor:
    return torch.arange(max(lengths))[None] < torch.tensor(lengths)[:, None]


def inputs_of(config: transformers.PreTrainedConfig, rows: str = "right") -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)

    def token_ids(mask: torch.Tensor) -> torch.Tensor:
        # padding is that of the configuration: RoBERTa tells positions by it
        ids = torch.randint(3, VOCABULARY, mask.shape, generator=generator)
        return torch.where(mask, ids, config.pad_token_id or 0)

    mask = below(LENGTHS)
    if rows == "both":
        mask = torch.cat([mask, below((max(LENGTHS), 5))[1:].flip(1)])
    inputs = {"input_ids": token_ids(mask), "attention_mask": mask.long()}
    if getattr(config, "type_vocab_size", 1) > 1:
        inputs["token_type_ids"] = torch.arange(mask.shape[1])[None].expand_as(mask).remainder(2)
    if rows == "ended":
        # with a token behind the last end, as in mBART
        for row, length in enumerate(LENGTHS):
            inputs["input_ids"][row, length - 2] = config.eos_token_id
    elif config.is_encoder_decoder:
        mask = below(DECODER_LENGTHS if rows == "right" else (*DECODER_LENGTHS, 6))
        inputs |= {"decoder_input_ids": token_ids(mask), "decoder_attention_mask": mask.long()}
    return inputs


def spans_of(outputs: transformers.utils.ModelOutput) -> np.ndarray:
    """Logits of the first and of the last token of an answer, `(batch, length, 2)`."""
    return torch.stack([outputs.start_logits, outputs.end_logits], dim=-1).numpy()


def shifted(model: transformers.PreTrainedModel, ids: torch.Tensor) -> torch.Tensor:
    """The tokens that a classifier gives its decoder, `(batch, length)`."""
    if hasattr(model, "_shift_right"):
        return model._shift_right(ids)
    shift = sys.modules[type(model).__module__].shift_tokens_right
    names = shift.__code__.co_varnames[1 : shift.__code__.co_argcount]
    return shift(ids, *(getattr(model.config, name) for name in names))


def main() -> None:
    for case, (model_class, config_class, choices, options) in CASES.items():
        if (FOLDER / case).exists():
            continue
        torch.manual_seed(0)
        config = getattr(transformers, config_class)(**choices)
        model = getattr(transformers, model_class)(config).eval()
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                # all differ from what they start with, norms and biases too
                if name not in CONSTANTS:
                    parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.2)
            for name, buffer in model.named_buffers():
                if name == "final_logits_bias" or name.endswith("e_score_correction_bias"):
                    buffer.add_(torch.randn(buffer.shape, generator=generator))
            if "lm_head.weight" in model.state_dict() and choices.get("tie_word_embeddings") is False:
                head = model.lm_head.weight
                model.lm_head.weight = torch.nn.Parameter(torch.randn(head.shape, generator=generator))
        if "dtype" in options:
            model = model.to(options["dtype"])
        folder = FOLDER / case
        model.save_pretrained(folder, **{key: options[key] for key in options.keys() & {"max_shard_size"}})
        (folder / "generation_config.json").unlink(missing_ok=True)
        # computed in float32, with frequencies of rotary positions that were never rounded
        model = getattr(transformers, model_class).from_pretrained(
            folder, dtype=torch.float32, attn_implementation=options.get("attention", "eager")
        )
        model = model.eval()
        inputs = inputs_of(config, options.get("rows", "right"))
        if "global" in options:
            inputs["global_attention_mask"] = torch.zeros_like(inputs["attention_mask"])
            inputs["global_attention_mask"][:, options["global"]] = 1
            inputs["global_attention_mask"] *= inputs["attention_mask"]
        with torch.no_grad():
            outputs = model(**inputs, output_hidden_states=True)
        golden = {name: value.numpy() for name, value in inputs.items()}
        if options.get("rows") == "ended":
            golden["decoder_input_ids"] = shifted(model, inputs["input_ids"]).numpy()
            golden["decoder_attention_mask"] = golden["attention_mask"]
        if "start_logits" in outputs:
            golden["logits"] = spans_of(outputs)
        for name in ("logits", "last_hidden_state", "pooler_output", "encoder_last_hidden_state"):
            if name in outputs:
                golden[name] = outputs[name].numpy()
        states = outputs.get("decoder_hidden_states", outputs.get("hidden_states"))
        if states[-1].shape[-1] == model.config.get_text_config().hidden_size:
            golden["hidden"] = states[-1].numpy()
        if "greedy" in options:
            model.generation_config.eos_token_id = None
            tokens = model.generate(inputs["input_ids"][:1], max_new_tokens=options["greedy"], do_sample=False)
            golden["greedy"] = tokens.numpy()
        np.savez(folder / "golden.npz", **golden)
        print(
            case,
            sum(path.stat().st_size for path in folder.iterdir()),
            json.loads((folder / "config.json").read_text())["model_type"],
        )


def check(folder: Path) -> None:
    for case in sorted(path.name for path in folder.iterdir()):
        model_class = getattr(transformers, CASES[case][0])
        model, report = model_class.from_pretrained(folder / case, output_loading_info=True)
        golden = np.load(FOLDER / case / "golden.npz")
        inputs = {name: torch.tensor(golden[name]) for name in golden if name.endswith(("_ids", "_mask"))}
        with torch.no_grad():
            outputs = model.eval()(**inputs)
        name = "logits" if "logits" in golden else "last_hidden_state"
        actual, expected = spans_of(outputs) if "start_logits" in outputs else outputs[name].numpy(), golden[name]
        if actual.ndim == 3:
            mask = golden["decoder_attention_mask" if "decoder_attention_mask" in golden else "attention_mask"] > 0
            actual, expected = actual[mask], expected[mask]
        problems = {key: value for key, value in report.items() if value}
        print(f"{case:25s} {np.abs(actual - expected).max():.1e} {problems or ''}")


if __name__ == "__main__":
    check(Path(sys.argv[1])) if len(sys.argv) > 1 else main()
