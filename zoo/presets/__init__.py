"""Named configurations, and directories that hold a trained model."""

# these register their presets
from zoo.presets import decoders as _decoders  # noqa: F401
from zoo.presets import encoder_decoders as _encoder_decoders  # noqa: F401
from zoo.presets import encoders as _encoders  # noqa: F401
from zoo.presets import llama2c as _llama2c  # noqa: F401  (registers its reader)
from zoo.presets import reader as _reader  # noqa: F401  (registers itself)
from zoo.presets import recurrent as _recurrent  # noqa: F401  (registers its presets)
from zoo.presets import small as _small  # noqa: F401
from zoo.presets import transformer as _transformer  # noqa: F401
from zoo.presets.registry import Preset, PresetTable, get_preset, list_presets, preset_config, register_preset

__all__ = [
    "Preset",
    "PresetTable",
    "get_preset",
    "list_presets",
    "preset_config",
    "register_preset",
]
