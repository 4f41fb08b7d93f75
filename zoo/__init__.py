"""A model zoo for Keras 3: composable sequence models, presets, training, decoding, export."""

import layers as _layers

# a name that the layers.py of somebody else will not have
if not hasattr(_layers, "ShawRelativePositions"):
    raise ImportError(
        f"`import layers` found {_layers.__spec__.origin or list(_layers.__path__)}, not the package `layers` of "
        "keras-transformer-zoo: rename that module or start Python elsewhere."
    )

from zoo import (
    backbones,
    config,
    distribution,
    export,
    generation,
    huggingface,
    inspect,
    keras_hub,
    planning,
    preprocessing,
    presets,
    storage,
    tasks,
    tokenizers,
    training,
)
from zoo.backbones import Backbone, RecurrentSeq2Seq, Transformer
from zoo.config import (
    AttentionConfig,
    EmbeddingConfig,
    FeedForwardConfig,
    MixerConfig,
    NormConfig,
    PositionConfig,
    RecurrentConfig,
    TransformerConfig,
)
from zoo.generation import (
    BannedTokens,
    Beam,
    Contrastive,
    ForcedTokens,
    Greedy,
    MinimumLength,
    NoRepeatNGram,
    RepetitionPenalty,
    Sample,
)
from zoo.gradient_registry import release_graphs
from zoo.presets import list_presets, preset_config, register_preset
from zoo.tasks import (
    CausalLM,
    MaskedLM,
    QuestionAnswerer,
    ReplacedTokenDetector,
    Seq2SeqLM,
    Task,
    TextClassifier,
    TextEmbedder,
    TokenClassifier,
)
from zoo.version import __version__ as __version__

release_graphs()

__all__ = [
    "AttentionConfig",
    "Backbone",
    "BannedTokens",
    "Beam",
    "CausalLM",
    "Contrastive",
    "EmbeddingConfig",
    "FeedForwardConfig",
    "ForcedTokens",
    "Greedy",
    "MaskedLM",
    "MixerConfig",
    "MinimumLength",
    "NoRepeatNGram",
    "NormConfig",
    "PositionConfig",
    "QuestionAnswerer",
    "RecurrentConfig",
    "RecurrentSeq2Seq",
    "RepetitionPenalty",
    "ReplacedTokenDetector",
    "Sample",
    "Seq2SeqLM",
    "Task",
    "TextClassifier",
    "TextEmbedder",
    "TokenClassifier",
    "Transformer",
    "TransformerConfig",
    "backbones",
    "config",
    "distribution",
    "export",
    "generation",
    "huggingface",
    "inspect",
    "keras_hub",
    "planning",
    "list_presets",
    "preprocessing",
    "preset_config",
    "presets",
    "register_preset",
    "storage",
    "tasks",
    "tokenizers",
    "training",
]
