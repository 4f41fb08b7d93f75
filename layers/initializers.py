"""Different initial values for weights of a layer that share an initializer."""

import keras


def separate(initializer: keras.initializers.Initializer, index: int) -> keras.initializers.Initializer:
    """Returns a copy of an initializer that draws different numbers for each index.

    A Keras initializer draws the same numbers at each call. Weights of one shape that share it start equal, and stay
    equal as long as their gradients are equal.

    Args:
        initializer: The initializer. If it has an integer seed, or a `keras.random.SeedGenerator` made from one, the
            copy has the seed `seed + index`. Otherwise the copy has a random seed.
        index: Number of the weight within the layer.

    Example:

    >>> up, gate = (separate(keras.initializers.GlorotUniform(seed=3), index) for index in range(2))
    """
    config = initializer.get_config()
    seed = config.get("seed")
    seeded = seed["config"] if isinstance(seed, dict) else config  # a `SeedGenerator` is written as a dictionary
    if isinstance(seeded.get("seed"), int):
        seeded["seed"] += index
    return type(initializer).from_config(config)
