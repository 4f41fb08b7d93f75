"""BART and its kin ("bart", "mbart", "blenderbot", "marian", "pegasus" and "m2m_100", which NLLB is too)."""

import dataclasses
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
from zoo.huggingface.config_reader import ACTIVATION_NAMES, ConfigReader
from zoo.huggingface.family import Family, Head, register_family
from zoo.huggingface.span_heads import encoder_decoder_heads
from zoo.huggingface.weights import Stored

# not all of them have all of these layers
TABLE = {"token_embedding": "shared", "output_bias": Stored("final_logits_bias", bias="", leading_axes=1)}
for side in ("encoder", "decoder"):
    ours, theirs = f"{side}.{{}}", f"{side}.layers.{{}}"
    TABLE[f"{side}.position"] = f"{side}.embed_positions"
    TABLE[f"{side}.embedding_norm"] = f"{side}.layernorm_embedding"
    parts = {"attention": "self_attn"} | ({"cross_attention": "encoder_attn"} if side == "decoder" else {})
    for part, name in parts.items():
        for projection, stored in (("query", "q_proj"), ("key", "k_proj"), ("value", "v_proj"), ("output", "out_proj")):
            TABLE[f"{ours}.{part}.{projection}"] = f"{theirs}.{name}.{stored}"
        TABLE[f"{ours}.{part}_norm"] = f"{theirs}.{name}_layer_norm"
    TABLE[f"{ours}.feed_forward.up"] = f"{theirs}.fc1"
    TABLE[f"{ours}.feed_forward.down"] = f"{theirs}.fc2"
    TABLE[f"{ours}.feed_forward_norm"] = f"{theirs}.final_layer_norm"
    TABLE[f"{side}.final_norm"] = f"{side}.layer_norm"
EPSILON = 1e-5  # not in the configuration
SLOWEST = 10000.0  # what the first frequency is divided by for the last one
PADDING, END = 1, 2  # where the configuration does not say it


@dataclasses.dataclass(frozen=True)
class Style:
    """In what these families differ.

    Args:
        pre_norm: Whether norms are before the sublayers, and one after each stack.
        embedding_norm: Whether a norm follows the embedding.
        positions: "learned"; "sinusoidal"; or "fairseq": sinusoidal with frequencies from 1 to 1 / 10,000, counted
            without padding from the number after that of the padding token.
        offset: How much further learned positions are looked up.
    """

    pre_norm: bool
    embedding_norm: bool
    positions: str
    offset: int = 2

    def read(self, reader: ConfigReader) -> TransformerConfig:
        """Returns the configuration of a model of this kind."""

        def of_decoder(name: str) -> int | None:
            count = reader.take(f"decoder_{name}")
            return None if count == reader.take(f"encoder_{name}") else count

        for side in ("encoder", "decoder"):
            reader.skip(f"{side}_layerdrop")  # training alone
        reader.take_only("is_encoder_decoder", True)
        reader.take_only("is_decoder", False)
        reader.take_only("tie_word_embeddings", True)
        reader.take_only("share_encoder_decoder_embeddings", True)
        vocabulary = reader.take("vocab_size")
        decoder_vocabulary = reader.take_number("decoder_vocab_size", vocabulary)
        require(
            decoder_vocabulary == vocabulary, "decoder_vocab_size", decoder_vocabulary, f"that of both, {vocabulary}"
        )
        self._check_old_keys(reader)
        reader.skip("num_hidden_layers")  # repeats encoder_layers
        reader.skip("classif_dropout", "classifier_dropout")  # of a head
        return TransformerConfig(
            "encoder_decoder",
            vocabulary,
            hidden_dim=reader.take("d_model"),
            num_layers=reader.take("encoder_layers"),
            num_decoder_layers=of_decoder("layers"),
            decoder_num_heads=of_decoder("attention_heads"),
            decoder_intermediate_dim=of_decoder("ffn_dim"),
            max_length=reader.take("max_position_embeddings", 1024),
            attention=AttentionConfig(
                reader.take("encoder_attention_heads"), dropout=reader.take("attention_dropout", 0.0)
            ),
            position=self._position(reader),
            norm=NormConfig(
                "layer", "pre" if self.pre_norm else "post", epsilon=EPSILON, embedding=self.embedding_norm
            ),
            feed_forward=FeedForwardConfig(
                reader.take("encoder_ffn_dim"),
                reader.take_activation("activation_function", "gelu"),
                dropout=reader.take("activation_dropout", 0.0),
            ),
            embedding=EmbeddingConfig(
                scale=reader.take("scale_embedding", False),
                # zero in most files; the base model has none
                output_bias="final_logits_bias" in reader.tensors,
            ),
            dropout=reader.take("dropout", 0.1),
            initializer_range=reader.take("init_std", 0.02),
        )

    def _check_old_keys(self, reader: ConfigReader) -> None:
        """Keys of an older version of the library, in which all of these were one family."""
        reader.take_only("normalize_before", self.pre_norm)
        reader.take_only("normalize_embedding", self.embedding_norm)
        reader.take_only("add_final_layer_norm", self.pre_norm)
        reader.take_only("static_position_embeddings", self.positions != "learned")
        reader.take_only("add_bias_logits", False)
        if self.positions == "sinusoidal":
            reader.skip("extra_pos_embeddings")  # these have no offset, whatever it says
        else:
            reader.take_only("extra_pos_embeddings", self.offset)

    def _position(self, reader: ConfigReader) -> PositionConfig:
        if self.positions == "learned":
            return PositionConfig("learned", offset=self.offset)
        if self.positions == "fairseq":
            width, padding = reader.take("d_model"), reader.take("pad_token_id", PADDING)
            require(width > 2 and width % 2 == 0, "d_model", width, "even, and above 2, for pairs of features")
            base = SLOWEST ** (width / (width - 2))
            return PositionConfig("sinusoidal", base, layout="concatenated", offset=padding + 1, skips_padding=True)
        # some files hold the sines and cosines as tables, rounded or trained further
        if "encoder.embed_positions.weight" in reader.tensors:
            return PositionConfig("learned")
        return PositionConfig("sinusoidal", layout="concatenated")


