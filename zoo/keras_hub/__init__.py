"""Presets of KerasHub in both directions, read and written through `keras_hub` itself."""

from zoo.keras_hub import (  # noqa: F401  each registers its classes
    bart,
    deberta,
    decoders,
    encoders,
    experts,
    factorised,
    gemma,
    gpt,
    phi3,
    reader,
    smollm3,
    t5,
)
from zoo.keras_hub.directory import is_keras_hub, load_backbone, save_backbone
from zoo.keras_hub.tasks import load_task, save_task
from zoo.keras_hub.tokenizers import read_tokenizer

__all__ = ["is_keras_hub", "load_backbone", "load_task", "read_tokenizer", "save_backbone", "save_task"]
