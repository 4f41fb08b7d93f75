"""Parts that are handed to a layer, in its configuration."""

from typing import Any

import keras


def serialized_part(part: Any) -> dict[str, Any] | None:
    """Returns the configuration of a part that is built by the layer that holds it; None for None.

    Args:
        part: A layer, or another object with a `get_config` that is registered with Keras.
    """
    if part is None:
        return None
    config = keras.saving.serialize_keras_object(part)
    config.pop("build_config", None)
    return config