def write(config: TransformerConfig) -> dict[str, Any]:
    """Returns the configuration of the Transformers library."""
    values = {
        "vocab_size": config.vocabulary_size,
        "max_position_embeddings": config.max_length,
        "d_model": config.hidden_dim,
        "encoder_layers": config.num_layers,
        "decoder_layers": config.num_decoder_layers or config.num_layers,
        "activation_function": ACTIVATION_NAMES[config.feed_forward.activation],
        "dropout": config.dropout,
        "attention_dropout": config.attention.dropout,
        "activation_dropout": config.feed_forward.dropout,
        "scale_embedding": config.embedding.scale,
        "init_std": config.initializer_range or 0.02,
        "is_encoder_decoder": True,
    }
    for side in ("encoder", "decoder"):
        stack = config.of_stack(side)
        values[f"{side}_attention_heads"] = stack.attention.num_heads
        values[f"{side}_ffn_dim"] = stack.feed_forward.intermediate_dim
    return values


def register(
    model_type: str,
    name: str,
    style: Style,
    head: str = "ForConditionalGeneration",
    start: int | str | None = None,
    writes: Callable[[TransformerConfig], dict[str, Any]] = write,
    has_bias: bool = True,
) -> None:
    """Adds one of these families.

    Args:
        model_type: Its name.
        name: What the names of its classes in the Transformers library begin with.
        style: In what it differs from others.
        head: What the name of its class for generation ends with.
        start: The token that its other heads put before those that the decoder is given; None where it has none.
        writes: Function that writes its configuration.
        has_bias: Whether it has a bias of the vocabulary.
    """
    others = {} if start is None else encoder_decoder_heads(name, start, END, pair_separators=2)
    register_family(
        Family(
            model_type,
            style.read,
            writes,
            TABLE if has_bias else {ours: theirs for ours, theirs in TABLE.items() if ours != "output_bias"},
            architecture=f"{name}Model",
            prefix="model.",
            outside=("final_logits_bias",),
            heads={"Seq2SeqLM": Head(f"{name}{head}"), **others},
            copies={
                "encoder.embed_tokens.weight": "shared.weight",
                "decoder.embed_tokens.weight": "shared.weight",
                "lm_head.weight": "shared.weight",
            },
            ignored=(r"(encoder|decoder)\.embed_positions\.weights",),  # constants of M2M-100
        )
    )


def _write_with_padding(config: TransformerConfig) -> dict[str, Any]:
    """With the padding token of all of them, which those heads need, in case that the task has no tokenizer."""
    return {**write(config), "pad_token_id": PADDING}


def _write_fairseq(config: TransformerConfig) -> dict[str, Any]:
    return {**write(config), "pad_token_id": config.position.offset - 1}


register(
    "bart",
    "Bart",
    Style(pre_norm=False, embedding_norm=True, positions="learned"),
    start=END,
    writes=_write_with_padding,
)
register(
    "mbart",
    "MBart",
    Style(pre_norm=True, embedding_norm=True, positions="learned"),
    start="last",
    writes=_write_with_padding,
)
register("blenderbot", "Blenderbot", Style(pre_norm=True, embedding_norm=False, positions="learned", offset=0))
register("marian", "Marian", Style(pre_norm=False, embedding_norm=False, positions="sinusoidal"), "MTModel")
register("pegasus", "Pegasus", Style(pre_norm=True, embedding_norm=False, positions="sinusoidal"))
register(
    "m2m_100",
    "M2M100",
    Style(pre_norm=True, embedding_norm=False, positions="fairseq"),
    writes=_write_fairseq,
    has_bias=False,
)
