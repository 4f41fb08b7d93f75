"""Named configurations, and directories that hold a trained model."""

from zoo.presets import transformer as _transformer  # noqa: F401  (registers its presets)
from zoo.presets.directory import load_task_parts, save_task_parts
from zoo.presets.registry import Preset, get_preset, list_presets, preset_config, register_preset

__all__ = [
    "Preset",
    "get_preset",
    "list_presets",
    "load_task_parts",
    "preset_config",
    "register_preset",
    "save_task_parts",
]
