"""The models of the works as configurations of this library, and the operations that they take."""

from __future__ import annotations

import zoo
from recipes.benchmark.works import Work

# those of the models whose shapes the works have: MiniLM, GPT-2, the first Transformer
_ACTIVATIONS = {"encoder": "gelu", "decoder": "gelu_tanh", "encoder_decoder": "relu"}


def configuration(work: Work) -> zoo.TransformerConfig:
    """Returns the configuration of the model of a work.

    Args:
        work: The work.
    """
    original = work.model == "encoder_decoder"
    return zoo.TransformerConfig(
        work.model,
        vocabulary_size=work.vocabulary_size,
        hidden_dim=work.hidden_dim,
        num_layers=work.num_layers,
        max_length=1024 if work.model == "decoder" else 512,
        attention=zoo.AttentionConfig(work.num_heads, dropout=work.dropout),
        feed_forward=zoo.FeedForwardConfig(work.intermediate_dim, _ACTIVATIONS[work.model]),
        norm=zoo.NormConfig(placement="pre" if work.model == "decoder" else "post"),
        position=zoo.PositionConfig("sinusoidal" if original else "learned"),
        dropout=work.dropout,
    )


def operations_of(work: Work) -> float:
    """Returns the floating-point operations of the products of a call; scores count whole, see `zoo.planning`.

    Args:
        work: The work.
    """
    config = configuration(work)
    shape = zoo.planning.model_shape(zoo.planning.without_values(config))
    if work.job == "generate":
        return zoo.planning.generation_operations(shape, work.batch_size * work.beams, work.length, work.new_tokens)
    if work.job == "infer":
        return zoo.planning.forward_operations(shape, work.batch_size, work.length)
    return zoo.planning.operations_of(shape, zoo.planning.Job(config, work.batch_size, work.length)).model
