"""Training with `compile` and `fit`: losses, metrics, learning-rate schedules and callbacks."""

from zoo.training.callbacks import SampleOutputs, StopOnNonFiniteLoss, Throughput
from zoo.training.checkpoint_averaging import CheckpointAveraging
from zoo.training.losses import TokenCrossEntropy
from zoo.training.metrics import Perplexity, TokenAccuracy, TokenCount, TokenNegativeLogLikelihood
from zoo.training.schedules import InverseSquareRoot, PerUpdate, WarmupCosine, WarmupLinear, WarmupStableDecay
from zoo.training.state import ResumableData, TrainingState
from zoo.training.weights import average_weights, load_weights, save_weights

__all__ = [
    "CheckpointAveraging",
    "InverseSquareRoot",
    "PerUpdate",
    "Perplexity",
    "ResumableData",
    "SampleOutputs",
    "StopOnNonFiniteLoss",
    "Throughput",
    "TokenAccuracy",
    "TokenCount",
    "TokenCrossEntropy",
    "TokenNegativeLogLikelihood",
    "TrainingState",
    "WarmupCosine",
    "WarmupLinear",
    "WarmupStableDecay",
    "average_weights",
    "load_weights",
    "save_weights",
]
