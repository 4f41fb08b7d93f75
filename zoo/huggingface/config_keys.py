"""What the keys of a configuration of the Transformers library may hold."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from zoo.storage import quote, require_type

# no published model takes longer texts than 10,485,760 tokens
MOST_POSITIONS = 2**24
# sizes of tensors up to this one are compared with those of the file, greater ones are refused at once
MOST_WIDTH = 2**20


@dataclasses.dataclass(frozen=True)
class Key:
    """What a key may hold.

    Args:
        allowed: In words.
        holds: Whether a value is allowed; called with the value, and the greatest count that the weights have room for.
        may_be_null: Whether null is allowed.
    """

    allowed: str
    holds: Callable[[Any, float], bool]
    may_be_null: bool = False

    def check(self, name: str, value: Any, most: float, source: str) -> None:
        """Raises a ValueError unless a value is allowed.

        Args:
            name: Name of the key.
            value: Its value.
            most: Greatest count that the weights have room for.
            source: The file of the weights.
        """
        if value is None and self.may_be_null:
            return
        if not self.holds(value, most):
            room = f"; {source} has room for {most:.0f}" if is_integer(value) and most < math.inf else ""
            null = " or null" if self.may_be_null else ""
            raise ValueError(f"{name} must be {self.allowed}{null}, got {quote(value)}{room}.")


def is_integer(value: Any) -> bool:
    """Whether a value is an integer, and no bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Whether a value is a finite number, and no bool."""
    # larger integers are no floats
    return is_integer(value) and abs(value) < 1e300 or isinstance(value, float) and math.isfinite(value)


def _typed(hint: Any) -> Callable[[Any, float], bool]:
    def holds(value: Any, most: float) -> bool:
        try:
            require_type(value, hint, "")
        except ValueError:
            return False
        return True

    return holds


def _is_list_of_flags(value: Any, most: float) -> bool:
    return value is None or isinstance(value, list) and all(entry in (0, 1) for entry in value)


def _is_range(value: Any, most: float) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2
        and all(is_number(end) or end in (math.inf, {"__float__": "Infinity"}) for end in value)
    )


def _are_repeated_texts(value: Any, most: float) -> bool:
    return isinstance(value, list) and all(
        isinstance(entry, list)
        and len(entry) == 2
        and _typed(list[str])(entry[0], most)
        and is_integer(entry[1])
        and entry[1] >= 1
        for entry in value
    )


_COUNT = Key("an integer of at least 1", lambda value, most: is_integer(value) and 1 <= value <= most)
_INDEX = Key("an integer of at least 0", lambda value, most: is_integer(value) and 0 <= value <= most)
_POSITIONS = Key(
    f"an integer from 1 to {MOST_POSITIONS}", lambda value, most: is_integer(value) and 1 <= value <= MOST_POSITIONS
)
FLAG = Key("true or false", lambda value, most: isinstance(value, bool))
_POSITIVE = Key("a number above 0", lambda value, most: is_number(value) and value > 0)
_DEVIATION = Key("a number of at least 0", lambda value, most: is_number(value) and value >= 0)
_RATE = Key("a number from 0 to below 1", lambda value, most: is_number(value) and 0 <= value < 1)
_TEXT = Key("a text", lambda value, most: isinstance(value, str))
_TEXTS = Key("a list of texts", _typed(list[str]))
_OBJECT = Key("an object", lambda value, most: isinstance(value, dict))
_LABELS = Key("an object of texts or numbers", _typed(dict[str, str | int | float]))

_GROUPS = {
    _COUNT: """
        vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size d_model encoder_layers
        decoder_layers encoder_attention_heads decoder_attention_heads encoder_ffn_dim decoder_ffn_dim dim n_layers
        n_heads hidden_dim n_embd n_layer n_head num_layers num_heads d_kv d_ff relative_attention_num_buckets
        num_local_experts num_experts num_experts_per_tok moe_intermediate_size shared_expert_intermediate_size ffn_dim
        embedding_size num_hidden_groups pooler_hidden_size kv_lora_rank qk_nope_head_dim qk_rope_head_dim v_head_dim
        n_routed_experts n_shared_experts rotary_dim n_embed input_embedding_size output_embedding_size
        conv_L_cache block_multiple_of linear_conv_kernel_dim linear_key_head_dim linear_value_head_dim
        linear_num_key_heads linear_num_value_heads full_attention_interval
        state_size conv_kernel n_groups chunk_size attn_rotary_emb
        """,
    dataclasses.replace(_COUNT, may_be_null=True): """
        num_key_value_heads head_dim n_inner num_decoder_layers decoder_vocab_size num_labels q_lora_rank n_group
        topk_group num_kv_heads ffn_hidden_size block_ff_dim mamba_n_heads mamba_n_groups mamba_d_state mamba_d_conv
        mamba_expand mamba_chunk_size
        """,
    _INDEX: "type_vocab_size pad_token_id",
    _POSITIONS: """
        max_position_embeddings n_positions relative_attention_max_distance local_attention
        global_attn_every_n_layers no_rope_layer_interval
        decoder_sparse_step window_size seq_length max_seq_len
        """,
    Key(
        f"an integer from 0 to {MOST_POSITIONS} or a text",
        lambda value, most: isinstance(value, str) or is_integer(value) and 0 <= value <= MOST_POSITIONS,
        may_be_null=True,
    ): "sliding_window_pattern",
    dataclasses.replace(_POSITIONS, may_be_null=True): "n_ctx original_max_position_embeddings",
    Key("an integer of at least 0", lambda value, most: is_integer(value) and value >= 0): (
        "max_window_layers first_k_dense_replace"
    ),
    Key(
        f"an integer from 0 to {MOST_POSITIONS}",
        lambda value, most: is_integer(value) and 0 <= value <= MOST_POSITIONS,
        may_be_null=True,
    ): "sliding_window",
    Key(
        f"an integer from -1 to {MOST_POSITIONS}",
        lambda value, most: is_integer(value) and -1 <= value <= MOST_POSITIONS,
    ): "max_relative_positions position_buckets",
    FLAG: """
        legacy position_biased_input relative_attention share_att_key
        tie_word_embeddings attention_bias mlp_bias scale_embedding scale_attn_weights norm_bias classifier_bias
        scale_decoder_outputs is_llama_config reorder_and_upcast_attn sinusoidal_pos_embds tie_weights_
        use_bias use_parallel_residual norm_topk_prob qkv_bias do_layer_norm_before enable_bias
        layer_norm_elementwise_affine _remove_final_layer_norm rope_interleave
        scale_attn_by_inverse_layer_idx alibi bias multi_query new_decoder_architecture parallel_attn qk_layernorm
        use_qkv_bias rotary_value conv_bias block_auto_adjust_ff_dim tie_embedding
        use_conv_bias residual_in_fp32 rescale_prenorm_residual rms_norm norm_before_gate
        """,
    dataclasses.replace(FLAG, may_be_null=True): (
        "use_sliding_window token_classification_bias use_qk_norm mamba_conv_bias mamba_proj_bias"
    ),
    _POSITIVE: """
        rms_norm_eps layer_norm_eps layer_norm_epsilon norm_eps rope_theta global_rope_theta local_rope_theta
        query_pre_attn_scalar norm_epsilon rotary_emb_base rotary_pct rope_local_base_freq
        attention_multiplier embedding_multiplier swiglu_limit logits_scaling residual_multiplier
        routed_scaling_factor expand
        """,
    dataclasses.replace(_POSITIVE, may_be_null=True): (
        "partial_rotary_factor attn_logit_softcapping final_logit_softcapping clip_qkv softmax_scale logit_scale "
        "block_ffn_dim_multiplier"
    ),
    _DEVIATION: """
        initializer_range init_std router_aux_loss_coef aux_loss_alpha time_step_floor time_step_max time_step_min
        time_step_scale
        """,
    dataclasses.replace(_DEVIATION, may_be_null=True): "z_loss_coefficient",
    Key(
        "an integer of at least 1 or 'auto'",
        lambda value, most: value == "auto" or is_integer(value) and 1 <= value <= most,
        may_be_null=True,
    ): "mamba_d_head time_step_rank",
    _RATE: """
        hidden_dropout_prob attention_probs_dropout_prob dropout activation_dropout attn_pdrop embd_pdrop resid_pdrop
        dropout_rate mlp_dropout encoder_layerdrop decoder_layerdrop layerdrop
        embedding_dropout seq_classif_dropout qa_dropout residual_dropout
        classifier_dropout_prob pooler_dropout resid_dropout embed_dropout emb_pdrop
        """,
    dataclasses.replace(_RATE, may_be_null=True): "attention_dropout classifier_dropout cls_dropout hidden_dropout",
    _TEXT: "feed_forward_proj",
    dataclasses.replace(_TEXTS, may_be_null=True): "layer_types attention_layers",
    Key("lists of a list of texts and a count", _are_repeated_texts, may_be_null=True): "attention_types",
    Key("a list of 0 and 1, or null", _is_list_of_flags): "no_rope_layers",
    Key("a list of two numbers", _is_range, may_be_null=True): "time_step_limit",
    Key("a list of integers", _typed(list[int]), may_be_null=True): "mlp_only_layers full_attn_idxs attn_layer_indices",
    Key("1 or 2", lambda value, most: is_integer(value) and value in (1, 2), may_be_null=True): (
        "num_ln_in_parallel_attn"
    ),
    dataclasses.replace(_OBJECT, may_be_null=True): "rope_scaling rope_parameters quantization_config attn_config",
    dataclasses.replace(_LABELS, may_be_null=True): "id2label",
}
# our choices and the keys that they are read from, whatever a family calls them
_CHOICES = {
    "vocabulary_size": "vocab_size",
    "hidden_dim": "hidden_size d_model dim n_embd n_embed",
    "num_layers": "num_hidden_layers encoder_layers n_layers n_layer num_layers",
    "layer_groups": "num_hidden_groups",
    "decoder_num_heads": "decoder_attention_heads",
    "decoder_intermediate_dim": "decoder_ffn_dim",
    "num_decoder_layers": "decoder_layers num_decoder_layers",
    "max_length": "max_position_embeddings n_positions seq_length max_seq_len",
    "dropout": "hidden_dropout_prob dropout dropout_rate resid_pdrop residual_dropout hidden_dropout resid_dropout",
    "initializer_range": "initializer_range init_std",
    "attention.num_heads": "num_attention_heads encoder_attention_heads n_heads n_head num_heads",
    "attention.num_key_value_heads": "num_key_value_heads num_kv_heads",
    "attention.head_dim": "head_dim d_kv",
    "attention.value_head_dim": "v_head_dim",
    "attention.latent_dim": "kv_lora_rank",
    "attention.query_latent_dim": "q_lora_rank",
    "attention.shared_key_dim": "qk_rope_head_dim",
    "attention.dropout": "attention_probs_dropout_prob attention_dropout attn_pdrop",
    "attention.window": "sliding_window local_attention window_size",
    "attention.scale": "query_pre_attn_scalar scale_attn_weights attention_multiplier softmax_scale",
    "attention.projection_limit": "clip_qkv",
    "attention.scale_by_layer": "scale_attn_by_inverse_layer_idx",
    "attention.logit_soft_cap": "attn_logit_softcapping",
    "position.rotary_dim": "rotary_dim",
    "position.num_buckets": "relative_attention_num_buckets",
    "position.max_distance": "relative_attention_max_distance",
    "norm.epsilon": "layer_norm_eps rms_norm_eps layer_norm_epsilon norm_eps norm_epsilon",
    "feed_forward.intermediate_dim": (
        "intermediate_size encoder_ffn_dim hidden_dim n_inner d_ff ffn_dim ffn_hidden_size"
    ),
    "feed_forward.activation": "hidden_act hidden_activation activation activation_function",
    "feed_forward.dropout": "activation_dropout mlp_dropout",
    "feed_forward.num_experts": "num_local_experts num_experts n_routed_experts",
    "feed_forward.experts_per_token": "num_experts_per_tok",
    "feed_forward.shared_intermediate_dim": "shared_expert_intermediate_size",
    "feed_forward.expert_groups": "n_group",
    "feed_forward.groups_per_token": "topk_group",
    "feed_forward.weight_scale": "routed_scaling_factor",
    "feed_forward.gate_limit": "swiglu_limit",
    "feed_forward.load_balance_weight": "router_aux_loss_coef aux_loss_alpha",
    "mixer.kernel_size": "conv_L_cache linear_conv_kernel_dim conv_kernel mamba_d_conv",
    "mixer.num_heads": "linear_num_value_heads mamba_n_heads",
    "mixer.num_key_heads": "linear_num_key_heads n_groups mamba_n_groups",
    "mixer.key_dim": "linear_key_head_dim state_size mamba_d_state",
    "mixer.value_dim": "linear_value_head_dim mamba_d_head",
    "mixer.use_bias": "conv_bias mamba_proj_bias",
    "mixer.convolution_bias": "use_conv_bias mamba_conv_bias",
    "mixer.step_limit": "time_step_limit",
    "branch_scale": "residual_multiplier",
    "embedding.scale": "embedding_multiplier",
    "embedding.output_scale": "logit_scale logits_scaling",
    "embedding.factor_dim": "word_embed_proj_dim embedding_size input_embedding_size",
    "embedding.output_dim": "output_embedding_size",
    "embedding.num_segments": "type_vocab_size",
    "embedding.dropout": "embd_pdrop embedding_dropout embed_dropout emb_pdrop",
    "embedding.tie_output": "tie_word_embeddings",
    "embedding.logit_soft_cap": "final_logit_softcapping",
    "labels": "id2label",
    "problem": "problem_type",
}
CHOICE_OF = {name: choice for choice, names in _CHOICES.items() for name in names.split()}
KEYS = {name: key for key, names in _GROUPS.items() for name in names.split()}
# sides of tensors: none of them makes more tensors
WIDTHS = frozenset(
    """
    vocab_size hidden_size intermediate_size d_model encoder_ffn_dim decoder_ffn_dim dim hidden_dim n_embd d_kv d_ff
    n_inner head_dim ffn_dim embedding_size type_vocab_size ffn_hidden_size n_embed input_embedding_size
    output_embedding_size
    """.split()
)
# each has tensors of its own
LAYERS = frozenset(
    "num_hidden_layers encoder_layers decoder_layers n_layers n_layer num_layers num_decoder_layers".split()
)
