"""Configurations with all the keys that files of published models have mean the presets of those models."""

import dataclasses
import re

import pytest

from zoo import list_presets, preset_config
from zoo.huggingface.config_reader import ConfigReader
from zoo.huggingface.family import get_family
from zoo.huggingface.writing import effective

COMMON = {"architectures": ["Model"], "transformers_version": "4.40.0", "torch_dtype": "float32", "use_cache": True}
BERT = {
    "model_type": "bert",
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "initializer_range": 0.02,
    "layer_norm_eps": 1e-12,
    "pad_token_id": 0,
    "gradient_checkpointing": False,
    "position_embedding_type": "absolute",
}
GPT2 = {
    "model_type": "gpt2",
    "activation_function": "gelu_new",
    "attn_pdrop": 0.1,
    "bos_token_id": 50256,
    "embd_pdrop": 0.1,
    "eos_token_id": 50256,
    "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-5,
    "n_ctx": 1024,
    "n_embd": 768,
    "n_head": 12,
    "n_layer": 12,
    "n_positions": 1024,
    "resid_pdrop": 0.1,
    "summary_activation": None,
    "summary_first_dropout": 0.1,
    "summary_proj_to_labels": True,
    "summary_type": "cls_index",
    "summary_use_proj": True,
    "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
    "vocab_size": 50257,
}
LLAMA = {
    "model_type": "llama",
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 128000,
    "eos_token_id": 128001,
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "mlp_bias": False,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-5,
    "rope_scaling": None,
    "tie_word_embeddings": False,
}


def sizes(vocabulary, width, inner, layers, heads, key_value_heads, length):
    return {
        "vocab_size": vocabulary,
        "hidden_size": width,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": key_value_heads,
        "max_position_embeddings": length,
    }


QWEN = {
    "hidden_act": "silu",
    "attention_dropout": 0.0,
    "initializer_range": 0.02,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "tie_word_embeddings": True,
    "use_sliding_window": False,
}
T5 = {
    "model_type": "t5",
    "d_kv": 64,
    "decoder_start_token_id": 0,
    "dropout_rate": 0.1,
    "eos_token_id": 1,
    "initializer_factor": 1.0,
    "is_encoder_decoder": True,
    "layer_norm_epsilon": 1e-6,
    "n_positions": 512,
    "output_past": True,
    "pad_token_id": 0,
    "relative_attention_num_buckets": 32,
    "task_specific_params": {"summarization": {"num_beams": 4}},
    "vocab_size": 32128,
}


