"""T5 with its version 1.1, what was tuned from them, such as Flan-T5, mT5 and UMT5 ("t5", "mt5" and "umt5")."""

from collections.abc import Callable
from typing import Any

from zoo.config import (
    AttentionConfig,
    EmbeddingConfig,
    FeedForwardConfig,
    NormConfig,
    PositionConfig,
    TransformerConfig,
)
from zoo.config.checks import require
from zoo.huggingface.config_reader import ACTIVATION_NAMES, ConfigReader, activation
from zoo.huggingface.family import Family, Head, register_family
from zoo.huggingface.labels import label_names, write_labels
from zoo.huggingface.span_heads import encoder_decoder_heads

CLASSIFIER = "transformer."  # what classes for classification put before names
MAX_LENGTH = 512  # of the training; nothing in the model is bound to it


def _table() -> dict[str, str]:
    table = {"token_embedding": "shared", "output_projection": "lm_head"}
    for side, last in (("encoder", 1), ("decoder", 2)):
        ours, theirs = f"{side}.{{}}", f"{side}.block.{{}}.layer"
        parts = {"attention": (0, "SelfAttention")}
        if side == "decoder":
            parts["cross_attention"] = (1, "EncDecAttention")
        for part, (number, name) in parts.items():
            table[f"{ours}.{part}_norm"] = f"{theirs}.{number}.layer_norm"
            for projection in ("query", "key", "value", "output"):
                table[f"{ours}.{part}.{projection}"] = f"{theirs}.{number}.{name}.{projection[0]}"
        table[f"{ours}.feed_forward_norm"] = f"{theirs}.{last}.layer_norm"
        table[f"{ours}.feed_forward.down"] = f"{theirs}.{last}.DenseReluDense.wo"
        table[f"{side}.position"] = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias"
        table[f"{ours}.attention.position"] = f"{theirs}.0.SelfAttention.relative_attention_bias"
        table[f"{side}.final_norm"] = f"{side}.final_layer_norm"
    return table


def _with_feed_forward(gated: bool) -> dict[str, str]:
    names = {"gate": "wi_0", "up": "wi_1"} if gated else {"up": "wi"}
    rows = {
        f"{side}.{{}}.feed_forward.{ours}": f"{side}.block.{{}}.layer.{last}.DenseReluDense.{theirs}"
        for side, last in (("encoder", 1), ("decoder", 2))
        for ours, theirs in names.items()
    }
    return {**_table(), **rows}


def table(config: TransformerConfig) -> dict[str, str]:
    """Returns the names of the weights, which differ between gated and other networks."""
    return _with_feed_forward(config.feed_forward.gated)


def read(
    reader: ConfigReader, *, network: str = "relu", scales: bool = True, shared_positions: bool = True
) -> TransformerConfig:
    """Returns the configuration of a T5.

    Args:
        reader: The configuration.
        network: What a missing `feed_forward_proj` means.
        scales: Whether logits may be scaled.
        shared_positions: Whether all layers of a stack share their positions.
    """
    width, layers = reader.take("d_model"), reader.take("num_layers")
    feed_forward = reader.take("feed_forward_proj", network)
    *gated, name = feed_forward.split("-")
    require(gated in ([], ["gated"]), "feed_forward_proj", feed_forward, "'gated-...' or one name")
    if gated and name == "gelu":
        name = "gelu_new"  # so it was trained
    reader.take_only("dense_act_fn", name)
    reader.take_only("is_gated_act", bool(gated))
    reader.take_only("is_decoder", False)
    # files of T5EncoderModel and of what classifies tokens
    sides = {name.partition(".")[0] for name in reader.tensors}
    is_encoder = "encoder" in sides and "decoder" not in sides
    if not sides:  # no file is there
        is_encoder = not reader.values.get("is_encoder_decoder", True)
    reader.take_only("is_encoder_decoder", not is_encoder, *([True] if is_encoder else []))
    reader.skip("n_positions")  # of the training
    reader.skip("classifier_dropout")  # of a head
    # version 1.1 has an output projection of its own; newer configurations say it by the scale, and by the file
    tied = reader.take("tie_word_embeddings", True)
    scaled = scales and reader.take("scale_decoder_outputs", tied)
    if not scaled:
        tied = "lm_head.weight" not in reader.tensors if sides else not scales and tied
    dropout = reader.take("dropout_rate", 0.1)
    decoder_layers = reader.take_number("num_decoder_layers", layers)
    output = EmbeddingConfig(tie_output=tied, output_scale=width**-0.5 if scaled else None)
    return TransformerConfig(
        "encoder" if is_encoder else "encoder_decoder",
        reader.take("vocab_size"),
        hidden_dim=width,
        num_layers=layers,
        num_decoder_layers=None if is_encoder or decoder_layers == layers else decoder_layers,
        max_length=MAX_LENGTH,
        attention=AttentionConfig(
            reader.take("num_heads"), head_dim=reader.take("d_kv", 64), use_bias=False, scale=1.0, dropout=dropout
        ),
        position=PositionConfig(
            "relative_bias",
            shared=shared_positions,
            num_buckets=reader.take("relative_attention_num_buckets", 32),
            max_distance=reader.take("relative_attention_max_distance", 128),
        ),
        norm=NormConfig("rms", "pre", epsilon=reader.take("layer_norm_epsilon", 1e-6)),
        feed_forward=FeedForwardConfig(
            reader.take("d_ff"),
            activation(name, "feed_forward_proj"),
            gated=bool(gated),
            use_bias=False,
            dropout=dropout,
        ),
        embedding=EmbeddingConfig() if is_encoder else output,
        dropout=dropout,
    )


