"""How many weights a configuration needs at least, known before anything is built."""

from zoo.config.checks import count_in_pattern
from zoo.config.model import ModelConfig
from zoo.config.recurrent import RecurrentConfig
from zoo.config.transformer import TransformerConfig


def minimum_weight_counts(config: ModelConfig) -> dict[str, int]:
    """Returns the numbers of entries of the large tensors of a model, by the choices that determine them.

    Args:
        config: The configuration.

    Example:

    >>> minimum_weight_counts(TransformerConfig("encoder", vocabulary_size=100, hidden_dim=8))["vocabulary_size=100"]
    800
    """
    if isinstance(config, RecurrentConfig):
        return _of_recurrent(config)
    return _of_transformer(config)


def require_weights(config: ModelConfig, available: int, weights: str) -> None:
    """Raises a ValueError if a configuration needs far more weights than files hold.

    A model that needs up to about twice as many can be built. Loading then lists the missing weights by name.

    Args:
        config: The configuration.
        available: Number of weights in the files.
        weights: Name of the files, for the error message.
    """
    sizes = minimum_weight_counts(config)
    most = 2 * available + 1_000_000
    for choice, count in sizes.items():
        if count > most:
            raise ValueError(f"{choice} must fit the {available} numbers in {weights}, got at least {count}.")
    total = sum(sizes.values())
    if total > most:
        choices = ", ".join(sizes)
        raise ValueError(f"{choices} must fit the {available} numbers in {weights}, got at least {total}.")


def _of_transformer(config: TransformerConfig) -> dict[str, int]:
    width, heads, network = config.hidden_dim, config.attention.num_heads, config.feed_forward
    embedding, decoder = config.embedding, config.of_stack("decoder")
    layers, decoder_layers = config.num_layers, 0
    choice = f"num_layers={layers}"
    if config.architecture == "encoder_decoder":
        decoder_layers = config.num_decoder_layers or layers
        choice += f" and num_decoder_layers={decoder_layers}"
    if config.layer_groups is not None:
        layers, decoder_layers = config.layer_groups, config.layer_groups if decoder_layers else 0
    sizes = {
        f"vocabulary_size={config.vocabulary_size}": config.vocabulary_size * (embedding.factor_dim or width),
        f"{choice} of hidden_dim={width} with {heads} heads of {config.head_dim}": (
            _mixing_weights(config, layers) + decoder_layers * _attention_weights(decoder)
        ),
        f"feed_forward.intermediate_dim={network.intermediate_dim}": (
            _network_weights(config, layers) + (_network_weights(decoder, decoder_layers) if decoder is config else 0)
        ),
        f"embedding.num_segments={embedding.num_segments}": embedding.num_segments * config.embedding_dim,
    }
    if decoder is not config:
        choice = f"decoder_intermediate_dim={decoder.feed_forward.intermediate_dim}"
        sizes[choice] = _network_weights(decoder, decoder_layers)
    if config.position.kind == "learned":
        sizes[f"max_length={config.max_length}"] = config.max_length * config.embedding_dim
    position = config.position_in_attention
    numbers = (layers, decoder_layers)
    tables = 1 if position.is_shared() else sum(count_in_pattern(position.layers, number) for number in numbers)
    if position.kind == "relative_bias":
        sizes[f"position.num_buckets={position.num_buckets}"] = tables * position.num_buckets * heads
    if position.kind == "disentangled":
        choice, buckets = f"position.num_buckets={position.num_buckets}", position.num_buckets
        if not (position.options or {}).get("buckets", True):
            choice, buckets = f"position.max_distance={position.max_distance}", position.max_distance
        sizes[choice] = tables * 2 * buckets * width
    if position.kind == "shaw":
        sizes[f"position.max_distance={position.max_distance}"] = position.max_distance * config.head_dim
    if not embedding.tie_output and config.architecture != "encoder":
        sizes[f"embedding.tie_output=False with vocabulary_size={config.vocabulary_size}"] = (
            config.vocabulary_size * config.output_dim
        )
    return sizes


def _mixing_weights(config: TransformerConfig, layers: int) -> int:
    """Weights of the projections of attention, and of the mixers in its place, of so many layers."""
    mixer = config.mixer
    if mixer is None:
        return layers * _attention_weights(config)
    mixers = count_in_pattern(mixer.layers, layers)
    return (layers - mixers) * _attention_weights(config) + mixers * mixer.num_weights(config.hidden_dim)


def _attention_weights(config: TransformerConfig) -> int:
    """Weights of the projections of one self-attention."""
    attention, heads = config.attention, config.attention.num_heads
    if attention.latent_dim is not None:
        value_dim = attention.value_head_dim or config.head_dim
        own = heads * (config.head_dim - attention.shared_key_dim + value_dim)
        query = attention.query_latent_dim or config.hidden_dim
        inner = attention.latent_dim + attention.shared_key_dim + heads * value_dim + (attention.query_latent_dim or 0)
        return attention.latent_dim * own + query * heads * config.head_dim + config.hidden_dim * inner
    if attention.value_head_dim is not None:
        width = config.head_dim + attention.value_head_dim
        return config.hidden_dim * width * (heads + (attention.num_key_value_heads or heads))
    memory_heads = attention.num_key_value_heads or heads
    own = heads + 2 * memory_heads if attention.global_tokens is not None else 0
    return config.hidden_dim * config.head_dim * (2 * (heads + memory_heads) + own)


def _network_weights(config: TransformerConfig, layers: int) -> int:
    """Weights of the feed-forward networks, or experts, of so many layers."""
    network = config.feed_forward
    layers = count_in_pattern(network.layers, layers)
    # patterns of both kinds exclude each other
    experts = 0 if network.num_experts is None else count_in_pattern(network.expert_layers, layers)
    dense = (layers - experts) * (network.dense_intermediate_dim or network.intermediate_dim)
    of_experts = (network.num_experts or 0) * network.intermediate_dim + (network.shared_intermediate_dim or 0)
    return config.hidden_dim * (3 if network.gated else 2) * (dense + experts * of_experts)


def _of_recurrent(config: RecurrentConfig) -> dict[str, int]:
    width = config.hidden_dim
    encoder, layers = config.encoder_dim or width, config.num_layers
    decoder_layers = config.num_decoder_layers or layers
    return {
        f"vocabulary_size={config.vocabulary_size}": config.vocabulary_size * config.embedding_dim,
        f"num_layers={layers} of encoder_dim={encoder}": layers * encoder * encoder,
        f"num_decoder_layers={decoder_layers} of hidden_dim={width}": decoder_layers * width * width,
    }
