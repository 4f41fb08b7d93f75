"""Keys of models that read long texts in windows."""

from __future__ import annotations

import dataclasses
from typing import Any

from recipes.common.config import setting
from recipes.common.encoder_recipe import EncoderModelConfig


@dataclasses.dataclass(frozen=True)
class WindowedModelConfig(EncoderModelConfig):
    """The model: a new one by preset and options, or a saved one by start_from, and which of its weights train."""

    sequence_length: int | None = setting(
        None, "Most tokens of a text, or of a window; null for as many as the model takes.", least=1
    )
    stride: int | None = setting(
        None, "Tokens that windows of long texts share, at most half of a window; null cuts long texts.", least=0
    )


def length_options(model: WindowedModelConfig) -> dict[str, Any]:
    """Returns the arguments of a task that say what becomes of long texts.

    Args:
        model: The configuration.
    """
    lengths = {} if model.sequence_length is None else {"sequence_length": model.sequence_length}
    return {**lengths, "stride": model.stride, "truncate": model.stride is None}
