"""Writes models of the Transformers library as GGUF files, as llama.cpp's converter does, by its package `gguf`."""

import json

import gguf
import numpy as np
from safetensors.numpy import load_file
from sentencepiece import sentencepiece_model_pb2

TOKENS = [chr(33 + index) for index in range(47)] + ["<end>"]


def add_tokenizer(writer, tokens=TOKENS, merges=(), pre="gpt-2", control=("<end>",), template=None):
    """Adds a byte-level BPE tokenizer."""
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(list(tokens))
    writer.add_token_types([3 if token in control else 1 for token in tokens])
    writer.add_token_merges(list(merges))
    writer.add_bos_token_id(len(tokens) - 1)
    writer.add_eos_token_id(len(tokens) - 1)
    if template is not None:
        writer.add_chat_template(template)


def add_sentencepiece(writer, proto):
    """Adds a SentencePiece model as llama.cpp's converter does."""
    model = sentencepiece_model_pb2.ModelProto.FromString(proto)
    normalizer = model.normalizer_spec
    is_bpe = model.trainer_spec.model_type == model.trainer_spec.BPE
    writer.add_tokenizer_model("llama" if is_bpe else "t5")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([piece.piece for piece in model.pieces])
    writer.add_token_scores([piece.score for piece in model.pieces])
    writer.add_token_types([piece.type for piece in model.pieces])
    writer.add_add_space_prefix(normalizer.add_dummy_prefix)
    writer.add_remove_extra_whitespaces(normalizer.remove_extra_whitespaces)
    if normalizer.precompiled_charsmap:
        writer.add_precompiled_charsmap(normalizer.precompiled_charsmap)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)


def add_wordpiece(writer, tokens):
    """Adds the vocabulary of a BERT as llama.cpp's converter does: words marked, and not what continues them."""
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    marked = [
        token if token[:1] + token[-1:] == "[]" else token[2:] if token.startswith("##") else f"\u2581{token}"
        for token in tokens
    ]
    writer.add_token_list(marked)
    writer.add_token_types([3 if token[:1] + token[-1:] == "[]" else 1 for token in tokens])
    roles = {"[UNK]": "unknown", "[SEP]": "seperator", "[PAD]": "padding", "[CLS]": "cls", "[MASK]": "mask"}
    for token, name in roles.items():
        if token in tokens:
            writer.add_uint32(f"tokenizer.ggml.{name}_token_id", tokens.index(token))