def sized_bert(width, layers, **keys):
    heads = {"num_attention_heads": width // 64, "intermediate_size": 4 * width}
    return {**BERT, "hidden_size": width, "num_hidden_layers": layers, **heads, **keys}


PUBLISHED = {
    "bert_base_uncased": BERT,
    "bert_mini_uncased": sized_bert(256, 4),
    "bert_small_uncased": sized_bert(512, 4),
    "bert_medium_uncased": sized_bert(512, 8),
    "bert_large_uncased": sized_bert(1024, 24),
    "bert_base_cased": sized_bert(768, 12, vocab_size=28996),
    "bert_large_cased": sized_bert(
        1024, 24, vocab_size=28996, directionality="bidi", pooler_type="first_token_transform"
    ),
    "gpt2_medium": {
        **GPT2,
        "n_embd": 1024,
        "n_head": 16,
        "n_layer": 24,
        "n_special": 0,
        "predict_special_tokens": True,
    },
    "gpt2_large": {**GPT2, "n_embd": 1280, "n_head": 20, "n_layer": 36},
    "bert_tiny_uncased": {**BERT, "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}
    | {"intermediate_size": 512},
    "minilm_l6": {**BERT, "hidden_size": 384, "num_hidden_layers": 6, "intermediate_size": 1536},
    "roberta_base": {
        **BERT,
        "model_type": "roberta",
        "vocab_size": 50265,
        "max_position_embeddings": 514,
        "type_vocab_size": 1,
        "layer_norm_eps": 1e-5,
        "pad_token_id": 1,
        "bos_token_id": 0,
        "eos_token_id": 2,
    },
    "distilbert_base_uncased": {
        "model_type": "distilbert",
        "activation": "gelu",
        "attention_dropout": 0.1,
        "dim": 768,
        "dropout": 0.1,
        "hidden_dim": 3072,
        "initializer_range": 0.02,
        "max_position_embeddings": 512,
        "n_heads": 12,
        "n_layers": 6,
        "pad_token_id": 0,
        "qa_dropout": 0.1,
        "seq_classif_dropout": 0.2,
        "sinusoidal_pos_embds": False,
        "tie_weights_": True,
        "vocab_size": 30522,
    },
    "modernbert_base": {
        "model_type": "modernbert",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": 50281,
        "classifier_activation": "gelu",
        "classifier_bias": False,
        "classifier_dropout": 0.0,
        "classifier_pooling": "mean",
        "cls_token_id": 50281,
        "decoder_bias": True,
        "deterministic_flash_attn": False,
        "embedding_dropout": 0.0,
        "eos_token_id": 50282,
        "global_attn_every_n_layers": 3,
        "global_rope_theta": 160000.0,
        "gradient_checkpointing": False,
        "hidden_activation": "gelu",
        "hidden_size": 768,
        "initializer_cutoff_factor": 2.0,
        "initializer_range": 0.02,
        "intermediate_size": 1152,
        "layer_norm_eps": 1e-5,
        "local_attention": 128,
        "local_rope_theta": 10000.0,
        "max_position_embeddings": 8192,
        "mlp_bias": False,
        "mlp_dropout": 0.0,
        "norm_bias": False,
        "norm_eps": 1e-5,
        "num_attention_heads": 12,
        "num_hidden_layers": 22,
        "pad_token_id": 50283,
        "position_embedding_type": "absolute",
        "reference_compile": None,
        "repad_logits_with_grad": False,
        "sep_token_id": 50282,
        "sparse_pred_ignore_index": -100,
        "sparse_prediction": False,
        "vocab_size": 50368,
    },
    "gpt2_small": GPT2,
    "gpt2_xl": {**GPT2, "n_embd": 1600, "n_head": 25, "n_layer": 48, "output_past": True},
    "llama_3_8b": {**LLAMA, **sizes(128256, 4096, 14336, 32, 32, 8, 8192), "rope_theta": 500000.0},
    "llama_3.2_1b": {
        **LLAMA,
        **sizes(128256, 2048, 8192, 16, 32, 8, 131072),
        "head_dim": 64,
        "rope_theta": 500000.0,
        "rope_scaling": {
            "factor": 32.0,
            "high_freq_factor": 4.0,
            "low_freq_factor": 1.0,
            "original_max_position_embeddings": 8192,
            "rope_type": "llama3",
        },
        "tie_word_embeddings": True,
    },
    "tinyllama_1.1b": {**LLAMA, **sizes(32000, 2048, 5632, 22, 32, 4, 2048)},
    "smollm2_135m": {
        **LLAMA,
        **sizes(49152, 576, 1536, 30, 9, 3, 8192),
        "is_llama_config": True,
        "rope_interleaved": False,
        "rope_theta": 100000,
        "tie_word_embeddings": True,
    },
    "qwen2.5_0.5b": {
        **QWEN,
        **sizes(151936, 896, 4864, 24, 14, 2, 32768),
        "model_type": "qwen2",
        "max_window_layers": 24,
        "sliding_window": 32768,
        "use_mrope": False,
    },
    "qwen3_0.6b": {
        **QWEN,
        **sizes(151936, 1024, 3072, 28, 16, 8, 40960),
        "model_type": "qwen3",
        "attention_bias": False,
        "head_dim": 128,
        "max_window_layers": 28,
        "rope_scaling": None,
        "sliding_window": None,
    },
    "gemma_2_2b": {
        **sizes(256000, 2304, 9216, 26, 8, 4, 8192),
        "model_type": "gemma2",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "attn_logit_softcapping": 50.0,
        "cache_implementation": "hybrid",
        "final_logit_softcapping": 30.0,
        "head_dim": 256,
        "hidden_act": "gelu_pytorch_tanh",
        "hidden_activation": "gelu_pytorch_tanh",
        "initializer_range": 0.02,
        "query_pre_attn_scalar": 256,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "sliding_window": 4096,
    },
    "t5_small": {**T5, "d_model": 512, "d_ff": 2048, "num_heads": 8, "num_layers": 6},
    "t5_base": {**T5, "d_model": 768, "d_ff": 3072, "num_heads": 12, "num_layers": 12},
    "flan_t5_small": {
        **T5,
        "d_model": 512,
        "d_ff": 1024,
        "num_heads": 6,
        "num_layers": 8,
        "num_decoder_layers": 8,
        "feed_forward_proj": "gated-gelu",
        "is_gated_act": True,
        "dense_act_fn": "gelu_new",
        "relative_attention_max_distance": 128,
        "tie_word_embeddings": False,
    },
    "bart_base": {
        "model_type": "bart",
        "activation_dropout": 0.1,
        "activation_function": "gelu",
        "add_bias_logits": False,
        "add_final_layer_norm": False,
        "attention_dropout": 0.1,
        "bos_token_id": 0,
        "classif_dropout": 0.1,
        "classifier_dropout": 0.0,
        "d_model": 768,
        "decoder_attention_heads": 12,
        "decoder_ffn_dim": 3072,
        "decoder_layerdrop": 0.0,
        "decoder_layers": 6,
        "decoder_start_token_id": 2,
        "dropout": 0.1,
        "early_stopping": True,
        "encoder_attention_heads": 12,
        "encoder_ffn_dim": 3072,
        "encoder_layerdrop": 0.0,
        "encoder_layers": 6,
        "eos_token_id": 2,
        "forced_bos_token_id": 0,
        "forced_eos_token_id": 2,
        "id2label": {"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"},
        "init_std": 0.02,
        "is_encoder_decoder": True,
        "max_position_embeddings": 1024,
        "no_repeat_ngram_size": 3,
        "normalize_before": False,
        "normalize_embedding": True,
        "num_beams": 4,
        "num_hidden_layers": 6,
        "pad_token_id": 1,
        "scale_embedding": False,
        "vocab_size": 50265,
    },
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_configuration_is_the_preset(name):
    values, preset = {**COMMON, **PUBLISHED[name]}, preset_config(name)
    family = get_family(values["model_type"])
    tensors = {"lm_head.weight"} if not preset.embedding.tie_output else set()
    reader = ConfigReader(values, tensors | ({"pooler.dense.weight"} if preset.pooler else set()))
    config = family.read(reader)
    reader.finish()
    assert effective(config) == effective(preset)
    dropouts = [(config.dropout, config.attention.dropout, config.feed_forward.dropout)]
    dropouts.append((preset.dropout, preset.attention.dropout, preset.feed_forward.dropout))
    assert dropouts[0] == dropouts[1]
    # and back
    written = family.read(ConfigReader(family.write(preset), reader.tensors))
    assert effective(written) == effective(preset)
    assert dataclasses.replace(written, initializer_range=None, max_length=1) == dataclasses.replace(
        config, initializer_range=None, max_length=1
    )


def test_every_preset_with_published_weights_is_compared():
    with_weights = {name for name, preset in list_presets().items() if preset.weights}
    assert with_weights == set(PUBLISHED)
    assert all(re.fullmatch(r"hf://[\w.-]+/[\w.-]+", list_presets()[name].weights) for name in with_weights)
