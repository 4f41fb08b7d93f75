"""Presets of KerasHub in both directions, read and written through `keras_hub` itself."""

from zoo.keras_hub import bart, decoders, encoders, reader  # noqa: F401  each registers its classes
from zoo.keras_hub.directory import is_keras_hub, load_backbone, save_backbone
from zoo.keras_hub.tokenizers import read_tokenizer

__all__ = ["is_keras_hub", "load_backbone", "read_tokenizer", "save_backbone"]
