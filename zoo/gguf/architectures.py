"""The architectures of GGUF files that are read: what their keys are in a `config.json` of the Transformers library."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from zoo.config import TransformerConfig
from zoo.gguf.fields import Fields
from zoo.huggingface.rotary import rotated_share

# a configuration, without what all architectures have
Keys = dict[str, Any]
Shape = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Merged:
    """A tensor of the Transformers library that files have in another form, or in parts.

    Args:
        stored: Names of the tensors in files, with `{}` for the number of the layer.
        join: From these to the tensor.
        shape: From their shapes to that of the tensor; None if they do not fit each other.
        split: From the tensor and the configuration to these; None for an architecture that is not written.
        whole: Name of the tensor in older files, which have it as the library does; None if none have.
    """

    stored: tuple[str, ...]
    join: Callable[..., np.ndarray]
    shape: Callable[..., Shape | None]
    split: Callable[[np.ndarray, TransformerConfig], tuple[np.ndarray, ...]] | None = None
    whole: str | None = None


@dataclasses.dataclass(frozen=True)
class Architecture:
    """One `general.architecture`.

    Args:
        model_type: The family of the Transformers library.
        class_name: Its class with a language model's head.
        keys: Function from the fields of a file to keys of `config.json` beside those that all have.
        names: Fields by keys of `config.json`, beside those that all have: what is written. A dot stands between the
            key of an object and one in it.
        permuted: Whether rows of queries and keys stand so that neighbouring features are turned, and not halves.
        shifted_norms: Whether factors of norms are stored with one added.
        transposed: Whether the family stores kernels the other way round than files do.
        by_head: Whether the family stores the queries that share a key beside this key and its value, and files those
            of all heads.
        by_layer: Whether files have the number of key-value heads of each layer, 0 where a mixer takes the place of
            attention.
        constants: Fields that all files have, with the one value that the family knows.
        derived: Function from a `config.json` to fields that follow from several of its keys: what is written.
        merged: Tensors that files have in another form, by their names in the library.
        is_complete: Whether `keys` gives all keys but the size of the vocabulary.
        task: The task that files hold.
    """

    model_type: str
    class_name: str
    keys: Callable[[Fields], Keys] = lambda fields: {}
    names: Mapping[str, str] = dataclasses.field(default_factory=dict)
    permuted: bool = False
    shifted_norms: bool = False
    transposed: bool = False
    by_head: bool = False
    by_layer: bool = False
    constants: Mapping[str, float] = dataclasses.field(default_factory=dict)
    derived: Callable[[Keys], Keys] = lambda values: {}
    merged: Mapping[str, Merged] = dataclasses.field(default_factory=dict)
    is_complete: bool = False
    task: str = "CausalLM"


def _has_biases(fields: Fields) -> Keys:
    return {"attention_bias": fields.has_tensor("blk.0.attn_q.bias")}


def _llama(fields: Fields) -> Keys:
    return _has_biases(fields) | {"mlp_bias": fields.has_tensor("blk.0.ffn_up.bias")}


_SCALES = {
    "attention_multiplier": "attention.scale",
    "embedding_multiplier": "embedding_scale",
    "residual_multiplier": "residual_scale",
    "logits_scaling": "logit_scale",
}
_WINDOW = {"sliding_window": "attention.sliding_window"}
_CAPS = {
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
}
_USED_EXPERTS = {"num_experts_per_tok": "expert_used_count"}
_OF_GPT2 = {
    "n_embd": "embedding_length",
    "n_head": "attention.head_count",
    "n_layer": "block_count",
    "n_inner": "feed_forward_length",
    "n_positions": "context_length",
    "layer_norm_epsilon": "attention.layer_norm_epsilon",
}

_OF_GPT_BIGCODE = _OF_GPT2 | {"num_key_value_heads": "attention.head_count_kv"}
_OF_GPT_NEOX = {
    "layer_norm_eps": "attention.layer_norm_epsilon",
    "use_parallel_residual": "use_parallel_residual",
    "rotary_emb_base": "rope.freq_base",
}


_OF_FALCON = {
    "num_kv_heads": "attention.head_count_kv",
    "ffn_hidden_size": "feed_forward_length",
    "layer_norm_epsilon": "attention.layer_norm_epsilon",
}


_OF_BLOOM = {
    "n_head": "attention.head_count",
    "n_layer": "block_count",
    "seq_length": "context_length",
    "layer_norm_epsilon": "attention.layer_norm_epsilon",
}
_OF_MPT = {
    "d_model": "embedding_length",
    "n_heads": "attention.head_count",
    "n_layers": "block_count",
    "max_seq_len": "context_length",
    "layer_norm_epsilon": "attention.layer_norm_epsilon",
    "attn_config.clip_qkv": "attention.clamp_kqv",
}


def _granite(fields: Fields) -> Keys:
    given = {ours: fields.number(theirs, 1.0) for ours, theirs in _SCALES.items() if fields.has(theirs)}
    return _llama(fields) | given


def _experts_of_qwen(fields: Fields) -> Keys:
    return {
        "num_experts": fields.count("expert_count"),
        "num_experts_per_tok": fields.count("expert_used_count"),
        "moe_intermediate_size": fields.count("expert_feed_forward_length"),
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    }


def _experts_of_mixtral(fields: Fields) -> Keys:
    return {
        "num_local_experts": fields.count("expert_count"),
        "num_experts_per_tok": fields.count("expert_used_count"),
        "sliding_window": None,
    }


def _gemma(fields: Fields) -> Keys:
    return {"hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh"} | _has_biases(fields)


def _scores_of_gemma(fields: Fields, layers_of_27b: int) -> Keys:
    # no key says it: llama.cpp, too, knows the largest model by its number of layers
    is_27b = fields.count("block_count") == layers_of_27b
    width = fields.count("embedding_length") // fields.count("attention.head_count")
    return {"query_pre_attn_scalar": width if is_27b else fields.count("attention.key_length")}


def _gemma2(fields: Fields) -> Keys:
    return {
        "hidden_activation": "gelu_pytorch_tanh",
        "sliding_window": fields.count("attention.sliding_window"),
        "attn_logit_softcapping": fields.number("attn_logit_softcapping", 50.0),
        "final_logit_softcapping": fields.number("final_logit_softcapping", 30.0),
        **_scores_of_gemma(fields, 46),
    }


def _gemma3(fields: Fields) -> Keys:
    return {
        "hidden_activation": "gelu_pytorch_tanh",
        "sliding_window": fields.count("attention.sliding_window"),
        "sliding_window_pattern": 6,
        "rope_theta": fields.number("rope.freq_base", 1e6),
        "rope_local_base_freq": fields.number("rope.freq_base_swa", 10000.0),
        "final_logit_softcapping": fields.number("final_logit_softcapping", 0.0) or None,
        **_scores_of_gemma(fields, 62),
    }


def _starcoder2(fields: Fields) -> Keys:
    return {
        "hidden_act": "gelu_pytorch_tanh",
        "norm_epsilon": fields.number("attention.layer_norm_epsilon", 1e-5),
        "use_bias": fields.has_tensor("blk.0.attn_q.bias"),
        "sliding_window": None,
    }


def _rotated_part(fields: Fields) -> Keys:
    width = fields.count("embedding_length") // fields.count("attention.head_count")
    width = fields.count("attention.key_length", width)
    return {"partial_rotary_factor": rotated_share(fields.count("rope.dimension_count", width), width)}


def _phi2(fields: Fields) -> Keys:
    return {
        "hidden_act": "gelu_new",
        "layer_norm_eps": fields.number("attention.layer_norm_epsilon", 1e-5),
        **_rotated_part(fields),
    }


def _stablelm(fields: Fields) -> Keys:
    return {
        "layer_norm_eps": fields.number("attention.layer_norm_epsilon", 1e-5),
        "use_parallel_residual": not fields.has_tensor("blk.0.ffn_norm.weight"),
        "use_qkv_bias": fields.has_tensor("blk.0.attn_q.bias"),
        **_rotated_part(fields),
    }


def _glm(fields: Fields) -> Keys:
    return _has_biases(fields) | _rotated_part(fields)


def _exaone4(fields: Fields) -> Keys:
    layers = fields.count("block_count")
    if layers == 64:  # no key says which layers have a window: llama.cpp, too, knows this model by its number of layers
        return {"sliding_window": fields.count("attention.sliding_window", 4096), "sliding_window_pattern": 4}
    return {"sliding_window": None, "layer_types": ["full_attention"] * layers}


def _phi3(fields: Fields) -> Keys:
    window = fields.number("attention.sliding_window", 0)
    keys: Keys = {
        "sliding_window": int(window) or None,
        "original_max_position_embeddings": fields.count(
            "rope.scaling.original_context_length", fields.count("context_length")
        ),
    }
    dim = fields.count("embedding_length") // fields.count("attention.head_count")
    rotated = fields.count("rope.dimension_count", dim)
    if rotated != dim:
        keys["partial_rotary_factor"] = rotated / dim
    factors = {f"{name}_factor": fields.factors(f"rope_factors_{name}.weight") for name in ("long", "short")}
    if all(each is not None for each in factors.values()):
        keys["rope_scaling"] = {"type": "longrope", **factors}
    return keys


def _gpt2(fields: Fields) -> Keys:
    return {
        "n_embd": fields.count("embedding_length"),
        "n_head": fields.count("attention.head_count"),
        "n_layer": fields.count("block_count"),
        "n_inner": fields.count("feed_forward_length"),
        "n_positions": fields.count("context_length"),
        "layer_norm_epsilon": fields.number("attention.layer_norm_epsilon", 1e-5),
        "activation_function": "gelu_new",
        "tie_word_embeddings": True,
    }


def _starcoder(fields: Fields) -> Keys:
    # llama.cpp's converter writes no other
    return _gpt2(fields) | {"multi_query": True}


def _bert(fields: Fields) -> Keys:
    return {
        "hidden_size": fields.count("embedding_length"),
        "num_hidden_layers": fields.count("block_count"),
        "num_attention_heads": fields.count("attention.head_count"),
        "intermediate_size": fields.count("feed_forward_length"),
        "max_position_embeddings": fields.count("context_length"),
        "layer_norm_eps": fields.number("attention.layer_norm_epsilon", 1e-12),
        "type_vocab_size": fields.rows("token_types.weight"),
        "hidden_act": "gelu",
        "tie_word_embeddings": True,
    }


def _nomic_bert(fields: Fields) -> Keys:
    width = fields.count("embedding_length") // fields.count("attention.head_count")
    return {
        **_bert(fields),
        "hidden_act": "silu",
        "head_dim": fields.count("attention.key_length", width),
        "rotary_emb_base": fields.number("rope.freq_base", 1000.0),
    }


def _gpt_neox(fields: Fields) -> Keys:
    width, heads = fields.count("embedding_length"), fields.count("attention.head_count")
    return {
        "hidden_size": width,
        "num_hidden_layers": fields.count("block_count"),
        "num_attention_heads": heads,
        "intermediate_size": fields.count("feed_forward_length"),
        "max_position_embeddings": fields.count("context_length"),
        "layer_norm_eps": fields.number("attention.layer_norm_epsilon", 1e-5),
        "use_parallel_residual": fields.flag("use_parallel_residual", True),
        "rotary_pct": fields.count("rope.dimension_count", width // heads) * heads / width,
        "rotary_emb_base": fields.number("rope.freq_base", 10000.0),
        "attention_bias": fields.has_tensor("blk.0.attn_qkv.bias"),
        "tie_word_embeddings": not fields.has_tensor("output.weight"),
    }


def _falcon(fields: Fields) -> Keys:
    heads, groups = fields.count("attention.head_count"), fields.count("attention.head_count_kv", 1)
    norms = 2 if fields.has_tensor("blk.0.attn_norm_2.weight") else 1
    return {
        "hidden_size": fields.count("embedding_length"),
        "num_hidden_layers": fields.count("block_count"),
        "num_attention_heads": heads,
        "num_kv_heads": groups,
        "ffn_hidden_size": fields.count("feed_forward_length"),
        "max_position_embeddings": fields.count("context_length"),
        "layer_norm_epsilon": fields.number("attention.layer_norm_epsilon", 1e-5),
        "new_decoder_architecture": norms == 2 or groups not in (1, heads),
        "multi_query": groups == 1,
        "num_ln_in_parallel_attn": norms,
        "rope_theta": fields.number("rope.freq_base", 10000.0),
    }


def _bloom(fields: Fields) -> Keys:
    return {
        "hidden_size": fields.count("embedding_length"),
        "n_layer": fields.count("block_count"),
        "n_head": fields.count("attention.head_count"),
        "n_inner": fields.count("feed_forward_length"),
        "seq_length": fields.count("context_length"),
        "layer_norm_epsilon": fields.number("attention.layer_norm_epsilon", 1e-5),
    }


def _mpt(fields: Fields) -> Keys:
    slope = fields.number("attention.max_alibi_bias", 0.0)
    return {
        "d_model": fields.count("embedding_length"),
        "n_layers": fields.count("block_count"),
        "n_heads": fields.count("attention.head_count"),
        "max_seq_len": fields.count("context_length"),
        "layer_norm_epsilon": fields.number("attention.layer_norm_epsilon", 1e-5),
        "attn_config": {"alibi": slope > 0, "alibi_bias_max": slope, "clip_qkv": _limit(fields)},
    }


def _lfm2(fields: Fields) -> Keys:
    layers = fields.count("block_count")
    heads = fields.counts("attention.head_count_kv", layers, fields.count("attention.head_count"))
    return {
        "norm_eps": fields.number("attention.layer_norm_rms_epsilon", 1e-5),
        "block_auto_adjust_ff_dim": False,
        "conv_L_cache": fields.count("shortconv.l_cache"),
        "conv_bias": False,  # llama.cpp reads none
        "layer_types": ["full_attention" if number else "conv" for number in heads],
    }


def _nemotron(fields: Fields) -> Keys:
    width = fields.count("embedding_length") // fields.count("attention.head_count")
    head_dim = fields.count("attention.key_length", width)
    return {
        "hidden_act": "relu2",
        "norm_eps": fields.number("attention.layer_norm_epsilon", 1e-5),
        "partial_rotary_factor": fields.count("rope.dimension_count", head_dim) / head_dim,
        **_llama(fields),
    }


def _granitemoe(fields: Fields) -> Keys:
    experts = {
        "num_local_experts": fields.count("expert_count"),
        "num_experts_per_tok": fields.count("expert_used_count"),
    }
    return _granite(fields) | experts | {"mlp_bias": False}


_EXPERTS_OF_GRANITE = {
    "layers.{}.block_sparse_moe.input_linear.weight": Merged(
        ("blk.{}.ffn_gate_exps.weight", "blk.{}.ffn_up_exps.weight"),
        lambda gate, up: np.concatenate([gate, up], axis=1),
        lambda gate, up: (gate[0], 2 * gate[1], gate[2]) if gate == up and len(gate) == 3 else None,
    ),
}


def _deepseek2(fields: Fields) -> Keys:
    turned = fields.count("rope.dimension_count")
    # `attention.key_length` and `attention.value_length` are those of the latents where these are there
    ending = "_mla" if fields.has("attention.key_length_mla") else ""
    width = fields.count(f"attention.key_length{ending}")
    if width <= turned:
        raise ValueError(
            f"{fields.header.path}: deepseek2.attention.key_length{ending} must be above {turned}, the features that "
            f"are turned, got {width}."
        )
    groups = fields.count("expert_group_count", 1)
    return {
        "num_key_value_heads": fields.count("attention.head_count"),
        "head_dim": turned,
        "q_lora_rank": fields.count("attention.q_lora_rank") if fields.has("attention.q_lora_rank") else None,
        "kv_lora_rank": fields.count("attention.kv_lora_rank"),
        "qk_rope_head_dim": turned,
        "qk_nope_head_dim": width - turned,
        "v_head_dim": fields.count(f"attention.value_length{ending}"),
        "attention_bias": False,  # llama.cpp reads none
        "first_k_dense_replace": fields.index("leading_dense_block_count", 0),
        "n_routed_experts": fields.count("expert_count"),
        "num_experts_per_tok": fields.count("expert_used_count"),
        "n_shared_experts": fields.count("expert_shared_count"),
        "moe_intermediate_size": fields.count("expert_feed_forward_length"),
        "routed_scaling_factor": fields.number("expert_weights_scale", 1.0),
        "norm_topk_prob": fields.flag("expert_weights_norm", False),
        "n_group": groups,
        "topk_group": fields.count("expert_group_used_count", groups),
    }


def _deepseek_v2(fields: Fields) -> Keys:
    keys = _deepseek2(fields)
    if keys["norm_topk_prob"]:
        raise ValueError(
            f"{fields.header.path}: deepseek2.expert_weights_norm must be false where experts are chosen by a softmax."
        )
    return keys | {"topk_method": "group_limited_greedy" if keys["n_group"] > 1 else "greedy"}


def _deepseek_v3(fields: Fields) -> Keys:
    return _deepseek2(fields) | {"rope_interleave": True}


_OF_DEEPSEEK = _USED_EXPERTS | {
    "q_lora_rank": "attention.q_lora_rank",
    "kv_lora_rank": "attention.kv_lora_rank",
    "qk_rope_head_dim": "rope.dimension_count",
    "v_head_dim": "attention.value_length_mla",
    "first_k_dense_replace": "leading_dense_block_count",
    "n_routed_experts": "expert_count",
    "n_shared_experts": "expert_shared_count",
    "moe_intermediate_size": "expert_feed_forward_length",
    "routed_scaling_factor": "expert_weights_scale",
    "norm_topk_prob": "expert_weights_norm",
}
_GROUPS_OF_EXPERTS = {"n_group": "expert_group_count", "topk_group": "expert_group_used_count"}


def _latents(values: Keys) -> Keys:
    # to llama.cpp all heads share one key, which is the latent beside what is turned, and one value, the latent
    latent, turned = values["kv_lora_rank"], values["qk_rope_head_dim"]
    fields = {
        "attention.head_count_kv": 1,
        "attention.key_length": latent + turned,
        "attention.value_length": latent,
        "attention.key_length_mla": values["qk_nope_head_dim"] + turned,
    }
    stretch = (values.get("rope_scaling") or {}).get("mscale_all_dim")
    return fields | ({"rope.scaling.yarn_log_multiplier": stretch / 10} if stretch else {})


def _key_beside_value(key: np.ndarray, value: np.ndarray) -> np.ndarray:
    """The rows of the key and the value of each head in turn; files have the key the other way round."""
    return np.concatenate([_swapped(key), value], axis=1).reshape(-1, value.shape[-1])


def _key_and_value(weights: np.ndarray, config: TransformerConfig) -> tuple[np.ndarray, np.ndarray]:
    """Undoes `_key_beside_value`."""
    by_head = weights.reshape(config.attention.num_heads, -1, weights.shape[-1])
    key, value = np.split(by_head, [config.head_dim - config.attention.shared_key_dim], axis=1)
    return _swapped(key), value


def _shape_of_both(key: Shape, value: Shape) -> Shape | None:
    if len(key) != 3 or len(value) != 3 or (key[0], key[1]) != (value[0], value[2]):
        return None
    return key[0] * (key[2] + value[1]), key[1]


_OF_LATENTS = {
    "layers.{}.self_attn.kv_b_proj.weight": Merged(
        ("blk.{}.attn_k_b.weight", "blk.{}.attn_v_b.weight"),
        _key_beside_value,
        _shape_of_both,
        _key_and_value,
        "blk.{}.attn_kv_b.weight",
    ),
    "layers.{}.mlp.gate.e_score_correction_bias": Merged(
        ("blk.{}.exp_probs_b.bias",), lambda bias: bias, lambda shape: shape, lambda bias, config: (bias,)
    ),
}


def _olmo2(fields: Fields) -> Keys:
    if fields.has("attention.sliding_window"):
        raise ValueError(
            f"{fields.header.path}: olmo2.attention.sliding_window must be left out: of this architecture OLMo 2 is "
            "supported, and not OLMo 3, which has windows."
        )
    return _has_biases(fields)


def _limit(fields: Fields) -> float | None:
    """What queries, keys and values are clipped to; 0 stands for no limit."""
    return fields.number("attention.clamp_kqv", 0.0) or None


def _olmo(fields: Fields) -> Keys:
    return {"attention_bias": False, "clip_qkv": _limit(fields)}


def _olmoe(fields: Fields) -> Keys:
    return {
        "attention_bias": False,
        "num_experts": fields.count("expert_count"),
        "num_experts_per_tok": fields.count("expert_used_count"),
        "norm_topk_prob": False,
    }


def _gpt_oss(fields: Fields) -> Keys:
    scaling: Keys = {"rope_type": "default"}
    if fields.has("rope.scaling.factor"):
        scaling = {
            "rope_type": "yarn",
            "factor": fields.number("rope.scaling.factor", 32.0),
            "original_max_position_embeddings": fields.count("rope.scaling.original_context_length", 4096),
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "truncate": False,
        }
    return {
        "intermediate_size": fields.count("expert_feed_forward_length"),
        "num_local_experts": fields.count("expert_count"),
        "num_experts_per_tok": fields.count("expert_used_count"),
        "sliding_window": fields.count("attention.sliding_window", 128),
        "rope_scaling": scaling,
        **_has_biases(fields),
    }


def _alternating(gate: np.ndarray, up: np.ndarray) -> np.ndarray:
    """The columns of gate and up in turn."""
    return np.stack([gate, up], axis=-1).reshape(*gate.shape[:-1], -1)


def _swapped(weights: np.ndarray) -> np.ndarray:
    return np.swapaxes(weights, -1, -2)


_EXPERTS_OF_GPT_OSS = {
    "layers.{}.mlp.experts.gate_up_proj": Merged(
        ("blk.{}.ffn_gate_exps.weight", "blk.{}.ffn_up_exps.weight"),
        lambda gate, up: _alternating(_swapped(gate), _swapped(up)),
        lambda gate, up: (gate[0], gate[2], 2 * gate[1]) if gate == up and len(gate) == 3 else None,
    ),
    "layers.{}.mlp.experts.gate_up_proj_bias": Merged(
        ("blk.{}.ffn_gate_exps.bias", "blk.{}.ffn_up_exps.bias"),
        _alternating,
        lambda gate, up: (*gate[:-1], 2 * gate[-1]) if gate == up and gate else None,
    ),
    "layers.{}.mlp.experts.down_proj": Merged(
        ("blk.{}.ffn_down_exps.weight",),
        _swapped,
        lambda shape: (shape[0], shape[2], shape[1]) if len(shape) == 3 else None,
    ),
    "layers.{}.mlp.experts.down_proj_bias": Merged(
        ("blk.{}.ffn_down_exps.bias",), lambda bias: bias, lambda shape: shape
    ),
    "layers.{}.self_attn.sinks": Merged(("blk.{}.attn_sinks.weight",), lambda sinks: sinks, lambda shape: shape),
}


def _t5(fields: Fields) -> Keys:
    layers = fields.count("block_count")
    return {
        "d_model": fields.count("embedding_length"),
        "d_kv": fields.count("attention.key_length"),
        "d_ff": fields.count("feed_forward_length"),
        "num_layers": layers,
        "num_decoder_layers": fields.count("decoder_block_count", layers),
        "num_heads": fields.count("attention.head_count"),
        "relative_attention_num_buckets": fields.count("attention.relative_buckets_count"),
        "layer_norm_epsilon": fields.number("attention.layer_norm_epsilon", 1e-6),
        "feed_forward_proj": "gated-gelu" if fields.has_tensor("enc.blk.0.ffn_gate.weight") else "relu",
        "is_encoder_decoder": True,
        "decoder_start_token_id": fields.index("decoder_start_token_id", 0),
    }


def _command_r(fields: Fields) -> Keys:
    return {
        "layer_norm_eps": fields.number("attention.layer_norm_epsilon", 1e-5),
        "logit_scale": fields.number("logit_scale", 1.0),
        "use_qk_norm": fields.has_tensor("blk.0.attn_q_norm.weight"),
        **_has_biases(fields),
    }


ARCHITECTURES: dict[str, Architecture] = {
    "bert": Architecture("bert", "BertModel", _bert, is_complete=True, task="TextEmbedder"),
    "bloom": Architecture("bloom", "BloomForCausalLM", _bloom, _OF_BLOOM, by_head=True, is_complete=True),
    "chatglm": Architecture("glm", "GlmForCausalLM", _glm),
    "command-r": Architecture(
        "cohere",
        "CohereForCausalLM",
        _command_r,
        {"layer_norm_eps": "attention.layer_norm_epsilon", "logit_scale": "logit_scale"},
    ),
    "deepseek2": Architecture(
        "deepseek_v2",
        "DeepseekV2ForCausalLM",
        _deepseek_v2,
        # without groups: llama.cpp chooses them by their two best experts, as version 3 does, and not by the best one
        _OF_DEEPSEEK,
        constants={"expert_gating_func": 1},
        derived=_latents,
        merged=_OF_LATENTS,
    ),
    "ernie4_5": Architecture("ernie4_5", "Ernie4_5ForCausalLM", lambda fields: {"use_bias": False}),
    "falcon": Architecture("falcon", "FalconForCausalLM", _falcon, _OF_FALCON, by_head=True, is_complete=True),
    "exaone4": Architecture("exaone4", "Exaone4ForCausalLM", _exaone4, _WINDOW),
    "gemma": Architecture("gemma", "GemmaForCausalLM", _gemma, shifted_norms=True),
    "gemma2": Architecture("gemma2", "Gemma2ForCausalLM", _gemma2, _WINDOW | _CAPS, shifted_norms=True),
    "gemma3": Architecture(
        "gemma3_text",
        "Gemma3ForCausalLM",
        _gemma3,
        _WINDOW | _CAPS | {"rope_local_base_freq": "rope.freq_base_swa"},
        shifted_norms=True,
    ),
    "glm4": Architecture("glm4", "Glm4ForCausalLM", _glm),
    "gpt2": Architecture("gpt2", "GPT2LMHeadModel", _gpt2, _OF_GPT2, transposed=True, is_complete=True),
    "gptneox": Architecture("gpt_neox", "GPTNeoXForCausalLM", _gpt_neox, _OF_GPT_NEOX, by_head=True, is_complete=True),
    "gpt-oss": Architecture("gpt_oss", "GptOssForCausalLM", _gpt_oss, merged=_EXPERTS_OF_GPT_OSS),
    "granite": Architecture("granite", "GraniteForCausalLM", _granite, _SCALES, permuted=True),
    "granitemoe": Architecture(
        "granitemoe", "GraniteMoeForCausalLM", _granitemoe, permuted=True, merged=_EXPERTS_OF_GRANITE
    ),
    "lfm2": Architecture(
        "lfm2",
        "Lfm2ForCausalLM",
        _lfm2,
        {"norm_eps": "attention.layer_norm_rms_epsilon", "conv_L_cache": "shortconv.l_cache"},
        by_layer=True,
    ),
    "llama": Architecture("llama", "LlamaForCausalLM", _llama, permuted=True),
    "mpt": Architecture(
        "mpt",
        "MptForCausalLM",
        _mpt,
        _OF_MPT,
        constants={"attention.max_alibi_bias": 8.0},
        is_complete=True,
    ),
    "nemotron": Architecture(
        "nemotron",
        "NemotronForCausalLM",
        _nemotron,
        {"norm_eps": "attention.layer_norm_epsilon"},
        shifted_norms=True,
    ),
    "nomic-bert": Architecture("nomic_bert", "NomicBertModel", _nomic_bert, is_complete=True, task="TextEmbedder"),
    "olmo": Architecture(
        "olmo",
        "OlmoForCausalLM",
        _olmo,
        {"clip_qkv": "attention.clamp_kqv"},
        permuted=True,
        constants={"attention.layer_norm_epsilon": 1e-5},
    ),
    "olmo2": Architecture("olmo2", "Olmo2ForCausalLM", _olmo2),
    "phi2": Architecture("phi", "PhiForCausalLM", _phi2, {"layer_norm_eps": "attention.layer_norm_epsilon"}),
    "olmoe": Architecture("olmoe", "OlmoeForCausalLM", _olmoe, _USED_EXPERTS | {"num_experts": "expert_count"}),
    "phi3": Architecture(
        "phi3",
        "Phi3ForCausalLM",
        _phi3,
        _WINDOW | {"original_max_position_embeddings": "rope.scaling.original_context_length"},
    ),
    "qwen2": Architecture("qwen2", "Qwen2ForCausalLM"),
    "qwen3": Architecture("qwen3", "Qwen3ForCausalLM", _has_biases),
    "qwen3moe": Architecture(
        "qwen3_moe",
        "Qwen3MoeForCausalLM",
        _experts_of_qwen,
        _USED_EXPERTS | {"num_experts": "expert_count", "moe_intermediate_size": "expert_feed_forward_length"},
    ),
    "smollm3": Architecture("smollm3", "SmolLM3ForCausalLM", _llama, permuted=True),
    "stablelm": Architecture(
        "stablelm",
        "StableLmForCausalLM",
        _stablelm,
        {"layer_norm_eps": "attention.layer_norm_epsilon", "use_parallel_residual": "use_parallel_residual"},
    ),
    "starcoder": Architecture("gpt_bigcode", "GPTBigCodeForCausalLM", _starcoder, _OF_GPT_BIGCODE, is_complete=True),
    "starcoder2": Architecture(
        "starcoder2", "Starcoder2ForCausalLM", _starcoder2, {"norm_epsilon": "attention.layer_norm_epsilon"}
    ),
    "t5": Architecture("t5", "T5ForConditionalGeneration", _t5, is_complete=True, task="Seq2SeqLM"),
}
_MIXTRAL = Architecture(
    "mixtral",
    "MixtralForCausalLM",
    _experts_of_mixtral,
    _USED_EXPERTS | {"num_local_experts": "expert_count"},
    permuted=True,
)
_DEEPSEEK_V3 = dataclasses.replace(
    ARCHITECTURES["deepseek2"],
    model_type="deepseek_v3",
    class_name="DeepseekV3ForCausalLM",
    keys=_deepseek_v3,
    names=_OF_DEEPSEEK | _GROUPS_OF_EXPERTS,
    constants={"expert_gating_func": 2},
)
_UMT5 = dataclasses.replace(ARCHITECTURES["t5"], model_type="umt5", class_name="UMT5ForConditionalGeneration")
# what a file calls models that differ from another family in what it cannot say, and in experts
WRITTEN_AS = {
    each.model_type: (name, each)
    for name, each in ARCHITECTURES.items()
    if each.task == "CausalLM" and all(merged.split for merged in each.merged.values())
} | {
    "deepseek_v3": ("deepseek2", _DEEPSEEK_V3),
    "mistral": ("llama", ARCHITECTURES["llama"]),
    "mixtral": ("llama", _MIXTRAL),
}


def architecture_of(fields: Fields) -> Architecture:
    """Returns the architecture of a file.

    That of Mixtral has the name of Llama, and experts; that of UMT5 has the name of T5, and positions in each layer;
    those of DeepSeek V2 and V3 have one name, and other scores of experts.

    Args:
        fields: Its fields.

    Raises:
        ValueError: If it is not supported.
    """
    fields.require_architecture(ARCHITECTURES)
    has_experts = fields.architecture == "llama" and fields.index("expert_count", 0) > 1
    if fields.architecture == "t5" and fields.has_tensor("enc.blk.1.attn_rel_b.weight"):
        return _UMT5
    if fields.architecture == "deepseek2" and _scores_are_sigmoids(fields):
        return _DEEPSEEK_V3
    return _MIXTRAL if has_experts else ARCHITECTURES[fields.architecture]


def _scores_are_sigmoids(fields: Fields) -> bool:
    # files of version 2 may not say it
    is_balanced = fields.has_tensor(f"blk.{fields.count('block_count') - 1}.exp_probs_b.bias")
    kind = fields.count("expert_gating_func", 2 if is_balanced else 1)
    if kind > 2:
        raise ValueError(
            f"{fields.header.path}: deepseek2.expert_gating_func must be 1 (softmax) or 2 (sigmoid), got {kind}."
        )
    return kind == 2
