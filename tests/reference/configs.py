"""Writes configs.json and model_configs.json: how Keras stores an object of each class, and the layers of whole models.

Files that were saved in the past hold these configurations: they must load, and the same objects must be written as
before. A new class adds to `CASES`. Run it for what is new only (made with keras 3.15.1):

    python -P tests/reference/configs.py  # tokenizers.py next to it is not the library of this name
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras

import layers
import zoo
from layers.attention import Latents
from layers.attention.cache import RollingCache, WholeCache
from layers.attention.weighting import FunctionWeighting
from layers.causal_convolution import CausalConvolution
from layers.masked_batch_norm import MaskedBatchNorm
from layers.recurrent.layer import RecurrentLayer
from layers.recurrent.readout import RecurrentReadout
from layers.recurrent.window import AttentionWindow
from zoo.counts import CountedMean, LossMean
from zoo.generation import beam, constraints, contrastive, filters, penalties, samplers
from zoo.tasks import heads
from zoo.tasks.text_embedder import Projection
from zoo.training import (
    distillation,
    embedding_losses,
    label_losses,
    losses,
    metrics,
    preference_losses,
    schedules,
    similarity_losses,
    span_losses,
)

FILE = Path(__file__).with_suffix(".json")
MODELS_FILE = FILE.with_name("model_configs.json")
NORMAL = keras.initializers.RandomNormal(stddev=0.02, seed=3)
UNIFORM = keras.initializers.VarianceScaling(2.0, mode="fan_out", distribution="uniform")
ONES = keras.initializers.Ones()


def _attention(**options: Any) -> Any:
    return layers.MultiHeadAttention(2, 4, name="attention", **options)


# name: a function that makes the object. The class is the first word of the name.
CASES: dict[str, Callable[[], Any]] = {
    "ALiBi": lambda: layers.positions.ALiBi(4, 6.0, name="a"),
    "AdditiveAttention": lambda: layers.AdditiveAttention(5, True, name="a", dtype="mixed_bfloat16"),
    "AttentionWindow": lambda: AttentionWindow(3, "monotonic", name="a"),
    "BilinearAttention": lambda: layers.BilinearAttention(name="a"),
    "ConvolutionMixer": lambda: layers.ConvolutionMixer(3, False, True, False, name="a", trainable=False),
    "CausalConvolution": lambda: CausalConvolution(4, True, name="a"),
    "DisentangledPositions": lambda: layers.positions.DisentangledPositions(
        8, 6, 16, False, False, True, 1e-4, NORMAL, name="a"
    ),
    "DistanceKernelAttention": lambda: layers.DistanceKernelAttention(0.5, name="a"),
    "DotAttention": lambda: layers.DotAttention(True, name="a"),
    "DynamicTanh": lambda: layers.DynamicTanh(0.8, name="a"),
    "Dropout": lambda: layers.Dropout(0.25, noise_shape=(None, 1, 1), seed=3, name="a"),
    "FeedForward": lambda: layers.FeedForward(
        12, "silu", True, False, 0.1, NORMAL, UNIFORM, ONES, 6, 7.0, 1.0, name="a", dtype="float16"
    ),
    "FeedForward of defaults": lambda: layers.FeedForward(12, name="a"),
    "FunctionWeighting": lambda: FunctionWeighting(keras.activations.softmax, name="a"),
    "Latents": lambda: Latents(8, 2, 6, True, 1e-5, NORMAL, name="a"),
    "GatedDeltaRule": lambda: layers.GatedDeltaRule(
        4,
        6,
        5,
        2,
        kernel_size=3,
        epsilon=1e-3,
        kernel_initializer=NORMAL,
        output_initializer=UNIFORM,
        bias_initializer=ONES,
        name="a",
    ),
    "LayerNorm": lambda: layers.LayerNorm(1e-4, False, False, 2, name="a"),
    "LearnedPositionEmbedding": lambda: layers.positions.LearnedPositionEmbedding(16, 8, NORMAL, 2, name="a"),
    "LowRankUpdate": lambda: layers.dense.LowRankUpdate(8, 2, 4.0, 0.1, True, name="a"),
    "Dense": lambda: layers.dense.Dense(3, activation="gelu", use_bias=False, kernel_initializer=NORMAL, name="a"),
    "MaskedBatchNorm": lambda: MaskedBatchNorm(1e-4, 0.9, name="a"),
    "MixtureOfExperts": lambda: layers.MixtureOfExperts(
        8,
        6,
        3,
        "gelu",
        True,
        True,
        False,
        1.5,
        0.02,
        "sigmoid",
        0.001,
        2.5,
        0.003,
        4,
        2,
        10,
        True,
        True,
        7.0,
        1.0,
        0.1,
        NORMAL,
        UNIFORM,
        ONES,
        name="a",
    ),
    "MixtureOfExperts of defaults": lambda: layers.MixtureOfExperts(4, 6, name="a"),
    "MultiHeadAttention": lambda: _attention(
        num_key_value_heads=1,
        value_head_dim=6,
        output_dim=10,
        use_bias=["output", "query"],
        position=layers.positions.RotaryEmbedding(4, 500.0, name="position"),
        causal=True,
        window=3,
        scale=0.3,
        query_norm=layers.RMSNorm(name="q"),
        key_norm=layers.LayerNorm(name="k"),
        norm_scope="width",
        weighting=keras.activations.softmax,
        output_gate=True,
        dropout=0.2,
        kernel_initializer=NORMAL,
        value_initializer=UNIFORM,
        output_initializer="he_normal",
        bias_initializer=ONES,
        path="plain",
        cache_layout=WholeCache(),
        dtype="mixed_bfloat16",
    ),
    "MultiHeadAttention of defaults": _attention,
    "MultiHeadAttention of sinks": lambda: _attention(sinks=True, use_bias=False, block_size=4, logit_soft_cap=20.0),
    "MultiHeadAttention of a window": lambda: _attention(window=(2, 0), causal=True),
    "MultiHeadAttention of latents": lambda: layers.MultiHeadAttention(
        2, 6, latents=Latents(8, 2, name="latents"), use_bias=False, name="attention"
    ),
    "Projection": lambda: Projection(3, "tanh", False, name="a"),
    "RMSNorm": lambda: layers.RMSNorm(1e-5, True, True, 2, name="a", dtype="bfloat16"),
    "RecurrentDecoder": lambda: layers.RecurrentDecoder(
        4,
        2,
        "lstm",
        True,
        "current_state",
        "additive",
        5,
        3,
        "monotonic",
        True,
        False,
        "copy",
        "attentional",
        6,
        0.1,
        name="a",
    ),
    "RecurrentDecoder of defaults": lambda: layers.RecurrentDecoder(4, context_input=True, bridge="context", name="a"),
    "RecurrentEncoder": lambda: layers.RecurrentEncoder(4, 2, "gru", False, False, True, 0.1, True, name="a"),
    "RecurrentLayer": lambda: RecurrentLayer(4, "gru", False, True, name="a"),
    "RecurrentReadout": lambda: RecurrentReadout("maxout", 6, name="a"),
    "RelativePositionBias": lambda: layers.positions.RelativePositionBias(2, 8, 20, False, NORMAL, name="a"),
    "RollingCache": lambda: RollingCache(5),
    "RotaryEmbedding": lambda: layers.positions.RotaryEmbedding(
        8, 500.0, "interleaved", 4, {"kind": "linear", "factor": 2.0}, 64, 2, name="a"
    ),
    "Router": lambda: layers.router.Router(8, 1, "sigmoid", None, 2.0, 0.01, 0.02, 0.03, True, 4, 2, name="a"),
    "ScaleNorm": lambda: layers.ScaleNorm(1e-4, name="a"),
    "ScheduledSampling": lambda: layers.ScheduledSampling("linear", 0.9, 0.01, 0.1, name="a"),
    "SegmentEmbedding": lambda: layers.SegmentEmbedding(2, 8, NORMAL, name="a"),
    "StateSpace": lambda: layers.StateSpace(
        4,
        6,
        5,
        2,
        kernel_size=3,
        use_bias=True,
        convolution_bias=False,
        step_limit=(0.1, 2.0),
        epsilon=1e-3,
        kernel_initializer=NORMAL,
        output_initializer=UNIFORM,
        bias_initializer=ONES,
        name="a",
    ),
    "ShortConvolution": lambda: layers.ShortConvolution(
        4, True, kernel_initializer=NORMAL, output_initializer=UNIFORM, bias_initializer=ONES, name="a"
    ),
    "ShawRelativePositions": lambda: layers.positions.ShawRelativePositions(4, 3, None, NORMAL, name="a"),
    "SinusoidalPositionEncoding": lambda: layers.positions.SinusoidalPositionEncoding(
        8, 500.0, "concatenated", name="a"
    ),
    "TokenEmbedding": lambda: layers.TokenEmbedding(20, 8, 2.0, 4, True, NORMAL, name="a"),
    "TokenEmbedding of defaults": lambda: layers.TokenEmbedding(20, 4, name="a"),
    "TransformerBlock": lambda: layers.TransformerBlock(
        _attention(),
        layers.FeedForward(12, name="feed_forward"),
        layers.MultiHeadAttention(2, 4, name="cross_attention"),
        norm=layers.RMSNorm(1e-5, name="given"),
        placement="pre",
        attention_norm=False,
        dropout=0.1,
        branch_scale=0.5,
        layer_scale=0.1,
        drop_path=0.2,
        remat=True,
        name="a",
    ),
    "TransformerBlock of defaults": lambda: layers.TransformerBlock(
        _attention(), layers.FeedForward(12, name="feed_forward"), name="a"
    ),
    "TransformerBlock of DeepNorm": lambda: layers.TransformerBlock(
        _attention(), layers.MixtureOfExperts(2, 4, name="experts"), residual_scale=1.5, name="a"
    ),
    "TransformerBlock in parallel": lambda: layers.TransformerBlock(
        _attention(), layers.FeedForward(8, name="f"), placement="parallel", shared_norm=False, name="a"
    ),
    "WholeCache": WholeCache,
    "XPos": lambda: layers.positions.XPos(8, scale_base=256.0, gamma=0.3, base=500.0, name="a"),
    # heads, losses, metrics and schedules
    "ClassificationHead": lambda: heads.ClassificationHead(
        3,
        "tanh",
        inner_bias=False,
        inner_norm=True,
        norm_epsilon=1e-4,
        projection_bias=False,
        dropout=0.2,
        dropout_before=0.3,
        kernel_initializer=NORMAL,
        name="a",
    ),
    "MaskedLMHead": lambda: heads.MaskedLMHead(
        8, 20, "relu", use_bias=False, norm_epsilon=1e-4, kernel_initializer=NORMAL, name="a"
    ),
    "CoSENT": lambda: similarity_losses.CoSENT(10.0, "a", "float64"),
    "CosineRegression": lambda: similarity_losses.CosineRegression(name="a"),
    "CountedMean": lambda: CountedMean(name="a"),
    "LossMean": lambda: LossMean(name="a"),
    "DirectPreference": lambda: preference_losses.DirectPreference(0.2, 0.1, "sum", "a", "float64"),
    "HiddenCosine": lambda: distillation.HiddenCosine("sum", "a", "float64"),
    "IdentityPreference": lambda: preference_losses.IdentityPreference(0.2, name="a"),
    "InBatchNegatives": lambda: embedding_losses.InBatchNegatives(10.0, True, "sum", "a", "float64"),
    "MatryoshkaLoss": lambda: embedding_losses.MatryoshkaLoss(
        embedding_losses.InBatchNegatives(10.0), [2, 4], [1, 2, 3], False, "a", "float64"
    ),
    "OddsRatioPreference": lambda: preference_losses.OddsRatioPreference(0.2, name="a"),
    "SoftTargets": lambda: distillation.SoftTargets(2.0, "sum", "a", "float64"),
    "SpanAccuracy": lambda: span_losses.SpanAccuracy("a"),
    "SpanCrossEntropy": lambda: span_losses.SpanCrossEntropy(name="a"),
    "TokenCrossEntropy": lambda: losses.TokenCrossEntropy(0.1, "sum", "a", "float64"),
    "TripletLoss": lambda: embedding_losses.TripletLoss(0.5, "cosine", "sum", "a", "float64"),
    "WeightedBinaryCrossEntropy": lambda: label_losses.WeightedBinaryCrossEntropy([1, 2], "sum", "a"),
    "Perplexity": lambda: metrics.Perplexity(name="a"),
    "TokenAccuracy": lambda: metrics.TokenAccuracy(name="a"),
    "TokenCount": lambda: metrics.TokenCount(name="a"),
    "TokenNegativeLogLikelihood": lambda: metrics.TokenNegativeLogLikelihood(name="a"),
    "InverseSquareRoot": lambda: schedules.InverseSquareRoot(1e-3, 10),
    "PerUpdate": lambda: schedules.PerUpdate(schedules.WarmupLinear(1e-3, 10, 100), 4),
    "WarmupLinear": lambda: schedules.WarmupLinear(1e-3, 10, 100, 1e-5),
    "WarmupStableDecay": lambda: schedules.WarmupStableDecay(1e-3, 10, 20, 30, 1e-5, "cosine"),
    "WithWarmup": lambda: schedules.WithWarmup(keras.optimizers.schedules.CosineDecay(1e-3, 100), 10),
    "WithWarmup of a rate": lambda: schedules.WithWarmup(1e-3, 10),
    # samplers and processors
    "BannedFirstTokens": lambda: constraints.BannedFirstTokens((3, 4)),
    "BannedTokens": lambda: constraints.BannedTokens((3, 4)),
    "Beam": lambda: beam.Beam(num_beams=3, length_penalty=0.7),
    "Contrastive": lambda: contrastive.Contrastive(top_k=3, alpha=0.4),
    "ForcedFirstToken": lambda: constraints.ForcedFirstToken(3),
    "ForcedLastToken": lambda: constraints.ForcedLastToken((3, 4)),
    "ForcedTokens": lambda: constraints.ForcedTokens((3, 4), 1),
    "FrequencyPenalty": lambda: penalties.FrequencyPenalty(0.4),
    "Greedy": samplers.Greedy,
    "LogitBias": lambda: penalties.LogitBias({3: 1.5}),
    "MinP": lambda: filters.MinP(0.1),
    "MinimumLength": lambda: constraints.MinimumLength(4),
    "NoRepeatNGram": lambda: constraints.NoRepeatNGram(3),
    "Normalized": filters.Normalized,
    "PresencePenalty": lambda: penalties.PresencePenalty(0.4),
    "RepetitionPenalty": lambda: penalties.RepetitionPenalty(1.2),
    "Sample": lambda: samplers.Sample(temperature=0.5, top_k=5, top_p=0.9),
    "Temperature": lambda: filters.Temperature(0.5),
    "TopK": lambda: filters.TopK(5),
    "TopP": lambda: filters.TopP(0.9),
    "TypicalP": lambda: filters.TypicalP(0.9),
}

# Whole models, with the blocks that are built for them.
EXPERTS = zoo.FeedForwardConfig(
    6,
    "silu",
    gated=True,
    use_bias=False,
    gate_limit=7.0,
    up_offset=1.0,
    dropout=0.1,
    num_experts=8,
    experts_per_token=3,
    normalize_weights=False,
    capacity_factor=1.5,
    load_balance_weight=0.02,
    scoring="sigmoid",
    bias_update_rate=0.001,
    weight_scale=2.5,
    expert_groups=4,
    groups_per_token=2,
    z_loss_weight=0.003,
    router_bias=True,
    shared_intermediate_dim=10,
    shared_gate=True,
    expert_layers=(True, False),
    dense_intermediate_dim=12,
)
MODELS: dict[str, Callable[[], Any]] = {
    "gated_delta_rule": lambda: zoo.TransformerConfig(
        "decoder",
        30,
        8,
        2,
        max_length=16,
        attention=zoo.AttentionConfig(2),
        mixer=zoo.MixerConfig("gated_delta_rule", (True, False), 4, False, 4, 2, 3, 5, 1e-4),
    ),
    "state_space": lambda: zoo.TransformerConfig(
        "decoder",
        30,
        8,
        2,
        max_length=16,
        attention=zoo.AttentionConfig(2),
        feed_forward=zoo.FeedForwardConfig(layers=(False,)),
        mixer=zoo.MixerConfig("state_space", (True, False), 4, True, 4, 2, 3, 5, 1e-4, False, (0.1, None)),
    ),
    "short_convolution": lambda: zoo.TransformerConfig(
        "decoder",
        30,
        8,
        2,
        max_length=16,
        attention=zoo.AttentionConfig(2),
        mixer=zoo.MixerConfig("short_convolution", (True, False), 4, True),
    ),
    "encoder": lambda: zoo.TransformerConfig("encoder", 30, 8, 2, max_length=16, attention=zoo.AttentionConfig(2)),
    "decoder": lambda: zoo.TransformerConfig(
        "decoder",
        30,
        hidden_dim=8,
        num_layers=2,
        max_length=16,
        attention=zoo.AttentionConfig(
            2,
            1,
            4,
            use_bias=("query",),
            scale=0.3,
            scale_by_layer=True,
            logit_soft_cap=20.0,
            query_key_norm="rms",
            query_key_norm_scope="per_head",
            window=(3, 0),
            window_layers=(True, False),
            output_gate=True,
            dropout=0.1,
        ),
        position=zoo.PositionConfig(
            "rotary",
            500.0,
            100.0,
            "interleaved",
            2,
            {"kind": "linear", "factor": 2.0},
            False,
            layers=(True, False),
        ),
        norm=zoo.NormConfig("rms", "pre", 1e-5, unit_offset=True, first_attention=False),
        feed_forward=EXPERTS,
        embedding=zoo.EmbeddingConfig(2.0, 0.0, 4, True, False, True, 0, True, False, 0.5, 30.0),
        dropout=0.2,
        branch_scale=0.5,
        layer_scale=0.1,
        drop_path=0.1,
        remat=True,
        initializer_range=0.02,
        bias_initializer={"class_name": "RandomNormal", "config": {"stddev": 0.02}},
        scale_residual_initializer=True,
    ),
    "encoder_decoder": lambda: zoo.TransformerConfig(
        "encoder_decoder",
        30,
        8,
        2,
        1,
        4,
        6,
        max_length=16,
        attention=zoo.AttentionConfig(2),
        position=zoo.PositionConfig("relative_bias", num_buckets=8, max_distance=20),
        norm=zoo.NormConfig("scale", "pre", final=False, embedding=True),
        feed_forward=zoo.FeedForwardConfig(12, "gelu"),
        embedding=zoo.EmbeddingConfig(tie_output=False, output_bias=True),
    ),
    "latents": lambda: zoo.TransformerConfig(
        "decoder",
        30,
        8,
        1,
        max_length=16,
        attention=zoo.AttentionConfig(
            2, head_dim=6, value_head_dim=4, latent_dim=8, shared_key_dim=2, query_latent_dim=6, sinks=False
        ),
        position=zoo.PositionConfig("rotary", rotary_dim=2, options={"rotary_start": 4}),
        norm=zoo.NormConfig("layer", "parallel", use_bias=False, shared=False),
    ),
    "xpos": lambda: zoo.TransformerConfig(
        "decoder",
        30,
        8,
        1,
        max_length=16,
        attention=zoo.AttentionConfig(2, sinks=True),
        position=zoo.PositionConfig("xpos", options={"scale_base": 256.0}),
        norm=zoo.NormConfig("batch", "sandwich"),
    ),
    "two positions": lambda: zoo.TransformerConfig(
        "encoder",
        30,
        8,
        2,
        layer_groups=1,
        max_length=16,
        attention=zoo.AttentionConfig(2),
        position=zoo.PositionConfig("learned", skips_padding=True, offset=2),
        attention_position=zoo.PositionConfig("disentangled", num_buckets=6, max_distance=16),
        norm=zoo.NormConfig("dynamic_tanh", options={"alpha": 0.8}),
        embedding=zoo.EmbeddingConfig(num_segments=2),
        residual_scale="deep_norm",
        pooler=True,
    ),
    "recurrent": lambda: zoo.RecurrentConfig(
        30,
        6,
        8,
        4,
        2,
        1,
        16,
        "lstm",
        bridge="backward",
        attention="current_state",
        score="additive",
        score_units=5,
        window=3,
        window_center="monotonic",
        input_feeding=True,
        readout="attentional",
        readout_dim=6,
        tie_output=True,
        dropout=0.1,
        feeding="scheduled_sampling",
        feeding_choice="sample",
        schedule="linear",
        schedule_constant=0.9,
        schedule_slope=0.01,
        schedule_minimum=0.1,
    ),
}


def stored(value: Any) -> dict[str, Any]:
    """Returns an object as Keras stores it, as plain JSON values."""
    return json.loads(json.dumps(keras.saving.serialize_keras_object(value)))


def made(name: str) -> Any:
    """Returns the object of a case; names that Keras counts begin anew."""
    keras.backend.clear_session(free_memory=False)
    return CASES[name]()


def parts(config: Any) -> list[dict[str, Any]]:
    """Returns the layers that are built for a configuration, those of stacks one by one, as Keras stores them."""
    keras.backend.clear_session(free_memory=False)
    found = []
    for layer in zoo.Backbone.from_config(config)._flatten_layers(include_self=False, recursive=False):
        if not hasattr(layer, "blocks"):
            found.append(layer)
            continue
        others = ("position", "attention_position", "embedding_norm", "embedding_dropout", "final_norm")
        found += [*layer.blocks, *(getattr(layer, name) for name in others)]
    return [stored(layer) for layer in found if layer is not None]


def main() -> None:
    objects = {name: stored(made(name)) for name in CASES}
    models = {name: [make().to_dict(), parts(make())] for name, make in MODELS.items()}
    for file, values in ((FILE, objects), (MODELS_FILE, models)):
        lines = (f"{json.dumps(name)}: {json.dumps(value, separators=(',', ':'))}" for name, value in values.items())
        file.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
