"""Training with `compile` and `fit`: losses, metrics, learning-rate schedules and callbacks.

Gradient clipping and accumulation are arguments of the Keras optimizers. What to know about them (keras 3.15):

* `gradient_accumulation_steps=n` averages the gradients of n batches with equal weights. Tasks weight them by what
  counts in each batch, see `zoo.counts`, so that the update is that of one large batch.
* With it, a learning-rate schedule is given the number of batches, not of updates: wrap it in `PerUpdate`.
* `global_clipnorm` on TensorFlow takes the norm of the sparse gradient of a `keras.layers.Embedding` before adding up
  the rows of tokens that occur several times, and so clips less than it says, unless the embedding is tied to the
  output or gradients are accumulated, which both make the gradient dense.
* On TensorFlow, a `tf.data.Dataset` of unknown length makes Keras run the training step once more at the end of each
  epoch, which counts an update and decays weights without data. `TrainingState` ends epochs before that.
"""

from zoo.training.buckets import BatchPlan, choose_bucket_lengths, count_batches, plan_batches
from zoo.training.callback_state import has_state
from zoo.training.callbacks import SampleOutputs, StopOnNonFiniteLoss, Throughput
from zoo.training.checkpoint_averaging import CheckpointAveraging
from zoo.training.distillation import Distiller, HiddenCosine, SoftTargets
from zoo.training.embedding_losses import InBatchNegatives, MatryoshkaLoss, TripletLoss
from zoo.training.label_losses import WeightedBinaryCrossEntropy
from zoo.training.layerwise import OPTIMIZERS, layer_decay_factors, scale_learning_rates
from zoo.training.losses import TokenCrossEntropy
from zoo.training.metrics import Perplexity, TokenAccuracy, TokenCount, TokenNegativeLogLikelihood
from zoo.training.preference_losses import DirectPreference, IdentityPreference, OddsRatioPreference
from zoo.training.reply_likelihoods import ReplyLikelihoods
from zoo.training.resumable_data import ResumableBatches, ResumableData
from zoo.training.schedules import InverseSquareRoot, PerUpdate, WarmupLinear, WarmupStableDecay, WithWarmup
from zoo.training.similarity_losses import CoSENT, CosineRegression
from zoo.training.span_losses import SpanAccuracy, SpanCrossEntropy
from zoo.training.state import TrainingState
from zoo.training.state_folder import saved_position

__all__ = [
    "OPTIMIZERS",
    "BatchPlan",
    "CheckpointAveraging",
    "CoSENT",
    "CosineRegression",
    "DirectPreference",
    "Distiller",
    "HiddenCosine",
    "IdentityPreference",
    "InBatchNegatives",
    "InverseSquareRoot",
    "MatryoshkaLoss",
    "OddsRatioPreference",
    "PerUpdate",
    "Perplexity",
    "ReplyLikelihoods",
    "ResumableBatches",
    "ResumableData",
    "SampleOutputs",
    "SoftTargets",
    "SpanAccuracy",
    "SpanCrossEntropy",
    "StopOnNonFiniteLoss",
    "Throughput",
    "TokenAccuracy",
    "TokenCount",
    "TokenCrossEntropy",
    "TokenNegativeLogLikelihood",
    "TrainingState",
    "TripletLoss",
    "WarmupLinear",
    "WarmupStableDecay",
    "WeightedBinaryCrossEntropy",
    "WithWarmup",
    "choose_bucket_lengths",
    "count_batches",
    "has_state",
    "layer_decay_factors",
    "plan_batches",
    "saved_position",
    "scale_learning_rates",
]