def write(config: TransformerConfig) -> dict[str, Any]:
    """Returns the configuration of the Transformers library."""
    feed_forward = config.feed_forward
    name = ACTIVATION_NAMES[feed_forward.activation]
    if feed_forward.gated:
        name = "gated-gelu" if feed_forward.activation == "gelu_tanh" else f"gated-{name}"
    return {
        "vocab_size": config.vocabulary_size,
        "d_model": config.hidden_dim,
        "d_kv": config.head_dim,
        "d_ff": feed_forward.intermediate_dim,
        "num_layers": config.num_layers,
        "num_decoder_layers": config.num_decoder_layers or config.num_layers,
        "num_heads": config.attention.num_heads,
        "relative_attention_num_buckets": config.position.num_buckets,
        "relative_attention_max_distance": config.position.max_distance,
        "dropout_rate": config.dropout,
        "layer_norm_epsilon": config.norm.epsilon,
        "feed_forward_proj": name,
        "is_encoder_decoder": config.architecture == "encoder_decoder",
        "tie_word_embeddings": config.architecture == "encoder" or config.embedding.output_scale is not None,
        "decoder_start_token_id": 0,
        "pad_token_id": 0,
        "eos_token_id": 1,
    }


def _write_mt5(config: TransformerConfig) -> dict[str, Any]:
    return {**write(config), "tie_word_embeddings": config.embedding.tie_output}


def _token_classifier(reader: ConfigReader) -> dict[str, Any]:
    dropout = reader.take_number("classifier_dropout", 0.0)
    return {"hidden_activation": None, "head_dropout": dropout, "labels": label_names(reader)}


def _write_token_classifier(options: dict[str, Any]) -> dict[str, Any]:
    return {**write_labels(options), "classifier_dropout": options["head_dropout"]}


def register(model_type: str, name: str, reads: Callable[..., Any], writes: Callable[..., Any]) -> None:
    """Adds one of these families; classes of the Transformers library begin with `name`."""
    register_family(
        Family(
            model_type,
            reads,
            writes,
            table,
            architecture=f"{name}Model",
            heads={
                "Seq2SeqLM": Head(f"{name}ForConditionalGeneration"),
                **encoder_decoder_heads(name, start=0, end=1, classifier_prefix=CLASSIFIER),
                "TokenClassifier": Head(
                    f"{name}ForTokenClassification",
                    {"projection": "classifier"},
                    _token_classifier,
                    _write_token_classifier,
                    CLASSIFIER,
                ),
            },
            encoder_architecture=f"{name}EncoderModel",
            # old files have a bias of cross-attention that the model does not use
            ignored=(r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",),
            copies={
                "encoder.embed_tokens.weight": "shared.weight",
                "decoder.embed_tokens.weight": "shared.weight",
                "lm_head.weight": "shared.weight",
            },
        )
    )


register("t5", "T5", read, write)
# its logits are never scaled
register("mt5", "MT5", lambda reader: read(reader, network="gated-gelu", scales=False), _write_mt5)
register("umt5", "UMT5", lambda reader: read(reader, network="gated-gelu", shared_positions=False), write)
