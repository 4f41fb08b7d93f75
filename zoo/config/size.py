"""How many weights a configuration needs at least, known before anything is built."""

from zoo.config.checks import count_in_pattern
from zoo.config.model import ModelConfig
from zoo.config.parts import FeedForwardConfig
from zoo.config.recurrent import RecurrentConfig
from zoo.config.transformer import TransformerConfig


def least_weights(config: ModelConfig) -> dict[str, int]:
    """Returns how many numbers the large tensors of a model hold, by the choices that they come from.

    Args:
        config: The configuration.

    Example:

    >>> least_weights(TransformerConfig("encoder", vocabulary_size=100, hidden_dim=8))["vocabulary_size=100"]
    800
    """
    if isinstance(config, RecurrentConfig):
        return _of_recurrent(config)
    return _of_transformer(config)


def require_weights(config: ModelConfig, available: int, weights: str) -> None:
    """Raises a ValueError where a configuration needs far more weights than files hold.

    What needs twice as many, or a few, can be built: the weights that are missing are then listed by their names.

    Args:
        config: The configuration.
        available: How many numbers the files hold.
        weights: Where they are, for the error.
    """
    sizes = least_weights(config)
    most = 2 * available + 1_000_000
    for choice, count in sizes.items():
        if count > most:
            raise ValueError(f"{choice} must fit the {available} numbers in {weights}, got at least {count}.")
    total = sum(sizes.values())
    if total > most:
        choices = ", ".join(sizes)
        raise ValueError(f"{choices} must fit the {available} numbers in {weights}, got at least {total}.")


def _of_transformer(config: TransformerConfig) -> dict[str, int]:
    width, attention, feed_forward = config.hidden_dim, config.attention, config.feed_forward
    heads, key_value_heads = attention.num_heads, attention.num_key_value_heads or attention.num_heads
    embedding = config.embedding
    per_layer = 2 * width * config.head_dim * (heads + key_value_heads)
    inner = width * (3 if feed_forward.gated else 2)  # for each unit between the layers of a network
    layers = config.num_layers
    choice = f"num_layers={layers}"
    if config.architecture == "encoder_decoder":
        decoder_layers = config.num_decoder_layers or layers
        layers += decoder_layers
        choice += f" and num_decoder_layers={decoder_layers}"
    if config.layer_groups is not None:
        layers = config.layer_groups * (2 if config.architecture == "encoder_decoder" else 1)
    sizes = {
        f"vocabulary_size={config.vocabulary_size}": config.vocabulary_size * (embedding.factor_dim or width),
        f"{choice} of hidden_dim={width} with {heads} heads of {config.head_dim}": layers * per_layer,
        f"feed_forward.intermediate_dim={feed_forward.intermediate_dim}": inner * _inner_units(feed_forward, layers),
        f"embedding.num_segments={embedding.num_segments}": embedding.num_segments * config.embedding_dim,
    }
    position = config.position
    if position.kind == "learned":
        sizes[f"max_length={config.max_length}"] = config.max_length * config.embedding_dim
    if position.kind == "relative_bias":
        sizes[f"position.num_buckets={position.num_buckets}"] = position.num_buckets * heads
    if position.kind == "shaw":
        sizes[f"position.max_distance={position.max_distance}"] = position.max_distance * config.head_dim
    if not embedding.tie_output and config.architecture != "encoder":
        sizes[f"embedding.tie_output=False with vocabulary_size={config.vocabulary_size}"] = (
            config.vocabulary_size * config.output_dim
        )
    return sizes


def _inner_units(config: FeedForwardConfig, layers: int) -> int:
    """Units between the layers of all networks of a stack, or of two that are about alike."""
    experts = 0 if config.num_experts is None else count_in_pattern(config.expert_layers, layers)
    dense = (layers - experts) * (config.dense_intermediate_dim or config.intermediate_dim)
    of_experts = (config.num_experts or 0) * config.intermediate_dim + (config.shared_intermediate_dim or 0)
    return dense + experts * of_experts


def _of_recurrent(config: RecurrentConfig) -> dict[str, int]:
    width = config.hidden_dim
    encoder, layers = config.encoder_dim or width, config.num_layers
    decoder_layers = config.num_decoder_layers or layers
    return {
        f"vocabulary_size={config.vocabulary_size}": config.vocabulary_size * config.embedding_dim,
        f"num_layers={layers} of encoder_dim={encoder}": layers * encoder * encoder,
        f"num_decoder_layers={decoder_layers} of hidden_dim={width}": decoder_layers * width * width,
    }