def write_gguf(folder, path, architecture, keys=None, kind=None, split=0, tokenizer=None, older=False, **others):
    """Writes the model of a folder.

    Args:
        folder: A folder with `config.json` and `model.safetensors`.
        path: The file.
        architecture: llama.cpp's name of the architecture.
        keys: Further metadata by key, without the architecture; those of the file and the tokenizer in full.
        kind: Type of matrices, a `gguf.GGMLQuantizationType`; None for float32.
        split: Largest number of tensors in a part; 0 for one file.
        tokenizer: Arguments of `add_tokenizer`.
        older: Whether keys and values of latents are one tensor, as before April 2025, and scores of experts unsaid.
        others: Further tensors.
    """
    config = json.loads((folder / "config.json").read_text())
    stored = {name: tensor for part in folder.glob("*.safetensors") for name, tensor in load_file(part).items()}
    tensors = converted(config, stored, architecture, older)
    writer = gguf.GGUFWriter(str(path), architecture, split_max_tensors=split)
    add_hyperparameters(writer, config, architecture)
    if architecture == "deepseek2":
        add_hyperparameters_of_deepseek(writer, config, older)
    if architecture in ("bert", "nomic-bert"):
        add_wordpiece(writer, ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *TOKENS[:43]])
    else:
        add_tokenizer(writer, **(tokenizer or {}))
    for key, value in (keys or {}).items():
        add = {str: writer.add_string, int: writer.add_int32, float: writer.add_float32, bool: writer.add_bool}
        add[type(value)](key if key.startswith(("general.", "tokenizer.")) else f"{architecture}.{key}", value)
    for name, tensor in {**tensors, **others}.items():
        fits = kind is not None and tensor.ndim > 1 and tensor.shape[-1] % gguf.GGML_QUANT_SIZES[kind][0] == 0
        if fits:
            writer.add_tensor(name, gguf.quants.quantize(tensor, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


HEADS = ("num_attention_heads", "n_head", "n_heads")
PERMUTED = ("llama", "granite", "granitemoe", "smollm3", "olmo")
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_decoder_layers")


def first(config, *names):
    """The first of some keys that a configuration has."""
    return next((config[name] for name in names if config.get(name) is not None), None)


def add_hyperparameters(writer, config, architecture):
    """The keys that the converter writes for all architectures."""
    if architecture == "t5":
        return add_hyperparameters_of_t5(writer, config)
    width = first(config, "hidden_size", "n_embd", "d_model")
    heads = first(config, *HEADS)
    writer.add_block_count(first(config, *LAYERS))
    writer.add_context_length(first(config, "max_position_embeddings", "n_positions", "seq_length", "max_seq_len"))
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(first(config, "intermediate_size", "n_inner", "ffn_hidden_size") or 4 * width)
    writer.add_head_count(heads)
    if config.get("num_key_value_heads") and architecture != "deepseek2":
        writer.add_head_count_kv(config["num_key_value_heads"])
    if architecture == "falcon":
        writer.add_head_count_kv(1 if config["multi_query"] else config["num_kv_heads"])
    if config.get("head_dim") and architecture != "deepseek2":
        writer.add_key_length(config["head_dim"])
        writer.add_value_length(config["head_dim"])
    rope = config.get("rope_parameters") or {}
    if "rope_theta" in rope:
        writer.add_rope_freq_base(rope["rope_theta"])
    if rope.get("rope_type") in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(rope["rope_type"]))
        writer.add_rope_scaling_factor(rope["factor"])
    if rope.get("rope_type") == "yarn":
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    turned = rope.get("partial_rotary_factor", config.get("rotary_pct"))
    if turned is not None:
        writer.add_rope_dimension_count(int(config.get("head_dim", width / heads) * turned))
    if "use_parallel_residual" in config:
        writer.add_parallel_residual(config["use_parallel_residual"])
    if config.get("rms_norm_eps") is not None and architecture != "starcoder2":
        writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    for key in ("layer_norm_epsilon", "norm_epsilon", "layer_norm_eps", "norm_eps"):
        if config.get(key) is not None:
            writer.add_layer_norm_eps(config[key])
    experts = config.get("num_local_experts", config.get("num_experts"))
    if experts:
        writer.add_expert_count(experts)
        writer.add_expert_used_count(config["num_experts_per_tok"])
    if config.get("moe_intermediate_size") or architecture == "gpt-oss":
        writer.add_expert_feed_forward_length(config.get("moe_intermediate_size", config["intermediate_size"]))


def add_hyperparameters_of_deepseek(writer, config, older):
    """The keys of latents, and of experts beside shared ones."""
    latent, turned, own = (config[name] for name in ("kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim"))
    writer.add_kv_lora_rank(latent)
    if config["q_lora_rank"]:
        writer.add_q_lora_rank(config["q_lora_rank"])
    writer.add_rope_dimension_count(turned)
    writer.add_leading_dense_block_count(config["first_k_dense_replace"])
    writer.add_expert_count(config["n_routed_experts"])
    writer.add_expert_used_count(config["num_experts_per_tok"])
    writer.add_expert_shared_count(config["n_shared_experts"])
    writer.add_expert_weights_scale(config["routed_scaling_factor"])
    if config["norm_topk_prob"]:
        writer.add_expert_weights_norm(True)
    if "n_group" in config:
        writer.add_expert_group_count(config["n_group"])
        writer.add_expert_group_used_count(config["topk_group"])
    if (config.get("rope_parameters") or {}).get("mscale_all_dim"):
        writer.add_rope_scaling_yarn_log_mul(0.1 * config["rope_parameters"]["mscale_all_dim"])
    writer.add_head_count_kv(config["num_attention_heads"] if older else 1)
    writer.add_key_length(own + turned if older else latent + turned)
    writer.add_value_length(config["v_head_dim"] if older else latent)
    if not older:
        writer.add_key_length_mla(own + turned)
        writer.add_value_length_mla(config["v_head_dim"])
        kinds = gguf.ExpertGatingFuncType
        writer.add_expert_gating_func(kinds.SIGMOID if config["model_type"] == "deepseek_v3" else kinds.SOFTMAX)


def add_hyperparameters_of_t5(writer, config):
    """The keys of an encoder-decoder."""
    writer.add_context_length(512)
    writer.add_embedding_length(config["d_model"])
    writer.add_feed_forward_length(config["d_ff"])
    writer.add_block_count(config["num_layers"])
    writer.add_decoder_block_count(config["num_decoder_layers"])
    writer.add_head_count(config["num_heads"])
    writer.add_key_length(config["d_kv"])
    writer.add_value_length(config["d_kv"])
    writer.add_layer_norm_eps(config["layer_norm_epsilon"])
    writer.add_relative_attn_buckets_count(config["relative_attention_num_buckets"])
    writer.add_layer_norm_rms_eps(config["layer_norm_epsilon"])
    writer.add_decoder_start_token_id(config["pad_token_id"])


def converted(config, tensors, architecture, older=False):
    """Names and values as the converter of llama.cpp writes them, or as it has (`older`)."""
    kind = next(each for each, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    known = gguf.get_tensor_name_map(kind, first(config, *LAYERS))
    heads, key_heads = first(config, *HEADS), config.get("num_key_value_heads")
    result = {}
    for name, tensor in merged_experts(tensors).items():
        if config.get("tie_word_embeddings") and name == "lm_head.weight":
            continue
        if architecture == "gpt-oss" and (".experts." in name or name.endswith(".sinks")):
            result |= parts_of_gpt_oss(name, tensor)
            continue
        if name.endswith("block_sparse_moe.input_linear.weight"):
            gate, up = np.split(tensor, 2, axis=1)
            layer = f"blk.{name.split('.')[2]}"
            result |= {f"{layer}.ffn_gate_exps.weight": gate.copy(), f"{layer}.ffn_up_exps.weight": up.copy()}
            continue
        if name.endswith("kv_b_proj.weight") and not older:
            by_head, size = tensor.reshape(heads, -1, tensor.shape[-1]), config["qk_nope_head_dim"]
            layer = f"blk.{name.split('.')[2]}"
            result[f"{layer}.attn_k_b.weight"] = by_head[:, :size].transpose(0, 2, 1).copy()
            result[f"{layer}.attn_v_b.weight"] = by_head[:, size:].copy()
            continue
        name = name.replace("e_score_correction_bias", "e_score_correction.bias")
        name = name.removeprefix("bert.").removeprefix("nomic_bert.")
        if architecture in ("bert", "nomic-bert") and name.startswith(("cls.", "pooler.", "classifier.")):
            continue
        if ".query_key_value." in name:
            groups = 1 if config.get("multi_query") else config.get("num_kv_heads") or heads
            by_group = tensor.reshape(groups, heads // groups + 2, -1, *tensor.shape[1:])
            parts = by_group[:, :-2], by_group[:, -2:-1], by_group[:, -1:]
            tensor = np.concatenate([part.reshape(-1, *tensor.shape[1:]) for part in parts])
        if architecture == "bloom":
            name = name.removeprefix("transformer.")
        if architecture in PERMUTED and name.split(".")[-2] in ("q_proj", "k_proj"):
            tensor = permuted(tensor, heads if "q_proj" in name else key_heads)
        if architecture.startswith(("gemma", "nemotron")) and name.endswith("norm.weight"):
            tensor = tensor + 1
        if name.endswith(".conv.conv.weight"):
            tensor = tensor[:, 0]
        if architecture == "gpt2" and name.endswith((".c_attn.weight", ".c_proj.weight", ".c_fc.weight")):
            tensor = tensor.T
        new = known.get_name(name, try_suffixes=(".weight", ".bias"))
        result[new] = np.ascontiguousarray(tensor, "float32")
    return result


def parts_of_gpt_oss(name, tensor):
    """Experts of gpt-oss: gate and up, whose columns take turns, are two tensors, and matrices are turned."""
    layer = f"blk.{name.split('.')[2]}"
    if name.endswith(".sinks"):
        return {f"{layer}.attn_sinks.weight": tensor.astype("float32")}
    kind = "bias" if name.endswith("_bias") else "weight"
    parts = {"gate": tensor[..., ::2], "up": tensor[..., 1::2]} if "gate_up_proj" in name else {"down": tensor}
    return {
        f"{layer}.ffn_{part}_exps.{kind}": np.ascontiguousarray(
            each.swapaxes(-1, -2) if kind == "weight" else each, "float32"
        )
        for part, each in parts.items()
    }


def permuted(weights, heads):
    """`permute` of llama.cpp's converter: from features turned in halves to neighbours that are turned."""
    by_half = weights.reshape(heads, 2, weights.shape[0] // heads // 2, *weights.shape[1:])
    return by_half.swapaxes(1, 2).reshape(weights.shape)


def merged_experts(tensors):
    """Experts of a layer are one tensor."""
    result, experts = {}, {}
    for name, tensor in tensors.items():
        before, found, after = name.partition(".experts.")
        if found and after.split(".")[0].isdigit():
            number, rest = after.split(".", 1)
            experts.setdefault(f"{before}.experts.{rest}", {})[int(number)] = tensor
        else:
            result[name] = tensor
    return result | {name: np.stack([each[i] for i in range(len(each))]) for name, each in experts.items()}


def stretched(base, dim, factor, low=1.0, high=4.0, length=8192):
    """`rope_freqs.weight` of Llama 3.1: short waves stay, long ones are stretched, and those between by a mixture."""
    factors = []
    for frequency in 1 / base ** (np.arange(0, dim, 2) / dim):
        wave = 2 * np.pi / frequency
        smooth = (length / wave - low) / (high - low)
        factors.append(
            1.0 if wave < length / high else factor if wave > length / low else 1 / ((1 - smooth) / factor + smooth)
        )
    return np.array(factors, "float32")
